//! Decrypts TLS 1.2 and DTLS 1.2 records of AEAD suites from a logged master secret (RFC 5246 §6.2.3.3,
//! §6.3).

use std::ops::Range;

use dunlin::Side;
use dunlin::crypto::{Aead, AeadKey, Hash, NONCE_LEN};
use dunlin::wire::{CipherSuite, ContentType};
use zeroize::Zeroizing;

/// How an AEAD suite protects the records of TLS 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    Aes128Gcm,
    Aes256Gcm,
    Aes128Ccm,
    Aes256Ccm,
    Aes128Ccm8,
    Aes256Ccm8,
    ChaCha20Poly1305,
}

impl Protection {
    /// The protection of the suite; `None` for CBC and unknown suites.
    pub(crate) const fn of(suite: CipherSuite) -> Option<Self> {
        Some(match suite.0 {
            // RFC 5288 §3, RFC 5487 §2, RFC 5289 §3.2, RFC 8442 §3: AES-128 and AES-256 alternate.
            0x009c..=0x00ad if suite.0 & 1 == 0 => Self::Aes128Gcm,
            0x009c..=0x00ad => Self::Aes256Gcm,
            0xc02b..=0xc032 if suite.0 & 1 == 0 => Self::Aes256Gcm,
            0xc02b..=0xc032 => Self::Aes128Gcm,
            0xd001 => Self::Aes128Gcm,
            0xd002 => Self::Aes256Gcm,
            // RFC 6655 §3 and §4, RFC 7251 §2, RFC 8442 §3.
            0xc09c | 0xc09e | 0xc0a4 | 0xc0a6 | 0xc0ac | 0xd005 => Self::Aes128Ccm,
            0xc09d | 0xc09f | 0xc0a5 | 0xc0a7 | 0xc0ad => Self::Aes256Ccm,
            0xc0a0 | 0xc0a2 | 0xc0a8 | 0xc0aa | 0xc0ae | 0xd003 => Self::Aes128Ccm8,
            0xc0a1 | 0xc0a3 | 0xc0a9 | 0xc0ab | 0xc0af => Self::Aes256Ccm8,
            // RFC 7905 §2.
            0xcca8..=0xccae => Self::ChaCha20Poly1305,
            _ => return None,
        })
    }

    /// The bytes that it adds to the content of a record: explicit nonce and tag.
    pub(crate) const fn overhead(self) -> usize {
        match self {
            // GCM and CCM put eight bytes of the nonce into the record (RFC 5288 §3, RFC 6655 §3), ChaCha20
            // none (RFC 7905 §2).
            Self::Aes128Gcm | Self::Aes256Gcm | Self::Aes128Ccm | Self::Aes256Ccm => EXPLICIT + 16,
            Self::Aes128Ccm8 | Self::Aes256Ccm8 => EXPLICIT + 8,
            Self::ChaCha20Poly1305 => 16,
        }
    }
}

/// The parameters of a suite: the AEAD, whether records carry an explicit nonce, and the hash of the PRF. The
/// hash of CCM suites is SHA-256 (RFC 6655 §3).
fn suite(suite: CipherSuite) -> Option<(&'static dyn Aead, bool, &'static dyn Hash)> {
    use dunlin_awslc as a;
    Some(match Protection::of(suite)? {
        Protection::Aes128Gcm => (a::AES_128_GCM, true, a::SHA256),
        Protection::Aes256Gcm => (a::AES_256_GCM, true, a::SHA384),
        Protection::Aes128Ccm => (a::AES_128_CCM, true, a::SHA256),
        Protection::Aes128Ccm8 => (a::AES_128_CCM_8, true, a::SHA256),
        Protection::ChaCha20Poly1305 => (a::CHACHA20_POLY1305, false, a::SHA256),
        Protection::Aes256Ccm | Protection::Aes256Ccm8 => return None,
    })
}

/// Whether decrypting records of this suite is supported.
pub(crate) fn is_known(id: CipherSuite) -> bool {
    suite(id).is_some()
}

/// The length of the explicit nonce, in bytes.
const EXPLICIT: usize = 8;

/// The keys of one direction.
pub(crate) struct Keys {
    key: Box<dyn AeadKey>,
    tag: usize,
    /// The implicit part of the nonce at the beginning; or a whole nonce, to be mixed with the sequence
    /// number.
    iv: Zeroizing<[u8; NONCE_LEN]>,
    is_explicit: bool,
}

impl Keys {
    /// Derives the keys from the master secret and the randoms of both hellos; `None` if the suite is not
    /// supported.
    pub(crate) fn new(
        id: CipherSuite,
        side: Side,
        master: &[u8],
        client_random: &[u8; 32],
        server_random: &[u8; 32],
    ) -> Option<Self> {
        let (aead, is_explicit, hash) = suite(id)?;
        let key_len = aead.algorithm().key_len();
        let iv_len = if is_explicit { NONCE_LEN - EXPLICIT } else { NONCE_LEN };
        let mut block = Zeroizing::new(vec![0; 2 * (key_len + iv_len)]);
        // AEAD suites have no MAC keys: client key, server key, client IV, server IV (RFC 5246 §6.3).
        prf(hash, master, &[b"key expansion", server_random, client_random], &mut block);
        let own = usize::from(side == Side::Server);
        let key = block.get(own * key_len..(own + 1) * key_len)?;
        let iv_at = 2 * key_len + own * iv_len;
        let mut iv = Zeroizing::new([0; NONCE_LEN]);
        iv.iter_mut().zip(block.get(iv_at..iv_at + iv_len)?).for_each(|(to, from)| *to = *from);
        Some(Self { key: aead.key(key).ok()?, tag: aead.algorithm().tag_len(), iv, is_explicit })
    }

    /// Decrypts the body of a record in place, and returns the range of its content. In DTLS, `number` begins
    /// with the epoch. `version` is the record's.
    pub(crate) fn open(
        &self,
        number: u64,
        typ: ContentType,
        version: [u8; 2],
        body: &mut [u8],
    ) -> Option<Range<usize>> {
        self.open_as(number, body, |number, len| [&number[..], &[typ.0], &version, &len].concat())
    }

    /// Decrypts the body of a record of the type tls12_cid, and returns its real type and the range of its
    /// content.
    pub(crate) fn open_with_id(
        &self,
        number: u64,
        version: [u8; 2],
        id: &[u8],
        body: &mut [u8],
    ) -> Option<(ContentType, Range<usize>)> {
        const TLS12_CID: u8 = 25;
        let id_len = u8::try_from(id.len()).ok()?;
        // RFC 9146 §5.3: the additional data.
        let inner = self.open_as(number, body, |number, len| {
            let placeholder = [&[0xff; 8][..], &[TLS12_CID, id_len, TLS12_CID], &version].concat();
            [&placeholder[..], number, id, &len].concat()
        })?;
        // RFC 9146 §4: `DTLSInnerPlaintext` is content, type, zeros.
        let plaintext = body.get(inner.clone())?;
        let len = plaintext.iter().rposition(|byte| *byte != 0)?;
        Some((ContentType(plaintext[len]), inner.start..inner.start + len))
    }

    /// Decrypts a body with the additional data that `aad` makes of the record's number and the content's
    /// length.
    fn open_as(
        &self,
        number: u64,
        body: &mut [u8],
        aad: impl Fn(&[u8; 8], [u8; 2]) -> Vec<u8>,
    ) -> Option<Range<usize>> {
        let start = if self.is_explicit { EXPLICIT } else { 0 };
        let end = body.len().checked_sub(self.tag).filter(|end| *end >= start)?;
        let (explicit, rest) = body.split_at_mut(start);
        let (text, tag) = rest.split_at_mut(end - start);
        let mut nonce = *self.iv;
        let number = number.to_be_bytes();
        let mixed: &[u8] = if self.is_explicit { explicit } else { &number };
        nonce.iter_mut().rev().zip(mixed.iter().rev()).for_each(|(n, m)| *n ^= m);
        let aad = aad(&number, (text.len() as u16).to_be_bytes());
        self.key.open(&nonce, &aad, text, tag).ok()?;
        Some(start..end)
    }
}

/// The PRF (RFC 5246 §5): `P_hash` over the concatenation of `seed`, which begins with the label.
fn prf(hash: &dyn Hash, secret: &[u8], seed: &[&[u8]], out: &mut [u8]) {
    let hmac = hash.hmac(secret);
    let mut a = hmac.sign(seed);
    for chunk in out.chunks_mut(hash.algorithm().output_len()) {
        let parts: Vec<&[u8]> = std::iter::once(a.as_ref()).chain(seed.iter().copied()).collect();
        let block = hmac.sign(&parts);
        chunk.iter_mut().zip(block.as_ref()).for_each(|(to, from)| *to = *from);
        a = hmac.sign(&[a.as_ref()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    /// The test vector for P_SHA256 comes from the mailing list of the IETF's TLS working group, 23 January
    /// 2009.
    #[test]
    fn prf_matches_the_published_vector() {
        let hex = |text| base16ct::lower::decode_vec(text).unwrap();
        let secret = hex("9bbe436ba940f017b17652849a71db35");
        let seed = hex("a0ba9f936cda311827a6f796ffd5198c");
        let mut out = [0; 100];
        prf(dunlin_awslc::SHA256, &secret, &[b"test label", &seed], &mut out);
        let expected = hex(
            "e3f229ba727be17b8d122620557cd453c2aab21d07c3d495329b52d4e61edb5a6b301791e90d35c9c9a46b4e14baf9af0fa022f7\
             077def17abfd3797c0564bab4fbc91666e9def9b97fce34f796789baa48082d122ee42c5a72e5a5110fff70187347b66",
        );
        assert_eq!(out.as_slice(), expected);
    }

    #[test]
    fn finds_the_aead_of_a_suite() {
        let aead = |id| suite(CipherSuite(id)).map(|(aead, ..)| aead.algorithm());
        use dunlin::crypto::AeadAlgorithm as A;
        assert_eq!(aead(0xc02b), Some(A::Aes128Gcm));
        assert_eq!(aead(0xc030), Some(A::Aes256Gcm));
        assert_eq!(aead(0xccac), Some(A::ChaCha20Poly1305));
        assert_eq!(aead(0xc0a8), Some(A::Aes128Ccm8));
        assert_eq!(aead(0xd005), Some(A::Aes128Ccm));
        assert_eq!(aead(0xc0ad), None, "AES-256-CCM");
        assert_eq!(aead(0xc013), None, "CBC");
    }

    /// The numbers decide, and the names that are shown say the same.
    #[test]
    fn the_names_of_suites_say_how_they_protect_records() {
        use Protection as P;
        let parts = [
            ("_AES_128_GCM_", P::Aes128Gcm, 24),
            ("_AES_256_GCM_", P::Aes256Gcm, 24),
            ("_AES_128_CCM_8", P::Aes128Ccm8, 16),
            ("_AES_256_CCM_8", P::Aes256Ccm8, 16),
            ("_AES_128_CCM", P::Aes128Ccm, 24),
            ("_AES_256_CCM", P::Aes256Ccm, 24),
            ("_CHACHA20_POLY1305_", P::ChaCha20Poly1305, 16),
        ];
        let mut protections = 0;
        for id in (0..=u16::MAX).filter(|id| id >> 8 != 0x13) {
            let name = names::cipher_suite(CipherSuite(id));
            let of_name = parts.iter().find(|(part, ..)| name.contains(part));
            if name.starts_with("TLS_") {
                let own = Protection::of(CipherSuite(id)).map(|own| (own, own.overhead()));
                assert_eq!(own, of_name.map(|(_, own, overhead)| (*own, *overhead)), "{name}");
                protections += usize::from(own.is_some());
            }
        }
        assert!(protections > 30, "{protections}");
    }
}
