//! Explains why a connection failed: the failed check, the side, the file, and the remedy.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;

use dunlin::crypto::Tls12CipherSuite;
use dunlin::error::{AuthenticationFailure, Malformed, Misuse, PeerIncompatible as I, PeerMisbehaved as M};
use dunlin::wire::{AlertDescription as A, CipherSuite, ExtensionType, Field, ProtocolVersion};
use dunlin::{Error, Side};
use dunlin_awslc::tls12::TLS12_PSK_CIPHER_SUITES;
use dunlin_command::error::{Code, Explanation};
use dunlin_tokio::HandshakeError;

use crate::chains::{Words, rows, some_of};
use crate::tls::options::TlsOptions;
use crate::tls::psks::NamedPsks;
use crate::tls::{kinds, lists};

/// The reason of a failure, and the advice.
type Texts = (String, String);

/// The context of a connection's error.
#[derive(Clone, Copy)]
pub(crate) struct Explainer<'a> {
    side: Side,
    /// Names the files.
    options: &'a TlsOptions,
    /// A server's record of the identities that the client named.
    psks: Option<&'a NamedPsks>,
    /// The cipher suites that the client offered to this server.
    offered: Option<&'a OnceLock<Vec<CipherSuite>>>,
    /// Whether the server requested a certificate or key, and this client proved none.
    proved_nothing: bool,
    /// The server's addresses, if none of them has answered this client over UDP.
    silent: &'a [SocketAddr],
}

impl<'a> Explainer<'a> {
    /// The context of a client; see [`Self::proved_nothing`].
    pub(crate) const fn client(options: &'a TlsOptions, proved_nothing: bool) -> Self {
        Self { side: Side::Client, options, psks: None, offered: None, proved_nothing, silent: &[] }
    }

    /// Sets the addresses of a server that has not answered this client over UDP.
    pub(crate) const fn with_silent(self, silent: &'a [SocketAddr]) -> Self {
        Self { silent, ..self }
    }

    /// The context of a server, with the keys of this connection. `offered` receives the cipher suites of the
    /// ClientHello.
    pub(crate) const fn server(
        options: &'a TlsOptions,
        psks: Option<&'a NamedPsks>,
        offered: &'a OnceLock<Vec<CipherSuite>>,
    ) -> Self {
        let proved_nothing = false;
        Self { side: Side::Server, options, psks, offered: Some(offered), proved_nothing, silent: &[] }
    }

    /// Explains the failure of a handshake.
    pub(crate) fn handshake(&self, error: &HandshakeError) -> Explanation {
        let code = match error {
            HandshakeError::Tls(e) => Code::of_tls(e),
            HandshakeError::Timeout(_) | HandshakeError::Unconfirmed { .. } => Code::TIMEOUT,
            _ => Code::FAILED,
        };
        let (why, advice) = self.handshake_in_words(error);
        Explanation { why, advice, code }
    }

    fn handshake_in_words(&self, error: &HandshakeError) -> Texts {
        use HandshakeError as H;
        let peer = peer(self.side);
        let psk = self.psk_source();
        let has_psk = self.options.has_psk();
        let is_client = self.side == Side::Client;
        let no_hello = self.is_before_hello();
        let is_end = matches!(error, H::Io(e) if e.kind() == io::ErrorKind::UnexpectedEof);
        let is_probe = matches!(error, H::Probe(_)) || no_hello && is_end;
        let rest = || match error {
            H::Tls(e) => self.tls(e),
            _ => (error.to_string(), format!("look at the log of the {peer}")),
        };
        rows!(error, else rest();
            H::Timeout(_) if !self.silent.is_empty() => "{error}: nothing came back from {}" (some_of(self.silent)),
                "check the address, the port and the firewall; leave --udp out if the server speaks TLS over TCP";
            H::Timeout(_) if no_hello => "{error}",
                "no ClientHello came: the client is silent, or needs a longer --timeout";
            H::Timeout(_) if is_client && self.options.datagrams.follows_server() => "{error}",
                "use --scheme tcs if this client is behind a port-restricted or symmetric NAT, which blocks the \
                 server's other port; or raise --timeout";
            H::Unconfirmed { .. } if has_psk => "{error}",
                "the key of {psk} may differ from the {peer}'s: give both sides the same identity and key";
            H::Timeout(_) | H::Unconfirmed { .. } => "{error}",
                "raise --timeout for a slow line, or look at the log of the {peer}";
            _ if is_probe => "{error}",
                "no ClientHello came, as with port scans and health checks; or look at the log of the client";
            _ if is_end && is_client => "{error}",
                "look at the log of the server, and check that this is a port for TLS";
            // RFC 7250 §4.2: the server has seen only the ClientHello of this client.
            H::Tls(Error::AlertReceived(alert @ A::UNSUPPORTED_CERTIFICATE)) if is_client =>
                "the server has or requires another certificate type (alert {alert})",
                "{}" (kinds::of_client(self.options));
            // In TLS 1.2, the peer refuses the first record under keys from another PSK. OpenSSL and GnuTLS
            // give no other reason.
            H::Tls(Error::AlertReceived(alert @ A::BAD_RECORD_MAC)) if has_psk =>
                "the {peer} cannot decrypt records under the key of {psk} (alert {alert})",
                "its key for this identity may differ: give both sides the same identity and key";
        )
    }

    /// Explains a read or write error after the handshake, in a connection of this version.
    pub(crate) fn stream(&self, error: &io::Error, version: Option<ProtocolVersion>) -> Explanation {
        let [own, peer] = self.sides();
        // RFC 5746 §4.5: a peer whose renegotiation is refused may end the connection, as OpenSSL does.
        let refuses =
            version == Some(ProtocolVersion::TLS1_2) && !self.options.renegotiation && !self.proved_nothing;
        let rest = || match of_tls(error) {
            Some(e) => self.tls(e),
            None => (error.to_string(), format!("look at the log of the {peer}")),
        };
        let (why, advice) = rows!(of_tls(error), else rest();
            Some(Error::AlertReceived(alert @ A::HANDSHAKE_FAILURE)) if refuses =>
                "the {peer} requested a renegotiation, which this {own} refuses (alert {alert})",
                "add --renegotiation to this {own}, or disable renegotiation on the {peer}";
        );
        Explanation { why, advice, code: Code::of_stream(error) }
    }

    /// Explains the failure of a renegotiation that this client requested.
    pub(crate) fn renegotiation(&self, error: &io::Error) -> Explanation {
        let no_certificate = self.proved_nothing;
        let (why, advice) = rows!(of_tls(error), else return self.stream(error, Some(ProtocolVersion::TLS1_2));
            Some(Error::AlertReceived(
                alert @ (A::HANDSHAKE_FAILURE | A::NO_RENEGOTIATION | A::UNEXPECTED_MESSAGE)
            )) if !(no_certificate && *alert == A::HANDSHAKE_FAILURE) =>
                "the server refused a renegotiation (alert {alert})",
                "start the server with --renegotiation, and send data between renegotiations";
        );
        Explanation { why, advice, code: Code::of_stream(error) }
    }

    /// Returns whether this is a server that has not received a ClientHello.
    fn is_before_hello(&self) -> bool {
        self.offered.is_some_and(|offered| offered.get().is_none())
    }

    /// Explains why a key that the client named was refused.
    fn named_psk(&self, error: &Error) -> Option<Texts> {
        match error {
            Error::PeerIncompatible(I::NoPsk) | Error::PeerMisbehaved(M::BadFinished | M::BadBinder) => {
                let Explanation { why, advice, .. } = self.psks?.explain(&self.psk_source())?;
                Some((why, advice))
            }
            _ => None,
        }
    }

    fn tls(&self, error: &Error) -> Texts {
        match error {
            Error::Authentication(failure) => self.authentication(failure),
            Error::AlertReceived(alert) => self.alert(*alert),
            Error::PeerIncompatible(why) => self.named_psk(error).unwrap_or_else(|| self.incompatible(why)),
            _ => self.named_psk(error).unwrap_or_else(|| self.broken(error)),
        }
    }

    /// Explains that the peer broke the protocol, or that this side cannot go on.
    fn broken(&self, error: &Error) -> Texts {
        use Error::{Malformed as Bad, PeerMisbehaved as P};
        let peer = peer(self.side);
        let psk = self.psk_source();
        let before_hello = self.is_before_hello();
        rows!(error;
            // In TLS 1.2 both a wrong key and an unknown identity show in Finished.
            P(M::BadFinished) if self.options.has_psk() =>
                "the identity or pre-shared key of the {peer} differs from {psk}",
                "give both sides the same identity and key";
            P(M::BadBinder) => "the {peer}'s pre-shared key for this identity differs from {psk}",
                "give both sides the same key";
            P(M::BadRecordMac | M::BadFinished) => "{error}",
                "something changed the data on the way, or the {peer} has other keys: look at the log of the {peer}";
            P(M::Flood(Field::Renegotiations)) => "the {peer} renegotiated too often in a row",
                "make the {peer} send data between renegotiations; --help names the limit";
            P(M::Flood(_)) => "{error}", "find out why the {peer} sends so many of them";
            Bad(Malformed::AboveLimit { .. }) => "{error}",
                "make the {peer} send less: docs/security.md lists the limits";
            P(M::UnexpectedRecord(_) | M::RecordOverflow) | Bad(_) if before_hello => "{error}",
                "the client speaks another protocol than TLS: check its URL or its settings";
            P(M::UnexpectedRecord(_) | M::RecordOverflow) if self.side == Side::Client => "{error}",
                "another protocol than TLS may answer there: check the port";
            P(M::IllegalParameter(Field::Extension(ExtensionType::COOKIE))) => "{error}",
                "the client can connect again: its cookie is for another address, or too old";
            P(M::BadSignature) if self.options.verifiable.trusts() => "{error}",
                "check that the {peer} has the latest key of its DID, or the key of its certificate";
            P(M::BadSignature) => "{error}", "check that the {peer} has the key of its certificate";
            P(M::Downgrade) => "{error}", "look for a middlebox that cannot pass TLS 1.3, or for an attack";
            P(M::SessionUsedTwice) => "{error}", "connect again";
            P(M::BadCompression) => "{error}", "make the {peer} send its certificate without compression";
            P(M::TooMuchEarlyData | M::TooMuchSkippedEarlyData) => "{error}",
                "make the client send less early data";
            Error::Truncated | Error::TimedOut => "{error}", "look at the log of the {peer}";
            Error::Misuse(Misuse::NotSupported(_)) => "{error}", "leave it out, or use another version";
            Error::Misuse(_) | Error::Internal(_) => "{error}", "report it";
            _ => "{error}", "update the {peer}, or report this with a capture to its maker (dunlin explain)";
        )
    }

    /// The client offers a TLS 1.2 suite that this server supports, but has not enabled.
    fn left_out(&self) -> Option<Texts> {
        let offered = if self.options.tls1_2 { self.offered?.get()? } else { return None };
        let suite = self.options.left_out(offered)?.id;
        if TLS12_PSK_CIPHER_SUITES.iter().any(|psk| psk.id == suite) && self.options.cipher.is_none() {
            return Some(self.incompatible(&I::PskMode));
        }
        let why =
            format!("no common cipher suite; this server supports the client's {suite}, but only by name");
        Some((why, format!("add --cipher {suite} to this server")))
    }

    /// Returns whether every TLS 1.2 suite of the client has a pre-shared key.
    fn offers_psks_alone(&self) -> bool {
        let offered = self.offered.and_then(OnceLock::get).map_or(&[][..], |offered| offered);
        let mut known =
            lists::tls12_of_use().into_iter().filter(|suite| offered.contains(&suite.id)).peekable();
        known.peek().is_some() && known.all(Tls12CipherSuite::has_psk)
    }

    /// Explains that the sides have nothing in common.
    fn incompatible(&self, why: &I) -> Texts {
        use ProtocolVersion as V;
        let [own, peer] = self.sides();
        if matches!(why, I::CipherSuite | I::SuiteAuthentication)
            && let Some(texts) = self.left_out()
        {
            return texts;
        }
        let options = self.options;
        let has_psk = options.has_psk();
        let has_only_psk = has_psk && options.cert.is_empty() && options.key.is_empty();
        let newer_off = !options.has_tls13();
        let older_off = !options.tls1_2;
        rows!(why;
            I::Version(Some(V::DTLS1_2)) if older_off => "the {peer} speaks at most DTLS 1.2",
                "enable DTLS 1.3 on it, or add --tls1-2 --tls1-3";
            I::Version(Some(V::DTLS1_3)) if newer_off => "the {peer} speaks only DTLS 1.3",
                "add --tls1-3, or enable DTLS 1.2 on the {peer}";
            I::Version(Some(V::TLS1_2)) if older_off => "the {peer} speaks at most TLS 1.2",
                "enable TLS 1.3 on it, or add --tls1-2 --tls1-3";
            I::Version(Some(V::TLS1_3)) if newer_off => "the {peer} speaks only TLS 1.3",
                "add --tls1-3, or enable TLS 1.2 on the {peer}";
            I::Version(Some(version)) => "the {peer} speaks {version}, and this {own} {}" (options.versions()),
                "enable a common version on both sides";
            I::Version(None) => "this {own} finds {why}", "compare --tls1-2 and --tls1-3 of both sides";
            I::CipherSuite => "this {own} finds {why}",
                "compare --ciphersuites, and --cipher for TLS 1.2, of both sides";
            I::SuiteAuthentication if !has_psk && self.offers_psks_alone() =>
                "the {peer} offers only cipher suites for pre-shared keys, and this {own} has no such key",
                "give this {own} its key with --psk-file, or give the {peer} trusted certificates";
            I::SuiteAuthentication if has_only_psk =>
                "this {own} has only pre-shared keys, and the {peer} offers no cipher suite for them",
                "give the {peer} a key with --psk-file, or give this {own} --chain and --key";
            I::SuiteAuthentication => "no cipher suite of the {peer} suits {}" (options.own_keys()),
                "add one to --cipher of the {peer}, or give this {own} a key of another type";
            I::CurveOfKey(curve) => "the {peer} does not support {curve}, the curve of {}" (options.own_keys()),
                "add {curve} to --groups of the {peer}, or give a key of another type";
            I::FiniteField(bits) => "the {peer} chose a finite field of {bits} bits that this {own} does not accept",
                "make it use a field of RFC 7919 that --groups names here, or use suites with ECDHE";
            I::Group | I::Field if options.tls1_2 => "this {own} finds {why}",
                "compare --groups of both sides; suites with DHE need a finite field, such as ffdhe2048";
            I::Group | I::Field => "this {own} finds {why}", "compare --groups of both sides";
            I::ExtendedMasterSecret =>
                "the {peer} does not support extended master secret, which this {own} requires",
                "enable it on the {peer}, or start this {own} with --allow-no-ems";
            I::NoPsk if !has_psk => "this {own} has no pre-shared keys, and the {peer} offers nothing else",
                "give this {own} --psk-file, or let the {peer} use certificates";
            I::NoPsk => "the {peer} offers no pre-shared key of {}" (self.psk_source()),
                "give both sides the same identity and key";
            I::PskMode => "the {peer} offers pre-shared keys only without (EC)DHE",
                "start this {own} with --psk-ke or --allow-no-dhe-kex";
            I::PskHash => "the pre-shared key suits only SHA-256, and the suites of the {peer} use SHA-384",
                "add TLS_AES_128_GCM_SHA256 to the suites of the {peer}";
            I::NoCredential(_) if has_only_psk =>
                "this {own} has only pre-shared keys, and the {peer} offers none",
                "give the {peer} a key with --psk-file, or give this {own} --chain and --key";
            I::NoCredential(Field::NoneOfUsage) => "this {own} finds {why}",
                "issue a leaf certificate with `dunlin pki leaf`";
            I::SignatureScheme => "this {own} finds no signature scheme of the {peer} for {}" (options.own_keys()),
                "add one to --sigalgs of the {peer}, or give a key of another type";
            I::CertificateType { ours, theirs } => "this {own} finds {why}",
                "{}" (kinds::of_server(options, ours, theirs));
            I::ApplicationProtocol => "this {own} finds {why}", "give both sides a common one with --alpn";
            I::SecureRenegotiation => "this {own} finds {why}",
                "update the other side: it lacks RFC 5746, published in 2010";
            I::Fallback => "this {own} finds {why}", "make the client try TLS 1.3 first";
            _ => "this {own} finds {why}", "compare the options of both sides";
        )
    }

    /// Explains that this side refused the peer.
    fn authentication(&self, failure: &AuthenticationFailure) -> Texts {
        use AuthenticationFailure as F;
        let [own, peer] = self.sides();
        let refused = format!("this {own} refused the {peer}: {failure}");
        if let Some((detail, advice)) = self.words().explain(failure) {
            return (refused + &detail, advice);
        }
        let takes_credentials = self.options.verifiable.trust.is_some();
        let takes_dids = self.options.verifiable.trusts() && !takes_credentials;
        rows!(failure;
            F::UnknownRawKey => "{refused} in {}" (self.rpk_source()),
                "add its public key to the file of --raw-keys";
            F::NoCertificate => "{refused}", "give the {peer} {}" (kinds::accepted(self.options));
            F::UnsupportedType(typ) => "{refused}", "{}" (kinds::of_refused(self.options, peer, *typ));
            F::RejectedWith(A::UNKNOWN_CA, _) if takes_dids => "{refused}",
                "add the DID to the file of --dids, or let a member send its proof (--membership)";
            F::RejectedWith(A::CERTIFICATE_REVOKED, _) if takes_dids => "{refused}", "give the {peer} a new DID";
            F::RejectedWith(A::CERTIFICATE_EXPIRED, _) if takes_dids => "{refused}",
                "check the clock, or let the {peer} refresh the proof of its DID";
            F::RejectedWith(..) if takes_dids => "{refused}",
                "give what is missing with --did-documents or --registry, and check that the registry runs";
            F::RejectedWith(A::UNKNOWN_CA, _) if takes_credentials => "{refused}",
                "add the issuer to the file of --vc-issuers, and the DID to that of --vc-peers if there is one; a member \
                 sends its proof (--membership)";
            F::RejectedWith(A::CERTIFICATE_REVOKED, _) if takes_credentials => "{refused}",
                "give the {peer} a new DID and credential";
            F::RejectedWith(A::CERTIFICATE_EXPIRED, _) if takes_credentials => "{refused}",
                "check the clock; issue the credential again, get the newest status list, or let the {peer} \
                 refresh the proof of its DID";
            F::RejectedWith(..) if takes_credentials => "{refused}",
                "look at the credential with `dunlin vc show`; give what is missing with --vc-status, --did-documents \
                 or --registry, check that the registry runs, or let the {peer} send its status list \
                 (--staple-status)";
            _ => "{refused}", "look at it with `dunlin pki show`";
        )
    }

    /// The words for explanations of a refused chain.
    fn words(&self) -> Words {
        Words {
            anchors: self.ca_source(),
            ca: "--ca",
            name: "--server-name",
            complete: format!("make the {} send its intermediate certificates", peer(self.side)),
            depth: self.options.verify_depth,
            enable: Some("add its authority's signature scheme to --sigalgs or --sigalgs-cert"),
            lists: "give its CRL with --crl, or check only the peer's certificate with --crl-check",
        }
    }

    /// Explains that the peer refused this side.
    fn alert(&self, alert: A) -> Texts {
        let [own, peer] = self.sides();
        let options = self.options;
        let psk = self.psk_source();
        let has_psk = options.has_psk();
        let is_client = self.side == Side::Client;
        // RFC 9147 §5.1: a cookie is for one address.
        let has_cookie = is_client && options.udp;
        match alert {
            A::UNKNOWN_CA
            | A::BAD_CERTIFICATE
            | A::UNSUPPORTED_CERTIFICATE
            | A::CERTIFICATE_REVOKED
            | A::CERTIFICATE_EXPIRED
            | A::CERTIFICATE_UNKNOWN => return self.refused_credential(alert),
            A::CERTIFICATE_REQUIRED => return self.no_certificate(alert),
            // RFC 5246 §7.4.6: in TLS 1.2 this has the meaning of certificate_required in TLS 1.3.
            A::HANDSHAKE_FAILURE if self.proved_nothing => return self.no_certificate(alert),
            _ => {}
        }
        rows!(alert;
            A::DECRYPT_ERROR | A::UNKNOWN_PSK_IDENTITY if has_psk && is_client =>
                "the {peer} does not know the identity or has another key than {psk} (alert {alert})",
                "give both sides the same identity and key; if the server has no pre-shared keys, use certificates";
            A::DECRYPT_ERROR | A::UNKNOWN_PSK_IDENTITY if has_psk =>
                "the {peer} does not know the identity or has another key than {psk} (alert {alert})",
                "give both sides the same identity and key";
            A::HANDSHAKE_FAILURE | A::INSUFFICIENT_SECURITY if has_psk && options.psk_ke =>
                "the {peer} shares no parameters with this {own} (alert {alert})",
                "start the {peer} with --psk-ke or --allow-no-dhe-kex, or leave --psk-ke out; or add this PSK and \
                 identity to the {peer}";
            A::HANDSHAKE_FAILURE | A::INSUFFICIENT_SECURITY if has_psk =>
                "the {peer} shares no parameters with this {own} (alert {alert})",
                "add this PSK and identity to the {peer}, or compare suites and groups of both sides";
            A::HANDSHAKE_FAILURE | A::INSUFFICIENT_SECURITY =>
                "the {peer} shares no parameters with this {own} (alert {alert})",
                "compare suites, groups, signature schemes and keys of both sides";
            A::ILLEGAL_PARAMETER if has_cookie && has_psk => "the {peer} ended the connection (alert {alert})",
                "connect again, since this client's address may have changed during the handshake; if that fails, \
                 too, the PSK or identity is probably wrong";
            A::ILLEGAL_PARAMETER if has_cookie => "the {peer} ended the connection (alert {alert})",
                "connect again, since this client's address may have changed during the handshake";
            A::ILLEGAL_PARAMETER | A::MISSING_EXTENSION if has_psk =>
                "the {peer} ended the connection (alert {alert})",
                "the PSK or identity is probably wrong; or look at the log of the {peer}";
            A::PROTOCOL_VERSION if !options.tls1_2 =>
                "the {peer} does not speak {} (alert {alert})" (options.versions()),
                "enable TLS 1.3 on it, or add --tls1-2 --tls1-3";
            A::PROTOCOL_VERSION if !options.has_tls13() =>
                "the {peer} does not speak {} (alert {alert})" (options.versions()),
                "enable TLS 1.2 on it, or add --tls1-3";
            A::PROTOCOL_VERSION => "the {peer} does not speak {} (alert {alert})" (options.versions()),
                "enable a common version on both sides";
            A::NO_APPLICATION_PROTOCOL =>
                "the {peer} speaks none of these application protocols (alert {alert})",
                "give another list with --alpn";
            A::UNRECOGNIZED_NAME => "the {peer} has no service under this name (alert {alert})",
                "give another one with --server-name";
            A::ACCESS_DENIED => "the {peer} denies access (alert {alert})", "ask its operator";
            _ => "the {peer} ended the connection (alert {alert})", "look at the log of the {peer}";
        )
    }

    /// Explains that the peer refused the credential of this side.
    fn refused_credential(&self, alert: A) -> Texts {
        let [own, peer] = self.sides();
        let has_did = self.options.verifiable.did.is_some();
        let refused = match self.own_source() {
            Some(source) => format!("the {peer} refused the credential of this {own}, {source}"),
            None => format!("the {peer} refused this {own}, which has no credential"),
        };
        rows!(alert;
            A::CERTIFICATE_REVOKED if has_did => "{refused} (alert {alert})",
                "give this {own} the latest key of its DID, and a credential that the issuer has neither revoked nor \
                 signed with a replaced key; the log of the {peer} says more";
            A::CERTIFICATE_EXPIRED if has_did => "{refused} (alert {alert})",
                "give this {own} a new credential, or the newest status list with --staple-status, or correct the \
                 {peer}'s clock if it is wrong";
            A::CERTIFICATE_REVOKED => "{refused} (alert {alert})",
                "give this {own} a new key and certificate: a revocation is permanent";
            A::CERTIFICATE_EXPIRED => "{refused} (alert {alert})",
                "renew this {own}'s certificate, or correct the {peer}'s clock if it is wrong";
            _ => "{refused} (alert {alert})",
                "give this {own} a credential that the {peer} trusts, or add its CA or key to the {peer}'s trust \
                 settings (with dunlin: --ca, --raw-keys, --vc-issuers, --dids)";
        )
    }

    /// Explains that the server requires a certificate and received none.
    fn no_certificate(&self, alert: A) -> Texts {
        let [own, peer] = self.sides();
        let advice = match self.own_source() {
            None => "give --chain and --key",
            Some(_) if self.options.verifiable.did.is_some() => {
                "both sides must resolve the method of --did: for a did:dunlin, give --registry here, too; or give --chain and --key"
            }
            Some(_) => "give --chain and --key of a type that it accepts",
        };
        (format!("the {peer} refused this {own}, which sent no certificate (alert {alert})"), advice.into())
    }

    fn sides(&self) -> [&'static str; 2] {
        [own(self.side), peer(self.side)]
    }

    fn ca_source(&self) -> String {
        match &self.options.ca_file {
            Some(path) => shown(path),
            None => "the certificates of this machine".into(),
        }
    }

    fn rpk_source(&self) -> String {
        self.options.rpk_file.as_deref().map_or_else(|| "--raw-keys".into(), shown)
    }

    fn psk_source(&self) -> String {
        match (&self.options.psk, &self.options.psk_file) {
            (_, Some(path)) if path.as_os_str() == "-" => "stdin".into(),
            (_, Some(path)) => shown(path),
            (Some(_), None) => "--psk".into(),
            (None, None) => format!("this {}, which has none", own(self.side)),
        }
    }

    fn own_source(&self) -> Option<String> {
        let files = if self.options.cert.is_empty() { &self.options.key } else { &self.options.cert };
        let names: Vec<_> = self.options.verifiable.named().chain(files).map(|path| shown(path)).collect();
        (!names.is_empty()).then(|| names.join(" or "))
    }
}

/// The error of TLS that a stream has reported.
fn of_tls(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

const fn own(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

const fn peer(side: Side) -> &'static str {
    own(side.peer())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use dunlin::error::ShortKey;

    /// Each failure gets the advice that fits it.
    #[test]
    fn advice_fits_the_failure() {
        let options = TlsOptions::default();
        let silent = OnceLock::new();
        let seen = OnceLock::from(vec![]);
        let explain = |offered: &OnceLock<_>, error: HandshakeError| {
            let told = Explainer::server(&options, None, offered).handshake(&error);
            assert!(!told.advice.contains("speaks TLS 1.3"), "{}", told.advice);
            told.advice
        };
        let timeout = || HandshakeError::Timeout(Duration::from_secs(1));
        let end = || HandshakeError::Io(io::ErrorKind::UnexpectedEof.into());
        let broken = |why| HandshakeError::Tls(why);
        assert!(explain(&silent, timeout()).starts_with("no ClientHello came"));
        assert!(explain(&seen, timeout()).starts_with("raise --timeout"));
        assert!(explain(&silent, end()).contains("port scans and health checks"));
        let probe = HandshakeError::Probe(io::ErrorKind::ConnectionReset.into());
        assert!(explain(&silent, probe).contains("port scans and health checks"));
        assert_eq!(explain(&seen, end()), "look at the log of the client");
        let plain = || broken(M::UnexpectedRecord(Field::ApplicationData).into());
        assert!(explain(&silent, plain()).contains("another protocol than TLS"));
        assert!(explain(&seen, plain()).starts_with("update the client"));
        let told = explain(&seen, broken(M::BadSignature.into()));
        assert_eq!(told, "check that the client has the key of its certificate");
        let told = explain(&seen, broken(I::ApplicationProtocol.into()));
        assert!(told.contains("--alpn"), "{told}");
        let told = Explainer::client(&options, false).handshake(&plain()).advice;
        assert_eq!(told, "another protocol than TLS may answer there: check the port");
    }

    #[test]
    fn names_all_addresses_that_are_silent() {
        let options = TlsOptions::default();
        let told = |count| {
            let addresses: Vec<_> =
                (1..=count).map(|port| SocketAddr::from(([192, 0, 2, 1], port))).collect();
            let explainer = Explainer::client(&options, false).with_silent(&addresses);
            explainer.handshake(&HandshakeError::Timeout(Duration::from_secs(1))).why
        };
        assert!(told(1).ends_with("nothing came back from 192.0.2.1:1"), "{}", told(1));
        assert!(told(2).ends_with("nothing came back from 192.0.2.1:1, 192.0.2.1:2"), "{}", told(2));
        assert!(told(9).ends_with("192.0.2.1:8, others") && !told(8).contains("others"), "{}", told(9));
    }

    #[test]
    fn names_a_key_that_is_too_short() {
        let short = ShortKey { bits: 1024, common_name: None };
        let error = HandshakeError::Tls(Error::Authentication(AuthenticationFailure::KeyTooShort(short)));
        let told = Explainer::client(&TlsOptions::default(), false).handshake(&error);
        let says =
            "this client refused the server: its RSA key has 1024 bits, and at least 2048 are required";
        assert_eq!(told.why, says);
        assert_eq!(told.advice, "issue it with an RSA key of 2048 bits, or a key of another type");
    }

    /// Peers other than OpenSSL and Dunlin report a wrong key by different alerts.
    #[test]
    fn suggests_a_wrong_psk() {
        let alerts = [
            A::ILLEGAL_PARAMETER,
            A::MISSING_EXTENSION,
            A::DECRYPT_ERROR,
            A::HANDSHAKE_FAILURE,
            A::UNKNOWN_PSK_IDENTITY,
            A::BAD_RECORD_MAC,
        ];
        let told = |options: &TlsOptions, alert| {
            let explainer = Explainer::client(options, false);
            explainer.handshake(&HandshakeError::Tls(Error::AlertReceived(alert))).advice
        };
        let with_psk = TlsOptions { psk: Some("00".into()), ..TlsOptions::default() };
        for alert in alerts {
            assert!(told(&with_psk, alert).contains("identity"), "{alert}");
            assert!(!told(&TlsOptions::default(), alert).contains("identity"), "{alert}");
        }
        let over_udp = TlsOptions { udp: true, ..with_psk };
        assert!(told(&over_udp, A::ILLEGAL_PARAMETER).contains("address may have changed"));
        assert!(told(&over_udp, A::MISSING_EXTENSION).starts_with("the PSK"));
    }
}
