//! `dunlin registry serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args as ClapArgs;
use dunlin::Side;
use dunlin_command::error::{Error, misuse};
use dunlin_command::stop::{self, Stop};
use dunlin_gateway::config::{LogConfig, LogFormat, LogLevel};
use dunlin_identity::transparency::{NoteKey, RegistryTrust};
use dunlin_registry::server::serve;
use dunlin_registry::witness::{Witness, follow};
use dunlin_registry::{Registry, Settings};
use dunlin_setup::https;
use dunlin_setup::place::{Place as Setting, options};
use dunlin_tokio::TlsAcceptor;
use tokio::net::TcpListener;

use super::admission::Admit;
use super::{RegistryDirectory, failed};
use crate::commands::program;
use crate::commands::server::address;
use crate::tls::identity;

/// How often the registry looks for a checkpoint that witnesses have not seen.
const WITNESS_PERIOD: Duration = Duration::from_secs(1);

/// Serve a registry over HTTPS: its interface for programs, its log for mirrors, and a page for people.
///
/// The log goes to stderr. Ctrl-C and SIGTERM stop the registry after the requests in progress. Restart it to
/// use a new certificate.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin registry serve registry --cert server.pem --key server.key
  dunlin registry serve registry --accept 0.0.0.0:8443 --cert server.pem --key server.key \\
    --witness https://witness.example/prefix
  dunlin registry serve registry --cert server.pem --key server.key --admit dids")]
pub(super) struct Serve {
    /// The directory of the registry.
    dir: PathBuf,
    #[command(flatten)]
    listen: Listen,
    #[command(flatten)]
    admit: Admit,
    /// A witness or a `dunlin registry watch` that cosigns each checkpoint: its submission prefix (C2SP
    /// tlog-witness). Its key is in registry.pub. May be repeated.
    #[arg(long, value_name = "URL")]
    witness: Vec<String>,
    /// The authorities of the witnesses' HTTPS servers [default: those of this machine].
    #[arg(long = "witness-CAfile", value_name = "FILE", requires = "witness")]
    witness_ca_file: Option<PathBuf>,
}

/// Where the HTTPS server of a registry or a replica answers, and how it proves itself.
#[derive(ClapArgs)]
pub(super) struct Listen {
    /// The address to listen on; port 0 chooses a free one.
    #[arg(long, value_name = "[ADDR:]PORT", default_value = "8443", value_parser = address)]
    accept: SocketAddr,
    /// The certificate chain of the HTTPS server in PEM, leaf first.
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// The private key of --cert; by default it is in the same file.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

impl Listen {
    /// The TLS of the HTTPS server.
    pub(super) fn acceptor(&self, place: &RegistryDirectory) -> Result<TlsAcceptor, Error> {
        let loaded = identity::load(&self.cert, self.key.as_ref(), Side::Server, &place.provider)?;
        https::acceptor(&place.provider, loaded.credential).map_err(|error| misuse(&error))
    }

    pub(super) async fn bind(&self) -> Result<TcpListener, Error> {
        let socket = TcpListener::bind(self.accept).await;
        socket.map_err(|error| Error::failed(self.accept, error, "give another --accept"))
    }
}

/// Runs `dunlin registry serve`.
pub(super) fn run(args: &Serve) -> Result<(), Error> {
    stop::raise_file_limit();
    let place = RegistryDirectory::new(&args.dir);
    let trust = place.trust()?;
    let acceptor = args.listen.acceptor(&place)?;
    let settings = settings(&place, &trust)?;
    let witnesses = witnesses(args, &place)?;
    match (settings.witnesses.is_empty() && settings.watches.is_empty(), witnesses.is_empty()) {
        (true, false) => {
            let why = format!("{} has no key of another witness or watch", place.public().display());
            return Err(Error::usage("--witness", why, "add the witness's key there"));
        }
        (false, true) => {
            let why = "it names other witnesses or watches, and none is asked";
            return Err(Error::usage(place.public().display(), why, "give their URLs with --witness"));
        }
        _ => {}
    }
    let database = place.database();
    let limits = args.admit.limits()?;
    let registry = Registry::open(&database, &settings).map_err(|error| failed(&database, &error))?;
    let log = program::begin_log(LogConfig { level: LogLevel::Info, format: LogFormat::Text })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let mut stop = Stop::new()?;
        let socket = args.listen.bind().await?;
        let registry = Arc::new(registry);
        let serving = serve(registry.clone(), socket, acceptor, limits, async { stop.wait().await });
        let following = async {
            if witnesses.is_empty() {
                std::future::pending().await
            } else {
                follow(registry, witnesses, WITNESS_PERIOD).await
            }
        };
        tokio::select! {
            served = serving => served.map_err(Error::from),
            Err(error) = following => Err(failed(&database, &error)),
        }
    });
    drop(runtime);
    // The guard writes the rest of the log.
    drop(log);
    served
}

/// The registry's settings. Verifiers and the registry itself read the same file of keys.
pub(super) fn settings(place: &RegistryDirectory, trust: &RegistryTrust) -> Result<Settings, Error> {
    let settings = Settings::new(place.provider.clone(), trust.origin(), place.signing_key(&place.key())?);
    let next_key = place.next_key();
    let next = next_key.exists().then(|| place.signing_key(&next_key)).transpose()?;
    let next = next.map(|key| Settings { key, ..settings.clone() });
    let public = place.public();
    let refused = |why: String, advice: &str| Error::failed(public.display(), why, advice);
    let advice = "give the directory that `dunlin registry init` has made";
    place.own(trust)?;
    // Otherwise verifiers would refuse everything that this registry signs.
    for (own, path) in [(Some(&settings), place.key()), (next.as_ref(), next_key)] {
        let Some(own) = own else { continue };
        let [log, _] = own.keys().map_err(|error| refused(error.to_string(), advice))?;
        if !trust.logs().any(|known| *known == log) {
            let name = path.file_name().unwrap_or_default().display().to_string();
            return Err(refused(format!("it is not of the key in {name}"), advice));
        }
    }
    if trust.logs().count() > 1 && next.is_none() {
        let why = "it names two keys of the registry, and next.key is missing".to_owned();
        return Err(refused(why, "bring next.key back, or remove the lines of the other key"));
    }
    let is_other = |witness: &&NoteKey| !trust.logs().any(|own| own.public_key() == witness.public_key());
    let witnesses: Vec<_> = trust.witnesses().iter().filter(is_other).cloned().collect();
    // The registry signs as one of the witnesses that verifiers count, if they know it as such.
    let itself = usize::from(trust.witnesses().len() > witnesses.len());
    Ok(Settings {
        witnesses,
        needed: trust.needed().saturating_sub(itself).max(1),
        watches: trust.watches().to_vec(),
        needed_watches: trust.needed_watches(),
        next_key: next.map(|next| next.key),
        ..settings
    })
}

fn witnesses(args: &Serve, place: &RegistryDirectory) -> Result<Vec<Witness>, Error> {
    if args.witness.is_empty() {
        return Ok(Vec::new());
    }
    let ca: Vec<_> = options("witness_ca", &args.witness_ca_file).collect();
    let connector = https::connector_by(&place.provider, &ca, &Setting::option("witness"), "witness_ca")?;
    let witness = |url: &String| {
        Witness::new(url, connector.clone())
            .map_err(|error| Error::usage("--witness", error, "plain HTTP is never used"))
    };
    args.witness.iter().map(witness).collect()
}

#[cfg(test)]
mod tests {
    use dunlin::ServerAddress;
    use dunlin::auth::X509Trust;
    use dunlin_pki::{KeyType, Tree, TreeSpec, certificates_to_pem};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn clients_of_a_registry_resume_their_sessions() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 10).unwrap()).unwrap();
        let cert = directory.path().join("server.pem");
        let place = RegistryDirectory::new(directory.path());
        let chain = certificates_to_pem(&tree.server.chain).unwrap();
        std::fs::write(&cert, [chain, tree.server.key.to_pem().unwrap().to_string()].concat()).unwrap();
        let listen = Listen { accept: "127.0.0.1:0".parse().unwrap(), cert, key: None };
        let acceptor = listen.acceptor(&place).unwrap();
        let trust = X509Trust::anchors([tree.root.certificate().clone()]).unwrap();
        let connector = https::connector(&place.provider, trust).unwrap();
        for is_resumed in [false, true] {
            let (client, server) = duplex(1 << 16);
            let address = ServerAddress::parse("localhost", 443).unwrap();
            let ends = tokio::try_join!(connector.connect(client, address), acceptor.accept(server));
            let (mut client, mut server) = ends.unwrap();
            assert_eq!(client.negotiated().is_resumed(), is_resumed);
            // The tickets are in front of the answer.
            server.write_all(b"answer").await.unwrap();
            client.read_exact(&mut [0; 6]).await.unwrap();
        }
    }
}
