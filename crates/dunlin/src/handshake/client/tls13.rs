//! The TLS 1.3 and DTLS 1.3 client, from the ServerHello on.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::reverify;
use crate::address::ServerAddress;
use crate::auth::select;
use crate::auth::{PeerIdentity, PskIdentity};
use crate::crypto::Tls13CipherSuite;
use crate::early::NoEarlyData;
use crate::error::{Error, Internal, PeerMisbehaved};
use crate::handshake::cached::Use;
use crate::handshake::cached::client::HasFinished;
use crate::handshake::event::Event;
use crate::handshake::negotiate::psk::{OfferedPsk, session_key};
use crate::handshake::negotiate::ssi_parameters::SsiSteps;
use crate::handshake::negotiate::{
    self, Answers, CERTIFICATE_STEPS, CertificateSteps, Demands, Offer, Selection, Terms, early_data,
};
use crate::handshake::negotiated::HandshakeKind;
use crate::handshake::post::{MAX_TICKETS, OnTicket, TicketIntake, Traffic};
use crate::handshake::ssi::Asked;
use crate::handshake::verify::ExpectCertificate;
use crate::handshake::{Cx, ExpectMessage, Step, prove};
use crate::message::{self, CertificateRequest, Message, ServerHello, encrypted_extensions};
use crate::protocol::Side;
use crate::schedule::Transcript;
use crate::schedule::tls13::{EarlySecret, HandshakeSecret, MasterSecret, TrafficSecret};
use crate::settings::ProfileSettings;
use crate::transport::Epoch;
use crate::wire::{CertificateType, ExtensionType, Field, HandshakeType, SignatureScheme};

/// The state that the whole handshake shares.
struct Common {
    terms: Terms,
    suite: &'static Tls13CipherSuite,
    client_secret: TrafficSecret,
    /// When the server last authenticated without resumption, in milliseconds since 1970.
    authenticated_ms: u64,
    peer: Option<PeerIdentity>,
    /// The external PSK in the keys, beside certificates.
    beside: Option<Box<PskIdentity>>,
}

/// The handshake until the server's Finished.
pub(crate) struct Handshake {
    common: Common,
    secret: HandshakeSecret,
    server_secret: TrafficSecret,
}

/// Handles a ServerHello that selects TLS 1.3: derives the handshake keys and waits for the encrypted
/// messages.
pub(super) fn server_hello(
    cx: &mut Cx<'_>,
    mut offer: Offer,
    transcript: Transcript,
    suite: &'static Tls13CipherSuite,
    hello: &ServerHello<'_>,
) -> Result<Step, Error> {
    let Selection { psk, by_psk, shared, .. } = negotiate::select(cx, &mut offer, &hello.extensions, suite)?;
    let psk = psk.and_then(|index| offer.psks.get(index));
    let Offer { terms, session_id, .. } = &offer;
    let server = psk.filter(|_| by_psk).map(|psk| psk.server(cx, &terms.config));
    let (peer, authenticated_ms) = server.unwrap_or((None, cx.now.unix_ms));
    let beside = psk.and_then(|psk| psk.beside(&terms.config, by_psk));
    // docs/handshake-cache.md §5, rule 7: a handshake with a PSK uses nothing of the cache and stores
    // nothing.
    let cache = if psk.is_some() { Use::Nothing } else { Use::Tls13 };
    let version = cx.protocol().version();
    let negotiated = &mut cx.draft;
    negotiated.version = Some(version);
    negotiated.cipher_suite = Some(suite.id);
    match psk {
        Some(OfferedPsk::Session(session)) => {
            negotiated.kind = HandshakeKind::Resumed;
            // Before early data, the client has already verified the server again.
            session.session.validity().into_iter().for_each(|limit| negotiated.limit_validity(limit));
        }
        _ => negotiated.peer_validity = None,
    }
    negotiated.profile.clone_from(&terms.config.profile.name);
    negotiated.beside.clone_from(&beside);

    let early = psk.map(|psk| EarlySecret::new(suite, cx.protocol(), psk.key()));
    let secret = HandshakeSecret::new(suite, cx.protocol(), early, shared.as_ref());
    let hash = transcript.current();
    let client_secret = secret.traffic(Side::Client, hash.as_ref());
    let server_secret = secret.traffic(Side::Server, hash.as_ref());
    cx.effects.log_secret("CLIENT_HANDSHAKE_TRAFFIC_SECRET", client_secret.bytes());
    cx.effects.log_secret("SERVER_HANDSHAKE_TRAFFIC_SECRET", server_secret.bytes());
    cx.emitter.read_keys(Epoch::Handshake, &server_secret.keys(cx.protocol()))?;
    if !session_id.is_empty() {
        cx.emitter.change_cipher_spec()?;
    }
    if terms.early.is_none() {
        cx.emitter.write_keys(Epoch::Handshake, &client_secret.keys(cx.protocol()))?;
    }
    let common = Common { terms: offer.terms, suite, client_secret, authenticated_ms, peer, beside };
    let handshake = Handshake { common, secret, server_secret };
    Ok(Step::expect(ExpectEncryptedExtensions { handshake, transcript, by_psk, cache }))
}

struct ExpectEncryptedExtensions {
    handshake: Handshake,
    transcript: Transcript,
    /// Whether a PSK authenticates the server.
    by_psk: bool,
    cache: Use,
}

impl ExpectMessage for ExpectEncryptedExtensions {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { mut handshake, mut transcript, by_psk, cache } = *self;
        let body = message.expect(HandshakeType::ENCRYPTED_EXTENSIONS)?;
        let extensions = encrypted_extensions::read(body)?;
        let Common { terms, suite, client_secret, .. } = &mut handshake.common;
        extensions.answer(&terms.offered)?;
        if !early_data::is_in(&extensions) && early_data::reject(cx, terms, NoEarlyData::Declined) {
            cx.emitter.write_keys(Epoch::Handshake, &client_secret.keys(cx.protocol()))?;
        }
        let answers = Answers {
            extensions: &extensions,
            version: cx.protocol().version(),
            suite: suite.id,
            cache,
            resumes: false,
        };
        negotiate::accept(cx, terms, &answers)?;
        transcript.add(message.bytes());
        let certificates = terms.config.parts.certificates;
        if !by_psk {
            // A client that has only pre-shared keys has already rejected a ServerHello that selects none.
            let certificates = certificates.ok_or(Internal::Bug(Field::NoTrust))?;
            return Ok((certificates.expect)(handshake, transcript));
        }
        // With early data the client has verified the server again before it sent the data.
        let config = Arc::clone(&terms.config);
        let reverifies = config.reverify && cx.draft.is_resumed() && terms.early.is_none();
        let server = terms.server.clone();
        let peer = handshake.common.peer.clone();
        let then: reverify::Then =
            Box::new(move |_| Ok(Step::expect(ExpectFinished { handshake, transcript, respond: None })));
        match certificates {
            Some(certificates) if reverifies => {
                (certificates.reverify)(cx, &config.profile, &server, peer.as_ref(), then)
            }
            _ => then(cx),
        }
    }
}

/// The steps of a client that accepts certificates. Only such configurations point to them, so other programs
/// do not link them.
pub(crate) struct Certificates {
    /// The steps for extensions.
    pub(in crate::handshake) steps: &'static CertificateSteps,
    /// Continues when the server authenticates by certificate.
    expect: fn(Handshake, Transcript) -> Step,
    /// Verifies the server of a resumed session again.
    pub(super) reverify: Reverify,
}

/// Prints no code addresses, which would help an attacker.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates")
    }
}

type Reverify = fn(
    &mut Cx<'_>,
    &Arc<ProfileSettings>,
    &ServerAddress,
    Option<&PeerIdentity>,
    reverify::Then,
) -> Result<Step, Error>;

pub(crate) static CERTIFICATES: Certificates = Certificates {
    steps: &CERTIFICATE_STEPS,
    expect: |handshake, transcript| Step::expect(ExpectCertificateOrRequest { handshake, transcript }),
    reverify: reverify::reverify,
};

struct ExpectCertificateOrRequest {
    handshake: Handshake,
    transcript: Transcript,
}

impl ExpectMessage for ExpectCertificateOrRequest {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { handshake, mut transcript } = *self;
        let terms = &handshake.common.terms;
        match message.typ {
            HandshakeType::CERTIFICATE_REQUEST => {
                let request = CertificateRequest::read(message.body())?;
                // RFC 8446 §4.3.2: the context is empty during the handshake.
                if !request.context.is_empty() {
                    return Err(PeerMisbehaved::IllegalParameter(Field::CertificateRequestContext).into());
                }
                let profile = &terms.config.profile;
                let demands = Demands::of_server(&request.extensions, profile, terms.types.client)?;
                transcript.add(message.bytes());
                Ok(expect_certificate(handshake, transcript, Some(demands)))
            }
            // docs/handshake-cache.md §3: a server that accepts a ticket must send a CertificateRequest.
            HandshakeType::CERTIFICATE
            | HandshakeType::COMPRESSED_CERTIFICATE
            | HandshakeType::SSI_REQUEST
            | HandshakeType::VC
            | HandshakeType::DID
                if terms.cache.agreed().is_some_and(|agreed| agreed.uses_ticket()) =>
            {
                Err(PeerMisbehaved::IllegalParameter(Field::CacheTicketWithoutRequest).into())
            }
            HandshakeType::CERTIFICATE | HandshakeType::COMPRESSED_CERTIFICATE => {
                expect_certificate(handshake, transcript, None).message(cx, message)
            }
            HandshakeType::SSI_REQUEST
                if let (Some(ssi), Some(ours)) = (terms.config.parts.ssi, &terms.asks.ssi) =>
            {
                let demands = (ssi.read_request)(message.body(), &terms.config.profile, ours)?;
                transcript.add(message.bytes());
                Ok(expect_certificate(handshake, transcript, Some(demands)))
            }
            HandshakeType::VC | HandshakeType::DID if asked(terms, None).is_some() => {
                expect_certificate(handshake, transcript, None).message(cx, message)
            }
            _ => Err(message.unexpected(Field::CertificateOrRequest)),
        }
    }
}

/// The extensions that the server may send with its certificate: of those that the client has offered, the
/// ones of its type.
fn staples(terms: &Terms) -> Vec<ExtensionType> {
    match terms.types.server {
        CertificateType::VERIFIABLE_CREDENTIAL => terms.asks.staples.extensions(),
        _ if terms.ocsp => [ExtensionType::STATUS_REQUEST].to_vec(),
        _ => Vec::new(),
    }
}

/// The messages of its own in which the server may show a decentralised identity. A server that has answered
/// server_certificate_type sends a Certificate.
fn asked(terms: &Terms, request: Option<&Demands>) -> Option<(&'static SsiSteps, Asked)> {
    let asks = terms.asks.ssi.as_ref()?;
    let may_come = asks.asks_for.is_self_sovereign() && terms.types.server == CertificateType::X509;
    let asked = may_come.then(|| Asked {
        typ: asks.asks_for,
        did_methods: asks.did_methods.clone(),
        staples: terms.asks.staples.clone(),
        is_only: request.is_none_or(|request| request.ssi.is_some()),
    });
    terms.config.parts.ssi.zip(asked)
}

fn expect_certificate(handshake: Handshake, transcript: Transcript, request: Option<Demands>) -> Step {
    let terms = &handshake.common.terms;
    let certificate_type = terms.types.server;
    let cached = terms.cache.agreed().and_then(|agreed| agreed.server(certificate_type));
    let asked = asked(terms, request.as_ref());
    let certificate = ExpectCertificate {
        profile: Arc::clone(&terms.config.profile),
        transcript,
        peer: Side::Server,
        certificate_type,
        name: Some(terms.server.name.clone()),
        optional: false,
        staples: staples(terms),
        cached: cached.cloned().map(Box::new),
        then: Box::new(move |_, transcript, authenticated| {
            let (peer, vouched) = authenticated.map(|a| (a.identity, a.vouched)).unzip();
            let mut handshake = handshake;
            handshake.common.peer = peer;
            if let Some(agreed) = handshake.common.terms.cache.agreed_mut() {
                agreed.server_proven(vouched);
            }
            let respond = request.map(response);
            Ok(Step::expect(ExpectFinished { handshake, transcript, respond }))
        }),
    };
    match asked {
        None => Step::expect(certificate),
        Some((ssi, asked)) => (ssi.expect)(asked, certificate),
    }
}

/// The continuation that sends the client's Certificate, CertificateVerify and Finished, as a
/// CertificateRequest demands, or the messages that an SSIRequest demands.
fn response(mut demands: Demands) -> Respond {
    Box::new(move |cx, mut transcript, mut complete: Complete| {
        let config = Arc::clone(&complete.common.terms.config);
        let profile = &config.profile;
        match demands.choose(profile, &SignatureScheme::signs_handshakes) {
            Ok(choice) => {
                if let Some(agreed) = complete.common.terms.cache.agreed_mut().filter(|_| !choice.by_messages)
                {
                    demands.reads.cached = agreed.proves_by(Some(choice.index));
                }
                let then: prove::Then = Box::new(move |cx, transcript| complete.finish(cx, transcript));
                prove::prove(cx, transcript, profile, Side::Client, choice, &demands.reads, then)
            }
            // §IV.B of the paper: a client without such an identity "must abort". Its servers take no other
            // message.
            Err(why) if demands.ssi.is_some() && profile.ssi.is_links() => {
                Err(select::nothing_to_show(why).into())
            }
            Err(why) if config.credential_required && !profile.credentials.is_empty() => {
                Err(select::nothing_to_show(why).into())
            }
            // RFC 8446 §4.4.2.3: without a suitable credential the client sends an empty Certificate, and the
            // server decides.
            Err(_) => {
                prove::decline(cx, &mut transcript)?;
                complete.finish(cx, transcript)
            }
        }
    })
}

/// The continuation that answers a CertificateRequest after the server's Finished was verified.
type Respond = Box<dyn FnOnce(&mut Cx<'_>, Transcript, Complete) -> Result<Step, Error> + Send + Sync>;

struct ExpectFinished {
    handshake: Handshake,
    transcript: Transcript,
    /// `None` if the server sent no CertificateRequest.
    respond: Option<Respond>,
}

impl ExpectMessage for ExpectFinished {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { handshake, mut transcript, respond } = *self;
        let body = message.expect(HandshakeType::FINISHED)?;
        let _valid = handshake.server_secret.verify_finished(transcript.current().as_ref(), body)?;
        transcript.add(message.bytes());
        let Handshake { mut common, secret, .. } = handshake;
        let master = secret.into_master();
        let hash = transcript.current();
        let read = master.traffic(Side::Server, hash.as_ref());
        let write = master.traffic(Side::Client, hash.as_ref());
        let exporter = master.exporter(hash.as_ref());
        cx.effects.log_secret("CLIENT_TRAFFIC_SECRET_0", write.bytes());
        cx.effects.log_secret("SERVER_TRAFFIC_SECRET_0", read.bytes());
        cx.effects.log_secret("EXPORTER_SECRET", exporter.bytes());
        cx.progress.exporter = Some(Box::new(exporter));
        cx.emitter.read_keys(Epoch::Application, &read.keys(cx.protocol()))?;
        if let Some(offer) = common.terms.early.take() {
            (offer.steps.end)(cx, &mut transcript)?;
            cx.emitter.write_keys(Epoch::Handshake, &common.client_secret.keys(cx.protocol()))?;
        }

        let complete = Complete { common, master, read, write };
        match respond {
            Some(respond) => respond(cx, transcript, complete),
            None => complete.finish(cx, transcript),
        }
    }
}

/// The handshake after the server's Finished was verified. Only the client's messages remain.
struct Complete {
    common: Common,
    master: MasterSecret,
    read: TrafficSecret,
    write: TrafficSecret,
}

impl Complete {
    fn finish(self, cx: &mut Cx<'_>, mut transcript: Transcript) -> Result<Step, Error> {
        let Self { common, master, read, write } = self;
        let Common { terms: Terms { config, server, cache, .. }, suite, client_secret, .. } = common;
        let value = client_secret.finished(transcript.current().as_ref());
        // Drop it now: some libraries use more than a kilobyte for an HMAC key.
        drop(client_secret);
        let finished = message::finished(value.as_ref())?;
        cx.send_in(&mut transcript, finished)?;
        cx.emitter.write_keys(Epoch::Application, &write.keys(cx.protocol()))?;
        cx.emitter.end_of_flight()?;
        cx.emitter.handshake_complete();
        cx.commit.on_failure = None;
        cx.draft.server_name = Some(server.host());
        cx.draft.peer = common.peer;
        if let Some(agreed) = cache.into_agreed() {
            agreed.keep(cx, &config, HasFinished::Unknown)?;
        }
        cx.complete(Event::Connected);
        let on_ticket = match &config.sessions {
            None => OnTicket::Drop,
            Some(store) => OnTicket::Keep(Box::new(TicketIntake {
                secret: master.into_resumption(transcript.current().as_ref()),
                store: Arc::clone(store),
                key: session_key(&config, &server, cx.protocol()),
                cipher_suite: suite.id,
                authenticated_ms: common.authenticated_ms,
                settings: config.session_settings,
                rank: config.profile.rank,
                beside: common.beside,
                room: MAX_TICKETS,
            })),
        };
        Ok(Step::Traffic(Box::new(Traffic::new(read, write, on_ticket))))
    }
}
