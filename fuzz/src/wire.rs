//! The target `wire`: every codec. The first byte chooses the codec, which reads the rest.
//!
//! A value that was read, written and read again is the same value. Codecs that keep every field also
//! reproduce every byte.

use dunlin::TransportKind::{Datagram, Stream};
use dunlin::fuzzing::{Codec, Rewritten, announced, rewrite};

/// The codecs that the first byte chooses from. Add new ones at the end, because the corpus refers to
/// positions.
pub const CODECS: [Codec; 29] = [
    Codec::ClientHello(Stream),
    Codec::ClientHello(Datagram),
    Codec::ServerHello(Stream),
    Codec::ServerHello(Datagram),
    Codec::EncryptedExtensions,
    Codec::CertificateRequest,
    Codec::Certificate,
    Codec::RawPublicKey,
    Codec::CompressedCertificate,
    Codec::CertificateVerify,
    Codec::NewSessionTicket,
    Codec::KeyUpdate,
    Codec::Ack,
    Codec::Session,
    Codec::ClientSession,
    Codec::Ticket,
    Codec::Extensions(0),
    Codec::Extensions(1),
    Codec::Extensions(2),
    Codec::Extensions(3),
    Codec::Extensions(4),
    Codec::Extensions(5),
    Codec::Extensions(6),
    Codec::CachedPeer,
    Codec::CachedServer,
    Codec::SsiRequest,
    Codec::Vc,
    Codec::Did,
    Codec::Extensions(7),
];

/// Runs the target. Returns whether the codec accepted the input.
pub fn run(input: &[u8]) -> bool {
    let Some((choice, bytes)) = input.split_first() else { return false };
    if let Ok(Some((_, len))) = announced(bytes) {
        assert!((4..=4 + 65 * 1024).contains(&len), "a message of {len} bytes is allowed");
    }
    let codec = CODECS[usize::from(*choice) % CODECS.len()];
    let Ok(Rewritten { bytes: first, is_exact }) = rewrite(codec, bytes) else { return false };
    assert!(!is_exact || first == bytes, "{codec:?} changed:\n{bytes:02x?}\n{first:02x?}");
    let second = rewrite(codec, &first);
    assert!(
        second.as_ref().is_ok_and(|s| s.bytes == first),
        "{codec:?} wrote {first:02x?}, read {second:02x?}"
    );
    true
}
