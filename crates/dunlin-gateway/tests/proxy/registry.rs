//! A registry of `did:dunlin` behind a gateway and a tunnel: look-ups of clients' DIDs, and the proof of a
//! tunnel's own.

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use dunlin::auth::{DidProofs, KnownRegistry, Verifiers};
use dunlin::crypto::SigningKey;
use dunlin::wire::AlertDescription;
use dunlin::{ClientAuth, Credential, Error, Profile, ServerConfig};
use dunlin_gateway::{Config, TunnelConfig};
use dunlin_identity::credential::status::{Bitstring, StatusEntry, StatusPurpose};
use dunlin_identity::credential::{CREDENTIALS_V2, Contexts, Issuer};
use dunlin_identity::handshake::{CredentialVerifier, Holding, RegistryDocuments};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::directory::key_file;
use dunlin_identity::method::dunlin::{Operation, State, first_document};
use dunlin_identity::method::{KEY, Method};
use dunlin_identity::transparency::{RegistryTrust, Staple};
use dunlin_identity::{DidDocument, Members, Relationship, Sha256Hash, TrustList};
use dunlin_pki::{Item, KeyPair, KeyType};
use dunlin_registry::server::{Limits, serve};
use dunlin_registry::{Registry, Settings};
use dunlin_tokio::TlsAcceptor;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::place::{PATIENCE, Place, backend, listener, metric, route, within};
use crate::shared::{self, Redis};

const ORIGIN: &str = "registry.example/1";
pub(crate) const LIST: &str = "https://operator.example/status/1";

pub(crate) fn key(pair: &KeyPair) -> Arc<dyn SigningKey> {
    pair.signing_key(&dunlin_awslc::provider()).unwrap()
}

pub(crate) fn public(pair: &KeyPair) -> PublicKey {
    PublicKey::from_spki(pair.public_key()).unwrap()
}

/// A registry over HTTPS with the certificate of the place's server, and an operator who issues credentials.
pub(crate) struct Site {
    pub(crate) registry: Arc<Registry>,
    pub(crate) port: u16,
    pub(crate) operator: (KeyPair, DidDocument),
    stop: Mutex<Option<oneshot::Sender<()>>>,
}

impl Site {
    pub(crate) async fn new(place: &Place) -> Self {
        let provider = Arc::new(dunlin_awslc::provider());
        let settings =
            Settings::new(provider.clone(), ORIGIN, key(&KeyPair::generate(KeyType::Ed25519).unwrap()));
        Registry::create(&place.path("registry.db"), &settings).unwrap();
        let registry = Arc::new(Registry::open(&place.path("registry.db"), &settings).unwrap());
        let [log, witness] = registry.keys();
        place.write("registry.pub", &format!("{log}\n{witness}\n"));

        let pem = |name: &str| dunlin_pki::parse(&std::fs::read(place.path(name)).unwrap()).unwrap();
        let chain = pem("server.pem").into_iter().filter_map(|item| match item {
            Item::Certificate(der) => Some(der),
            _ => None,
        });
        let own = pem("server.key").into_iter().find_map(|item| match item {
            Item::PrivateKey(pair) => Some(pair),
            _ => None,
        });
        let credential = Credential::x509(chain.collect(), key(&own.unwrap()));
        let profile = Profile::builder(provider).credentials(vec![credential]).build().unwrap();
        let acceptor = TlsAcceptor::new(Arc::new(ServerConfig::new(profile).unwrap()));
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        tokio::spawn(serve(registry.clone(), socket, acceptor, Limits::default(), stopped));

        let pair = KeyPair::generate(KeyType::P256).unwrap();
        let document = KEY.resolve(&KEY.create(&public(&pair)).unwrap()).unwrap();
        place.write("issuers", document.id().as_str());
        Self { registry, port, operator: (pair, document), stop: Mutex::new(Some(stop)) }
    }

    /// Stops the server. No server answers at its port any more when this returns.
    pub(crate) async fn stop(&self) {
        drop(self.stop.lock().unwrap().take());
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
            assert!(begin.elapsed() < PATIENCE, "the registry does not stop");
        }
    }

    /// A new `did:dunlin` in the registry, and the key that may end it.
    pub(crate) fn device(&self) -> (KeyPair, DidDocument, KeyPair) {
        let provider = dunlin_awslc::provider();
        let [own, next, recovery] = [(); 3].map(|()| KeyPair::generate(KeyType::P256).unwrap());
        let hash = |pair| Sha256Hash::of_key(&provider, &public(pair)).unwrap();
        let document =
            first_document(&provider, ORIGIN, &public(&own), hash(&next), hash(&recovery)).unwrap();
        let operation = Operation::create(&provider, &*key(&own), &document).unwrap();
        self.registry.submit(operation).unwrap();
        (own, document, recovery)
    }

    fn issue(&self, subject: &DidDocument) -> String {
        self.sign(&json!({
            "@context": [CREDENTIALS_V2],
            "type": ["VerifiableCredential"],
            "issuer": self.operator.1.id().as_str(),
            "credentialSubject": {"id": subject.id().as_str()},
        }))
    }

    /// With a status.
    pub(crate) fn issue_with(&self, subject: &DidDocument, entry: &StatusEntry) -> String {
        self.sign(&json!({
            "@context": [CREDENTIALS_V2],
            "type": ["VerifiableCredential"],
            "issuer": self.operator.1.id().as_str(),
            "credentialSubject": {"id": subject.id().as_str(), "role": "sensor"},
            "credentialStatus": entry.to_value(),
        }))
    }

    /// The operator's list of this age, with or without the bit 7.
    pub(crate) fn list(&self, revoked: bool, age: i64) -> String {
        let now: i64 = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs().try_into().unwrap();
        let mut bits = Bitstring::default();
        bits.set(7, revoked).unwrap();
        let did = self.operator.1.id();
        let made = now - age;
        let list = bits.credential(did, LIST, StatusPurpose::Revocation, made, made + 1000);
        self.sign(&list.unwrap())
    }

    fn sign(&self, credential: &Value) -> String {
        let (pair, document) = &self.operator;
        let method = document.keys(Relationship::AssertionMethod).next().unwrap().0;
        let issuer = Issuer { provider: &dunlin_awslc::provider(), signer: &*key(pair), method };
        issuer.issue_jwt(credential, &Contexts::default()).unwrap()
    }

    /// The table that names the registry, at this port.
    pub(crate) fn table(section: &str, port: u16) -> String {
        format!(
            "[listener.{section}.registry]\nurl = \"https://localhost:{port}\"\nkey = \"registry.pub\"\nca = \"root.pem\"\n"
        )
    }

    /// A client shows a new DID, whose proof it does not send along.
    async fn visit(&self, place: &Place, port: u16) -> std::io::Result<String> {
        let (own, document, _) = self.device();
        self.visit_as(place, port, &own, &document, None).await
    }

    /// A client shows this DID, and perhaps a proof.
    pub(crate) async fn visit_as(
        &self,
        place: &Place,
        port: u16,
        own: &KeyPair,
        document: &DidDocument,
        proof: Option<Vec<u8>>,
    ) -> std::io::Result<String> {
        self.shown(place, port, own, document, self.issue(document), proof).await
    }

    /// As [`Self::visit_as`], with this credential and without a proof.
    async fn visit_with(
        &self,
        place: &Place,
        port: u16,
        own: &KeyPair,
        document: &DidDocument,
        credential: String,
    ) -> std::io::Result<String> {
        self.shown(place, port, own, document, credential, None).await
    }

    async fn shown(
        &self,
        place: &Place,
        port: u16,
        own: &KeyPair,
        document: &DidDocument,
        credential: String,
        proof: Option<Vec<u8>>,
    ) -> std::io::Result<String> {
        let credential = credential.into_bytes();
        let documents = std::slice::from_ref(document);
        let holding = Holding::for_handshakes(key(own), credential, documents, &Contexts::default()).unwrap();
        let holding = match proof {
            Some(proof) => holding.with_proofs(Arc::new(Proof(proof))),
            None => holding,
        };
        let own = holding.to_tls(&dunlin_awslc::provider());
        let client = crate::place::Client { own, ..place.client("root.pem") };
        client.exchange(port, "localhost", "").await
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A proof that its holder sends whatever the peer knows.
#[derive(Debug)]
struct Proof(Vec<u8>);

impl DidProofs for Proof {
    fn latest(&self, _: &[KnownRegistry]) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }
}

pub(crate) const CLIENTS: &str = "[listener.clients]\nvc_issuers = \"issuers\"\n";

#[tokio::test]
async fn a_gateway_looks_up_the_dids_of_clients() {
    let place = Place::new();
    let site = Site::new(&place).await;
    let route = route(backend("one").await, "");
    let text = listener("") + CLIENTS + &Site::table("clients", site.port) + &route;
    let (_gateway, port) = place.start(&text).await;
    assert_eq!(site.visit(&place, port).await.unwrap(), "one got ");

    // No server answers at this port.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let text = listener("") + CLIENTS + &Site::table("clients", closed) + &route;
    let (_gateway, port) = place.start(&text).await;
    let error = site.visit(&place, port).await.unwrap_err();
    let received = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    assert_eq!(received, Some(&Error::AlertReceived(AlertDescription::BAD_CERTIFICATE)), "{error}");
}

/// The list names an issuer's `did:dunlin` alone. Its document comes from the registry.
#[tokio::test]
async fn a_gateway_looks_up_the_issuers_of_clients() {
    let place = Place::new();
    let mut site = Site::new(&place).await;
    let (pair, document, _) = site.device();
    place.write("issuers", document.id().as_str());
    site.operator = (pair, document);
    let route = route(backend("one").await, "");
    let text = listener("") + CLIENTS + &Site::table("clients", site.port) + &route;
    let (gateway, port) = place.start(&text).await;
    assert_eq!(site.visit(&place, port).await.unwrap(), "one got ");
    gateway.reload(place.config(&text)).await.unwrap();
    assert_eq!(site.visit(&place, port).await.unwrap(), "one got ");
    // Without a registry, the gateway has no document of the issuer.
    let Err(faults) = dunlin_gateway::Gateway::start(place.config(&(listener("") + CLIENTS + &route))).await
    else {
        panic!("it started")
    };
    assert!(faults.to_string().contains("for a did:dunlin add registry"), "{faults}");
    // A status list in a file counts as soon as the issuer's document is at hand, and a reload never goes
    // back.
    let (own, of_device, _) = site.device();
    let entry = StatusEntry { list: LIST.to_owned(), index: 7, purpose: StatusPurpose::Revocation };
    let visit = || site.visit_with(&place, port, &own, &of_device, site.issue_with(&of_device, &entry));
    let text = text.replace("vc_issuers", "vc_status = \"status.vc\"\nvc_issuers");
    visit().await.unwrap_err();
    for (revoked, age, is_accepted) in [(false, 60, true), (true, 30, false), (false, 60, false)] {
        place.write("status.vc", &site.list(revoked, age));
        gateway.reload(place.config(&text)).await.unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(visit().await.is_ok(), is_accepted, "{revoked} {age}");
    }
}

/// Sessions of clients whose documents, issuer and status list the gateway has learnt from them and from the
/// registry.
#[tokio::test]
async fn what_a_gateway_has_learnt_serves_sessions() {
    let place = Place::new();
    let mut site = Site::new(&place).await;
    let (pair, document, _) = site.device();
    place.write("issuers", document.id().as_str());
    site.operator = (pair, document);
    let (own, of_device, _) = site.device();
    place.write("status.vc", &site.list(false, 0));
    let entry = StatusEntry { list: LIST.to_owned(), index: 7, purpose: StatusPurpose::Revocation };
    place.write("device.vc", &site.issue_with(&of_device, &entry));
    place.write("device.key", &own.to_pem().unwrap());
    place.write("device.json", of_device.canonical());
    let text = listener("") + CLIENTS + &Site::table("clients", site.port) + &route(backend("one").await, "");
    let (gateway, to) = place.start(&text).await;
    let tunnel = format!(
        "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"localhost:{to}\"\ndid = \"device.key\"\nvc = \"device.vc\"\n\
         staple_status = \"status.vc\"\n\
         [listener.server]\nca = \"root.pem\"\ndid_documents = \"device.json\"\n{}",
        Site::table("server", site.port)
    );
    let (_tunnel, port) = place.tunnel(&tunnel).await;
    for _ in 0..3 {
        assert!(asks(port).await);
    }
    let resumed = "dunlin_gateway_handshakes_completed_total{client=\"vc\",kind=\"resumed\"}";
    assert_eq!(metric(&gateway, resumed), 2.0, "{}", gateway.metrics());
}

/// The gateway knows only the root over its peers, and only with a registry can they prove their membership.
#[tokio::test]
async fn a_gateway_accepts_members_of_a_list() {
    let place = Place::new();
    let provider = dunlin_awslc::provider();
    let site = Site::new(&place).await;
    let [device, other, stranger] = [(); 3].map(|()| site.device());
    let members = Members::new(&provider, [&device, &other].map(|(_, document, _)| document.id().clone()));
    place.write("peers", &members.root(&provider).unwrap().to_string());
    let peers = listener("") + CLIENTS + "vc_peers = \"peers\"\n";
    let table = Site::table("clients", site.port);
    let route = route(backend("one").await, "");
    let (_gateway, port) = place.start(&(peers.clone() + &table + &route)).await;
    let visit = async |(own, document, _): &(KeyPair, DidDocument, _), of: Option<&DidDocument>| {
        let membership = of.map(|of| members.proof(&provider, of.id()).unwrap()).unwrap_or_default();
        let staple = site.registry.resolve(document.id()).unwrap().staple().unwrap();
        let proof = Staple { membership, ..staple }.write().unwrap();
        site.visit_as(&place, port, own, document, Some(proof)).await
    };
    assert_eq!(visit(&device, Some(&device.1)).await.unwrap(), "one got ");
    for (who, of) in [(&device, None), (&stranger, Some(&other.1))] {
        let error = visit(who, of).await.unwrap_err();
        let received = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
        assert_eq!(received, Some(&Error::AlertReceived(AlertDescription::UNKNOWN_CA)), "{error}");
    }
    let refused = dunlin_gateway::Gateway::start(place.config(&(peers + &route))).await;
    let faults = refused.err().unwrap().to_string();
    assert!(faults.contains("proofs for \"members\" come with those of a registry"), "{faults}");
}

/// A thief has the key of a DID, and the proof of the time before its owner ended it.
#[tokio::test]
async fn a_reload_forgets_no_deactivation() {
    let place = Place::new();
    let site = Site::new(&place).await;
    let text = listener("") + CLIENTS + &Site::table("clients", site.port) + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    let (own, document, recovery) = site.device();
    let old = site.registry.resolve(document.id()).unwrap().staple().unwrap().write().unwrap();
    let visit = || site.visit_as(&place, port, &own, &document, Some(old.clone()));
    assert_eq!(visit().await.unwrap(), "one got ");

    let provider = dunlin_awslc::provider();
    let create = Operation::create(&provider, &*key(&own), &document).unwrap();
    let state = State::create(&provider, &create).unwrap();
    site.registry.submit(Operation::deactivate(&provider, &*key(&recovery), &state).unwrap()).unwrap();
    let resolution = site.registry.resolve(document.id()).unwrap();
    let ended = resolution.staple().unwrap().write().unwrap();
    let revoked = |visited: std::io::Result<String>| {
        let error = visited.unwrap_err();
        let received = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
        assert_eq!(received, Some(&Error::AlertReceived(AlertDescription::CERTIFICATE_REVOKED)), "{error}");
    };
    // The gateway learns it from a proof.
    revoked(site.visit_as(&place, port, &own, &document, Some(ended)).await);
    revoked(visit().await);
    gateway.reload(place.config(&text)).await.unwrap();
    revoked(visit().await);
}

/// A restart forgets no deactivation, if the gateway has a file for it, nor does another gateway that shares
/// a Redis with it.
#[tokio::test]
async fn a_restart_and_other_gateways_know_a_deactivation() {
    for is_shared in [false, true] {
        let place = Place::new();
        let site = Site::new(&place).await;
        let redis = Redis::new(&place);
        let known = if is_shared {
            shared::table(&place, redis.port)
        } else {
            "[known]\nfile = \"known\"\n".to_owned()
        };
        let text = known
            + &listener("")
            + CLIENTS
            + &Site::table("clients", site.port)
            + &route(backend("one").await, "");
        let (first, port) = place.start(&text).await;
        // Another gateway, which is there before, learns it from Redis.
        let beside = if is_shared { Some(place.start(&text).await) } else { None };
        let (own, document, recovery) = site.device();
        let old = site.registry.resolve(document.id()).unwrap().staple().unwrap().write().unwrap();
        let visit = |port, proof: &[u8]| site.visit_as(&place, port, &own, &document, Some(proof.to_vec()));
        assert_eq!(visit(port, &old).await.unwrap(), "one got ");
        let provider = dunlin_awslc::provider();
        let create = Operation::create(&provider, &*key(&own), &document).unwrap();
        let state = State::create(&provider, &create).unwrap();
        let end = Operation::deactivate(&provider, &*key(&recovery), &state).unwrap();
        site.registry.submit(end).unwrap();
        let ended = site.registry.resolve(document.id()).unwrap().staple().unwrap().write().unwrap();
        visit(port, &ended).await.unwrap_err();
        first.stop().await;
        let (_second, port) = place.start(&text).await;
        visit(port, &old).await.unwrap_err();
        if let Some((_beside, port)) = &beside {
            let begin = Instant::now();
            while visit(*port, &old).await.is_ok() {
                assert!(begin.elapsed() < PATIENCE, "the other gateway does not learn it");
            }
        }
    }
}

/// The server knows only the registry's keys, and looks nothing up.
#[tokio::test]
async fn a_tunnel_sends_the_proof_of_its_did() {
    let place = Place::new();
    let site = Site::new(&place).await;
    let (own, document, _) = site.device();
    place.write("device.key", &own.to_pem().unwrap());
    place.write("device.vc", &site.issue(&document));
    place.write("device.json", document.canonical());
    let provider = Arc::new(dunlin_awslc::provider());
    let trust = RegistryTrust::read(&provider, &std::fs::read_to_string(place.path("registry.pub")).unwrap());
    let documents = RegistryDocuments::new(provider.clone(), trust.unwrap());
    let verifier = CredentialVerifier::new(provider.clone(), [site.operator.1.clone()]);
    // It knows only the root over the DIDs that it accepts.
    let members = Members::new(&provider, [document.id().clone(), "did:dunlin:other".parse().unwrap()]);
    let accepted = TrustList::default().with_members(members.root(&provider).unwrap());
    let verifier = Arc::new(verifier.with_resolver(Arc::new(documents)).with_peers(accepted));
    let proof = members.proof(&provider, document.id()).unwrap();
    place.write("members", &format!("{} {}\n", document.id(), hex(&proof)));

    let hub = KeyPair::generate(KeyType::P256).unwrap();
    let of_hub = KEY.resolve(&KEY.create(&public(&hub)).unwrap()).unwrap();
    let credential = site.issue(&of_hub).into_bytes();
    let holding = Holding::for_handshakes(key(&hub), credential, &[], &Contexts::default()).unwrap();
    place.write("hub", of_hub.id().as_str());
    let profile = Profile::builder(provider.clone())
        .credentials(vec![holding.to_tls(&provider).unwrap()])
        .trust(Verifiers::default().with(verifier));
    let config = ServerConfig::new(profile.build().unwrap()).unwrap();
    let acceptor = TlsAcceptor::new(Arc::new(config.with_client_auth(ClientAuth::Required).unwrap()));
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = server.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = server.accept().await {
            let Ok(mut tls) = acceptor.accept(tcp).await else { continue };
            let peer = tls.negotiated().peer.as_ref().unwrap().to_string();
            tls.write_all(peer.as_bytes()).await.unwrap();
            tls.shutdown().await.unwrap();
        }
    });
    let text = format!(
        "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"127.0.0.1:{to}\"\ndid = \"device.key\"\nvc = \"device.vc\"\n\
         membership = \"members\"\n\
         [listener.server]\nvc_issuers = \"issuers\"\nvc_peers = \"hub\"\ndid_documents = \"device.json\"\n{}",
        Site::table("server", site.port)
    );
    let faults = async |text: &str| {
        let config = TunnelConfig::parse(&place.path("tunnel.toml"), text).unwrap();
        match dunlin_gateway::Tunnel::start(config).await {
            Ok(_) => panic!("it started"),
            Err(faults) => faults.to_string(),
        }
    };
    let found = faults(&text.replace("\"members\"", "\"hub\"")).await;
    assert!(found.contains("it has no proof that did:dunlin:"), "{found}");
    let (without_registry, _) = text.split_once("[listener.server.registry]").unwrap();
    let found = faults(without_registry).await;
    assert!(found.contains("membership: it travels with the proofs of a registry"), "{found}");
    let (_tunnel, port) = place.tunnel(&text).await;
    let begin = SystemTime::now();
    // Until the tunnel has its proof, the server refuses it.
    let answer = loop {
        let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut answer = String::new();
        if within(tcp.read_to_string(&mut answer)).await.is_ok() && !answer.is_empty() {
            break answer;
        }
        assert!(begin.elapsed().unwrap() < PATIENCE, "the tunnel sends no proof");
    };
    assert_eq!(answer, format!("VC {}", document.id()));
}

/// A tunnel that shows the bare DID of this key, with the registry's proofs or without them.
async fn ask_with(place: &Place, site: &Site, to: u16, key: &str, more: &str, has_registry: bool) -> bool {
    let registry = if has_registry { Site::table("server", site.port) } else { String::new() };
    let text = format!(
        "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"localhost:{to}\"\ntickets = false\ndid = \"{key}.key\"\n{more}\n\
         [listener.server]\nca = \"root.pem\"\ndid_documents = \"{key}.json\"\n{registry}"
    );
    let (_tunnel, port) = place.tunnel(&text).await;
    let begin = SystemTime::now();
    loop {
        if asks(port).await {
            return true;
        }
        // A tunnel needs a moment for its proof.
        if !has_registry || begin.elapsed().unwrap() > PATIENCE {
            return false;
        }
    }
}

/// A `did:dunlin` from its creation to its end.
struct Life {
    /// The keys of the first two versions, and the next one.
    keys: [KeyPair; 3],
    document: DidDocument,
    rotated: DidDocument,
    /// Creation, rotation and deactivation.
    operations: [Operation; 3],
}

impl Life {
    fn new() -> Self {
        let provider = dunlin_awslc::provider();
        let [own, next, later, recovery] = [(); 4].map(|()| KeyPair::generate(KeyType::P256).unwrap());
        let hash = |pair| Sha256Hash::of_key(&provider, &public(pair)).unwrap();
        let document =
            first_document(&provider, ORIGIN, &public(&own), hash(&next), hash(&recovery)).unwrap();
        let create = Operation::create(&provider, &*key(&own), &document).unwrap();
        let state = State::create(&provider, &create).unwrap();
        let rotated = state.rotated(&public(&next), hash(&later)).unwrap();
        let update = Operation::update(&provider, &*key(&next), &state, &rotated).unwrap();
        let state = state.apply(&provider, &update).unwrap();
        let end = Operation::deactivate(&provider, &*key(&recovery), &state).unwrap();
        Self { keys: [own, next, later], document, rotated, operations: [create, update, end] }
    }
}

/// The gateway accepts bare DIDs that it looks up, that tunnels prove, after a rotation, and as members under
/// a root.
#[tokio::test]
async fn a_gateway_accepts_bare_dids_of_a_registry() {
    let place = Place::new();
    let site = Site::new(&place).await;
    let provider = dunlin_awslc::provider();
    let Life { keys: [own, next, _], document, rotated, operations: [create, update, _] } = Life::new();
    site.registry.submit(create).unwrap();
    let (stranger, other, _) = site.device();
    for (name, pair, document) in [("own", &own, &document), ("stranger", &stranger, &other)] {
        place.write(&format!("{name}.key"), &pair.to_pem().unwrap());
        place.write(&format!("{name}.json"), document.canonical());
    }
    place.write("dids", document.id().as_str());
    let text = listener("[listener.clients]\ndids = \"dids\"\n") + &Site::table("clients", site.port);
    let text = text + &route(backend("one").await, "");
    let (gateway, to) = place.start(&text).await;
    // The gateway asks the registry, for members of the list alone.
    assert!(ask_with(&place, &site, to, "own", "", false).await);
    assert!(!ask_with(&place, &site, to, "stranger", "", false).await);
    // The proof tells the gateway of the new key, so the previous one no longer counts, also after a reload.
    site.registry.submit(update).unwrap();
    place.write("next.key", &next.to_pem().unwrap());
    place.write("next.json", rotated.canonical());
    assert!(ask_with(&place, &site, to, "next", "", true).await);
    assert!(!ask_with(&place, &site, to, "own", "", false).await);
    gateway.reload(place.config(&text)).await.unwrap();
    assert!(!ask_with(&place, &site, to, "own", "", false).await);
    assert!(ask_with(&place, &site, to, "next", "", false).await);
    // Of members, the gateway knows only the root.
    let members = Members::new(&provider, [document.id().clone(), "did:dunlin:other".parse().unwrap()]);
    place.write("dids", &members.root(&provider).unwrap().to_string());
    let proof = members.proof(&provider, document.id()).unwrap();
    place.write("members", &format!("{} {}\n", document.id(), hex(&proof)));
    gateway.reload(place.config(&text)).await.unwrap();
    assert!(!ask_with(&place, &site, to, "next", "", false).await);
    assert!(ask_with(&place, &site, to, "next", "membership = \"members\"", true).await);
}

/// A listener shows the `did:dunlin` in a directory. The client knows the registry's keys, and reaches no
/// registry.
#[tokio::test]
async fn a_listener_sends_the_proof_of_its_did() {
    let place = Place::new();
    let site = Site::new(&place).await;
    let Life { keys: [own, next, later], document, operations: [create, update, end], .. } = Life::new();
    std::fs::create_dir(place.path("hub")).unwrap();
    for (version, pair) in [&own, &next, &later].into_iter().enumerate() {
        place.write(&format!("hub/{}", key_file(version as u64)), &pair.to_pem().unwrap());
    }
    place.write("hubs", document.id().as_str());
    let text = "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\ntickets = 0\n[[listener.certificate]]\ndid = \"hub\"\n\
                [listener.clients]\n";
    let text = text.to_owned() + &Site::table("clients", site.port) + &route(backend("one").await, "");
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let trust = format!("dids = \"hubs\"\n{}", Site::table("server", closed));
    let reaches = async |to: u16| {
        let text = format!(
            "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"localhost:{to}\"\n[listener.server]\n{trust}"
        );
        let (_tunnel, port) = place.tunnel(&text).await;
        let begin = SystemTime::now();
        // The gateway needs a moment for its proof.
        while !asks(port).await {
            assert!(begin.elapsed().unwrap() < PATIENCE, "the gateway sends no proof");
        }
    };
    let mut operations = String::new();
    let mut adds = async |operation: &Operation| {
        operations += &(operation.canonical().unwrap() + "\n");
        place.write("hub/operations.jsonl", &operations);
        site.registry.submit(operation.clone()).unwrap();
    };
    adds(&create).await;
    let (gateway, to) = place.start(&text).await;
    reaches(to).await;
    let (_, other, _) = site.device();
    place.write("other.vc", &site.issue(&other));
    let of_other = text.replace("did = \"hub\"\n", "did = \"hub\"\nvc = \"other.vc\"\n");
    let refused = gateway.reload(place.config(&of_other)).await.unwrap_err().to_string();
    assert!(
        refused.contains(&format!("it is about \"{}\", and did is {}", other.id(), document.id())),
        "{refused}"
    );
    // Another reload has no registry to ask, and goes on with the proof at hand.
    let cut_off = text.replace(&site.port.to_string(), &closed.to_string());
    gateway.reload(place.config(&cut_off)).await.unwrap_or_else(|faults| panic!("{faults}"));
    reaches(to).await;
    adds(&update).await;
    gateway.reload(place.config(&text)).await.unwrap_or_else(|faults| panic!("{faults}"));
    reaches(to).await;
    adds(&end).await;
    let refused = gateway.reload(place.config(&text)).await.unwrap_err().to_string();
    assert!(refused.contains("is deactivated, for ever"), "{refused}");
    place.write("hub/operations.jsonl", "junk\n");
    let refused = gateway.reload(place.config(&text)).await.unwrap_err().to_string();
    assert!(refused.contains("operations.jsonl: "), "{refused}");
    std::fs::remove_file(place.path("hub/operations.jsonl")).unwrap();
    let refused = gateway.reload(place.config(&text)).await.unwrap_err().to_string();
    assert!(
        refused.contains("hub: it has no did.json; give the directory that `dunlin did create`"),
        "{refused}"
    );
}

/// Whether data go through a tunnel and come back.
pub(crate) async fn asks(port: u16) -> bool {
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    tcp.write_all(b"x").await.unwrap();
    tcp.shutdown().await.unwrap();
    let mut answer = String::new();
    within(tcp.read_to_string(&mut answer)).await.is_ok() && answer == "one got x"
}

#[tokio::test]
async fn names_faulty_registries() {
    let parse = |table: &str| {
        let text = listener("") + CLIENTS + "[listener.clients.registry]\n" + table + &route(1, "");
        Config::parse("gateway.toml".as_ref(), &text).unwrap_err().to_string()
    };
    let found = parse("url = \"http://localhost\"\nkey = \"registry.pub\"\n");
    assert!(found.contains("http://localhost: not a URL of HTTPS"), "{found}");
    let found = parse("");
    assert!(found.contains("url is missing") && found.contains("key is missing"), "{found}");
    let text = "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"127.0.0.1:1\"\n\
                [listener.server]\nca = \"root.pem\"\n[listener.server.registry]\nuri = \"x\"\n";
    let found = TunnelConfig::parse("tunnel.toml".as_ref(), text).unwrap_err().to_string();
    assert!(found.contains("uri") && found.contains("url is missing"), "{found}");

    let place = Place::new();
    let site = Site::new(&place).await;
    place.write("junk", "junk\n");
    for (changed, says) in [
        (("registry.pub", "none"), "none: no such file; check the path"),
        (("registry.pub", "junk"), "junk: line 1: key of a note"),
        (("\"root.pem\"", "\"junk\""), "junk"),
    ] {
        let table = Site::table("clients", site.port).replace(changed.0, changed.1);
        let text = listener("") + CLIENTS + &table + &route(1, "");
        let Err(faults) = dunlin_gateway::Gateway::start(place.config(&text)).await else {
            panic!("it started")
        };
        assert!(faults.to_string().contains(says), "{faults}");
    }
}
