//! gzip (RFC 1952) for status lists, with never more output than its caller allows.

use miniz_oxide::deflate;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress as inflate, inflate_flags};

/// ID1, ID2 and the compression method deflate; no flags, no time: the header that this program writes.
const HEADER: [u8; 8] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0];

/// The header also has two bytes that change nothing: how hard the compressor tried, and the operating
/// system.
const HEADER_LEN: usize = 10;

const TRAILER_LEN: usize = 8;

/// Why compressed data are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GzipError {
    /// A header is malformed.
    #[error("a header is not that of gzip with deflate")]
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

/// The content of all members, of at most `limit` bytes. Memory follows what the data contain, never what
/// they announce.
pub(crate) fn decompress(bytes: &[u8], limit: usize) -> Result<Vec<u8>, GzipError> {
    let mut content = Vec::new();
    let mut rest = bytes;
    loop {
        let data = after_header(rest).ok_or(GzipError::Header)?;
        let (member, after) = inflate_member(data, limit - content.len(), limit)?;
        let (trailer, after) = after.split_first_chunk::<TRAILER_LEN>().ok_or(GzipError::Data)?;
        let [sum, len] = [&trailer[..4], &trailer[4..]]
            .map(|number| number.iter().rev().fold(0, |n: u32, byte| n << 8 | u32::from(*byte)));
        if len != member.len() as u32 {
            return Err(GzipError::Data);
        }
        if sum != crc32(&member) {
            return Err(GzipError::Checksum);
        }
        content.extend(member);
        if after.is_empty() {
            return Ok(content);
        }
        rest = after;
    }
}

/// The data after a member's header (RFC 1952 §2.3). The header's time, level, system and optional fields
/// change nothing.
fn after_header(member: &[u8]) -> Option<&[u8]> {
    const FHCRC: u8 = 2;
    const FEXTRA: u8 = 4;
    const FNAME: u8 = 8;
    const FCOMMENT: u8 = 16;
    const RESERVED: u8 = 0xe0;
    let (fixed, mut rest) = member.split_at_checked(HEADER_LEN)?;
    let flags = *fixed.get(3)?;
    if fixed.get(..3) != HEADER.get(..3) || flags & RESERVED != 0 {
        return None;
    }
    if flags & FEXTRA != 0 {
        let (len, after) = rest.split_first_chunk()?;
        rest = after.get(usize::from(u16::from_le_bytes(*len))..)?;
    }
    for field in [FNAME, FCOMMENT] {
        if flags & field != 0 {
            rest = rest.get(rest.iter().position(|byte| *byte == 0)? + 1..)?;
        }
    }
    if flags & FHCRC != 0 {
        let header = member.get(..member.len() - rest.len())?;
        let (sum, after) = rest.split_first_chunk()?;
        if u16::from_le_bytes(*sum) != crc32(header) as u16 {
            return None;
        }
        rest = after;
    }
    Some(rest)
}

/// The content of a member, of at most `room` bytes, and the rest after its compressed data.
fn inflate_member(data: &[u8], room: usize, limit: usize) -> Result<(Vec<u8>, &[u8]), GzipError> {
    const FIRST: usize = 4096;
    let mut content = vec![0; FIRST.min(room)];
    let mut written = 0;
    let mut rest = data;
    let mut state = Box::<DecompressorOxide>::default();
    loop {
        let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, read, more) = inflate(&mut state, rest, &mut content, written, flags);
        rest = rest.get(read..).unwrap_or_default();
        written += more;
        match status {
            TINFLStatus::Done => break,
            TINFLStatus::HasMoreOutput if content.len() == room => return Err(GzipError::TooLong(limit)),
            TINFLStatus::HasMoreOutput => content.resize((2 * content.len()).min(room), 0),
            _ => return Err(GzipError::Data),
        }
    }
    content.truncate(written);
    Ok((content, rest))
}

/// The checksum of RFC 1952 §8.
fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ POLYNOMIAL & (sum & 1).wrapping_neg())
    })
}
