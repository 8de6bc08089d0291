//! From shared secrets to keys: the key schedules of TLS 1.2 and 1.3, transcript, binders and exporters.

use crate::error::Error;

pub(crate) mod binder;
pub(crate) mod hkdf;
pub(crate) mod keys;
pub(crate) mod tls12;
pub(crate) mod tls13;
pub(crate) mod transcript;

/// What gives keying material to other protocols (RFC 5705, RFC 8446 §7.5).
pub(crate) trait Export: Send + Sync {
    fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<(), Error>;
}

pub(crate) use transcript::{HelloTranscript, Transcript};
