//! Makes and extends certificate revocation lists (RFC 5280 §5). Nothing here validates them.

use std::str::FromStr;
use std::time::SystemTime;

use const_oid::AssociatedOid;
use der::asn1::{BitString, Uint};
use der::{Decode, Encode};
use pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_cert::certificate::Version;
use x509_cert::ext::pkix::CrlNumber;

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
        let malformed = |error: der::Error| Error::MalformedCertificate(error.to_string());
        let certificate = Certificate::from_der(der).map_err(malformed)?;
        let tbs = certificate.tbs_certificate();
        if tbs.issuer() != signer.name {
            return Err(Error::NotIssued);
        }
        let serial_number = tbs.serial_number().clone();
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
    let list = CertificateList::from_der(previous).map_err(malformed)?.tbs_cert_list;
    if list.issuer != *signer.name {
        return Err(Error::OtherIssuer);
    }
    let next = number(&list)
        .map_err(malformed)?
        .unwrap_or(0)
        .checked_add(1)
        .ok_or_else(|| Error::MalformedList("its CRL number cannot grow any further".into()))?;
    Ok((next, list.revoked_certificates.unwrap_or_default()))
}

/// The CRL number (RFC 5280 §5.2.3).
pub(crate) fn number(list: &TbsCertList) -> der::Result<Option<u64>> {
    let mut extensions = list.crl_extensions.iter().flatten();
    let number = extensions.find(|extension| extension.extn_id == CrlNumber::OID);
    number.map(|number| u64::from_der(number.extn_value.as_bytes())).transpose()
}
