//! The server: it accepts every trusted client, and echoes its data.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin_tokio::{DtlsAssociation, DtlsEndpoint, HandshakeError, TlsAcceptor, TlsStream};
use tokio::io::{AsyncWriteExt, copy, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use crate::error::Code;
use crate::tls::report::identity;

/// The pause after a failure to accept, for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server's result of a handshake.
pub(super) type Verdict = Result<Seen, Refusal>;

/// A client that the server accepted.
pub(super) struct Seen {
    /// The client's identity, known after its Finished.
    pub(super) client: String,
}

/// Why a connection failed for the server.
pub(super) struct Refusal {
    /// The reason in words.
    pub(super) why: String,
    /// The class of the failure.
    pub(super) code: Code,
    /// Whether the server detected it, rather than the client.
    pub(super) found_here: bool,
}

/// The verdicts that tasks of this process wait for, by the client's address.
#[derive(Clone, Default)]
pub(super) struct Verdicts(Arc<Mutex<HashMap<SocketAddr, oneshot::Sender<Verdict>>>>);

impl Verdicts {
    /// Waits for the verdict on the client at `address`. Must be called before the first byte is sent.
    pub(super) fn expect(&self, address: SocketAddr) -> oneshot::Receiver<Verdict> {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(address, sender);
        receiver
    }

    fn take(&self, address: SocketAddr) -> Option<oneshot::Sender<Verdict>> {
        self.lock().remove(&address)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, oneshot::Sender<Verdict>>> {
        // No code under the lock leaves the map inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts clients until the process ends. Verdicts on clients without a waiting task go to `guests`.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    verdicts: Verdicts,
    guests: mpsc::Sender<Verdict>,
) {
    loop {
        match listener.accept().await {
            Ok((tcp, address)) => {
                let (acceptor, verdicts, guests) = (acceptor.clone(), verdicts.clone(), guests.clone());
                tokio::spawn(async move {
                    let (stream, verdict) = handshake(&acceptor, tcp).await;
                    match verdicts.take(address) {
                        // The waiting task may have given up.
                        Some(waiting) => drop(waiting.send(verdict)),
                        None => drop(guests.send(verdict).await),
                    }
                    if let Some(stream) = stream {
                        echo(stream).await;
                    }
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn handshake(acceptor: &TlsAcceptor, tcp: TcpStream) -> (Option<TlsStream<TcpStream>>, Verdict) {
    // Small messages must not wait for acknowledgements. Without the option they are only slower.
    let _ = tcp.set_nodelay(true);
    match acceptor.accept(tcp).await {
        Ok(stream) => {
            let client = stream.negotiated().peer.as_ref().map_or_else(|| "anonymous".to_owned(), identity);
            (Some(stream), Ok(Seen { client }))
        }
        Err(error) => (None, Err(Refusal::new(error))),
    }
}

impl Refusal {
    fn new(error: HandshakeError) -> Self {
        let found_here =
            !matches!(error, HandshakeError::Tls(dunlin::Error::AlertReceived(_)) | HandshakeError::Io(_));
        let why = error.to_string();
        let code = Code::of_stream(&error.into());
        Self { why, code, found_here }
    }
}

/// Accepts clients over DTLS until the process ends.
pub(super) async fn serve_datagrams(
    endpoint: DtlsEndpoint,
    verdicts: Verdicts,
    guests: mpsc::Sender<Verdict>,
) {
    loop {
        let incoming = endpoint.accept().await;
        let (verdicts, guests) = (verdicts.clone(), guests.clone());
        tokio::spawn(async move {
            let address = incoming.peer_address();
            let (association, verdict) = match incoming.accept().await {
                Ok(association) => {
                    let peer = association.negotiated().peer.as_ref();
                    let client = peer.map_or_else(|| "anonymous".to_owned(), identity);
                    (Some(association), Ok(Seen { client }))
                }
                Err(error) => (None, Err(Refusal::new(error))),
            };
            // The devices have other addresses than clients by hand, whose ports may be those of devices over TCP.
            let is_device = address.ip() != Ipv4Addr::LOCALHOST;
            match verdicts.take(address).filter(|_| is_device) {
                Some(waiting) => drop(waiting.send(verdict)),
                None => drop(guests.send(verdict).await),
            }
            if let Some(association) = association {
                echo_records(&association).await;
            }
        });
    }
}

/// Echoes all records until the client closes.
async fn echo_records(association: &DtlsAssociation) {
    while let Ok(Some(data)) = association.recv().await {
        if association.send(&data).await.is_err() {
            return;
        }
    }
    association.close();
}

/// Echoes all data until the client closes. A client that breaks off sees the error itself.
async fn echo(stream: TlsStream<TcpStream>) {
    let (mut reader, mut writer) = split(stream);
    if copy(&mut reader, &mut writer).await.is_ok() {
        let _ = writer.shutdown().await;
    }
}
