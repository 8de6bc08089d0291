//! The TLS 1.2 client, from the ServerHello on.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;

use pki_types::{CertificateDer, SubjectPublicKeyInfoDer};

use super::reverify;
use crate::address::ServerAddress;
use crate::auth::select::{self, Wanted};
use crate::auth::verifier::KeyUse;
use crate::auth::{PeerIdentity, Psk, PskIdentity};
use crate::cache::CachedPeer;
use crate::crypto::{Tls12CipherSuite, Tls12KeyExchange};
use crate::error::{Error, Internal, Malformed, Misuse, PeerIncompatible, PeerMisbehaved};
use crate::handshake::cached::client::HasFinished;
use crate::handshake::cached::{Form, Use};
use crate::handshake::event::Event;
use crate::handshake::key_exchange::ClientSide;
use crate::handshake::negotiate::psk::session_key;
use crate::handshake::negotiate::renegotiation_info::Finisheds;
use crate::handshake::negotiate::{self, Answers, Offer, Terms, extended_master_secret};
use crate::handshake::negotiated::HandshakeKind;
use crate::handshake::post::MAX_TICKET_LEN;
use crate::handshake::progress::Renegotiation;
use crate::handshake::question::{Answer, Question};
use crate::handshake::setup::ClientConfig;
use crate::handshake::tls12::{
    Completed, Role, algorithms, check_same_peer, has_scheme, send_finished, signed_params,
};
use crate::handshake::verify::{Believed, BelievedPeer, Subject};
use crate::handshake::{AwaitAnswer, Cx, ExpectMessage, Step, prove};
use crate::message::{
    Certificate, CertificateVerify, ClientKeyExchange, Message, ServerHello, ServerKeyExchange, ServerParams,
    Staples, Tls12CertificateRequest, Tls12NewSessionTicket, certificate_status, server_hello_done,
};
use crate::protocol::Side;
use crate::resume::{ClientSession, DEFAULT_LIFETIME, MAX_LIFETIME, Session};
use crate::schedule::tls12::{MasterSecret, Randoms, VerifyData};
use crate::schedule::{HelloTranscript, Tls12Transcript};
use crate::settings::PskChoice;
use crate::transport::Epoch;
use crate::wire::{Field, HandshakeType, ProtocolVersion};

/// The first pre-shared key that TLS 1.2 can use.
fn first_psk(config: &ClientConfig) -> Option<&Arc<Psk>> {
    config.psks.iter().find(|psk| psk.is_for(ProtocolVersion::TLS1_2))
}

/// Whether the client has a pre-shared key, or can ask the caller for one.
fn has_psk(config: &ClientConfig) -> bool {
    !matches!(config.psk_choice, PskChoice::First) || first_psk(config).is_some()
}

/// The suites that this client can use with its trust and keys.
pub(in crate::handshake) fn usable_suites(config: &ClientConfig) -> Vec<&'static Tls12CipherSuite> {
    let suites = config.profile.tls12.iter().flat_map(|tls12| tls12.suites.iter().copied());
    let encrypts = config.profile.tls12.as_ref().is_some_and(|tls12| tls12.rsa.is_some());
    let is_usable = |suite: &&Tls12CipherSuite| {
        (!suite.has_certificate() || !config.profile.trust.is_empty())
            && (!suite.has_psk() || has_psk(config))
            && (suite.key_exchange != Tls12KeyExchange::Rsa || encrypts)
    };
    suites.filter(is_usable).collect()
}

/// The state that the rest of the handshake shares.
struct Handshake {
    terms: Terms,
    suite: &'static Tls12CipherSuite,
    randoms: Randoms,
    transcript: Tls12Transcript,
    /// The session that the client may store.
    sessions: Sessions,
}

/// The session that a client may store: a new one, or the one that it resumes.
struct Sessions {
    /// The server's session ID, or its ticket.
    new: Option<ClientTicket>,
    /// The session that this handshake resumes. The client can resume it again later.
    resumed: Option<Box<ClientSession>>,
}

/// The name of a new session and its lifetime.
struct ClientTicket {
    ticket: Arc<[u8]>,
    is_id: bool,
    lifetime_s: u32,
}

/// Handles a ServerHello that selects TLS 1.2, then waits for the message that the suite requires next.
pub(in crate::handshake) fn server_hello(
    cx: &mut Cx<'_>,
    offer: Offer,
    transcript: HelloTranscript,
    message: &Message,
    hello: &ServerHello<'_>,
) -> Result<Step, Error> {
    let Offer { mut terms, random, session_id, tls12_suites, tls12_session, .. } = offer;
    let extensions = &hello.extensions;
    cx.progress.renegotiation = Renegotiation::Impossible;
    extensions.answer(&terms.offered)?;
    cx.emitter.agree(cx.protocol().oldest())?;
    let version = cx.protocol().version();
    cx.draft.version = Some(version);
    let suite = tls12_suites.into_iter().find(|s| s.id == hello.cipher_suite);
    let suite = suite.ok_or(PeerMisbehaved::NotOffered(Field::CipherSuite))?;
    // RFC 5246 §7.4.1.3: an echoed session ID resumes a session. The ID of the compatibility mode names no
    // session, so the server must not echo it (RFC 8446 §D.4).
    let is_echo = !hello.session_id.is_empty() && hello.session_id == session_id;
    let resumed = if is_echo { tls12_session } else { None };
    if is_echo && resumed.as_ref().is_none_or(|s| s.session.cipher_suite != suite.id) {
        return Err(PeerMisbehaved::IllegalParameter(Field::SessionIdOfNoSession).into());
    }
    cx.draft.cipher_suite = Some(suite.id);
    cx.draft.profile.clone_from(&terms.config.profile.name);
    // docs/handshake-cache.md §5, rule 7: a resumption does not use the cache, since no certificate
    // authenticates a peer.
    let cache = match resumed {
        Some(_) => Use::Nothing,
        None => Use::in_tls12(suite, extended_master_secret::is_in(extensions)),
    };
    let resumes = resumed.is_some();
    let answers = Answers { extensions, version, suite: suite.id, cache, resumes };
    negotiate::accept_tls12(cx, &mut terms, &answers)?;
    let mut transcript = transcript.start_tls12(suite.hash, cx.protocol().oldest());
    transcript.add(message);
    let randoms = Randoms { client: random, server: hello.random };
    // RFC 5246 §7.4.1.2: a nonempty session ID from the server names a resumable session. The client keeps
    // only the session of the first handshake.
    let has_id = !is_echo && !hello.session_id.is_empty() && terms.previous.is_none();
    let new = has_id.then(|| ClientTicket {
        ticket: hello.session_id.into(),
        is_id: true,
        lifetime_s: u32::try_from(DEFAULT_LIFETIME.as_secs()).unwrap_or(u32::MAX),
    });
    let sessions = Sessions { new, resumed };
    let handshake = Handshake { terms, suite, randoms, transcript, sessions };
    if handshake.sessions.resumed.is_some() {
        return resume(cx, handshake);
    }
    Ok(if suite.has_certificate() {
        Step::expect(ExpectCertificate { handshake })
    } else {
        Step::expect(ExpectServerKeyExchange { handshake, believed: None })
    })
}

/// Continues when the server resumes a session: its Finished is next (RFC 5246 §7.3, figure 2).
fn resume(cx: &mut Cx<'_>, handshake: Handshake) -> Result<Step, Error> {
    let session = handshake.sessions.resumed.as_ref().ok_or(Internal::Bug(Field::NoSession))?;
    let master = MasterSecret::resumed(handshake.suite, session.session.psk.clone());
    let peer = session.session.peer.clone();
    cx.draft.kind = HandshakeKind::Resumed;
    cx.draft.peer_validity = session.session.validity();
    cx.effects.log_secret("CLIENT_RANDOM", master.bytes().as_ref());
    let config = Arc::clone(&handshake.terms.config);
    let server = handshake.terms.server.clone();
    let then: reverify::Then = {
        let peer = peer.clone();
        Box::new(move |cx| expect_finished(cx, handshake, master, peer, None))
    };
    if config.reverify {
        reverify::reverify(cx, &config.profile, &server, peer.as_ref(), then)
    } else {
        then(cx)
    }
}

struct ExpectCertificate {
    handshake: Handshake,
}

impl ExpectMessage for ExpectCertificate {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { mut handshake } = *self;
        let body = message.expect(HandshakeType::CERTIFICATE)?;
        let typ = handshake.terms.types.server;
        handshake.transcript.add(&message);
        let shown = match handshake.terms.cache.agreed().and_then(|agreed| agreed.certificate(body, typ)) {
            Some((peer, form)) => {
                form.bind(&mut handshake.transcript, &peer.fingerprint);
                cx.draft.take_peer_from_cache();
                Shown::Cached(peer)
            }
            None => {
                let certificate = Certificate::read_tls12(body, typ)?;
                let chain: Vec<_> =
                    certificate.entries.iter().map(|c| CertificateDer::from(c.to_vec())).collect();
                // RFC 5246 §7.4.2: a server must send a certificate.
                if chain.is_empty() {
                    return Err(Malformed::Length(Field::CertificateList).into());
                }
                Shown::Chain(chain)
            }
        };
        if handshake.terms.ocsp {
            Ok(Step::expect(ExpectCertificateStatus { handshake, shown }))
        } else {
            verify(cx, handshake, shown, None, None)
        }
    }
}

/// How the server identified itself.
enum Shown {
    /// By a chain or raw public key.
    Chain(Vec<CertificateDer<'static>>),
    /// By an abbreviated message: it is the server in this cache entry.
    Cached(Box<CachedPeer>),
}

struct ExpectCertificateStatus {
    handshake: Handshake,
    shown: Shown,
}

impl ExpectMessage for ExpectCertificateStatus {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { mut handshake, shown } = *self;
        // RFC 6066 §8: the server may omit CertificateStatus although it acknowledged the request.
        if message.typ != HandshakeType::CERTIFICATE_STATUS {
            return verify(cx, handshake, shown, None, Some(message));
        }
        let response = certificate_status::read(message.body())?;
        handshake.transcript.add(&message);
        verify(cx, handshake, shown, Some(response), None)
    }
}

/// Verifies the server's chain or key. `next` is the following message, if it has already arrived.
fn verify(
    cx: &mut Cx<'_>,
    handshake: Handshake,
    shown: Shown,
    ocsp_response: Option<Vec<u8>>,
    next: Option<Message>,
) -> Result<Step, Error> {
    let profile = Arc::clone(&handshake.terms.config.profile);
    let chain = match shown {
        Shown::Chain(chain) => chain,
        Shown::Cached(peer) => {
            let believed = BelievedPeer::cached(profile, peer, cx.now)?;
            return believe(cx, handshake, believed, next);
        }
    };
    let usage = match handshake.suite.key_exchange {
        Tls12KeyExchange::Rsa => KeyUse::Encrypt,
        Tls12KeyExchange::Ecdhe | Tls12KeyExchange::Dhe | Tls12KeyExchange::Psk => KeyUse::Sign,
    };
    let subject = Subject {
        profile,
        certificate_type: handshake.terms.types.server,
        chain,
        peer: Side::Server,
        name: Some(handshake.terms.server.name.clone()),
        staples: Staples { ocsp_response, ..Staples::default() },
        usage,
        is_cacheable: true,
    };
    let then: Believed = Box::new(move |cx, believed| believe(cx, handshake, believed, next));
    subject.verify(cx, then)
}

/// Continues after the server's chain or key was accepted. The server must still prove possession of the key.
fn believe(
    cx: &mut Cx<'_>,
    handshake: Handshake,
    believed: BelievedPeer,
    next: Option<Message>,
) -> Result<Step, Error> {
    let state = Box::new(ExpectServerKeyExchange { handshake, believed: Some(believed) });
    match next {
        Some(message) => state.message(cx, message),
        None => Ok(Step::Message(state)),
    }
}

struct ExpectServerKeyExchange {
    handshake: Handshake,
    /// The server's accepted chain or key, in suites with a certificate.
    believed: Option<BelievedPeer>,
}

impl ExpectMessage for ExpectServerKeyExchange {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { mut handshake, believed } = *self;
        let suite = handshake.suite;
        // RFC 4279 §2, §4: with PSK and RSA_PSK the server omits ServerKeyExchange if it has no hint. RFC
        // 5246 §7.4.3: with RSA it never sends one.
        let optional = matches!(suite.key_exchange, Tls12KeyExchange::Psk | Tls12KeyExchange::Rsa);
        let is_here = message.typ == HandshakeType::SERVER_KEY_EXCHANGE && suite.has_psk();
        if optional && !is_here {
            let exchange = Exchange::without_params(cx, believed, &[])?;
            let state = Box::new(ExpectServerHelloDone { handshake, exchange, request: None });
            return state.message(cx, message);
        }
        let body = message.expect(HandshakeType::SERVER_KEY_EXCHANGE)?;
        let read = ServerKeyExchange::read(body, suite)?;
        let exchange = match (believed, read.signature) {
            (Some(believed), Some((scheme, signature))) => {
                let profile = &handshake.terms.config.profile;
                let algorithms = algorithms(profile, scheme, |s| suite.authentication.allows(s))?;
                let content = signed_params(&handshake.randoms, read.signed);
                let server = believed.prove(cx, scheme, &algorithms, &content, signature)?;
                if let Some(agreed) = handshake.terms.cache.agreed_mut() {
                    agreed.server_proven(Some(server.vouched));
                }
                let peer = Some(server.identity);
                Exchange { peer, params: read.params, recipient: None, hint: Vec::new() }
            }
            (None, None) => {
                Exchange { peer: None, params: read.params, recipient: None, hint: read.hint.to_vec() }
            }
            (believed, _) => Exchange::without_params(cx, believed, read.hint)?,
        };
        handshake.transcript.add(&message);
        Ok(Step::expect(ExpectServerHelloDone { handshake, exchange, request: None }))
    }
}

/// The server's part of the key exchange.
struct Exchange {
    /// The server that signed it, or that can decrypt the client's secret.
    peer: Option<PeerIdentity>,
    params: Option<ServerParams>,
    /// With static RSA, the key to which the client encrypts its secret.
    recipient: Option<SubjectPublicKeyInfoDer<'static>>,
    /// The psk_identity_hint.
    hint: Vec<u8>,
}

impl Exchange {
    /// A key exchange without a server share. In RSA suites the client encrypts its secret to `believed`.
    fn without_params(cx: &mut Cx<'_>, believed: Option<BelievedPeer>, hint: &[u8]) -> Result<Self, Error> {
        let (peer, recipient) = believed.map(|believed| believed.recipient(cx)).transpose()?.unzip();
        Ok(Self { peer, params: None, recipient, hint: hint.to_vec() })
    }
}

/// Waits for ServerHelloDone. A CertificateRequest may precede it.
struct ExpectServerHelloDone {
    handshake: Handshake,
    exchange: Exchange,
    request: Option<Tls12CertificateRequest>,
}

impl ExpectMessage for ExpectServerHelloDone {
    fn message(mut self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        // RFC 5246 §7.4.4: only a server that authenticates by certificate may request one.
        let may_ask = self.handshake.suite.may_ask_for_certificate() && self.request.is_none();
        if message.typ == HandshakeType::CERTIFICATE_REQUEST && may_ask {
            let Handshake { terms, transcript, .. } = &mut self.handshake;
            transcript.add(&message);
            let cached = terms.cache.agreed_mut().and_then(|agreed| agreed.certificate_request(&message));
            self.request = Some(match cached {
                Some((whole, fingerprint, form)) => {
                    form.bind(transcript, &fingerprint);
                    Tls12CertificateRequest::read(whole.body())?
                }
                None => Tls12CertificateRequest::read(message.body())?,
            });
            return Ok(Step::Message(self));
        }
        // RFC 5246 §7.4.4: a CertificateRequest from an anonymous server is a fatal error.
        if message.typ == HandshakeType::CERTIFICATE_REQUEST && self.handshake.suite.is_anonymous() {
            return Err(PeerMisbehaved::AnonymousRequest.into());
        }
        server_hello_done::read(&message)?;
        self.handshake.transcript.add(&message);
        // The server waits for the client, so none of its second flight can have arrived.
        cx.emitter.peer_waits()?;
        let Self { mut handshake, exchange, request } = *self;
        let choice = match request {
            Some(request) => send_certificate(cx, &mut handshake, &request)?,
            // docs/handshake-cache.md §3: a server that accepts a ticket must send a CertificateRequest.
            None if handshake.terms.cache.agreed().is_some_and(|agreed| agreed.uses_ticket()) => {
                let why = Field::CacheTicketWithoutRequest;
                return Err(PeerMisbehaved::IllegalParameter(why).into());
            }
            None => None,
        };
        if !handshake.suite.has_psk() {
            return key_exchange(cx, handshake, exchange, choice, None);
        }
        let config = &handshake.terms.config;
        let known = match &config.psk_choice {
            PskChoice::First => Ok(Answer::Psk(first_psk(config).cloned())),
            PskChoice::Here(keys) => Ok(Answer::Psk(keys.choose(&exchange.hint, cx.now))),
            PskChoice::Ask => Err(Question::ChoosePsk { hint: exchange.hint.clone() }),
        };
        cx.ask(known, Box::new(AwaitPsk { handshake, exchange, choice }))
    }
}

/// Waits for the caller to choose the pre-shared key.
struct AwaitPsk {
    handshake: Handshake,
    exchange: Exchange,
    choice: Option<select::Choice>,
}

impl AwaitAnswer for AwaitPsk {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Self { handshake, exchange, choice } = *self;
        let Answer::Psk(psk) = answer else { return Err(Misuse::WrongAnswer.into()) };
        let psk = psk.filter(|psk| psk.is_for(cx.protocol().version()));
        let psk = psk.ok_or(PeerIncompatible::NoPskForHint)?;
        key_exchange(cx, handshake, exchange, choice, Some(psk))
    }
}

/// Answers a CertificateRequest with a suitable credential, or with an empty Certificate.
fn send_certificate(
    cx: &mut Cx<'_>,
    handshake: &mut Handshake,
    request: &Tls12CertificateRequest,
) -> Result<Option<select::Choice>, Error> {
    let profile = &handshake.terms.config.profile;
    let own_type = handshake.terms.types.client;
    let types = [own_type];
    let wanted = Wanted {
        types: if profile.own_types().contains(&own_type) { &types } else { &[] },
        schemes: &request.schemes,
        allows: &|scheme| {
            has_scheme(scheme) && request.types.contains(&Tls12CertificateRequest::type_of(scheme))
        },
        chain_schemes: None,
        authorities: &request.authorities,
        server_name: None,
        did_methods: &[],
        by_messages: false,
    };
    let signatures = profile.provider.signatures;
    let choice =
        match select::select(signatures, &profile.credentials, &profile.certificates.reserved, &wanted) {
            Ok(choice) => Some(choice),
            Err(why) if handshake.terms.config.credential_required && !profile.credentials.is_empty() => {
                return Err(select::nothing_to_show(why).into());
            }
            // RFC 5246 §7.4.6: without a suitable credential the client sends an empty Certificate, and the
            // server decides.
            Err(_) => None,
        };
    let credential = choice.and_then(|c| profile.credentials.get(c.index));
    let cached = match handshake.terms.cache.agreed_mut() {
        Some(agreed) => agreed.proves_by(choice.map(|choice| choice.index)),
        None => None,
    };
    if let Some(fingerprint) = cached {
        // docs/handshake-cache.md §4: a client's abbreviated Certificate is always bound by the synthetic
        // message.
        let abbreviated = Form::Empty.write(HandshakeType::CERTIFICATE, &fingerprint)?;
        let full = credential.map_or(0, |own| Certificate::tls12_len(own_type, own.entries()));
        cx.draft.leave_own_out(full.saturating_sub(abbreviated.len()));
        cx.send_in(&mut handshake.transcript, abbreviated)?;
        Form::Empty.bind(&mut handshake.transcript, &fingerprint);
        return Ok(choice);
    }
    let message = match credential {
        Some(credential) => Certificate::write_tls12(own_type, credential.entries())?,
        None => Certificate::write_tls12(own_type, core::iter::empty())?,
    };
    cx.send_in(&mut handshake.transcript, message)?;
    Ok(choice)
}

/// Sends ClientKeyExchange. If the client sent a certificate, also proves possession of its key.
fn key_exchange(
    cx: &mut Cx<'_>,
    mut handshake: Handshake,
    Exchange { peer, params, recipient, .. }: Exchange,
    choice: Option<select::Choice>,
    psk: Option<Arc<Psk>>,
) -> Result<Step, Error> {
    let suite = handshake.suite;
    let profile = Arc::clone(&handshake.terms.config.profile);
    let psk = psk.as_deref();
    let identity = psk.map_or_else(Vec::new, |psk| psk.identity().to_vec());
    let recipient = recipient.as_ref().map(|key| (key, cx.protocol().legacy_version()));
    let key = psk.map(|psk| psk.key());
    let ClientSide { group, share, premaster } =
        ClientSide::respond(suite, &profile, params.as_ref(), recipient, key)?;
    cx.draft.group = group;
    // With a PSK suite the server's Finished proves that it has the key, so the key is its identity.
    let of_key =
        |psk: &Psk| PeerIdentity::Psk(PskIdentity::new(identity.clone(), psk, profile.provider.sha256));
    // With RSA_PSK the server proves the key and its certificate. The key is its identity, as on the server's
    // side.
    let (peer, certified) = match psk.map(of_key) {
        Some(of_key) => (Some(of_key), peer),
        None => (peer, None),
    };
    check_same_peer(cx, peer.as_ref(), certified.as_ref())?;
    cx.draft.peer_certified = certified.map(Box::new);
    let exchange = ClientKeyExchange { identity: &identity, share: &share }.write(suite)?;
    cx.send_in(&mut handshake.transcript, exchange)?;
    let session_hash = handshake.terms.extended.then(|| handshake.transcript.current());
    let session_hash = session_hash.as_ref().map(AsRef::as_ref);
    let master = MasterSecret::new(suite, &premaster, &handshake.randoms, session_hash);
    cx.effects.log_secret("CLIENT_RANDOM", master.bytes().as_ref());
    // RFC 5246 §7.4.8: CertificateVerify signs all messages so far, not their hash.
    let messages = handshake.transcript.take_messages();
    let Some(choice) = choice else { return finish(cx, handshake, master, peer) };
    let then: prove::Signed = Box::new(move |cx, signature| {
        let verify = CertificateVerify::write(HandshakeType::CERTIFICATE_VERIFY, choice.scheme, &signature)?;
        cx.send_in(&mut handshake.transcript, verify)?;
        finish(cx, handshake, master, peer)
    });
    prove::sign(cx, &profile, choice, messages, then)
}

/// Sends the client's Finished, then waits for the server's.
fn finish(
    cx: &mut Cx<'_>,
    mut handshake: Handshake,
    master: MasterSecret,
    peer: Option<PeerIdentity>,
) -> Result<Step, Error> {
    let value = send_finished(cx, Side::Client, &mut handshake.transcript, &handshake.randoms, &master)?;
    expect_finished(cx, handshake, master, peer, Some(value))
}

/// Waits for the server's ChangeCipherSpec and Finished, and before them for a ticket if the server promised
/// one. `sent` is the client's Finished, if it was sent already.
fn expect_finished(
    cx: &mut Cx<'_>,
    handshake: Handshake,
    master: MasterSecret,
    peer: Option<PeerIdentity>,
    sent: Option<VerifyData>,
) -> Result<Step, Error> {
    let state = ExpectFinished { handshake, master, peer, sent };
    if state.handshake.terms.ticket_promised {
        return Ok(Step::expect(ExpectNewSessionTicket(state)));
    }
    state.armed(cx)
}

/// Waits for the ticket that the server has promised.
struct ExpectNewSessionTicket(ExpectFinished);

impl ExpectMessage for ExpectNewSessionTicket {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self(mut state) = *self;
        let body = message.expect(HandshakeType::NEW_SESSION_TICKET)?;
        let read = Tls12NewSessionTicket::read(body)?;
        state.handshake.transcript.add(&message);
        // RFC 5077 §3.3: an empty ticket means none. A lifetime hint of zero means unspecified.
        if (1..=MAX_TICKET_LEN).contains(&read.ticket.len()) {
            let default = u32::try_from(DEFAULT_LIFETIME.as_secs()).unwrap_or(u32::MAX);
            let most = u32::try_from(MAX_LIFETIME.as_secs()).unwrap_or(u32::MAX);
            let lifetime_s = if read.lifetime_hint == 0 { default } else { read.lifetime_hint.min(most) };
            let ticket = ClientTicket { ticket: read.ticket.into(), is_id: false, lifetime_s };
            state.handshake.sessions.new = Some(ticket);
        }
        state.armed(cx)
    }
}

/// Waits for the server's Finished. The transport handles its ChangeCipherSpec.
struct ExpectFinished {
    handshake: Handshake,
    master: MasterSecret,
    peer: Option<PeerIdentity>,
    /// The client's Finished, if it was sent already. In a resumption the client sends it last.
    sent: Option<VerifyData>,
}

impl ExpectFinished {
    /// Gives the transport the server's keys. The server's next record must be its ChangeCipherSpec.
    fn armed(self, cx: &mut Cx<'_>) -> Result<Step, Error> {
        let (_, theirs) = self.master.keys(&self.handshake.randoms);
        cx.emitter.read_keys(Epoch::Handshake, &theirs)?;
        Ok(Step::expect(self))
    }
}

impl ExpectMessage for ExpectFinished {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { mut handshake, master, peer, sent } = *self;
        let body = message.expect(HandshakeType::FINISHED)?;
        let hash = handshake.transcript.current();
        let (_valid, server) = master.verify_finished(Side::Server, hash.as_ref(), body)?;
        handshake.transcript.add(&message);
        let client = match sent {
            Some(value) => value,
            None => {
                cx.emitter.peer_waits()?;
                send_finished(cx, Side::Client, &mut handshake.transcript, &handshake.randoms, &master)?
            }
        };
        let Handshake { terms, suite, randoms, sessions, .. } = handshake;
        let Terms { config, server: address, previous, extended, cache, .. } = terms;
        cx.commit.on_failure = None;
        cx.draft.server_name = Some(address.host());
        // RFC 7627 §5.4: a session without the extended master secret is not resumed. Nor is a session with
        // RSA_PSK: it remembers only the pre-shared key, and would outlive the certificate.
        let is_kept = extended && !(suite.has_psk() && suite.has_certificate());
        let session =
            is_kept.then(|| sessions.into_session(cx, &config, &address, suite, &master, peer.as_ref()));
        let completed = Completed {
            role: Role::Client(Arc::clone(&config), address.clone()),
            master,
            randoms,
            finisheds: Finisheds { client, server },
            peer,
            extended,
            secure_renegotiation: true,
            renegotiated: previous.is_some(),
        };
        let state = completed.connected(cx)?;
        if let Some(agreed) = cache.into_agreed() {
            agreed.keep(cx, &config, HasFinished::Yes)?;
        }
        if let (Some((session, is_new)), Some(store)) = (session.flatten(), &config.sessions) {
            let key = session_key(&config, &address, cx.protocol());
            cx.commit.keep_session(store, key, session);
            if is_new {
                cx.effects.event(Event::TicketReceived);
            }
        }
        Ok(state)
    }
}

impl Sessions {
    /// The session to keep, and whether it is new.
    fn into_session(
        self,
        cx: &Cx<'_>,
        config: &ClientConfig,
        server: &ServerAddress,
        suite: &Tls12CipherSuite,
        master: &MasterSecret,
        peer: Option<&PeerIdentity>,
    ) -> Option<(ClientSession, bool)> {
        let Some(ClientTicket { ticket, is_id, lifetime_s }) = self.new else {
            return self.resumed.map(|session| (*session, false));
        };
        let before = self.resumed.map(|s| s.session.authenticated_ms);
        let session = Session {
            transport: cx.protocol().transport(),
            cipher_suite: suite.id,
            psk: master.bytes().clone(),
            issued_ms: cx.now.unix_ms,
            // The age of a renewed session counts from the server's last full authentication.
            authenticated_ms: before.unwrap_or(cx.now.unix_ms),
            lifetime_s,
            age_add: 0,
            peer: peer.cloned(),
            settings: config.session_settings,
            rank: config.profile.rank,
            good_until_s: cx.draft.good_until_s(),
            server_name: Some(server.host()),
            early: None,
            beside: None,
        };
        Some((ClientSession { ticket, is_id, session }, true))
    }
}
