//! Witnesses: one of transparency-dev (tests/peers/witness) cosigns the registry's checkpoints, and refuses a
//! second history.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use common::{NOW, RegistryDirectory};
use dunlin::auth::X509Trust;
use dunlin::{ClientConfig, Profile, Trust};
use dunlin_identity::transparency::{
    Checkpoint, CheckpointError, Hasher, NodeHash, Nodes, NoteKey, NoteKeyKind, NoteSigner, RegistryTrust,
    SignedCheckpoint, StapleError, Tree as MerkleTree, root_entry,
};
use dunlin_pki::{KeyType, Tree, TreeSpec, certificates_to_pem};
use dunlin_registry::witness::{Witness, WitnessError, ask_all, follow};
use dunlin_registry::{Registry, RegistryError, Settings};
use dunlin_tokio::TlsConnector;
use dunlin_tokio::https::HttpsClient;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request};

/// A witness that ends with the test.
struct GoWitness {
    child: Child,
    url: String,
    key: NoteKey,
    connector: TlsConnector,
}

impl Drop for GoWitness {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl GoWitness {
    /// Starts one that knows the log of the place's registry.
    fn start(place: &RegistryDirectory) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let program = concat!(env!("CARGO_TARGET_TMPDIR"), "/witness");
        let mut build = Command::new(root.join("tools/go"));
        build.arg("build").arg("-C").arg(root.join("tests/peers/witness")).args(["-o", program, "."]);
        let built = build.output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

        let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 1).unwrap()).unwrap();
        let files = ["witness.pem", "witness.key"].map(|name| place.path(name));
        std::fs::write(&files[0], certificates_to_pem(&tree.server.chain).unwrap()).unwrap();
        std::fs::write(&files[1], tree.server.key.to_pem().unwrap().as_bytes()).unwrap();
        let mut child = Command::new(program)
            .args(["-log", &log(place).to_string()])
            .arg("-cert")
            .arg(&files[0])
            .arg("-key")
            .arg(&files[1])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It reports second histories.
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (port, key) = line.trim_end().split_once(' ').unwrap();
        let trust = X509Trust::anchors(tree.root.chain().to_vec()).unwrap();
        let profile = Profile::builder(Arc::new(dunlin_awslc::provider()));
        let profile = profile.trust(Trust { x509: Some(trust), raw_key: None }).build().unwrap();
        Self {
            url: format!("https://localhost:{port}/prefix/"),
            key: NoteKey::read(&place.provider, key).unwrap(),
            connector: TlsConnector::new(Arc::new(ClientConfig::new(profile))),
            child,
        }
    }

    fn client(&self) -> Witness {
        Witness::new(&self.url, self.connector.clone()).unwrap()
    }
}

fn log(place: &RegistryDirectory) -> NoteKey {
    let Settings { provider, origin, key, .. } = place.settings();
    NoteSigner::new(&provider, &origin, NoteKeyKind::Note, key).unwrap().key().clone()
}

/// A registry at a path that shows only what this witness has cosigned. Both have the time of this machine.
fn witnessed(place: &RegistryDirectory, path: &str, witness: &GoWitness) -> Registry {
    let now_s = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    place.clock.store(now_s, Ordering::Relaxed);
    let settings = Settings { witnesses: vec![witness.key.clone()], ..place.settings() };
    Registry::open(&place.path(path), &settings).unwrap()
}

#[tokio::test]
async fn a_state_is_shown_when_the_witness_has_cosigned_it() {
    let place = RegistryDirectory::new();
    let witness = GoWitness::start(&place);
    let registry = witnessed(&place, "registry", &witness);
    let now_s = place.clock.load(Ordering::Relaxed);
    let trust = RegistryTrust::new(log(&place), vec![witness.key.clone()]).unwrap();
    let mut clients = [witness.client()];
    let mut holder = place.holder(0);
    let mut newest = None;
    // The first time without what the witness has seen, then with proofs of consistency; the last state
    // twice.
    for (round, dids) in [0..1, 1..5, 5..300, 0..0].into_iter().enumerate() {
        let begin = registry.snapshot().size();
        let mut operations: Vec<_> = dids.map(|number| place.holder(number + 1).next()).collect();
        if let Some(last) = operations.last_mut() {
            *last = holder.next();
        }
        place.submit(&registry, operations);
        let shown = registry.shown();
        let size = registry.snapshot().size();
        assert!(shown.size() == begin);
        // Another client does not know what the witness has seen, and asks.
        if round == 2 {
            clients = [witness.client()];
        }
        assert_eq!(ask_all(&registry, &mut clients).await, Ok(true));
        assert_eq!(registry.shown().size(), size);
        let did = holder.state().did();
        let staple = registry.resolve(did).unwrap().staple().unwrap();
        let resolved = staple.verify(&place.provider, did, &trust, newest.as_ref(), now_s).unwrap();
        assert_eq!(&resolved.document, holder.state().document());
        newest = Some(resolved.checkpoint.checkpoint);
    }
}

#[tokio::test]
async fn new_states_are_shown_as_they_come() {
    let place = RegistryDirectory::new();
    let witness = GoWitness::start(&place);
    let registry = Arc::new(witnessed(&place, "registry", &witness));
    let following = follow(Arc::clone(&registry), vec![witness.client()], Duration::from_millis(1));
    let submitting = async {
        for size in 1..4 {
            place.submit(&registry, vec![place.holder(size).next()]);
            while registry.shown().size() < 2 * size {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::select! {
        ended = following => panic!("{ended:?}"),
        () = submitting => {}
    }
}

#[tokio::test]
async fn a_witness_refuses_a_second_history() {
    let place = RegistryDirectory::new();
    let witness = GoWitness::start(&place);
    Registry::create(&place.path("second"), &place.settings()).unwrap();
    let [first, second] = ["registry", "second"].map(|path| witnessed(&place, path, &witness));
    place.submit(&first, (0..5).map(|number| place.holder(number).next()).collect());
    assert_eq!(ask_all(&first, &mut [witness.client()]).await, Ok(true));
    let mut client = witness.client();
    let size = first.snapshot().size();
    assert_eq!(size, 7);
    for (number, expected) in [
        (0, WitnessError::Ahead(7)),
        // It asks again, since what a witness says may be wrong.
        (1, WitnessError::Ahead(7)),
        (2, WitnessError::Ahead(7)),
        (3, WitnessError::Refused(422)),
        (4, WitnessError::Refused(422)),
    ] {
        place.submit(&second, vec![place.holder(100 + number).next()]);
        // A proof from its own history is wrong.
        assert_eq!(client.ask(&second, &second.snapshot()).await, Err(expected));
        assert_eq!(ask_all(&second, &mut [witness.client()]).await, Ok(false));
        assert_eq!(second.shown().size(), 0);
    }
}

/// A thief of the registry's key claims other states of the DIDs after the same operations.
#[tokio::test]
async fn a_witness_refuses_a_second_map_for_one_size() {
    let place = RegistryDirectory::new();
    let witness = GoWitness::start(&place);
    let registry = witnessed(&place, "registry", &witness);
    place.submit(&registry, (0..5).map(|number| place.holder(number).next()).collect());
    assert_eq!(ask_all(&registry, &mut [witness.client()]).await, Ok(true));
    let snapshot = registry.snapshot();
    let hasher = Hasher(place.provider.sha256);
    let size = snapshot.size();
    let map = snapshot.map().root(hasher);
    let note = |map: &NodeHash| {
        let mut log = MerkleTree::default();
        let entries = registry.entries(0, size - 1).unwrap();
        entries.iter().for_each(|entry| log.push(hasher, hasher.leaf(entry)));
        log.push(hasher, hasher.leaf(&root_entry(map)));
        let root = log.root(hasher, size).unwrap();
        let checkpoint = Checkpoint { root, ..snapshot.checkpoint().checkpoint().clone() };
        let Settings { provider, origin, key, .. } = place.settings();
        let signer = NoteSigner::new(&provider, &origin, NoteKeyKind::Note, key).unwrap();
        SignedCheckpoint::sign(&provider, checkpoint, &[signer], NOW).unwrap().to_string()
    };
    let ask = async |map: &NodeHash| {
        let mut request = Request::new(Full::<Bytes>::from(format!("old {size}\n\n{}", note(map))));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("{}add-checkpoint", witness.url).parse().unwrap();
        let answer = HttpsClient::new(witness.connector.clone()).send(request).await.unwrap();
        answer.status().as_u16()
    };
    assert_eq!(ask(&map).await, 200);
    let refused = ask(&[7; 32]).await;
    assert!(refused == 409 || refused == 422, "{refused}");
}

#[tokio::test]
async fn wrong_answers_count_for_nothing() {
    let place = RegistryDirectory::new();
    let witness = GoWitness::start(&place);
    let registry = witnessed(&place, "registry", &witness);
    place.submit(&registry, vec![place.holder(1).next()]);
    let snapshot = registry.snapshot();
    let mut other = witness.client();
    let good = other.ask(&registry, &snapshot).await.unwrap();
    let end = good.len() - 10;
    let changed = format!("{}{}", &good[..end], good[end..].replacen(|c: char| c != 'A', "A", 1));
    for answers in [vec![], vec!["nonsense\n"], vec![changed.as_str()], vec![snapshot.text()]] {
        assert_eq!(registry.witnessed(&snapshot, answers), Ok(false));
    }
    assert_eq!(registry.shown().size(), 0);
    let staple = registry.resolve(place.holder(1).next().did()).unwrap().staple();
    assert!(staple.is_none());
    assert_eq!(registry.witnessed(&snapshot, ["nonsense\n", good.as_str()]), Ok(true));
    assert_eq!(registry.shown().size(), 2);

    // A verifier that knows another witness refuses what this one has cosigned.
    let mut holder = place.holder(1);
    let did = holder.next().did().clone();
    let stranger = NoteSigner::new(&place.provider, "other", NoteKeyKind::Cosignature, place.settings().key);
    let trust = RegistryTrust::new(log(&place), vec![stranger.unwrap().key().clone()]).unwrap();
    let staple = registry.resolve(&did).unwrap().staple().unwrap();
    let refused = staple.verify(&place.provider, &did, &trust, None, NOW).unwrap_err();
    assert_eq!(refused, StapleError::Checkpoint(CheckpointError::Stale { found: 0, needed: 1 }));
}

#[tokio::test]
async fn unusable_witnesses_are_refused() {
    let place = RegistryDirectory::new();
    let witness = GoWitness::start(&place);
    for url in ["", "witness.example", "http://witness.example/", "https://", "https://a b/", "https://a/?b"]
    {
        let refused = Witness::new(url, witness.connector.clone()).unwrap_err();
        assert_eq!(refused, WitnessError::Url(url.to_owned()));
    }
    // Another path: the peer is no witness there.
    let registry = witnessed(&place, "registry", &witness);
    let elsewhere = witness.url.replace("prefix", "elsewhere");
    let mut elsewhere = Witness::new(&elsewhere, witness.connector.clone()).unwrap();
    let refused = elsewhere.ask(&registry, &registry.snapshot()).await;
    assert_eq!(refused, Err(WitnessError::Refused(404)));
    drop(registry);
    // More witnesses than there are, and a registry that has none.
    let settings = Settings { witnesses: vec![witness.key.clone()], needed: 2, ..place.settings() };
    let refused = Registry::open(&place.path("registry"), &settings).unwrap_err();
    assert_eq!(refused, RegistryError::Checkpoint(CheckpointError::Witnesses));
    let registry = place.open().unwrap();
    assert!(registry.witnessed(&registry.snapshot(), []).is_err());
}
