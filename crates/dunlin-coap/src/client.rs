//! Requests and observations over an association.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coap_lite::{CoapRequest, CoapResponse, ObserveOption, Packet};
use dunlin::Negotiated;
use dunlin_tokio::DtlsAssociation;
use tokio::sync::{mpsc, watch};

use crate::driver::{Command, Driver, Outcome};
use crate::error::CoapError;
use crate::parameters::Parameters;

/// A CoAP client over one DTLS association. It is cheap to clone. The association ends when all clones and
/// observations are dropped.
///
/// A client that is dropped with requests under way gives them up, as does dropping the future of a request.
#[derive(Clone, Debug)]
pub struct CoapClient {
    commands: mpsc::UnboundedSender<Command>,
    next: Arc<AtomicU64>,
    negotiated: Arc<Negotiated>,
}

impl CoapClient {
    /// A client with the default parameters. A task drives the association.
    ///
    /// # Errors
    /// The system gives no randomness.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(association: DtlsAssociation) -> Result<Self, CoapError> {
        Self::with_parameters(association, Parameters::default())
    }

    /// A client with these parameters.
    ///
    /// # Errors
    /// A parameter is out of range, or the system gives no randomness.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_parameters(association: DtlsAssociation, parameters: Parameters) -> Result<Self, CoapError> {
        let negotiated = Arc::new(association.negotiated().clone());
        let (commands, received) = mpsc::unbounded_channel();
        tokio::spawn(Driver::new(association, parameters)?.run_client(received));
        Ok(Self { commands, next: Arc::default(), negotiated })
    }

    /// The result of the handshake, with the server's identity.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Sends a request and waits for its response, which can report an error ([`CoapResponse::get_status`]).
    /// The request is confirmable unless its type says otherwise; its message ID and token are replaced.
    ///
    /// # Errors
    /// The peer did not answer or has rejected the request, the request is too long, or the association has
    /// ended.
    pub async fn request<E>(&self, request: CoapRequest<E>) -> Result<CoapResponse, CoapError> {
        self.start(request.message).next().await.unwrap_or(Err(CoapError::Closed))
    }

    /// Sends a request to observe a resource (RFC 7641). The first value of the observation is the response;
    /// if the server does not let the client observe the resource, it is the only one.
    pub fn observe<E>(&self, mut request: CoapRequest<E>) -> Observation {
        request.set_observe_flag(ObserveOption::Register);
        self.start(request.message)
    }

    fn start(&self, message: Packet) -> Observation {
        let (outcomes, received) = watch::channel(None);
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        // If the task has ended, the sender is dropped, which the observation reports.
        let _ = self.commands.send(Command::Start { key, message: Box::new(message), outcomes });
        Observation { key, received, commands: self.commands.clone() }
    }
}

/// An observed resource. Dropping the value ends the observation: the server learns that when it sends the
/// next notification.
#[derive(Debug)]
pub struct Observation {
    key: u64,
    received: watch::Receiver<Outcome>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Observation {
    /// Waits for the response or the next notification. A reader that is late gets only the latest one, as
    /// RFC 7641 §1.3 allows. `None` after the last one.
    ///
    /// # Errors
    /// The request failed or the association has ended.
    pub async fn next(&mut self) -> Option<Result<CoapResponse, CoapError>> {
        self.received.changed().await.ok()?;
        self.received.borrow_and_update().clone()
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Cancel { key: self.key });
    }
}
