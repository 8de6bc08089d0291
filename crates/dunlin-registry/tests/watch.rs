//! A watch replays the log of a registry over HTTPS, and cosigns only what follows.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;
mod node;
mod site;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use common::{NOW, ORIGIN, RegistryDirectory, key, log};
use dunlin_identity::transparency::{
    Checkpoint, CheckpointError, Hasher, MapLeaf, Nodes, NoteKey, NoteKeyKind, NoteSigner, RegistryTrust,
    SignedCheckpoint, StapleError, StateMap, StateProof, Tree, map_key, root_entry,
};
use dunlin_identity::{Did, Sha256Hash};
use dunlin_registry::audit::{Log, audit};
use dunlin_registry::server::{Limits, serve_watch};
use dunlin_registry::tile::{Tile, TileKind};
use dunlin_registry::watch::{Source, Watch, WatchSettings};
use dunlin_registry::witness::{Witness, WitnessError, ask_all};
use dunlin_registry::{Registry, RegistryError, Settings};
use dunlin_tokio::TlsConnector;
use dunlin_tokio::https::HttpsClient;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request};
use node::Node;
use serde_json::json;
use site::{Site, Tls};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::Level;

fn signers(place: &RegistryDirectory) -> [NoteSigner; 2] {
    let settings = place.settings();
    let signer = |kind| NoteSigner::new(&place.provider, &settings.origin, kind, settings.key.clone());
    [NoteKeyKind::Note, NoteKeyKind::Cosignature].map(|kind| signer(kind).unwrap())
}

fn settings(place: &RegistryDirectory) -> WatchSettings {
    let provider = place.provider.clone();
    let clock = place.clock.clone();
    let [log, _] = signers(place).map(|signer| signer.key().clone());
    WatchSettings {
        key: key(&provider, [5, 5, 5]),
        provider,
        logs: vec![log],
        name: "watch.example/1".to_owned(),
        clock: Arc::new(move || clock.load(Ordering::Relaxed)),
        period: Duration::from_millis(20),
    }
}

fn watch_key(place: &RegistryDirectory) -> NoteKey {
    settings(place).signer().unwrap().key().clone()
}

/// The trust of verifiers that demand the watch's signature.
fn trust(place: &RegistryDirectory) -> RegistryTrust {
    let [log, witness] = signers(place).map(|signer| signer.key().clone());
    RegistryTrust::new(log, vec![witness]).unwrap().with_watches(vec![watch_key(place)], 1).unwrap()
}

/// A running watch, with its address and a connector to it.
struct Running {
    url: String,
    connector: TlsConnector,
    tasks: [JoinHandle<()>; 2],
}

impl Running {
    /// With the database at this path, which is made if it is missing.
    async fn start(place: &RegistryDirectory, path: &str, registry: &str, trusted: TlsConnector) -> Self {
        let path = place.path(path);
        if !path.exists() {
            Watch::create(&path, &place.provider, ORIGIN).unwrap();
        }
        let source = Source::new(registry, trusted).unwrap();
        let watch = Arc::new(Watch::open(&path, &settings(place), source).unwrap());
        let tls = Tls::new();
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/", socket.local_addr().unwrap().port());
        let limits = Limits { writes_per_minute: u32::MAX, write_burst: u32::MAX, ..Limits::default() };
        let running = watch.clone();
        let served = watch;
        let acceptor = tls.acceptor.clone();
        let serving = async move {
            serve_watch(served, socket, acceptor, limits, std::future::pending()).await.unwrap();
        };
        let tasks = [tokio::spawn(async move { match running.run().await {} }), tokio::spawn(serving)];
        Self { url, connector: tls.connector, tasks }
    }

    fn client(&self) -> Witness {
        Witness::new(&self.url, self.connector.clone()).unwrap()
    }

    /// The status and the text of the answer to `add-checkpoint`.
    async fn post(&self, body: String) -> (u16, String) {
        let mut request = Request::new(Full::<Bytes>::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("{}add-checkpoint", self.url).parse().unwrap();
        let (parts, body) =
            HttpsClient::new(self.connector.clone()).send(request).await.unwrap().into_parts();
        (parts.status.as_u16(), String::from_utf8(body.into()).unwrap())
    }

    async fn end(self) {
        for task in self.tasks {
            task.abort();
            let _ = task.await;
        }
    }
}

/// A registry over HTTPS that shows only what the watch has cosigned.
async fn watched() -> Site {
    let place = RegistryDirectory::new();
    let settings = Settings { watches: vec![watch_key(&place)], needed_watches: 1, ..place.settings() };
    let registry = Registry::open(&place.path("registry"), &settings).unwrap();
    Site::of(place, registry, Limits::default()).await
}

/// Asks until the watch has cosigned the newest state.
async fn cosigned(registry: &Registry, witness: &mut Witness) {
    while !ask_all(registry, std::slice::from_mut(witness)).await.unwrap() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_watch_cosigns_what_follows_and_goes_on_after_a_restart() {
    let site = watched().await;
    let place = &site.place;
    let registry = &site.registry;
    let mut holder = place.holder(1);
    for (round, dids) in [2..3, 3..300, 300..310].into_iter().enumerate() {
        let running = Running::start(place, "watch", &site.url(), site.connector()).await;
        let mut client = running.client();
        let mut operations: Vec<_> = dids.map(|number| place.holder(number).next()).collect();
        operations.push(holder.next());
        place.submit(registry, operations);
        let size = registry.snapshot().size();
        assert!(registry.shown().size() < size);
        cosigned(registry, &mut client).await;
        assert_eq!(registry.shown().size(), size);
        // A state without operations is cosigned, too.
        place.clock.fetch_add(2 * 60 * 60, Ordering::Relaxed);
        assert!(registry.submit(place.holder(2).next()).is_ok());
        cosigned(registry, &mut client).await;

        let did = holder.state().did();
        let staple = registry.resolve(did).unwrap().staple().unwrap();
        let now_s = place.clock.load(Ordering::Relaxed);
        let resolved = staple.verify(&place.provider, did, &trust(place), None, now_s).unwrap();
        assert_eq!(
            (resolved.sequence, resolved.checkpoint.checkpoint.checkpoint().size),
            (round as u64, size)
        );
        running.end().await;
    }
    // Its database is a copy of the registry's.
    let found = audit(&place.provider, &place.path("watch"), Log::Replicated(ORIGIN), &[]).unwrap();
    assert_eq!(found.checkpoint, *registry.snapshot().checkpoint().checkpoint());
    assert_eq!((found.operations, found.dids), (311, 309));
    let refused = Registry::open(&place.path("watch"), &place.settings()).unwrap_err();
    assert!(matches!(refused, RegistryError::OtherKey { .. }), "{refused}");
}

/// A registry whose key a thief has: it serves these entries, and these proofs.
#[derive(Clone, Default)]
struct Thief {
    entries: Arc<Mutex<Vec<Vec<u8>>>>,
    states: Arc<Mutex<Vec<(Did, String, StateProof)>>>,
    note: Arc<Mutex<String>>,
}

impl Thief {
    /// Signs the tree of its entries, and returns the checkpoint and the tree.
    fn sign(&self, place: &RegistryDirectory) -> (SignedCheckpoint, Tree) {
        let hasher = Hasher(place.provider.sha256);
        let entries = self.entries.lock().unwrap();
        let mut tree = Tree::default();
        entries.iter().for_each(|entry| tree.push(hasher, hasher.leaf(entry)));
        let size = tree.size();
        let checkpoint =
            Checkpoint { origin: ORIGIN.to_owned(), size, root: tree.root(hasher, size).unwrap() };
        let signed = SignedCheckpoint::sign(&place.provider, checkpoint, &signers(place), NOW).unwrap();
        *self.note.lock().unwrap() = signed.to_string();
        (signed, tree)
    }

    fn answer(&self, path: &str) -> (u16, Vec<u8>) {
        let note = self.note.lock().unwrap().clone();
        if let Ok(Tile { kind: TileKind::Entries, number, width }) = path[1..].parse::<Tile>() {
            let entries = self.entries.lock().unwrap();
            let first = usize::try_from(number).unwrap() * 256;
            let bundle = entries[first..first + usize::from(width.get())].iter();
            let framed = bundle
                .flat_map(|entry| [&u16::try_from(entry.len()).unwrap().to_be_bytes()[..], entry].concat());
            return (200, framed.collect());
        }
        if let Some(did) = path.strip_prefix("/dids/") {
            let states = self.states.lock().unwrap();
            let Some((_, document, proof)) = states.iter().find(|(known, ..)| known.as_str() == did) else {
                return (404, b"{}".to_vec());
            };
            let (document, proof): (serde_json::Value, _) =
                (serde_json::from_str(document).unwrap(), Base64::encode_string(&proof.write()));
            return (
                200,
                json!({"document": document, "checkpoint": note, "proof": proof}).to_string().into(),
            );
        }
        (200, note.into_bytes())
    }

    async fn node(&self) -> Node {
        let thief = self.clone();
        Node::new(move |path| thief.answer(path)).await
    }
}

/// The thief puts a document of another key into the map, without an operation.
#[tokio::test]
async fn a_false_map_in_the_log_is_named_and_refused() {
    let errors = log::lines(Level::ERROR);
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holders: Vec<_> = (1..40).map(|number| place.holder(number)).collect();
    place.submit(&registry, holders.iter_mut().map(|holder| holder.next()).collect());
    let size = registry.snapshot().size();
    let thief = Thief::default();
    *thief.entries.lock().unwrap() = registry.entries(0, size).unwrap();
    thief.sign(&place);
    let node = thief.node().await;
    let running = Running::start(&place, "watch", &node.url(), node.connector.clone()).await;
    let honest = thief.note.lock().unwrap().clone();
    let (status, line) = loop {
        let answer = running.post(format!("old {size}\n\n{honest}")).await;
        if answer.0 != 409 {
            break answer;
        }
    };
    assert!(status == 200 && line.starts_with("\u{2014} watch.example/1 "), "{status}: {line}");

    // One more operation, and a map in which another DID has another document.
    let victim = &holders[7];
    let hasher = Hasher(place.provider.sha256);
    let operation = place.holder(90).next();
    let forged = victim.other_document();
    let did = victim.state().did().clone();
    registry.submit(operation.clone()).unwrap();
    let text = forged.canonical().to_owned();
    let document = Sha256Hash::of(&place.provider, text.as_bytes()).unwrap();
    let leaf = MapLeaf { document, sequence: 1, active: true };
    let map = registry.snapshot().map().with(hasher, map_key(&place.provider, &did).unwrap(), leaf).unwrap();
    let number = size + 1;
    thief.entries.lock().unwrap().push(operation.canonical().unwrap().into_bytes());
    thief.entries.lock().unwrap().push(root_entry(&map.root(hasher)));
    let (signed, tree) = thief.sign(&place);
    let path = tree.inclusion(hasher, number, number + 1).unwrap();
    let prove = |map: &StateMap, did: &Did| StateProof {
        map: map.prove(&map_key(&place.provider, did).unwrap()),
        path: path.clone(),
    };
    *thief.states.lock().unwrap() = holders
        .iter()
        .map(|holder| {
            let own = holder.state().did();
            let document = if *own == did { &text } else { holder.state().document().canonical() };
            (own.clone(), document.to_owned(), prove(&map, own))
        })
        .collect();
    // Without a request, the watch sees it at the next refresh.
    let told = loop {
        match errors.try_iter().find(|line| line.contains(did.as_str())) {
            Some(line) => break line,
            None => tokio::task::yield_now().await,
        }
    };
    let named = format!("the entry {number} of {ORIGIN} does not follow from the entries before it: {did}: ");
    assert!(told.contains(&named), "{told}");
    let proof: String = tree
        .consistency(hasher, size, number + 1)
        .unwrap()
        .iter()
        .map(|hash| format!("{}\n", Base64::encode_string(hash)))
        .collect();
    let (status, why) = running.post(format!("old {size}\n{proof}\n{signed}")).await;
    assert_eq!((status, why.contains(&named)), (422, true), "{why}");

    // A verifier that demands the watch's key lets the thief in nowhere.
    let staple = dunlin_identity::transparency::Staple {
        document: text.into_bytes(),
        checkpoint: signed.to_string().into_bytes(),
        proof: prove(&map, &did).write(),
        membership: Vec::new(),
    };
    let unwatched = CheckpointError::Unwatched { found: 0, needed: 1 };
    let refused = staple.verify(&place.provider, &did, &trust(&place), None, NOW);
    assert_eq!(refused, Err(StapleError::Checkpoint(unwatched)));
    let [log, witness] = signers(&place).map(|signer| signer.key().clone());
    let without = RegistryTrust::new(log, vec![witness]).unwrap();
    assert!(staple.verify(&place.provider, &did, &without, None, NOW).is_ok());

    // A registry that shows no states leaves those that have changed.
    thief.states.lock().unwrap().clear();
    let (_, why) = running.post(format!("old {size}\n{proof}\n{signed}")).await;
    assert!(why.contains(&format!("the entry {number}")) && why.contains(operation.did().as_str()), "{why}");
    running.end().await;
}

#[tokio::test]
async fn false_entries_of_every_kind_are_named() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    let hasher = Hasher(place.provider.sha256);
    registry.submit(holder.next()).unwrap();
    let honest = registry.entries(0, 2).unwrap();
    let did = holder.state().did().clone();
    let create = honest[0].clone();
    let mut ahead = holder.clone();
    ahead.next();
    let gap = ahead.next().canonical().unwrap().into_bytes();
    let update = String::from_utf8(holder.next().canonical().unwrap().into()).unwrap();
    let forged = update.replace("\"sequence\":1", "\"sequence\":2").into_bytes();
    let root = root_entry(&registry.snapshot().map().root(hasher));
    for (place_number, (entries, number, why)) in (0..).zip([
        (vec![gap, root.clone()], 2, "sequence number 2 instead of 1"),
        (vec![forged, root.clone()], 2, "sequence number 2 instead of 1"),
        (vec![create, root.clone()], 2, "the log has it already"),
        (vec![format!("{update} ").into_bytes(), root.clone()], 2, "not in canonical form"),
        (vec![b"{}".to_vec(), root.clone()], 2, "missing or malformed member"),
        (vec![root_entry(&[7; 32])], 2, "another state map"),
        // The log must end with a root.
        (vec![update.clone().into_bytes()], 2, "does not end with the root"),
    ]) {
        let thief = Thief::default();
        *thief.entries.lock().unwrap() = [honest.clone(), entries].concat();
        let (signed, _) = thief.sign(&place);
        let node = thief.node().await;
        let name = format!("watch-{place_number}");
        let running = Running::start(&place, &name, &node.url(), node.connector.clone()).await;
        let (status, text) = running.post(format!("old 0\n\n{signed}")).await;
        let named = format!("the entry {number} of {ORIGIN} does not follow");
        assert!(status == 422 && text.contains(&named) && text.contains(why), "{status}: {text}");
        let names_a_did =
            text.contains(did.as_str()) || text.contains("no DID") || text.contains("unknown DIDs");
        assert!(names_a_did || text.contains("does not show"), "{text}");
        running.end().await;
        // Nothing of it is kept.
        let found = audit(&place.provider, &place.path(&name), Log::Replicated(ORIGIN), &[]).unwrap();
        assert_eq!(found.checkpoint.size, 0);
    }
}

#[tokio::test]
async fn other_histories_and_strangers_are_refused() {
    let site = watched().await;
    let place = &site.place;
    let registry = &site.registry;
    place.submit(registry, (0..5).map(|number| place.holder(number).next()).collect());
    let running = Running::start(place, "watch", &site.url(), site.connector()).await;
    let mut client = running.client();
    cosigned(registry, &mut client).await;
    let size = registry.snapshot().size();
    let note = registry.snapshot().text().to_owned();
    let (_, text) = running.post(format!("old 0\n\n{note}")).await;
    assert_eq!(text, format!("{size}\n"));
    for body in ["", "old\n\n", "old x\n\n", "new 1\n\n", "old 0\nxx\n\n"] {
        assert_eq!(running.post(format!("{body}{note}")).await.0, 400, "{body}");
    }
    assert_eq!(running.post(format!("old {}\n\n{note}", size + 1)).await.0, 400);
    // A checkpoint that the registry has not signed.
    let forged = note.replacen(&format!("\n{size}\n"), &format!("\n{}\n", size + 1), 1);
    assert_eq!(running.post(format!("old {size}\n\n{forged}")).await.0, 403);

    // Another history with the same key.
    Registry::create(&place.path("second"), &place.settings()).unwrap();
    let second = Registry::open(&place.path("second"), &place.settings()).unwrap();
    place.submit(&second, (0..5).map(|number| place.holder(100 + number).next()).collect());
    assert_eq!(second.snapshot().size(), size);
    let (status, text) = running.post(format!("old {size}\n\n{}", second.snapshot().text())).await;
    assert!(status == 422 && text.contains("another history"), "{status}: {text}");
    place.submit(&second, vec![place.holder(200).next()]);
    let refused = running.client().ask(&second, &second.snapshot()).await;
    assert_eq!(refused, Err(WitnessError::Refused(422)));
    running.end().await;
}

/// The files with the evidence of a watch.
fn evidence(place: &RegistryDirectory) -> Vec<PathBuf> {
    let files = place.path("").read_dir().unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("evidence-")).collect()
}

/// The registry shows another history, which is larger than the verified one.
#[tokio::test]
async fn a_larger_history_is_named_and_kept_as_evidence_and_never_cosigned() {
    let place = RegistryDirectory::new();
    let first = place.open().unwrap();
    Registry::create(&place.path("second"), &place.settings()).unwrap();
    let second = Registry::open(&place.path("second"), &place.settings()).unwrap();
    let common = place.holder(1).next();
    for registry in [&first, &second] {
        place.submit(registry, vec![common.clone()]);
    }
    place.submit(&first, vec![place.holder(2).next()]);
    place.submit(&second, (3..300).map(|number| place.holder(number).next()).collect());
    let thief = Thief::default();
    let serve = |registry: &Registry| {
        let size = registry.snapshot().size();
        let mut entries = registry.entries(0, size.min(256)).unwrap();
        entries.extend(registry.entries(256, size.max(256)).unwrap());
        *thief.entries.lock().unwrap() = entries;
        (size, thief.sign(&place).0.to_string())
    };
    let (size, honest) = serve(&first);
    let node = thief.node().await;
    let running = Running::start(&place, "watch", &node.url(), node.connector.clone()).await;
    let cosigned = async |running: &Running| loop {
        let answer = running.post(format!("old {size}\n\n{honest}")).await;
        if answer.0 != 409 && answer.0 != 503 {
            break answer.0;
        }
    };
    assert_eq!(cosigned(&running).await, 200);
    let (other_size, other) = serve(&second);
    assert!(other_size > size && evidence(&place).is_empty());
    let named = format!(
        "another history of {other_size} entries, which parts from the one that this watch has verified at the entry 2"
    );
    let found = async || {
        let begin = Instant::now();
        while evidence(&place).is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(60), "no evidence");
            tokio::task::yield_now().await;
        }
        let [path] = &evidence(&place)[..] else { panic!("several files for one checkpoint") };
        let kept = std::fs::read_to_string(path).unwrap();
        for part in [&named, &honest, &other] {
            assert!(kept.contains(part), "{part} is not in {kept}");
        }
        std::fs::remove_file(path).unwrap();
    };
    found().await;
    // Neither with a proof nor without one, and not after a restart.
    for body in [format!("old 0\n\n{other}"), format!("old {size}\n\n{other}")] {
        let (status, text) = running.post(body).await;
        assert!([409, 422].contains(&status), "{status}: {text}");
    }
    running.end().await;
    let running = Running::start(&place, "watch", &node.url(), node.connector.clone()).await;
    found().await;
    assert_eq!(cosigned(&running).await, 200);
    running.end().await;
}

/// The registry shows the new entries of a false log, but not those before them. Its watch does not ask for
/// these in every period.
#[tokio::test]
async fn a_log_that_is_shown_in_part_is_examined_once_in_a_while() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    place.submit(&registry, (0..257).map(|number| place.holder(number).next()).collect());
    let size = registry.snapshot().size();
    let thief = Thief::default();
    let mut entries = registry.entries(0, 256).unwrap();
    entries.extend(registry.entries(256, size).unwrap());
    *thief.entries.lock().unwrap() = entries;
    let honest = thief.sign(&place).0;
    // How often the watch has asked for the checkpoint and for the first bundle, once the registry is false.
    let is_false = Arc::new(AtomicBool::new(false));
    let counts = Arc::new(Mutex::new([0, 0]));
    let node = {
        let thief = thief.clone();
        let is_false = is_false.clone();
        let counts = counts.clone();
        let first = format!("/{}", Tile::new(TileKind::Entries, 0, 256).unwrap());
        Node::new(move |path| {
            if !is_false.load(Ordering::Relaxed) {
                return thief.answer(path);
            }
            let [checkpoints, bundles] = &mut *counts.lock().unwrap();
            *checkpoints += u32::from(path == "/checkpoint");
            *bundles += u32::from(path == first);
            if path == first { (404, vec![]) } else { thief.answer(path) }
        })
        .await
    };
    let running = Running::start(&place, "watch", &node.url(), node.connector.clone()).await;
    let begin = Instant::now();
    while running.post(format!("old {size}\n\n{honest}")).await.0 != 200 {
        assert!(begin.elapsed() < Duration::from_secs(60), "the watch does not sign");
    }
    is_false.store(true, Ordering::Relaxed);
    {
        let mut entries = thief.entries.lock().unwrap();
        entries[0] = b"another".to_vec();
        entries.push(b"new".to_vec());
    }
    thief.sign(&place);
    let examined = loop {
        let [checkpoints, bundles] = *counts.lock().unwrap();
        // The third examination would begin by now.
        if bundles > 0 && checkpoints >= 5 {
            break bundles;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the watch asks no more");
        tokio::task::yield_now().await;
    };
    assert_eq!(examined, 1);
    running.end().await;
}

/// Bundles have entries of up to 65,535 bytes, and honest ones of 20 KiB.
#[tokio::test]
async fn a_false_entry_in_the_largest_bundle_is_named_and_kept_as_evidence() {
    let place = RegistryDirectory::new();
    let thief = Thief::default();
    *thief.entries.lock().unwrap() = vec![vec![b'x'; usize::from(u16::MAX)]; 256];
    let (signed, _) = thief.sign(&place);
    let node = thief.node().await;
    let running = Running::start(&place, "watch", &node.url(), node.connector.clone()).await;
    let begin = Instant::now();
    let (status, text) = loop {
        let answer = running.post(format!("old 0\n\n{signed}")).await;
        if answer.0 != 503 {
            break answer;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the watch names nothing");
    };
    assert!(status == 422 && text.contains(&format!("the entry 0 of {ORIGIN}")), "{status}: {text}");
    let [path] = &evidence(&place)[..] else { panic!("not one file") };
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(kept.contains(text.trim_end()) && kept.contains(&signed.to_string()), "{kept}");
    running.end().await;
}

/// The registry replaces its key while the watch runs.
#[tokio::test]
async fn a_registry_signs_with_an_old_and_a_new_key_and_its_witnesses_go_on() {
    let place = RegistryDirectory::new();
    let next_key = Some(key(&place.provider, [9, 9, 9]));
    let only_next = Settings { key: next_key.clone().unwrap(), ..place.settings() };
    let mut holder = place.holder(1);
    place.open().unwrap().submit(holder.next()).unwrap();
    // The next key alone is another registry's.
    let refused = Registry::open(&place.path("registry"), &only_next).unwrap_err();
    assert!(matches!(refused, RegistryError::OtherKey { .. }), "{refused}");

    let both = Settings { next_key, ..place.settings() };
    let registry = Registry::open(&place.path("registry"), &both).unwrap();
    let keys = [registry.keys().clone(), registry.next_keys().unwrap().clone()];
    let trusts =
        keys.each_ref().map(|[log, own]| RegistryTrust::new(log.clone(), vec![own.clone()]).unwrap());
    registry.submit(holder.next()).unwrap();
    let (did, verifies) = (holder.state().did().clone(), |registry: &Registry, trust: &RegistryTrust| {
        let staple = registry.resolve(holder.state().did()).unwrap().staple().unwrap();
        staple.verify(&place.provider, holder.state().did(), trust, None, NOW).is_ok()
    });
    assert_eq!(trusts.each_ref().map(|trust| verifies(&registry, trust)), [true, true]);
    let size = registry.snapshot().size();
    drop(registry);

    // The old key has gone.
    let registry = Registry::open(&place.path("registry"), &only_next).unwrap();
    registry.submit(place.holder(2).next()).unwrap();
    assert_eq!(trusts.each_ref().map(|trust| verifies(&registry, trust)), [false, true]);
    assert!(registry.snapshot().size() > size && registry.resolve(&did).unwrap().state.is_some());
    drop(registry);
    // The newest checkpoint is not signed with it any more.
    assert!(matches!(place.open(), Err(RegistryError::Damaged(_) | RegistryError::OtherKey { .. })));
    let logs = [keys[1][0].clone()];
    assert!(audit(&place.provider, &place.path("registry"), Log::Signed(&logs), &[]).is_ok());
}
