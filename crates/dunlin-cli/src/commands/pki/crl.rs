//! `dunlin pki crl`: revoke certificates, and renew the list of those that are.

use std::io::Write;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, value_parser};
use dunlin_pki::{CrlSpec, RevocationReason, Validity, format_time, revocation_list_to_pem};
use pki_types::CertificateRevocationListDer;

use super::make::Issuer;
use crate::error::{Error, printable};
use crate::files::{self, Access, Existing};

/// Revoke certificates: make an authority's revocation list, or add to it and renew it.
///
/// A list that is there already is continued, with the number after its own; nothing leaves it. Without --revoke it is
/// only renewed. Whoever checks it needs the new file: `dunlin client`, `server` and `pki verify` take it as --CRL.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin pki crl --issuer ca.pem --issuer-key ca.key --revoke sensor-7.pem --reason keyCompromise
  dunlin pki crl --issuer sub.pem --issuer-key sub.key --crl sub-crl.pem --days 7")]
pub(super) struct Crl {
    #[command(flatten)]
    issuer: Issuer,
    /// A certificate to revoke: the first in the file. May be repeated.
    #[arg(long, value_name = "CERT")]
    revoke: Vec<PathBuf>,
    /// Why they are revoked.
    #[arg(long, value_name = "REASON", requires = "revoke", value_parser = reasons())]
    reason: Option<RevocationReason>,
    /// The list, in PEM; it is made if it is not there.
    #[arg(long, visible_alias = "CRL", value_name = "FILE", default_value = "crl.pem")]
    crl: PathBuf,
    /// In how many days there will be the next list at the latest.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = value_parser!(u32).range(1..))]
    days: u32,
}

/// Runs `dunlin pki crl`.
pub(super) fn run(args: &Crl, out: &mut dyn Write) -> Result<(), Error> {
    let issuer = args.issuer.load()?;
    let revoke = args.revoke.iter().map(|path| Ok(files::certificates(path)?.swap_remove(0)));
    let spec = CrlSpec {
        previous: previous(args)?,
        revoke: revoke.collect::<Result<_, Error>>()?,
        reason: args.reason,
        validity: Validity::from_now_days(args.days)?,
    };
    let list = issuer.revocation_list(&spec).map_err(|error| {
        let at = match error {
            dunlin_pki::Error::OtherIssuer | dunlin_pki::Error::MalformedList(_) => &args.crl,
            _ => args.revoke.first().unwrap_or(&args.crl),
        };
        Error::in_file(at, &error)
    })?;
    let pem = revocation_list_to_pem(&list)?;
    files::write(&args.crl, pem.as_bytes(), Access::Public, Existing::Replace)?;
    let (path, until) = (printable(&args.crl.display().to_string()), format_time(spec.validity.not_after()));
    writeln!(out, "{path}: revocation list, {} bytes, good until {until}", list.len())?;
    Ok(())
}

/// The list to continue.
fn previous(args: &Crl) -> Result<Option<CertificateRevocationListDer<'static>>, Error> {
    if args.crl.symlink_metadata().is_err() {
        return Ok(None);
    }
    let mut lists = files::revocation_lists(&args.crl)?;
    match lists.len() {
        1 => Ok(lists.pop()),
        several => {
            let why = format!("{several} lists in it, of which one could be continued");
            Err(Error::failed(args.crl.display(), why, "give each a file of its own"))
        }
    }
}

fn reasons() -> impl TypedValueParser<Value = RevocationReason> {
    PossibleValuesParser::new(RevocationReason::ALL.map(RevocationReason::name))
        .try_map(|name| name.parse::<RevocationReason>())
}
