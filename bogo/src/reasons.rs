//! Gives Dunlin's errors the names that BoringSSL has for the same reasons.

use dunlin::Error;
use dunlin::early::{EarlyDataOutcome, NoEarlyData};
use dunlin::error::{AuthenticationFailure, Internal, Malformed, Misuse, PeerIncompatible, PeerMisbehaved};
use dunlin::wire::{
    AlertDescription, ContentType, ExtensionType, Field, HandshakeType, ProtocolVersion, Unit,
};

/// BoringSSL's name of an error. If BoringSSL has several names for it, they are separated by colons.
pub(crate) fn name(error: &Error) -> &'static str {
    match error {
        Error::Malformed(e) => malformed(e),
        Error::PeerMisbehaved(e) => misbehaved(e),
        Error::PeerIncompatible(e) => incompatible(e),
        Error::Authentication(e) => authentication(e),
        Error::AlertReceived(alert) => received(*alert),
        Error::Truncated => "UNEXPECTED_EOF",
        Error::TimedOut => "READ_TIMEOUT_EXPIRED",
        Error::Misuse(Misuse::HandshakeNotComplete) => "HANDSHAKE_NOT_COMPLETE",
        Error::Misuse(_) => "MISUSE",
        Error::Internal(Internal::QuestionFailed) => "OCSP_CB_ERROR:CERT_CB_ERROR",
        Error::Internal(Internal::KeyExhausted) => "overflow",
        Error::Internal(_) => "INTERNAL_ERROR",
        _ => "UNKNOWN",
    }
}

fn malformed(e: &Malformed) -> &'static str {
    match e {
        Malformed::AboveLimit { unit: Unit::Bytes, .. } => "EXCESSIVE_MESSAGE_SIZE",
        Malformed::Length(Field::Alert) => "BAD_ALERT",
        Malformed::Value(Field::DtlsHandshake) => "FRAGMENT_MISMATCH",
        Malformed::Truncated(Field::DtlsHandshake) => "BAD_HANDSHAKE_RECORD",
        Malformed::Length(Field::CertificateList) => "PEER_DID_NOT_RETURN_A_CERTIFICATE:DECODE_ERROR",
        Malformed::TrailingBytes(Field::Message(HandshakeType::HELLO_REQUEST)) => "BAD_HELLO_REQUEST",
        _ => "DECODE_ERROR",
    }
}

fn misbehaved(e: &PeerMisbehaved) -> &'static str {
    use PeerMisbehaved as P;
    match e {
        P::UnexpectedMessage { expected: Field::ApplicationData, .. } => {
            "UNEXPECTED_MESSAGE:BAD_HELLO_REQUEST:EXCESS_HANDSHAKE_DATA:UNEXPECTED_RECORD"
        }
        P::UnexpectedMessage { .. } => "UNEXPECTED_MESSAGE",
        P::UnexpectedRecord(Field::NotTls) => "WRONG_VERSION_NUMBER",
        P::UnexpectedRecord(Field::Zeros) => "DECRYPTION_FAILED_OR_BAD_RECORD_MAC",
        P::UnexpectedRecord(Field::Record(ContentType::CHANGE_CIPHER_SPEC)) => {
            "UNEXPECTED_RECORD:BAD_CHANGE_CIPHER_SPEC"
        }
        P::UnexpectedRecord(Field::InsideMessage) => "UNEXPECTED_RECORD:EXCESS_HANDSHAKE_DATA",
        P::UnexpectedRecord(_) | P::EmptyRecord => "UNEXPECTED_RECORD",
        P::RecordOverflow => "ENCRYPTED_LENGTH_TOO_LONG",
        P::BadRecordMac => "DECRYPTION_FAILED_OR_BAD_RECORD_MAC",
        P::Flood(Field::KeyUpdates) => "TOO_MANY_KEY_UPDATES",
        P::Flood(Field::EmptyRecords | Field::ChangeCipherSpecs) => "TOO_MANY_EMPTY_FRAGMENTS",
        P::Flood(Field::Warnings) => "TOO_MANY_WARNING_ALERTS",
        P::Flood(_) => "TOO_MANY",
        P::NotAlignedAtKeyChange => "EXCESS_HANDSHAKE_DATA:UNEXPECTED_RECORD",
        P::ExcessHandshakeData => "EXCESS_HANDSHAKE_DATA",
        P::DuplicateExtension(_) => "DUPLICATE_EXTENSION",
        P::MisplacedExtension(_) | P::UnsolicitedExtension(_) => "UNEXPECTED_EXTENSION",
        P::MissingExtension(t) => missing(*t),
        P::PskNotLast => "PRE_SHARED_KEY_MUST_BE_LAST",
        P::Downgrade => "TLS13_DOWNGRADE",
        P::PointlessRetry => "WRONG_CURVE",
        P::SecondRetry => "UNEXPECTED_MESSAGE",
        P::NotOffered(Field::Group) => "WRONG_CURVE",
        P::NotOffered(Field::CipherSuite) => {
            "WRONG_CIPHER_RETURNED:OLD_SESSION_VERSION_NOT_RETURNED:OLD_SESSION_CIPHER_NOT_RETURNED"
        }
        P::NotOffered(Field::Version) => "UNSUPPORTED_PROTOCOL",
        // In TLS 1.2 this error also covers a certificate of the wrong kind for the suite.
        P::NotOffered(Field::SignatureScheme) => "WRONG_SIGNATURE_TYPE:WRONG_CERTIFICATE_TYPE",
        P::NotOffered(Field::ApplicationProtocol) => "INVALID_ALPN_PROTOCOL",
        P::NotOffered(Field::Psk) => "PSK_IDENTITY_NOT_FOUND",
        P::NotOffered(Field::ClientCertificateType | Field::ServerCertificateType) => {
            "UNSUPPORTED_CERTIFICATE"
        }
        P::NotOffered(Field::CompressionAlgorithm) => "UNKNOWN_CERT_COMPRESSION_ALG",
        P::NotOffered(_) => "UNEXPECTED_EXTENSION",
        P::IllegalParameter(what) => illegal(*what),
        P::BadFinished | P::BadBinder => "DIGEST_CHECK_FAILED",
        P::BadSignature => "BAD_SIGNATURE",
        P::BadKeyShare | P::BadFieldShare => "BAD_ECPOINT",
        P::BadCompression => "CERT_DECOMPRESSION_FAILED",
        P::TooMuchSkippedEarlyData => "TOO_MUCH_SKIPPED_EARLY_DATA",
        P::TooMuchEarlyData => "TOO_MUCH_READ_EARLY_DATA",
        P::EarlyDataMismatch(Field::CipherSuite) => "CIPHER_MISMATCH_ON_EARLY_DATA",
        P::EarlyDataMismatch(Field::ApplicationProtocol) => "ALPN_MISMATCH_ON_EARLY_DATA",
        P::EarlyDataMismatch(_) => "UNEXPECTED_EXTENSION",
        _ => "DECODE_ERROR",
    }
}

fn illegal(what: Field) -> &'static str {
    match what {
        Field::BinderCount => "PSK_IDENTITY_BINDER_COUNT_MISMATCH",
        Field::OtherHash => "OLD_SESSION_PRF_HASH_MISMATCH",
        Field::PskWithoutKeyShare => "MISSING_KEY_SHARE",
        Field::GroupTwice => "DUPLICATE_KEY_SHARE",
        Field::KeyShareAfterRetry => "WRONG_CURVE",
        Field::SuiteAfterRetry => "WRONG_CIPHER_RETURNED",
        Field::LegacyCompressionMethods | Field::CompressionMethods => "INVALID_COMPRESSION_LIST",
        Field::KeyCannotEncrypt => "WRONG_SIGNATURE_TYPE",
        Field::AlertLevel => "UNKNOWN_ALERT_TYPE",
        Field::LegacyCompressionMethod => "UNSUPPORTED_COMPRESSION_ALGORITHM:DECODE_ERROR",
        Field::SessionIdOfNoSession => "SERVER_ECHOED_INVALID_SESSION_ID",
        Field::OtherIdentity => "SERVER_CERT_CHANGED",
        Field::LegacyCookie => "INVALID_MESSAGE:DECODE_ERROR",
        Field::LegacyVersion => "UNSUPPORTED_PROTOCOL:DECODE_ERROR",
        Field::SchemeOfOtherKey => "WRONG_SIGNATURE_TYPE",
        _ => "DECODE_ERROR",
    }
}

fn missing(typ: ExtensionType) -> &'static str {
    match typ {
        ExtensionType::KEY_SHARE => "MISSING_KEY_SHARE",
        ExtensionType::SUPPORTED_GROUPS => "NO_SHARED_GROUP",
        ExtensionType::SIGNATURE_ALGORITHMS => "NO_COMMON_SIGNATURE_ALGORITHMS:DECODE_ERROR",
        _ => "MISSING_EXTENSION",
    }
}

fn incompatible(e: &PeerIncompatible) -> &'static str {
    use PeerIncompatible as P;
    match e {
        P::Version(Some(ProtocolVersion::TLS1_2)) => "UNSUPPORTED_PROTOCOL:WRONG_VERSION_ON_EARLY_DATA",
        P::Version(_) => "UNSUPPORTED_PROTOCOL",
        P::CipherSuite => "NO_SHARED_CIPHER",
        // BoringSSL has several names for "no key of the server fits".
        P::SuiteAuthentication | P::CurveOfKey(_) => {
            "NO_SHARED_CIPHER:NO_COMMON_SIGNATURE_ALGORITHMS:UNKNOWN_CERTIFICATE_TYPE:WRONG_CURVE"
        }
        P::Group | P::Field | P::FiniteField(_) => "NO_SHARED_GROUP:NO_SHARED_CIPHER",
        // In TLS 1.2 the cipher suite and certificate_types restrict the signature, too.
        P::SignatureScheme => {
            "NO_COMMON_SIGNATURE_ALGORITHMS:NO_SHARED_CIPHER:UNKNOWN_CERTIFICATE_TYPE:WRONG_CURVE"
        }
        P::SecureRenegotiation => "RENEGOTIATION_MISMATCH:UNSAFE_LEGACY_RENEGOTIATION_DISABLED",
        P::ExtendedMasterSecret => "RESUMED_EMS_SESSION_WITHOUT_EMS_EXTENSION:RENEGOTIATION_EMS_MISMATCH",
        P::CertificateType { .. } => "UNKNOWN_CERTIFICATE_TYPE",
        P::ApplicationProtocol => "NO_APPLICATION_PROTOCOL",
        P::PskMode => "NO_SUPPORTED_PSK_MODE",
        P::NoPsk | P::NoPskForHint => "PSK_IDENTITY_NOT_FOUND",
        P::NoCredential(Field::NoneOfType) => "UNKNOWN_CERTIFICATE_TYPE",
        P::NoCredential(Field::NoneOfAuthority) => "NO_MATCHING_ISSUER",
        P::NoCredential(_) => "NO_CERTIFICATE_SET",
        P::Refused => "CONNECTION_REJECTED",
        _ => "HANDSHAKE_FAILURE",
    }
}

const fn authentication(e: &AuthenticationFailure) -> &'static str {
    use AuthenticationFailure as A;
    match e {
        A::NoCertificate => "PEER_DID_NOT_RETURN_A_CERTIFICATE",
        A::BadEncoding => "CANNOT_PARSE_LEAF_CERT",
        A::BadRawKey => "DECODE_ERROR",
        A::UnsupportedType(_) => "UNSUPPORTED_CERTIFICATE",
        A::RejectedWith(AlertDescription::BAD_CERTIFICATE_STATUS_RESPONSE, _) => "OCSP_CB_ERROR",
        A::WrongKeyUsage => "KEY_USAGE_BIT_INCORRECT",
        _ => "CERTIFICATE_VERIFY_FAILED",
    }
}

/// BoringSSL's name for the outcome of early data.
pub(crate) const fn early_data(outcome: EarlyDataOutcome, resumed: bool) -> &'static str {
    use NoEarlyData as N;
    match outcome {
        EarlyDataOutcome::Accepted => "accept",
        // A server does not distinguish a client without a session from one with an unknown session.
        EarlyDataOutcome::NotOffered(N::NoSession | N::NotResumed) => "no_session_offered",
        // BoringSSL's server checks the session first.
        EarlyDataOutcome::Rejected(N::Retry) if !resumed => "session_not_resumed",
        EarlyDataOutcome::NotOffered(why) | EarlyDataOutcome::Rejected(why) => match why {
            N::Disabled => "disabled",
            N::NotResumed => "session_not_resumed",
            N::NotForSession => "unsupported_for_session",
            N::ApplicationProtocol => "alpn_mismatch",
            N::Retry => "hello_retry_request",
            N::TicketAge => "ticket_age_skew",
            N::Declined => "peer_declined",
            _ => "unknown",
        },
    }
}

/// An alert that TLS 1.3 does not define, but one test sends.
pub(crate) const DECOMPRESSION_FAILURE: AlertDescription = AlertDescription(30);

const fn received(alert: AlertDescription) -> &'static str {
    match alert {
        DECOMPRESSION_FAILURE => "SSLV3_ALERT_DECOMPRESSION_FAILURE",
        AlertDescription::HANDSHAKE_FAILURE => "SSLV3_ALERT_HANDSHAKE_FAILURE",
        AlertDescription::UNEXPECTED_MESSAGE => "SSLV3_ALERT_UNEXPECTED_MESSAGE",
        AlertDescription::BAD_RECORD_MAC => "SSLV3_ALERT_BAD_RECORD_MAC",
        AlertDescription::ILLEGAL_PARAMETER => "SSLV3_ALERT_ILLEGAL_PARAMETER",
        AlertDescription::CERTIFICATE_UNKNOWN => "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        AlertDescription::BAD_CERTIFICATE => "SSLV3_ALERT_BAD_CERTIFICATE",
        AlertDescription::PROTOCOL_VERSION => "TLSV1_ALERT_PROTOCOL_VERSION",
        AlertDescription::DECODE_ERROR => "TLSV1_ALERT_DECODE_ERROR",
        AlertDescription::DECRYPT_ERROR => "TLSV1_ALERT_DECRYPT_ERROR",
        AlertDescription::RECORD_OVERFLOW => "TLSV1_ALERT_RECORD_OVERFLOW",
        AlertDescription::UNKNOWN_CA => "TLSV1_ALERT_UNKNOWN_CA",
        AlertDescription::CERTIFICATE_REQUIRED => "TLSV1_ALERT_CERTIFICATE_REQUIRED",
        _ => "ALERT_RECEIVED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The runner's configuration for this shim.
    fn config() -> serde_json::Value {
        serde_json::from_str(include_str!("../config.json")).unwrap()
    }

    #[test]
    fn every_disabled_test_has_a_reason() {
        let config = config();
        let disabled = config["DisabledTests"].as_object().unwrap();
        for (pattern, reason) in disabled {
            assert!(reason.as_str().is_some_and(|r| r.len() > 20), "{pattern}");
        }
    }

    #[test]
    fn mapped_names_are_names_of_this_shim() {
        let source = include_str!("reasons.rs");
        for (theirs, ours) in config()["ErrorMap"].as_object().unwrap() {
            for name in ours.as_array().unwrap() {
                let name = name.as_str().unwrap().trim_matches(':');
                assert!(
                    source.contains(&format!("{name}\"")) || source.contains(&format!("{name}:")),
                    "{theirs}"
                );
            }
        }
    }

    #[test]
    fn a_reason_can_have_two_names() {
        let error = Error::from(PeerMisbehaved::IllegalParameter(Field::LegacyVersion));
        let printed = format!(":{}:", name(&error));
        assert!(printed.contains(":UNSUPPORTED_PROTOCOL:") && printed.contains(":DECODE_ERROR:"));
    }
}
