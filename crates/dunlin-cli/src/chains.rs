//! Explains why a certificate chain was refused: one table for handshakes and for `dunlin pki verify`.

use std::time::{Duration, SystemTime};

use dunlin::error::{AuthenticationFailure, OutOfDate};
use dunlin_awslc::ALL_SIGNATURES;
use dunlin_pki::format_time;

/// The maximum number of authorities that webpki allows between a certificate and its anchor.
const MAX_DEPTH: u8 = 6;

/// The maximum number of names or addresses that an explanation shows.
const MAX_SHOWN: usize = 8;

/// The texts of the first row that fits the failure: a pattern, the reason or a detail of it, and the advice.
/// Without a row that fits, the value is that after `else`.
macro_rules! rows {
    ($failure:expr $(, else $rest:expr)?; $($pattern:pat $(if $guard:expr)? =>
        $why:literal $(($($word:expr),+))?, $advice:literal $(($($other:expr),+))?;)*) => {
        match $failure {
            $($pattern $(if $guard)? => (
                format_args!($why $(, $($word),+)?).to_string(),
                format_args!($advice $(, $($other),+)?).to_string(),
            ),)*
            $(_ => $rest,)?
        }
    };
}
pub(crate) use rows;

/// The words of a command in its explanations.
pub(crate) struct Words {
    /// The source of the trust anchors.
    pub(crate) anchors: String,
    /// The option for trust anchors.
    pub(crate) ca: &'static str,
    /// The option for the expected name.
    pub(crate) name: &'static str,
    /// How the chain gets its intermediate certificates.
    pub(crate) complete: String,
    /// `--verify-depth`.
    pub(crate) depth: Option<u8>,
    /// How to enable more signature schemes, if the command can.
    pub(crate) enable: Option<&'static str>,
    /// The advice if no CRL covers a certificate.
    pub(crate) lists: &'static str,
}

impl Words {
    /// The detail that the failure's own text lacks, and the remedy. `None` if the failure is not about
    /// certificates.
    pub(crate) fn explain(&self, failure: &AuthenticationFailure) -> Option<(String, String)> {
        use AuthenticationFailure as F;
        let Self { anchors, ca, name, complete, lists, .. } = self;
        let most = self.depth.unwrap_or(MAX_DEPTH).min(MAX_DEPTH);
        let raise = if most < MAX_DEPTH { "raise --verify-depth, or " } else { "" };
        Some(rows!(failure, else return None;
            F::UnknownIssuer => " in {anchors}", "give the root that issued it with {ca}, or {complete}";
            F::BadChainSignature => ": it was not issued by the CA of this name in {anchors}",
                "give the root that issued it with {ca}";
            // RFC 9525 §2: the common name does not count.
            F::NameMismatch { names, .. } if names.is_empty() => ": it has no subjectAltName",
                "issue one with the name, `dunlin pki leaf --san`";
            F::NameMismatch { names, .. } => " but for {}" (some_of(names)),
                "give a name of its certificate with {name}";
            F::NotValidYet(certificate) => ", but from {} on" (date(certificate)), "check the clock, or wait";
            F::Expired(certificate) => ", at {}" (date(certificate)), "check the clock, or renew the certificate";
            F::ChainTooLong => ": more than {most}",
                "{raise}trust an authority nearer to the certificate with {ca}";
            F::UnsupportedAlgorithm(algorithm) => "", "{}" (self.enable(algorithm));
            F::UnknownRevocationStatus => "", "{lists}";
            F::KeyTooShort(_) => "", "issue it with an RSA key of 2048 bits, or a key of another type";
            F::UnsupportedKey => "", "issue it with a key type that `dunlin pki` makes";
            F::WrongKeyUsage => "", "issue one with digitalSignature in its keyUsage";
            F::WrongPurpose => "", "issue one for this role: `dunlin pki leaf` with --server or --client";
            F::ConstraintViolated => "",
                "raise --path-len if there are more authorities than it allows, also under one name (self-issued), \
                 or choose names that the name constraints permit";
            F::CaAsEndEntity => "", "issue a leaf certificate with `dunlin pki leaf`, and put it first";
            F::BadEncoding => "", "give an undamaged certificate; `dunlin pki show` may say more";
            F::UnsupportedExtension => "", "issue it without that extension, or let it not be critical";
            F::UnsupportedVersion => "", "issue it with extensions, which makes it one of version 3";
            F::Revoked => "", "issue a new certificate with a new key";
            F::RevokedAuthority(_) => "",
                "issue a certificate from another authority: this one and all that it issued are refused";
            F::OverdueRevocationList => "", "get the newest CRL, or renew it with `dunlin pki crl`";
            F::FutureRevocationList => "", "check the clock, or get a CRL that is valid now";
            F::BadRevocationList => "", "get the CRL of this issuer: another key has signed the one in --crl";
            F::NotRevocationListIssuer => "", "issue the authority's certificate with cRLSign in its keyUsage";
            F::TooManyCertificates | F::TooManyVerifications => "",
                "leave out certificates that lead to no trusted one";
        ))
    }

    /// The advice about a signature of this algorithm.
    fn enable(&self, algorithm: &[u8]) -> &'static str {
        let is_known = ALL_SIGNATURES.all.iter().any(|known| known.signature_alg_id().as_ref() == algorithm);
        match self.enable {
            Some(enable) if is_known => enable,
            _ => "issue its certificates again with ECDSA, Ed25519, or RSA with SHA-256",
        }
    }
}

/// The first of these names or addresses, and whether there are others.
pub(crate) fn some_of<T: ToString>(all: &[T]) -> String {
    let mut shown: Vec<_> = all.iter().take(MAX_SHOWN).map(T::to_string).collect();
    shown.extend((all.len() > MAX_SHOWN).then(|| "others".to_owned()));
    shown.join(", ")
}

fn date(certificate: &OutOfDate) -> String {
    format_time(SystemTime::UNIX_EPOCH + Duration::from_secs(certificate.limit_s))
}
