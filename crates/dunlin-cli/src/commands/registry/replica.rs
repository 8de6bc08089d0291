//! `dunlin registry replica`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args as ClapArgs, Subcommand};
use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_command::stop::{self, Stop};
use dunlin_gateway::config::{LogConfig, LogFormat, LogLevel};
use dunlin_identity::transparency::{Chain, ChainTrust};
use dunlin_registry::replica::{Replica, Sockets};
use dunlin_registry::server::serve;
use dunlin_setup::did::now_s;

use super::admission::Admit;
use super::serve::Listen;
use super::{RegistryDirectory, failed};
use crate::commands::program;

/// Run a replica of a registry that several operators share.
///
/// Each operator runs a CometBFT node (0.38), and a replica beside it. The nodes agree on the order of the
/// operations. Clients trust the validators of the chain: give them its genesis file as --registry-key.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin registry replica init --genesis genesis.json --out replica
  dunlin registry replica run replica --accept 0.0.0.0:8443 --cert server.pem --key server.key
  dunlin registry checkpoint https://one.example:8443 --registry-nodes https://two.example:8443 --registry-key genesis.json")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(Init),
    Run(Run),
}

/// Make an empty replica in a new directory, and print what belongs into the configuration of its CometBFT
/// node.
#[derive(ClapArgs)]
struct Init {
    /// The genesis file that all nodes share: chain_id, the validators, and in app_state the origin of the
    /// registry.
    #[arg(long, value_name = "FILE")]
    genesis: PathBuf,
    /// The directory, which is created.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Work with a CometBFT node, and serve the registry over HTTPS.
///
/// The log goes to stderr. Ctrl-C and SIGTERM stop the replica after the requests in progress. Restart it to
/// use a new certificate.
#[derive(ClapArgs)]
struct Run {
    /// The directory of the replica.
    dir: PathBuf,
    #[command(flatten)]
    listen: Listen,
    #[command(flatten)]
    admit: Admit,
    /// The socket on which CometBFT reaches the replica (proxy_app in its configuration) [default: app.sock
    /// in the directory].
    #[arg(long, value_name = "PATH")]
    application: Option<PathBuf>,
    /// The socket on which the replica reaches CometBFT (laddr in the section rpc) [default: rpc.sock in the
    /// directory].
    #[arg(long, value_name = "PATH")]
    rpc: Option<PathBuf>,
}

/// Runs `dunlin registry replica`.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    match &args.command {
        Command::Init(args) => init(args, out),
        Command::Run(args) => run_replica(args),
    }
}

/// The chain of a genesis file, and the file.
fn chain(path: &Path, place: &RegistryDirectory) -> Result<(Chain, Vec<u8>), Error> {
    let genesis = files::text(path)?;
    let now_s = u64::try_from(now_s()).unwrap_or(0);
    let trust = ChainTrust::from_genesis(&place.provider, genesis.as_bytes(), now_s);
    let advice = "give CometBFT's genesis.json with chain_id, validators, and app_state {\"origin\": \"…\"}";
    let trust = trust.map_err(|error| Error::failed(path.display(), error, advice))?;
    Ok((trust.chain().clone(), genesis.as_bytes().to_vec()))
}

fn sockets(place: &RegistryDirectory) -> Sockets {
    let socket = |name| place.directory.join(name);
    Sockets { application: socket("app.sock"), rpc: socket("rpc.sock") }
}

fn init(args: &Init, out: &mut dyn Write) -> Result<(), Error> {
    let mut place = RegistryDirectory::new(&args.out);
    let (chain, genesis) = chain(&args.genesis, &place)?;
    let database = place.database();
    let copy = place.genesis();
    files::check_new(&[&database, &copy], Existing::Keep)?;
    // A process that reaches its sockets can end the replica's agreement with the chain.
    files::create_private_directory(&args.out)?;
    files::write(&copy, &genesis, Access::Public, Existing::Keep)?;
    Replica::create(&database, &place.provider, &chain).map_err(|error| failed(&database, &error))?;
    place.directory = std::path::absolute(&args.out)?;
    let Sockets { application, rpc } = sockets(&place);
    // Without places for other nodes, CometBFT accepts those alone whose IDs it knows.
    writeln!(
        out,
        "# In CometBFT's config.toml, for the registry {} on the chain {}:\nproxy_app = \"unix://{}\"\n[rpc]\nladdr = \"unix://{}\"\n\
         [p2p]\npex = false\nmax_num_inbound_peers = 0\n\
         unconditional_peer_ids = \"\"  # the IDs of the other operators' nodes: \"ID,ID\"",
        chain.origin(),
        chain.id(),
        application.display(),
        rpc.display()
    )?;
    Ok(())
}

fn run_replica(args: &Run) -> Result<(), Error> {
    stop::raise_file_limit();
    let place = RegistryDirectory::new(&args.dir);
    let acceptor = args.listen.acceptor(&place)?;
    let database = place.database();
    let limits = args.admit.limits()?;
    let (chain, _) = chain(&place.genesis(), &place)?;
    let replica = Replica::open(&database, place.provider.clone(), chain);
    let replica = Arc::new(replica.map_err(|error| failed(&database, &error))?);
    let default = sockets(&place);
    let sockets = Sockets {
        application: args.application.clone().unwrap_or(default.application),
        rpc: args.rpc.clone().unwrap_or(default.rpc),
    };
    let log = program::begin_log(LogConfig { level: LogLevel::Info, format: LogFormat::Text })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let mut stop = Stop::new()?;
        let socket = args.listen.bind().await?;
        let serving = serve(replica.clone(), socket, acceptor, limits, async { stop.wait().await });
        tokio::select! {
            served = serving => served.map_err(Error::from),
            Err(error) = replica.run(&sockets) => {
                Err(Error::failed(sockets.application.display(), error, "give another --application"))
            }
        }
    });
    drop(runtime);
    // The guard writes the rest of the log.
    drop(log);
    served
}
