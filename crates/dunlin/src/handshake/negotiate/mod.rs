//! The effects of each extension on a handshake. [`crate::extension`] reads and writes the bodies of
//! extensions.
//!
//! Each file has one extension, or a few that are negotiated together, with a function for each of its steps:
//!
//! | step | side | message |
//! | --- | --- | --- |
//! | `offer` | the client writes it | ClientHello |
//! | `check` | the server checks the offer | ClientHello |
//! | `hint` | the server tells the caller, who chooses a profile | ClientHello |
//! | `keep` | the server checks that a renegotiation changes nothing | ClientHello |
//! | `retry` | the server writes it | HelloRetryRequest |
//! | `accept_retry` | the client prepares its second offer | HelloRetryRequest |
//! | `answer` | the server writes it | ServerHello, EncryptedExtensions |
//! | `select` | the client applies the server's selection | ServerHello of TLS 1.3 |
//! | `accept` | the client applies the server's answer | EncryptedExtensions, ServerHello of TLS 1.2 |
//! | `request` | the server writes it | CertificateRequest, SSIRequest |
//! | `demand` | a side reads the peer's certificate demands | ClientHello, CertificateRequest, SSIRequest |
//!
//! For each step, a table below lists the functions in order. The order of the tables that write is the order
//! on the wire. The order of the others decides which of several errors is reported. A program links only the
//! tables that its configuration needs: TLS 1.2 and a client's certificates have their own.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::Cx;
use super::cached::client::Cache;
use super::cached::{Use, server};
use super::hints::ClientHelloInfo;
use super::negotiated::Negotiated;
use super::prove;
use super::retry::Retry;
use super::setup::{ClientConfig, ServerConfig};
use crate::address::ServerAddress;
use crate::auth::AcceptedStaples;
use crate::auth::select::{self, Wanted};
use crate::crypto::{SharedSecret, Tls12CipherSuite, Tls13CipherSuite};
use crate::error::{Error, PeerIncompatible};
use crate::extension::cookie::Cookie;
use crate::extension::key_share::Entry;
use crate::extension::ssi_parameters::SsiParameters;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::message::{CertificateRequest, ClientHello};
use crate::protocol::Protocol;
use crate::resume::ClientSession;
use crate::settings::ProfileSettings;
use crate::sync::Arc;
use crate::wire::{CertificateType, CipherSuite, DidMethod, ExtensionType, ProtocolVersion, SignatureScheme};

pub(crate) mod alpn;
pub(crate) mod asks;
#[cfg(feature = "association-ports")]
mod association_port;
mod certificate_authorities;
pub(crate) mod certificate_type;
mod compress_certificate;
mod connection_id;
pub(crate) mod cookie;
pub(crate) mod did_methods;
pub(crate) mod early_data;
mod ec_point_formats;
pub(crate) mod extended_master_secret;
pub(crate) mod handshake_cache;
pub(crate) mod key_share;
pub(crate) mod psk;
mod record_size;
pub(crate) mod renegotiation_info;
mod rrc;
pub(crate) mod server_name;
pub(crate) mod session_ticket;
mod signature_algorithms;
pub(crate) mod ssi_parameters;
mod staples;
mod status_request;
pub(crate) mod supported_versions;
pub(crate) mod tls_cert_with_extern_psk;

use asks::Asks;
use certificate_type::CertificateTypes;
use early_data::EarlyOffer;
use key_share::OfferedShare;
use psk::{FoundPsk, OfferedPsk};
use renegotiation_info::Previous;

/// This client's offer, until the ServerHello answers it.
pub(crate) struct Offer {
    pub(in crate::handshake) terms: Terms,
    pub(in crate::handshake) random: [u8; 32],
    pub(in crate::handshake) session_id: Vec<u8>,
    pub(in crate::handshake) psks: Vec<OfferedPsk>,
    pub(in crate::handshake) shares: Vec<OfferedShare>,
    /// The TLS 1.2 suites that this client can use.
    pub(in crate::handshake) tls12_suites: Vec<&'static Tls12CipherSuite>,
    /// The TLS 1.2 session that this ClientHello offers by session ID or by ticket.
    pub(in crate::handshake) tls12_session: Option<Box<ClientSession>>,
    /// The cookie of a HelloRetryRequest.
    pub(in crate::handshake) cookie: Option<Cookie>,
    /// The cookie of the latest HelloVerifyRequest.
    pub(in crate::handshake) legacy_cookie: Vec<u8>,
}

impl Offer {
    /// Whether the client offers TLS 1.3. A renegotiation does not, since it keeps the version (RFC 8446
    /// §4.1.2).
    pub(in crate::handshake) fn offers_tls13(&self) -> bool {
        self.terms.config.profile.has_tls13() && self.terms.previous.is_none()
    }
}

/// The data that all states of a client share, from the first ClientHello to the last Finished, in every
/// version.
pub(crate) struct Terms {
    pub(in crate::handshake) config: Arc<ClientConfig>,
    pub(in crate::handshake) server: ServerAddress,
    /// This client's requirements for the server's credential, the same in every ClientHello.
    pub(in crate::handshake) asks: Arc<Asks>,
    /// The types of the extensions in the latest ClientHello.
    pub(in crate::handshake) offered: Vec<ExtensionType>,
    /// In a renegotiation, the data of the previous handshake.
    pub(in crate::handshake) previous: Option<Previous>,
    /// The offer of early data, unless the server has rejected it.
    pub(in crate::handshake) early: Option<EarlyOffer>,
    pub(in crate::handshake) cache: Cache,
    pub(in crate::handshake) types: CertificateTypes,
    /// Whether the server may send an OCSP response.
    pub(in crate::handshake) ocsp: bool,
    /// Whether TLS 1.2 uses the extended master secret (RFC 7627).
    pub(in crate::handshake) extended: bool,
    /// Whether a TLS 1.2 server will send a NewSessionTicket.
    pub(in crate::handshake) ticket_promised: bool,
    /// The connection ID that this client wants to receive, over datagrams. Every ClientHello offers the same
    /// one.
    pub(in crate::handshake) connection_id: Option<Vec<u8>>,
}

impl Terms {
    pub(in crate::handshake) fn new(config: Arc<ClientConfig>, server: ServerAddress) -> Self {
        Self {
            asks: Arc::new(Asks::of(&config)),
            config,
            server,
            offered: Vec::new(),
            previous: None,
            early: None,
            cache: Cache::None,
            types: CertificateTypes::default(),
            ocsp: false,
            extended: false,
            ticket_promised: false,
            connection_id: None,
        }
    }
}

/// A ClientHello in the making.
#[derive(Default)]
pub(crate) struct HelloDraft {
    pub(crate) suites: Vec<CipherSuite>,
    pub(crate) extensions: ExtensionsWriter,
}

/// Adds to a ClientHello.
pub(crate) type OfferStep = fn(&Cx<'_>, &Offer, &mut HelloDraft);

/// The extensions of a ClientHello. pre_shared_key is last (RFC 8446 §4.2.11).
static OFFERS: &[OfferStep] = &[
    server_name::offer,
    supported_versions::offer,
    cookie::offer,
    |cx, offer, hello| {
        let tls12 = offer.terms.config.parts.tls12;
        each(tls12.map_or(&[], |tls12| tls12.offers), cx, offer, hello);
    },
    key_share::offer,
    |cx, offer, hello| {
        let config = &offer.terms.config;
        if !config.profile.trust.is_empty()
            && let Some(certificates) = config.parts.certificates
        {
            each(certificates.steps.offers, cx, offer, hello);
        }
    },
    alpn::offer,
    record_size::offer,
    connection_id::offer,
    rrc::offer,
    #[cfg(feature = "association-ports")]
    association_port::offer,
    handshake_cache::offer,
    psk::offer_modes,
    early_data::offer,
    psk::offer,
];

/// The steps of a client for the extensions that only certificates and raw public keys need.
pub(crate) struct CertificateSteps {
    offers: &'static [OfferStep],
    selects: &'static [SelectStep],
    accepts: &'static [AcceptStep],
}

pub(crate) static CERTIFICATE_STEPS: CertificateSteps = CertificateSteps {
    offers: &[
        signature_algorithms::offer,
        certificate_type::offer,
        status_request::offer,
        compress_certificate::offer,
        certificate_authorities::offer,
        did_methods::offer,
        staples::offer,
        |cx, offer, hello| {
            if let Some(ssi) = offer.terms.config.parts.ssi {
                (ssi.offer)(cx, offer, hello);
            }
        },
        tls_cert_with_extern_psk::offer,
    ],
    selects: &[tls_cert_with_extern_psk::select],
    accepts: &[certificate_type::accept, status_request::accept],
};

/// The extensions of TLS 1.2.
pub(crate) static TLS12_OFFERS: &[OfferStep] = &[
    |_, offer, hello| {
        hello.suites.extend(offer.tls12_suites.iter().map(|suite| suite.id));
        if offer.terms.config.fallback {
            hello.suites.push(CipherSuite::TLS_FALLBACK_SCSV);
        }
    },
    renegotiation_info::offer,
    extended_master_secret::offer,
    session_ticket::offer,
    key_share::offer_tls12,
    ec_point_formats::offer,
];

fn each(steps: &[OfferStep], cx: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    steps.iter().for_each(|step| step(cx, offer, hello));
}

/// Writes the client's offers.
pub(crate) fn offer(cx: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    each(OFFERS, cx, offer, hello);
}

/// Applies one extension of a HelloRetryRequest, which has selected this suite, to the client's offer.
type AcceptRetryStep =
    fn(&mut Cx<'_>, &mut Offer, &Extensions<'_>, &'static Tls13CipherSuite) -> Result<(), Error>;

static ACCEPT_RETRY: &[AcceptRetryStep] =
    &[cookie::accept_retry, key_share::accept_retry, early_data::accept_retry, psk::accept_retry];

/// Changes the client's offer as a HelloRetryRequest demands.
pub(crate) fn accept_retry(
    cx: &mut Cx<'_>,
    offer: &mut Offer,
    request: &Extensions<'_>,
    suite: &'static Tls13CipherSuite,
) -> Result<(), Error> {
    ACCEPT_RETRY.iter().try_for_each(|step| step(cx, offer, request, suite))
}

/// The parameters that a TLS 1.3 ServerHello selects.
pub(crate) struct Selection {
    pub(crate) suite: &'static Tls13CipherSuite,
    /// The index of the PSK in the client's offer.
    pub(crate) psk: Option<usize>,
    /// Whether the PSK authenticates the server. Otherwise the server sends a certificate.
    pub(crate) by_psk: bool,
    /// The secret of the (EC)DHE key exchange. `None` with psk_ke.
    pub(crate) shared: Option<SharedSecret>,
}

type SelectStep = fn(&mut Cx<'_>, &mut Offer, &Extensions<'_>, &mut Selection) -> Result<(), Error>;

static SELECT: &[SelectStep] = &[
    psk::select,
    key_share::select,
    |cx, offer, extensions, selection| match offer.terms.config.parts.certificates {
        Some(certificates) => {
            certificates.steps.selects.iter().try_for_each(|step| step(cx, offer, extensions, selection))
        }
        None => Ok(()),
    },
    psk::require,
    connection_id::select,
    rrc::select,
    early_data::select,
];

/// Applies a TLS 1.3 ServerHello to the client's offer.
pub(crate) fn select(
    cx: &mut Cx<'_>,
    offer: &mut Offer,
    extensions: &Extensions<'_>,
    suite: &'static Tls13CipherSuite,
) -> Result<Selection, Error> {
    let mut selection = Selection { suite, psk: None, by_psk: false, shared: None };
    SELECT.iter().try_for_each(|step| step(cx, offer, extensions, &mut selection))?;
    Ok(selection)
}

/// The server's answers: EncryptedExtensions, or the extensions of a TLS 1.2 ServerHello.
pub(crate) struct Answers<'a> {
    pub(crate) extensions: &'a Extensions<'a>,
    pub(crate) version: ProtocolVersion,
    pub(crate) suite: CipherSuite,
    /// The cached messages that this handshake can use.
    pub(crate) cache: Use,
    /// Whether the server resumes a TLS 1.2 session.
    pub(crate) resumes: bool,
}

/// Applies one of the server's answers.
pub(crate) type AcceptStep = fn(&mut Cx<'_>, &mut Terms, &Answers<'_>) -> Result<(), Error>;

static ACCEPT: &[AcceptStep] = &[
    alpn::accept,
    record_size::accept,
    early_data::accept,
    #[cfg(feature = "association-ports")]
    association_port::accept,
    |cx, terms, answers| {
        let certificates = terms.config.parts.certificates;
        accept_each(certificates.map_or(&[], |certificates| certificates.steps.accepts), cx, terms, answers)
    },
    handshake_cache::accept,
];

static ACCEPT_TLS12: &[AcceptStep] = &[
    renegotiation_info::accept,
    extended_master_secret::accept,
    alpn::accept,
    record_size::accept,
    certificate_type::accept,
    status_request::accept,
    session_ticket::accept,
    connection_id::accept,
    rrc::accept,
    #[cfg(feature = "association-ports")]
    association_port::accept,
    handshake_cache::accept,
];

fn accept_each(
    steps: &[AcceptStep],
    cx: &mut Cx<'_>,
    terms: &mut Terms,
    answers: &Answers<'_>,
) -> Result<(), Error> {
    steps.iter().try_for_each(|step| step(cx, terms, answers))
}

/// Applies EncryptedExtensions.
pub(crate) fn accept(cx: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    accept_each(ACCEPT, cx, terms, answers)
}

/// Applies the extensions of a TLS 1.2 ServerHello.
pub(crate) fn accept_tls12(cx: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    accept_each(ACCEPT_TLS12, cx, terms, answers)
}

type CheckStep = fn(&Extensions<'_>) -> Result<(), Error>;

/// Checks a TLS 1.3 ClientHello, independently of the configuration.
pub(crate) fn check(hello: &ClientHello) -> Result<(), Error> {
    const CHECK: [CheckStep; 2] = [psk::check, key_share::check];
    let extensions = hello.extensions();
    CHECK.iter().try_for_each(|step| step(&extensions))
}

type CheckTls12Step = fn(&ServerConfig, &ClientHello, Option<&Previous>) -> Result<(), Error>;

/// Checks a TLS 1.2 ClientHello. `previous` is the previous handshake, in a renegotiation.
pub(crate) fn check_tls12(
    config: &ServerConfig,
    hello: &ClientHello,
    previous: Option<&Previous>,
) -> Result<(), Error> {
    const CHECK: [CheckTls12Step; 2] = [renegotiation_info::check, extended_master_secret::check];
    CHECK.iter().try_for_each(|step| step(config, hello, previous))
}

type KeepStep = fn(&Cx<'_>, &Negotiated, &ClientHello) -> Result<(), Error>;

/// Checks that the ClientHello of a renegotiation keeps what the previous handshake has negotiated.
pub(crate) fn keep(cx: &Cx<'_>, previous: &Negotiated, hello: &ClientHello) -> Result<(), Error> {
    const KEEP: [KeepStep; 3] = [supported_versions::keep, server_name::keep, alpn::keep];
    KEEP.iter().try_for_each(|step| step(cx, previous, hello))
}

type HintStep = fn(&ClientHello, &mut ClientHelloInfo) -> Result<(), Error>;

/// The hints in a ClientHello for the choice of a profile.
pub(crate) fn hints(hello: &ClientHello) -> Result<ClientHelloInfo, Error> {
    const HINT: [HintStep; 11] = [
        server_name::hint,
        alpn::hint,
        supported_versions::hint,
        key_share::hint,
        signature_algorithms::hint,
        certificate_type::hint,
        psk::hint,
        session_ticket::hint,
        handshake_cache::hint,
        extended_master_secret::hint,
        renegotiation_info::hint,
    ];
    let mut info = ClientHelloInfo {
        cipher_suites: hello.cipher_suites.clone(),
        session_id: hello.session_id().to_vec(),
        ..Default::default()
    };
    HINT.iter().try_for_each(|step| step(hello, &mut info))?;
    Ok(info)
}

type RetryStep = fn(Protocol, &Retry, Option<&[u8]>, &mut ExtensionsWriter);

/// The extensions of a HelloRetryRequest.
pub(crate) fn retry(protocol: Protocol, retry: &Retry, cookie: Option<&[u8]>) -> ExtensionsWriter {
    const RETRY: [RetryStep; 3] = [supported_versions::retry, key_share::retry, cookie::retry];
    let mut w = ExtensionsWriter::default();
    RETRY.iter().for_each(|step| step(protocol, retry, cookie, &mut w));
    w
}

/// The server's choices, as the input of its answers.
pub(crate) struct Choices<'a> {
    pub(crate) config: &'a ServerConfig,
    pub(crate) hello: &'a ClientHello,
    pub(crate) version: ProtocolVersion,
    /// Whether the handshake resumes a session.
    pub(crate) resumes: bool,
    /// The type of the server's certificate, if the handshake uses one.
    pub(crate) server_type: Option<CertificateType>,
    /// The type of certificate that the server requests, if any.
    pub(crate) client_type: Option<CertificateType>,
    /// The use of the handshake cache, if both sides have agreed on any.
    pub(crate) cache: Option<&'a dyn server::Agreed>,
    /// The selected PSK.
    pub(crate) psk: Option<&'a FoundPsk>,
    /// The server's key share.
    pub(crate) share: Option<Entry>,
    pub(crate) takes_early_data: bool,
    /// In a renegotiation of TLS 1.2, the previous handshake.
    pub(crate) previous: Option<&'a Previous>,
    /// Whether a TLS 1.2 handshake exchanges keys on a curve.
    pub(crate) uses_curve: bool,
    /// Whether a TLS 1.2 server sends CertificateStatus.
    pub(crate) staples: bool,
    /// Whether a TLS 1.2 server sends NewSessionTicket.
    pub(crate) promises_ticket: bool,
}

impl<'a> Choices<'a> {
    /// The state before the server has chosen anything in answer to `hello`.
    pub(crate) fn new(config: &'a ServerConfig, hello: &'a ClientHello, version: ProtocolVersion) -> Self {
        Self {
            config,
            hello,
            version,
            resumes: false,
            server_type: None,
            client_type: None,
            cache: None,
            psk: None,
            share: None,
            takes_early_data: false,
            previous: None,
            uses_curve: false,
            staples: false,
            promises_ticket: false,
        }
    }

    /// Whether the client offers an extension of this type.
    fn offers(&self, typ: ExtensionType) -> bool {
        self.hello.extensions().has(typ)
    }
}

/// Writes one of the server's answers.
pub(crate) type AnswerStep = fn(&mut Cx<'_>, &Choices<'_>, &mut ExtensionsWriter) -> Result<(), Error>;

/// The extensions of a TLS 1.3 ServerHello.
pub(crate) static SERVER_HELLO: &[AnswerStep] = &[
    supported_versions::answer,
    key_share::answer,
    psk::answer,
    tls_cert_with_extern_psk::answer,
    connection_id::answer,
    rrc::answer,
];

/// EncryptedExtensions.
pub(crate) static ENCRYPTED_EXTENSIONS: &[AnswerStep] = &[
    server_name::answer,
    alpn::answer,
    record_size::answer,
    certificate_type::answer,
    early_data::answer,
    #[cfg(feature = "association-ports")]
    association_port::answer,
    handshake_cache::answer,
];

/// The extensions of a TLS 1.2 ServerHello.
pub(crate) static SERVER_HELLO_TLS12: &[AnswerStep] = &[
    server_name::answer,
    alpn::answer,
    record_size::answer,
    certificate_type::answer,
    renegotiation_info::answer,
    extended_master_secret::answer,
    handshake_cache::answer,
    ec_point_formats::answer,
    status_request::answer,
    session_ticket::answer,
    connection_id::answer,
    rrc::answer,
    #[cfg(feature = "association-ports")]
    association_port::answer,
];

/// Writes the server's answers in the order of `steps`.
pub(crate) fn answer(
    steps: &[AnswerStep],
    cx: &mut Cx<'_>,
    chosen: &Choices<'_>,
) -> Result<ExtensionsWriter, Error> {
    let mut w = ExtensionsWriter::default();
    steps.iter().try_for_each(|step| step(cx, chosen, &mut w))?;
    Ok(w)
}

/// A server's request for its client's credential. The server asks its verifiers only once, so that the
/// choice of the type and the message agree.
pub(crate) struct Request {
    /// The type of the client's credential.
    pub(crate) typ: CertificateType,
    /// Whether the credential travels in messages of its own, so that SSIRequest asks for it.
    pub(crate) by_messages: bool,
    /// The methods of identifiers that both sides resolve, for a decentralised identity. Otherwise empty.
    pub(crate) did_methods: Vec<DidMethod>,
    /// The staples that the server accepts beside a decentralised identity. Otherwise empty.
    pub(crate) staples: AcceptedStaples,
}

impl Request {
    /// For a certificate that is no decentralised identity.
    fn certificate(typ: CertificateType) -> Self {
        Self { typ, by_messages: false, did_methods: Vec::new(), staples: AcceptedStaples::default() }
    }

    /// The extensions that the client may send with its certificate, since the server requests them.
    pub(crate) fn beside_certificate(&self) -> Vec<ExtensionType> {
        if self.by_messages { Vec::new() } else { self.staples.extensions() }
    }
}

type RequestStep = fn(&ProfileSettings, &Request, &mut ExtensionsWriter);

/// The extensions of a CertificateRequest.
static REQUEST: &[RequestStep] = &[
    signature_algorithms::request,
    compress_certificate::request,
    certificate_authorities::request,
    did_methods::request,
    staples::request,
];

/// Writes a CertificateRequest or SSIRequest.
pub(crate) fn request(config: &ServerConfig, request: &Request) -> Result<Vec<u8>, Error> {
    if request.by_messages
        && let Some(ssi) = config.parts.ssi
    {
        return (ssi.write_request)(&config.profile, request);
    }
    let mut w = ExtensionsWriter::default();
    REQUEST.iter().for_each(|step| step(&config.profile, request, &mut w));
    CertificateRequest::write(&w)
}

/// The peer's requirements for this side's certificates.
#[derive(Default)]
pub(crate) struct Demands {
    /// The certificate types that the peer accepts. A client lists only those that it offered.
    pub(crate) types: Vec<CertificateType>,
    pub(crate) schemes: Vec<SignatureScheme>,
    /// The schemes in chains, if the peer listed them separately.
    pub(crate) chain_schemes: Option<Vec<SignatureScheme>>,
    /// The names of the peer's trust anchors, in DER; empty if the peer sent none.
    pub(crate) authorities: Vec<Vec<u8>>,
    /// The name that the client wants to reach.
    pub(crate) server_name: Option<String>,
    /// The methods of decentralised identifiers that the peer resolves, if it listed them.
    pub(crate) did_methods: Option<Vec<DidMethod>>,
    /// The decentralised identity that the peer prefers to a certificate, in messages of its own.
    pub(crate) ssi: Option<SsiParameters>,
    pub(crate) reads: prove::Reads,
}

pub(super) type DemandStep = fn(&Extensions<'_>, &mut Demands) -> Result<(), Error>;

/// The demands in a TLS 1.3 ClientHello.
static IN_CLIENT_HELLO: &[DemandStep] = &[
    signature_algorithms::demand,
    certificate_type::demand,
    certificate_authorities::demand,
    server_name::demand,
    compress_certificate::demand,
    status_request::demand,
    did_methods::demand,
    staples::demand,
];

/// The demands in a TLS 1.2 ClientHello.
static IN_CLIENT_HELLO_TLS12: &[DemandStep] = &[
    signature_algorithms::demand_tls12,
    certificate_type::demand,
    certificate_authorities::demand,
    server_name::demand,
];

/// The demands in a CertificateRequest.
static IN_CERTIFICATE_REQUEST: &[DemandStep] = &[
    signature_algorithms::demand,
    certificate_authorities::demand,
    compress_certificate::demand,
    did_methods::demand,
    staples::demand,
];

impl Demands {
    fn read(extensions: &Extensions<'_>, steps: &[DemandStep]) -> Result<Self, Error> {
        let mut demands = Self::default();
        steps.iter().try_for_each(|step| step(extensions, &mut demands))?;
        Ok(demands)
    }

    /// The demands of a TLS 1.3 client, as far as they concern a server with this configuration.
    pub(crate) fn of_client(hello: &ClientHello, config: &ServerConfig) -> Result<Self, Error> {
        let mut demands = Self::read(&hello.extensions(), IN_CLIENT_HELLO)?;
        demands.types.retain(|typ| config.profile.has_certificates(*typ, true));
        if let Some(ssi) = config.parts.ssi {
            (ssi.demand)(&config.profile, hello, &mut demands)?;
        }
        Ok(demands)
    }

    pub(crate) fn of_tls12_client(hello: &ClientHello) -> Result<Self, Error> {
        Self::read(&hello.extensions(), IN_CLIENT_HELLO_TLS12)
    }

    /// The demands of a CertificateRequest for a certificate of the type that the server has named. A client
    /// sends only types that it offered; a server that names no type means X.509 (RFC 7250 §4.2).
    pub(crate) fn of_server(
        request: &Extensions<'_>,
        profile: &ProfileSettings,
        typ: CertificateType,
    ) -> Result<Self, Error> {
        let mut demands = Self::read(request, IN_CERTIFICATE_REQUEST)?;
        if typ == CertificateType::VERIFIABLE_CREDENTIAL {
            did_methods::require(&demands)?;
        }
        demands.types.extend(profile.own_types().contains(&typ).then_some(typ));
        Ok(demands)
    }

    pub(crate) fn wanted<'a>(&'a self, allows: &'a dyn Fn(SignatureScheme) -> bool) -> Wanted<'a> {
        Wanted {
            types: &self.types,
            schemes: &self.schemes,
            allows,
            chain_schemes: self.chain_schemes.as_deref(),
            authorities: &self.authorities,
            server_name: self.server_name.as_deref(),
            did_methods: self.did_methods.as_deref().unwrap_or_default(),
            by_messages: false,
        }
    }

    /// Chooses a credential of this profile with a scheme that `allows` admits. If none suits, the error says
    /// why the last one does not. A side without the decentralised identity that the peer prefers falls back
    /// to a certificate (§III.D of the paper).
    pub(crate) fn choose(
        &self,
        profile: &ProfileSettings,
        allows: &dyn Fn(SignatureScheme) -> bool,
    ) -> Result<select::Choice, PeerIncompatible> {
        let signatures = profile.provider.signatures;
        let select = |wanted: &Wanted<'_>| {
            select::select(signatures, &profile.credentials, &profile.certificates.reserved, wanted)
        };
        let certificate = self.wanted(allows);
        let Some(ssi) = &self.ssi else { return select(&certificate) };
        let identity = Wanted {
            types: core::slice::from_ref(&ssi.asks_for),
            did_methods: &ssi.did_methods,
            authorities: &[],
            by_messages: true,
            ..certificate
        };
        select(&identity).or_else(|why| select(&self.wanted(allows)).map_err(|_| why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::PeerMisbehaved;
    use crate::extension::{Context, rules};

    /// draft-vesco-vcauthtls: a server that requests a verifiable credential lists the methods of identifiers
    /// that it resolves.
    #[test]
    fn refuses_a_request_for_a_credential_without_methods() {
        let read = |extensions: &[u8]| {
            let extensions = Extensions::parse(extensions, &rules(Context::CertificateRequest)).unwrap();
            let mut demands = Demands::read(&extensions, IN_CERTIFICATE_REQUEST).unwrap();
            demands.types.push(CertificateType::VERIFIABLE_CREDENTIAL);
            did_methods::require(&demands)
        };
        let schemes = [0, 13, 0, 4, 0, 2, 4, 3];
        let missing = PeerMisbehaved::MissingExtension(ExtensionType::DID_METHODS);
        assert_eq!(read(&schemes), Err(missing.into()));
        assert_eq!(read(&[&schemes[..], &[0xff, 2, 0, 4, 0, 2, 0xff, 0xe0]].concat()), Ok(()));
    }
}
