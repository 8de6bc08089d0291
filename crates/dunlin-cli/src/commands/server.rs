//! `dunlin server`: a TLS and DTLS server like `openssl s_server`.

use std::fmt::Display;
use std::future::poll_fn;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args as ClapArgs;
use dunlin::places::PlaceLimits;
use dunlin::wire::CipherSuite;
use dunlin::{EndpointLimits, MessageSize, PskSource, ServerConfig};
use dunlin_command::counted::Traffic;
use dunlin_command::error::{Code, Error, Explanation, count};
use dunlin_command::events::{At, AtMessage, Connection, Ended, Event, Failure, Message, Side};
use dunlin_command::report::{Report, message_line};
use dunlin_command::session::{DtlsStream, Session};
use dunlin_command::stop::{self, STOP_PATIENCE, Stop};
use dunlin_registry::lookup::LookUpAnswers;
use dunlin_setup::psk::Psks;
use dunlin_tokio::places::{HandshakePlace, Seated};
use dunlin_tokio::throttle::{Line, Throttle};
use dunlin_tokio::{DtlsEndpoint, DtlsIncoming, DtlsOptions, HandshakeError, addresses, now};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::JoinSet;

use crate::tls::datagrams::{PortPool, port_pool};
use crate::tls::follow::{Followed, Outcome};
use crate::tls::frozen::{FrozenOptions, FrozenPlace};
use crate::tls::interfaces;
use crate::tls::log::{Level, Log};
use crate::tls::options::{ServerOptions, TlsOptions};
use crate::tls::pipe::{self, AtEnd, Broken, Input};
use crate::tls::psks::NamedPsks;
use crate::tls::reasons::Explainer;

mod frozen;
mod slots;
mod tcp;

use slots::{Limit, Slots};

const EXAMPLES: &str = "\
Examples:
  dunlin server --chain server.pem --key server.key --echo
  dunlin server --accept 0.0.0.0:4433 --chain rsa.pem --key rsa.key --chain ec.pem --key ec.key
  dunlin server --chain server.pem --key server.key --ca ca.pem --Verify --echo
  dunlin server --psk-file keys.psk --echo
  dunlin server --psk-file keys.psk --echo --udp --mtu 256 --cid 8
  dunlin server --psk-file keys.psk --echo --udp --scheme tcs --port-pool 6000-6015 --migrate on-newer-record
  dunlin server --psk-file keys.psk --echo --udp --frozen server.frozen --frozen-ids sqlite:frozen.db
  dunlin server --chain server.pem --key server.key --echo --early-data 4096
  dunlin server --chain server.pem --key server.key --ca ca.pem --Verify --echo --cache compact
  dunlin server --enable-server-rpk --key server.key --enable-client-rpk --raw-keys devices.pub --Verify
  dunlin server --did hub --vc hub.vc --vc-issuers issuers --vc-status status.vc --Verify --echo

Options that s_server has, too, have the same names here, and may be written with one hyphen: -CAfile.
docs/stores.md explains the values of --cache-store and the files beside the store.
The server listens on 127.0.0.1 unless --accept names another address; 0.0.0.0 and [::] stand for all addresses.

Without --echo or --rev, the server writes received data to stdout, and sends stdin to the client that connected first.
The log goes to stderr. Each line has the time (UTC), a level, the client's address, and the event. With --json and --echo or
--rev, stdout carries no data, and the log goes there.

The server follows the files of --chain, --key, --ca, --raw-keys, --crl, --vc, --vc-issuers, --vc-peers, --dids and --vc-status: new connections use the new content. SIGHUP reads
all of them at once. Certificates and keys, and trust anchors and CRLs, replace the previous ones only if they are valid.

Ctrl-C and SIGTERM close the connections and end the server. With --frozen, DTLS associations are not closed: the next server with
the same options, address and files continues them.

Exit status: 0 success, 1 failure (with --naccept also if a connection failed), 2 wrong use.";

/// Accept TLS or DTLS clients, and echo their data, or connect stdin and stdout.
#[derive(ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The address to listen on; port 0 chooses a free one.
    #[arg(long, visible_alias = "port", value_name = "[ADDR:]PORT", default_value = "4433", value_parser = address)]
    accept: SocketAddr,
    /// Send received data back.
    #[arg(long)]
    echo: bool,
    /// Send each line back with its characters in reverse order.
    #[arg(long, conflicts_with = "echo")]
    rev: bool,
    /// End after this many connections.
    #[arg(long, value_name = "N", value_parser = positive)]
    naccept: Option<usize>,
    /// The ports that --scheme gives to associations, at the address of --accept: a list, as in
    /// 6000-6015,7000; or auto and a number, as in auto:16, for ports that the system chooses.
    #[arg(long, value_name = "PORTS", requires = "scheme", value_parser = port_pool, help_heading = "Datagrams")]
    port_pool: Option<PortPool>,
    /// The maximum number of simultaneous connections, and of handshakes beside them. At the limit, another
    /// client gives way, or the server refuses the client (docs/gateway.md).
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = positive)]
    max_connections: usize,
    /// The maximum number of simultaneous connections of one host, likewise: an IPv4 address, or an IPv6
    /// network of 64 bits [default: three quarters of --max-connections].
    #[arg(long, value_name = "N", value_parser = positive)]
    max_connections_per_host: Option<usize>,
    /// The maximum number of simultaneous connections of one IPv6 network of 48 bits, likewise [default:
    /// three quarters of --max-connections].
    #[arg(long, value_name = "N", value_parser = positive)]
    max_connections_per_network: Option<usize>,
    /// End connections without traffic for this many seconds; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    idle_timeout: u64,
    /// The least important events to log: error; warn adds failed connections; info adds each connection and
    /// its end; debug adds each handshake message.
    #[arg(long, value_name = "LEVEL", value_enum, hide_possible_values = true, default_value = "info")]
    log_level: Level,
    /// Write only data, errors and warnings, as --log-level warn does.
    #[arg(long, short)]
    quiet: bool,
    /// Write the log as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: TlsOptions,
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    frozen: FrozenOptions,
}

impl Args {
    /// The limits on places. A host and a network leave some to others.
    fn places(&self) -> PlaceLimits {
        let most = self.max_connections - self.max_connections / 4;
        PlaceLimits {
            all: self.max_connections,
            per_host: self.max_connections_per_host.unwrap_or(most),
            per_network: self.max_connections_per_network.unwrap_or(most),
            silence: EndpointLimits::default().stale,
        }
    }
}

/// The maximum length of a line to reverse, in bytes.
const MAX_LINE: usize = 64 * 1024;

pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let port = text.parse().map(loopback);
    port.or_else(|_| addresses::parse(text)).map_err(|why| {
        if text.contains('%') { why } else { "neither a port nor an IP address with a port".to_owned() }
    })
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "not a number from 1 on".to_owned())
}

/// Runs `dunlin server`.
pub(crate) fn run(args: Args) -> Result<(), Error> {
    if args.tls.datagrams.scheme.is_some() && args.port_pool.is_none() {
        let why = "the server has no ports for its associations";
        return Err(Error::usage("--scheme", why, "add --port-pool, as in --port-pool 6000-6015"));
    }
    let own = args.accept.port();
    if own != 0 && args.port_pool.iter().flat_map(PortPool::ports).any(|port| *port == own) {
        let why = format!("the server itself listens at port {own}");
        return Err(Error::usage("--port-pool", why, "give other ports than --accept"));
    }
    let (config, psks) = args.tls.server_config(&args.server)?;
    let frozen = args.frozen.open(&Arc::new(dunlin_awslc::provider()))?.map(Arc::new);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        // Read stdin only if needed, because other processes may share it.
        let input = (!args.echo && !args.rev).then(|| Arc::new(AsyncMutex::new(Input::new(false))));
        let stopped = watch::Sender::new(false);
        let lost = OnceLock::new();
        let level = if args.quiet { args.log_level.min(Level::Warn) } else { args.log_level };
        let log = if on_stdout(&args) {
            Log::new(io::stdout(), args.json, level)?
        } else {
            Log::new(io::stderr(), args.json, level)?
        };
        let config = Arc::new(config);
        let endpoint = OnceLock::new();
        let not_frozen = OnceLock::new();
        let stopping = OnceLock::new();
        let refusals = Throttle::default();
        let server = Server {
            args,
            config,
            psks,
            input,
            frozen,
            endpoint,
            not_frozen,
            stopping,
            stopped,
            lost,
            refusals,
            log,
        };
        let server = Arc::new(server);
        let result = server.clone().run().await;
        server.log.end();
        result
    });
    // A blocked read of stdin cannot be cancelled.
    runtime.shutdown_background();
    result
}

/// A client that has connected, before its handshake.
enum Incoming {
    Tcp(TcpStream, Arc<Slots>, Arc<HandshakePlace>),
    Udp(DtlsIncoming),
}

/// A client that has completed its handshake, and its place over TCP.
struct Shaken {
    stream: Box<dyn Session>,
    traffic: Arc<Traffic>,
    seated: Option<Arc<Seated>>,
}

/// Why a client is not served.
enum Unserved {
    /// A limit was reached.
    Refused(Limit),
    Failed(HandshakeError),
}

impl From<HandshakeError> for Unserved {
    fn from(error: HandshakeError) -> Self {
        Limit::of(&error).map_or(Self::Failed(error), Self::Refused)
    }
}

/// The socket on which the server receives clients.
enum Listener {
    Tcp(TcpListener),
    Udp(DtlsEndpoint),
}

impl Listener {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Udp(endpoint) => Ok(endpoint.local_addr()),
        }
    }
}

/// The inputs to the choice of a configuration for a connection.
#[derive(Clone)]
struct Choice {
    psks: Option<Arc<NamedPsks>>,
    /// The cipher suites of the ClientHello.
    offered: Arc<OnceLock<Vec<CipherSuite>>>,
}

/// Explains why the ports for associations without connection IDs cannot be used.
fn no_ports(error: impl Display) -> Error {
    Error::failed("--port-pool", error, "give other ports, or auto:16 for any free ones")
}

/// This server and a client's address.
const fn at(from: SocketAddr) -> At {
    At::new(Side::Server, from)
}

/// Sends close_notify, and waits only briefly for a client that does not receive it.
async fn close(stream: &mut dyn Session) -> io::Result<()> {
    tokio::time::timeout(STOP_PATIENCE, stream.shutdown()).await.unwrap_or(Ok(()))
}

/// Whether the log goes to stdout, because no data does.
const fn on_stdout(args: &Args) -> bool {
    args.json && (args.echo || args.rev)
}

struct Server {
    args: Args,
    config: Arc<Followed<ServerConfig>>,
    psks: Option<Arc<Psks>>,
    /// Stdin, for one client at a time.
    input: Option<Arc<AsyncMutex<Input>>>,
    /// The file in which associations outlive the process, and the endpoint that has them.
    frozen: Option<Arc<FrozenPlace>>,
    endpoint: OnceLock<DtlsEndpoint>,
    /// Freezing has failed.
    not_frozen: OnceLock<()>,
    /// A signal has come, after which the server freezes its associations and stops.
    stopping: OnceLock<()>,
    stopped: watch::Sender<bool>,
    /// Stdin or stdout, and why it failed. The server serves no client without it.
    lost: OnceLock<(&'static str, String)>,
    /// The log lines about refused clients.
    refusals: Throttle,
    log: Log,
}

impl Server {
    async fn run(self: Arc<Self>) -> Result<(), Error> {
        // Catch signals before the first message, because its reader may stop the server.
        let mut stop = Stop::new()?;
        let mut hangups = stop::hangups()?;
        self.args.tls.registry.start(self.config.judges()).await;
        let address = self.args.accept;
        let mut connections = Connections::default();
        let listener = self.clone().listen(address, &mut connections).await?;
        let address = listener.local_addr()?;
        if self.log.wants(Level::Info) {
            let text = || format!("listening on {address}");
            self.say(&self.log.render(Level::Info, text, || Event::Listening { address }))?;
        }
        let server = self.clone();
        tokio::spawn(async move {
            stop.wait().await;
            let _ = server.stopping.set(());
            server.clone().freeze().await;
            server.stopped.send_replace(true);
        });
        let server = self.clone();
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                let telling = server.clone();
                server.config.reload_off_thread(move |outcome| telling.tell_reload(outcome)).await;
            }
        });
        tokio::select! {
            () = self.clone().accept(listener, &mut connections) => {}
            () = self.stopped() => {}
        }
        let Connections { accepted, failed, .. } = connections.end().await;
        if self.stopping.get().is_some() {
            // The associations end before their file is complete.
            self.stopped().await;
        }
        if let Some((what, why)) = self.lost.get() {
            return Err(Error::failed(what, why, "connect it to a file or pipe, or add --echo or --rev"));
        }
        if self.not_frozen.get().is_some() {
            return Err(Error::failed("--frozen", "associations are lost", "the log names the reason"));
        }
        // A server without --naccept has logged each failure, and ends with success.
        if failed == 0 || self.args.naccept.is_none() {
            return Ok(());
        }
        let why = format!("{failed} of {accepted} connections failed");
        Err(Error::failed(address, why, "the log names the reason of each"))
    }

    /// Binds the ports for associations without connection IDs.
    async fn bind_ports(&self, ip: IpAddr) -> Result<Vec<UdpSocket>, Error> {
        let mut sockets = Vec::new();
        for port in self.args.port_pool.iter().flat_map(PortPool::ports) {
            let named = |e| if *port == 0 { no_ports(e) } else { no_ports(format!("port {port}: {e}")) };
            sockets.push(UdpSocket::bind((ip, *port)).await.map_err(named)?);
        }
        Ok(sockets)
    }

    /// Accepts connections up to the requested number.
    async fn accept(self: Arc<Self>, listener: Listener, connections: &mut Connections) {
        match listener {
            Listener::Tcp(listener) => self.accept_tcp(listener, connections).await,
            Listener::Udp(endpoint) => self.accept_udp(endpoint, connections).await,
        }
    }

    /// Accepts clients that have proven their address.
    async fn accept_udp(self: Arc<Self>, endpoint: DtlsEndpoint, connections: &mut Connections) {
        while self.args.naccept.is_none_or(|n| connections.accepted < n) {
            let server = self.clone();
            let config = self.config.current_off_thread(move |outcome| server.tell_reload(outcome)).await;
            // Each connection chooses its configuration itself, since its keys remember the identities that
            // the client named.
            endpoint.set_server(Some(Arc::new(config.with_profile_choice(true))));
            let incoming = endpoint.accept().await;
            let server = self.clone();
            let from = addresses::plain(incoming.peer_address());
            connections.add(async move { server.serve(Incoming::Udp(incoming), from).await });
        }
        endpoint.set_server(None);
    }

    /// Waits until the server is stopped.
    async fn stopped(&self) {
        // It fails only if the sender is gone, which is part of the server.
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// Serves one client, and returns whether it succeeded.
    async fn serve(self: &Arc<Self>, incoming: Incoming, from: SocketAddr) -> bool {
        self.log.say(Level::Debug, || format!("{from} accepted"), || Event::Incoming(at(from)));
        let psks = self.psks.clone().map(|psks| Arc::new(NamedPsks::new(psks)));
        let choice = Choice { psks, offered: Arc::new(OnceLock::new()) };
        let explainer = Explainer::server(&self.args.tls, choice.psks.as_deref(), &choice.offered);
        let shaken = match incoming {
            Incoming::Tcp(tcp, slots, place) => {
                self.handshake_tcp(tcp, from, (&slots, &place), choice.clone()).await
            }
            Incoming::Udp(incoming) => self.handshake_udp(incoming, from, choice.clone()).await,
        };
        let Shaken { mut stream, traffic, seated } = match shaken {
            Ok(shaken) => shaken,
            // The server was stopped; neither the connection nor the client has failed.
            Err(Unserved::Failed(HandshakeError::Stopped)) => return false,
            Err(Unserved::Refused(limit)) => {
                self.refuse(from, limit);
                return false;
            }
            Err(Unserved::Failed(e)) => {
                let is_probe = matches!(e, HandshakeError::Probe(_));
                self.log_failed(self.level_of(is_probe), from, explainer.handshake(&e));
                return false;
            }
        };
        self.log_connection(false, from, &*stream);
        self.converse(&mut *stream, from, (&traffic, seated), &explainer).await
    }

    /// Exchanges data with a client until either side ends the connection. Returns whether it ended orderly.
    async fn converse(
        &self,
        stream: &mut dyn Session,
        from: SocketAddr,
        (traffic, seated): (&Traffic, Option<Arc<Seated>>),
        explainer: &Explainer<'_>,
    ) -> bool {
        let gone = async {
            match &seated {
                Some(seated) => seated.gone().await,
                None => std::future::pending().await,
            }
        };
        let limit = Some(Duration::from_secs(self.args.idle_timeout)).filter(|limit| !limit.is_zero());
        let (served, by) = tokio::select! {
            // A frozen association is not closed any more.
            biased;
            served = self.data(from, stream) => (served.map_err(Some), "by the client"),
            () = self.stopped() => (close(stream).await.map_err(Some), "by this server"),
            () = traffic.idle(limit) => {
                let _ = close(stream).await;
                (Err(None), "by this server")
            }
            () = gone => {
                let _ = close(stream).await;
                (Err(None), "by this server")
            }
        };
        let gives_way = seated.as_ref().and_then(|seated| seated.gives_way());
        // Its place is free before the log says that the client has gone.
        drop(seated);
        match &served {
            Err(None) => self.log_failure(from, gives_way.map_or_else(|| self.idle(), slots::gave_way)),
            Err(Some(e)) if frozen::is_frozen(e) => {
                self.log.say(Level::Debug, || format!("{from} frozen"), || Event::Paused(at(from)));
                return true;
            }
            Err(Some(e)) if self.lost.get().is_none() => {
                self.log_failure(from, explainer.stream(e, stream.negotiated().version));
            }
            _ => {}
        }
        self.log_end(from, traffic, served.is_ok().then_some(by));
        served.is_ok()
    }

    /// Logs that this limit keeps a client out, at most once a minute.
    fn refuse(&self, from: SocketAddr, limit: Limit) {
        if let Some(Line { left_out }) = self.refusals.limit("", limit.name(), now()) {
            self.log_failure(from, limit.explain(left_out));
        }
    }

    /// Explains the end of a silent connection.
    fn idle(&self) -> Explanation {
        let why = format!("no byte has passed for {}", count(self.args.idle_timeout, "second"));
        let advice = "raise --idle-timeout if clients may be silent for longer";
        Explanation { code: Code::TIMEOUT, ..Explanation::new(why, advice) }
    }

    async fn handshake_udp(
        self: &Arc<Self>,
        incoming: DtlsIncoming,
        from: SocketAddr,
        choice: Choice,
    ) -> Result<Shaken, Unserved> {
        let config = self.chosen(&choice).await?;
        let options = DtlsOptions::new().with_timeout(self.args.tls.timeout);
        let mut options = options.with_profiles(move |hello| {
            // A connection has only one ClientHello to choose by.
            let _ = choice.offered.set(hello.cipher_suites.clone());
            Some(config.clone())
        });
        if let Some(log) = self.message_log(from) {
            options = options.with_on_message(log);
        }
        if let Some(answers) = self.answers() {
            options = options.with_answers(answers);
        }
        let server = self.clone();
        let options = options.with_on_path(move |path| {
            if let Some(event) = interfaces::event(at(from), path) {
                server.log.say(Level::Info, || format!("{from} {}", interfaces::line(path)), || event);
            }
        });
        tokio::select! {
            accepted = incoming.accept_with(&options) => {
                let (stream, traffic) = DtlsStream::new(accepted?);
                Ok(Shaken { stream: Box::new(stream), traffic, seated: None })
            }
            // The client gets a close_notify.
            () = self.stopped() => Err(HandshakeError::Stopped.into()),
        }
    }

    /// The configuration for a connection, with its own record of the identities that the client names.
    async fn chosen(self: &Arc<Self>, choice: &Choice) -> Result<Arc<ServerConfig>, HandshakeError> {
        let server = self.clone();
        let mut config = self.config.current_off_thread(move |outcome| server.tell_reload(outcome)).await;
        if let Some(psks) = choice.psks.clone() {
            config = config.with_psk_identity_hint(psks.identity_hint())?.with_psks(PskSource::Here(psks));
        }
        Ok(Arc::new(config))
    }

    /// The answers about clients whose documents are elsewhere.
    fn answers(&self) -> Option<LookUpAnswers> {
        self.config.judges().map(|judges| judges.answers())
    }

    /// The function that logs handshake messages, if they are wanted.
    fn message_log(
        self: &Arc<Self>,
        from: SocketAddr,
    ) -> Option<impl Fn(&MessageSize) + Send + Sync + use<> + 'static> {
        let level = if self.args.tls.msg { Level::Info } else { Level::Debug };
        let server = self.log.wants(level).then(|| self.clone())?;
        Some(move |message: &MessageSize| {
            let event = || Event::Message(AtMessage { at: at(from), message: Message::new(message) });
            server.log.say(level, || format!("{from} {}", message_line(message)), event);
        })
    }

    /// Processes data as the options say.
    async fn data(&self, from: SocketAddr, stream: &mut dyn Session) -> io::Result<()> {
        let early = stream.take_early_data();
        let renegotiated = |stream: &dyn Session| self.log_connection(true, from, stream);
        match (self.args.echo, self.args.rev) {
            (true, _) => {
                stream.write_all(&early).await?;
                echo(stream, renegotiated).await
            }
            (_, true) => reverse(stream, renegotiated).await,
            _ => {
                let mut stdout = tokio::io::stdout();
                let written = async {
                    stdout.write_all(&early).await?;
                    stdout.flush().await
                };
                written.await.map_err(|e| self.lose("stdout", e))?;
                self.pipe(stream, renegotiated).await
            }
        }
    }

    async fn pipe(&self, stream: &mut dyn Session, renegotiated: impl Fn(&dyn Session)) -> io::Result<()> {
        let mut input = self.input.as_ref().and_then(|input| input.try_lock().ok());
        let piped = pipe::pipe(stream, input.as_deref_mut(), AtEnd::Wait, renegotiated).await;
        piped.map(|_| ()).map_err(|broken| match broken {
            Broken::Connection(e) | Broken::Renegotiation(e) => e,
            Broken::Stdin(e) => self.lose("stdin", e),
            Broken::Stdout(e) => self.lose("stdout", e),
            // The rest of the input is for the next client.
            Broken::Unsent(_) => io::ErrorKind::UnexpectedEof.into(),
        })
    }

    /// Stops the server because stdin or stdout failed.
    fn lose(&self, what: &'static str, error: io::Error) -> io::Error {
        // Only the first reason is reported.
        let _ = self.lost.set((what, error.to_string()));
        self.stopped.send_replace(true);
        error
    }

    /// Logs the result of reading files again.
    fn tell_reload(&self, outcome: Outcome) {
        match outcome {
            Outcome::Reloaded(paths) => {
                let files: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                let text = || format!("reloaded: {}", files.join(", "));
                self.log.say(Level::Info, text, || Event::Reloaded { files: files.clone() });
            }
            Outcome::Refused(why) => {
                self.log.say(Level::Warn, || why.clone(), || Event::NotReloaded { why: why.clone() });
            }
        }
    }

    /// Logs a connection, or a renegotiation.
    fn log_connection(&self, is_again: bool, from: SocketAddr, stream: &dyn Session) {
        let report = Report::new(stream);
        let text = || {
            if is_again {
                format!("{from} renegotiated: {}", report.parameters())
            } else {
                format!("{from} connected: {}", report.log_line())
            }
        };
        self.log.say(Level::Info, text, || {
            let event = if is_again { Event::Renegotiation } else { Event::Connection };
            event(Connection::new(at(from), report.handshake()).into())
        });
    }

    fn log_failure(&self, from: SocketAddr, explanation: Explanation) {
        self.log_failed(Level::Warn, from, explanation);
    }

    fn log_failed(&self, level: Level, from: SocketAddr, explanation: Explanation) {
        let text = format!("{from} failed: {}; {}", explanation.why, explanation.advice);
        self.log.say(level, || text, || Event::Failure(Failure::of_peer(at(from), explanation)));
    }

    /// How important the failure of a connection is. Port scans and health checks are not, unless --naccept
    /// makes the exit status depend on them.
    const fn level_of(&self, is_probe: bool) -> Level {
        if is_probe && self.args.naccept.is_none() { Level::Debug } else { Level::Warn }
    }

    /// Logs the end of a connection, and which side ended it in an orderly way.
    fn log_end(&self, from: SocketAddr, traffic: &Traffic, by: Option<&str>) {
        let bytes_read = traffic.read();
        let bytes_written = traffic.written();
        let orderly = by.is_some();
        let text = || {
            let end = by.map_or_else(|| "not orderly".into(), |by| format!("orderly, {by}"));
            format!("{from} ended: read {bytes_read} bytes, wrote {bytes_written}; {end}")
        };
        let event = || Event::Ended(Ended { at: at(from), bytes_read, bytes_written, orderly });
        self.log.say(Level::Info, text, event);
    }

    /// Writes the first line of the log. If that fails, the server does not start.
    fn say(&self, line: &str) -> io::Result<()> {
        if on_stdout(&self.args) {
            let mut out = io::stdout().lock();
            writeln!(out, "{line}")?;
            out.flush()
        } else {
            writeln!(io::stderr().lock(), "{line}")
        }
    }
}

/// The running connections, and the results of the ended ones.
#[derive(Default)]
struct Connections {
    running: JoinSet<bool>,
    accepted: usize,
    failed: usize,
}

impl Connections {
    /// Starts a connection, which returns whether it succeeded, and counts the ended ones.
    fn add(&mut self, connection: impl Future<Output = bool> + Send + 'static) {
        self.accepted += 1;
        self.running.spawn(connection);
        while let Some(served) = self.running.try_join_next() {
            self.failed += usize::from(!served.unwrap_or(false));
        }
    }

    /// Continues a connection of the previous process. It does not count.
    fn resume(&mut self, connection: impl Future<Output = bool> + Send + 'static) {
        self.running.spawn(async {
            connection.await;
            true
        });
    }

    /// Waits for the end of all connections.
    async fn end(mut self) -> Self {
        while let Some(served) = self.running.join_next().await {
            self.failed += usize::from(!served.unwrap_or(false));
        }
        self
    }
}

/// Calls `then` for each renegotiation as soon as it is complete.
struct Renegotiations<F> {
    seen: u32,
    then: F,
}

impl<F: Fn(&dyn Session)> Renegotiations<F> {
    const fn told_to(then: F) -> Self {
        Self { seen: 0, then }
    }

    /// Returns further data of the stream, which the caller must consume; empty at the end.
    async fn data(&mut self, stream: &mut dyn Session) -> io::Result<Vec<u8>> {
        poll_fn(|cx| {
            let data = Pin::new(&mut *stream).poll_fill_buf(cx).map_ok(<[u8]>::to_vec);
            let completed = stream.renegotiations().completed;
            let seen = std::mem::replace(&mut self.seen, completed);
            (seen..completed).for_each(|_| (self.then)(stream));
            data
        })
        .await
    }
}

async fn echo(stream: &mut dyn Session, renegotiated: impl Fn(&dyn Session)) -> io::Result<()> {
    let mut renegotiations = Renegotiations::told_to(renegotiated);
    loop {
        let data = renegotiations.data(stream).await?;
        if data.is_empty() {
            return stream.shutdown().await;
        }
        stream.consume(data.len());
        stream.write_all(&data).await?;
        stream.flush().await?;
    }
}

async fn reverse(stream: &mut dyn Session, renegotiated: impl Fn(&dyn Session)) -> io::Result<()> {
    let mut renegotiations = Renegotiations::told_to(renegotiated);
    let mut line = vec![];
    loop {
        let data = renegotiations.data(stream).await?;
        let rest = data.split_inclusive(|b| *b == b'\n').next().unwrap_or_default();
        let rest = rest.get(..MAX_LINE - line.len()).unwrap_or(rest);
        line.extend_from_slice(rest);
        stream.consume(rest.len());
        if !data.is_empty() && !line.ends_with(b"\n") && line.len() < MAX_LINE {
            continue;
        }
        if line.is_empty() {
            return stream.shutdown().await;
        }
        let end = if line.ends_with(b"\n") { line.len() - 1 } else { line.len() };
        if let Some(text) = line.get_mut(..end) {
            text.reverse();
        }
        stream.write_all(&line).await?;
        stream.flush().await?;
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(address("4433").unwrap().to_string(), "127.0.0.1:4433");
        assert_eq!(address("0.0.0.0:1").unwrap().to_string(), "0.0.0.0:1");
        assert_eq!(address("[::]:0").unwrap().to_string(), "[::]:0");
        assert!(address("localhost:1").is_err());
        assert!(address("65536").is_err());
    }
}
