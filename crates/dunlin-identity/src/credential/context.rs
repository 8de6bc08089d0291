//! JSON-LD contexts that are known by name. None is ever fetched.

/// The first context of every credential (VC Data Model 2.0 §4.3).
pub const CREDENTIALS_V2: &str = "https://www.w3.org/ns/credentials/v2";

/// A context that the program understands, with the SHA-256 of the text that it knows under this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The URL that stands in credentials.
    pub url: String,
    /// The hash of its text, in hexadecimal.
    pub sha256: String,
}

/// The contexts that a program understands. A name stands for the text with the hash beside it, and for no
/// other.
#[derive(Clone, Debug)]
pub struct Contexts(Vec<Context>);

/// The contexts of W3C Recommendations, with the hashes that the Recommendations publish.
const W3C: [(&str, &str); 4] = [
    (CREDENTIALS_V2, "59955ced6697d61e03f2b2556febe5308ab16842846f5b586d7f1f7adec92734"),
    (
        "https://w3id.org/security/data-integrity/v2",
        "67f21e6e33a6c14e5ccfd2fc7865f7474fb71a04af7e94136cb399dfac8ae8f4",
    ),
    (
        "https://w3id.org/security/multikey/v1",
        "ba2c182de2d92f7e47184bcca8fcf0beaee6d3986c527bf664c195bbc7c58597",
    ),
    ("https://w3id.org/security/jwk/v1", "0f14b62f6071aafe00df265770ea0c7508e118247d79b7d861a406d2aa00bece"),
];

impl Default for Contexts {
    fn default() -> Self {
        let context =
            |(url, sha256): (&str, &str)| Context { url: url.to_owned(), sha256: sha256.to_owned() };
        Self(W3C.map(context).to_vec())
    }
}

impl Contexts {
    /// Adds a context whose text the program's author has read, for the application's own terms.
    #[must_use]
    pub fn with(mut self, context: Context) -> Self {
        self.0.push(context);
        self
    }

    /// All contexts.
    pub(crate) fn all(&self) -> &[Context] {
        &self.0
    }

    /// The context with this URL.
    pub fn get(&self, url: &str) -> Option<&Context> {
        self.0.iter().find(|context| context.url == url)
    }
}
