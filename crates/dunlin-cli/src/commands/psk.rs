//! `dunlin psk`: makes and manages pre-shared keys.

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use dunlin::TransportKind;
use dunlin::crypto::{HashAlgorithm, SecureRandom};
use dunlin_command::error::{Error, count, printable};
use dunlin_command::files;
use dunlin_store::psk::time::{format_time, parse_time};
use dunlin_store::psk::toml::context_of;
use dunlin_store::psk::{
    Identity, MAX_KEY_LEN, MIN_KEY_LEN, PskFault, PskRecord, PskRecords, Revoked, ShortKeys, State,
    hash_name, lifecycle, psktool, text_of,
};
use serde_json::{Value, json};
use zeroize::{Zeroize, Zeroizing};

use crate::psk::{self, Refused, now_s};
use crate::tls::lists;

const EXAMPLES: &str = "\
Examples:
  dunlin psk new --identity sensor-7 --out keys.toml
  dunlin psk list keys.toml
  dunlin psk rotate keys.toml sensor-7 --overlap 7d
  dunlin psk revoke keys.toml sensor-7 --reason lost
  dunlin psk convert keys.psk keys.db

The name of a file decides its format. A .toml file has a table for each key. A .db, .sqlite or .sqlite3 file is a
database. Any other file has the format of GnuTLS's psktool: a line identity:key for each key, the key in hexadecimal.
It cannot hold devices, times, revocations and imports, so rotate, revoke and import need another format.
Input from stdin is TOML or such lines.
Write an identity in hexadecimal after #: #73656e736f72 is \"sensor\".";

/// Make and manage pre-shared keys.
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
    Rotate(Rotate),
    Revoke(Revoke),
    Import(Import),
    Convert(Convert),
}

/// Make a key and add it to a file, or print it as a line identity:key.
#[derive(ClapArgs)]
#[command(after_help = "Examples:\n  dunlin psk new --identity sensor-7 --out keys.psk\n  \
    dunlin psk new --identity sensor --count 500 --out keys.toml")]
struct New {
    /// The identity by which the client names the key [default: random].
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// The length of the key in bytes. Some peers support at most 64.
    #[arg(long, value_name = "N", default_value_t = 32)]
    bytes: usize,
    /// Make the key of letters and digits, for peers whose option takes text, such as libcoap's -k. `dunlin
    /// psk show --reveal` shows the text, so it needs --out.
    #[arg(long, requires = "out")]
    text: bool,
    /// Make this many keys: with --identity they are NAME-1, NAME-2 and so on.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_COUNT), conflicts_with = "name")]
    count: Option<u32>,
    /// The file to add the key to; created with mode 0600 if it does not exist.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The device that has the key.
    #[arg(long, value_name = "DEVICE", requires = "out")]
    name: Option<String>,
    /// The hash of the cipher suites that can use the key [default: sha256].
    #[arg(long, requires = "out")]
    hash: Option<HashName>,
    /// When the key becomes valid, e.g. 2027-01-31 or 2027-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "out")]
    not_before: Option<u64>,
    /// When the key expires.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "out")]
    not_after: Option<u64>,
    /// Replace the identity's existing key, unless it is revoked. Device and hash stay unless they are given.
    #[arg(long, requires = "out")]
    force: bool,
    /// Print JSON.
    #[arg(long, requires = "out")]
    json: bool,
    #[command(flatten)]
    short: Short,
}

/// List the keys in a file with their current state.
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

/// Show the properties of one key, or of all keys of a device.
#[derive(ClapArgs)]
#[command(after_help = "Example:\n  dunlin psk show keys.psk sensor-7 --reveal")]
struct Show {
    /// The file, or - for stdin.
    file: PathBuf,
    /// An identity, or a device.
    #[arg(value_name = "IDENTITY|DEVICE")]
    who: String,
    /// Print the secret key, too.
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
    /// The identity of the key. If a device is lost, revoke its keys instead.
    identity: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Give a device a new key. The old key stays valid for a while, so that you can bring the new one to the
/// device.
#[derive(ClapArgs)]
#[command(after_help = "Example:\n  dunlin psk rotate keys.toml sensor-7 --overlap 7d\n\n\
    The new key has the next identity: sensor-7.2, then sensor-7.3. Servers that use the file see it at once.")]
struct Rotate {
    /// The file.
    file: PathBuf,
    /// The device, or one of its identities.
    device: String,
    /// How long the device's older keys stay valid: a number with s, m, h, d or w; 0s ends them at once.
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "7d")]
    overlap: Duration,
    /// Print the new secret key, too.
    #[arg(long)]
    reveal: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Revoke all keys of a device at once. Sessions that were established with them cannot be resumed.
#[derive(ClapArgs)]
#[command(after_help = "Example:\n  dunlin psk revoke keys.toml sensor-7 --reason stolen")]
struct Revoke {
    /// The file.
    file: PathBuf,
    /// The device, or one of its identities.
    device: String,
    /// Revoke only the key with exactly this identity.
    #[arg(long)]
    this_key: bool,
    /// The reason, as text for people.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Mark a key as imported (RFC 9258), and show its identities on the wire.
///
/// An imported key is bound to a context. It works with every hash, in TLS 1.3 and DTLS 1.3, but not in TLS
/// 1.2. Both sides have to import it, with the same identity, key, hash and context.
#[derive(ClapArgs)]
#[command(after_help = "Example:\n  dunlin psk import keys.toml sensor-7 --context plant-3\n\n\
    If the file has no key with this identity, the command reads it from --key-file or makes one.")]
struct Import {
    /// The file.
    file: PathBuf,
    /// The identity of the key.
    identity: String,
    /// The context to which both sides bind the key, such as their names; hexadecimal after #.
    #[arg(long, value_name = "TEXT", default_value = "")]
    context: String,
    /// A file with the key in hexadecimal, or - for stdin.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The hash of the key [default: sha256, or that of the key in the file].
    #[arg(long)]
    hash: Option<HashName>,
    /// Bind an imported key to another context or hash. Do the same on the other side.
    #[arg(long)]
    force: bool,
    /// Print the secret key, too.
    #[arg(long)]
    reveal: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Copy all keys of a file into another one, which may have another format.
#[derive(ClapArgs)]
#[command(after_help = "Example:\n  dunlin psk convert keys.psk keys.toml")]
struct Convert {
    /// The file with the keys, or - for stdin.
    from: PathBuf,
    /// The file to add them to; created with mode 0600 if it does not exist.
    to: PathBuf,
    /// Replace existing keys with the same identities.
    #[arg(long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    short: Short,
}

#[derive(ClapArgs)]
struct Short {
    /// Accept keys of less than 16 bytes.
    #[arg(long)]
    allow_short: bool,
}

impl Short {
    fn keys(&self) -> ShortKeys {
        if self.allow_short { ShortKeys::Allow } else { ShortKeys::Refuse }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum HashName {
    Sha256,
    Sha384,
}

impl From<HashName> for HashAlgorithm {
    fn from(name: HashName) -> Self {
        match name {
            HashName::Sha256 => Self::Sha256,
            HashName::Sha384 => Self::Sha384,
        }
    }
}

/// The shortest key of letters and digits. It has the entropy of a random one of [`MIN_KEY_LEN`].
const MIN_TEXT_LEN: usize = 22;

/// The most keys that one command makes.
const MAX_COUNT: i64 = 100_000;

/// The longest overlap: ten years.
const MAX_OVERLAP: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

fn time(text: &str) -> Result<u64, String> {
    parse_time(text).ok_or_else(|| "not a time; write it as 2027-01-31 or 2027-01-31T12:00:00Z".to_owned())
}

fn span(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        "w" => 7 * 24 * 60 * 60,
        _ => return Err("write a number with s, m, h, d or w, as in 7d".to_owned()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    let span = seconds.map(Duration::from_secs).filter(|span| *span <= MAX_OVERLAP);
    span.ok_or_else(|| "not a number, or more than ten years; write e.g. 7d".to_owned())
}

/// Runs `dunlin psk`.
pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    match args.command {
        Command::New(args) => new(args, out),
        Command::List(args) => list(&args, out),
        Command::Show(args) => show(&args, out),
        Command::Remove(args) => remove(&args, out),
        Command::Rotate(args) => rotate(&args, out),
        Command::Revoke(args) => revoke(args, out),
        Command::Import(args) => import(&args, out),
        Command::Convert(args) => convert(&args, out),
    }
}

fn new(args: New, out: &mut dyn Write) -> Result<(), Error> {
    let identity = args.identity.as_deref().map(identity).transpose()?;
    let least = match args.short.allow_short {
        true => 1,
        false if args.text => MIN_TEXT_LEN,
        false => MIN_KEY_LEN,
    };
    if !(least..=MAX_KEY_LEN).contains(&args.bytes) {
        let why = format!("{} instead of {least} to {MAX_KEY_LEN}", count(args.bytes, "byte"));
        let advice = if (1..least).contains(&args.bytes) {
            "use a longer key, or add --allow-short if the peer supports no longer one"
        } else {
            "give another length"
        };
        return Err(Error::usage("--bytes", why, advice));
    }
    let wanted: Vec<_> = match (identity, args.count) {
        (Some(prefix), Some(number)) => {
            let of = |i| self::identity(&format!("{prefix}-{i}"));
            (1..=number).map(|i| of(i).map(Some)).collect::<Result<_, _>>()?
        }
        (identity, number) => vec![identity; number.unwrap_or(1) as usize],
    };
    let Some(path) = args.out else {
        let mut used = HashSet::new();
        for identity in wanted {
            let identity = match identity {
                Some(identity) => identity,
                None => loop {
                    let identity = random_identity()?;
                    // Four random bytes: of many, some are equal.
                    if used.insert(identity.as_bytes().to_vec()) {
                        break identity;
                    }
                },
            };
            let record = PskRecord::new(identity, random(args.bytes)?);
            let line = psktool::line(&record);
            let line = line.map_err(|fault| Error::failed("the key", &fault, fault.advice()))?;
            writeln!(out, "{}", *line)?;
        }
        return Ok(());
    };
    let name = args.name;
    let hash = args.hash.map(HashAlgorithm::from);
    let force = args.force;
    let added = psk::change(&path, true, |records| {
        let mut added = vec![];
        for identity in wanted {
            let identity = match identity {
                Some(identity) => identity,
                None => unused_identity(records)?,
            };
            let key = if args.text { random_text(args.bytes)? } else { random(args.bytes)? };
            let old = records.get(&identity)?;
            let mut record = PskRecord {
                not_before_s: args.not_before,
                not_after_s: args.not_after,
                allow_short: args.bytes < MIN_KEY_LEN,
                ..PskRecord::new(identity, key)
            };
            // The identity stays with its device; only the key changes.
            if let Some(old) = old {
                (record.name, record.hash, record.import) = (old.name, old.hash, old.import);
            }
            record.name = name.clone().or(record.name);
            record.hash = hash.unwrap_or(record.hash);
            lifecycle::add(records, record.clone(), force)?;
            added.push(record);
        }
        Ok(added)
    })?;
    match (&added[..], args.count) {
        (added, Some(_)) if args.json => {
            writeln!(out, "{}", json!(added.iter().map(describe).collect::<Vec<_>>()))?;
        }
        ([record], _) if args.json => writeln!(out, "{}", describe(record))?,
        ([record], _) => {
            let length = count(record.key.len(), "byte");
            writeln!(out, "{}: added {}, {length}", path.display(), record.identity)?;
        }
        (added, _) => {
            let number = count(added.len() as u64, "key");
            let length = count(args.bytes, "byte");
            writeln!(out, "{}: added {number} of {length}:", path.display())?;
            for record in added {
                writeln!(out, "{}", record.identity)?;
            }
        }
    }
    Ok(())
}

fn list(args: &List, out: &mut dyn Write) -> Result<(), Error> {
    let set = psk::read(&args.file, args.short.keys())?;
    if args.json {
        let entries: Vec<_> = set.iter().map(describe).collect();
        writeln!(out, "{}", json!(entries))?;
        return Ok(());
    }
    for record in set.iter() {
        let mut words = vec![record.identity.to_string(), count(record.key.len(), "byte"), state(record)];
        words.extend(record.name.as_ref().map(|name| format!("of {}", printable(name))));
        words.extend(record.import.as_ref().map(|_| "imported".to_owned()));
        writeln!(out, "{}", words.join("  "))?;
    }
    if let Some(hint) = set.hint() {
        let length = count(hint.len() as u64, "byte");
        writeln!(out, "hint for TLS 1.2 clients, {length}: {}", text_of(hint))?;
    }
    Ok(())
}

fn show(args: &Show, out: &mut dyn Write) -> Result<(), Error> {
    let set = psk::read(&args.file, args.short.keys())?;
    // An identity has one key; a device may have several.
    let exact = Identity::parse(args.who.as_bytes()).ok().and_then(|id| set.record(id.as_bytes()).cloned());
    let records = match exact {
        Some(record) => vec![record],
        None => lifecycle::keys_of(&set, &args.who).map_err(|e| psk::unusable(&args.file, &e))?,
    };
    for (index, record) in records.iter().enumerate() {
        if args.json {
            let mut entry = Secret(describe(record));
            if args.reveal {
                entry.0["key"] = json!(*record.key_hex());
                if let Some(text) = key_text(record) {
                    entry.0["key_text"] = json!(*text);
                }
            }
            writeln!(out, "{}", entry.0)?;
        } else {
            if index > 0 {
                writeln!(out)?;
            }
            write_record(record, args.reveal, out)?;
        }
    }
    Ok(())
}

fn write_record(record: &PskRecord, reveal: bool, out: &mut dyn Write) -> Result<(), Error> {
    writeln!(out, "identity        {}", record.identity)?;
    writeln!(out, "identity bytes  {}", record.identity.as_bytes().len())?;
    writeln!(out, "key bytes       {}", record.key.len())?;
    writeln!(out, "hash            {}", hash_name(record.hash))?;
    if let Some(name) = &record.name {
        writeln!(out, "device          {}", printable(name))?;
    }
    writeln!(out, "state           {}", state(record))?;
    if reveal {
        writeln!(out, "key             {}", *record.key_hex())?;
        if let Some(text) = key_text(record) {
            writeln!(out, "key as text     {}", *text)?;
        }
    }
    write_imported(record, out)
}

fn remove(args: &Remove, out: &mut dyn Write) -> Result<(), Error> {
    let identity = identity(&args.identity)?;
    psk::change(&args.file, false, |records| {
        if records.remove(&identity)? { Ok(()) } else { Err(unknown(&args.file, &identity).into()) }
    })?;
    if args.json {
        writeln!(out, "{}", json!({ "removed": identity.to_string() }))?;
    } else {
        writeln!(out, "{}: removed {identity}", args.file.display())?;
    }
    Ok(())
}

fn rotate(args: &Rotate, out: &mut dyn Write) -> Result<(), Error> {
    let rotated = psk::change(&args.file, false, |records| {
        let key = |len| random(len).map_err(Refused::from);
        lifecycle::rotate(records, &args.device, now_s(), args.overlap.as_secs(), key)
    })?;
    if args.json {
        let old = rotated.old.iter().map(
            |(identity, until_s)| json!({ "identity": identity.to_string(), "until": shown_time(*until_s) }),
        );
        let mut entry = Secret(json!({ "old": old.collect::<Vec<_>>(), "new": describe(&rotated.new) }));
        if args.reveal {
            entry.0["new"]["key"] = json!(*rotated.new.key_hex());
        }
        writeln!(out, "{}", entry.0)?;
        return Ok(());
    }
    let new = &rotated.new.identity;
    let old = rotated.old.iter().map(|(identity, until_s)| {
        if args.overlap.is_zero() {
            format!("{identity} has expired")
        } else {
            format!("{identity} is valid until {}", shown_time(*until_s))
        }
    });
    let old = old.collect::<Vec<_>>().join(", ");
    writeln!(out, "{}: added {new}; {old}", args.file.display())?;
    if args.reveal {
        writeln!(out, "key             {}", *rotated.new.key_hex())?;
    }
    Ok(())
}

fn revoke(args: Revoke, out: &mut dyn Write) -> Result<(), Error> {
    let revoked = Revoked { at_s: now_s(), reason: args.reason };
    // Repeating a revocation succeeds; the first time and reason stay.
    let done = psk::change(&args.file, false, |records| {
        match lifecycle::revoke(records, &args.device, args.this_key, &revoked) {
            Err(error) if matches!(error.fault, PskFault::AlreadyRevoked(_)) => Ok(vec![]),
            done => Ok(done?),
        }
    })?;
    let file = args.file.display();
    let done = done.iter().map(Identity::to_string).collect::<Vec<_>>();
    match (args.json, done.is_empty()) {
        (true, true) => writeln!(out, "{}", json!({ "revoked": [], "at": null }))?,
        (true, false) => writeln!(out, "{}", json!({ "revoked": done, "at": shown_time(revoked.at_s) }))?,
        (false, true) => writeln!(out, "{file}: {} is revoked already", printable(&args.device))?,
        (false, false) => writeln!(out, "{file}: revoked {}", done.join(", "))?,
    }
    Ok(())
}

fn import(args: &Import, out: &mut dyn Write) -> Result<(), Error> {
    let identity = identity(&args.identity)?;
    let context = context_of(&args.context).ok_or_else(|| {
        Error::usage("--context", "the text after # is not hexadecimal", "write an even number of digits")
    })?;
    let key = args.key_file.as_deref().map(key_in).transpose()?;
    let record = psk::change(&args.file, true, |records| {
        let mut record = match (records.get(&identity)?, key) {
            (Some(_), Some(_)) => {
                let why = PskFault::Exists(identity.to_string());
                let advice =
                    "leave out --key-file to import the existing key, or remove it with `dunlin psk remove`";
                return Err(Error::failed(args.file.display(), why, advice).into());
            }
            (Some(record), None) => record,
            (None, Some(key)) => PskRecord::new(identity, key),
            (None, None) => PskRecord::new(identity, random(HashAlgorithm::Sha256.output_len())?),
        };
        let hash = args.hash.map_or(record.hash, HashAlgorithm::from);
        let is_another = |before: &Vec<u8>| *before != context || record.hash != hash;
        if let Some(before) = record.import.as_ref().filter(|before| is_another(before) && !args.force) {
            let was = hash_name(record.hash);
            let before = text_of(before);
            let why = format!("{} is imported already, with {was} for context {before:?}", record.identity);
            let advice = "add --force to replace hash and context, and do the same on the other side";
            return Err(Error::failed(args.file.display(), why, advice).into());
        }
        (record.hash, record.import) = (hash, Some(context));
        records.put(record.clone())?;
        Ok(record)
    })?;
    if args.json {
        let mut entry = Secret(describe(&record));
        if args.reveal {
            entry.0["key"] = json!(*record.key_hex());
        }
        writeln!(out, "{}", entry.0)?;
        return Ok(());
    }
    writeln!(out, "{}: imported {}; the other side needs", args.file.display(), record.identity)?;
    writeln!(out, "identity        {}", record.identity)?;
    writeln!(out, "hash            {}", hash_name(record.hash))?;
    if args.reveal {
        writeln!(out, "key             {}", *record.key_hex())?;
    } else {
        writeln!(out, "key             {} (--reveal)", count(record.key.len(), "byte"))?;
    }
    write_imported(&record, out)
}

fn convert(args: &Convert, out: &mut dyn Write) -> Result<(), Error> {
    let set = psk::read(&args.from, args.short.keys())?;
    let copied = psk::change(&args.to, true, |records| {
        if let Some(hint) = set.hint() {
            records.set_identity_hint(Some(hint.to_vec()))?;
        }
        for record in set.iter() {
            lifecycle::add(records, record.clone(), args.force)?;
        }
        Ok(set.iter().count())
    })?;
    if args.json {
        writeln!(out, "{}", json!({ "copied": copied }))?;
    } else {
        writeln!(out, "{}: added {}", args.to.display(), count(copied as u64, "key"))?;
    }
    Ok(())
}

/// The current state of a key, in words.
fn state(record: &PskRecord) -> String {
    let at = |word: &str, time: Option<u64>| match time {
        Some(time) => format!("{word} {}", shown_time(time)),
        None => word.to_owned(),
    };
    match record.state(now_s()) {
        State::Valid if record.not_after_s.is_some() => at("until", record.not_after_s),
        State::Valid => "valid".to_owned(),
        State::Early => at("from", record.not_before_s),
        State::Expired => at("expired", record.not_after_s),
        State::Revoked => {
            let reason = record.revoked.as_ref().and_then(|r| r.reason.as_deref());
            let reason = reason.map(|reason| format!(" ({})", printable(reason))).unwrap_or_default();
            at("revoked", record.revoked.as_ref().map(|r| r.at_s)) + &reason
        }
    }
}

fn shown_time(unix_s: u64) -> String {
    format_time(unix_s).unwrap_or_else(|| "after the year 9999".to_owned())
}

fn describe(record: &PskRecord) -> Value {
    let state = match record.state(now_s()) {
        State::Valid => "valid",
        State::Early => "early",
        State::Expired => "expired",
        State::Revoked => "revoked",
    };
    let revoked = record.revoked.as_ref();
    json!({
        "identity": record.identity.to_string(),
        "identity_bytes": record.identity.as_bytes().len(),
        "key_bytes": record.key.len(),
        "hash": hash_name(record.hash),
        "name": record.name,
        "state": state,
        "not_before": record.not_before_s.map(shown_time),
        "not_after": record.not_after_s.map(shown_time),
        "revoked": revoked.map(|r| json!({ "at": shown_time(r.at_s), "reason": r.reason })),
        "allow_short": record.allow_short,
        "import_context": record.import.as_deref().map(text_of),
        "imported_identities": imported(record).into_iter().map(|(protocol, hash, identity)| {
            json!({ "protocol": protocol, "hash": hash_name(hash), "identity": identity })
        }).collect::<Vec<_>>(),
    })
}

/// An entry that may hold a key. Its texts are wiped at the end.
struct Secret(Value);

impl Drop for Secret {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(values) => values.iter_mut().for_each(wipe),
        Value::Object(members) => members.values_mut().for_each(wipe),
        _ => {}
    }
}

/// The identities that an imported key has on the wire (RFC 9258 §4.1), in hexadecimal.
fn imported(record: &PskRecord) -> Vec<(&'static str, HashAlgorithm, String)> {
    if record.import.is_none() {
        return vec![];
    }
    let provider = lists::provider();
    let of = |(protocol, transport)| {
        let psks = record.psks(&provider, transport).unwrap_or_default().into_iter();
        psks.map(move |psk| (protocol, psk.hash(), base16ct::lower::encode_string(psk.identity())))
    };
    [("TLS 1.3", TransportKind::Stream), ("DTLS 1.3", TransportKind::Datagram)]
        .into_iter()
        .flat_map(of)
        .collect()
}

fn write_imported(record: &PskRecord, out: &mut dyn Write) -> Result<(), Error> {
    if let Some(context) = &record.import {
        writeln!(out, "context         {}", text_of(context))?;
    }
    for (protocol, hash, identity) in imported(record) {
        let what = format!("{protocol} {}", hash_name(hash));
        writeln!(out, "{what:<15} {identity}")?;
    }
    Ok(())
}

fn unknown(path: &Path, identity: &Identity) -> Error {
    let advice = format!("see `dunlin psk list {}`", path.display());
    Error::failed(path.display(), format!("no key of {identity}"), advice)
}

fn identity(text: &str) -> Result<Identity, Error> {
    psk::identity(text, "the identity")
}

/// Reads a key in hexadecimal from a file that holds nothing else.
fn key_in(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let text = files::text(path)?;
    base16ct::mixed::decode_vec(text.trim()).map(Zeroizing::new).map_err(|_| {
        Error::failed(path.display(), "it does not hold a key in hexadecimal", PskFault::HexKey.advice())
    })
}

/// Eight random characters, few enough for a small ClientHello.
fn random_identity() -> Result<Identity, Error> {
    let text = base16ct::lower::encode_string(&random(4)?);
    identity(&text)
}

fn unused_identity(records: &dyn PskRecords) -> Result<Identity, Refused> {
    loop {
        let identity = random_identity()?;
        if records.get(&identity)?.is_none() {
            return Ok(identity);
        }
    }
}

/// A random key of letters and digits.
fn random_text(length: usize) -> Result<Zeroizing<Vec<u8>>, Error> {
    const CHARACTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut text = Zeroizing::new(Vec::with_capacity(length));
    while text.len() < length {
        // Of 64 values, two are drawn again, so that all characters are equally probable.
        let drawn = random(length - text.len())?;
        text.extend(drawn.iter().filter_map(|byte| CHARACTERS.get(usize::from(byte & 63))));
    }
    Ok(text)
}

/// A key that consists of printable ASCII, as text: a peer may take it so.
fn key_text(record: &PskRecord) -> Option<Zeroizing<String>> {
    let is_text = record.key.iter().all(u8::is_ascii_graphic);
    let text = std::str::from_utf8(&record.key).ok().filter(|_| is_text)?;
    Some(Zeroizing::new(text.to_owned()))
}

fn random(length: usize) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut bytes = Zeroizing::new(vec![0; length]);
    dunlin_awslc::SystemRandom
        .fill(&mut bytes)
        .map_err(|error| Error::failed("randomness", error, "check the system's random source"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wipes_every_text_of_an_entry() {
        let mut entry = json!({ "new": { "key": "00ff", "bytes": 2 }, "old": [{ "key": "ff00" }] });
        wipe(&mut entry);
        assert_eq!(entry, json!({ "new": { "key": "", "bytes": 2 }, "old": [{ "key": "" }] }));
    }

    #[test]
    fn reads_overlaps_and_rejects_malformed_or_too_long_ones() {
        for (text, seconds) in [("0s", 0), ("90m", 5400), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600)]
        {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "7", "d", "-1d", "1.5d", "7 d", "7y", "3651d", "99999999999999999999s"] {
            assert!(span(text).is_err(), "{text}");
        }
    }
}
