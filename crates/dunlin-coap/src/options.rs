//! Critical options, which an endpoint understands or rejects (RFC 7252 §5.4).

use coap_lite::{CoapOption, Packet};

/// A critical option of RFC 7252 §5.10: its number, its shortest and longest value in bytes, and whether it
/// may be repeated.
const KNOWN: [(u16, usize, usize, bool); 7] = [
    (1, 0, 8, true),    // If-Match
    (3, 1, 255, false), // Uri-Host
    (5, 0, 0, false),   // If-None-Match
    (7, 0, 2, false),   // Uri-Port
    (11, 0, 255, true), // Uri-Path
    (15, 0, 255, true), // Uri-Query
    (17, 0, 2, false),  // Accept
];

/// Whether the option says that the request is for a proxy: Proxy-Uri and Proxy-Scheme.
pub(crate) const fn is_for_proxies(option: u16) -> bool {
    matches!(option, 35 | 39)
}

/// The first critical option of the message that this side does not understand. `more` are options that the
/// application understands.
pub(crate) fn unknown_critical(message: &Packet, more: &[u16]) -> Option<u16> {
    let is_known = |number: u16, lengths: &[usize]| {
        more.contains(&number)
            || KNOWN.iter().any(|(known, shortest, longest, is_repeatable)| {
                // RFC 7252 §5.4.3 and §5.4.5: an option of a wrong length, or one too many, is like an
                // unknown one.
                *known == number
                    && (*is_repeatable || lengths.len() == 1)
                    && lengths.iter().all(|length| (*shortest..=*longest).contains(length))
            })
    };
    let used =
        message.options().map(|(number, values)| (*number, values.iter().map(Vec::len).collect::<Vec<_>>()));
    // RFC 7252 §5.4.1: critical options have odd numbers.
    let mut critical = used.filter(|(number, lengths)| number % 2 == 1 && !lengths.is_empty());
    critical.find(|(number, lengths)| !is_known(*number, lengths)).map(|(number, _)| number)
}

/// The value of the Observe option: 24 bits (RFC 7641 §2). `None` if it is missing or invalid.
pub(crate) fn observe(message: &Packet) -> Option<u32> {
    let value = message.get_first_option(CoapOption::Observe).filter(|value| value.len() <= 3)?;
    Some(value.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_unknown_critical_options() {
        let with = |options: &[(u16, &[u8])]| {
            let mut message = Packet::new();
            options.iter().for_each(|(number, value)| message.add_option((*number).into(), value.to_vec()));
            message
        };
        assert_eq!(unknown_critical(&with(&[(11, b"a"), (11, b"b"), (17, &[0]), (12, &[0])]), &[]), None);
        assert_eq!(unknown_critical(&with(&[(11, b"a"), (27, &[8])]), &[]), Some(27));
        assert_eq!(unknown_critical(&with(&[(11, b"a"), (27, &[8])]), &[27]), None);
        // Elective options are never in the way.
        assert_eq!(unknown_critical(&with(&[(2052, b"x")]), &[]), None);
        assert_eq!(unknown_critical(&with(&[(17, &[0]), (17, &[1])]), &[]), Some(17));
        assert_eq!(unknown_critical(&with(&[(7, &[1, 2, 3])]), &[]), Some(7));
        assert_eq!(unknown_critical(&with(&[(3, b"")]), &[]), Some(3));
    }

    #[test]
    fn reads_the_24_bits_of_an_observe_option() {
        let with = |value: &[u8]| {
            let mut message = Packet::new();
            message.add_option(CoapOption::Observe, value.to_vec());
            message
        };
        assert_eq!(observe(&Packet::new()), None);
        assert_eq!(observe(&with(&[])), Some(0));
        assert_eq!(observe(&with(&[1, 2, 3])), Some(0x010203));
        assert_eq!(observe(&with(&[1, 2, 3, 4])), None);
    }
}
