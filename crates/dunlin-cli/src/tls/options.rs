//! The options that `client` and `server` share, and the configurations that they make.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, value_parser};
use dunlin::crypto::{
    CryptoProvider, KeyExchangeGroup, Tls12CipherSuite, Tls12KeyExchange, Tls13CipherSuite,
};
use dunlin::early::MAX_EARLY_DATA;
use dunlin::resume::{ClientSessions, Tickets};
use dunlin::wire::{CipherSuite, NamedGroup, PskKeyExchangeMode, SignatureScheme};
use dunlin::{
    ClientAuth, ClientConfig, CookieKeys, EarlyDataProtocols, KeyLog, Profile, ProfileBuilder, PskSource,
    ServerConfig, Side, SingleUse, Trust,
};
use dunlin_command::error::{Error, misuse, warn};
use dunlin_command::files;
use dunlin_pki::{CertificateInfo, Item, PublicKeyInfo};
use dunlin_setup::psk::Psks;

use crate::registry::RegistryOptions;
use crate::tls::cache::CacheOptions;
use crate::tls::credentials::{CredentialOptions, Messages};
use crate::tls::crl::RevocationLists;
use crate::tls::datagrams::DatagramOptions;
use crate::tls::follow::{Followed, Group, Parts};
use crate::tls::keylog::KeyLogFile;
use crate::tls::lists::{self, List, seconds};

/// The credentials, the trust settings and the parameters of a client or server.
///
/// The default offers everything, trusts no peer and has no credential.
#[derive(Args, Clone, Default)]
pub(crate) struct TlsOptions {
    /// The own certificate chain in PEM, leaf first. May be repeated; the first chain that suits the peer is
    /// used. A server follows changes of all its files: the next connection uses the new content if it is
    /// valid.
    #[arg(long = "chain", visible_alias = "cert", value_name = "FILE", help_heading = "Identity")]
    pub(crate) cert: Vec<PathBuf>,
    /// The private key of --chain; by default it is in the chain's file. One for each --chain, in the same
    /// order.
    #[arg(long, value_name = "FILE", help_heading = "Identity")]
    pub(crate) key: Vec<PathBuf>,
    /// The certificates of the trusted authorities.
    #[arg(long = "ca", visible_alias = "CAfile", value_name = "FILE", help_heading = "Identity")]
    pub(crate) ca_file: Option<PathBuf>,
    /// CRLs of the authorities, as `dunlin pki crl` makes them, for --crl-check. May be repeated. A changed
    /// file is read again for the next connection; an invalid file leaves the previous CRLs in force.
    #[arg(long = "crl", visible_alias = "CRL", value_name = "FILE", help_heading = "Identity")]
    pub(crate) crl: Vec<PathBuf>,
    /// Refuse a certificate that its issuer has revoked, or whose issuer has no current CRL.
    #[arg(long, help_heading = "Identity")]
    pub(crate) crl_check: bool,
    /// As --crl-check, for every certificate of the chain.
    #[arg(long, help_heading = "Identity")]
    pub(crate) crl_check_all: bool,
    /// The maximum number of authorities between the peer's certificate and the trusted one, neither of which
    /// counts.
    #[arg(long, value_name = "N", help_heading = "Identity")]
    pub(crate) verify_depth: Option<u8>,
    /// Authenticate the server by a raw public key (RFC 7250).
    #[arg(long, help_heading = "Identity")]
    pub(crate) enable_server_rpk: bool,
    /// Authenticate the client by a raw public key (RFC 7250).
    #[arg(long, help_heading = "Identity")]
    pub(crate) enable_client_rpk: bool,
    /// The trusted raw public keys of peers, in PEM.
    #[arg(long = "raw-keys", alias = "rpk-file", value_name = "FILE", help_heading = "Identity")]
    pub(crate) rpk_file: Option<PathBuf>,
    /// A pre-shared key in hexadecimal. Other users of this machine can see it, so prefer --psk-file.
    #[arg(long, value_name = "HEX", conflicts_with = "psk_file", help_heading = "Identity")]
    pub(crate) psk: Option<String>,
    /// The identity of --psk [default: Client_identity]; for a client also the identity or device to choose
    /// from --psk-file.
    #[arg(long, value_name = "ID", help_heading = "Identity")]
    pub(crate) psk_identity: Option<String>,
    /// Pre-shared keys as `dunlin psk` makes them: a line identity:hex for each, TOML, or a database. A
    /// server follows changes.
    #[arg(long, value_name = "FILE", help_heading = "Identity")]
    pub(crate) psk_file: Option<PathBuf>,
    /// Accept pre-shared keys of less than 16 bytes, which can be guessed (RFC 9257 §6).
    #[arg(long, help_heading = "Identity")]
    pub(crate) allow_short: bool,
    #[command(flatten)]
    pub(crate) verifiable: CredentialOptions,
    /// Whether DIDs and credentials travel in messages of their own (ssi_parameters) [default: beside with a
    /// bare DID, otherwise off].
    #[arg(long, value_name = "WHEN", help_heading = "Identity")]
    ssi_messages: Option<Messages>,
    #[command(flatten)]
    pub(crate) registry: RegistryOptions,
    /// Use pre-shared keys without (EC)DHE, and so without forward secrecy. The client then offers nothing
    /// else, and the server needs this option, too; a server with it allows both.
    #[arg(long, help_heading = "Parameters")]
    pub(crate) psk_ke: bool,
    /// Allow pre-shared keys without (EC)DHE as well as with it.
    #[arg(long, help_heading = "Parameters")]
    pub(crate) allow_no_dhe_kex: bool,
    /// Enable TLS 1.2; without --tls1-3, only TLS 1.2.
    #[arg(long = "tls1-2", help_heading = "Parameters")]
    pub(crate) tls1_2: bool,
    /// Enable TLS 1.3, the default. With --tls1-2, both sides choose the newest common version.
    #[arg(long = "tls1-3", help_heading = "Parameters")]
    pub(crate) tls1_3: bool,
    /// Use DTLS over UDP. -dtls is the same; -dtls1_2 and -dtls1_3 stand for --udp with --tls1-2 or --tls1-3.
    #[arg(long, visible_alias = "dtls", conflicts_with_all = ["renegotiation", "early_data"],
          help_heading = "Parameters")]
    pub(crate) udp: bool,
    /// TLS 1.2 cipher suites, in order of preference, separated by colons [default: suites with ECDHE; with
    /// --psk-ke or --allow-no-dhe-kex also suites with a plain pre-shared key; none with CCM_8].
    #[arg(long, value_name = "LIST", requires = "tls1_2", value_parser = lists::tls12_cipher_suites,
          long_help = cipher_help(), help_heading = "Parameters")]
    pub(crate) cipher: Option<List<&'static Tls12CipherSuite>>,
    /// Allow obsolete, insecure algorithms for measurements: suites with static RSA, DH_anon or DSS by name,
    /// groups outside RFC 7919, and certificates with short RSA keys or DSA.
    #[cfg(feature = "legacy-lab")]
    #[arg(long, requires = "tls1_2", help_heading = "Parameters")]
    pub(crate) legacy_lab: bool,
    /// Allow TLS 1.2 with peers that lack extended master secret (RFC 7627).
    #[arg(long, requires = "tls1_2", help_heading = "Parameters")]
    pub(crate) allow_no_ems: bool,
    /// Let the peer renegotiate in TLS 1.2 (RFC 5746), at most 32 times without data in between.
    #[arg(long, requires = "tls1_2", help_heading = "Parameters")]
    pub(crate) renegotiation: bool,
    /// TLS 1.3 cipher suites, in order of preference, separated by colons.
    #[arg(long, value_name = "LIST", value_parser = lists::cipher_suites, long_help = ciphersuites_help(),
          help_heading = "Parameters")]
    pub(crate) ciphersuites: Option<List<&'static Tls13CipherSuite>>,
    /// Groups, in order of preference; a client sends a key share for the first. Without this option, suites
    /// with DHE add ffdhe2048, ffdhe3072 and ffdhe4096.
    #[arg(long, visible_alias = "curves", value_name = "LIST", value_parser = lists::groups, long_help = groups_help(),
          help_heading = "Parameters")]
    pub(crate) groups: Option<List<&'static dyn KeyExchangeGroup>>,
    /// Accepted signature schemes, in order of preference. Without this option, ecdsa_secp521r1_sha512,
    /// mldsa65 and rsa_pss_pss_* are among them only if --ca or --raw-keys contains such a key.
    #[arg(long, value_name = "LIST", value_parser = lists::signature_schemes, long_help = sigalgs_help(),
          help_heading = "Parameters")]
    pub(crate) sigalgs: Option<List<SignatureScheme>>,
    /// Accepted signature schemes in certificate chains, if they differ from those in handshakes: names as
    /// for --sigalgs.
    #[arg(long, value_name = "LIST", value_parser = lists::signature_schemes, help_heading = "Parameters")]
    pub(crate) sigalgs_cert: Option<List<SignatureScheme>>,
    /// Application protocols, in order of preference, separated by commas.
    #[arg(long, value_name = "LIST", value_parser = lists::protocols, help_heading = "Parameters")]
    pub(crate) alpn: Option<List<Vec<u8>>>,
    /// Compress own certificates with zlib, and accept compressed certificates of the peer (RFC 8879).
    #[arg(long, help_heading = "Parameters")]
    pub(crate) cert_comp: bool,
    /// The maximum size of received records, in bytes: 64 to 16385 (RFC 8449).
    #[arg(long, value_name = "BYTES", value_parser = lists::bytes::<64, 16385>,
          help_heading = "Parameters")]
    pub(crate) record_size_limit: Option<u16>,
    /// Use the smallest messages: TLS_AES_128_GCM_SHA256, x25519, no compatibility mode, and only the
    /// signature scheme of the keys in --ca, --raw-keys or --vc-issuers, otherwise ecdsa_secp256r1_sha256.
    /// Explicit lists replace these.
    #[arg(long, help_heading = "Parameters")]
    pub(crate) lean: bool,
    /// Disable the compatibility mode for middleboxes (RFC 8446 §D.4).
    #[arg(long, help_heading = "Parameters")]
    pub(crate) no_middlebox: bool,
    /// Update the sending keys after this many records, in TLS 1.3.
    #[arg(long, value_name = "RECORDS", value_parser = value_parser!(u64).range(1..),
          help_heading = "Parameters")]
    pub(crate) key_update: Option<u64>,
    #[command(flatten)]
    pub(crate) datagrams: DatagramOptions,
    #[command(flatten)]
    pub(crate) cache: CacheOptions,
    /// Append the secrets of the connections to this file, for a protocol analyser. Anyone who reads it can
    /// decrypt the traffic, so it must be new, or a regular file of this user with mode 0600.
    #[arg(long, value_name = "FILE", help_heading = "Debugging")]
    pub(crate) keylogfile: Option<PathBuf>,
    /// The time limit of a handshake, in seconds. Over UDP, --hs-timeout sets when messages are sent again.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Show every handshake message as it comes.
    #[arg(long, conflicts_with_all = ["quiet", "json"], help_heading = "Debugging")]
    pub(crate) msg: bool,
}

/// The options of servers only.
#[derive(Args, Clone)]
pub(crate) struct ServerOptions {
    /// Request a certificate, raw key or credential from clients, but accept clients without.
    #[arg(long, help_heading = "Identity")]
    pub(crate) verify: bool,
    /// Refuse clients without a certificate, raw key or credential. Unlike s_server's -Verify, this option
    /// takes no depth.
    #[arg(long = "Verify", conflicts_with = "verify", help_heading = "Identity")]
    pub(crate) verify_required: bool,
    /// The number of tickets after a full handshake; 0 disables resumption.
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = "Resumption")]
    pub(crate) num_tickets: u8,
    /// The lifetime of tickets, in seconds; at most seven days.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Resumption")]
    pub(crate) ticket_lifetime: Option<Duration>,
    /// Store sessions in memory instead of in the tickets. Tickets are shorter; each works once in TLS 1.3,
    /// and until it expires in TLS 1.2, which gets no new ones.
    #[arg(long, help_heading = "Resumption")]
    pub(crate) stateful_tickets: bool,
    /// Accept early data (0-RTT) of up to this many bytes, with any protocol of --alpn. While the server
    /// runs, it accepts each ticket once, and only within a minute of its time. A client may still repeat a
    /// request.
    #[arg(long, value_name = "BYTES", value_parser = value_parser!(u32).range(1..=i64::from(MAX_EARLY_DATA)),
          conflicts_with = "rev", help_heading = "Resumption")]
    pub(crate) early_data: Option<u32>,
    /// Make every client return a cookie first (RFC 8446 §4.2.2).
    #[arg(long, visible_alias = "stateless", help_heading = "Parameters")]
    pub(crate) stateless_cookie: bool,
}

/// The help of --cipher, with the supported names.
fn cipher_help() -> String {
    format!(
        "TLS 1.2 cipher suites, in order of preference, separated by colons, by the names of IANA or OpenSSL. The \
         server's order decides; by default, a server with pre-shared keys prefers suites with one.\n{}",
        lists::tls12_cipher_suite_names()
    )
}

/// The help of --ciphersuites, with the supported names.
fn ciphersuites_help() -> String {
    format!(
        "TLS 1.3 cipher suites, in order of preference, separated by colons.\n{}",
        lists::cipher_suite_names()
    )
}

/// The help of --groups, with the supported names.
fn groups_help() -> String {
    format!(
        "Groups, in order of preference, separated by colons; a client sends a key share for the first. Without this \
         option, suites with DHE add ffdhe2048, ffdhe3072 and ffdhe4096. P-256, prime256v1, P-384 and P-521 are other \
         names.\n{}",
        lists::group_names()
    )
}

/// The help of --sigalgs, with the supported names.
fn sigalgs_help() -> String {
    format!(
        "Accepted signature schemes, in order of preference, separated by colons.\n{}",
        lists::signature_scheme_names()
    )
}

/// The maximum number of sessions in memory with `--stateful-tickets`.
const MAX_SESSIONS: usize = 10_000;

impl TlsOptions {
    /// Makes the configuration of a client, and the group of CRL files to follow. With `insecure` the client
    /// accepts every server; `connects_again` says whether it makes more than one connection.
    pub(crate) fn client_config(
        &self,
        insecure: bool,
        max_fragment_length: Option<u16>,
        sessions: Option<Arc<dyn ClientSessions>>,
        connects_again: bool,
    ) -> Result<(ClientConfig, Parts, Vec<Group>), Error> {
        self.warn_of_psk_ke();
        let modes = match (self.psk_ke, self.allow_no_dhe_kex) {
            (true, _) => vec![PskKeyExchangeMode::PSK_KE],
            (false, true) => vec![PskKeyExchangeMode::PSK_DHE_KE, PskKeyExchangeMode::PSK_KE],
            (false, false) => vec![PskKeyExchangeMode::PSK_DHE_KE],
        };
        let provider = self.own_provider();
        let (trust, lists) = self.client_lists(self.client_trust(insecure)?)?;
        let mut parts =
            Parts { credentials: self.credentials(Side::Client, &provider)?, trust, judges: None };
        let mut groups = Vec::from_iter(lists);
        groups.extend(self.verifier_files(&provider, &mut parts)?);
        let has_trust = parts.has_trust();
        let profile = self.profile(Side::Client, &provider, &parts, modes, self.key_log()?)?;
        let profile = profile.max_fragment_length(max_fragment_length).build().map_err(|e| misuse(&e))?;
        if self.verifiable.accepts_every_holder() {
            warn(
                "--vc-issuers without --vc-peers: every holder of a credential by these issuers can be the server",
            );
        }
        let psks = self.client_psks(&provider)?.into_iter().map(Arc::new).collect();
        let mut config = ClientConfig::new(profile).with_psks(psks);
        if let Some(mtu) = self.datagrams.mtu {
            config = config.with_mtu(mtu.into()).map_err(|e| misuse(&e))?;
        }
        if let Some(retransmission) = self.datagrams.retransmission() {
            config = config.with_retransmission(retransmission);
        }
        if let Some(ids) = self.datagrams.connection_ids(Side::Client, &provider.random)? {
            config = config.with_connection_ids(ids);
        }
        if let Some(scheme) = self.datagrams.scheme {
            config = config.with_port_scheme(scheme);
        }
        if let Some(migration) = self.datagrams.migration() {
            config = config.with_migration(migration);
        }
        let config = self.cache.client(config, &provider, has_trust, connects_again)?;
        let config = match sessions {
            Some(sessions) => config.with_sessions(sessions),
            None => config,
        };
        Ok((config, parts, groups))
    }

    /// The CRLs to check, if any.
    fn lists(&self, trust: &Trust) -> Result<Option<RevocationLists>, Error> {
        if trust.x509.is_none() {
            return Ok(None);
        }
        let check = self.crl_check || self.crl_check_all;
        match (check, self.crl.is_empty()) {
            (false, true) => Ok(None),
            (true, true) => Err(Error::usage("--crl-check", "there is no CRL", "give it with --crl")),
            (false, false) => {
                let advice = "add --crl-check for the peer's certificate, or --crl-check-all for its chain";
                Err(Error::usage("--crl", "no check uses it", advice))
            }
            (true, false) => Ok(Some(RevocationLists::new(self.lists_to_check(), self.crl_check_all))),
        }
    }

    /// A client's trust with its CRLs, and their files.
    fn client_lists(&self, trust: Trust) -> Result<(Trust, Option<Group>), Error> {
        let Some(mut lists) = self.lists(&trust)? else { return Ok((trust, None)) };
        let mut group = Group::new("CRLs", self.crl.clone(), move |parts| {
            parts.trust = lists.read(trust.clone())?;
            Ok(())
        });
        let mut parts = Parts::default();
        group.read(&mut parts)?;
        Ok((parts.trust, Some(group)))
    }

    /// The files by which this side judges the credentials of peers, which are read.
    fn verifier_files(
        &self,
        provider: &Arc<CryptoProvider>,
        parts: &mut Parts,
    ) -> Result<Option<Group>, Error> {
        if !self.verifiable.trusts() {
            return if self.registry.asks_the_web() {
                Err(Error::usage("--did-web", "no DIDs of peers are trusted", "add --vc-issuers or --dids"))
            } else {
                Ok(None)
            };
        }
        self.check_verifiable(self.verifiable.trust_option())?;
        let (options, provider) = (self.clone(), provider.clone());
        let files = options.verifiable.trust_files();
        let mut group = Group::new("trusted DIDs and status lists", files, move |parts| {
            parts.judges = options.verifiable.judges(&options.registry, &provider)?;
            Ok(())
        });
        group.read(parts)?;
        Ok(Some(group))
    }

    /// Checks that the enabled versions have verifiable credentials.
    pub(super) fn check_verifiable(&self, option: &str) -> Result<(), Error> {
        if self.has_tls13() {
            Ok(())
        } else {
            let why = "TLS 1.2 has no verifiable credentials or DIDs";
            Err(Error::usage(option, why, "add --tls1-3, or leave it out"))
        }
    }

    /// The files of a server's trust settings for clients.
    fn server_trust_files(&self, client_auth: ClientAuth) -> Result<Group, Error> {
        let first = self.server_trust(client_auth)?;
        self.warn_of_unused_trust(client_auth);
        let mut lists = self.lists(&first)?;
        let mut paths: Vec<_> = self.ca_file.iter().chain(&self.rpk_file).cloned().collect();
        // A pipe can be read only once.
        let fixed = paths.iter().any(|path| !path.is_file()).then_some(first);
        if fixed.is_some() {
            paths.clear();
        }
        paths.extend(self.crl.iter().cloned());
        let options = self.clone();
        Ok(Group::new("trust anchors and CRLs", paths, move |parts| {
            let trust = fixed.clone().map_or_else(|| options.server_trust(client_auth), Ok)?;
            parts.trust = match &mut lists {
                Some(lists) => lists.read(trust)?,
                None => trust,
            };
            Ok(())
        }))
    }

    /// The files of a server's credentials.
    fn server_credential_files(&self, provider: &Arc<CryptoProvider>) -> Result<Group, Error> {
        let mut paths: Vec<_> = self.cert.iter().chain(&self.key).cloned().collect();
        paths.extend(self.verifiable.own_files());
        let (options, provider) = (self.clone(), provider.clone());
        if paths.iter().any(|path| !path.is_file()) {
            // A pipe can be read only once. A missing file gives its error here.
            let first = self.credentials(Side::Server, &provider)?;
            return Ok(Group::new("certificates and keys", vec![], move |parts| {
                parts.credentials.clone_from(&first);
                Ok(())
            }));
        }
        Ok(Group::new("certificates and keys", paths, move |parts| {
            parts.credentials = options.credentials(Side::Server, &provider)?;
            Ok(())
        }))
    }

    /// Makes the configuration of a server, and returns it with the source of its pre-shared keys. Only a
    /// server without certificates and raw public keys has these keys in its configuration.
    pub(crate) fn server_config(
        &self,
        server: &ServerOptions,
    ) -> Result<(Followed<ServerConfig>, Option<Arc<Psks>>), Error> {
        if server.early_data.is_some() {
            self.check_early_data()?;
        }
        let client_auth = match (server.verify_required, server.verify) {
            (true, _) => ClientAuth::Required,
            (false, true) => ClientAuth::Optional,
            (false, false) => ClientAuth::None,
        };
        let mut parts = Parts::default();
        let mut trust = self.server_trust_files(client_auth)?;
        trust.read(&mut parts)?;
        self.warn_of_psk_ke();
        let modes = if self.psk_ke || self.allow_no_dhe_kex {
            vec![PskKeyExchangeMode::PSK_DHE_KE, PskKeyExchangeMode::PSK_KE]
        } else {
            vec![PskKeyExchangeMode::PSK_DHE_KE]
        };
        let provider = self.own_provider();
        let verifier = self.verifier_files(&provider, &mut parts)?;
        let mut credentials = self.server_credential_files(&provider)?;
        credentials.read(&mut parts)?;
        let profile = |parts: &Parts, key_log| {
            let builder = self.profile(Side::Server, &provider, parts, modes.clone(), key_log)?;
            builder.build().map_err(|e| misuse(&e))
        };
        // Check the options before stores and logs are opened.
        profile(&parts, None)?;
        let psks = self.server_psks(&provider)?.map(Arc::new);
        let has_certificates = !parts.credentials.is_empty();
        let cache = self.cache.server(&provider, has_certificates, client_auth != ClientAuth::None)?;
        let tickets = server.tickets(provider.clone())?;
        let early_data = server.early_data()?.map(|size| (self.early_data_protocols(), size));
        // Over UDP, a server always demands cookies. A cookie of one configuration is also valid for the next
        // one.
        let cookies = server.stateless_cookie || self.udp;
        let cookie_keys = cookie_keys(&provider)?;
        let connection_ids = self.datagrams.connection_ids(Side::Server, &provider.random)?;
        let (options, key_log) = (self.clone(), self.key_log()?);
        let keys = psks.clone();
        let make = move |parts: &Parts| {
            let builder = options.profile(Side::Server, &provider, parts, modes.clone(), key_log.clone())?;
            let config = builder.build().and_then(|profile| match &keys {
                Some(keys) if parts.credentials.is_empty() => {
                    ServerConfig::psk_only(profile, PskSource::Here(keys.clone()))
                }
                _ => ServerConfig::new(profile),
            });
            let config = config.and_then(|config| config.with_client_auth(client_auth));
            let mut config =
                config.map_err(|e| misuse(&e))?.with_cookies(cookies).with_tickets(tickets.clone());
            config = config.with_cookie_keys(cookie_keys.clone());
            if let Some(mtu) = options.datagrams.mtu {
                config = config.with_mtu(mtu.into()).map_err(|e| misuse(&e))?;
            }
            if let Some(retransmission) = options.datagrams.retransmission() {
                config = config.with_retransmission(retransmission);
            }
            if let Some(ids) = &connection_ids {
                config = config.with_connection_ids(ids.clone());
            }
            if let Some(scheme) = options.datagrams.scheme {
                config = config.with_port_scheme(scheme);
            }
            if let Some(migration) = options.datagrams.migration() {
                config = config.with_migration(migration);
            }
            if let Some((mode, cache, max_age)) = &cache {
                let cached = config.with_handshake_cache(*mode, cache.clone(), *max_age);
                config = cached.map_err(|e| misuse(&e))?;
            }
            if let Some((protocols, size)) = early_data.clone() {
                config = config.with_early_data(protocols, size).map_err(|e| misuse(&e))?;
            }
            Ok(config)
        };
        let groups = [credentials, trust].into_iter().chain(verifier).collect();
        Ok((Followed::new(parts, groups, make)?, psks))
    }

    /// Checks that the enabled versions have early data.
    pub(crate) fn check_early_data(&self) -> Result<(), Error> {
        if self.has_tls13() {
            Ok(())
        } else {
            let why = "TLS 1.2 has no early data";
            Err(Error::usage("--early-data", why, "add --tls1-3, or leave it out"))
        }
    }

    /// The protocols for early data: all of --alpn, or no protocol.
    pub(crate) fn early_data_protocols(&self) -> EarlyDataProtocols {
        let named = self.alpn.as_ref().map_or_else(Vec::new, |List(protocols)| protocols.clone());
        EarlyDataProtocols::named(named).and_unnamed()
    }

    /// The provider, with the named suites that the library disables by default.
    fn own_provider(&self) -> Arc<CryptoProvider> {
        let mut provider = self.provider();
        if let Some(List(suites)) = &self.ciphersuites {
            provider.cipher_suites.extend(suites.iter().filter(|s| lists::provider().suite(s.id).is_none()));
        }
        Arc::new(provider)
    }

    /// The key log, opened.
    fn key_log(&self) -> Result<Option<Arc<dyn KeyLog>>, Error> {
        let open = |path: &PathBuf| KeyLogFile::open(path).map(|file| Arc::new(file) as _);
        self.keylogfile.as_ref().map(open).transpose()
    }

    fn profile(
        &self,
        side: Side,
        provider: &Arc<CryptoProvider>,
        parts: &Parts,
        modes: Vec<PskKeyExchangeMode>,
        key_log: Option<Arc<dyn KeyLog>>,
    ) -> Result<ProfileBuilder, Error> {
        let Parts { credentials, trust, .. } = parts;
        let mut builder = if self.lean {
            self.lean_profile(provider)?
        } else {
            Profile::builder(provider.clone()).compatibility_mode(!self.no_middlebox)
        };
        if let Some(List(suites)) = &self.ciphersuites {
            builder = builder.cipher_suites(suites.clone());
        }
        if self.tls1_2 {
            match side {
                Side::Client if trust.x509.is_some() || trust.raw_key.is_some() => {}
                Side::Client => self.check_tls12_trust()?,
                Side::Server => self.check_tls12_keys(credentials)?,
            }
            builder = builder.tls12_cipher_suites(self.tls12_suites(side)).renegotiation(self.renegotiation);
            builder = builder.rsa_encryption(dunlin_legacy::rsa::ENCRYPTION);
            builder = builder.extended_master_secret_required(!self.allow_no_ems);
            #[cfg(feature = "legacy-lab")]
            {
                builder = self.obsolete(builder)?;
            }
        }
        if !self.has_tls13() {
            if self.ciphersuites.is_some() {
                let why = "they are for TLS 1.3, which --tls1-2 alone disables";
                return Err(Error::usage("--ciphersuites", why, "add --tls1-3, or give --cipher"));
            }
            if self.key_update.is_some() {
                let why = "in TLS 1.2 only a renegotiation replaces keys";
                return Err(Error::usage("--key-update", why, "add --tls1-3, or leave it out"));
            }
            builder = builder.cipher_suites(Vec::new());
        }
        builder = builder.groups(self.own_groups(side, provider)?);
        if let Some(List(schemes)) = &self.sigalgs {
            builder = builder.signature_schemes(schemes.clone());
        } else if !self.lean {
            builder = builder.signature_schemes(self.default_schemes(provider)?);
        }
        if let Some(List(schemes)) = &self.sigalgs_cert {
            builder = builder.certificate_signature_schemes(Some(schemes.clone()));
        }
        if let Some(List(protocols)) = &self.alpn {
            builder = builder.alpn(protocols.clone());
        }
        if self.cert_comp {
            builder = builder
                .certificate_compressors(vec![dunlin::compression::ZLIB_COMPRESSOR])
                .certificate_decompressors(vec![dunlin::compression::ZLIB_DECOMPRESSOR]);
        }
        let builder = builder.key_log(key_log).credentials(credentials.clone()).trust(parts.verifiers());
        let builder = builder.psk_modes(modes);
        let builder = builder.ssi_messages(self.verifiable.messages(self.ssi_messages)?);
        Ok(builder.record_size_limit(self.record_size_limit).key_update_after(self.key_update))
    }

    /// Returns whether TLS 1.3 is enabled.
    pub(crate) const fn has_tls13(&self) -> bool {
        self.tls1_3 || !self.tls1_2
    }

    fn provider(&self) -> CryptoProvider {
        #[cfg(feature = "legacy-lab")]
        if self.legacy_lab {
            return dunlin_legacy::lab::provider();
        }
        lists::provider()
    }

    /// Allows obsolete algorithms only on request, and with a warning.
    #[cfg(feature = "legacy-lab")]
    fn obsolete(&self, builder: ProfileBuilder) -> Result<ProfileBuilder, Error> {
        if self.legacy_lab {
            anstream::eprintln!("dunlin: WARNING: {}", dunlin_legacy::lab::WARNING);
            return Ok(builder.rsa_encryption(dunlin_legacy::lab::ENCRYPTION).danger_legacy_lab());
        }
        let is_obsolete = |suite: &&&Tls12CipherSuite| {
            dunlin_legacy::lab::TLS12_LEGACY_CIPHER_SUITES.iter().any(|legacy| legacy.id == suite.id)
        };
        match self.cipher.iter().flat_map(|List(suites)| suites).find(is_obsolete) {
            Some(suite) => {
                let why = format!("{} is insecure and only for the laboratory", suite.id);
                Err(Error::usage("--cipher", why, "add --legacy-lab, or choose another suite"))
            }
            None => Ok(builder),
        }
    }

    /// The enabled versions, in words.
    pub(crate) const fn versions(&self) -> &'static str {
        match (self.udp, self.tls1_2, self.has_tls13()) {
            (false, true, true) => "TLS 1.2 or 1.3",
            (false, true, false) => "TLS 1.2",
            (false, false, _) => "TLS 1.3",
            (true, true, true) => "DTLS 1.2 or 1.3",
            (true, true, false) => "DTLS 1.2",
            (true, false, _) => "DTLS 1.3",
        }
    }

    /// The requested groups, or the profile's groups with the ones that TLS 1.2 needs.
    fn own_groups(
        &self,
        side: Side,
        provider: &CryptoProvider,
    ) -> Result<Vec<&'static dyn KeyExchangeGroup>, Error> {
        let suites = if self.tls1_2 { self.tls12_suites(side) } else { Vec::new() };
        let with_field = suites.iter().find(|suite| suite.key_exchange == Tls12KeyExchange::Dhe);
        if let Some(List(groups)) = &self.groups {
            let has_field = groups.iter().any(|group| group.finite_field().is_some());
            return match with_field.filter(|_| !has_field) {
                Some(suite) => {
                    let why = format!("{} needs a finite field", suite.id);
                    Err(Error::usage("--groups", why, "add ffdhe2048, or leave --groups out"))
                }
                None => Ok(groups.clone()),
            };
        }
        let mut groups = if self.lean {
            provider.group(NamedGroup::X25519).into_iter().collect()
        } else {
            provider.groups.clone()
        };
        let takes_keys = self.ca_file.is_some() || self.rpk_file.is_some() || !self.has_psk();
        if self.lean && self.tls1_2 && side == Side::Client && takes_keys {
            // RFC 8422 §5.1: a client's curves also limit the server's keys.
            let curves = self.lean_schemes()?.into_iter().filter_map(|scheme| match scheme {
                SignatureScheme::ECDSA_SECP256R1_SHA256 => provider.group(NamedGroup::SECP256R1),
                SignatureScheme::ECDSA_SECP384R1_SHA384 => provider.group(NamedGroup::SECP384R1),
                SignatureScheme::ECDSA_SECP521R1_SHA512 => Some(dunlin_awslc::SECP521R1),
                _ => None,
            });
            groups.extend(curves);
        } else if self.tls1_2
            && self.default_schemes(provider)?.contains(&SignatureScheme::ECDSA_SECP521R1_SHA512)
        {
            groups.push(dunlin_awslc::SECP521R1);
        }
        if with_field.is_some() {
            groups.extend(lists::FINITE_FIELDS);
        }
        Ok(groups)
    }

    /// The profile with the mandatory algorithms (RFC 8446 §9.1), except for the smaller group.
    fn lean_profile(&self, provider: &Arc<CryptoProvider>) -> Result<ProfileBuilder, Error> {
        let missing = || Error::usage("--lean", "the library lacks a part of it", "leave it out");
        let suite = match &self.ciphersuites {
            Some(List(suites)) => suites.first().copied(),
            None => provider.suite(CipherSuite::TLS_AES_128_GCM_SHA256),
        };
        let group = provider.group(NamedGroup::X25519);
        let schemes = self.lean_schemes()?;
        let first = schemes.first().copied().ok_or_else(missing)?;
        let lean =
            Profile::lean(provider.clone(), suite.ok_or_else(missing)?, group.ok_or_else(missing)?, first);
        Ok(lean.signature_schemes(schemes))
    }

    /// The signature schemes of the first trusted key.
    fn lean_schemes(&self) -> Result<Vec<SignatureScheme>, Error> {
        let Some(path) = self.ca_file.as_ref().or(self.rpk_file.as_ref()) else {
            let of_issuers = self.verifiable.issuer_schemes(&self.registry, &lists::provider())?;
            return Ok(of_issuers.unwrap_or_else(|| vec![SignatureScheme::ECDSA_SECP256R1_SHA256]));
        };
        let missing = || Err(dunlin_pki::Error::missing("certificate or key"));
        let key = files::items(path)?.first().map_or_else(missing, public_key);
        Ok(schemes_of(&key.map_err(|e| Error::in_file(path, &e))?))
    }

    /// The accepted schemes without `--sigalgs`: the library's default list, and the schemes of the trusted
    /// keys.
    fn default_schemes(&self, provider: &CryptoProvider) -> Result<Vec<SignatureScheme>, Error> {
        let mut trusted = Vec::new();
        for path in self.ca_file.iter().chain(&self.rpk_file) {
            trusted.extend(files::items(path)?.iter().filter_map(|item| public_key(item).ok()));
        }
        let trusted: Vec<_> = trusted.iter().flat_map(schemes_of).collect();
        let schemes = provider.signatures.schemes.iter().map(|(scheme, _)| *scheme);
        Ok(schemes.filter(|s| !lists::is_by_name_only(*s) || trusted.contains(s)).collect())
    }
}

/// New keys of cookies.
fn cookie_keys(provider: &CryptoProvider) -> Result<CookieKeys, Error> {
    let mut key = zeroize::Zeroizing::new([0; 32]);
    provider.random.fill(&mut *key).map_err(|e| misuse(&e.into()))?;
    CookieKeys::new(&*key).map_err(|e| misuse(&e))
}

fn public_key(item: &Item) -> Result<PublicKeyInfo, dunlin_pki::Error> {
    match item {
        Item::Certificate(der) => CertificateInfo::from_der(der).map(|c| c.public_key),
        Item::PublicKey(der) => PublicKeyInfo::from_der(der),
        Item::PrivateKey(pair) => PublicKeyInfo::from_der(pair.public_key()),
        _ => Err(dunlin_pki::Error::missing("certificate or key")),
    }
}

/// The schemes by which a key signs. RSA signs handshakes and certificates in two ways (RFC 8446 §4.2.3).
fn schemes_of(key: &PublicKeyInfo) -> Vec<SignatureScheme> {
    use SignatureScheme as S;
    match key.algorithm.as_str() {
        "P-384" => vec![S::ECDSA_SECP384R1_SHA384],
        "P-521" => vec![S::ECDSA_SECP521R1_SHA512],
        "Ed25519" => vec![S::ED25519],
        "ML-DSA-44" => vec![S::MLDSA44],
        "ML-DSA-65" => vec![S::MLDSA65],
        pss if pss.starts_with("RSA-PSS ") => {
            vec![S::RSA_PSS_PSS_SHA256, S::RSA_PSS_PSS_SHA384, S::RSA_PSS_PSS_SHA512]
        }
        rsa if rsa.starts_with("RSA ") => vec![S::RSA_PSS_RSAE_SHA256, S::RSA_PKCS1_SHA256],
        _ => vec![S::ECDSA_SECP256R1_SHA256],
    }
}

impl ServerOptions {
    /// The maximum of early data.
    fn early_data(&self) -> Result<Option<u32>, Error> {
        let Some(size) = self.early_data else { return Ok(None) };
        if self.num_tickets == 0 {
            let why = "early data needs a resumption, and resumption needs tickets";
            return Err(Error::usage("--early-data", why, "leave --num-tickets 0 out"));
        }
        Ok(Some(size))
    }

    fn tickets(&self, provider: Arc<CryptoProvider>) -> Result<Tickets, Error> {
        let lifetime = self.ticket_lifetime.unwrap_or(dunlin::resume::DEFAULT_LIFETIME);
        if lifetime > dunlin::resume::MAX_LIFETIME {
            return Err(Error::usage(
                "--ticket-lifetime",
                "tickets live for at most seven days (RFC 8446 §4.6.1)",
                "give at most 604800",
            ));
        }
        let tickets = match (self.num_tickets, self.stateful_tickets) {
            (0, _) => return Ok(Tickets::none()),
            (_, true) => Tickets::stateful(Arc::new(dunlin_store::MemoryServerSessions::new(MAX_SESSIONS))),
            (_, false) => {
                let mut seal = dunlin_store::RotatingTickets::new(provider).map_err(|e| misuse(&e))?;
                if self.early_data.is_some() {
                    // The register starts with the keys, so it knows all uses of their tickets.
                    let register = dunlin_store::MemoryUseOnce::with_new_keys(MAX_SESSIONS);
                    seal = seal.with_single_use(SingleUse::Register(Arc::new(register)));
                }
                Tickets::stateless(Arc::new(seal.with_period(lifetime)))
            }
        };
        Ok(tickets.count(self.num_tickets).lifetime(lifetime))
    }
}
