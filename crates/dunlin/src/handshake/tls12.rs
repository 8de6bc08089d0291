//! What client and server of TLS 1.2 share, and the one way to either.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::client::start::Offer;
use super::step::{Refusable, Renegotiate};
use super::{Cx, ExpectMessage, Step, client, server};
use crate::address::ServerAddress;
use crate::auth::PeerIdentity;
use crate::crypto::{SignatureAlgorithms, Tls12CipherSuite};
use crate::error::{Error, Internal, PeerMisbehaved};
use crate::extension::ExtensionsWriter;
use crate::handshake::event::Event;
use crate::handshake::progress::Renegotiation;
use crate::handshake::setup::{ClientConfig, ServerConfig};
use crate::message::{ClientHello, Message, ServerHello, hello_request};
use crate::schedule::HelloTranscript;
use crate::schedule::tls12::{MasterSecret, Randoms, VerifyData};
use crate::settings::ProfileSettings;
use crate::wire::{AlertDescription, CipherSuite, HandshakeType, SignatureScheme, What};

use pki_types::SignatureVerificationAlgorithm;

/// The handshakes of TLS 1.2. A profile with suites for it refers to them; what has no such profile does not link them.
pub(crate) struct Handshakes {
    /// The suites that this client can use.
    pub(crate) client_suites: fn(&ClientConfig) -> Vec<&'static Tls12CipherSuite>,
    /// Adds to a ClientHello what TLS 1.2 needs in it.
    pub(crate) offer: fn(&Offer, &mut Vec<CipherSuite>, &mut ExtensionsWriter),
    /// Goes on where the server chose TLS 1.2.
    pub(crate) client: StartClient,
    /// Goes back to the connection as it was: the server refuses another handshake within it.
    pub(crate) client_refused: ClientRefused,
    /// Goes on where TLS 1.2 is what both sides have.
    pub(crate) server: StartServer,
}

/// Without the addresses of a program's code, which are not to be printed.
impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handshakes")
    }
}

type StartClient = fn(&mut Cx<'_>, Offer, HelloTranscript, &Message, &ServerHello<'_>) -> Result<Step, Error>;

type ClientRefused = fn(&mut Cx<'_>, Offer) -> Result<Step, Error>;

type StartServer = fn(&mut Cx<'_>, Arc<ServerConfig>, ClientHello, Option<Previous>) -> Result<Step, Error>;

pub(crate) static HANDSHAKES: Handshakes = Handshakes {
    client_suites: client::tls12::usable_suites,
    offer: client::tls12::offer,
    client: client::tls12::server_hello,
    client_refused,
    server: server::tls12::client_hello,
};

/// What a signature over `params` of a key exchange is made over (RFC 5246 §7.4.3).
pub(super) fn signed_params(randoms: &Randoms, params: &[u8]) -> Vec<u8> {
    [&randoms.client, &randoms.server, params].concat()
}

/// The algorithms that verify `scheme`, which a peer chose; `suites` says which it may choose. TLS 1.2 binds no curve to a
/// hash (RFC 5246 §7.4.1.4.1), and allows RSA PKCS#1.
pub(super) fn algorithms(
    profile: &ProfileSettings,
    scheme: SignatureScheme,
    suits: impl Fn(SignatureScheme) -> bool,
) -> Result<Vec<&'static dyn SignatureVerificationAlgorithm>, Error> {
    if !profile.signature_schemes.contains(&scheme) || !suits(scheme) {
        return Err(PeerMisbehaved::NotOffered(What::SignatureScheme).into());
    }
    let signatures: SignatureAlgorithms = profile.provider.signatures;
    Ok(signatures.for_chains(&[scheme]))
}

/// Whether TLS 1.2 has the scheme at all, for whichever key.
pub(super) fn has_scheme(scheme: SignatureScheme) -> bool {
    use crate::crypto::Tls12Authentication as A;
    A::Ecdsa.allows(scheme) || A::Rsa.allows(scheme) || A::Dss.allows(scheme)
}

/// What ended a handshake: a renegotiation shows it again (RFC 5746 §3.1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finisheds {
    pub(crate) client: VerifyData,
    pub(crate) server: VerifyData,
}

impl Finisheds {
    /// Both, as the server says them.
    pub(super) fn both(&self) -> Vec<u8> {
        [self.client, self.server].concat()
    }
}

/// What a handshake leaves to the next one within the connection.
#[derive(Clone, Copy)]
pub(crate) struct Previous {
    pub(crate) finisheds: Finisheds,
    /// Whether its master secret depends on it: what follows does not do with less.
    pub(crate) extended: bool,
}

/// In a renegotiation nobody becomes somebody else: what was said before and after it is of the same peer, also what its
/// certificate says where a pre-shared key names it. A client that had not said who it is may do so. Before this is certain,
/// nothing is sent under new keys, or read.
pub(super) fn check_same_peer(
    cx: &Cx<'_>,
    peer: Option<&PeerIdentity>,
    certified: Option<&PeerIdentity>,
) -> Result<(), Error> {
    let Some(before) = cx.progress.previous() else { return Ok(()) };
    let is_kept = |before: Option<&PeerIdentity>, now: Option<&PeerIdentity>| {
        before.is_none_or(|before| now.is_some_and(|now| before.is_same(now)))
    };
    match is_kept(before.peer.as_ref(), peer) && is_kept(before.peer_certified.as_deref(), certified) {
        true => Ok(()),
        false => Err(PeerMisbehaved::IllegalParameter(What::OtherIdentity).into()),
    }
}

/// The handshake is complete: the application may speak.
pub(super) struct Completed {
    pub(super) role: Role,
    pub(super) master: MasterSecret,
    pub(super) randoms: Randoms,
    pub(super) finisheds: Finisheds,
    pub(super) peer: Option<PeerIdentity>,
    /// Whether the master secret depends on the handshake.
    pub(super) extended: bool,
    /// Whether the peer knows secure renegotiation.
    pub(super) secure_renegotiation: bool,
    /// Whether this was one.
    pub(super) renegotiated: bool,
}

/// Which side this is, with what it needs for another handshake.
pub(super) enum Role {
    Client(Arc<ClientConfig>, ServerAddress),
    Server(Arc<ServerConfig>),
}

impl Completed {
    pub(super) fn connected(self, cx: &mut Cx<'_>) -> Result<Step, Error> {
        let Self { role, master, randoms, finisheds, peer, extended, secure_renegotiation, renegotiated } =
            self;
        cx.emitter.handshake_complete();
        cx.draft.peer = peer;
        // RFC 7627 §5.4: a master secret that two connections can share exports nothing.
        cx.progress.exporter = if extended { Some(Box::new(master.into_exporter(randoms))) } else { None };
        // RFC 5246 §7.3: in a resumption the server's comes first.
        let first = if cx.draft.is_resumed() { finisheds.server } else { finisheds.client };
        cx.progress.first_finished = Some(first);
        cx.progress.renegotiation = match secure_renegotiation {
            true => Renegotiation::Possible,
            false => Renegotiation::Impossible,
        };
        cx.complete(if renegotiated { Event::Renegotiated } else { Event::Connected });
        Ok(Step::Renegotiable(Box::new(Traffic { role, last: Previous { finisheds, extended } })))
    }
}

/// The connection is established.
struct Traffic {
    role: Role,
    last: Previous,
}

fn client_refused(cx: &mut Cx<'_>, offer: Offer) -> Result<Step, Error> {
    let Offer { config, server, previous, .. } = offer;
    let last = previous.ok_or(Internal::Bug(What::FirstHandshake))?;
    cx.progress.data_waits = false;
    cx.progress.renegotiating = false;
    Ok(Step::Renegotiable(Box::new(Traffic { role: Role::Client(config, server), last })))
}

impl Traffic {
    /// Whether the peer may begin another handshake.
    fn may_renegotiate(&self, cx: &Cx<'_>) -> bool {
        let profile = match &self.role {
            Role::Client(config, _) => &config.profile,
            Role::Server(config) => &config.profile,
        };
        match cx.progress.renegotiation {
            Renegotiation::Impossible => false,
            Renegotiation::Possible => profile.tls12.as_ref().is_some_and(|tls12| tls12.renegotiation),
            Renegotiation::Asked => true,
        }
    }
}

impl ExpectMessage for Traffic {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        match (&self.role, message.typ) {
            (Role::Client(..), HandshakeType::HELLO_REQUEST) => hello_request::read(message.body())?,
            (Role::Server(_), HandshakeType::CLIENT_HELLO) => {}
            _ => return Err(message.unexpected(What::ApplicationData)),
        }
        cx.effects.count_idle(What::Renegotiations)?;
        // RFC 5246 §7.2.1: nothing follows close_notify.
        if cx.progress.send_closed {
            return Ok(Step::Renegotiable(self));
        }
        if !self.may_renegotiate(cx) {
            // RFC 5746 §4.5, RFC 5246 §7.2.2: the peer is told, and decides what that is worth.
            cx.effects.warning = Some(AlertDescription::NO_RENEGOTIATION);
            return Ok(Step::Renegotiable(self));
        }
        match self.role {
            Role::Client(..) => self.renegotiate(cx),
            Role::Server(config) => {
                cx.progress.renegotiation = Renegotiation::Impossible;
                cx.begin_again();
                let hello = ClientHello::read(message, cx.protocol())?;
                server::tls12::client_hello(cx, config, hello, Some(self.last))
            }
        }
    }
}

impl Renegotiate for Traffic {
    fn renegotiate(self: Box<Self>, cx: &mut Cx<'_>) -> Result<Step, Error> {
        cx.progress.renegotiation = Renegotiation::Asked;
        match self.role {
            Role::Client(config, server) => {
                // Many a server takes no data within a handshake, nor are the new keys proven before its Finished.
                cx.progress.data_waits = true;
                cx.begin_again();
                client::start::renegotiate(cx, config, server, self.last)
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
    /// A server that has asked goes on as before.
    fn refused(self: Box<Self>, _: &mut Cx<'_>) -> Result<Step, Error> {
        Ok(Step::Renegotiable(self))
    }
}
