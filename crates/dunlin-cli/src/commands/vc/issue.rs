//! `dunlin vc issue`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use dunlin::crypto::CryptoProvider;
use dunlin_command::error::{Error, warn};
use dunlin_command::files::{self, Access, Existing};
use dunlin_identity::credential::{CREDENTIALS_V2, Contexts, Form, Issuer, Seconds};
use dunlin_identity::encoding::json::{self, Value};
use dunlin_identity::method::web;
use dunlin_identity::method::{MethodError, Methods};
use dunlin_identity::{Did, Relationship, Sha256Hash};
use dunlin_setup::did::{OwnDid, now_s};
use dunlin_store::psk::time::parse_time;
use dunlin_tokio::https;
use serde_json::{Map, json};

use super::status::List;
use super::time_text;
use crate::did;
use crate::tls::lists;

/// Issue a credential: a signed statement about a DID.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin vc issue --issuer operator --subject did:key:z6Mk… --claim role=sensor --out device.vc
  dunlin vc issue --issuer operator --subject did:key:z6Mk… --claims device.json --form jwt --days 30 --out device.vc

Without a status list, the issuer cannot revoke the credential: it is valid until it expires.")]
pub(super) struct Issue {
    /// The DID of the issuer: its directory, or the key of a did:key.
    #[arg(long, value_name = "DIR|FILE")]
    issuer: PathBuf,
    /// The DID of the holder, the subject of the credential.
    #[arg(long, value_name = "DID", value_parser = did::did)]
    subject: Did,
    /// A claim about the holder, as text. May be repeated.
    #[arg(long = "claim", value_name = "NAME=TEXT", value_parser = claim)]
    texts: Vec<(String, String)>,
    /// A file with claims about the holder: an object in JSON.
    #[arg(long, value_name = "FILE")]
    claims: Option<PathBuf>,
    /// A further type of the credential. May be repeated.
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// For how many days the credential is valid.
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = value_parser!(u32).range(1..=36500))]
    days: u32,
    /// When the validity begins: YYYY-MM-DD or YYYY-MM-DDThh:mm:ssZ [default: now].
    #[arg(long, value_name = "TIME", value_parser = time)]
    valid_from: Option<Seconds>,
    /// The form: compact (CBOR and COSE) takes the fewest bytes; other programs read json (Data Integrity)
    /// and jwt.
    #[arg(long, value_enum, default_value = "compact")]
    form: FormName,
    /// The issuer's status list, in which the credential gets a place, so that the issuer can revoke it.
    /// Created if it does not exist.
    #[arg(long, value_name = "FILE")]
    status_list: Option<PathBuf>,
    /// The URL under which the issuer publishes a new status list.
    #[arg(long, value_name = "URL", requires = "status_list")]
    status_url: Option<String>,
    /// The file for the credential.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormName {
    Compact,
    Json,
    Jwt,
}

impl From<FormName> for Form {
    fn from(name: FormName) -> Self {
        match name {
            FormName::Compact => Self::Compact,
            FormName::Json => Self::Json,
            FormName::Jwt => Self::Jwt,
        }
    }
}

fn claim(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && name != "id" => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write a name, other than id, and a text: role=sensor".to_owned()),
    }
}

fn time(text: &str) -> Result<Seconds, String> {
    let seconds = parse_time(text).and_then(|seconds| Seconds::try_from(seconds).ok());
    seconds.ok_or_else(|| "not a time; write it as 2027-01-31 or 2027-01-31T12:00:00Z".to_owned())
}

/// Runs `dunlin vc issue`.
pub(super) fn run(args: &Issue, out: &mut dyn Write) -> Result<(), Error> {
    let provider = lists::provider();
    let existing = Existing::from_force(args.force);
    files::check_new(&[&args.out], existing)?;
    check_subject(&args.subject)?;
    let issuer = OwnDid::load(&did::file(&args.issuer), &provider)?;
    let from = args.valid_from.unwrap_or_else(now_s);
    let until = from + Seconds::from(args.days) * 24 * 3600;
    let types: Vec<_> =
        std::iter::once("VerifiableCredential").chain(args.types.iter().map(String::as_str)).collect();
    let mut credential = json!({
        "@context": [CREDENTIALS_V2],
        "type": types,
        "issuer": issuer.did().as_str(),
        "validFrom": time_text(from),
        "validUntil": time_text(until),
        "credentialSubject": subject(args)?,
    });
    // Another run must not take the same place.
    let _lock = args.status_list.as_deref().map(files::lock_directory_of).transpose()?;
    if let Some(path) = &args.status_list {
        let list = list(path, args.status_url.as_deref(), &issuer, &provider)?;
        credential["credentialStatus"] = list.entry(list.take(&provider)?).to_value();
    }
    let bytes = sign(&credential, &issuer, args.form.into(), &args.out, &provider)?;
    files::write(&args.out, &bytes, Access::Public, existing)?;
    let path = args.out.display();
    let len = bytes.len();
    let until = time_text(until);
    writeln!(out, "{path}: credential, {len} bytes, valid until {until}")?;
    Ok(())
}

/// Refuses a subject that cannot exist, and warns of one that handshakes cannot name.
fn check_subject(did: &Did) -> Result<(), Error> {
    let refused = |error: &dyn std::fmt::Display| {
        Error::usage("--subject", format!("{did}: {error}"), "give the DID as `dunlin did create` prints it")
    };
    match Methods::default().resolve(did) {
        Ok(_) => return Ok(()),
        Err(MethodError::Unknown(_)) => {}
        Err(error) => return Err(refused(&error)),
    }
    match did.method() {
        "dunlin" => match format!("z{}", did.identifier()).parse::<Sha256Hash>() {
            Ok(_) => Ok(()),
            Err(_) => Err(refused(&"it is not the hash of a document")),
        },
        "web" => web::locate(did).map(drop).map_err(|error| refused(&error)),
        method => {
            warn(&format!("--subject: peers cannot resolve a DID of the method {method:?} in handshakes"));
            Ok(())
        }
    }
}

/// The holder with the claims.
fn subject(args: &Issue) -> Result<Value, Error> {
    let mut subject = Map::new();
    if let Some(path) = &args.claims {
        let refused = |error: &dyn std::fmt::Display| {
            Error::failed(path.display(), error, "give an object in JSON, without the member \"id\"")
        };
        match json::read(files::text(path)?.as_bytes()).map_err(|error| refused(&error))? {
            Value::Object(claims) if !claims.contains_key("id") => subject = claims,
            Value::Object(_) => return Err(refused(&"it has a member \"id\"")),
            _ => return Err(refused(&"it is no object")),
        }
    }
    for (name, text) in &args.texts {
        if subject.insert(name.clone(), text.as_str().into()).is_some() {
            return Err(Error::usage("--claim", format!("{name:?} is there twice"), "give each claim once"));
        }
    }
    subject.insert("id".to_owned(), args.subject.as_str().into());
    Ok(subject.into())
}

/// The status list in the file, or a new one, which is written.
fn list(path: &Path, url: Option<&str>, issuer: &OwnDid, provider: &CryptoProvider) -> Result<List, Error> {
    if path.symlink_metadata().is_ok() {
        let list = List::read(path, issuer, provider)?;
        return match url.filter(|url| *url != list.entry(0).list) {
            Some(_) => {
                let why = format!("the list is published at {}", list.entry(0).list);
                Err(Error::usage("--status-url", why, "leave it out, or give another --status-list"))
            }
            None if list.is_outdated => list.write_default(issuer, provider).map(|()| list),
            None => Ok(list),
        };
    }
    let Some(url) = url else {
        let why = "the list does not exist, and has no URL";
        return Err(Error::usage(path.display(), why, "add --status-url"));
    };
    https::url(url).map_err(|error| {
        Error::usage("--status-url", error, "give the https URL under which verifiers get the list")
    })?;
    let list = List::new(path, url);
    list.write_default(issuer, provider)?;
    Ok(list)
}

/// Signs a credential. Texts end with a line break.
pub(super) fn sign(
    credential: &Value,
    issuer: &OwnDid,
    form: Form,
    path: &Path,
    provider: &CryptoProvider,
) -> Result<Vec<u8>, Error> {
    let method = issuer.method(Relationship::AssertionMethod)?;
    let signer = Issuer { provider, signer: &*issuer.key, method: &method };
    let contexts = Contexts::default();
    let signed = match form {
        Form::Json => signer.issue(credential, &contexts, now_s()).map(|text| (text + "\n").into_bytes()),
        Form::Jwt => signer.issue_jwt(credential, &contexts).map(|text| (text + "\n").into_bytes()),
        Form::Compact => signer.issue_compact(credential, &contexts),
    };
    signed.map_err(|error| Error::failed(path.display(), error, "change the claims"))
}
