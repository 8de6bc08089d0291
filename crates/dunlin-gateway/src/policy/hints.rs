//! A server's knowledge about a client before the handshake has authenticated it.

use std::fmt;
use std::net::IpAddr;

use dunlin::crypto::HashAlgorithm;
use dunlin::wire::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

use dunlin::{ClientHelloInfo, KnownBy, KnownClient};

use super::client::Client;

/// Whether a connection can renegotiate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Turn {
    /// It cannot: TLS 1.3, DTLS, no secure renegotiation (RFC 5746) or extended master secret (RFC 7627),
    /// HTTP/2 (RFC 9113 §9.2.1), or a resumed session.
    #[default]
    Impossible,
    /// It can, and has not.
    Possible,
    /// It has. Connections renegotiate once.
    Done,
}

impl Turn {
    /// Whether a ClientHello permits a renegotiation. The engine checks this itself before it renegotiates.
    pub fn of(info: &ClientHelloInfo) -> Self {
        let is_tls12 = info.versions.contains(&ProtocolVersion::TLS1_2)
            && !info.versions.contains(&ProtocolVersion::TLS1_3);
        let is_safe = info.secure_renegotiation && info.extended_master_secret;
        let has_http2 = info.alpn.iter().any(|protocol| protocol == b"h2");
        if is_tls12 && is_safe && !has_http2 { Self::Possible } else { Self::Impossible }
    }
}

/// The content of a ClientHello by itself, without any look-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The host name in server_name, in lower case.
    pub server_name: Option<String>,
    /// ALPN protocols, in order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// Versions offered.
    pub versions: Vec<ProtocolVersion>,
    /// Cipher suites offered, in order of preference.
    pub cipher_suites: Vec<CipherSuite>,
    /// Groups offered, in order of preference.
    pub groups: Vec<NamedGroup>,
    /// Groups for which the client sends a key share in TLS 1.3.
    pub shares: Vec<NamedGroup>,
    /// Signature schemes that the client verifies, in order of preference.
    pub signature_schemes: Vec<SignatureScheme>,
    /// The PSKs and tickets that the client offers in version 1.3.
    pub psk: Option<OfferedPsk>,
}

/// The PSKs and tickets in a ClientHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedPsk {
    /// The hash of the first one, which the length of its binder shows.
    pub hash: Option<HashAlgorithm>,
    /// The identity of the first external PSK. `None` if all are tickets.
    pub external: Option<Vec<u8>>,
}

impl From<&ClientHelloInfo> for Hello {
    fn from(info: &ClientHelloInfo) -> Self {
        Self {
            server_name: info.server_name.as_ref().map(|name| name.to_ascii_lowercase()),
            alpn: info.alpn.clone(),
            versions: info.versions.clone(),
            cipher_suites: info.cipher_suites.clone(),
            groups: info.groups.clone(),
            shares: info.shares.to_vec(),
            signature_schemes: info.signature_schemes.clone(),
            psk: (!info.psk_identities.is_empty()).then(|| OfferedPsk {
                hash: info.psk_hash,
                external: info.external_psk.and_then(|at| info.psk_identities.get(at).cloned()),
            }),
        }
    }
}

/// A kind of cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// AES, which clients with hardware for it prefer.
    Aes,
    /// ChaCha20, which clients without hardware for AES prefer.
    ChaCha20,
}

impl Cipher {
    /// Its name in a policy.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes => "aes",
            Self::ChaCha20 => "chacha20",
        }
    }
}

impl Hello {
    /// The kind of cipher in the first suite that has either; `None` if no suite has.
    pub fn prefers(&self) -> Option<Cipher> {
        self.cipher_suites.iter().find_map(|suite| match suite.name()? {
            name if name.contains("_CHACHA20_") => Some(Cipher::ChaCha20),
            name if name.contains("_AES_") => Some(Cipher::Aes),
            _ => None,
        })
    }

    /// Whether the client offers TLS 1.3 or DTLS 1.3.
    pub fn offers_13(&self) -> bool {
        self.versions.iter().any(|v| [ProtocolVersion::TLS1_3, ProtocolVersion::DTLS1_3].contains(v))
    }
}

/// The source from which a server learned which client may be calling. In order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// A session ticket or session ID that this server opened or found.
    Session,
    /// The identity of an external PSK.
    Psk,
    /// A ticket or fingerprint of the handshake cache.
    Cache,
    /// A one-time name or port, to which the server has redirected the client.
    Redirect,
    /// The address, from which this client came before.
    Address,
}

impl Source {
    /// Whether a handshake that uses this hint proves the identity that it names. Anyone can come from an
    /// address, or follow a redirection of an unencrypted request. The engine may decide not to use a hint,
    /// for example a session under another server name. The handshake then proves another identity, which
    /// [`super::Policy::after`] checks.
    pub const fn is_proved_by_the_handshake(self) -> bool {
        matches!(self, Self::Session | Self::Psk | Self::Cache)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session => "session",
            Self::Psk => "PSK identity",
            Self::Cache => "handshake cache",
            Self::Redirect => "redirection",
            Self::Address => "remembered address",
        })
    }
}

/// An identity that a client has not proved yet, and the hint that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The hint.
    pub source: Source,
    /// The client that it names.
    pub client: Client,
}

/// The claim of a client that the engine recognizes ([`dunlin::ServerProfiles::recognize`]).
impl From<&KnownClient> for Claim {
    fn from(known: &KnownClient) -> Self {
        let source = match known.by {
            KnownBy::Session => Source::Session,
            KnownBy::Psk => Source::Psk,
            KnownBy::Cache => Source::Cache,
            // A later hint that proves nothing, until this function names it.
            _ => Source::Redirect,
        };
        Self { source, client: Client::of(&known.identity) }
    }
}

/// Whether the client has returned a cookie, which proves that it receives what is sent to its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cookie {
    /// This handshake has no cookie.
    #[default]
    None,
    /// The server has not sent its cookie yet, so it looks nothing up.
    Pending,
    /// The client has returned it. A HelloRetryRequest named these parameters, which the handshake keeps (RFC
    /// 8446 §4.1.4). DTLS 1.2 and TLS 1.2 bind none.
    Returned {
        /// The cipher suite.
        suite: Option<CipherSuite>,
        /// The group.
        group: Option<NamedGroup>,
    },
}

/// All that is known before the handshake authenticates the client. An attacker can forge each part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The ClientHello.
    pub hello: Hello,
    /// The client's address.
    pub address: Option<IpAddr>,
    /// Identities that hints name. The policy uses the one whose source comes first in [`Source`].
    pub claims: Vec<Claim>,
    /// The state of the cookie.
    pub cookie: Cookie,
    /// Whether a connection that begins with this ClientHello can renegotiate.
    pub turn: Turn,
}

impl Hints {
    /// The hints of a ClientHello for which the engine asks for a profile
    /// ([`dunlin::Question::ChooseProfile`]): it asks only when a cookie that it demands was returned.
    pub fn of(info: &ClientHelloInfo, address: IpAddr, claims: Vec<Claim>) -> Self {
        let suite = info.retried_suite;
        let group = info.retried_group;
        let cookie = match (suite, group) {
            (None, None) => Cookie::None,
            _ => Cookie::Returned { suite, group },
        };
        Self { hello: info.into(), address: Some(address), claims, cookie, turn: Turn::of(info) }
    }

    /// The claim that counts: none before the cookie is returned.
    pub(super) fn claim(&self) -> Option<&Claim> {
        match self.cookie {
            Cookie::Pending => None,
            _ => self.claims.iter().min_by_key(|claim| claim.source),
        }
    }

    /// The address, if it counts. Before the cookie is returned, it may be forged.
    pub(super) fn counted_address(&self) -> Option<IpAddr> {
        self.address.filter(|_| self.cookie != Cookie::Pending)
    }
}
