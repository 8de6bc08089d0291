//! The registry of the demonstration, its operator, and devices with a `did:dunlin` whose keys change while
//! they are in use.

use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use dunlin::auth::X509Trust;
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::{ClientConfig, Credential, Profile, Trust};
use dunlin_command::error::Error;
use dunlin_identity::credential::{CREDENTIALS_V2, Contexts, Issuer};
use dunlin_identity::handshake::{Holding, RegistryDocuments};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::dunlin::{Operation, State, first_document};
use dunlin_identity::method::{KEY, Method};
use dunlin_identity::transparency::RegistryTrust;
use dunlin_identity::{DidDocument, Relationship, Sha256Hash};
use dunlin_pki::{Identity, KeyPair, KeyType};
use dunlin_registry::client::RegistryClient;
use dunlin_registry::lookup::LOOK_UP_TIME;
use dunlin_registry::server::{Admission, Limits, serve};
use dunlin_registry::stapler::Stapler;
use dunlin_registry::{Registry, Settings};
use dunlin_setup::https;
use dunlin_tokio::https::HttpsClient;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::setup::{SERVER, setup_failed};

/// The name of the registry.
const ORIGIN: &str = "dunlin-up.example/1";
/// All clients of the registry are on this machine.
const LIMITS: Limits = Limits {
    connections: 1024,
    connections_per_host: 1024,
    writes_per_minute: 60_000,
    write_burst: 10_000,
    all_writes_per_minute: 60_000,
    database: 1 << 30,
    admission: Admission::Open,
};

/// The keys of the registry and of the operator, who issues credentials.
pub(super) struct Authority {
    provider: Arc<CryptoProvider>,
    registry: Arc<dyn SigningKey>,
    operator: Arc<dyn SigningKey>,
    document: DidDocument,
    /// The certificate of the registry's HTTPS server.
    server: Credential,
    roots: X509Trust,
}

impl Authority {
    /// Fresh keys. The registry has the server's certificate, below these roots.
    pub(super) fn new(
        provider: &Arc<CryptoProvider>,
        server: &Identity,
        roots: X509Trust,
    ) -> Result<Self, Error> {
        let registry = KeyPair::generate(KeyType::Ed25519)?.signing_key(provider)?;
        let operator = KeyPair::generate(KeyType::P256)?.signing_key(provider)?;
        let did = KEY.create(&public(&*operator)?).map_err(setup_failed)?;
        let document = KEY.resolve(&did).map_err(setup_failed)?;
        let server = Credential::x509(server.chain.clone(), server.key.signing_key(provider)?);
        Ok(Self { provider: provider.clone(), registry, operator, document, server, roots })
    }

    fn settings(&self) -> Settings {
        Settings::new(self.provider.clone(), ORIGIN, self.registry.clone())
    }

    /// The keys of the registry, as verifiers read them.
    pub(super) fn keys(&self) -> Result<String, Error> {
        let [log, witness] = self.settings().keys().map_err(setup_failed)?;
        Ok(format!("{log}\n{witness}\n"))
    }

    /// The list of trusted issuers.
    pub(super) fn issuers(&self) -> String {
        format!("{}\n", self.document.id())
    }

    /// A device with a new DID and a credential about it.
    pub(super) fn holder(&self, name: &str) -> Result<Holder, Error> {
        let pair = || KeyPair::generate(KeyType::P256);
        let own = pair()?;
        let next = pair()?;
        let recovery = pair()?;
        let key = own.signing_key(&self.provider)?;
        let document = first_document(
            &self.provider,
            ORIGIN,
            &public(&*key)?,
            hash(&self.provider, &next)?,
            hash(&self.provider, &recovery)?,
        );
        let document = document.map_err(setup_failed)?;
        let operation = Operation::create(&self.provider, &*key, &document).map_err(setup_failed)?;
        let state = State::create(&self.provider, &operation).map_err(setup_failed)?;
        let credential = json!({
            "@context": [CREDENTIALS_V2],
            "type": ["VerifiableCredential"],
            "issuer": self.document.id().as_str(),
            "credentialSubject": {"id": document.id().as_str(), "name": name},
        });
        let mut methods = self.document.keys(Relationship::AssertionMethod);
        let (method, _) = methods.next().ok_or_else(|| setup_failed("the operator has no key"))?;
        let issuer = Issuer { provider: &self.provider, signer: &*self.operator, method };
        let credential = issuer.issue_compact(&credential, &Contexts::default()).map_err(setup_failed)?;
        let trust = RegistryTrust::read(&self.provider, &self.keys()?).map_err(setup_failed)?;
        Ok(Holder {
            provider: self.provider.clone(),
            roots: self.roots.clone(),
            trust,
            key,
            next,
            state,
            pending: Some(operation),
            credential,
            client: None,
        })
    }

    /// Starts the registry on a free port of 127.0.0.1.
    pub(super) async fn start(&self) -> Result<Running, Error> {
        let failed = |error: &dyn Display| Error::failed("registry", error, "free some space and resources");
        let directory = tempfile::Builder::new().prefix("dunlin-up-").tempdir();
        let directory = directory.map_err(|error| failed(&error))?;
        let database = directory.path().join("registry.db");
        let settings = self.settings();
        Registry::create(&database, &settings).map_err(|error| failed(&error))?;
        let registry = Registry::open(&database, &settings).map_err(|error| failed(&error))?;
        let acceptor = https::acceptor(&self.provider, self.server.clone()).map_err(setup_failed)?;
        let socket = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await;
        let socket = socket.map_err(|error| failed(&error))?;
        let url = format!("https://{SERVER}:{}", socket.local_addr()?.port());
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(serve(Arc::new(registry), socket, acceptor, LIMITS, async { drop(stopped.await) }));
        Ok(Running { url, _stop: stop, _directory: directory })
    }
}

/// A registry that answers as long as the value exists.
pub(super) struct Running {
    pub(super) url: String,
    _stop: oneshot::Sender<()>,
    _directory: TempDir,
}

/// A device with a `did:dunlin`.
pub(super) struct Holder {
    provider: Arc<CryptoProvider>,
    roots: X509Trust,
    trust: RegistryTrust,
    /// The present key, and the next one, to which the present document is committed.
    key: Arc<dyn SigningKey>,
    next: KeyPair,
    state: State,
    /// The latest operation, if the registry may not have it yet.
    pending: Option<Operation>,
    credential: Vec<u8>,
    client: Option<(RegistryClient, Arc<Stapler>)>,
}

impl Holder {
    /// The DID.
    pub(super) fn did(&self) -> &str {
        self.state.did().as_str()
    }

    /// The configuration for the connection with this number, from 1 on, and the version of the key that it
    /// shows. The device publishes its DID first, and has a new key in each further connection.
    pub(super) async fn connection(
        &mut self,
        registry: &str,
        number: u64,
    ) -> Result<(Arc<ClientConfig>, u64), String> {
        if number > 1 && self.pending.is_none() {
            self.rotate().map_err(|error| error.to_string())?;
        }
        let (client, stapler) = self.client(registry)?;
        if let Some(operation) = &self.pending {
            client.submit(operation).await.map_err(|error| error.to_string())?;
            stapler.set_key(public(&*self.key).map_err(|error| error.to_string())?);
            stapler.refresh().await.map_err(|error| error.to_string())?;
            self.pending = None;
        }
        Ok((self.config(stapler).map_err(|error| error.to_string())?, self.state.sequence()))
    }

    /// Makes the next key the present one.
    fn rotate(&mut self) -> Result<(), Error> {
        let key = self.next.signing_key(&self.provider)?;
        let next = KeyPair::generate(KeyType::P256)?;
        let document = self.state.rotated(&public(&*key)?, hash(&self.provider, &next)?);
        let document = document.map_err(setup_failed)?;
        let operation =
            Operation::update(&self.provider, &*key, &self.state, &document).map_err(setup_failed)?;
        self.state = self.state.apply(&self.provider, &operation).map_err(setup_failed)?;
        (self.key, self.next, self.pending) = (key, next, Some(operation));
        Ok(())
    }

    fn client(&mut self, registry: &str) -> Result<(RegistryClient, Arc<Stapler>), String> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let documents = Arc::new(RegistryDocuments::new(self.provider.clone(), self.trust.clone()));
        let connector =
            https::connector(&self.provider, self.roots.clone()).map_err(|error| error.to_string())?;
        let https = HttpsClient::new(connector).with_deadline(LOOK_UP_TIME);
        let client = RegistryClient::new(self.provider.clone(), registry, https, documents);
        let client = client.map_err(|error| error.to_string())?;
        let key = public(&*self.key).map_err(|error| error.to_string())?;
        let stapler = Arc::new(Stapler::new(client.clone(), self.state.did().clone(), key));
        Ok(self.client.insert((client, stapler)).clone())
    }

    /// Shows the credential with the present key and the newest proof.
    fn config(&self, stapler: Arc<Stapler>) -> Result<Arc<ClientConfig>, Error> {
        let mut methods = self.state.document().keys(Relationship::Authentication);
        let (method, _) = methods.next().ok_or_else(|| setup_failed("the DID has no key"))?;
        let key = self.key.clone();
        let credential = self.credential.clone();
        let holding = Holding::of_credential(key, method.clone(), credential, &Contexts::default());
        let own = holding.map_err(setup_failed)?.with_proofs(stapler).to_tls(&self.provider);
        let profile = Profile::builder(self.provider.clone())
            .trust(Trust { x509: Some(self.roots.clone()), raw_key: None })
            .credentials(own.into_iter().collect());
        let config = ClientConfig::new(profile.build().map_err(setup_failed)?);
        // The gateway has one name, so the devices need not send it.
        Ok(Arc::new(config.with_server_name_sent(false)))
    }
}

fn public(key: &dyn SigningKey) -> Result<PublicKey, Error> {
    PublicKey::from_spki(key.public_key()).map_err(setup_failed)
}

fn hash(provider: &CryptoProvider, pair: &KeyPair) -> Result<Sha256Hash, Error> {
    let key = PublicKey::from_spki(pair.public_key()).map_err(setup_failed)?;
    Sha256Hash::of_key(provider, &key).map_err(setup_failed)
}

#[cfg(test)]
mod tests {
    use dunlin::ServerAddress;
    use dunlin_pki::{Tree, TreeSpec};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn clients_of_the_registry_resume_their_sessions() {
        let provider = Arc::new(dunlin_awslc::provider());
        let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 10).unwrap()).unwrap();
        let roots = X509Trust::anchors([tree.root.certificate().clone()]).unwrap();
        let authority = Authority::new(&provider, &tree.server, roots.clone());
        let authority = authority.unwrap_or_else(|error| panic!("{error}"));
        let running = authority.start().await.unwrap_or_else(|error| panic!("{error}"));
        let port = running.url.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap();
        let connector = https::connector(&provider, roots).unwrap();
        for is_resumed in [false, true] {
            let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            let address = ServerAddress::parse(SERVER, port).unwrap();
            let mut tls = connector.connect(tcp, address).await.unwrap();
            assert_eq!(tls.negotiated().is_resumed(), is_resumed);
            // The tickets precede the answer.
            tls.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
            tls.read_exact(&mut [0; 8]).await.unwrap();
        }
    }
}
