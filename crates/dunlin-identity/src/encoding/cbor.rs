//! CBOR in its deterministic form (RFC 8949 §4.2.1): the one encoding that each value has.
//!
//! [`read`] refuses every other encoding, so that two readers never see different values and no signed
//! message has a second form.

use std::fmt;

use crate::encoding::json::is_noncharacter;

/// The longest item, in bytes. A credential or a staple on the wire has at most 16 KiB.
pub const MAX_CBOR: usize = 16 * 1024;

/// How deep arrays, maps and tags may be nested. It is the limit for JSON, and room for the array around a
/// signed message.
pub const MAX_CBOR_DEPTH: usize = 36;

/// Why an item is refused, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {fault}")]
pub struct CborError {
    /// The fault.
    pub fault: CborFault,
    /// The offset of the faulty item, counted from 0.
    pub at: usize,
}

/// A fault in an encoded item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CborFault {
    /// The item is longer than the limit, which is given in bytes.
    #[error("the CBOR item is longer than {0} bytes")]
    TooLong(usize),
    /// The input ends within an item.
    #[error("the input ends within a CBOR item")]
    Truncated,
    /// Arrays, maps and tags are nested more than [`MAX_CBOR_DEPTH`] deep.
    #[error("arrays, maps and tags are nested more than {MAX_CBOR_DEPTH} deep")]
    TooDeep,
    /// A number or length has a shorter encoding (RFC 8949 §4.2.1).
    #[error("the number or length has a shorter encoding")]
    NotShortest,
    /// A string, array or map has no length (RFC 8949 §4.2.1), or a stray break ends one.
    #[error("items of indefinite length are not deterministic")]
    Indefinite,
    /// The additional information is 28, 29 or 30 (RFC 8949 §3).
    #[error("the initial byte is reserved")]
    Reserved,
    /// The keys of a map are not in the order of their encodings (RFC 8949 §4.2.1).
    #[error("the keys of the map are not in order")]
    Order,
    /// A map has one key twice (RFC 8949 §5.6).
    #[error("the map has one key twice")]
    Duplicate,
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Utf8,
    /// A text contains a code point that Unicode reserves as a noncharacter, which I-JSON excludes.
    #[error("a text contains a noncharacter, which I-JSON excludes")]
    Noncharacter,
    /// A simple value other than false, true and null.
    #[error("the simple value is unknown")]
    Simple,
    /// A floating-point number is not finite.
    #[error("the number is not finite")]
    NotFinite,
    /// Bytes follow the item.
    #[error("data follows the CBOR item")]
    Trailing,
}

/// An item.
#[derive(Clone, Debug, PartialEq)]
pub enum Cbor {
    /// An integer from 0.
    Unsigned(u64),
    /// The integer -1 - n.
    Negative(u64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A text.
    Text(String),
    /// An array.
    Array(Vec<Cbor>),
    /// A map. [`write()`] sorts the entries.
    Map(Vec<(Cbor, Cbor)>),
    /// A tag and its content.
    Tag(u64, Box<Cbor>),
    /// False or true.
    Bool(bool),
    /// Null.
    Null,
    /// A finite number.
    Float(f64),
}

impl From<i64> for Cbor {
    fn from(number: i64) -> Self {
        u64::try_from(number).map_or_else(|_| Self::Negative(!number.cast_unsigned()), Self::Unsigned)
    }
}

impl Cbor {
    /// The integer, if the item is one and fits.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Unsigned(number) => i64::try_from(*number).ok(),
            Self::Negative(number) => i64::try_from(*number).ok().map(|number| -1 - number),
            _ => None,
        }
    }
}

/// Reads one item of at most [`MAX_CBOR`] bytes.
///
/// # Errors
/// The first fault, with its position.
pub fn read(bytes: &[u8]) -> Result<Cbor, CborError> {
    read_bounded(bytes, MAX_CBOR)
}

/// Reads one item of at most `limit` bytes.
///
/// # Errors
/// The first fault, with its position.
pub fn read_bounded(bytes: &[u8], limit: usize) -> Result<Cbor, CborError> {
    if bytes.len() > limit {
        return Err(fault(0, CborFault::TooLong(limit)));
    }
    let mut reader = Reader { bytes, at: 0 };
    let item = reader.item(0)?;
    if reader.at == bytes.len() { Ok(item) } else { Err(fault(reader.at, CborFault::Trailing)) }
}

const fn fault(at: usize, fault: CborFault) -> CborError {
    CborError { fault, at }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn take(&mut self, len: u64) -> Result<&'b [u8], CborError> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or(fault(self.at, CborFault::Truncated))?;
        self.at += taken.len();
        Ok(taken)
    }

    /// The argument of an initial byte, with the number of bytes that follow.
    fn argument(&mut self, start: usize, information: u8) -> Result<u64, CborError> {
        let len = match information {
            0..=23 => return Ok(information.into()),
            24..=27 => 1_u64 << (information - 24),
            28..=30 => return Err(fault(start, CborFault::Reserved)),
            _ => return Err(fault(start, CborFault::Indefinite)),
        };
        Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn item(&mut self, depth: usize) -> Result<Cbor, CborError> {
        let start = self.at;
        let initial = self.take(1)?.first().copied().unwrap_or_default();
        let major = initial >> 5;
        let information = initial & 0x1f;
        let argument = self.argument(start, information)?;
        if major == 7 {
            return self.simple_or_float(start, information, argument);
        }
        // RFC 8949 §4.2.1: the shortest argument.
        let mut head = Vec::new();
        write_head(&mut head, major, argument);
        if head.len() != self.at - start {
            return Err(fault(start, CborFault::NotShortest));
        }
        if major >= 4 && depth == MAX_CBOR_DEPTH {
            return Err(fault(start, CborFault::TooDeep));
        }
        match major {
            0 => Ok(Cbor::Unsigned(argument)),
            1 => Ok(Cbor::Negative(argument)),
            2 => Ok(Cbor::Bytes(self.take(argument)?.to_vec())),
            3 => {
                let text = str::from_utf8(self.take(argument)?);
                let text = text.map_err(|_| fault(start, CborFault::Utf8))?;
                if text.chars().any(is_noncharacter) {
                    return Err(fault(start, CborFault::Noncharacter));
                }
                Ok(Cbor::Text(text.to_owned()))
            }
            // A length allocates nothing: each element takes at least one byte of the input.
            4 => {
                let mut elements = Vec::new();
                for _ in 0..argument {
                    elements.push(self.item(depth + 1)?);
                }
                Ok(Cbor::Array(elements))
            }
            5 => self.map(argument, depth),
            _ => Ok(Cbor::Tag(argument, Box::new(self.item(depth + 1)?))),
        }
    }

    fn map(&mut self, len: u64, depth: usize) -> Result<Cbor, CborError> {
        let mut entries = Vec::new();
        let mut previous: &[u8] = &[];
        for _ in 0..len {
            let start = self.at;
            let key = self.item(depth + 1)?;
            let encoded = self.bytes.get(start..self.at).unwrap_or_default();
            match previous.cmp(encoded) {
                std::cmp::Ordering::Less => previous = encoded,
                std::cmp::Ordering::Equal => return Err(fault(start, CborFault::Duplicate)),
                std::cmp::Ordering::Greater => return Err(fault(start, CborFault::Order)),
            }
            entries.push((key, self.item(depth + 1)?));
        }
        Ok(Cbor::Map(entries))
    }

    fn simple_or_float(&self, start: usize, information: u8, argument: u64) -> Result<Cbor, CborError> {
        let number = match information {
            20 => return Ok(Cbor::Bool(false)),
            21 => return Ok(Cbor::Bool(true)),
            22 => return Ok(Cbor::Null),
            25 => from_half(argument),
            26 => f64::from(f32::from_bits(u32::try_from(argument).unwrap_or_default())),
            27 => f64::from_bits(argument),
            _ => return Err(fault(start, CborFault::Simple)),
        };
        if !number.is_finite() {
            return Err(fault(start, CborFault::NotFinite));
        }
        let mut shortest = Vec::new();
        write_float(&mut shortest, number);
        if shortest.len() != self.at - start {
            return Err(fault(start, CborFault::NotShortest));
        }
        Ok(Cbor::Float(number))
    }
}

/// The deterministic encoding of an item.
pub fn write(item: &Cbor) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_item(&mut bytes, item);
    bytes
}

fn write_item(bytes: &mut Vec<u8>, item: &Cbor) {
    match item {
        Cbor::Unsigned(number) => write_head(bytes, 0, *number),
        Cbor::Negative(number) => write_head(bytes, 1, *number),
        Cbor::Bytes(content) => {
            write_head(bytes, 2, content.len() as u64);
            bytes.extend_from_slice(content);
        }
        Cbor::Text(text) => {
            write_head(bytes, 3, text.len() as u64);
            bytes.extend_from_slice(text.as_bytes());
        }
        Cbor::Array(elements) => {
            write_head(bytes, 4, elements.len() as u64);
            elements.iter().for_each(|element| write_item(bytes, element));
        }
        Cbor::Map(entries) => {
            write_head(bytes, 5, entries.len() as u64);
            let mut encoded: Vec<_> = entries.iter().map(|(key, value)| (write(key), write(value))).collect();
            encoded.sort();
            encoded.iter().for_each(|(key, value)| {
                bytes.extend_from_slice(key);
                bytes.extend_from_slice(value);
            });
        }
        Cbor::Tag(tag, content) => {
            write_head(bytes, 6, *tag);
            write_item(bytes, content);
        }
        Cbor::Bool(value) => bytes.push(0xf4 + u8::from(*value)),
        Cbor::Null => bytes.push(0xf6),
        Cbor::Float(number) => write_float(bytes, *number),
    }
}

/// Writes a major type with the shortest argument.
fn write_head(bytes: &mut Vec<u8>, major: u8, argument: u64) {
    let major = major << 5;
    let content = argument.to_be_bytes();
    let (information, len) = match argument {
        0..=23 => {
            bytes.push(major | content.last().copied().unwrap_or_default());
            return;
        }
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    bytes.push(major | information);
    bytes.extend_from_slice(content.get(8 - len..).unwrap_or_default());
}

/// Writes the shortest form that keeps the value (RFC 8949 §4.2.1).
fn write_float(bytes: &mut Vec<u8>, number: f64) {
    // The comparison finds what is lost.
    let single = number as f32;
    if f64::from(single).to_bits() != number.to_bits() {
        bytes.push(0xfb);
        bytes.extend_from_slice(&number.to_bits().to_be_bytes());
    } else if let Some(half) = to_half(single) {
        bytes.push(0xf9);
        bytes.extend_from_slice(&half.to_be_bytes());
    } else {
        bytes.push(0xfa);
        bytes.extend_from_slice(&single.to_bits().to_be_bytes());
    }
}

/// A half-precision number (RFC 8949 §D).
fn from_half(bits: u64) -> f64 {
    let exponent = bits >> 10 & 0x1f;
    let mantissa = f64::from(u32::try_from(bits & 0x3ff).unwrap_or_default());
    let magnitude = match exponent {
        0 => mantissa * 2_f64.powi(-24),
        31 => return f64::INFINITY,
        _ => (mantissa + 1024.0) * 2_f64.powi(i32::try_from(exponent).unwrap_or_default() - 25),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// The half-precision form of a finite number; `None` if it would lose something.
fn to_half(number: f32) -> Option<u16> {
    let sign = u16::from(number.is_sign_negative()) << 15;
    let magnitude = f64::from(number.abs());
    let candidate =
        |bits: u16| (from_half(bits.into()).to_bits() == magnitude.to_bits()).then_some(sign | bits);
    // The halves from 0 to the largest finite one are in order of their bits.
    let mut low = 0_u16;
    let mut high = 0x7bff_u16;
    while low < high {
        let middle = low.midpoint(high);
        if from_half(middle.into()) < magnitude { low = middle + 1 } else { high = middle }
    }
    candidate(low)
}

impl fmt::Display for Cbor {
    /// The diagnostic notation (RFC 8949 §8).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(number) => write!(f, "{number}"),
            Self::Negative(number) => write!(f, "{}", -1 - i128::from(*number)),
            Self::Bytes(bytes) => {
                f.write_str("h'")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("'")
            }
            Self::Text(text) => f.write_str(&serde_json::Value::from(text.as_str()).to_string()),
            Self::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if index == 0 { "[" } else { ", " })?;
                }
                f.write_str(if elements.is_empty() { "[]" } else { "]" })
            }
            Self::Map(entries) => {
                for (index, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{key}: {value}", if index == 0 { "{" } else { ", " })?;
                }
                f.write_str(if entries.is_empty() { "{}" } else { "}" })
            }
            Self::Tag(tag, content) => write!(f, "{tag}({content})"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Null => f.write_str("null"),
            Self::Float(number) => write!(f, "{number:?}"),
        }
    }
}
