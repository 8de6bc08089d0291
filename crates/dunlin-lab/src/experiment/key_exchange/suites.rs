//! The ways of agreeing on a key that are measured: what each is called and made of, and what the paper has.

use std::sync::Arc;

use dunlin::auth::{Psk, PskTable, RawKeyTrust, X509Trust};
use dunlin::crypto::{CryptoProvider, RsaEncryption, SigningKey, Tls12CipherSuite, Tls13CipherSuite};
use dunlin::wire::{NamedGroup, PskKeyExchangeMode, SignatureScheme};
use dunlin::{
    ClientAuth, ClientConfig, Credential, Profile, ProfileBuilder, PskSource, ServerAddress, ServerConfig,
    Trust,
};
use dunlin_awslc::tls12;
use dunlin_pki::{Authority, CaSpec, Identity, KeyPair, KeyType, LeafSpec, Subject, Validity};
use pki_types::{CertificateDer, PrivateKeyDer};

use super::failed;
use crate::Error;
use crate::report::Row;

/// The name by which both sides know the key: of 15 bytes.
pub(super) const IDENTITY: &str = "Client_identity";
/// The key itself.
const PSK: [u8; 32] = [7; 32];
/// The name in the server's certificate. It is checked, but not sent.
const SERVER_NAME: &str = "localhost";
/// How long certificates are valid, in days.
const DAYS: u32 = 30;

/// How both sides agree on a secret and prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mechanism {
    Psk,
    DhePsk,
    EcdhePsk,
    RsaPsk,
    DheRsa,
    EcdheRsa,
    EcdheEcdsa,
    /// Raw public keys for ECDSA, and ECDHE.
    RawKey,
}

/// Who proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authentication {
    Server,
    Mutual,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Suite {
    Tls12(&'static Tls12CipherSuite),
    Tls13(&'static Tls13CipherSuite),
}

/// One way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) mechanism: Mechanism,
    pub(super) authentication: Authentication,
    pub(super) suite: Suite,
    pub(super) group: Option<NamedGroup>,
    /// What OpenSSL calls the suite; without it, it has none.
    pub(super) openssl: Option<&'static str>,
}

/// What the cryptography is done by.
pub(super) struct Crypto {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) rsa: &'static dyn RsaEncryption,
}

/// A certificate and its key.
pub(super) struct End {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// What proves who both sides are: a leaf each, directly below the root that both trust.
pub(super) struct Keys {
    pub(super) root: CertificateDer<'static>,
    pub(super) client: End,
    pub(super) server: End,
}

/// The keys of all cases, by the kind of key.
pub(super) struct AllKeys {
    rsa: Keys,
    p256: Keys,
}

/// All that is measured, in the order of rows.
pub(super) fn cases() -> Vec<Case> {
    use Authentication::{Mutual, Server};
    use Mechanism as M;
    let case = |mechanism, authentication, suite, group, openssl| Case {
        mechanism,
        authentication,
        suite,
        group,
        openssl,
    };
    let (x25519, p256) = (Some(NamedGroup::X25519), Some(NamedGroup::SECP256R1));
    let field = Some(NamedGroup::FFDHE2048);
    let gcm13 = Suite::Tls13(&dunlin_awslc::TLS13_AES_128_GCM_SHA256);
    let openssl13 = Some("TLS_AES_128_GCM_SHA256");
    let mut cases = Vec::new();
    for (mechanism, suite, group, openssl) in [
        (M::Psk, &tls12::TLS12_PSK_WITH_AES_128_CCM_8, None, Some("PSK-AES128-CCM8")),
        (M::Psk, &tls12::TLS12_PSK_WITH_AES_128_GCM_SHA256, None, Some("PSK-AES128-GCM-SHA256")),
        (M::EcdhePsk, &tls12::TLS12_ECDHE_PSK_WITH_AES_128_GCM_SHA256, x25519, None),
        (
            M::EcdhePsk,
            &tls12::TLS12_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256,
            x25519,
            Some("ECDHE-PSK-CHACHA20-POLY1305"),
        ),
        (M::DhePsk, &tls12::TLS12_DHE_PSK_WITH_AES_128_GCM_SHA256, field, Some("DHE-PSK-AES128-GCM-SHA256")),
        (
            M::RsaPsk,
            &dunlin_rsa::TLS12_RSA_PSK_WITH_AES_128_GCM_SHA256,
            None,
            Some("RSA-PSK-AES128-GCM-SHA256"),
        ),
    ] {
        cases.push(case(mechanism, Mutual, Suite::Tls12(suite), group, openssl));
    }
    for (mechanism, suite, group, openssl) in [
        (
            M::EcdheEcdsa,
            &tls12::TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            p256,
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
        (M::EcdheRsa, &tls12::TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256, x25519, "ECDHE-RSA-AES128-GCM-SHA256"),
        (M::DheRsa, &tls12::TLS12_DHE_RSA_WITH_AES_128_GCM_SHA256, field, "DHE-RSA-AES128-GCM-SHA256"),
    ] {
        for authentication in [Server, Mutual] {
            cases.push(case(mechanism, authentication, Suite::Tls12(suite), group, Some(openssl)));
        }
    }
    cases.extend([
        // OpenSSL takes a PSK alone only where it finds no group, and offers one all the same.
        case(M::Psk, Mutual, gcm13, None, None),
        case(M::EcdhePsk, Mutual, gcm13, x25519, openssl13),
        case(M::DhePsk, Mutual, gcm13, field, openssl13),
        case(M::EcdheEcdsa, Server, gcm13, p256, openssl13),
        case(M::EcdheEcdsa, Mutual, gcm13, p256, openssl13),
        // OpenSSL has raw public keys from 3.2 on.
        case(M::RawKey, Mutual, gcm13, p256, None),
    ]);
    cases
}

impl Mechanism {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Psk => "psk",
            Self::DhePsk => "dhe_psk",
            Self::EcdhePsk => "ecdhe_psk",
            Self::RsaPsk => "rsa_psk",
            Self::DheRsa => "dhe_rsa",
            Self::EcdheRsa => "ecdhe_rsa",
            Self::EcdheEcdsa => "ecdhe_ecdsa",
            Self::RawKey => "raw_key",
        }
    }

    /// Whether both sides have a key in common.
    pub(super) const fn has_psk(self) -> bool {
        matches!(self, Self::Psk | Self::DhePsk | Self::EcdhePsk | Self::RsaPsk)
    }

    /// The bits of the longest public key in it.
    const fn key_bits(self) -> Option<u32> {
        match self {
            Self::Psk => None,
            Self::DhePsk | Self::RsaPsk | Self::DheRsa | Self::EcdheRsa => Some(2048),
            Self::EcdhePsk | Self::EcdheEcdsa | Self::RawKey => Some(256),
        }
    }
}

impl Authentication {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Mutual => "mutual",
        }
    }
}

impl Case {
    pub(super) const fn protocol(&self) -> &'static str {
        match self.suite {
            Suite::Tls12(_) => "tls1.2",
            Suite::Tls13(_) => "tls1.3",
        }
    }

    /// The cipher and hash of the suite, as its name ends: the mechanism says the rest.
    fn cipher(&self) -> String {
        let name = match self.suite {
            Suite::Tls12(suite) => suite.id.to_string(),
            Suite::Tls13(suite) => suite.id.to_string(),
        };
        let cipher = name.split_once("_WITH_").map(|(_, cipher)| cipher.to_owned());
        cipher.unwrap_or_else(|| name.trim_start_matches("TLS_").to_owned())
    }

    /// In a few words that tell it apart.
    pub(super) fn name(&self) -> String {
        let (protocol, mechanism) = (self.protocol(), self.mechanism.name());
        format!("{protocol}-{mechanism}-{}-{}", self.authentication.name(), self.cipher())
    }

    /// A row about it.
    pub(super) fn row(&self, stack: &str) -> Row {
        let row = Row::new()
            .with("stack", stack)
            .with("protocol", self.protocol())
            .with("mechanism", self.mechanism.name())
            .with("authentication", self.authentication.name())
            .with("cipher", self.cipher());
        match self.mechanism.key_bits() {
            Some(bits) => row.with("key_bits", bits),
            None => row,
        }
    }

    /// What the paper has for it in its Table I, in bytes.
    pub(super) fn paper(&self) -> Option<f64> {
        match (self.suite, self.mechanism, self.mechanism.key_bits()) {
            (Suite::Tls12(_), Mechanism::Psk, _) => Some(586.0),
            (Suite::Tls12(_), Mechanism::DhePsk, Some(2048)) => Some(1367.0),
            _ => None,
        }
    }

    /// The keys of it, if it needs some.
    pub(super) fn keys<'a>(&self, all: &'a AllKeys) -> Option<&'a Keys> {
        match self.mechanism {
            Mechanism::Psk | Mechanism::DhePsk | Mechanism::EcdhePsk => None,
            Mechanism::RsaPsk | Mechanism::DheRsa | Mechanism::EcdheRsa => Some(&all.rsa),
            Mechanism::EcdheEcdsa | Mechanism::RawKey => Some(&all.p256),
        }
    }

    /// The only scheme by which anything is signed, and what OpenSSL calls it.
    const fn scheme(&self) -> Option<(SignatureScheme, &'static str)> {
        match self.mechanism {
            Mechanism::Psk | Mechanism::DhePsk | Mechanism::EcdhePsk => None,
            Mechanism::RsaPsk | Mechanism::DheRsa | Mechanism::EcdheRsa => {
                Some((SignatureScheme::RSA_PKCS1_SHA256, "RSA+SHA256"))
            }
            Mechanism::EcdheEcdsa | Mechanism::RawKey => {
                Some((SignatureScheme::ECDSA_SECP256R1_SHA256, "ECDSA+SHA256"))
            }
        }
    }

    /// What OpenSSL calls the group.
    pub(super) fn openssl_group(&self) -> Option<&'static str> {
        match self.group? {
            NamedGroup::SECP256R1 => Some("P-256"),
            NamedGroup::FFDHE2048 => Some("ffdhe2048"),
            _ => Some("X25519"),
        }
    }

    /// What OpenSSL calls the signature scheme. Without certificates it names one all the same.
    pub(super) fn openssl_scheme(&self) -> &'static str {
        self.scheme().map_or("RSA+SHA256", |(_, name)| name)
    }

    /// Whether the client has a certificate, or a raw public key.
    pub(super) fn has_client_certificate(&self) -> bool {
        self.authentication == Authentication::Mutual && !self.mechanism.has_psk()
    }

    /// What both sides do.
    pub(super) fn configs(
        &self,
        crypto: &Crypto,
        keys: &AllKeys,
    ) -> Result<(Arc<ClientConfig>, Arc<ServerConfig>), Error> {
        let (mut client, mut server) = (self.profile(crypto)?, self.profile(crypto)?);
        let load = |end: &End| crypto.provider.key_loader.load(&end.key).map_err(failed);
        if let Some(keys) = self.keys(keys) {
            let server_key = load(&keys.server)?;
            client = client.trust(self.trust(keys, &*server_key)?);
            server = server.credentials(vec![self.credential(&keys.server, server_key)]);
            if self.has_client_certificate() {
                let client_key = load(&keys.client)?;
                server = server.trust(self.trust(keys, &*client_key)?);
                client = client.credentials(vec![self.credential(&keys.client, client_key)]);
            }
        }
        let build = |profile: ProfileBuilder| profile.build().map_err(failed);
        let mut client = ClientConfig::new(build(client)?).with_server_name_sent(false);
        let mut server = ServerConfig::new(build(server)?).map_err(failed)?;
        if self.has_client_certificate() {
            server = server.with_client_auth(ClientAuth::Required).map_err(failed)?;
        }
        if self.mechanism.has_psk() {
            let psk = || Psk::new(IDENTITY, &PSK).map_err(failed);
            client = client.with_psks(vec![Arc::new(psk()?)]);
            server = server.with_psks(PskSource::Here(Arc::new(PskTable::from_iter([psk()?]))));
        }
        Ok((Arc::new(client), Arc::new(server)))
    }

    /// One suite, group and signature scheme, and nothing else.
    fn profile(&self, Crypto { provider, rsa }: &Crypto) -> Result<ProfileBuilder, Error> {
        let profile = Profile::builder(provider.clone()).compatibility_mode(false);
        let profile = match self.suite {
            Suite::Tls12(suite) => profile.cipher_suites(vec![]).tls12_cipher_suites(vec![suite]),
            Suite::Tls13(suite) => profile.cipher_suites(vec![suite]),
        };
        let profile = match self.mechanism {
            Mechanism::RsaPsk => profile.rsa_encryption(*rsa),
            _ => profile,
        };
        let profile =
            profile.signature_schemes(self.scheme().map(|(scheme, _)| scheme).into_iter().collect());
        Ok(match self.group {
            Some(name) => {
                profile.groups(vec![provider.group(name).ok_or_else(|| failed("a group is missing"))?])
            }
            None => profile.groups(vec![]).psk_modes(vec![PskKeyExchangeMode::PSK_KE]),
        })
    }

    fn trust(&self, keys: &Keys, peer: &dyn SigningKey) -> Result<Trust, Error> {
        Ok(match self.mechanism {
            Mechanism::RawKey => {
                Trust { x509: None, raw_key: Some(RawKeyTrust::Keys(vec![peer.public_key().clone()])) }
            }
            _ => {
                let x509 = X509Trust::anchors([keys.root.clone()]).map_err(failed)?;
                Trust { x509: Some(x509), raw_key: None }
            }
        })
    }

    fn credential(&self, end: &End, key: Arc<dyn SigningKey>) -> Credential {
        match self.mechanism {
            Mechanism::RawKey => Credential::raw_key(key),
            _ => Credential::x509(vec![end.certificate.clone()], key),
        }
    }
}

/// Whom the client connects to.
pub(super) fn server_address() -> Result<ServerAddress, Error> {
    ServerAddress::parse(SERVER_NAME, 0).map_err(failed)
}

impl AllKeys {
    /// New ones.
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self { rsa: Keys::new(KeyType::Rsa2048)?, p256: Keys::new(KeyType::P256)? })
    }
}

impl Keys {
    fn new(key_type: KeyType) -> Result<Self, Error> {
        let made = || {
            let validity = Validity::from_now_days(DAYS)?;
            let key = || KeyPair::generate(key_type);
            let root = CaSpec::new(Subject::common_name("Dunlin root")?, validity);
            let root = Authority::root(&root, key()?)?;
            let server = root.issue(&LeafSpec::server([SERVER_NAME.parse()?], validity), key()?)?;
            let client = LeafSpec::client(Subject::common_name("device-1")?, validity);
            let client = root.issue(&client, key()?)?;
            Ok(Self {
                root: root.certificate().clone(),
                client: End::new(client)?,
                server: End::new(server)?,
            })
        };
        made().map_err(|error: dunlin_pki::Error| Error::new("certificates", &error, error.advice()))
    }
}

impl End {
    fn new(identity: Identity) -> Result<Self, dunlin_pki::Error> {
        let key = PrivateKeyDer::Pkcs8(identity.key.to_pkcs8()?.to_vec().into());
        let certificate = identity.chain.into_iter().next().unwrap_or_else(|| Vec::new().into());
        Ok(Self { certificate, key })
    }
}
