//! The configuration with which a handshake begins: settings, and the parts of the handshake that it needs.
//! [`crate::config`] builds both.

use crate::sync::Arc;
use alloc::vec::Vec;

use super::hints::ChooseRetry;
use super::{ClientParts, ServerParts};
use crate::auth::Psk;
use crate::crypto::Tls13CipherSuite;
use crate::early::EarlyDataServer;
use crate::protocol::{Protocol, TransportKind};
use crate::resume::{ClientSessions, SettingsDigest, TicketKind, Tickets};
use crate::settings::{
    ClientAuth, ConnectionIds, CookieKeys, DatagramSettings, ProfileSettings, PskChoice, PskSource, Ranks,
};
use crate::wire::{CipherSuite, NamedGroup, PskKeyExchangeMode};

/// The configuration of a client. Build it once and share it between connections in an `Arc`.
///
/// # Examples
/// A client that trusts the servers of one authority:
/// ```
/// use std::sync::Arc;
///
/// use dunlin::auth::X509Trust;
/// use dunlin::pki_types::{CertificateDer, pem::PemObject};
/// use dunlin::{ClientConfig, Profile, Trust};
///
/// # fn client() -> Result<ClientConfig, Box<dyn std::error::Error>> {
/// let roots = CertificateDer::pem_file_iter("root.pem")?.collect::<Result<Vec<_>, _>>()?;
/// let trust = Trust { x509: Some(X509Trust::anchors(roots)?), raw_key: None };
/// let profile = Profile::builder(Arc::new(dunlin_awslc::provider())).trust(trust).build()?;
/// let client = ClientConfig::new(profile);
/// # Ok(client)
/// # }
/// ```
/// A device with a pre-shared key:
/// ```
/// use std::sync::Arc;
///
/// use dunlin::auth::Psk;
/// use dunlin::{ClientConfig, Profile};
///
/// # fn main() -> Result<(), dunlin::Error> {
/// # let key = [7; 32];
/// let profile = Profile::builder(Arc::new(dunlin_awslc::provider())).build()?;
/// let device = ClientConfig::psk_only(profile, vec![Arc::new(Psk::new("sensor-7", &key)?)])?;
/// # drop(device);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub(crate) profile: Arc<ProfileSettings>,
    pub(crate) parts: ClientParts,
    pub(crate) psks: Vec<Arc<Psk>>,
    pub(crate) psk_choice: PskChoice,
    pub(crate) sessions: Option<Arc<dyn ClientSessions>>,
    pub(crate) key_shares: Vec<NamedGroup>,
    pub(crate) send_server_name: bool,
    pub(crate) credential_required: bool,
    pub(crate) reverify: bool,
    pub(crate) fallback: bool,
    pub(crate) datagram: DatagramSettings,
    /// Issues this side's connection IDs, if it wants to use them over datagrams.
    pub(crate) connection_ids: Option<Arc<dyn ConnectionIds>>,
    /// The digest of the settings that verify servers.
    pub(crate) settings: SettingsDigest,
    /// The same digest with this client's own credentials added. Sessions are bound to it.
    pub(crate) session_settings: SettingsDigest,
}

/// The configuration of a server. Build it once and share it between connections in an `Arc`.
///
/// # Examples
/// A server that authenticates itself by a certificate, and its clients by theirs.
/// `dunlin_pki::LoadedCredential` loads the credential from PEM files.
/// ```
/// use std::sync::Arc;
///
/// use dunlin::{ClientAuth, Credential, Profile, ServerConfig, Trust};
///
/// # fn server(credential: Credential, trust: Trust) -> Result<ServerConfig, dunlin::Error> {
/// let profile = Profile::builder(Arc::new(dunlin_awslc::provider()))
///     .credentials(vec![credential])
///     .trust(trust)
///     .build()?;
/// let server = ServerConfig::new(profile)?.with_client_auth(ClientAuth::Required)?;
/// # Ok(server)
/// # }
/// ```
/// A server for devices with pre-shared keys:
/// ```
/// use std::sync::Arc;
///
/// use dunlin::auth::{Psk, PskTable};
/// use dunlin::{Profile, PskSource, ServerConfig};
///
/// # fn main() -> Result<(), dunlin::Error> {
/// # let key = [7; 32];
/// let profile = Profile::builder(Arc::new(dunlin_awslc::provider())).build()?;
/// let keys = PskTable::from_iter([Psk::new("sensor-7", &key)?]);
/// let server = ServerConfig::psk_only(profile, PskSource::Here(Arc::new(keys)))?;
/// # drop(server);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub(crate) profile: Arc<ProfileSettings>,
    pub(crate) parts: ServerParts,
    pub(crate) client_auth: ClientAuth,
    pub(crate) psks: Option<PskSource>,
    pub(crate) psk_identity_hint: Vec<u8>,
    pub(crate) tickets: Tickets,
    pub(crate) cookies: Option<bool>,
    pub(crate) choose_profile: bool,
    /// Whether connections end when their handshake is complete.
    pub(crate) handshake_only: bool,
    /// The ranks of the server's profiles, if it chooses one by the client's identity.
    pub(crate) ranks: Option<Ranks>,
    /// The other configurations of the server, the highest rank first, in the one with which connections
    /// begin.
    pub(crate) others: Vec<Arc<Self>>,
    /// The caller's choice of the suite and the group of a HelloRetryRequest over datagrams, if it makes one.
    pub(crate) retry_choice: Option<Arc<dyn ChooseRetry>>,
    /// Whether a renegotiation to this profile shows its own certificate, and not again the certificate of
    /// the first handshake.
    pub(crate) changes_certificate: bool,
    /// The configuration of the profile, if this one is only for a renegotiation to it.
    pub(crate) in_place_of: Option<Arc<Self>>,
    pub(crate) early_data: Option<EarlyDataServer>,
    pub(crate) datagram: DatagramSettings,
    /// Issues this side's connection IDs, if it wants to use them over datagrams.
    pub(crate) connection_ids: Option<Arc<dyn ConnectionIds>>,
    pub(crate) cookie_keys: CookieKeys,
    pub(crate) digests: SettingsDigests,
    pub(crate) others_tickets: OthersTickets,
}

/// The tickets of other configurations, which a server marks if they come with early data.
#[derive(Clone, Debug, Default)]
pub(crate) struct OthersTickets {
    pub(crate) kinds: Vec<TicketKind>,
    /// The suites of these tickets that only their providers have.
    pub(crate) suites: Vec<&'static Tls13CipherSuite>,
}

/// The digests of a server's settings, to which sessions and cache entries are bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettingsDigests {
    /// The settings that authenticate clients.
    pub(crate) trust: SettingsDigest,
    /// The other settings of the profile. Early data and cookies are bound to them, too.
    pub(crate) profile: SettingsDigest,
}

impl ServerConfig {
    /// Whether every client must return a cookie first: by default over datagrams, whose addresses anyone can
    /// forge.
    pub(crate) fn demands_cookie(&self, protocol: Protocol) -> bool {
        self.cookies.unwrap_or(protocol.transport() == TransportKind::Datagram)
    }

    /// The tickets that the server marks as used if they come with early data.
    pub(crate) fn marks(&self) -> impl Iterator<Item = &TicketKind> {
        core::iter::once(&self.tickets.kind).chain(&self.others_tickets.kinds)
    }

    /// The suite of a ticket that the server marks.
    pub(crate) fn suite_of_marks(&self, id: CipherSuite) -> Option<&'static Tls13CipherSuite> {
        let others = || self.others_tickets.suites.iter().copied().find(|suite| suite.id == id);
        self.profile.provider.suite(id).or_else(others)
    }

    /// Whether the server can mark tickets with a suite that `other` does not know.
    pub(crate) fn has_suites_beyond(&self, other: &Self) -> bool {
        let mut suites = self.profile.provider.cipher_suites.iter().chain(&self.others_tickets.suites);
        suites.any(|suite| other.suite_of_marks(suite.id).is_none())
    }

    /// Whether the server can find PSKs of any kind: external ones or tickets.
    pub(crate) const fn finds_psks(&self) -> bool {
        self.psks.is_some() || !self.tickets.is_none()
    }

    pub(crate) fn allows_psk(&self) -> bool {
        self.finds_psks()
            && (self.profile.allows_mode(PskKeyExchangeMode::PSK_DHE_KE)
                || self.profile.allows_mode(PskKeyExchangeMode::PSK_KE))
    }
}
