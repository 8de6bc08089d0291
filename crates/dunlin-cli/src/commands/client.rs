//! `dunlin client`: a TLS and DTLS client like `openssl s_client`.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args as ClapArgs;
use dunlin::resume::ClientSessions;
use dunlin::wire::{HandshakeType, ProtocolVersion};
use dunlin::{
    ClientConfig, EarlyDataOutcome, EndpointLimits, MessageSize, Negotiated, PortScheme, ServerAddress,
};
use dunlin_command::error::{Code, Error, Explanation, warn};
use dunlin_command::events::{At, Closed, Connection, Data, Event, Failure, Side};
use dunlin_command::files;
use dunlin_command::report::{Report, message_line};
use dunlin_command::session::{DtlsStream, Session};
use dunlin_command::stop::{STOP_PATIENCE, Stop};
use dunlin_registry::lookup::LookUpAnswers;
use dunlin_tokio::{
    AttemptError, DtlsAssociation, DtlsAttempt, DtlsEndpoint, DtlsOptions, HandshakeError, PathEvent,
    TlsConnector, addresses, connect_first,
};
use pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::tls::follow::{Followed, Outcome};
use crate::tls::interfaces::{self, InterfaceOptions};
use crate::tls::options::TlsOptions;
use crate::tls::pipe::{self, AtEnd, Broken, End, Input, Watch};
use crate::tls::reasons::Explainer;
use crate::tls::sessions::ClientTickets;

const EXAMPLES: &str = "\
Examples:
  dunlin client example.org:443 --alpn http/1.1
  dunlin client localhost:4433 --ca ca.pem --chain device.pem --key device.key
  dunlin client localhost:4433 --psk-file keys.psk --psk-identity d1 --lean
  dunlin client localhost:4433 --raw-keys server.pub --enable-client-rpk --key device.key
  dunlin client localhost:4433 --vc-issuers issuers --did device --vc device.vc
  dunlin client localhost:4433 --ca ca.pem --sess-out session     and then with --sess-in session
  dunlin client localhost:4433 --ca ca.pem --sess-in session --early-data request
  dunlin client localhost:4433 --ca ca.pem --cache compact --cache-store servers
  dunlin client localhost:4433 --ca ca.pem --udp --mtu 256 --cid --hs-timeout 400
  dunlin client example.org:4433 --ca ca.pem --udp --cid --interfaces wlan0 --interfaces wwan0
  dunlin client localhost:4433 --ca ca.pem --tls1-2 --cipher TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256

Options that s_client has, too, have the same names here, and may be written with one hyphen: -CAfile.
docs/cache-choice.md helps to choose --cache and --cache-store; docs/stores.md explains the stores and the files beside them.
Unlike s_client, the client verifies the server. Without --ca, --raw-keys, --vc-issuers, --dids or a PSK, it trusts the authorities of this machine.

On a terminal, a line with one of these letters is a command, unless --quiet or --nocommands is given:
  Q  end the connection      K  new keys for both directions      k  new keys for this direction
  R  renegotiate, in TLS 1.2 with a server that allows it (--renegotiation)

Ctrl-C and SIGTERM close the connection and end the client.

Exit status: 0 orderly end, 1 failure or undelivered early data, 2 wrong use. Over UDP, a server that does not answer the client's
close_notify is no failure, but a warning: it may be gone, and data may be missing.";

/// Connect to a TLS or DTLS server, show the negotiated parameters, and connect stdin and stdout.
#[derive(ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The server [default: localhost:4433].
    #[arg(value_name = "HOST:PORT", conflicts_with = "connect", value_parser = target)]
    server: Option<Target>,
    /// The server, with s_client's option.
    #[arg(long, value_name = "HOST:PORT", value_parser = target)]
    connect: Option<Target>,
    /// The name to send and to find in the server's certificate, instead of the host.
    #[arg(long = "server-name", visible_alias = "servername", value_name = "NAME", value_parser = server_name)]
    servername: Option<ServerName<'static>>,
    /// Do not send the server's name. The client verifies it nevertheless.
    #[arg(long)]
    noservername: bool,
    /// Accept every server without verification. For experiments only.
    #[arg(long, conflicts_with_all = ["ca_file", "rpk_file", "crl", "crl_check", "crl_check_all", "trust"],
          help_heading = "Identity")]
    insecure: bool,
    /// Store the last session in this file, for --sess-in.
    #[arg(long, value_name = "FILE", help_heading = "Resumption")]
    sess_out: Option<PathBuf>,
    /// Resume the session in this file.
    #[arg(long, value_name = "FILE", help_heading = "Resumption")]
    sess_in: Option<PathBuf>,
    /// Send the content of this file as early data (0-RTT), as far as the session and the server accept it.
    /// The client does not send the rest, and ends with status 1. An attacker who records early data can
    /// replay it to a careless server: send only requests that may be executed twice.
    #[arg(
        long,
        value_name = "FILE",
        requires = "sess_in",
        conflicts_with = "reconnect",
        help_heading = "Resumption"
    )]
    early_data: Option<PathBuf>,
    /// Connect five more times, each time with the session of the previous connection.
    #[arg(long, help_heading = "Resumption")]
    reconnect: bool,
    /// Limit records in both directions to 512, 1024, 2048 or 4096 bytes (RFC 6066 §4), for servers without
    /// record_size_limit. If both options are given, --record-size-limit takes precedence.
    #[arg(long, value_name = "BYTES", value_parser = fragment_length, help_heading = "Parameters")]
    maxfraglen: Option<u16>,
    /// Treat every line as data, also on a terminal.
    #[arg(long)]
    nocommands: bool,
    /// Write only data to stdout, and accept no commands.
    #[arg(long, short)]
    quiet: bool,
    /// Show the negotiated parameters in one line.
    #[arg(long)]
    brief: bool,
    /// Write a line of JSON to stdout for each event, including received data (docs/json.md).
    #[arg(long, conflicts_with_all = ["brief", "quiet"])]
    json: bool,
    #[command(flatten)]
    interfaces: InterfaceOptions,
    #[command(flatten)]
    tls: TlsOptions,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
}

const DEFAULT_PORT: u16 = 4433;

/// Connections after the first one with `--reconnect`, as many as s_client makes.
const RECONNECTIONS: usize = 5;

/// Reads HOST, HOST:PORT, an IPv6 address, or a bracketed IPv6 address with a port.
fn target(text: &str) -> Result<Target, String> {
    let at = |host: &str, port| Target { host: host.to_owned(), port };
    if text.contains('/') {
        return Err("write HOST:PORT, without a scheme and a path".into());
    }
    // RFC 4007 §11: a zone, such as %eth0, follows the address.
    let is_ipv6 = |text: &str| text.split('%').next().is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok());
    if is_ipv6(text) {
        // The apparent port may be a part of the address.
        return match text.rsplit_once(':') {
            Some((host, port)) if is_ipv6(host) && port.parse::<u16>().is_ok() => {
                Err(format!("ambiguous: write [{host}]:{port} or [{text}]:{DEFAULT_PORT}"))
            }
            _ => Ok(at(text, DEFAULT_PORT)),
        };
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port =
        port.map_or(Ok(DEFAULT_PORT), str::parse).map_err(|_| "the port is not a number up to 65535")?;
    if host.is_empty() {
        return Err("no host; write HOST:PORT".into());
    }
    if host.contains(['[', ']', ':']) {
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let address = address.filter(|address| is_ipv6(address));
        return address
            .map(|a| at(a, port))
            .ok_or_else(|| "write HOST:PORT, or [ADDRESS]:PORT for IPv6".into());
    }
    // No host name ends with a number (RFC 1123 §2.1).
    let relative = host.strip_suffix('.').unwrap_or(host);
    let number = relative.rsplit('.').next().is_some_and(|label| label.bytes().all(|b| b.is_ascii_digit()));
    if number && host.parse::<Ipv4Addr>().is_err() {
        return Err(format!("{host} is not an IPv4 address; write HOST:PORT"));
    }
    Ok(at(host, port))
}

fn fragment_length(text: &str) -> Result<u16, String> {
    let length = text.parse().ok().filter(|length| [512, 1024, 2048, 4096].contains(length));
    length.ok_or_else(|| "not 512, 1024, 2048 or 4096".to_owned())
}

fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned()).map_err(|_| "neither a host name nor an address".to_owned())
}

/// Runs `dunlin client`.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let result = connect_and_pipe(args);
    if let (true, Err(error)) = (args.json, &result) {
        // Scripts read failures on stdout, like the negotiated parameters. If stdout is gone, only the exit
        // status remains.
        let _ = emit(&Event::Failure(Failure::of_command(Side::Client, error)));
    }
    result
}

fn connect_and_pipe(args: &Args) -> Result<(), Error> {
    let client = Client::new(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(client.run());
    // A blocked read of stdin cannot be cancelled.
    runtime.shutdown_background();
    result
}

/// Writes an event to stdout.
fn emit(event: &Event) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", event.line())?;
    out.flush()
}

/// The state of a connection, by its messages and data.
struct Progress {
    at: At,
    json: bool,
    /// The server has sent a handshake message.
    has_answered: AtomicBool,
    /// The server has requested a certificate or key.
    is_asked: AtomicBool,
    /// The client has proven its key.
    has_proven: AtomicBool,
    /// The connection event said that the server has not accepted the client yet.
    is_open: AtomicBool,
}

impl Progress {
    fn new(at: At, json: bool) -> Self {
        let [has_answered, is_asked, has_proven, is_open] = [(); 4].map(|()| AtomicBool::new(false));
        Self { at, json, has_answered, is_asked, has_proven, is_open }
    }

    fn note(&self, message: &MessageSize) {
        match message.typ {
            HandshakeType::CERTIFICATE_REQUEST => self.is_asked.store(true, Ordering::Relaxed),
            HandshakeType::CERTIFICATE_VERIFY if message.sent => {
                self.has_proven.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        if !message.sent {
            self.has_answered.store(true, Ordering::Relaxed);
            self.heard();
        }
    }

    /// The server's address, until the server has sent a handshake message; empty after that.
    fn silent(&self) -> &[SocketAddr] {
        if self.has_answered.load(Ordering::Relaxed) { &[] } else { std::slice::from_ref(&self.at.address) }
    }

    /// Returns whether the server requested a certificate or key, and the client proved none.
    fn is_anonymous(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed) && !self.has_proven.load(Ordering::Relaxed)
    }

    /// The server has sent a record under application keys, so it has accepted the client.
    fn heard(&self) {
        if self.is_open.swap(false, Ordering::Relaxed) && self.json {
            // A failed report must not end the connection.
            let _ = emit(&Event::Accepted(self.at));
        }
    }
}

/// Reports events of a connection while data flows.
struct Watcher<'a> {
    args: &'a Args,
    progress: &'a Progress,
}

impl Watch for Watcher<'_> {
    /// Writes to stderr without --json, because data flows to stdout.
    fn renegotiated(&self, stream: &dyn Session) {
        let report = Report::new(stream);
        if self.args.json {
            let connection = Connection::new(self.progress.at, report.handshake());
            // A failed report must not end the connection.
            let _ = emit(&Event::Renegotiation(connection.into()));
        } else if !self.args.quiet {
            anstream::eprintln!("dunlin: renegotiated: {}", report.parameters());
        }
    }

    fn heard(&self) {
        self.progress.heard();
    }

    fn shown<'d>(&self, data: &'d [u8]) -> Cow<'d, [u8]> {
        if self.args.json {
            (Event::Data(Data::new(data)).line() + "\n").into_bytes().into()
        } else {
            data.into()
        }
    }
}

struct Client<'a> {
    args: &'a Args,
    target: Target,
    name: ServerName<'static>,
    config: Followed<ClientConfig>,
    tickets: Option<Arc<ClientTickets>>,
    early_data: Vec<u8>,
}

/// A connection and its state.
struct Connected {
    stream: Box<dyn Session>,
    progress: Arc<Progress>,
    /// The error if the server did not accept all of the early data.
    undelivered: Option<Error>,
}

impl<'a> Client<'a> {
    fn new(args: &'a Args) -> Result<Self, Error> {
        let default = || Target { host: "localhost".into(), port: DEFAULT_PORT };
        let target = args.server.clone().or_else(|| args.connect.clone()).unwrap_or_else(default);
        let name = match &args.servername {
            Some(name) => name.clone(),
            // A certificate names an address without its zone.
            None => server_name(target.host.split('%').next().unwrap_or_default())
                .map_err(|why| Error::usage(&target.host, why, "name the server with --server-name"))?,
        };
        // A client without a session store asks for no tickets, so its messages are shorter.
        let wants_tickets = args.sess_in.is_some() || args.sess_out.is_some() || args.reconnect;
        let tickets = wants_tickets
            .then(|| ClientTickets::new(args.sess_in.as_deref(), args.sess_out.as_deref()))
            .transpose()?;
        let tickets = tickets.map(Arc::new);
        let sessions = tickets.clone().map(|t| t as Arc<dyn ClientSessions>);
        let (mut config, parts, files) =
            args.tls.client_config(args.insecure, args.maxfraglen, sessions, args.reconnect)?;
        let mut early_data = Vec::new();
        if let Some(path) = &args.early_data {
            args.tls.check_early_data()?;
            config = config.with_early_data(args.tls.early_data_protocols());
            early_data = files::read(path)?.to_vec();
        }
        let config = args.interfaces.config(config, args.tls.datagrams.survives_changes())?;
        let config = Followed::client(config.with_server_name_sent(!args.noservername), parts, files);
        Ok(Self { args, target, name, config, tickets, early_data })
    }

    async fn run(&self) -> Result<(), Error> {
        self.args.tls.registry.start(self.config.judges()).await;
        let mut connected = self.connect().await?;
        if self.args.reconnect {
            for _ in 0..RECONNECTIONS {
                self.end(&mut connected).await?;
                connected = self.connect().await?;
            }
        }
        let Connected { mut stream, progress, undelivered } = connected;
        let mut input = Input::new(!self.args.quiet && !self.args.nocommands);
        let at_end = AtEnd::Close(self.args.tls.timeout);
        let mut stop = Stop::new()?;
        let watcher = Watcher { args: self.args, progress: &progress };
        let piped = tokio::select! {
            piped = pipe::pipe(&mut *stream, Some(&mut input), at_end, watcher) => piped,
            () = stop.wait() => {
                // The server receives close_notify if it still reads.
                let closed = tokio::time::timeout(STOP_PATIENCE, stream.shutdown()).await;
                closed.unwrap_or(Ok(())).map(|()| End::Quit).map_err(Broken::Connection)
            }
        };
        if let Some(tickets) = &self.tickets {
            tickets.ended();
        }
        let piped = piped.map_err(|broken| self.broken(broken, &*stream, &progress));
        match (&piped, undelivered) {
            (Ok(end), None) => self.closed(progress.at, *end)?,
            (Ok(_), Some(error)) => return Err(error),
            // The other failure is more specific.
            (Err(_), Some(error)) => warn(&error.to_string()),
            (Err(_), None) => {}
        }
        piped.map(|_| ())
    }

    /// Reports an end without a failure.
    fn closed(&self, at: At, end: End) -> io::Result<()> {
        if end == End::Unanswered {
            warn(&format!(
                "{} did not answer the end of the connection: data may be missing; check that it still runs",
                self.what()
            ));
        }
        let answered = end == End::Answered;
        if self.args.json { emit(&Event::Closed(Closed { at, answered })) } else { Ok(()) }
    }

    fn broken(&self, broken: Broken, stream: &dyn Session, progress: &Progress) -> Error {
        match broken {
            Broken::Connection(e) => {
                self.failed(self.explainer(progress).stream(&e, stream.negotiated().version))
            }
            Broken::Renegotiation(e) => self.failed(self.explainer(progress).renegotiation(&e)),
            Broken::Stdin(e) => Error::failed("stdin", e, "give it a file or a pipe"),
            Broken::Stdout(e) => e.into(),
            Broken::Unsent(sent) => {
                let why = format!("it closed after {sent} bytes of the input, before it received the rest");
                Error::failed(self.what(), why, "look at the log of the server").with_code(Code::UNSENT)
            }
        }
    }

    /// Connects, and shows the negotiated parameters.
    async fn connect(&self) -> Result<Connected, Error> {
        let config = Arc::new(self.config.current(|outcome| {
            if let Outcome::Refused(why) = outcome {
                warn(&why);
            }
        }));
        let (stream, progress, taken) = if self.args.tls.udp {
            self.connect_udp(&config).await?
        } else {
            self.connect_tcp(config).await?
        };
        if let Some(tickets) = &self.tickets
            && !stream.negotiated().is_resumed()
        {
            tickets.declined();
        }
        self.show(&*stream, &progress)?;
        let undelivered =
            (taken < self.early_data.len()).then(|| self.undelivered(stream.negotiated(), taken));
        Ok(Connected { stream, progress, undelivered })
    }

    /// The state of a connection with the server at this address, and the function that notes its messages.
    fn progress(
        &self,
        address: SocketAddr,
    ) -> (Arc<Progress>, impl Fn(&MessageSize) + Send + Sync + use<> + 'static) {
        let progress = Arc::new(Progress::new(At::new(Side::Client, address), self.args.json));
        let noting = progress.clone();
        let shows = self.args.tls.msg;
        let note = move |message: &MessageSize| {
            if shows {
                // A failed report must not end the connection.
                let _ = writeln!(io::stdout(), "{}", message_line(message));
            }
            noting.note(message);
        };
        (progress, note)
    }

    /// The answers about servers whose documents are elsewhere.
    fn answers(&self) -> Option<LookUpAnswers> {
        self.config.judges().map(|judges| judges.answers())
    }

    fn server(&self) -> ServerAddress {
        ServerAddress::new(self.name.clone(), self.target.port)
    }

    /// Connects over TCP. Returns also how many bytes of the early data the server accepted.
    async fn connect_tcp(
        &self,
        config: Arc<ClientConfig>,
    ) -> Result<(Box<dyn Session>, Arc<Progress>, usize), Error> {
        let tcp = self.open_tcp().await?;
        let (progress, note) = self.progress(tcp.peer_addr()?);
        let mut connector =
            TlsConnector::new(config).with_timeout(self.args.tls.timeout).with_on_message(note);
        if let Some(answers) = self.answers() {
            connector = connector.with_answers(answers);
        }
        let connected = connector.connect_with_early_data(tcp, self.server(), &self.early_data).await;
        let (stream, taken) = connected.map_err(|e| self.failed(self.explainer(&progress).handshake(&e)))?;
        Ok((Box::new(stream), progress, taken))
    }

    /// Connects over UDP to the first of the server's addresses that answers. Returns also that the server
    /// accepted no early data.
    async fn connect_udp(
        &self,
        config: &Arc<ClientConfig>,
    ) -> Result<(Box<dyn Session>, Arc<Progress>, usize), Error> {
        let addresses = self.addresses().await.map_err(|e| self.unreachable(e))?;
        let tried = Mutex::new(vec![]);
        let attempt = |address| {
            tried.lock().unwrap_or_else(PoisonError::into_inner).push(address);
            self.attempt(address)
        };
        let connected = connect_first(&addresses, config, &self.server(), attempt).await;
        let (association, DtlsAttempt { endpoint, context: progress, .. }) =
            connected.map_err(|failure| match failure {
                AttemptError::Nowhere => self.unreachable(io::Error::other("the name has no address")),
                AttemptError::Open(e) => e,
                AttemptError::Handshake(_, HandshakeError::Io(e))
                    if e.kind() == io::ErrorKind::ConnectionRefused =>
                {
                    self.unreachable(e)
                }
                AttemptError::Handshake(progress, e) => {
                    let tried = tried.lock().unwrap_or_else(PoisonError::into_inner);
                    let explainer = match progress.silent() {
                        [] => self.explainer(&progress),
                        // An answer from another address would count more than this silence.
                        _ => self.explainer(&progress).with_silent(&tried),
                    };
                    self.failed(explainer.handshake(&e))
                }
            })?;
        if self.args.interfaces.interface.is_empty() && !association.peer_connection_id().is_empty() {
            // A connected socket would send from its first address alone.
            endpoint.watch_addresses()?;
        }
        self.warn_if_bound(&association);
        let (stream, _) = DtlsStream::new(association);
        Ok((Box::new(stream), progress, 0))
    }

    /// Builds the endpoint and the options of an attempt at this address.
    async fn attempt(&self, address: SocketAddr) -> Result<DtlsAttempt<Arc<Progress>>, Error> {
        let endpoint = self.endpoint(address).await.map_err(|e| self.unreachable(e))?;
        let missing = endpoint.missing_interfaces();
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        if !missing.is_empty() {
            if missing.len() == self.args.interfaces.interface.len() {
                return Err(interfaces::none_up(&missing, family));
            }
            warn(&interfaces::some_down(&missing, family));
        }
        if let Some(loss) = &self.args.tls.datagrams.loss {
            endpoint.set_loss(loss.decider());
        }
        let (context, note) = self.progress(address);
        let options = DtlsOptions::new().with_timeout(self.args.tls.timeout).with_on_message(note);
        let mut options = options.with_on_path(self.on_path(context.at));
        if let Some(answers) = self.answers() {
            options = options.with_answers(answers);
        }
        Ok(DtlsAttempt { endpoint, options, context })
    }

    /// Warns if the server has accepted no mechanism by which the association survives a change of this
    /// machine's address.
    fn warn_if_bound(&self, association: &DtlsAssociation) {
        let datagrams = &self.args.tls.datagrams;
        let (option, lacks) = match (datagrams.has_ids(), datagrams.scheme) {
            _ if !association.peer_connection_id().is_empty() => return,
            // The server of this scheme names the port later.
            (_, Some(PortScheme::TcsMessage)) => return,
            (_, Some(_)) if association.association_port().is_some() => return,
            (true, _) => ("--cid", "no connection ID"),
            (false, Some(_)) => ("--scheme", "no port of its own"),
            (false, None) => return,
        };
        warn(&format!(
            "{}: the server gave the association {lacks}, so it ends when this machine's address changes; check the server's {option}",
            self.what()
        ));
    }

    /// An endpoint for this server alone.
    async fn endpoint(&self, server: SocketAddr) -> io::Result<DtlsEndpoint> {
        match &self.args.interfaces.interface[..] {
            // With a scheme, the server changes its port.
            [] => endpoint(server, self.args.tls.datagrams.scheme.is_none()).await,
            interfaces => DtlsEndpoint::over(interfaces.to_vec(), server, EndpointLimits::default()),
        }
    }

    /// Reports that the association goes on over another path, or that it has none.
    fn on_path(&self, at: At) -> impl Fn(&PathEvent) + Send + Sync + use<> + 'static {
        let json = self.args.json;
        let quiet = self.args.quiet;
        let server = self.what();
        let survives = self.args.tls.datagrams.survives_changes();
        move |event| {
            if let PathEvent::Unreachable(why) = event {
                warn(&interfaces::outage(&server, *why, survives));
            } else if json {
                // A failed report must not end the connection.
                let _ = interfaces::event(at, event).map(|event| emit(&event));
            } else if !quiet {
                anstream::eprintln!("dunlin: {}", interfaces::line(event));
            }
        }
    }

    /// The addresses of the server.
    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let Target { host, port } = &self.target;
        addresses::look_up(host, *port).await
    }

    async fn open_tcp(&self) -> Result<TcpStream, Error> {
        let connecting = async { addresses::connect(&self.addresses().await?).await };
        let tcp = tokio::time::timeout(self.args.tls.timeout, connecting).await;
        let tcp = tcp.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")));
        let tcp = tcp.map_err(|e| self.unreachable(e))?;
        tcp.set_nodelay(true)?;
        Ok(tcp)
    }

    fn unreachable(&self, error: io::Error) -> Error {
        let code = Code::of_stream(&error);
        let advice = match (error.kind(), self.args.tls.udp) {
            (io::ErrorKind::ConnectionRefused, true) => {
                "check the address, and that the server runs; leave --udp out if it speaks TLS over TCP"
            }
            (io::ErrorKind::ConnectionRefused, false) => {
                "check the address, and that the server runs; add --udp if it speaks DTLS"
            }
            _ => "check the address, and that the server runs",
        };
        Error::failed(self.what(), error, advice).with_code(code)
    }

    /// Shows the negotiated parameters.
    fn show(&self, stream: &dyn Session, progress: &Progress) -> io::Result<()> {
        let report = Report::new(stream);
        let At { address, .. } = progress.at;
        progress.is_open.store(!report.is_accepted(), Ordering::Relaxed);
        let out = &mut io::stdout().lock();
        match (self.args.quiet, self.args.json, self.args.brief) {
            (true, ..) => {}
            (_, true, _) => {
                let connection = Connection::new(progress.at, report.handshake());
                writeln!(out, "{}", Event::Connection(connection.into()).line())?;
            }
            (_, _, true) => {
                let note = if report.is_accepted() { "" } else { " (acceptance not known yet)" };
                writeln!(out, "connected to {address}{note}: {}", report.line())?;
            }
            _ => {
                writeln!(out, "connected to {address}")?;
                report.write_full(out, if self.args.insecure { " (not verified)" } else { "" })?;
            }
        }
        out.flush()
    }

    /// Ends a connection, and stores the tickets that arrive before its end.
    async fn end(&self, connected: &mut Connected) -> Result<(), Error> {
        let Connected { stream, progress, .. } = connected;
        let mut rest = vec![0; 4096];
        let ending = async {
            stream.shutdown().await?;
            while stream.read(&mut rest).await? > 0 {}
            Ok(End::Answered)
        };
        let patience = self.args.tls.timeout;
        let ended = if self.args.tls.udp {
            // The server's close_notify may be lost.
            let patience = patience.min(pipe::LAST_PATIENCE);
            tokio::time::timeout(patience, ending).await.unwrap_or(Ok(End::Unanswered))
        } else {
            tokio::time::timeout(patience, ending)
                .await
                .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "it did not close in time")))
        };
        let end = ended
            .map_err(|e| self.failed(self.explainer(progress).stream(&e, stream.negotiated().version)))?;
        progress.heard();
        Ok(self.closed(progress.at, end)?)
    }

    /// The error for a server that accepted only `taken` bytes of the early data.
    fn undelivered(&self, negotiated: &Negotiated, taken: usize) -> Error {
        let all = self.early_data.len();
        let why = match negotiated.early_data {
            _ if negotiated.version == Some(ProtocolVersion::TLS1_2) => {
                "TLS 1.2 has no early data".to_owned()
            }
            EarlyDataOutcome::NotOffered(why) | EarlyDataOutcome::Rejected(why) => why.to_string(),
            EarlyDataOutcome::Accepted => "the session allows no more".to_owned(),
        };
        let why = format!("it took {taken} of {all} bytes of early data: {why}; the rest is not sent");
        Error::failed(self.what(), why, "send it again, without --early-data").with_code(Code::EARLY_DATA)
    }

    fn explainer<'b>(&'b self, progress: &'b Progress) -> Explainer<'b> {
        let silent = if self.args.tls.udp { progress.silent() } else { &[] };
        Explainer::client(&self.args.tls, progress.is_anonymous()).with_silent(silent)
    }

    fn what(&self) -> String {
        format!("server {}:{}", self.target.host, self.target.port)
    }

    fn failed(&self, explanation: Explanation) -> Error {
        Error::failed(self.what(), explanation.why, explanation.advice).with_code(explanation.code)
    }
}

/// An endpoint for this server alone. If its socket is connected, the system reports a port at which no
/// program receives.
async fn endpoint(server: SocketAddr, is_connected: bool) -> io::Result<DtlsEndpoint> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    if is_connected {
        socket.connect(server).await?;
    }
    DtlsEndpoint::new(socket, EndpointLimits::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let read = |text| target(text).map(|t| (t.host, t.port));
        assert_eq!(read("example.org:443"), Ok(("example.org".into(), 443)));
        assert_eq!(read("example.org"), Ok(("example.org".into(), 4433)));
        assert_eq!(read("[::1]:443"), Ok(("::1".into(), 443)));
        assert_eq!(read("[::1]:"), Err("the port is not a number up to 65535".into()));
        assert_eq!(read("::1"), Ok(("::1".into(), 4433)));
        assert_eq!(read("[2001:db8::1]"), Ok(("2001:db8::1".into(), 4433)));
        assert_eq!(read("2001:db8::1"), Ok(("2001:db8::1".into(), 4433)));
        assert_eq!(read("[fe80::1%eth0]:443"), Ok(("fe80::1%eth0".into(), 443)));
        assert_eq!(read("fe80::1%eth0"), Ok(("fe80::1%eth0".into(), 4433)));
        assert_eq!(read("localhost.:443"), Ok(("localhost.".into(), 443)));
        assert_eq!(read("127.0.0.1:1"), Ok(("127.0.0.1".into(), 1)));
        for (bad, why) in [
            (":443", "write HOST:PORT"),
            ("https://localhost:443", "write HOST:PORT"),
            ("300.1.1.1:443", "300.1.1.1 is not an IPv4 address; write HOST:PORT"),
            ("[::1:443", "write HOST:PORT, or [ADDRESS]:PORT"),
            ("[localhost]:443", "write HOST:PORT, or [ADDRESS]:PORT"),
            ("::1:443", "write [::1]:443 or [::1:443]:4433"),
        ] {
            assert!(read(bad).is_err_and(|told| told.contains(why)), "{bad}");
        }
        assert_eq!(read("example.org:65536"), Err("the port is not a number up to 65535".into()));
    }
}
