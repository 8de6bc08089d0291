//! One error type with a variant for each class, and a table of their alerts, labels and texts.
//!
//! The class tells whose fault it is. The peer broke the protocol ([`PeerMisbehaved`], [`Malformed`]), or did
//! not prove its identity ([`AuthenticationFailure`]). Both sides share no parameters ([`PeerIncompatible`]).
//! The caller asked for something impossible ([`Misuse`]). The provider, a store or the engine itself failed
//! ([`Internal`]).

use alloc::string::String;
use alloc::vec::Vec;

use crate::crypto::{CryptoError, ProviderFault};
use crate::wire::{
    AlertDescription, CertificateType, ExtensionType, FieldTooLong, HandshakeType, NamedGroup,
    ProtocolVersion,
};

mod table;

pub use crate::wire::{Field, Malformed, Unit};
pub use table::Code;

/// Why a connection failed, or why the engine rejected a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The peer's message does not parse (`decode_error`), or exceeds a limit of this side
    /// (`illegal_parameter`).
    Malformed(Malformed),
    /// The peer broke the protocol.
    PeerMisbehaved(PeerMisbehaved),
    /// Both sides have no common parameters.
    PeerIncompatible(PeerIncompatible),
    /// The peer does not have the expected identity, or cannot prove it.
    Authentication(AuthenticationFailure),
    /// The peer sent this fatal alert.
    AlertReceived(AlertDescription),
    /// The transport ended without close_notify, so data may be missing (RFC 8446 §6.1).
    Truncated,
    /// The peer did not answer a flight, although this side retransmitted it (RFC 9147 §5.8). Over datagrams
    /// only.
    TimedOut,
    /// The caller asked for something that is impossible now, or always.
    Misuse(Misuse),
    /// The provider, a store or the engine itself failed; the peer is not at fault.
    Internal(Internal),
}

/// A breach of the protocol by the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerMisbehaved {
    /// The peer sent another handshake message than this side expects.
    UnexpectedMessage {
        /// The message that the peer sent.
        got: HandshakeType,
        /// The message that this side expects.
        expected: Field,
    },
    /// The peer sent a bare DID where this side has asked for a verifiable credential.
    DidForCredential,
    /// The peer sent a verifiable credential where this side has asked for a bare DID.
    CredentialForDid,
    /// A record of a type that is not allowed at this point.
    UnexpectedRecord(Field),
    /// A record that is larger than the protocol or the negotiated limit allows.
    RecordOverflow,
    /// A record that does not decrypt.
    BadRecordMac,
    /// A handshake or alert record without content.
    EmptyRecord,
    /// Too many records or messages that have no effect.
    Flood(Field),
    /// A message that spans a change of keys (RFC 8446 §5.1).
    NotAlignedAtKeyChange,
    /// The peer began another message although it must wait for the answer of this side.
    ExcessHandshakeData,
    /// An extension that appears twice in one message.
    DuplicateExtension(ExtensionType),
    /// An extension that is not allowed in this message (RFC 8446 §4.2).
    MisplacedExtension(ExtensionType),
    /// An answer to an extension that this side did not offer.
    UnsolicitedExtension(ExtensionType),
    /// A required extension is missing.
    MissingExtension(ExtensionType),
    /// pre_shared_key is not the last extension (RFC 8446 §4.2.11).
    PskNotLast,
    /// A field has a value that the protocol forbids.
    IllegalParameter(Field),
    /// The server chose a lower version although both sides support a higher one (RFC 8446 §4.1.3).
    Downgrade,
    /// A HelloRetryRequest that asks for no change (RFC 8446 §4.1.4).
    PointlessRetry,
    /// A second HelloRetryRequest.
    SecondRetry,
    /// The peer chose a parameter that this side did not offer.
    NotOffered(Field),
    /// A Finished with the wrong value.
    BadFinished,
    /// A PSK binder with the wrong value.
    BadBinder,
    /// Another connection has resumed the same session at the same time.
    SessionUsedTwice,
    /// A signature over the handshake that does not verify.
    BadSignature,
    /// An invalid key share.
    BadKeyShare,
    /// A finite-field share outside the valid range (RFC 7919 §5.1).
    BadFieldShare,
    /// An anonymous TLS 1.2 server asks for a client certificate (RFC 5246 §7.4.4).
    AnonymousRequest,
    /// A compressed Certificate that does not decompress to the announced length, or announces too large a
    /// length.
    BadCompression,
    /// More refused early data than this side skips.
    TooMuchSkippedEarlyData,
    /// More early data than the ticket allows.
    TooMuchEarlyData,
    /// The server accepted early data, but this parameter differs from the session's.
    EarlyDataMismatch(Field),
}

/// A parameter for which the two sides have no common value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerIncompatible {
    /// No common version. Contains the peer's version, if the peer named one.
    Version(Option<ProtocolVersion>),
    /// No common cipher suite.
    CipherSuite,
    /// No common group.
    Group,
    /// A TLS 1.2 client names finite-field groups, and this server supports none of them (RFC 7919 §4).
    Field,
    /// A TLS 1.2 server chose a finite field that this client does not support (RFC 7919 §3). Contains its
    /// length in bits.
    FiniteField(usize),
    /// The common TLS 1.2 cipher suites do not fit the server's key: they need another kind of key, or none.
    SuiteAuthentication,
    /// A TLS 1.2 client supports a cipher suite and a signature scheme for the server's key, but not the
    /// key's curve (RFC 8422 §5.1).
    CurveOfKey(NamedGroup),
    /// No common signature scheme for any credential of this side.
    SignatureScheme,
    /// No common certificate type for the client or the server.
    CertificateType {
        /// The types that this side supports.
        ours: Vec<CertificateType>,
        /// The types that the peer supports.
        theirs: Vec<CertificateType>,
    },
    /// No common application protocol.
    ApplicationProtocol,
    /// No credential of this side suits the peer. Contains the reason for the last one.
    NoCredential(Field),
    /// The client offers no PSK that the server knows, and there is no other way to authenticate.
    NoPsk,
    /// The TLS 1.2 client found no PSK for the server's hint, or only one that is not for this version.
    NoPskForHint,
    /// No PSK key exchange mode in common.
    PskMode,
    /// The server knows the client's PSK, but no common cipher suite has the PSK's hash (RFC 8446 §4.2.11).
    PskHash,
    /// This side requires extended master secret (RFC 7627), and the TLS 1.2 peer does not support it.
    ExtendedMasterSecret,
    /// A TLS 1.2 peer does not support secure renegotiation, or renegotiates in its first handshake (RFC
    /// 5746).
    SecureRenegotiation,
    /// The client fell back to TLS 1.2 although both sides support TLS 1.3 (RFC 7507).
    Fallback,
    /// The server has no service under the requested name.
    ServerName,
    /// The client requested no server name, and the server needs one (RFC 8446 §9.2).
    NoServerName,
    /// The caller refused this client in its answer to a question.
    Refused,
    /// The profile that served this client has a lower rank than its identity demands, or than the anonymous
    /// default if it has proven none ([`crate::ServerProfiles`]).
    Rank,
    /// The client's identity demands a stronger profile, and it sent data before the renegotiation to that
    /// profile.
    DataBeforeRenegotiation,
}

/// The check of the peer's identity that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthenticationFailure {
    /// The peer sent no certificate although this side requires one.
    NoCertificate,
    /// The certificate is damaged.
    BadEncoding,
    /// A certificate of the chain is not valid yet.
    NotValidYet(OutOfDate),
    /// A certificate of the chain has expired.
    Expired(OutOfDate),
    /// No path to a trust anchor.
    UnknownIssuer,
    /// A signature in the chain does not verify.
    BadChainSignature,
    /// The certificate does not contain the expected name.
    NameMismatch {
        /// The name that the client expects.
        wanted: String,
        /// The host names, addresses and URIs in the certificate.
        names: Vec<String>,
    },
    /// The certificate's extended key usage does not allow the peer's role.
    WrongPurpose,
    /// The peer's certificate is a CA certificate, which is not valid as an end-entity certificate.
    CaAsEndEntity,
    /// The certificate's key usage does not allow the use of the key in this handshake.
    WrongKeyUsage,
    /// The chain violates a constraint of one of its CAs.
    ConstraintViolated,
    /// There are more CAs between the certificate and the trust anchors than this side allows
    /// ([`crate::auth::X509Trust::with_max_depth`]).
    ChainTooLong,
    /// More than 12 certificates of the chain, or more than 2 with one subject and key identifier, could be
    /// on a path to a trust anchor, and none of the first ones is.
    TooManyCertificates,
    /// This side has verified 8 signatures of the chain without finding a path to a trust anchor.
    TooManyVerifications,
    /// An RSA key in the chain is too short to be secure.
    KeyTooShort(ShortKey),
    /// The peer's own certificate is revoked.
    Revoked,
    /// The certificate of an authority of the chain is revoked. Contains the authority's common name, if it has
    /// one.
    RevokedAuthority(Option<String>),
    /// No CRL of a certificate's issuer covers the certificate.
    UnknownRevocationStatus,
    /// The CRL's thisUpdate is in the future.
    FutureRevocationList,
    /// The CRL's nextUpdate has passed: its issuer should have published a newer one.
    OverdueRevocationList,
    /// The CRL's signature does not verify with the key of the issuer that it names.
    BadRevocationList,
    /// The keyUsage of a certificate's issuer does not allow it to sign CRLs.
    NotRevocationListIssuer,
    /// This side does not support the algorithm of a signature. Contains the AlgorithmIdentifier in DER
    /// without its header, as in
    /// [`signature_alg_id`](pki_types::SignatureVerificationAlgorithm::signature_alg_id); empty if it is very
    /// long.
    UnsupportedAlgorithm(Vec<u8>),
    /// A certificate of the chain has a critical extension that this side does not support.
    UnsupportedExtension,
    /// A certificate of the chain is not of X.509 version 3.
    UnsupportedVersion,
    /// The type or size of the certificate's key is not supported.
    UnsupportedKey,
    /// The raw public key does not parse.
    BadRawKey,
    /// The raw public key is not among the trusted ones.
    UnknownRawKey,
    /// A certificate type that this side did not ask for, or for which it has no trust settings.
    UnsupportedType(CertificateType),
    /// The caller's own verification rejected the peer. Contains the caller's reason.
    Rejected(String),
    /// As [`Self::Rejected`], with the alert that the caller wants to send.
    RejectedWith(AlertDescription, String),
}

/// A certificate outside its validity period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfDate {
    /// Its index in the peer's chain, 0 for the leaf. `None` if unknown.
    pub index: Option<usize>,
    /// The common name of its subject, if it has one.
    pub common_name: Option<String>,
    /// The date that failed: the past notAfter, or the future notBefore, in seconds since 1970.
    pub limit_s: u64,
}

/// An RSA key that is too short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortKey {
    /// Its length in bits. At least 2048 are required.
    pub bits: usize,
    /// The common name of the CA that has the key. `None` for the peer's own key, or for a CA without a
    /// common name.
    pub common_name: Option<String>,
}

/// An invalid call or configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The caller sent data before the handshake was complete.
    HandshakeNotComplete,
    /// The caller sent data after close_notify.
    SendClosed,
    /// The caller ended the connection with an alert.
    Aborted,
    /// The caller asked for a KeyUpdate while the peer has not acknowledged the previous one (RFC 9147
    /// §5.8.4).
    KeyUpdateWaits,
    /// The data does not fit into one datagram.
    DataTooLong {
        /// The most data that fits, in bytes.
        max: usize,
    },
    /// Too many datagrams wait in the output: transmit them first.
    OutputFull,
    /// The caller answered a question that is not open.
    NoSuchQuestion,
    /// The caller's answer does not fit the kind of question.
    WrongAnswer,
    /// A value does not fit its field on the wire.
    FieldTooLong,
    /// The caller asked an exporter for more than 255 hash lengths.
    ExporterLength,
    /// The caller asked an exporter for a label that TLS itself uses (RFC 5705 §6).
    ExporterLabel,
    /// The configuration is invalid. Contains the reason.
    Config(String),
    /// The provider failed its consistency check.
    Provider(ProviderFault),
    /// This kind of connection does not support the call.
    NotSupported(Field),
    /// The peer has not acknowledged a message, a message of the peer is incomplete, or output waits. A
    /// connection that was thawed after [`crate::DtlsConnection::freeze`] could not send it again.
    FlightWaits,
    /// The association continues elsewhere ([`crate::DtlsConnection::freeze`]).
    Frozen,
    /// The association was frozen under other settings: trusted certificates, CRLs, client authentication, a
    /// client's server name, or its pre-shared key.
    OtherSettings,
    /// The endpoint has an association with this address already.
    AddressInUse,
    /// The endpoint has as many associations as its limit allows.
    EndpointFull,
}

/// A failure of the provider, of a store, or of the engine itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Internal {
    /// The provider failed.
    Crypto,
    /// The caller could not answer a question, for instance because a store or signer is unreachable.
    QuestionFailed,
    /// The sequence numbers or keys of one direction are exhausted, and this side cannot renew them.
    KeyExhausted,
    /// A bug in the engine, which reports it instead of panicking.
    Bug(Field),
}

macro_rules! from {
    ($($class:ident => $variant:ident),*) => {
        $(impl From<$class> for Error {
            fn from(e: $class) -> Self {
                Self::$variant(e)
            }
        })*
    };
}
from!(Malformed => Malformed, PeerMisbehaved => PeerMisbehaved, PeerIncompatible => PeerIncompatible,
      AuthenticationFailure => Authentication, Misuse => Misuse, Internal => Internal);

impl From<FieldTooLong> for Error {
    fn from(_: FieldTooLong) -> Self {
        Self::Misuse(Misuse::FieldTooLong)
    }
}

impl From<CryptoError> for Error {
    fn from(_: CryptoError) -> Self {
        Self::Internal(Internal::Crypto)
    }
}

impl From<ProviderFault> for Error {
    fn from(e: ProviderFault) -> Self {
        Self::Misuse(Misuse::Provider(e))
    }
}

impl core::error::Error for Error {}
