//! The measured key exchanges: their names and parameters, and the paper's figures.

use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin::auth::RawKeyTrust;
use dunlin::crypto::{CryptoProvider, RsaEncryption, SigningKey, Tls12CipherSuite, Tls13CipherSuite};
use dunlin::wire::{NamedGroup, PskKeyExchangeMode, SignatureScheme};
use dunlin::{
    ClientAuth, ClientConfig, Credential, Profile, ProfileBuilder, ServerAddress, ServerConfig, Trust,
};
use dunlin_awslc::tls12;
use dunlin_pki::{Identity, KeyType};
use pki_types::{CertificateDer, PrivateKeyDer};

use super::super::datagrams::IP_AND_UDP;
use super::super::keys::{self, SERVER_NAME, psk, trust};
use crate::Error;
use crate::error::failed;
use crate::net::MTU;
use crate::report::Row;

/// The name by which both sides know the key; 15 bytes.
const IDENTITY: &str = "Client_identity";
/// The key itself.
const PSK: [u8; 32] = [7; 32];
/// Leaves directly below the root.
const CHAIN_LENGTH: usize = 2;

/// One measured way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    /// The key exchange and authentication.
    pub(super) mechanism: &'static str,
    pub(super) suite: Suite,
    pub(super) group: Option<NamedGroup>,
    /// Whether both sides share a key.
    pub(super) has_psk: bool,
    pub(super) certificates: Option<Certificates>,
    /// The length of the longest public key, in bits.
    pub(super) key_bits: Option<u32>,
    /// OpenSSL's name of the suite, if it supports the suite.
    pub(super) openssl: Option<&'static str>,
    /// The paper's figure in Table I, in bytes.
    pub(super) paper: Option<f64>,
    /// Whether it needs the laboratory.
    pub(super) is_legacy: bool,
    /// Whether it is DTLS. The server then demands a cookie.
    pub(super) over_datagrams: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Suite {
    Tls12(&'static Tls12CipherSuite),
    Tls13(&'static Tls13CipherSuite),
}

/// Certificates, or the raw public keys in them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Certificates {
    /// The selection in [`AllKeys`].
    pub(super) keys: &'static str,
    /// The signature scheme.
    pub(super) scheme: SignatureScheme,
    /// OpenSSL's name of the scheme.
    pub(super) openssl_scheme: &'static str,
    pub(super) are_raw: bool,
    /// Whether the client has a certificate, too.
    pub(super) mutual: bool,
}

/// The cryptography of a case.
pub(super) struct Crypto {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) rsa: &'static dyn RsaEncryption,
}

/// A certificate and its key.
pub(super) struct End {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// The credentials of both sides: a leaf each, directly below the root that both trust.
pub(super) struct Keys {
    pub(super) root: CertificateDer<'static>,
    pub(super) client: End,
    pub(super) server: End,
}

/// The keys of all cases, by name.
pub(super) struct AllKeys(BTreeMap<&'static str, Keys>);

/// RSA with 2048 bits.
pub(super) const RSA: Certificates = Certificates {
    keys: "rsa2048",
    scheme: SignatureScheme::RSA_PKCS1_SHA256,
    openssl_scheme: "RSA+SHA256",
    are_raw: false,
    mutual: false,
};

/// ECDSA on P-256.
const P256: Certificates = Certificates {
    keys: "p256",
    scheme: SignatureScheme::ECDSA_SECP256R1_SHA256,
    openssl_scheme: "ECDSA+SHA256",
    ..RSA
};

/// All cases without obsolete algorithms, in the order of rows.
pub(super) fn cases() -> Vec<Case> {
    let cases = [psk_cases(), certificate_cases(), tls13_cases()].concat();
    let over_datagrams: Vec<_> = cases.iter().copied().map(Case::over_datagrams).collect();
    [cases, over_datagrams].concat()
}

/// TLS 1.2 with pre-shared keys.
fn psk_cases() -> Vec<Case> {
    let psk = Case {
        mechanism: "psk",
        has_psk: true,
        openssl: Some("PSK-AES128-CCM8"),
        paper: Some(586.0),
        ..Case::BARE
    };
    let ecdhe_psk = Case {
        mechanism: "ecdhe_psk",
        suite: Suite::Tls12(&tls12::TLS12_ECDHE_PSK_WITH_AES_128_GCM_SHA256),
        group: Some(NamedGroup::X25519),
        key_bits: Some(256),
        openssl: None,
        paper: None,
        ..psk
    };
    vec![
        psk,
        Case {
            suite: Suite::Tls12(&tls12::TLS12_PSK_WITH_AES_128_GCM_SHA256),
            openssl: Some("PSK-AES128-GCM-SHA256"),
            ..psk
        },
        ecdhe_psk,
        Case {
            suite: Suite::Tls12(&tls12::TLS12_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256),
            openssl: Some("ECDHE-PSK-CHACHA20-POLY1305"),
            ..ecdhe_psk
        },
        Case {
            mechanism: "dhe_psk",
            suite: Suite::Tls12(&tls12::TLS12_DHE_PSK_WITH_AES_128_GCM_SHA256),
            group: Some(NamedGroup::FFDHE2048),
            key_bits: Some(2048),
            openssl: Some("DHE-PSK-AES128-GCM-SHA256"),
            paper: Some(1367.0),
            ..psk
        },
        Case {
            mechanism: "rsa_psk",
            suite: Suite::Tls12(&dunlin_legacy::rsa::TLS12_RSA_PSK_WITH_AES_128_GCM_SHA256),
            certificates: Some(RSA),
            key_bits: Some(2048),
            openssl: Some("RSA-PSK-AES128-GCM-SHA256"),
            paper: None,
            ..psk
        },
    ]
}

/// TLS 1.2 with a server certificate, or with certificates of both sides.
fn certificate_cases() -> Vec<Case> {
    let ecdhe_ecdsa = Case {
        mechanism: "ecdhe_ecdsa",
        suite: Suite::Tls12(&tls12::TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
        group: Some(NamedGroup::SECP256R1),
        certificates: Some(P256),
        key_bits: Some(256),
        openssl: Some("ECDHE-ECDSA-AES128-GCM-SHA256"),
        ..Case::BARE
    };
    let ecdhe_rsa = Case {
        mechanism: "ecdhe_rsa",
        suite: Suite::Tls12(&tls12::TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
        group: Some(NamedGroup::X25519),
        certificates: Some(RSA),
        key_bits: Some(2048),
        openssl: Some("ECDHE-RSA-AES128-GCM-SHA256"),
        ..ecdhe_ecdsa
    };
    let dhe_rsa = Case {
        mechanism: "dhe_rsa",
        suite: Suite::Tls12(&tls12::TLS12_DHE_RSA_WITH_AES_128_GCM_SHA256),
        group: Some(NamedGroup::FFDHE2048),
        openssl: Some("DHE-RSA-AES128-GCM-SHA256"),
        ..ecdhe_rsa
    };
    [ecdhe_ecdsa, ecdhe_rsa, dhe_rsa].into_iter().flat_map(|case| [case, case.mutual()]).collect()
}

/// TLS 1.3.
fn tls13_cases() -> Vec<Case> {
    let psk = Case {
        mechanism: "psk",
        suite: Suite::Tls13(&dunlin_awslc::TLS13_AES_128_GCM_SHA256),
        has_psk: true,
        // OpenSSL accepts a plain PSK only without a common group, but offers a group nevertheless.
        openssl: None,
        ..Case::BARE
    };
    let openssl = Some("TLS_AES_128_GCM_SHA256");
    let ecdhe_ecdsa = Case {
        mechanism: "ecdhe_ecdsa",
        group: Some(NamedGroup::SECP256R1),
        has_psk: false,
        certificates: Some(P256),
        key_bits: Some(256),
        openssl,
        ..psk
    };
    vec![
        psk,
        Case { mechanism: "ecdhe_psk", group: Some(NamedGroup::X25519), key_bits: Some(256), openssl, ..psk },
        Case {
            mechanism: "dhe_psk",
            group: Some(NamedGroup::FFDHE2048),
            key_bits: Some(2048),
            openssl,
            ..psk
        },
        ecdhe_ecdsa,
        ecdhe_ecdsa.mutual(),
        Case {
            mechanism: "raw_key",
            certificates: Some(Certificates { are_raw: true, ..P256 }),
            // OpenSSL supports raw public keys from version 3.2 on.
            openssl: None,
            ..ecdhe_ecdsa
        }
        .mutual(),
    ]
}

impl Case {
    /// Without keys and groups.
    pub(super) const BARE: Self = Self {
        mechanism: "none",
        suite: Suite::Tls12(&tls12::TLS12_PSK_WITH_AES_128_CCM_8),
        group: None,
        has_psk: false,
        certificates: None,
        key_bits: None,
        openssl: None,
        paper: None,
        is_legacy: false,
        over_datagrams: false,
    };

    /// The same case with a client certificate.
    pub(super) fn mutual(self) -> Self {
        let certificates = self.certificates.map(|server| Certificates { mutual: true, ..server });
        Self { certificates, ..self }
    }

    /// The same case over DTLS, which the paper does not have.
    fn over_datagrams(self) -> Self {
        let openssl = match self.suite {
            Suite::Tls12(_) => self.openssl,
            // OpenSSL has no DTLS 1.3.
            Suite::Tls13(_) => None,
        };
        Self { over_datagrams: true, paper: None, openssl, ..self }
    }

    pub(super) const fn protocol(&self) -> &'static str {
        match (self.suite, self.over_datagrams) {
            (Suite::Tls12(_), false) => "tls1.2",
            (Suite::Tls13(_), false) => "tls1.3",
            (Suite::Tls12(_), true) => "dtls1.2",
            (Suite::Tls13(_), true) => "dtls1.3",
        }
    }

    /// The sides that authenticate.
    pub(super) fn authentication(&self) -> &'static str {
        match self.certificates {
            _ if self.has_psk => "mutual",
            Some(Certificates { mutual: true, .. }) => "mutual",
            Some(_) => "server",
            None => "none",
        }
    }

    /// The cipher and hash at the end of the suite's name; the mechanism implies the rest.
    pub(super) fn cipher(&self) -> String {
        let name = match self.suite {
            Suite::Tls12(suite) => suite.id.to_string(),
            Suite::Tls13(suite) => suite.id.to_string(),
        };
        let cipher = name.split_once("_WITH_").map(|(_, cipher)| cipher.to_owned());
        cipher.unwrap_or_else(|| name.trim_start_matches("TLS_").to_owned())
    }

    /// A short distinguishing name.
    pub(super) fn name(&self) -> String {
        let bits = self.key_bits.map(|bits| format!("-{bits}")).unwrap_or_default();
        let protocol = self.protocol();
        let authentication = self.authentication();
        format!("{protocol}-{}{bits}-{authentication}-{}", self.mechanism, self.cipher())
    }

    /// Makes a row for the case.
    pub(super) fn row(&self, stack: &str) -> Row {
        Row::new()
            .with("stack", stack)
            .with("protocol", self.protocol())
            .with("mechanism", self.mechanism)
            .with("authentication", self.authentication())
            .with("cipher", self.cipher())
            .with_some("key_bits", self.key_bits)
    }

    /// The keys of the certificates.
    pub(super) fn keys<'a>(&self, AllKeys(all): &'a AllKeys) -> Option<&'a Keys> {
        all.get(self.certificates?.keys)
    }

    /// The configurations of both sides.
    pub(super) fn configs(
        &self,
        crypto: &Crypto,
        keys: &AllKeys,
    ) -> Result<(Arc<ClientConfig>, Arc<ServerConfig>), Error> {
        let mut client = self.profile(crypto)?;
        let mut server = self.profile(crypto)?;
        let load = |end: &End| crypto.provider.key_loader.load(&end.key).map_err(failed);
        let mutual = self.certificates.is_some_and(|certificates| certificates.mutual);
        if let Some((certificates, keys)) = self.certificates.zip(self.keys(keys)) {
            let server_key = load(&keys.server)?;
            client = client.trust(certificates.trust(keys, &*server_key)?);
            server = server.credentials(vec![certificates.credential(&keys.server, server_key)]);
            if mutual {
                let client_key = load(&keys.client)?;
                server = server.trust(certificates.trust(keys, &*client_key)?);
                client = client.credentials(vec![certificates.credential(&keys.client, client_key)]);
            }
        }
        let build = |profile: ProfileBuilder| profile.build().map_err(failed);
        let mut client = ClientConfig::new(build(client)?).with_server_name_sent(false);
        let server = build(server)?;
        let server = if self.has_psk {
            let (of_client, of_server) = psk(IDENTITY, &PSK)?;
            client = client.with_psks(vec![of_client]);
            match self.certificates {
                None => ServerConfig::psk_only(server, of_server),
                Some(_) => ServerConfig::new(server).map(|server| server.with_psks(of_server)),
            }
        } else {
            ServerConfig::new(server)
        };
        let mut server = server.map_err(failed)?;
        if mutual {
            server = server.with_client_auth(ClientAuth::Required).map_err(failed)?;
        }
        if self.over_datagrams {
            let largest = usize::from(MTU - IP_AND_UDP);
            client = client.with_mtu(largest).map_err(failed)?;
            server = server.with_mtu(largest).map_err(failed)?;
        }
        Ok((Arc::new(client), Arc::new(server)))
    }

    /// A profile with only one suite, group and signature scheme.
    fn profile(&self, Crypto { provider, rsa }: &Crypto) -> Result<ProfileBuilder, Error> {
        let profile = Profile::builder(provider.clone()).compatibility_mode(false);
        let profile = match self.suite {
            Suite::Tls12(suite) => {
                profile.cipher_suites(vec![]).tls12_cipher_suites(vec![suite]).rsa_encryption(*rsa)
            }
            Suite::Tls13(suite) => profile.cipher_suites(vec![suite]),
        };
        #[cfg(feature = "legacy-lab")]
        let profile = if self.is_legacy { profile.danger_legacy_lab() } else { profile };
        let schemes = self.certificates.map(|certificates| certificates.scheme);
        let profile = profile.signature_schemes(schemes.into_iter().collect());
        Ok(match self.group {
            Some(name) => {
                profile.groups(vec![provider.group(name).ok_or_else(|| failed("a group is missing"))?])
            }
            None => profile.groups(vec![]).psk_modes(vec![PskKeyExchangeMode::PSK_KE]),
        })
    }
}

impl Certificates {
    fn trust(&self, keys: &Keys, peer: &dyn SigningKey) -> Result<Trust, Error> {
        if self.are_raw {
            let raw_key = RawKeyTrust::Keys(vec![peer.public_key().clone()]);
            return Ok(Trust { x509: None, raw_key: Some(raw_key) });
        }
        trust([keys.root.clone()])
    }

    fn credential(&self, end: &End, key: Arc<dyn SigningKey>) -> Credential {
        if self.are_raw {
            Credential::raw_key(key)
        } else {
            Credential::x509(vec![end.certificate.clone()], key)
        }
    }
}

/// The address that the client connects to.
pub(super) fn server_address() -> Result<ServerAddress, Error> {
    ServerAddress::parse(SERVER_NAME, 0).map_err(failed)
}

impl Crypto {
    /// AWS-LC's cryptography with finite fields.
    pub(super) fn new() -> Self {
        let provider = CryptoProvider {
            groups: vec![dunlin_awslc::X25519, dunlin_awslc::SECP256R1, dunlin_legacy::ffdhe::FFDHE2048],
            key_loader: dunlin_legacy::rsa::KEY_LOADER,
            ..dunlin_awslc::provider()
        };
        Self { provider: Arc::new(provider), rsa: dunlin_legacy::rsa::ENCRYPTION }
    }
}

impl AllKeys {
    /// Makes new keys, beside these.
    pub(super) fn new(others: impl IntoIterator<Item = (&'static str, Keys)>) -> Result<Self, Error> {
        let made = [(RSA.keys, Keys::new(KeyType::Rsa2048)?), (P256.keys, Keys::new(KeyType::P256)?)];
        Ok(Self(made.into_iter().chain(others).collect()))
    }
}

impl Keys {
    fn new(key_type: KeyType) -> Result<Self, Error> {
        let keys::Keys { root, client, server } = keys::Keys::new(key_type, CHAIN_LENGTH)?;
        Ok(Self { root, client: End::new(client)?, server: End::new(server)? })
    }
}

impl End {
    fn new(identity: Identity) -> Result<Self, Error> {
        let key = PrivateKeyDer::Pkcs8(identity.key.to_pkcs8()?.to_vec().into());
        let certificate = identity.chain.into_iter().next().unwrap_or_else(|| Vec::new().into());
        Ok(Self { certificate, key })
    }
}
