//! Profiles: the named sets of parameters that a policy gives to its clients.

use std::fmt;
use std::sync::Arc;

use super::hints::{Cookie, Hello, Hints};
use dunlin::auth::{RawKeyTrust, Verifiers};
use dunlin::crypto::{CryptoProvider, HashAlgorithm, KeyExchangeGroup, Tls12CipherSuite, Tls13CipherSuite};
use dunlin::error::Misuse;
use dunlin::wire::{CipherSuite, NamedGroup, SignatureScheme};
use dunlin::{ClientAuth, Credential, Error, Profile, ProfileBuilder, Trust};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};

/// How a client must authenticate under a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Demand {
    /// The server does not request a certificate.
    #[default]
    Nothing,
    /// The server requests a certificate, and serves clients without one.
    Request,
    /// The server demands a certificate or raw public key, in this handshake or in the one that a session
    /// stems from.
    Certificate,
    /// The client must prove a pre-shared key.
    Psk,
    /// The client must prove a pre-shared key or present a certificate.
    Any,
}

/// The names of the demands in a policy.
pub(super) const DEMANDS: &[(&str, Demand)] = &[
    ("none", Demand::Nothing),
    ("request", Demand::Request),
    ("certificate", Demand::Certificate),
    ("psk", Demand::Psk),
    ("any", Demand::Any),
];

impl Demand {
    /// Whether each handshake under the profile authenticates its client.
    pub const fn authenticates(self) -> bool {
        matches!(self, Self::Certificate | Self::Psk | Self::Any)
    }

    /// Its name in a policy.
    pub fn name(self) -> &'static str {
        DEMANDS.iter().find(|(_, demand)| *demand == self).map_or("", |(name, _)| name)
    }
}

/// A named set of parameters. Lists are in order of preference; an empty one stands for the library's
/// defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyProfile {
    /// Its name.
    pub name: String,
    /// Its strength relative to the other profiles: higher is stronger.
    pub rank: i32,
    /// Whether it speaks TLS 1.2 and DTLS 1.2.
    pub has_12: bool,
    /// Whether it speaks TLS 1.3 and DTLS 1.3.
    pub has_13: bool,
    /// The cipher suites of both versions.
    pub cipher_suites: Vec<CipherSuite>,
    /// The groups for key exchange.
    pub groups: Vec<NamedGroup>,
    /// The signature schemes that the server verifies.
    pub signature_schemes: Vec<SignatureScheme>,
    /// The certificates to present, by their names in the gateway's configuration.
    pub certificates: Vec<String>,
    /// Whether a renegotiation to this profile shows its own certificate
    /// ([`dunlin::ServerConfig::with_certificate_change`]). Otherwise it shows the certificate of the first
    /// handshake again.
    pub changes_certificate: bool,
    /// Whether sessions and caches keep subject, issuer and e-mail addresses of clients, since a rule looks
    /// at them.
    pub keeps_details: bool,
    /// How a client must authenticate.
    pub client: Demand,
    /// How long a session can be resumed, in seconds. `None` stands for the library's default; 0 for no
    /// resumption.
    pub session_lifetime_s: Option<u32>,
    /// How long the handshake cache keeps a client's certificate, in seconds. `None` stands for the gateway's
    /// default; 0 for not at all.
    pub cache_lifetime_s: Option<u32>,
    /// How long the gateway remembers from which address a client of this profile came, in seconds; 0 for not
    /// at all.
    pub address_lifetime_s: u32,
}

impl PolicyProfile {
    /// Whether the profile can answer a HelloRetryRequest that named this suite and group.
    pub fn offers(&self, suite: Option<CipherSuite>, group: Option<NamedGroup>) -> bool {
        let suites = self.all_suites();
        let groups = self.all_groups();
        suite.is_none_or(|suite| suites.contains(&suite)) && group.is_none_or(|group| groups.contains(&group))
    }

    /// Whether a handshake with these hints can continue under the profile after the HelloRetryRequest, if the
    /// server has sent one.
    pub(super) fn fits(&self, hints: &Hints) -> bool {
        let Cookie::Returned { suite, group } = hints.cookie else { return true };
        // RFC 8446 §4.1.2: if the request selected no group, the client keeps its shares.
        let keeps = group.is_none() && !hints.hello.shares.is_empty();
        let has_share = || self.all_groups().iter().any(|group| hints.hello.shares.contains(group));
        self.offers(suite, group) && (!keeps || has_share())
    }

    /// The suites of its versions, with the library's defaults if it lists none.
    pub fn all_suites(&self) -> Vec<CipherSuite> {
        let of_13 = self.tls13().into_iter().map(|suite| suite.id);
        of_13.chain(self.tls12().into_iter().map(|suite| suite.id)).collect()
    }

    /// Its suites of version 1.3, each with its hash, with the library's defaults if it lists none.
    pub(super) fn suites_of_13(&self) -> Vec<(CipherSuite, HashAlgorithm)> {
        self.tls13().into_iter().map(|suite| (suite.id, suite.hash.algorithm())).collect()
    }

    /// The hash of the suite with which a handshake goes on under the profile: the suite of the
    /// HelloRetryRequest, or the profile's first suite that the client offers.
    pub(super) fn hash_with(&self, cookie: &Cookie, hello: &Hello) -> Option<HashAlgorithm> {
        let is_chosen = |suite: &CipherSuite| match cookie {
            Cookie::Returned { suite: Some(named), .. } => named == suite,
            _ => hello.cipher_suites.contains(suite),
        };
        self.suites_of_13().into_iter().find(|(suite, _)| is_chosen(suite)).map(|(_, hash)| hash)
    }

    /// Its groups, with the library's defaults if it lists none.
    pub fn all_groups(&self) -> Vec<NamedGroup> {
        if self.groups.is_empty() {
            dunlin_awslc::provider().groups.iter().map(|group| group.name()).collect()
        } else {
            self.groups.clone()
        }
    }

    fn tls13(&self) -> Vec<&'static Tls13CipherSuite> {
        if !self.has_13 {
            return Vec::new();
        }
        let named = named(&self.cipher_suites, &known_tls13(), |suite| suite.id);
        if named.is_empty() { dunlin_awslc::provider().cipher_suites } else { named }
    }

    fn tls12(&self) -> Vec<&'static Tls12CipherSuite> {
        if !self.has_12 {
            return Vec::new();
        }
        let named = named(&self.cipher_suites, &known_tls12(), |suite| suite.id);
        if !named.is_empty() {
            return named;
        }
        let mut suites = TLS12_CIPHER_SUITES.to_vec();
        match self.client {
            Demand::Certificate => suites.retain(|suite| !suite.has_psk()),
            Demand::Psk => suites.retain(|suite| suite.has_psk()),
            // A suite with a key authenticates the client, which would be anonymous in other suites.
            _ => suites.sort_by_key(|suite| !suite.has_psk()),
        }
        suites
    }

    /// Whether clients may authenticate by a pre-shared key instead of a certificate.
    pub const fn accepts_psk(&self) -> bool {
        !matches!(self.client, Demand::Certificate)
    }

    /// The engine's profile with these parameters. `credentials` are the credentials that
    /// [`Self::certificates`] names, in the same order.
    ///
    /// # Errors
    /// The parameters contradict each other or the credentials; the error says which.
    pub fn build(
        &self,
        provider: &Arc<CryptoProvider>,
        credentials: Vec<Credential>,
        trust: impl Into<Verifiers>,
    ) -> Result<Profile, Error> {
        self.builder(provider, credentials, trust).build()
    }

    /// Why the engine would refuse the parameters with any credentials; `None` if it would not.
    pub(super) fn fault(&self, provider: &Arc<CryptoProvider>) -> Option<String> {
        // The engine checks signature schemes only where something is trusted.
        let raw_key = (self.client_auth() != ClientAuth::None).then_some(RawKeyTrust::Ask);
        let builder = self.builder(provider, vec![], Trust { x509: None, raw_key });
        // The self-test runs when the gateway makes its configurations.
        let error = builder.danger_skip_provider_check().build().err()?;
        let why = match error {
            Error::Misuse(Misuse::Config(why)) => why,
            error => error.to_string(),
        };
        Some(why.strip_prefix(&format!("profile {}: ", self.name)).unwrap_or(&why).to_owned())
    }

    /// A builder with these parameters, for a server that adds more, such as ALPN.
    pub fn builder(
        &self,
        provider: &Arc<CryptoProvider>,
        credentials: Vec<Credential>,
        trust: impl Into<Verifiers>,
    ) -> ProfileBuilder {
        let is_usual = |scheme| provider.signatures.schemes.iter().any(|(known, _)| known == scheme);
        let provider = if self.signature_schemes.iter().all(is_usual) {
            Arc::clone(provider)
        } else {
            Arc::new(CryptoProvider {
                signatures: dunlin_awslc::ALL_SIGNATURES,
                ..CryptoProvider::clone(provider)
            })
        };
        let mut builder = Profile::builder(provider)
            .name(self.name.clone())
            .rank(self.rank)
            .cipher_suites(self.tls13())
            .tls12_cipher_suites(self.tls12())
            .credentials(credentials)
            .x509_details(self.keeps_details)
            .trust(trust);
        if !self.groups.is_empty() {
            builder = builder.groups(named(&self.groups, &known_groups(), |group| group.name()));
        }
        if !self.signature_schemes.is_empty() {
            builder = builder.signature_schemes(self.signature_schemes.clone());
        }
        builder
    }

    /// Whether the engine requests or demands a certificate under this profile.
    pub const fn client_auth(&self) -> ClientAuth {
        match self.client {
            Demand::Nothing | Demand::Psk => ClientAuth::None,
            Demand::Request => ClientAuth::Optional,
            Demand::Certificate | Demand::Any => ClientAuth::Required,
        }
    }
}

impl fmt::Display for PolicyProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rank {})", self.name, self.rank)
    }
}

/// The items with these numbers, in their order.
fn named<T: Copy, N: PartialEq>(numbers: &[N], known: &[T], number: impl Fn(&T) -> N) -> Vec<T> {
    numbers.iter().filter_map(|n| known.iter().copied().find(|item| number(item) == *n)).collect()
}

fn known_tls13() -> Vec<&'static Tls13CipherSuite> {
    let mut known = dunlin_awslc::provider().cipher_suites;
    known.push(&dunlin_awslc::TLS13_AES_128_CCM_8_SHA256);
    known
}

fn known_tls12() -> Vec<&'static Tls12CipherSuite> {
    [TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES].concat()
}

fn known_groups() -> Vec<&'static dyn KeyExchangeGroup> {
    let mut known = dunlin_awslc::provider().groups;
    known.extend([
        dunlin_awslc::SECP521R1,
        dunlin_awslc::X25519MLKEM768,
        dunlin_awslc::SECP256R1MLKEM768,
        dunlin_awslc::ML_KEM_768,
    ]);
    known
}

/// The suites that a profile may list: TLS 1.3 suites, then TLS 1.2 suites.
pub(super) fn suites() -> (Vec<CipherSuite>, Vec<CipherSuite>) {
    let of_13 = known_tls13().into_iter().map(|suite| suite.id).collect();
    (of_13, known_tls12().into_iter().map(|suite| suite.id).collect())
}

/// Whether the suite authenticates its client by a pre-shared key.
pub(super) fn is_psk_suite(suite: CipherSuite) -> bool {
    known_tls12().iter().any(|known| known.id == suite && known.has_psk())
}

/// The groups that a profile may list.
pub(super) fn groups() -> Vec<NamedGroup> {
    known_groups().into_iter().map(|group| group.name()).collect()
}

/// The signature schemes that a profile may list.
pub(super) fn signature_schemes() -> Vec<SignatureScheme> {
    dunlin_awslc::ALL_SIGNATURES.schemes.iter().map(|(scheme, _)| *scheme).collect()
}
