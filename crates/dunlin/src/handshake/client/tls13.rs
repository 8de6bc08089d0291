//! The TLS 1.3 and DTLS 1.3 client, from the ServerHello on.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::cache::{Agreed, HasFinished, Offered};
use super::early::{self, EarlyOffer};
use super::reverify;
use super::start::{Offer, OfferedPsk, session_key};
use crate::address::ServerAddress;
use crate::auth::select::{self, Wanted};
use crate::auth::{PeerIdentity, PskIdentity};
use crate::crypto::Tls13CipherSuite;
use crate::early::NoEarlyData;
use crate::error::{Error, Internal, PeerMisbehaved};
use crate::extension::{
    Extensions, alpn, certificate_authorities, certificate_type, compress_certificate, key_share,
    max_fragment_length, pre_shared_key, record_size_limit, signature_algorithms,
};
use crate::handshake::cached::Use;
use crate::handshake::event::Event;
use crate::handshake::negotiated::HandshakeKind;
use crate::handshake::post::{MAX_TICKETS, OnTicket, TicketIntake, Traffic};
use crate::handshake::setup::ClientConfig;
use crate::handshake::verify::ExpectCertificate;
use crate::handshake::{Cx, ExpectMessage, Step, prove};
use crate::message::{self, CertificateRequest, Message, ServerHello, encrypted_extensions};
use crate::protocol::Side;
use crate::schedule::Transcript;
use crate::schedule::tls13::{EarlySecret, HandshakeSecret, MasterSecret, TrafficSecret};
use crate::settings::ProfileSettings;
use crate::transport::Epoch;
use crate::wire::MAX_PLAINTEXT;
use crate::wire::{
    CertificateType, ExtensionType, HandshakeType, ProtocolVersion, PskKeyExchangeMode, SignatureScheme, What,
};

/// The state that the rest of the handshake shares.
pub(crate) struct Handshake {
    config: Arc<ClientConfig>,
    server: ServerAddress,
    suite: &'static Tls13CipherSuite,
    secret: HandshakeSecret,
    client_secret: TrafficSecret,
    server_secret: TrafficSecret,
    extensions: Vec<ExtensionType>,
    /// When the server last authenticated without resumption, in milliseconds since 1970.
    authenticated_ms: u64,
    peer: Option<PeerIdentity>,
    /// The offer of early data, unless the server has rejected it.
    early: Option<EarlyOffer>,
    cache: Cache,
}

/// The state of the handshake cache in this handshake.
enum Cache {
    /// The client or the server does not use it.
    None,
    Offered(Box<dyn Offered>),
    Agreed(Box<dyn Agreed>),
}

/// Handles a ServerHello that selects TLS 1.3: derives the handshake keys and waits for the encrypted messages.
pub(super) fn server_hello(
    cx: &mut Cx<'_>,
    mut offer: Offer,
    transcript: Transcript,
    suite: &'static Tls13CipherSuite,
    hello: &ServerHello<'_>,
) -> Result<Step, Error> {
    let profile = &offer.config.profile;
    let selected = match hello.extensions.get::<pre_shared_key::Selected>()? {
        None => None,
        Some(pre_shared_key::Selected(index)) => {
            let psk = offer.psks.get(usize::from(index)).ok_or(PeerMisbehaved::NotOffered(What::Psk))?;
            // RFC 8446 §4.2.11: the cipher suite must use the PSK's hash.
            if psk.hash(&offer.config) != Some(suite.hash.algorithm()) {
                return Err(PeerMisbehaved::IllegalParameter(What::OtherHash).into());
            }
            Some(psk)
        }
    };
    let shared = match hello.extensions.get::<key_share::Selected>()? {
        Some(key_share::Selected(entry)) => {
            if selected.is_some() && !profile.allows_mode(PskKeyExchangeMode::PSK_DHE_KE) {
                return Err(PeerMisbehaved::NotOffered(What::PskMode).into());
            }
            let at = offer.shares.iter().position(|s| s.offers(entry.group));
            let share = offer.shares.swap_remove(at.ok_or(PeerMisbehaved::NotOffered(What::Group))?);
            cx.draft.group = Some(entry.group);
            Some(share.complete(&entry)?)
        }
        // Only psk_ke needs no key share.
        None if selected.is_some() && profile.allows_mode(PskKeyExchangeMode::PSK_KE) => None,
        // RFC 8446 §4.2.11: a PSK without the key share that its mode requires is illegal_parameter.
        None if selected.is_some() => {
            return Err(PeerMisbehaved::IllegalParameter(What::PskWithoutKeyShare).into());
        }
        None => return Err(PeerMisbehaved::MissingExtension(ExtensionType::KEY_SHARE).into()),
    };
    if selected.is_none() && profile.trust.is_empty() {
        // This client trusts no certificates, so the server must select a PSK.
        return Err(PeerMisbehaved::MissingExtension(ExtensionType::PRE_SHARED_KEY).into());
    }
    let (peer, authenticated_ms) = match selected {
        Some(OfferedPsk::Session(s)) => (s.session.peer.clone(), s.session.authenticated_ms),
        Some(OfferedPsk::External(psk)) => {
            let identity = PskIdentity::new(psk.identity().to_vec(), psk, profile.provider.sha256);
            (Some(PeerIdentity::Psk(identity)), cx.now.unix_ms)
        }
        None => (None, cx.now.unix_ms),
    };
    let by_psk = selected.is_some();
    // RFC 8446 §4.2.10: early data belongs to the first PSK. If the server does not select that, it rejects the early data.
    let is_first = matches!(hello.extensions.get()?, Some(pre_shared_key::Selected(0)));
    if !is_first && offer.early.take().is_some() {
        early::reject(cx, NoEarlyData::NotResumed);
    }
    let version = cx.protocol().version();
    let negotiated = &mut cx.draft;
    negotiated.version = Some(version);
    negotiated.cipher_suite = Some(suite.id);
    if let Some(OfferedPsk::Session(_)) = selected {
        negotiated.kind = HandshakeKind::Resumed;
    }
    negotiated.profile = profile.name.clone();

    let early = selected.map(|psk| EarlySecret::new(suite, cx.protocol(), psk.key()));
    let secret = HandshakeSecret::new(suite, cx.protocol(), early, shared.as_ref());
    let hash = transcript.current();
    let client_secret = secret.traffic(Side::Client, hash.as_ref());
    let server_secret = secret.traffic(Side::Server, hash.as_ref());
    cx.effects.log_secret("CLIENT_HANDSHAKE_TRAFFIC_SECRET", client_secret.bytes());
    cx.effects.log_secret("SERVER_HANDSHAKE_TRAFFIC_SECRET", server_secret.bytes());
    cx.emitter.read_keys(Epoch::Handshake, &server_secret.keys(cx.protocol()))?;
    if !offer.session_id.is_empty() {
        cx.emitter.change_cipher_spec()?;
    }
    if offer.early.is_none() {
        cx.emitter.write_keys(Epoch::Handshake, &client_secret.keys(cx.protocol()))?;
    }
    let Offer { config, server, extensions, early, cache, .. } = offer;
    let handshake = Handshake {
        config,
        server,
        suite,
        secret,
        client_secret,
        server_secret,
        extensions,
        authenticated_ms,
        peer,
        early,
        cache: cache.map_or(Cache::None, Cache::Offered),
    };
    Ok(Step::expect(ExpectEncryptedExtensions { handshake, transcript, by_psk }))
}

struct ExpectEncryptedExtensions {
    handshake: Handshake,
    transcript: Transcript,
    by_psk: bool,
}

impl ExpectMessage for ExpectEncryptedExtensions {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { mut handshake, mut transcript, by_psk } = *self;
        let body = message.expect(HandshakeType::ENCRYPTED_EXTENSIONS)?;
        let extensions = encrypted_extensions::read(body)?;
        extensions.answer(&handshake.extensions)?;
        let takes_early_data = extensions.has(ExtensionType::EARLY_DATA);
        if !takes_early_data && handshake.early.take().is_some() {
            early::reject(cx, NoEarlyData::Declined);
            cx.emitter.write_keys(Epoch::Handshake, &handshake.client_secret.keys(cx.protocol()))?;
        }
        let profile = &handshake.config.profile;
        let version = cx.protocol().version();
        read_answers(cx, profile, &extensions, version)?;
        match &handshake.early {
            Some(offer) => (offer.steps.accept)(cx, offer, handshake.suite)?,
            // RFC 8446 §4.2.10: accepting early data without its session is illegal_parameter.
            None if takes_early_data => return Err(PeerMisbehaved::EarlyDataMismatch(What::Psk).into()),
            None => {}
        }
        let types = certificate_types(profile, &extensions)?;
        if let Cache::Offered(offer) = handshake.cache {
            // docs/handshake-cache.md §5.7: a handshake with a PSK uses nothing of the cache and stores nothing.
            let usage = if by_psk { Use::Nothing } else { Use::Tls13 };
            let agreed = offer.answered(&extensions, usage)?;
            cx.draft.cache = usage.outcome(agreed.is_some());
            handshake.cache = agreed.map_or(Cache::None, Cache::Agreed);
        }
        transcript.add(message.bytes());
        let certificates = handshake.config.certificates;
        if !by_psk {
            // A client that has only pre-shared keys has already rejected a ServerHello that selects none.
            let certificates = certificates.ok_or(Internal::Bug(What::NoTrust))?;
            return Ok((certificates.expect)(handshake, transcript, types));
        }
        // With early data the client has verified the server again before it sent the data.
        let config = Arc::clone(&handshake.config);
        let reverifies = config.reverify && cx.draft.is_resumed() && handshake.early.is_none();
        let (server, peer) = (handshake.server.clone(), handshake.peer.clone());
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

/// The steps of a client that accepts certificates. Only such configurations point to them, so other programs do not link
/// them.
pub(crate) struct Certificates {
    /// Continues when the server authenticates by certificate.
    expect: fn(Handshake, Transcript, CertificateTypes) -> Step,
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
    expect: |handshake, transcript, types| {
        Step::expect(ExpectCertificateOrRequest { handshake, transcript, types })
    },
    reverify: reverify::reverify,
};

/// The certificate types of the server and of this client (RFC 7250 §4.2). Without an answer they are X.509.
#[derive(Clone, Copy)]
pub(crate) struct CertificateTypes {
    pub(super) server: CertificateType,
    pub(super) client: CertificateType,
}

/// Reads the server's answers that all versions share: the application protocol and the record size limits.
pub(super) fn read_answers(
    cx: &mut Cx<'_>,
    profile: &ProfileSettings,
    extensions: &Extensions<'_>,
    version: ProtocolVersion,
) -> Result<(), Error> {
    if let Some(alpn::Selected(protocol)) = extensions.get()? {
        if !profile.alpn.contains(&protocol) {
            return Err(PeerMisbehaved::NotOffered(What::ApplicationProtocol).into());
        }
        cx.draft.alpn = Some(protocol);
    }
    let size = extensions.get::<record_size_limit::RecordSizeLimit>()?;
    let length = extensions.get::<max_fragment_length::MaxFragmentLength>()?;
    // RFC 8449 §4: this client's limit applies once the server has answered.
    let (sent, received) = match (size, length) {
        (None, None) => (MAX_PLAINTEXT, MAX_PLAINTEXT),
        (Some(limit), None) => (limit.content(version), profile.received_content_limit(version)),
        // RFC 6066 §4: a length other than the requested one is illegal_parameter.
        (None, Some(length)) if profile.max_fragment_length == Some(length.0) => {
            (usize::from(length.0), usize::from(length.0))
        }
        (None, Some(_)) => {
            return Err(
                PeerMisbehaved::NotOffered(What::Extension(ExtensionType::MAX_FRAGMENT_LENGTH)).into()
            );
        }
        // RFC 8449 §5: the server must not answer both extensions.
        (Some(_), Some(_)) => {
            return Err(PeerMisbehaved::IllegalParameter(What::RecordSizeLimitToo).into());
        }
    };
    cx.emitter.limit_sent_records(sent);
    cx.emitter.limit_received_records(received);
    Ok(())
}

pub(super) fn certificate_types(
    profile: &ProfileSettings,
    extensions: &Extensions<'_>,
) -> Result<CertificateTypes, Error> {
    let server = extensions.get::<certificate_type::ServerType>()?.map_or(CertificateType::X509, |t| t.0);
    let client = extensions.get::<certificate_type::ClientType>()?.map_or(CertificateType::X509, |t| t.0);
    let answered = extensions.has(ExtensionType::SERVER_CERTIFICATE_TYPE);
    if answered && !profile.peer_types().contains(&server) {
        return Err(PeerMisbehaved::NotOffered(What::ServerCertificateType).into());
    }
    let own = profile.own_types();
    if extensions.has(ExtensionType::CLIENT_CERTIFICATE_TYPE) && !own.contains(&client) {
        return Err(PeerMisbehaved::NotOffered(What::ClientCertificateType).into());
    }
    Ok(CertificateTypes { server, client })
}

struct ExpectCertificateOrRequest {
    handshake: Handshake,
    transcript: Transcript,
    types: CertificateTypes,
}

impl ExpectMessage for ExpectCertificateOrRequest {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { handshake, mut transcript, types } = *self;
        match message.typ {
            HandshakeType::CERTIFICATE_REQUEST => {
                let request = Request::read(message.body(), types.client)?;
                transcript.add(message.bytes());
                Ok(expect_certificate(handshake, transcript, types.server, Some(request)))
            }
            HandshakeType::CERTIFICATE | HandshakeType::COMPRESSED_CERTIFICATE => {
                // docs/handshake-cache.md §3: a server that accepts a ticket must send a CertificateRequest.
                if matches!(&handshake.cache, Cache::Agreed(agreed) if agreed.uses_ticket()) {
                    let why = What::CacheTicketWithoutRequest;
                    return Err(PeerMisbehaved::IllegalParameter(why).into());
                }
                expect_certificate(handshake, transcript, types.server, None).message(cx, message)
            }
            _ => Err(message.unexpected(What::CertificateOrRequest)),
        }
    }
}

fn expect_certificate(
    handshake: Handshake,
    transcript: Transcript,
    certificate_type: CertificateType,
    request: Option<Request>,
) -> Step {
    let asked_ocsp = handshake.extensions.contains(&ExtensionType::STATUS_REQUEST);
    let cached = match &handshake.cache {
        Cache::Agreed(agreed) => agreed.server(certificate_type).cloned().map(Box::new),
        Cache::Offered(_) | Cache::None => None,
    };
    Step::expect(ExpectCertificate {
        profile: Arc::clone(&handshake.config.profile),
        transcript,
        peer: Side::Server,
        certificate_type,
        name: Some(handshake.server.name.clone()),
        optional: false,
        ocsp: asked_ocsp,
        cached,
        then: Box::new(move |_, transcript, authenticated| {
            let (peer, believed) = authenticated.map(|a| (a.identity, a.cached)).unzip();
            let mut handshake = Handshake { peer, ..handshake };
            if let Cache::Agreed(agreed) = &mut handshake.cache {
                agreed.server_proven(believed.flatten());
            }
            let respond = request.map(Request::into_response);
            Ok(Step::expect(ExpectFinished { handshake, transcript, respond }))
        }),
    })
}

/// The server's requirements for this client's certificate.
struct Request {
    certificate_type: CertificateType,
    schemes: Vec<SignatureScheme>,
    chain_schemes: Option<Vec<SignatureScheme>>,
    authorities: Vec<Vec<u8>>,
    /// What the server supports in a Certificate message. Clients send no OCSP responses.
    reads: prove::Reads,
}

impl Request {
    fn read(body: &[u8], certificate_type: CertificateType) -> Result<Self, Error> {
        let request = CertificateRequest::read(body)?;
        // RFC 8446 §4.3.2: the context is empty during the handshake.
        if !request.context.is_empty() {
            return Err(PeerMisbehaved::IllegalParameter(What::CertificateRequestContext).into());
        }
        let schemes = request.extensions.require::<signature_algorithms::SignatureAlgorithms>()?.0;
        let chain_schemes = request.extensions.get::<signature_algorithms::SignatureAlgorithmsCert>()?;
        let authorities = request.extensions.get::<certificate_authorities::CertificateAuthorities>()?;
        let compressions = request.extensions.get::<compress_certificate::CompressCertificate>()?;
        Ok(Self {
            certificate_type,
            schemes,
            chain_schemes: chain_schemes.map(|s| s.0),
            authorities: authorities.map_or_else(Vec::new, |a| a.0),
            reads: prove::Reads {
                compressions: compressions.map_or_else(Vec::new, |c| c.0),
                ocsp: false,
                cached: None,
            },
        })
    }

    /// The continuation that sends the client's Certificate, CertificateVerify and Finished.
    fn into_response(mut self) -> Respond {
        Box::new(move |cx, mut transcript, mut complete: Complete| {
            let profile = Arc::clone(&complete.config.profile);
            // The client sends only certificate types that it offered. A server that names no type means X.509
            // (RFC 7250 §4.2).
            let types = [self.certificate_type];
            let is_offered = profile.own_types().contains(&self.certificate_type);
            let wanted = Wanted {
                types: if is_offered { &types } else { &[] },
                schemes: &self.schemes,
                allows: &SignatureScheme::signs_handshakes,
                chain_schemes: self.chain_schemes.as_deref(),
                authorities: &self.authorities,
            };
            let signatures = profile.provider.signatures;
            match select::select(signatures, &profile.credentials, &profile.reserved, &wanted) {
                Ok(choice) => {
                    if let Some(agreed) = &mut complete.cache {
                        self.reads.cached = agreed.proves_by(Some(choice.index));
                    }
                    let then: prove::Then = Box::new(move |cx, transcript| complete.finish(cx, transcript));
                    prove::prove(cx, transcript, &profile, Side::Client, choice, &self.reads, then)
                }
                Err(why) if complete.config.credential_required && !profile.credentials.is_empty() => {
                    Err(select::nothing_to_show(why).into())
                }
                // RFC 8446 §4.4.2.3: without a suitable credential the client sends an empty Certificate, and the server
                // decides.
                Err(_) => {
                    prove::decline(cx, &mut transcript)?;
                    complete.finish(cx, transcript)
                }
            }
        })
    }
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
        let Handshake {
            config,
            server,
            suite,
            secret,
            client_secret,
            authenticated_ms,
            peer,
            early,
            cache,
            ..
        } = handshake;
        let cache = match cache {
            Cache::Agreed(agreed) => Some(agreed),
            Cache::Offered(_) | Cache::None => None,
        };
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
        if let Some(offer) = early {
            (offer.steps.end)(cx, &mut transcript)?;
            cx.emitter.write_keys(Epoch::Handshake, &client_secret.keys(cx.protocol()))?;
        }

        let complete = Complete {
            config,
            server,
            suite,
            client_secret,
            master,
            authenticated_ms,
            peer,
            cache,
            read,
            write,
        };
        match respond {
            Some(respond) => respond(cx, transcript, complete),
            None => complete.finish(cx, transcript),
        }
    }
}

/// The handshake after the server's Finished was verified. Only the client's messages remain.
struct Complete {
    config: Arc<ClientConfig>,
    server: ServerAddress,
    suite: &'static Tls13CipherSuite,
    client_secret: TrafficSecret,
    master: MasterSecret,
    authenticated_ms: u64,
    peer: Option<PeerIdentity>,
    cache: Option<Box<dyn Agreed>>,
    read: TrafficSecret,
    write: TrafficSecret,
}

impl Complete {
    fn finish(self, cx: &mut Cx<'_>, mut transcript: Transcript) -> Result<Step, Error> {
        let value = self.client_secret.finished(transcript.current().as_ref());
        // Drop it now: some libraries use more than a kilobyte for an HMAC key.
        drop(self.client_secret);
        let finished = message::finished(value.as_ref())?;
        cx.send_in(&mut transcript, finished)?;
        cx.emitter.write_keys(Epoch::Application, &self.write.keys(cx.protocol()))?;
        cx.emitter.end_of_flight()?;
        cx.emitter.handshake_complete();
        cx.commit.on_failure = None;
        cx.draft.server_name = Some(self.server.host());
        cx.draft.peer = self.peer;
        if let Some(agreed) = self.cache {
            agreed.keep(cx, &self.config, HasFinished::Unknown)?;
        }
        cx.complete(Event::Connected);
        let on_ticket = match &self.config.sessions {
            None => OnTicket::Drop,
            Some(store) => OnTicket::Keep(Box::new(TicketIntake {
                secret: self.master.into_resumption(transcript.current().as_ref()),
                store: Arc::clone(store),
                key: session_key(&self.config, &self.server, cx.protocol()),
                cipher_suite: self.suite.id,
                authenticated_ms: self.authenticated_ms,
                settings: self.config.session_settings,
                rank: self.config.profile.rank,
                room: MAX_TICKETS,
            })),
        };
        Ok(Step::Traffic(Box::new(Traffic::new(self.read, self.write, on_ticket))))
    }
}
