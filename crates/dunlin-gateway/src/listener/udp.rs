//! DTLS clients over UDP: accept, handshake, route, proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use dunlin::EndpointLimits;
use dunlin_tokio::{DtlsAssociation, DtlsEndpoint, DtlsIncoming, DtlsOptions, HandshakeError};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::visit::Visit;
use super::{Live, Phase, Settings, reached};
use crate::config::{Limits, RouteConfig, RouteProtocol, Verify};
use crate::identity;
use crate::limits::{self, Places};
use crate::metrics::{self, Limit};
use crate::proxy::tcp::CLOSE_PATIENCE;
use crate::proxy::udp::{self, Backend, End, Passed};
use crate::proxy_protocol::{self, Transport};
use crate::service::{self, Serve, Shared};
use crate::throttle::Line;

/// The limits of an endpoint. It also discards datagrams itself, before the gateway sees a client.
fn endpoint_limits(limits: &Limits) -> EndpointLimits {
    let mut endpoint = EndpointLimits::default();
    endpoint.associations_per_host = limits.connections_per_host;
    endpoint.half_open = limits.handshakes;
    endpoint.half_open_per_host = limits.handshakes.div_ceil(4);
    endpoint
}

/// What the associations of a listener share.
struct Listener {
    shared: Arc<Shared>,
    places: Arc<Places>,
    local: SocketAddr,
    /// The next source address of sockets to backends.
    next_source: AtomicUsize,
}

/// Accepts clients until the gateway stops or `removed` becomes true.
pub(crate) async fn run(
    shared: Arc<Shared>,
    settings: Settings,
    socket: UdpSocket,
    mut removed: watch::Receiver<bool>,
) {
    let live = settings.load_full();
    let limits = endpoint_limits(&live.config.limits);
    let (endpoint, local) =
        match socket.local_addr().and_then(|local| Ok((DtlsEndpoint::new(socket, limits)?, local))) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                tracing::error!(listener = live.config.name, %error, "the socket does not work; start again");
                return;
            }
        };
    {
        let (shared, settings) = (shared.clone(), settings.clone());
        endpoint.set_refusal(move |from| settings.load().refuses(&shared, from));
    }
    endpoint.set_server(live.tls.choosing());
    drop(live);
    let _watched = shared.metrics.watch(&settings, &endpoint);
    let mut changed = shared.changed.subscribe();
    let phases = shared.phase.subscribe();
    let places = Arc::default();
    let listener = Arc::new(Listener { shared, places, local, next_source: AtomicUsize::new(0) });
    loop {
        let incoming = tokio::select! {
            incoming = endpoint.accept() => incoming,
            // It fails only if the gateway is gone.
            _ = changed.changed() => {
                endpoint.set_server(settings.load().tls.choosing());
                continue;
            }
            () = reached(&phases, Phase::Draining) => break,
            _ = removed.wait_for(|removed| *removed) => break,
        };
        let (listener, live) = (listener.clone(), settings.load_full());
        let (shared, from) = (listener.shared.clone(), incoming.peer_address());
        let serving = {
            let live = live.clone();
            async move { listener.client(&live, incoming).await }
        };
        tokio::spawn(service::counted(shared, live, from, serving));
    }
    // Associations keep the socket.
    endpoint.set_server(None);
}

impl Listener {
    /// Serves a client. The error is the limit that it has reached.
    async fn client(&self, live: &Arc<Live>, incoming: DtlsIncoming) -> Result<(), Limit> {
        let (name, from, limits) = (&live.config.name, incoming.peer_address(), &live.config.limits);
        let metrics = &self.shared.metrics;
        let max = self.shared.max_connections();
        let _connection = limits::take(&self.shared.connections, max, Limit::Connections)?;
        let _of_host = self.places.connection(from.ip(), limits.connections_per_host)?;
        let begin = Instant::now();
        let visit = Visit::new(self.shared.clone(), live.clone(), from, None);
        let dtls = match self.shake_hands(live, incoming, &visit).await {
            Ok(dtls) => dtls,
            Err(error) => {
                visit.failed(&error);
                metrics.handshake_failed(name, metrics::reason(&error));
                let now = Instant::now().into_std();
                if let Some(Line { left_out }) = self.shared.lines.line(name, "handshake failed", now) {
                    tracing::warn!(listener = name, client = %from, %error, left_out, "handshake failed");
                }
                return match error {
                    HandshakeError::Timeout(_) => Err(Limit::HandshakeTime),
                    _ => Ok(()),
                };
            }
        };
        let rule = visit.completed(dtls.negotiated());
        let (negotiated, took) = (dtls.negotiated(), begin.elapsed());
        let _established =
            metrics.handshake_completed(name, negotiated, rule.as_deref().unwrap_or_default(), took);
        let route = visit.route().filter(|_| rule.is_some());
        let Some((route, RouteProtocol::Udp(sources))) = route.map(|route| (route, &route.protocol)) else {
            tracing::error!(listener = name, client = %from, "no route or profile was chosen; report this error");
            return Ok(());
        };
        if dtls.negotiated().peer.is_none() && live.config.clients.verify == Verify::Required {
            // The engine refuses such clients itself; this is the second lock on the door.
            tracing::error!(listener = name, client = %from, "a client without identity passed its handshake; report this error");
            return Ok(());
        }
        let header = |from: SocketAddr| match route.proxy_protocol {
            true => proxy_protocol::header(Transport::Datagram, from, self.local, dtls.negotiated()),
            false => vec![],
        };
        let backend = Backend {
            to: &route.to.value,
            sources,
            next: &self.next_source,
            idle_time: limits.idle_time,
            connect_time: limits.connect_time,
            header: &header,
        };
        self.serve(live, route, &dtls, &backend).await;
        Ok(())
    }

    /// Does the handshake. The ClientHello chooses the route.
    async fn shake_hands(
        &self,
        live: &Live,
        incoming: DtlsIncoming,
        visit: &Arc<Visit>,
    ) -> Result<DtlsAssociation, HandshakeError> {
        let (first, then) = (visit.clone(), visit.clone());
        let options = DtlsOptions::new()
            .with_timeout(live.config.limits.handshake_time)
            .with_profiles(move |hello| first.choose(hello))
            .with_client_profiles(move |client| then.profile_of(client));
        let phases = self.shared.phase.subscribe();
        tokio::select! {
            done = incoming.accept_with(&options) => done,
            () = reached(&phases, Phase::Draining) => Err(HandshakeError::Stopped),
        }
    }

    async fn serve(&self, live: &Live, route: &RouteConfig, dtls: &DtlsAssociation, backend: &Backend<'_>) {
        let (listener, route, metrics) = (&live.config.name, &route.name, &self.shared.metrics);
        let from = dtls.peer_address();
        let identity = identity::shown(dtls.negotiated());
        let version = dtls.negotiated().version.map(|version| version.to_string()).unwrap_or_default();
        let kind = dtls.negotiated().kind;
        tracing::info!(listener, client = %from, route, identity, version, ?kind, "connected");
        let opened = |result: &std::io::Result<UdpSocket>| match result {
            Ok(_) => metrics.backend(listener, route, "connected"),
            Err(error) => {
                metrics.backend(listener, route, "failed");
                let backend = backend.to;
                tracing::error!(listener, client = %from, route, backend, %error, "no socket to the backend; correct `to` or `source`");
            }
        };
        let phases = self.shared.phase.subscribe();
        let mut passed = Passed::default();
        let stop = reached(&phases, Phase::Ending);
        let end = udp::pass(dtls, backend, &mut passed, opened, stop).await;
        metrics.transferred(listener, passed.from_client, passed.to_client);
        metrics.dropped(listener, passed.dropped);
        let why = match &end {
            End::Closed => "closed".to_owned(),
            End::Stopped => "the gateway stops".to_owned(),
            End::Failed(error) => format!("the client's connection failed: {error}"),
        };
        let Passed { from_client: read, to_client: written, dropped } = passed;
        tracing::info!(listener, client = %from, route, identity, read, written, dropped, why, "disconnected");
        if !matches!(end, End::Failed(_)) {
            dtls.close();
            // The endpoint sends the close_notify; the client's answer ends the association.
            let answered = async { while let Ok(Some(_)) = dtls.recv().await {} };
            let _ = timeout(CLOSE_PATIENCE, answered).await;
        }
    }
}
