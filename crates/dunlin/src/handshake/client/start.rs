//! The client's handshake until the version is known: ClientHello, HelloRetryRequest, ServerHello.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::cache::Offered;
use super::early::{self, EarlyOffer};
use super::tls13;
use crate::address::ServerAddress;
use crate::auth::{PeerIdentity, Psk};
use crate::cache::CacheOutcome;
use crate::crypto::{ActiveKeyExchange, HashAlgorithm, SharedSecret, Tls12CipherSuite, Tls13CipherSuite};
use crate::early::{EarlyDataOutcome, NoEarlyData};
use crate::error::{Error, Internal, Misuse, PeerIncompatible, PeerMisbehaved};
use crate::extension::early_data::EarlyData;
use crate::extension::{
    ExtensionsWriter, alpn, certificate_authorities, certificate_type, compress_certificate, cookie,
    key_share, max_fragment_length, pre_shared_key, psk_key_exchange_modes, record_size_limit, server_name,
    signature_algorithms, status_request, supported_groups, supported_versions,
};
use crate::handshake::setup::{ClientConfig, EarlyDataClient};
use crate::handshake::step::Refusable;
use crate::handshake::tls12::Previous;
use crate::handshake::{Cx, ExpectMessage, Step};
use crate::message::{ClientHello, Message, ServerHello};
use crate::protocol::Protocol;
use crate::resume::{ClientSession, SessionKey};
use crate::schedule::binder::PskKind;
use crate::schedule::tls13::EarlySecret;
use crate::schedule::{HelloTranscript, Transcript};
use crate::wire::{
    CertificateType, ExtensionType, HandshakeType, NamedGroup, ProtocolVersion, PskKeyExchangeMode,
    SignatureScheme, What,
};

/// What this client offered, until the ServerHello answers it.
pub(crate) struct Offer {
    pub(in crate::handshake) config: Arc<ClientConfig>,
    pub(in crate::handshake) server: ServerAddress,
    pub(super) random: [u8; 32],
    pub(super) session_id: Vec<u8>,
    pub(super) psks: Vec<OfferedPsk>,
    pub(super) shares: Vec<OfferedShare>,
    /// The TLS 1.2 suites that this client can use.
    pub(super) tls12_suites: Vec<&'static Tls12CipherSuite>,
    /// The TLS 1.2 session that this ClientHello offers by session ID or by ticket.
    pub(super) tls12_session: Option<Box<ClientSession>>,
    /// In a renegotiation, the data of the previous handshake.
    pub(in crate::handshake) previous: Option<Previous>,
    /// The types of the extensions in the latest ClientHello.
    pub(super) extensions: Vec<ExtensionType>,
    cookie: Option<cookie::Cookie>,
    /// The offer of early data, unless the server has rejected it.
    pub(super) early: Option<EarlyOffer>,
    pub(super) cache: Option<Box<dyn Offered>>,
}

/// A key share that the client offered.
pub(super) struct OfferedShare {
    group: NamedGroup,
    active: Box<dyn ActiveKeyExchange>,
    /// The curve of a hybrid group, if the client offers its share separately, too.
    component: Option<NamedGroup>,
}

impl OfferedShare {
    fn entries(&self) -> impl Iterator<Item = key_share::Entry> {
        let component = self.active.component().filter(|(group, _)| self.component == Some(*group));
        let whole = (self.group, self.active.share());
        [Some(whole), component]
            .into_iter()
            .flatten()
            .map(|(group, share)| key_share::Entry { group, share: share.to_vec() })
    }

    /// Whether it contains a share of `group`.
    pub(super) fn offers(&self, group: NamedGroup) -> bool {
        self.group == group || self.component == Some(group)
    }

    /// The shared secret with the server's share.
    pub(super) fn complete(self, server: &key_share::Entry) -> Result<SharedSecret, Error> {
        let secret = match self.group == server.group {
            true => self.active.complete(&server.share),
            false => self.active.complete_component(&server.share),
        };
        // The group rejects invalid shares (RFC 8446 §4.2.8.2, §7.4.2) and ciphertexts of a wrong length (FIPS 203 §7.3).
        secret.map_err(|_| PeerMisbehaved::BadKeyShare.into())
    }
}

/// A PSK that the client offered.
pub(super) enum OfferedPsk {
    Session(Box<ClientSession>),
    External(Arc<Psk>),
}

impl OfferedPsk {
    pub(super) fn kind(&self) -> PskKind {
        match self {
            Self::Session(_) => PskKind::Resumption,
            Self::External(psk) => psk.kind(),
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        match self {
            Self::Session(s) => s.session.psk.as_ref(),
            Self::External(psk) => psk.key(),
        }
    }

    /// An offered cipher suite with the PSK's hash. A PSK without such a suite is not offered (RFC 8446 §4.2.11).
    fn suite(&self, config: &ClientConfig) -> Option<&'static Tls13CipherSuite> {
        let profile = &config.profile;
        let hash = match self {
            Self::Session(s) => profile.provider.suite(s.session.cipher_suite)?.hash.algorithm(),
            Self::External(psk) => psk.hash(),
        };
        profile.cipher_suites.iter().copied().find(|s| s.hash.algorithm() == hash)
    }

    pub(super) fn hash(&self, config: &ClientConfig) -> Option<HashAlgorithm> {
        self.suite(config).map(|s| s.hash.algorithm())
    }
}

/// Decides what to offer, and sends the first ClientHello.
pub(crate) fn start(
    cx: &mut Cx<'_>,
    config: Arc<ClientConfig>,
    server: ServerAddress,
) -> Result<Step, Error> {
    let profile = &config.profile;
    let random_source = &*profile.provider.random;
    let mut random = [0; 32];
    random_source.fill(&mut random)?;
    let mut session_id = Vec::new();
    let tls12_suites = match config.tls12(cx.protocol()) {
        Some(tls12) => (tls12.client_suites)(&config),
        None => Vec::new(),
    };
    if !profile.has_tls13() && profile.tls12(cx.protocol()).is_none() {
        return Err(Misuse::NotSupported(What::Dtls12).into());
    }
    if profile.has_tls13() && profile.compatibility_mode && cx.protocol().has_compatibility_mode() {
        session_id.resize(32, 0);
        random_source.fill(&mut session_id)?;
    }
    let (mut psks, mut tls12_session) = (Vec::new(), None);
    if let Some(store) = &config.sessions {
        let key = session_key(&config, &server, cx.protocol());
        // RFC 8446 §4.6.1: the client must not use an expired ticket, or a ticket of another server.
        let ours = |s: &ClientSession| {
            s.session.is_fresh(cx.now)
                && s.session.transport == cx.protocol().transport()
                && s.session.settings == config.session_settings
                && s.session.server_name.as_ref() == Some(&key.name)
        };
        // A session that stems from a PSK is usable only while the client still has that PSK.
        let believed = |s: &mut ClientSession| {
            let sha256 = profile.provider.sha256;
            s.session.origin().is_none() || config.psks.iter().any(|psk| s.session.stems_from(psk, sha256))
        };
        // A session from a cached handshake contains no certificates, so the client cannot verify the server again.
        let can_be_verified = |s: &ClientSession| match &s.session.peer {
            Some(PeerIdentity::X509(id)) => !config.reverify || !id.chain.is_empty(),
            _ => true,
        };
        let mut session = store.take(&key, cx.now).filter(ours).filter(can_be_verified).map(Box::new);
        if let Some(weak) = session.take_if(|s| !s.session.serves(profile.rank)) {
            // Another profile of this client, of a lower rank, can still resume it.
            store.put(key.clone(), *weak);
        }
        let session = session.and_then(|mut s| believed(&mut s).then_some(s));
        let is_older =
            |s: &ClientSession| tls12_suites.iter().any(|suite| suite.id == s.session.cipher_suite);
        match session {
            Some(session) if is_older(&session) => tls12_session = Some(session),
            session => psks.extend(session.map(OfferedPsk::Session)),
        }
    }
    if let Some(session) = &tls12_session {
        if session.is_id {
            session_id = session.ticket.to_vec();
        } else if session_id.is_empty() {
            // RFC 5077 §3.4: the server echoes the session ID to accept the ticket.
            session_id.resize(32, 0);
            random_source.fill(&mut session_id)?;
        }
    }
    let external = config.psks.iter().filter(|psk| psk.is_for(cx.protocol().version()));
    psks.extend(external.map(|psk| OfferedPsk::External(Arc::clone(psk))));
    psks.retain(|psk| psk.suite(&config).is_some());
    if psks.is_empty() && profile.trust.is_empty() && tls12_suites.is_empty() {
        let why = "the client trusts no certificate or key and has no PSK: no server can prove who it is";
        return Err(Misuse::Config(why.into()).into());
    }
    let mut shares = Vec::new();
    if profile.has_tls13() && uses_groups(&config) {
        for group in &config.key_shares {
            let group = profile.group(*group).ok_or(Misuse::Config("a key share without group".into()))?;
            let active = group.start(random_source)?;
            let component = active.component().map(|(name, _)| name);
            // If a hybrid is the only share, the client also offers the share of its curve.
            let alone = config.key_shares.len() == 1;
            let component = component.filter(|c| alone && profile.group(*c).is_some());
            shares.push(OfferedShare { group: group.name(), active, component });
        }
    }
    if let Some(content) = profile.max_sent_record {
        cx.emitter.cap_sent_records(content.into());
    }
    cx.effects.client_random = random;
    if !tls12_suites.is_empty() {
        cx.progress.oldest = cx.protocol().oldest();
    }
    let early = match &config.early_data {
        Some(EarlyDataClient { protocols, steps }) => (steps.offer)(cx, &config, protocols, &psks),
        None => Err(NoEarlyData::Disabled),
    };
    if let Err(why) = &early {
        cx.draft.early_data = EarlyDataOutcome::NotOffered(*why);
    }
    let early = early.ok();
    let cache = config.handshake_cache.as_ref();
    let has_psk = !psks.is_empty() || tls12_suites.iter().any(|suite| suite.has_psk());
    let resumes = has_psk || tls12_session.is_some();
    let cache = cache.and_then(|cache| cache.offer(cx, &config, &server, resumes));
    let offer = Offer {
        config: Arc::clone(&config),
        server,
        random,
        session_id,
        psks,
        shares,
        tls12_suites,
        tls12_session,
        previous: None,
        extensions: Vec::new(),
        cookie: None,
        early,
        cache,
    };
    match (config.certificates, offer.psks.first()) {
        // Before it sends early data, the client verifies the session's server against today's trust settings.
        (Some(certificates), Some(OfferedPsk::Session(s))) if config.reverify && offer.early.is_some() => {
            let (server, peer) = (offer.server.clone(), s.session.peer.clone());
            let then = Box::new(move |cx: &mut Cx<'_>| send_reverified(cx, offer));
            (certificates.reverify)(cx, &config.profile, &server, peer.as_ref(), then)
        }
        _ => send_first(cx, offer),
    }
}

/// Begins a renegotiation of a TLS 1.2 connection (RFC 5746 §3.5).
pub(in crate::handshake) fn renegotiate(
    cx: &mut Cx<'_>,
    config: Arc<ClientConfig>,
    server: ServerAddress,
    previous: Previous,
) -> Result<Step, Error> {
    let mut random = [0; 32];
    config.profile.provider.random.fill(&mut random)?;
    cx.effects.client_random = random;
    let tls12 = config.tls12(cx.protocol()).ok_or(Internal::Bug(What::NoTls12))?;
    let tls12_suites = (tls12.client_suites)(&config);
    let offer = Offer {
        config,
        server,
        random,
        session_id: Vec::new(),
        psks: Vec::new(),
        shares: Vec::new(),
        tls12_suites,
        tls12_session: None,
        previous: Some(previous),
        extensions: Vec::new(),
        cookie: None,
        early: None,
        cache: None,
    };
    send_first(cx, offer)
}

/// Continues after the first session's server was verified again. The session may have expired during that time, and
/// RFC 8446 §4.6.1 forbids the use of an expired ticket.
fn send_reverified(cx: &mut Cx<'_>, mut offer: Offer) -> Result<Step, Error> {
    let is_over = |psk: &OfferedPsk| matches!(psk, OfferedPsk::Session(s) if !s.session.is_fresh(cx.now));
    if offer.psks.first().is_some_and(is_over) {
        offer.psks.remove(0);
        offer.early = None;
        cx.draft.early_data = EarlyDataOutcome::NotOffered(NoEarlyData::NoSession);
    }
    send_first(cx, offer)
}

/// Sends the first ClientHello.
fn send_first(cx: &mut Cx<'_>, mut offer: Offer) -> Result<Step, Error> {
    if offer.config.handshake_cache.is_some() {
        // The default until the server answers an offer.
        cx.draft.cache = CacheOutcome::NotUsable;
    }
    let mut transcript = HelloTranscript::default();
    let hello = offer.client_hello(cx, None)?;
    transcript.add(&hello);
    cx.send(hello)?;
    cx.emitter.end_of_flight()?;
    if let Some(early) = &offer.early {
        (early.steps.open)(cx, early, &offer, &transcript)?;
    }
    let is_renegotiation = offer.previous.is_some();
    let state = ExpectServerHello { offer, transcript: TranscriptSoFar::First(transcript) };
    Ok(match is_renegotiation {
        true => Step::Refusable(Box::new(state)),
        false => Step::expect(state),
    })
}

/// The key under which this client stores tickets of this server.
pub(super) fn session_key(config: &ClientConfig, server: &ServerAddress, protocol: Protocol) -> SessionKey {
    SessionKey {
        transport: protocol.transport(),
        name: server.host(),
        port: server.port,
        settings: *config.session_settings.as_bytes(),
    }
}

/// Whether (EC)DHE is possible. It is not if the client can use only psk_ke.
pub(super) fn uses_groups(config: &ClientConfig) -> bool {
    !config.profile.trust.is_empty() || config.profile.allows_mode(PskKeyExchangeMode::PSK_DHE_KE)
}

impl Offer {
    /// Whether the client offers TLS 1.3. A renegotiation does not, since it keeps the version (RFC 8446 §4.1.2).
    pub(super) fn offers_tls13(&self) -> bool {
        self.config.profile.has_tls13() && self.previous.is_none()
    }

    /// Writes the first ClientHello, or the second one, which continues `transcript`.
    fn client_hello(&mut self, cx: &Cx<'_>, transcript: Option<&Transcript>) -> Result<Vec<u8>, Error> {
        let config = &self.config;
        let profile = &config.profile;
        let protocol = cx.protocol();
        let mut w = ExtensionsWriter::default();
        if config.send_server_name && matches!(self.server.name, pki_types::ServerName::DnsName(_)) {
            w.put(&server_name::HostName(self.server.host()));
        }
        let mut suites = Vec::new();
        if self.offers_tls13() {
            suites.extend(profile.cipher_suites.iter().map(|s| s.id));
            let tls12 = (!self.tls12_suites.is_empty()).then_some(ProtocolVersion::TLS1_2);
            let versions = [protocol.version()].into_iter().chain(tls12).collect();
            w.put(&supported_versions::Offer(versions));
        }
        w.put_some(self.cookie.as_ref());
        if let Some(tls12) = config.tls12(protocol) {
            (tls12.offer)(self, &mut suites, &mut w);
        }
        if self.offers_tls13() && uses_groups(config) {
            w.put(&supported_groups::SupportedGroups(profile.groups.iter().map(|g| g.name()).collect()));
            // RFC 8446 §4.2.8: the shares are in the order of supported_groups.
            let shares_of = |group| {
                self.shares.iter().flat_map(OfferedShare::entries).filter(move |entry| entry.group == group)
            };
            let entries = profile.groups.iter().flat_map(|g| shares_of(g.name())).collect();
            w.put(&key_share::Offer(entries));
        }
        if !profile.trust.is_empty() {
            // draft-ietf-tls-tls13-pkcs1 §2: only clients may sign with this scheme, so a client does not offer it.
            let schemes = profile.signature_schemes.iter().copied();
            let schemes = schemes.filter(|s| *s != SignatureScheme::RSA_PKCS1_SHA256_LEGACY).collect();
            w.put(&signature_algorithms::SignatureAlgorithms(schemes));
            let for_chains = profile.certificate_signature_schemes.clone();
            w.put_some(for_chains.map(signature_algorithms::SignatureAlgorithmsCert).as_ref());
            self.certificate_types(&mut w);
            if profile.request_ocsp && profile.trust.of(CertificateType::X509).is_ok() {
                w.put(&status_request::StatusRequest);
            }
            if !profile.decompressors.is_empty() && self.offers_tls13() {
                w.put(&compress_certificate::CompressCertificate(profile.decompression_algorithms()));
            }
            let authorities = profile.authorities();
            if !authorities.is_empty() && self.offers_tls13() {
                w.put(&certificate_authorities::CertificateAuthorities(authorities));
            }
        }
        // A renegotiation keeps the application protocol, so it does not offer ALPN again.
        if !profile.alpn.is_empty() && self.previous.is_none() {
            w.put(&alpn::Protocols(profile.alpn.clone()));
        }
        w.put_some(profile.record_size_limit.map(record_size_limit::RecordSizeLimit).as_ref());
        w.put_some(profile.max_fragment_length.map(max_fragment_length::MaxFragmentLength).as_ref());
        if let Some(cache) = &self.cache {
            cache.extensions(&mut w);
        }
        // Without these modes a server sends no tickets (RFC 8446 §4.2.9). The second ClientHello repeats them even if it
        // offers fewer PSKs (RFC 8446 §4.1.2).
        let stood = self.extensions.contains(&ExtensionType::PSK_KEY_EXCHANGE_MODES);
        let uses_psks = !self.psks.is_empty() || config.sessions.is_some();
        if self.offers_tls13() && uses_psks || stood {
            w.put(&psk_key_exchange_modes::PskKeyExchangeModes(profile.psk_modes.clone()));
        }
        if self.early.is_some() {
            w.put(&EarlyData);
        }
        if !self.psks.is_empty() {
            w.put(&self.pre_shared_key(cx));
        }
        let mut hello = ClientHello::write(protocol, &self.random, &self.session_id, &suites, &w)?;
        if !self.psks.is_empty() {
            self.write_binders(&mut hello, protocol, transcript);
        }
        self.extensions = w.types().to_vec();
        Ok(hello)
    }

    /// Adds the certificate types, unless X.509 is the only one (RFC 7250 §4.1).
    fn certificate_types(&self, w: &mut ExtensionsWriter) {
        let verified = self.config.profile.peer_types();
        if verified.iter().any(|t| *t != CertificateType::X509) {
            w.put(&certificate_type::ServerTypes(verified));
        }
        let own = self.config.profile.own_types();
        if own.iter().any(|t| *t != CertificateType::X509) {
            w.put(&certificate_type::ClientTypes(own));
        }
    }

    /// The pre_shared_key extension, with zeros in place of the binders.
    fn pre_shared_key(&self, cx: &Cx<'_>) -> pre_shared_key::Offer {
        let identity = |psk: &OfferedPsk| match psk {
            OfferedPsk::Session(s) => pre_shared_key::Identity {
                identity: s.ticket.to_vec(),
                obfuscated_ticket_age: s.session.obfuscated_age(cx.now),
            },
            // RFC 8446 §4.2.11: the ticket age of an external identity is 0.
            OfferedPsk::External(psk) => {
                pre_shared_key::Identity { identity: psk.identity().to_vec(), obfuscated_ticket_age: 0 }
            }
        };
        let zeros =
            |psk: &OfferedPsk| alloc::vec![0; psk.hash(&self.config).map_or(0, HashAlgorithm::output_len)];
        pre_shared_key::Offer {
            identities: self.psks.iter().map(identity).collect(),
            binders: self.psks.iter().map(zeros).collect(),
        }
    }

    /// Fills in the binders. Each is a MAC over the transcript up to the binders (RFC 8446 §4.2.11.2).
    fn write_binders(&self, hello: &mut [u8], protocol: Protocol, transcript: Option<&Transcript>) {
        let suites: Vec<_> =
            self.psks.iter().filter_map(|psk| Some((psk, psk.suite(&self.config)?))).collect();
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
}

enum TranscriptSoFar {
    /// The first ClientHello.
    First(HelloTranscript),
    /// ClientHello1 and HelloRetryRequest, which fixes the cipher suite.
    Retried(Transcript, &'static Tls13CipherSuite),
}

struct ExpectServerHello {
    offer: Offer,
    transcript: TranscriptSoFar,
}

impl ExpectMessage for ExpectServerHello {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let body = message.expect(HandshakeType::SERVER_HELLO)?;
        let hello = ServerHello::read(body)?;
        if self.chooses_older(&hello) {
            return self.tls12(cx, &message, &hello);
        }
        let suite = self.common_checks(cx, &hello)?;
        if hello.is_retry() {
            return self.retry(cx, &message, &hello, suite);
        }
        hello.extensions.answer(&self.offer.extensions)?;
        let mut transcript = match self.transcript {
            TranscriptSoFar::First(transcript) => transcript.start(suite.hash),
            TranscriptSoFar::Retried(transcript, _) => transcript,
        };
        transcript.add(message.bytes());
        tls13::server_hello(cx, self.offer, transcript, suite, &hello)
    }
}

impl Refusable for ExpectServerHello {
    fn refused(self: Box<Self>, cx: &mut Cx<'_>) -> Result<Step, Error> {
        let tls12 = self.offer.config.tls12(cx.protocol());
        let tls12 = tls12.ok_or(Internal::Bug(What::NoTls12))?;
        (tls12.client_refused)(cx, self.offer)
    }
}

impl ExpectServerHello {
    /// Whether the server chose TLS 1.2, which it does by omitting supported_versions (RFC 8446 §4.2.1). It cannot choose
    /// TLS 1.2 after a HelloRetryRequest, which is a TLS 1.3 message.
    fn chooses_older(&self, hello: &ServerHello<'_>) -> bool {
        !hello.extensions.has(ExtensionType::SUPPORTED_VERSIONS)
            && hello.legacy_version == ProtocolVersion::TLS1_2
            && !self.offer.tls12_suites.is_empty()
            && matches!(self.transcript, TranscriptSoFar::First(_))
            && !hello.is_retry()
    }

    fn tls12(
        self: Box<Self>,
        cx: &mut Cx<'_>,
        message: &Message,
        hello: &ServerHello<'_>,
    ) -> Result<Step, Error> {
        // RFC 8446 §4.1.3: the server supports TLS 1.3, so an attacker has changed the ClientHello.
        if self.offer.offers_tls13() && is_downgrade(&hello.random) {
            return Err(PeerMisbehaved::Downgrade.into());
        }
        // RFC 8446 §D.3: a server whose ticket allows early data supports TLS 1.3. The client fails the connection, and the
        // early data is lost.
        if self.offer.early.is_some() {
            early::reject(cx, NoEarlyData::Declined);
            return Err(PeerIncompatible::Version(Some(ProtocolVersion::TLS1_2)).into());
        }
        let TranscriptSoFar::First(transcript) = self.transcript else {
            return Err(Internal::Bug(What::Tls12AfterRetry).into());
        };
        let tls12 = self.offer.config.tls12(cx.protocol());
        let tls12 = tls12.ok_or(Internal::Bug(What::NoTls12))?;
        (tls12.client)(cx, self.offer, transcript, message, hello)
    }

    /// The checks that a ServerHello and a HelloRetryRequest share. Returns the cipher suite.
    fn common_checks(
        &self,
        cx: &mut Cx<'_>,
        hello: &ServerHello<'_>,
    ) -> Result<&'static Tls13CipherSuite, Error> {
        let protocol = cx.protocol();
        match hello.extensions.get::<supported_versions::Selected>()? {
            Some(selected) if selected.0 == protocol.version() && self.offer.offers_tls13() => {
                cx.progress.oldest = cx.protocol();
            }
            // RFC 8446 §4.2.1: a version that the client did not offer here, or one before 1.3, is illegal_parameter.
            Some(_) => return Err(PeerMisbehaved::NotOffered(What::Version).into()),
            None => {
                let version = hello.legacy_version;
                return Err(if is_downgrade(&hello.random) && version < ProtocolVersion::TLS1_3 {
                    PeerMisbehaved::Downgrade.into()
                } else {
                    PeerIncompatible::Version(Some(version)).into()
                });
            }
        }
        // RFC 8446 §4.2.1 tells clients to ignore this field beside supported_versions, though §4.1.3 fixes its value.
        // RFC 9846 §4.2.3 changes that: this client rejects any other value, as BoringSSL does.
        if hello.legacy_version != protocol.legacy_version() {
            return Err(PeerMisbehaved::IllegalParameter(What::LegacyVersion).into());
        }
        if hello.session_id != self.offer.session_id {
            return Err(PeerMisbehaved::IllegalParameter(What::LegacySessionIdEcho).into());
        }
        let suite = self.offer.config.profile.suite(hello.cipher_suite);
        let suite = suite.ok_or(PeerMisbehaved::NotOffered(What::CipherSuite))?;
        match &self.transcript {
            TranscriptSoFar::Retried(_, first) if first.id != suite.id => {
                Err(PeerMisbehaved::IllegalParameter(What::SuiteAfterRetry).into())
            }
            _ => Ok(suite),
        }
    }

    fn retry(
        self: Box<Self>,
        cx: &mut Cx<'_>,
        message: &Message,
        hello: &ServerHello<'_>,
        suite: &'static Tls13CipherSuite,
    ) -> Result<Step, Error> {
        let Self { mut offer, transcript } = *self;
        // RFC 8446 §4.1.4: the server sends nothing more until the client answers.
        cx.emitter.peer_waits()?;
        let TranscriptSoFar::First(transcript) = transcript else {
            return Err(PeerMisbehaved::SecondRetry.into());
        };
        // RFC 8446 §4.2: only the cookie may appear here without an offer.
        if let Some(typ) =
            hello.extensions.types().find(|t| *t != ExtensionType::COOKIE && !offer.extensions.contains(t))
        {
            return Err(PeerMisbehaved::UnsolicitedExtension(typ).into());
        }
        let share = hello.extensions.get::<key_share::Retry>()?;
        offer.cookie = hello.extensions.get()?;
        if let Some(key_share::Retry(group)) = share {
            // RFC 8446 §4.2.8: the client has offered the group for TLS 1.3, and has not sent a share of it.
            let known = offer.config.profile.group(group).filter(|_| uses_groups(&offer.config));
            let known = known.ok_or(PeerMisbehaved::NotOffered(What::Group))?;
            if offer.shares.iter().any(|s| s.offers(group)) {
                return Err(PeerMisbehaved::PointlessRetry.into());
            }
            // RFC 8446 §4.1.2: the second ClientHello has one share, of that group.
            let active = known.start(&*offer.config.profile.provider.random)?;
            offer.shares = [OfferedShare { group, active, component: None }].into();
        } else if offer.cookie.is_none() {
            return Err(PeerMisbehaved::PointlessRetry.into());
        }
        // RFC 8446 §4.1.2, §4.2.10: a HelloRetryRequest rejects early data, and the second ClientHello is not encrypted.
        if offer.early.take().is_some() {
            cx.emitter.write_in_the_clear();
            early::reject(cx, NoEarlyData::Retry);
        }
        // RFC 8446 §4.1.4: the client offers only PSKs with the suite's hash again.
        let config = Arc::clone(&offer.config);
        offer.psks.retain(|psk| psk.hash(&config) == Some(suite.hash.algorithm()));
        if !offer.session_id.is_empty() {
            // RFC 8446 §D.4: ChangeCipherSpec precedes the second ClientHello.
            cx.emitter.change_cipher_spec()?;
        }
        let mut transcript = transcript.start(suite.hash).into_retry();
        transcript.add(message.bytes());
        cx.draft.retried = true;
        let hello = offer.client_hello(cx, Some(&transcript))?;
        cx.send_in(&mut transcript, hello)?;
        cx.emitter.end_of_flight()?;
        Ok(Step::expect(ExpectServerHello { offer, transcript: TranscriptSoFar::Retried(transcript, suite) }))
    }
}

/// Whether the server's random ends with the downgrade sentinel: the server supports a newer version (RFC 8446 §4.1.3).
fn is_downgrade(random: &[u8; 32]) -> bool {
    random.ends_with(b"DOWNGRD\x01") || random.ends_with(b"DOWNGRD\x00")
}
