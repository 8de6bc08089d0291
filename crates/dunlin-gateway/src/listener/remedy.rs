//! Remedies of an operator for failed handshakes, as far as they are known.

use dunlin::error::{AuthenticationFailure as A, Error as E, PeerIncompatible as I, PeerMisbehaved as M};
use dunlin::wire::AlertDescription as Alert;
use dunlin_tokio::HandshakeError;

/// The remedy, for the log. `None` where the operator has to ask the client's side.
pub(super) const fn of(error: &HandshakeError) -> Option<&'static str> {
    let HandshakeError::Tls(error) = error else { return None };
    Some(match error {
        E::Authentication(failure) => return of_identity(failure),
        E::PeerIncompatible(what) => match what {
            I::Version(_) => "update the client; or add its version to versions, if it is \"1.2\"",
            I::ServerName => "if the name is one of this server, add it to sni of a route",
            I::NoServerName => "make the client send the server's name; or add a route without sni",
            I::ApplicationProtocol => "add a protocol of the client to alpn of the route; or leave alpn out",
            I::NoPsk => "if the client is one of yours, add its identity and key to the file of psk",
            _ => return None,
        },
        E::PeerMisbehaved(M::UnexpectedRecord(_)) => {
            "if this was the first message, the client speaks another protocol than TLS: check its URL or port"
        }
        E::PeerMisbehaved(M::BadBinder) => "give both sides the same key for this identity",
        E::AlertReceived(Alert::UNKNOWN_CA | Alert::BAD_CERTIFICATE | Alert::CERTIFICATE_UNKNOWN) => {
            "give the client the root of this certificate; and add the intermediates to the file of chain"
        }
        E::AlertReceived(Alert::CERTIFICATE_EXPIRED) => {
            "renew the certificate of this listener; or set the client's clock"
        }
        _ => return None,
    })
}

const fn of_identity(failure: &A) -> Option<&'static str> {
    Some(match failure {
        A::NoCertificate => {
            "give the client a certificate, and not one with a key of P-521, ML-DSA-65 or RSA-PSS, which only profiles \
             accept; or write verify = \"optional\" in [listener.clients]"
        }
        A::UnknownIssuer => {
            "if the client is one of yours, add its authority to ca, or make it send its intermediates"
        }
        A::UnknownRawKey => "if the client is one of yours, add its public key to raw_keys",
        A::Expired(_) => "renew the certificate; or set this machine's clock",
        A::NotValidYet(_) => "set the clock of this machine, or of the authority",
        A::WrongPurpose => "issue the client's certificate with the purpose clientAuth",
        A::UnknownRevocationStatus => "add a CRL of the certificate's issuer to crl",
        A::OverdueRevocationList => "get the issuer's newest CRL",
        A::FutureRevocationList => "set this machine's clock",
        A::KeyTooShort(_) => "issue it with an RSA key of 2048 bits, or a key of another type",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn names_what_the_operator_can_change_or_nothing() {
        let tls = |error: E| HandshakeError::Tls(error);
        for (error, key) in [
            (tls(I::ServerName.into()), "sni"),
            (tls(I::ApplicationProtocol.into()), "alpn"),
            (tls(I::NoPsk.into()), "psk"),
            (tls(E::Authentication(A::UnknownIssuer)), "ca"),
            (tls(E::Authentication(A::NoCertificate)), "verify"),
            (tls(E::Authentication(A::UnknownRevocationStatus)), "crl"),
            (tls(E::AlertReceived(Alert::UNKNOWN_CA)), "chain"),
        ] {
            assert!(of(&error).unwrap().contains(key), "{error}");
        }
        for error in [
            tls(E::Authentication(A::Revoked)),
            tls(E::AlertReceived(Alert::HANDSHAKE_FAILURE)),
            HandshakeError::Io(io::ErrorKind::UnexpectedEof.into()),
        ] {
            assert_eq!(of(&error), None, "{error}");
        }
    }
}
