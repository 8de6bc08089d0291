//! The TLS 1.3 and DTLS 1.3 server, from the ServerHello on.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use zeroize::Zeroizing;

use super::arrival::{Choice, Spent};
use super::{cache, early, rank};
use crate::auth::select;
use crate::auth::{PeerIdentity, PskIdentity};
use crate::crypto::{OwnSecret, Tls13CipherSuite};
use crate::early::{EarlyDataOutcome, NoEarlyData};
use crate::error::{Error, Internal, PeerIncompatible, PeerMisbehaved};
use crate::handshake::cached::Use;
use crate::handshake::cached::server::{Agreed, Sends};
use crate::handshake::event::Event;
use crate::handshake::negotiate::psk::{FoundPsk, PskSecret};
use crate::handshake::negotiate::{
    self, Choices, Demands, ENCRYPTED_EXTENSIONS, Request, SERVER_HELLO, alpn, certificate_type, early_data,
    key_share, psk, server_name,
};
use crate::handshake::negotiated::HandshakeKind;
use crate::handshake::post::{OnTicket, Traffic};
use crate::handshake::progress::EarlyOutput;
use crate::handshake::prove;
use crate::handshake::setup::ServerConfig;
use crate::handshake::ssi::Asked;
use crate::handshake::verify::ExpectCertificate;
use crate::handshake::{Cx, ExpectMessage, Step};
use crate::message::{self, ClientHello, Message, NewSessionTicket, ServerHello, encrypted_extensions};
use crate::protocol::Side;
use crate::resume::{SESSION_NAME_LEN, Session, TicketKind};
use crate::schedule::Transcript;
use crate::schedule::binder::PskKind;
use crate::schedule::tls13::{EarlySecret, HandshakeSecret, MasterSecret, ResumptionSecret, TrafficSecret};
use crate::settings::ClientAuth;
use crate::transport::Epoch;
use crate::wire::{CertificateType, ExtensionType, Field, HandshakeType, ProtocolVersion, SignatureScheme};

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
        psk::verify_binder(secret, psk.secret.kind(), psk.index, transcript, hello)?;
        use_up(cx, config, psk, spent.as_ref())?;
    }
    transcript.add(hello.message().bytes());
    cx.draft.alpn = alpn::choose(config, hello)?;
    let skew = match psk {
        Some(FoundPsk { index, secret: PskSecret::Session(session), .. }) => {
            Some(early::ticket_age_skew(cx, *index, session, hello)?)
        }
        _ => None,
    };
    cx.draft.ticket_age_skew_ms = skew;
    let early_data = early_data::is_offered(hello).then(|| early::outcome(cx, &choice, skew));
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
    let by_psk = psk.as_ref().is_some_and(|psk| psk.authenticates);
    let Authentication { own, server_type, request } =
        authentication(&config, hello, protocol.version(), by_psk)?;
    let client_type = request.as_ref().filter(|request| !request.by_messages).map(|request| request.typ);
    let credential = own.as_ref().filter(|own| !own.choice.by_messages).map(|own| own.choice.index);
    let sends = Sends { credential, request: None, client_type };
    // docs/handshake-cache.md §5, rule 7: a handshake with a PSK uses nothing of the cache and stores
    // nothing.
    let usage = if psk.is_some() { Use::Nothing } else { Use::Tls13 };
    let cache = cache::agree(cx, &config, hello, &sends, usage)?;
    if config.parts.cache.is_some() {
        // Identities in messages of their own are never cached (docs/identity.md).
        let has_certificates = credential.is_some() || client_type.is_some();
        let usage = if has_certificates { usage } else { Use::Nothing };
        cx.draft.cache = usage.outcome(cache.is_some());
    }
    let resumed = psk.as_ref().is_some_and(|psk| psk.secret.kind() == PskKind::Resumption);
    let mut chosen = Choices {
        resumes: resumed,
        server_type,
        client_type,
        cache: cache.as_deref(),
        psk: psk.as_ref(),
        takes_early_data,
        ..Choices::new(&config, hello, protocol.version())
    };
    let encrypted = negotiate::answer(ENCRYPTED_EXTENSIONS, cx, &chosen)?;
    let (share, shared) = key_share::respond(cx, &config, share)?;
    chosen.share = share;
    let w = negotiate::answer(SERVER_HELLO, cx, &chosen)?;
    let mut random = [0; 32];
    config.profile.provider.random.fill(&mut random)?;
    let server_hello = ServerHello::write(protocol, &random, hello.session_id_echo(protocol), suite.id, &w)?;
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
    cx.send_in(&mut transcript, encrypted_extensions::write(&encrypted)?)?;
    if let Some(request) = &request {
        cx.send_in(&mut transcript, negotiate::request(&config, request)?)?;
    }

    let beside = psk.as_ref().and_then(|psk| psk.beside(&config));
    let client = psk.filter(|_| by_psk).map(|psk| psk.into_client(cx, &config));
    let (peer, authenticated_ms) = client.unwrap_or((None, cx.now.unix_ms));
    let negotiated = &mut cx.draft;
    negotiated.version = Some(protocol.version());
    negotiated.cipher_suite = Some(suite.id);
    if resumed {
        negotiated.kind = HandshakeKind::Resumed;
    }
    negotiated.server_name = server_name::of(hello)?;
    negotiated.beside.clone_from(&beside);
    let common = Common {
        server_name: negotiated.server_name.clone(),
        takes_tickets: psk::has_common_mode(&config, hello)?,
        config,
        suite,
        client_secret,
        peer,
        authenticated_ms,
        beside,
        resumed,
        cache,
    };
    let handshake = Handshake { common, secret, server_secret, request, takes_early_data };
    match own {
        None => handshake.finish(cx, transcript),
        Some(mut own) => {
            own.reads.cached = handshake.common.cache.as_ref().and_then(|cache| Some(cache.own()?.0));
            let profile = Arc::clone(&handshake.common.config.profile);
            let then: prove::Then = Box::new(move |cx, transcript| handshake.finish(cx, transcript));
            prove::prove(cx, transcript, &profile, Side::Server, own.choice, &own.reads, then)
        }
    }
}

/// Removes a stored session, which resumes only once. This happens after the client has proven that it has
/// the secret, so that no other client can remove the session.
fn use_up(
    cx: &mut Cx<'_>,
    config: &ServerConfig,
    psk: &FoundPsk,
    spent: Option<&Spent>,
) -> Result<(), Error> {
    if matches!(psk.secret, PskSecret::Session(_)) {
        let is_taken = spent.is_some_and(|spent| spent.session(config, &psk.identity).is_some());
        match &config.tickets.kind {
            TicketKind::Stateful(store) if !is_taken && !store.remove(&psk.identity) => {
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
    /// The features of a Certificate message that the client supports.
    reads: prove::Reads,
}

/// How the server authenticates itself and the client.
struct Authentication {
    /// The server's credential. `None` if a PSK authenticates both sides.
    own: Option<OwnCertificate>,
    /// The type of the server's certificate, which it answers even if it sends none.
    server_type: Option<CertificateType>,
    /// The server's request for the client's credential. `None` if it requests none.
    request: Option<Request>,
}

fn authentication(
    config: &ServerConfig,
    hello: &ClientHello,
    version: ProtocolVersion,
    by_psk: bool,
) -> Result<Authentication, Error> {
    let own = match by_psk {
        false => Some(own_certificate(config, hello)?),
        true if hello.extensions().has(ExtensionType::SERVER_CERTIFICATE_TYPE) => {
            own_certificate(config, hello).ok()
        }
        true => None,
    };
    Ok(Authentication {
        server_type: own.as_ref().filter(|own| !own.choice.by_messages).map(|own| own.typ),
        request: certificate_type::request(config, hello, version, by_psk)?,
        own: own.filter(|_| !by_psk),
    })
}

/// Selects the server's credential for this client. draft-vesco-vcauthtls: a client that accepts verifiable
/// credentials lists the methods of identifiers that it resolves.
fn own_certificate(config: &ServerConfig, hello: &ClientHello) -> Result<OwnCertificate, Error> {
    let demands = Demands::of_client(hello, config)?;
    let choice = match demands.choose(&config.profile, &SignatureScheme::signs_for_servers) {
        Err(PeerIncompatible::NoCredential(Field::NoneOfDidMethod))
            if demands.did_methods.is_none() && demands.ssi.is_none() =>
        {
            return Err(PeerMisbehaved::MissingExtension(ExtensionType::DID_METHODS).into());
        }
        choice => choice?,
    };
    let credential = config.profile.credentials.get(choice.index);
    let credential = credential.ok_or(Internal::Bug(Field::CredentialIndex))?;
    Ok(OwnCertificate { choice, typ: credential.certificate_type(), reads: demands.reads })
}

/// The state that the whole handshake shares.
struct Common {
    config: Arc<ServerConfig>,
    suite: &'static Tls13CipherSuite,
    client_secret: TrafficSecret,
    peer: Option<PeerIdentity>,
    /// When the client last authenticated without resumption, in milliseconds since 1970.
    authenticated_ms: u64,
    /// The external PSK in the keys, beside certificates.
    beside: Option<Box<PskIdentity>>,
    resumed: bool,
    takes_tickets: bool,
    server_name: Option<String>,
    cache: Option<Box<dyn Agreed>>,
}

/// The handshake until the server's Finished.
struct Handshake {
    common: Common,
    secret: HandshakeSecret,
    server_secret: TrafficSecret,
    /// The server's request for the client's credential. `None` if it requests none.
    request: Option<Request>,
    takes_early_data: bool,
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

        let profile = Arc::clone(&self.common.config.profile);
        let ssi = self.common.config.parts.ssi;
        let optional = self.common.config.client_auth == ClientAuth::Optional;
        let mut finish = Finish { common: self.common, master, read, write };
        let cached = finish.common.cache.as_mut().and_then(|cache| cache.take_client());
        let Some(request) = self.request else {
            return Ok(if self.takes_early_data {
                early::expect_end(
                    cx,
                    transcript,
                    Box::new(|cx, transcript| finish.after_early_data(cx, transcript)),
                )
            } else {
                Step::expect(ExpectFinished { finish, transcript })
            });
        };
        // A Certificate in place of the requested messages has the type that holds without negotiation.
        let certificate_type = if request.by_messages { CertificateType::X509 } else { request.typ };
        let certificate = ExpectCertificate {
            profile,
            transcript,
            peer: Side::Client,
            certificate_type,
            name: None,
            optional,
            staples: request.beside_certificate(),
            cached,
            then: Box::new(move |_, transcript, authenticated| {
                let (peer, vouched) = authenticated.map(|a| (a.identity, a.vouched)).unzip();
                finish.common.peer = peer;
                if let Some(cache) = &mut finish.common.cache {
                    cache.client_proven(vouched);
                }
                Ok(Step::expect(ExpectFinished { finish, transcript }))
            }),
        };
        let Some(ssi) = ssi.filter(|_| request.by_messages) else { return Ok(Step::expect(certificate)) };
        let Request { typ, did_methods, staples, .. } = request;
        let asked = Asked { typ, did_methods, staples, is_only: false };
        Ok((ssi.expect)(asked, certificate))
    }
}

/// The state that the server needs when the client's Finished arrives.
struct Finish {
    common: Common,
    master: MasterSecret,
    read: TrafficSecret,
    write: TrafficSecret,
}

impl Finish {
    /// Continues after EndOfEarlyData: the client's Finished is next, under the handshake keys.
    fn after_early_data(self, cx: &mut Cx<'_>, transcript: Transcript) -> Result<Step, Error> {
        cx.emitter.read_keys(Epoch::Handshake, &self.common.client_secret.keys(cx.protocol()))?;
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
        let _valid = finish.common.client_secret.verify_finished(transcript.current().as_ref(), body)?;
        transcript.add(message.bytes());
        let Common { config, peer, resumed, .. } = &finish.common;
        // The client of a session was weighed before its session was resumed.
        let question = if *resumed { None } else { rank::question(cx, config, peer.as_ref())? };
        let Some(question) = question else { return finish.established(cx, transcript) };
        let then: rank::Then = Box::new(move |cx, needed| {
            rank::check(&finish.common.config, &needed)?;
            finish.established(cx, transcript)
        });
        rank::ask(cx, question, then)
    }
}

impl Finish {
    /// Begins the connection, and sends tickets.
    fn established(self, cx: &mut Cx<'_>, transcript: Transcript) -> Result<Step, Error> {
        let Self { common, master, read, write } = self;
        let Common { config, suite, peer, authenticated_ms, beside, resumed, server_name, cache, .. } =
            common;
        cx.emitter.read_keys(Epoch::Application, &read.keys(cx.protocol()))?;
        cx.emitter.handshake_complete();
        cx.draft.peer.clone_from(&peer);
        if let Some(cache) = cache {
            cache.keep(cx, &config)?;
        }
        cx.progress.early = EarlyOutput::default();
        cx.complete(Event::Connected);
        if common.takes_tickets && !config.tickets.is_none() {
            let secret = master.into_resumption(transcript.current().as_ref());
            let protocol = cx.protocol();
            let early = early::terms(cx, &config);
            let good_until_s = cx.agreed().good_until_s();
            let session = |psk, age_add, now_ms| Session {
                cipher_suite: suite.id,
                psk,
                issued_ms: now_ms,
                authenticated_ms,
                transport: protocol.transport(),
                lifetime_s: u32::try_from(config.tickets.lifetime.as_secs()).unwrap_or(u32::MAX),
                age_add,
                peer: peer.clone(),
                settings: config.digests.trust,
                rank: config.profile.rank,
                good_until_s,
                server_name: server_name.clone(),
                early: early.clone(),
                beside: beside.clone(),
            };
            // After a resumption one ticket replaces the used one.
            let count = if resumed { config.tickets.count.min(1) } else { config.tickets.count };
            for nonce in 0..count {
                send_ticket(cx, &config, &secret, nonce, &session)?;
            }
            cx.emitter.end_of_flight()?;
        }
        Ok(Step::Traffic(Box::new(Traffic::new(read, write, OnTicket::Refuse))))
    }
}

fn send_ticket(
    cx: &mut Cx<'_>,
    config: &ServerConfig,
    secret: &ResumptionSecret,
    nonce: u8,
    session: &impl Fn(OwnSecret, u32, u64) -> Session,
) -> Result<(), Error> {
    let random = &*config.profile.provider.random;
    let mut age_add = [0; 4];
    random.fill(&mut age_add)?;
    let nonce = [nonce];
    let session = session(secret.psk(&nonce), u32::from_be_bytes(age_add), cx.now.unix_ms);
    let lifetime = session.lifetime_s;
    let age_add = session.age_add;
    let max_early_data = session.max_early_data();
    let mut name = [0; SESSION_NAME_LEN];
    random.fill(&mut name)?;
    let ticket = match &config.tickets.kind {
        TicketKind::None => return Ok(()),
        TicketKind::Stateless(seal) => {
            let plain = session.to_ticket()?;
            let seal = |plain: Zeroizing<Vec<u8>>| seal.seal(cx.now, config.digests.trust.as_bytes(), &plain);
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
