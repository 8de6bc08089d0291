//! The key schedules of TLS 1.2 and TLS 1.3, with transcripts, binders and exporters.

use crate::error::{Error, Misuse};
use crate::wire::Writer;

pub(crate) mod binder;
pub(crate) mod hkdf;
pub(crate) mod keys;
pub(crate) mod tls12;
pub(crate) mod tls13;
pub(crate) mod transcript;

/// A source of keying material for other protocols (RFC 5705, RFC 8446 §7.5).
pub(crate) trait Export: Send + Sync {
    fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<(), Error>;

    /// Writes its secrets for a connection that continues elsewhere.
    fn freeze(&self, w: &mut Writer);
}

/// The exporter label from which both sides derive tickets of the handshake cache (docs/handshake-cache.md
/// §3.4).
pub(crate) const TICKET_LABEL: &[u8] = b"EXPORTER-dunlin-handshake-cache";

/// Labels that applications must not use. TLS 1.2 uses most of them itself with its master secret (RFC 5705
/// §6, RFC 7627 §4), and TLS 1.3 shares the registry of labels (RFC 8446 §11). The last is the handshake
/// cache's.
const RESERVED_LABELS: [&[u8]; 6] = [
    b"client finished",
    b"server finished",
    b"master secret",
    b"extended master secret",
    b"key expansion",
    TICKET_LABEL,
];

/// Fills `out` with keying material for another protocol; returns an error for a reserved label.
pub(crate) fn export(
    exporter: &dyn Export,
    label: &[u8],
    context: Option<&[u8]>,
    out: &mut [u8],
) -> Result<(), Error> {
    if RESERVED_LABELS.contains(&label) {
        Err(Misuse::ExporterLabel.into())
    } else {
        exporter.export(label, context, out)
    }
}

pub(crate) use transcript::{HelloTranscript, Running, Tls12Transcript, Transcript};
