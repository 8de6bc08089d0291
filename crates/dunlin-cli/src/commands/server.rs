//! `dunlin server`: a TLS server like `openssl s_server`.

use std::future::poll_fn;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args as ClapArgs;
use dunlin::wire::CipherSuite;
use dunlin::{MessageSize, PskSource, ServerConfig};
use dunlin_tokio::{HandshakeError, TlsAcceptor, TlsStream};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinSet;

use crate::error::{Code, Error, Explanation, count};
use crate::stop::{self, STOP_PATIENCE, Stop};
use crate::tls::counted::{Counted, Traffic};
use crate::tls::events::{At, AtMessage, Connection, Ended, Event, Failure, Message, Side};
use crate::tls::follow::{Followed, Outcome};
use crate::tls::log::{Level, Log};
use crate::tls::options::{ServerOptions, TlsOptions};
use crate::tls::pipe::{self, AtEnd, Broken, Input};
use crate::tls::psks::{NamedPsks, ServerPsks};
use crate::tls::reasons::Explainer;
use crate::tls::report::{Report, message_line};

const EXAMPLES: &str = "\
Examples:
  dunlin server --cert server.pem --key server.key --echo
  dunlin server --accept 0.0.0.0:4433 --cert rsa.pem --key rsa.key --cert ec.pem --key ec.key
  dunlin server --cert server.pem --key server.key --CAfile ca.pem --Verify --echo
  dunlin server --psk-file keys.psk --echo
  dunlin server --cert server.pem --key server.key --echo --early-data 4096
  dunlin server --cert server.pem --key server.key --CAfile ca.pem --Verify --echo --cache compact
  dunlin server --enable-server-rpk --key server.key --enable-client-rpk --rpk-file devices.pub --Verify

The options are spelled as those of s_server where they mean the same, and may be written its way: -CAfile.
docs/stores.md says what --cache-store takes, and what lies beside it.
It listens on 127.0.0.1 unless --accept names another address: 0.0.0.0 and [::] are all of them.

Without --echo or --rev, what clients send goes to stdout, and stdin goes to the client that came first.
The log goes to stderr: stdout is for data. Each line has its time (UTC), level, client, and what happened. With --json, and --echo or --rev, no data goes to stdout,
and the objects go there.

The server follows the files of --cert, --key, --CAfile, --rpk-file and --CRL: new connections use new content. SIGHUP reads
all of them at once. Certificates and keys, and trust anchors and CRLs, replace the previous ones only if they are valid.

Ctrl-C and SIGTERM close the connections and end it.

Exit status: 0 fine, 1 failed (with --naccept also if a connection failed), 2 wrong use.";

/// Accept TLS clients: show them, echo what they send, or pipe stdin and stdout.
#[derive(ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where to listen; port 0 is any free one.
    #[arg(long, visible_alias = "port", value_name = "[ADDR:]PORT", default_value = "4433", value_parser = address)]
    accept: SocketAddr,
    /// Send back what comes.
    #[arg(long)]
    echo: bool,
    /// Send every line back with its characters reversed.
    #[arg(long, conflicts_with = "echo")]
    rev: bool,
    /// End after so many connections.
    #[arg(long, value_name = "N", value_parser = positive)]
    naccept: Option<usize>,
    /// Connections at the same time; others wait.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = positive)]
    max_connections: usize,
    /// End connections on which no byte passes for so long, in seconds; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    idle_timeout: u64,
    /// What to log: error, warn (failed connections, too), info (each connection and its end, too) or debug (each handshake
    /// message, too).
    #[arg(long, value_name = "LEVEL", value_enum, hide_possible_values = true, default_value = "info")]
    log_level: Level,
    /// Nothing but data and failures: as --log-level warn.
    #[arg(long, short)]
    quiet: bool,
    /// The lines as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: TlsOptions,
    #[command(flatten)]
    server: ServerOptions,
}

/// The longest line that is reversed, in bytes.
const MAX_LINE: usize = 64 * 1024;

/// After a failure to accept, e.g. for lack of file descriptors, before it is tried again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

fn address(text: &str) -> Result<SocketAddr, String> {
    let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let port = text.parse().map(loopback);
    port.or_else(|_| text.parse()).map_err(|_| "neither a port nor an IP address with a port".to_owned())
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "not a number from 1 on".to_owned())
}

/// Runs `dunlin server`.
pub(crate) fn run(args: Args) -> Result<(), Error> {
    let (config, psks) = args.tls.server_config(&args.server)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        // Only where it is wanted: who reads stdin takes it from others.
        let input = (!args.echo && !args.rev).then(|| Arc::new(Mutex::new(Input::new(false))));
        let (stopped, lost) = (watch::Sender::new(false), OnceLock::new());
        let level = if args.quiet { args.log_level.min(Level::Warn) } else { args.log_level };
        let log = match on_stdout(&args) {
            true => Log::new(io::stdout(), args.json, level)?,
            false => Log::new(io::stderr(), args.json, level)?,
        };
        let server = Arc::new(Server { args, config, psks, input, stopped, lost, log });
        let result = server.clone().run().await;
        server.log.end();
        result
    });
    // A read of stdin may be waiting, which nothing can end.
    runtime.shutdown_background();
    result
}

/// What a connection of this server is over.
type Transport = Counted<TcpStream>;

/// This server, and a client.
const fn at(from: SocketAddr) -> At {
    At::new(Side::Server, from)
}

/// Closes a connection in this direction. A client that does not take the close_notify is not waited for.
async fn close(stream: &mut TlsStream<Transport>) -> io::Result<()> {
    tokio::time::timeout(STOP_PATIENCE, stream.shutdown()).await.unwrap_or(Ok(()))
}

/// Whether what is said of connections goes to stdout: where that is for objects.
const fn on_stdout(args: &Args) -> bool {
    args.json && (args.echo || args.rev)
}

struct Server {
    args: Args,
    config: Followed<ServerConfig>,
    psks: Option<Arc<ServerPsks>>,
    /// For one client at a time.
    input: Option<Arc<Mutex<Input>>>,
    stopped: watch::Sender<bool>,
    /// Stdin or stdout and why it cannot be used any more: nobody is served without.
    lost: OnceLock<(&'static str, String)>,
    log: Log,
}

impl Server {
    async fn run(self: Arc<Self>) -> Result<(), Error> {
        // Before anybody is told of the server: who is told may stop it.
        let mut stop = Stop::new()?;
        let mut hangups = stop::hangups()?;
        let address = self.args.accept;
        let listener = TcpListener::bind(address).await;
        let listener =
            listener.map_err(|e| Error::failed(address, e, "give another address with --accept"))?;
        let address = listener.local_addr()?;
        if self.log.wants(Level::Info) {
            let text = || format!("listening on {address}");
            self.say(&self.log.render(Level::Info, text, || Event::Listening { address }))?;
        }
        let server = self.clone();
        tokio::spawn(async move {
            stop.wait().await;
            server.stopped.send_replace(true);
        });
        let server = self.clone();
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                server.config.reload(|outcome| server.tell_reload(outcome));
            }
        });
        let mut connections = Connections::default();
        tokio::select! {
            () = self.clone().accept(listener, &mut connections) => {}
            () = self.stopped() => {}
        }
        let Connections { accepted, failed, .. } = connections.end().await;
        if let Some((what, why)) = self.lost.get() {
            return Err(Error::failed(what, why, "join it to something else, or add --echo or --rev"));
        }
        // A server for ever has told of each failure, and ends well.
        if failed == 0 || self.args.naccept.is_none() {
            return Ok(());
        }
        let why = format!("{failed} of {accepted} connections failed");
        Err(Error::failed(address, why, "see what was said of each"))
    }

    /// Accepts connections, as many as are wanted.
    async fn accept(self: Arc<Self>, listener: TcpListener, connections: &mut Connections) {
        let limit = Arc::new(Semaphore::new(self.args.max_connections));
        while self.args.naccept.is_none_or(|n| connections.accepted < n) {
            // Only `close` makes this fail, and nobody calls it.
            let Ok(permit) = limit.clone().acquire_owned().await else { break };
            let (tcp, from) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(e) => {
                    let why = format!("a connection was not accepted: {e}; free file descriptors or memory");
                    self.log.say(Level::Error, || why.clone(), || Event::NotAccepted { why: why.clone() });
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let server = self.clone();
            connections.add(async move {
                let served = server.serve(tcp, from).await;
                drop(permit);
                served
            });
        }
    }

    /// Waits until the server shall stop.
    async fn stopped(&self) {
        // It fails when the sender is gone, which is a part of the server.
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// Serves one client; whether all went well.
    async fn serve(self: &Arc<Self>, tcp: TcpStream, from: SocketAddr) -> bool {
        // A transport without it works as well.
        let _ = tcp.set_nodelay(true);
        let (tcp, traffic) = Counted::new(tcp);
        self.log.say(Level::Debug, || format!("{from} accepted"), || Event::Incoming(at(from)));
        let psks = self.psks.clone().map(|psks| Arc::new(NamedPsks::new(psks)));
        let offered = Arc::new(OnceLock::new());
        let explainer = Explainer::server(&self.args.tls, psks.as_deref(), &offered);
        let mut stream = match self.handshake(tcp, from, psks.clone(), offered.clone()).await {
            Ok(stream) => stream,
            // That is no failure of this connection, nor of the client.
            Err(HandshakeError::Stopped) => return false,
            Err(e) => {
                self.log_failure(from, explainer.handshake(&e));
                return false;
            }
        };
        self.log_connection(false, from, &stream);
        let limit = Some(Duration::from_secs(self.args.idle_timeout)).filter(|limit| !limit.is_zero());
        let (served, by) = tokio::select! {
            served = self.data(from, &mut stream) => (served.map_err(Some), "by the client"),
            () = self.stopped() => (close(&mut stream).await.map_err(Some), "by this server"),
            () = traffic.idle(limit) => {
                let _ = close(&mut stream).await;
                (Err(None), "by this server")
            }
        };
        match &served {
            Err(None) => self.log_failure(from, self.idle()),
            Err(Some(e)) if self.lost.get().is_none() => {
                self.log_failure(from, explainer.stream(e, stream.negotiated().version));
            }
            _ => {}
        }
        self.log_end(from, &traffic, served.is_ok().then_some(by));
        served.is_ok()
    }

    /// Why a silent connection ends.
    fn idle(&self) -> Explanation {
        let why = format!("no byte has passed for {}", count(self.args.idle_timeout, "second"));
        let advice = "raise --idle-timeout if clients may be silent for longer";
        Explanation { code: Code::TIMEOUT, ..Explanation::new(why, advice) }
    }

    async fn handshake(
        self: &Arc<Self>,
        tcp: Transport,
        from: SocketAddr,
        psks: Option<Arc<NamedPsks>>,
        offered: Arc<OnceLock<Vec<CipherSuite>>>,
    ) -> Result<TlsStream<Transport>, HandshakeError> {
        let mut config = self.config.current(|outcome| self.tell_reload(outcome));
        if let Some(psks) = psks {
            config = config.with_psk_identity_hint(psks.identity_hint())?.with_psks(PskSource::Here(psks));
        }
        let config = Arc::new(config);
        let acceptor = TlsAcceptor::new(config.clone()).with_timeout(self.args.tls.timeout);
        let acceptor = acceptor.with_profiles(move |hello| {
            // There is one ClientHello to choose by.
            let _ = offered.set(hello.cipher_suites.clone());
            Some(config.clone())
        });
        let level = if self.args.tls.msg { Level::Info } else { Level::Debug };
        if !self.log.wants(level) {
            return acceptor.accept_until(tcp, self.stopped()).await;
        }
        let server = self.clone();
        let log = move |message: &MessageSize| {
            let event = || Event::Message(AtMessage { at: at(from), message: Message::new(message) });
            server.log.say(level, || format!("{from} {}", message_line(message)), event);
        };
        acceptor.with_on_message(log).accept_until(tcp, self.stopped()).await
    }

    /// Answers data with what the options say.
    async fn data(&self, from: SocketAddr, stream: &mut TlsStream<Transport>) -> io::Result<()> {
        let early = stream.take_early_data();
        let renegotiated = |stream: &_| self.log_connection(true, from, stream);
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

    async fn pipe(
        &self,
        stream: &mut TlsStream<Transport>,
        renegotiated: impl Fn(&TlsStream<Transport>),
    ) -> io::Result<()> {
        let mut input = self.input.as_ref().and_then(|input| input.try_lock().ok());
        let piped = pipe::pipe(stream, input.as_deref_mut(), AtEnd::Wait, renegotiated).await;
        piped.map_err(|broken| match broken {
            Broken::Connection(e) | Broken::Renegotiation(e) => e,
            Broken::Stdin(e) => self.lose("stdin", e),
            Broken::Stdout(e) => self.lose("stdout", e),
            // Nobody misses it here: what is left is for the next client.
            Broken::Unsent(_) => io::ErrorKind::UnexpectedEof.into(),
        })
    }

    /// Stops the server for lack of stdin or stdout.
    fn lose(&self, what: &'static str, error: io::Error) -> io::Error {
        // The first reason is the one that is told.
        let _ = self.lost.set((what, error.to_string()));
        self.stopped.send_replace(true);
        error
    }

    /// Tells of files that were read again.
    fn tell_reload(&self, outcome: Outcome) {
        match outcome {
            Outcome::Reloaded(paths) => {
                let files: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                let text = || format!("read again: {}", files.join(", "));
                self.log.say(Level::Info, text, || Event::Reloaded { files: files.clone() });
            }
            Outcome::Refused(why) => {
                self.log.say(Level::Warn, || why.clone(), || Event::NotReloaded { why: why.clone() });
            }
        }
    }

    /// Tells of a connection, or of another handshake within one.
    fn log_connection(&self, is_again: bool, from: SocketAddr, stream: &TlsStream<Transport>) {
        let report = Report::new(stream);
        let text = || match is_again {
            true => format!("{from} renegotiated: {}", report.parameters()),
            false => format!("{from} connected: {}", report.log_line()),
        };
        self.log.say(Level::Info, text, || {
            let event = if is_again { Event::Renegotiation } else { Event::Connection };
            event(Connection::new(at(from), &report).into())
        });
    }

    fn log_failure(&self, from: SocketAddr, explanation: Explanation) {
        let text = format!("{from} failed: {}; {}", explanation.why, explanation.advice);
        self.log.say(Level::Warn, || text, || Event::Failure(Failure::of_peer(at(from), explanation)));
    }

    /// Tells of the end of a connection, and by which side if it was orderly.
    fn log_end(&self, from: SocketAddr, traffic: &Traffic, by: Option<&str>) {
        let (bytes_read, bytes_written, orderly) = (traffic.read(), traffic.written(), by.is_some());
        let text = || {
            let end = by.map_or_else(|| "not orderly".into(), |by| format!("orderly, {by}"));
            format!("{from} ended: read {bytes_read} bytes, wrote {bytes_written}; {end}")
        };
        let event = || Event::Ended(Ended { at: at(from), bytes_read, bytes_written, orderly });
        self.log.say(Level::Info, text, event);
    }

    /// Says the first line: a server whose lines nobody can read does not begin.
    fn say(&self, line: &str) -> io::Result<()> {
        match on_stdout(&self.args) {
            true => {
                let mut out = io::stdout().lock();
                writeln!(out, "{line}")?;
                out.flush()
            }
            false => writeln!(io::stderr().lock(), "{line}"),
        }
    }
}

/// The connections that are served, and how they went.
#[derive(Default)]
struct Connections {
    running: JoinSet<bool>,
    accepted: usize,
    failed: usize,
}

impl Connections {
    /// Starts one more, which tells whether all went well; counts those that have ended.
    fn add(&mut self, connection: impl Future<Output = bool> + Send + 'static) {
        self.accepted += 1;
        self.running.spawn(connection);
        while let Some(served) = self.running.try_join_next() {
            self.failed += usize::from(!served.unwrap_or(false));
        }
    }

    /// Waits for the end of all.
    async fn end(mut self) -> Self {
        while let Some(served) = self.running.join_next().await {
            self.failed += usize::from(!served.unwrap_or(false));
        }
        self
    }
}

/// Tells `then` of each handshake within the connection when it is complete.
struct Renegotiations<F> {
    seen: u32,
    then: F,
}

impl<F: Fn(&TlsStream<Transport>)> Renegotiations<F> {
    const fn told_to(then: F) -> Self {
        Self { seen: 0, then }
    }

    /// More data of the stream, which are still to be consumed; none at its end.
    async fn data(&mut self, stream: &mut TlsStream<Transport>) -> io::Result<Vec<u8>> {
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

async fn echo(
    stream: &mut TlsStream<Transport>,
    renegotiated: impl Fn(&TlsStream<Transport>),
) -> io::Result<()> {
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

async fn reverse(
    stream: &mut TlsStream<Transport>,
    renegotiated: impl Fn(&TlsStream<Transport>),
) -> io::Result<()> {
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
