//! Profiles: named, immutable sets of security parameters, validated once when they are built.
//!
//! A profile contains the settings that both roles share: what this side offers or accepts, its credentials,
//! and its trust. A server can have several profiles and choose one for each client
//! ([`crate::Question::ChooseProfile`]).

use crate::sync::Arc;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::rules;
use crate::auth::{Credential, Verifiers, x509};
#[cfg(feature = "compression")]
use crate::compression::CertificateDecompressor;
use crate::compression::{self, CertificateCompressor};
use crate::crypto::{CryptoProvider, KeyExchangeGroup, RsaEncryption, Tls12CipherSuite, Tls13CipherSuite};
use crate::error::{Error, Misuse};
use crate::handshake::negotiate::ssi_parameters::{SSI_STEPS, SsiSteps};
use crate::handshake::tls12::Handshakes;
use crate::handshake::tls12_table::HANDSHAKES;
use crate::keylog::KeyLog;
use crate::settings::{
    CertificateSettings, ProfileSettings, PskSettings, ReadDetails, RecordSettings, SsiMessages, Tls12,
};
use crate::wire::{CertificateType, PskKeyExchangeMode, SignatureScheme};

/// A named, immutable set of security parameters. Clones share the data.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use dunlin::wire::SignatureScheme;
/// use dunlin::{ClientConfig, Profile};
/// use dunlin_awslc::{TLS13_AES_128_CCM_SHA256, X25519};
///
/// # fn main() -> Result<(), dunlin::Error> {
/// let provider = Arc::new(dunlin_awslc::provider());
/// // Everything that the provider has:
/// let full = Profile::builder(provider.clone()).build()?;
/// // One suite, one group and one signature scheme, for small messages:
/// let lean = Profile::lean(provider, &TLS13_AES_128_CCM_SHA256, X25519, SignatureScheme::ED25519).build()?;
/// assert_eq!((full.name(), lean.name()), ("default", "lean"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Profile {
    pub(crate) settings: Arc<ProfileSettings>,
    /// The TLS 1.2 handshakes. Only a profile with TLS 1.2 suites points to them, so other programs do not
    /// link them.
    pub(crate) tls12: Option<&'static Handshakes>,
    /// The steps of ssi_parameters. Only a profile that uses it points to them.
    pub(crate) ssi: Option<&'static SsiSteps>,
}

impl Profile {
    /// Starts a profile with all cipher suites, groups and signature schemes of the provider, in its order of
    /// preference. It has no credential and no trust, allows PSKs only with (EC)DHE, and has compatibility
    /// mode on.
    pub fn builder(provider: Arc<CryptoProvider>) -> ProfileBuilder {
        let signature_schemes = provider.signatures.schemes.iter().map(|(s, _)| *s).collect();
        ProfileBuilder {
            profile: ProfileSettings {
                name: "default".into(),
                rank: 0,
                cipher_suites: provider.cipher_suites.clone(),
                tls12: None,
                groups: provider.groups.clone(),
                signature_schemes,
                certificate_signature_schemes: None,
                chain_algorithms: Vec::new(),
                credentials: Vec::new(),
                trust: Verifiers::default(),
                x509_details: None,
                ssi: SsiMessages::Off,
                certificates: CertificateSettings::default(),
                psk: PskSettings {
                    modes: alloc::vec![PskKeyExchangeMode::PSK_DHE_KE],
                    tls_cert_with_extern_psk: false,
                    extern_psk_required: false,
                },
                alpn: Vec::new(),
                records: RecordSettings {
                    record_size_limit: None,
                    max_fragment_length: None,
                    max_sent_record: None,
                    compatibility_mode: true,
                    key_update_after: None,
                },
                key_log: None,
                provider,
            },
            compressors: Vec::new(),
            extended_master_secret_required: true,
            renegotiation: false,
            rsa: None,
            legacy_lab: false,
            tls12_part: None,
            ssi_steps: None,
            check_provider: true,
            foreign_key: None,
        }
    }

    /// Starts the lean profile for constrained devices: one suite, one group, one signature scheme (in
    /// chains, too), and no compatibility mode. This keeps the hello messages as small as possible.
    pub fn lean(
        provider: Arc<CryptoProvider>,
        cipher_suite: &'static Tls13CipherSuite,
        group: &'static dyn KeyExchangeGroup,
        signature_scheme: SignatureScheme,
    ) -> ProfileBuilder {
        let mut builder = Self::builder(provider);
        builder.profile.name = "lean".into();
        builder.profile.cipher_suites = alloc::vec![cipher_suite];
        builder.profile.groups = alloc::vec![group];
        builder.profile.signature_schemes = alloc::vec![signature_scheme];
        builder.profile.records.compatibility_mode = false;
        builder
    }

    /// Its name, for logs and decisions.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Its strength relative to the other profiles of the same server: higher is stronger.
    pub fn rank(&self) -> i32 {
        self.settings.rank
    }

    /// Its crypto provider.
    pub fn provider(&self) -> &Arc<CryptoProvider> {
        &self.settings.provider
    }
}

/// Builds a [`Profile`]. [`ProfileBuilder::build`] checks all settings together.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use dunlin::Profile;
///
/// # fn main() -> Result<(), dunlin::Error> {
/// let provider = Arc::new(dunlin_awslc::provider());
/// let builder = Profile::builder(provider).name("web").alpn(vec![b"h2".to_vec(), b"http/1.1".to_vec()]);
/// let profile = builder.clone().build()?;
/// assert_eq!(profile.name(), "web");
/// // A profile that breaks a rule is not built.
/// assert!(builder.cipher_suites(vec![]).build().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ProfileBuilder {
    profile: ProfileSettings,
    compressors: Vec<&'static dyn CertificateCompressor>,
    extended_master_secret_required: bool,
    renegotiation: bool,
    rsa: Option<&'static dyn RsaEncryption>,
    legacy_lab: bool,
    tls12_part: Option<Tls12Part>,
    ssi_steps: Option<&'static SsiSteps>,
    check_provider: bool,
    /// The first credential whose private key does not belong to its certificate.
    foreign_key: Option<usize>,
}

/// The code to which only profiles with TLS 1.2 suites point.
#[derive(Clone, Copy, Debug)]
struct Tls12Part {
    handshakes: &'static Handshakes,
    /// Returns the first fault in the suites.
    fault: fn(&ProfileSettings) -> Option<String>,
}

impl ProfileBuilder {
    /// Sets the name, for logs and decisions.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.profile.name = name.into();
        self
    }

    /// Sets the strength relative to the other profiles of the same server: higher is stronger. The default
    /// is 0. A session resumes only under profiles of the rank under which it was made, or of a lower one.
    pub fn rank(mut self, rank: i32) -> Self {
        self.profile.rank = rank;
        self
    }

    /// Sets the TLS 1.3 cipher suites, in order of preference. With an empty list, the profile does not speak
    /// TLS 1.3 and needs TLS 1.2 suites.
    pub fn cipher_suites(mut self, suites: Vec<&'static Tls13CipherSuite>) -> Self {
        self.profile.cipher_suites = suites;
        self
    }

    /// Sets the TLS 1.2 cipher suites, in order of preference. With an empty list, the default, TLS 1.2 is
    /// neither spoken nor linked. A server with TLS 1.3 speaks TLS 1.2 only with clients that do not offer
    /// TLS 1.3.
    pub fn tls12_cipher_suites(mut self, suites: Vec<&'static Tls12CipherSuite>) -> Self {
        self.profile.tls12 = (!suites.is_empty()).then_some(Tls12 {
            suites,
            extended_master_secret_required: true,
            renegotiation: false,
            rsa: None,
            legacy_lab: false,
        });
        let part = || Tls12Part { handshakes: &HANDSHAKES, fault: rules::tls12_fault };
        self.tls12_part = self.profile.tls12.as_ref().map(|_| part());
        self
    }

    /// Sets whether TLS 1.2 peers must use the extended master secret (RFC 7627). The default is true.
    /// Without it, an attacker can make two connections share a master secret, so exported keys and resumed
    /// sessions do not identify the peer.
    pub fn extended_master_secret_required(mut self, on: bool) -> Self {
        self.extended_master_secret_required = on;
        self
    }

    /// Sets whether a TLS 1.2 peer may begin a renegotiation: a client by a ClientHello, a server by a
    /// HelloRequest. By default this side answers with no_renegotiation. The engine supports only secure
    /// renegotiation (RFC 5746), which cannot change an identity that the peer has proven.
    pub fn renegotiation(mut self, on: bool) -> Self {
        self.renegotiation = on;
        self
    }

    /// Sets the RSA encryption with which a client sends its secret in TLS 1.2 suites with static RSA.
    /// Without it, the client does not offer these suites. A server needs a credential whose key can decrypt
    /// ([`crate::crypto::SigningKey::decryption`]) instead.
    pub fn rsa_encryption(mut self, rsa: &'static dyn RsaEncryption) -> Self {
        self.rsa = Some(rsa);
        self
    }

    /// Sets the groups for key exchange, in order of preference. The list may be empty if the profile allows
    /// only psk_ke.
    pub fn groups(mut self, groups: Vec<&'static dyn KeyExchangeGroup>) -> Self {
        self.profile.groups = groups;
        self
    }

    /// Sets the signature schemes that this side verifies, in order of preference. They apply to handshakes,
    /// and to chains unless [`Self::certificate_signature_schemes`] is set. TLS 1.3 handshakes do not use RSA
    /// PKCS#1 v1.5, even if it is listed.
    pub fn signature_schemes(mut self, schemes: Vec<SignatureScheme>) -> Self {
        self.profile.signature_schemes = schemes;
        self
    }

    /// Sets the signature schemes that this side verifies in chains, in order of preference
    /// (`signature_algorithms_cert`, RFC 8446 §4.2.3). With `None`, the default, they are the same as in
    /// handshakes.
    pub fn certificate_signature_schemes(mut self, schemes: Option<Vec<SignatureScheme>>) -> Self {
        self.profile.certificate_signature_schemes = schemes;
        self
    }

    /// Sets the credentials by which this side authenticates, in order of preference. It uses the first that
    /// suits the peer. A private key in memory must belong to the certificate or raw public key of its
    /// credential.
    pub fn credentials(mut self, credentials: Vec<Credential>) -> Self {
        // Checked here and not among the rules, so that programs without credentials do not link the check.
        self.foreign_key = credentials.iter().position(|credential| !credential.has_its_own_key());
        self.profile.credentials = credentials;
        self
    }

    /// Sets which certificates and raw public keys of peers this side trusts: a [`Trust`](crate::Trust), or
    /// [`Verifiers`] with the application's verifiers.
    pub fn trust(mut self, trust: impl Into<Verifiers>) -> Self {
        self.profile.trust = trust.into();
        self
    }

    /// Sets whether identities keep subject, issuer, e-mail addresses and the issuer's key of the peer's leaf
    /// ([`crate::auth::X509Details`]), also through resumptions and the handshake cache, which drop the
    /// chain. Off by default: tickets and cache entries are longer with them, and a peer whose names are too
    /// long for a ticket gets none.
    pub fn x509_details(mut self, on: bool) -> Self {
        self.profile.x509_details = on.then_some(x509::details as ReadDetails);
        self
    }

    /// Sets whether decentralised identities travel in messages of their own (docs/identity.md). By default
    /// they do not. A client asks its server for the first type of decentralised identity that it trusts, a
    /// server its client for the first that suits both. The server may then show a certificate instead, and
    /// so may the client, which the profile accepts only if it trusts certificates.
    pub fn ssi_messages(mut self, ssi: SsiMessages) -> Self {
        self.profile.ssi = ssi;
        self.ssi_steps = ssi.is_on().then_some(&SSI_STEPS);
        self
    }

    /// Sets the certificate types that the peer may send, in order of preference (RFC 7250 §4). The profile
    /// must trust each type. With `None`, the default, these are all trusted types, the smaller first.
    pub fn peer_certificate_types(mut self, types: Option<Vec<CertificateType>>) -> Self {
        self.profile.certificates.peer_types = types;
        self
    }

    /// Sets the certificate types that a client offers to send, in order of preference (RFC 7250 §4.1). With
    /// `None`, the default, these are the types of its credentials, in their order.
    pub fn own_certificate_types(mut self, types: Option<Vec<CertificateType>>) -> Self {
        self.profile.certificates.own_types = types;
        self
    }

    /// Sets the compressors for this side's Certificate messages, in order of preference (RFC 8879). This
    /// side uses the first that the peer supports, if it makes the message smaller. There are none by
    /// default. [`Self::build`] compresses every credential once. Needs the feature `compression`.
    #[cfg(feature = "compression")]
    pub fn certificate_compressors(mut self, compressors: Vec<&'static dyn CertificateCompressor>) -> Self {
        self.compressors = compressors;
        self
    }

    /// Sets the decompressors for the peer's Certificate messages, in order of preference (RFC 8879). There
    /// are none by default. Needs the feature `compression`.
    #[cfg(feature = "compression")]
    pub fn certificate_decompressors(
        mut self,
        decompressors: Vec<&'static dyn CertificateDecompressor>,
    ) -> Self {
        self.profile.certificates.decompressors = decompressors;
        self
    }

    /// Reserves the credential at this index, counted from 0, for peers that name an authority of its chain
    /// (RFC 8446 §4.2.4, §4.4.2.3). This side does not show it to other peers.
    pub fn reserve_credential(mut self, credential: usize) -> Self {
        self.profile.certificates.reserved.push(credential);
        self
    }

    /// Sets whether a client requests an OCSP response with the server's certificate (RFC 8446 §4.4.2.1). The
    /// engine does not check the response; it passes it to the caller in [`crate::Question::Verify`].
    pub fn request_ocsp(mut self, on: bool) -> Self {
        self.profile.certificates.request_ocsp = on;
        self
    }

    /// Sets the OCSP response, in DER, that a server sends with the credential at this index, counted from 0,
    /// to clients that request one. It replaces an earlier response.
    pub fn ocsp_response(mut self, credential: usize, response: Vec<u8>) -> Self {
        self.profile.certificates.stapled.retain(|(index, _)| *index != credential);
        self.profile.certificates.stapled.push((credential, response));
        self
    }

    /// Sets the allowed PSK key exchange modes. The default is psk_dhe_ke. Connections with psk_ke have no
    /// forward secrecy.
    pub fn psk_modes(mut self, modes: Vec<PskKeyExchangeMode>) -> Self {
        self.profile.psk.modes = modes;
        self
    }

    /// Sets whether an external PSK and certificates work together (RFC 8773, successor RFC 9973).
    /// Certificates then authenticate as in a handshake without PSKs, and the PSK goes into the keys. An
    /// attacker who can later break the key exchange still cannot decrypt the recorded traffic. Off by
    /// default.
    ///
    /// Both sides need this setting, and the same external PSK. If the server does not know the PSK, the
    /// handshake continues with certificates alone. If the server lacks the setting, the PSK alone
    /// authenticates both sides, so do not share one PSK among clients.
    /// [`crate::Negotiated::external_psk_added`] has the outcome. A client with this setting and an external
    /// PSK resumes no sessions and sends no early data. A client without a certificate stays anonymous.
    pub fn tls_cert_with_extern_psk(mut self, on: bool) -> Self {
        self.profile.psk.tls_cert_with_extern_psk = on;
        self
    }

    /// Requires an external PSK beside certificates: [`Self::tls_cert_with_extern_psk`], and a handshake
    /// without such a PSK fails, in which certificates alone or the PSK alone would authenticate. A session
    /// resumes only if its first handshake had one that is still known. Without this, an attacker who removes
    /// the extension from the ClientHello, which is in the clear, ends the handshake, but a peer without the
    /// PSK gets a connection.
    pub fn require_extern_psk(mut self) -> Self {
        self.profile.psk.tls_cert_with_extern_psk = true;
        self.profile.psk.extern_psk_required = true;
        self
    }

    /// Sets the application protocols (ALPN), in order of preference (RFC 7301).
    pub fn alpn(mut self, protocols: Vec<Vec<u8>>) -> Self {
        self.profile.alpn = protocols;
        self
    }

    /// Sets the largest record that this side wants to receive, in bytes of content with its type: 64 to
    /// 16385 (RFC 8449). With `None` this side does not send the extension.
    pub fn record_size_limit(mut self, limit: Option<u16>) -> Self {
        self.profile.records.record_size_limit = limit;
        self
    }

    /// Sets the largest record that a client sends and receives, in bytes of content: 512, 1024, 2048 or 4096
    /// (RFC 6066 §4). With `None` the client does not offer the extension. It is for servers without
    /// [`Self::record_size_limit`], which takes precedence if the client offers both (RFC 8449 §5). A server
    /// always follows the client's request.
    pub fn max_fragment_length(mut self, length: Option<u16>) -> Self {
        self.profile.records.max_fragment_length = length;
        self
    }

    /// Sets the largest record that this side sends over a stream, in bytes of content: 64 to 16384, the
    /// default. A receiver can decrypt only complete records, so small records make data available earlier on
    /// a slow link.
    pub fn max_sent_record(mut self, content: Option<u16>) -> Self {
        self.profile.records.max_sent_record = content;
        self
    }

    /// Sets whether a client looks like TLS 1.2 to middleboxes (RFC 8446 §D.4). A session ID and a
    /// ChangeCipherSpec cost 44 bytes in all. Servers follow the client.
    pub fn compatibility_mode(mut self, on: bool) -> Self {
        self.profile.records.compatibility_mode = on;
        self
    }

    /// Sets whether this side sends the names of its trust anchors to the peer (RFC 8446 §4.2.4).
    pub fn send_authorities(mut self, on: bool) -> Self {
        self.profile.certificates.send_authorities = on;
        self
    }

    /// Sets names of authorities to send to the peer, each an X.501 name in DER. They are for anchors outside
    /// the profile ([`crate::auth::X509Trust::Ask`]). [`Self::send_authorities`] adds the names of the
    /// profile's anchors.
    pub fn named_authorities(mut self, names: Vec<Vec<u8>>) -> Self {
        self.profile.certificates.named_authorities = names;
        self
    }

    /// Sets the number of records after which this side replaces its sending keys, if that is below the
    /// cipher's limit (RFC 8446 §5.5). TLS 1.2 cannot replace keys, so its connections end at the cipher's
    /// limit.
    pub fn key_update_after(mut self, records: Option<u64>) -> Self {
        self.profile.records.key_update_after = records;
        self
    }

    /// Sets a log for the secrets of connections, for debugging. A reader of this log can decrypt the
    /// traffic.
    pub fn key_log(mut self, log: Option<Arc<dyn KeyLog>>) -> Self {
        self.profile.key_log = log;
        self
    }

    /// Allows obsolete algorithms: suites with static RSA, without authentication or with DSA, and private
    /// finite fields. They protect nothing and are only for measurements in a laboratory. Connections do not
    /// report their use, so the caller must warn its users.
    #[cfg(feature = "legacy-lab")]
    pub fn danger_legacy_lab(mut self) -> Self {
        self.legacy_lab = true;
        self
    }

    /// Skips the self-test of the provider. It is for fuzzing with a provider that does no cryptography.
    pub fn danger_skip_provider_check(mut self) -> Self {
        self.check_provider = false;
        self
    }

    /// Builds the profile after checking all rules.
    ///
    /// # Errors
    /// [`Misuse::Config`] with the first rule that the profile breaks, or an error of the provider's
    /// self-test or of certificate compression.
    pub fn build(mut self) -> Result<Profile, Error> {
        if self.check_provider {
            let ProfileSettings { provider, cipher_suites, groups, .. } = &self.profile;
            provider.check()?;
            provider.check_others(cipher_suites, groups)?;
            let tls12 = self.profile.tls12.iter().flat_map(|tls12| &tls12.suites);
            tls12.copied().try_for_each(CryptoProvider::check_tls12)?;
        }
        if let Some(tls12) = &mut self.profile.tls12 {
            tls12.extended_master_secret_required = self.extended_master_secret_required;
            tls12.renegotiation = self.renegotiation;
            tls12.rsa = self.rsa;
            tls12.legacy_lab = self.legacy_lab;
        }
        if let Some(index) = self.foreign_key {
            let name = &self.profile.name;
            let why = format!(
                "profile {name}: the private key of credential {index} is not the key of its certificate: give the two that \
                 belong together"
            );
            return Err(Misuse::Config(why).into());
        }
        rules::check(&self.profile)?;
        if let Some(why) = self.tls12_part.and_then(|part| (part.fault)(&self.profile)) {
            return Err(rules::broken(&self.profile, why));
        }
        let signatures = self.profile.provider.signatures;
        self.profile.chain_algorithms = signatures.for_chains(self.profile.chain_schemes());
        self.profile.certificates.compressed =
            compression::prepare(&self.profile.credentials, &self.compressors)?;
        let tls12 = self.tls12_part.map(|part| part.handshakes);
        Ok(Profile { settings: Arc::new(self.profile), tls12, ssi: self.ssi_steps })
    }
}
impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}
