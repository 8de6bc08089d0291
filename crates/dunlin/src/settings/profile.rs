//! The settings of a profile as plain data: cipher suites, groups, signature schemes, credentials and trust.

use crate::sync::Arc;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use pki_types::SignatureVerificationAlgorithm;

use crate::auth::{Credential, Verifiers, X509Details};
use crate::compression::{self, CertificateDecompressor, Prepared};
use crate::crypto::{
    CryptoProvider, HashAlgorithm, KeyExchangeGroup, RsaEncryption, Tls12CipherSuite, Tls13CipherSuite,
};
use crate::extension::record_size_limit::RecordSizeLimit;
use crate::keylog::KeyLog;
use crate::settings::SsiMessages;
use crate::wire::{
    CertificateCompressionAlgorithm, CertificateType, CipherSuite, MAX_PLAINTEXT, NamedGroup,
    ProtocolVersion, PskKeyExchangeMode, SignatureScheme,
};

/// Reads the details of a certificate in DER.
pub(crate) type ReadDetails = fn(&[u8]) -> Option<X509Details>;

/// The settings of a profile as plain data. [`crate::Profile`] is their public interface.
#[derive(Clone)]
pub(crate) struct ProfileSettings {
    pub(crate) name: String,
    pub(crate) rank: i32,
    pub(crate) provider: Arc<CryptoProvider>,
    /// The TLS 1.3 cipher suites. An empty list disables TLS 1.3.
    pub(crate) cipher_suites: Vec<&'static Tls13CipherSuite>,
    pub(crate) tls12: Option<Tls12>,
    pub(crate) groups: Vec<&'static dyn KeyExchangeGroup>,
    pub(crate) signature_schemes: Vec<SignatureScheme>,
    /// The schemes for chains, if they differ from `signature_schemes`.
    pub(crate) certificate_signature_schemes: Option<Vec<SignatureScheme>>,
    /// The algorithms that signatures in a chain may use.
    pub(crate) chain_algorithms: Vec<&'static dyn SignatureVerificationAlgorithm>,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) trust: Verifiers,
    /// Reads what this side keeps of a peer's leaf beside its names. A profile without it does not link the
    /// function.
    pub(crate) x509_details: Option<ReadDetails>,
    /// Whether decentralised identities travel in messages of their own.
    pub(crate) ssi: SsiMessages,
    pub(crate) certificates: CertificateSettings,
    pub(crate) psk: PskSettings,
    pub(crate) alpn: Vec<Vec<u8>>,
    pub(crate) records: RecordSettings,
    pub(crate) key_log: Option<Arc<dyn KeyLog>>,
}

/// The TLS 1.2 settings of a profile.
#[derive(Clone)]
pub(crate) struct Tls12 {
    pub(crate) suites: Vec<&'static Tls12CipherSuite>,
    pub(crate) extended_master_secret_required: bool,
    /// Whether the peer may renegotiate.
    pub(crate) renegotiation: bool,
    /// How a client encrypts its premaster secret, in suites with RSA key exchange.
    pub(crate) rsa: Option<&'static dyn RsaEncryption>,
    /// Whether the profile is for the laboratory, which measures obsolete parameters.
    pub(crate) legacy_lab: bool,
}

/// The settings of Certificate and CertificateRequest messages.
#[derive(Clone, Default)]
pub(crate) struct CertificateSettings {
    /// The peer's certificate types, if they differ from the types of the trust settings.
    pub(crate) peer_types: Option<Vec<CertificateType>>,
    /// This side's certificate types, if they differ from the types of the credentials.
    pub(crate) own_types: Option<Vec<CertificateType>>,
    pub(crate) decompressors: Vec<&'static dyn CertificateDecompressor>,
    /// The compressed Certificate messages.
    pub(crate) compressed: Vec<Prepared>,
    /// The indexes of credentials that this side only sends to peers that name one of their CAs.
    pub(crate) reserved: Vec<usize>,
    pub(crate) request_ocsp: bool,
    /// OCSP responses, each with the index of its credential.
    pub(crate) stapled: Vec<(usize, Vec<u8>)>,
    pub(crate) send_authorities: bool,
    pub(crate) named_authorities: Vec<Vec<u8>>,
}

/// The settings of pre-shared keys.
#[derive(Clone)]
pub(crate) struct PskSettings {
    pub(crate) modes: Vec<PskKeyExchangeMode>,
    pub(crate) tls_cert_with_extern_psk: bool,
    /// Whether a handshake fails without an external PSK beside certificates.
    pub(crate) extern_psk_required: bool,
}

/// The settings of records, and of the session ID that stands in hellos for old middleboxes.
#[derive(Clone)]
pub(crate) struct RecordSettings {
    pub(crate) record_size_limit: Option<u16>,
    pub(crate) max_fragment_length: Option<u16>,
    pub(crate) max_sent_record: Option<u16>,
    pub(crate) compatibility_mode: bool,
    pub(crate) key_update_after: Option<u64>,
}

impl ProfileSettings {
    pub(crate) fn suite(&self, id: CipherSuite) -> Option<&'static Tls13CipherSuite> {
        self.cipher_suites.iter().copied().find(|s| s.id == id)
    }

    /// The first suite that is also in `offered`, with this hash if one is given.
    pub(crate) fn common_suite(
        &self,
        offered: &[CipherSuite],
        hash: Option<HashAlgorithm>,
    ) -> Option<&'static Tls13CipherSuite> {
        let fits = |s: &&Tls13CipherSuite| hash.is_none_or(|h| h == s.hash.algorithm());
        self.cipher_suites.iter().copied().filter(fits).find(|s| offered.contains(&s.id))
    }

    /// Whether the profile enables TLS 1.3 (or DTLS 1.3).
    pub(crate) const fn has_tls13(&self) -> bool {
        !self.cipher_suites.is_empty()
    }

    pub(crate) fn group(&self, name: NamedGroup) -> Option<&'static dyn KeyExchangeGroup> {
        self.groups.iter().copied().find(|g| g.name() == name)
    }

    pub(crate) fn allows_mode(&self, mode: PskKeyExchangeMode) -> bool {
        self.psk.modes.contains(&mode)
    }

    /// Whether a client adds an external PSK to certificates, if it has one to offer (RFC 8773).
    pub(crate) fn adds_external_psk(&self) -> bool {
        self.psk.tls_cert_with_extern_psk && !self.trust.is_empty()
    }

    /// The CA names that this side sends to the peer.
    pub(crate) fn authorities(&self) -> Vec<Vec<u8>> {
        let mut names =
            if self.certificates.send_authorities { self.trust.authorities() } else { Vec::new() };
        names.extend_from_slice(&self.certificates.named_authorities);
        names
    }

    /// The signature schemes for chains.
    pub(crate) fn chain_schemes(&self) -> &[SignatureScheme] {
        self.certificate_signature_schemes.as_ref().unwrap_or(&self.signature_schemes)
    }

    /// The types of credential that the peer may send, in order of preference.
    pub(crate) fn peer_types(&self) -> Vec<CertificateType> {
        self.certificates.peer_types.clone().unwrap_or_else(|| self.trust.types())
    }

    /// Whether the peer may send a credential of this type.
    pub(crate) fn verifies(&self, typ: CertificateType) -> bool {
        self.peer_types().contains(&typ)
    }

    /// Whether a Certificate message may have this type. Verifiable credentials exist only in TLS 1.3.
    pub(crate) fn has_certificates(&self, typ: CertificateType, is_tls13: bool) -> bool {
        self.ssi.leaves(typ) && (is_tls13 || !typ.is_self_sovereign())
    }

    /// The types of credential that a client offers to send, in order of preference.
    pub(crate) fn own_types(&self) -> Vec<CertificateType> {
        self.certificates.own_types.clone().unwrap_or_else(|| {
            let mut types = Vec::new();
            for typ in self.credentials.iter().map(Credential::certificate_type) {
                if !types.contains(&typ) {
                    types.push(typ);
                }
            }
            types
        })
    }

    /// The algorithms that this side can decompress.
    pub(crate) fn decompression_algorithms(&self) -> Vec<CertificateCompressionAlgorithm> {
        self.certificates.decompressors.iter().map(|d| d.algorithm()).collect()
    }

    /// Whether this side reads compressed Certificate messages.
    pub(crate) const fn decompresses(&self) -> bool {
        compression::IS_BUILT && !self.certificates.decompressors.is_empty()
    }

    /// The largest content of a received record, in bytes, if both sides negotiate record_size_limit.
    pub(crate) fn received_content_limit(&self, version: ProtocolVersion) -> usize {
        self.records.record_size_limit.map_or(MAX_PLAINTEXT, |limit| RecordSizeLimit(limit).content(version))
    }
}

impl fmt::Debug for ProfileSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("name", &self.name).field("rank", &self.rank).finish_non_exhaustive()
    }
}
