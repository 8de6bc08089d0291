//! One error type in classes, and one table from error to alert.
//!
//! The class says who has to act: the peer broke the protocol ([`PeerMisbehaved`], [`Malformed`]), the two sides
//! have no common ground ([`PeerIncompatible`]), the peer did not prove who it is ([`AuthenticationFailure`]),
//! the caller asked for something impossible ([`Misuse`]), or a part below us failed ([`Internal`]).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::crypto::{CryptoError, ProviderFault};
use crate::wire::{
    AlertDescription, CertificateType, ExtensionType, FieldTooLong, HandshakeType, NamedGroup,
    ProtocolVersion,
};

mod alert;

pub use crate::wire::Malformed;

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
        expected: &'static str,
    },
    /// A record of a type that has no place now.
    UnexpectedRecord(&'static str),
    /// A record that is larger than the protocol or the agreed limit allows.
    RecordOverflow,
    /// A record that does not decrypt.
    BadRecordMac,
    /// A record with no content in a place where that is refused, or too many of them.
    EmptyRecord,
    /// Too many records or messages of a kind that does no work.
    Flood(&'static str),
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
    IllegalParameter(&'static str),
    /// The version was chosen below what both sides speak (RFC 8446 §4.1.3).
    Downgrade,
    /// A retry that asks for nothing new (RFC 8446 §4.1.4).
    PointlessRetry,
    /// A second HelloRetryRequest.
    SecondRetry,
    /// A choice that was not offered; of what.
    NotOffered(&'static str),
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
    EarlyDataMismatch(&'static str),
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
    NoCredential(&'static str),
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

impl fmt::Display for OutOfDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.index, &self.common_name) {
            (Some(0), _) => f.write_str("its certificate"),
            (_, Some(name)) => write!(f, "the certificate of {name} in its chain"),
            (_, None) => f.write_str("a certificate of its chain"),
        }
    }
}

/// An RSA key that is too short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortKey {
    /// Its length in bits. At least 2048 are required.
    pub bits: usize,
    /// The common name of the authority whose key it is; `None` for the peer's own key, or an authority without a name.
    pub common_name: Option<String>,
}

impl fmt::Display for ShortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.common_name {
            Some(name) => write!(f, "the RSA key of {name}, an authority of its chain,")?,
            None => f.write_str("its RSA key")?,
        }
        write!(f, " has {} bits, and at least 2048 are required", self.bits)
    }
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
    NotSupported(&'static str),
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
    Bug(&'static str),
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(e @ Malformed::AboveLimit { .. }) => {
                write!(f, "the peer sent more than the limit of this side: {e}")
            }
            Self::Malformed(e) => write!(f, "malformed message from the peer: {e}"),
            Self::PeerMisbehaved(e) => write!(f, "the peer broke the protocol: {e}"),
            Self::PeerIncompatible(e) => write!(f, "nothing in common with the peer: {e}"),
            Self::Authentication(e) => write!(f, "the peer is not accepted: {e}"),
            Self::AlertReceived(a) => write!(f, "the peer refused: it sent the alert {a}"),
            Self::Truncated => f.write_str("the connection ended without close_notify: data may be cut off"),
            Self::Misuse(e) => write!(f, "{e}"),
            Self::Internal(e) => write!(f, "{e}"),
        }
    }
}

impl fmt::Display for PeerMisbehaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnexpectedMessage { got, expected } => write!(f, "{got} came where {expected} is expected"),
            Self::UnexpectedRecord(what) => write!(f, "a record that has no place here: {what}"),
            Self::RecordOverflow => f.write_str("a record is larger than allowed"),
            Self::BadRecordMac => f.write_str("a record does not decrypt"),
            Self::EmptyRecord => f.write_str("an empty record"),
            Self::Flood(what) => write!(f, "too many {what}"),
            Self::NotAlignedAtKeyChange => f.write_str("a message goes on across a change of keys"),
            Self::ExcessHandshakeData => f.write_str("another message begins where an answer is due first"),
            Self::DuplicateExtension(t) => write!(f, "the extension {t} stands twice"),
            Self::MisplacedExtension(t) => write!(f, "the extension {t} may not stand in this message"),
            Self::UnsolicitedExtension(t) => write!(f, "the extension {t} was not offered"),
            Self::MissingExtension(t) => write!(f, "the extension {t} is missing"),
            Self::PskNotLast => f.write_str("pre_shared_key is not the last extension"),
            Self::IllegalParameter(what) => write!(f, "illegal {what}"),
            Self::Downgrade => f.write_str("the version was forced below what both sides speak"),
            Self::PointlessRetry => f.write_str("a HelloRetryRequest that asks for nothing new"),
            Self::SecondRetry => f.write_str("a second HelloRetryRequest"),
            Self::NotOffered(what) => write!(f, "a {what} was chosen that was not offered"),
            Self::BadFinished => f.write_str("Finished does not verify"),
            Self::SessionUsedTwice => f.write_str("the session was resumed by another connection meanwhile"),
            Self::BadBinder => f.write_str("the PSK binder does not verify: the keys differ"),
            Self::BadSignature => f.write_str("the signature in CertificateVerify does not verify"),
            Self::BadKeyShare => f.write_str("a key share is not valid"),
            Self::BadFieldShare => f.write_str("a key share is out of the range of its field"),
            Self::AnonymousRequest => f.write_str("an anonymous server asks for a certificate"),
            Self::BadCompression => f.write_str("a compressed certificate does not decompress to its length"),
            Self::TooMuchSkippedEarlyData => f.write_str("too much early data after it was refused"),
            Self::TooMuchEarlyData => f.write_str("more early data than the ticket allows"),
            Self::EarlyDataMismatch(what) => {
                write!(f, "early data was accepted with another {what} than it was sent for")
            }
        }
    }
}

impl fmt::Display for PeerIncompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(None) => f.write_str("no common version"),
            Self::Version(Some(v)) => write!(f, "no common version, the peer has {v}"),
            Self::CipherSuite => f.write_str("no common cipher suite"),
            Self::Field => f.write_str("no common finite field"),
            Self::Group => f.write_str("no common group"),
            Self::FiniteField(bits) => write!(f, "a finite field of {bits} bits that is none of ours"),
            Self::SuiteAuthentication => f.write_str("no common cipher suite for our kind of key"),
            Self::CurveOfKey(curve) => write!(f, "it does not have the curve of our key, {curve}"),
            Self::SignatureScheme => f.write_str("no common signature scheme"),
            Self::CertificateType { ours, theirs } => {
                f.write_str("no common certificate type: ")?;
                list(f, ours)?;
                f.write_str(" here, ")?;
                list(f, theirs)?;
                f.write_str(" there")
            }
            Self::ApplicationProtocol => f.write_str("no common application protocol"),
            Self::NoCredential(why) => write!(f, "none of our credentials suits: {why}"),
            Self::NoPsk => f.write_str("no common pre-shared key, and no other way to authenticate"),
            Self::NoPskForHint => f.write_str("no pre-shared key of ours was chosen for this server"),
            Self::PskMode => f.write_str("no common PSK key exchange mode"),
            Self::PskHash => f.write_str("no common cipher suite with the hash of the pre-shared key"),
            Self::ExtendedMasterSecret => f.write_str("it does not have the extended master secret"),
            Self::SecureRenegotiation => f.write_str("it does not have secure renegotiation"),
            Self::Fallback => f.write_str("it fell back to TLS 1.2 without need"),
            Self::ServerName => f.write_str("there is no service under the name asked for"),
            Self::Refused => f.write_str("this client was refused by policy"),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, types: &[CertificateType]) -> fmt::Result {
    for (i, typ) in types.iter().enumerate() {
        write!(f, "{}{typ}", if i == 0 { "" } else { " or " })?;
    }
    Ok(())
}

impl fmt::Display for AuthenticationFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCertificate => f.write_str("it sent no certificate"),
            Self::BadRawKey => f.write_str("what should be its raw public key is none"),
            Self::BadEncoding => f.write_str("its certificate is damaged"),
            Self::NotValidYet(certificate) => write!(f, "{certificate} is not valid yet"),
            Self::Expired(certificate) => write!(f, "{certificate} has expired"),
            Self::UnknownIssuer => f.write_str("its chain leads to no trusted CA"),
            Self::BadChainSignature => f.write_str("a signature in its chain does not verify"),
            Self::NameMismatch { wanted, .. } => write!(f, "its certificate is not for {wanted}"),
            Self::CaAsEndEntity => f.write_str("its certificate is an authority's, which serves as no leaf"),
            Self::WrongPurpose => f.write_str("its certificate may not be used for this role"),
            Self::ConstraintViolated => f.write_str("its chain breaks a constraint of its issuers"),
            Self::ChainTooLong => f.write_str("its chain has more authorities than allowed"),
            Self::KeyTooShort(key) => write!(f, "{key}"),
            Self::Revoked => f.write_str("its certificate is revoked"),
            Self::UnknownRevocationStatus => {
                f.write_str("there is no revocation list of an issuer of its chain")
            }
            Self::OverdueRevocationList => {
                f.write_str("the revocation list of an issuer of its chain is overdue")
            }
            Self::BadRevocationList => {
                f.write_str("the revocation list of an issuer of its chain has a wrong signature")
            }
            Self::UnsupportedAlgorithm => f.write_str("an algorithm in its chain is not supported"),
            Self::UnknownRawKey => f.write_str("its raw public key is not among the trusted ones"),
            Self::UnsupportedType(t) => {
                write!(f, "it sent a certificate of the type {t}, which is not trusted")
            }
            Self::WrongKeyUsage => f.write_str("its certificate's key may not sign"),
            Self::RejectedWith(_, why) | Self::Rejected(why) => write!(f, "{why}"),
        }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HandshakeNotComplete => f.write_str("the handshake is not complete"),
            Self::Aborted => f.write_str("the connection was ended from this side"),
            Self::SendClosed => f.write_str("the sending direction is closed"),
            Self::KeyUpdateWaits => f.write_str("the peer has not acknowledged the last KeyUpdate yet"),
            Self::DataTooLong { max } => write!(f, "the data is too long: one datagram carries {max} bytes"),
            Self::OutputFull => f.write_str("too many datagrams wait: transmit them first"),
            Self::NoSuchQuestion => f.write_str("no such question is open"),
            Self::WrongAnswer => f.write_str("the answer does not fit the question"),
            Self::FieldTooLong => f.write_str("a value is too long for its field"),
            Self::ExporterLength => f.write_str("an exporter gives at most 255 hash lengths"),
            Self::ExporterLabel => f.write_str("this exporter label is reserved: TLS itself uses it"),
            Self::Config(why) => write!(f, "configuration: {why}"),
            Self::Provider(e) => write!(f, "{e}"),
            Self::NotSupported(what) => write!(f, "not possible here: {what}"),
        }
    }
}

impl fmt::Display for Internal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crypto => f.write_str("a cryptographic operation failed"),
            Self::QuestionFailed => f.write_str("a store, verifier or signer could not answer"),
            Self::KeyExhausted => f.write_str("the keys of this direction are used up"),
            Self::Bug(what) => write!(f, "internal error: {what}"),
        }
    }
}
