//! From shared secrets to keys: the key schedules of TLS 1.2 and 1.3, transcript, binders and exporters.

use crate::error::{Error, Misuse};

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

/// The label of the exporter that gives tickets of the handshake cache (docs/handshake-cache.md §3.4).
pub(crate) const TICKET_LABEL: &[u8] = b"EXPORTER-dunlin-handshake-cache";

/// What TLS 1.2 derives from its master secret is nothing for other protocols (RFC 5705 §6, RFC 7627 §4). TLS 1.3 could tell it
/// apart, but has the same registry of labels (RFC 8446 §11). And tickets of the handshake cache are nobody else's.
const RESERVED_LABELS: [&[u8]; 6] = [
    b"client finished",
    b"server finished",
    b"master secret",
    b"extended master secret",
    b"key expansion",
    TICKET_LABEL,
];

/// Fills `out` for another protocol.
pub(crate) fn export(
    exporter: &dyn Export,
    label: &[u8],
    context: Option<&[u8]>,
    out: &mut [u8],
) -> Result<(), Error> {
    match RESERVED_LABELS.contains(&label) {
        true => Err(Misuse::ExporterLabel.into()),
        false => exporter.export(label, context, out),
    }
}

pub(crate) use transcript::{HelloTranscript, Transcript};
