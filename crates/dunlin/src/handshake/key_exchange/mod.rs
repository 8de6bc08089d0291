//! The key exchanges of TLS 1.2, which agree on the premaster secret, one file for each. (TLS 1.3 needs only
//! a group.)

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
use crate::wire::{Field, NamedGroup, ProtocolVersion};

mod dhe;
mod ecdhe;
mod psk;
mod rsa;

/// The secret from which the master secret is derived. It is zeroized on drop.
pub(crate) type Premaster = Zeroizing<Vec<u8>>;

/// A group for the key exchange of this suite that the server's profile and the client both support. `theirs`
/// are the client's supported_groups. `Err` if there is no such group, `Ok(None)` if the suite needs none.
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

/// The server's side of a key exchange, until the ClientKeyExchange arrives.
pub(crate) struct ServerSide {
    suite: &'static Tls12CipherSuite,
    waits: Waits,
}

/// The private key for the client's share.
enum Waits {
    /// None: the client sends no share.
    Nothing,
    Ephemeral(Box<dyn ActiveKeyExchange>),
    /// The credential's RSA key.
    Decryption(PrivateKey),
}

impl ServerSide {
    /// Generates the server's share if the suite has a `group`. `key` is the credential's key, for suites
    /// with static RSA.
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

    /// The premaster secret from the client's share and, in PSK suites, the pre-shared key. `version` is the
    /// legacy_version of the ClientHello.
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
                let own = own.decryption().ok_or(Internal::Bug(Field::NoDecryption))?;
                Some(rsa::decrypt(own, share, version, &*profile.provider.random)?)
            }
            (Waits::Nothing, _) => None,
        };
        premaster(self.suite, agreed, key)
    }
}

/// The client's side of a key exchange, once it knows the server's share.
pub(crate) struct ClientSide {
    /// The group of the shares. `None` without ephemeral keys.
    pub(crate) group: Option<NamedGroup>,
    pub(crate) share: Vec<u8>,
    pub(crate) premaster: Premaster,
}

impl ClientSide {
    /// Answers the server's share. With static RSA, encrypts a secret to the server's key instead.
    /// `recipient` is this key and the client's legacy_version. `key` is the pre-shared key of PSK suites.
    pub(crate) fn respond(
        suite: &'static Tls12CipherSuite,
        profile: &ProfileSettings,
        params: Option<&ServerParams>,
        recipient: Option<(&SubjectPublicKeyInfoDer<'_>, ProtocolVersion)>,
        key: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let encryption = profile.tls12.as_ref().and_then(|tls12| tls12.rsa);
        let (group, share, agreed) = match params {
            None => match (recipient, encryption) {
                (Some((recipient, version)), Some(encryption)) => {
                    let random = &*profile.provider.random;
                    let (share, secret) = rsa::encrypt(encryption, recipient, version, random)?;
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
        _ => Err(Internal::Bug(Field::NoPremaster).into()),
    }
}
