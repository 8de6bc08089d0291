//! The renegotiation of TLS 1.2 that a server of several profiles begins ([`crate::ServerProfiles`]). The
//! first handshake proves the client's identity. The second one uses the profile of that identity and demands
//! the same proof again.

use crate::sync::Arc;
use alloc::boxed::Box;

use super::rank;
use crate::auth::PeerIdentity;
use crate::crypto::Tls12CipherSuite;
use crate::error::{Error, Internal, PeerIncompatible};
use crate::handshake::event::Event;
use crate::handshake::progress::Renegotiation;
use crate::handshake::setup::ServerConfig;
use crate::handshake::step::{Refusable, Renegotiate};
use crate::handshake::tls12::{Completed, Traffic};
use crate::handshake::{Cx, ExpectMessage, Step};
use crate::message::{ClientHello, Message, hello_request};
use crate::settings::{ClientAuth, ProfileSettings};
use crate::wire::{Field, HandshakeType};

/// The name of HTTP/2 in ALPN.
const HTTP2: &[u8] = b"h2";

/// The first handshake, as far as it decides whether the server can renegotiate.
pub(super) struct First<'a> {
    pub(super) config: &'a Arc<ServerConfig>,
    pub(super) client: &'a PeerIdentity,
    /// The index of the credential that the server has shown.
    pub(super) own: Option<usize>,
    /// Whether both sides use the extended master secret (RFC 7627).
    pub(super) extended: bool,
    /// Whether the client supports secure renegotiation (RFC 5746).
    pub(super) secure: bool,
}

/// The profile to which the server renegotiates.
pub(super) struct Target {
    config: Arc<ServerConfig>,
    /// Whether the profile in use is too weak for the client. Then no data flows before the renegotiation is
    /// complete.
    pub(super) is_demanded: bool,
}

impl Target {
    /// Where a connection goes whose client needs the profile of `needed`. `None` if it stays under the
    /// profile in use. An error if that is too weak and the server cannot renegotiate.
    pub(super) fn of(
        cx: &Cx<'_>,
        first: &First<'_>,
        needed: &Arc<ServerConfig>,
    ) -> Result<Option<Self>, Error> {
        let check = rank::check(first.config, needed);
        match first.second(cx, needed) {
            Some(config) => Ok(Some(Self { config: Arc::new(config), is_demanded: check.is_err() })),
            None => check.map(|()| None),
        }
    }

    /// Ends the first handshake and asks the client for the second one.
    pub(super) fn request(self, cx: &mut Cx<'_>, completed: Completed) -> Result<Step, Error> {
        let traffic = completed.settle(cx);
        if self.is_demanded {
            cx.complete_in_advance();
        } else {
            cx.emitter.handshake_complete();
            cx.complete(Event::Connected);
        }
        Box::new(Requested { traffic, target: self }).renegotiate(cx)
    }
}

impl First<'_> {
    /// The configuration of the second handshake; `None` if there is nothing to renegotiate, or the server
    /// cannot.
    fn second(&self, cx: &Cx<'_>, needed: &Arc<ServerConfig>) -> Option<ServerConfig> {
        let ranks = self.config.ranks?;
        let is_other = needed.digests.profile != self.config.digests.profile;
        // RFC 7627 §1: without the extended master secret, a renegotiation may have another peer than the
        // first handshake.
        let is_possible = self.secure && self.extended && cx.protocol().can_renegotiate();
        // RFC 9113 §9.2.1: HTTP/2 forbids renegotiation.
        let is_http2 = cx.draft.alpn.as_deref() == Some(HTTP2);
        let is_bound = needed.ranks.is_some() && needed.profile.rank >= ranks.floor;
        if !is_other || !is_possible || is_http2 || !is_bound {
            return None;
        }
        let mut profile = ProfileSettings::clone(&needed.profile);
        if !needed.changes_certificate
            && let Some(own) = self.own
        {
            self.keep_credential(&mut profile, own)?;
        }
        let by = self.client.certificate_type();
        let suites = &mut profile.tls12.as_mut()?.suites;
        let schemes = |suite: &Tls12CipherSuite| {
            let mut keys = profile.credentials.iter().map(|credential| credential.key().schemes());
            !suite.has_certificate() || keys.any(|schemes| suite.takes_key(schemes))
        };
        suites.retain(|suite| suite.has_psk() == by.is_none() && schemes(suite));
        let knows = match by {
            Some(typ) => profile.peer_types().contains(&typ),
            None => needed.psks.is_some(),
        };
        let has_suite = profile.tls12.as_ref().is_some_and(|tls12| !tls12.suites.is_empty());
        (knows && has_suite).then(|| ServerConfig {
            profile: Arc::new(profile),
            client_auth: if by.is_some() { ClientAuth::Required } else { needed.client_auth },
            in_place_of: Some(Arc::clone(needed)),
            ..ServerConfig::clone(needed)
        })
    }

    /// Replaces the credentials of `profile` with the one that the server has shown: many clients end a
    /// connection whose server changes its certificate.
    fn keep_credential(&self, profile: &mut ProfileSettings, own: usize) -> Option<()> {
        let shown = &self.config.profile;
        profile.credentials = alloc::vec![shown.credentials.get(own)?.clone()];
        profile.certificates.reserved.clear();
        profile.certificates.compressed.clear();
        let stapled = shown.certificates.stapled.iter().find(|(index, _)| *index == own);
        profile.certificates.stapled =
            stapled.map(|(_, response)| (0, response.clone())).into_iter().collect();
        Some(())
    }
}

/// An established connection whose client the server has asked to renegotiate.
struct Requested {
    traffic: Traffic,
    target: Target,
}

impl ExpectMessage for Requested {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        message.expect(HandshakeType::CLIENT_HELLO)?;
        // RFC 5246 §7.2.1: this side sends nothing after its close_notify.
        if cx.progress.send_closed {
            return Ok(Step::Renegotiable(self));
        }
        let Self { traffic, target } = *self;
        cx.progress.renegotiation = Renegotiation::Impossible;
        cx.begin_again();
        // Some clients reject data during a handshake.
        cx.progress.data_waits = true;
        cx.draft.profile.clone_from(&target.config.profile.name);
        cx.effects.key_log.clone_from(&target.config.profile.key_log);
        let hello = ClientHello::read(message, cx.protocol())?;
        let tls12 = target.config.parts.tls12.ok_or(Internal::Bug(Field::NoTls12))?;
        (tls12.server)(cx, target.config, hello, Some(traffic.last))
    }
}

impl Renegotiate for Requested {
    fn renegotiate(self: Box<Self>, cx: &mut Cx<'_>) -> Result<Step, Error> {
        cx.progress.renegotiation = cx.progress.renegotiation.asked();
        cx.send(hello_request::write()?)?;
        cx.emitter.end_of_flight()?;
        Ok(Step::Renegotiable(self))
    }
}

impl Refusable for Requested {
    /// The client stays under its profile if that is strong enough.
    fn refused(self: Box<Self>, cx: &mut Cx<'_>) -> Result<Step, Error> {
        if self.target.is_demanded {
            return Err(PeerIncompatible::Rank.into());
        }
        cx.progress.renegotiation = Renegotiation::Impossible;
        Ok(Step::Renegotiable(Box::new(self.traffic)))
    }
}
