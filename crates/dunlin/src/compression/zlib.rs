//! Zlib (RFC 1950) with miniz_oxide: no C, no `unsafe`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

use super::{CertificateCompressor, CertificateDecompressor, CompressionFailed};
use crate::wire::CertificateCompressionAlgorithm;

/// Compresses with zlib (RFC 1950), at the highest level.
pub static ZLIB_COMPRESSOR: &dyn CertificateCompressor = &Zlib;

/// Decompresses zlib (RFC 1950). It needs 11 kB of heap meanwhile.
pub static ZLIB_DECOMPRESSOR: &dyn CertificateDecompressor = &Zlib;

#[derive(Debug)]
struct Zlib;

impl CertificateCompressor for Zlib {
    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::ZLIB
    }

    fn compress(&self, message: &[u8]) -> Result<Vec<u8>, CompressionFailed> {
        /// zlib's highest level.
        const BEST: u8 = 9;
        Ok(miniz_oxide::deflate::compress_to_vec_zlib(message, BEST))
    }
}

impl CertificateDecompressor for Zlib {
    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::ZLIB
    }

    fn decompress(&self, compressed: &[u8], message: &mut [u8]) -> Result<(), CompressionFailed> {
        // The output buffer holds the whole message, so no separate window is needed. Parsing the zlib header
        // also turns verification of the checksum on.
        const FLAGS: u32 = inflate_flags::TINFL_FLAG_PARSE_ZLIB_HEADER
            | inflate_flags::TINFL_FLAG_COMPUTE_ADLER32
            | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let mut state = Box::<DecompressorOxide>::default();
        let (status, read, written) = decompress(&mut state, compressed, message, 0, FLAGS);
        let whole = read == compressed.len() && written == message.len();
        if status == TINFLStatus::Done && whole { Ok(()) } else { Err(CompressionFailed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "hello hello hello hello" as Python's zlib.compress writes it.
    const HELLO: &[u8] =
        &[0x78, 0x9c, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57, 0xc8, 0x40, 0x27, 0x01, 0x68, 0x03, 0x08, 0xb1];
    const PLAIN: &[u8] = b"hello hello hello hello";

    fn inflate(compressed: &[u8], len: usize) -> Result<Vec<u8>, CompressionFailed> {
        let mut out = alloc::vec![0; len];
        ZLIB_DECOMPRESSOR.decompress(compressed, &mut out).map(|()| out)
    }

    #[test]
    fn decompresses_output_of_zlib() {
        assert_eq!(inflate(HELLO, PLAIN.len()).as_deref(), Ok(PLAIN));
    }

    #[test]
    fn decompresses_its_own_output() {
        for len in [0, 1, 2, 300, 65536] {
            let plain: Vec<u8> = (0..len).map(|i: usize| (i * i / 7) as u8).collect();
            let compressed = ZLIB_COMPRESSOR.compress(&plain).unwrap();
            assert_eq!(inflate(&compressed, len), Ok(plain));
        }
    }

    #[test]
    fn rejects_a_wrong_length() {
        for len in (0..=64).filter(|len| *len != PLAIN.len()) {
            assert_eq!(inflate(HELLO, len), Err(CompressionFailed), "{len} bytes");
        }
    }

    #[test]
    fn rejects_damaged_input() {
        for cut in 0..HELLO.len() {
            assert_eq!(inflate(&HELLO[..cut], PLAIN.len()), Err(CompressionFailed), "cut at {cut}");
        }
        let long = [HELLO, &[0]].concat();
        assert_eq!(inflate(&long, PLAIN.len()), Err(CompressionFailed), "a byte after the end");
        for at in 0..HELLO.len() {
            let mut bad = HELLO.to_vec();
            bad[at] ^= 0x10;
            assert_ne!(inflate(&bad, PLAIN.len()).as_deref(), Ok(PLAIN), "byte {at}");
        }
    }
}
