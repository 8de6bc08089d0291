//! Why a handshake failed, as labels. Both lists are closed, so that clients cannot add to them.

use std::io;

use dunlin::error::{AuthenticationFailure as A, Error as E};
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
    use io::ErrorKind as K;
    let (reason, result) = match error {
        HandshakeError::Io(error) | HandshakeError::Probe(error) => match error.kind() {
            K::UnexpectedEof => ("closed_by_client", "PEER_CONNECTION_CLOSED"),
            K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe => {
                ("transport", "PEER_CONNECTION_CLOSED")
            }
            _ => ("transport", "UNKNOWN_FAILURE"),
        },
        HandshakeError::Timeout(_) | HandshakeError::Unconfirmed { .. } => ("timeout", "HANDSHAKE_TIMEOUT"),
        HandshakeError::Stopped => ("stopped", "UNKNOWN_FAILURE"),
        HandshakeError::Tls(error) => (class(error), error.label()),
        _ => ("other", "UNKNOWN_FAILURE"),
    };
    Failure { reason, result }
}

const fn class(error: &E) -> &'static str {
    match error {
        E::Malformed(_) => "malformed",
        E::PeerMisbehaved(_) => "protocol",
        E::PeerIncompatible(_) => "incompatible",
        E::Authentication(A::NoCertificate) => "no_certificate",
        E::Authentication(A::Expired(_)) => "certificate_expired",
        E::Authentication(A::NotValidYet(_)) => "certificate_not_valid_yet",
        E::Authentication(A::UnknownIssuer) => "unknown_issuer",
        E::Authentication(A::BadChainSignature) => "bad_chain_signature",
        E::Authentication(A::Revoked | A::RevokedAuthority(_)) => "certificate_revoked",
        E::Authentication(_) => "authentication",
        E::AlertReceived(_) => "alert_received",
        E::Truncated => "closed_by_client",
        E::TimedOut => "timeout",
        _ => "internal",
    }
}

#[cfg(test)]
mod tests {
    use dunlin::error::{PeerIncompatible as I, PeerMisbehaved as M};
    use dunlin::wire::{AlertDescription, ProtocolVersion};

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
