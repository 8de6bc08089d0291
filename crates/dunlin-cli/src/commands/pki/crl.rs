//! `dunlin pki crl`: revokes certificates and renews CRLs.

use std::io::Write;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, value_parser};
use dunlin_command::error::{Error, printable};
use dunlin_command::files::{self, Access, Existing};
use dunlin_pki::{CrlSpec, Item, RevocationReason, Validity, format_time, revocation_list_to_pem};
use pki_types::CertificateRevocationListDer;

use super::make::Issuer;

/// Revoke certificates: make or renew an authority's CRL (certificate revocation list).
///
/// An existing CRL of the authority keeps its entries and gets the next number. Without --revoke it is only renewed. Give the
/// new file to every peer that checks revocation: `dunlin client`, `server` and `pki verify` take it as
/// --crl.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin pki crl --issuer ca.pem --issuer-key ca.key --revoke sensor-7.pem --reason keyCompromise
  dunlin pki crl --issuer sub.pem --issuer-key sub.key --crl sub-crl.pem --days 7")]
pub(super) struct Crl {
    #[command(flatten)]
    issuer: Issuer,
    /// A file whose first certificate is to be revoked. May be repeated.
    #[arg(long, value_name = "CERT")]
    revoke: Vec<PathBuf>,
    /// Why the certificates are revoked.
    #[arg(long, value_name = "REASON", requires = "revoke", value_parser = reasons())]
    reason: Option<RevocationReason>,
    /// The CRL, in PEM; created if it does not exist.
    #[arg(long, visible_alias = "CRL", value_name = "FILE", default_value = "crl.pem")]
    crl: PathBuf,
    /// In how many days the CRL expires; renew it before.
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
            dunlin_pki::Error::OtherIssuer
            | dunlin_pki::Error::OtherSigner
            | dunlin_pki::Error::UnlikeList(_)
            | dunlin_pki::Error::MalformedList(_) => &args.crl,
            _ => args.revoke.first().unwrap_or(&args.crl),
        };
        Error::in_file(at, &error)
    })?;
    let pem = revocation_list_to_pem(&list)?;
    files::write(&args.crl, pem.as_bytes(), Access::Public, Existing::Replace)?;
    let path = printable(&args.crl.display().to_string());
    let until = format_time(spec.validity.not_after());
    writeln!(out, "{path}: CRL, {} bytes, valid until {until}", list.len())?;
    Ok(())
}

/// The existing CRL, which the new one continues.
fn previous(args: &Crl) -> Result<Option<CertificateRevocationListDer<'static>>, Error> {
    if args.crl.symlink_metadata().is_err() {
        return Ok(None);
    }
    let list = |item| if let Item::RevocationList(der) = item { Some(der) } else { None };
    let mut lists = files::items_for(&args.crl, "CRL", list)?;
    match lists.len() {
        1 => Ok(lists.pop()),
        several => {
            let why = format!("{several} CRLs in it, but only one can be continued");
            Err(Error::failed(args.crl.display(), why, "keep each CRL in a file of its own"))
        }
    }
}

fn reasons() -> impl TypedValueParser<Value = RevocationReason> {
    PossibleValuesParser::new(RevocationReason::ALL.map(RevocationReason::name))
        .try_map(|name| name.parse::<RevocationReason>())
}
