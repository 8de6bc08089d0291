//! `ssi_parameters` (docs/identity.md): the decentralised identities for which two sides ask each other in
//! messages of their own. The certificate type for verifiable credentials wins where both sides know it.

use alloc::vec::Vec;
use core::fmt;

use super::{
    DemandStep, Demands, HelloDraft, Offer, OfferStep, Request, did_methods, signature_algorithms, staples,
};
use crate::auth::{AcceptedStaples, Credential};
use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::extension::certificate_type::{ClientTypes, ServerTypes};
use crate::extension::signature_algorithms::SignatureAlgorithms;
use crate::extension::ssi_parameters::{LinksParameters, SsiParameters};
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::ssi::{self, Asked};
use crate::handshake::verify::ExpectCertificate;
use crate::handshake::{Cx, Step};
use crate::message::{ClientHello, SsiRequest};
use crate::settings::{ProfileSettings, SsiMessages};
use crate::wire::{CertificateType, DidMethod, ExtensionType, Field};

/// The steps of a side that uses these messages. Only such configurations point to them, so other programs do
/// not link them.
pub(crate) struct SsiSteps {
    /// Returns the ssi_parameters that a client sends.
    pub(in crate::handshake) ask: fn(&ProfileSettings) -> Option<SsiParameters>,
    /// Writes a client's ssi_parameters into its ClientHello.
    pub(in crate::handshake) offer: OfferStep,
    /// Adds to a server's demands the identity for which the client asks.
    pub(in crate::handshake) demand: fn(&ProfileSettings, &ClientHello, &mut Demands) -> Result<(), Error>,
    /// The identity for which a server asks the client.
    pub(in crate::handshake) request: fn(&ProfileSettings, &ClientHello) -> Result<Option<Request>, Error>,
    /// Writes an SSIRequest.
    pub(in crate::handshake) write_request: fn(&ProfileSettings, &Request) -> Result<Vec<u8>, Error>,
    /// The demands in the body of an SSIRequest to a client that asks for these parameters.
    pub(in crate::handshake) read_request:
        fn(&[u8], &ProfileSettings, &SsiParameters) -> Result<Demands, Error>,
    /// Waits for the peer's identity, or for a Certificate in its place.
    pub(in crate::handshake) expect: fn(Asked, ExpectCertificate) -> Step,
}

/// Prints no code addresses, which would help an attacker.
impl fmt::Debug for SsiSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SsiSteps")
    }
}

pub(crate) static SSI_STEPS: SsiSteps =
    SsiSteps { ask, offer, demand, request, write_request, read_request, expect: ssi::expect };

/// The demands in an SSIRequest, beside ssi_parameters.
static IN_SSI_REQUEST: &[DemandStep] = &[signature_algorithms::demand, staples::demand];

/// The ssi_parameters that this client sends. A client that only has a decentralised identity of its own says
/// so by asking for a certificate.
fn ask(profile: &ProfileSettings) -> Option<SsiParameters> {
    match profile.peer_types().into_iter().find(|typ| typ.is_self_sovereign()) {
        Some(asks_for) => Some(SsiParameters { asks_for, did_methods: resolved(profile, asks_for) }),
        None => {
            let mut own = profile.credentials.iter().map(Credential::certificate_type);
            let certificate = SsiParameters { asks_for: CertificateType::X509, did_methods: Vec::new() };
            own.any(CertificateType::is_self_sovereign).then_some(certificate)
        }
    }
}

/// The methods that the verifier of this type resolves, and that have a number here.
fn resolved(profile: &ProfileSettings, typ: CertificateType) -> Vec<DidMethod> {
    let mut methods = profile.trust.did_methods(typ);
    methods.retain(|method| method.to_byte().is_some());
    if profile.ssi.is_links() {
        // Its own methods first: a server of the public implementation that asks for client authentication
        // crashes in the second ClientHello after a HelloRetryRequest unless the common method is the first
        // in the list.
        methods.sort_by_key(|method| method.to_byte());
    }
    methods
}

fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    if offer.offers_tls13()
        && let Some(asks) = offer.terms.asks.ssi.as_ref()
    {
        put(offer.terms.config.profile.ssi, asks.clone(), &mut hello.extensions);
    }
}

fn put(ssi: SsiMessages, asks: SsiParameters, w: &mut ExtensionsWriter) {
    if ssi.is_links() { w.put(&LinksParameters(asks)) } else { w.put(&asks) }
}

fn get(ssi: SsiMessages, extensions: &Extensions<'_>) -> Result<Option<SsiParameters>, Error> {
    match ssi {
        SsiMessages::Off => Ok(None),
        #[cfg(feature = "links")]
        SsiMessages::Links => Ok(extensions.get::<LinksParameters>()?.map(|links| links.0)),
        SsiMessages::Beside | SsiMessages::Alone => extensions.get(),
    }
}

/// The directions in which both sides know the certificate type for verifiable credentials.
struct ByCertificate {
    of_server: bool,
    of_client: bool,
}

impl ByCertificate {
    fn read(profile: &ProfileSettings, hello: &ClientHello) -> Result<Self, Error> {
        let credential = CertificateType::VERIFIABLE_CREDENTIAL;
        let extensions = hello.extensions();
        let exists = profile.ssi.leaves(credential);
        let lists = |types: Option<Vec<CertificateType>>| {
            exists && types.is_some_and(|types| types.contains(&credential))
        };
        Ok(Self {
            of_server: lists(extensions.get::<ServerTypes>()?.map(|types| types.0)),
            of_client: lists(extensions.get::<ClientTypes>()?.map(|types| types.0)),
        })
    }

    /// Whether the client knows the type at all, and so expects no credential in a message of its own.
    const fn is_known(&self) -> bool {
        self.of_server || self.of_client
    }
}

/// Adds to the demands in a ClientHello the decentralised identity for which the client asks.
fn demand(profile: &ProfileSettings, hello: &ClientHello, demands: &mut Demands) -> Result<(), Error> {
    let Some(asks) = get(profile.ssi, &hello.extensions())? else { return Ok(()) };
    let is_ignored = match asks.asks_for {
        CertificateType::VERIFIABLE_CREDENTIAL => ByCertificate::read(profile, hello)?.is_known(),
        CertificateType::DECENTRALISED_IDENTIFIER => false,
        _ => true,
    };
    if !is_ignored {
        demands.asks_for(asks, profile.ssi);
    }
    Ok(())
}

/// The decentralised identity for which the server asks the client: the first of its own types for which both
/// sides resolve a common method; but first a bare DID if the client seems to have nothing else. A client
/// that lists no methods resolves none, and shows any identity that it has. `None` leaves the request to the
/// certificate types: where a credential of the client comes first and can be a certificate, they request it.
fn request(profile: &ProfileSettings, hello: &ClientHello) -> Result<Option<Request>, Error> {
    let Some(theirs) = get(profile.ssi, &hello.extensions())? else { return Ok(None) };
    let asks_for_certificate = theirs.asks_for == CertificateType::X509;
    let by_certificate = ByCertificate::read(profile, hello)?;
    let mut types: Vec<_> = profile.peer_types().into_iter().filter(|typ| typ.is_self_sovereign()).collect();
    if !profile.ssi.is_links() && seems_bare(hello, &theirs)? {
        types.sort_by_key(|typ| *typ != CertificateType::DECENTRALISED_IDENTIFIER);
    }
    for typ in types {
        let is_certificate = typ == CertificateType::VERIFIABLE_CREDENTIAL && by_certificate.is_known();
        if is_certificate && by_certificate.of_client && !did_methods::common(profile, hello)?.is_empty() {
            return Ok(None);
        }
        // §IV.B of the paper: the server "must select the same authentication mode as the client".
        let is_other = profile.ssi.is_links() && !asks_for_certificate && theirs.asks_for != typ;
        if is_certificate || is_other {
            continue;
        }
        let mut did_methods = resolved(profile, typ);
        did_methods.retain(|method| asks_for_certificate || theirs.did_methods.contains(method));
        if !did_methods.is_empty() {
            let staples = if profile.ssi.is_links() {
                AcceptedStaples::default()
            } else {
                profile.trust.staples(typ == CertificateType::VERIFIABLE_CREDENTIAL)
            };
            return Ok(Some(Request { typ, by_messages: true, did_methods, staples }));
        }
    }
    Ok(None)
}

/// Whether a client seems to have a bare DID and no credential: it could show none as a certificate, and asks
/// for none itself. No field says what it has.
fn seems_bare(hello: &ClientHello, theirs: &SsiParameters) -> Result<bool, Error> {
    let types = hello.extensions().get::<ClientTypes>()?;
    let has_credential = types.is_some_and(|types| types.0.contains(&CertificateType::VERIFIABLE_CREDENTIAL));
    Ok(theirs.asks_for != CertificateType::VERIFIABLE_CREDENTIAL && !has_credential)
}

/// Writes an SSIRequest.
fn write_request(profile: &ProfileSettings, request: &Request) -> Result<Vec<u8>, Error> {
    let mut w = ExtensionsWriter::default();
    w.put(&SignatureAlgorithms(profile.signature_schemes.clone()));
    let asks = SsiParameters { asks_for: request.typ, did_methods: request.did_methods.clone() };
    put(profile.ssi, asks, &mut w);
    staples::put(&request.staples, &mut w);
    SsiRequest::write(&w)
}

/// The demands in the body of an SSIRequest. `ours` is what this client asks of its server. A client without
/// such an identity shows its X.509 certificate, which the server may accept; the paper's clients abort.
fn read_request(body: &[u8], profile: &ProfileSettings, ours: &SsiParameters) -> Result<Demands, Error> {
    let SsiRequest { extensions } = SsiRequest::read(body)?;
    let mut demands = Demands::read(&extensions, IN_SSI_REQUEST)?;
    let typ = if profile.ssi.is_links() {
        ExtensionType::SSI_PARAMETERS_LINKS
    } else {
        ExtensionType::SSI_PARAMETERS
    };
    let theirs = get(profile.ssi, &extensions)?.ok_or(PeerMisbehaved::MissingExtension(typ))?;
    // §IV.B of the paper: the client aborts if the server asks for another mode than it does itself.
    let is_other =
        profile.ssi.is_links() && ours.asks_for != CertificateType::X509 && ours.asks_for != theirs.asks_for;
    if theirs.asks_for == CertificateType::X509 || is_other {
        return Err(PeerMisbehaved::IllegalParameter(Field::Extension(typ)).into());
    }
    if theirs.did_methods.is_empty() {
        return Err(Malformed::Length(Field::Extension(typ)).into());
    }
    demands.asks_for(theirs, profile.ssi);
    let falls_back = !profile.ssi.is_links() && profile.own_types().contains(&CertificateType::X509);
    demands.types.extend(falls_back.then_some(CertificateType::X509));
    Ok(demands)
}

impl Demands {
    /// Adds the decentralised identity that the peer prefers to a certificate.
    fn asks_for(&mut self, asks: SsiParameters, ssi: SsiMessages) {
        self.ssi = Some(asks);
        if ssi.is_links() {
            // The public implementation knows neither.
            self.reads.staples = AcceptedStaples::default();
        }
        self.reads.present = Some(ssi::present);
    }
}
