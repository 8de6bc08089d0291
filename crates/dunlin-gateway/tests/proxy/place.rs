//! Certificates and configurations in a directory, a gateway with them, clients and backends.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dunlin::auth::{Psk, X509Trust};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::Tls13CipherSuite;
use dunlin::pki_types::pem::PemObject;
use dunlin::pki_types::{CertificateDer, PrivateKeyDer};
use dunlin::{ClientConfig, Credential, Profile, ServerAddress, Trust};
use dunlin_gateway::{Config, Gateway, Tunnel, TunnelConfig};
use dunlin_pki::{KeyType, Subject, Tree, TreeSpec, certificates_to_pem};
use dunlin_store::{MemoryClientCache, MemoryClientSessions};
use dunlin_tokio::{TlsConnector, TlsStream};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// A limit that no step of a test reaches unless it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The identity and the key in `keys.psk`.
pub(crate) const PSK: (&str, &str) = ("sensor-7", "000102030405060708090a0b0c0d0e0f");

/// A directory with certificates.
pub(crate) struct Place(TempDir);

impl Place {
    /// Makes `root.pem`, and chains and keys of `server` and `client`.
    pub(crate) fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.make_pki("");
        place.write("keys.psk", &format!("{}:{}\n", PSK.0, PSK.1));
        place
    }

    /// Makes another tree of certificates, in files with this prefix.
    pub(crate) fn make_pki(&self, prefix: &str) {
        self.make_pki_of(prefix, KeyType::P256, &["localhost", "127.0.0.1"]);
    }

    /// Makes another tree of certificates with keys of this type and these names of the server, in files with
    /// this prefix. The client is called `device-1` without a prefix, and otherwise `device-2`.
    pub(crate) fn make_pki_of(&self, prefix: &str, key: KeyType, names: &[&str]) {
        let server_names = names.iter().map(|name| name.parse().unwrap()).collect();
        let client = Subject::common_name(if prefix.is_empty() { "device-1" } else { "device-2" }).unwrap();
        let spec = TreeSpec { server_names, client, ..TreeSpec::new(key, 2).unwrap() };
        let tree = Tree::generate(&spec).unwrap();
        let root = certificates_to_pem(&[tree.root.certificate().clone()]).unwrap();
        self.write(&format!("{prefix}root.pem"), &root);
        let authorities = [tree.root.chain(), tree.intermediate.chain()].concat();
        // libcoap's clients send no intermediate certificate.
        self.write(&format!("{prefix}authorities.pem"), &certificates_to_pem(&authorities).unwrap());
        for (name, identity) in [("server", tree.server), ("client", tree.client)] {
            self.write(&format!("{prefix}{name}.pem"), &certificates_to_pem(&identity.chain).unwrap());
            self.write(&format!("{prefix}{name}.key"), &identity.key.to_pem().unwrap());
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file. A gateway that follows an existing one never sees a part of the new content. Only this
    /// user can read new keys.
    pub(crate) fn write(&self, name: &str, content: &str) {
        let (path, new) = (self.path(name), self.path(&format!("{name}.new")));
        std::fs::write(&new, content).unwrap();
        if [".key", ".psk"].iter().any(|ending| name.ends_with(ending)) {
            std::fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
        }
        if let Ok(old) = std::fs::metadata(&path) {
            std::fs::set_permissions(&new, old.permissions()).unwrap();
        }
        std::fs::rename(new, path).unwrap();
    }

    pub(crate) fn config(&self, text: &str) -> Config {
        Config::parse(&self.path("gateway.toml"), text).unwrap_or_else(|faults| panic!("{faults}"))
    }

    /// Starts a gateway. Returns it and the port of its first listener.
    pub(crate) async fn start(&self, text: &str) -> (Gateway, u16) {
        let gateway = Gateway::start(self.config(text)).await.unwrap_or_else(|faults| panic!("{faults}"));
        let port = gateway.addresses()[0].1.port();
        (gateway, port)
    }

    /// Starts a tunnel. Returns it and the port of its first listener.
    pub(crate) async fn tunnel(&self, text: &str) -> (Tunnel, u16) {
        let config = TunnelConfig::parse(&self.path("tunnel.toml"), text);
        let config = config.unwrap_or_else(|faults| panic!("{faults}"));
        let tunnel = Tunnel::start(config).await.unwrap_or_else(|faults| panic!("{faults}"));
        let port = tunnel.addresses()[0].1.port();
        (tunnel, port)
    }

    /// A client that trusts the root in this file.
    pub(crate) fn client(&self, root: &str) -> Client {
        Client {
            roots: vec![CertificateDer::from_pem_file(self.path(root)).unwrap()],
            own: None,
            alpn: vec![],
            psk: false,
            tls12: false,
            cache: None,
            sessions: None,
            suites: None,
        }
    }

    /// A client with the certificate of these files.
    pub(crate) fn with_certificate(&self, client: Client, prefix: &str) -> Client {
        let chain = CertificateDer::pem_file_iter(self.path(&format!("{prefix}client.pem"))).unwrap();
        let chain = chain.collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{prefix}client.key"))).unwrap();
        let key = dunlin_awslc::KEY_LOADER.load(&key).unwrap();
        Client { own: Some(Credential::x509(chain, key)), ..client }
    }
}

/// A client of the gateway.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) roots: Vec<CertificateDer<'static>>,
    pub(crate) own: Option<Credential>,
    pub(crate) alpn: Vec<Vec<u8>>,
    pub(crate) psk: bool,
    /// Whether it offers TLS 1.2 alone, with renegotiation.
    pub(crate) tls12: bool,
    pub(crate) cache: Option<Arc<MemoryClientCache>>,
    pub(crate) sessions: Option<Arc<MemoryClientSessions>>,
    /// The suites of version 1.3, if not the provider's.
    pub(crate) suites: Option<Vec<&'static Tls13CipherSuite>>,
}

impl Client {
    /// Trusts the root in this file, too.
    pub(crate) fn trusts_also(&mut self, root: &str, place: &Place) {
        self.roots.push(CertificateDer::from_pem_file(place.path(root)).unwrap());
    }

    pub(crate) fn config(&self) -> ClientConfig {
        let provider = Arc::new(dunlin_awslc::provider());
        let x509 = X509Trust::anchors(self.roots.clone()).unwrap();
        let trust = Trust { x509: Some(x509).filter(|_| !self.psk), raw_key: None };
        let profile = Profile::builder(provider.clone())
            .credentials(self.own.iter().cloned().collect())
            .trust(trust)
            .alpn(self.alpn.clone());
        let profile = if self.tls12 {
            let suites = dunlin_awslc::tls12::TLS12_CIPHER_SUITES.to_vec();
            profile.cipher_suites(vec![]).tls12_cipher_suites(suites).renegotiation(true)
        } else {
            match &self.suites {
                Some(suites) => profile.cipher_suites(suites.clone()),
                None => profile,
            }
        };
        let profile = profile.build().unwrap();
        let key: Vec<u8> = (0..16).collect();
        let mut config = if self.psk {
            ClientConfig::psk_only(profile, vec![Arc::new(Psk::new(PSK.0, &key).unwrap())]).unwrap()
        } else {
            ClientConfig::new(profile)
        };
        if let Some(cache) = &self.cache {
            config = config.with_handshake_cache(CacheMode::Compact, cache.clone(), DEFAULT_MAX_AGE);
        }
        if let Some(sessions) = &self.sessions {
            config = config.with_sessions(sessions.clone());
        }
        config
    }

    /// Connects to the gateway at this port by this name.
    pub(crate) async fn try_connect(&self, port: u16, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(("127.0.0.1", port)).await?;
        let server = ServerAddress::parse(name, port).unwrap();
        let connector = TlsConnector::new(Arc::new(self.config()));
        let mut tls = connector.connect(tcp, server).await?;
        // In TLS 1.3, a client learns with its first read whether the server has accepted it.
        tls.flush().await?;
        Ok(tls)
    }

    pub(crate) async fn connect(&self, port: u16, name: &str) -> TlsStream<TcpStream> {
        self.try_connect(port, name).await.unwrap()
    }

    /// Sends `text`, closes its direction, and returns the answer.
    pub(crate) async fn exchange(&self, port: u16, name: &str, text: &str) -> std::io::Result<String> {
        let mut tls = self.try_connect(port, name).await?;
        tls.write_all(text.as_bytes()).await?;
        tls.shutdown().await?;
        let mut answer = String::new();
        within(tls.read_to_string(&mut answer)).await?;
        Ok(answer)
    }
}

/// Gives this process a subscriber for logs, so that the subscribers of single threads get all lines: tracing
/// remembers for each line whether a subscriber wants it, and may have asked a thread without one.
pub(crate) fn subscribe() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// Waits within the patience of the tests.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("an end in time")
}

/// A backend that reads until its client closes, and then answers with its name and the received text.
pub(crate) async fn backend(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut received = vec![];
                // A reset connection has no reader for an answer.
                if stream.read_to_end(&mut received).await.is_ok() {
                    let answer = [name.as_bytes(), b" got ", &received].concat();
                    let _ = stream.write_all(&answer).await;
                }
            });
        }
    });
    port
}

/// A backend that returns the data of its first client.
pub(crate) async fn recorder() -> (u16, tokio::task::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let recorded = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = vec![];
        stream.read_to_end(&mut received).await.unwrap();
        received
    });
    (port, recorded)
}

/// A file of docs/samples. Its gateway listens on free ports of loopback.
pub(crate) fn sample(name: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/samples");
    let text = std::fs::read_to_string(directory.join(name)).unwrap();
    let listens = ["0.0.0.0:8883", "0.0.0.0:5684", "0.0.0.0:443", "127.0.0.1:9464"];
    listens.iter().fold(text, |text, address| text.replace(address, "127.0.0.1:0"))
}

/// A listener with the server's certificate; `more` follows its keys.
pub(crate) fn listener(more: &str) -> String {
    format!(
        "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\n{more}\n\
         [[listener.certificate]]\nchain = \"server.pem\"\nkey = \"server.key\"\n"
    )
}

/// A route to this port; `more` follows its keys.
pub(crate) fn route(port: u16, more: &str) -> String {
    format!("[[listener.route]]\nto = \"127.0.0.1:{port}\"\n{more}\n")
}

/// A program with metrics.
pub(crate) trait Counts {
    fn text(&self) -> String;
}

impl Counts for Gateway {
    fn text(&self) -> String {
        self.metrics()
    }
}

impl Counts for Tunnel {
    fn text(&self) -> String {
        self.metrics()
    }
}

/// The sum of the metrics with this name that have at least these labels, as in `name{label="value"}`.
pub(crate) fn metric(program: &impl Counts, wanted: &str) -> f64 {
    let parts = |series: &str| {
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels: Vec<_> = labels.trim_end_matches('}').split(',').map(str::to_owned).collect();
        (name.to_owned(), labels)
    };
    let (name, labels) = parts(wanted);
    let text = program.text();
    let values = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (its_name, its_labels) = parts(series);
        let matches =
            its_name == name && labels.iter().all(|label| label.is_empty() || its_labels.contains(label));
        matches.then(|| value.parse::<f64>().unwrap())
    });
    values.sum()
}

/// Waits until the metric has this value.
pub(crate) async fn metric_becomes(program: &impl Counts, name: &str, value: f64) {
    let begin = std::time::Instant::now();
    while metric(program, name) != value {
        assert!(begin.elapsed() < PATIENCE, "{name} is not {value}:\n{}", program.text());
        tokio::task::yield_now().await;
    }
}
