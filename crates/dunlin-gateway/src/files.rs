//! Files that a configuration names: their content, the certificates and keys in them, and their faults.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dunlin::Trust;
use dunlin::auth::{RawKeyTrust, Revocation, X509Trust};
use dunlin::pki_types::{CertificateDer, CertificateRevocationListDer, SubjectPublicKeyInfoDer};
use dunlin_pki::Item;
use dunlin_store::text;
use zeroize::Zeroizing;

use crate::config::{Fault, FileField, Place};

/// The largest file of certificates, keys or CRLs, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// The advice about a fault that the operator cannot correct.
pub(crate) const REPORT: &str = "report this error";

/// The engine's words for settings that contradict each other.
pub(crate) fn reason(error: &dunlin::Error) -> String {
    match error {
        dunlin::Error::Misuse(dunlin::error::Misuse::Config(why)) => why.clone(),
        error => error.to_string(),
    }
}

/// The fault of this file.
pub(crate) fn in_file(field: &FileField, error: &dyn std::fmt::Display, advice: &str) -> Fault {
    field.place.fault(format!("{}: {error}", field.value.display()), advice)
}

/// The content of a file.
pub(crate) fn content(field: &FileField) -> Result<Vec<u8>, Fault> {
    read(&field.value).map_err(|error| {
        let (why, advice) = text::unreadable(&error, "give a file that can be read");
        in_file(field, &why, advice)
    })
}

/// The text of a file, as an editor may write it.
pub(crate) fn text(field: &FileField) -> Result<Zeroizing<String>, Fault> {
    text::text(&content(field)?).map_err(|why| in_file(field, &why, why.advice()))
}

/// The fault of a file that was parsed.
pub(crate) fn unusable(place: &Place, file: &Path, error: &dunlin_pki::Error) -> Fault {
    place.fault(format!("{}: {error}", file.display()), error.advice())
}

/// A warning if users outside of its group can access a file with `secrets` in it, such as "the key", or if
/// its group can write it. The group of the service may read it. Pipes are private.
pub(crate) fn open_to_others(place: &Place, file: &Path, secrets: &str) -> Option<Fault> {
    let found = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file)?;
    let mode = found.permissions().mode() & 0o777;
    let file = file.display();
    (mode & 0o027 != 0).then(|| {
        let what = format!("{file}: other users can access {secrets} in it (mode {mode:04o})");
        place.fault(what, format!("chmod o=,g-w {file}"))
    })
}

/// Reads the items of these files that `choose` returns; each file must have one.
fn items<T>(
    files: &[FileField],
    name: &'static str,
    faults: &mut Vec<Fault>,
    choose: impl Fn(Item) -> Option<T>,
) -> Vec<T> {
    all(files, faults, |_, content| dunlin_pki::parse_for(content, name, &choose))
}

/// Reads these files by `parse`.
fn all<T>(
    files: &[FileField],
    faults: &mut Vec<Fault>,
    parse: impl Fn(&Path, &[u8]) -> Result<Vec<T>, dunlin_pki::Error>,
) -> Vec<T> {
    let mut all = vec![];
    for file in files {
        let read = read(&file.value).map_err(|error| dunlin_pki::Error::Unreadable(error.kind()));
        match read.and_then(|content| parse(&file.value, &content)) {
            Ok(items) => all.extend(items),
            Err(error) => faults.push(unusable(&file.place, &file.value, &error)),
        }
    }
    all
}

/// The content of a file that is not too large.
pub(crate) fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut content = vec![];
    std::fs::File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(content) }
}

/// Reads certificates of trusted authorities, their CRLs, and trusted raw public keys.
pub(crate) fn trust([ca, crl, raw_keys]: [&[FileField]; 3], faults: &mut Vec<Fault>) -> Trust {
    let certificates: Vec<CertificateDer<'static>> = all(ca, faults, |path, content| {
        dunlin_pki::parse_anchors(content, crl.iter().any(|list| list.value == path))
    });
    let lists: Vec<CertificateRevocationListDer<'static>> = items(crl, "CRL", faults, |item| match item {
        Item::RevocationList(der) => Some(der),
        _ => None,
    });
    let keys: Vec<SubjectPublicKeyInfoDer<'static>> =
        items(raw_keys, "public key", faults, |item| match item {
            Item::PublicKey(der) => Some(der),
            Item::PrivateKey(pair) => Some(pair.public_key().clone()),
            _ => None,
        });
    let mut x509 = None;
    if let Some(file) = ca.first().filter(|_| !certificates.is_empty()) {
        // The error counts certificates or CRLs over all files.
        let mut fault = |files: &[FileField], file: &FileField, error: &dunlin::Error, advice| {
            let names: Vec<_> = files.iter().map(|file| file.value.display().to_string()).collect();
            faults.push(file.place.fault(format!("{}: {}", names.join(", "), reason(error)), advice));
        };
        x509 = X509Trust::anchors(certificates)
            .map_err(|error| fault(ca, file, &error, "give certificates of authorities in ca"))
            .ok();
        if let Some(file) = crl.first().filter(|_| !lists.is_empty()) {
            let checked = Revocation::new(lists).map(Revocation::refuse_overdue);
            let checked = checked
                .and_then(|revocation| x509.take().map(|x509| x509.with_revocation(revocation)).transpose());
            x509 = checked
                .map_err(|error| fault(crl, file, &error, "give one complete CRL of each issuer in crl"))
                .ok()
                .flatten();
        }
    }
    Trust { x509, raw_key: (!keys.is_empty()).then_some(RawKeyTrust::Keys(keys)) }
}
