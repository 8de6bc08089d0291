//! `did:web`: the document is a file on a web server (W3C CCG, did:web Method Specification).
//!
//! The certificate of the server vouches for the document, so it is only ever fetched over HTTPS. This crate
//! does no I/O: it says where the document is ([`locate`]) and checks it ([`read`]). A program that fetches
//! implements [`Fetch`] or calls both.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::did::{Did, DidError};
use crate::document::{DID_CONTEXT, DidDocument, DocumentError};
use crate::encoding::json::{self, MAX_JSON};

/// The longest host name, in bytes (RFC 1035 §2.3.4, without the final dot).
pub const MAX_HOST: usize = 253;

/// Why a `did:web` has no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebError<F = core::convert::Infallible> {
    /// The DID has another method, which is given.
    #[error("did:{0} is not did:web")]
    Method(String),
    /// The DID is malformed.
    #[error("{0}")]
    Did(#[from] DidError),
    /// The host is not a domain name, or is an address.
    #[error("did:web: the host is not a domain name")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("did:web: the port is not a number from 1 to 65535")]
    Port,
    /// A part of the path is empty, leads elsewhere, or contains an escaped separator.
    #[error("did:web: the path has an empty or ambiguous part")]
    Path,
    /// The document is refused.
    #[error("{0}")]
    Document(#[from] DocumentError),
    /// The document's JSON-LD contexts lack the context of DID documents.
    #[error("DID document: \"@context\" lacks {DID_CONTEXT:?}")]
    Context,
    /// The document could not be fetched; the reason.
    #[error("{0}")]
    Fetch(F),
}

impl WebError {
    /// The same error where fetching can fail.
    fn widen<F>(self) -> WebError<F> {
        match self {
            Self::Method(name) => WebError::Method(name),
            Self::Did(error) => WebError::Did(error),
            Self::Host => WebError::Host,
            Self::Port => WebError::Port,
            Self::Path => WebError::Path,
            Self::Document(error) => WebError::Document(error),
            Self::Context => WebError::Context,
            Self::Fetch(never) => match never {},
        }
    }
}

/// The place of a document. It always begins with `https://`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpsUrl {
    host: String,
    port: u16,
    path: String,
}

impl HttpsUrl {
    /// The host, whose certificate the server must have.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port: 443 if the DID names none.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The path, which begins with `/`.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for HttpsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.host)?;
        if self.port != 443 {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path)
    }
}

/// A client that fetches documents.
pub trait Fetch {
    /// Why a document could not be fetched.
    type Error;

    /// Fetches a document of at most `limit` bytes. The client verifies the server's certificate for the
    /// host, and follows no redirection to another host or away from HTTPS: the DID names the host that
    /// speaks for it.
    ///
    /// # Errors
    /// The server cannot be reached or authenticated, does not have the document, or sends more.
    fn fetch(&self, url: &HttpsUrl, limit: usize) -> Result<Vec<u8>, Self::Error>;
}

/// Resolves a `did:web`.
///
/// # Errors
/// [`WebError`].
pub fn resolve<F: Fetch>(client: &F, did: &Did) -> Result<DidDocument, WebError<F::Error>> {
    let url = locate(did).map_err(WebError::widen)?;
    let text = client.fetch(&url, MAX_JSON).map_err(WebError::Fetch)?;
    read(&text, did).map_err(WebError::widen)
}

/// Where the document of a DID is (did:web §2.5.2).
///
/// # Errors
/// [`WebError::Method`], [`WebError::Host`], [`WebError::Port`] or [`WebError::Path`].
pub fn locate(did: &Did) -> Result<HttpsUrl, WebError> {
    if did.method() != "web" {
        return Err(WebError::Method(did.method().to_owned()));
    }
    let mut parts = did.identifier().split(':');
    let authority = parts.next().unwrap_or_default();
    let (host, port) = match authority.split_once('%') {
        None => (authority, 443),
        // The colon before the port is the only character that is escaped.
        Some((host, escaped)) => {
            let digits = escaped.strip_prefix("3A").or_else(|| escaped.strip_prefix("3a"));
            (host, port(digits.ok_or(WebError::Host)?).ok_or(WebError::Port)?)
        }
    };
    if !is_domain(host) {
        return Err(WebError::Host);
    }
    let mut path = String::new();
    for part in parts {
        if !is_path_part(part) {
            return Err(WebError::Path);
        }
        path.push('/');
        path.push_str(part);
    }
    path.push_str(if path.is_empty() { "/.well-known/did.json" } else { "/did.json" });
    Ok(HttpsUrl { host: host.to_owned(), port, path })
}

/// Checks the document that was fetched for a DID.
///
/// # Errors
/// [`WebError::Document`], [`WebError::Context`].
pub fn read(text: &[u8], did: &Did) -> Result<DidDocument, WebError> {
    // RFC 8259 §8.1: a parser may ignore a byte order mark, which some editors write.
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let value = json::read(text).map_err(DocumentError::Json)?;
    // did:web §2.4: a document with contexts has the context of DID documents. This side fetches none.
    let known = match value.get("@context") {
        None => true,
        Some(json::Value::Array(contexts)) => contexts.iter().any(|context| context == DID_CONTEXT),
        Some(context) => context == DID_CONTEXT,
    };
    if !known {
        return Err(WebError::Context);
    }
    Ok(DidDocument::from_value(value, did)?)
}

/// The DID of a document at `https://host:port/path/did.json`, or without a path at `/.well-known/did.json`.
///
/// # Errors
/// As [`locate`], and [`WebError::Did`].
pub fn create(host: &str, port: u16, path: &[&str]) -> Result<Did, WebError> {
    let mut text = format!("did:web:{host}");
    if port != 443 {
        text.push_str(&format!("%3A{port}"));
    }
    for part in path {
        // A colon in a part would begin another one.
        if part.contains(':') {
            return Err(WebError::Path);
        }
        text.push(':');
        text.push_str(part);
    }
    let did = text.parse()?;
    locate(&did)?;
    Ok(did)
}

fn port(digits: &str) -> Option<u16> {
    let port = digits.parse().ok().filter(|port: &u16| *port > 0)?;
    (port.to_string() == digits).then_some(port)
}

/// A domain name (RFC 1123 §2.1): labels of letters, digits and hyphens, the last one not a number, as in an
/// address.
fn is_domain(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = host.rsplit('.').next().unwrap_or_default();
    // Programs read 0x7f as a number, too.
    let is_number = last.starts_with(|first: char| first.is_ascii_digit());
    host.len() <= MAX_HOST && host.split('.').all(is_label) && !is_number
}

/// Escapes must not hide a dot, a separator or a control character: servers and clients would see different
/// paths.
fn is_path_part(part: &str) -> bool {
    let mut escapes = part.split('%').skip(1);
    let harmless = escapes.all(|escape| {
        let byte = escape.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| byte >= b' ' && byte != 0x7f && !b"./\\%?#".contains(&byte))
    });
    harmless && !part.is_empty() && part != "." && part != ".."
}
