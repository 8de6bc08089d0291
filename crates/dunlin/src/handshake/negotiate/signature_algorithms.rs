//! `signature_algorithms` and `signature_algorithms_cert` (RFC 8446 §4.2.3): the schemes that a side
//! verifies.

use super::{Demands, HelloDraft, Offer, Request};
use crate::error::Error;
use crate::extension::signature_algorithms::{SignatureAlgorithms, SignatureAlgorithmsCert};
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::handshake::hints::ClientHelloInfo;
use crate::message::ClientHello;
use crate::settings::ProfileSettings;
use crate::wire::SignatureScheme;
use alloc::vec::Vec;

/// draft-ietf-tls-tls13-pkcs1 §2: only clients may sign with RSA_PKCS1_SHA256_LEGACY, so a client does not
/// offer it.
pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let profile = &offer.terms.config.profile;
    let schemes = profile.signature_schemes.iter().copied();
    let schemes = schemes.filter(|s| *s != SignatureScheme::RSA_PKCS1_SHA256_LEGACY).collect();
    put(profile, schemes, &mut hello.extensions);
}

pub(super) fn request(profile: &ProfileSettings, _: &Request, w: &mut ExtensionsWriter) {
    put(profile, profile.signature_schemes.clone(), w);
}

fn put(profile: &ProfileSettings, schemes: Vec<SignatureScheme>, w: &mut ExtensionsWriter) {
    w.put(&SignatureAlgorithms(schemes));
    let for_chains = profile.certificate_signature_schemes.clone();
    w.put_some(for_chains.map(SignatureAlgorithmsCert).as_ref());
}

pub(super) fn hint(hello: &ClientHello, info: &mut ClientHelloInfo) -> Result<(), Error> {
    info.signature_schemes =
        hello.extensions().get::<SignatureAlgorithms>()?.map_or_else(Vec::new, |schemes| schemes.0);
    Ok(())
}

/// RFC 8446 §4.2.3, §4.3.2: in TLS 1.3 signature_algorithms is required if this side shall authenticate by
/// certificate.
pub(super) fn demand(extensions: &Extensions<'_>, demands: &mut Demands) -> Result<(), Error> {
    demands.schemes = extensions.require::<SignatureAlgorithms>()?.0;
    demand_of_chains(extensions, demands)
}

/// RFC 9155 §2: without signature_algorithms a TLS 1.2 client means SHA-1, which this engine does not use.
pub(super) fn demand_tls12(extensions: &Extensions<'_>, demands: &mut Demands) -> Result<(), Error> {
    demands.schemes = extensions.get::<SignatureAlgorithms>()?.map_or_else(Vec::new, |schemes| schemes.0);
    demand_of_chains(extensions, demands)
}

fn demand_of_chains(extensions: &Extensions<'_>, demands: &mut Demands) -> Result<(), Error> {
    demands.chain_schemes = extensions.get::<SignatureAlgorithmsCert>()?.map(|schemes| schemes.0);
    Ok(())
}
