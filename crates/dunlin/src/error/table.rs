//! All errors in one table: their alerts (RFC 8446 §6.2), labels and texts. A build for a small device omits
//! the texts by disabling the feature `error-text`.
//!
//! A row has a number, the error, the numbers of its details, and the text. Rows of failures of the peer have
//! the alert before the text, and the label if it is not the one of the class. Numbers are stable: a new row
//! gets a new number, and the number of a removed row is never used again.

use core::fmt;

use super::{
    AuthenticationFailure, Error, Internal, Malformed, Misuse, OutOfDate, PeerIncompatible, PeerMisbehaved,
    ShortKey,
};
use crate::crypto::{CryptoError, ProviderFault};
#[cfg(feature = "error-text")]
use crate::wire::CertificateType;
use crate::wire::{AlertDescription as Alert, Field, Unit};

/// The short form of an error: a letter for its class, the number of its row, and the numbers of its details.
/// `P14.2.43` is [`PeerMisbehaved`] number 14 (an illegal parameter), [`Field`] number 2 (an extension),
/// extension 43 (supported_versions).
#[derive(Clone, Copy)]
pub struct Code<'a>(&'a dyn Numbered);

impl fmt::Display for Code<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.code(f)
    }
}

impl fmt::Debug for Code<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.code(f)
    }
}

impl Error {
    /// The code of this error, for logs and for builds without texts.
    pub const fn code(&self) -> Code<'_> {
        Code(self)
    }

    /// The alert that tells the peer of this error. `None` if this side must not send one, because the peer
    /// has closed the connection. The driver, which alone sends alerts, also sends none for a misuse that
    /// leaves the connection usable.
    pub fn alert(&self) -> Option<Alert> {
        use AuthenticationFailure::RejectedWith;
        match self {
            Self::Malformed(e) => Some(e.alert()),
            // RFC 9846 §4.2.3.
            Self::PeerMisbehaved(PeerMisbehaved::IllegalParameter(Field::LegacyVersion)) => {
                Some(Alert::PROTOCOL_VERSION)
            }
            Self::PeerMisbehaved(e) => Some(e.alert()),
            Self::PeerIncompatible(e) => Some(e.alert()),
            // RFC 8446 §6.1: the closure alerts are no errors; the peer would take them for an orderly end.
            Self::Authentication(e @ RejectedWith(Alert::CLOSE_NOTIFY | Alert::USER_CANCELED, _)) => {
                Some(e.alert())
            }
            Self::Authentication(RejectedWith(alert, _)) => Some(*alert),
            Self::Authentication(e) => Some(e.alert()),
            Self::AlertReceived(_) | Self::Truncated | Self::TimedOut => None,
            Self::Misuse(_) | Self::Internal(_) => Some(Alert::INTERNAL_ERROR),
        }
    }

    /// The label of this error in telemetry: a value of gRPC's `TlsTelemetryHandshakeResult` (proposal A118),
    /// the same in all programs that have it.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Malformed(e) => e.label(),
            Self::PeerMisbehaved(e) => e.label(),
            Self::PeerIncompatible(e) => e.label(),
            Self::Authentication(e) => e.label(),
            Self::AlertReceived(alert) => reported(*alert),
            Self::Truncated => "PEER_CONNECTION_CLOSED",
            Self::TimedOut => "HANDSHAKE_TIMEOUT",
            Self::Misuse(_) | Self::Internal(_) => "UNKNOWN_FAILURE",
        }
    }
}

/// The label of the failure of this side that the peer's alert reports.
const fn reported(alert: Alert) -> &'static str {
    match alert {
        Alert::UNEXPECTED_MESSAGE => "UNEXPECTED_MESSAGE",
        Alert::BAD_RECORD_MAC | Alert::DECRYPT_ERROR => "DECRYPTION_FAILED",
        Alert::HANDSHAKE_FAILURE | Alert::INSUFFICIENT_SECURITY => "CIPHER_SUITE_MISMATCH",
        Alert::BAD_CERTIFICATE | Alert::UNSUPPORTED_CERTIFICATE | Alert::CERTIFICATE_UNKNOWN => {
            "CERTIFICATE_VERIFICATION_FAILED"
        }
        Alert::CERTIFICATE_REVOKED => "CERTIFICATE_REVOKED",
        Alert::CERTIFICATE_EXPIRED => "CERTIFICATE_EXPIRED",
        Alert::UNKNOWN_CA => "CERTIFICATE_AUTHORITY_INVALID",
        Alert::PROTOCOL_VERSION => "PROTOCOL_VERSION_UNSUPPORTED",
        Alert::INAPPROPRIATE_FALLBACK => "INAPPROPRIATE_FALLBACK",
        Alert::NO_APPLICATION_PROTOCOL => "NO_APPLICATION_PROTOCOL",
        _ => "UNKNOWN_FAILURE",
    }
}

/// A value with a number in the table.
trait Numbered {
    /// Writes the whole code, including the letter of the class.
    fn code(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    /// Writes the number as part of another code.
    fn part(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code(f)
    }
}

/// Displays an error in a build without texts.
#[cfg(not(feature = "error-text"))]
fn short(f: &mut fmt::Formatter<'_>, error: &dyn Numbered) -> fmt::Result {
    f.write_str("dunlin error ")?;
    error.code(f)
}

macro_rules! plain {
    ($($int:ty),*) => {$(
        impl Numbered for $int {
            fn code(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}
plain!(u8, u16, usize);

/// Declares a class of errors: its letter and its rows.
macro_rules! texts {
    ($class:ident $letter:literal { $($number:literal $pattern:pat $(, [$($about:expr),+])? => $text:literal $(($($arg:expr),+))?,)* }) => {
        impl Numbered for $class {
            fn code(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($letter)?;
                self.part(f)
            }

            #[allow(unused_variables, reason = "the text uses more of the error than the code")]
            fn part(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let number: u16 = match self { $($pattern => $number,)* };
                fmt::Display::fmt(&number, f)?;
                match self {
                    $($pattern => { $($(f.write_str(".")?; $about.part(f)?;)+)? Ok(()) })*
                }
            }
        }

        impl fmt::Display for $class {
            #[cfg(feature = "error-text")]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($pattern => write!(f, $text $(, $($arg),+)?),)* }
            }

            #[cfg(not(feature = "error-text"))]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                short(f, self)
            }
        }

        #[cfg(test)]
        impl tests::Table for $class {
            const LETTER: &'static str = $letter;
            const ROWS: &'static [(u16, &'static str)] = &[$(($number, $text),)*];
        }
    };
}

macro_rules! first {
    ($first:ident $($other:ident)?) => {
        stringify!($first)
    };
}

/// Declares a class of failures of the peer: its letter, its label, and its rows with alerts.
macro_rules! failures {
    ($class:ident $letter:literal $common:ident { $($number:literal $pattern:pat $(, [$($about:expr),+])? => $alert:ident $(/ $label:ident)?, $text:literal $(($($arg:expr),+))?,)* }) => {
        texts!($class $letter { $($number $pattern $(, [$($about),+])? => $text $(($($arg),+))?,)* });

        #[allow(unused_variables, reason = "only the text uses the details")]
        impl $class {
            const fn alert(&self) -> Alert {
                match self { $($pattern => Alert::$alert,)* }
            }

            const fn label(&self) -> &'static str {
                match self { $($pattern => first!($($label)? $common),)* }
            }
        }
    };
}

impl Numbered for Error {
    fn code(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(e) => e.code(f),
            Self::PeerMisbehaved(e) => e.code(f),
            Self::PeerIncompatible(e) => e.code(f),
            Self::Authentication(e) => e.code(f),
            Self::AlertReceived(alert) => {
                f.write_str("E1.")?;
                alert.0.code(f)
            }
            Self::Truncated => f.write_str("E2"),
            Self::TimedOut => f.write_str("E3"),
            Self::Misuse(e) => e.code(f),
            Self::Internal(e) => e.code(f),
        }
    }
}

impl fmt::Display for Error {
    #[cfg(feature = "error-text")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(e @ Malformed::AboveLimit { .. }) => {
                write!(f, "the peer sent more than the limit of this side: {e}")
            }
            Self::Malformed(e) => write!(f, "malformed message from the peer: {e}"),
            Self::PeerMisbehaved(e) => write!(f, "the peer broke the protocol: {e}"),
            Self::PeerIncompatible(e) => write!(f, "incompatible with the peer: {e}"),
            Self::Authentication(e) => write!(f, "the peer is not accepted: {e}"),
            Self::AlertReceived(a) => write!(f, "the peer refused: it sent the alert {a}"),
            Self::Truncated => f.write_str("the connection ended without close_notify: data may be cut off"),
            Self::TimedOut => f.write_str("the peer does not answer: check its address and the network"),
            Self::Misuse(e) => write!(f, "{e}"),
            Self::Internal(e) => write!(f, "{e}"),
        }
    }

    #[cfg(not(feature = "error-text"))]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        short(f, self)
    }
}

failures!(Malformed "M" UNKNOWN_FAILURE {
    // RFC 8446 §4: messages of illegal length are decode errors.
    1 Self::Truncated(what), [what] => DECODE_ERROR, "{what} ends too early",
    2 Self::TrailingBytes(what), [what] => DECODE_ERROR, "bytes after the end of {what}",
    3 Self::Length(what), [what] => DECODE_ERROR, "a length in {what} is not allowed",
    4 Self::Value(what), [what] => DECODE_ERROR, "a value in {what} is not allowed",
    // RFC 8446 §6.2: decode_error is for syntax errors, and the syntax is correct here. OpenSSL and BoringSSL also
    // answer messages above their limits with illegal_parameter.
    5 Self::AboveLimit { what, max, unit }, [what, max] => ILLEGAL_PARAMETER, "{what} has more than {max} {unit}",
});

failures!(PeerMisbehaved "P" UNKNOWN_FAILURE {
    1 Self::UnexpectedMessage { got, expected }, [got.0, expected] => UNEXPECTED_MESSAGE / UNEXPECTED_MESSAGE,
        "it sent {} instead of {expected}" (Field::Message(*got)),
    2 Self::UnexpectedRecord(what), [what] => UNEXPECTED_MESSAGE / UNEXPECTED_MESSAGE, "an unexpected record: {what}",
    3 Self::RecordOverflow => RECORD_OVERFLOW, "a record is larger than allowed",
    4 Self::BadRecordMac => BAD_RECORD_MAC / DECRYPTION_FAILED, "a record does not decrypt",
    5 Self::EmptyRecord => UNEXPECTED_MESSAGE / UNEXPECTED_MESSAGE, "an empty record",
    6 Self::Flood(what), [what] => UNEXPECTED_MESSAGE / UNEXPECTED_MESSAGE, "too many {what}",
    7 Self::NotAlignedAtKeyChange => UNEXPECTED_MESSAGE / UNEXPECTED_MESSAGE, "a message spans a change of keys",
    8 Self::ExcessHandshakeData => UNEXPECTED_MESSAGE / UNEXPECTED_MESSAGE,
        "a message arrived before this side had answered",
    9 Self::DuplicateExtension(t), [t.0] => ILLEGAL_PARAMETER, "the extension {t} appears twice",
    10 Self::MisplacedExtension(t), [t.0] => ILLEGAL_PARAMETER, "the extension {t} is not allowed in this message",
    11 Self::UnsolicitedExtension(t), [t.0] => UNSUPPORTED_EXTENSION, "the extension {t} was not offered",
    12 Self::MissingExtension(t), [t.0] => MISSING_EXTENSION, "the extension {t} is missing",
    13 Self::PskNotLast => ILLEGAL_PARAMETER, "pre_shared_key is not the last extension",
    14 Self::IllegalParameter(what), [what] => ILLEGAL_PARAMETER, "illegal {what}",
    15 Self::Downgrade => ILLEGAL_PARAMETER / INAPPROPRIATE_FALLBACK,
        "the version was downgraded below the newest common one",
    16 Self::PointlessRetry => ILLEGAL_PARAMETER, "a HelloRetryRequest that changes nothing",
    17 Self::SecondRetry => UNEXPECTED_MESSAGE, "a second HelloRetryRequest",
    18 Self::NotOffered(what), [what] => ILLEGAL_PARAMETER, "the chosen {what} was not offered",
    19 Self::BadFinished => DECRYPT_ERROR / DECRYPTION_FAILED, "Finished does not verify",
    20 Self::SessionUsedTwice => DECRYPT_ERROR, "another connection resumed the same session at the same time",
    21 Self::BadBinder => DECRYPT_ERROR / DECRYPTION_FAILED, "the PSK binder does not verify: the keys differ",
    22 Self::BadSignature => DECRYPT_ERROR / SIGNATURE_VERIFICATION_FAILED,
        "the signature over the handshake does not verify",
    23 Self::BadKeyShare => ILLEGAL_PARAMETER / KEY_EXCHANGE_FAILURE, "a key share is not valid",
    // RFC 7919 §3, §4.
    24 Self::BadFieldShare => HANDSHAKE_FAILURE / KEY_EXCHANGE_FAILURE, "a finite-field key share is out of range",
    // RFC 5246 §7.4.4.
    25 Self::AnonymousRequest => HANDSHAKE_FAILURE, "an anonymous server requests a certificate",
    // RFC 8879 §4.
    26 Self::BadCompression => BAD_CERTIFICATE / CERTIFICATE_MALFORMED,
        "a compressed certificate does not decompress to its length",
    27 Self::TooMuchSkippedEarlyData => UNEXPECTED_MESSAGE, "too much early data after this side rejected it",
    28 Self::TooMuchEarlyData => UNEXPECTED_MESSAGE, "more early data than the ticket allows",
    29 Self::EarlyDataMismatch(what), [what] => ILLEGAL_PARAMETER,
        "early data was accepted, but the {what} is not the session's",
    30 Self::DidForCredential => UNEXPECTED_MESSAGE,
        "it sent a bare DID, but this side has asked for a verifiable credential",
    31 Self::CredentialForDid => UNEXPECTED_MESSAGE,
        "it sent a verifiable credential, but this side has asked for a bare DID",
});

failures!(PeerIncompatible "I" UNKNOWN_FAILURE {
    1 Self::Version(None) => PROTOCOL_VERSION / PROTOCOL_VERSION_UNSUPPORTED, "no common version",
    2 Self::Version(Some(v)), [v.0] => PROTOCOL_VERSION / PROTOCOL_VERSION_UNSUPPORTED,
        "no common version, the peer has {v}",
    3 Self::CipherSuite => HANDSHAKE_FAILURE / CIPHER_SUITE_MISMATCH, "no common cipher suite",
    // RFC 7919 §4.
    4 Self::Field => INSUFFICIENT_SECURITY / KEY_EXCHANGE_FAILURE, "no common finite-field group",
    5 Self::Group => HANDSHAKE_FAILURE / KEY_EXCHANGE_FAILURE, "no common group",
    6 Self::FiniteField(bits), [bits] => HANDSHAKE_FAILURE / KEY_EXCHANGE_FAILURE,
        "the finite field of {bits} bits is not supported",
    7 Self::SuiteAuthentication => HANDSHAKE_FAILURE / CIPHER_SUITE_MISMATCH,
        "no common cipher suite for this side's kind of key",
    8 Self::CurveOfKey(curve), [curve.0] => HANDSHAKE_FAILURE / KEY_EXCHANGE_FAILURE,
        "it does not support {curve}, the curve of this side's key",
    9 Self::SignatureScheme => HANDSHAKE_FAILURE, "no common signature scheme",
    // RFC 7250 §4.2: the server sends this alert if the client supports none of its certificate types.
    10 Self::CertificateType { ours, theirs } => UNSUPPORTED_CERTIFICATE,
        "no common certificate type: {} here, {} there" (Or(ours), Or(theirs)),
    11 Self::ApplicationProtocol => NO_APPLICATION_PROTOCOL / NO_APPLICATION_PROTOCOL, "no common application protocol",
    12 Self::NoCredential(why), [why] => HANDSHAKE_FAILURE, "no suitable credential: {why}",
    // RFC 8446 §6.2 lets a server answer decrypt_error: an unknown identity must look like a wrong key.
    13 Self::NoPsk => DECRYPT_ERROR, "no common pre-shared key, and no other way to authenticate",
    // The client lacks a key. decrypt_error would accuse the server, which has not proved anything yet.
    14 Self::NoPskForHint => HANDSHAKE_FAILURE, "the client chose no pre-shared key for this server",
    15 Self::PskMode => HANDSHAKE_FAILURE / KEY_EXCHANGE_FAILURE, "no common PSK key exchange mode",
    16 Self::PskHash => DECRYPT_ERROR / CIPHER_SUITE_MISMATCH, "no common cipher suite with the hash of the pre-shared key",
    17 Self::ExtendedMasterSecret => HANDSHAKE_FAILURE, "it does not support extended master secret",
    18 Self::SecureRenegotiation => HANDSHAKE_FAILURE, "it does not support secure renegotiation",
    19 Self::Fallback => INAPPROPRIATE_FALLBACK / INAPPROPRIATE_FALLBACK, "it fell back to TLS 1.2 unnecessarily",
    20 Self::ServerName => UNRECOGNIZED_NAME, "no service has the requested name",
    21 Self::Refused => ACCESS_DENIED, "this client was refused by policy",
    22 Self::Rank => ACCESS_DENIED, "this client needs a stronger profile than the one that served it",
    23 Self::DataBeforeRenegotiation => ACCESS_DENIED,
        "it sent data before the renegotiation to the stronger profile that it needs",
    // RFC 8446 §9.2.
    24 Self::NoServerName => MISSING_EXTENSION, "it requested no server name, and no service is there without one",
});

failures!(AuthenticationFailure "A" CERTIFICATE_VERIFICATION_FAILED {
    1 Self::NoCertificate => CERTIFICATE_REQUIRED, "it sent no certificate",
    // A raw key is not a certificate but a structure of RFC 7250 §3, so bad_certificate does not fit.
    2 Self::BadRawKey => DECODE_ERROR / CERTIFICATE_MALFORMED, "its raw public key is malformed",
    3 Self::BadEncoding => BAD_CERTIFICATE / CERTIFICATE_MALFORMED, "its certificate is damaged",
    4 Self::NotValidYet(certificate), [certificate] => CERTIFICATE_EXPIRED / CERTIFICATE_NOT_YET_VALID,
        "{certificate} is not valid yet",
    5 Self::Expired(certificate), [certificate] => CERTIFICATE_EXPIRED / CERTIFICATE_EXPIRED, "{certificate} has expired",
    6 Self::UnknownIssuer => UNKNOWN_CA / CERTIFICATE_AUTHORITY_INVALID, "its chain leads to no trusted CA",
    7 Self::BadChainSignature => BAD_CERTIFICATE, "a signature in its chain does not verify",
    8 Self::NameMismatch { wanted, .. } => BAD_CERTIFICATE / CERTIFICATE_HOSTNAME_MISMATCH,
        "its certificate is not for {wanted}",
    9 Self::CaAsEndEntity => CERTIFICATE_UNKNOWN, "its certificate is a CA certificate and cannot serve as a leaf",
    10 Self::WrongPurpose => CERTIFICATE_UNKNOWN, "its certificate may not be used for this role",
    11 Self::ConstraintViolated => CERTIFICATE_UNKNOWN, "its chain breaks a constraint of its issuers",
    12 Self::Revoked => CERTIFICATE_REVOKED / CERTIFICATE_REVOKED, "its certificate is revoked",
    13 Self::UnknownRevocationStatus => CERTIFICATE_UNKNOWN,
        "there is no CRL of an issuer of its chain that covers the certificate",
    14 Self::OverdueRevocationList => CERTIFICATE_UNKNOWN, "the CRL of an issuer of its chain is overdue",
    15 Self::BadRevocationList => CERTIFICATE_UNKNOWN, "the CRL of an issuer of its chain has a wrong signature",
    16 Self::UnsupportedAlgorithm(algorithm) => UNSUPPORTED_CERTIFICATE,
        "its chain has a signature that is not supported: {}" (Algorithm(algorithm)),
    17 Self::UnknownRawKey => UNKNOWN_CA, "its raw public key is not among the trusted ones",
    18 Self::UnsupportedType(t), [t.0] => UNSUPPORTED_CERTIFICATE,
        "it sent a certificate of the type {t}, which is not trusted",
    19 Self::WrongKeyUsage => CERTIFICATE_UNKNOWN, "its certificate's key may not sign",
    20 Self::Rejected(why) => CERTIFICATE_UNKNOWN, "{why}",
    // Its own alert, but for those of RFC 8446 §6.1; see `Error::alert`.
    21 Self::RejectedWith(_, why) => ACCESS_DENIED, "{why}",
    // OpenSSL also sends unknown_ca for a chain that is too long.
    22 Self::ChainTooLong => UNKNOWN_CA, "its chain has more authorities than allowed",
    23 Self::KeyTooShort(key), [key] => BAD_CERTIFICATE, "{key}",
    24 Self::TooManyCertificates => CERTIFICATE_UNKNOWN,
        "its chain needs more than 12 certificates, or more than 2 with one subject and key identifier",
    25 Self::TooManyVerifications => CERTIFICATE_UNKNOWN, "its chain needs more than 8 signature verifications",
    26 Self::FutureRevocationList => CERTIFICATE_UNKNOWN, "the CRL of an issuer of its chain is not valid yet",
    27 Self::NotRevocationListIssuer => CERTIFICATE_UNKNOWN, "an issuer of its chain may not sign CRLs",
    28 Self::UnsupportedExtension => UNSUPPORTED_CERTIFICATE,
        "a certificate of its chain has a critical extension that is not supported",
    29 Self::UnsupportedVersion => UNSUPPORTED_CERTIFICATE, "a certificate of its chain is not of X.509 version 3",
    30 Self::UnsupportedKey => UNSUPPORTED_CERTIFICATE, "the type or size of its certificate's key is not supported",
    31 Self::RevokedAuthority(Some(name)) => CERTIFICATE_REVOKED / CERTIFICATE_REVOKED,
        "the certificate of {name}, an authority of its chain, is revoked",
    32 Self::RevokedAuthority(None) => CERTIFICATE_REVOKED / CERTIFICATE_REVOKED,
        "the certificate of an authority of its chain is revoked",
});

texts!(OutOfDate "D" {
    1 Self { index: Some(0), .. } => "its certificate",
    2 Self { common_name: Some(name), .. } => "the certificate of {name} in its chain",
    3 Self { common_name: None, .. } => "a certificate of its chain",
});

texts!(ShortKey "K" {
    1 Self { common_name: None, bits }, [bits] => "its RSA key has {bits} bits, and at least 2048 are required",
    2 Self { common_name: Some(name), bits }, [bits] => "the RSA key of {name}, an authority of its chain, has {bits} bits, and at least 2048 are required",
});

texts!(Misuse "U" {
    1 Self::HandshakeNotComplete => "the handshake is not complete",
    2 Self::Aborted => "the connection was ended from this side",
    3 Self::SendClosed => "the sending direction is closed",
    4 Self::KeyUpdateWaits => "the peer has not acknowledged the last KeyUpdate yet",
    5 Self::DataTooLong { max }, [max] => "the data is too long: one datagram carries {max} bytes",
    6 Self::OutputFull => "too many datagrams wait: transmit them first",
    7 Self::NoSuchQuestion => "no such question is open",
    8 Self::WrongAnswer => "the answer does not fit the question",
    9 Self::FieldTooLong => "a value is too long for its field",
    10 Self::ExporterLength => "the exporter output is too long: at most 255 hash lengths are possible",
    11 Self::ExporterLabel => "this exporter label is reserved: TLS itself uses it",
    12 Self::Config(why) => "configuration: {why}",
    13 Self::Provider(e), [e] => "{e}",
    14 Self::NotSupported(what), [what] => "not possible here: {what}",
    15 Self::AddressInUse => "an association with this address exists: end it first",
    16 Self::EndpointFull => "the endpoint has too many associations: end one first",
    18 Self::FlightWaits => "the peer has not acknowledged the last message yet",
    19 Self::Frozen => "the association was frozen and continues elsewhere",
    20 Self::OtherSettings => "it was frozen under other trusted certificates, CRLs, client authentication, server name or pre-shared key",
});

texts!(Internal "B" {
    1 Self::Crypto => "a cryptographic operation failed",
    2 Self::QuestionFailed => "a store, verifier or signer could not answer",
    3 Self::KeyExhausted => "the keys of this direction are used up",
    4 Self::Bug(what), [what] => "internal error: {what}",
});

texts!(ProviderFault "F" {
    1 Self::Missing(what), [what] => "the provider has no {what}",
    2 Self::Duplicate(what), [what] => "the provider lists a {what} twice",
    3 Self::Hash(a) => "{a:?} fails its known-answer test",
    4 Self::Aead(a) => "{a:?} fails its round trip",
    5 Self::Group(g), [g.0] => "{g} fails its self-test: its two sides compute different secrets",
    6 Self::Random => "the random source fails or repeats itself",
});

texts!(CryptoError "C" {
    1 Self => "cryptographic operation failed",
});

texts!(Unit "T" {
    1 Self::Bytes => "bytes",
    2 Self::Entries => "entries",
});

texts!(Field "W" {
    1 Field::Message(typ), [typ.0] => "{}" (Camel(typ.name())),
    2 Field::Extension(typ), [typ.0] => "{}" (typ.name().unwrap_or("unknown extension")),
    3 Field::Record(typ), [typ.0] => "{}" (typ.name().unwrap_or("unknown type")),
    // Structures that do not parse, and fields with values that are not allowed.
    10 Field::Session => "session",
    11 Field::Ticket => "ticket",
    12 Field::CacheEntry => "entry of the handshake cache",
    13 Field::DtlsHandshake => "DTLSHandshake",
    14 Field::Ack => "ACK",
    15 Field::Alert => "Alert",
    16 Field::AlertLevel => "alert level",
    17 Field::ChangeCipherSpec => "ChangeCipherSpec",
    18 Field::RecordNumbers => "record_numbers",
    19 Field::ExtensionList => "extensions",
    20 Field::Alpn => "ALPN",
    21 Field::CertificateList => "certificate_list",
    119 Field::VerifiableCredential => "verifiable credential",
    120 Field::Identifier => "decentralised identifier",
    121 Field::DidMethod => "method of decentralised identifiers",
    22 Field::CertificateListRawKey => "certificate_list: more than one raw public key",
    23 Field::CertificateRequestContext => "certificate_request_context",
    24 Field::LegacySessionId => "legacy_session_id",
    25 Field::LegacySessionIdEcho => "legacy_session_id_echo",
    26 Field::LegacyVersion => "legacy_version",
    27 Field::LegacyCookie => "legacy_cookie",
    28 Field::LegacyCompressionMethod => "legacy_compression_method",
    29 Field::LegacyCompressionMethods => "legacy_compression_methods",
    30 Field::CompressionMethods => "compression_methods",
    31 Field::CipherSuites => "cipher_suites",
    32 Field::CurveType => "curve_type",
    33 Field::RequestUpdate => "request_update",
    34 Field::TicketLifetime => "ticket_lifetime",
    35 Field::CachedInfoTwice => "cached_info: a type appears twice",
    36 Field::CertificateTypeX509 => "certificate type: it must be X.509",
    37 Field::CacheTicketTwice => "handshake_cache: a ticket appears twice",
    38 Field::CacheTicketNotOffered => "handshake_cache: a ticket that was not offered",
    39 Field::CacheTicketWithoutRequest => "handshake_cache: a ticket without CertificateRequest",
    40 Field::CacheUnused => "handshake cache: used in a handshake that does not allow it",
    41 Field::CacheNotOffered => "handshake cache: an answer without an offer",
    42 Field::GroupTwice => "key_share: a group appears twice",
    43 Field::KeyShareAfterRetry => "key_share after the retry",
    44 Field::BinderCount => "pre_shared_key: it needs one binder for each identity",
    45 Field::OtherHash => "pre_shared_key: its hash is not the cipher suite's",
    46 Field::PskWithoutKeyShare => "ServerHello: a PSK without the required key_share",
    47 Field::RecordSizeLimitToo => "record_size_limit: not allowed beside max_fragment_length",
    48 Field::SuiteAfterRetry => "cipher_suite: it changed after the retry",
    49 Field::ClientHelloAfterRetry => "ClientHello: it changed after the retry",
    50 Field::EarlyDataAfterRetry => "early_data after a retry",
    51 Field::SessionIdOfNoSession => "session_id: it names no session of this suite",
    52 Field::SchemeOfOtherKey => "signature scheme: it does not fit the key",
    53 Field::KeyCannotEncrypt => "certificate: its key cannot encrypt the premaster secret",
    54 Field::OtherIdentity => "identity: it changed in a renegotiation",
    55 Field::OtherServerName => "server_name: it changed in a renegotiation",
    // Parameters that the peer chose without an offer, or that differ from the session of early data.
    56 Field::Version => "version",
    57 Field::CipherSuite => "cipher suite",
    58 Field::Group => "group",
    59 Field::SignatureScheme => "signature scheme",
    60 Field::ApplicationProtocol => "application protocol",
    61 Field::Psk => "PSK",
    62 Field::PskMode => "PSK key exchange mode",
    63 Field::ServerCertificateType => "server certificate type",
    64 Field::ClientCertificateType => "client certificate type",
    65 Field::CompressionAlgorithm => "certificate compression algorithm",
    66 Field::Sha256 => "SHA-256",
    // Messages and records that this side expects, or that are not allowed at this point.
    67 Field::ApplicationData => "application data",
    68 Field::CertificateOrRequest => "Certificate or CertificateRequest",
    69 Field::NotTls => "not a TLS record",
    70 Field::Zeros => "a record of zeros",
    71 Field::ProtectedChangeCipherSpec => "a protected ChangeCipherSpec",
    72 Field::EarlyChangeCipherSpec => "an early ChangeCipherSpec",
    73 Field::InsideMessage => "a record in the middle of a message",
    74 Field::BeforeChangeCipherSpec => "a message before ChangeCipherSpec",
    // Messages and records that the peer sends too often.
    75 Field::Warnings => "warnings",
    76 Field::KeyUpdates => "KeyUpdates",
    77 Field::Tickets => "tickets",
    78 Field::HelloRequests => "HelloRequests",
    79 Field::Renegotiations => "renegotiations",
    80 Field::EmptyRecords => "empty records",
    81 Field::ChangeCipherSpecs => "ChangeCipherSpec records",
    82 Field::UndecryptableRecords => "records that do not decrypt",
    // Reasons why no credential suits the peer.
    83 Field::NoneOfType => "none has a certificate type that the server accepts",
    84 Field::NoneDecrypts => "none has a key that can decrypt",
    85 Field::NoneOfAuthority => "the peer did not name an authority of its chain",
    86 Field::NoneAtAll => "none is configured",
    87 Field::NoneAndNoPsk => "none is configured, and the client offered no PSK",
    114 Field::NoneOfUsage => "the keyUsage of its certificate forbids it",
    118 Field::NoneOfDidMethod => "the peer does not resolve its decentralised identifier",
    115 Field::NoneWithoutSha1 => "its chain has a SHA-1 signature, which the peer does not accept",
    // Calls that a connection does not support.
    88 Field::ExporterWithoutEms => "an exporter without extended master secret",
    89 Field::KeyUpdateInTls12 => "KeyUpdate in TLS 1.2",
    90 Field::Renegotiation => "renegotiation",
    91 Field::Dtls12 => "DTLS 1.2",
    // Bugs of the engine.
    92 Field::NoState => "no state",
    93 Field::NoUpdate => "keys that cannot be updated",
    94 Field::NoRenegotiation => "an impossible renegotiation",
    95 Field::FirstHandshake => "a renegotiation in the first handshake",
    96 Field::RefusalNotAsked => "a refusal without a request",
    97 Field::MessageForAnswer => "a message while an answer is awaited",
    98 Field::NoHeader => "a message without header",
    99 Field::NoRoom => "no room in a datagram",
    100 Field::ThirdKeyUpdate => "a third KeyUpdate",
    101 Field::AboveRecordLimit => "a record beyond its limit",
    102 Field::NoTls12 => "TLS 1.2 is not configured",
    103 Field::Tls12AfterRetry => "TLS 1.2 after a retry",
    104 Field::NoSession => "no session",
    105 Field::NoEarlySession => "early data without a session",
    106 Field::PskIndex => "PSK index",
    107 Field::Binder => "binder",
    108 Field::Binders => "binders",
    109 Field::CredentialIndex => "credential",
    110 Field::NoDecryption => "a key that does not decrypt",
    111 Field::NoPremaster => "a premaster secret without content",
    112 Field::NoTrust => "a client without trust settings used no PSK",
    113 Field::EmptyChain => "a verified chain is empty",
    116 Field::FrozenAssociation => "frozen association",
    117 Field::HelloVerifyRequests => "HelloVerifyRequests",
});

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Displays certificate types joined by "or".
#[cfg(feature = "error-text")]
struct Or<'a>(&'a [CertificateType]);

#[cfg(feature = "error-text")]
impl fmt::Display for Or<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, typ) in self.0.iter().enumerate() {
            write!(f, "{}{typ}", if i == 0 { "" } else { " or " })?;
        }
        Ok(())
    }
}

/// Displays an AlgorithmIdentifier without its header: the name of a well-known one, or its OBJECT
/// IDENTIFIER.
#[cfg(feature = "error-text")]
struct Algorithm<'a>(&'a [u8]);

#[cfg(feature = "error-text")]
impl fmt::Display for Algorithm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Below 1.2.840.113549.1.1 (RFC 8017 §A.2) and 1.2.840.10045.4 (RFC 3279 §2.2.3, RFC 5758 §3.2).
        const NAMES: [(&[u8], &str); 9] = [
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4], "RSA with MD5"),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5], "RSA with SHA-1"),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10], "RSASSA-PSS with these parameters"),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11], "RSA with SHA-256"),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12], "RSA with SHA-384"),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13], "RSA with SHA-512"),
            (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], "ECDSA with SHA-1"),
            (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2], "ECDSA with SHA-256"),
            (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3], "ECDSA with SHA-384"),
        ];
        let [6, len, rest @ ..] = self.0 else { return f.write_str("an unknown algorithm") };
        let oid = rest.get(..usize::from(*len)).unwrap_or_default();
        if let Some((_, name)) = NAMES.iter().find(|(own, _)| *own == oid) {
            return f.write_str(name);
        }
        f.write_str("OID ")?;
        let mut arc = 0u64;
        let mut is_first = true;
        for byte in oid {
            arc = arc.wrapping_mul(128) | u64::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                if is_first {
                    write!(f, "{}.{}", (arc / 40).min(2), arc - 40 * (arc / 40).min(2))?;
                } else {
                    write!(f, ".{arc}")?;
                }
                (arc, is_first) = (0, false);
            }
        }
        Ok(())
    }
}

/// Displays the name of a handshake message as the RFCs spell it in prose: ServerHello for server_hello.
#[cfg(feature = "error-text")]
struct Camel(Option<&'static str>);

#[cfg(feature = "error-text")]
impl fmt::Display for Camel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(name) = self.0 else { return f.write_str("a message of unknown type") };
        for word in name.split('_') {
            let mut letters = word.chars();
            if let Some(first) = letters.next() {
                write!(f, "{}{}", first.to_ascii_uppercase(), letters.as_str())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::string::ToString;

    use super::*;
    use crate::wire::{ContentType, ExtensionType, HandshakeType};

    pub(super) trait Table {
        const LETTER: &'static str;
        const ROWS: &'static [(u16, &'static str)];
    }

    const TABLES: &[(&str, &[(u16, &str)])] = &[
        (Malformed::LETTER, Malformed::ROWS),
        (PeerMisbehaved::LETTER, PeerMisbehaved::ROWS),
        (PeerIncompatible::LETTER, PeerIncompatible::ROWS),
        (AuthenticationFailure::LETTER, AuthenticationFailure::ROWS),
        (OutOfDate::LETTER, OutOfDate::ROWS),
        (ShortKey::LETTER, ShortKey::ROWS),
        (Misuse::LETTER, Misuse::ROWS),
        (Internal::LETTER, Internal::ROWS),
        (ProviderFault::LETTER, ProviderFault::ROWS),
        (CryptoError::LETTER, CryptoError::ROWS),
        (Unit::LETTER, Unit::ROWS),
        (Field::LETTER, Field::ROWS),
    ];

    #[test]
    fn codes_have_texts_and_unique_numbers() {
        let letters: BTreeSet<_> = TABLES.iter().map(|t| t.0).collect();
        assert_eq!(letters.len(), TABLES.len());
        for (letter, rows) in TABLES {
            let numbers: BTreeSet<_> = rows.iter().map(|r| r.0).collect();
            assert_eq!(numbers.len(), rows.len(), "two rows of {letter} share a number");
            assert!(rows.iter().all(|r| !r.1.is_empty()), "a row of {letter} has no text");
        }
        let texts: BTreeSet<_> = Field::ROWS.iter().skip(3).map(|r| r.1).collect();
        assert_eq!(texts.len() + 3, Field::ROWS.len(), "two codes share a text");
    }

    #[test]
    fn errors_carry_codes_and_no_text() {
        fn is_code<T: Copy + Eq>() {}
        is_code::<Field>();
        // These sizes have no room for a pointer to a text.
        assert!(size_of::<Field>() <= 4 && size_of::<Internal>() <= 6);
    }

    #[test]
    fn codes_are_numbers_and_texts_are_words() {
        let version = Field::Extension(ExtensionType::SUPPORTED_VERSIONS);
        let hello = Field::Message(HandshakeType::SERVER_HELLO);
        let expected = Field::Message(HandshakeType::END_OF_EARLY_DATA);
        let got = HandshakeType::FINISHED;
        let cases: [(Error, &str, &str); 6] = [
            (
                PeerMisbehaved::IllegalParameter(version).into(),
                "P14.2.43",
                "the peer broke the protocol: illegal supported_versions",
            ),
            (
                PeerMisbehaved::UnexpectedMessage { got, expected }.into(),
                "P1.20.1.5",
                "the peer broke the protocol: it sent Finished instead of EndOfEarlyData",
            ),
            (
                Malformed::AboveLimit { what: hello, max: 9, unit: Unit::Bytes }.into(),
                "M5.1.2.9",
                "the peer sent more than the limit of this side: ServerHello has more than 9 bytes",
            ),
            (
                PeerMisbehaved::UnexpectedRecord(Field::Record(ContentType(99))).into(),
                "P2.3.99",
                "the peer broke the protocol: an unexpected record: unknown type",
            ),
            (Internal::Bug(Field::Session).into(), "B4.10", "internal error: session"),
            (
                Error::AlertReceived(crate::wire::AlertDescription::CLOSE_NOTIFY),
                "E1.0",
                "the peer refused: it sent the alert close_notify",
            ),
        ];
        for (error, code, text) in cases {
            assert_eq!(error.code().to_string(), code);
            let text =
                if cfg!(feature = "error-text") { text.into() } else { format!("dunlin error {code}") };
            assert_eq!(error.to_string(), text);
        }
    }
}
