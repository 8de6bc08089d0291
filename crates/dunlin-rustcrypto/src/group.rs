//! Groups for ECDHE.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;

use dunlin::crypto::{ActiveKeyExchange, CryptoError, KeyExchangeGroup, SecureRandom, SharedSecret};
use dunlin::wire::NamedGroup;
use p256::NistP256;
use p256::elliptic_curve::sec1::{FromSec1Point, ModulusSize, Sec1Point, ToSec1Point};
use p256::elliptic_curve::{AffinePoint, CurveArithmetic, FieldBytes, FieldBytesSize, PublicKey, SecretKey};
use p384::NistP384;
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

/// X25519 (RFC 7748).
pub static X25519: &dyn KeyExchangeGroup = &Curve25519;

/// ECDHE on P-256 (NIST SP 800-186 §3.2.1.3).
pub static SECP256R1: &dyn KeyExchangeGroup =
    &NistCurve::<NistP256, 0xff>(NamedGroup::SECP256R1, PhantomData);

/// ECDHE on P-384 (NIST SP 800-186 §3.2.1.4).
pub static SECP384R1: &dyn KeyExchangeGroup =
    &NistCurve::<NistP384, 0xff>(NamedGroup::SECP384R1, PhantomData);

/// ECDHE on P-521 (NIST SP 800-186 §3.2.1.5). [`crate::provider`] leaves it out; add it by name.
#[cfg(feature = "p521")]
pub static SECP521R1: &dyn KeyExchangeGroup =
    &NistCurve::<p521::NistP521, 0x01>(NamedGroup::SECP521R1, PhantomData);

#[derive(Debug)]
struct Curve25519;

impl KeyExchangeGroup for Curve25519 {
    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }

    fn start(&self, random: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        let mut bytes = Zeroizing::new([0; 32]);
        random.fill(&mut *bytes)?;
        let private = StaticSecret::from(*bytes);
        let share = x25519_dalek::PublicKey::from(&private);
        Ok(Box::new(X25519Exchange { private, share }))
    }
}

struct X25519Exchange {
    private: StaticSecret,
    share: x25519_dalek::PublicKey,
}

impl ActiveKeyExchange for X25519Exchange {
    fn share(&self) -> &[u8] {
        self.share.as_bytes()
    }

    fn complete(&self, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        let peer: [u8; 32] = peer.try_into().map_err(|_| CryptoError)?;
        let secret = self.private.diffie_hellman(&peer.into());
        // Reject the all-zero result of a point of small order (RFC 8446 §7.4.2).
        if !secret.was_contributory() {
            return Err(CryptoError);
        }
        Ok(SharedSecret::new(secret.as_bytes().to_vec()))
    }
}

/// How often to draw a private key until it is below the order of its group. A draw fails with probability
/// 2^-32 at most (P-256), so a random source that fails this often is broken.
const MAX_DRAWS: usize = 4;

/// A curve. `FIRST_BITS` is the mask for the first byte of a private key: the order of P-521 does not fill
/// whole bytes.
struct NistCurve<C, const FIRST_BITS: u8>(NamedGroup, PhantomData<fn() -> C>);

impl<C, const FIRST_BITS: u8> fmt::Debug for NistCurve<C, FIRST_BITS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<C, const FIRST_BITS: u8> KeyExchangeGroup for NistCurve<C, FIRST_BITS>
where
    C: CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    fn name(&self) -> NamedGroup {
        self.0
    }

    fn start(&self, random: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        let mut bytes = Zeroizing::new(FieldBytes::<C>::default());
        for _ in 0..MAX_DRAWS {
            random.fill(&mut bytes)?;
            if let Some(first) = bytes.first_mut() {
                *first &= FIRST_BITS;
            }
            if let Ok(private) = SecretKey::<C>::from_bytes(&bytes) {
                let share = private.public_key().to_sec1_point(false);
                return Ok(Box::new(NistExchange { private, share }));
            }
        }
        Err(CryptoError)
    }
}

/// The private key wipes itself on drop.
struct NistExchange<C>
where
    C: CurveArithmetic,
    FieldBytesSize<C>: ModulusSize,
{
    private: SecretKey<C>,
    share: Sec1Point<C>,
}

impl<C> ActiveKeyExchange for NistExchange<C>
where
    C: CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    fn share(&self) -> &[u8] {
        self.share.as_bytes()
    }

    fn complete(&self, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        // TLS 1.3 allows only uncompressed points (RFC 8446 §4.2.8.2).
        const UNCOMPRESSED: u8 = 4;
        if peer.first() != Some(&UNCOMPRESSED) {
            return Err(CryptoError);
        }
        // This rejects points that are not on the curve.
        let peer = PublicKey::<C>::from_sec1_bytes(peer).map_err(|_| CryptoError)?;
        let secret = self.private.diffie_hellman(&peer);
        Ok(SharedSecret::new(secret.raw_secret_bytes().to_vec()))
    }
}
