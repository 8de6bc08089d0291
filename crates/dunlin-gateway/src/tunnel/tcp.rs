//! Local programs over TCP: each connection goes to the server over a TLS connection of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use dunlin_tokio::places::{Places, Seated};
use dunlin_tokio::{HandshakeBytes, HandshakeError, TlsConnector, TlsStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::remote::{self, Backoff, Failure};
use super::{ListenerState, Settings, handshake_failed};
use crate::clock::timer;
use crate::context::Context;
use crate::heard::Heard;
use crate::life::Phase;
use crate::metrics::{Established, Limit};
use crate::proxy::flow::First;
use crate::proxy::tcp::{self, End};
use crate::service;
use crate::{identity, sockets};

/// Accepts local programs until the tunnel stops or `removed` becomes true.
pub(crate) async fn run(
    context: Arc<Context>,
    settings: Settings,
    socket: TcpListener,
    removed: watch::Receiver<bool>,
) {
    let serve = |context, live, places, tcp, from| async move {
        let served = client(&context, &live, &places, &tcp, from).await;
        // The local program must notice that its connection has failed.
        let connected = served.inspect_err(|_| cut(&tcp))?;
        match connected {
            Some(tls) => pass(&context, &live, tls, tcp, from).await,
            None => {
                cut(&tcp);
                Ok(())
            }
        }
    };
    service::accept(context, settings, socket, removed, serve).await;
}

/// Lets a connection end by a reset.
fn cut(tcp: &TcpStream) {
    tcp::Side::cut(tcp);
}

/// A connection to the server, with the place that it takes.
struct Connected {
    tls: TlsStream<TcpStream>,
    /// Counts it as connected.
    established: Established,
    seated: Arc<Seated>,
}

/// Connects to the server on behalf of a local program. `None` if that failed, which the log tells.
async fn client(
    context: &Arc<Context>,
    live: &Arc<ListenerState>,
    places: &Arc<Places>,
    tcp: &TcpStream,
    from: SocketAddr,
) -> Result<Option<Connected>, Limit> {
    let listener = &live.config.name;
    let limits = &live.config.limits;
    // A local program proves no identity.
    let seated = Arc::new(places.settle(from.ip(), None, &limits.places()).map_err(Limit::of)?);
    sockets::prepare(tcp);
    let connected = tokio::select! {
        connected = reach(context, live) => connected,
        () = context.life.reached(Phase::Draining) => return Ok(None),
        () = seated.gone() => {
            gave_way(context, listener, &seated);
            return Ok(None);
        }
    };
    match connected {
        Ok((tls, established)) => Ok(Some(Connected { tls, established, seated })),
        Err(failure) if failure.lacks_files() => Err(Limit::OpenFiles),
        Err(failure) => {
            let server = &live.config.to.value;
            let advice = failure.advice();
            tracing::error!(listener, client = %from, server, error = %failure, advice, "no connection to the server");
            Ok(None)
        }
    }
}

/// Counts a local program that gives way to another one. Returns why its connection ends before its time.
fn gave_way(context: &Context, listener: &str, seated: &Seated) -> String {
    match seated.gives_way() {
        Some(why) => {
            context.metrics.gave_way(listener, why);
            format!("gave way to another client ({})", why.name())
        }
        None => "the tunnel stops".to_owned(),
    }
}

/// Connects to the server, with further attempts until `connect_time` is over.
async fn reach(
    context: &Context,
    live: &ListenerState,
) -> Result<(TlsStream<TcpStream>, Established), Failure> {
    let listener = &live.config.name;
    let limits = &live.config.limits;
    let until = timer() + limits.connect_time;
    let mut backoff = Backoff::new(limits.retry_time, limits.longest_retry_time);
    loop {
        let failure = match attempt(context, live, until).await {
            Ok(connected) => return Ok(connected),
            Err(failure) => failure,
        };
        let pause = backoff.pause(&*live.random);
        if !failure.is_temporary() || timer() + pause >= until {
            return Err(failure);
        }
        tracing::debug!(listener, error = %failure, ?pause, "another attempt follows");
        sleep(pause).await;
    }
}

async fn attempt(
    context: &Context,
    live: &ListenerState,
    until: Instant,
) -> Result<(TlsStream<TcpStream>, Established), Failure> {
    let listener = &live.config.name;
    let config = &live.config;
    let tcp = remote::connect(&config.to.value, until).await.map_err(|error| {
        context.metrics.server(listener, super::outcome(&error));
        Failure::Unreachable(error)
    })?;
    context.metrics.server(listener, "connected");
    let begin = timer();
    let time = config.limits.handshake_time.min(until.saturating_duration_since(begin));
    let mut connector = TlsConnector::new(live.tls.clone()).with_timeout(time);
    if let Some(answers) = live.answers.clone() {
        connector = connector.with_answers(answers);
    }
    let failed = |error: HandshakeError| handshake_failed(context, listener, error);
    let tls = connector.connect(tcp, config.server.clone()).await.map_err(failed)?;
    let established = context.metrics.handshake_completed(listener, tls.negotiated(), "", timer() - begin);
    Ok((tls, established))
}

/// Passes the data of a local program until both sides have closed.
async fn pass(
    context: &Context,
    live: &ListenerState,
    connected: Connected,
    tcp: TcpStream,
    from: SocketAddr,
) -> Result<(), Limit> {
    let Connected { tls, established: _established, seated } = connected;
    let listener = &live.config.name;
    let identity = identity::shown(tls.negotiated());
    let version = tls.negotiated().version.map(|version| version.to_string()).unwrap_or_default();
    let kind = tls.negotiated().kind;
    let HandshakeBytes { read: handshake_read, written: handshake_written } = tls.handshake_bytes();
    tracing::info!(
        listener,
        client = %from,
        server = live.config.to.value,
        identity,
        version,
        ?kind,
        handshake_read,
        handshake_written,
        "connected"
    );
    let stop = async {
        tokio::select! {
            () = context.life.reached(Phase::Ending) => {}
            () = seated.gone() => {}
        }
    };
    let tcp = Heard::new(tcp, seated.clone());
    let passed = tcp::pass(tcp, (tls, First::default()), live.config.limits.idle_time, stop).await;
    let read = passed.from_client;
    let written = passed.to_client;
    context.metrics.transferred(listener, read, written);
    let why = match &passed.end {
        End::Closed => "closed".to_owned(),
        End::Idle => "no traffic within idle_time".to_owned(),
        End::Stopped => gave_way(context, listener, &seated),
        End::Client(error) => format!("the local connection failed: {error}"),
        // In TLS 1.3, a server refuses a client after the client's handshake is complete.
        End::Backend(error) => format!("the server's connection failed: {error}"),
    };
    match passed.end {
        End::Backend(_) => tracing::warn!(listener, client = %from, read, written, why, "disconnected"),
        _ => tracing::info!(listener, client = %from, read, written, why, "disconnected"),
    }
    match passed.end {
        End::Idle => Err(Limit::IdleTime),
        _ => Ok(()),
    }
}
