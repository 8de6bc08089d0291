//! Why a handshake failed, as labels. Both lists are closed, so that clients cannot add to them.

use std::io;

use dunlin::error::{AuthenticationFailure as A, Error as E, PeerIncompatible as I, PeerMisbehaved as M};
use dunlin::wire::AlertDescription;
use dunlin_tokio::HandshakeError;

/// The result of a completed handshake.
pub(crate) const SUCCESS: &str = "SUCCESS";

/// The class of a failed handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The class by the engine's errors. It tells the failures of this side from alerts of the client.
    pub(crate) reason: &'static str,
    /// A value of gRPC's `TlsTelemetryHandshakeResult` (proposal A118): the same in all programs that have
    /// it.
    pub(crate) result: &'static str,
}

/// The class of this error.
pub(crate) fn reason(error: &HandshakeError) -> Failure {
    let (reason, result) = match error {
        HandshakeError::Io(error) | HandshakeError::Probe(error) => transport(error),
        HandshakeError::Timeout(_) | HandshakeError::Unconfirmed { .. } => ("timeout", "HANDSHAKE_TIMEOUT"),
        HandshakeError::Stopped => ("stopped", "UNKNOWN_FAILURE"),
        HandshakeError::Tls(error) => match error {
            E::Malformed(_) => ("malformed", "UNKNOWN_FAILURE"),
            E::PeerMisbehaved(how) => ("protocol", misbehaved(how)),
            E::PeerIncompatible(what) => ("incompatible", incompatible(what)),
            E::Authentication(failed) => authentication(failed),
            E::AlertReceived(alert) => ("alert_received", alerted(*alert)),
            E::Truncated => ("closed_by_client", "PEER_CONNECTION_CLOSED"),
            E::TimedOut => ("timeout", "HANDSHAKE_TIMEOUT"),
            _ => ("internal", "UNKNOWN_FAILURE"),
        },
        _ => ("other", "UNKNOWN_FAILURE"),
    };
    Failure { reason, result }
}

fn transport(error: &io::Error) -> (&'static str, &'static str) {
    use io::ErrorKind as K;
    match error.kind() {
        K::UnexpectedEof => ("closed_by_client", "PEER_CONNECTION_CLOSED"),
        K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe => ("transport", "PEER_CONNECTION_CLOSED"),
        _ => ("transport", "UNKNOWN_FAILURE"),
    }
}

const fn misbehaved(how: &M) -> &'static str {
    match how {
        M::UnexpectedMessage { .. }
        | M::UnexpectedRecord(_)
        | M::EmptyRecord
        | M::Flood(_)
        | M::NotAlignedAtKeyChange
        | M::ExcessHandshakeData => "UNEXPECTED_MESSAGE",
        M::BadRecordMac | M::BadFinished | M::BadBinder => "DECRYPTION_FAILED",
        M::BadSignature => "SIGNATURE_VERIFICATION_FAILED",
        M::BadKeyShare | M::BadFieldShare => "KEY_EXCHANGE_FAILURE",
        M::Downgrade => "INAPPROPRIATE_FALLBACK",
        M::BadCompression => "CERTIFICATE_MALFORMED",
        _ => "UNKNOWN_FAILURE",
    }
}

const fn incompatible(what: &I) -> &'static str {
    match what {
        I::Version(_) => "PROTOCOL_VERSION_UNSUPPORTED",
        I::Fallback => "INAPPROPRIATE_FALLBACK",
        I::ApplicationProtocol => "NO_APPLICATION_PROTOCOL",
        I::CipherSuite | I::SuiteAuthentication | I::PskHash => "CIPHER_SUITE_MISMATCH",
        I::Group | I::Field | I::FiniteField(_) | I::CurveOfKey(_) | I::PskMode => "KEY_EXCHANGE_FAILURE",
        _ => "UNKNOWN_FAILURE",
    }
}

const fn authentication(failed: &A) -> (&'static str, &'static str) {
    match failed {
        A::NoCertificate => ("no_certificate", "CERTIFICATE_VERIFICATION_FAILED"),
        A::Expired(_) => ("certificate_expired", "CERTIFICATE_EXPIRED"),
        A::NotValidYet(_) => ("certificate_not_valid_yet", "CERTIFICATE_NOT_YET_VALID"),
        A::UnknownIssuer => ("unknown_issuer", "CERTIFICATE_AUTHORITY_INVALID"),
        A::BadChainSignature => ("bad_chain_signature", "CERTIFICATE_VERIFICATION_FAILED"),
        A::Revoked | A::RevokedAuthority(_) => ("certificate_revoked", "CERTIFICATE_REVOKED"),
        A::NameMismatch { .. } => ("authentication", "CERTIFICATE_HOSTNAME_MISMATCH"),
        A::BadEncoding | A::BadRawKey => ("authentication", "CERTIFICATE_MALFORMED"),
        _ => ("authentication", "CERTIFICATE_VERIFICATION_FAILED"),
    }
}

/// The failure on the gateway's side that the client's alert reports.
const fn alerted(alert: AlertDescription) -> &'static str {
    use AlertDescription as D;
    match alert {
        D::UNEXPECTED_MESSAGE => "UNEXPECTED_MESSAGE",
        D::BAD_RECORD_MAC | D::DECRYPT_ERROR => "DECRYPTION_FAILED",
        D::HANDSHAKE_FAILURE | D::INSUFFICIENT_SECURITY => "CIPHER_SUITE_MISMATCH",
        D::BAD_CERTIFICATE | D::UNSUPPORTED_CERTIFICATE | D::CERTIFICATE_UNKNOWN => {
            "CERTIFICATE_VERIFICATION_FAILED"
        }
        D::CERTIFICATE_REVOKED => "CERTIFICATE_REVOKED",
        D::CERTIFICATE_EXPIRED => "CERTIFICATE_EXPIRED",
        D::UNKNOWN_CA => "CERTIFICATE_AUTHORITY_INVALID",
        D::PROTOCOL_VERSION => "PROTOCOL_VERSION_UNSUPPORTED",
        D::INAPPROPRIATE_FALLBACK => "INAPPROPRIATE_FALLBACK",
        D::NO_APPLICATION_PROTOCOL => "NO_APPLICATION_PROTOCOL",
        _ => "UNKNOWN_FAILURE",
    }
}

#[cfg(test)]
mod tests {
    use dunlin::wire::ProtocolVersion;

    use super::*;

    /// The values of gRPC's proposal A118, in its order.
    const A118: [&str; 19] = [
        "UNKNOWN_FAILURE",
        "SUCCESS",
        "CERTIFICATE_VERIFICATION_FAILED",
        "CERTIFICATE_REVOKED",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_NOT_YET_VALID",
        "CERTIFICATE_AUTHORITY_INVALID",
        "CERTIFICATE_HOSTNAME_MISMATCH",
        "CERTIFICATE_MALFORMED",
        "CIPHER_SUITE_MISMATCH",
        "PROTOCOL_VERSION_UNSUPPORTED",
        "INAPPROPRIATE_FALLBACK",
        "NO_APPLICATION_PROTOCOL",
        "SIGNATURE_VERIFICATION_FAILED",
        "DECRYPTION_FAILED",
        "KEY_EXCHANGE_FAILURE",
        "UNEXPECTED_MESSAGE",
        "HANDSHAKE_TIMEOUT",
        "PEER_CONNECTION_CLOSED",
    ];

    #[test]
    fn results_are_those_of_grpc() {
        let io = |kind| HandshakeError::Io(io::Error::from(kind));
        let tls = HandshakeError::Tls;
        let alert = |alert| tls(E::AlertReceived(alert));
        let cases = [
            (io(io::ErrorKind::UnexpectedEof), "closed_by_client", "PEER_CONNECTION_CLOSED"),
            (io(io::ErrorKind::ConnectionReset), "transport", "PEER_CONNECTION_CLOSED"),
            (io(io::ErrorKind::OutOfMemory), "transport", "UNKNOWN_FAILURE"),
            (HandshakeError::Timeout(std::time::Duration::ZERO), "timeout", "HANDSHAKE_TIMEOUT"),
            (tls(E::PeerMisbehaved(M::BadSignature)), "protocol", "SIGNATURE_VERIFICATION_FAILED"),
            (tls(E::PeerMisbehaved(M::BadFinished)), "protocol", "DECRYPTION_FAILED"),
            (tls(E::PeerIncompatible(I::CipherSuite)), "incompatible", "CIPHER_SUITE_MISMATCH"),
            (
                tls(E::PeerIncompatible(I::Version(Some(ProtocolVersion::TLS1_2)))),
                "incompatible",
                "PROTOCOL_VERSION_UNSUPPORTED",
            ),
            (tls(E::Authentication(A::Revoked)), "certificate_revoked", "CERTIFICATE_REVOKED"),
            (tls(E::Authentication(A::UnknownIssuer)), "unknown_issuer", "CERTIFICATE_AUTHORITY_INVALID"),
            (alert(AlertDescription::UNKNOWN_CA), "alert_received", "CERTIFICATE_AUTHORITY_INVALID"),
            (alert(AlertDescription::PROTOCOL_VERSION), "alert_received", "PROTOCOL_VERSION_UNSUPPORTED"),
        ];
        for (error, reason_is, result_is) in cases {
            assert_eq!(reason(&error), Failure { reason: reason_is, result: result_is }, "{error}");
            assert!(A118.contains(&result_is), "{result_is}");
        }
        assert!(A118.contains(&SUCCESS));
    }
}
