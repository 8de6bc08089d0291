//! One error type in classes, and one table from error to alert.
//!
//! The class says who has to act: the peer broke the protocol ([`PeerMisbehaved`], [`Malformed`]), the two sides
//! have no common ground ([`PeerIncompatible`]), the peer did not prove who it is ([`AuthenticationFailure`]),
//! the caller asked for something impossible ([`Misuse`]), or a part below us failed ([`Internal`]).

use alloc::string::String;
use alloc::vec::Vec;

use crate::crypto::{CryptoError, ProviderFault};
use crate::wire::{
    AlertDescription, CertificateType, ExtensionType, FieldTooLong, HandshakeType, NamedGroup,
    ProtocolVersion,
};

mod alert;
mod text;

pub use crate::wire::{Malformed, Unit, What};
pub use text::Code;

/// Why a connection failed, or a call was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Bytes that are not what they should be: `decode_error`; or more than this side takes: `illegal_parameter`.
    Malformed(Malformed),
    /// The peer broke the protocol.
    PeerMisbehaved(PeerMisbehaved),
    /// No common parameters.
    PeerIncompatible(PeerIncompatible),
    /// The peer is not who it should be, or cannot prove it.
    Authentication(AuthenticationFailure),
    /// The peer sent this fatal alert.
    AlertReceived(AlertDescription),
    /// The transport ended without close_notify: data may be cut off (RFC 8446 §6.1).
    Truncated,
    /// The caller did something that is not possible, now or ever.
    Misuse(Misuse),
    /// A fault below us that is not the peer's.
    Internal(Internal),
}

/// A breach of the protocol by the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerMisbehaved {
    /// A handshake message that has no place now; what was expected.
    UnexpectedMessage {
        /// What came.
        got: HandshakeType,
        /// What the state waits for.
        expected: What,
    },
    /// A record of a type that has no place now.
    UnexpectedRecord(What),
    /// A record that is larger than the protocol or the agreed limit allows.
    RecordOverflow,
    /// A record that does not decrypt.
    BadRecordMac,
    /// A record with no content in a place where that is refused, or too many of them.
    EmptyRecord,
    /// Too many records or messages of a kind that does no work.
    Flood(What),
    /// A message that goes on across a change of keys (RFC 8446 §5.1).
    NotAlignedAtKeyChange,
    /// Another message was begun where the peer has to wait for our answer.
    ExcessHandshakeData,
    /// An extension twice in one message.
    DuplicateExtension(ExtensionType),
    /// An extension that may not stand in this message (RFC 8446 §4.2).
    MisplacedExtension(ExtensionType),
    /// An answer to an extension that was not offered.
    UnsolicitedExtension(ExtensionType),
    /// A required extension is missing.
    MissingExtension(ExtensionType),
    /// pre_shared_key is not the last extension (RFC 8446 §4.2.11).
    PskNotLast,
    /// A field with a value that the protocol forbids here; which.
    IllegalParameter(What),
    /// The version was chosen below what both sides speak (RFC 8446 §4.1.3).
    Downgrade,
    /// A retry that asks for nothing new (RFC 8446 §4.1.4).
    PointlessRetry,
    /// A second HelloRetryRequest.
    SecondRetry,
    /// A choice that was not offered; of what.
    NotOffered(What),
    /// A Finished with the wrong value.
    BadFinished,
    /// A PSK binder with the wrong value.
    BadBinder,
    /// A session that another connection resumed at the same time.
    SessionUsedTwice,
    /// A signature over the handshake that does not verify.
    BadSignature,
    /// A key share that is no valid share.
    BadKeyShare,
    /// A share of a finite field that is out of its range (RFC 7919 §5.1).
    BadFieldShare,
    /// A server of TLS 1.2 that proves nothing asks the client who it is (RFC 5246 §7.4.4).
    AnonymousRequest,
    /// A compressed Certificate that does not decompress to what it announces, or announces too much.
    BadCompression,
    /// More early data than can be skipped.
    TooMuchSkippedEarlyData,
    /// More early data than the ticket allows.
    TooMuchEarlyData,
    /// Early data was accepted under other parameters than those of the session; which.
    EarlyDataMismatch(What),
}

/// Nothing in common.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerIncompatible {
    /// No common version; what the peer has, if it said.
    Version(Option<ProtocolVersion>),
    /// No common cipher suite.
    CipherSuite,
    /// No common group.
    Group,
    /// A client of TLS 1.2 names finite fields, and none is ours (RFC 7919 §4).
    Field,
    /// A server of TLS 1.2 chose a finite field that is none of ours; its length in bits (RFC 7919 §3).
    FiniteField(usize),
    /// The common cipher suites of TLS 1.2 prove the server by a key of another kind than ours, or by none.
    SuiteAuthentication,
    /// The client has a cipher suite of TLS 1.2 and a signature scheme for our key, and not its curve (RFC 8422 §5.1).
    CurveOfKey(NamedGroup),
    /// No common signature scheme for any of our credentials.
    SignatureScheme,
    /// No common certificate type, of whichever side is to prove itself.
    CertificateType {
        /// The types that are possible here.
        ours: Vec<CertificateType>,
        /// The types that are possible for the peer.
        theirs: Vec<CertificateType>,
    },
    /// No common application protocol.
    ApplicationProtocol,
    /// None of our credentials suits this peer; the reason for the last one.
    NoCredential(What),
    /// The peer offers no PSK that is known here, and there is no other way.
    NoPsk,
    /// A client of TLS 1.2 chose no key for the hint of the server, or one that is not for this version.
    NoPskForHint,
    /// No PSK key exchange mode in common.
    PskMode,
    /// A PSK that is known here goes with no common cipher suite: their hashes are others (RFC 8446 §4.2.11).
    PskHash,
    /// A peer of TLS 1.2 does not bind the master secret to the handshake (RFC 7627), which is required here.
    ExtendedMasterSecret,
    /// A peer of TLS 1.2 does not know secure renegotiation, or does not begin with a first handshake (RFC 5746).
    SecureRenegotiation,
    /// The client fell back to TLS 1.2 though both sides speak TLS 1.3 (RFC 7507).
    Fallback,
    /// No service under the name asked for.
    ServerName,
    /// The caller's answer refused this client.
    Refused,
}

/// Which check of the peer's identity failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthenticationFailure {
    /// The peer sent no certificate where one is required.
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
    /// The certificate is for other names.
    NameMismatch {
        /// The name that was wanted.
        wanted: String,
        /// The host names, addresses and URIs that it has.
        names: Vec<String>,
    },
    /// The certificate may not be used for this role.
    WrongPurpose,
    /// The certificate is an authority's, which proves nobody's identity in a handshake.
    CaAsEndEntity,
    /// The key of the certificate may not be used for signatures.
    WrongKeyUsage,
    /// The chain breaks a constraint of its issuers.
    ConstraintViolated,
    /// There are more authorities between the certificate and the trust anchors than this side allows
    /// ([`crate::auth::X509Trust::with_max_depth`]).
    ChainTooLong,
    /// An RSA key of the chain is too short to prove anything.
    KeyTooShort(ShortKey),
    /// The certificate is revoked.
    Revoked,
    /// There is no revocation list of the issuer of a certificate.
    UnknownRevocationStatus,
    /// The revocation list of an issuer is overdue: there should be a newer one.
    OverdueRevocationList,
    /// A revocation list was not signed by the issuer that it names.
    BadRevocationList,
    /// The algorithm of a key or signature is not supported.
    UnsupportedAlgorithm,
    /// What should be a raw public key is none.
    BadRawKey,
    /// The raw public key is not among the trusted ones.
    UnknownRawKey,
    /// A certificate type that was not asked for or has no trust settings.
    UnsupportedType(CertificateType),
    /// The caller's own verification said no; its words.
    Rejected(String),
    /// The same, with the alert that the caller wants to be sent.
    RejectedWith(AlertDescription, String),
}

/// A certificate that is not valid now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfDate {
    /// Its place in the peer's chain: 0 is the leaf. `None` where that is not known.
    pub index: Option<usize>,
    /// The common name of its subject, where it has one.
    pub common_name: Option<String>,
    /// The end of its validity that is past, or the beginning that is to come, in seconds since 1970.
    pub limit_s: u64,
}

/// An RSA key that is too short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortKey {
    /// Its length in bits. At least 2048 are required.
    pub bits: usize,
    /// The common name of the authority whose key it is; `None` for the peer's own key, or an authority without a name.
    pub common_name: Option<String>,
}

/// A call or configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// Data was sent before the handshake was complete.
    HandshakeNotComplete,
    /// Data was sent after close_notify.
    SendClosed,
    /// The caller ended the connection with an alert.
    Aborted,
    /// The peer has not acknowledged the last KeyUpdate yet: there can be no other (RFC 9147 §5.8.4).
    KeyUpdateWaits,
    /// Data is longer than what one datagram carries.
    DataTooLong {
        /// How long it may be, in bytes.
        max: usize,
    },
    /// Too many datagrams wait: transmit them first.
    OutputFull,
    /// An answer for a question that is not open.
    NoSuchQuestion,
    /// An answer of another kind than the question.
    WrongAnswer,
    /// A value does not fit its field on the wire.
    FieldTooLong,
    /// An exporter was asked for more than 255 hash lengths.
    ExporterLength,
    /// An exporter was asked for under a label that TLS itself uses (RFC 5705 §6).
    ExporterLabel,
    /// The configuration contradicts itself; how.
    Config(String),
    /// The provider is not consistent.
    Provider(ProviderFault),
    /// The call is not possible on this kind of connection.
    NotSupported(What),
}

/// A fault below the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Internal {
    /// The provider failed.
    Crypto,
    /// The caller could not answer a question (store down, signer gone).
    QuestionFailed,
    /// The sequence numbers or keys of a direction are used up and cannot be renewed.
    KeyExhausted,
    /// Something that cannot happen; reported instead of a panic. Which.
    Bug(What),
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
