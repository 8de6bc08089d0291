//! Trust in certificates and raw public keys, and own certificates.

use std::time::SystemTime;

use dunlin::auth::{RawKeyTrust, Revocation, X509Trust};
use dunlin::crypto::CryptoProvider;
use dunlin::pki_types::{CertificateRevocationListDer, SubjectPublicKeyInfoDer};
use dunlin::{Side, Trust};
use dunlin_pki::{CertificateInfo, CredentialFault, Error, Item, LoadedCredential};

use crate::files::{content, content_up_to, in_file, items, open_to_others, reason, unusable};
use crate::place::{Fault, FileField};

/// The largest file of an own chain or key, in bytes.
const MAX_OWN: u64 = 1 << 20;

const LISTS: &str = "give one complete CRL of each issuer; `dunlin pki crl` makes one";

/// The trust in the CA certificates of these files, with the CRLs and the raw public keys of the others.
/// Faults are added to `faults`.
pub fn trust([ca, crl, raw_keys]: [&[FileField]; 3], faults: &mut Vec<Fault>) -> Trust {
    let x509 = match (anchors(ca, crl, faults), revocation(crl, faults), crl.first()) {
        (Some(trust), Some(lists), Some(file)) => {
            let trust = trust.with_revocation(lists);
            trust.map_err(|error| faults.push(in_file(file, &reason(&error), LISTS))).ok()
        }
        (trust, ..) => trust,
    };
    let mut keys = vec![];
    for file in raw_keys {
        keys.extend(self::raw_keys(file).map_err(|fault| faults.push(fault)).unwrap_or_default());
    }
    Trust { x509, raw_key: (!keys.is_empty()).then_some(RawKeyTrust::Keys(keys)) }
}

/// The trust anchors in these files, of which each has one. The caller also reads the CRLs in the files
/// `crl`; a CRL in another file would not count, which is a fault.
pub fn anchors(ca: &[FileField], crl: &[FileField], faults: &mut Vec<Fault>) -> Option<X509Trust> {
    let mut all = vec![];
    for file in ca {
        match anchors_of(file, crl.iter().any(|list| list.value == file.value)) {
            Ok(X509Trust::Anchors(anchors)) => all.extend(anchors),
            Ok(_) => {}
            Err(fault) => faults.push(fault),
        }
    }
    (!all.is_empty()).then_some(X509Trust::Anchors(all))
}

fn anchors_of(file: &FileField, lists_count: bool) -> Result<X509Trust, Fault> {
    let unusable = |error| unusable(&file.place, &file.value, &error);
    let certificates = dunlin_pki::parse_anchors(&content(file)?, lists_count).map_err(unusable)?;
    for certificate in &certificates {
        CertificateInfo::from_der(certificate).map_err(unusable)?;
    }
    let anchors = X509Trust::anchors(certificates);
    anchors.map_err(|error| in_file(file, &reason(&error), "give CA certificates"))
}

/// The CRLs in a file, each of which is usable.
///
/// # Errors
/// The file has none, or one is unusable.
pub fn lists(file: &FileField) -> Result<Vec<CertificateRevocationListDer<'static>>, Fault> {
    let list = |item| if let Item::RevocationList(der) = item { Some(der) } else { None };
    let lists = items(file, "CRL", list)?;
    // Each file is checked separately, so that the error names it.
    let checked = Revocation::new(lists.clone());
    checked.map(|_| lists).map_err(|error| in_file(file, &reason(&error), LISTS))
}

/// The CRLs of all files together, without overdue ones; `None` without files, or with a fault.
pub fn revocation(crl: &[FileField], faults: &mut Vec<Fault>) -> Option<Revocation> {
    let before = faults.len();
    let mut all = vec![];
    for file in crl {
        all.extend(lists(file).map_err(|fault| faults.push(fault)).unwrap_or_default());
    }
    if faults.len() > before {
        None
    } else {
        together(crl, all).map_err(|fault| faults.push(fault)).ok().flatten()
    }
}

/// These CRLs of all files together, without overdue ones; `None` without files.
///
/// # Errors
/// Two of them are of one issuer.
pub fn together(
    crl: &[FileField],
    lists: Vec<CertificateRevocationListDer<'static>>,
) -> Result<Option<Revocation>, Fault> {
    let Some(first) = crl.first() else { return Ok(None) };
    let revocation = Revocation::new(lists).map(|lists| Some(lists.refuse_overdue()));
    revocation.map_err(|error| {
        // The error counts CRLs over all files.
        let names: Vec<_> = crl.iter().map(|file| file.value.display().to_string()).collect();
        Fault { file: Some(names.join(", ").into()), ..first.place.fault(reason(&error), LISTS) }
    })
}

/// The raw public keys in a file, at least one. A private key stands for its public one.
///
/// # Errors
/// The file cannot be read, or has none.
pub fn raw_keys(file: &FileField) -> Result<Vec<SubjectPublicKeyInfoDer<'static>>, Fault> {
    items(file, "public key", |item| match item {
        Item::PublicKey(key) => Some(key),
        Item::PrivateKey(pair) => Some(pair.public_key().clone()),
        _ => None,
    })
}

/// The certificates in the system's trust store. Unusable ones among the many are ignored.
pub fn system_anchors() -> Option<X509Trust> {
    let mut all = vec![];
    for certificate in rustls_native_certs::load_native_certs().certs {
        if let Ok(X509Trust::Anchors(anchors)) = X509Trust::anchors([certificate]) {
            all.extend(anchors);
        }
    }
    (!all.is_empty()).then_some(X509Trust::Anchors(all))
}

/// Reads a certificate chain, leaf first, and its key, which is in the same file if `key` is `None`. Problems
/// of the key's file are added to `warnings`.
///
/// # Errors
/// A file cannot be used, or the key does not belong to the first certificate.
pub fn own_certificate(
    chain: &FileField,
    key: Option<&FileField>,
    side: Side,
    provider: &CryptoProvider,
    warnings: &mut Vec<Fault>,
) -> Result<LoadedCredential, Fault> {
    let of_key = key.unwrap_or(chain);
    let certificates = content_up_to(chain, MAX_OWN)?;
    let own = key.map(|key| content_up_to(key, MAX_OWN)).transpose()?;
    let own = own.as_ref().unwrap_or(&certificates);
    let loaded = LoadedCredential::from_pem(&certificates, own, side, SystemTime::now(), provider);
    // A file without a key has no secret.
    if !matches!(loaded, Err(CredentialFault::Certificate(_) | CredentialFault::Key(Error::Missing { .. }))) {
        warnings.extend(open_to_others(of_key, "the key"));
    }
    loaded.map_err(|fault| match fault {
        CredentialFault::Certificate(error) => unusable(&chain.place, &chain.value, &error),
        CredentialFault::Key(error @ Error::KeyMismatch) => {
            let what = format!("not the key of the first certificate in {}", chain.value.display());
            in_file(of_key, &what, &error.advice())
        }
        CredentialFault::Key(error @ Error::Missing { .. }) if key.is_none() => {
            let advice = format!("give it with {}, or a file that holds both", chain.place.word("key"));
            in_file(of_key, &error, &advice)
        }
        CredentialFault::Key(error) => unusable(&of_key.place, &of_key.value, &error),
    })
}

/// A warning if every peer with a correct clock will refuse the chain in this file.
pub fn refusal(chain: &FileField, loaded: &LoadedCredential, side: Side) -> Option<Fault> {
    let advice = match side {
        Side::Server => "clients will refuse it: renew it",
        Side::Client => "servers will refuse it: renew it",
    };
    loaded.refusal.as_ref().map(|refusal| in_file(chain, refusal, advice))
}
