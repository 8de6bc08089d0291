//! The table from errors to alerts (RFC 8446 §6.2). Only the driver sends alerts.

use super::{AuthenticationFailure, Error, Malformed, PeerIncompatible, PeerMisbehaved};
use crate::wire::{AlertDescription as Alert, What};

impl Error {
    /// The alert that tells the peer of this error. `None` if this side must not send one, because the peer
    /// has closed the connection. The driver also sends none for a misuse that leaves the connection usable.
    pub fn alert(&self) -> Option<Alert> {
        match self {
            Self::Malformed(e) => Some(malformed(e)),
            Self::PeerMisbehaved(e) => Some(misbehaved(e)),
            Self::PeerIncompatible(e) => Some(incompatible(e)),
            Self::Authentication(e) => Some(authentication(e)),
            Self::AlertReceived(_) | Self::Truncated | Self::TimedOut => None,
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
        // RFC 8446 §6.2: decode_error is for syntax errors, and the syntax is correct here. OpenSSL and
        // BoringSSL also answer messages above their limits with illegal_parameter.
        Malformed::AboveLimit { .. } => Alert::ILLEGAL_PARAMETER,
    }
}

const fn misbehaved(e: &PeerMisbehaved) -> Alert {
    use PeerMisbehaved as P;
    match e {
        P::UnexpectedMessage { .. }
        | P::DidForCredential
        | P::CredentialForDid
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
        // RFC 9846 §4.2.3.
        P::IllegalParameter(What::LegacyVersion) => Alert::PROTOCOL_VERSION,
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
        // RFC 7250 §4.2: the server sends this alert if the client supports none of its certificate types.
        P::CertificateType { .. } => Alert::UNSUPPORTED_CERTIFICATE,
        P::ApplicationProtocol => Alert::NO_APPLICATION_PROTOCOL,
        // RFC 8446 §6.2 lets a server answer decrypt_error: an unknown identity must look like a wrong key.
        P::NoPsk | P::PskHash => Alert::DECRYPT_ERROR,
        // The client lacks a key. decrypt_error would accuse the server, which has not proved anything yet.
        P::NoPskForHint => Alert::HANDSHAKE_FAILURE,
        P::ExtendedMasterSecret | P::SecureRenegotiation => Alert::HANDSHAKE_FAILURE,
        P::Fallback => Alert::INAPPROPRIATE_FALLBACK,
        P::ServerName => Alert::UNRECOGNIZED_NAME,
        // RFC 8446 §9.2.
        P::NoServerName => Alert::MISSING_EXTENSION,
        P::Refused | P::Rank | P::DataBeforeRenegotiation => Alert::ACCESS_DENIED,
    }
}

const fn authentication(e: &AuthenticationFailure) -> Alert {
    use AuthenticationFailure as A;
    match e {
        A::NoCertificate => Alert::CERTIFICATE_REQUIRED,
        // A raw key is not a certificate but a structure of RFC 7250 §3, so bad_certificate does not fit.
        A::BadRawKey => Alert::DECODE_ERROR,
        A::BadEncoding | A::NameMismatch { .. } | A::BadChainSignature | A::KeyTooShort(_) => {
            Alert::BAD_CERTIFICATE
        }
        A::NotValidYet(_) | A::Expired(_) => Alert::CERTIFICATE_EXPIRED,
        // OpenSSL also sends unknown_ca for a chain that is too long.
        A::UnknownIssuer | A::UnknownRawKey | A::ChainTooLong => Alert::UNKNOWN_CA,
        A::WrongPurpose
        | A::CaAsEndEntity
        | A::WrongKeyUsage
        | A::ConstraintViolated
        | A::TooManyCertificates
        | A::TooManyVerifications
        | A::UnknownRevocationStatus
        | A::OverdueRevocationList
        | A::FutureRevocationList
        | A::NotRevocationListIssuer
        | A::BadRevocationList
        | A::Rejected(_) => Alert::CERTIFICATE_UNKNOWN,
        // RFC 8446 §6.1: the closure alerts are no errors; the peer would take them for an orderly end.
        A::RejectedWith(Alert::CLOSE_NOTIFY | Alert::USER_CANCELED, _) => Alert::ACCESS_DENIED,
        A::RejectedWith(alert, _) => *alert,
        A::Revoked | A::RevokedAuthority(_) => Alert::CERTIFICATE_REVOKED,
        A::UnsupportedAlgorithm(_)
        | A::UnsupportedExtension
        | A::UnsupportedVersion
        | A::UnsupportedKey
        | A::UnsupportedType(_) => Alert::UNSUPPORTED_CERTIFICATE,
    }
}
