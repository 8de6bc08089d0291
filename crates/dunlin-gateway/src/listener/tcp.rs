//! TLS clients over TCP: accept, handshake, route, proxy.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dunlin_tokio::{HandshakeError, TlsAcceptor, TlsStream};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::{Live, Phase, Settings, reached};
use crate::config::{RouteConfig, Verify};
use crate::gateway::Shared;
use crate::limits::{self, Places};
use crate::metrics::{self, Limit};
use crate::proxy::tcp::{CLOSE_PATIENCE, End};
use crate::proxy_protocol::{self, Transport};
use crate::{identity, proxy, route};

/// The pause after a failure to accept, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts clients until the gateway stops or `removed` becomes true.
pub(crate) async fn run(
    shared: Arc<Shared>,
    settings: Settings,
    socket: TcpListener,
    mut removed: watch::Receiver<bool>,
) {
    let places = Arc::new(Places::default());
    let phases = shared.phase.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = reached(&phases, Phase::Draining) => return,
            _ = removed.wait_for(|removed| *removed) => return,
        };
        let (tcp, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                let listener = settings.load().config.name.clone();
                tracing::error!(listener, %error, "a connection was not accepted; free file descriptors or memory");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (shared, live, places) = (shared.clone(), settings.load_full(), places.clone());
        let alive = shared.alive();
        tokio::spawn(async move {
            let listener = &live.config.name;
            shared.metrics.accepted(listener);
            if let Err(limit) = client(&shared, &live, &places, tcp, from).await {
                shared.metrics.limit_reached(listener, limit);
                tracing::warn!(listener, client = %from, limit = limit.name(), "limit reached");
            }
            shared.metrics.closed(listener);
            drop(alive);
        });
    }
}

/// Serves a client. The error is the limit that it has reached.
async fn client(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    places: &Arc<Places>,
    tcp: TcpStream,
    from: SocketAddr,
) -> Result<(), Limit> {
    let limits = &live.config.limits;
    let max = shared.max_connections();
    let _connection = limits::take(&shared.connections, max, Limit::Connections)?;
    let _of_host = places.connection(from.ip(), limits.connections_per_host)?;
    let handshake = places.handshake(limits.handshakes)?;
    let listener = &live.config.name;
    // Records are sent when they are complete; waiting for more would only delay them.
    let _ = tcp.set_nodelay(true);
    let Ok(to) = tcp.local_addr() else { return Ok(()) };
    let begin = Instant::now();
    let (tls, route) = match shake_hands(shared, live, tcp).await {
        Ok(ready) => ready,
        Err(error) => {
            shared.metrics.handshake_failed(listener, metrics::reason(&error));
            tracing::warn!(listener, client = %from, %error, "handshake failed");
            return match error {
                HandshakeError::Timeout(_) => Err(Limit::HandshakeTime),
                _ => Ok(()),
            };
        }
    };
    drop(handshake);
    shared.metrics.handshake_completed(listener, tls.negotiated(), begin.elapsed());
    let Some(route) = route else {
        // The engine asks for every first ClientHello, so the answer is known.
        tracing::error!(listener, client = %from, "no route was chosen; report this error");
        return Ok(());
    };
    serve(shared, live, route, tls, [from, to]).await
}

/// Does the handshake. The ClientHello chooses the route.
async fn shake_hands<'a>(
    shared: &Shared,
    live: &'a Arc<Live>,
    tcp: TcpStream,
) -> Result<(TlsStream<TcpStream>, Option<&'a RouteConfig>), HandshakeError> {
    let chosen = Arc::new(OnceLock::new());
    let acceptor = {
        let (live, chosen) = (live.clone(), chosen.clone());
        TlsAcceptor::new(live.tls.choosing.clone())
            .with_timeout(live.config.limits.handshake_time)
            .with_profiles(move |hello| {
                let route = route::find(&live.config.routes, hello)?;
                // A second ClientHello names the same server (RFC 8446 §4.1.2), and the first choice counts.
                let route = *chosen.get_or_init(|| route);
                live.tls.routes.get(route).cloned()
            })
    };
    let phases = shared.phase.subscribe();
    let tls = acceptor.accept_until(tcp, reached(&phases, Phase::Draining)).await?;
    let route = chosen.get().and_then(|route| live.config.routes.get(*route));
    Ok((tls, route))
}

/// Connects the client to the backend of its route. `addresses` are the client's and the one to which it has connected.
async fn serve(
    shared: &Arc<Shared>,
    live: &Live,
    route: &RouteConfig,
    mut tls: TlsStream<TcpStream>,
    addresses: [SocketAddr; 2],
) -> Result<(), Limit> {
    let [from, to] = addresses;
    let (listener, limits) = (&live.config.name, &live.config.limits);
    let negotiated = tls.negotiated();
    let identity = identity::shown(negotiated);
    if negotiated.peer.is_none() && live.config.clients.verify == Verify::Required {
        // The engine refuses such clients itself; this is the second lock on the door.
        tracing::error!(listener, client = %from, "a client without identity passed its handshake; report this error");
        return Ok(());
    }
    let version = negotiated.version.map(|version| version.to_string()).unwrap_or_default();
    tracing::info!(listener, client = %from, route = route.name, identity, version, kind = ?negotiated.kind, "connected");
    let mut backend = match proxy::connect(&route.to.value, limits.connect_time).await {
        Ok(backend) => {
            shared.metrics.backend(listener, &route.name, "connected");
            backend
        }
        Err((outcome, error)) => {
            shared.metrics.backend(listener, &route.name, outcome);
            let (route, backend) = (&route.name, &route.to.value);
            tracing::error!(listener, client = %from, route, backend, %error, "the backend cannot be reached; start it, or correct `to`");
            let _ = timeout(CLOSE_PATIENCE, tls.shutdown()).await;
            return Ok(());
        }
    };
    if route.proxy_protocol {
        let header = proxy_protocol::header(Transport::Stream, from, to, tls.negotiated());
        if let Err(error) = backend.write_all(&header).await {
            shared.metrics.backend(listener, &route.name, "failed");
            tracing::error!(listener, client = %from, route = route.name, %error, "the backend took no PROXY header");
            let _ = timeout(CLOSE_PATIENCE, tls.shutdown()).await;
            return Ok(());
        }
    }
    let phases = shared.phase.subscribe();
    let passed = proxy::tcp::pass(tls, backend, limits.idle_time, reached(&phases, Phase::Ending)).await;
    let (read, written) = (passed.from_client, passed.to_client);
    shared.metrics.transferred(listener, read, written);
    let why = match &passed.end {
        End::Closed => "closed".to_owned(),
        End::Idle => "no traffic within idle_time".to_owned(),
        End::Stopped => "the gateway stops".to_owned(),
        End::Client(error) => format!("the client's connection failed: {error}"),
        End::Backend(error) => format!("the backend's connection failed: {error}"),
    };
    tracing::info!(listener, client = %from, route = route.name, identity, read, written, why, "disconnected");
    match passed.end {
        End::Idle => Err(Limit::IdleTime),
        _ => Ok(()),
    }
}
