//! The fields of a certificate in DER that webpki does not expose (RFC 5280 §4.1, §4.2).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::der::{seconds, tlv};

/// id-at-commonName (RFC 5280 §A.1).
pub(super) const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The common name in a distinguished name, which is given without its header as webpki stores it. `None` if
/// there is none, if there are several, since two readers could choose different ones, or if it is no identity
/// ([`is_identity`]).
pub(super) fn common_name(name: &[u8]) -> Option<String> {
    let text = match *attributes(name, COMMON_NAME)? {
        // UTF8String, PrintableString and IA5String.
        [(0x0c | 0x13 | 0x16, text)] => core::str::from_utf8(text).ok()?.to_string(),
        // TeletexString and BMPString. Readers do not agree about characters beyond ASCII.
        [(0x14, text)] => text.iter().map(|byte| ascii(&[*byte])).collect::<Option<_>>()?,
        [(0x1e, text)] => text.chunks(2).map(ascii).collect::<Option<_>>()?,
        _ => return None,
    };
    is_identity(&text).then_some(text)
}

/// Whether this text names one peer to every reader: it shows something, and contains no character that shows
/// nothing, breaks a line, or changes the order of others.
fn is_identity(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(|c: char| c.is_control() || is_format(c) || is_unseen(c))
}

/// Whether a character has the general category Cf (Unicode 16.0), as all that control the direction of text
/// do.
fn is_format(c: char) -> bool {
    matches!(u32::from(c),
        0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x890 | 0x891 | 0x8e2 | 0x180e | 0x200b..=0x200f
        | 0x202a..=0x202e | 0x2060..=0x2064 | 0x2066..=0x206f | 0xfeff | 0xfff9..=0xfffb | 0x1_10bd | 0x1_10cd
        | 0x1_3430..=0x1_343f | 0x1_bca0..=0x1_bca3 | 0x1_d173..=0x1_d17a | 0xe_0001 | 0xe_0020..=0xe_007f)
}

/// Other characters of Unicode's Default_Ignorable_Code_Point, which show nothing, and its separators of lines
/// and paragraphs.
fn is_unseen(c: char) -> bool {
    matches!(u32::from(c),
        0x34f | 0x115f | 0x1160 | 0x17b4 | 0x17b5 | 0x180b..=0x180f | 0x2028 | 0x2029 | 0x2065 | 0x3164
        | 0xfe00..=0xfe0f | 0xffa0 | 0xfff0..=0xfff8 | 0xe_0000..=0xe_0fff)
}

/// A character of a string with one or two bytes for each, if it is a printable one of ASCII.
fn ascii(unit: &[u8]) -> Option<char> {
    match unit {
        [byte] | [0, byte] => Some(char::from(*byte)).filter(|c| c.is_ascii() && !c.is_ascii_control()),
        _ => None,
    }
}

/// The values of the attributes of this type in a distinguished name, each with the tag of its string. `None`
/// if the name does not parse.
pub(super) fn attributes<'n>(mut name: &'n [u8], wanted: &[u8]) -> Option<Vec<(u8, &'n [u8])>> {
    let mut found = Vec::new();
    while !name.is_empty() {
        let (_, mut set, rest) = tlv(name)?;
        while !set.is_empty() {
            let (_, attribute, others) = tlv(set)?;
            let (_, kind, value) = tlv(attribute)?;
            if kind == wanted {
                let (tag, text, _) = tlv(value)?;
                found.push((tag, text));
            }
            set = others;
        }
        name = rest;
    }
    Some(found)
}

/// notBefore and notAfter of a certificate in seconds since 1970 (RFC 5280 §4.1.2.5), which webpki does not
/// expose.
pub(super) fn dates(certificate: &[u8]) -> Option<(u64, u64)> {
    let (_, _issuer, rest) = tlv(from_issuer(certificate)?)?;
    let (_, validity, _) = tlv(rest)?;
    let (tag, begin, rest) = tlv(validity)?;
    let begin = seconds(tag, begin)?;
    let (tag, end, _) = tlv(rest)?;
    Some((begin, seconds(tag, end)?))
}

/// Whether keyUsage of an authority allows its key to sign CRLs, by cRLSign.
pub(super) fn may_sign_lists(certificate: &[u8]) -> bool {
    key_usage(certificate).is_none_or(|bits| bits.first().is_some_and(|first| first & 0x02 != 0))
}

/// The bits of the extension keyUsage.
pub(super) fn key_usage(certificate: &[u8]) -> Option<&[u8]> {
    const KEY_USAGE: [u8; 3] = [0x55, 0x1d, 0x0f];
    // The value is a BIT STRING, which begins with the number of unused bits.
    tlv(extension(certificate, KEY_USAGE)?)?.1.get(1..)
}

/// The key identifier of a certificate (RFC 5280 §4.2.1.2).
pub(super) fn subject_key_id(certificate: &[u8]) -> Option<&[u8]> {
    tlv(extension(certificate, [0x55, 0x1d, 0x0e])?).map(|(_, id, _)| id)
}

/// The key identifier of a certificate's issuer (RFC 5280 §4.2.1.1).
pub(super) fn authority_key_id(certificate: &[u8]) -> Option<&[u8]> {
    authority_key_id_among(extensions(certificate)?)
}

/// The same in the field extensions of a certificate or CRL.
pub(super) fn authority_key_id_among(extensions: &[u8]) -> Option<&[u8]> {
    let (_, fields, _) = tlv(extension_among(extensions, [0x55, 0x1d, 0x23])?)?;
    // keyIdentifier [0] comes first.
    tlv(fields).filter(|(tag, ..)| *tag == 0x80).map(|(_, id, _)| id)
}

/// The distribution points of a certificate's CRL, in DER (RFC 5280 §4.2.1.13).
pub(super) fn distribution_points(certificate: &[u8]) -> Option<&[u8]> {
    extension(certificate, [0x55, 0x1d, 0x1f])
}

/// The value of an extension below id-ce (RFC 5280 §4.2.1).
pub(super) fn extension(certificate: &[u8], wanted: [u8; 3]) -> Option<&[u8]> {
    extension_among(extensions(certificate)?, wanted)
}

/// The field extensions [3] of a certificate, which is the last one.
fn extensions(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate, _) = tlv(certificate)?;
    let (_, mut fields, _) = tlv(certificate)?;
    loop {
        let (tag, content, rest) = tlv(fields)?;
        match tag {
            0xa3 => return Some(content),
            _ => fields = rest,
        }
    }
}

/// The value of one of these extensions.
fn extension_among(extensions: &[u8], wanted: [u8; 3]) -> Option<&[u8]> {
    const BOOLEAN: u8 = 1;
    let (_, mut extensions, _) = tlv(extensions)?;
    loop {
        let (_, extension, rest) = tlv(extensions)?;
        let (_, id, after) = tlv(extension)?;
        if id == wanted {
            let (tag, value, after) = tlv(after)?;
            return if tag == BOOLEAN { tlv(after).map(|(_, value, _)| value) } else { Some(value) };
        }
        extensions = rest;
    }
}

/// Issuer and subject of a certificate without their headers, as webpki stores names.
pub(super) fn names(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, issuer, rest) = tlv(from_issuer(certificate)?)?;
    let (_, _validity, rest) = tlv(rest)?;
    tlv(rest).map(|(_, subject, _)| (issuer, subject))
}

/// The SubjectPublicKeyInfo of a certificate, with its header.
pub(super) fn public_key_info(certificate: &[u8]) -> Option<&[u8]> {
    let (_, _issuer, rest) = tlv(from_issuer(certificate)?)?;
    let (_, _validity, rest) = tlv(rest)?;
    let (_, _subject, key) = tlv(rest)?;
    let (_, _, after) = tlv(key)?;
    key.get(..key.len().checked_sub(after.len())?)
}

/// The fields of a certificate from the issuer on (RFC 5280 §4.1): issuer, validity, subject, …
pub(super) fn from_issuer(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate, _) = tlv(certificate)?;
    let (_, mut tbs, _) = tlv(certificate)?;
    // The optional version [0], serialNumber and signature precede the issuer.
    if tbs.first() == Some(&0xa0) {
        tbs = tlv(tbs)?.2;
    }
    for _ in 0..2 {
        tbs = tlv(tbs)?.2;
    }
    Some(tbs)
}

/// The AlgorithmIdentifier of a certificate's signature without its header, as webpki stores it.
pub(super) fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate, _) = tlv(certificate)?;
    let (_, _, after_tbs) = tlv(certificate)?;
    tlv(after_tbs).map(|(_, identifier, _)| identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that contains nothing but its validity.
    fn certificate(tag: u8, time: &[u8]) -> Vec<u8> {
        let element = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let times = [element(0x17, b"700101000000Z"), element(tag, time)].concat();
        let tbs = [
            element(0xa0, &element(2, &[2])),
            element(2, &[1]),
            element(0x30, &[]),
            element(0x30, &[]),
            element(0x30, &times),
        ];
        element(0x30, &element(0x30, &tbs.concat()))
    }

    #[test]
    fn reads_the_validity_of_a_certificate() {
        for (tag, time, seconds) in [
            (0x17, &b"700101000001Z"[..], 1),
            (0x17, b"000229120000Z", 951_825_600),
            (0x17, b"350101000000Z", 2_051_222_400),
            (0x17, b"491231235959Z", 2_524_607_999),
            (0x18, b"20500101000000Z", 2_524_608_000),
            (0x18, b"99991231235959Z", 253_402_300_799),
        ] {
            assert_eq!(dates(&certificate(tag, time)), Some((0, seconds)));
        }
        for bad in [certificate(0x16, b"350101000000Z"), certificate(0x17, b"3501"), Vec::new()] {
            assert_eq!(dates(&bad), None);
        }
        let whole = certificate(0x17, b"350101000000Z");
        for len in 0..whole.len() {
            assert_eq!(dates(&whole[..len]), None);
        }
    }

    #[test]
    fn a_common_name_is_text_in_any_type_of_string() {
        let element = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let name = |tag, text: &[u8]| {
            let attribute = [element(6, COMMON_NAME), element(tag, text)].concat();
            element(0x31, &element(0x30, &attribute))
        };
        for (tag, text, known) in [
            (0x0c, "Zoë".as_bytes(), Some("Zoë")),
            (0x13, b"device-1", Some("device-1")),
            (0x14, b"device-1", Some("device-1")),
            (0x16, b"device-1", Some("device-1")),
            (0x1e, b"\0d\0e\0v", Some("dev")),
            // Characters outside of ASCII, half a character, and control characters.
            (0x14, b"Zo\xeb", None),
            (0x1e, b"\x20\xac", None),
            (0x1e, b"\0d\0", None),
            (0x1e, b"\0d\0\n", None),
            (0x14, b"a\x7f", None),
            (0x0c, b"a\n", None),
            // A UniversalString.
            (0x1c, b"\0\0\0d", None),
            (0x0c, b"", None),
            // Blanks alone, and characters that show nothing or turn others.
            (0x13, b"  ", None),
            (0x0c, "\u{a0}\u{2003}".as_bytes(), None),
            (0x0c, "\u{200b}".as_bytes(), None),
            (0x0c, "dev\u{200b}1".as_bytes(), None),
            (0x0c, "dev\u{202e}1".as_bytes(), None),
            (0x0c, "dev\u{2067}1".as_bytes(), None),
            (0x0c, "dev\u{ad}1".as_bytes(), None),
            (0x0c, "dev\u{e0031}".as_bytes(), None),
            (0x0c, "dev\u{2028}1".as_bytes(), None),
            (0x0c, "dev\u{3164}".as_bytes(), None),
            (0x0c, "Dev ice\u{a0}1".as_bytes(), Some("Dev ice\u{a0}1")),
            (0x0c, "\u{645}\u{62d}\u{645}\u{62f}".as_bytes(), Some("\u{645}\u{62d}\u{645}\u{62f}")),
            (0x1e, b"", None),
        ] {
            assert_eq!(common_name(&name(tag, text)).as_deref(), known, "{tag:#x} {text:?}");
        }
        assert_eq!(common_name(&[]), None);
    }
}
