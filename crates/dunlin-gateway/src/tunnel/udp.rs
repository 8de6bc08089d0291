//! Local programs over UDP: their datagrams go to the server over DTLS. Each local address and port has an
//! association, or all share one.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use dunlin::wire::AlertDescription;
use dunlin::{EndpointLimits, Path};
use dunlin_registry::lookup;
use dunlin_tokio::places::{Places, Seated};
use dunlin_tokio::{
    AttemptError, DtlsAssociation, DtlsAttempt, DtlsEndpoint, DtlsOptions, PathEvent, PlainBuffers,
    PlainSocket, connect_first,
};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::frozen::Thawed;
use super::remote::{self, Backoff, Failure};
use super::{ListenerState, Settings, handshake_failed, outcome};
use crate::clock::{now, timer};
use crate::context::Context;
use crate::identity;
use crate::life::{Phase, reached};
use crate::metrics::{Established, Limit};
use crate::proxy::tcp::CLOSE_PATIENCE;
use crate::service;

/// The datagrams of an association that wait for its handshake or for its socket. Further ones are lost, as
/// in a network.
const QUEUE: usize = 64;

/// How long an association goes on without traffic once the tunnel stops: so long the server has time to
/// answer.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// The pause after a failure to receive, for example for lack of memory.
const RECEIVE_PAUSE: Duration = Duration::from_millis(10);

/// A datagram of a local program.
struct Datagram {
    data: Vec<u8>,
    /// The program, and the address of the tunnel that it has asked.
    from: Path,
}

/// The local address of an association; `None` for the one that all share.
type Source = Option<SocketAddr>;

/// The socket of a listener, and its associations.
struct Listener {
    context: Arc<Context>,
    settings: Settings,
    socket: Arc<PlainSocket>,
    places: Arc<Places>,
    queues: HashMap<Source, mpsc::Sender<Datagram>>,
    /// Associations that have ended. There are no more than tasks.
    ended: mpsc::UnboundedSender<Source>,
    /// Whether there are no new associations.
    closing: watch::Sender<bool>,
}

/// Receives from local programs until the tunnel stops or `removed` becomes true, and the associations have
/// ended.
pub(crate) async fn run(
    context: Arc<Context>,
    settings: Settings,
    socket: UdpSocket,
    mut removed: watch::Receiver<bool>,
) {
    let socket = match PlainSocket::new(socket) {
        Ok(socket) => Arc::new(socket),
        Err(error) => {
            let name = settings.load().config.name.clone();
            tracing::error!(listener = name, %error, "the system gives no datagrams; report this error");
            return;
        }
    };
    let (ended, mut has_ended) = mpsc::unbounded_channel();
    let phases = context.life.phases();
    let mut listener = Listener {
        context,
        settings,
        socket: socket.clone(),
        places: Arc::default(),
        queues: HashMap::new(),
        ended,
        closing: watch::Sender::new(false),
    };
    listener.resume();
    let mut buffers = PlainBuffers::new();
    loop {
        let is_open = !*listener.closing.borrow();
        if !is_open && listener.queues.is_empty() {
            return;
        }
        tokio::select! {
            received = socket.receive(&mut buffers, |from, data| listener.deliver(data, from)) => match received {
                Ok(()) => {}
                // A local program that has closed its port leaves an error here (RFC 1122 §4.1.3.3).
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    let name = listener.settings.load().config.name.clone();
                    tracing::error!(listener = name, %error, "nothing received; free memory");
                    sleep(RECEIVE_PAUSE).await;
                }
            },
            Some(source) = has_ended.recv() => listener.forget(source),
            () = closes(&phases, &mut removed), if is_open => drop(listener.closing.send_replace(true)),
        }
    }
}

/// Waits until there are to be no new associations.
async fn closes(phases: &watch::Receiver<Phase>, removed: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = reached(phases, Phase::Draining) => {}
        _ = removed.wait_for(|removed| *removed) => {}
    }
}

impl Listener {
    /// Forgets an association that has ended, unless its source has a new one.
    fn forget(&mut self, source: Source) {
        if self.queues.get(&source).is_some_and(mpsc::Sender::is_closed) {
            self.queues.remove(&source);
        }
    }

    /// Passes a datagram to the association of its source, or begins one.
    fn deliver(&mut self, data: &[u8], from: Path) {
        let live = self.settings.load_full();
        let source = (!live.config.datagrams.shared).then_some(from.peer);
        let mut datagram = Datagram { data: data.to_vec(), from };
        if let Some(queue) = self.queues.get(&source) {
            datagram = match queue.try_send(datagram) {
                Ok(()) => return,
                Err(mpsc::error::TrySendError::Full(_)) => return self.lose(&live),
                Err(mpsc::error::TrySendError::Closed(datagram)) => datagram,
            };
        }
        if *self.closing.borrow() {
            return self.lose(&live);
        }
        let sender = self.begin(live, source, from.peer, None);
        // The queue is empty.
        let _ = sender.try_send(datagram);
    }

    /// Begins with the associations of the previous tunnel.
    fn resume(&mut self) {
        let live = self.settings.load_full();
        let thawed = std::mem::take(&mut *live.thawed.lock().unwrap_or_else(PoisonError::into_inner));
        for thawed in thawed {
            let from = thawed.from.peer;
            let source = (!live.config.datagrams.shared).then_some(from);
            self.begin(live.clone(), source, from, Some(thawed));
        }
    }

    /// Begins to serve a program, and returns the way to it.
    fn begin(
        &mut self,
        live: Arc<ListenerState>,
        source: Source,
        from: SocketAddr,
        thawed: Option<Thawed>,
    ) -> mpsc::Sender<Datagram> {
        let (sender, queue) = mpsc::channel(QUEUE);
        self.queues.insert(source, sender.clone());
        let client = Client {
            context: self.context.clone(),
            settings: self.settings.clone(),
            socket: self.socket.clone(),
            places: self.places.clone(),
            queue,
            closing: self.closing.subscribe(),
        };
        let serving =
            service::counted(self.context.clone(), false, live, from, Box::pin(client.serve(from, thawed)));
        let ended = self.ended.clone();
        tokio::spawn(async move {
            serving.await;
            // It fails only if the listener has ended.
            let _ = ended.send(source);
        });
        sender
    }

    fn lose(&self, live: &ListenerState) {
        self.context.metrics.dropped(&live.config.name, 1);
    }
}

/// A local program, or all of them, with one association after the other.
struct Client {
    context: Arc<Context>,
    settings: Settings,
    socket: Arc<PlainSocket>,
    places: Arc<Places>,
    queue: mpsc::Receiver<Datagram>,
    closing: watch::Receiver<bool>,
}

/// An association with the server, and its socket.
struct Link {
    /// It drives the association.
    endpoint: DtlsEndpoint,
    dtls: DtlsAssociation,
    /// Whether it has begun in the previous tunnel.
    is_thawed: bool,
    /// Counts it as connected, after a handshake of this tunnel.
    _established: Option<Established>,
}

/// Why an association has ended.
enum End {
    /// The server has closed it.
    Closed,
    /// It failed.
    Failed(io::Error),
    /// The server of a thawed association has lost its identity.
    Refused,
    /// The server does not answer. It may have forgotten the association.
    Unanswered,
    /// There was no traffic for the idle time.
    Idle,
    /// The program gave way to another one at a limit.
    GaveWay,
    /// The tunnel stops.
    Stopped,
}

impl End {
    fn why(&self) -> String {
        match self {
            Self::Closed => "closed by the server".to_owned(),
            Self::Failed(error) => format!("the association failed: {error}"),
            Self::Refused => lookup::ENDED.to_owned(),
            Self::Unanswered => "no answer within probe_time".to_owned(),
            Self::Idle => "no traffic within idle_time".to_owned(),
            Self::GaveWay => "gave way to another client".to_owned(),
            Self::Stopped => "the tunnel stops".to_owned(),
        }
    }
}

/// The traffic of an association.
#[derive(Default)]
struct Passed {
    from_client: u64,
    to_client: u64,
    dropped: u64,
}

impl Client {
    /// Serves the program until it is silent for the idle time. The error is the limit that it has reached.
    async fn serve(self, from: SocketAddr, thawed: Option<Thawed>) -> Result<(), Limit> {
        let context = self.context.clone();
        let live = self.settings.load_full();
        // A local program proves no identity.
        let seated = self.places.settle(from.ip(), None, &live.config.limits.places()).map_err(Limit::of)?;
        self.associate(&seated, from, thawed).await;
        if let Some(why) = seated.gives_way() {
            let listener = &live.config.name;
            context.metrics.gave_way(listener, why);
            tracing::info!(listener, client = %from, why = why.name(), "gave way to another client");
        }
        Ok(())
    }

    /// Associates the program with the server, again and again, until it is silent for the idle time or gives
    /// way to another one.
    async fn associate(mut self, seated: &Seated, from: SocketAddr, thawed: Option<Thawed>) {
        let live = self.settings.load_full();
        let mut outage = Outage::new(&live, timer());
        if let Some(thawed) = thawed {
            let path = thawed.from;
            match resume(&live, thawed).await {
                Ok(link) if !self.pass(&live, &link, None, (path, seated)).await => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(listener = live.config.name, client = %from, %error, "an association was not thawed");
                }
            }
        }
        loop {
            let limits = &self.settings.load_full().config.limits;
            let first = tokio::select! {
                first = self.queue.recv() => first,
                () = sleep(limits.idle_time) => None,
                () = is_set(&self.closing) => None,
                () = seated.gone() => None,
            };
            let Some(first) = first else { return };
            seated.hear();
            // The latest settings.
            let live = self.settings.load_full();
            let name = &live.config.name;
            if timer() < outage.until {
                self.context.metrics.dropped(name, 1);
                continue;
            }
            let connected = tokio::select! {
                connected = connect(&self.context, &live, outage.failures) => connected,
                () = is_set(&self.closing) => return,
                () = seated.gone() => return,
            };
            match connected {
                Ok(link) => {
                    outage = Outage::new(&live, timer());
                    let from = first.from;
                    if !self.pass(&live, &link, Some(first), (from, seated)).await {
                        return;
                    }
                }
                Err(failure) => {
                    let mut lost = 1;
                    while self.queue.try_recv().is_ok() {
                        lost += 1;
                    }
                    self.context.metrics.dropped(name, lost);
                    let pause = outage.note(&live, timer());
                    if failure.lacks_files() {
                        self.context.reached_limit(name, from, Limit::OpenFiles, now());
                        continue;
                    }
                    let server = &live.config.to.value;
                    let advice = failure.advice();
                    tracing::error!(listener = name, client = %from, server, error = %failure, advice, ?pause, "no association with the server");
                }
            }
        }
    }

    /// Passes datagrams in both directions until the association ends. Returns whether the next datagram
    /// begins another one. Answers go to the program that has sent last, at first to `from`.
    async fn pass(
        &mut self,
        live: &ListenerState,
        link: &Link,
        first: Option<Datagram>,
        (mut from, seated): (Path, &Seated),
    ) -> bool {
        let listener = &live.config.name;
        let dtls = &link.dtls;
        let identity = identity::shown(dtls.negotiated());
        let version = dtls.negotiated().version.map(|version| version.to_string()).unwrap_or_default();
        let kind = dtls.negotiated().kind;
        tracing::info!(listener, client = %from.peer, server = live.config.to.value, identity, version, ?kind, "connected");
        let mut passed = Passed::default();
        let ended = lookup::ended(live.answers.as_ref().filter(|_| link.is_thawed), dtls.negotiated());
        let end = tokio::select! {
            end = self.exchange(live, dtls, first, (&mut from, seated), &mut passed) => end,
            () = ended => End::Refused,
            () = seated.gone() => End::GaveWay,
        };
        self.context.metrics.transferred(listener, passed.from_client, passed.to_client);
        self.context.metrics.dropped(listener, passed.dropped);
        let Passed { from_client: read, to_client: written, dropped } = passed;
        let why = end.why();
        match end {
            End::Failed(_) | End::Refused | End::Unanswered => {
                tracing::warn!(listener, client = %from.peer, read, written, dropped, why, "disconnected");
            }
            _ => tracing::info!(listener, client = %from.peer, read, written, dropped, why, "disconnected"),
        }
        if matches!(end, End::Refused) {
            dtls.abort(AlertDescription::CERTIFICATE_REVOKED);
        }
        if matches!(end, End::Stopped) && self.freezes(live, link, from) {
            return false;
        }
        if matches!(end, End::Idle | End::Stopped) {
            dtls.close();
            // The endpoint sends the close_notify; the server's answer ends the association.
            let answered = async { while let Ok(Some(_)) = dtls.recv().await {} };
            let _ = timeout(CLOSE_PATIENCE, answered).await;
        }
        !matches!(end, End::Idle | End::GaveWay | End::Stopped)
    }

    /// Freezes an association for the next tunnel. Without connection IDs, the server would not find it
    /// again.
    fn freezes(&self, live: &ListenerState, link: &Link, from: Path) -> bool {
        let stops = self.context.life.phase() >= Phase::Draining;
        let freezer = live.freezer.as_ref().filter(|_| stops && !link.dtls.peer_connection_id().is_empty());
        freezer.is_some_and(|freezer| freezer.freeze(live, &link.endpoint, from))
    }

    async fn exchange(
        &mut self,
        live: &ListenerState,
        dtls: &DtlsAssociation,
        first: Option<Datagram>,
        (from, seated): (&mut Path, &Seated),
        passed: &mut Passed,
    ) -> End {
        let Self { context, socket, queue, closing, .. } = self;
        let limits = &live.config.limits;
        let probe_time = live.config.datagrams.probe_time;
        let mut next = first;
        let mut latest = timer();
        let mut unanswered = None;
        // The bytes that had come when the tunnel asked the server whether it still has the association: a
        // KeyUpdate must be acknowledged (RFC 9147 §8), also by a server that has no data to send. DTLS 1.2
        // has no such question.
        let mut question = None;
        loop {
            if let Some(datagram) = next.take() {
                latest = timer();
                seated.hear();
                *from = datagram.from;
                unanswered.get_or_insert(latest);
                passed.from_client += datagram.data.len() as u64;
                match dtls.send(&datagram.data).await {
                    Ok(()) => {}
                    // Too long for a record. To the program, the network has lost it.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => passed.dropped += 1,
                    Err(error) => return End::Failed(error),
                }
            }
            let unheard = async {
                match unanswered {
                    Some(since) => sleep_until(since + probe_time).await,
                    None => std::future::pending().await,
                }
            };
            let quiet = async {
                is_set(closing).await;
                sleep_until(latest + LAST_ANSWERS).await;
            };
            tokio::select! {
                datagram = queue.recv() => match datagram {
                    Some(datagram) => next = Some(datagram),
                    None => return End::Stopped,
                },
                received = dtls.recv() => {
                    let data = match received {
                        Ok(Some(data)) => data,
                        Ok(None) => return End::Closed,
                        Err(error) => return End::Failed(error),
                    };
                    latest = timer();
                    (question, unanswered) = (None, None);
                    passed.to_client += data.len() as u64;
                    // The program may have closed its port.
                    passed.dropped += u64::from(socket.send(data, *from).await.is_err());
                },
                () = unheard => match question {
                    // The next datagram is asked about again, so a forged one delays the end only once.
                    Some(received) if received != dtls.bytes_received() => (question, unanswered) = (None, None),
                    Some(_) => return End::Unanswered,
                    // An error means that the previous question has no answer, or that there is none to ask.
                    None if dtls.update_keys(false).is_err() => return End::Unanswered,
                    None => {
                        question = Some(dtls.bytes_received());
                        unanswered = Some(timer());
                    }
                },
                () = sleep_until(latest + limits.idle_time) => return End::Idle,
                () = quiet => return End::Stopped,
                () = context.life.reached(Phase::Ending) => return End::Stopped,
            }
        }
    }
}

/// Waits until the listener takes no new associations.
async fn is_set(closing: &watch::Receiver<bool>) {
    // It fails only if the listener has ended.
    let _ = closing.clone().wait_for(|closing| *closing).await;
}

/// Failed attempts in a row, and the end of the pause after the latest one.
struct Outage {
    failures: usize,
    until: Instant,
    backoff: Backoff,
}

impl Outage {
    fn new(live: &ListenerState, now: Instant) -> Self {
        let limits = &live.config.limits;
        let backoff = Backoff::new(limits.retry_time, limits.longest_retry_time);
        Self { failures: 0, until: now, backoff }
    }

    /// Notes a failure, and returns the pause that follows.
    fn note(&mut self, live: &ListenerState, now: Instant) -> Duration {
        let pause = self.backoff.pause(&*live.random);
        self.failures = self.failures.wrapping_add(1);
        self.until = now + pause;
        pause
    }
}

/// Does a handshake with the server, at the first of its addresses that answers. After a failure, the next
/// one is tried first.
async fn connect(context: &Context, live: &ListenerState, failures: usize) -> Result<Link, Failure> {
    let config = &live.config;
    let begin = timer();
    let listener = &config.name;
    let unreachable = |error: io::Error| {
        context.metrics.server(listener, outcome(&error));
        Failure::Unreachable(error)
    };
    let found = remote::addresses(&config.to.value, begin + config.limits.connect_time).await;
    let mut found = found.map_err(unreachable)?;
    let first = failures % found.len().max(1);
    found.rotate_left(first);
    let attempt = async |server| {
        let name = listener.clone();
        let mut options = DtlsOptions::new()
            .with_timeout(config.limits.handshake_time)
            .with_on_path(move |event| report_path(&name, event));
        if let Some(answers) = live.answers.clone() {
            options = options.with_answers(answers);
        }
        Ok(DtlsAttempt { endpoint: open(live, server).await?, options, context: () })
    };
    let connected = connect_first(&found, &live.tls, &config.server, attempt).await;
    let connected = connected.map_err(|failure| match failure {
        AttemptError::Nowhere => unreachable(io::ErrorKind::NotFound.into()),
        AttemptError::Open(error) => unreachable(error),
        AttemptError::Handshake((), error) => {
            context.metrics.server(listener, "connected");
            handshake_failed(context, listener, error)
        }
    });
    let (dtls, DtlsAttempt { endpoint, .. }) = connected?;
    context.metrics.server(listener, "connected");
    let established = context.metrics.handshake_completed(listener, dtls.negotiated(), "", timer() - begin);
    Ok(Link { endpoint, dtls, is_thawed: false, _established: Some(established) })
}

/// Continues an association of the previous tunnel, if possible on the same port, which the server and NATs
/// know.
async fn resume(live: &ListenerState, thawed: Thawed) -> io::Result<Link> {
    let any = unspecified(thawed.connection.peer_address());
    let socket = match UdpSocket::bind(SocketAddr::new(any, thawed.port)).await {
        Ok(socket) => socket,
        Err(_) => UdpSocket::bind(SocketAddr::new(any, 0)).await?,
    };
    let mut resumed = DtlsEndpoint::resume(socket, EndpointLimits::default(), [*thawed.connection])?;
    let refused = |(_, error): (SocketAddr, dunlin::Error)| io::Error::other(error);
    let none = || resumed.refused.pop().map_or_else(|| io::ErrorKind::NotFound.into(), refused);
    let dtls = resumed.associations.pop().ok_or_else(none)?;
    if live.config.datagrams.connection_ids {
        resumed.endpoint.watch_addresses()?;
    }
    Ok(Link { endpoint: resumed.endpoint, dtls, is_thawed: true, _established: None })
}

/// The address from which the system chooses by itself, in the family of `server`.
const fn unspecified(server: SocketAddr) -> IpAddr {
    match server {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Opens the socket of an association, or one for each interface.
async fn open(live: &ListenerState, server: SocketAddr) -> io::Result<DtlsEndpoint> {
    let datagrams = &live.config.datagrams;
    let limits = EndpointLimits::default();
    if !datagrams.interfaces.is_empty() {
        return DtlsEndpoint::over(datagrams.interfaces.clone(), server, limits);
    }
    let any = unspecified(server);
    let endpoint = DtlsEndpoint::new(UdpSocket::bind(SocketAddr::new(any, 0)).await?, limits)?;
    if datagrams.connection_ids {
        endpoint.watch_addresses()?;
    }
    Ok(endpoint)
}

/// Logs that an association goes on over another path, or over none for the time being.
fn report_path(listener: &str, event: &PathEvent) {
    match event {
        PathEvent::PeerMoved(server) => tracing::info!(listener, %server, "the server has another address"),
        PathEvent::Changed { sockets: [from, to], change } => {
            let repeated = change.repeated;
            let lost = change.unrepeated;
            let shown = |address: &Option<SocketAddr>| address.map(|address| address.to_string());
            let before = shown(from);
            let now = shown(to);
            tracing::info!(
                listener,
                before,
                now,
                repeated,
                lost,
                "the association goes on over another path"
            );
        }
        PathEvent::Unreachable(why) => {
            tracing::warn!(listener, %why, "datagrams to the server are lost, since the system cannot send them; check the network and its routes");
        }
        _ => tracing::info!(listener, "the association goes on over another path"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::{self, Subscriber};
    use tracing::{Event, Level, Metadata};

    use super::*;

    /// Notes the level of each line.
    struct Levels(Arc<Mutex<Vec<Level>>>);

    impl Subscriber for Levels {
        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }

        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn warns_only_if_datagrams_are_lost() {
        let levels = Arc::default();
        subscriber::with_default(Levels(Arc::clone(&levels)), || {
            report_path("local", &PathEvent::PeerMoved(SocketAddr::from(([192, 0, 2, 1], 1))));
            report_path("local", &PathEvent::Unreachable(io::ErrorKind::NetworkUnreachable));
        });
        assert_eq!(*levels.lock().unwrap(), [Level::INFO, Level::WARN]);
    }
}
