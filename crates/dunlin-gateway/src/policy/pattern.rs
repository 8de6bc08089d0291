//! Patterns for texts and addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest pattern, in characters.
pub(super) const MAX_PATTERN: usize = 256;

/// The longest value that a pattern with wildcards is compared with, in characters. Values of certificates
/// and PSKs can be longer, and the time of a comparison grows with the product of both lengths.
pub(super) const MAX_VALUE: usize = 2048;

/// A text with wildcards: `*` matches any characters up to the field's separator, `**` any characters, `?`
/// one other than the separator. In a field whose separator is a comma, a backslash and the character behind
/// it are one character, which no separator or wildcard equals in part (RFC 4514 §2.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    text: String,
    separator: Option<char>,
    /// `None` if the text has no wildcard.
    tokens: Option<Vec<Token>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Literal(Unit),
    One,
    Some,
    Any,
}

/// A character of a text, and whether it is escaped by a backslash.
type Unit = (char, bool);

/// The characters of a text in a field with this separator.
fn units(text: &str, separator: Option<char>) -> impl Iterator<Item = Unit> {
    let mut chars = text.chars();
    let has_escapes = separator == Some(',');
    std::iter::from_fn(move || match chars.next()? {
        '\\' if has_escapes => Some(chars.next().map_or(('\\', false), |c| (c, true))),
        c => Some((c, false)),
    })
}

impl Pattern {
    /// Reads a pattern for a field with this separator. `None` if it is empty or too long.
    pub(super) fn parse(text: &str, separator: Option<char>) -> Option<Self> {
        if text.is_empty() || text.chars().count() > MAX_PATTERN {
            return None;
        }
        let mut tokens = Vec::new();
        for unit in units(text, separator) {
            match (unit, tokens.last()) {
                (('*', false), Some(Token::Some)) => {
                    tokens.pop();
                    tokens.push(Token::Any);
                }
                (('*', false), Some(Token::Any)) => {}
                (('*', false), _) => tokens.push(Token::Some),
                (('?', false), _) => tokens.push(Token::One),
                (unit, _) => tokens.push(Token::Literal(unit)),
            }
        }
        let is_exact = tokens.iter().all(|token| matches!(token, Token::Literal(_)));
        Some(Self { text: text.to_owned(), separator, tokens: (!is_exact).then_some(tokens) })
    }

    /// A pattern that only this text matches.
    pub(super) const fn literal(text: String) -> Self {
        Self { text, separator: None, tokens: None }
    }

    /// The text without wildcards; `None` if it has one.
    pub(super) fn exact(&self) -> Option<&str> {
        self.tokens.is_none().then_some(&self.text)
    }

    /// Whether the value matches; `None` if it is too long to be compared.
    pub(super) fn matches(&self, value: &str) -> Option<bool> {
        let Some(tokens) = &self.tokens else { return Some(self.text == value) };
        // The characters of a text are never more than its bytes.
        if value.len() > MAX_VALUE && value.chars().nth(MAX_VALUE).is_some() {
            return None;
        }
        // reached[i]: the first i tokens match the value up to here.
        let mut reached = vec![false; tokens.len() + 1];
        reached[0] = true;
        let spread = |reached: &mut [bool]| {
            for (i, token) in tokens.iter().enumerate() {
                if matches!(token, Token::Some | Token::Any) && reached[i] {
                    reached[i + 1] = true;
                }
            }
        };
        spread(&mut reached);
        for unit in units(value, self.separator) {
            let inside = unit.1 || Some(unit.0) != self.separator;
            let mut next = vec![false; tokens.len() + 1];
            for (i, token) in tokens.iter().enumerate() {
                match token {
                    Token::Literal(literal) => next[i + 1] |= reached[i] && *literal == unit,
                    Token::One => next[i + 1] |= reached[i] && inside,
                    Token::Some => next[i + 1] |= reached[i + 1] && inside,
                    Token::Any => next[i + 1] |= reached[i + 1],
                }
            }
            spread(&mut next);
            reached = next;
        }
        reached.last().copied()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text.escape_debug())
    }
}

/// A network: an address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network of this address with a prefix of this length, in bits. A longer prefix than the address
    /// has bits stands for the address alone. IPv4 addresses that are mapped to IPv6 become IPv4 addresses.
    pub fn of(address: IpAddr, prefix: u8) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let prefix = prefix.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                Self { address: Ipv4Addr::from(u32::from(v4) & mask).into(), prefix }
            }
            IpAddr::V6(v6) => {
                let prefix = prefix.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                Self { address: Ipv6Addr::from(u128::from(v6) & mask).into(), prefix }
            }
        }
    }

    /// Reads `192.0.2.0/24`, `2001:db8::/32`, or an address alone.
    ///
    /// # Errors
    /// Why the text is no network.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr =
            address.parse().map_err(|_| "not an IP address; write it as in 192.0.2.0/24".to_owned())?;
        let bits: u8 = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(prefix) => {
                let prefix = prefix.parse().ok().filter(|prefix| *prefix <= bits);
                prefix.ok_or_else(|| format!("a prefix has 0 to {bits} bits"))?
            }
        };
        let network = Self { address, prefix };
        let clean = match address {
            IpAddr::V6(v6) if let Some(v4) = v6.to_ipv4_mapped() => {
                let prefix = prefix.checked_sub(128 - 32);
                Self::of(v4.into(), prefix.ok_or("the prefix of a mapped IPv4 address has 96 to 128 bits")?)
            }
            _ => Self::of(address, prefix),
        };
        match clean == network {
            true => Ok(network),
            false if address.is_ipv4() == clean.address.is_ipv4() => {
                Err(format!("bits behind the prefix; write {clean}"))
            }
            false => Err(format!("an IPv4 network; write {clean}")),
        }
    }

    /// Whether the address is in this network.
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::of(address, self.prefix) == *self
    }

    /// Its first address.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The length of its prefix, in bits.
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alone = if self.address.is_ipv4() { 32 } else { 128 };
        if self.prefix == alone {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.prefix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, separator: Option<char>, value: &str) -> bool {
        Pattern::parse(pattern, separator).unwrap().matches(value).unwrap()
    }

    #[test]
    fn stops_a_star_at_the_separator_and_lets_two_stars_cross_it() {
        for (pattern, value, expected) in [
            ("*.example", "a.example", true),
            ("*.example", "a.b.example", false),
            ("**.example", "a.b.example", true),
            ("*.example", "example", false),
            ("*.example", ".example", true),
            ("a*c.example", "abbc.example", true),
            ("a?c.example", "abc.example", true),
            ("a?c.example", "a.c.example", false),
            ("a.example", "a.example", true),
            ("a.example", "A.example", false),
            ("*", "a.b", false),
            ("**", "", true),
        ] {
            assert_eq!(matches(pattern, Some('.'), value), expected, "{pattern} {value}");
        }
        assert!(matches("CN=*,O=Sensors", Some(','), "CN=x,O=Sensors"));
        assert!(!matches("CN=*,O=Sensors", Some(','), "CN=x\\,O=Sensors,O=Other"));
        assert!(!matches("CN=*,O=Sensors", Some(','), "CN=x,O=Other,O=Sensors"));
    }

    #[test]
    fn takes_no_escaped_comma_for_a_separator() {
        assert!(!matches("CN=*,O=Sensors", Some(','), "CN=x\\,O=Sensors"));
        assert!(matches("CN=*,O=Sensors", Some(','), "CN=x\\,y,O=Sensors"));
        assert!(matches("CN=x\\,*,O=Sensors", Some(','), "CN=x\\,y,O=Sensors"));
        assert!(matches("CN=x?y", Some(','), "CN=x\\,y"));
        assert!(matches("CN=*", Some(','), "CN=x\\\\"));
        assert!(!matches("CN=*,O=*", Some(','), "CN=x\\"));
    }

    #[test]
    fn compares_no_value_that_is_too_long_with_wildcards() {
        let long = "a".repeat(MAX_VALUE);
        let pattern = Pattern::parse("a*", None).unwrap();
        assert_eq!(pattern.matches(&long), Some(true));
        assert_eq!(pattern.matches(&format!("{long}a")), None);
        assert!(Pattern::parse("", None).is_none());
        assert!(Pattern::parse(&"a".repeat(MAX_PATTERN + 1), None).is_none());
    }

    #[test]
    fn finds_addresses_in_networks() {
        let network = |text| Network::parse(text).unwrap();
        let address = |text: &str| text.parse().unwrap();
        assert!(network("10.0.0.0/8").contains(address("10.1.2.3")));
        assert!(network("10.0.0.0/8").contains(address("::ffff:10.1.2.3")));
        assert!(!network("10.0.0.0/8").contains(address("11.1.2.3")));
        assert!(network("0.0.0.0/0").contains(address("11.1.2.3")));
        assert!(!network("0.0.0.0/0").contains(address("2001:db8::1")));
        assert!(network("2001:db8::/32").contains(address("2001:db8:1::1")));
        assert!(network("192.0.2.1").contains(address("192.0.2.1")));
        assert_eq!(Network::parse("10.0.0.1/8").unwrap_err(), "bits behind the prefix; write 10.0.0.0/8");
        assert!(Network::parse("10.0.0.0/33").is_err() && Network::parse("example").is_err());
    }
}
