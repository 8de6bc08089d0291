//! How TLS 1.2 agrees on the premaster secret, one file a way. (That of TLS 1.3 is a group and nothing else.)

use alloc::boxed::Box;
use alloc::vec::Vec;

use pki_types::SubjectPublicKeyInfoDer;
use zeroize::Zeroizing;

use crate::auth::PrivateKey;
use crate::crypto::{
    ActiveKeyExchange, CryptoError, FiniteField, KeyExchangeGroup, Tls12Authentication, Tls12CipherSuite,
    Tls12KeyExchange,
};
use crate::error::{Error, Internal, PeerIncompatible};
use crate::message::ServerParams;
use crate::settings::ProfileSettings;
use crate::wire::{NamedGroup, ProtocolVersion, What};

mod dhe;
mod ecdhe;
mod psk;
mod rsa;

/// The secret from which the master secret is made; wipes itself.
pub(crate) type Premaster = Zeroizing<Vec<u8>>;

/// A group for the key exchange of this suite, which our profile and the client have; `theirs` is what the client says it
/// has. `Err` if there is none, and `Ok(None)` if none is needed.
pub(crate) fn common_group(
    suite: &Tls12CipherSuite,
    profile: &ProfileSettings,
    theirs: Option<&[NamedGroup]>,
) -> Result<Option<&'static dyn KeyExchangeGroup>, PeerIncompatible> {
    match suite.key_exchange {
        Tls12KeyExchange::Rsa | Tls12KeyExchange::Psk => Ok(None),
        Tls12KeyExchange::Ecdhe => {
            ecdhe::common_group(profile, theirs).map(Some).ok_or(PeerIncompatible::Group)
        }
        Tls12KeyExchange::Dhe => dhe::common_group(profile, theirs).map(Some).ok_or(PeerIncompatible::Field),
    }
}

/// What the server keeps until the client has answered.
pub(crate) struct ServerSide {
    suite: &'static Tls12CipherSuite,
    waits: Waits,
}

/// With what the server takes the client's share.
enum Waits {
    /// There is none.
    Nothing,
    Ephemeral(Box<dyn ActiveKeyExchange>),
    /// The key of the credential.
    Decryption(PrivateKey),
}

impl ServerSide {
    /// Makes the server's share, where there is one. `key` is that of the credential, where the client encrypts its secret.
    pub(crate) fn start(
        suite: &'static Tls12CipherSuite,
        group: Option<&dyn KeyExchangeGroup>,
        key: Option<&PrivateKey>,
        profile: &ProfileSettings,
    ) -> Result<(Self, Option<ServerParams>), CryptoError> {
        let Some(group) = group else {
            let waits = key.map_or(Waits::Nothing, |key| Waits::Decryption(key.clone()));
            return Ok((Self { suite, waits }, None));
        };
        let active = group.start(&*profile.provider.random)?;
        let share = active.share().to_vec();
        let params = match group.finite_field() {
            Some(FiniteField { prime, generator }) => {
                ServerParams::Dhe { prime: prime.to_vec(), generator: generator.to_vec(), share }
            }
            None => ServerParams::Ecdhe { group: group.name(), share },
        };
        Ok((Self { suite, waits: Waits::Ephemeral(active) }, Some(params)))
    }

    /// The premaster secret with the client's share, and with the pre-shared key in suites with one. `version` is the one that
    /// the ClientHello began with.
    pub(crate) fn complete(
        self,
        profile: &ProfileSettings,
        share: &[u8],
        version: ProtocolVersion,
        key: Option<&[u8]>,
    ) -> Result<Premaster, Error> {
        let agreed = match (self.waits, self.suite.key_exchange) {
            (Waits::Ephemeral(active), Tls12KeyExchange::Dhe) => Some(dhe::complete(active, share)?),
            (Waits::Ephemeral(active), _) => Some(ecdhe::complete(active, share)?),
            (Waits::Decryption(own), _) => {
                let own = own.decryption().ok_or(Internal::Bug(What::NoDecryption))?;
                Some(rsa::decrypt(own, share, version, &*profile.provider.random)?)
            }
            (Waits::Nothing, _) => None,
        };
        premaster(self.suite, agreed, key)
    }
}

/// What the client answers to the server's share.
pub(crate) struct ClientSide {
    /// `None` where nothing is exchanged.
    pub(crate) group: Option<NamedGroup>,
    pub(crate) share: Vec<u8>,
    pub(crate) premaster: Premaster,
}

impl ClientSide {
    /// With the server's share or, to encrypt a secret, its key (`recipient`), and with the pre-shared key in suites with one.
    pub(crate) fn respond(
        suite: &'static Tls12CipherSuite,
        profile: &ProfileSettings,
        params: Option<&ServerParams>,
        recipient: Option<&SubjectPublicKeyInfoDer<'_>>,
        key: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let encryption = profile.tls12.as_ref().and_then(|tls12| tls12.rsa);
        let (group, share, agreed) = match params {
            None => match (recipient, encryption) {
                (Some(recipient), Some(encryption)) => {
                    let (share, secret) = rsa::encrypt(encryption, recipient, &*profile.provider.random)?;
                    (None, share, Some(secret))
                }
                _ => (None, Vec::new(), None),
            },
            Some(ServerParams::Ecdhe { group, share }) => {
                let group = ecdhe::group(profile, *group)?;
                let (share, secret) = ecdhe::respond(profile, group, share)?;
                (Some(group.name()), share, Some(secret))
            }
            Some(ServerParams::Dhe { prime, generator, share }) => {
                let group = dhe::group(profile, prime, generator)?;
                let (share, secret) = dhe::respond(profile, group, share)?;
                (Some(group.name()), share, Some(secret))
            }
        };
        Ok(Self { group, share, premaster: premaster(suite, agreed, key)? })
    }
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
        (
            Tls12Authentication::Ecdsa
            | Tls12Authentication::Rsa
            | Tls12Authentication::Dss
            | Tls12Authentication::Anonymous,
            Some(agreed),
            _,
        ) => Ok(agreed),
        _ => Err(Internal::Bug(What::NoPremaster).into()),
    }
}
