//! `dunlin pki verify`: checks whether a peer would accept a chain, by the engine's own rules.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args as ClapArgs;
use dunlin::auth::X509Trust;
use dunlin::error::AuthenticationFailure;
use dunlin::{Now, Side};
use dunlin_awslc::ALL_SIGNATURES;
use dunlin_pki::{CertificateInfo, format_time, parse_time};
use pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage, OwnedCertRevocationList,
    RevocationOptions, RevocationOptionsBuilder, anchor_from_trusted_cert,
};

use crate::error::Error;
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
    let trusted = files::certificates(&args.ca)?;
    let chain = files::certificates(&args.chain)?;
    let failed = |(why, advice): (String, &str)| Error::failed(args.chain.display(), why, advice);
    let time = args.time.unwrap_or_else(SystemTime::now);

    let mut lists: Vec<CertRevocationList<'_>> = vec![];
    for path in &args.crl {
        for list in files::revocation_lists(path)? {
            let bad =
                |_| Error::failed(path.display(), "malformed, or not a version 2 CRL", "make a new one");
            lists.push(OwnedCertRevocationList::from_der(&list).map_err(bad)?.into());
        }
    }
    let lists: Vec<_> = lists.iter().collect();
    // webpki's defaults: check the whole chain, and refuse a certificate whose issuer has no CRL.
    let revocation = RevocationOptionsBuilder::new(&lists).ok();
    let revocation = revocation.map(|r| r.with_expiration_policy(ExpirationPolicy::Enforce).build());
    let depth = args.verify_depth.unwrap_or(u8::MAX).into();
    let check = |usage| verify(&trusted, &chain, revocation, time, usage, depth);
    let failed = |error: &webpki::Error| failed(reason(error, &trusted, &chain, time));
    let server = check(KeyUsage::server_auth());
    let client = check(KeyUsage::client_auth());
    let asked = [(args.server || args.name.is_some(), &server), (args.client, &client)];
    for (_, result) in asked.iter().filter(|(wanted, _)| *wanted) {
        (*result).as_ref().map_err(&failed)?;
    }
    let good_for = match (&server, &client) {
        (Ok(()), Ok(())) => "server and client",
        (Ok(()), Err(_)) => "server",
        (Err(_), Ok(())) => "client",
        // A client's certificate need not suit a server, so the client's error says more.
        (Err(webpki::Error::RequiredEkuNotFoundContext(_)), Err(error)) | (Err(error), Err(_)) => {
            return Err(failed(error));
        }
    };
    if let Some(name) = &args.name {
        let leaf = EndEntityCert::try_from(&chain[0]).map_err(|error| failed(&error))?;
        leaf.verify_is_valid_for_subject_name(name).map_err(|error| failed(&error))?;
    }
    check_key(&chain[0]).map_err(|(why, advice)| Error::failed(args.chain.display(), why, advice))?;
    writeln!(out, "{}: valid for {good_for}", args.chain.display())?;
    Ok(())
}

fn verify(
    trusted: &[CertificateDer<'_>],
    chain: &[CertificateDer<'_>],
    revocation: Option<RevocationOptions<'_>>,
    time: SystemTime,
    usage: KeyUsage,
    depth: usize,
) -> Result<(), webpki::Error> {
    let anchors: Vec<_> = trusted.iter().map(anchor_from_trusted_cert).collect::<Result<_, _>>()?;
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (leaf, intermediates) = chain.split_first().ok_or(webpki::Error::UnknownIssuer)?;
    EndEntityCert::try_from(leaf)?.verify_for_usage(
        ALL_SIGNATURES.all,
        &anchors,
        intermediates,
        UnixTime::since_unix_epoch(since_epoch),
        usage,
        revocation,
        Some(&|path| match path.intermediate_certificates().count() > depth {
            true => Err(webpki::Error::MaximumPathDepthExceeded),
            false => Ok(()),
        }),
    )?;
    Ok(())
}

/// Whether every signature of a chain verifies, where webpki says that one does not: it tries each key of an authority's name, and
/// reports a wrong one rather than a constraint on the way through the right one.
fn are_signed(trusted: &[CertificateDer<'_>], chain: &[CertificateDer<'_>], time: SystemTime) -> bool {
    let Ok(trust) = X509Trust::anchors(trusted.iter().cloned()) else { return false };
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let now = Now::from_unix_ms(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX));
    let verdict = trust.verify_chain(ALL_SIGNATURES.all, chain, Side::Server, None, now);
    verdict == Some(Err(AuthenticationFailure::ConstraintViolated))
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
    (bits < 2048).then_some((why, "issue it with an RSA key of 2048 bits, or a key of another type"))
}

/// Why webpki refuses a chain, and advice.
fn reason(
    error: &webpki::Error,
    trusted: &[CertificateDer<'_>],
    chain: &[CertificateDer<'_>],
    time: SystemTime,
) -> (String, &'static str) {
    let at = |time: &UnixTime| format_time(SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs()));
    match error {
        webpki::Error::CertExpired { not_after, .. } => {
            (format!("a certificate expired at {}", at(not_after)), "issue a new one")
        }
        webpki::Error::CertNotValidYet { not_before, .. } => {
            (format!("a certificate is not valid before {}", at(not_before)), "wait or check the clock")
        }
        webpki::Error::CertNotValidForName(_) => (
            "the certificate is not valid for that name".into(),
            "issue one with the name as --san, or give a name that it has",
        ),
        webpki::Error::UnknownIssuer => (
            "no path to a trusted certificate".into(),
            "give its root as --ca, and its intermediate certificates in the chain's file",
        ),
        webpki::Error::InvalidSignatureForPublicKey => {
            let authorities = chain.iter().skip(1).chain(trusted);
            let mut authorities = authorities.filter_map(|der| CertificateInfo::from_der(der).ok());
            let advice = "give the certificate of its real issuer";
            match authorities.find_map(|authority| short_key(&authority)) {
                Some(short) => short,
                None if are_signed(trusted, chain, time) => (
                    "the path through the key that issued it breaks a constraint of an authority".into(),
                    "raise --path-len: authorities under one name (self-issued) count, too",
                ),
                None => ("a certificate's signature is wrong".into(), advice),
            }
        }
        webpki::Error::MaximumPathDepthExceeded => (
            "more authorities between it and the trusted one than allowed".into(),
            "raise --verify-depth to 6 at most, or trust an authority further down with --ca",
        ),
        webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => (
            "a certificate's signature does not match the type of its issuer's key".into(),
            "give the certificate of its real issuer",
        ),
        webpki::Error::UnsupportedSignatureAlgorithmContext(_) => (
            "a certificate's signature algorithm is not supported".into(),
            "issue it with a key type that `dunlin pki` makes",
        ),
        webpki::Error::UnsupportedCriticalExtension => (
            "a certificate has a critical extension that is not supported".into(),
            "issue it without that extension",
        ),
        webpki::Error::UnsupportedCertVersion => {
            ("a certificate does not have version 3".into(), "issue a new one")
        }
        webpki::Error::BadDer
        | webpki::Error::BadDerTime
        | webpki::Error::TrailingData(_)
        | webpki::Error::MalformedExtensions
        | webpki::Error::SignatureAlgorithmMismatch => {
            ("a certificate is malformed".into(), "give an undamaged file")
        }
        webpki::Error::CaUsedAsEndEntity => {
            ("the first certificate is an authority's".into(), "put the leaf first in the file")
        }
        webpki::Error::EndEntityUsedAsCa => {
            ("an issuer in the chain is no authority".into(), "issue the certificate by an authority")
        }
        webpki::Error::RequiredEkuNotFoundContext(_) => (
            "the certificate is not meant for this purpose".into(),
            "issue one with --server or --client as needed",
        ),
        webpki::Error::CertRevoked => ("a certificate is revoked".into(), "issue a new one"),
        webpki::Error::UnknownRevocationStatus => {
            ("an authority in the chain has no CRL".into(), "give a CRL of each authority with --CRL")
        }
        webpki::Error::CrlExpired { next_update, .. } => {
            (format!("a CRL expired at {}", at(next_update)), "renew it with `dunlin pki crl`")
        }
        webpki::Error::PathLenConstraintViolated => (
            "the path has more authorities than one of its certificates allows".into(),
            "issue it from an authority higher up, or raise --path-len",
        ),
        webpki::Error::NameConstraintViolation => (
            "a name violates the name constraints of an authority".into(),
            "choose a name that the constraints permit",
        ),
        _ => ("the chain breaks a rule of RFC 5280".into(), "inspect it with `dunlin pki show`"),
    }
}

fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned()).map_err(|_| "neither a host name nor an address".to_owned())
}
