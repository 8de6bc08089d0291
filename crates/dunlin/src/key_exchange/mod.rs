//! How TLS 1.2 agrees on the premaster secret, one file a way. (That of TLS 1.3 is a group and nothing else.)

use alloc::boxed::Box;
use alloc::vec::Vec;

use zeroize::Zeroizing;

use crate::crypto::{
    ActiveKeyExchange, CryptoError, Tls12Authentication, Tls12CipherSuite, Tls12KeyExchange,
};
use crate::error::{Error, Internal};
use crate::message::ServerParams;
use crate::profile::Profile;

mod ecdhe;
mod psk;

pub(crate) use ecdhe::common_curve;

/// The secret from which the master secret is made; wipes itself.
pub(crate) type Premaster = Zeroizing<Vec<u8>>;

/// What the server keeps until the client has answered.
pub(crate) struct ServerSide {
    suite: &'static Tls12CipherSuite,
    active: Option<Box<dyn ActiveKeyExchange>>,
}

impl ServerSide {
    /// Makes the server's share, where there is one.
    pub(crate) fn start(
        suite: &'static Tls12CipherSuite,
        group: Option<&dyn crate::crypto::KeyExchangeGroup>,
        profile: &Profile,
    ) -> Result<(Self, Option<ServerParams>), CryptoError> {
        let Some(group) = group else { return Ok((Self { suite, active: None }, None)) };
        let active = group.start(&*profile.provider.random)?;
        let params = ServerParams { group: group.name(), share: active.share().to_vec() };
        Ok((Self { suite, active: Some(active) }, Some(params)))
    }

    /// The premaster secret with the client's share, and with the pre-shared key in suites with one.
    pub(crate) fn complete(self, share: &[u8], key: Option<&[u8]>) -> Result<Premaster, Error> {
        let agreed = match self.active {
            Some(active) => Some(ecdhe::complete(active, share)?),
            None => None,
        };
        premaster(self.suite, agreed, key)
    }
}

/// The client's share and the premaster secret, with the server's share.
pub(crate) fn respond(
    suite: &'static Tls12CipherSuite,
    profile: &Profile,
    params: Option<&ServerParams>,
    key: Option<&[u8]>,
) -> Result<(Vec<u8>, Premaster), Error> {
    let (share, agreed) = match (suite.key_exchange, params) {
        (Tls12KeyExchange::Psk, _) => (Vec::new(), None),
        (Tls12KeyExchange::Ecdhe, Some(params)) => {
            let (share, secret) = ecdhe::respond(profile, params)?;
            (share, Some(secret))
        }
        (Tls12KeyExchange::Ecdhe, None) => return Err(Internal::Bug("no share of the server").into()),
    };
    premaster(suite, agreed, key).map(|premaster| (share, premaster))
}

fn premaster(
    suite: &Tls12CipherSuite,
    agreed: Option<Premaster>,
    key: Option<&[u8]>,
) -> Result<Premaster, Error> {
    match (suite.authentication, agreed, key) {
        (Tls12Authentication::Psk, agreed, Some(key)) => {
            Ok(psk::premaster(agreed.as_deref().map(Vec::as_slice), key))
        }
        (Tls12Authentication::Ecdsa | Tls12Authentication::Rsa, Some(agreed), _) => Ok(agreed),
        _ => Err(Internal::Bug("a premaster secret of nothing").into()),
    }
}
