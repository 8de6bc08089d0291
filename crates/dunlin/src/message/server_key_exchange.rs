//! `ServerKeyExchange` (RFC 5246 §7.4.3, RFC 8422 §5.4, RFC 4279 §2). Its fields depend on the cipher suite.

use alloc::vec::Vec;

use super::{decode, encode};
use crate::crypto::{Tls12CipherSuite, Tls12KeyExchange};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{Field, HandshakeType, NamedGroup, Reader, SignatureScheme, Writer};

/// `ECCurveType` of named_curve, the only type still in use (RFC 8422 §5.4).
const NAMED_CURVE: u8 = 3;

pub(crate) struct ServerKeyExchange<'a> {
    /// The PSK identity hint (RFC 4279 §5.2); empty in suites without PSK, or if the server gives no hint.
    pub(crate) hint: &'a [u8],
    pub(crate) params: Option<ServerParams>,
    /// The signed bytes, which follow both randoms in the signature's input.
    pub(crate) signed: &'a [u8],
    /// The signature, in suites whose server signs its share.
    pub(crate) signature: Option<(SignatureScheme, &'a [u8])>,
}

/// The server's share and its group.
pub(crate) enum ServerParams {
    /// `ServerECDHParams`
    Ecdhe { group: NamedGroup, share: Vec<u8> },
    /// `ServerDHParams`
    Dhe { prime: Vec<u8>, generator: Vec<u8>, share: Vec<u8> },
}

impl ServerParams {
    fn read_ecdhe(r: &mut Reader<'_>) -> Result<Self, Error> {
        // RFC 8422 §5.4: explicit curves are deprecated.
        if r.u8()? != NAMED_CURVE {
            return Err(PeerMisbehaved::IllegalParameter(Field::CurveType).into());
        }
        Ok(Self::Ecdhe { group: NamedGroup(r.u16()?), share: r.vec8(1)?.to_vec() })
    }

    fn read_dhe(r: &mut Reader<'_>) -> Result<Self, Error> {
        let mut number = || r.vec16(1).map(<[u8]>::to_vec);
        Ok(Self::Dhe { prime: number()?, generator: number()?, share: number()? })
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Self::Ecdhe { group, share } => {
                w.u8(NAMED_CURVE);
                w.u16(group.0);
                w.vec8(|w| w.put(share));
            }
            Self::Dhe { prime, generator, share } => {
                for number in [prime, generator, share] {
                    w.vec16(|w| w.put(number));
                }
            }
        }
    }

    /// The bytes that the server signs.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut w = Writer::new();
        self.write(&mut w);
        Ok(w.finish()?)
    }
}

impl<'a> ServerKeyExchange<'a> {
    pub(crate) fn read(body: &'a [u8], suite: &Tls12CipherSuite) -> Result<Self, Error> {
        decode(body, HandshakeType::SERVER_KEY_EXCHANGE, |r| {
            let hint = if suite.has_psk() { r.vec16(0)? } else { &[] };
            let from = body.len() - r.len();
            let params = match suite.key_exchange {
                Tls12KeyExchange::Ecdhe => Some(ServerParams::read_ecdhe(r)?),
                Tls12KeyExchange::Dhe => Some(ServerParams::read_dhe(r)?),
                Tls12KeyExchange::Rsa | Tls12KeyExchange::Psk => None,
            };
            let signed = body.get(from..body.len() - r.len()).unwrap_or_default();
            let signature =
                if suite.is_signed() { Some((SignatureScheme(r.u16()?), r.vec16(0)?)) } else { None };
            Ok(Self { hint, params, signed, signature })
        })
    }

    /// Writes the message. `hint` is `Some` in PSK suites, `params` with a key exchange, `signature` in
    /// signed suites.
    pub(crate) fn write(
        hint: Option<&[u8]>,
        params: Option<&ServerParams>,
        signature: Option<(SignatureScheme, &[u8])>,
    ) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::SERVER_KEY_EXCHANGE, |w| {
            if let Some(hint) = hint {
                w.vec16(|w| w.put(hint));
            }
            if let Some(params) = params {
                params.write(w);
            }
            if let Some((scheme, signature)) = signature {
                w.u16(scheme.0);
                w.vec16(|w| w.put(signature));
            }
        })
    }
}
