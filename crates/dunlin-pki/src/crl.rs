//! Certificate revocation lists (RFC 5280 §5): made and continued; never validated.

use std::str::FromStr;
use std::time::SystemTime;

use const_oid::AssociatedOid;
use der::asn1::{BitString, Uint};
use der::{Decode, Encode};
use pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_cert::Certificate;
use x509_cert::certificate::Version;
use x509_cert::crl::{CertificateList, RevokedCert, TbsCertList};
use x509_cert::ext::pkix::{CrlNumber, CrlReason};

use crate::encode::{Signer, authority_key_identifier, extension};
use crate::error::encoding;
use crate::{Error, Validity};

/// Why a certificate is revoked (RFC 5280 §5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RevocationReason {
    /// The key of a server or client is in other hands.
    KeyCompromise,
    /// The key of an authority is.
    CaCompromise,
    /// What the certificate says of its holder has changed.
    AffiliationChanged,
    /// Another certificate has replaced it.
    Superseded,
    /// It is no longer needed.
    CessationOfOperation,
    /// Its holder may no longer do what it allows.
    PrivilegeWithdrawn,
}

impl RevocationReason {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::KeyCompromise,
        Self::CaCompromise,
        Self::AffiliationChanged,
        Self::Superseded,
        Self::CessationOfOperation,
        Self::PrivilegeWithdrawn,
    ];

    /// Its name in RFC 5280.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyCompromise => "keyCompromise",
            Self::CaCompromise => "cACompromise",
            Self::AffiliationChanged => "affiliationChanged",
            Self::Superseded => "superseded",
            Self::CessationOfOperation => "cessationOfOperation",
            Self::PrivilegeWithdrawn => "privilegeWithdrawn",
        }
    }

    const fn encoded(self) -> CrlReason {
        match self {
            Self::KeyCompromise => CrlReason::KeyCompromise,
            Self::CaCompromise => CrlReason::CaCompromise,
            Self::AffiliationChanged => CrlReason::AffiliationChanged,
            Self::Superseded => CrlReason::Superseded,
            Self::CessationOfOperation => CrlReason::CessationOfOperation,
            Self::PrivilegeWithdrawn => CrlReason::PrivilegeWithdrawn,
        }
    }
}

impl FromStr for RevocationReason {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|reason| reason.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| Error::UnknownReason(name.to_owned()))
    }
}

/// What a revocation list shall say.
#[derive(Clone, Debug)]
pub struct CrlSpec<'a> {
    /// The authority's list so far, which the new one continues; `None` for its first.
    pub previous: Option<CertificateRevocationListDer<'a>>,
    /// Certificates to revoke now; those that are revoked already stay as they are.
    pub revoke: Vec<CertificateDer<'a>>,
    /// Why they are revoked; `None` says nothing.
    pub reason: Option<RevocationReason>,
    /// From when it counts, and when there will be the next at the latest.
    pub validity: Validity,
}

/// A new list of `signer`, as of `now`.
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
    // RFC 5280 §5.3.1: absent rather than "unspecified".
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
    let algorithm = signer.key.key_type().signature_algorithm();
    // RFC 5280 §5.2: an authority puts both into every list; the lean form has no identifiers of keys.
    let number = Uint::new(&number.to_be_bytes()).map_err(encoding)?;
    let mut extensions = vec![extension(false, &CrlNumber(number))?];
    extensions.extend(authority_key_identifier(signer.key_id)?);
    let tbs_cert_list = TbsCertList {
        version: Version::V2,
        signature: algorithm.clone(),
        issuer: signer.name.clone(),
        this_update: validity.not_before,
        next_update: Some(validity.not_after),
        // RFC 5280 §5.1.2.6: absent rather than empty.
        revoked_certificates: (!revoked.is_empty()).then_some(revoked),
        crl_extensions: Some(extensions),
    };
    let signature = signer.key.sign(&tbs_cert_list.to_der().map_err(encoding)?)?;
    let signature = BitString::from_bytes(&signature).map_err(encoding)?;
    let list: CertificateList = CertificateList { tbs_cert_list, signature_algorithm: algorithm, signature };
    Ok(list.to_der().map_err(encoding)?.into())
}

/// The number of the next list after `previous`, and what stands in it already.
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
        .ok_or_else(|| Error::MalformedList("its number is the last".into()))?;
    Ok((next, list.revoked_certificates.unwrap_or_default()))
}

/// The number of a list (RFC 5280 §5.2.3).
pub(crate) fn number(list: &TbsCertList) -> der::Result<Option<u64>> {
    let mut extensions = list.crl_extensions.iter().flatten();
    let number = extensions.find(|extension| extension.extn_id == CrlNumber::OID);
    number.map(|number| u64::from_der(number.extn_value.as_bytes())).transpose()
}
