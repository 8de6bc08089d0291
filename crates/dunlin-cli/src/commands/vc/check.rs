//! `dunlin vc verify` and `dunlin vc show`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use dunlin_command::error::{Error, printable};
use dunlin_identity::credential::status::StatusError;
use dunlin_identity::credential::{CredentialError, Form, Verifier};
use dunlin_identity::encoding::json::Value;
use dunlin_identity::handshake::{ListedIssuer, ResolveError};
use dunlin_identity::{Did, Sha256Hash, did_method};
use dunlin_setup::did;
use dunlin_setup::place::{Field, options};
use serde_json::json;

use super::time_text;
use crate::did::file;
use crate::registry::{self, AccessOptions};
use crate::tls::lists;

/// Verify a credential: its issuer, signature, times and status.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin vc verify device.vc --vc-issuers trusted
  dunlin vc verify device.vc --vc-issuers trusted --vc-status status.vc --json
  dunlin vc verify device.vc --vc-issuers trusted --registry https://registry.example --registry-key registry.pub

Anyone can copy this file. Only a handshake proves that the peer holds the key.")]
pub(super) struct Verify {
    /// The credential.
    file: PathBuf,
    /// The list of the trusted issuers: a DID on each line; for a did:dunlin without --registry also the hash
    /// of its document (`dunlin did resolve --line`), which --did-documents gives.
    #[arg(long = "vc-issuers", alias = "trust", value_name = "FILE")]
    trust: PathBuf,
    /// The document of a did:dunlin on the list. May be repeated.
    #[arg(long = "did-documents", alias = "document", value_name = "FILE")]
    document: Vec<PathBuf>,
    /// A status list of an issuer. May be repeated.
    #[arg(long = "vc-status", alias = "status-list", value_name = "FILE")]
    status_list: Vec<PathBuf>,
    /// The registry of did:dunlin, which has the latest documents of issuers without --did-documents.
    #[arg(long, value_name = "URL", requires = "registry_key", help_heading = "Registry")]
    registry: Option<String>,
    /// Fetch the documents of issuers with a did:web over HTTPS.
    #[arg(long, help_heading = "Registry")]
    did_web: bool,
    #[command(flatten)]
    access: AccessOptions,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Show what a credential says. Nothing is verified.
#[derive(ClapArgs)]
#[command(after_help = "Example:\n  dunlin vc show device.vc")]
pub(super) struct Show {
    /// The credential, or a status list.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `dunlin vc verify`.
pub(super) fn verify(args: &Verify, out: &mut dyn Write) -> Result<(), Error> {
    let provider = lists::provider();
    let documents: Vec<_> = options("did_documents", &args.document).collect();
    let documents = did::documents(&documents)?;
    let sources = args.access.sources(args.registry.as_deref(), args.did_web)?;
    let trust = Field::option("vc_issuers", args.trust.clone());
    let listed = did::issuers(&trust, &documents, &sources.methods, &provider)?;
    let mut issuers: Vec<_> = listed.resolved.into_iter().map(|issuer| issuer.document).collect();
    // Other issuers do not matter, and their documents may be out of reach.
    let file = file(&args.file);
    let issuer = did::issuer(&file)?;
    let is_issuer = |did: &Did| Some(did) == issuer.as_ref();
    if let Some(other) = listed.others.iter().find(|other| is_issuer(&other.did)) {
        issuers.push(registry::document(&sources.look_ups, other)?);
    } else if let Some(given) = issuers.iter().find(|given| is_issuer(given.id()))
        && did_method(given.id()).is_some_and(|method| sources.methods.contains(&method))
    {
        // The registry knows whether this document is the latest.
        let pin = Some(Sha256Hash::of(&provider, given.canonical().as_bytes()).map_err(ResolveError::from));
        let pin = pin.transpose().map_err(|error| Error::failed("--did-documents", error, "report it"))?;
        registry::document(&sources.look_ups, &ListedIssuer { did: given.id().clone(), pin })?;
    }
    let verifier = Verifier::new(issuers);
    let lists: Vec<_> = options("vc_status", &args.status_list).collect();
    let lists = did::status_lists(&lists, &verifier, &provider)?;
    let verified = verifier.verify_presented(&provider, &did::credential(&file)?, &lists, did::now_s());
    let verified = verified.map_err(|error| Error::failed(args.file.display(), &error, remedy(&error)))?;
    if args.json {
        let shown = json!({
            "issuer": verified.issuer.as_str(),
            "subject": verified.subject.as_str(),
            "valid_until": verified.valid_until.map(time_text),
            "status_until": verified.status_until.map(time_text),
            "credential": verified.credential,
        });
        writeln!(out, "{shown}")?;
        return Ok(());
    }
    writeln!(out, "{}: valid", args.file.display())?;
    describe(&verified.credential, out)?;
    if let Some(until) = verified.status_until {
        writeln!(out, "status until  {}", time_text(until))?;
    }
    Ok(())
}

/// The remedy for a refused credential.
const fn remedy(error: &CredentialError) -> &'static str {
    use {CredentialError as C, StatusError as S};
    match error {
        C::UntrustedIssuer(_) => "add the issuer to --vc-issuers, if you trust it",
        C::Status(S::Missing(_)) => "give the issuer's list with --vc-status",
        C::Status(S::Stale(_)) => "get the newest list from the issuer (`dunlin vc revoke`)",
        C::Status(S::Revoked | S::Suspended) => "do not trust its holder; ask the issuer",
        C::Expired => "get a new credential from the issuer",
        C::NotYetValid => "check the clock of this machine, or wait",
        C::IssuerKey(_) => "get a new credential: the issuer may have replaced its key",
        C::TooLong | C::Form | C::Json(_) => "give a credential as `dunlin vc issue` makes it",
        _ => "do not trust it; `dunlin vc show` shows what it says",
    }
}

/// Runs `dunlin vc show`.
pub(super) fn show(args: &Show, out: &mut dyn Write) -> Result<(), Error> {
    let file = file(&args.file);
    let bytes = did::credential(&file)?;
    let credential = did::unverified(&file)?;
    let form = form(&args.file, &bytes)?;
    if args.json {
        writeln!(out, "{}", json!({ "form": form.name(), "bytes": bytes.len(), "credential": credential }))?;
        return Ok(());
    }
    writeln!(out, "form          {}, {} bytes, not verified", form.name(), bytes.len())?;
    describe(&credential, out)
}

fn form(path: &Path, bytes: &[u8]) -> Result<Form, Error> {
    Form::of(bytes).map_err(|error| Error::failed(path.display(), error, "give a credential"))
}

/// Writes the members that this program understands, a line for each.
fn describe(credential: &Value, out: &mut dyn Write) -> Result<(), Error> {
    let text = |value: &Value| match value {
        Value::String(text) => printable(text),
        value => printable(&value.to_string()),
    };
    let issuer = credential.get("issuer").map(|issuer| issuer.get("id").unwrap_or(issuer));
    let subject = credential.get("credentialSubject");
    let members = [
        ("issuer", issuer),
        ("subject", subject.and_then(|subject| subject.get("id"))),
        ("type", credential.get("type")),
        ("valid from", credential.get("validFrom")),
        ("valid until", credential.get("validUntil")),
        ("status", credential.get("credentialStatus")),
    ];
    for (name, value) in members.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        writeln!(out, "{name:<12}  {}", text(value))?;
    }
    let claims = subject.and_then(Value::as_object).into_iter().flatten().filter(|(name, _)| *name != "id");
    for (name, value) in claims {
        writeln!(out, "claim         {} = {}", printable(name), text(value))?;
    }
    Ok(())
}
