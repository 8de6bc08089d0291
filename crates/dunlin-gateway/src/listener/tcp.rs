//! TLS clients over TCP: accept, handshake, route, proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dunlin::error::PeerIncompatible;
use dunlin::wire::AlertDescription;
use dunlin::{ClientHelloInfo, ServerConfig};
use dunlin_tokio::places::{HandshakePlace, Places, Seated};
use dunlin_tokio::throttle::Line;
use dunlin_tokio::{HandshakeError, TlsAcceptor, TlsStream};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::handshake::ClientHandshake;
use super::watched::Watched;
use super::{ListenerState, Settings};
use crate::clock::{now, timer};
use crate::config::{AcmeChallenge, MqttConfig, RouteConfig, RouteProtocol, UserName, Verify};
use crate::context::Context;
use crate::life::Phase;
use crate::metrics::{self, Limit};
use crate::proxy::flow::First;
use crate::proxy::http::{Exchange, Fault};
use crate::proxy::mqtt::{Answer, Connect, ConnectError};
use crate::proxy::tcp::{CLOSE_PATIENCE, End};
use crate::proxy_protocol::{self, Transport};
use crate::service;
use crate::{identity, proxy, route, sockets};

/// Accepts clients until the gateway stops or `removed` becomes true. `port` is the socket's port if the
/// socket belongs to a pool for redirected clients.
pub(crate) async fn run(
    context: Arc<Context>,
    settings: Settings,
    socket: TcpListener,
    removed: watch::Receiver<bool>,
    port: Option<u16>,
) {
    let serve = move |context, live, places, tcp, from| async move {
        client(&context, &live, &places, tcp, (from, port)).await
    };
    service::accept(context, settings, socket, removed, serve).await;
}

/// Serves a client. The error is the limit that it has reached.
async fn client(
    context: &Arc<Context>,
    live: &Arc<ListenerState>,
    places: &Arc<Places>,
    tcp: TcpStream,
    (from, port): (SocketAddr, Option<u16>),
) -> Result<(), Limit> {
    let limits = &live.config.limits;
    let place = places
        .handshake(from.ip(), limits.handshakes_per_host, limits.handshakes)
        .map_err(Limit::of_handshakes)?;
    let place = Arc::new(place);
    let listener = &live.config.name;
    sockets::prepare(&tcp);
    let Ok(to) = tcp.local_addr() else { return Ok(()) };
    let handshake = ClientHandshake::new(context.clone(), live.clone(), from, port);
    // The memory for the handshake is free afterwards.
    let mut tls = match Box::pin(shake_hands(context, live, places, tcp, &place, &handshake)).await {
        Ok(tls) => tls,
        Err(HandshakeError::Stopped) if place.is_displaced() => return Err(Limit::Handshakes),
        Err(error) => {
            handshake.failed(&error, now());
            context.metrics.handshake_failed(listener, metrics::reason(&error));
            handshake.log_failure(&error, now());
            return match error {
                HandshakeError::Timeout(_) => Err(Limit::HandshakeTime),
                _ => Ok(()),
            };
        }
    };
    if handshake.is_challenge() {
        place.end();
        context.metrics.acme_challenged(listener, AcmeChallenge::TlsAlpn01);
        tracing::info!(listener, client = %from, "an authority has validated a name");
        let _ = timeout(CLOSE_PATIENCE, tls.shutdown()).await;
        return Ok(());
    }
    // Only now the client's identity is proven.
    let seated = match places.settle(from.ip(), tls.negotiated().peer.as_ref(), &limits.places()) {
        Ok(seated) => Arc::new(seated),
        Err(limit) => {
            refuse(&place, &mut tls).await;
            return Err(Limit::of(limit));
        }
    };
    place.end();
    let rule = handshake.completed(tls.negotiated(), now());
    handshake.established(context.metrics.handshake_completed(
        listener,
        tls.negotiated(),
        rule.as_deref().unwrap_or_default(),
        tls.handshake_time(),
    ));
    let Some((route, rule)) = handshake.route().zip(rule) else {
        // The engine asks for every first ClientHello, so the answer is known. It also refuses clients whose
        // profile is too weak.
        tracing::error!(listener, client = %from, "no route or profile was chosen; report this error");
        return Ok(());
    };
    serve(&handshake, live, (route, &rule), (tls, &seated), [from, to]).await
}

/// Tells a client that there is no place for it (RFC 8446 §6.2: a lack of resources is an internal_error).
async fn refuse(place: &HandshakePlace, tls: &mut TlsStream<TcpStream>) {
    tokio::select! {
        () = tls.abort(AlertDescription::INTERNAL_ERROR) => {}
        () = place.displaced() => {}
    }
}

/// Does the handshake. The ClientHello chooses the route. `place` is free when the handshake has ended, which
/// it also does when another handshake gets the place. While handshakes crowd, a client of TLS 1.3 has to
/// return a cookie before it costs the gateway a signature and a key exchange (RFC 8446 §4.2.2).
async fn shake_hands(
    context: &Context,
    live: &ListenerState,
    places: &Arc<Places>,
    tcp: TcpStream,
    place: &Arc<HandshakePlace>,
    handshake: &Arc<ClientHandshake>,
) -> Result<TlsStream<TcpStream>, HandshakeError> {
    let choosing = live.tls.choosing().ok_or(HandshakeError::Stopped)?;
    let first = handshake.clone();
    let then = handshake.clone();
    let refused = handshake.clone();
    let places = places.clone();
    let displaced = place.displaced();
    let place = place.clone();
    let choose = move |hello: &ClientHelloInfo| -> Result<_, PeerIncompatible> {
        let config = first.choose(hello, now())?;
        if places.are_crowded(timer().into_std()) {
            Ok(Arc::new(ServerConfig::clone(&config).with_cookies(true)))
        } else {
            Ok(config)
        }
    };
    let mut acceptor = TlsAcceptor::new(choosing)
        .with_timeout(live.config.limits.handshake_time)
        // A failed handshake leaves its place before the client has closed.
        .with_on_linger(move || place.linger())
        .with_profiles(choose)
        .with_client_profiles(move |client| then.profile_of(client, now()))
        .with_on_refused(move |certificate| refused.refused(certificate));
    if let Some(answers) = live.tls.answers() {
        acceptor = acceptor.with_answers(answers);
    }
    let stop = async {
        tokio::select! {
            () = context.life.reached(Phase::Draining) => {}
            () = displaced => {}
        }
    };
    acceptor.accept_until(tcp, stop).await
}

/// Connects the client to the backend of its route. `rule` is the label of the policy's rule. `addresses` are
/// the client's and the one to which it has connected.
async fn serve(
    handshake: &Arc<ClientHandshake>,
    live: &Arc<ListenerState>,
    (route, rule): (&RouteConfig, &str),
    (mut tls, seated): (TlsStream<TcpStream>, &Arc<Seated>),
    addresses: [SocketAddr; 2],
) -> Result<(), Limit> {
    let [from, to] = addresses;
    let context = handshake.context();
    let listener = &live.config.name;
    let limits = &live.config.limits;
    let negotiated = tls.negotiated();
    let identity = identity::shown(negotiated);
    if negotiated.peer.is_none() && live.config.clients.verify == Verify::Required {
        // The engine refuses such clients itself; this is the second lock on the door.
        tracing::error!(listener, client = %from, "a client without identity passed its handshake; report this error");
        return Ok(());
    }
    let is_admitted = handshake.admits(route, negotiated, now());
    if !is_admitted && !matches!(route.protocol, RouteProtocol::Http) {
        tls.abort(AlertDescription::ACCESS_DENIED).await;
        return Ok(());
    }
    let version = negotiated.version.map(|version| version.to_string()).unwrap_or_default();
    let (profile, rule) = super::chosen(negotiated, rule);
    let issuer = identity::issuer(negotiated.peer.as_ref());
    let is_logged = context.lines.connection(listener, negotiated.peer.is_some(), now());
    if let Some(Line { left_out }) = is_logged {
        tracing::info!(listener, client = %from, route = route.name, identity, issuer, version, kind = ?negotiated.kind, profile, rule, left_out, "connected");
    }
    let mqtt = match &route.protocol {
        // Only HTTP clients need this much memory.
        RouteProtocol::Http => {
            let told = (is_admitted, is_logged.is_some());
            return Box::pin(web(handshake, live, route, (tls, seated), addresses, told)).await;
        }
        RouteProtocol::Tcp | RouteProtocol::Udp(_) => None,
        RouteProtocol::Mqtt(config) => match Box::pin(mqtt_connect(live, route, config, &mut tls)).await {
            Ok(connect) => Some(connect),
            Err(error) => {
                if let Some(Line { left_out }) = context.lines.line(listener, "MQTT refused", now()) {
                    tracing::warn!(listener, client = %from, route = route.name, identity, %error, left_out, "MQTT refused");
                }
                let _ = timeout(CLOSE_PATIENCE, tls.shutdown()).await;
                return match error {
                    ConnectError::TooLong(..) => Err(Limit::HeaderBytes),
                    _ => Ok(()),
                };
            }
        },
    };
    let mut first = vec![];
    if route.proxy_protocol {
        first = proxy_protocol::header(Transport::Stream, from, to, tls.negotiated());
    }
    if let Some((_, packet)) = &mqtt {
        first.extend_from_slice(packet);
    }
    let mut backend = match reach(context, live, route, &first).await {
        Ok(backend) => backend,
        Err(error) => {
            log_unreachable(context, live, route, from, &error);
            let refuse = async {
                if let Some((connect, _)) = &mqtt {
                    tls.write_all(connect.unavailable()).await?;
                }
                tls.shutdown().await
            };
            let _ = timeout(CLOSE_PATIENCE, refuse).await;
            return Ok(());
        }
    };
    let mut answer = Answer::default();
    let mut idle_time = limits.idle_time;
    let waits_since = timer();
    if let Some((connect, _)) = &mqtt {
        idle_time = connect.idle_time(&answer, limits.idle_time);
        if connect.has_server_keep_alive() {
            // A broker that is slower than this says nothing about the keep alive. An event that ends the
            // wait also ends the connection below.
            let wait = idle_time.min(limits.connect_time);
            tokio::select! {
                () = answer.read(&mut backend, limits.header_bytes) => {}
                () = sleep(wait) => {}
                () = ends(context, seated, Phase::Ending) => {}
            }
            idle_time = connect.idle_time(&answer, limits.idle_time);
        }
    }
    let silence = if answer.bytes.is_empty() { timer() - waits_since } else { Duration::ZERO };
    let first = First { bytes: answer.bytes, failure: answer.failure, silence };
    let stop = ends(context, seated, Phase::Ending);
    let tls = Watched::new(tls, handshake.clone(), seated.clone());
    let passed = proxy::tcp::pass(tls, (backend, first), idle_time, stop).await;
    let proxy::tcp::Passed { from_client: read, to_client: written, end } = passed;
    context.metrics.transferred(listener, read, written);
    let why = match &end {
        End::Closed => "closed".to_owned(),
        End::Idle if idle_time != limits.idle_time => "no traffic within 1.5 times the keep alive".to_owned(),
        End::Idle => "no traffic within idle_time".to_owned(),
        End::Stopped => stopped(context, listener, seated),
        End::Client(error) => format!("the client's connection failed: {error}"),
        End::Backend(error) => format!("the backend's connection failed: {error}"),
    };
    if is_logged.is_some() || seated.gives_way().is_some() {
        tracing::info!(listener, client = %from, route = route.name, identity, read, written, why, "disconnected");
    }
    if matches!(end, End::Idle) { Err(Limit::IdleTime) } else { Ok(()) }
}

/// Waits until a connection has to end: the gateway is in this phase, or the client gives way to another one.
async fn ends(context: &Context, seated: &Seated, phase: Phase) {
    tokio::select! {
        () = context.life.reached(phase) => {}
        () = seated.gone() => {}
    }
}

/// Why a connection has ended before its time. Counts a client that gives way.
fn stopped(context: &Context, listener: &str, seated: &Seated) -> String {
    match seated.gives_way() {
        Some(why) => {
            context.metrics.gave_way(listener, why);
            format!("gave way to another client ({})", why.name())
        }
        None => "the gateway stops".to_owned(),
    }
}

/// Serves the HTTP requests of a client, or refuses each of them.
async fn web(
    handshake: &Arc<ClientHandshake>,
    live: &Arc<ListenerState>,
    route: &RouteConfig,
    (tls, seated): (TlsStream<TcpStream>, &Arc<Seated>),
    [from, to]: [SocketAddr; 2],
    (is_admitted, is_logged): (bool, bool),
) -> Result<(), Limit> {
    let context = handshake.context();
    let listener = live.config.name.clone();
    let limits = &live.config.limits;
    let negotiated = tls.negotiated();
    let proxy_header = if route.proxy_protocol {
        proxy_protocol::header(Transport::Stream, from, to, negotiated)
    } else {
        vec![]
    };
    let headers = proxy::http::headers(negotiated, from);
    let connected = {
        let context = context.clone();
        let live = live.clone();
        let route = route.clone();
        Box::new(move |outcome| context.metrics.backend(&live.config.name, &route.name, outcome))
    };
    let failed = {
        let context = context.clone();
        let live = live.clone();
        let route = route.clone();
        Box::new(move |fault: &Fault| log_fault(&context, &live, &route, from, fault))
    };
    let serves = {
        let at = live.config.routes.iter().position(|other| other.name == route.name).unwrap_or_default();
        let live = live.clone();
        Box::new(move |host: &str| route::serves(&live.config.routes, at, host))
    };
    let to = route.to.value.clone();
    let connect_time = limits.connect_time;
    let exchange =
        Exchange { to, connect_time, proxy_header, headers, connected, failed, serves, is_admitted };
    let stops = [Phase::Draining, Phase::Ending].map(|phase| ends(context, seated, phase));
    let tls = Watched::new(tls, handshake.clone(), seated.clone());
    let served = proxy::http::serve(tls, Arc::new(exchange), limits, stops).await;
    context.metrics.transferred(&listener, served.from_client, served.to_client);
    let why = match served.end {
        proxy::http::End::Stopped => stopped(context, &listener, seated),
        ref end => end.to_string(),
    };
    let read = served.from_client;
    let written = served.to_client;
    if is_logged || seated.gives_way().is_some() {
        tracing::info!(listener, client = %from, route = route.name, read, written, why, "disconnected");
    }
    match served.end {
        proxy::http::End::HeaderTooLong => Err(Limit::HeaderBytes),
        proxy::http::End::Idle => Err(Limit::IdleTime),
        _ => Ok(()),
    }
}

/// Logs why a request gets no answer of the backend.
fn log_fault(
    context: &Context,
    live: &ListenerState,
    route: &RouteConfig,
    client: SocketAddr,
    fault: &Fault,
) {
    if let Fault::Unreachable(error) = fault {
        return log_unreachable(context, live, route, client, error);
    }
    let listener = &live.config.name;
    if let Some(Line { left_out }) = context.lines.line(listener, "answer", now()) {
        let (route, backend) = (&route.name, &route.to.value);
        let error = std::error::Error::source(fault).map(tracing::field::display);
        tracing::warn!(listener, %client, route, backend, why = %fault, error, left_out, "a request got no answer of the backend");
    }
}

/// Logs that the backend of a route cannot be reached. Each request of a client can cause such a line.
fn log_unreachable(
    context: &Context,
    live: &ListenerState,
    route: &RouteConfig,
    client: SocketAddr,
    error: &std::io::Error,
) {
    let listener = &live.config.name;
    if sockets::lacks_files(error) {
        return context.reached_limit(listener, client, Limit::OpenFiles, now());
    }
    if let Some(Line { left_out }) = context.lines.line(listener, "backend", now()) {
        let (route, backend) = (&route.name, &route.to.value);
        tracing::error!(listener, %client, route, backend, %error, left_out, "the backend cannot be reached; start it, or correct `to`");
    }
}

/// Connects to the backend, sends it `first`, and counts the outcome.
async fn reach(
    context: &Context,
    live: &ListenerState,
    route: &RouteConfig,
    first: &[u8],
) -> std::io::Result<TcpStream> {
    let count = |outcome| context.metrics.backend(&live.config.name, &route.name, outcome);
    let connected = proxy::connect(&route.to.value, live.config.limits.connect_time).await;
    let mut backend = connected.map_err(|(outcome, error)| {
        count(outcome);
        error
    })?;
    match backend.write_all(first).await {
        Ok(()) => count("connected"),
        Err(error) => {
            count("failed");
            return Err(error);
        }
    }
    Ok(backend)
}

/// Reads the client's CONNECT packet, and returns it with the packet that the broker gets.
async fn mqtt_connect(
    live: &ListenerState,
    route: &RouteConfig,
    config: &MqttConfig,
    tls: &mut TlsStream<TcpStream>,
) -> Result<(Connect, Vec<u8>), ConnectError> {
    let limits = &live.config.limits;
    let read = timeout(limits.handshake_time, Connect::read(tls, limits.header_bytes)).await;
    let late =
        |_| std::io::Error::new(std::io::ErrorKind::TimedOut, "no CONNECT packet within handshake_time");
    let connect = match read.map_err(late)? {
        Ok(connect) => connect,
        Err(error) => {
            if let Some(answer) = error.answer() {
                let _ = timeout(CLOSE_PATIENCE, tls.write_all(answer)).await;
            }
            return Err(error);
        }
    };
    let peer = tls.negotiated().peer.as_ref();
    let name = peer.and_then(|peer| match config.user_name {
        UserName::Name => identity::name(peer),
        UserName::Typed => identity::typed(peer),
    });
    let at = live.config.routes.iter().position(|other| other.name == route.name);
    let password = at.and_then(|at| live.passwords.get(at)?.as_ref());
    match connect.with(name.as_deref(), password.map(|password| &password[..])) {
        Ok(packet) => Ok((connect, packet)),
        Err(error) => {
            let _ = timeout(CLOSE_PATIENCE, tls.write_all(connect.refused(&error))).await;
            Err(error)
        }
    }
}
