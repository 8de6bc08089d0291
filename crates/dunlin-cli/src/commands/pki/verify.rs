//! `dunlin pki verify`: checks whether a peer would accept a chain, by the engine's own rules.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args as ClapArgs;
use dunlin::auth::X509Trust;
use dunlin::crypto::SignatureAlgorithms;
use dunlin::error::AuthenticationFailure;
use dunlin::{Now, Side};
use dunlin_awslc::{ALL_SIGNATURES, SIGNATURES};
use dunlin_command::error::{Error, reason, warn};
use dunlin_command::faults::checked;
use dunlin_command::files;
use dunlin_pki::parse_time;
use dunlin_setup::place::{Field, options};
use dunlin_setup::trust::trust;
use pki_types::ServerName;

use crate::chains::Words;

/// Verify that a chain leads to a trusted root.
///
/// Prints whether the certificate suits a server, a client or both. One of the two is enough unless --server,
/// --client or --name demands more. With --crl, no certificate of the chain may be revoked. The certificate's
/// key must be long enough, and its keyUsage must allow signatures.
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
    #[arg(long = "crl", visible_alias = "CRL", value_name = "FILE")]
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
    let trust = trust_of(args)?;
    let chain = files::certificates(&args.chain)?;
    let since_epoch = args.time.unwrap_or_else(SystemTime::now).duration_since(SystemTime::UNIX_EPOCH);
    let now_ms = u64::try_from(since_epoch.unwrap_or(Duration::ZERO).as_millis()).unwrap_or(u64::MAX);
    let by = |algorithms: &SignatureAlgorithms, side, name: Option<&ServerName<'_>>| {
        trust.verify_chain(algorithms.all, &chain, side, name, Now::from_unix_ms(now_ms)).unwrap_or(Ok(()))
    };
    let check = |side, name| by(&ALL_SIGNATURES, side, name);
    let words = words(args);
    let failed_by = |failure: &AuthenticationFailure| {
        let (detail, advice) = words.explain(failure).unwrap_or_default();
        Error::failed(args.chain.display(), format!("{failure}{detail}"), advice)
    };
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
    writeln!(out, "{}: valid for {good_for}", args.chain.display())?;
    let side = if server.is_ok() { Side::Server } else { Side::Client };
    if by(&SIGNATURES, side, None).is_err() {
        warn(&format!(
            "{}: peers refuse it with their default signature schemes, which have no P-521, ML-DSA-65 and RSA-PSS keys; \
             let them accept its schemes, as with --sigalgs",
            args.chain.display()
        ));
    }
    Ok(())
}

/// The words for the explanation of a refusal.
fn words(args: &Verify) -> Words {
    Words {
        anchors: args.ca.display().to_string(),
        ca: "--ca",
        name: "--name",
        complete: "put its intermediate certificates behind it in the file".into(),
        depth: args.verify_depth,
        enable: None,
        lists: "give a CRL of each authority with --crl",
    }
}

/// The trust of the options.
fn trust_of(args: &Verify) -> Result<X509Trust, Error> {
    let ca = [Field::option("ca", args.ca.clone())];
    let crl: Vec<_> = options("crl", &args.crl).collect();
    let trust = checked(|faults| trust([&ca, &crl, &[]], faults))?;
    let unusable =
        |e: &dunlin::Error| Error::failed(args.ca.display(), reason(e), "give certificates of authorities");
    let trust = trust.x509.map_or_else(|| X509Trust::anchors([]), Ok).map_err(|e| unusable(&e))?;
    match args.verify_depth {
        Some(depth) => trust.with_max_depth(depth).map_err(|e| unusable(&e)),
        None => Ok(trust),
    }
}

fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned()).map_err(|_| "neither a host name nor an address".to_owned())
}
