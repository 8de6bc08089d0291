//! Explains why a certificate chain was refused: one table for handshakes and for `dunlin pki verify`.

use std::time::{Duration, SystemTime};

use dunlin::error::{AuthenticationFailure, OutOfDate};
use dunlin_awslc::ALL_SIGNATURES;
use dunlin_pki::format_time;

/// The maximum number of authorities that webpki allows between a certificate and its anchor.
const MAX_DEPTH: u8 = 6;

/// The maximum number of shown names of a certificate.
const MAX_NAMES: usize = 8;

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
    /// How to check fewer certificates against CRLs, if the command can.
    pub(crate) leaf_only: Option<&'static str>,
}

impl Words {
    /// The detail that the failure's own text lacks, and the remedy. `None` if the failure is not about
    /// certificates.
    pub(crate) fn explain(&self, failure: &AuthenticationFailure) -> Option<(String, String)> {
        use AuthenticationFailure as F;
        let ca = self.ca;
        let anchors = &self.anchors;
        let (detail, advice) = match failure {
            F::UnknownIssuer => {
                let complete = &self.complete;
                return Some((
                    format!(" in {anchors}"),
                    format!("give the root that issued it with {ca}, or {complete}"),
                ));
            }
            F::BadChainSignature => {
                let detail = format!(": it was not issued by the CA of this name in {anchors}");
                return Some((detail, format!("give the root that issued it with {ca}")));
            }
            F::NameMismatch { names, .. } => {
                let mut shown: Vec<_> = names.iter().map(String::as_str).take(MAX_NAMES).collect();
                shown.extend((names.len() > MAX_NAMES).then_some("others"));
                if shown.is_empty() {
                    // RFC 9525 §2: the common name does not count.
                    return Some((
                        ": it has no subjectAltName".into(),
                        "issue one with the name, `dunlin pki leaf --san`".into(),
                    ));
                }
                return Some((
                    format!(" but for {}", shown.join(", ")),
                    format!("give a name of its certificate with {}", self.name),
                ));
            }
            F::NotValidYet(certificate) => {
                return Some((
                    format!(", but from {} on", date(certificate)),
                    "check the clock, or wait".into(),
                ));
            }
            F::Expired(certificate) => {
                let detail = format!(", at {}", date(certificate));
                return Some((detail, "check the clock, or renew the certificate".into()));
            }
            F::ChainTooLong => {
                let most = self.depth.unwrap_or(MAX_DEPTH).min(MAX_DEPTH);
                let raise = if most < MAX_DEPTH { "raise --verify-depth, or " } else { "" };
                return Some((
                    format!(": more than {most}"),
                    format!("{raise}trust an authority nearer to the certificate with {ca}"),
                ));
            }
            F::UnsupportedAlgorithm(algorithm) => {
                let mut known = ALL_SIGNATURES.all.iter();
                let is_known = known.any(|known| known.signature_alg_id().as_ref() == algorithm);
                let anew = "issue its certificates again with ECDSA, Ed25519, or RSA with SHA-256";
                let advice = match self.enable {
                    Some(enable) if is_known => enable,
                    _ => anew,
                };
                ("", advice)
            }
            F::UnknownRevocationStatus => {
                return Some((
                    String::new(),
                    match self.leaf_only {
                        Some(leaf_only) => format!("give its CRL with --crl, or {leaf_only}"),
                        None => "give a CRL of each authority with --crl".into(),
                    },
                ));
            }
            F::KeyTooShort(_) => ("", "issue it with an RSA key of 2048 bits, or a key of another type"),
            F::UnsupportedKey => ("", "issue it with a key type that `dunlin pki` makes"),
            F::WrongKeyUsage => ("", "issue one with digitalSignature in its keyUsage"),
            F::WrongPurpose => ("", "issue one for this role: `dunlin pki leaf` with --server or --client"),
            F::ConstraintViolated => (
                "",
                "raise --path-len if there are more authorities than it allows, also under one name (self-issued), \
                 or choose names that the name constraints permit",
            ),
            F::CaAsEndEntity => ("", "issue a leaf certificate with `dunlin pki leaf`, and put it first"),
            F::BadEncoding => ("", "give an undamaged certificate; `dunlin pki show` may say more"),
            F::UnsupportedExtension => ("", "issue it without that extension, or let it not be critical"),
            F::UnsupportedVersion => ("", "issue it with extensions, which makes it one of version 3"),
            F::Revoked => ("", "issue a new certificate with a new key"),
            F::RevokedAuthority(_) => (
                "",
                "issue a certificate from another authority: this one and all that it issued are refused",
            ),
            F::OverdueRevocationList => ("", "get the newest CRL, or renew it with `dunlin pki crl`"),
            F::FutureRevocationList => ("", "check the clock, or get a CRL that is valid now"),
            F::BadRevocationList => {
                ("", "get the CRL of this issuer: another key has signed the one in --crl")
            }
            F::NotRevocationListIssuer => {
                ("", "issue the authority's certificate with cRLSign in its keyUsage")
            }
            F::TooManyCertificates | F::TooManyVerifications => {
                ("", "leave out certificates that lead to no trusted one")
            }
            _ => return None,
        };
        Some((detail.into(), advice.into()))
    }
}

fn date(certificate: &OutOfDate) -> String {
    format_time(SystemTime::UNIX_EPOCH + Duration::from_secs(certificate.limit_s))
}
