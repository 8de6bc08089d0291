//! The table from error to alert (RFC 8446 §6.2). The driver sends the alert, nobody else.

use super::{AuthenticationFailure, Error, Malformed, PeerIncompatible, PeerMisbehaved};
use crate::wire::AlertDescription as Alert;

impl Error {
    /// The alert that tells the peer of this error; `None` where nothing may be sent, because the peer has
    /// closed. A misuse that leaves the connection as it is sends none either.
    pub fn alert(&self) -> Option<Alert> {
        match self {
            Self::Malformed(e) => Some(malformed(e)),
            Self::PeerMisbehaved(e) => Some(misbehaved(e)),
            Self::PeerIncompatible(e) => Some(incompatible(e)),
            Self::Authentication(e) => Some(authentication(e)),
            Self::AlertReceived(_) | Self::Truncated => None,
            Self::Misuse(_) | Self::Internal(_) => Some(Alert::INTERNAL_ERROR),
        }
    }
}

const fn malformed(e: &Malformed) -> Alert {
    match e {
        // RFC 8446 §4: messages of illegal length are decode errors.
        Malformed::Truncated(_)
        | Malformed::TrailingBytes(_)
        | Malformed::Length(_)
        | Malformed::Value(_) => Alert::DECODE_ERROR,
        // RFC 8446 §6.2: decode_error is for what breaks the syntax, which this does not. OpenSSL and BoringSSL answer the same
        // to messages above their limits.
        Malformed::AboveLimit { .. } => Alert::ILLEGAL_PARAMETER,
    }
}

const fn misbehaved(e: &PeerMisbehaved) -> Alert {
    use PeerMisbehaved as P;
    match e {
        P::UnexpectedMessage { .. }
        | P::UnexpectedRecord(_)
        | P::EmptyRecord
        | P::Flood(_)
        | P::NotAlignedAtKeyChange
        | P::ExcessHandshakeData
        | P::SecondRetry
        | P::TooMuchSkippedEarlyData
        | P::TooMuchEarlyData => Alert::UNEXPECTED_MESSAGE,
        P::RecordOverflow => Alert::RECORD_OVERFLOW,
        P::BadRecordMac => Alert::BAD_RECORD_MAC,
        P::UnsolicitedExtension(_) => Alert::UNSUPPORTED_EXTENSION,
        P::MissingExtension(_) => Alert::MISSING_EXTENSION,
        P::DuplicateExtension(_)
        | P::MisplacedExtension(_)
        | P::PskNotLast
        | P::IllegalParameter(_)
        | P::Downgrade
        | P::PointlessRetry
        | P::NotOffered(_)
        | P::EarlyDataMismatch(_)
        | P::BadKeyShare => Alert::ILLEGAL_PARAMETER,
        // RFC 8879 §4.
        P::BadCompression => Alert::BAD_CERTIFICATE,
        // RFC 7919 §3, §4.
        P::BadFieldShare => Alert::HANDSHAKE_FAILURE,
        // RFC 5246 §7.4.4.
        P::AnonymousRequest => Alert::HANDSHAKE_FAILURE,
        P::BadFinished | P::BadBinder | P::SessionUsedTwice | P::BadSignature => Alert::DECRYPT_ERROR,
    }
}

const fn incompatible(e: &PeerIncompatible) -> Alert {
    use PeerIncompatible as P;
    match e {
        P::Version(_) => Alert::PROTOCOL_VERSION,
        P::CipherSuite | P::Group | P::SignatureScheme | P::NoCredential(_) | P::PskMode => {
            Alert::HANDSHAKE_FAILURE
        }
        P::SuiteAuthentication | P::CurveOfKey(_) => Alert::HANDSHAKE_FAILURE,
        // RFC 7919 §4.
        P::Field => Alert::INSUFFICIENT_SECURITY,
        P::FiniteField(_) => Alert::HANDSHAKE_FAILURE,
        // RFC 7250 §4.2: no common type of the server's certificate ends the handshake with this alert.
        P::CertificateType { .. } => Alert::UNSUPPORTED_CERTIFICATE,
        P::ApplicationProtocol => Alert::NO_APPLICATION_PROTOCOL,
        // RFC 8446 §6.2 lets a server answer decrypt_error, so that an unknown identity looks like a wrong key.
        P::NoPsk | P::PskHash => Alert::DECRYPT_ERROR,
        // It is the client that has none, and the server has shown nothing yet that could be wrong.
        P::NoPskForHint => Alert::HANDSHAKE_FAILURE,
        P::ExtendedMasterSecret | P::SecureRenegotiation => Alert::HANDSHAKE_FAILURE,
        P::Fallback => Alert::INAPPROPRIATE_FALLBACK,
        P::ServerName => Alert::UNRECOGNIZED_NAME,
        P::Refused => Alert::ACCESS_DENIED,
    }
}

const fn authentication(e: &AuthenticationFailure) -> Alert {
    use AuthenticationFailure as A;
    match e {
        A::NoCertificate => Alert::CERTIFICATE_REQUIRED,
        // It is no certificate, but a structure of RFC 7250 §3.
        A::BadRawKey => Alert::DECODE_ERROR,
        A::BadEncoding | A::NameMismatch { .. } | A::BadChainSignature | A::KeyTooShort(_) => {
            Alert::BAD_CERTIFICATE
        }
        A::NotValidYet(_) | A::Expired(_) => Alert::CERTIFICATE_EXPIRED,
        // OpenSSL says the same of a chain that is too long.
        A::UnknownIssuer | A::UnknownRawKey | A::ChainTooLong => Alert::UNKNOWN_CA,
        A::WrongPurpose
        | A::CaAsEndEntity
        | A::WrongKeyUsage
        | A::ConstraintViolated
        | A::UnknownRevocationStatus
        | A::OverdueRevocationList
        | A::BadRevocationList
        | A::Rejected(_) => Alert::CERTIFICATE_UNKNOWN,
        A::RejectedWith(alert, _) => *alert,
        A::Revoked => Alert::CERTIFICATE_REVOKED,
        A::UnsupportedAlgorithm | A::UnsupportedType(_) => Alert::UNSUPPORTED_CERTIFICATE,
    }
}
