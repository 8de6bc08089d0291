//! `pre_shared_key` and `psk_key_exchange_modes` (RFC 8446 §4.2.9, §4.2.11): external keys, and the sessions
//! of TLS 1.3.

use super::key_share::common_groups;
use super::{Choices, HelloDraft, Offer, Selection};
use crate::address::ServerAddress;
use crate::auth::{Belief, PeerIdentity, Psk, PskIdentity};
use crate::crypto::{HashAlgorithm, Tls13CipherSuite};
use crate::error::{Error, Internal, PeerIncompatible, PeerMisbehaved};
use crate::extension::pre_shared_key::{self, Identity, Selected};
use crate::extension::psk_key_exchange_modes::PskKeyExchangeModes;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::handshake::hints::ClientHelloInfo;
use crate::handshake::setup::{ClientConfig, ServerConfig};
use crate::message::ClientHello;
use crate::protocol::Protocol;
use crate::resume::{ClientSession, Session, SessionKey};
use crate::schedule::Transcript;
use crate::schedule::binder::PskKind;
use crate::schedule::tls13::EarlySecret;
use crate::sync::Arc;
use crate::wire::{ExtensionType, Field, PskKeyExchangeMode};
use alloc::boxed::Box;
use alloc::vec::Vec;
use subtle::ConstantTimeEq;

/// A PSK that the client offered.
#[derive(Clone)]
pub(crate) enum OfferedPsk {
    Session(Box<ClientSession>),
    External(Arc<Psk>),
}

impl OfferedPsk {
    fn kind(&self) -> PskKind {
        match self {
            Self::Session(_) => PskKind::Resumption,
            Self::External(psk) => psk.kind(),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Self::Session(s) => s.session.psk.as_ref(),
            Self::External(psk) => psk.key(),
        }
    }

    /// An offered cipher suite with the PSK's hash. A PSK without such a suite is not offered (RFC 8446
    /// §4.2.11).
    fn suite(&self, config: &ClientConfig) -> Option<&'static Tls13CipherSuite> {
        let profile = &config.profile;
        let hash = match self {
            Self::Session(s) => profile.provider.suite(s.session.cipher_suite)?.hash.algorithm(),
            Self::External(psk) => psk.hash(),
        };
        profile.cipher_suites.iter().copied().find(|s| s.hash.algorithm() == hash)
    }

    fn hash(&self, config: &ClientConfig) -> Option<HashAlgorithm> {
        self.suite(config).map(|s| s.hash.algorithm())
    }

    fn identity(&self, cx: &Cx<'_>) -> Identity {
        match self {
            Self::Session(s) => Identity {
                identity: s.ticket.to_vec(),
                obfuscated_ticket_age: s.session.obfuscated_age(cx.now),
            },
            // RFC 8446 §4.2.11: the ticket age of an external identity is 0.
            Self::External(psk) => Identity { identity: psk.identity().to_vec(), obfuscated_ticket_age: 0 },
        }
    }

    /// The external PSK that goes into the keys beside certificates, now or in the first handshake of a
    /// session. `authenticates` is whether this PSK authenticates both sides.
    pub(crate) fn beside(&self, config: &ClientConfig, authenticates: bool) -> Option<Box<PskIdentity>> {
        match self {
            Self::Session(s) => s.session.beside.clone(),
            Self::External(_) if authenticates => None,
            Self::External(psk) => {
                let sha256 = config.profile.provider.sha256;
                Some(Box::new(PskIdentity::new(psk.identity().to_vec(), psk, sha256)))
            }
        }
    }

    /// The server that has this PSK, and when it last authenticated without resumption, in milliseconds
    /// since 1970.
    pub(crate) fn server(&self, cx: &Cx<'_>, config: &ClientConfig) -> (Option<PeerIdentity>, u64) {
        match self {
            Self::Session(s) => (s.session.peer.clone(), s.session.authenticated_ms),
            Self::External(psk) => {
                let sha256 = config.profile.provider.sha256;
                let identity = PskIdentity::new(psk.identity().to_vec(), psk, sha256);
                (Some(PeerIdentity::Psk(identity)), cx.now.unix_ms)
            }
        }
    }
}

/// The key under which this client stores tickets of this server.
pub(in crate::handshake) fn session_key(
    config: &ClientConfig,
    server: &ServerAddress,
    protocol: Protocol,
) -> SessionKey {
    SessionKey {
        transport: protocol.transport(),
        name: server.host(),
        port: server.port,
        settings: *config.session_settings.as_bytes(),
    }
}

/// The session of this server that the client can resume, in TLS 1.3 or TLS 1.2, taken from its store.
///
/// A client that adds an external PSK to certificates resumes none. RFC 8773 §4 allows only external PSKs
/// beside the extension, and a session alone would leave the client without its external PSK if the server
/// does not resume the session.
pub(crate) fn session(
    cx: &Cx<'_>,
    config: &ClientConfig,
    server: &ServerAddress,
) -> Option<Box<ClientSession>> {
    if config.profile.adds_external_psk() && !external(cx, config).is_empty() {
        return None;
    }
    let key = session_key(config, server, cx.protocol());
    // RFC 8446 §4.6.1: the client must not use an expired ticket, or a ticket of another server.
    let ours = |s: &ClientSession| {
        s.session.is_fresh(cx.now)
            && s.session.transport == cx.protocol().transport()
            && s.session.settings == config.session_settings
            && s.session.server_name.as_ref() == Some(&key.name)
            && config.profile.trust.still_believe(s.session.peer.as_ref(), cx.now) == Belief::Holds
    };
    // A session that stems from a PSK is usable only while the client still has that PSK.
    let believed = |s: &mut ClientSession| {
        let sha256 = config.profile.provider.sha256;
        s.session.origin().is_none() || config.psks.iter().any(|psk| s.session.stems_from(psk, sha256))
    };
    // A session from a cached handshake contains no certificates, so the client cannot verify the server
    // again.
    let can_be_verified = |s: &ClientSession| match &s.session.peer {
        Some(PeerIdentity::RawKey(_) | PeerIdentity::Psk(_)) | None => true,
        Some(peer) => !config.reverify || !peer.entries().is_empty(),
    };
    let store = config.sessions.as_ref()?;
    let mut session = store.take(&key, cx.now).filter(ours).filter(can_be_verified).map(Box::new);
    if let Some(weak) = session.take_if(|s| !s.session.serves(config.profile.rank)) {
        // Another profile of this client, of a lower rank, can still resume it.
        store.put(key.clone(), *weak);
    }
    session.and_then(|mut s| believed(&mut s).then_some(s))
}

/// The external PSKs that the client can offer.
fn external(cx: &Cx<'_>, config: &ClientConfig) -> Vec<OfferedPsk> {
    let psks = config.psks.iter().filter(|psk| psk.is_for(cx.protocol().version()));
    let psks = psks.map(|psk| OfferedPsk::External(Arc::clone(psk)));
    psks.filter(|psk| psk.suite(config).is_some()).collect()
}

/// The PSKs that the client offers: the session, if it has one, then its external keys.
pub(crate) fn offered(
    cx: &Cx<'_>,
    config: &ClientConfig,
    session: Option<Box<ClientSession>>,
) -> Vec<OfferedPsk> {
    let session = session.map(OfferedPsk::Session).filter(|psk| psk.suite(config).is_some());
    session.into_iter().chain(external(cx, config)).collect()
}

/// Without these modes a server sends no tickets (RFC 8446 §4.2.9). The second ClientHello repeats them even
/// if it offers fewer PSKs (RFC 8446 §4.1.2).
pub(super) fn offer_modes(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let terms = &offer.terms;
    let stood = terms.offered.contains(&ExtensionType::PSK_KEY_EXCHANGE_MODES);
    let uses_psks = !offer.psks.is_empty() || terms.config.sessions.is_some();
    if offer.offers_tls13() && uses_psks || stood {
        hello.extensions.put(&PskKeyExchangeModes(terms.config.profile.psk.modes.clone()));
    }
}

/// The PSKs, with zeros in place of the binders.
pub(super) fn offer(cx: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let config = &offer.terms.config;
    let zeros = |psk: &OfferedPsk| alloc::vec![0; psk.hash(config).map_or(0, HashAlgorithm::output_len)];
    if !offer.psks.is_empty() {
        hello.extensions.put(&pre_shared_key::Offer {
            identities: offer.psks.iter().map(|psk| psk.identity(cx)).collect(),
            binders: offer.psks.iter().map(zeros).collect(),
        });
    }
}

/// Fills in the binders. Each is a MAC over the transcript up to the binders (RFC 8446 §4.2.11.2).
pub(crate) fn write_binders(
    offer: &Offer,
    hello: &mut [u8],
    protocol: Protocol,
    transcript: Option<&Transcript>,
) {
    let config = &offer.terms.config;
    let suites: Vec<_> = offer.psks.iter().filter_map(|psk| Some((psk, psk.suite(config)?))).collect();
    if suites.is_empty() {
        return;
    }
    let len = 2 + suites.iter().map(|(_, s)| 1 + s.hash.algorithm().output_len()).sum::<usize>();
    let Some(at) = hello.len().checked_sub(len) else { return };
    let Some((truncated, binders)) = hello.split_at_mut_checked(at) else { return };
    let mut rest = binders.get_mut(2..).unwrap_or_default();
    for (psk, suite) in suites {
        let hash = match transcript {
            Some(transcript) => transcript.with(truncated),
            None => suite.hash.hash(&[truncated]),
        };
        let binder = EarlySecret::new(suite, protocol, psk.key()).binder(psk.kind(), hash.as_ref());
        let Some((this, others)) = rest.split_at_mut_checked(1 + binder.as_ref().len()) else { return };
        for (to, from) in this.iter_mut().skip(1).zip(binder.as_ref()) {
            *to = *from;
        }
        rest = others;
    }
}

/// RFC 8446 §4.1.4: after a HelloRetryRequest the client offers only PSKs with the suite's hash again.
pub(super) fn accept_retry(
    _: &mut Cx<'_>,
    offer: &mut Offer,
    _: &Extensions<'_>,
    suite: &'static Tls13CipherSuite,
) -> Result<(), Error> {
    let config = &offer.terms.config;
    offer.psks.retain(|psk| psk.hash(config) == Some(suite.hash.algorithm()));
    Ok(())
}

/// Accepts the PSK that the server selected.
pub(super) fn select(
    _: &mut Cx<'_>,
    offer: &mut Offer,
    extensions: &Extensions<'_>,
    selection: &mut Selection,
) -> Result<(), Error> {
    if let Some(Selected(index)) = extensions.get()? {
        let index = usize::from(index);
        let psk = offer.psks.get(index).ok_or(PeerMisbehaved::NotOffered(Field::Psk))?;
        // RFC 8446 §4.2.11: the cipher suite must use the PSK's hash.
        if psk.hash(&offer.terms.config) != Some(selection.suite.hash.algorithm()) {
            return Err(PeerMisbehaved::IllegalParameter(Field::OtherHash).into());
        }
        selection.psk = Some(index);
        selection.by_psk = true;
    }
    Ok(())
}

/// If the client trusts no certificates, the server must select one of its PSKs.
pub(super) fn require(
    _: &mut Cx<'_>,
    offer: &mut Offer,
    _: &Extensions<'_>,
    selection: &mut Selection,
) -> Result<(), Error> {
    if selection.psk.is_none() && offer.terms.config.profile.trust.is_empty() {
        Err(PeerMisbehaved::MissingExtension(ExtensionType::PRE_SHARED_KEY).into())
    } else {
        Ok(())
    }
}

pub(super) fn check(extensions: &Extensions<'_>) -> Result<(), Error> {
    if extensions.has(ExtensionType::PRE_SHARED_KEY) {
        // RFC 8446 §4.2.11: it "MUST be the last extension in the ClientHello".
        if extensions.last() != Some(ExtensionType::PRE_SHARED_KEY) {
            return Err(PeerMisbehaved::PskNotLast.into());
        }
        // RFC 8446 §4.2.9: the server aborts if psk_key_exchange_modes is missing.
        extensions.require::<PskKeyExchangeModes>()?;
    }
    Ok(())
}

/// A PSK that the client offered and the server found.
pub(crate) struct FoundPsk {
    pub(in crate::handshake) index: usize,
    pub(in crate::handshake) identity: Vec<u8>,
    pub(in crate::handshake) secret: PskSecret,
    /// Whether it authenticates both sides. Otherwise certificates do.
    pub(in crate::handshake) authenticates: bool,
}

impl FoundPsk {
    /// The external PSK that goes into the keys beside certificates, now or in the first handshake of a
    /// session.
    pub(in crate::handshake) fn beside(&self, config: &ServerConfig) -> Option<Box<PskIdentity>> {
        match &self.secret {
            PskSecret::Session(session) => session.beside.clone(),
            PskSecret::External(_) if self.authenticates => None,
            PskSecret::External(psk) => {
                let sha256 = config.profile.provider.sha256;
                Some(Box::new(PskIdentity::new(self.identity.clone(), psk, sha256)))
            }
        }
    }

    /// The client that has this PSK, and when it last authenticated without resumption, in milliseconds
    /// since 1970.
    pub(in crate::handshake) fn into_client(
        self,
        cx: &mut Cx<'_>,
        config: &ServerConfig,
    ) -> (Option<PeerIdentity>, u64) {
        match self.secret {
            PskSecret::External(psk) => {
                let identity = PskIdentity::new(self.identity, &psk, config.profile.provider.sha256);
                (Some(PeerIdentity::Psk(identity)), cx.now.unix_ms)
            }
            PskSecret::Session(session) => {
                cx.draft.peer_validity = session.validity();
                (session.peer, session.authenticated_ms)
            }
        }
    }
}

pub(crate) enum PskSecret {
    Session(Box<Session>),
    External(Arc<Psk>),
}

impl PskSecret {
    /// Whether it is a session with an external PSK in its keys, beside certificates.
    pub(in crate::handshake) fn is_beside(&self) -> bool {
        matches!(self, Self::Session(session) if session.beside.is_some())
    }

    pub(in crate::handshake) fn kind(&self) -> PskKind {
        match self {
            Self::Session(_) => PskKind::Resumption,
            Self::External(psk) => psk.kind(),
        }
    }

    pub(in crate::handshake) fn key(&self) -> &[u8] {
        match self {
            Self::Session(session) => session.psk.as_ref(),
            Self::External(psk) => psk.key(),
        }
    }

    pub(in crate::handshake) fn hash(&self, config: &ServerConfig) -> Option<HashAlgorithm> {
        match self {
            Self::Session(s) => Some(config.profile.provider.suite(s.cipher_suite)?.hash.algorithm()),
            Self::External(psk) => Some(psk.hash()),
        }
    }
}

/// The identities that the client offers.
pub(crate) fn identities(hello: &ClientHello) -> Result<Vec<Identity>, Error> {
    Ok(hello.extensions().get::<pre_shared_key::Offer>()?.map_or_else(Vec::new, |offer| offer.identities))
}

pub(super) fn hint(hello: &ClientHello, info: &mut ClientHelloInfo) -> Result<(), Error> {
    let identities = identities(hello)?;
    info.psk_hash = first_binder_hash(hello)?;
    info.external_psk = identities.iter().position(|identity| identity.obfuscated_ticket_age == 0);
    info.psk_identities = identities.into_iter().map(|identity| identity.identity).collect();
    Ok(())
}

/// The PSK key exchange modes that the client allows.
pub(super) fn modes(hello: &ClientHello) -> Result<Vec<PskKeyExchangeMode>, Error> {
    Ok(hello.extensions().get::<PskKeyExchangeModes>()?.map_or_else(Vec::new, |modes| modes.0))
}

/// The PSK key exchange mode that the server would use with this client.
pub(crate) fn mode(config: &ServerConfig, hello: &ClientHello) -> Result<Option<PskKeyExchangeMode>, Error> {
    let theirs = modes(hello)?;
    let both = |mode| config.profile.allows_mode(mode) && theirs.contains(&mode);
    // Prefer forward secrecy if both sides allow it and share a group.
    if both(PskKeyExchangeMode::PSK_DHE_KE) && !common_groups(config, hello)?.is_empty() {
        return Ok(Some(PskKeyExchangeMode::PSK_DHE_KE));
    }
    Ok(both(PskKeyExchangeMode::PSK_KE).then_some(PskKeyExchangeMode::PSK_KE))
}

/// Whether both sides allow a mode. If they do but [`mode`] returns `None`, they have no common group.
pub(crate) fn has_common_mode(config: &ServerConfig, hello: &ClientHello) -> Result<bool, Error> {
    Ok(modes(hello)?.iter().any(|mode| config.profile.allows_mode(*mode)))
}

/// The reason why the server can use no PSK at all with this client.
pub(crate) fn no_mode(config: &ServerConfig, hello: &ClientHello) -> Result<PeerIncompatible, Error> {
    Ok(if has_common_mode(config, hello)? { PeerIncompatible::Group } else { PeerIncompatible::PskMode })
}

/// Whether only a PSK can authenticate the server. RFC 8446 §9.2: a ClientHello with PSKs may omit the
/// extensions for certificates.
pub(crate) fn is_alone(extensions: &Extensions<'_>) -> bool {
    extensions.has(ExtensionType::PRE_SHARED_KEY)
        && !(extensions.has(ExtensionType::SIGNATURE_ALGORITHMS)
            && extensions.has(ExtensionType::SUPPORTED_GROUPS))
}

/// The hash of the client's first PSK, which the length of its binder shows.
pub(crate) fn first_binder_hash(hello: &ClientHello) -> Result<Option<HashAlgorithm>, Error> {
    let offer = hello.extensions().get::<pre_shared_key::Offer>()?;
    let len = offer.as_ref().and_then(|offer| offer.binders.first()).map(Vec::len);
    Ok([HashAlgorithm::Sha256, HashAlgorithm::Sha384].into_iter().find(|hash| Some(hash.output_len()) == len))
}

/// Verifies the binder of the PSK at `index`. It proves that the client has the key, and that the ClientHello
/// was not modified (RFC 8446 §4.2.11.2).
pub(crate) fn verify_binder(
    early: &EarlySecret,
    kind: PskKind,
    index: usize,
    transcript: &Transcript,
    hello: &ClientHello,
) -> Result<(), Error> {
    let offer = hello.extensions().require::<pre_shared_key::Offer>()?;
    let received = offer.binders.get(index).ok_or(Internal::Bug(Field::Binder))?;
    let bytes = hello.message().bytes();
    let end = bytes.len().saturating_sub(offer.binders_len());
    let truncated = bytes.get(..end).ok_or(Internal::Bug(Field::Binders))?;
    let expected = early.binder(kind, transcript.with(truncated).as_ref());
    if bool::from(expected.as_ref().ct_eq(received)) { Ok(()) } else { Err(PeerMisbehaved::BadBinder.into()) }
}

pub(super) fn answer(_: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    if let Some(psk) = chosen.psk {
        let index = u16::try_from(psk.index).map_err(|_| Internal::Bug(Field::PskIndex))?;
        w.put(&Selected(index));
    }
    Ok(())
}
