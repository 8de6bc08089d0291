//! Devices with decentralised identifiers, and a server that shows and verifies such identifiers, too.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin::auth::{
    Claim, DidProofs, Identifier, KnownRegistry, OtherIdentity, PrivateKey, Validity, Verdict, Verified,
    Verifier, Verifiers,
};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::error::AuthenticationFailure;
use dunlin::wire::{CertificateType, DidMethod};
use dunlin::{ClientAuth, Credential, Now, PeerIdentity, Profile, ServerConfig, SsiMessages, TlsConnection};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::dunlin::first_document;
use dunlin_identity::method::{KEY, Method};
use dunlin_identity::transparency::{
    Checkpoint, Hasher, MapLeaf, NoteKeyKind, NoteSigner, RegistryTrust, SignedCheckpoint, Staple, StateMap,
    StateProof, map_key, root_entry,
};
use dunlin_identity::{DidDocument, Relationship, Sha256Hash};
use dunlin_pki::{KeyPair, KeyType};
use serde_json::Value;

use super::{Image, Output, Run, start};

const ORIGIN: &str = "registry.example/1";

fn provider() -> Arc<CryptoProvider> {
    let provider = dunlin_awslc::provider();
    Arc::new(CryptoProvider { cipher_suites: vec![&dunlin_awslc::TLS13_AES_128_CCM_SHA256], ..provider })
}

fn now() -> Now {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Now::from_unix_ms(now.as_millis().try_into().unwrap())
}

/// A registry of one moment, which has the documents of two parties.
struct Registry {
    signers: [NoteSigner; 2],
    trust: RegistryTrust,
    checkpoint: String,
}

/// A party with a DID.
struct Party {
    pair: KeyPair,
    key: Arc<dyn SigningKey>,
    document: DidDocument,
    staple: Vec<u8>,
}

impl Party {
    fn new(document: impl FnOnce(&PublicKey) -> DidDocument) -> Self {
        let pair = KeyPair::generate(KeyType::Ed25519).unwrap();
        let key = pair.signing_key(&provider()).unwrap();
        let document = document(&PublicKey::from_spki(key.public_key()).unwrap());
        Self { pair, key, document, staple: Vec::new() }
    }

    /// With a `did:key`.
    fn of_key() -> Self {
        Self::new(|key| KEY.resolve(&KEY.create(key).unwrap()).unwrap())
    }

    /// With a `did:dunlin`.
    fn of_dunlin() -> Self {
        let hash = |text: &[u8]| Sha256Hash::of(&provider(), text).unwrap();
        Self::new(|key| first_document(&provider(), ORIGIN, key, hash(b"next"), hash(b"recovery")).unwrap())
    }

    fn did(&self) -> Vec<u8> {
        self.document.id().as_str().into()
    }

    fn private(&self) -> Vec<u8> {
        self.pair.to_pkcs8().unwrap().to_vec()
    }
}

impl Registry {
    /// Signs the documents of these parties, and gives them their staples.
    fn new(parties: [&mut Party; 2]) -> Self {
        let provider = provider();
        let signer = KeyPair::generate(KeyType::Ed25519).unwrap();
        let key = signer.signing_key(&provider).unwrap();
        let signers = [NoteKeyKind::Note, NoteKeyKind::Cosignature]
            .map(|kind| NoteSigner::new(&provider, ORIGIN, kind, key.clone()).unwrap());
        let [log, witness] = signers.each_ref().map(|signer| signer.key().clone());
        let hasher = Hasher(provider.sha256);
        let place = |party: &Party| map_key(&provider, party.document.id()).unwrap();
        let mut map = StateMap::default();
        for party in &parties {
            let text = party.document.canonical();
            let document = Sha256Hash::of(&provider, text.as_bytes()).unwrap();
            map = map.with(hasher, place(party), MapLeaf { document, sequence: 0, active: true }).unwrap();
        }
        let trust = RegistryTrust::new(log, vec![witness]).unwrap();
        let operations = [1; 32];
        let last = hasher.leaf(&root_entry(&map.root(hasher)));
        let root = hasher.node(&operations, &last);
        let checkpoint = Checkpoint { origin: ORIGIN.to_owned(), size: 2, root };
        let checkpoint = SignedCheckpoint::sign(&provider, checkpoint, &signers, now().unix_ms / 1000)
            .unwrap()
            .to_string();
        for party in parties {
            let staple = Staple {
                document: party.document.canonical().as_bytes().to_vec(),
                checkpoint: checkpoint.clone().into_bytes(),
                proof: StateProof { map: map.prove(&place(party)), path: vec![operations] }.write(),
                membership: Vec::new(),
            };
            party.staple = staple.write().unwrap();
        }
        Self { signers, trust, checkpoint }
    }

    /// A checkpoint of the same registry after another operation.
    fn later(&self) -> String {
        let provider = provider();
        let later = Checkpoint { origin: ORIGIN.to_owned(), size: 4, root: [1; 32] };
        SignedCheckpoint::sign(&provider, later, &self.signers, now().unix_ms / 1000).unwrap().to_string()
    }

    fn keys(&self) -> [Vec<u8>; 2] {
        self.signers.each_ref().map(|signer| signer.key().to_string().into_bytes())
    }
}

/// Verifies the one device that the server knows.
#[derive(Debug)]
struct OneDevice {
    document: DidDocument,
    /// For a device that must prove its document.
    registry: Option<RegistryTrust>,
}

impl Verifier for OneDevice {
    fn certificate_type(&self) -> CertificateType {
        CertificateType::DECENTRALISED_IDENTIFIER
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        add(self.document.id().as_str().as_bytes());
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        let (did, rejected) = (self.document.id(), |why: &str| AuthenticationFailure::Rejected(why.into()));
        if *claim.entries[0] != *did.as_str().as_bytes() {
            return Err(rejected("another DID"));
        }
        if let Some(trust) = &self.registry {
            let staple = Staple::read(claim.did_proof.ok_or_else(|| rejected("no proof"))?);
            let now_s = claim.now.unix_ms / 1000;
            let found = staple.and_then(|staple| staple.verify(&provider(), did, trust, None, now_s));
            assert_eq!(found.map_err(|error| rejected(&error.to_string()))?.document, self.document);
        }
        let (_, key) = self.document.keys(Relationship::Authentication).next().unwrap();
        let identity = OtherIdentity::new(self.certificate_type(), did.as_str(), did.as_str()).unwrap();
        let peer = Verified::new(key.spki().clone(), PeerIdentity::Other(identity), Validity::ALWAYS);
        Ok(Verdict::Accepted(peer))
    }

    fn did_methods(&self) -> Vec<DidMethod> {
        vec![DidMethod::KEY, DidMethod::DUNLIN]
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        self.registry.iter().flat_map(|trust| trust.known(None)).collect()
    }
}

#[derive(Debug)]
struct Stapled(Vec<u8>);

impl DidProofs for Stapled {
    fn latest(&self, _: &[KnownRegistry]) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }
}

/// The server's view of a device: its identity, and the bytes that the device sent and received.
struct Seen {
    identity: String,
    sent: u64,
    received: u64,
}

/// Serves one device: a handshake, an echo and an orderly end.
fn serve(
    hub: &Party,
    device: &Party,
    registry: Option<&Registry>,
) -> (u16, JoinHandle<Result<Seen, String>>) {
    let method = DidMethod::from_name(&format!("did:{}", hub.document.id().method())).unwrap();
    let proofs = registry.map(|_| Arc::new(Stapled(hub.staple.clone())) as Arc<dyn DidProofs>);
    let identifier = Identifier { proofs, ..Identifier::new(hub.document.id().as_str(), method) };
    let registry = registry.map(|registry| registry.trust.clone());
    let verifier = OneDevice { document: device.document.clone(), registry };
    let profile = Profile::builder(provider())
        .ssi_messages(SsiMessages::Alone)
        .credentials(vec![Credential::Identifier { identifier, key: PrivateKey::Here(hub.key.clone()) }])
        .trust(Verifiers::default().with(Arc::new(verifier)));
    let config = ServerConfig::new(profile.build().unwrap()).unwrap();
    let config = Arc::new(config.with_client_auth(ClientAuth::Required).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (mut tcp, _) = listener.accept().unwrap();
        let mut tls = TlsConnection::server(&config, now());
        let mut buffer = [0; 4096];
        let mut sent = 0;
        let mut received = 0;
        let mut result = Ok(());
        loop {
            let out = tls.transmit().to_vec();
            received += out.len() as u64;
            tcp.write_all(&out).unwrap();
            tls.transmitted(out.len());
            let count = if result.is_ok() { tcp.read(&mut buffer).unwrap_or(0) } else { 0 };
            if count == 0 {
                break;
            }
            sent += count as u64;
            let mut rest = &buffer[..count];
            while !rest.is_empty() && result.is_ok() {
                match tls.receive(now(), rest) {
                    Ok(taken) => rest = &rest[taken..],
                    Err(error) => {
                        result = Err(error.to_string());
                        break;
                    }
                }
                while tls.poll_event().is_some() {}
                let echo = tls.received().to_vec();
                tls.consume(now(), echo.len()).unwrap();
                if !echo.is_empty() {
                    tls.send(&echo).unwrap();
                }
            }
            if result.is_ok() && tls.peer_has_closed() {
                tls.close();
            }
        }
        result?;
        let identity = tls.negotiated().ok_or("no handshake")?.peer.as_ref().unwrap().to_string();
        Ok(Seen { identity, sent, received })
    });
    (port, served)
}

/// The parameters of the image `did-dunlin`.
fn parameters(hub: &Party, device: &Party, registry: &Registry, newest: &str) -> Vec<Vec<u8>> {
    let [log, witness] = registry.keys();
    let newest = newest.as_bytes().to_vec();
    vec![hub.did(), log, witness, newest, device.did(), device.staple.clone(), device.private()]
}

fn run(
    name: &'static str,
    (port, served): (u16, JoinHandle<Result<Seen, String>>),
    parameters: &[Vec<u8>],
    device: &Party,
) -> Run {
    let Output { numbers, entry, failed, status, stderr } = start(port, name, "", parameters);
    let Seen { identity, sent, received } = served.join().unwrap().unwrap();
    assert_eq!(status, 0, "{name}: {failed} {stderr}");
    assert_eq!(identity, format!("DID {}", device.document.id()), "{name}");
    let connection = Value::Null;
    let image = Image::read(name);
    Run { name, nth: "", device: numbers, entry, connection, sent, received, image }
}

/// Devices and servers with identifiers that contain their keys, and with identifiers whose documents a
/// registry proves.
pub(super) fn runs() -> [Run; 2] {
    let [hub, device] = [(); 2].map(|()| Party::of_key());
    let own = [device.did(), hub.did(), device.private()];
    let of_key = run("did-key", serve(&hub, &device, None), &own, &device);

    let [mut hub, mut device] = [(); 2].map(|()| Party::of_dunlin());
    let registry = Registry::new([&mut hub, &mut device]);
    // Not the first boot: the device has accepted this checkpoint before.
    let own = parameters(&hub, &device, &registry, &registry.checkpoint);
    [of_key, run("did-dunlin", serve(&hub, &device, Some(&registry)), &own, &device)]
}

#[test]
fn devices_refuse_other_identifiers_and_old_proofs() {
    let [hub, device, other] = [(); 3].map(|()| Party::of_key());
    let own = [device.did(), other.did(), device.private()];
    let (port, served) = serve(&hub, &device, None);
    let output = start(port, "did-key", "", &own);
    assert_eq!((output.status, &*output.failed), (1, "connection"), "{}", output.stderr);
    let told = served.join().unwrap().map(drop).unwrap_err();
    assert!(told.contains("unknown_ca"), "{told}");

    let [mut hub, mut device, mut other] = [(); 3].map(|()| Party::of_dunlin());
    let registry = Registry::new([&mut hub, &mut device]);
    for (newest, trusted, alert) in [
        // The registry has shown the device a larger log.
        (registry.later(), &registry, "certificate_expired"),
        // The device trusts another registry, and the server has no proof of it.
        (String::new(), &Registry::new([&mut other, &mut Party::of_dunlin()]), "bad_certificate"),
    ] {
        let (port, served) = serve(&hub, &device, Some(&registry));
        let output = start(port, "did-dunlin", "", &parameters(&hub, &device, trusted, &newest));
        assert_eq!((output.status, &*output.failed), (1, "connection"), "{}", output.stderr);
        let told = served.join().unwrap().map(drop).unwrap_err();
        assert!(told.contains(alert), "{told}");
    }
}
