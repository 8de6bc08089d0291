//! gzip (RFC 1952) for status lists: one member, without names and comments, and never more output than its caller allows.

use miniz_oxide::deflate;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress as inflate, inflate_flags};

/// ID1, ID2 and the compression method deflate; no flags, no time.
const HEADER: [u8; 8] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0];

/// The header also has two bytes that change nothing: how hard the compressor tried, and the operating system.
const HEADER_LEN: usize = 10;

const TRAILER_LEN: usize = 8;

/// Why compressed data are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GzipError {
    /// The header is malformed, or has optional fields.
    #[error("the header is not that of gzip without optional fields")]
    Header,
    /// The content would be longer than the limit, which is given in bytes.
    #[error("the content is longer than {0} bytes")]
    TooLong(usize),
    /// The compressed data are malformed, end early, or do not have the length in the trailer.
    #[error("the compressed data are malformed or do not have the length that the trailer says")]
    Data,
    /// The checksum is wrong.
    #[error("the checksum is wrong")]
    Checksum,
}

pub(crate) fn compress(content: &[u8]) -> Vec<u8> {
    const LEVEL: u8 = 9;
    // No system in particular (RFC 1952 §2.3.1).
    let mut bytes = [HEADER.as_slice(), &[0, 0xff]].concat();
    bytes.extend(deflate::compress_to_vec(content, LEVEL));
    bytes.extend(crc32(content).to_le_bytes());
    // RFC 1952 §2.3.1: the length modulo 2^32.
    bytes.extend((content.len() as u32).to_le_bytes());
    bytes
}

/// The content, of at most `limit` bytes. The trailer announces the length, so that no memory is taken for a longer one.
pub(crate) fn decompress(bytes: &[u8], limit: usize) -> Result<Vec<u8>, GzipError> {
    let (header, rest) = bytes.split_at_checked(HEADER_LEN).ok_or(GzipError::Header)?;
    // The time is the compressor's business.
    if header.get(..4) != HEADER.get(..4) {
        return Err(GzipError::Header);
    }
    let data = rest.len().checked_sub(TRAILER_LEN).ok_or(GzipError::Data)?;
    let (data, trailer) = rest.split_at(data);
    let number = |at: usize| {
        trailer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
    };
    let len = usize::try_from(number(4)).unwrap_or(usize::MAX);
    if len > limit {
        return Err(GzipError::TooLong(limit));
    }
    let mut content = vec![0; len];
    let mut state = Box::<DecompressorOxide>::default();
    let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, read, written) = inflate(&mut state, data, &mut content, 0, flags);
    if status != TINFLStatus::Done || read != data.len() || written != len {
        return Err(GzipError::Data);
    }
    if crc32(&content) == number(0) { Ok(content) } else { Err(GzipError::Checksum) }
}

/// The checksum of RFC 1952 §8.
fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ POLYNOMIAL & (sum & 1).wrapping_neg())
    })
}
