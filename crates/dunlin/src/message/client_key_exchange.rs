//! `ClientKeyExchange` (RFC 5246 §7.4.7, RFC 8422 §5.7, RFC 4279 §2 and §4). Its fields depend on the cipher
//! suite.

use alloc::vec::Vec;

use super::{decode, encode};
use crate::crypto::{Tls12CipherSuite, Tls12KeyExchange};
use crate::error::Error;
use crate::wire::HandshakeType;

pub(crate) struct ClientKeyExchange<'a> {
    /// The PSK identity; empty in suites without PSK.
    pub(crate) identity: &'a [u8],
    /// The client's key share or its encrypted premaster secret; empty in plain PSK suites.
    pub(crate) share: &'a [u8],
}

impl<'a> ClientKeyExchange<'a> {
    pub(crate) fn read(body: &'a [u8], suite: &Tls12CipherSuite) -> Result<Self, Error> {
        decode(body, HandshakeType::CLIENT_KEY_EXCHANGE, |r| {
            let identity = if suite.has_psk() { r.vec16(0)? } else { &[] };
            let share = match suite.key_exchange {
                Tls12KeyExchange::Ecdhe => r.vec8(1)?,
                Tls12KeyExchange::Dhe => r.vec16(1)?,
                // RFC 5246 §7.4.7.1: any fault of it must show in Finished only, so its length is not checked
                // here.
                Tls12KeyExchange::Rsa => r.vec16(0)?,
                Tls12KeyExchange::Psk => &[],
            };
            Ok(Self { identity, share })
        })
    }

    pub(crate) fn write(&self, suite: &Tls12CipherSuite) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::CLIENT_KEY_EXCHANGE, |w| {
            if suite.has_psk() {
                w.vec16(|w| w.put(self.identity));
            }
            match suite.key_exchange {
                Tls12KeyExchange::Ecdhe => w.vec8(|w| w.put(self.share)),
                Tls12KeyExchange::Dhe | Tls12KeyExchange::Rsa => w.vec16(|w| w.put(self.share)),
                Tls12KeyExchange::Psk => {}
            }
        })
    }
}
