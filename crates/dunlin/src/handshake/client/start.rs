//! The client's handshake until the version is known: ClientHello, HelloRetryRequest, ServerHello.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::tls13;
use crate::address::ServerAddress;
use crate::cache::CacheOutcome;
use crate::crypto::Tls13CipherSuite;
use crate::early::{EarlyDataOutcome, NoEarlyData};
use crate::error::{Error, Internal, Misuse, PeerIncompatible, PeerMisbehaved};
use crate::handshake::cached::client::Cache;
use crate::handshake::negotiate::psk::{self, OfferedPsk};
use crate::handshake::negotiate::renegotiation_info::Previous;
use crate::handshake::negotiate::{
    self, HelloDraft, Offer, Terms, early_data, key_share, supported_versions,
};
use crate::handshake::setup::ClientConfig;
use crate::handshake::step::Refusable;
use crate::handshake::{Cx, ExpectMessage, Step};
use crate::message::hello_verify_request::{self, MAX_VERIFY_REQUESTS};
use crate::message::{ClientHello, Message, ServerHello};
use crate::protocol::Protocol;
use crate::resume::ClientSession;
use crate::schedule::{HelloTranscript, Transcript};
use crate::wire::{ExtensionType, Field, HandshakeType};

/// Decides what to offer, and sends the first ClientHello.
pub(crate) fn start(
    cx: &mut Cx<'_>,
    config: Arc<ClientConfig>,
    server: ServerAddress,
) -> Result<Step, Error> {
    cx.emitter.note_settings(&config.session_settings);
    let profile = &config.profile;
    let random_source = &*profile.provider.random;
    let mut random = [0; 32];
    random_source.fill(&mut random)?;
    let mut session_id = Vec::new();
    let tls12_suites = match config.parts.tls12 {
        Some(tls12) => (tls12.client_suites)(&config),
        None => Vec::new(),
    };
    if profile.has_tls13() && profile.records.compatibility_mode && cx.protocol().has_compatibility_mode() {
        session_id.resize(32, 0);
        random_source.fill(&mut session_id)?;
    }
    let is_older = |s: &ClientSession| tls12_suites.iter().any(|suite| suite.id == s.session.cipher_suite);
    let (tls12_session, session) = match psk::session(cx, &config, &server) {
        Some(session) if is_older(&session) => (Some(session), None),
        session => (None, session),
    };
    if let Some(session) = &tls12_session {
        if session.is_id {
            session_id = session.ticket.to_vec();
        } else if session_id.is_empty() {
            // RFC 5077 §3.4: the server echoes the session ID to accept the ticket.
            session_id.resize(32, 0);
            random_source.fill(&mut session_id)?;
        }
    }
    let psks = psk::offered(cx, &config, session);
    if psks.is_empty() && profile.trust.is_empty() && tls12_suites.is_empty() {
        let why = "the client trusts no certificate or key and has no PSK: no server can prove who it is";
        return Err(Misuse::Config(why.into()).into());
    }
    let shares = key_share::shares(&config)?;
    if let Some(content) = profile.records.max_sent_record {
        cx.emitter.cap_sent_records(content.into());
    }
    cx.effects.client_random = random;
    if !tls12_suites.is_empty() {
        cx.progress.oldest = cx.protocol().oldest();
    }
    let early = match &config.parts.early_data {
        Some(early) => (early.steps.offer)(cx, &config, &early.protocols, &psks),
        None => Err(NoEarlyData::Disabled),
    };
    if let Err(why) = &early {
        cx.draft.early_data = EarlyDataOutcome::NotOffered(*why);
    }
    let early = early.ok();
    let cache = config.parts.cache.as_ref();
    let has_psk = !psks.is_empty() || tls12_suites.iter().any(|suite| suite.has_psk());
    let resumes = has_psk || tls12_session.is_some();
    let cache = cache.and_then(|cache| cache.offer(cx, &config, &server, resumes));
    let cache = cache.map_or(Cache::None, Cache::Offered);
    let issuer = if cx.emitter.peer_address().is_some() { config.connection_ids.as_ref() } else { None };
    let connection_id = issuer.map(|ids| ids.issue()).transpose()?;
    cx.emitter.offer_connection_id(connection_id.as_ref().map_or(0, Vec::len));
    let terms = Terms { early, cache, connection_id, ..Terms::new(Arc::clone(&config), server) };
    let offer = Offer {
        terms,
        random,
        session_id,
        psks,
        shares,
        tls12_suites,
        tls12_session,
        cookie: None,
        legacy_cookie: Vec::new(),
    };
    match (config.parts.certificates, offer.psks.first()) {
        // Before it sends early data, the client verifies the session's server against today's trust
        // settings.
        (Some(certificates), Some(OfferedPsk::Session(s)))
            if config.reverify && offer.terms.early.is_some() =>
        {
            let server = offer.terms.server.clone();
            let peer = s.session.peer.clone();
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
    let tls12 = config.parts.tls12.ok_or(Internal::Bug(Field::NoTls12))?;
    let tls12_suites = (tls12.client_suites)(&config);
    let offer = Offer {
        terms: Terms { previous: Some(previous), ..Terms::new(config, server) },
        random,
        session_id: Vec::new(),
        psks: Vec::new(),
        shares: Vec::new(),
        tls12_suites,
        tls12_session: None,
        cookie: None,
        legacy_cookie: Vec::new(),
    };
    send_first(cx, offer)
}

/// Continues after the first session's server was verified again. The session may have expired during that
/// time, and RFC 8446 §4.6.1 forbids the use of an expired ticket.
fn send_reverified(cx: &mut Cx<'_>, mut offer: Offer) -> Result<Step, Error> {
    let is_over = |psk: &OfferedPsk| matches!(psk, OfferedPsk::Session(s) if !s.session.is_fresh(cx.now));
    if offer.psks.first().is_some_and(is_over) {
        offer.psks.remove(0);
        offer.terms.early = None;
        cx.draft.early_data = EarlyDataOutcome::NotOffered(NoEarlyData::NoSession);
    }
    send_first(cx, offer)
}

/// Sends the first ClientHello.
fn send_first(cx: &mut Cx<'_>, mut offer: Offer) -> Result<Step, Error> {
    if offer.terms.config.parts.cache.is_some() {
        // The default until the server answers an offer.
        cx.draft.cache = CacheOutcome::NotUsable;
    }
    let hello = offer.client_hello(cx, None)?;
    let transcript = HelloTranscript::new(&hello, cx.emitter.next_number());
    cx.send(hello)?;
    cx.emitter.end_of_flight()?;
    if let Some(early) = &offer.terms.early {
        (early.steps.open)(cx, early, &offer, &transcript)?;
    }
    let is_renegotiation = offer.terms.previous.is_some();
    let state = ExpectServerHello { offer, transcript: TranscriptSoFar::First(transcript), verified: 0 };
    Ok(if is_renegotiation { Step::Refusable(Box::new(state)) } else { Step::expect(state) })
}

impl Offer {
    /// Writes the first ClientHello, or the second one, which continues `transcript`.
    fn client_hello(&mut self, cx: &Cx<'_>, transcript: Option<&Transcript>) -> Result<Vec<u8>, Error> {
        let protocol = cx.protocol();
        let mut draft = HelloDraft::default();
        if self.offers_tls13() {
            draft.suites.extend(self.terms.config.profile.cipher_suites.iter().map(|s| s.id));
        }
        negotiate::offer(cx, self, &mut draft);
        let HelloDraft { suites, extensions } = draft;
        let mut hello = ClientHello::write(
            protocol,
            &self.random,
            &self.session_id,
            &self.legacy_cookie,
            &suites,
            &extensions,
        )?;
        psk::write_binders(self, &mut hello, protocol, transcript);
        self.terms.offered = extensions.into_types();
        Ok(hello)
    }
}

impl Offer {
    /// The same offer, for another ServerHello. `None` with early data, whose keys are in use.
    #[cfg(feature = "association-ports")]
    fn again(&self) -> Option<Self> {
        let Terms {
            config, server, asks, offered, previous, early: None, cache, types, ocsp, extended, ..
        } = &self.terms
        else {
            return None;
        };
        let terms = Terms {
            config: Arc::clone(config),
            server: server.clone(),
            asks: Arc::clone(asks),
            offered: offered.clone(),
            previous: *previous,
            early: None,
            cache: cache.again()?,
            types: *types,
            ocsp: *ocsp,
            extended: *extended,
            ticket_promised: self.terms.ticket_promised,
            connection_id: self.terms.connection_id.clone(),
        };
        Some(Self {
            terms,
            random: self.random,
            session_id: self.session_id.clone(),
            psks: self.psks.clone(),
            shares: self.shares.clone(),
            tls12_suites: self.tls12_suites.clone(),
            tls12_session: self.tls12_session.clone(),
            cookie: self.cookie.clone(),
            legacy_cookie: self.legacy_cookie.clone(),
        })
    }
}

#[derive(Clone)]
enum TranscriptSoFar {
    /// The first ClientHello.
    First(HelloTranscript),
    /// ClientHello1 and HelloRetryRequest, which fixes the cipher suite.
    Retried(Transcript, &'static Tls13CipherSuite),
}

struct ExpectServerHello {
    offer: Offer,
    transcript: TranscriptSoFar,
    /// How many HelloVerifyRequests the client has answered.
    verified: usize,
}

impl ExpectMessage for ExpectServerHello {
    /// A HelloVerifyRequest that the client would refuse may be forged. The server's own answer is still to
    /// come.
    fn reads(&mut self, protocol: Protocol, message: &Message) -> bool {
        match message.typ {
            HandshakeType::SERVER_HELLO => ServerHello::read(message.body()).is_ok(),
            HandshakeType::HELLO_VERIFY_REQUEST => {
                self.accepts_verify_request(protocol)
                    && self.verified < MAX_VERIFY_REQUESTS
                    && hello_verify_request::read(message.body()).is_ok()
            }
            _ => false,
        }
    }

    #[cfg(feature = "association-ports")]
    fn again(&self) -> Option<Box<dyn ExpectMessage>> {
        let offer = self.offer.again()?;
        let transcript = self.transcript.clone();
        Some(Box::new(Self { offer, transcript, verified: self.verified }))
    }

    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        if message.typ == HandshakeType::HELLO_VERIFY_REQUEST && self.accepts_verify_request(cx.protocol()) {
            return self.verify(cx, &message);
        }
        let body = message.expect(HandshakeType::SERVER_HELLO)?;
        let hello = ServerHello::read(body)?;
        if self.chooses_older(cx.protocol(), &hello) {
            return self.tls12(cx, &message, &hello);
        }
        let suite = self.common_checks(cx, &hello)?;
        if hello.is_retry() {
            return self.retry(cx, &message, &hello, suite);
        }
        hello.extensions.answer(&self.offer.terms.offered)?;
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
        let tls12 = self.offer.terms.config.parts.tls12;
        let tls12 = tls12.ok_or(Internal::Bug(Field::NoTls12))?;
        (tls12.client_refused)(cx, self.offer)
    }
}

impl ExpectServerHello {
    /// Whether the server may demand a cookie by a HelloVerifyRequest, before anything else (RFC 6347
    /// §4.2.1).
    fn accepts_verify_request(&self, protocol: Protocol) -> bool {
        protocol.has_legacy_cookie()
            && !self.offer.tls12_suites.is_empty()
            && matches!(self.transcript, TranscriptSoFar::First(_))
    }

    /// Sends the ClientHello again, with the cookie. The transcript begins with the latest ClientHello. RFC
    /// 6347 §4.2.1: a server treats an invalid cookie as none, and demands another one.
    fn verify(mut self: Box<Self>, cx: &mut Cx<'_>, message: &Message) -> Result<Step, Error> {
        if self.verified >= MAX_VERIFY_REQUESTS {
            return Err(PeerMisbehaved::Flood(Field::HelloVerifyRequests).into());
        }
        self.verified += 1;
        self.offer.legacy_cookie = hello_verify_request::read(message.body())?.to_vec();
        let hello = self.offer.client_hello(cx, None)?;
        self.transcript = TranscriptSoFar::First(HelloTranscript::new(&hello, cx.emitter.next_number()));
        cx.send(hello)?;
        cx.emitter.end_of_flight()?;
        Ok(Step::Message(self))
    }

    /// Whether the server chose TLS 1.2, which it does by omitting supported_versions (RFC 8446 §4.2.1). It
    /// cannot choose TLS 1.2 after a HelloRetryRequest, which is a TLS 1.3 message.
    fn chooses_older(&self, protocol: Protocol, hello: &ServerHello<'_>) -> bool {
        !hello.extensions.has(ExtensionType::SUPPORTED_VERSIONS)
            && hello.legacy_version == protocol.legacy_version()
            && !self.offer.tls12_suites.is_empty()
            && matches!(self.transcript, TranscriptSoFar::First(_))
            && !hello.is_retry()
    }

    fn tls12(
        mut self: Box<Self>,
        cx: &mut Cx<'_>,
        message: &Message,
        hello: &ServerHello<'_>,
    ) -> Result<Step, Error> {
        // RFC 8446 §4.1.3: the server supports TLS 1.3, so an attacker has changed the ClientHello.
        if self.offer.offers_tls13() && supported_versions::is_downgrade(&hello.random) {
            return Err(PeerMisbehaved::Downgrade.into());
        }
        // RFC 8446 §D.3: a server whose ticket allows early data supports TLS 1.3. The client fails the
        // connection, and the early data is lost.
        if early_data::reject(cx, &mut self.offer.terms, NoEarlyData::Declined) {
            return Err(PeerIncompatible::Version(Some(hello.legacy_version)).into());
        }
        let TranscriptSoFar::First(transcript) = self.transcript else {
            return Err(Internal::Bug(Field::Tls12AfterRetry).into());
        };
        let tls12 = self.offer.terms.config.parts.tls12;
        let tls12 = tls12.ok_or(Internal::Bug(Field::NoTls12))?;
        (tls12.client)(cx, self.offer, transcript, message, hello)
    }

    /// The checks that a ServerHello and a HelloRetryRequest share. Returns the cipher suite.
    fn common_checks(
        &self,
        cx: &mut Cx<'_>,
        hello: &ServerHello<'_>,
    ) -> Result<&'static Tls13CipherSuite, Error> {
        let protocol = cx.protocol();
        supported_versions::accept(cx, &self.offer, hello)?;
        // RFC 8446 §4.2.1 tells clients to ignore this field beside supported_versions, though §4.1.3 fixes
        // its value. RFC 9846 §4.2.3 changes that: this client rejects any other value, as BoringSSL does.
        if hello.legacy_version != protocol.legacy_version() {
            return Err(PeerMisbehaved::IllegalParameter(Field::LegacyVersion).into());
        }
        // RFC 9147 §5.3: a server over datagrams echoes nothing.
        let echo = if protocol.has_compatibility_mode() { &self.offer.session_id[..] } else { &[] };
        if hello.session_id != echo {
            return Err(PeerMisbehaved::IllegalParameter(Field::LegacySessionIdEcho).into());
        }
        // RFC 9147 §5.1: a HelloVerifyRequest is a message of DTLS 1.2, so the server does not speak DTLS
        // 1.3.
        if !self.offer.legacy_cookie.is_empty() {
            return Err(PeerMisbehaved::IllegalParameter(Field::LegacyCookie).into());
        }
        let suite = self.offer.terms.config.profile.suite(hello.cipher_suite);
        let suite = suite.ok_or(PeerMisbehaved::NotOffered(Field::CipherSuite))?;
        match &self.transcript {
            TranscriptSoFar::Retried(_, first) if first.id != suite.id => {
                Err(PeerMisbehaved::IllegalParameter(Field::SuiteAfterRetry).into())
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
        let Self { mut offer, transcript, verified } = *self;
        // RFC 8446 §4.1.4: the server sends nothing more until the client answers.
        cx.emitter.peer_waits()?;
        let TranscriptSoFar::First(transcript) = transcript else {
            return Err(PeerMisbehaved::SecondRetry.into());
        };
        // RFC 8446 §4.2: only the cookie may appear here without an offer.
        if let Some(typ) =
            hello.extensions.types().find(|t| *t != ExtensionType::COOKIE && !offer.terms.offered.contains(t))
        {
            return Err(PeerMisbehaved::UnsolicitedExtension(typ).into());
        }
        negotiate::accept_retry(cx, &mut offer, &hello.extensions, suite)?;
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
        let transcript = TranscriptSoFar::Retried(transcript, suite);
        Ok(Step::expect(ExpectServerHello { offer, transcript, verified }))
    }
}
