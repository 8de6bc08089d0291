//! The runner's algorithms for compressed certificates (RFC 8879).

use dunlin::compression::{CertificateCompressor, CertificateDecompressor, CompressionFailed};
use dunlin::wire::CertificateCompressionAlgorithm;

/// An algorithm of the runner: it drops the first bytes of a Certificate message, or puts some before them.
#[derive(Debug)]
pub(crate) struct Algorithm {
    number: u16,
    /// The prefix of every Certificate message, which the compressed message lacks.
    dropped: &'static [u8],
    added: &'static [u8],
}

/// In the order of BoringSSL's shim.
static ALL: [Algorithm; 3] = [
    Algorithm { number: 0xff02, dropped: &[], added: &[1, 2, 3, 4] },
    // RFC 8446 §4.4.2: the context is empty, and the chain has less than 64 KiB.
    Algorithm { number: 0xff01, dropped: &[0, 0], added: &[] },
    // Any byte will do.
    Algorithm { number: 0xff03, dropped: &[], added: &[0xaa] },
];

/// The algorithms with these numbers.
pub(crate) fn algorithms(numbers: &[u16]) -> impl Iterator<Item = &'static Algorithm> {
    ALL.iter().filter(|algorithm| numbers.contains(&algorithm.number))
}

/// The numbers of all algorithms.
pub(crate) fn all() -> Vec<u16> {
    ALL.iter().map(|algorithm| algorithm.number).collect()
}

impl CertificateCompressor for Algorithm {
    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm(self.number)
    }

    fn compress(&self, message: &[u8]) -> Result<Vec<u8>, CompressionFailed> {
        let rest = message.strip_prefix(self.dropped).ok_or(CompressionFailed)?;
        Ok([self.added, rest].concat())
    }
}

impl CertificateDecompressor for Algorithm {
    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm(self.number)
    }

    fn decompress(&self, compressed: &[u8], message: &mut [u8]) -> Result<(), CompressionFailed> {
        // The random algorithm accepts any first byte.
        let (added, rest) = compressed.split_at_checked(self.added.len()).ok_or(CompressionFailed)?;
        let is_known = added.len() == 1 || added == self.added;
        let whole = [self.dropped, rest].concat();
        if !is_known || whole.len() != message.len() {
            return Err(CompressionFailed);
        }
        message.copy_from_slice(&whole);
        Ok(())
    }
}
