//! Recognises a ClientHello by the beginning of a datagram, for an endpoint that has to find the connection first.

use super::header12;
use crate::wire::{ContentType, HandshakeType};

/// The length of a random, in bytes.
const RANDOM_LEN: usize = 32;

/// A fragment of a ClientHello at the beginning of a datagram, which nothing authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The client's random; `None` in a fragment that does not contain it.
    pub(crate) random: Option<[u8; RANDOM_LEN]>,
    /// Whether the fragment is the whole ClientHello.
    pub(crate) is_whole: bool,
}

impl Hello {
    /// Returns the fragment if the first record of the datagram is unprotected and begins with one.
    pub(crate) fn read(datagram: &[u8]) -> Option<Self> {
        let header = header12::Header::read(datagram, 0)?;
        if header.typ != ContentType::HANDSHAKE || header.epoch != 0 {
            return None;
        }
        // RFC 6347 §4.2.2, RFC 9147 §5.2: type, length, message_seq, fragment_offset, fragment_length.
        let content = datagram.get(header12::LEN..)?.get(..header.length)?;
        let (&[typ, l0, l1, l2, _, _, o0, o1, o2, len @ ..], body) = content.split_first_chunk::<12>()?;
        if typ != HandshakeType::CLIENT_HELLO.0 {
            return None;
        }
        // The random follows the version, and is the same in both ClientHellos of a handshake.
        let random = body.get(2..).and_then(|body| body.first_chunk()).copied();
        Some(Self { random: random.filter(|_| [o0, o1, o2] == [0; 3]), is_whole: len == [l0, l1, l2] })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// A record with this type and epoch, which contains a fragment of a ClientHello from this offset on.
    fn datagram(typ: u8, epoch: u8, offset: u8, body: usize) -> Vec<u8> {
        let length = u8::try_from(body).unwrap();
        let header = [typ, 254, 253, 0, epoch, 0, 0, 0, 0, 0, 1, 0, 12 + length];
        let message = [1, 0, 0, 200, 0, 0, 0, 0, offset, 0, 0, length];
        let body = [254, 253].into_iter().chain(0..).take(body);
        header.into_iter().chain(message).chain(body).collect()
    }

    #[test]
    fn finds_the_random_in_the_first_fragment() {
        let random = core::array::from_fn(|i| u8::try_from(i).unwrap());
        let part = |random| Some(Hello { random, is_whole: false });
        assert_eq!(Hello::read(&datagram(22, 0, 0, 40)), part(Some(random)));
        assert_eq!(Hello::read(&datagram(22, 0, 0, 34)), part(Some(random)));
        assert_eq!(Hello::read(&datagram(22, 0, 0, 33)), part(None));
        assert_eq!(Hello::read(&datagram(22, 0, 40, 40)), part(None));
        assert_eq!(
            Hello::read(&datagram(22, 0, 0, 200)),
            Some(Hello { random: Some(random), is_whole: true })
        );
    }

    #[test]
    fn ignores_other_records() {
        assert_eq!(Hello::read(&datagram(22, 1, 0, 40)), None);
        assert_eq!(Hello::read(&datagram(23, 0, 0, 40)), None);
        let mut other = datagram(22, 0, 0, 40);
        other[13] = 16;
        assert_eq!(Hello::read(&other), None);
        let whole = datagram(22, 0, 0, 40);
        (0..whole.len()).for_each(|len| assert_eq!(Hello::read(&whole[..len]), None, "{len}"));
    }
}
