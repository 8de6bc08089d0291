//! Makes and extends certificate revocation lists (RFC 5280 §5).

use std::str::FromStr;
use std::time::SystemTime;

use const_oid::db::rfc5280;
use const_oid::{AssociatedOid, ObjectIdentifier};
use der::asn1::{AnyRef, BitString, Uint};
use der::{Decode, Encode, Reader, SliceReader};
use pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_cert::certificate::Version;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{CrlNumber, IssuingDistributionPoint};
use x509_cert::name::Name;

use crate::encode::{Signer, authority_key_identifier, extension};
use crate::error::encoding;
use crate::{Certificate, CertificateList, Error, RevocationReason, RevokedCert, TbsCertList, Validity};

impl FromStr for RevocationReason {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|reason| reason.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| Error::UnknownReason(name.to_owned()))
    }
}

/// The content of a CRL to be made.
#[derive(Clone, Debug)]
pub struct CrlSpec<'a> {
    /// The authority's previous CRL, whose entries the new one keeps; `None` for the first.
    pub previous: Option<CertificateRevocationListDer<'a>>,
    /// Certificates to revoke now. Entries of the previous CRL keep their date and reason.
    pub revoke: Vec<CertificateDer<'a>>,
    /// Why they are revoked; `None`: the CRL gives no reason.
    pub reason: Option<RevocationReason>,
    /// thisUpdate and nextUpdate: when it was made, and when the next one is due at the latest.
    pub validity: Validity,
}

/// Makes a CRL signed by `signer`, with `now` as the revocation date of new entries.
pub(crate) fn revocation_list(
    signer: &Signer<'_>,
    spec: &CrlSpec<'_>,
    now: SystemTime,
) -> Result<CertificateRevocationListDer<'static>, Error> {
    let (number, mut revoked) = match &spec.previous {
        Some(previous) => continued(signer, previous)?,
        None => (1, vec![]),
    };
    let revocation_date = crate::time::encoded(now)?;
    // Omit the reason rather than write "unspecified" (RFC 5280 §5.3.1).
    let reason = spec.reason.map(|reason| extension(false, &reason.encoded()));
    let reason = reason.transpose()?.map(|reason| vec![reason]);
    for der in &spec.revoke {
        let certificate = Certificate::from_der(der)?;
        if !Name::from_der(certificate.issuer().as_der()).is_ok_and(|issuer| issuer == *signer.name) {
            return Err(Error::NotIssued);
        }
        let serial_number = certificate.fields.tbs.serial_number;
        if revoked.iter().all(|entry: &RevokedCert| entry.serial_number != serial_number) {
            revoked.push(RevokedCert {
                serial_number,
                revocation_date,
                crl_entry_extensions: reason.clone(),
            });
        }
    }
    let validity = spec.validity.encoded()?;
    let algorithm = signer.key.signature_algorithm()?;
    // Every CRL carries both extensions (RFC 5280 §5.2). An authority in lean form has no key identifier to
    // give.
    let number = Uint::new(&number.to_be_bytes()).map_err(encoding)?;
    let mut extensions = vec![extension(false, &CrlNumber(number))?];
    extensions.extend(authority_key_identifier(signer.key_id)?);
    let tbs_cert_list = TbsCertList {
        version: Version::V2,
        signature: algorithm.clone(),
        issuer: signer.name.clone(),
        this_update: validity.not_before,
        next_update: Some(validity.not_after),
        // Without entries the list is absent, not empty (RFC 5280 §5.1.2.6).
        revoked_certificates: (!revoked.is_empty()).then_some(revoked),
        crl_extensions: Some(extensions),
    };
    let signature = signer.key.sign(&tbs_cert_list.to_der().map_err(encoding)?)?;
    let signature = BitString::from_bytes(&signature).map_err(encoding)?;
    let list = CertificateList { tbs_cert_list, signature_algorithm: algorithm, signature };
    Ok(list.to_der().map_err(encoding)?.into())
}

/// The number of the CRL that follows `previous`, and the entries it keeps.
fn continued(signer: &Signer<'_>, previous: &[u8]) -> Result<(u64, Vec<RevokedCert>), Error> {
    let malformed = |error: der::Error| Error::MalformedList(error.to_string());
    let signed = CertificateList::from_der(previous).map_err(malformed)?;
    let list = signed.tbs_cert_list;
    if list.issuer != *signer.name {
        return Err(Error::OtherIssuer);
    }
    // The issuer's signature under the new list vouches for every entry of the previous one.
    let tbs = signed_part(previous).map_err(malformed)?;
    let algorithm = &signed.signature_algorithm;
    // RFC 5280 §5.1.1.2: the algorithm "MUST" be the one that the signed part names.
    if *algorithm != list.signature || !signer.key.has_signed(algorithm, tbs, signed.signature.raw_bytes())? {
        return Err(Error::OtherSigner);
    }
    check_continues(&list)?;
    let next = number(&list)
        .map_err(malformed)?
        .unwrap_or(0)
        .checked_add(1)
        .ok_or_else(|| Error::MalformedList("its CRL number cannot grow any further".into()))?;
    Ok((next, list.revoked_certificates.unwrap_or_default()))
}

/// The bytes of a CRL under its signature.
fn signed_part(list: &[u8]) -> der::Result<&[u8]> {
    SliceReader::new(AnyRef::from_der(list)?.value())?.tlv_bytes()
}

/// Checks that a complete list of all certificates of this issuer can have the entries of `list`.
fn check_continues(list: &TbsCertList) -> Result<(), Error> {
    let unlike = |what: &str| Err(Error::UnlikeList(what.into()));
    for extension in list.crl_extensions.iter().flatten() {
        match extension.extn_id {
            rfc5280::ID_CE_CRL_NUMBER | rfc5280::ID_CE_AUTHORITY_KEY_IDENTIFIER => {}
            // RFC 5280 §5.2.4: it lists only changes.
            rfc5280::ID_CE_DELTA_CRL_INDICATOR => return unlike("a delta CRL"),
            // RFC 5280 §5.2.5: it may have entries of other issuers, or is about some certificates only.
            rfc5280::ID_CE_ISSUING_DISTRIBUTION_POINT => {
                let point = IssuingDistributionPoint::from_der(extension.extn_value.as_bytes());
                return unlike(if point.is_ok_and(|point| point.indirect_crl) {
                    "an indirect CRL"
                } else {
                    "a CRL about a part of the authority's certificates"
                });
            }
            _ => check_known(extension)?,
        }
    }
    let entries = list.revoked_certificates.iter().flatten();
    for extension in entries.flat_map(|entry| entry.crl_entry_extensions.iter().flatten()) {
        match extension.extn_id {
            rfc5280::ID_CE_CRL_REASONS | rfc5280::ID_CE_INVALIDITY_DATE => {}
            // RFC 5280 §5.3.3
            rfc5280::ID_CE_CERTIFICATE_ISSUER => return unlike("a CRL with entries of other issuers"),
            _ => check_known(extension)?,
        }
    }
    Ok(())
}

/// RFC 5280 §5.2, §5.3: a list with a critical extension that is not understood must not be used.
fn check_known(extension: &Extension) -> Result<(), Error> {
    let what = |oid: &ObjectIdentifier| format!("a CRL with the unknown critical extension {oid}");
    if extension.critical { Err(Error::UnlikeList(what(&extension.extn_id))) } else { Ok(()) }
}

/// The CRL number (RFC 5280 §5.2.3).
pub(crate) fn number(list: &TbsCertList) -> der::Result<Option<u64>> {
    let mut extensions = list.crl_extensions.iter().flatten();
    let number = extensions.find(|extension| extension.extn_id == CrlNumber::OID);
    number.map(|number| u64::from_der(number.extn_value.as_bytes())).transpose()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use der::asn1::OctetString;

    use super::*;
    use crate::{Authority, CaSpec, KeyPair, KeyType, LeafSpec};

    fn validity() -> Validity {
        Validity::from_now_days(30).unwrap()
    }

    fn authority(key_type: KeyType) -> Authority {
        let key = KeyPair::generate(key_type).unwrap();
        Authority::root(&CaSpec::new("CN=root".parse().unwrap(), validity()), key).unwrap()
    }

    /// The first CRL of this authority, with one entry.
    fn first(root: &Authority) -> CertificateRevocationListDer<'static> {
        let leaf = LeafSpec::client("CN=leaf".parse().unwrap(), validity());
        let leaf = root.issue(&leaf, KeyPair::generate(KeyType::P256).unwrap()).unwrap();
        let revoke = vec![leaf.chain[0].clone()];
        let spec = CrlSpec { previous: None, revoke, reason: None, validity: validity() };
        root.revocation_list(&spec).unwrap()
    }

    /// The entries of the CRL that follows.
    fn renewed(root: &Authority, previous: &[u8]) -> Result<usize, Error> {
        let previous = Some(previous.to_vec().into());
        let spec = CrlSpec { previous, revoke: vec![], reason: None, validity: validity() };
        let list = CertificateList::from_der(&root.revocation_list(&spec)?).unwrap();
        Ok(list.tbs_cert_list.revoked_certificates.map_or(0, |entries| entries.len()))
    }

    /// The CRL with a change, signed by this authority.
    fn signed(
        root: &Authority,
        list: &CertificateRevocationListDer<'_>,
        change: impl FnOnce(&mut TbsCertList),
    ) -> Vec<u8> {
        let mut list = CertificateList::from_der(list).unwrap();
        change(&mut list.tbs_cert_list);
        let signature = root.key().sign(&list.tbs_cert_list.to_der().unwrap()).unwrap();
        list.signature = BitString::from_bytes(&signature).unwrap();
        list.to_der().unwrap()
    }

    #[test]
    fn continues_only_what_its_own_key_has_signed() {
        for key_type in KeyType::ALL {
            if matches!(key_type, KeyType::RsaPss3072 | KeyType::RsaPss4096) {
                // They take long to make.
                continue;
            }
            let root = authority(key_type);
            let list = first(&root);
            assert_eq!(renewed(&root, &list), Ok(1), "{key_type:?}");
            // An entry of another serial number, under the old signature.
            let mut changed = list.to_vec();
            let serial =
                CertificateList::from_der(&list).unwrap().tbs_cert_list.revoked_certificates.unwrap();
            let serial = serial[0].serial_number.as_bytes().to_vec();
            let at = changed.windows(serial.len()).position(|window| window == serial).unwrap();
            changed[at + 1] ^= 1;
            assert_eq!(renewed(&root, &changed), Err(Error::OtherSigner), "{key_type:?}");
        }
        let root = authority(KeyType::P256);
        let other = authority(KeyType::P256);
        assert_eq!(renewed(&root, &first(&other)), Err(Error::OtherSigner));
        assert_eq!(renewed(&root, &first(&authority(KeyType::Ed25519))), Err(Error::OtherSigner));
        // RFC 5280 §5.1.1.2: both fields name the same algorithm.
        let inner = signed(&root, &first(&root), |tbs| tbs.signature.oid = rfc5280::ID_CE_CRL_NUMBER);
        assert_eq!(renewed(&root, &inner), Err(Error::OtherSigner));
    }

    #[test]
    fn continues_no_list_that_is_incomplete_or_of_others() {
        let root = authority(KeyType::P256);
        let list = first(&root);
        let extension = |extn_id: &str, critical, value: &[u8]| Extension {
            extn_id: extn_id.parse().unwrap(),
            critical,
            extn_value: OctetString::new(value).unwrap(),
        };
        for (id, critical, value, says) in [
            ("2.5.29.27", true, &b"\x02\x01\x01"[..], "a delta CRL"),
            ("2.5.29.27", false, b"\x02\x01\x01", "a delta CRL"),
            ("2.5.29.28", true, b"\x30\x03\x84\x01\xff", "an indirect CRL"),
            ("2.5.29.28", true, b"\x30\x03\x81\x01\xff", "a part of"),
            ("2.5.29.28", true, b"\x30\x09\xa0\x07\xa0\x05\x86\x03a:b", "a part of"),
            ("2.5.29.28", false, b"\x30\x03\x82\x01\xff", "a part of"),
            ("1.2.3.4", true, b"\x05\x00", "extension 1.2.3.4"),
        ] {
            let changed = signed(&root, &list, |tbs| {
                tbs.crl_extensions.get_or_insert_default().push(extension(id, critical, value));
            });
            let error = renewed(&root, &changed).unwrap_err();
            assert!(error.to_string().contains(says), "{id}: {error}");
        }
        for (id, critical, says) in [
            ("2.5.29.29", true, "other issuers"),
            ("2.5.29.29", false, "other issuers"),
            ("1.2.3.4", true, "1.2.3.4"),
        ] {
            let changed = signed(&root, &list, |tbs| {
                let entry = tbs.revoked_certificates.iter_mut().flatten().next().unwrap();
                entry.crl_entry_extensions = Some(vec![extension(id, critical, b"\x30\x00")]);
            });
            let error = renewed(&root, &changed).unwrap_err();
            assert!(error.to_string().contains(says), "{id}: {error}");
        }
        // Extensions that a program need not understand stay.
        let changed = signed(&root, &list, |tbs| {
            tbs.crl_extensions.get_or_insert_default().push(extension("1.2.3.4", false, b"\x05\x00"));
            let entry = tbs.revoked_certificates.iter_mut().flatten().next().unwrap();
            entry.crl_entry_extensions = Some(vec![
                extension("2.5.29.21", false, b"\x0a\x01\x01"),
                extension("1.2.3.4", false, b"\x05\x00"),
            ]);
        });
        assert_eq!(renewed(&root, &changed), Ok(1));
    }
}
