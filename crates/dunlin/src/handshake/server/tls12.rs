//! The TLS 1.2 server, from the ClientHello on.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;

use pki_types::CertificateDer;

use super::rank::AfterOrigin;
use super::renegotiate::{First, Target};
use super::start::{check_origin, is_good, look_up};
use super::tls12_choice::{Choice, Own, choose, credential};
use super::{cache, rank};
use crate::auth::verifier::KeyUse;
use crate::auth::{Credential, PeerIdentity, Psk, PskIdentity};
use crate::cache::CacheOutcome;
use crate::crypto::{KeyExchangeGroup, Tls12CipherSuite, Tls12KeyExchange};
use crate::error::{AuthenticationFailure, Error, Misuse, PeerIncompatible, PeerMisbehaved};
use crate::handshake::cached::server::{Agreed, Sends};
use crate::handshake::cached::{Form, Use};
use crate::handshake::event::Event;
use crate::handshake::key_exchange::ServerSide;
use crate::handshake::negotiate::renegotiation_info::{Finisheds, Previous};
use crate::handshake::negotiate::{
    self, Choices, SERVER_HELLO_TLS12, alpn, certificate_type, extended_master_secret, renegotiation_info,
    server_name, session_ticket,
};
use crate::handshake::negotiated::HandshakeKind;
use crate::handshake::question::{Answer, Question};
use crate::handshake::setup::ServerConfig;
use crate::handshake::tls12::{
    Completed, Role, algorithms, check_same_peer, has_scheme, send_finished, signed_params,
};
use crate::handshake::verify::{Believed, BelievedPeer, Subject};
use crate::handshake::{AwaitAnswer, Cx, ExpectMessage, Step, prove};
use crate::message::{
    Certificate, CertificateVerify, ClientHello, ClientKeyExchange, Message, ServerHello, ServerKeyExchange,
    Staples, Tls12CertificateRequest, Tls12NewSessionTicket, certificate_status, server_hello_done,
};
use crate::protocol::Side;
use crate::resume::{SESSION_NAME_LEN, Session, TicketKind};
use crate::schedule::Tls12Transcript;
use crate::schedule::tls12::{MasterSecret, Randoms, VerifyData};
use crate::settings::ClientAuth;
use crate::transport::Epoch;
use crate::wire::{CertificateType, CipherSuite, ExtensionType, Field, HandshakeType, ProtocolVersion};

/// The downgrade sentinel at the end of the server's random: this server supports TLS 1.3 (RFC 8446 §4.1.3).
const DOWNGRADE: &[u8; 8] = b"DOWNGRD\x01";

/// The state that the rest of the handshake shares.
struct Handshake {
    config: Arc<ServerConfig>,
    suite: &'static Tls12CipherSuite,
    randoms: Randoms,
    transcript: Tls12Transcript,
    /// Whether both sides use the extended master secret (RFC 7627).
    extended: bool,
    /// The version at the beginning of the RSA premaster secret.
    client_version: ProtocolVersion,
    /// The type of certificate that the server requests. `None` if it requests none.
    client_type: Option<CertificateType>,
    /// Whether the client supports secure renegotiation (RFC 5746).
    secure: bool,
    keep: Keep,
    /// The index of the server's credential, in suites with a certificate.
    own: Option<usize>,
    /// In a renegotiation, the data of the previous handshake.
    previous: Option<Previous>,
    cache: Option<Box<dyn Agreed>>,
}

/// Where the server keeps the session.
enum Keep {
    Nothing,
    /// In a ticket (RFC 5077).
    Ticket,
    /// In the store, under this session ID.
    Id([u8; SESSION_NAME_LEN]),
}

impl Keep {
    fn of(config: &ServerConfig, hello: &ClientHello) -> Result<Self, Error> {
        let kind = &config.tickets.kind;
        let ids = &config.tickets.ids;
        Ok(match kind {
            TicketKind::Stateless(_) if session_ticket::is_offered(hello) => Self::Ticket,
            TicketKind::None => Self::Nothing,
            TicketKind::Stateless(_) if ids.is_none() => Self::Nothing,
            TicketKind::Stateless(_) | TicketKind::Stateful(_) | TicketKind::Ask => {
                let mut id = [0; SESSION_NAME_LEN];
                config.profile.provider.random.fill(&mut id)?;
                Self::Id(id)
            }
        })
    }

    /// Where the server found the session that it resumes.
    fn found(config: &ServerConfig, hello: &ClientHello) -> Result<Self, Error> {
        let is_ticket =
            matches!(config.tickets.kind, TicketKind::Stateless(_)) && !session_ticket::of(hello)?.is_empty();
        // RFC 5077 §3.4: next to a ticket the client chooses the session ID, which may be the ID of another
        // client's session.
        Ok(match <[u8; SESSION_NAME_LEN]>::try_from(hello.session_id()) {
            Ok(id) if !is_ticket => Self::Id(id),
            _ => Self::Ticket,
        })
    }
}

/// Handles the ClientHello of a TLS 1.2 handshake: looks for the client's session, or begins a full
/// handshake. In a renegotiation, `previous` is the data of the previous handshake.
pub(in crate::handshake) fn client_hello(
    cx: &mut Cx<'_>,
    config: Arc<ServerConfig>,
    hello: ClientHello,
    previous: Option<Previous>,
) -> Result<Step, Error> {
    cx.progress.oldest = cx.protocol().oldest();
    cx.emitter.agree(cx.protocol().oldest())?;
    cx.draft.version = Some(cx.protocol().version());
    cx.emitter.peer_waits()?;
    // The key log identifies secrets by the client's random, which is new in a renegotiation.
    cx.effects.client_random = hello.random;
    check(&config, &hello, previous.as_ref())?;
    if let Some(previous) = cx.progress.previous() {
        negotiate::keep(cx, previous, &hello)?;
    }
    // A renegotiation is always a full handshake, since its purpose is a new authentication.
    if previous.is_some() {
        return full(cx, config, &hello, previous);
    }
    let ticket = session_ticket::of(&hello)?;
    let id = hello.session_id();
    let known = match &config.tickets.kind {
        TicketKind::Stateless(seal) if !ticket.is_empty() => {
            let plain = seal.open(cx.now, config.digests.trust.as_bytes(), &ticket);
            plain.and_then(|t| Session::from_ticket(&t, config.digests.trust).ok()).map(Box::new)
        }
        TicketKind::Stateless(_) if !id.is_empty() => {
            config.tickets.ids.as_ref().and_then(|store| store.find(id)).map(Box::new)
        }
        TicketKind::Stateful(store) if !id.is_empty() => store.find(id).map(Box::new),
        TicketKind::Ask if !id.is_empty() => {
            let question = Question::FindSession { id: id.to_vec() };
            return cx.ask(Err(question), Box::new(AwaitSession { config, hello }));
        }
        _ => None,
    };
    resume_or_not(cx, config, hello, known)
}

/// Waits for the session with the client's session ID.
struct AwaitSession {
    config: Arc<ServerConfig>,
    hello: ClientHello,
}

impl AwaitAnswer for AwaitSession {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Answer::Session(session) = answer else { return Err(Misuse::WrongAnswer.into()) };
        resume_or_not(cx, self.config, self.hello, session)
    }
}

fn resume_or_not(
    cx: &mut Cx<'_>,
    config: Arc<ServerConfig>,
    hello: ClientHello,
    session: Option<Box<Session>>,
) -> Result<Step, Error> {
    let good = session.filter(|s| is_good(cx, &config, s, &hello));
    // RFC 7627 §5.3: every stored session used the extended master secret. Without the extension "the server
    // MUST abort the abbreviated handshake".
    if good.is_some() && !extended_master_secret::is_offered(&hello) {
        return Err(PeerIncompatible::ExtendedMasterSecret.into());
    }
    let suites = || config.profile.tls12.iter().flat_map(|tls12| tls12.suites.iter().copied());
    // RFC 5246 §7.4.1.2: a client that resumes must offer the session's suite.
    let with_suite = good.and_then(|session| {
        let suite = suites().find(|s| s.id == session.cipher_suite)?;
        hello.cipher_suites.contains(&suite.id).then_some((session, suite))
    });
    let Some((session, suite)) = with_suite else { return full(cx, config, &hello, None) };
    let for_origin = Arc::clone(&config);
    let then: AfterOrigin = Box::new(move |cx, session| match session {
        Some(session) => resume(cx, config, &hello, *session, suite),
        None => full(cx, config, &hello, None),
    });
    check_origin(cx, for_origin, session, then)
}

/// The abbreviated handshake (RFC 5246 §7.3, figure 2): sends everything up to the server's Finished.
fn resume(
    cx: &mut Cx<'_>,
    config: Arc<ServerConfig>,
    hello: &ClientHello,
    session: Session,
    suite: &'static Tls12CipherSuite,
) -> Result<Step, Error> {
    let random = server_random(&config)?;
    let randoms = Randoms { client: hello.random, server: random };
    cx.draft.alpn = alpn::choose(&config, hello)?;
    // RFC 7250 §4.2: without an answer the type would be X.509, which the client may not accept.
    let own =
        credential(&config, hello, suite)?.ok().and_then(|own| config.profile.credentials.get(own.index()));
    // docs/handshake-cache.md §5, rule 7: a resumption does not use the cache.
    let sends = Sends { credential: None, request: None, client_type: None };
    let cache = cache::agree(cx, &config, hello, &sends, Use::Nothing)?;
    let chosen = Choices {
        resumes: true,
        server_type: own.map(|credential| credential.certificate_type()),
        cache: cache.as_deref(),
        ..Choices::new(&config, hello, cx.protocol().version())
    };
    let w = negotiate::answer(SERVER_HELLO_TLS12, cx, &chosen)?;
    let mut transcript = Tls12Transcript::new(suite.hash, cx.protocol().oldest(), false);
    transcript.add(hello.message());
    // RFC 5077 §3.4: the server also echoes the session ID to accept a ticket.
    let server_hello = ServerHello::write(cx.protocol(), &random, hello.session_id(), suite.id, &w)?;
    cx.send_in(&mut transcript, server_hello)?;
    let negotiated = &mut cx.draft;
    negotiated.cipher_suite = Some(suite.id);
    negotiated.kind = HandshakeKind::Resumed;
    negotiated.peer_validity = session.validity();
    if config.parts.cache.is_some() {
        negotiated.cache = CacheOutcome::NotUsable;
    }
    negotiated.server_name.clone_from(&session.server_name);
    let master = MasterSecret::resumed(suite, session.psk.clone());
    cx.effects.log_secret("CLIENT_RANDOM", master.bytes().as_ref());
    let secure = renegotiation_info::is_supported(hello);
    let keep = Keep::found(&config, hello)?;
    let mut handshake = Handshake {
        config,
        suite,
        randoms,
        transcript,
        extended: true,
        client_version: hello.legacy_version,
        client_type: None,
        secure,
        keep,
        own: None,
        previous: None,
        cache: None,
    };
    let sent = send_finished(cx, Side::Server, &mut handshake.transcript, &handshake.randoms, &master)?;
    expect_finished(cx, handshake, master, session.peer, Some(sent))
}

/// The full handshake: sends everything up to ServerHelloDone.
fn full(
    cx: &mut Cx<'_>,
    config: Arc<ServerConfig>,
    hello: &ClientHello,
    previous: Option<Previous>,
) -> Result<Step, Error> {
    let profile = Arc::clone(&config.profile);
    let Choice { suite, group, own } = choose(&config, hello)?;
    let random = server_random(&config)?;
    let randoms = Randoms { client: hello.random, server: random };
    let client_type = if suite.may_ask_for_certificate() {
        certificate_type::request(&config, hello, cx.protocol().version(), false)?.map(|r| r.typ)
    } else {
        None
    };
    let credential = own.and_then(|own| profile.credentials.get(own.index()));
    let response = stapled(&config, hello, own);
    let extended = extended_master_secret::is_offered(hello);
    // RFC 7627 §5.4: a session without the extended master secret is not resumed.
    // The renegotiation to the profile of the client's identity makes a session under that profile.
    let keep = if extended && (previous.is_none() || config.ranks.is_some()) {
        Keep::of(&config, hello)?
    } else {
        Keep::Nothing
    };
    if previous.is_none() {
        cx.draft.alpn = alpn::choose(&config, hello)?;
    }
    let request = client_type.map(|_| certificate_request(&config).write()).transpose()?;
    let sends = Sends { credential: own.map(Own::index), request: request.as_deref(), client_type };
    // docs/handshake-cache.md §5, rule 7: a renegotiation does not use the cache.
    let usage = if previous.is_some() { Use::Nothing } else { Use::in_tls12(suite, extended) };
    let cache = match previous {
        None => cache::agree(cx, &config, hello, &sends, usage)?,
        Some(_) => None,
    };
    if config.parts.cache.is_some() {
        cx.draft.cache = usage.outcome(cache.is_some());
    }
    let chosen = Choices {
        server_type: credential.map(|c| c.certificate_type()),
        client_type,
        cache: cache.as_deref(),
        previous: previous.as_ref(),
        uses_curve: suite.key_exchange == Tls12KeyExchange::Ecdhe,
        staples: response.is_some(),
        promises_ticket: matches!(keep, Keep::Ticket),
        ..Choices::new(&config, hello, cx.protocol().version())
    };
    let w = negotiate::answer(SERVER_HELLO_TLS12, cx, &chosen)?;

    let mut transcript = Tls12Transcript::new(suite.hash, cx.protocol().oldest(), client_type.is_some());
    transcript.add(hello.message());
    let session_id = if let Keep::Id(id) = &keep { &id[..] } else { &[] };
    let server_hello = ServerHello::write(cx.protocol(), &random, session_id, suite.id, &w)?;
    cx.send_in(&mut transcript, server_hello)?;
    if let Some(credential) = credential {
        send_certificate(cx, &mut transcript, credential, cache.as_deref())?;
    }
    if let Some(response) = response {
        cx.send_in(&mut transcript, certificate_status::write(response)?)?;
    }
    let negotiated = &mut cx.draft;
    negotiated.cipher_suite = Some(suite.id);
    negotiated.group = group.map(|g| g.name());
    negotiated.server_name = server_name::of(hello)?;
    let secure = renegotiation_info::is_supported(hello);
    let client_version = hello.legacy_version;
    let handshake = Handshake {
        config,
        suite,
        randoms,
        transcript,
        extended,
        client_version,
        client_type,
        secure,
        keep,
        own: own.map(Own::index),
        previous,
        cache,
    };
    server_key_exchange(cx, handshake, group, own)
}

/// Sends the server's Certificate, abbreviated if the client has it in its cache.
fn send_certificate(
    cx: &mut Cx<'_>,
    transcript: &mut Tls12Transcript,
    credential: &Credential,
    cache: Option<&dyn Agreed>,
) -> Result<(), Error> {
    match cache.and_then(Agreed::own) {
        Some((own, form)) => {
            let abbreviated = form.write(HandshakeType::CERTIFICATE, &own)?;
            let full = Certificate::tls12_len(credential.certificate_type(), credential.entries());
            cx.draft.leave_own_out(full.saturating_sub(abbreviated.len()));
            cx.send_in(transcript, abbreviated)?;
            form.bind(transcript, &own);
            Ok(())
        }
        None => {
            let entries = credential.entries();
            cx.send_in(transcript, Certificate::write_tls12(credential.certificate_type(), entries)?)
        }
    }
}

/// The checks of a TLS 1.2 ClientHello.
fn check(config: &ServerConfig, hello: &ClientHello, previous: Option<&Previous>) -> Result<(), Error> {
    // RFC 5246 §7.4.1.2: the client must offer the null compression method.
    if !hello.compression_methods().contains(&0) {
        return Err(PeerMisbehaved::IllegalParameter(Field::CompressionMethods).into());
    }
    // RFC 7507 §3: a fallback although both sides support TLS 1.3 indicates an attack.
    if hello.cipher_suites.contains(&CipherSuite::TLS_FALLBACK_SCSV) && config.profile.has_tls13() {
        return Err(PeerIncompatible::Fallback.into());
    }
    negotiate::check_tls12(config, hello, previous)
}

/// The OCSP response for the server's credential, if the client requests one.
fn stapled<'a>(config: &'a ServerConfig, hello: &ClientHello, own: Option<Own>) -> Option<&'a [u8]> {
    let own = own.filter(|_| hello.extensions().has(ExtensionType::STATUS_REQUEST))?;
    config
        .profile
        .certificates
        .stapled
        .iter()
        .find(|(index, _)| *index == own.index())
        .map(|(_, r)| r.as_slice())
}

/// The server's random. It ends with the downgrade sentinel if the server supports TLS 1.3 (RFC 8446 §4.1.3).
fn server_random(config: &ServerConfig) -> Result<[u8; 32], Error> {
    let mut random = [0; 32];
    config.profile.provider.random.fill(&mut random)?;
    if config.profile.has_tls13() {
        random.iter_mut().rev().zip(DOWNGRADE.iter().rev()).for_each(|(to, from)| *to = *from);
    }
    Ok(random)
}

/// Sends ServerKeyExchange: the server's share, signed, as far as the suite has either.
fn server_key_exchange(
    cx: &mut Cx<'_>,
    mut handshake: Handshake,
    group: Option<&'static dyn KeyExchangeGroup>,
    own: Option<Own>,
) -> Result<Step, Error> {
    let profile = Arc::clone(&handshake.config.profile);
    let (signs, decrypts) = match own {
        Some(Own::Signs(choice)) => (Some(choice), None),
        Some(Own::Decrypts(index)) => (None, profile.credentials.get(index)),
        None => (None, None),
    };
    let key = decrypts.map(Credential::key);
    let (exchange, params) = ServerSide::start(handshake.suite, group, key, &profile)?;
    let hint = &handshake.config.psk_identity_hint;
    let hint = handshake.suite.has_psk().then_some(hint.as_slice());
    let (own, params) = match (signs, params) {
        (Some(own), Some(params)) => (own, params),
        // RFC 4279 §2, §4: without a share and a hint the server omits the message.
        (_, None) if hint.is_none_or(<[u8]>::is_empty) => return hello_done(cx, handshake, exchange),
        (_, params) => {
            let message = ServerKeyExchange::write(hint, params.as_ref(), None)?;
            cx.send_in(&mut handshake.transcript, message)?;
            return hello_done(cx, handshake, exchange);
        }
    };
    let content = signed_params(&handshake.randoms, &params.to_bytes()?);
    let then: prove::Signed = Box::new(move |cx, signature| {
        let signature = Some((own.scheme, signature.as_slice()));
        let message = ServerKeyExchange::write(None, Some(&params), signature)?;
        cx.send_in(&mut handshake.transcript, message)?;
        hello_done(cx, handshake, exchange)
    });
    prove::sign(cx, &profile, own, content, then)
}

fn hello_done(cx: &mut Cx<'_>, mut handshake: Handshake, exchange: ServerSide) -> Result<Step, Error> {
    if handshake.client_type.is_some() {
        let Handshake { config, transcript, cache, .. } = &mut handshake;
        match cache.as_ref().and_then(|cache| cache.request()) {
            Some((request, form)) => {
                cx.send_in(transcript, form.write(HandshakeType::CERTIFICATE_REQUEST, &request)?)?;
                form.bind(transcript, &request);
            }
            None => cx.send_in(transcript, certificate_request(config).write()?)?,
        }
    }
    cx.send_in(&mut handshake.transcript, server_hello_done::write()?)?;
    cx.emitter.end_of_flight()?;
    Ok(match handshake.client_type {
        Some(certificate_type) => Step::expect(ExpectCertificate { handshake, exchange, certificate_type }),
        None => Step::expect(ExpectClientKeyExchange { handshake, exchange, client: None }),
    })
}

fn certificate_request(config: &ServerConfig) -> Tls12CertificateRequest {
    let profile = &config.profile;
    let mut schemes = profile.signature_schemes.clone();
    // RFC 5246 §7.4.4: the list has at least one scheme. If none of the profile's schemes fits TLS 1.2, the
    // server sends them anyway, and the client finds no match.
    if schemes.iter().any(|scheme| has_scheme(*scheme)) {
        schemes.retain(|scheme| has_scheme(*scheme));
    }
    let mut types: Vec<_> = schemes.iter().copied().map(Tls12CertificateRequest::type_of).collect();
    types.sort_unstable();
    types.dedup();
    let authorities = profile.authorities();
    Tls12CertificateRequest { types, schemes, authorities }
}

struct ExpectCertificate {
    handshake: Handshake,
    exchange: ServerSide,
    certificate_type: CertificateType,
}

impl ExpectMessage for ExpectCertificate {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { mut handshake, exchange, certificate_type } = *self;
        let body = message.expect(HandshakeType::CERTIFICATE)?;
        handshake.transcript.add(&message);
        let profile = Arc::clone(&handshake.config.profile);
        // docs/handshake-cache.md §3: a client's Certificate has only one abbreviated form.
        let cached = handshake.cache.as_mut().and_then(|cache| cache.take_client());
        if let Some(cached) = cached.filter(|cached| Form::Empty.is(body, cached.fingerprint())) {
            Form::Empty.bind(&mut handshake.transcript, cached.fingerprint());
            cx.draft.take_peer_from_cache();
            let client = Some(BelievedPeer::cached(profile, cached, cx.now)?);
            return Ok(Step::expect(ExpectClientKeyExchange { handshake, exchange, client }));
        }
        let certificate = Certificate::read_tls12(body, certificate_type)?;
        let chain: Vec<_> = certificate.entries.iter().map(|c| CertificateDer::from(c.to_vec())).collect();
        if chain.is_empty() {
            return match handshake.config.client_auth {
                ClientAuth::Required => Err(AuthenticationFailure::NoCertificate.into()),
                _ => Ok(Step::expect(ExpectClientKeyExchange { handshake, exchange, client: None })),
            };
        }
        let peer = Side::Client;
        let name = None;
        let staples = Staples::default();
        let usage = KeyUse::Sign;
        let subject =
            Subject { profile, certificate_type, chain, peer, name, staples, usage, is_cacheable: true };
        let then: Believed = Box::new(move |_, believed| {
            Ok(Step::expect(ExpectClientKeyExchange { handshake, exchange, client: Some(believed) }))
        });
        subject.verify(cx, then)
    }
}

struct ExpectClientKeyExchange {
    handshake: Handshake,
    exchange: ServerSide,
    /// The client whose chain or key was accepted, and that must still prove possession of the key.
    client: Option<BelievedPeer>,
}

impl ExpectMessage for ExpectClientKeyExchange {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { mut handshake, exchange, client } = *self;
        let body = message.expect(HandshakeType::CLIENT_KEY_EXCHANGE)?;
        let read = ClientKeyExchange::read(body, handshake.suite)?;
        handshake.transcript.add(&message);
        let identity = read.identity.to_vec();
        let share = read.share.to_vec();
        if !handshake.suite.has_psk() {
            return keys_agreed(cx, handshake, exchange, &share, None, client);
        }
        let known = look_up(handshake.config.psks.as_ref(), &identity, cx.now);
        let known = known.ok_or_else(|| Question::FindPsk { identity: identity.clone() });
        cx.ask(known, Box::new(AwaitPsk { handshake, exchange, identity, share }))
    }
}

/// Waits for the PSK of an identity.
struct AwaitPsk {
    handshake: Handshake,
    exchange: ServerSide,
    identity: Vec<u8>,
    share: Vec<u8>,
}

impl AwaitAnswer for AwaitPsk {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Self { handshake, exchange, identity, share } = *self;
        let Answer::Psk(psk) = answer else { return Err(Misuse::WrongAnswer.into()) };
        // RFC 4279 §2: after an unknown identity the server continues with a random key. The handshake fails
        // as with a wrong key, so the client cannot probe for identities.
        let provider = &handshake.config.profile.provider;
        let mut random = zeroize::Zeroizing::new([0; 32]);
        provider.random.fill(&mut *random)?;
        let unknown = Psk::new("unknown", &*random)?;
        let psk = psk.as_deref().filter(|psk| psk.is_for(cx.protocol().version())).unwrap_or(&unknown);
        let peer = PeerIdentity::Psk(PskIdentity::new(identity, psk, provider.sha256));
        keys_agreed(cx, handshake, exchange, &share, Some((peer, psk.key())), None)
    }
}

/// Derives the master secret, then waits for the client's remaining messages.
fn keys_agreed(
    cx: &mut Cx<'_>,
    mut handshake: Handshake,
    exchange: ServerSide,
    share: &[u8],
    psk: Option<(PeerIdentity, &[u8])>,
    client: Option<BelievedPeer>,
) -> Result<Step, Error> {
    let key = psk.as_ref().map(|(_, key)| *key);
    let premaster = exchange.complete(&handshake.config.profile, share, handshake.client_version, key)?;
    let session_hash = handshake.extended.then(|| handshake.transcript.current());
    let session_hash = session_hash.as_ref().map(AsRef::as_ref);
    let master = MasterSecret::new(handshake.suite, &premaster, &handshake.randoms, session_hash);
    cx.effects.log_secret("CLIENT_RANDOM", master.bytes().as_ref());
    // RFC 5246 §7.4.8: CertificateVerify signs all messages so far, not their hash.
    let messages = handshake.transcript.take_messages();
    match client {
        Some(client) => Ok(Step::expect(ExpectCertificateVerify { handshake, master, messages, client })),
        None => {
            let peer = psk.map(|(peer, _)| peer);
            expect_finished(cx, handshake, master, peer, None)
        }
    }
}

struct ExpectCertificateVerify {
    handshake: Handshake,
    master: MasterSecret,
    messages: Vec<u8>,
    client: BelievedPeer,
}

impl ExpectMessage for ExpectCertificateVerify {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { mut handshake, master, messages, client } = *self;
        let body = message.expect(HandshakeType::CERTIFICATE_VERIFY)?;
        let verify = CertificateVerify::read(HandshakeType::CERTIFICATE_VERIFY, body)?;
        let algorithms = algorithms(client.profile(), verify.scheme, has_scheme)?;
        let authenticated = client.prove(cx, verify.scheme, &algorithms, &messages, verify.signature)?;
        handshake.transcript.add(&message);
        if let Some(cache) = &mut handshake.cache {
            cache.client_proven(Some(authenticated.vouched));
        }
        expect_finished(cx, handshake, master, Some(authenticated.identity), None)
    }
}

/// Gives the transport the client's keys and waits for its Finished. The client's next record must be its
/// ChangeCipherSpec. `sent` is the server's Finished, which it sends first in a resumption.
fn expect_finished(
    cx: &mut Cx<'_>,
    handshake: Handshake,
    master: MasterSecret,
    peer: Option<PeerIdentity>,
    sent: Option<VerifyData>,
) -> Result<Step, Error> {
    // A client has only one identity: with a PSK suite the server requests no certificate.
    check_same_peer(cx, peer.as_ref(), None)?;
    let (theirs, _) = master.keys(&handshake.randoms);
    cx.emitter.read_keys(Epoch::Handshake, &theirs)?;
    Ok(Step::expect(ExpectFinished { handshake, master, peer, sent }))
}

struct ExpectFinished {
    handshake: Handshake,
    master: MasterSecret,
    peer: Option<PeerIdentity>,
    sent: Option<VerifyData>,
}

impl ExpectMessage for ExpectFinished {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { mut handshake, master, peer, sent } = *self;
        let body = message.expect(HandshakeType::FINISHED)?;
        let hash = handshake.transcript.current();
        let (_valid, client) = master.verify_finished(Side::Client, hash.as_ref(), body)?;
        handshake.transcript.add(&message);
        // The client of a session was weighed before its session was resumed. A renegotiation changes no
        // identity.
        let is_known = sent.is_some() || handshake.previous.is_some();
        let config = &handshake.config;
        let question = if is_known { None } else { rank::question(cx, config, peer.as_ref())? };
        let finished = Finished { handshake, master, peer, sent, client };
        let Some(question) = question else { return finished.established(cx, None) };
        let then: rank::Then = Box::new(move |cx, needed| {
            let target = finished.target(cx, &needed)?;
            finished.established(cx, target)
        });
        rank::ask(cx, question, then)
    }
}

/// A handshake in which the client's Finished is verified.
struct Finished {
    handshake: Handshake,
    master: MasterSecret,
    peer: Option<PeerIdentity>,
    /// The server's Finished, if it came first.
    sent: Option<VerifyData>,
    /// The client's Finished.
    client: VerifyData,
}

impl Finished {
    /// The renegotiation to the profile `needed` of the client's identity, if there must be one and can be
    /// one.
    fn target(&self, cx: &Cx<'_>, needed: &Arc<ServerConfig>) -> Result<Option<Target>, Error> {
        let Handshake { config, own, extended, secure, .. } = &self.handshake;
        let Some(client) = &self.peer else { return Ok(None) };
        let first = First { config, client, own: *own, extended: *extended, secure: *secure };
        Target::of(cx, &first, needed)
    }

    /// Sends the server's Finished if it is due, and begins the connection, perhaps with a renegotiation to
    /// `target`.
    fn established(self, cx: &mut Cx<'_>, target: Option<Target>) -> Result<Step, Error> {
        let Self { mut handshake, master, peer, sent, client } = self;
        let server = match sent {
            Some(value) => value,
            None => {
                cx.emitter.peer_waits()?;
                if target.as_ref().is_some_and(|target| target.is_demanded) {
                    // The profile is too weak for a session of this client.
                    keep_nothing(cx, &mut handshake)?;
                } else {
                    keep_session(cx, &mut handshake, &master, peer.as_ref())?;
                }
                send_finished(cx, Side::Server, &mut handshake.transcript, &handshake.randoms, &master)?
            }
        };
        let Handshake { config, randoms, extended, secure, keep, previous, cache, .. } = handshake;
        let lasting = config.in_place_of.as_ref().unwrap_or(&config);
        let completed = Completed {
            role: Role::Server(Arc::clone(lasting)),
            master,
            randoms,
            finisheds: Finisheds { client, server },
            peer,
            extended,
            secure_renegotiation: secure,
            renegotiated: previous.is_some(),
        };
        let state = match target {
            Some(target) => target.request(cx, completed)?,
            None => completed.connected(cx)?,
        };
        // Only now: a client that knows only the name of a session must not be able to have it removed.
        if let Keep::Id(id) = keep {
            cx.commit.kept.extend(config.tickets.kept(&id));
        }
        if let Some(cache) = cache {
            cache.keep(cx, &config)?;
        }
        Ok(state)
    }
}

/// Keeps no session. A server that promised a ticket sends an empty one (RFC 5077 §3.3).
fn keep_nothing(cx: &mut Cx<'_>, handshake: &mut Handshake) -> Result<(), Error> {
    if let Keep::Ticket = core::mem::replace(&mut handshake.keep, Keep::Nothing) {
        let message = Tls12NewSessionTicket { lifetime_hint: 0, ticket: &[] }.write()?;
        cx.send_in(&mut handshake.transcript, message)?;
    }
    Ok(())
}

/// Stores the session, or sends it to the client as a ticket, as the ServerHello announced.
fn keep_session(
    cx: &mut Cx<'_>,
    handshake: &mut Handshake,
    master: &MasterSecret,
    peer: Option<&PeerIdentity>,
) -> Result<(), Error> {
    let config = Arc::clone(&handshake.config);
    let lifetime_s = u32::try_from(config.tickets.lifetime.as_secs()).unwrap_or(u32::MAX);
    let session = Session {
        transport: cx.protocol().transport(),
        cipher_suite: handshake.suite.id,
        psk: master.bytes().clone(),
        issued_ms: cx.now.unix_ms,
        authenticated_ms: cx.now.unix_ms,
        lifetime_s,
        age_add: 0,
        peer: peer.cloned(),
        settings: config.digests.trust,
        rank: config.profile.rank,
        good_until_s: cx.draft.good_until_s(),
        server_name: cx.draft.server_name.clone(),
        early: None,
        beside: None,
    };
    match (&handshake.keep, &config.tickets.kind) {
        (Keep::Ticket, TicketKind::Stateless(seal)) => {
            let plain = session.to_ticket()?;
            // RFC 5077 §3.3: a server that promised a ticket but has none sends an empty one.
            let ticket = plain.and_then(|plain| seal.seal(cx.now, config.digests.trust.as_bytes(), &plain));
            let ticket = ticket.unwrap_or_default();
            let message = Tls12NewSessionTicket { lifetime_hint: lifetime_s, ticket: &ticket }.write()?;
            cx.send_in(&mut handshake.transcript, message)?;
        }
        (Keep::Id(id), TicketKind::Stateless(_)) => {
            if let Some(store) = &config.tickets.ids {
                store.put(id, session);
            }
        }
        (Keep::Id(id), TicketKind::Stateful(store)) => store.put(id, session),
        (Keep::Id(id), _) => cx.effects.event(Event::NewSession(id.to_vec(), session)),
        (Keep::Nothing | Keep::Ticket, _) => {}
    }
    Ok(())
}
