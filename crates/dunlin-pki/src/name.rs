//! Distinguished names (RFC 5280 §4.1.2.4), and their one text for rules, logs and reports.

use std::fmt;

use const_oid::ObjectIdentifier;
use der::asn1::{Any, AnyRef};
use der::{Decode, Encode, Length, Reader, SliceReader, Tag, Tagged};
use x509_cert::attr::AttributeTypeAndValue;

/// A distinguished name. Equal names have the same DER.
///
/// Its text has the notation of RFC 4514 and does not depend on the types of strings that the issuer chose:
/// a rule about the text holds for all of them. A value that is no text is hexadecimal after a `#`.
#[derive(Clone, Debug)]
pub struct DistinguishedName {
    der: Vec<u8>,
    /// The parts in the order of the encoding, each with its attributes in the order of their texts'
    /// encodings.
    parts: Vec<Vec<Attribute>>,
}

#[derive(Clone, Debug)]
struct Attribute {
    kind: ObjectIdentifier,
    /// The value, if it is a string that can be read.
    text: Option<String>,
    /// As in the text of the name.
    shown: String,
}

impl DistinguishedName {
    /// Reads a name from DER. `None` if it does not parse.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let name = AnyRef::from_der(der).ok().filter(|name| name.tag() == Tag::Sequence)?;
        let parts = elements(name.value(), Tag::Set)?.into_iter().map(part).collect::<Option<_>>()?;
        Some(Self { der: der.to_vec(), parts })
    }

    /// The name in DER.
    pub fn as_der(&self) -> &[u8] {
        &self.der
    }

    /// The values of the attributes of this type; `None` for one that is no text.
    pub fn texts(&self, kind: ObjectIdentifier) -> impl Iterator<Item = Option<&str>> {
        let attributes = self.parts.iter().flatten().filter(move |attribute| attribute.kind == kind);
        attributes.map(|attribute| attribute.text.as_deref())
    }
}

impl PartialEq for DistinguishedName {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for DistinguishedName {}

/// RFC 4514 §2.1: the last part comes first.
impl fmt::Display for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().rev().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            for (index, attribute) in part.iter().enumerate() {
                f.write_str(if index > 0 { "+" } else { "" })?;
                f.write_str(&attribute.shown)?;
            }
        }
        Ok(())
    }
}

/// The contents of the elements, all with this tag.
fn elements(der: &[u8], tag: Tag) -> Option<Vec<&[u8]>> {
    let mut reader = SliceReader::new(der).ok()?;
    let mut contents = vec![];
    while !reader.is_finished() {
        let element = AnyRef::decode(&mut reader).ok().filter(|element| element.tag() == tag)?;
        contents.push(element.value());
    }
    Some(contents)
}

/// Reads a part of a name from the content of its set.
fn part(set: &[u8]) -> Option<Vec<Attribute>> {
    let attributes = elements(set, Tag::Sequence)?.into_iter().map(attribute);
    let mut attributes = attributes.collect::<Option<Vec<_>>>()?;
    // The order of the encoding depends on the types of strings.
    attributes.sort_by(|(one, _), (other, _)| one.cmp(other));
    Some(attributes.into_iter().map(|(_, attribute)| attribute).collect())
}

/// Reads an attribute from the content of its sequence. The bytes order the attributes of a part.
fn attribute(content: &[u8]) -> Option<(Vec<u8>, Attribute)> {
    let mut reader = SliceReader::new(content).ok()?;
    let kind = ObjectIdentifier::decode(&mut reader).ok()?;
    // The crate `der` does not know every type of string, so it cannot read the value.
    let value = reader.read_slice(reader.remaining_len()).ok()?;
    let (tag, rest) = value.split_first()?;
    let mut reader = SliceReader::new(rest).ok()?;
    let length = Length::decode(&mut reader).ok()?;
    let text = text(*tag, reader.read_slice(length).ok()?);
    reader.finish().ok()?;

    let utf8 = text.as_ref().map(|text| Any::new(Tag::Utf8String, text.as_bytes())).transpose().ok()?;
    let utf8 = utf8.map(|value| AttributeTypeAndValue { oid: kind, value });
    let order = utf8.as_ref().map_or_else(|| Ok(content.to_vec()), Encode::to_der).ok()?;
    // x509-cert escapes characters, and shows the bytes of its own encoding for a type without a name.
    let unnamed = format!("{kind}=#");
    let shown = utf8.map(|utf8| utf8.to_string()).filter(|shown| !shown.starts_with(&unnamed));
    let hex = || value.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let shown = shown.unwrap_or_else(|| unnamed.clone() + &hex());
    Some((order, Attribute { kind, text, shown }))
}

/// The text of a string with this tag, as the engine reads it; `None` for other types and for characters
/// about which readers do not agree.
fn text(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        // UTF8String, PrintableString and IA5String.
        0x0c | 0x13 | 0x16 => std::str::from_utf8(value).ok().map(ToOwned::to_owned),
        // A TeletexString in practice has any set of characters.
        0x14 => std::str::from_utf8(value).ok().filter(|text| text.is_ascii()).map(ToOwned::to_owned),
        // BMPString: UCS-2.
        0x1e => wide::<2>(value),
        // UniversalString: UCS-4.
        0x1c => wide::<4>(value),
        _ => None,
    }
}

/// The text of a string with `N` bytes for each character.
fn wide<const N: usize>(value: &[u8]) -> Option<String> {
    let (characters, []) = value.as_chunks::<N>() else { return None };
    let number = |bytes: &[u8; N]| bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
    characters.iter().map(|bytes| char::from_u32(number(bytes))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;

    const COMMON_NAME: &[u8] = &[0x55, 4, 3];

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(content.len()).unwrap()], content].concat()
    }

    fn value(kind: &[u8], tag: u8, text: &[u8]) -> Vec<u8> {
        element(0x30, &[element(6, kind), element(tag, text)].concat())
    }

    fn shown(parts: &[Vec<u8>]) -> String {
        let parts: Vec<u8> = parts.iter().flat_map(|part| element(0x31, part)).collect();
        let der = element(0x30, &parts);
        let name = DistinguishedName::from_der(&der).unwrap();
        assert_eq!(name.as_der(), der);
        name.to_string()
    }

    #[test]
    fn the_text_does_not_depend_on_the_type_of_string() {
        let ascii = b"device-1";
        let two: Vec<u8> = ascii.iter().flat_map(|byte| [0, *byte]).collect();
        let four: Vec<u8> = ascii.iter().flat_map(|byte| [0, 0, 0, *byte]).collect();
        let unit = value(&[0x55, 4, 11], 0x0c, b"a long unit");
        let types =
            [(0x0c, &ascii[..]), (0x13, ascii), (0x16, ascii), (0x14, ascii), (0x1e, &two), (0x1c, &four)];
        for (tag, text) in types {
            let name = value(COMMON_NAME, tag, text);
            assert_eq!(shown(std::slice::from_ref(&name)), "CN=device-1", "{tag:#x}");
            assert_eq!(shown(&[unit.clone(), name.clone()]), "CN=device-1,OU=a long unit");
            let whole = element(0x30, &element(0x31, &name));
            let whole = DistinguishedName::from_der(&whole).unwrap();
            assert_eq!(whole.texts("2.5.4.3".parse().unwrap()).collect::<Vec<_>>(), [Some("device-1")]);
            // X.690 §11.6 orders by the encodings, in which the longer attribute comes last.
            assert_eq!(shown(&[[&name[..], &unit].concat()]), "CN=device-1+OU=a long unit", "{tag:#x}");
            assert_eq!(shown(&[[&unit[..], &name].concat()]), "CN=device-1+OU=a long unit", "{tag:#x}");
        }
    }

    #[test]
    fn only_text_is_shown_as_text() {
        let private = &[0x2a, 3, 4][..];
        for (kind, tag, text, expected) in [
            (COMMON_NAME, 0x0c, "Zoë".as_bytes(), "CN=Zoë"),
            (COMMON_NAME, 0x1e, b"\x20\xac", "CN=€"),
            (COMMON_NAME, 0x1c, b"\x00\x01\xf6\x00", "CN=😀"),
            (COMMON_NAME, 0x13, b"a@b*", "CN=a@b*"),
            (COMMON_NAME, 0x1e, b"\0,\0+", "CN=\\,\\+"),
            (COMMON_NAME, 0x14, b"Zo\xeb", "2.5.4.3=#14035a6feb"),
            // Half a character, one of a pair, and one beyond Unicode.
            (COMMON_NAME, 0x1e, b"\0d\0", "2.5.4.3=#1e03006400"),
            (COMMON_NAME, 0x1e, b"\xd8\x3d", "2.5.4.3=#1e02d83d"),
            (COMMON_NAME, 0x1c, b"\x00\x11\x00\x00", "2.5.4.3=#1c0400110000"),
            (COMMON_NAME, 0x0c, b"\xff", "2.5.4.3=#0c01ff"),
            (COMMON_NAME, 0x04, b"a", "2.5.4.3=#040161"),
            (private, 0x1e, b"\0a", "1.2.3.4=#1e020061"),
            (private, 0x0c, b"a", "1.2.3.4=#0c0161"),
        ] {
            let private = kind == private;
            let kind = if private { &[0x2a, 3, 4][..] } else { kind };
            assert_eq!(shown(&[value(kind, tag, text)]), expected);
        }
        assert_eq!(shown(&[]), "");
        for bad in
            [&[][..], &[0x30], &[0x31, 0], &[0x30, 2, 0x30, 0], &[0x30, 4, 0x31, 2, 0x30, 0], &[0x30, 0, 0]]
        {
            assert!(DistinguishedName::from_der(bad).is_none());
        }
    }
}
