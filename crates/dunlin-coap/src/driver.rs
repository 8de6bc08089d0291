//! The task that drives one association, as client or as server.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use coap_lite::{CoapOption, CoapRequest, CoapResponse, MessageClass, Packet, ResponseType};
use dunlin::Instant;
use dunlin::error::Misuse;
use dunlin_tokio::{DtlsAssociation, now};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{Id, JoinSet};

use crate::error::CoapError;
use crate::exchanges::{ExchangeEvent, ExchangeId, Exchanges, RequestId};
use crate::handler::{Handler, Peer};
use crate::parameters::Parameters;

/// The latest response to a request, or its error.
pub(crate) type Outcome = Option<Result<CoapResponse, CoapError>>;

/// A command from a client to the task.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send a request.
    Start { key: u64, message: Box<Packet>, outcomes: watch::Sender<Outcome> },
    /// Give a request or an observation up.
    Cancel { key: u64 },
}

/// An association and its exchanges.
pub(crate) struct Driver {
    association: DtlsAssociation,
    exchanges: Exchanges,
}

impl Driver {
    pub(crate) fn new(association: DtlsAssociation, parameters: Parameters) -> Result<Self, CoapError> {
        let seed = getrandom::u64().map_err(io::Error::other)?;
        let exchanges = Exchanges::new(parameters, association.max_data(), seed)?;
        Ok(Self { association, exchanges })
    }

    /// Sends the output.
    async fn flush(&mut self) -> io::Result<()> {
        loop {
            // A longer connection ID of the peer leaves less room (RFC 9147 §9).
            self.exchanges.set_max_message(self.association.max_data());
            let Some(message) = self.exchanges.poll_transmit() else { return Ok(()) };
            match self.association.send(&message).await {
                Err(error) if !is_too_long(&error) => return Err(error),
                _ => {}
            }
        }
    }

    /// Receives a message or handles the timers. The caller can drop the future without loss.
    async fn step(&mut self) -> Result<(), CoapError> {
        let deadline = self.exchanges.poll_timeout();
        tokio::select! {
            received = self.association.recv() => match received? {
                Some(message) => self.exchanges.receive(now().monotonic, &message),
                None => return Err(CoapError::Closed),
            },
            () = until(deadline) => self.exchanges.handle_timeout(now().monotonic),
        }
        Ok(())
    }

    /// Drives a client until it has no handles or the association ends.
    pub(crate) async fn run_client(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut own = Own::default();
        let error = loop {
            own.hear(&mut self.exchanges);
            if let Err(error) = self.flush().await {
                break error.into();
            }
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => own.handle(command, &mut self.exchanges),
                    None => break CoapError::Closed,
                },
                stepped = self.step() => if let Err(error) = stepped {
                    break error;
                },
            }
        };
        commands.close();
        while let Ok(command) = commands.try_recv() {
            if let Command::Start { outcomes, .. } = command {
                outcomes.send_replace(Some(Err(error.clone())));
            }
        }
        own.0.into_values().for_each(|(_, outcomes)| drop(outcomes.send_replace(Some(Err(error.clone())))));
    }

    /// Drives a server until the association ends.
    pub(crate) async fn run_server<H: Handler>(
        mut self,
        handler: Arc<H>,
        mut changes: broadcast::Receiver<Arc<str>>,
    ) -> Result<(), CoapError> {
        let peer = Peer::new(&self.association);
        let mut served = Served {
            handler,
            peer,
            tasks: JoinSet::new(),
            requests: HashMap::new(),
            observed: HashMap::new(),
        };
        loop {
            served.hear(&mut self.exchanges);
            self.flush().await?;
            tokio::select! {
                stepped = self.step() => match stepped {
                    Ok(()) => {}
                    Err(CoapError::Closed) => return Ok(()),
                    Err(error) => return Err(error),
                },
                Some(done) = served.tasks.join_next_with_id() => {
                    let (task, response) = match done {
                        Ok((task, response)) => (task, response),
                        // The handler has panicked.
                        Err(error) => (error.id(), Some(failure())),
                    };
                    served.finish(task, response, &mut self.exchanges);
                }
                changed = changes.recv() => match changed {
                    Ok(path) => served.change(Some(&path)),
                    // Too many changes at once: notify of all resources.
                    Err(broadcast::error::RecvError::Lagged(_)) => served.change(None),
                    Err(broadcast::error::RecvError::Closed) => return Ok(()),
                },
            }
        }
    }
}

/// Whether the association has no room for a message of this length any more. Then the message is lost, as in
/// a network.
fn is_too_long(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(error, Some(dunlin::Error::Misuse(Misuse::DataTooLong { .. })))
}

/// Waits until the deadline; without one, for ever.
async fn until(deadline: Option<Instant>) {
    let Some(deadline) = deadline else { return pending().await };
    // The clock counts whole milliseconds, so it may still show the previous one.
    tokio::time::sleep(deadline.since(now().monotonic) + Duration::from_millis(1)).await;
}

/// The response of a handler that has failed.
fn failure() -> CoapResponse {
    let mut message = Packet::new();
    message.header.code = MessageClass::Response(ResponseType::InternalServerError);
    CoapResponse { message }
}

/// The requests of a client by their keys.
#[derive(Default)]
struct Own(HashMap<u64, (ExchangeId, watch::Sender<Outcome>)>);

impl Own {
    fn handle(&mut self, command: Command, exchanges: &mut Exchanges) {
        match command {
            Command::Start { key, message, outcomes } => match exchanges.request(now().monotonic, *message) {
                Ok(id) => drop(self.0.insert(key, (id, outcomes))),
                Err(error) => drop(outcomes.send_replace(Some(Err(error)))),
            },
            Command::Cancel { key } => {
                if let Some((id, _)) = self.0.remove(&key) {
                    exchanges.cancel(now().monotonic, id);
                }
            }
        }
    }

    fn hear(&mut self, exchanges: &mut Exchanges) {
        while let Some(event) = exchanges.poll_event() {
            match event {
                ExchangeEvent::Response(id, message) => {
                    // A response that continues the observation keeps its exchange.
                    let is_last = !exchanges.is_open(id);
                    self.tell(id, Ok(CoapResponse { message }), is_last);
                }
                ExchangeEvent::Failed(id, error) => self.tell(id, Err(error), true),
                // This side serves nothing.
                ExchangeEvent::Request(id, _) => {
                    let mut response = failure();
                    response.set_status(ResponseType::NotFound);
                    let _ = exchanges.respond(now().monotonic, id, response.message);
                }
                ExchangeEvent::Notified(_) | ExchangeEvent::Cancelled(_) => {}
            }
        }
    }

    fn tell(&mut self, id: ExchangeId, outcome: Result<CoapResponse, CoapError>, is_last: bool) {
        let Some(key) = self.0.iter().find(|(_, (of, _))| *of == id).map(|(key, _)| *key) else { return };
        if let Some((_, outcomes)) = self.0.get(&key) {
            outcomes.send_replace(Some(outcome));
        }
        if is_last {
            self.0.remove(&key);
        }
    }
}

/// A resource that the peer observes.
struct Observed {
    /// The request that registered the observer.
    request: Packet,
    path: String,
    /// The handler makes a notification, or one is on its way.
    is_busy: bool,
    /// The resource has changed since.
    has_changed: bool,
}

/// A request for which the handler runs: a new one, or an observer's request again.
struct Running {
    id: RequestId,
    request: Packet,
    /// A resource has changed since the handler was called.
    has_changed: bool,
}

/// The requests of a peer and its observations.
struct Served<H> {
    handler: Arc<H>,
    peer: Peer,
    tasks: JoinSet<Option<CoapResponse>>,
    /// The request that each task handles.
    requests: HashMap<Id, Running>,
    observed: HashMap<RequestId, Observed>,
}

impl<H: Handler> Served<H> {
    fn hear(&mut self, exchanges: &mut Exchanges) {
        while let Some(event) = exchanges.poll_event() {
            match event {
                ExchangeEvent::Request(id, packet) => self.call(id, packet),
                ExchangeEvent::Notified(id) => self.resume(id),
                ExchangeEvent::Cancelled(id) => drop(self.observed.remove(&id)),
                // This side requests nothing.
                ExchangeEvent::Response(..) | ExchangeEvent::Failed(..) => {}
            }
        }
    }

    /// Starts the handler.
    fn call(&mut self, id: RequestId, packet: Packet) {
        let request = CoapRequest::from_packet(packet.clone(), self.peer.clone());
        let handler = Arc::clone(&self.handler);
        let task = self.tasks.spawn(async move { handler.handle(request).await });
        self.requests.insert(task.id(), Running { id, request: packet, has_changed: false });
    }

    /// Sends what the handler has returned.
    fn finish(&mut self, task: Id, response: Option<CoapResponse>, exchanges: &mut Exchanges) {
        let Some(Running { id, request, has_changed }) = self.requests.remove(&task) else { return };
        let now = now().monotonic;
        let result = match (self.observed.contains_key(&id), response) {
            (true, Some(response)) => exchanges.notify(now, id, response.message),
            (true, None) => {
                self.resume(id);
                Ok(())
            }
            (false, Some(response)) => exchanges.respond(now, id, response.message).map(|is_observer| {
                if is_observer {
                    let observed = Observed { path: path(&request), request, is_busy: false, has_changed };
                    self.observed.insert(id, observed);
                    self.resume(id);
                }
            }),
            (false, None) => {
                exchanges.ignore(now, id);
                Ok(())
            }
        };
        if let Err(error) = result {
            self.handler.failed(&self.peer, &error);
        }
    }

    /// Notifies the observers of the resource at `changed`, or all observers.
    fn change(&mut self, changed: Option<&str>) {
        let is_concerned = |path: &str| changed.is_none_or(|changed| path == changed);
        // The handler may have read the resource before the change.
        for running in self.requests.values_mut().filter(|running| is_concerned(&path(&running.request))) {
            running.has_changed = true;
        }
        let observed = self.observed.iter_mut().filter(|(_, observed)| is_concerned(&observed.path));
        let idle: Vec<RequestId> = observed
            .filter_map(|(id, observed)| {
                observed.has_changed = true;
                (!observed.is_busy).then_some(*id)
            })
            .collect();
        idle.into_iter().for_each(|id| self.resume(id));
    }

    /// Makes the next notification of an observer, now that the previous one is done, if its resource has
    /// changed.
    fn resume(&mut self, id: RequestId) {
        let Some(observed) = self.observed.get_mut(&id) else { return };
        observed.is_busy = std::mem::take(&mut observed.has_changed);
        if observed.is_busy {
            let packet = observed.request.clone();
            self.call(id, packet);
        }
    }
}

/// The path of a request, without the leading slash.
fn path(request: &Packet) -> String {
    let segments = request.get_option(CoapOption::UriPath).into_iter().flatten();
    segments.map(|segment| String::from_utf8_lossy(segment)).collect::<Vec<_>>().join("/")
}
