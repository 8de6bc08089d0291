//! Recognises a hello by the beginning of a datagram, for an endpoint that has to find the connection first.

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
        // The random is the same in both ClientHellos of a handshake.
        let Fragment { random, is_whole, .. } = Fragment::read(datagram, HandshakeType::CLIENT_HELLO)?;
        Some(Self { random, is_whole })
    }
}

/// A label of the ServerHello at the beginning of a datagram, which nothing authenticates. The label is the
/// part on which the keys of the handshake depend: in DTLS 1.3 the whole ServerHello, because the keys depend
/// on the transcript, in DTLS 1.2 the random. `None` for a HelloRetryRequest, for a fragment without the
/// whole random, and for a whole ServerHello that does not parse. The connection may process another
/// ServerHello of the same port, so equal keys are possible with different labels.
#[cfg(feature = "association-ports")]
pub(crate) fn server_hello(datagram: &[u8]) -> Option<alloc::vec::Vec<u8>> {
    use crate::message::ServerHello;
    use crate::message::server_hello::RETRY_RANDOM;
    use crate::wire::ExtensionType;

    let Fragment { random, is_whole, body } = Fragment::read(datagram, HandshakeType::SERVER_HELLO)?;
    let random = random.filter(|random| *random != RETRY_RANDOM)?;
    match ServerHello::read(body) {
        Ok(hello) if is_whole && hello.extensions.has(ExtensionType::SUPPORTED_VERSIONS) => {
            Some(body.to_vec())
        }
        Err(_) if is_whole => None,
        _ => Some(random.to_vec()),
    }
}

/// An unprotected fragment of a hello at the beginning of a datagram.
struct Fragment<'a> {
    /// The random, if the fragment contains it.
    random: Option<[u8; RANDOM_LEN]>,
    /// Whether the fragment is the whole hello.
    is_whole: bool,
    #[cfg_attr(
        not(feature = "association-ports"),
        expect(dead_code, reason = "only ports compare ServerHellos")
    )]
    body: &'a [u8],
}

impl<'a> Fragment<'a> {
    fn read(datagram: &'a [u8], hello: HandshakeType) -> Option<Self> {
        let header = header12::Header::read(datagram, 0)?;
        if header.typ != ContentType::HANDSHAKE || header.epoch != 0 {
            return None;
        }
        // RFC 6347 §4.2.2, RFC 9147 §5.2: type, length, message_seq, fragment_offset, fragment_length.
        let content = datagram.get(header12::LEN..)?.get(..header.length)?;
        let (&[typ, l0, l1, l2, _, _, o0, o1, o2, len @ ..], rest) = content.split_first_chunk::<12>()?;
        if typ != hello.0 {
            return None;
        }
        let [f0, f1, f2] = len;
        let body = rest.get(..u32::from_be_bytes([0, f0, f1, f2]) as usize).unwrap_or(rest);
        // The random follows the version.
        let random = body.get(2..).and_then(|body| body.first_chunk()).copied();
        Some(Self { random: random.filter(|_| [o0, o1, o2] == [0; 3]), is_whole: len == [l0, l1, l2], body })
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
