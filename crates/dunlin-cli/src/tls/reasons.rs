//! Why a connection failed: which check, on which side, with which file, and what to do.

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use dunlin::crypto::Tls12CipherSuite;
use dunlin::error::{AuthenticationFailure, Malformed, Misuse, OutOfDate, PeerIncompatible, PeerMisbehaved};
use dunlin::wire::{AlertDescription, CipherSuite, ProtocolVersion, What};
use dunlin::{Error, Side};
use dunlin_awslc::tls12::TLS12_PSK_CIPHER_SUITES;
use dunlin_pki::format_time;
use dunlin_tokio::HandshakeError;

use crate::error::{Code, Explanation};
use crate::tls::lists;
use crate::tls::options::TlsOptions;
use crate::tls::psks::NamedPsks;

/// How many authorities webpki takes between a certificate and its anchor.
const MAX_DEPTH: u8 = 6;

/// How many names of a certificate are told.
const MAX_NAMES: usize = 8;

/// What one side knows of its connection beside the error.
#[derive(Clone, Copy)]
pub(crate) struct Explainer<'a> {
    side: Side,
    /// For their file names.
    options: &'a TlsOptions,
    /// What the client named to a server.
    psks: Option<&'a NamedPsks>,
    /// The cipher suites that the client has offered to a server.
    offered: Option<&'a OnceLock<Vec<CipherSuite>>>,
    /// Whether this client was asked for a certificate or key, and proved none.
    proved_nothing: bool,
}

impl<'a> Explainer<'a> {
    /// Of a client; `proved_nothing` if it was asked for a certificate or key, and had none to show.
    pub(crate) const fn client(options: &'a TlsOptions, proved_nothing: bool) -> Self {
        Self { side: Side::Client, options, psks: None, offered: None, proved_nothing }
    }

    /// Of a server, with the keys of this connection, and the cipher suites that its client offers as soon as it has.
    pub(crate) const fn server(
        options: &'a TlsOptions,
        psks: Option<&'a NamedPsks>,
        offered: &'a OnceLock<Vec<CipherSuite>>,
    ) -> Self {
        Self { side: Side::Server, options, psks, offered: Some(offered), proved_nothing: false }
    }

    /// Of a handshake.
    pub(crate) fn handshake(&self, error: &HandshakeError) -> Explanation {
        let code = match error {
            HandshakeError::Tls(e) => Code::of_tls(e),
            HandshakeError::Timeout(_) => Code::TIMEOUT,
            _ => Code::FAILED,
        };
        Explanation { code, ..self.handshake_in_words(error) }
    }

    fn handshake_in_words(&self, error: &HandshakeError) -> Explanation {
        match error {
            // It knows nothing of this client yet but the ClientHello.
            HandshakeError::Tls(Error::AlertReceived(AlertDescription::UNSUPPORTED_CERTIFICATE))
                if self.side == Side::Client =>
            {
                self.other_certificate_type()
            }
            // In TLS 1.2 the first record under keys that stem from another one; OpenSSL and GnuTLS say no more.
            HandshakeError::Tls(Error::AlertReceived(alert @ AlertDescription::BAD_RECORD_MAC))
                if self.options.has_psk() =>
            {
                let (peer, source) = (peer(self.side), self.psk_source());
                let why =
                    format!("the {peer} could not read what the key of {source} protects (alert {alert})");
                let advice =
                    "the key for this identity may differ there: give both sides the same identity and key";
                Explanation::new(why, advice)
            }
            HandshakeError::Tls(e) => self.tls(e),
            e => Explanation::new(e.to_string(), self.unfinished(e)),
        }
    }

    /// Of reading or writing afterwards, in a connection of this version.
    pub(crate) fn stream(&self, error: &io::Error, version: Option<ProtocolVersion>) -> Explanation {
        Explanation { code: Code::of_stream(error), ..self.stream_in_words(error, version) }
    }

    fn stream_in_words(&self, error: &io::Error, version: Option<ProtocolVersion>) -> Explanation {
        match error.get_ref().and_then(|e| e.downcast_ref()) {
            // RFC 5746 §4.5: who is refused another handshake may end the connection; OpenSSL does so.
            Some(Error::AlertReceived(AlertDescription::HANDSHAKE_FAILURE))
                if version == Some(ProtocolVersion::TLS1_2)
                    && !self.options.renegotiation
                    && !self.proved_nothing =>
            {
                let (own, peer) = (own(self.side), peer(self.side));
                let why = format!(
                    "the {peer} wanted another handshake, which this {own} refuses (alert handshake_failure)"
                );
                Explanation::new(why, format!("allow it with --renegotiation, or let the {peer} do without"))
            }
            Some(e) => self.tls(e),
            None => Explanation::new(error.to_string(), self.look_there()),
        }
    }

    /// What to do where the handshake ended without a word of TLS.
    fn unfinished(&self, error: &HandshakeError) -> String {
        use io::ErrorKind as K;
        let no_hello = self.is_before_hello();
        match error {
            HandshakeError::Timeout(_) if no_hello => {
                "no ClientHello came: the client is silent, or needs a longer --timeout".into()
            }
            HandshakeError::Timeout(_) => {
                format!("raise --timeout for a slow line, or {}", self.look_there())
            }
            HandshakeError::Io(e) if no_hello && e.kind() == K::UnexpectedEof => {
                "no ClientHello came, as with port scans and health checks; else look at the log of the client".into()
            }
            HandshakeError::Io(e) if self.side == Side::Client && e.kind() == K::UnexpectedEof => {
                "look at the log of the server, and check that this is a port for TLS".into()
            }
            _ => self.look_there(),
        }
    }

    fn look_there(&self) -> String {
        format!("look at the log of the {}", peer(self.side))
    }

    /// Whether this is a server that has not seen its client's ClientHello.
    fn is_before_hello(&self) -> bool {
        self.offered.is_some_and(|offered| offered.get().is_none())
    }

    /// What to do about a peer that breaks the protocol.
    fn broken(&self, error: &Error) -> String {
        use PeerMisbehaved as P;
        let peer = peer(self.side);
        match error {
            Error::Malformed(Malformed::AboveLimit { .. }) => {
                format!("let the {peer} send less: docs/security.md lists the limits")
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
            Error::PeerMisbehaved(P::BadSignature) => {
                format!("check that the {peer} has the key of its certificate")
            }
            Error::PeerMisbehaved(P::Downgrade) => {
                "look for a middlebox that cannot pass TLS 1.3, or for an attack".into()
            }
            Error::PeerMisbehaved(P::SessionUsedTwice) => "connect again".into(),
            Error::PeerMisbehaved(P::BadCompression) => {
                format!("let the {peer} send its certificate without compression")
            }
            Error::PeerMisbehaved(P::TooMuchEarlyData | P::TooMuchSkippedEarlyData) => {
                "let the client send less early data".into()
            }
            Error::PeerMisbehaved(P::Flood(_)) => format!("find out why the {peer} sends so many of them"),
            _ => format!("update the {peer}, or report this with a capture to its maker (dunlin explain)"),
        }
    }

    /// Of another handshake of TLS 1.2 that this client has asked for.
    pub(crate) fn renegotiation(&self, error: &io::Error) -> Explanation {
        use AlertDescription as A;
        match error.get_ref().and_then(|e| e.downcast_ref()) {
            Some(Error::AlertReceived(A::HANDSHAKE_FAILURE)) if self.proved_nothing => {}
            Some(Error::AlertReceived(
                alert @ (A::HANDSHAKE_FAILURE | A::NO_RENEGOTIATION | A::UNEXPECTED_MESSAGE),
            )) => {
                let refused = Explanation::new(
                    format!("the server refused another handshake (alert {alert})"),
                    "let it allow it (--renegotiation), and send data between one and the next",
                );
                return Explanation { code: Code::of_stream(error), ..refused };
            }
            _ => {}
        }
        self.stream(error, Some(ProtocolVersion::TLS1_2))
    }

    /// Of a key that a client named and that does not serve.
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
            // A wrong key of TLS 1.2 shows in Finished; so does an identity that nobody knows.
            Error::PeerMisbehaved(PeerMisbehaved::BadFinished) if self.options.has_psk() => Explanation::new(
                format!("the {peer} has another identity or pre-shared key than {}", self.psk_source()),
                "give both sides the same identity and key",
            ),
            Error::PeerMisbehaved(PeerMisbehaved::BadBinder) => Explanation::new(
                format!(
                    "the {peer} has another pre-shared key under this identity than {}",
                    self.psk_source()
                ),
                "give both sides the same key",
            ),
            Error::Truncated => Explanation::new(error.to_string(), self.look_there()),
            Error::PeerMisbehaved(PeerMisbehaved::Flood(What::Renegotiations)) => Explanation::new(
                format!("the {peer} began too many handshakes in a row"),
                format!("let the {peer} send data between them; --help says how many are allowed without"),
            ),
            Error::Misuse(Misuse::NotSupported(_)) => {
                Explanation::new(error.to_string(), "leave it out, or speak another version")
            }
            Error::Misuse(_) | Error::Internal(_) => Explanation::new(error.to_string(), "report it"),
            error => Explanation::new(error.to_string(), self.broken(error)),
        }
    }

    /// The client offers a suite of TLS 1.2 that this server would take, if it had been told to.
    fn left_out(&self) -> Option<Explanation> {
        let offered = self.offered?.get().filter(|_| self.options.tls1_2)?;
        let suite = self.options.left_out(offered)?;
        if TLS12_PSK_CIPHER_SUITES.iter().any(|psk| psk.id == suite.id) && self.options.cipher.is_none() {
            return Some(self.incompatible(&PeerIncompatible::PskMode));
        }
        let why =
            format!("no cipher suite in common; of the client's, this server takes {} by name", suite.id);
        Some(Explanation::new(why, format!("add --cipher {} to this server, or name it there", suite.id)))
    }

    /// Whether every cipher suite of TLS 1.2 that the client has offered has a pre-shared key in it.
    fn offers_psks_alone(&self) -> bool {
        let offered = self.offered.and_then(OnceLock::get).map_or(&[][..], |offered| offered);
        let mut known =
            lists::tls12_of_use().into_iter().filter(|suite| offered.contains(&suite.id)).peekable();
        known.peek().is_some() && known.all(Tls12CipherSuite::has_psk)
    }

    /// The two sides have nothing in common.
    fn incompatible(&self, why: &PeerIncompatible) -> Explanation {
        use PeerIncompatible as P;
        let (own, peer) = (own(self.side), peer(self.side));
        if let P::CipherSuite | P::SuiteAuthentication = why
            && let Some(explanation) = self.left_out()
        {
            return explanation;
        }
        let without_certificate = self.options.cert.is_empty() && self.options.key.is_empty();
        match why {
            P::Version(Some(ProtocolVersion::TLS1_2)) if !self.options.tls1_2 => Explanation::new(
                format!("the {peer} speaks TLS 1.2 at most"),
                "use one that speaks TLS 1.3, or add --tls1-2 --tls1-3",
            ),
            P::Version(Some(ProtocolVersion::TLS1_3)) if !self.options.has_tls13() => Explanation::new(
                format!("the {peer} speaks TLS 1.3 and nothing older"),
                format!("add --tls1-3, or let the {peer} speak TLS 1.2, too"),
            ),
            P::Version(Some(version)) => Explanation::new(
                format!("the {peer} speaks {version}, and this {own} {}", self.options.versions()),
                "use one that speaks the same",
            ),
            P::SuiteAuthentication if !self.options.has_psk() && self.offers_psks_alone() => {
                Explanation::new(
                    format!(
                        "the {peer} offers only cipher suites for pre-shared keys, and this {own} has no such key"
                    ),
                    format!("give this {own} its key with --psk-file, or let the {peer} trust certificates"),
                )
            }
            P::SuiteAuthentication if without_certificate && self.options.has_psk() => Explanation::new(
                format!(
                    "this {own} has only pre-shared keys, and the {peer} offers no cipher suite for them"
                ),
                format!("give the {peer} one with --psk-file, or this {own} --cert and --key"),
            ),
            P::SuiteAuthentication => Explanation::new(
                format!("no cipher suite of the {peer} goes with {}", self.options.own_keys()),
                format!("add one to --cipher of the {peer}, or give this {own} a key of another type"),
            ),
            P::CurveOfKey(curve) => Explanation::new(
                format!("the {peer} does not have the curve of {}, {curve}", self.options.own_keys()),
                format!("add {curve} to --groups of the {peer}, or give a key of another type"),
            ),
            P::FiniteField(bits) => Explanation::new(
                format!("the {peer} chose a finite field of {bits} bits that this {own} does not take"),
                "let it use one of RFC 7919 that --groups has here, or take suites with ECDHE",
            ),
            P::Group | P::Field if self.options.tls1_2 => Explanation::new(
                format!("this {own} finds {why}"),
                "compare --groups of both sides; suites with DHE need a finite field, such as ffdhe2048",
            ),
            P::ExtendedMasterSecret => Explanation::new(
                format!("the {peer} does not have the extended master secret, which this {own} requires"),
                format!("let the {peer} have it, or start this {own} with --allow-no-ems"),
            ),
            P::NoPsk => Explanation::new(
                format!("the {peer} offers no pre-shared key of {}", self.psk_source()),
                "give both sides the same identity and key",
            ),
            P::PskMode => Explanation::new(
                format!("the {peer} wants pre-shared keys without (EC)DHE"),
                format!("start this {own} with --psk-ke or --allow-no-dhe-kex"),
            ),
            P::PskHash => Explanation::new(
                format!("the pre-shared key goes with SHA-256, and the suites of the {peer} need SHA-384"),
                format!("add TLS_AES_128_GCM_SHA256 to those of the {peer}"),
            ),
            P::NoCredential(_) if without_certificate && self.options.has_psk() => Explanation::new(
                format!("this {own} has only pre-shared keys, and the {peer} offers none"),
                format!("give the {peer} one with --psk-file, or this {own} --cert and --key"),
            ),
            P::SignatureScheme => Explanation::new(
                format!("this {own} finds no signature scheme of the {peer} for {}", self.options.own_keys()),
                format!("add one with --sigalgs of the {peer}, or give a key of another type"),
            ),
            P::CertificateType { .. } => Explanation::new(
                format!("this {own} finds {why}"),
                "compare --enable-server-rpk, --enable-client-rpk and --rpk-file of both sides",
            ),
            why => {
                let advice = match why {
                    P::Version(None) => "compare --tls1-2 and --tls1-3 of both sides",
                    P::CipherSuite => "compare --ciphersuites, and --cipher for TLS 1.2, of both sides",
                    P::Group | P::Field => "compare --groups of both sides",
                    P::ApplicationProtocol => "give both sides a common one with --alpn",
                    P::SecureRenegotiation => "update the other side: RFC 5746 is of 2010",
                    P::Fallback => "let the client try TLS 1.3 first",
                    _ => "compare the options of both sides",
                };
                Explanation::new(format!("this {own} finds {why}"), advice)
            }
        }
    }

    /// The server refused the ClientHello for its certificate types (RFC 7250 §4.2).
    fn other_certificate_type(&self) -> Explanation {
        let options = self.options;
        let raw = options.enable_server_rpk || options.enable_client_rpk || options.rpk_file.is_some();
        Explanation::new(
            "the server has or wants another certificate type (alert unsupported_certificate)",
            match raw {
                true => "try --CAfile, or --cert with --key",
                false => {
                    "try --rpk-file for its raw key, or --enable-client-rpk with --key for one of this client"
                }
            },
        )
    }

    /// This side refused the peer.
    fn authentication(&self, failure: &AuthenticationFailure) -> Explanation {
        use AuthenticationFailure as F;
        let peer = peer(self.side);
        let refused =
            |where_: String| format!("this {} refused the {peer}: {failure}{where_}", own(self.side));
        match failure {
            F::UnknownIssuer => Explanation::new(
                refused(format!(" in {}", self.ca_source())),
                format!(
                    "give the root that issued it with --CAfile, or let the {peer} send its intermediate certificates"
                ),
            ),
            F::BadChainSignature => Explanation::new(
                refused(format!(": it was not issued by the CA of this name in {}", self.ca_source())),
                "give the root that issued it with --CAfile",
            ),
            F::UnknownRawKey => Explanation::new(
                refused(format!(" in {}", self.rpk_source())),
                "add its public key to the file of --rpk-file",
            ),
            F::NameMismatch { names, .. } => {
                let mut shown: Vec<_> = names.iter().map(String::as_str).take(MAX_NAMES).collect();
                shown.extend((names.len() > MAX_NAMES).then_some("others"));
                let names = if shown.is_empty() { "nothing".into() } else { shown.join(", ") };
                let advice = "name it as its certificate does, with --servername";
                Explanation::new(refused(format!(" but for {names}")), advice)
            }
            F::NotValidYet(certificate) => Explanation::new(
                refused(format!(", but from {} on", date(certificate))),
                "check the clock, or wait",
            ),
            F::Expired(certificate) => Explanation::new(
                refused(format!(", at {}", date(certificate))),
                "check the clock, or let it be renewed",
            ),
            F::KeyTooShort(_) => Explanation::new(
                refused(String::new()),
                "let it be issued with an RSA key of 2048 bits, or a key of another type",
            ),
            F::ChainTooLong => {
                let most = self.options.verify_depth.unwrap_or(MAX_DEPTH).min(MAX_DEPTH);
                let raise = if most < MAX_DEPTH { "raise --verify-depth, or " } else { "" };
                let advice = format!("{raise}trust an authority nearer to the {peer} with --CAfile");
                Explanation::new(refused(format!(": more than {most}")), advice)
            }
            F::CaAsEndEntity => {
                Explanation::new(refused(String::new()), "let the authority issue one with `dunlin pki leaf`")
            }
            F::UnsupportedAlgorithm => Explanation::new(
                refused(String::new()),
                "add what its authority signs with to --sigalgs, or name it with --sigalgs-cert",
            ),
            F::Revoked => Explanation::new(refused(String::new()), format!("give the {peer} a new one")),
            F::UnknownRevocationStatus => Explanation::new(
                refused(String::new()),
                "give its list with --CRL, or check the first certificate alone with --crl-check",
            ),
            F::OverdueRevocationList => Explanation::new(
                refused(String::new()),
                "get the newest one, or renew it with `dunlin pki crl`",
            ),
            F::NoCertificate => {
                Explanation::new(refused(String::new()), format!("give the {peer} a certificate and key"))
            }
            _ => Explanation::new(refused(String::new()), "look at it with `dunlin pki show`"),
        }
    }

    /// The peer refused this side.
    fn alert(&self, alert: AlertDescription) -> Explanation {
        use AlertDescription as A;
        let (own, peer) = (own(self.side), peer(self.side));
        let says = |what: String| format!("the {peer} {what} (alert {alert})");
        match alert {
            A::UNKNOWN_CA
            | A::BAD_CERTIFICATE
            | A::UNSUPPORTED_CERTIFICATE
            | A::CERTIFICATE_REVOKED
            | A::CERTIFICATE_EXPIRED
            | A::CERTIFICATE_UNKNOWN => Explanation::new(
                says(match self.own_source() {
                    Some(source) => format!("refused what this {own} proves itself with, {source}"),
                    None => format!("refused this {own}, which proves itself with nothing"),
                }),
                match alert {
                    A::CERTIFICATE_REVOKED => {
                        format!("give this {own} a new key and certificate: what is revoked stays so")
                    }
                    A::CERTIFICATE_EXPIRED => "have it renewed, or check the clocks of both sides".into(),
                    _ => format!("give this {own} one that the {peer} trusts, or let it trust this one"),
                },
            ),
            A::CERTIFICATE_REQUIRED => self.no_certificate(alert),
            A::DECRYPT_ERROR | A::UNKNOWN_PSK_IDENTITY if self.options.has_psk() => Explanation::new(
                says(format!("does not know this identity with the key of {}", self.psk_source())),
                "give both sides the same identity and key",
            ),
            // RFC 5246 §7.4.6: what TLS 1.3 says with certificate_required.
            A::HANDSHAKE_FAILURE if self.proved_nothing => self.no_certificate(alert),
            A::HANDSHAKE_FAILURE | A::INSUFFICIENT_SECURITY => Explanation::new(
                says("finds nothing in common".into()),
                match (self.options.has_psk(), self.options.psk_ke) {
                    (true, true) => {
                        "let it allow --psk-ke or --allow-no-dhe-kex, or leave --psk-ke out; else it may have no such PSK or identity"
                    }
                    (true, false) => {
                        "it may have no pre-shared keys, or not this identity; else compare suites and groups"
                    }
                    (false, _) => "compare suites, groups, signature schemes and keys of both sides",
                },
            ),
            A::ILLEGAL_PARAMETER | A::MISSING_EXTENSION if self.options.has_psk() => Explanation::new(
                says("ended the connection".into()),
                format!("it is often a wrong PSK or identity; else look at the log of the {peer}"),
            ),
            A::PROTOCOL_VERSION => {
                let versions = self.options.versions();
                let advice = match (self.options.tls1_2, self.options.has_tls13()) {
                    (true, true) => "use one that does",
                    (true, false) => "use one that does, or add --tls1-3",
                    (false, _) => "use one that does, or add --tls1-2 --tls1-3",
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
            A::ACCESS_DENIED => Explanation::new(says("denies access".into()), "ask who runs it"),
            _ => Explanation::new(
                says("ended the connection".into()),
                format!("look at the log of the {peer}"),
            ),
        }
    }

    /// The server wants a certificate, and saw none.
    fn no_certificate(&self, alert: AlertDescription) -> Explanation {
        let (own, peer) = (own(self.side), peer(self.side));
        Explanation::new(
            format!("the {peer} refused this {own}, which showed no certificate (alert {alert})"),
            match self.own_source() {
                None => "give --cert and --key",
                Some(_) => "give --cert and --key of a type that it asks for",
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
            (None, None) => "this side, which has none".into(),
        }
    }

    fn own_source(&self) -> Option<String> {
        let files = if self.options.cert.is_empty() { &self.options.key } else { &self.options.cert };
        let names: Vec<_> = files.iter().map(|path| shown(path)).collect();
        (!names.is_empty()).then(|| names.join(" or "))
    }
}

fn date(certificate: &OutOfDate) -> String {
    format_time(SystemTime::UNIX_EPOCH + Duration::from_secs(certificate.limit_s))
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
    use super::*;
    use dunlin::error::ShortKey;

    /// The advice names what the user can look at, for each failure another.
    #[test]
    fn advice_fits_the_failure() {
        use PeerMisbehaved as P;
        let options = TlsOptions::default();
        let (silent, seen) = (OnceLock::new(), OnceLock::from(vec![]));
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
    fn a_key_that_is_too_short_is_named() {
        let short = ShortKey { bits: 1024, common_name: None };
        let error = HandshakeError::Tls(Error::Authentication(AuthenticationFailure::KeyTooShort(short)));
        let told = Explainer::client(&TlsOptions::default(), false).handshake(&error);
        let says =
            "this client refused the server: its RSA key has 1024 bits, and at least 2048 are required";
        assert_eq!(told.why, says);
        assert_eq!(told.advice, "let it be issued with an RSA key of 2048 bits, or a key of another type");
    }

    /// Others than OpenSSL and we refuse a wrong key with alerts of other meanings.
    #[test]
    fn a_wrong_psk_is_thought_of() {
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
    }
}
