//! `dunlin pki verify`: checks whether a peer would accept a chain, by the engine's own rules.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args as ClapArgs;
use dunlin::auth::{Revocation, X509Trust};
use dunlin::error::AuthenticationFailure;
use dunlin::{Now, Side};
use dunlin_awslc::ALL_SIGNATURES;
use dunlin_pki::{CertificateInfo, format_time, parse_time};
use pki_types::{CertificateDer, ServerName};

use crate::error::{Error, reason};
use crate::files;

/// Verify that a chain leads to a trusted root.
///
/// Prints whether the certificate suits a server, a client or both. One of the two is enough unless --server, --client or
/// --name demands more. With --CRL, no certificate of the chain may be revoked. The certificate's key must be long enough, and
/// its keyUsage must allow signatures.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin pki verify --ca root.pem server.pem --name localhost
  dunlin pki verify --ca root.pem client.pem --client --time 2027-01-01")]
pub(super) struct Verify {
    /// The file with the trust anchors.
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The certificate, followed by the intermediates; - for stdin.
    #[arg(value_name = "CHAIN")]
    chain: PathBuf,
    /// Demand that the certificate is valid for this host name or address, and for a server.
    #[arg(long, value_name = "NAME", value_parser = server_name)]
    name: Option<ServerName<'static>>,
    /// Demand that the certificate is valid for a server.
    #[arg(long)]
    server: bool,
    /// Demand that the certificate is valid for a client.
    #[arg(long)]
    client: bool,
    /// CRLs; every authority in the chain needs one. May be repeated.
    #[arg(long = "CRL", visible_alias = "crl", value_name = "FILE")]
    crl: Vec<PathBuf>,
    /// Allow at most this many authorities between the certificate and the trusted one; neither is counted.
    #[arg(long, value_name = "N")]
    verify_depth: Option<u8>,
    /// Verify as of this time instead of now: YYYY-MM-DD or YYYY-MM-DDThh:mm:ssZ.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    time: Option<SystemTime>,
}

/// Runs `dunlin pki verify`.
pub(super) fn run(args: &Verify, out: &mut dyn Write) -> Result<(), Error> {
    let trust = trust(args)?;
    let chain = files::certificates(&args.chain)?;
    let failed = |(why, advice): (String, &str)| Error::failed(args.chain.display(), why, advice);
    let since_epoch = args.time.unwrap_or_else(SystemTime::now).duration_since(SystemTime::UNIX_EPOCH);
    let now_ms = u64::try_from(since_epoch.unwrap_or(Duration::ZERO).as_millis()).unwrap_or(u64::MAX);
    let check = |side, name: Option<&ServerName<'_>>| {
        trust
            .verify_chain(ALL_SIGNATURES.all, &chain, side, name, Now::from_unix_ms(now_ms))
            .unwrap_or(Ok(()))
    };
    let failed_by = |failure: &AuthenticationFailure| failed(explained(failure));
    let server = check(Side::Server, args.name.as_ref());
    let client = check(Side::Client, None);
    let asked = [(args.server || args.name.is_some(), &server), (args.client, &client)];
    for (_, result) in asked.iter().filter(|(wanted, _)| *wanted) {
        (*result).as_ref().map_err(failed_by)?;
    }
    let good_for = match (&server, &client) {
        (Ok(()), Ok(())) => "server and client",
        (Ok(()), Err(_)) => "server",
        (Err(_), Ok(())) => "client",
        // A client's certificate need not suit a server, so the client's error says more.
        (Err(AuthenticationFailure::WrongPurpose), Err(failure)) | (Err(failure), Err(_)) => {
            return Err(failed_by(failure));
        }
    };
    check_key(&chain[0]).map_err(failed)?;
    writeln!(out, "{}: valid for {good_for}", args.chain.display())?;
    Ok(())
}

/// The trust of the options.
fn trust(args: &Verify) -> Result<X509Trust, Error> {
    let unusable =
        |e: &dunlin::Error| Error::failed(args.ca.display(), reason(e), "give certificates of authorities");
    let mut trust = X509Trust::anchors(files::certificates(&args.ca)?).map_err(|e| unusable(&e))?;
    let mut lists = vec![];
    for path in &args.crl {
        let of_file = files::revocation_lists(path)?;
        let bad = |e| Error::failed(path.display(), reason(&e), "make a new one with `dunlin pki crl`");
        Revocation::new(of_file.clone()).map_err(bad)?;
        lists.extend(of_file);
    }
    if !lists.is_empty() {
        let together = |e| Error::failed("--CRL", reason(&e), "give one CRL of each authority");
        let revocation = Revocation::new(lists).map_err(together)?.refuse_overdue();
        trust = trust.with_revocation(revocation).map_err(|e| unusable(&e))?;
    }
    match args.verify_depth {
        Some(depth) => trust.with_max_depth(depth).map_err(|e| unusable(&e)),
        None => Ok(trust),
    }
}

/// Whether the key of a leaf can prove anything in a handshake, which no verification of its chain says.
fn check_key(leaf: &CertificateDer<'_>) -> Result<(), (String, &'static str)> {
    let Ok(leaf) = CertificateInfo::from_der(leaf) else { return Ok(()) };
    if let Some(short) = short_key(&leaf) {
        return Err(short);
    }
    // RFC 8446 §4.4.2.2: "The digitalSignature bit MUST be set if the Key Usage extension is present".
    match leaf.key_usages.is_empty() || leaf.key_usages.iter().any(|usage| usage == "digitalSignature") {
        true => Ok(()),
        false => {
            let usages = leaf.key_usages.join(", ");
            let why =
                format!("its key may not sign handshakes: keyUsage is {usages}, without digitalSignature");
            Err((why, "issue one with digitalSignature"))
        }
    }
}

/// Why the key of a certificate is too short, if it is.
fn short_key(certificate: &CertificateInfo) -> Option<(String, &'static str)> {
    let algorithm = &certificate.public_key.algorithm;
    let bits = algorithm.strip_prefix("RSA ").or_else(|| algorithm.strip_prefix("RSA-PSS "))?;
    let bits: u32 = bits.parse().ok()?;
    let why =
        format!("the RSA key of {} has {bits} bits, and at least 2048 are required", certificate.subject);
    (bits < 2048).then_some((why, LONGER_KEY))
}

const LONGER_KEY: &str = "issue it with an RSA key of 2048 bits, or a key of another type";

/// Why the engine refuses a chain, and advice.
fn explained(failure: &AuthenticationFailure) -> (String, &'static str) {
    use AuthenticationFailure as F;
    let at = |seconds| format_time(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let (why, advice) = match failure {
        F::Expired(certificate) => {
            return (format!("a certificate expired at {}", at(certificate.limit_s)), "issue a new one");
        }
        F::NotValidYet(certificate) => {
            let why = format!("a certificate is not valid before {}", at(certificate.limit_s));
            return (why, "wait or check the clock");
        }
        F::KeyTooShort(key) => {
            let whose = key.common_name.as_deref().map_or("an authority".into(), |name| format!("CN={name}"));
            let why = format!("the RSA key of {whose} has {} bits, and at least 2048 are required", key.bits);
            return (why, LONGER_KEY);
        }
        F::NameMismatch { .. } => (
            "the certificate is not valid for that name",
            "issue one with the name as --san, or give a name that it has",
        ),
        F::UnknownIssuer => (
            "no path to a trusted certificate",
            "give its root as --ca, and its intermediate certificates in the chain's file",
        ),
        F::BadChainSignature => (
            "a certificate's signature is wrong, or the signature does not match the type of its issuer's key",
            "give the certificate of its real issuer",
        ),
        F::ChainTooLong => (
            "more authorities between it and the trusted one than allowed",
            "raise --verify-depth to 6 at most, or trust an authority further down with --ca",
        ),
        F::ConstraintViolated => (
            "the chain breaks a constraint of an authority",
            "raise --path-len if there are more authorities than it allows, also under one name (self-issued), \
             or choose names that the name constraints permit",
        ),
        F::UnsupportedAlgorithm => (
            "an algorithm, a critical extension or the version of a certificate is not supported",
            "issue it with a key type that `dunlin pki` makes",
        ),
        F::BadEncoding => ("a certificate is malformed", "give an undamaged file"),
        F::CaAsEndEntity => ("the first certificate is an authority's", "put the leaf first in the file"),
        F::WrongPurpose => {
            ("the certificate is not meant for this purpose", "issue one with --server or --client as needed")
        }
        F::Revoked => ("a certificate is revoked", "issue a new one"),
        F::UnknownRevocationStatus => {
            ("an authority in the chain has no CRL", "give a CRL of each authority with --CRL")
        }
        F::OverdueRevocationList => ("a CRL has expired", "renew it with `dunlin pki crl`"),
        F::TooManyCertificates | F::TooManyVerifications => {
            return (failure.to_string(), "leave out certificates that lead to no trusted one");
        }
        _ => return (failure.to_string(), "inspect it with `dunlin pki show`"),
    };
    (why.into(), advice)
}

fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned()).map_err(|_| "neither a host name nor an address".to_owned())
}
