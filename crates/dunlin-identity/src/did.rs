//! The syntax of DIDs and DID URLs (W3C DID Core §3).

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use dunlin::wire::DidMethod;

/// The longest DID or DID URL, in bytes. A `did:jwk` of RSA with 8192 bits has 1900.
pub const MAX_DID: usize = 2048;

/// Why a DID or DID URL is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DidError {
    /// It is longer than [`MAX_DID`].
    #[error("the DID is longer than {MAX_DID} bytes")]
    TooLong,
    /// It does not begin with `did:`.
    #[error("a DID begins with \"did:\"")]
    Scheme,
    /// The method's name is empty or has other characters than a-z and 0-9.
    #[error("the DID's method name consists of a-z and 0-9")]
    Method,
    /// The identifier is empty, ends with a colon, or has a forbidden character or a malformed escape.
    #[error("malformed method-specific identifier of the DID")]
    Identifier,
    /// Path, query or fragment has a forbidden character or a malformed escape.
    #[error("malformed path, query or fragment of the DID URL")]
    Url,
}

/// A DID without path, query or fragment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Did {
    text: String,
    /// The length of the method's name.
    method: usize,
}

impl Did {
    /// The name of the method, such as `key`.
    pub fn method(&self) -> &str {
        self.text.get(4..4 + self.method).unwrap_or_default()
    }

    /// The method-specific identifier: the text after the second colon.
    pub fn identifier(&self) -> &str {
        self.text.get(5 + self.method..).unwrap_or_default()
    }

    /// The whole DID.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The DID URL of this DID with a fragment.
    ///
    /// # Errors
    /// [`DidError::TooLong`], [`DidError::Url`].
    pub fn with_fragment(&self, fragment: &str) -> Result<DidUrl, DidError> {
        format!("{self}#{fragment}").parse()
    }
}

impl FromStr for Did {
    type Err = DidError;

    fn from_str(text: &str) -> Result<Self, DidError> {
        if text.len() > MAX_DID {
            return Err(DidError::TooLong);
        }
        let rest = text.strip_prefix("did:").ok_or(DidError::Scheme)?;
        let (method, identifier) = rest.split_once(':').ok_or(DidError::Method)?;
        if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        {
            return Err(DidError::Method);
        }
        // DID Core §3.1: *( *idchar ":" ) 1*idchar
        let ends = identifier.is_empty() || identifier.ends_with(':');
        if ends || !consists_of(identifier, b".-_:") {
            return Err(DidError::Identifier);
        }
        Ok(Self { text: text.to_owned(), method: method.len() })
    }
}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A DID with an optional path, query and fragment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DidUrl {
    did: Did,
    rest: String,
}

impl DidUrl {
    /// Reads a DID URL, or a fragment (`#key-1`) of `base`.
    ///
    /// # Errors
    /// [`DidError`].
    pub fn relative(text: &str, base: &Did) -> Result<Self, DidError> {
        if text.starts_with('#') { format!("{base}{text}").parse() } else { text.parse() }
    }

    /// The DID before path, query and fragment.
    pub fn did(&self) -> &Did {
        &self.did
    }

    /// The fragment: the text after the first `#`; `None` if there is no `#`.
    pub fn fragment(&self) -> Option<&str> {
        self.rest.split_once('#').map(|(_, fragment)| fragment)
    }
}

impl FromStr for DidUrl {
    type Err = DidError;

    fn from_str(text: &str) -> Result<Self, DidError> {
        if text.len() > MAX_DID {
            return Err(DidError::TooLong);
        }
        let (did, rest) = text.split_at(text.find(['/', '?', '#']).unwrap_or(text.len()));
        let did = did.parse()?;
        // RFC 3986 §3.3 to §3.5: a path of pchar, a query, and one fragment.
        let (before, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        if !consists_of(before, b"-._~!$&'()*+,;=:@/?") || !consists_of(fragment, b"-._~!$&'()*+,;=:@/?") {
            return Err(DidError::Url);
        }
        Ok(Self { did, rest: rest.to_owned() })
    }
}

impl fmt::Display for DidUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.did, self.rest)
    }
}

/// Whether `text` has only letters, digits, bytes of `others`, and escapes of two hexadecimal digits.
fn consists_of(text: &str, others: &[u8]) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let escape = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_hexdigit());
        let good = match byte {
            b'%' => escape(bytes.next()) && escape(bytes.next()),
            _ => byte.is_ascii_alphanumeric() || others.contains(&byte),
        };
        if !good {
            return false;
        }
    }
    true
}

/// The number of a DID's method in handshakes; `None` if it has none.
pub fn did_method(did: &Did) -> Option<DidMethod> {
    DidMethod::of(did.method())
}
