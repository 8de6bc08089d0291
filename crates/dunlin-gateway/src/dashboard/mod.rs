//! The dashboard: one page with its own style and script, which reads `/status` and `/metrics` every second.

use std::sync::LazyLock;

use base64ct::{Base64, Encoding};
use dunlin_awslc::SHA256;

/// The page. It loads nothing else.
pub(crate) const PAGE: &str = include_str!("page.html");

/// The Content-Security-Policy of the page: its own script and style by their hashes, requests to the gateway
/// alone, no frames.
pub(crate) static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |tag: &str| {
        let open = format!("<{tag}>");
        let close = format!("</{tag}>");
        let content = PAGE.split_once(&open).and_then(|(_, rest)| rest.split_once(&close));
        let content = content.map(|(content, _)| content).unwrap_or_default();
        Base64::encode_string(SHA256.hash(&[content.as_bytes()]).as_ref())
    };
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
        hash("script"),
        hash("style")
    )
});
