//! From shared secrets to keys: the key schedule of TLS 1.3, its transcript, binders and exporters.

pub(crate) mod binder;
pub(crate) mod hkdf;
pub(crate) mod tls13;
pub(crate) mod transcript;

pub(crate) use transcript::{HelloTranscript, Transcript};
