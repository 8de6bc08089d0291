//! Definitions that the TLS 1.2 client and server share, and the type of the one table through which other
//! modules reach them ([`super::tls12_table`]).

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::step::{Refusable, Renegotiate};
use super::{Cx, ExpectMessage, Step};
use crate::address::ServerAddress;
use crate::auth::PeerIdentity;
use crate::crypto::{SignatureAlgorithms, Tls12CipherSuite};
use crate::error::{Error, Internal, PeerMisbehaved};
use crate::handshake::event::Event;
use crate::handshake::negotiate::renegotiation_info::{Finisheds, Previous};
use crate::handshake::negotiate::{Offer, OfferStep, Terms};
use crate::handshake::progress::Renegotiation;
use crate::handshake::setup::{ClientConfig, ServerConfig};
use crate::message::{self, ClientHello, Message, Reading, ServerHello, finished, hello_request};
use crate::protocol::{Protocol, Side};
use crate::schedule::tls12::{MasterSecret, Randoms, VERIFY_DATA_LEN, VerifyData};
use crate::schedule::{HelloTranscript, Tls12Transcript};
use crate::settings::ProfileSettings;
use crate::transport::Epoch;
use crate::wire::{AlertDescription, Field, HandshakeType, SignatureScheme};

use pki_types::SignatureVerificationAlgorithm;

/// The TLS 1.2 handshakes. Only a profile with TLS 1.2 suites points to them, so other programs do not link
/// them.
pub(crate) struct Handshakes {
    /// The TLS 1.2 suites that this client can use.
    pub(crate) client_suites: fn(&ClientConfig) -> Vec<&'static Tls12CipherSuite>,
    /// The suites and extensions of TLS 1.2 in a ClientHello.
    pub(crate) offers: &'static [OfferStep],
    /// Continues the client's handshake after the server chose TLS 1.2.
    pub(crate) client: StartClient,
    /// Begins the client's renegotiation.
    pub(crate) client_again: ClientAgain,
    /// Returns the client to the established connection after the server refused a renegotiation.
    pub(crate) client_refused: ClientRefused,
    /// Continues the server's handshake after it chose TLS 1.2.
    pub(crate) server: StartServer,
}

/// Prints no code addresses, which would help an attacker.
impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handshakes")
    }
}

type StartClient = fn(&mut Cx<'_>, Offer, HelloTranscript, &Message, &ServerHello<'_>) -> Result<Step, Error>;

type ClientAgain = fn(&mut Cx<'_>, Arc<ClientConfig>, ServerAddress, Previous) -> Result<Step, Error>;

type ClientRefused = fn(&mut Cx<'_>, Offer) -> Result<Step, Error>;

type StartServer = fn(&mut Cx<'_>, Arc<ServerConfig>, ClientHello, Option<Previous>) -> Result<Step, Error>;

/// The content that the server signs for its key exchange parameters `params` (RFC 5246 §7.4.3).
pub(super) fn signed_params(randoms: &Randoms, params: &[u8]) -> Vec<u8> {
    [&randoms.client, &randoms.server, params].concat()
}

/// The algorithms that verify signatures of `scheme`, which the peer chose. `suits` tells which schemes it
/// may choose. TLS 1.2 does not bind a curve to a hash (RFC 5246 §7.4.1.4.1), and allows RSA PKCS#1 v1.5.
pub(super) fn algorithms(
    profile: &ProfileSettings,
    scheme: SignatureScheme,
    suits: impl Fn(SignatureScheme) -> bool,
) -> Result<Vec<&'static dyn SignatureVerificationAlgorithm>, Error> {
    if !profile.signature_schemes.contains(&scheme) || !suits(scheme) {
        return Err(PeerMisbehaved::NotOffered(Field::SignatureScheme).into());
    }
    let signatures: SignatureAlgorithms = profile.provider.signatures;
    Ok(signatures.for_chains(&[scheme]))
}

/// Whether TLS 1.2 supports the scheme for any kind of key.
pub(super) fn has_scheme(scheme: SignatureScheme) -> bool {
    use crate::crypto::Tls12Authentication as A;
    A::Ecdsa.allows(scheme) || A::Rsa.allows(scheme) || A::Dss.allows(scheme)
}

/// Begins to use this side's keys and sends its Finished. Returns its verify_data.
pub(super) fn send_finished(
    cx: &mut Cx<'_>,
    side: Side,
    transcript: &mut Tls12Transcript,
    randoms: &Randoms,
    master: &MasterSecret,
) -> Result<VerifyData, Error> {
    let (client, server) = master.keys(randoms);
    let ours = match side {
        Side::Client => client,
        Side::Server => server,
    };
    cx.emitter.write_keys(Epoch::Handshake, &ours)?;
    let value = master.finished(side, transcript.current().as_ref());
    cx.send_in(transcript, finished(&value)?)?;
    cx.emitter.end_of_flight()?;
    Ok(value)
}

/// Checks that a renegotiation does not change the peer's identity, so that all data of the connection has
/// one sender. With RSA_PSK this includes the server's certificate. A client that was anonymous may
/// authenticate. This check comes before either side uses the new keys.
pub(super) fn check_same_peer(
    cx: &Cx<'_>,
    peer: Option<&PeerIdentity>,
    certified: Option<&PeerIdentity>,
) -> Result<(), Error> {
    let Some(before) = cx.progress.previous() else { return Ok(()) };
    let is_kept = |before: Option<&PeerIdentity>, now: Option<&PeerIdentity>| {
        before.is_none_or(|before| now.is_some_and(|now| before.is_same(now)))
    };
    if is_kept(before.peer.as_ref(), peer) && is_kept(before.peer_certified.as_deref(), certified) {
        Ok(())
    } else {
        Err(PeerMisbehaved::IllegalParameter(Field::OtherIdentity).into())
    }
}

/// A completed handshake, from which the established connection is made.
pub(super) struct Completed {
    pub(super) role: Role,
    pub(super) master: MasterSecret,
    pub(super) randoms: Randoms,
    pub(super) finisheds: Finisheds,
    pub(super) peer: Option<PeerIdentity>,
    /// Whether the handshake used the extended master secret (RFC 7627).
    pub(super) extended: bool,
    /// Whether the peer supports secure renegotiation (RFC 5746).
    pub(super) secure_renegotiation: bool,
    /// Whether this handshake was a renegotiation.
    pub(super) renegotiated: bool,
}

/// The role of this side, with the configuration that a renegotiation needs.
pub(crate) enum Role {
    Client(Arc<ClientConfig>, ServerAddress),
    Server(Arc<ServerConfig>),
}

impl Completed {
    /// Begins the connection, or continues it after a renegotiation.
    pub(super) fn connected(self, cx: &mut Cx<'_>) -> Result<Step, Error> {
        let event = if self.renegotiated { Event::Renegotiated } else { Event::Connected };
        let traffic = self.settle(cx);
        cx.emitter.handshake_complete();
        cx.complete(event);
        Ok(Step::Renegotiable(Box::new(traffic)))
    }

    /// Puts the result of the handshake into the draft and the progress.
    pub(super) fn settle(self, cx: &mut Cx<'_>) -> Traffic {
        let Self { role, master, randoms, finisheds, peer, extended, secure_renegotiation, renegotiated: _ } =
            self;
        cx.draft.peer = peer;
        // RFC 7627 §5.4: without the extended master secret two connections can share a master secret, so
        // none is exported.
        cx.progress.exporter = if extended { Some(Box::new(master.into_exporter(randoms))) } else { None };
        // RFC 5246 §7.3: in a resumption the server sends its Finished first.
        let first = if cx.draft.is_resumed() { finisheds.server } else { finisheds.client };
        cx.progress.first_finished = Some(first);
        // A server of several profiles renegotiates once, to the profile of the client's identity, and then
        // never again.
        let is_closed = matches!(&role, Role::Server(config) if config.ranks.is_some());
        let is_possible = secure_renegotiation && cx.protocol().can_renegotiate() && !is_closed;
        cx.progress.renegotiation =
            if is_possible { Renegotiation::Possible } else { Renegotiation::Impossible };
        Traffic { role, last: Previous { finisheds, extended } }
    }
}

/// The connection is established.
pub(super) struct Traffic {
    role: Role,
    pub(super) last: Previous,
}

/// An association that continues here. Over datagrams there is no renegotiation, so nothing refers to its
/// Finished messages.
pub(crate) fn thawed(role: Role) -> Step {
    let finisheds = Finisheds { client: [0; VERIFY_DATA_LEN], server: [0; VERIFY_DATA_LEN] };
    Step::Renegotiable(Box::new(Traffic { role, last: Previous { finisheds, extended: true } }))
}

/// Continues the client's connection after the server refused a renegotiation.
pub(super) fn client_refused(cx: &mut Cx<'_>, offer: Offer) -> Result<Step, Error> {
    let Terms { config, server, previous, .. } = offer.terms;
    let last = previous.ok_or(Internal::Bug(Field::FirstHandshake))?;
    cx.progress.data_waits = false;
    cx.progress.renegotiating = false;
    Ok(Step::Renegotiable(Box::new(Traffic { role: Role::Client(config, server), last })))
}

impl Traffic {
    /// Whether the peer may begin a renegotiation.
    fn may_renegotiate(&self, cx: &Cx<'_>) -> bool {
        let profile = match &self.role {
            Role::Client(config, _) => &config.profile,
            Role::Server(config) => &config.profile,
        };
        match cx.progress.renegotiation {
            Renegotiation::Impossible => false,
            Renegotiation::Possible => profile.tls12.as_ref().is_some_and(|tls12| tls12.renegotiation),
            Renegotiation::Asked(_) => true,
        }
    }
}

impl ExpectMessage for Traffic {
    fn reading(&self, protocol: Protocol, typ: HandshakeType) -> Reading {
        match (&self.role, typ) {
            (Role::Client(..), HandshakeType::HELLO_REQUEST) => Reading::Body(0),
            // A server that cannot renegotiate refuses every ClientHello by a warning.
            (Role::Server(_), HandshakeType::CLIENT_HELLO) if !protocol.can_renegotiate() => Reading::Header,
            (Role::Server(_), HandshakeType::CLIENT_HELLO) => Reading::Body(message::limit(typ)),
            _ => Reading::Nothing,
        }
    }

    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        match (&self.role, message.typ) {
            (Role::Client(..), HandshakeType::HELLO_REQUEST) => hello_request::read(message.body())?,
            (Role::Server(_), HandshakeType::CLIENT_HELLO) => {}
            _ => return Err(message.unexpected(Field::ApplicationData)),
        }
        cx.effects.count_idle(Field::Renegotiations)?;
        // RFC 5246 §7.2.1: this side sends nothing after its close_notify.
        if cx.progress.send_closed {
            return Ok(Step::Renegotiable(self));
        }
        if !self.may_renegotiate(cx) {
            // RFC 5746 §4.5, RFC 5246 §7.2.2: this side sends a warning, and the peer decides whether to
            // continue.
            cx.effects.warning = Some(AlertDescription::NO_RENEGOTIATION);
            return Ok(Step::Renegotiable(self));
        }
        match self.role {
            Role::Client(..) => self.renegotiate(cx),
            Role::Server(config) => {
                cx.progress.renegotiation = Renegotiation::Impossible;
                cx.begin_again();
                let hello = ClientHello::read(message, cx.protocol())?;
                let tls12 = config.parts.tls12.ok_or(Internal::Bug(Field::NoTls12))?;
                (tls12.server)(cx, config, hello, Some(self.last))
            }
        }
    }
}

impl Renegotiate for Traffic {
    fn renegotiate(self: Box<Self>, cx: &mut Cx<'_>) -> Result<Step, Error> {
        cx.progress.renegotiation = cx.progress.renegotiation.asked();
        match self.role {
            Role::Client(config, server) => {
                // The client holds its data back: many servers reject data during a handshake, and only the
                // server's Finished confirms the new keys.
                cx.progress.data_waits = true;
                cx.begin_again();
                let tls12 = config.parts.tls12.ok_or(Internal::Bug(Field::NoTls12))?;
                (tls12.client_again)(cx, config, server, self.last)
            }
            Role::Server(_) => {
                cx.send(hello_request::write()?)?;
                cx.emitter.end_of_flight()?;
                Ok(Step::Renegotiable(self))
            }
        }
    }
}

impl Refusable for Traffic {
    /// The server requested a renegotiation and the client refused it: the connection continues unchanged.
    fn refused(self: Box<Self>, _: &mut Cx<'_>) -> Result<Step, Error> {
        Ok(Step::Renegotiable(self))
    }
}
