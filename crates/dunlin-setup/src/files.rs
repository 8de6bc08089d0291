//! Files that settings name: their content, the keys in them, and their faults.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_pki::{Item, KeyPair};
use dunlin_store::text;
use zeroize::Zeroizing;

use crate::place::{Fault, FileField, Place};

/// The largest file that a setting names, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// The name that stands for stdin in an option.
const STDIN: &str = "-";

/// The advice about a fault that the operator cannot correct.
pub const REPORT: &str = "report this error";

/// The engine's words for settings that contradict each other.
pub fn reason(error: &dunlin::Error) -> String {
    match error {
        dunlin::Error::Misuse(dunlin::error::Misuse::Config(why)) => why.clone(),
        error => error.to_string(),
    }
}

/// A fault in the content of this file.
pub fn in_file(field: &FileField, error: &dyn Display, advice: &str) -> Fault {
    Fault { file: Some(field.value.clone()), ..field.place.fault(error.to_string(), advice) }
}

/// The fault of a file with keys, certificates or CRLs.
pub fn unusable(place: &Place, file: &Path, error: &dunlin_pki::Error) -> Fault {
    Fault { file: Some(file.to_owned()), ..place.fault(error.to_string(), error.advice()) }
}

/// The content of a file of at most `max` bytes. It is wiped after use, since it may be a key.
///
/// # Errors
/// The file cannot be read, or is larger.
pub fn read(path: &Path, max: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let expected = file.metadata()?.len();
    bounded(file, expected, max)
}

/// The content of `reader`, of which some `expected` bytes are expected, and at most `max` are read.
///
/// # Errors
/// The content cannot be read, or is longer.
pub fn bounded(reader: impl Read, expected: u64, max: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    // Reserve enough at once, because a growing vector leaves unwiped copies behind.
    let room = usize::try_from(expected.clamp(64 << 10, max) + 1).unwrap_or(0);
    let mut content = Zeroizing::new(Vec::with_capacity(room));
    reader.take(max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max {
        let why = format!("larger than {} MiB", max >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(content)
}

/// The content of a file; of the option `-`, stdin.
///
/// # Errors
/// The file cannot be read, or is too large.
pub fn content(field: &FileField) -> Result<Zeroizing<Vec<u8>>, Fault> {
    content_up_to(field, MAX_FILE)
}

/// As [`content`], of a file with at most `max` bytes.
pub(crate) fn content_up_to(field: &FileField, max: u64) -> Result<Zeroizing<Vec<u8>>, Fault> {
    let content = if field.place.is_option() && field.value.as_os_str() == STDIN {
        bounded(io::stdin().lock(), 0, max)
    } else {
        read(&field.value, max)
    };
    content.map_err(|error| {
        let (why, advice) = text::unreadable(&error, "give a file that can be read");
        in_file(field, &why, advice)
    })
}

/// The text of a file, as an editor may write it.
///
/// # Errors
/// The file cannot be read, or is not text.
pub fn text(field: &FileField) -> Result<Zeroizing<String>, Fault> {
    text::text(&content(field)?).map_err(|why| in_file(field, &why, why.advice()))
}

/// Reads the items of a file that `choose` returns, at least one. `name` says what they are.
///
/// # Errors
/// The file cannot be read, or has no such item.
pub fn items<T>(
    field: &FileField,
    name: &'static str,
    choose: impl FnMut(Item) -> Option<T>,
) -> Result<Vec<T>, Fault> {
    dunlin_pki::parse_for(&content(field)?, name, choose)
        .map_err(|error| unusable(&field.place, &field.value, &error))
}

/// The first private key of a file.
///
/// # Errors
/// The file cannot be read, or has no private key.
pub fn private_key(field: &FileField) -> Result<KeyPair, Fault> {
    let private = |item| if let Item::PrivateKey(pair) = item { Some(pair) } else { None };
    let pair = items(field, "private key", private)?.into_iter().next();
    let missing = || unusable(&field.place, &field.value, &dunlin_pki::Error::missing("private key"));
    pair.ok_or_else(missing)
}

/// The first private key of a file, for handshakes.
///
/// # Errors
/// As for [`private_key`]; or the provider cannot use the key.
pub fn signing_key(field: &FileField, provider: &CryptoProvider) -> Result<Arc<dyn SigningKey>, Fault> {
    private_key(field)?.signing_key(provider).map_err(|error| unusable(&field.place, &field.value, &error))
}

/// A warning if users outside of its group can access a file with `secrets` in it, such as "the key", or if
/// its group can write it. The group of a service may read it. Pipes are private.
pub fn open_to_others(field: &FileField, secrets: &str) -> Option<Fault> {
    let FileField { value: file, place } = field;
    let found = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    let mode = found.permissions().mode() & 0o777;
    let file = file.display();
    (mode & 0o027 != 0).then(|| {
        let what = format!("other users can access {secrets} in it (mode {mode:04o})");
        Fault { file: Some(field.value.clone()), ..place.fault(what, format!("chmod o=,g-w {file}")) }
    })
}
