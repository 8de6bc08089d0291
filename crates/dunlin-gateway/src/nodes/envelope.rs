//! Datagrams between gateways: a client's datagram behind a header, with a MAC.
//!
//! ```text
//! version[1] direction[1] from[2] to[2] start[8] number[8] listener[4]    numbers are big-endian
//! family[1] port[2] scope[4] address[16]                                  the client; IPv4 in the first 4 bytes of the address
//! family[1] address[16]                                                   the address that the client has asked; family 0: unknown
//! datagram                                                                as the client sent it, or as it gets it
//! mac[16]                                                                 HMAC-SHA256 of all before, its first 16 bytes
//! ```
//!
//! `start` is the time when the sender began, in milliseconds since 1970, and `number` counts its datagrams
//! to this receiver.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use dunlin::Path;
use dunlin::crypto::HmacKey;

const VERSION: u8 = 2;
const HEADER: usize = 1 + 1 + 2 + 2 + 8 + 8 + LISTENER + ADDRESS + 2 + 4 + ADDRESS;
const ADDRESS: usize = 1 + 16;
const MAC: usize = 16;
const LISTENER: usize = 4;

/// How far the numbers of datagrams may be out of order. More than one socket's buffer holds.
const WINDOW: u64 = 4096;

/// The listener of a client, whose name all gateways know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListenerId([u8; LISTENER]);

impl ListenerId {
    pub(super) fn of(key: &dyn HmacKey, name: &str) -> Self {
        let hash = key.sign(&[b"listener", name.as_bytes()]);
        Self(hash.as_ref().first_chunk().copied().unwrap_or_default())
    }
}

/// The direction of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From a client to the gateway that has its association.
    ToOwner = 1,
    /// From there to the client, by way of the gateway that receives the client's datagrams.
    ToClient = 2,
}

/// The number of a datagram: when its sender began, and how many it has sent since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) start: u64,
    pub(super) number: u64,
}

/// The content of a datagram between gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope<'a> {
    pub(super) direction: Direction,
    /// The gateway that sends it, and the one that receives it.
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) number: Number,
    pub(super) listener: ListenerId,
    pub(super) client: SocketAddr,
    /// The gateway's address in the client's datagrams, from which the answers leave.
    pub(super) asked: Option<IpAddr>,
    pub(super) datagram: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// The path between the client and the gateway that receives its datagrams.
    pub(super) fn path(&self) -> Path {
        Path { source: self.asked, ..self.client.into() }
    }

    pub(super) fn seal(&self, key: &dyn HmacKey) -> Vec<u8> {
        let Self { direction, from, to, number: Number { start, number }, listener, client, asked, datagram } =
            *self;
        let (family, address) = written(Some(client.ip()));
        let scope = if let SocketAddr::V6(client) = client { client.scope_id() } else { 0 };
        let mut sealed = Vec::with_capacity(HEADER + datagram.len() + MAC);
        sealed.extend_from_slice(&[VERSION, direction as u8]);
        sealed.extend_from_slice(&from.to_be_bytes());
        sealed.extend_from_slice(&to.to_be_bytes());
        sealed.extend_from_slice(&start.to_be_bytes());
        sealed.extend_from_slice(&number.to_be_bytes());
        sealed.extend_from_slice(&listener.0);
        sealed.push(family);
        sealed.extend_from_slice(&client.port().to_be_bytes());
        sealed.extend_from_slice(&scope.to_be_bytes());
        sealed.extend_from_slice(&address);
        let (family, address) = written(asked);
        sealed.push(family);
        sealed.extend_from_slice(&address);
        sealed.extend_from_slice(datagram);
        sealed.extend_from_slice(&mac(key, &sealed));
        sealed
    }

    /// Reads an authentic datagram. `None` for every other one.
    pub(super) fn open(key: &dyn HmacKey, sealed: &'a [u8]) -> Option<Self> {
        let (content, tag) = sealed.split_last_chunk::<MAC>()?;
        verify_slices_are_equal(&mac(key, content), tag).ok()?;
        let (version, rest) = take(content)?;
        if version != [VERSION] {
            return None;
        }
        let (direction, rest) = take::<1>(rest)?;
        let (from, rest) = take(rest)?;
        let (to, rest) = take(rest)?;
        let (start, rest) = take(rest)?;
        let (number, rest) = take(rest)?;
        let (listener, rest) = take(rest)?;
        let (family, rest) = take::<1>(rest)?;
        let (port, rest) = take(rest)?;
        let (scope, rest) = take(rest)?;
        let (address, rest) = take(rest)?;
        let (asked_family, rest) = take::<1>(rest)?;
        let (asked, datagram) = take(rest)?;
        let direction = match direction {
            [1] => Direction::ToOwner,
            [2] => Direction::ToClient,
            _ => return None,
        };
        let port = u16::from_be_bytes(port);
        let client = match read(family, address)?? {
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, u32::from_be_bytes(scope)).into(),
            ip @ IpAddr::V4(_) => SocketAddr::new(ip, port),
        };
        Some(Self {
            direction,
            from: u16::from_be_bytes(from),
            to: u16::from_be_bytes(to),
            number: Number { start: u64::from_be_bytes(start), number: u64::from_be_bytes(number) },
            listener: ListenerId(listener),
            client,
            asked: read(asked_family, asked)?,
            datagram,
        })
    }
}

/// The family and the bytes of an address, or of none.
fn written(ip: Option<IpAddr>) -> (u8, [u8; 16]) {
    let mut address = [0; 16];
    match ip {
        None => (0, address),
        Some(IpAddr::V4(ip)) => {
            if let Some(first) = address.first_chunk_mut() {
                *first = ip.octets();
            }
            (4, address)
        }
        Some(IpAddr::V6(ip)) => (6, ip.octets()),
    }
}

/// Reads the output of [`written`]. `None` for an unknown family.
fn read([family]: [u8; 1], address: [u8; 16]) -> Option<Option<IpAddr>> {
    let [a, b, c, d, ..] = address;
    match family {
        0 => Some(None),
        4 => Some(Some(Ipv4Addr::new(a, b, c, d).into())),
        6 => Some(Some(Ipv6Addr::from(address).into())),
        _ => None,
    }
}

fn take<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    bytes.split_first_chunk().map(|(first, rest)| (*first, rest))
}

fn mac(key: &dyn HmacKey, content: &[u8]) -> [u8; MAC] {
    key.sign(&[b"datagram", content]).as_ref().first_chunk().copied().unwrap_or_default()
}

/// The numbers of the datagrams that another gateway has sent. Each counts once, as in RFC 9147 §4.5.1.
#[derive(Debug)]
pub(super) struct Window {
    start: u64,
    /// The number above all that have come.
    next: u64,
    /// Whether each of the latest [`WINDOW`] numbers has come.
    seen: Vec<u64>,
}

impl Window {
    pub(super) fn new() -> Self {
        Self { start: 0, next: 0, seen: vec![0; (WINDOW / 64) as usize] }
    }

    /// Takes note of a datagram. `false` if it has come before, or may have: it is too old, or its sender has
    /// begun again since then.
    pub(super) fn take(&mut self, Number { start, number }: Number) -> bool {
        if start > self.start {
            *self = Self { start, ..Self::new() };
        }
        if start < self.start || number == u64::MAX || number.saturating_add(WINDOW) < self.next {
            return false;
        }
        if number >= self.next {
            if number - self.next >= WINDOW {
                self.seen.fill(0);
            } else {
                (self.next..=number).for_each(|skipped| self.set(skipped, false));
            }
            self.next = number + 1;
        } else if self.is_set(number) {
            return false;
        }
        self.set(number, true);
        true
    }

    const fn place(number: u64) -> (usize, u64) {
        ((number % WINDOW / 64) as usize, 1 << (number % 64))
    }

    fn is_set(&self, number: u64) -> bool {
        let (at, bit) = Self::place(number);
        self.seen.get(at).is_some_and(|word| word & bit != 0)
    }

    fn set(&mut self, number: u64, value: bool) {
        let (at, bit) = Self::place(number);
        if let Some(word) = self.seen.get_mut(at) {
            *word = if value { *word | bit } else { *word & !bit };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Box<dyn HmacKey> {
        dunlin_awslc::provider().sha256.hmac(&[byte; 32])
    }

    fn envelope<'a>(
        key: &dyn HmacKey,
        (client, asked): (&str, Option<&str>),
        datagram: &'a [u8],
    ) -> Envelope<'a> {
        Envelope {
            direction: Direction::ToOwner,
            from: 1,
            to: 2,
            number: Number { start: 3, number: 4 },
            listener: ListenerId::of(key, "coap"),
            client: client.parse().unwrap(),
            asked: asked.map(|asked| asked.parse().unwrap()),
            datagram,
        }
    }

    #[test]
    fn opens_what_it_has_sealed_and_nothing_else() {
        let ours = key(7);
        let others = key(8);
        for ends in [
            ("192.0.2.1:5684", Some("192.0.2.9")),
            ("[2001:db8::1]:1", Some("2001:db8::9")),
            ("[::ffff:192.0.2.1]:9", None),
            ("[fe80::1%7]:5684", Some("fe80::9")),
        ] {
            let envelope = envelope(&*ours, ends, b"record");
            let sealed = envelope.seal(&*ours);
            assert_eq!(Envelope::open(&*ours, &sealed), Some(envelope), "{ends:?}");
            assert_eq!(Envelope::open(&*others, &sealed), None);
            for at in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                assert_eq!(Envelope::open(&*ours, &changed), None, "{at}");
                assert_eq!(Envelope::open(&*ours, &sealed[..at]), None, "{at}");
            }
        }
        // An authentic one of another version.
        let mut other = envelope(&*ours, ("192.0.2.1:5684", None), b"").seal(&*ours);
        other.truncate(other.len() - MAC);
        other[0] = VERSION + 1;
        let tag = mac(&*ours, &other);
        other.extend_from_slice(&tag);
        assert_eq!(Envelope::open(&*ours, &other), None);
    }

    #[test]
    fn takes_each_number_once() {
        let mut window = Window::new();
        let mut take = |start, number| window.take(Number { start, number });
        assert!(take(10, 0) && take(10, 2) && take(10, 1));
        assert!(!take(10, 0) && !take(10, 1) && !take(10, 2));
        // Far ahead, and then the oldest one that still counts.
        assert!(take(10, 10_000) && take(10, 10_000 - WINDOW + 1));
        assert!(!take(10, 10_000 - WINDOW) && !take(10, 10_000 - WINDOW + 1));
        assert!(take(10, 10_000 + WINDOW - 1) && !take(10, 10_000) && take(10, 10_001));
        assert!(!take(10, u64::MAX));
        // The sender has begun again.
        assert!(take(11, 0) && !take(11, 0) && !take(10, 20_000));
    }
}
