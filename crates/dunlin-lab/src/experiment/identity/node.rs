//! A registry on a node of its own, behind a link, and the ways to ask it.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dunlin::crypto::{CryptoProvider, HmacKey};
use dunlin::resume::Tickets;
use dunlin::{
    ClientConfig, EarlyDataOutcome, EarlyDataProtocols, Profile, ProfileBuilder, ServerConfig, Side,
    TlsConnection,
};
use dunlin_identity::method::dunlin::Operation;
use dunlin_identity::transparency::{RegistryTrust, Staple};
use dunlin_identity::{Did, DidDocument};
use dunlin_pki::{Form, KeyPair, KeyType};
use dunlin_registry::server::{Limits, serve};
use dunlin_registry::{Registry, Settings};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions};
use dunlin_tokio::TlsAcceptor;
use subtle::ConstantTimeEq;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::super::blocking::Tls;
use super::super::keys::{self, CHAIN_LENGTH, Issuer, SERVER_NAME, credential, schemes};
use super::case::Asking;
use super::people::{People, REGISTRY, seconds};
use crate::Error;
use crate::error::failed;
use crate::link::{Line, Link, in_real_time};
use crate::net::{Ground, Pair};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the responder looks whether it shall end.
const PAUSE: Duration = Duration::from_millis(100);
/// More than any answer.
const BUFFER: usize = 1 << 15;
/// The type of the node's key.
const KEY_TYPE: KeyType = KeyType::P256;
const NONCE: usize = 16;
const MAC: usize = 32;
/// The key that the asking side shares with the node.
const SHARED_KEY: [u8; 32] = [7; 32];
/// The most early data of a request.
const EARLY: u32 = 1024;
/// The clients whose addresses the registry would count; all requests come from one.
const CONNECTIONS: usize = 1024;

/// The node, and the side that asks it.
pub(super) struct Node {
    provider: Arc<CryptoProvider>,
    trust: RegistryTrust,
    https: SocketAddr,
    early: SocketAddr,
    datagrams: SocketAddr,
    full: Arc<ClientConfig>,
    /// The configurations of the client and of the server, each with its own sessions.
    resuming: [Arc<ClientConfig>; 2],
    /// Connections whose tickets have not come yet.
    open: Mutex<Vec<Connection>>,
    /// The namespaces of the side that asks, and of the node.
    pub(super) pair: Pair,
    stop: Arc<AtomicBool>,
    stop_https: Option<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    _link: Link,
    _directory: TempDir,
}

/// The bytes of look-ups, above TCP and UDP.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LookUpBytes {
    pub(super) sent: usize,
    pub(super) received: usize,
}

/// The result of a look-up.
pub(super) struct Found {
    pub(super) document: DidDocument,
    pub(super) bytes: LookUpBytes,
}

impl Node {
    /// Starts a registry with the DIDs of all holders, behind a link with this delay in each direction.
    pub(super) fn start(ground: &Ground, people: &People, delay_ms: u32, seed: u64) -> Result<Self, Error> {
        let provider = Arc::new(dunlin_awslc::provider());
        let directory = tempfile::tempdir().map_err(failed)?;
        let registry = Arc::new(registry(&directory, &provider, people)?);
        let [log, witness] = registry.keys().clone();
        let trust = RegistryTrust::new(log, vec![witness]).map_err(failed)?;
        let line = Line { delay: Duration::from_millis(delay_ms.into()), ..Line::default() };
        let (pair, link) = Link::between(ground, &line, seed)?;
        // The paper's node has an ECDSA certificate.
        let issuer = Issuer::new(Form::Lean, KEY_TYPE, CHAIN_LENGTH)?;
        let own = issuer.server(&[SERVER_NAME, "127.0.0.1"], KeyPair::generate(KEY_TYPE)?)?;
        let own = profile(&provider)?.credentials(vec![credential(&provider, &own)?]);
        let own = own.build().map_err(failed)?;
        let plain = ServerConfig::new(own).map_err(failed)?;
        let tickets = Tickets::stateful(Arc::new(MemoryServerSessions::new(CONNECTIONS)));
        let resumable = plain.clone().with_tickets(tickets);
        let resumable = resumable.with_early_data(EarlyDataProtocols::unnamed(), EARLY);
        let resumable = Arc::new(resumable.map_err(failed)?);
        let trusting = profile(&provider)?.trust(keys::trust([issuer.root])?);
        let full = ClientConfig::new(trusting.build().map_err(failed)?).with_server_name_sent(false);
        let resuming = [(); 2].map(|()| {
            let resuming = full.clone().with_sessions(Arc::new(MemoryClientSessions::new(1, 1)));
            Arc::new(resuming.with_early_data(EarlyDataProtocols::unnamed()))
        });

        let bind =
            || TcpListener::bind((Pair::SERVER, 0)).and_then(|socket| Ok((socket.local_addr()?, socket)));
        let bound = pair.server.run(|| {
            let datagrams = UdpSocket::bind((Pair::SERVER, 0))?;
            datagrams.set_read_timeout(Some(PAUSE))?;
            Ok::<_, std::io::Error>((bind()?, bind()?, (datagrams.local_addr()?, datagrams)))
        })?;
        let ((https, of_https), (early, of_early), (datagrams, of_datagrams)) = bound.map_err(failed)?;
        let (stop, (stop_https, stopped)) = (Arc::new(AtomicBool::new(false)), oneshot::channel());
        let acceptor = TlsAcceptor::new(Arc::new(plain));
        let threads = vec![
            thread::spawn({
                let registry = registry.clone();
                move || over_https(registry, of_https, acceptor, stopped)
            }),
            thread::spawn({
                let registry = registry.clone();
                let stop = stop.clone();
                move || with_early_data(&registry, &of_early, &resumable, &stop)
            }),
            thread::spawn({
                let stop = stop.clone();
                let hmac = provider.sha256.hmac(&SHARED_KEY);
                move || by_datagrams(&registry, &of_datagrams, &*hmac, &stop)
            }),
        ];
        Ok(Self {
            provider,
            trust,
            https,
            early,
            datagrams,
            full: Arc::new(full),
            resuming,
            open: Mutex::default(),
            pair,
            stop,
            stop_https: Some(stop_https),
            threads,
            _link: link,
            _directory: directory,
        })
    }

    /// Asks for the document of the DID that this peer has shown. The calling thread is in the namespace of
    /// the side that asks.
    pub(super) fn look_up(&self, asking: Asking, peer: Side, did: &Did) -> Result<Found, Error> {
        let [of_client, of_server] = &self.resuming;
        match (asking, peer) {
            (Asking::Full, _) => self.by_tls(&self.full, self.https, did),
            (Asking::Resumed, Side::Server) => self.by_tls(of_client, self.early, did),
            (Asking::Resumed, Side::Client) => self.by_tls(of_server, self.early, did),
            (Asking::Hmac, _) => self.by_hmac(did),
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the tickets of the latest connections, so that the next ones can resume. Programs do this
    /// when no handshake waits.
    pub(super) fn settle(&self) -> Result<(), Error> {
        for mut connection in self.open().drain(..) {
            while connection.receive()? {}
        }
        Ok(())
    }

    fn by_tls(&self, config: &Arc<ClientConfig>, address: SocketAddr, did: &Did) -> Result<Found, Error> {
        let mut connection = Connection::new(Tls::connect(address, config, PATIENCE)?);
        let request = format!(
            "GET /dids/{did}/staple HTTP/1.1\r\nHost: {SERVER_NAME}:{}\r\nConnection: close\r\n\r\n",
            address.port()
        );
        let early = match connection.tls.connection.early_data() {
            Some(mut early) => early.send(request.as_bytes()).map_err(failed)?,
            None => 0,
        };
        connection.tls.flush()?;
        let mut asked = early > 0;
        let answer = loop {
            let more = connection.receive()?;
            if let Some(negotiated) = connection.tls.connection.negotiated() {
                if early > 0 && negotiated.early_data != EarlyDataOutcome::Accepted {
                    return Err(failed("the node refuses early data"));
                }
                if !asked {
                    connection.tls.say(request.as_bytes())?;
                    asked = true;
                }
            }
            if let Some(answer) = content(&connection.data)? {
                break answer.to_vec();
            }
            if !more {
                return Err(failed("the registry's answer is not complete"));
            }
        };
        let bytes = LookUpBytes { sent: connection.tls.sent, received: connection.tls.received };
        self.open().push(connection);
        let now = u64::try_from(seconds(dunlin_tokio::now())).map_err(failed)?;
        let staple = Staple::read(&answer).map_err(failed)?;
        let resolved = staple.verify(&self.provider, did, &self.trust, None, now).map_err(failed)?;
        Ok(Found { document: resolved.document, bytes })
    }

    fn by_hmac(&self, did: &Did) -> Result<Found, Error> {
        let socket = UdpSocket::bind((Pair::CLIENT, 0)).map_err(failed)?;
        socket
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| socket.connect(self.datagrams))
            .map_err(failed)?;
        let mut nonce = [0; NONCE];
        self.provider.random.fill(&mut nonce).map_err(failed)?;
        let request = [&nonce, did.as_str().as_bytes()].concat();
        socket.send(&request).map_err(failed)?;
        let mut buffer = vec![0; BUFFER];
        let received = socket.recv(&mut buffer).map_err(failed)?;
        let answer = buffer.get(..received).unwrap_or_default();
        let (mac, document) =
            answer.split_at_checked(MAC).ok_or_else(|| failed("the answer is too short"))?;
        let expected = self.provider.sha256.hmac(&SHARED_KEY).sign(&[&request, document]);
        if !bool::from(mac.ct_eq(expected.as_ref())) {
            return Err(failed("the node's answer has a wrong HMAC"));
        }
        let document = DidDocument::read(document, did).map_err(failed)?;
        Ok(Found { document, bytes: LookUpBytes { sent: request.len(), received } })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.stop_https.take());
        // Wakes the server that waits for a client. The loopback device of its namespace is down.
        let early = self.early;
        let _ = self.pair.client.run(move || TcpStream::connect_timeout(&early, PATIENCE));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A registry in this directory, with the DIDs of all holders.
fn registry(directory: &TempDir, provider: &Arc<CryptoProvider>, people: &People) -> Result<Registry, Error> {
    let key = KeyPair::generate(KeyType::Ed25519)?.signing_key(provider)?;
    let path = directory.path().join("registry");
    let settings = Settings::new(provider.clone(), REGISTRY, key);
    Registry::create(&path, &settings).map_err(failed)?;
    let registry = Registry::open(&path, &settings).map_err(failed)?;
    for holder in &people.holders {
        let operation = Operation::create(provider, &*holder.key, &holder.document).map_err(failed)?;
        registry.submit(operation).map_err(failed)?;
    }
    Ok(registry)
}

/// A profile of the connections to the node: the paper's suite and group.
fn profile(provider: &Arc<CryptoProvider>) -> Result<ProfileBuilder, Error> {
    let group =
        provider.group(dunlin::wire::NamedGroup::X25519).ok_or_else(|| failed("a group is missing"))?;
    Ok(Profile::builder(provider.clone())
        .compatibility_mode(false)
        .cipher_suites(vec![&dunlin_awslc::TLS13_AES_256_GCM_SHA384])
        .groups(vec![group])
        .signature_schemes(schemes(KEY_TYPE)))
}

/// Serves the registry as its program does.
fn over_https(
    registry: Arc<Registry>,
    socket: TcpListener,
    acceptor: TlsAcceptor,
    stopped: oneshot::Receiver<()>,
) {
    in_real_time();
    // A failure shows in the first look-up.
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let limits = Limits { connections_per_host: CONNECTIONS, ..Limits::default() };
    let _ = runtime.block_on(async {
        socket.set_nonblocking(true)?;
        let socket = tokio::net::TcpListener::from_std(socket)?;
        serve(registry, socket, acceptor, limits, async { drop(stopped.await) }).await
    });
}

/// Answers requests also in early data, and then before the client's Finished. The registry's own server
/// answers only after it.
fn with_early_data(registry: &Registry, socket: &TcpListener, config: &Arc<ServerConfig>, stop: &AtomicBool) {
    in_real_time();
    while let Ok((tcp, _)) = socket.accept() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // A client that fails says so itself.
        let _ = answer_early(registry, tcp, config);
    }
}

fn answer_early(registry: &Registry, tcp: TcpStream, config: &Arc<ServerConfig>) -> Result<(), Error> {
    let tls = TlsConnection::server(config, dunlin_tokio::now());
    let mut connection = Connection::new(Tls::new(tcp, tls, PATIENCE)?);
    let mut answered = false;
    loop {
        let more = connection.receive()?;
        if let Some(answer) = response(registry, &connection.data).filter(|_| !answered) {
            answered = true;
            match connection.tls.connection.early_data() {
                Some(mut early) => {
                    if early.send(&answer).map_err(failed)? < answer.len() {
                        return Err(failed("the answer does not fit into the output"));
                    }
                    connection.tls.flush()?;
                }
                None => connection.tls.say(&answer)?,
            }
        }
        if (answered && connection.tls.connection.negotiated().is_some()) || !more {
            connection.tls.connection.close();
            return connection.tls.flush();
        }
    }
}

/// The answer to a request for a staple, when it is complete.
fn response(registry: &Registry, request: &[u8]) -> Option<Vec<u8>> {
    let text = str::from_utf8(request).ok().filter(|text| text.ends_with("\r\n\r\n"))?;
    let did = text.strip_prefix("GET /dids/")?.split_once("/staple ")?.0.parse().ok()?;
    let staple = registry.resolve(&did).ok()?.staple()?.write().ok()?;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", staple.len());
    Some([head.as_bytes(), &staple].concat())
}

/// The content of an answer, when it is complete.
fn content(answer: &[u8]) -> Result<Option<&[u8]>, Error> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let (head, content) = answer.split_at(end + 4);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    if !head.starts_with("http/1.1 200 ") {
        return Err(failed(format_args!("the registry answers {:?}", head.lines().next())));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let length: usize = length.ok_or_else(|| failed("the registry's answer has no length"))?;
    Ok(content.get(..length))
}

/// Answers `nonce || DID` by `HMAC(nonce || DID || document) || document`.
fn by_datagrams(registry: &Registry, socket: &UdpSocket, hmac: &dyn HmacKey, stop: &AtomicBool) {
    in_real_time();
    let mut buffer = vec![0; BUFFER];
    while !stop.load(Ordering::Relaxed) {
        let Ok((received, from)) = socket.recv_from(&mut buffer) else { continue };
        let request = buffer.get(..received).unwrap_or_default();
        let did = request.get(NONCE..).and_then(|did| str::from_utf8(did).ok()?.parse().ok());
        let resolution = did.and_then(|did| registry.resolve(&did).ok());
        let Some((_, document)) = resolution.and_then(|resolution| resolution.state) else { continue };
        let mac = hmac.sign(&[request, document.as_bytes()]);
        // A client that does not get the answer says so itself.
        let _ = socket.send_to(&[mac.as_ref(), document.as_bytes()].concat(), from);
    }
}

/// A connection, and the data that has come.
struct Connection {
    tls: Tls,
    data: Vec<u8>,
}

impl Connection {
    const fn new(tls: Tls) -> Self {
        Self { tls, data: Vec::new() }
    }

    /// Receives what comes next, and sends what follows from it. Returns false at the end of TCP.
    fn receive(&mut self) -> Result<bool, Error> {
        let data = &mut self.data;
        let more = self.tls.receive(|tls| {
            let now = dunlin_tokio::now();
            if let Some(mut early) = tls.early_data()
                && !early.received().is_empty()
            {
                data.extend_from_slice(early.received());
                let count = early.received().len();
                early.consume(now, count).map_err(failed)?;
                return Ok(true);
            }
            let count = tls.received().len();
            if count > 0 {
                data.extend_from_slice(tls.received());
                tls.consume(now, count).map_err(failed)?;
            }
            Ok(count > 0)
        })?;
        self.tls.flush()?;
        Ok(more)
    }
}
