//! Distinguished names that are one name in several spellings (RFC 5280 §7.1). webpki compares the bytes, which
//! is enough for a path: it refuses too much. A CRL that is not taken for its issuer's would admit too much.

use alloc::vec::Vec;

use super::der::tlv;

/// Whether two names, without their headers, are one (RFC 5280 §7.1): whatever the types of their strings, with
/// ASCII case folded and white space compressed. `None` if that is unknown, since one has an attribute with
/// characters beyond ASCII, which the engine has no tables to fold.
pub(super) fn same_name(mut a: &[u8], mut b: &[u8]) -> Option<bool> {
    if a == b {
        return Some(true);
    }
    let mut is_known = true;
    while let (Some((_, one, rest_of_a)), Some((_, other, rest_of_b))) = (tlv(a), tlv(b)) {
        match (one == other, attributes(one), attributes(other)) {
            (true, ..) => {}
            (_, Some(one), Some(other)) if one == other => {}
            (_, Some(_), Some(_)) => return Some(false),
            _ => is_known = false,
        }
        (a, b) = (rest_of_a, rest_of_b);
    }
    // A name that does not parse has a rest here, too.
    if a.is_empty() && b.is_empty() { is_known.then_some(true) } else { Some(false) }
}

/// The attributes of a RelativeDistinguishedName, each a type and a value that can be compared; sorted, because
/// DER orders them by their bytes. `None` if one is not comparable.
fn attributes(mut set: &[u8]) -> Option<Vec<(&[u8], Vec<u8>)>> {
    let mut found = Vec::new();
    while !set.is_empty() {
        let (_, attribute, rest) = tlv(set)?;
        let (_, kind, value) = tlv(attribute)?;
        let (tag, content, _) = tlv(value)?;
        found.push((kind, comparable(tag, content)?));
        set = rest;
    }
    found.sort();
    Some(found)
}

/// The value of an attribute as RFC 4518 §2 prepares a string of ASCII; other types of values as they are.
fn comparable(tag: u8, content: &[u8]) -> Option<Vec<u8>> {
    // The bytes of a character.
    let width = match tag {
        // UTF8String, NumericString, PrintableString, TeletexString, IA5String and VisibleString.
        0x0c | 0x12 | 0x13 | 0x14 | 0x16 | 0x1a => 1,
        // BMPString and UniversalString.
        0x1e => 2,
        0x1c => 4,
        _ => return Some([&[tag], content].concat()),
    };
    let mut text = Vec::new();
    let mut is_apart = false;
    for character in content.chunks(width) {
        let (last, high) = character.split_last()?;
        if high.len() + 1 != width || high.iter().any(|byte| *byte != 0) || !last.is_ascii() {
            return None;
        }
        match last {
            // RFC 4518 §2.2 maps these to spaces, and §2.6.1 compares several spaces as one.
            b'\t'..=b'\r' | b' ' => is_apart = !text.is_empty(),
            // RFC 4518 §2.2: other control characters are mapped to nothing.
            byte if byte.is_ascii_control() => {}
            byte => {
                if core::mem::take(&mut is_apart) {
                    text.push(b' ');
                }
                text.push(byte.to_ascii_lowercase());
            }
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, content.len() as u8], content].concat()
    }

    /// A RelativeDistinguishedName with these attributes: the last byte of the type below id-at, and the value.
    fn rdn(attributes: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let attribute = |(kind, tag, text): &(u8, u8, &[u8])| {
            element(0x30, &[element(6, &[0x55, 4, *kind]), element(*tag, text)].concat())
        };
        element(0x31, &attributes.iter().flat_map(attribute).collect::<Vec<_>>())
    }

    #[test]
    fn a_name_is_one_in_every_spelling() {
        let name = rdn(&[(3, 0x13, b"Device CA 1")]);
        for (tag, text, verdict) in [
            (0x13, &b"Device CA 1"[..], Some(true)),
            (0x0c, b"Device CA 1", Some(true)),
            (0x14, b"device ca 1", Some(true)),
            (0x16, b"  DEVICE\tCA   1 ", Some(true)),
            (0x0c, b"Device\0 CA 1", Some(true)),
            (0x1e, b"\0D\0e\0v\0i\0c\0e\0 \0C\0A\0 \x001", Some(true)),
            (0x0c, b"DeviceCA 1", Some(false)),
            (0x0c, b"Device CA 2", Some(false)),
            (0x0c, b"", Some(false)),
            // Not a string.
            (0x04, b"Device CA 1", Some(false)),
            // Characters beyond ASCII, among them a fullwidth one, and half a character.
            (0x0c, "D\u{e9}vice CA 1".as_bytes(), None),
            (0x0c, "Device CA \u{ff11}".as_bytes(), None),
            (0x14, b"D\xe9vice CA 1", None),
            (0x1e, b"\0D\0", None),
        ] {
            let other = rdn(&[(3, tag, text)]);
            assert_eq!(same_name(&name, &other), verdict, "{tag:#x} {text:?}");
            assert_eq!(same_name(&other, &name), verdict, "{tag:#x} {text:?}");
            assert_eq!(same_name(&other, &other), Some(true));
        }
    }

    #[test]
    fn every_attribute_counts() {
        let ca = (3, 0x0c, &b"ca"[..]);
        let other = (3, 0x0c, &b"x"[..]);
        let zoe = (10, 0x0c, "Zo\u{eb}".as_bytes());
        let org = (10, 0x13, &b"Org"[..]);
        let two = [rdn(&[org]), rdn(&[ca])].concat();
        assert_eq!(same_name(&two, &[rdn(&[(10, 0x0c, b"org")]), rdn(&[ca])].concat()), Some(true));
        for different in [rdn(&[org]), rdn(&[org, ca]), [rdn(&[ca]), rdn(&[org])].concat(), Vec::new()] {
            assert_eq!(same_name(&two, &different), Some(false));
        }
        // DER orders the attributes of a set by their bytes.
        assert_eq!(same_name(&rdn(&[org, ca]), &rdn(&[(3, 0x13, b"CA"), org])), Some(true));
        // A difference that is known decides.
        let [zoe_ca, zoe_x] = [ca, other].map(|last| [rdn(&[zoe]), rdn(&[last])].concat());
        assert_eq!(same_name(&[rdn(&[org]), rdn(&[ca])].concat(), &zoe_x), Some(false));
        assert_eq!(same_name(&[rdn(&[org]), rdn(&[ca])].concat(), &zoe_ca), None);
        assert_eq!(same_name(&zoe_ca, &zoe_ca[..zoe_ca.len() - 1]), Some(false));
    }
}
