//! Profiles: named, immutable sets of parameters, validated once when they are built.
//!
//! A profile is what both roles share: what is offered or accepted, how this side proves itself, whom it
//! believes. A server can have several and choose one for each client ([`crate::Question::ChooseProfile`]).

use crate::sync::Arc;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::rules;
use crate::auth::verifier::Verifiers;
use crate::auth::{Credential, Trust};
use crate::compression::{self, CertificateCompressor, CertificateDecompressor};
use crate::crypto::{CryptoProvider, KeyExchangeGroup, RsaEncryption, Tls12CipherSuite, Tls13CipherSuite};
use crate::error::{Error, Misuse};
use crate::handshake::tls12::{HANDSHAKES, Handshakes};
use crate::keylog::KeyLog;
use crate::settings::{ProfileSettings, Tls12};
use crate::wire::{CertificateType, PskKeyExchangeMode, SignatureScheme};

/// A named, immutable set of security parameters. Clones share it.
#[derive(Clone)]
pub struct Profile {
    pub(crate) settings: Arc<ProfileSettings>,
    /// What handles TLS 1.2: only a profile with suites for it names that, so that no other program links it.
    pub(crate) tls12: Option<&'static Handshakes>,
}

impl Profile {
    /// A profile with the provider's preferences: its cipher suites, groups and signature schemes, no credential
    /// and no trust, PSK only with (EC)DHE, compatibility mode on.
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
                peer_types: None,
                own_types: None,
                decompressors: Vec::new(),
                compressed: Vec::new(),
                reserved: Vec::new(),
                request_ocsp: false,
                stapled: Vec::new(),
                psk_modes: alloc::vec![PskKeyExchangeMode::PSK_DHE_KE],
                alpn: Vec::new(),
                record_size_limit: None,
                max_fragment_length: None,
                max_sent_record: None,
                compatibility_mode: true,
                send_authorities: false,
                named_authorities: Vec::new(),
                key_update_after: None,
                key_log: None,
                provider,
            },
            compressors: Vec::new(),
            extended_master_secret_required: true,
            renegotiation: false,
            rsa: None,
            legacy_lab: false,
            tls12_part: None,
            check_provider: true,
            foreign_key: None,
        }
    }

    /// The lean profile for constrained devices: one suite, one group, one signature scheme (in chains, too), no
    /// compatibility mode. The smallest offers that still mean the same.
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
        builder.profile.compatibility_mode = false;
        builder
    }

    /// Its name, for logs and decisions.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Its strength relative to other profiles of one server: higher is stronger.
    pub fn rank(&self) -> i32 {
        self.settings.rank
    }

    /// Its provider.
    pub fn provider(&self) -> &Arc<CryptoProvider> {
        &self.settings.provider
    }
}

/// Builds a [`Profile`]; nothing is in force before [`ProfileBuilder::build`] has checked it as a whole.
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
    check_provider: bool,
    /// The first credential whose private key is another one's.
    foreign_key: Option<usize>,
}

/// What a profile reaches by its suites of TLS 1.2 alone.
#[derive(Clone, Copy, Debug)]
struct Tls12Part {
    handshakes: &'static Handshakes,
    /// What is wrong with the suites.
    fault: fn(&ProfileSettings) -> Option<String>,
}

impl ProfileBuilder {
    /// A name, for logs and decisions.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.profile.name = name.into();
        self
    }

    /// The strength relative to other profiles of one server: higher is stronger.
    pub fn rank(mut self, rank: i32) -> Self {
        self.profile.rank = rank;
        self
    }

    /// The cipher suites of TLS 1.3, in order of preference. With none, TLS 1.3 is not spoken, and those of TLS 1.2 are
    /// all there is.
    pub fn cipher_suites(mut self, suites: Vec<&'static Tls13CipherSuite>) -> Self {
        self.profile.cipher_suites = suites;
        self
    }

    /// The cipher suites of TLS 1.2, in order of preference. With none, the default, TLS 1.2 is neither spoken nor linked.
    /// A server speaks it only with clients that do not offer a TLS 1.3 that it has, too.
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

    /// Whether a peer of TLS 1.2 must bind the master secret to the handshake (RFC 7627), which is the default: without,
    /// connections can be made to share a secret, and what is exported or resumed does not say with whom.
    pub fn extended_master_secret_required(mut self, on: bool) -> Self {
        self.extended_master_secret_required = on;
        self
    }

    /// Whether a peer of TLS 1.2 may begin another handshake within a connection: a client by a ClientHello, a server by a
    /// HelloRequest. By default it hears no_renegotiation. Only secure renegotiation is done (RFC 5746), and nobody becomes
    /// somebody else by it.
    pub fn renegotiation(mut self, on: bool) -> Self {
        self.renegotiation = on;
        self
    }

    /// With what a client encrypts its secret in suites of TLS 1.2 with RSA as key exchange, which it does not offer without. A
    /// server has a credential whose key decrypts ([`crate::crypto::SigningKey::decryption`]).
    pub fn rsa_encryption(mut self, rsa: &'static dyn RsaEncryption) -> Self {
        self.rsa = Some(rsa);
        self
    }

    /// The groups for key exchange, in order of preference; none is possible with PSKs alone.
    pub fn groups(mut self, groups: Vec<&'static dyn KeyExchangeGroup>) -> Self {
        self.profile.groups = groups;
        self
    }

    /// The signature schemes that are verified, in order of preference: in handshakes, where TLS 1.3 and not TLS 1.2 allows no
    /// RSA PKCS#1, and in chains unless [`Self::certificate_signature_schemes`] says otherwise.
    pub fn signature_schemes(mut self, schemes: Vec<SignatureScheme>) -> Self {
        self.profile.signature_schemes = schemes;
        self
    }

    /// The signature schemes that are verified in chains, where they are not the same as in handshakes, in order of
    /// preference (`signature_algorithms_cert`, RFC 8446 §4.2.3). `None`, the default: they are the same.
    pub fn certificate_signature_schemes(mut self, schemes: Option<Vec<SignatureScheme>>) -> Self {
        self.profile.certificate_signature_schemes = schemes;
        self
    }

    /// How this side proves who it is, in order of preference: the first that suits the peer is used. A private key that is here
    /// must be the one of its certificate or raw key.
    pub fn credentials(mut self, credentials: Vec<Credential>) -> Self {
        // Checked here and not among the rules: programs without credentials do not link the check.
        self.foreign_key = credentials.iter().position(|credential| !credential.has_its_own_key());
        self.profile.credentials = credentials;
        self
    }

    /// Whom this side believes.
    pub fn trust(mut self, trust: Trust) -> Self {
        self.profile.trust = trust.into();
        self
    }

    /// The types of certificate that the peer may send, in order of preference (RFC 7250 §4). Each must be trusted.
    /// `None`, the default: all that are trusted, the smaller first.
    pub fn peer_certificate_types(mut self, types: Option<Vec<CertificateType>>) -> Self {
        self.profile.peer_types = types;
        self
    }

    /// The types of certificate that a client says it can send, in order of preference (RFC 7250 §4.1). `None`, the
    /// default: those of its credentials, in their order.
    pub fn own_certificate_types(mut self, types: Option<Vec<CertificateType>>) -> Self {
        self.profile.own_types = types;
        self
    }

    /// How our Certificate messages may be compressed, in order of preference: the first that the peer reads is used,
    /// where it makes the message smaller (RFC 8879). None by default. Every credential is compressed here, once.
    pub fn certificate_compressors(mut self, compressors: Vec<&'static dyn CertificateCompressor>) -> Self {
        self.compressors = compressors;
        self
    }

    /// What the peer may compress its Certificate message with, in order of preference (RFC 8879). None by default.
    pub fn certificate_decompressors(
        mut self,
        decompressors: Vec<&'static dyn CertificateDecompressor>,
    ) -> Self {
        self.profile.decompressors = decompressors;
        self
    }

    /// Reserves the credential at this place, counted from 0, for peers that name an authority of its chain
    /// (RFC 8446 §4.2.4, §4.4.2.3): nobody else learns of it.
    pub fn reserve_credential(mut self, credential: usize) -> Self {
        self.profile.reserved.push(credential);
        self
    }

    /// Whether a client asks for an OCSP response with the server's certificate (RFC 8446 §4.4.2.1). The engine does not
    /// judge it: [`crate::Question::Verify`] shows it.
    pub fn request_ocsp(mut self, on: bool) -> Self {
        self.profile.request_ocsp = on;
        self
    }

    /// The OCSP response in DER that a server sends with its credential at this place, counted from 0, to clients that ask
    /// for one. It replaces an earlier one.
    pub fn ocsp_response(mut self, credential: usize, response: Vec<u8>) -> Self {
        self.profile.stapled.retain(|(index, _)| *index != credential);
        self.profile.stapled.push((credential, response));
        self
    }

    /// How PSKs may be used. psk_ke has no forward secrecy: say so where you allow it.
    pub fn psk_modes(mut self, modes: Vec<PskKeyExchangeMode>) -> Self {
        self.profile.psk_modes = modes;
        self
    }

    /// Application protocols, in order of preference (RFC 7301).
    pub fn alpn(mut self, protocols: Vec<Vec<u8>>) -> Self {
        self.profile.alpn = protocols;
        self
    }

    /// The largest record to receive, in bytes of content with its type: 64 to 16385 (RFC 8449). Not sent if `None`.
    pub fn record_size_limit(mut self, limit: Option<u16>) -> Self {
        self.profile.record_size_limit = limit;
        self
    }

    /// The largest record that a client sends and receives, in bytes of content: 512, 1024, 2048 or 4096 (RFC 6066 §4). Not
    /// offered if `None`. It is for servers that do not know [`Self::record_size_limit`], which goes first where both are
    /// offered (RFC 8449 §5). A server does what the client wishes, without being told here.
    pub fn max_fragment_length(mut self, length: Option<u16>) -> Self {
        self.profile.max_fragment_length = length;
        self
    }

    /// The largest record to send over a stream, in bytes of content: 64 to 16384, which it is if nothing is said. A receiver
    /// can use nothing of a record before all of it is there: on a slow link small ones come earlier.
    pub fn max_sent_record(mut self, content: Option<u16>) -> Self {
        self.profile.max_sent_record = content;
        self
    }

    /// Whether a client looks like TLS 1.2 to middleboxes (RFC 8446 §D.4): a session ID and ChangeCipherSpec, 44
    /// bytes in all. Servers echo what the client does.
    pub fn compatibility_mode(mut self, on: bool) -> Self {
        self.profile.compatibility_mode = on;
        self
    }

    /// Whether to tell the peer the names of the trust anchors (RFC 8446 §4.2.4).
    pub fn send_authorities(mut self, on: bool) -> Self {
        self.profile.send_authorities = on;
        self
    }

    /// Names of authorities to tell the peer, each an X.501 name in DER: where the anchors are elsewhere
    /// ([`crate::auth::X509Trust::Ask`]), or with [`Self::send_authorities`] beside theirs.
    pub fn named_authorities(mut self, names: Vec<Vec<u8>>) -> Self {
        self.profile.named_authorities = names;
        self
    }

    /// Replace the sending keys after this many records, if that comes before the limit of the cipher
    /// (RFC 8446 §5.5). TLS 1.2 cannot replace them: a connection ends at the limit.
    pub fn key_update_after(mut self, records: Option<u64>) -> Self {
        self.profile.key_update_after = records;
        self
    }

    /// Where the secrets go for debugging. Whoever has them reads the traffic.
    pub fn key_log(mut self, log: Option<Arc<dyn KeyLog>>) -> Self {
        self.profile.key_log = log;
        self
    }

    /// Allows what is obsolete: suites with static RSA, without authentication, or with DSA, and finite fields of one's own. It
    /// protects nothing: it is there to be measured, in a laboratory. A connection says nothing of it, so whoever calls this
    /// has to.
    #[cfg(feature = "legacy-lab")]
    pub fn danger_legacy_lab(mut self) -> Self {
        self.legacy_lab = true;
        self
    }

    /// Does not test the provider: for fuzzing with one that does no cryptography.
    pub fn danger_skip_provider_check(mut self) -> Self {
        self.check_provider = false;
        self
    }

    /// The profile, if it is sound.
    ///
    /// # Errors
    /// The first rule that it breaks, in words.
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
        self.profile.compressed = compression::prepare(&self.profile.credentials, &self.compressors)?;
        Ok(Profile { settings: Arc::new(self.profile), tls12: self.tls12_part.map(|part| part.handshakes) })
    }
}
impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}
