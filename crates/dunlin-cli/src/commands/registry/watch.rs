//! `dunlin registry watch`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use clap::{Args as ClapArgs, Subcommand};
use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_command::stop::{self, Stop};
use dunlin_gateway::config::{LogConfig, LogFormat, LogLevel};
use dunlin_identity::transparency::{NoteKeyKind, NoteSigner};
use dunlin_pki::{KeyPair, KeyType};
use dunlin_registry::server::{Limits, serve_watch};
use dunlin_registry::watch::{FOLLOW_TIME, Source, Watch, WatchSettings};
use dunlin_setup::https::connector_by;
use dunlin_setup::place::{Place as Setting, options};

use super::serve::Listen;
use super::{RegistryDirectory, failed};
use crate::commands::program;
use crate::did::key_of;
use crate::registry::trust;

/// Watch a registry: replay its log, and cosign only what follows from the operations.
///
/// A watch is a witness that checks more than that the log grows: every operation, and every root of the
/// state map. Its log names the first entry that does not follow, and the DID, or another history that the
/// registry has signed. The signed checkpoints stay in the directory of the watch as evidence. Put the line
/// that `init` prints into registry.pub: verifiers then accept no state of a DID that a watch has not
/// derived. Run it on another machine than the registry.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin registry watch init --name watch.example/1 --registry-key registry.pub --out watch
  dunlin registry watch run watch --registry https://registry.example:8443 --registry-key registry.pub \\
    --accept 0.0.0.0:8444 --cert server.pem --key server.key
  dunlin registry serve registry --cert server.pem --key server.key --witness https://watch.example:8444")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(Init),
    Run(Run),
}

/// Make a watch with a new key in a new directory, and print its line for registry.pub.
#[derive(ClapArgs)]
struct Init {
    /// The name of the watch, which verifiers see: a URL without the scheme.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The keys of the registry (registry.pub).
    #[arg(long, value_name = "FILE")]
    registry_key: PathBuf,
    /// The directory, which is created.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Follow a registry, and answer its requests for signatures over HTTPS.
///
/// The log goes to stderr. The directory keeps the verified checkpoints. Ctrl-C and SIGTERM stop the watch.
/// Restart it to use a new certificate, or after the registry has got another key.
#[derive(ClapArgs)]
struct Run {
    /// The directory of the watch.
    dir: PathBuf,
    /// The registry.
    #[arg(long, value_name = "URL")]
    registry: String,
    /// The keys of the registry (registry.pub), with the line of this watch.
    #[arg(long, value_name = "FILE")]
    registry_key: PathBuf,
    /// The authorities of the registry's HTTPS server [default: those of this machine].
    #[arg(long = "registry-ca", alias = "https-CAfile", value_name = "FILE")]
    https_ca_file: Option<PathBuf>,
    #[command(flatten)]
    listen: Listen,
}

/// Runs `dunlin registry watch`.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    match &args.command {
        Command::Init(args) => init(args, out),
        Command::Run(args) => run_watch(args),
    }
}

fn init(args: &Init, out: &mut dyn Write) -> Result<(), Error> {
    let place = RegistryDirectory::new(&args.out);
    let database = place.database();
    let key = place.watch_key();
    let public = place.watch_public();
    files::check_new(&[&database, &key, &public], Existing::Keep)?;
    let trust = trust(&args.registry_key, &place.provider)?;
    if trust.log().is_none() {
        let why = "the validators of a replicated registry replay its log themselves";
        return Err(Error::usage(
            "--registry-key",
            why,
            "give the registry.pub of a registry with one operator",
        ));
    }
    let pair = KeyPair::generate(KeyType::Ed25519)?;
    let signer = key_of(&pair, &key, &place.provider)?;
    let signer = NoteSigner::new(&place.provider, &args.name, NoteKeyKind::Cosignature, signer);
    let signer = signer.map_err(|error| Error::usage("--name", error, "write it as in watch.example/1"))?;
    files::create_directory(&args.out)?;
    files::write(&key, pair.to_pem()?.as_bytes(), Access::Secret, Existing::Keep)?;
    let line = format!("watch {}\n", signer.key());
    files::write(&public, line.as_bytes(), Access::Public, Existing::Keep)?;
    Watch::create(&database, &place.provider, trust.origin()).map_err(|error| failed(&database, &error))?;
    write!(out, "{line}")?;
    Ok(())
}

fn run_watch(args: &Run) -> Result<(), Error> {
    stop::raise_file_limit();
    let place = RegistryDirectory::new(&args.dir);
    let acceptor = args.listen.acceptor(&place)?;
    let database = place.database();
    let trust = trust(&args.registry_key, &place.provider)?;
    let key = place.signing_key(&place.watch_key())?;
    let public = dunlin_identity::key::PublicKey::from_spki(key.public_key());
    let public =
        public.map_err(|error| Error::failed(place.watch_key().display(), error, "make another watch"))?;
    let Some(own) = trust.watches().iter().find(|watch| *watch.public_key() == public) else {
        let why = "it does not have the key of this watch, so no verifier would count its signatures";
        let advice = format!("add the line in {}", place.watch_public().display());
        return Err(Error::failed(args.registry_key.display(), why, advice));
    };
    let clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let settings = WatchSettings {
        provider: place.provider.clone(),
        logs: trust.logs().cloned().collect(),
        name: own.name().to_owned(),
        key,
        clock: Arc::new(clock),
        period: FOLLOW_TIME,
    };
    let ca: Vec<_> = options("registry.ca", &args.https_ca_file).collect();
    let connector = connector_by(&place.provider, &ca, &Setting::option("registry"), "registry.ca")?;
    let source = Source::new(&args.registry, connector);
    let source = source.map_err(|error| Error::usage("--registry", error, "plain HTTP is never used"))?;
    let watch = Watch::open(&database, &settings, source).map_err(|error| failed(&database, &error))?;
    let watch = Arc::new(watch);
    let log = program::begin_log(LogConfig { level: LogLevel::Info, format: LogFormat::Text })?;
    // The registry asks about every checkpoint, and again while a long log is being verified.
    let limits = Limits { writes_per_minute: 600, write_burst: 600, ..Limits::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let mut stop = Stop::new()?;
        let socket = args.listen.bind().await?;
        let serving = serve_watch(watch.clone(), socket, acceptor, limits, async { stop.wait().await });
        tokio::select! {
            served = serving => served.map_err(Error::from),
            never = watch.run() => match never {},
        }
    });
    drop(runtime);
    // The guard writes the rest of the log.
    drop(log);
    served
}
