//! Explains why a connection failed: the failed check, the side, the file, and the remedy.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;

use dunlin::crypto::Tls12CipherSuite;
use dunlin::error::{AuthenticationFailure, Malformed, Misuse, PeerIncompatible, PeerMisbehaved};
use dunlin::wire::{AlertDescription, CipherSuite, ExtensionType, ProtocolVersion, What};
use dunlin::{Error, Side};
use dunlin_awslc::tls12::TLS12_PSK_CIPHER_SUITES;
use dunlin_command::error::{Code, Explanation};
use dunlin_tokio::HandshakeError;

use crate::chains::Words;
use crate::tls::options::TlsOptions;
use crate::tls::psks::NamedPsks;
use crate::tls::{kinds, lists};

/// The remedy for a connection that ended before its ClientHello.
const NO_HELLO: &str =
    "no ClientHello came, as with port scans and health checks; or look at the log of the client";

/// How many addresses of a silent server an error names.
const MAX_ADDRESSES: usize = 8;

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
        Explanation { code, ..self.handshake_in_words(error) }
    }

    fn handshake_in_words(&self, error: &HandshakeError) -> Explanation {
        if let (HandshakeError::Timeout(_), [_, ..]) = (error, self.silent) {
            let mut shown: Vec<_> = self.silent.iter().take(MAX_ADDRESSES).map(ToString::to_string).collect();
            shown.extend((self.silent.len() > MAX_ADDRESSES).then(|| "others".to_owned()));
            let why = format!("{error}: nothing came back from {}", shown.join(", "));
            return Explanation::new(
                why,
                "check the address, the port and the firewall; leave --udp out if the server speaks TLS over TCP",
            );
        }
        match error {
            // The server has seen only the ClientHello of this client.
            HandshakeError::Tls(Error::AlertReceived(AlertDescription::UNSUPPORTED_CERTIFICATE))
                if self.side == Side::Client =>
            {
                self.other_certificate_type()
            }
            // In TLS 1.2, the peer refuses the first record under keys from another PSK. OpenSSL and GnuTLS
            // give no other reason.
            HandshakeError::Tls(Error::AlertReceived(alert @ AlertDescription::BAD_RECORD_MAC))
                if self.options.has_psk() =>
            {
                let peer = peer(self.side);
                let source = self.psk_source();
                let why =
                    format!("the {peer} cannot decrypt records under the key of {source} (alert {alert})");
                let advice =
                    "its key for this identity may differ: give both sides the same identity and key";
                Explanation::new(why, advice)
            }
            HandshakeError::Tls(e) => self.tls(e),
            e => Explanation::new(e.to_string(), self.unfinished(e)),
        }
    }

    /// Explains a read or write error after the handshake, in a connection of this version.
    pub(crate) fn stream(&self, error: &io::Error, version: Option<ProtocolVersion>) -> Explanation {
        Explanation { code: Code::of_stream(error), ..self.stream_in_words(error, version) }
    }

    fn stream_in_words(&self, error: &io::Error, version: Option<ProtocolVersion>) -> Explanation {
        match error.get_ref().and_then(|e| e.downcast_ref()) {
            // RFC 5746 §4.5: a peer whose renegotiation is refused may end the connection, as OpenSSL does.
            Some(Error::AlertReceived(AlertDescription::HANDSHAKE_FAILURE))
                if version == Some(ProtocolVersion::TLS1_2)
                    && !self.options.renegotiation
                    && !self.proved_nothing =>
            {
                let own = own(self.side);
                let peer = peer(self.side);
                let why = format!(
                    "the {peer} requested a renegotiation, which this {own} refuses (alert handshake_failure)"
                );
                Explanation::new(
                    why,
                    format!("add --renegotiation to this {own}, or disable renegotiation on the {peer}"),
                )
            }
            Some(e) => self.tls(e),
            None => Explanation::new(error.to_string(), self.look_there()),
        }
    }

    /// The remedy for a handshake that ended without an error of TLS.
    fn unfinished(&self, error: &HandshakeError) -> String {
        use io::ErrorKind as K;
        let no_hello = self.is_before_hello();
        match error {
            HandshakeError::Timeout(_) if no_hello => {
                "no ClientHello came: the client is silent, or needs a longer --timeout".into()
            }
            HandshakeError::Timeout(_) if self.side == Side::Client && self.options.datagrams.follows_server() => {
                "use --scheme tcs if this client is behind a port-restricted or symmetric NAT, which blocks the server's other \
                 port; or raise --timeout"
                    .into()
            }
            HandshakeError::Unconfirmed { .. } if self.options.has_psk() => {
                format!("the key of {} may differ from the {}'s: give both sides the same identity and key", self.psk_source(), peer(self.side))
            }
            HandshakeError::Timeout(_) | HandshakeError::Unconfirmed { .. } => {
                format!("raise --timeout for a slow line, or {}", self.look_there())
            }
            HandshakeError::Probe(_) => NO_HELLO.into(),
            HandshakeError::Io(e) if no_hello && e.kind() == K::UnexpectedEof => NO_HELLO.into(),
            HandshakeError::Io(e) if self.side == Side::Client && e.kind() == K::UnexpectedEof => {
                "look at the log of the server, and check that this is a port for TLS".into()
            }
            _ => self.look_there(),
        }
    }

    fn look_there(&self) -> String {
        format!("look at the log of the {}", peer(self.side))
    }

    /// Returns whether this is a server that has not received a ClientHello.
    fn is_before_hello(&self) -> bool {
        self.offered.is_some_and(|offered| offered.get().is_none())
    }

    /// The remedy for a peer that breaks the protocol.
    fn broken(&self, error: &Error) -> String {
        use PeerMisbehaved as P;
        let peer = peer(self.side);
        match error {
            Error::Malformed(Malformed::AboveLimit { .. }) => {
                format!("make the {peer} send less: docs/security.md lists the limits")
            }
            Error::PeerMisbehaved(P::UnexpectedRecord(_) | P::RecordOverflow) | Error::Malformed(_)
                if self.is_before_hello() =>
            {
                "the client speaks another protocol than TLS: check its URL or its settings".into()
            }
            Error::PeerMisbehaved(P::UnexpectedRecord(_) | P::RecordOverflow)
                if self.side == Side::Client =>
            {
                "another protocol than TLS may answer there: check the port".into()
            }
            Error::PeerMisbehaved(P::BadRecordMac | P::BadFinished | P::BadBinder) => {
                format!(
                    "something changed the data on the way, or the {peer} has other keys: {}",
                    self.look_there()
                )
            }
            Error::PeerMisbehaved(P::IllegalParameter(What::Extension(ExtensionType::COOKIE))) => {
                "the client can connect again: its cookie is for another address, or too old".into()
            }
            Error::PeerMisbehaved(P::BadSignature) if self.options.verifiable.trusts() => {
                format!("check that the {peer} has the latest key of its DID, or the key of its certificate")
            }
            Error::PeerMisbehaved(P::BadSignature) => {
                format!("check that the {peer} has the key of its certificate")
            }
            Error::PeerMisbehaved(P::Downgrade) => {
                "look for a middlebox that cannot pass TLS 1.3, or for an attack".into()
            }
            Error::PeerMisbehaved(P::SessionUsedTwice) => "connect again".into(),
            Error::PeerMisbehaved(P::BadCompression) => {
                format!("make the {peer} send its certificate without compression")
            }
            Error::PeerMisbehaved(P::TooMuchEarlyData | P::TooMuchSkippedEarlyData) => {
                "make the client send less early data".into()
            }
            Error::PeerMisbehaved(P::Flood(_)) => format!("find out why the {peer} sends so many of them"),
            _ => format!("update the {peer}, or report this with a capture to its maker (dunlin explain)"),
        }
    }

    /// Explains the failure of a renegotiation that this client requested.
    pub(crate) fn renegotiation(&self, error: &io::Error) -> Explanation {
        use AlertDescription as A;
        match error.get_ref().and_then(|e| e.downcast_ref()) {
            Some(Error::AlertReceived(A::HANDSHAKE_FAILURE)) if self.proved_nothing => {}
            Some(Error::AlertReceived(
                alert @ (A::HANDSHAKE_FAILURE | A::NO_RENEGOTIATION | A::UNEXPECTED_MESSAGE),
            )) => {
                let refused = Explanation::new(
                    format!("the server refused a renegotiation (alert {alert})"),
                    "start the server with --renegotiation, and send data between renegotiations",
                );
                return Explanation { code: Code::of_stream(error), ..refused };
            }
            _ => {}
        }
        self.stream(error, Some(ProtocolVersion::TLS1_2))
    }

    /// Explains why a key that the client named was refused.
    fn named_psk(&self, error: &Error) -> Option<Explanation> {
        match error {
            Error::PeerIncompatible(PeerIncompatible::NoPsk)
            | Error::PeerMisbehaved(PeerMisbehaved::BadFinished | PeerMisbehaved::BadBinder) => {
                self.psks?.explain(&self.psk_source())
            }
            _ => None,
        }
    }

    fn tls(&self, error: &Error) -> Explanation {
        if let Some(explanation) = self.named_psk(error) {
            return explanation;
        }
        let peer = peer(self.side);
        match error {
            Error::Authentication(failure) => self.authentication(failure),
            Error::AlertReceived(alert) => self.alert(*alert),
            Error::PeerIncompatible(why) => self.incompatible(why),
            // In TLS 1.2 both a wrong key and an unknown identity show in Finished.
            Error::PeerMisbehaved(PeerMisbehaved::BadFinished) if self.options.has_psk() => Explanation::new(
                format!("the identity or pre-shared key of the {peer} differs from {}", self.psk_source()),
                "give both sides the same identity and key",
            ),
            Error::PeerMisbehaved(PeerMisbehaved::BadBinder) => Explanation::new(
                format!("the {peer}'s pre-shared key for this identity differs from {}", self.psk_source()),
                "give both sides the same key",
            ),
            Error::Truncated => Explanation::new(error.to_string(), self.look_there()),
            Error::PeerMisbehaved(PeerMisbehaved::Flood(What::Renegotiations)) => Explanation::new(
                format!("the {peer} renegotiated too often in a row"),
                format!("make the {peer} send data between renegotiations; --help names the limit"),
            ),
            Error::Misuse(Misuse::NotSupported(_)) => {
                Explanation::new(error.to_string(), "leave it out, or use another version")
            }
            Error::Misuse(_) | Error::Internal(_) => Explanation::new(error.to_string(), "report it"),
            error => Explanation::new(error.to_string(), self.broken(error)),
        }
    }

    /// The client offers a TLS 1.2 suite that this server supports, but has not enabled.
    fn left_out(&self) -> Option<Explanation> {
        let offered = self.offered?.get().filter(|_| self.options.tls1_2)?;
        let suite = self.options.left_out(offered)?;
        if TLS12_PSK_CIPHER_SUITES.iter().any(|psk| psk.id == suite.id) && self.options.cipher.is_none() {
            return Some(self.incompatible(&PeerIncompatible::PskMode));
        }
        let why = format!(
            "no common cipher suite; this server supports the client's {}, but only by name",
            suite.id
        );
        Some(Explanation::new(why, format!("add --cipher {} to this server", suite.id)))
    }

    /// Returns whether every TLS 1.2 suite of the client has a pre-shared key.
    fn offers_psks_alone(&self) -> bool {
        let offered = self.offered.and_then(OnceLock::get).map_or(&[][..], |offered| offered);
        let mut known =
            lists::tls12_of_use().into_iter().filter(|suite| offered.contains(&suite.id)).peekable();
        known.peek().is_some() && known.all(Tls12CipherSuite::has_psk)
    }

    /// Explains that the sides have nothing in common.
    fn incompatible(&self, why: &PeerIncompatible) -> Explanation {
        use PeerIncompatible as P;
        let own = own(self.side);
        let peer = peer(self.side);
        if let P::CipherSuite | P::SuiteAuthentication = why
            && let Some(explanation) = self.left_out()
        {
            return explanation;
        }
        let without_certificate = self.options.cert.is_empty() && self.options.key.is_empty();
        match why {
            P::Version(Some(version)) => self.other_version(*version),
            P::SuiteAuthentication if !self.options.has_psk() && self.offers_psks_alone() => {
                Explanation::new(
                    format!(
                        "the {peer} offers only cipher suites for pre-shared keys, and this {own} has no such key"
                    ),
                    format!(
                        "give this {own} its key with --psk-file, or give the {peer} trusted certificates"
                    ),
                )
            }
            P::SuiteAuthentication if without_certificate && self.options.has_psk() => Explanation::new(
                format!(
                    "this {own} has only pre-shared keys, and the {peer} offers no cipher suite for them"
                ),
                format!("give the {peer} a key with --psk-file, or give this {own} --cert and --key"),
            ),
            P::SuiteAuthentication => Explanation::new(
                format!("no cipher suite of the {peer} suits {}", self.options.own_keys()),
                format!("add one to --cipher of the {peer}, or give this {own} a key of another type"),
            ),
            P::CurveOfKey(curve) => Explanation::new(
                format!("the {peer} does not support {curve}, the curve of {}", self.options.own_keys()),
                format!("add {curve} to --groups of the {peer}, or give a key of another type"),
            ),
            P::FiniteField(bits) => Explanation::new(
                format!("the {peer} chose a finite field of {bits} bits that this {own} does not accept"),
                "make it use a field of RFC 7919 that --groups names here, or use suites with ECDHE",
            ),
            P::Group | P::Field if self.options.tls1_2 => Explanation::new(
                format!("this {own} finds {why}"),
                "compare --groups of both sides; suites with DHE need a finite field, such as ffdhe2048",
            ),
            P::ExtendedMasterSecret => Explanation::new(
                format!("the {peer} does not support extended master secret, which this {own} requires"),
                format!("enable it on the {peer}, or start this {own} with --allow-no-ems"),
            ),
            P::NoPsk if !self.options.has_psk() => Explanation::new(
                format!("this {own} has no pre-shared keys, and the {peer} offers nothing else"),
                format!("give this {own} --psk-file, or let the {peer} use certificates"),
            ),
            P::NoPsk => Explanation::new(
                format!("the {peer} offers no pre-shared key of {}", self.psk_source()),
                "give both sides the same identity and key",
            ),
            P::PskMode => Explanation::new(
                format!("the {peer} offers pre-shared keys only without (EC)DHE"),
                format!("start this {own} with --psk-ke or --allow-no-dhe-kex"),
            ),
            P::PskHash => Explanation::new(
                format!("the pre-shared key suits only SHA-256, and the suites of the {peer} use SHA-384"),
                format!("add TLS_AES_128_GCM_SHA256 to the suites of the {peer}"),
            ),
            P::NoCredential(_) if without_certificate && self.options.has_psk() => Explanation::new(
                format!("this {own} has only pre-shared keys, and the {peer} offers none"),
                format!("give the {peer} a key with --psk-file, or give this {own} --cert and --key"),
            ),
            P::SignatureScheme => Explanation::new(
                format!("this {own} finds no signature scheme of the {peer} for {}", self.options.own_keys()),
                format!("add one to --sigalgs of the {peer}, or give a key of another type"),
            ),
            P::CertificateType { ours, theirs } => Explanation::new(
                format!("this {own} finds {why}"),
                kinds::of_server(self.options, ours, theirs),
            ),
            why => {
                let advice = match why {
                    P::Version(None) => "compare --tls1-2 and --tls1-3 of both sides",
                    P::CipherSuite => "compare --ciphersuites, and --cipher for TLS 1.2, of both sides",
                    P::Group | P::Field => "compare --groups of both sides",
                    P::ApplicationProtocol => "give both sides a common one with --alpn",
                    P::SecureRenegotiation => "update the other side: it lacks RFC 5746, published in 2010",
                    P::Fallback => "make the client try TLS 1.3 first",
                    P::NoCredential(What::NoneOfUsage) => "issue a leaf certificate with `dunlin pki leaf`",
                    _ => "compare the options of both sides",
                };
                Explanation::new(format!("this {own} finds {why}"), advice)
            }
        }
    }

    /// Explains that the peer speaks no version that this side has on.
    fn other_version(&self, version: ProtocolVersion) -> Explanation {
        let own = own(self.side);
        let peer = peer(self.side);
        let [newer_off, older_off] = [!self.options.has_tls13(), !self.options.tls1_2];
        let only = |version: &str, other: &str| {
            Explanation::new(
                format!("the {peer} speaks only {version}"),
                format!("add --tls1-3, or enable {other} on the {peer}"),
            )
        };
        let at_most = |version: &str, newer: &str| {
            Explanation::new(
                format!("the {peer} speaks at most {version}"),
                format!("enable {newer} on it, or add --tls1-2 --tls1-3"),
            )
        };
        match version {
            ProtocolVersion::DTLS1_2 if older_off => at_most("DTLS 1.2", "DTLS 1.3"),
            ProtocolVersion::DTLS1_3 if newer_off => only("DTLS 1.3", "DTLS 1.2"),
            ProtocolVersion::TLS1_2 if older_off => at_most("TLS 1.2", "TLS 1.3"),
            ProtocolVersion::TLS1_3 if newer_off => only("TLS 1.3", "TLS 1.2"),
            version => Explanation::new(
                format!("the {peer} speaks {version}, and this {own} {}", self.options.versions()),
                "enable a common version on both sides",
            ),
        }
    }

    /// Explains that the server refused the ClientHello for its certificate types (RFC 7250 §4.2).
    fn other_certificate_type(&self) -> Explanation {
        Explanation::new(
            "the server has or requires another certificate type (alert unsupported_certificate)",
            kinds::of_client(self.options),
        )
    }

    /// Explains that this side refused the peer.
    fn authentication(&self, failure: &AuthenticationFailure) -> Explanation {
        use AuthenticationFailure as F;
        let peer = peer(self.side);
        let refused =
            |detail: String| format!("this {} refused the {peer}: {failure}{detail}", own(self.side));
        if let Some((detail, advice)) = self.words().explain(failure) {
            return Explanation::new(refused(detail), advice);
        }
        match failure {
            F::UnknownRawKey => Explanation::new(
                refused(format!(" in {}", self.rpk_source())),
                "add its public key to the file of --rpk-file",
            ),
            F::NoCertificate => Explanation::new(
                refused(String::new()),
                format!("give the {peer} {}", kinds::accepted(self.options)),
            ),
            F::UnsupportedType(typ) => Explanation::new(
                refused(String::new()),
                kinds::of_refused(self.options, peer, *typ),
            ),
            F::RejectedWith(alert, _) if self.options.verifiable.trusts() => Explanation::new(
                refused(String::new()),
                match *alert {
                    AlertDescription::UNKNOWN_CA if self.options.verifiable.trust.is_none() => {
                        "add the DID to the file of --peers, or let a member send its proof (--membership)".into()
                    }
                    AlertDescription::UNKNOWN_CA => {
                        "add the issuer to the file of --trust, and the DID to that of --peers if there is one; a member sends its proof \
                         (--membership)"
                            .into()
                    }
                    AlertDescription::CERTIFICATE_REVOKED if self.options.verifiable.trust.is_none() => {
                        format!("give the {peer} a new DID")
                    }
                    AlertDescription::CERTIFICATE_EXPIRED if self.options.verifiable.trust.is_none() => {
                        format!("check the clock, or let the {peer} refresh the proof of its DID")
                    }
                    _ if self.options.verifiable.trust.is_none() => {
                        "give what is missing with --document or --registry, and check that the registry runs".into()
                    }
                    AlertDescription::CERTIFICATE_REVOKED => format!("give the {peer} a new DID and credential"),
                    AlertDescription::CERTIFICATE_EXPIRED => format!(
                        "check the clock; issue the credential again, get the newest status list, or let the {peer} refresh the proof of its DID"
                    ),
                    _ => format!(
                        "look at the credential with `dunlin vc show`; give what is missing with --status-list, --document or --registry, \
                         check that the registry runs, or let the {peer} send its status list (--staple-status)"
                    ),
                },
            ),
            _ => Explanation::new(refused(String::new()), "look at it with `dunlin pki show`"),
        }
    }

    /// The words for explanations of a refused chain.
    fn words(&self) -> Words {
        Words {
            anchors: self.ca_source(),
            ca: "--CAfile",
            name: "--servername",
            complete: format!("make the {} send its intermediate certificates", peer(self.side)),
            depth: self.options.verify_depth,
            enable: Some("add its authority's signature scheme to --sigalgs or --sigalgs-cert"),
            leaf_only: Some("check only the peer's certificate with --crl-check"),
        }
    }

    /// Explains that the peer refused this side.
    fn alert(&self, alert: AlertDescription) -> Explanation {
        use AlertDescription as A;
        let own = own(self.side);
        let peer = peer(self.side);
        let says = |what: String| format!("the {peer} {what} (alert {alert})");
        match alert {
            A::UNKNOWN_CA
            | A::BAD_CERTIFICATE
            | A::UNSUPPORTED_CERTIFICATE
            | A::CERTIFICATE_REVOKED
            | A::CERTIFICATE_EXPIRED
            | A::CERTIFICATE_UNKNOWN => self.refused_credential(alert),
            A::CERTIFICATE_REQUIRED => self.no_certificate(alert),
            A::DECRYPT_ERROR | A::UNKNOWN_PSK_IDENTITY if self.options.has_psk() => Explanation::new(
                says(format!("does not know the identity or has another key than {}", self.psk_source())),
                match self.side {
                    Side::Client => {
                        "give both sides the same identity and key; if the server has no pre-shared keys, use certificates"
                    }
                    Side::Server => "give both sides the same identity and key",
                },
            ),
            // RFC 5246 §7.4.6: in TLS 1.2 this has the meaning of certificate_required in TLS 1.3.
            A::HANDSHAKE_FAILURE if self.proved_nothing => self.no_certificate(alert),
            A::HANDSHAKE_FAILURE | A::INSUFFICIENT_SECURITY => Explanation::new(
                says(format!("shares no parameters with this {own}")),
                match (self.options.has_psk(), self.options.psk_ke) {
                    (true, true) => format!(
                        "start the {peer} with --psk-ke or --allow-no-dhe-kex, or leave --psk-ke out; or add this PSK and \
                         identity to the {peer}"
                    ),
                    (true, false) => {
                        format!(
                            "add this PSK and identity to the {peer}, or compare suites and groups of both sides"
                        )
                    }
                    (false, _) => "compare suites, groups, signature schemes and keys of both sides".into(),
                },
            ),
            // RFC 9147 §5.1: a cookie is for one address.
            A::ILLEGAL_PARAMETER if self.options.udp && self.side == Side::Client => Explanation::new(
                says("ended the connection".into()),
                if self.options.has_psk() {
                    "connect again, since this client's address may have changed during the handshake; if that fails, too, the \
                         PSK or identity is probably wrong"
                } else {
                    "connect again, since this client's address may have changed during the handshake"
                },
            ),
            A::ILLEGAL_PARAMETER | A::MISSING_EXTENSION if self.options.has_psk() => Explanation::new(
                says("ended the connection".into()),
                format!("the PSK or identity is probably wrong; or look at the log of the {peer}"),
            ),
            A::PROTOCOL_VERSION => {
                let versions = self.options.versions();
                let advice = match (self.options.tls1_2, self.options.has_tls13()) {
                    (true, true) => "enable a common version on both sides",
                    (true, false) => "enable TLS 1.2 on it, or add --tls1-3",
                    (false, _) => "enable TLS 1.3 on it, or add --tls1-2 --tls1-3",
                };
                Explanation::new(says(format!("does not speak {versions}")), advice)
            }
            A::NO_APPLICATION_PROTOCOL => Explanation::new(
                says("speaks none of these application protocols".into()),
                "give another list with --alpn",
            ),
            A::UNRECOGNIZED_NAME => Explanation::new(
                says("has no service under this name".into()),
                "give another one with --servername",
            ),
            A::ACCESS_DENIED => Explanation::new(says("denies access".into()), "ask its operator"),
            _ => Explanation::new(
                says("ended the connection".into()),
                format!("look at the log of the {peer}"),
            ),
        }
    }

    /// Explains that the peer refused the credential of this side.
    fn refused_credential(&self, alert: AlertDescription) -> Explanation {
        use AlertDescription as A;
        let own = own(self.side);
        let peer = peer(self.side);
        let why = match self.own_source() {
            Some(source) => {
                format!("the {peer} refused the credential of this {own}, {source} (alert {alert})")
            }
            None => format!("the {peer} refused this {own}, which has no credential (alert {alert})"),
        };
        let advice = match alert {
            A::CERTIFICATE_REVOKED if self.options.verifiable.did.is_some() => {
                format!(
                    "give this {own} the latest key of its DID, and a credential that the issuer has neither revoked nor signed with a \
                             replaced key; the log of the {peer} says more"
                )
            }
            A::CERTIFICATE_EXPIRED if self.options.verifiable.did.is_some() => format!(
                "give this {own} a new credential, or the newest status list with --staple-status, or correct the {peer}'s clock if it is wrong"
            ),
            A::CERTIFICATE_REVOKED => {
                format!("give this {own} a new key and certificate: a revocation is permanent")
            }
            A::CERTIFICATE_EXPIRED => {
                format!("renew this {own}'s certificate, or correct the {peer}'s clock if it is wrong")
            }
            _ => format!(
                "give this {own} a credential that the {peer} trusts, or add its CA or key to the {peer}'s trust \
                         settings (with dunlin: --CAfile, --rpk-file, --trust, --peers)"
            ),
        };
        Explanation::new(why, advice)
    }

    /// Explains that the server requires a certificate and received none.
    fn no_certificate(&self, alert: AlertDescription) -> Explanation {
        let own = own(self.side);
        let peer = peer(self.side);
        Explanation::new(
            format!("the {peer} refused this {own}, which sent no certificate (alert {alert})"),
            match self.own_source() {
                None => "give --cert and --key",
                Some(_) if self.options.verifiable.did.is_some() => {
                    "both sides must resolve the method of --did: for a did:dunlin, give --registry here, too; or give --cert and --key"
                }
                Some(_) => "give --cert and --key of a type that it accepts",
            },
        )
    }

    fn ca_source(&self) -> String {
        match &self.options.ca_file {
            Some(path) => shown(path),
            None => "the certificates of this machine".into(),
        }
    }

    fn rpk_source(&self) -> String {
        self.options.rpk_file.as_deref().map_or_else(|| "--rpk-file".into(), shown)
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
        use PeerMisbehaved as P;
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
        let plain = || broken(P::UnexpectedRecord(What::ApplicationData).into());
        assert!(explain(&silent, plain()).contains("another protocol than TLS"));
        assert!(explain(&seen, plain()).starts_with("update the client"));
        let told = explain(&seen, broken(P::BadSignature.into()));
        assert_eq!(told, "check that the client has the key of its certificate");
        let told = explain(&seen, broken(PeerIncompatible::ApplicationProtocol.into()));
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
        use AlertDescription as A;
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
