//! Tells what a private key is that [`crate::KeyPair`] does not support.

use const_oid::db::{DB, rfc5912};
use der::asn1::{AnyRef, ContextSpecific, ObjectIdentifier, OctetStringRef, SequenceRef};
use der::{Decode, Reader, SliceReader, Tag, TagNumber, Tagged};
use pkcs8::PrivateKeyInfoRef;

use crate::Error;

/// The reason why this private key, which no library reads, is not usable.
pub(crate) fn reason(der: &[u8]) -> Error {
    if let Ok(info) = PrivateKeyInfoRef::from_der(der) {
        return match info.algorithm.oid {
            rfc5912::ID_EC_PUBLIC_KEY => of_curve(info.algorithm.parameters),
            // Their size or their parameters are at fault.
            rfc5912::RSA_ENCRYPTION | rfc5912::ID_RSASSA_PSS => {
                Error::OtherKey("an RSA key of another size or with other parameters".into())
            }
            other => Error::OtherKey(format!("a key of the type {}", name(other))),
        };
    }
    match sec1_parameters(der) {
        Some(parameters) => of_curve(parameters),
        None => Error::UnusableKey,
    }
}

fn of_curve(parameters: Option<AnyRef<'_>>) -> Error {
    match parameters {
        // SpecifiedECDomain (SEC 1 §C.2), which RFC 5480 §2.1.1 forbids.
        Some(parameters) if parameters.tag() == Tag::Sequence => Error::ExplicitCurve,
        Some(parameters) => match parameters.decode_as::<ObjectIdentifier>() {
            Ok(curve) => Error::OtherKey(format!("an EC key on the curve {}", name(curve))),
            Err(_) => Error::UnusableKey,
        },
        None => Error::OtherKey("an EC key without the name of its curve".into()),
    }
}

/// Curves that the database of names lacks (SEC 2 §2.4, RFC 5639 §4.1).
const CURVES: [(ObjectIdentifier, &str); 4] = [
    (ObjectIdentifier::new_unwrap("1.3.132.0.10"), "secp256k1"),
    (ObjectIdentifier::new_unwrap("1.3.36.3.3.2.8.1.1.7"), "brainpoolP256r1"),
    (ObjectIdentifier::new_unwrap("1.3.36.3.3.2.8.1.1.11"), "brainpoolP384r1"),
    (ObjectIdentifier::new_unwrap("1.3.36.3.3.2.8.1.1.13"), "brainpoolP512r1"),
];

fn name(oid: ObjectIdentifier) -> String {
    let curve = CURVES.iter().find(|(curve, _)| *curve == oid).map(|(_, name)| *name);
    curve.or_else(|| DB.by_oid(&oid)).map_or_else(|| oid.to_string(), str::to_owned)
}

/// The curve in an ECPrivateKey (SEC 1 §C.4); `None` if it is none.
fn sec1_parameters(der: &[u8]) -> Option<Option<AnyRef<'_>>> {
    let sequence = <&SequenceRef>::from_der(der).ok()?;
    let mut fields = SliceReader::new(sequence.as_bytes()).ok()?;
    let version: u8 = fields.decode().ok()?;
    let _key: &OctetStringRef = fields.decode().ok()?;
    let parameters = ContextSpecific::<AnyRef<'_>>::decode_explicit(&mut fields, TagNumber(0)).ok()?;
    (version == 1).then_some(parameters.map(|field| field.value))
}
