//! The TLS 1.3 and DTLS 1.3 server, from the ServerHello on.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::start::{FoundPsk, PskSecret, echo};
use super::{cache, early};
use crate::auth::select::{self, Wanted};
use crate::auth::{PeerIdentity, PskIdentity};
use crate::crypto::{KeyExchangeGroup, Tls13CipherSuite};
use crate::early::{EarlyDataOutcome, NoEarlyData};
use crate::error::{Error, Internal, PeerIncompatible, PeerMisbehaved};
use crate::extension::early_data::EarlyData;
use crate::extension::{
    ExtensionsWriter, alpn, certificate_authorities, certificate_type, compress_certificate, key_share,
    max_fragment_length, pre_shared_key, psk_key_exchange_modes, record_size_limit, server_name,
    signature_algorithms, supported_versions,
};
use crate::handshake::cached::Use;
use crate::handshake::event::Event;
use crate::handshake::negotiated::HandshakeKind;
use crate::handshake::post::{OnTicket, Traffic};
use crate::handshake::progress::EarlyOutput;
use crate::handshake::setup::ServerConfig;
use crate::handshake::verify::ExpectCertificate;
use crate::handshake::{Cx, ExpectMessage, Step, prove};
use crate::message::{
    self, CertificateRequest, ClientHello, Message, NewSessionTicket, ServerHello, encrypted_extensions,
};
use crate::protocol::Side;
use crate::resume::{Session, TicketKind};
use crate::schedule::Transcript;
use crate::schedule::binder::PskKind;
use crate::schedule::tls13::{EarlySecret, HandshakeSecret, MasterSecret, ResumptionSecret, TrafficSecret};
use crate::settings::ClientAuth;
use crate::transport::Epoch;
use crate::wire::MAX_PLAINTEXT;
use crate::wire::{CertificateType, ExtensionType, HandshakeType, ProtocolVersion, SignatureScheme, What};

/// The server's choice for this client.
pub(super) struct Choice {
    pub(super) config: Arc<ServerConfig>,
    pub(super) suite: &'static Tls13CipherSuite,
    /// The group and the client's share of it. `None` with psk_ke.
    pub(super) share: Option<(&'static dyn KeyExchangeGroup, Vec<u8>)>,
    pub(super) psk: Option<FoundPsk>,
    /// The ticket for early data, if it was marked as used.
    pub(super) spent: Option<early::Spent>,
    /// The transcript before this ClientHello.
    pub(super) transcript: Transcript,
}

/// The choice after the binder was verified, if there is one.
struct Verified {
    choice: Choice,
    /// The early secret, with a PSK.
    early_secret: Option<EarlySecret>,
}

/// Verifies the binder and decides about early data.
pub(super) fn client_hello(cx: &mut Cx<'_>, mut choice: Choice, hello: &ClientHello) -> Result<Step, Error> {
    let Choice { config, suite, psk, spent, transcript, .. } = &mut choice;
    let early_secret = psk.as_ref().map(|psk| EarlySecret::new(suite, cx.protocol(), psk.secret.key()));
    if let (Some(psk), Some(secret)) = (&*psk, &early_secret) {
        verify_binder(secret, psk.secret.kind(), psk.index, transcript, hello)?;
        use_up(cx, config, psk, spent.as_ref())?;
    }
    transcript.add(hello.message().bytes());
    cx.draft.alpn = application_protocol(config, hello)?;
    let skew = match psk {
        Some(FoundPsk { index, secret: PskSecret::Session(session), .. }) => {
            Some(early::ticket_age_skew(cx, *index, session, hello)?)
        }
        _ => None,
    };
    cx.draft.ticket_age_skew_ms = skew;
    let early_data = early::is_offered(hello).then(|| early::outcome(cx, &choice, skew));
    // Early data that the HelloRetryRequest rejected stays rejected.
    if early_data.is_none() && !cx.draft.retried {
        let why = early::judge(cx, &choice, skew).err().unwrap_or(NoEarlyData::Declined);
        cx.draft.early_data = EarlyDataOutcome::NotOffered(why);
    }
    answer(cx, Verified { choice, early_secret }, hello, early_data)
}

/// Sends everything up to Finished. `early_data` is the outcome of early data, if the client offered any.
fn answer(
    cx: &mut Cx<'_>,
    verified: Verified,
    hello: &ClientHello,
    early_data: Option<EarlyDataOutcome>,
) -> Result<Step, Error> {
    let Verified { choice, early_secret } = verified;
    let Choice { config, suite, share, psk, mut transcript, .. } = choice;
    let protocol = cx.protocol();
    let takes_early_data = early_data == Some(EarlyDataOutcome::Accepted);
    if takes_early_data {
        early::open(cx, early_secret.as_ref(), &transcript, psk.as_ref())?;
    }
    // A PSK authenticates both sides, so the server sends no certificate. It still answers the certificate type.
    let (own, own_type) = match psk {
        None => {
            let own = own_certificate(&config, hello)?;
            let typ = own.typ;
            (Some(own), Some(typ))
        }
        Some(_) if hello.extensions().has(ExtensionType::SERVER_CERTIFICATE_TYPE) => {
            (None, own_certificate(&config, hello).ok().map(|own| own.typ))
        }
        Some(_) => (None, None),
    };
    let client_type = client_certificate_type(&config, hello, psk.is_some())?;
    let credential = own.as_ref().map(|own| own.choice.index);
    let sends = cache::Sends { credential, request: None, client_type };
    // docs/handshake-cache.md §5.7: a handshake with a PSK uses nothing of the cache and stores nothing.
    let usage = if psk.is_some() { Use::Nothing } else { Use::Tls13 };
    let cache = cache::agree(cx, &config, hello, &sends, usage)?;
    if config.handshake_cache.is_some() {
        cx.draft.cache = usage.outcome(cache.is_some());
    }
    let resumes = psk.as_ref().is_some_and(|p| p.secret.kind() == PskKind::Resumption);
    let version = protocol.version();
    let mut extensions = answers(cx, &config, hello, version, own_type, client_type, resumes)?;
    if takes_early_data {
        extensions.put(&EarlyData);
    }
    if let Some(cache) = &cache {
        cache.extensions(&mut extensions);
    }

    let (share, shared) = match share {
        None => (None, None),
        Some((group, peer)) => {
            let answer = group.respond(&*config.profile.provider.random, &peer);
            let (share, shared) = answer.map_err(|_| PeerMisbehaved::BadKeyShare)?;
            cx.draft.group = Some(group.name());
            (Some(key_share::Selected(key_share::Entry { group: group.name(), share })), Some(shared))
        }
    };
    let mut w = ExtensionsWriter::default();
    w.put(&supported_versions::Selected(protocol.version()));
    w.put_some(share.as_ref());
    if let Some(psk) = &psk {
        let index = u16::try_from(psk.index).map_err(|_| Internal::Bug(What::PskIndex))?;
        w.put(&pre_shared_key::Selected(index));
    }
    let mut random = [0; 32];
    config.profile.provider.random.fill(&mut random)?;
    let server_hello = ServerHello::write(protocol, &random, echo(protocol, hello), suite.id, &w)?;
    cx.send_in(&mut transcript, server_hello)?;
    if !hello.session_id().is_empty() && protocol.has_compatibility_mode() {
        cx.emitter.change_cipher_spec()?;
    }

    let secret = HandshakeSecret::new(suite, protocol, early_secret, shared.as_ref());
    let hash = transcript.current();
    let client_secret = secret.traffic(Side::Client, hash.as_ref());
    let server_secret = secret.traffic(Side::Server, hash.as_ref());
    cx.effects.log_secret("CLIENT_HANDSHAKE_TRAFFIC_SECRET", client_secret.bytes());
    cx.effects.log_secret("SERVER_HANDSHAKE_TRAFFIC_SECRET", server_secret.bytes());
    if !takes_early_data {
        cx.emitter.read_keys(Epoch::Handshake, &client_secret.keys(protocol))?;
    }
    cx.emitter.write_keys(Epoch::Handshake, &server_secret.keys(protocol))?;
    if let Some(outcome) = early_data {
        if !takes_early_data {
            cx.emitter.skip_early_data();
        }
        cx.early_data(outcome);
    }
    cx.send_in(&mut transcript, encrypted_extensions::write(&extensions)?)?;
    if client_type.is_some() {
        cx.send_in(&mut transcript, certificate_request(&config)?)?;
    }

    let (peer, authenticated_ms, resumed) = match psk.map(|p| (p.secret, p.identity)) {
        None => (None, cx.now.unix_ms, false),
        Some((PskSecret::External(psk), identity)) => {
            let identity = PskIdentity::new(identity, &psk, config.profile.provider.sha256);
            (Some(PeerIdentity::Psk(identity)), cx.now.unix_ms, false)
        }
        Some((PskSecret::Session(session), _)) => (session.peer, session.authenticated_ms, true),
    };
    let negotiated = &mut cx.draft;
    negotiated.version = Some(protocol.version());
    negotiated.cipher_suite = Some(suite.id);
    if resumed {
        negotiated.kind = HandshakeKind::Resumed;
    }
    negotiated.server_name = hello.extensions().get::<server_name::HostName>()?.map(|n| n.0);
    let modes = hello.extensions().get::<psk_key_exchange_modes::PskKeyExchangeModes>()?;
    let takes_tickets = modes.is_some_and(|m| m.0.iter().any(|m| config.profile.allows_mode(*m)));
    let handshake = Handshake {
        server_name: negotiated.server_name.clone(),
        config,
        suite,
        secret,
        client_secret,
        server_secret,
        client_type,
        peer,
        authenticated_ms,
        resumed,
        takes_tickets,
        takes_early_data,
        cache,
    };
    match own {
        None => handshake.finish(cx, transcript),
        Some(mut own) => {
            own.reads.cached = handshake.cache.as_ref().and_then(|cache| Some(cache.own()?.0));
            let profile = Arc::clone(&handshake.config.profile);
            let then: prove::Then = Box::new(move |cx, transcript| handshake.finish(cx, transcript));
            prove::prove(cx, transcript, &profile, Side::Server, own.choice, &own.reads, then)
        }
    }
}

/// Verifies the binder of the PSK at `index`. It proves that the client has the key, and that the ClientHello was not modified
/// (RFC 8446 §4.2.11.2).
pub(super) fn verify_binder(
    early: &EarlySecret,
    kind: PskKind,
    index: usize,
    transcript: &Transcript,
    hello: &ClientHello,
) -> Result<(), Error> {
    let offer = hello.extensions().require::<pre_shared_key::Offer>()?;
    let received = offer.binders.get(index).ok_or(Internal::Bug(What::Binder))?;
    let bytes = hello.message().bytes();
    let end = bytes.len().saturating_sub(offer.binders_len());
    let truncated = bytes.get(..end).ok_or(Internal::Bug(What::Binders))?;
    let expected = early.binder(kind, transcript.with(truncated).as_ref());
    match bool::from(expected.as_ref().ct_eq(received)) {
        true => Ok(()),
        false => Err(PeerMisbehaved::BadBinder.into()),
    }
}

/// Removes a stored session, which resumes only once. This happens after the client has proven that it has the secret, so that
/// no other client can remove the session.
fn use_up(
    cx: &mut Cx<'_>,
    config: &ServerConfig,
    psk: &FoundPsk,
    spent: Option<&early::Spent>,
) -> Result<(), Error> {
    let is_taken = spent.is_some_and(|spent| spent.session(&psk.identity).is_some());
    if matches!(psk.secret, PskSecret::Session(_)) && !is_taken {
        match &config.tickets.kind {
            TicketKind::Stateful(store) if !store.remove(&psk.identity) => {
                return Err(PeerMisbehaved::SessionUsedTwice.into());
            }
            TicketKind::Ask => cx.effects.event(Event::SessionUsed(psk.identity.clone())),
            TicketKind::Stateful(_) | TicketKind::Stateless(_) | TicketKind::None => {}
        }
    }
    Ok(())
}

struct OwnCertificate {
    choice: select::Choice,
    typ: CertificateType,
    /// What the client supports in a Certificate message.
    reads: prove::Reads,
}

/// Selects the server's credential for this client.
fn own_certificate(config: &ServerConfig, hello: &ClientHello) -> Result<OwnCertificate, Error> {
    // RFC 8446 §4.2.3: signature_algorithms is required if the server authenticates by certificate.
    let schemes = hello.extensions().require::<signature_algorithms::SignatureAlgorithms>()?.0;
    let types = hello.extensions().get::<certificate_type::ServerTypes>()?;
    let types = types.map_or_else(|| [CertificateType::X509].to_vec(), |t| t.0);
    let authorities = hello.extensions().get::<certificate_authorities::CertificateAuthorities>()?;
    let authorities = authorities.map_or_else(Vec::new, |a| a.0);
    let credentials = &config.profile.credentials;
    let chain_schemes =
        hello.extensions().get::<signature_algorithms::SignatureAlgorithmsCert>()?.map(|s| s.0);
    let wanted = Wanted {
        types: &types,
        schemes: &schemes,
        allows: &SignatureScheme::signs_for_servers,
        chain_schemes: chain_schemes.as_deref(),
        authorities: &authorities,
    };
    let choice =
        select::select(config.profile.provider.signatures, credentials, &config.profile.reserved, &wanted)?;
    let credential = credentials.get(choice.index).ok_or(Internal::Bug(What::CredentialIndex))?;
    let compressions = hello.extensions().get::<compress_certificate::CompressCertificate>()?;
    let compressions = compressions.map_or_else(Vec::new, |c| c.0);
    let ocsp = hello.extensions().has(ExtensionType::STATUS_REQUEST);
    let reads = prove::Reads { compressions, ocsp, cached: None };
    Ok(OwnCertificate { choice, typ: credential.certificate_type(), reads })
}

/// The type of certificate that the server requests. `None` if it requests none.
pub(super) fn client_certificate_type(
    config: &ServerConfig,
    hello: &ClientHello,
    by_psk: bool,
) -> Result<Option<CertificateType>, Error> {
    if by_psk || config.client_auth == ClientAuth::None {
        return Ok(None);
    }
    let theirs = hello.extensions().get::<certificate_type::ClientTypes>()?;
    let asked = theirs.is_some();
    let theirs = theirs.map_or_else(|| [CertificateType::X509].to_vec(), |t| t.0);
    let ours = config.profile.peer_types();
    match ours.iter().find(|t| theirs.contains(t)) {
        Some(typ) => Ok(Some(*typ)),
        // A client without this extension offered no type, so an optional request is simply omitted.
        None if !asked && config.client_auth == ClientAuth::Optional => Ok(None),
        // RFC 7250 §4.2: without a common type the server sends unsupported_certificate.
        None => Err(PeerIncompatible::CertificateType { ours, theirs }.into()),
    }
}

/// The server's first application protocol that the client also offers.
pub(super) fn application_protocol(
    config: &ServerConfig,
    hello: &ClientHello,
) -> Result<Option<Vec<u8>>, Error> {
    let ours = &config.profile.alpn;
    match hello.extensions().get::<alpn::Protocols>()? {
        Some(theirs) if !ours.is_empty() => {
            // RFC 7301 §3.2: without a common protocol the server sends no_application_protocol.
            let chosen = ours.iter().find(|p| theirs.0.contains(p));
            Ok(Some(chosen.ok_or(PeerIncompatible::ApplicationProtocol)?.clone()))
        }
        _ => Ok(None),
    }
}

/// The answers to extensions that all versions share: server name, application protocol, record size limits, certificate types.
pub(super) fn answers(
    cx: &mut Cx<'_>,
    config: &ServerConfig,
    hello: &ClientHello,
    version: ProtocolVersion,
    server_type: Option<CertificateType>,
    client_type: Option<CertificateType>,
    resumes: bool,
) -> Result<ExtensionsWriter, Error> {
    let mut w = ExtensionsWriter::default();
    let profile = &config.profile;
    // RFC 6066 §3: the server acknowledges a name that it used, which means in the choice of a profile. It does not in a
    // resumption, where the session contains the name.
    if config.choose_profile && !resumes && hello.extensions().has(ExtensionType::SERVER_NAME) {
        w.put(&server_name::Acknowledged);
    }
    if hello.extensions().has(ExtensionType::APPLICATION_LAYER_PROTOCOL_NEGOTIATION) {
        w.put_some(cx.draft.alpn.clone().map(alpn::Selected).as_ref());
    }
    let size = hello.extensions().get::<record_size_limit::RecordSizeLimit>()?;
    let length = hello.extensions().get::<max_fragment_length::MaxFragmentLength>()?;
    let (sent, received) = match (size, length) {
        (None, None) => (MAX_PLAINTEXT, MAX_PLAINTEXT),
        // RFC 8449 §4: the server sends its limit only in answer. §5: then it ignores max_fragment_length.
        (Some(limit), _) => {
            let ours =
                profile.record_size_limit.map(|ours| record_size_limit::RecordSizeLimit::of(ours, version));
            w.put_some(ours.as_ref());
            (limit.content(version), profile.received_content_limit(version))
        }
        (None, Some(length)) => {
            w.put(&length);
            (usize::from(length.0), usize::from(length.0))
        }
    };
    cx.emitter.limit_sent_records(sent);
    cx.emitter.limit_received_records(received);
    // RFC 7250 §4.2: the server answers each type that the client offered and the handshake uses.
    if let Some(typ) = server_type
        && hello.extensions().has(ExtensionType::SERVER_CERTIFICATE_TYPE)
    {
        w.put(&certificate_type::ServerType(typ));
    }
    if let Some(typ) = client_type
        && hello.extensions().has(ExtensionType::CLIENT_CERTIFICATE_TYPE)
    {
        w.put(&certificate_type::ClientType(typ));
    }
    Ok(w)
}

fn certificate_request(config: &ServerConfig) -> Result<Vec<u8>, Error> {
    let profile = &config.profile;
    let mut w = ExtensionsWriter::default();
    w.put(&signature_algorithms::SignatureAlgorithms(profile.signature_schemes.clone()));
    let for_chains = profile.certificate_signature_schemes.clone();
    w.put_some(for_chains.map(signature_algorithms::SignatureAlgorithmsCert).as_ref());
    if !profile.decompressors.is_empty() {
        w.put(&compress_certificate::CompressCertificate(profile.decompression_algorithms()));
    }
    let authorities = profile.authorities();
    if !authorities.is_empty() {
        w.put(&certificate_authorities::CertificateAuthorities(authorities));
    }
    CertificateRequest::write(&w)
}

/// The state that the rest of the handshake shares.
struct Handshake {
    config: Arc<ServerConfig>,
    suite: &'static Tls13CipherSuite,
    secret: HandshakeSecret,
    client_secret: TrafficSecret,
    server_secret: TrafficSecret,
    /// The type of certificate that the server requests. `None` if it requests none.
    client_type: Option<CertificateType>,
    peer: Option<PeerIdentity>,
    /// When the client last authenticated without resumption, in milliseconds since 1970.
    authenticated_ms: u64,
    resumed: bool,
    takes_tickets: bool,
    takes_early_data: bool,
    server_name: Option<String>,
    cache: Option<Box<dyn cache::Agreed>>,
}

impl Handshake {
    /// Sends Finished and waits for the client's second flight.
    fn finish(self, cx: &mut Cx<'_>, mut transcript: Transcript) -> Result<Step, Error> {
        let value = self.server_secret.finished(transcript.current().as_ref());
        let finished = message::finished(value.as_ref())?;
        cx.send_in(&mut transcript, finished)?;
        let master = self.secret.into_master();
        let hash = transcript.current();
        let read = master.traffic(Side::Client, hash.as_ref());
        let write = master.traffic(Side::Server, hash.as_ref());
        let exporter = master.exporter(hash.as_ref());
        cx.effects.log_secret("CLIENT_TRAFFIC_SECRET_0", read.bytes());
        cx.effects.log_secret("SERVER_TRAFFIC_SECRET_0", write.bytes());
        cx.effects.log_secret("EXPORTER_SECRET", exporter.bytes());
        cx.progress.exporter = Some(Box::new(exporter));
        cx.emitter.write_keys(Epoch::Application, &write.keys(cx.protocol()))?;
        cx.emitter.end_of_flight()?;

        let (profile, client_type) = (Arc::clone(&self.config.profile), self.client_type);
        let optional = self.config.client_auth == ClientAuth::Optional;
        let mut finish = Finish {
            config: self.config,
            suite: self.suite,
            client_secret: self.client_secret,
            master,
            read,
            write,
            peer: self.peer,
            authenticated_ms: self.authenticated_ms,
            resumed: self.resumed,
            takes_tickets: self.takes_tickets,
            server_name: self.server_name,
            cache: self.cache,
        };
        let cached = finish.cache.as_mut().and_then(|cache| cache.take_client());
        let Some(certificate_type) = client_type else {
            return Ok(match self.takes_early_data {
                true => early::expect_end(cx, finish, transcript),
                false => Step::expect(ExpectFinished { finish, transcript }),
            });
        };
        Ok(Step::expect(ExpectCertificate {
            profile,
            transcript,
            peer: Side::Client,
            certificate_type,
            name: None,
            optional,
            ocsp: false,
            cached,
            then: Box::new(move |_, transcript, authenticated| {
                let (peer, believed) = authenticated.map(|a| (a.identity, a.cached)).unzip();
                let mut finish = Finish { peer, ..finish };
                if let Some(cache) = &mut finish.cache {
                    cache.client_proven(believed.flatten());
                }
                Ok(Step::expect(ExpectFinished { finish, transcript }))
            }),
        }))
    }
}

/// The state that the server needs when the client's Finished arrives.
pub(super) struct Finish {
    config: Arc<ServerConfig>,
    suite: &'static Tls13CipherSuite,
    client_secret: TrafficSecret,
    master: MasterSecret,
    read: TrafficSecret,
    write: TrafficSecret,
    peer: Option<PeerIdentity>,
    authenticated_ms: u64,
    resumed: bool,
    takes_tickets: bool,
    server_name: Option<String>,
    cache: Option<Box<dyn cache::Agreed>>,
}

impl Finish {
    /// Continues after EndOfEarlyData: the client's Finished is next, under the handshake keys.
    pub(super) fn after_early_data(self, cx: &mut Cx<'_>, transcript: Transcript) -> Result<Step, Error> {
        cx.emitter.read_keys(Epoch::Handshake, &self.client_secret.keys(cx.protocol()))?;
        Ok(Step::expect(ExpectFinished { finish: self, transcript }))
    }
}

struct ExpectFinished {
    finish: Finish,
    transcript: Transcript,
}

impl ExpectMessage for ExpectFinished {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { finish, mut transcript } = *self;
        let body = message.expect(HandshakeType::FINISHED)?;
        let _valid = finish.client_secret.verify_finished(transcript.current().as_ref(), body)?;
        transcript.add(message.bytes());
        let Finish { config, suite, master, read, write, peer, cache, .. } = finish;
        cx.emitter.read_keys(Epoch::Application, &read.keys(cx.protocol()))?;
        cx.emitter.handshake_complete();
        cx.draft.peer.clone_from(&peer);
        if let Some(cache) = cache {
            cache.keep(cx, &config)?;
        }
        cx.progress.early = EarlyOutput::default();
        cx.complete(Event::Connected);
        if finish.takes_tickets && !config.tickets.is_none() {
            let secret = master.into_resumption(transcript.current().as_ref());
            let protocol = cx.protocol();
            let early = early::terms(cx, &config);
            let session = |psk, age_add, now_ms| Session {
                cipher_suite: suite.id,
                psk,
                issued_ms: now_ms,
                authenticated_ms: finish.authenticated_ms,
                transport: protocol.transport(),
                lifetime_s: u32::try_from(config.tickets.lifetime.as_secs()).unwrap_or(u32::MAX),
                age_add,
                peer: peer.clone(),
                settings: config.settings,
                rank: config.profile.rank,
                server_name: finish.server_name.clone(),
                early: early.clone(),
            };
            // After a resumption one ticket replaces the used one.
            let count = if finish.resumed { config.tickets.count.min(1) } else { config.tickets.count };
            for nonce in 0..count {
                send_ticket(cx, &config, &secret, nonce, &session)?;
            }
            cx.emitter.end_of_flight()?;
        }
        Ok(Step::Traffic(Box::new(Traffic::new(read, write, OnTicket::Refuse))))
    }
}

/// The length of the name of a stored session, in bytes. It is long enough that a client cannot guess a name.
pub(super) const SESSION_NAME_LEN: usize = 16;

fn send_ticket(
    cx: &mut Cx<'_>,
    config: &ServerConfig,
    secret: &ResumptionSecret,
    nonce: u8,
    session: &impl Fn(crate::crypto::HashOutput, u32, u64) -> Session,
) -> Result<(), Error> {
    let random = &*config.profile.provider.random;
    let mut age_add = [0; 4];
    random.fill(&mut age_add)?;
    let nonce = [nonce];
    let session = session(secret.psk(&nonce), u32::from_be_bytes(age_add), cx.now.unix_ms);
    let (lifetime, age_add, max_early_data) = (session.lifetime_s, session.age_add, session.max_early_data());
    let mut name = [0; SESSION_NAME_LEN];
    random.fill(&mut name)?;
    let ticket = match &config.tickets.kind {
        TicketKind::None => return Ok(()),
        TicketKind::Stateless(seal) => {
            let plain = session.to_ticket()?;
            let seal = |plain: Zeroizing<Vec<u8>>| seal.seal(cx.now, config.settings.as_bytes(), &plain);
            // If sealing fails, the client gets no ticket, but the connection continues.
            match plain.and_then(seal) {
                Some(ticket) => ticket,
                None => return Ok(()),
            }
        }
        TicketKind::Stateful(store) => {
            store.put(&name, session);
            cx.commit.kept.extend(config.tickets.kept(&name));
            name.to_vec()
        }
        TicketKind::Ask => {
            cx.effects.event(Event::NewSession(name.to_vec(), session));
            cx.commit.kept.extend(config.tickets.kept(&name));
            name.to_vec()
        }
    };
    let ticket = NewSessionTicket { lifetime, age_add, nonce: &nonce, ticket: &ticket, max_early_data };
    cx.send(ticket.write()?)
}
