//! `dunlin pki show`: describes the content of a file.

use std::io::Write;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use dunlin_command::error::{Error, printable};
use dunlin_command::files;
use dunlin_pki::{CertificateInfo, Item, PublicKeyInfo, RevocationListInfo, format_time};
use serde::Serialize;

/// Show the content of a file: certificates, private keys, public keys, CRLs.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin pki show chain.pem
  dunlin pki show chain.pem --json | jq '.[].bytes'

Reads PEM and DER. Of a private key only the public key is printed.")]
pub(super) struct Show {
    /// The file, or - for stdin.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Shown {
    Certificate(Box<CertificateInfo>),
    PrivateKey { key_type: &'static str, public_key: PublicKeyInfo },
    PublicKey(PublicKeyInfo),
    RevocationList(RevocationListInfo),
}

impl Shown {
    fn new(item: &Item) -> Result<Self, dunlin_pki::Error> {
        Ok(match item {
            Item::Certificate(der) => Self::Certificate(Box::new(CertificateInfo::from_der(der)?)),
            Item::PrivateKey(key) => Self::PrivateKey {
                key_type: key.key_type().name(),
                public_key: PublicKeyInfo::from_der(key.public_key())?,
            },
            Item::PublicKey(der) => Self::PublicKey(PublicKeyInfo::from_der(der)?),
            Item::RevocationList(der) => Self::RevocationList(RevocationListInfo::from_der(der)?),
        })
    }
}

/// Runs `dunlin pki show`.
pub(super) fn run(args: &Show, out: &mut dyn Write) -> Result<(), Error> {
    let items = files::items(&args.file)?;
    let shown: Result<Vec<_>, _> = items.iter().map(Shown::new).collect();
    let shown = shown.map_err(|error| Error::in_file(&args.file, &error))?;
    if args.json {
        let json = serde_json::to_string_pretty(&shown)
            .map_err(|error| Error::failed("output", error, "leave out --json"))?;
        writeln!(out, "{json}")?;
        return Ok(());
    }
    for (index, shown) in shown.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        match shown {
            Shown::Certificate(info) => certificate(info, out)?,
            Shown::PrivateKey { public_key: key, .. } => {
                public_key(&format!("private key, {}", key.algorithm), key, out)?;
            }
            Shown::RevocationList(info) => revocation_list(info, out)?,
            Shown::PublicKey(key) => public_key(&format!("public key, {}", key.algorithm), key, out)?,
        }
    }
    Ok(())
}

fn certificate(info: &CertificateInfo, out: &mut dyn Write) -> Result<(), Error> {
    let kind = if info.ca { "authority's certificate" } else { "certificate" };
    writeln!(out, "{kind}, {} bytes", info.bytes)?;
    let validity = format!("{} to {}", format_time(info.not_before), format_time(info.not_after));
    let authority = match (info.ca, info.path_len) {
        (false, _) => "no".to_owned(),
        (true, None) => "yes".to_owned(),
        (true, Some(length)) => format!("yes, with at most {length} more below"),
    };
    let or = |list: &[String], nothing: &str| {
        if list.is_empty() { nothing.to_owned() } else { list.join(", ") }
    };
    let parts: Vec<_> = info.parts.iter().map(|part| format!("{} {}", part.name, part.bytes)).collect();
    for (name, value) in [
        ("subject", if info.subject.is_empty() { "(empty)" } else { &info.subject }),
        ("issuer", &info.issuer),
        ("names", &or(&info.names, "(none)")),
        ("valid", &validity),
        ("serial", &info.serial),
        ("key", &info.public_key.algorithm),
        ("signed by", &info.signature_algorithm),
        ("authority", &authority),
        ("key usage", &or(&info.key_usages, "(any)")),
        ("purposes", &or(&info.purposes, "(any)")),
        ("sha256", &info.sha256),
        ("key sha256", &info.public_key.sha256),
        ("bytes", &parts.join(", ")),
    ] {
        line(name, value, out)?;
    }
    Ok(())
}

fn revocation_list(info: &RevocationListInfo, out: &mut dyn Write) -> Result<(), Error> {
    writeln!(out, "CRL, {} bytes", info.bytes)?;
    let next = info.next_update.map_or_else(|| "(none)".to_owned(), format_time);
    for (name, value) in [
        ("issuer", &info.issuer),
        ("number", &info.number.map_or_else(|| "(none)".to_owned(), |number| number.to_string())),
        ("made", &format_time(info.this_update)),
        ("next", &next),
        ("signed by", &info.signature_algorithm),
        ("sha256", &info.sha256),
    ] {
        line(name, value, out)?;
    }
    for revoked in &info.revoked {
        let reason = revoked.reason.as_ref().map_or_else(String::new, |reason| format!(", {reason}"));
        line("revoked", &format!("{}, {}{reason}", revoked.serial, format_time(revoked.since)), out)?;
    }
    Ok(())
}

fn public_key(title: &str, key: &PublicKeyInfo, out: &mut dyn Write) -> Result<(), Error> {
    writeln!(out, "{title}")?;
    line("key sha256", &key.sha256, out)?;
    line("key bytes", &key.bytes.to_string(), out)
}

fn line(name: &str, value: &str, out: &mut dyn Write) -> Result<(), Error> {
    writeln!(out, "  {name:<10}  {}", printable(value))?;
    Ok(())
}
