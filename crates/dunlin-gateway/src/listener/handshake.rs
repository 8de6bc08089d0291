//! A client on its way in: the choice of its route and of its profile, and the gateway's knowledge from its
//! handshake.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin::error::{AuthenticationFailure, Error, PeerIncompatible, PeerMisbehaved};
use dunlin::pki_types::CertificateDer;
use dunlin::wire::AlertDescription;
use dunlin::{ClientHelloInfo, IdentifiedClient, Negotiated, Now, ServerConfig};
use dunlin_tokio::HandshakeError;
use dunlin_tokio::throttle::Line;

use super::{ListenerState, remedy};
use crate::config::{RouteConfig, TransportKind};
use crate::context::Context;
use crate::identity;
use crate::metrics::Established;
use crate::policy::{
    AddressTable, Answered, Attribute, Client, Decision, Finished, Hints, Offence, PolicyProfile,
    PolicyServer, Source, Stage, Turn, Verdict,
};
use crate::policy_configs::{PolicyConfigs, ProfileDigest};
use crate::route;
use crate::tls::ServerConfigs;

/// A connection of a client. Dropping the value ends its entry in the table of handshakes.
pub(crate) struct ClientHandshake {
    context: Arc<Context>,
    live: Arc<ListenerState>,
    from: SocketAddr,
    /// The port of the pool to which the client has come ([`crate::config::Join::Port`]).
    port: Option<u16>,
    progress: Mutex<Progress>,
}

/// The gateway's knowledge of a connection so far.
#[derive(Default)]
struct Progress {
    /// Whether the client is an authority that validates a name.
    is_challenge: bool,
    /// The number of the route. The first ClientHello chooses it; a second one names the same server (RFC
    /// 8446 §4.1.2).
    route: Option<usize>,
    hints: Hints,
    /// Whether the hints have led below the default.
    is_lowered: bool,
    /// The choice for a redirected client that need not prove who it is.
    unauthenticated: Option<Decision>,
    /// The profiles that the gateway has answered with, as they were then, and their configurations.
    answered: Vec<(Arc<PolicyProfile>, Arc<ServerConfig>)>,
    /// The last decision about the client's identity, and whether the handshake had proven it.
    decision: Option<(Decision, bool)>,
    /// Whether the policy refuses the identity that the handshake has proven, whatever the profile in use is.
    is_foreign: bool,
    /// Counts the client as connected.
    established: Option<Established>,
    /// The server name of a client that no route takes, as the log shows it.
    unserved: Option<String>,
    /// The certificate that the engine has refused.
    refused: Option<CertificateDer<'static>>,
}

impl Progress {
    /// The profile of this name, as the gateway has last answered with it.
    fn answered(&self, name: &str) -> Option<Arc<PolicyProfile>> {
        self.find(name).map(|(profile, _)| profile.clone())
    }

    fn find(&self, name: &str) -> Option<&(Arc<PolicyProfile>, Arc<ServerConfig>)> {
        self.answered.iter().rev().find(|(profile, _)| profile.name == name)
    }

    /// Lets a client that is served under the profile in use keep its configuration. Another one of the same
    /// profile, which has a new certificate, would make the engine renegotiate.
    fn keep_in_use(&self, answered: &mut Answered) {
        if answered.decision.verdict == Verdict::Serve
            && let Some((_, config)) = self.find(&answered.decision.profile.name)
            && answered.config.is_some()
        {
            answered.config = Some(config.clone());
        }
    }

    /// Notes the profile that the connection uses after this answer, perhaps by a renegotiation. A session
    /// that is not resumed changes nothing: the handshake goes on with the profile of the ClientHello, which
    /// a new policy may define in another way.
    fn note(&mut self, answered: &Answered, is_proven: bool) {
        if let Some(config) = answered.config.as_ref().filter(|_| is_proven) {
            self.answered.push((answered.decision.profile.clone(), config.clone()));
        }
    }

    /// The client that a redirection named, if its name has led to a weaker profile.
    fn redirected(&self) -> Option<&Client> {
        let claim = self.hints.claims.iter().min_by_key(|claim| claim.source)?;
        (claim.source == Source::Redirect && self.is_lowered).then_some(&claim.client)
    }

    /// Whether the profile was chosen by the client's address.
    fn is_by_address(&self) -> bool {
        let claim = self.hints.claims.iter().min_by_key(|claim| claim.source);
        claim.is_some_and(|claim| claim.source == Source::Address)
    }
}

impl Drop for ClientHandshake {
    fn drop(&mut self) {
        if let Some(policed) = self.live.tls.policed() {
            policed.memory().handshakes.ended(self.from);
        }
    }
}

impl ClientHandshake {
    pub(crate) fn new(
        context: Arc<Context>,
        live: Arc<ListenerState>,
        from: SocketAddr,
        port: Option<u16>,
    ) -> Arc<Self> {
        Arc::new(Self { context, live, from, port, progress: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        // No code panics halfway through a change under this lock.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The route of the client, once its ClientHello has come.
    pub(crate) fn route(&self) -> Option<&RouteConfig> {
        let route = self.lock().route?;
        self.live.config.routes.get(route)
    }

    /// The configuration for a client with this ClientHello.
    ///
    /// # Errors
    /// Why the client is refused.
    pub(crate) fn choose(
        &self,
        hello: &ClientHelloInfo,
        now: Now,
    ) -> Result<Arc<ServerConfig>, PeerIncompatible> {
        if let Some(config) = self.challenge(hello) {
            self.lock().is_challenge = true;
            return Ok(config);
        }
        let name = hello.server_name.as_deref();
        let route = route::find(&self.live.config.routes, hello)
            .inspect_err(|_| self.lock().unserved = name.map(route::shown))?;
        if let Some(name) = name.filter(|name| route::oddity(name).is_some()) {
            self.tell_odd_name(route, name, now);
        }
        let route = *self.lock().route.get_or_insert(route);
        let config = match &self.live.tls {
            ServerConfigs::ByRoute(routed) => routed.route(route),
            ServerConfigs::ByPolicy(policed) if policed.is_pending() => None,
            ServerConfigs::ByPolicy(policed) => self.by_policy(policed, route, hello, now),
        };
        config.ok_or(PeerIncompatible::Refused)
    }

    /// Logs a server name that no certificate can have, of a client that a route takes nevertheless.
    fn tell_odd_name(&self, route: usize, name: &str, now: Now) {
        let listener = &self.live.config.name;
        let client = self.from;
        let Some(route) = self.live.config.routes.get(route) else { return };
        if let Some(Line { left_out }) = self.context.lines.line(listener, "odd server name", now) {
            let (route, server_name) = (&route.name, route::shown(name));
            tracing::info!(listener, %client, route, server_name, left_out, "odd server name");
        }
    }

    /// The configuration that the policy chooses by this ClientHello; `None` refuses the client.
    fn by_policy(
        &self,
        policed: &PolicyConfigs,
        route: usize,
        hello: &ClientHelloInfo,
        now: Now,
    ) -> Option<Arc<ServerConfig>> {
        let servers = policed.servers();
        let memory = policed.memory();
        memory.handshakes.begin(self.from, now.unix_s());
        let server = servers.get(route)?;
        let redirected = self.live.config.redirect.as_ref().and_then(|redirect| {
            let (name, listener) = (hello.server_name.as_deref(), &self.live.config.name);
            memory.redirects.find(&redirect.join, listener, name, self.port, self.from.ip(), now.unix_s())
        });
        let (answered, hints) =
            server.choose(hello, self.from.ip(), redirected, Some(&memory.addresses), now);
        self.tell(&answered.decision, now);
        let mut progress = self.lock();
        progress.hints = hints;
        progress.is_lowered = answered.decision.downgrade.is_some();
        progress.note(&answered, true);
        progress.unauthenticated = Some(answered.decision).filter(|_| answered.is_unauthenticated);
        answered.config
    }

    /// The configuration for an authority that validates a name of a certificate (RFC 8737, which has no form
    /// for datagrams).
    fn challenge(&self, hello: &ClientHelloInfo) -> Option<Arc<ServerConfig>> {
        let is_stream = self.live.config.transport == TransportKind::Tls;
        self.context.challenges.by_tls(hello, &self.live.tls.provider()).filter(|_| is_stream)
    }

    /// Whether the client is an authority that validates a name. The finished handshake is all that it wants.
    pub(crate) fn is_challenge(&self) -> bool {
        self.lock().is_challenge
    }

    /// The configuration for a client with this identity.
    pub(crate) fn profile_of(&self, client: &IdentifiedClient, now: Now) -> Option<Arc<ServerConfig>> {
        let policed = self.live.tls.policed()?;
        let mut progress = self.lock();
        // The policy of now decides, also about a handshake that has begun under the previous one.
        let servers = policed.servers();
        let server = servers.get(progress.route?)?;
        let used = progress.answered(&client.profile)?;
        let mut answered = server.profile_of(client, &used, &progress.hints, now);
        if client.is_proven {
            let described = Client::proven(&client.identity, client.validity);
            progress.is_foreign = server.policy().refuses(&described, &progress.hints, now.unix_s());
            let other = progress.redirected().filter(|claimed| !has_facts(&described, claimed)).cloned();
            if let Some(claimed) = other
                && answered.decision.verdict != Verdict::Refuse
            {
                answered = unlike(&claimed, answered.decision);
            }
            self.tell(&answered.decision, now);
            let handshakes = &policed.memory().handshakes;
            handshakes.decided(self.from, &answered.decision, Some(&described), now.unix_s());
        }
        progress.keep_in_use(&mut answered);
        progress.note(&answered, client.is_proven);
        progress.decision = Some((answered.decision, client.is_proven));
        answered.config
    }

    /// Logs and counts a decision. A downgrade after the handshake is always logged. Anyone can cause one
    /// that a ClientHello asks for, and a client that is refused can come again as often as it likes.
    fn tell(&self, decision: &Decision, now: Now) {
        let listener = &self.live.config.name;
        let client = self.from;
        let rule = decision.label();
        self.context.metrics.decided(listener, decision);
        let is_notable = decision.verdict == Verdict::Refuse || decision.downgrade.is_some();
        let kind = match (decision.stage, decision.verdict) {
            (Stage::Hello, _) if is_notable => Some("policy hello"),
            (_, Verdict::Refuse) => Some("policy refusal"),
            _ => None,
        };
        let left_out = match kind.map(|kind| self.context.lines.line(listener, kind, now)) {
            Some(Some(line)) => line.left_out,
            Some(None) => return,
            None => None,
        };
        match (decision.verdict, &decision.downgrade) {
            (Verdict::Refuse, _) => tracing::warn!(listener, %client, rule, left_out, "policy: {decision}"),
            (_, Some(_)) => tracing::info!(listener, %client, rule, left_out, "policy: {decision}"),
            (_, None) => tracing::debug!(listener, %client, rule, "policy: {decision}"),
        }
    }

    /// Learns from a handshake that has ended well. Returns the label of the rule that decided about the
    /// client, which is empty without a policy; `None` if the client is not served.
    pub(crate) fn completed(&self, negotiated: &Negotiated, now: Now) -> Option<String> {
        let Some(policed) = self.live.tls.policed() else { return Some(String::new()) };
        let mut progress = self.lock();
        if let Some(decision) = progress.unauthenticated.take() {
            let listener = &self.live.config.name;
            let client = self.from;
            let profile = &negotiated.profile;
            let line = self.context.lines.line(listener, "danger_redirect_unauthenticated", now);
            if let Some(Line { left_out }) = line {
                tracing::warn!(listener, %client, profile, left_out, "policy: danger_redirect_unauthenticated: a weaker profile without a proof");
            }
            policed.memory().handshakes.decided(self.from, &decision, None, now.unix_s());
            return Some(decision.label().to_owned());
        }
        let client = negotiated.peer.as_ref().map(|peer| Client::proven(peer, negotiated.peer_validity));
        let decision = match (progress.decision.take(), &client) {
            (Some((decision, true)), Some(_)) => decision,
            // The engine asks for the profile of a session's client before it resumes the session.
            (Some((decision, false)), Some(_)) if negotiated.is_resumed() => {
                self.tell(&decision, now);
                policed.memory().handshakes.decided(self.from, &decision, client.as_ref(), now.unix_s());
                decision
            }
            (_, None) => {
                let decision = self.of_stranger(policed, &progress, negotiated, now)?;
                self.tell(&decision, now);
                policed.memory().handshakes.decided(self.from, &decision, None, now.unix_s());
                decision
            }
            _ => return None,
        };
        if decision.verdict == Verdict::Refuse {
            return None;
        }
        if decision.verdict == Verdict::Renegotiate && decision.profile.name == negotiated.profile {
            // Upwards, the handshake ends with the renegotiation.
            self.context.metrics.renegotiated(&self.live.config.name, true);
        }
        if let Some(client) = &client {
            let addresses = &policed.memory().addresses;
            let from = (self.from.ip(), now.unix_s());
            learn(addresses, &progress, from, (client, negotiated.is_resumed()), &decision);
        }
        Some(decision.label().to_owned())
    }

    /// Whether the client may use its route. Logs and counts a refusal.
    pub(crate) fn admits(&self, route: &RouteConfig, negotiated: &Negotiated, now: Now) -> bool {
        if route.access.is_open() {
            return true;
        }
        let client = negotiated.peer.as_ref().map(|peer| Client::proven(peer, negotiated.peer_validity));
        if route.access.admits(client.as_ref(), Some(self.from.ip()), now.unix_s()) {
            return true;
        }
        let listener = &self.live.config.name;
        self.context.metrics.access_denied(listener, &route.name);
        if let Some(Line { left_out }) = self.context.lines.line(listener, "access denied", now) {
            let client = self.from;
            let route = &route.name;
            let identity = identity::shown(negotiated);
            let why = "no entry of the route's key allow admits this client";
            tracing::warn!(listener, %client, route, identity, why, left_out, "access denied");
        }
        false
    }

    /// Tells the profile of the connection, as the gateway has answered with it, apart from others of its
    /// name. Zero without a policy.
    pub(crate) fn profile_digest(&self, negotiated: &Negotiated) -> ProfileDigest {
        let Some(policed) = self.live.tls.policed() else { return ProfileDigest::default() };
        let used = self.lock().answered(&negotiated.profile);
        used.map(|profile| policed.digest(&profile)).unwrap_or_default()
    }

    /// Counts the client as connected until this value is dropped.
    pub(crate) fn established(&self, established: Established) {
        self.lock().established = Some(established);
    }

    /// Logs and counts a renegotiation that the gateway has begun, and that the client has completed or
    /// refused.
    pub(crate) fn renegotiated(&self, is_complete: bool, negotiated: &Negotiated) {
        let listener = &self.live.config.name;
        let client = self.from;
        let profile = &negotiated.profile;
        self.context.metrics.renegotiated(listener, is_complete);
        if let Some(established) = self.lock().established.as_mut().filter(|_| is_complete) {
            established.set_profile(profile);
        }
        if is_complete {
            tracing::info!(listener, %client, profile, "renegotiated");
        } else {
            tracing::info!(listener, %client, profile, "the client refuses to renegotiate");
        }
    }

    /// The decision about a client without an identity. The engine asks only about clients that have one.
    fn of_stranger(
        &self,
        policed: &PolicyConfigs,
        progress: &Progress,
        negotiated: &Negotiated,
        now: Now,
    ) -> Option<Decision> {
        let servers = policed.servers();
        let server: &PolicyServer = servers.get(progress.route?)?;
        let used = progress.answered(&negotiated.profile)?;
        let is_resumed = negotiated.is_resumed();
        let turn = Turn::Impossible;
        let finished = Finished { used: &used, client: None, hints: &progress.hints, is_resumed, turn };
        Some(server.policy().after(&finished, now.unix_s()))
    }

    /// Notes the certificate of the client, which the engine refuses.
    pub(crate) fn refused(&self, certificate: &CertificateDer<'static>) {
        self.lock().refused = Some(certificate.clone());
    }

    /// Logs a handshake that has failed, with the server name that no route has, and the certificate that the
    /// engine has refused.
    pub(crate) fn log_failure(&self, error: &HandshakeError, now: Now) {
        let listener = &self.live.config.name;
        if let HandshakeError::Probe(error) = error {
            tracing::debug!(listener, client = %self.from, %error, "a client sent nothing");
            return;
        }
        let line = self.context.lines.line(listener, "handshake failed", now);
        let Some(Line { left_out }) = line else { return };
        let (certificate, server_name) = {
            let mut progress = self.lock();
            (progress.refused.take(), progress.unserved.take())
        };
        let marks = certificate.map(|leaf| identity::marks(&leaf).map(Some));
        let [subject, serial, sha256] = marks.unwrap_or_default();
        let advice = remedy::of(error);
        tracing::warn!(listener, client = %self.from, %error, advice, server_name, subject, serial, sha256, left_out, "handshake failed");
    }

    /// Learns from a handshake that has failed.
    pub(crate) fn failed(&self, error: &HandshakeError, now: Now) {
        let Some(policed) = self.live.tls.policed() else { return };
        // Before the gateway has its certificate, it refuses every client.
        if policed.is_pending() {
            return;
        }
        let progress = self.lock();
        if progress.is_by_address() {
            policed.memory().addresses.misled(self.from.ip());
        }
        let decided = progress.decision.as_ref();
        let is_refused =
            decided.is_some_and(|(decision, is_proven)| *is_proven && decision.verdict == Verdict::Refuse);
        let offence = match is_refused {
            // A new policy or a redirection can make the gateway refuse a client that is welcome.
            true if !progress.is_foreign => return,
            true => Offence::Foreign,
            false if shows_a_false_identity(error) => Offence::Failed,
            false => return,
        };
        policed.report(&self.context, self.from.ip(), offence, now.unix_s());
    }
}

/// Whether the client has failed to prove an identity. All other failures may have innocent clients: a web
/// page can make every browser connect that visits it, speak HTTP to this port, name another server, or break
/// off. It can even make a browser present a ticket of the attacker's choice, so a PSK without a valid binder
/// shows nothing.
const fn shows_a_false_identity(error: &HandshakeError) -> bool {
    use AuthenticationFailure as A;
    let HandshakeError::Tls(error) = error else { return false };
    match error {
        // The CRLs, status lists and registries of the gateway may be out of date, or out of reach, and its
        // clock or its provider may be wrong: then every client fails.
        Error::Authentication(
            A::UnknownRevocationStatus
            | A::OverdueRevocationList
            | A::FutureRevocationList
            | A::BadRevocationList
            | A::NotRevocationListIssuer
            | A::Expired(_)
            | A::NotValidYet(_)
            | A::UnsupportedAlgorithm(_),
        ) => false,
        Error::Authentication(A::RejectedWith(alert, _)) => {
            matches!(*alert, AlertDescription::UNKNOWN_CA | AlertDescription::CERTIFICATE_REVOKED)
        }
        Error::Authentication(failure) => !matches!(failure, A::NoCertificate | A::Rejected(_)),
        // In TLS 1.2, the Finished of a client with a wrong pre-shared key does not decrypt.
        Error::PeerMisbehaved(how) => matches!(
            how,
            PeerMisbehaved::BadSignature | PeerMisbehaved::BadFinished | PeerMisbehaved::BadRecordMac
        ),
        _ => false,
    }
}

/// Whether the client has all that a request says about its client.
fn has_facts(client: &Client, claimed: &Client) -> bool {
    let is_proven =
        |(attribute, value): &(Attribute, String)| client.values(attribute).any(|own| own == value);
    claimed.facts().iter().all(is_proven)
}

/// The refusal of a client that is not the claimed one.
fn unlike(claimed: &Client, decision: Decision) -> Answered {
    let why = format!("{}; not {claimed}, whom the redirection named", decision.why);
    let decision = Decision { verdict: Verdict::Refuse, why, downgrade: None, next: None, ..decision };
    Answered { decision, config: None, is_unauthenticated: false }
}

/// Remembers from which address a client came, and forgets a hint that was wrong.
fn learn(
    addresses: &AddressTable,
    progress: &Progress,
    (address, now_s): (IpAddr, u64),
    (client, is_resumed): (&Client, bool),
    decision: &Decision,
) {
    let deserved = decision.next.as_ref().unwrap_or(&decision.profile);
    let chosen = progress.answered.first();
    if progress.is_by_address() && chosen.is_some_and(|(chosen, _)| chosen != deserved) {
        addresses.forget(address);
    }
    // A session does not keep all that its certificate says.
    if !is_resumed || addresses.claim(address, now_s).is_none() {
        addresses.remember(address, client, deserved, now_s);
    }
}

#[cfg(test)]
mod tests {
    use dunlin::error::OutOfDate;

    use super::*;
    use crate::policy::parse;

    fn config() -> Arc<ServerConfig> {
        let profile = dunlin::Profile::builder(Arc::new(dunlin_awslc::provider())).build().unwrap();
        Arc::new(ServerConfig::choosing(profile).unwrap())
    }

    fn answered(suite: &str, verdict: Verdict, config: Option<Arc<ServerConfig>>) -> Answered {
        let text = format!("[profile.sensor]\nrank = 20\ncipher_suites = [\"{suite}\"]\n");
        let policy = parse("policy.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
        let decision = Decision {
            stage: Stage::Finished,
            verdict,
            profile: policy.default_profile().clone(),
            rule: None,
            is_by_client_table: false,
            why: String::new(),
            downgrade: None,
            next: None,
        };
        Answered { decision, config, is_unauthenticated: false }
    }

    #[test]
    fn a_failure_that_the_gateway_may_cause_shows_no_false_identity() {
        use AuthenticationFailure as A;
        let date = || OutOfDate { index: Some(0), common_name: None, limit_s: 1 };
        let shows = |failure| shows_a_false_identity(&HandshakeError::Tls(Error::Authentication(failure)));
        for own in [
            A::Expired(date()),
            A::NotValidYet(date()),
            A::UnsupportedAlgorithm(vec![]),
            A::OverdueRevocationList,
        ] {
            assert!(!shows(own.clone()), "{own:?}");
        }
        assert!(shows(A::UnknownIssuer) && shows(A::Revoked) && shows(A::BadChainSignature));
    }

    /// The policy is replaced between the choice of a profile and the question about a session.
    #[test]
    fn a_refused_session_does_not_make_a_new_profile_look_used() {
        let refused = |suite| answered(suite, Verdict::Refuse, None);
        let used = refused("TLS_AES_128_GCM_SHA256");
        let new = refused("TLS_AES_256_GCM_SHA384");
        let used = used.decision.profile;
        assert_ne!(used, new.decision.profile);
        for is_proven in [false, true] {
            let mut progress = Progress { answered: vec![(used.clone(), config())], ..Progress::default() };
            progress.note(&new, is_proven);
            assert_eq!(progress.answered("sensor"), Some(used.clone()));
        }
    }

    /// The gateway renews a certificate between the ClientHello and Finished.
    #[test]
    fn a_served_client_keeps_its_configuration() {
        let [used, renewed] = [config(), config()];
        for (verdict, is_kept) in [(Verdict::Serve, true), (Verdict::Renegotiate, false)] {
            let mut answer = answered("TLS_AES_128_GCM_SHA256", verdict, Some(renewed.clone()));
            let in_use = (answer.decision.profile.clone(), used.clone());
            Progress { answered: vec![in_use], ..Progress::default() }.keep_in_use(&mut answer);
            let expected = if is_kept { &used } else { &renewed };
            assert!(Arc::ptr_eq(answer.config.as_ref().unwrap(), expected), "{verdict:?}");
        }
    }

    #[test]
    fn only_a_false_identity_is_an_offence() {
        let counts = |error| shows_a_false_identity(&HandshakeError::Tls(error));
        for error in [
            Error::Authentication(AuthenticationFailure::UnknownIssuer),
            Error::Authentication(AuthenticationFailure::Revoked),
            Error::Authentication(AuthenticationFailure::RejectedWith(
                AlertDescription::UNKNOWN_CA,
                "".into(),
            )),
            Error::PeerMisbehaved(PeerMisbehaved::BadSignature),
            Error::PeerMisbehaved(PeerMisbehaved::BadFinished),
            Error::PeerMisbehaved(PeerMisbehaved::BadRecordMac),
        ] {
            assert!(counts(error.clone()), "{error}");
        }
        for error in [
            Error::Authentication(AuthenticationFailure::NoCertificate),
            Error::Authentication(AuthenticationFailure::OverdueRevocationList),
            // A registry that is out of reach.
            Error::Authentication(AuthenticationFailure::RejectedWith(
                AlertDescription::BAD_CERTIFICATE,
                "".into(),
            )),
            Error::PeerMisbehaved(PeerMisbehaved::BadBinder),
            Error::PeerIncompatible(PeerIncompatible::NoPsk),
            Error::AlertReceived(AlertDescription::UNKNOWN_CA),
            Error::Truncated,
            Error::TimedOut,
        ] {
            assert!(!counts(error.clone()), "{error}");
        }
        assert!(!shows_a_false_identity(&HandshakeError::Stopped));
    }
}
