//! `dunlin psk`: make and keep pre-shared keys.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand};
use dunlin::crypto::SecureRandom;
use serde_json::json;
use zeroize::Zeroizing;

use crate::error::{Error, count};
use crate::files::{self, Access, Existing};
use crate::psk::{Identity, MAX_KEY_LEN, MIN_KEY_LEN, Psk, PskFile, ShortKeys};

const EXAMPLES: &str = "\
Examples:
  dunlin psk new --identity sensor-7 --out keys.psk
  dunlin psk list keys.psk
  dunlin psk show keys.psk sensor-7 --reveal
  dunlin psk remove keys.psk sensor-7

The file is that of GnuTLS's psktool: a line for each key, identity:key, the key in hexadecimal.
An identity that begins with # is given in hexadecimal: #73656e736f72 is \"sensor\".";

/// Make and keep pre-shared keys.
#[derive(ClapArgs)]
#[command(arg_required_else_help = false, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    New(New),
    List(List),
    Show(Show),
    Remove(Remove),
}

/// Make a key and add it to a file, or print its line.
#[derive(ClapArgs)]
#[command(after_help = "Example:\n  dunlin psk new --identity sensor-7 --out keys.psk")]
struct New {
    /// The name by which the client calls the key; at random if left out.
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// The length of the key in bytes. Some peers take no more than 64.
    #[arg(long, value_name = "N", default_value_t = 32)]
    bytes: usize,
    /// The file to add it to, made with mode 0600 if there is none.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the key that the identity has in the file.
    #[arg(long, requires = "out")]
    force: bool,
    #[command(flatten)]
    short: Short,
}

/// List the identities in a file.
#[derive(ClapArgs)]
#[command(after_help = "Example:\n  dunlin psk list keys.psk --json")]
struct List {
    /// The file, or - for stdin.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    short: Short,
}

/// Show one key of a file.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin psk show keys.psk sensor-7
  dunlin psk show keys.psk sensor-7 --reveal --json | jq -r .key")]
struct Show {
    /// The file, or - for stdin.
    file: PathBuf,
    /// Whose key.
    identity: String,
    /// Print the key itself, too.
    #[arg(long)]
    reveal: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    short: Short,
}

/// Remove a key from a file.
#[derive(ClapArgs)]
#[command(after_help = "Example:\n  dunlin psk remove keys.psk sensor-7")]
struct Remove {
    /// The file.
    file: PathBuf,
    /// Whose key.
    identity: String,
}

#[derive(ClapArgs)]
struct Short {
    /// Take keys of less than 16 bytes.
    #[arg(long)]
    allow_short: bool,
}

impl Short {
    fn keys(&self) -> ShortKeys {
        if self.allow_short { ShortKeys::Allow } else { ShortKeys::Refuse }
    }
}

/// Runs `dunlin psk`.
pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    match args.command {
        Command::New(args) => new(args, out),
        Command::List(args) => list(&args, out),
        Command::Show(args) => show(&args, out),
        Command::Remove(args) => remove(&args, out),
    }
}

fn new(args: New, out: &mut dyn Write) -> Result<(), Error> {
    let short = args.short.keys();
    let identity = args.identity.as_deref().map(identity).transpose()?;
    let least = if short == ShortKeys::Allow { 1 } else { MIN_KEY_LEN };
    if !(least..=MAX_KEY_LEN).contains(&args.bytes) {
        let why = format!("{}, where {least} to {MAX_KEY_LEN} are possible", count(args.bytes, "byte"));
        let advice = if (1..MIN_KEY_LEN).contains(&args.bytes) {
            "take a longer key, or add --allow-short if the peer can do no better"
        } else {
            "take another length"
        };
        return Err(Error::usage("--bytes", why, advice));
    }
    let key = random(args.bytes)?;
    let Some(path) = args.out else {
        let psk = Psk { identity: identity.map_or_else(random_identity, Ok)?, key };
        writeln!(out, "{}", *psk.to_line())?;
        return Ok(());
    };
    let _lock = files::lock_directory_of(&path)?;
    // What is there already is only carried over, whatever its length.
    let mut file = if path.exists() { read(&path, ShortKeys::Allow)? } else { PskFile::default() };
    let identity = match identity {
        Some(identity) if file.get(&identity).is_some() && !args.force => {
            let why = format!("{identity} has a key already");
            return Err(Error::failed(path.display(), why, "choose another name or add --force"));
        }
        Some(identity) => identity,
        None => unused_identity(&file)?,
    };
    let told = format!("{}: added {identity}, {}", path.display(), count(key.len(), "byte"));
    file.insert(Psk { identity, key });
    write(&path, &file)?;
    writeln!(out, "{told}")?;
    Ok(())
}

fn list(args: &List, out: &mut dyn Write) -> Result<(), Error> {
    let file = read(&args.file, args.short.keys())?;
    if args.json {
        let entries: Vec<_> = file.iter().map(describe).collect();
        writeln!(out, "{}", json!(entries))?;
        return Ok(());
    }
    for psk in file.iter() {
        writeln!(out, "{}  {}", psk.identity, count(psk.key.len(), "byte"))?;
    }
    Ok(())
}

fn show(args: &Show, out: &mut dyn Write) -> Result<(), Error> {
    let file = read(&args.file, args.short.keys())?;
    let identity = identity(&args.identity)?;
    let psk = file.get(&identity).ok_or_else(|| unknown(&args.file, &identity))?;
    if args.json {
        let mut entry = describe(psk);
        if args.reveal {
            entry["key"] = json!(*psk.key_hex());
        }
        writeln!(out, "{entry}")?;
        return Ok(());
    }
    writeln!(out, "identity        {}", psk.identity)?;
    writeln!(out, "identity bytes  {}", psk.identity.as_bytes().len())?;
    writeln!(out, "key bytes       {}", psk.key.len())?;
    if args.reveal {
        writeln!(out, "key             {}", *psk.key_hex())?;
    }
    Ok(())
}

fn remove(args: &Remove, out: &mut dyn Write) -> Result<(), Error> {
    let identity = identity(&args.identity)?;
    let _lock = files::lock_directory_of(&args.file)?;
    let mut file = read(&args.file, ShortKeys::Allow)?;
    if !file.remove(&identity) {
        return Err(unknown(&args.file, &identity));
    }
    write(&args.file, &file)?;
    writeln!(out, "{}: removed {identity}", args.file.display())?;
    Ok(())
}

fn describe(psk: &Psk) -> serde_json::Value {
    json!({
        "identity": psk.identity.to_string(),
        "identity_bytes": psk.identity.as_bytes().len(),
        "key_bytes": psk.key.len(),
    })
}

fn unknown(path: &Path, identity: &Identity) -> Error {
    let advice = format!("see `dunlin psk list {}`", path.display());
    Error::failed(path.display(), format!("no key of {identity}"), advice)
}

fn identity(text: &str) -> Result<Identity, Error> {
    Identity::parse(text.as_bytes()).map_err(|fault| Error::usage("the identity", fault, fault.advice()))
}

fn read(path: &Path, short: ShortKeys) -> Result<PskFile, Error> {
    PskFile::parse(&files::read(path)?, short)
        .map_err(|bad| Error::failed(path.display(), &bad, bad.fault.advice()))
}

fn write(path: &Path, file: &PskFile) -> Result<(), Error> {
    files::write(path, file.to_text().as_bytes(), Access::Secret, Existing::Replace)
}

/// Eight characters at random: few enough for a small ClientHello.
fn random_identity() -> Result<Identity, Error> {
    let text = base16ct::lower::encode_string(&random(4)?);
    identity(&text)
}

fn unused_identity(file: &PskFile) -> Result<Identity, Error> {
    loop {
        let identity = random_identity()?;
        if file.get(&identity).is_none() {
            return Ok(identity);
        }
    }
}

fn random(length: usize) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut bytes = Zeroizing::new(vec![0; length]);
    dunlin_awslc::SystemRandom
        .fill(&mut bytes)
        .map_err(|error| Error::failed("randomness", error, "check the system's random source"))?;
    Ok(bytes)
}
