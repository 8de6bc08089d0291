//! DTLS clients over UDP: accept, handshake, route, proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use dunlin::wire::AlertDescription;
use dunlin::{DtlsConnection, Ended, EndpointLimits, Negotiated};
use dunlin_registry::lookup;
use dunlin_tokio::throttle::Line;
use dunlin_tokio::{
    AssociationEnded, DtlsAssociation, DtlsEndpoint, DtlsIncoming, DtlsOptions, HandshakeError, Resumed,
};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::frozen::Freezer;
use super::handshake::ClientHandshake;
use super::{ListenerState, Settings};
use crate::clock::{now, now_s, timer};
use crate::config::{Limits, RouteConfig, RouteProtocol, Verify};
use crate::context::Context;
use crate::identity;
use crate::life::Phase;
use crate::metrics::{self, Limit};
use crate::policy_configs::Terms;
use crate::proxy::tcp::CLOSE_PATIENCE;
use crate::proxy::udp::{self, Backend, End, Passed, ToBackend};
use crate::proxy_protocol::{self, Transport};
use crate::route;
use crate::service::{self, Serve};
use crate::sockets;

/// The limits of a listener's endpoint, which decides itself about places and handshakes.
fn endpoint_limits(limits: &Limits) -> EndpointLimits {
    let mut endpoint = EndpointLimits::default();
    endpoint.associations = limits.connections;
    endpoint.associations_per_host = limits.connections_per_host;
    endpoint.associations_per_network = limits.connections_per_network;
    endpoint.half_open = limits.handshakes;
    // A host cannot displace all handshakes of others.
    endpoint.half_open_per_host = limits.handshakes_per_host.min(limits.handshakes.div_ceil(4));
    (endpoint.stale, endpoint.idle) = (Some(limits.silent_time), Some(limits.forget_time));
    endpoint
}

/// Why the endpoint has ended the association of this handshake, if it has.
fn ended(error: &HandshakeError) -> Option<Ended> {
    match error {
        HandshakeError::Io(error) => AssociationEnded::of(error),
        _ => None,
    }
}

/// The state that the associations of a listener share.
struct Listener {
    context: Arc<Context>,
    local: SocketAddr,
    /// The next source address of sockets to backends.
    next_source: AtomicUsize,
    /// Freezes the associations at the end.
    freezer: Option<Arc<Freezer>>,
}

/// Accepts clients until the gateway stops or `removed` becomes true. Thaws associations before, and freezes
/// them after, if the settings at the beginning say so.
pub(crate) async fn run(
    context: Arc<Context>,
    settings: Settings,
    socket: UdpSocket,
    mut removed: watch::Receiver<bool>,
) {
    let live = settings.load_full();
    let freezer = live.frozen.clone().map(|place| Arc::new(Freezer::new(place)));
    let limits = endpoint_limits(&live.config.limits);
    let thawed = thaw(freezer.clone(), live.clone(), context.clone()).await;
    let begun = socket.local_addr();
    let begun = begun.and_then(|local| Ok((DtlsEndpoint::resume(socket, limits, thawed)?, local)));
    let (Resumed { endpoint, associations, refused, .. }, local) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            tracing::error!(listener = live.config.name, %error, "the socket does not work; start again");
            return;
        }
    };
    if let Some((client, error)) = refused.first() {
        let listener = &live.config.name;
        let refused = refused.len();
        tracing::warn!(listener, refused, %client, %error, "some thawed associations have no place, the first one for this reason");
    }
    {
        let context = context.clone();
        let settings = settings.clone();
        endpoint.set_refusal(move |from| settings.load().refuses(&context, from, now()));
    }
    if let Some(nodes) = context.nodes.get() {
        nodes.join(&live.config.name, &endpoint);
    }
    endpoint.set_server(live.tls.choosing());
    let _watched = {
        let settings = settings.clone();
        context.metrics.watch(move || settings.load().config.name.clone(), &endpoint)
    };
    let mut changed = context.changed.subscribe();
    let next_source = AtomicUsize::new(0);
    let listener = Arc::new(Listener { context, local, next_source, freezer });
    for dtls in associations {
        let listener = listener.clone();
        let live = live.clone();
        listener
            .clone()
            .begin(dtls.peer_address(), live.clone(), async move { listener.thawed(&live, dtls).await });
    }
    drop(live);
    let is_stopping = loop {
        let incoming = tokio::select! {
            incoming = endpoint.accept() => incoming,
            // It fails only if the gateway is gone.
            _ = changed.changed() => {
                let live = settings.load();
                endpoint.set_limits(endpoint_limits(&live.config.limits));
                endpoint.set_server(live.tls.choosing());
                continue;
            }
            () = listener.context.life.reached(Phase::Draining) => break true,
            _ = removed.wait_for(|removed| *removed) => break false,
        };
        let listener = listener.clone();
        let live = settings.load_full();
        listener.clone().begin(incoming.peer_address(), live.clone(), async move {
            listener.client(&live, incoming).await
        });
    };
    // Associations keep the socket.
    endpoint.set_server(None);
    let Some(freezer) = listener.freezer.clone() else { return };
    if is_stopping {
        listener.context.life.reached(Phase::Ending).await;
        let freezer = freezer.clone();
        let context = listener.context.clone();
        let name = settings.load().config.name.clone();
        // It fails only if the runtime ends.
        let _ = spawn_blocking(move || freezer.freeze(&endpoint, &name, &context.metrics)).await;
    }
    freezer.end();
}

/// The connections of the file of frozen associations, if there is one.
async fn thaw(
    freezer: Option<Arc<Freezer>>,
    live: Arc<ListenerState>,
    context: Arc<Context>,
) -> Vec<DtlsConnection> {
    let Some(freezer) = freezer else { return vec![] };
    // It fails only if the runtime ends.
    spawn_blocking(move || freezer.thaw(&live, &context.metrics)).await.unwrap_or_default()
}

impl Listener {
    /// Begins to serve a client.
    fn begin(
        &self,
        from: SocketAddr,
        live: Arc<ListenerState>,
        serving: impl Future<Output = Result<(), Limit>> + Send + 'static,
    ) {
        let context = self.context.clone();
        let freezes = self.freezer.is_some();
        tokio::spawn(service::counted(context, freezes, live, from, Box::pin(serving)));
    }

    /// Serves a client. The error is the limit that it has reached.
    async fn client(&self, live: &Arc<ListenerState>, incoming: DtlsIncoming) -> Result<(), Limit> {
        let name = &live.config.name;
        let from = incoming.peer_address();
        let metrics = &self.context.metrics;
        let begin = timer();
        let handshake = ClientHandshake::new(self.context.clone(), live.clone(), from, None);
        // The memory for the handshake is free afterwards.
        let dtls = match Box::pin(self.shake_hands(live, incoming, &handshake)).await {
            Ok(dtls) => dtls,
            Err(error) => {
                // The handshake itself has not failed.
                match ended(&error) {
                    Some(Ended::Refused(limit)) => return Err(Limit::of(limit)),
                    Some(Ended::GaveWay(why)) => {
                        metrics.gave_way(name, why);
                        return Ok(());
                    }
                    _ => {}
                }
                handshake.failed(&error, now());
                metrics.handshake_failed(name, metrics::reason(&error));
                if let Some(Ended::Displaced(limit)) = ended(&error) {
                    return Err(Limit::of_handshakes(limit));
                }
                handshake.log_failure(&error, now());
                return match error {
                    HandshakeError::Timeout(_) | HandshakeError::Unconfirmed { .. } => {
                        Err(Limit::HandshakeTime)
                    }
                    _ => Ok(()),
                };
            }
        };
        let rule = handshake.completed(dtls.negotiated(), now());
        let negotiated = dtls.negotiated();
        let took = timer() - begin;
        let _established =
            metrics.handshake_completed(name, negotiated, rule.as_deref().unwrap_or_default(), took);
        let Some((route, rule)) = handshake.route().zip(rule) else {
            tracing::error!(listener = name, client = %from, "no route or profile was chosen; report this error");
            return Ok(());
        };
        if !handshake.admits(route, dtls.negotiated(), now()) {
            dtls.abort(AlertDescription::ACCESS_DENIED);
            return Ok(());
        }
        let profile = handshake.profile_digest(dtls.negotiated());
        self.serve(live, route, &dtls, &Terms { rule, profile }).await
    }

    /// Serves a client whose association was thawed, unless its policy of now refuses it. The error is the
    /// limit that it has reached.
    async fn thawed(&self, live: &Arc<ListenerState>, dtls: DtlsAssociation) -> Result<(), Limit> {
        let name = &live.config.name;
        let from = dtls.peer_address();
        let (route, terms) = match Self::goes_on(live, dtls.negotiated()) {
            Ok(goes_on) => goes_on,
            Err(why) => {
                self.context.metrics.frozen(name, "refused", 1);
                tracing::warn!(listener = name, client = %from, why, "a thawed association ends");
                return Ok(());
            }
        };
        let handshake = ClientHandshake::new(self.context.clone(), live.clone(), from, None);
        if !handshake.admits(route, dtls.negotiated(), now()) {
            self.context.metrics.frozen(name, "refused", 1);
            dtls.abort(AlertDescription::ACCESS_DENIED);
            return Ok(());
        }
        let _established = self.context.metrics.established(name, dtls.negotiated());
        let answers = live.tls.answers();
        tokio::select! {
            served = self.serve(live, route, &dtls, &terms) => return served,
            () = lookup::ended(answers.as_ref(), dtls.negotiated()) => {}
        }
        self.context.metrics.frozen(name, "refused", 1);
        tracing::warn!(listener = name, client = %from, why = lookup::ENDED, "a thawed association ends");
        dtls.abort(AlertDescription::CERTIFICATE_REVOKED);
        Ok(())
    }

    /// The route and the terms with which a thawed association goes on, or why it ends. The client has
    /// authenticated, so the blacklist, which is about new connections, does not matter.
    fn goes_on<'a>(
        live: &'a ListenerState,
        negotiated: &Negotiated,
    ) -> Result<(&'a RouteConfig, Terms), String> {
        let routes = &live.config.routes;
        let at = route::of(routes, negotiated);
        let (at, route) = at.and_then(|at| Some((at, routes.get(at)?))).ok_or("its route is gone")?;
        let policed = live.tls.policed();
        let terms = policed
            .map_or_else(|| Ok(Terms::default()), |policed| policed.goes_on(at, negotiated, now_s()))?;
        Ok((route, terms))
    }

    /// Does the handshake. The ClientHello chooses the route.
    async fn shake_hands(
        &self,
        live: &ListenerState,
        incoming: DtlsIncoming,
        handshake: &Arc<ClientHandshake>,
    ) -> Result<DtlsAssociation, HandshakeError> {
        let first = handshake.clone();
        let then = handshake.clone();
        let refused = handshake.clone();
        let mut options = DtlsOptions::new()
            .with_timeout(live.config.limits.handshake_time)
            .with_profiles(move |hello| first.choose(hello, now()))
            .with_client_profiles(move |client| then.profile_of(client, now()))
            .with_on_refused(move |certificate| refused.refused(certificate));
        if let Some(answers) = live.tls.answers() {
            options = options.with_answers(answers);
        }
        tokio::select! {
            done = incoming.accept_with(&options) => done,
            () = self.context.life.reached(Phase::Draining) => Err(HandshakeError::Stopped),
        }
    }

    /// Passes the datagrams of a client until its association ends, or is frozen. The error is the limit that
    /// it has reached.
    async fn serve(
        &self,
        live: &ListenerState,
        route: &RouteConfig,
        dtls: &DtlsAssociation,
        terms: &Terms,
    ) -> Result<(), Limit> {
        let RouteProtocol::Udp(sources) = &route.protocol else { return Ok(()) };
        let name = &live.config.name;
        let limits = &live.config.limits;
        if dtls.negotiated().peer.is_none() && live.config.clients.verify == Verify::Required {
            // The engine refuses such clients itself; this is the second lock on the door.
            let client = dtls.peer_address();
            tracing::error!(listener = name, %client, "a client without identity passed its handshake; report this error");
            return Ok(());
        }
        let _remembered = self.freezer.as_ref().map(|freezer| freezer.remember(dtls, terms.profile));
        let header = |from: SocketAddr| {
            if route.proxy_protocol {
                // A listener on all addresses has none of its own that a client could have asked.
                let to = dtls.asked_address().map(|asked| SocketAddr::new(asked, self.local.port()));
                proxy_protocol::header(Transport::Datagram, from, to.unwrap_or(self.local), dtls.negotiated())
            } else {
                vec![]
            }
        };
        let backend = Backend {
            to: &route.to.value,
            sources,
            next: &self.next_source,
            backend_time: limits.backend_time,
            connect_time: limits.connect_time,
            header: &header,
        };
        self.pass(live, (&route.name, &terms.rule), dtls, &backend).await
    }

    /// Passes datagrams. `rule` is the label of the policy's rule.
    async fn pass(
        &self,
        live: &ListenerState,
        (route, rule): (&str, &str),
        dtls: &DtlsAssociation,
        backend: &Backend<'_>,
    ) -> Result<(), Limit> {
        let listener = &live.config.name;
        let metrics = &self.context.metrics;
        let from = dtls.peer_address();
        let identity = identity::shown(dtls.negotiated());
        let version = dtls.negotiated().version.map(|version| version.to_string()).unwrap_or_default();
        let kind = dtls.negotiated().kind;
        let (profile, rule) = super::chosen(dtls.negotiated(), rule);
        let issuer = identity::issuer(dtls.negotiated().peer.as_ref());
        let has_identity = dtls.negotiated().peer.is_some();
        let is_logged = self.context.lines.connection(listener, has_identity, now());
        if let Some(Line { left_out }) = is_logged {
            tracing::info!(listener, client = %from, route, identity, issuer, version, ?kind, profile, rule, left_out, "connected");
        }
        let note = |event: ToBackend<'_>| {
            let error = match event {
                ToBackend::Opened => return metrics.backend(listener, route, "connected"),
                ToBackend::Failed(error) => error,
                ToBackend::Expired => {
                    metrics.backend(listener, route, "expired");
                    if let Some(Line { left_out }) = self.context.lines.line(listener, "backend_time", now())
                    {
                        let advice = "what the backend still sends to the client is lost; with a longer backend_time, sockets stay open";
                        tracing::warn!(listener, client = %from, route, left_out, "the socket to the backend is closed after backend_time without traffic; {advice}");
                    }
                    return;
                }
            };
            let (outcome, advice) = match error.kind() {
                std::io::ErrorKind::ConnectionRefused => ("refused", "start the backend, or correct `to`"),
                _ => ("failed", "correct `to` or `source`"),
            };
            metrics.backend(listener, route, outcome);
            if sockets::lacks_files(error) {
                return self.context.reached_limit(listener, from, Limit::OpenFiles, now());
            }
            if let Some(Line { left_out }) = self.context.lines.line(listener, "backend", now()) {
                let backend = backend.to;
                tracing::error!(listener, client = %from, route, backend, %error, left_out, "no datagrams to the backend; {advice}");
            }
        };
        let mut passed = Passed::default();
        let stop = async {
            self.context.life.reached(Phase::Ending).await;
            if let Some(freezer) = &self.freezer {
                freezer.done().await;
            }
        };
        let end = udp::pass(dtls, backend, &mut passed, note, stop).await;
        metrics.transferred(listener, passed.from_client, passed.to_client);
        metrics.dropped(listener, passed.dropped);
        let why = match &end {
            End::Closed => "closed".to_owned(),
            End::Stopped => "the gateway stops".to_owned(),
            End::Frozen => "frozen".to_owned(),
            End::GaveWay(why) => {
                metrics.gave_way(listener, *why);
                format!("gave way to another client ({})", why.name())
            }
            End::Forgotten => "nothing arrived within forget_time".to_owned(),
            End::Failed(error) => format!("the client's connection failed: {error}"),
        };
        let Passed { from_client: read, to_client: written, dropped } = passed;
        if is_logged.is_some() || matches!(end, End::GaveWay(_)) {
            tracing::info!(listener, client = %from, route, identity, read, written, dropped, why, "disconnected");
        }
        if matches!(end, End::Closed | End::Stopped) {
            dtls.close();
            // The endpoint sends the close_notify; the client's answer ends the association.
            let answered = async { while let Ok(Some(_)) = dtls.recv().await {} };
            let _ = timeout(CLOSE_PATIENCE, answered).await;
        }
        if matches!(end, End::Forgotten) { Err(Limit::ForgetTime) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_handshakes_of_the_configuration_and_at_most_a_quarter() {
        let of = |handshakes_per_host, handshakes| {
            endpoint_limits(&Limits { handshakes_per_host, handshakes, ..Limits::default() })
                .half_open_per_host
        };
        assert_eq!([of(100, 1000), of(100, 100), of(7, 10), of(1, 1)], [100, 25, 3, 1]);
    }
}
