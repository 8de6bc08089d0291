//! Four operators on loopback: a CometBFT node and a replica each.

use std::collections::BTreeMap;
use std::fs::{create_dir, read, remove_file, write};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use dunlin::auth::X509Trust;
use dunlin::{ClientConfig, Profile, ServerAddress, ServerConfig, Side, Trust};
use dunlin_identity::Did;
use dunlin_identity::handshake::RegistryDocuments;
use dunlin_identity::transparency::{Chain, ChainTrust, RegistryTrust, SignedCheckpoint};
use dunlin_pki::{KeyType, LoadedCredential, Tree, TreeSpec, certificates_to_pem};
use dunlin_registry::client::RegistryClient;
use dunlin_registry::replica::{Replica, Sockets};
use dunlin_registry::server::{Limits, serve};
use dunlin_tokio::https::HttpsClient;
use dunlin_tokio::{TlsAcceptor, TlsConnector};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::common::{ORIGIN, provider};

/// The directory of a node, for a process that is its replica.
pub(crate) const CHILD: &str = "DUNLIN_REPLICA";

pub(crate) const CHAIN: &str = "dunlin-test";

pub(crate) fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// The path of CometBFT, which is built once.
fn cometbft() -> &'static str {
    static PROGRAM: OnceLock<&str> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let program = concat!(env!("CARGO_TARGET_TMPDIR"), "/cometbft");
        let mut build = Command::new(root.join("tools/go"));
        build.arg("build").arg("-C").arg(root.join("tests/peers/cometbft"));
        let built =
            build.args(["-o", program, "github.com/cometbft/cometbft/cmd/cometbft"]).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program
    })
}

fn sockets(home: &Path) -> Sockets {
    Sockets { application: home.join("app.sock"), rpc: home.join("rpc.sock") }
}

/// Runs the replica of a node. It says its port, and ends when the test does.
pub(crate) async fn child(home: &Path) {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let provider = Arc::new(dunlin_awslc::provider());
    let chain = Chain::new(&provider, ORIGIN, CHAIN).unwrap();
    let replica = Arc::new(Replica::open(&home.join("registry"), Arc::clone(&provider), chain).unwrap());
    let [chain, key] = ["server.pem", "server.key"].map(|name| home.join(name));
    let loaded =
        LoadedCredential::load(&chain, Some(&key), Side::Server, SystemTime::now(), &provider).unwrap();
    let profile = Profile::builder(provider).credentials(vec![loaded.credential]).build().unwrap();
    let acceptor = TlsAcceptor::new(Arc::new(ServerConfig::new(profile).unwrap()));
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", socket.local_addr().unwrap().port());
    let limits = Limits { writes_per_minute: 6000, write_burst: 6000, ..Limits::default() };
    let serving = serve(Arc::clone(&replica), socket, acceptor, limits, std::future::pending());
    let sockets = sockets(home);
    tokio::select! {
        ended = serving => panic!("{ended:?}"),
        ended = replica.run(&sockets) => panic!("{ended:?}"),
    }
}

/// An operator's two processes.
struct Node {
    home: PathBuf,
    url: String,
    processes: BTreeMap<&'static str, Child>,
}

impl Node {
    /// Ends a process by SIGKILL.
    fn kill(&mut self, name: &str) {
        if let Some(mut process) = self.processes.remove(name) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    fn start(&mut self) {
        let mut replica = Command::new(std::env::current_exe().unwrap());
        let replica = replica.env(CHILD, &self.home).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut replica = replica.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(replica.stdout.take().unwrap()).read_line(&mut port).unwrap();
        self.url = format!("https://localhost:{}", port.trim_end());
        self.processes.insert("replica", replica);
        // One that a killed node has left.
        let _ = remove_file(sockets(&self.home).rpc);
        let log = std::fs::File::create(self.home.join("log")).unwrap();
        let mut comet = Command::new(cometbft());
        let comet = comet.args(["start", "--home"]).arg(&self.home).stdin(Stdio::null());
        let comet = comet.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.processes.insert("comet", comet);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        ["comet", "replica"].into_iter().for_each(|name| self.kill(name));
        if std::thread::panicking() {
            let log = read(self.home.join("log")).unwrap_or_default();
            eprintln!("{}:\n{}", self.home.display(), String::from_utf8_lossy(&log));
        }
    }
}

pub(crate) struct Net {
    nodes: Vec<Node>,
    genesis: Vec<u8>,
    pub(crate) tree: Tree,
    /// Last, so that it is there as long as the processes.
    _directory: TempDir,
}

/// The output of CometBFT for a directory.
fn run(home: &Path, command: &str) -> String {
    let output = Command::new(cometbft()).args([command, "--home"]).arg(home).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&read(path).unwrap()).unwrap()
}

impl Net {
    pub(crate) fn start(count: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 1).unwrap()).unwrap();
        let homes: Vec<_> = (0..count).map(|number| directory.path().join(number.to_string())).collect();
        // Free ports, all at once so that they differ.
        let sockets: Vec<_> = homes.iter().map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
        drop(sockets);
        let mut peers = Vec::new();
        let mut validators = Vec::new();
        for (home, port) in homes.iter().zip(&ports) {
            create_dir(home).unwrap();
            run(home, "init");
            peers.push(format!("{}@127.0.0.1:{port}", run(home, "show-node-id")));
            let key = json_of(&home.join("config/priv_validator_key.json"));
            let address = &key["address"];
            let key = &key["pub_key"];
            validators.push(json!({"address": address, "pub_key": key, "power": "10", "name": ""}));
        }
        let mut genesis = json_of(&homes[0].join("config/genesis.json"));
        genesis["chain_id"] = CHAIN.into();
        genesis["validators"] = validators.into();
        genesis["app_state"] = json!({"origin": ORIGIN});
        let genesis = genesis.to_string().into_bytes();
        let chain = Chain::new(&provider(), ORIGIN, CHAIN).unwrap();
        let node = |(home, port): (PathBuf, u16)| {
            write(home.join("config/genesis.json"), &genesis).unwrap();
            write(home.join("config/config.toml"), config(&home, port, &peers)).unwrap();
            write(home.join("server.pem"), certificates_to_pem(&tree.server.chain).unwrap()).unwrap();
            write(home.join("server.key"), tree.server.key.to_pem().unwrap().as_bytes()).unwrap();
            Replica::create(&home.join("registry"), &provider(), &chain).unwrap();
            let mut node = Node { home, url: String::new(), processes: BTreeMap::new() };
            node.start();
            node
        };
        let nodes = homes.into_iter().zip(ports).map(node).collect();
        Self { nodes, genesis, tree, _directory: directory }
    }

    pub(crate) fn kill(&mut self, number: usize) {
        ["comet", "replica"].into_iter().for_each(|name| self.nodes[number].kill(name));
    }

    /// Kills the replica alone. CometBFT does not go on without it.
    pub(crate) fn kill_replica(&mut self, number: usize) {
        self.nodes[number].kill("replica");
        let mut comet = self.nodes[number].processes.remove("comet").unwrap();
        comet.wait().unwrap();
    }

    pub(crate) fn restart(&mut self, number: usize) {
        self.nodes[number].start();
    }

    pub(crate) fn url(&self, number: usize) -> &str {
        &self.nodes[number].url
    }

    pub(crate) fn trust(&self) -> ChainTrust {
        ChainTrust::from_genesis(&provider(), &self.genesis, now_s()).unwrap()
    }

    pub(crate) fn connector(&self) -> TlsConnector {
        let trust = X509Trust::anchors(self.tree.root.chain().to_vec()).unwrap();
        let profile = Profile::builder(Arc::new(dunlin_awslc::provider()));
        let profile = profile.trust(Trust { x509: Some(trust), raw_key: None }).build().unwrap();
        TlsConnector::new(Arc::new(ClientConfig::new(profile)))
    }

    pub(crate) fn client_of(&self, urls: impl IntoIterator<Item = impl AsRef<str>>) -> RegistryClient {
        let trust = RegistryTrust::replicated(self.trust());
        let documents = Arc::new(RegistryDocuments::new(provider(), trust));
        let mut urls = urls.into_iter();
        let https = HttpsClient::new(self.connector());
        let first = RegistryClient::new(provider(), urls.next().unwrap().as_ref(), https, documents).unwrap();
        urls.fold(first, |client, url| client.with_node(url.as_ref()).unwrap())
    }

    /// A client of the nodes with these numbers.
    pub(crate) fn client(&self, numbers: impl IntoIterator<Item = usize>) -> RegistryClient {
        self.client_of(numbers.into_iter().map(|number| self.url(number)))
    }

    /// The seed of a node's validator key.
    pub(crate) fn seed(&self, number: usize) -> Vec<u8> {
        use base64ct::{Base64, Encoding};
        let key = json_of(&self.nodes[number].home.join("config/priv_validator_key.json"));
        Base64::decode_vec(key["priv_key"]["value"].as_str().unwrap()).unwrap()[..32].to_vec()
    }

    /// The answer of a node to its clients.
    pub(crate) async fn get(&self, number: usize, path: &str) -> Vec<u8> {
        let port = self.url(number).rsplit(':').next().unwrap().parse().unwrap();
        let name = ServerAddress::parse("localhost", port).unwrap();
        let tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        exchange(self.connector().connect(tcp, name).await.unwrap(), "GET", path, Bytes::new()).await
    }

    /// The answer of a node about a DID.
    pub(crate) async fn answer(&self, number: usize, did: &Did) -> Value {
        serde_json::from_slice(&self.get(number, &format!("/dids/{did}")).await).unwrap()
    }

    /// The answer of CometBFT's RPC.
    pub(crate) async fn rpc(&self, number: usize, method: &str, parameters: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}).to_string();
        let socket = UnixStream::connect(sockets(&self.nodes[number].home).rpc).await.unwrap();
        let answer: Value =
            serde_json::from_slice(&exchange(socket, "POST", "/", request.into()).await).unwrap();
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    /// The text of a node's checkpoint, whose hash is in its state.
    pub(crate) async fn text(&self, number: usize) -> String {
        let checkpoint = self.get(number, "/checkpoint").await;
        SignedCheckpoint::read(&checkpoint).unwrap().checkpoint().to_string()
    }
}

async fn exchange(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: &str,
    path: &str,
    body: Bytes,
) -> Vec<u8> {
    let (mut sender, connection) = handshake(TokioIo::new(io)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("Host", "localhost");
    let answer = sender.send_request(request.body(Full::new(body)).unwrap()).await.unwrap();
    answer.into_body().collect().await.unwrap().to_bytes().to_vec()
}

/// CometBFT's configuration. Everything else is as it comes; the times are shorter than in production.
fn config(home: &Path, port: u16, peers: &[String]) -> String {
    let Sockets { application, rpc } = sockets(home);
    let application = application.display();
    let rpc = rpc.display();
    let ids: Vec<_> = peers.iter().filter_map(|peer| peer.split('@').next()).collect();
    let peers = peers.join(",");
    let ids = ids.join(",");
    format!(
        r#"proxy_app = "unix://{application}"
log_level = "error"

[rpc]
laddr = "unix://{rpc}"

[p2p]
laddr = "tcp://127.0.0.1:{port}"
persistent_peers = "{peers}"
addr_book_strict = false
allow_duplicate_ip = true
pex = false
max_num_inbound_peers = 0
unconditional_peer_ids = "{ids}"

[consensus]
timeout_propose = "1s"
timeout_commit = "100ms"
create_empty_blocks_interval = "1s"

[tx_index]
indexer = "null"
"#
    )
}
