//! The client of a registry: the answers that it believes, and its refusals of false nodes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;
mod node;
mod site;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64ct::{Base64, Encoding};
use common::{NOW, RegistryDirectory};
use dunlin::crypto::SigningKey;
use dunlin::wire::SignatureScheme;
use dunlin_identity::encoding::protobuf::MessageWriter;
use dunlin_identity::handshake::{RegistryDocuments, ResolveError, Resolver};
use dunlin_identity::key::{PublicKey, sign};
use dunlin_identity::transparency::{
    Chain, ChainTrust, Checkpoint, CheckpointError, DEFAULT_CHECKPOINT_AGE, Hasher, LightBlock, MapError,
    MapLeaf, MerkleError, NodeHash, Nodes, NoteError, NoteKeyKind, NoteSigner, RegistryTrust,
    SignedCheckpoint, Staple, StapleError, StateMap, StateProof, Tree, ValidatorSet, map_key, root_entry,
};
use dunlin_identity::{Did, Sha256Hash};
use dunlin_registry::Registry;
use dunlin_registry::client::{ClientError, RegistryClient};
use dunlin_registry::server::Limits;
use dunlin_tokio::TlsConnector;
use dunlin_tokio::https::{HttpsClient, HttpsError};
use node::Node;
use serde_json::json;
use site::{Site, Tls};
use tokio::net::TcpListener;

const NOW_S: i64 = NOW as i64;

/// The trust of the place's verifiers in its registry.
fn trust(place: &RegistryDirectory) -> RegistryTrust {
    let [log, witness] = signers(place).map(|signer| signer.key().clone());
    RegistryTrust::new(log, vec![witness]).unwrap()
}

/// The signers of the place's registry.
fn signers(place: &RegistryDirectory) -> [NoteSigner; 2] {
    let settings = place.settings();
    let signer = |kind| NoteSigner::new(&place.provider, &settings.origin, kind, settings.key.clone());
    [NoteKeyKind::Note, NoteKeyKind::Cosignature].map(|kind| signer(kind).unwrap())
}

/// Two checkpoints that contradict each other.
type Contradictions = Receiver<(SignedCheckpoint, SignedCheckpoint)>;

/// The documents of a verifier of the place's registry, and the contradictions that it reports.
fn reporting(place: &RegistryDirectory) -> (Arc<RegistryDocuments>, Contradictions) {
    let (reports, reported) = channel();
    let documents = RegistryDocuments::new(place.provider.clone(), trust(place));
    let report = move |accepted: &_, other: &_| {
        reports.send((SignedCheckpoint::clone(accepted), SignedCheckpoint::clone(other))).unwrap();
    };
    (Arc::new(documents.with_report(report)), reported)
}

/// A proof, as a registry answers with it.
fn hashes(proof: &[NodeHash]) -> Vec<u8> {
    let hashes: Vec<_> = proof.iter().map(|hash| Base64::encode_string(hash)).collect();
    json!({"hashes": hashes}).to_string().into_bytes()
}

/// A client that knows what `documents` know.
fn knowing(place: &RegistryDirectory, node: &Node, documents: &Arc<RegistryDocuments>) -> RegistryClient {
    let https = HttpsClient::new(node.connector.clone());
    let documents = Arc::clone(documents);
    let client = RegistryClient::new(place.provider.clone(), &node.url(), https, documents);
    client.unwrap().with_clock(|| NOW_S)
}

fn client(place: &RegistryDirectory, url: &str, connector: TlsConnector) -> RegistryClient {
    let documents = Arc::new(RegistryDocuments::new(place.provider.clone(), trust(place)));
    let client = RegistryClient::new(place.provider.clone(), url, HttpsClient::new(connector), documents);
    client.unwrap().with_clock(|| NOW_S)
}

/// A client that knows nothing yet, of a node with these answers.
async fn of_node(
    place: &RegistryDirectory,
    answer: impl Fn(&str) -> (u16, Vec<u8>) + Send + Sync + 'static,
) -> RegistryClient {
    let node = Node::new(answer).await;
    client(place, &node.url(), node.connector.clone())
}

fn proof_error<T: std::fmt::Debug>(result: Result<T, ClientError>) -> StapleError {
    match result {
        Err(ClientError::Proof { url, error }) => {
            assert!(url.starts_with("https://localhost:"), "{url}");
            error
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn operations_are_submitted_and_resolved_with_proofs() {
    let site = Site::new(Limits::default()).await;
    let client = client(&site.place, &(site.url() + "/"), site.connector());
    let mut holder = site.place.holder(1);
    for sequence in 0..3 {
        let operation = holder.next();
        for _ in 0..2 {
            assert_eq!(client.submit(&operation).await.unwrap().number, 2 * sequence);
        }
        let (staple, resolved) = client.resolve(holder.state().did()).await.unwrap();
        assert_eq!((&resolved.document, resolved.sequence), (holder.state().document(), sequence));
        assert_eq!(staple.document, holder.state().document().canonical().as_bytes());
        assert_eq!(client.documents().newest().unwrap().checkpoint().size, 2 * sequence + 2);
        // The looked-up document serves later handshakes.
        let known = client.documents().resolve(holder.state().did(), None, NOW_S).unwrap();
        assert_eq!((&known.document, known.sequence), (holder.state().document(), sequence));
        assert_eq!(known.until, Some(NOW_S + i64::try_from(DEFAULT_CHECKPOINT_AGE).unwrap()));
    }
    assert_eq!(client.checkpoint().await.unwrap().checkpoint.checkpoint().size, 6);

    let did = holder.state().did().clone();
    client.submit(&holder.deactivate()).await.unwrap();
    assert_eq!(proof_error(client.resolve(&did).await), StapleError::Deactivated(did.clone()));
    let known = client.documents().resolve(&did, None, NOW_S);
    assert_eq!(known, Err(ResolveError::Deactivated(did)));
}

#[tokio::test]
async fn refusals_of_the_registry_name_it_and_the_reason() {
    let site = Site::new(Limits::default()).await;
    let client = client(&site.place, &site.url(), site.connector());
    let (mut holder, mut other) = (site.place.holder(1), site.place.holder(2));
    client.submit(&holder.next()).await.unwrap();
    holder.next();
    let refused = client.submit(&holder.next()).await.unwrap_err();
    let ClientError::Refused { url, status: 409, why } = &refused else { panic!("{refused}") };
    assert!(url.starts_with(&site.url()) && why.contains("sequence number 2 instead of 1"), "{refused}");

    other.next();
    let did = other.state().did().clone();
    assert_eq!(client.resolve(&did).await.unwrap_err(), ClientError::Absent { url: site.url(), did });
}

#[tokio::test]
async fn plain_http_is_refused() {
    let place = RegistryDirectory::new();
    let tls = Tls::new();
    for url in ["http://localhost:1", "localhost:1", "https://localhost:1/?a", "https://user@localhost:1"] {
        let documents = Arc::new(RegistryDocuments::new(place.provider.clone(), trust(&place)));
        let https = HttpsClient::new(tls.connector.clone());
        let refused = RegistryClient::new(place.provider.clone(), url, https, documents).unwrap_err();
        assert_eq!(refused, HttpsError::Url(url.to_owned()));
    }
}

#[tokio::test]
async fn an_unreachable_registry_is_named() {
    let site = Site::new(Limits::default()).await;
    let place = RegistryDirectory::new();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let refused = client(&place, &format!("https://localhost:{port}"), site.connector()).checkpoint().await;
    let Err(ClientError::Https(HttpsError::Unreachable { address, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(address, format!("localhost:{port}"));

    // A server with a certificate by another authority.
    let refused = client(&place, &site.url(), Tls::new().connector).checkpoint().await;
    let Err(ClientError::Https(HttpsError::Tls { address, .. })) = refused else { panic!("{refused:?}") };
    assert_eq!(address, format!("localhost:{}", site.address.port()));
}

/// The clock of this test advances as soon as nothing else happens.
#[tokio::test(start_paused = true)]
async fn a_silent_registry_is_left_at_the_deadline() {
    let place = RegistryDirectory::new();
    let tls = Tls::new();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", silent.local_addr().unwrap().port());
    let documents = Arc::new(RegistryDocuments::new(place.provider.clone(), trust(&place)));
    let https = HttpsClient::new(tls.connector).with_deadline(Duration::from_secs(5));
    let client = RegistryClient::new(place.provider.clone(), &url, https, documents).unwrap();
    let refused = client.checkpoint().await.unwrap_err();
    // The deadlines of the request and of the client are the same moment.
    let is_late = matches!(refused, ClientError::Late { .. } | ClientError::Https(HttpsError::Late { .. }));
    let text = refused.to_string();
    assert!(
        is_late && text.contains(&url["https://".len()..]) && text.ends_with("no answer within 5 s"),
        "{text}"
    );
}

#[tokio::test]
async fn answers_that_are_none_of_a_registry_are_refused() {
    let place = RegistryDirectory::new();
    let did = place.holder(1).next().did().clone();
    let client = of_node(&place, |_| (500, b"{\"error\":\"a\\nb\"}".to_vec())).await;
    let refused = client.resolve(&did).await.unwrap_err();
    assert!(refused.to_string().ends_with(": status 500: ab"), "{refused}");
    let client = of_node(&place, |_| (404, b"nothing".to_vec())).await;
    assert!(matches!(client.resolve(&did).await, Err(ClientError::Malformed { what: "no JSON", .. })));
    let client = of_node(&place, |_| (200, vec![b' '; 65 * 1024])).await;
    let refused = client.resolve(&did).await;
    assert!(matches!(refused, Err(ClientError::Https(HttpsError::TooLong { .. }))), "{refused:?}");
    let client = of_node(&place, |_| (200, vec![0; 3])).await;
    assert_eq!(proof_error(client.resolve(&did).await), StapleError::Field("document"));
    let client = of_node(&place, |_| (200, b"{\"hashes\":[],\"number\":0}".to_vec())).await;
    let refused = client.submit(&place.holder(1).next()).await;
    assert!(matches!(refused, Err(ClientError::Malformed { what: "checkpoint", .. })), "{refused:?}");
}

#[tokio::test]
async fn what_a_false_node_forges_is_refused() {
    let place = RegistryDirectory::new();
    let (registry, mut holder, mut other) = (place.open().unwrap(), place.holder(1), place.holder(2));
    let first = holder.next();
    let old_document = holder.state().document().canonical().as_bytes().to_vec();
    place.submit(&registry, vec![first, other.next()]);
    place.submit(&registry, vec![holder.next()]);
    let did = holder.state().did().clone();
    let right = registry.resolve(&did).unwrap().staple().unwrap();
    let others = registry.resolve(other.state().did()).unwrap().staple().unwrap();

    let text = String::from_utf8(right.checkpoint.clone()).unwrap();
    let forged_text = text.replacen("\n6\n", "\n7\n", 1);
    let elsewhere = RegistryDirectory::new();
    let settings = dunlin_registry::Settings { origin: "other.example".into(), ..elsewhere.settings() };
    Registry::create(&elsewhere.path("other"), &settings).unwrap();
    let elsewhere = Registry::open(&elsewhere.path("other"), &settings).unwrap();
    for (staple, error) in [
        // The document before the rotation, and one that was never in the registry.
        (Staple { document: old_document, ..right.clone() }, StapleError::Map(MapError::Root)),
        (
            Staple { checkpoint: forged_text.into_bytes(), ..right.clone() },
            CheckpointError::from(NoteError::Signature(common::ORIGIN.into())).into(),
        ),
        (
            Staple { checkpoint: elsewhere.snapshot().text().as_bytes().to_vec(), ..right.clone() },
            CheckpointError::OtherRegistry("other.example".into()).into(),
        ),
        (Staple { proof: others.proof.clone(), ..right.clone() }, StapleError::Map(MapError::Root)),
    ] {
        let bytes = staple.write().unwrap();
        let client = of_node(&place, move |_| (200, bytes.clone())).await;
        assert_eq!(proof_error(client.resolve(&did).await), error);
        assert!(client.documents().newest().is_none());
        let known = client.documents().resolve(&did, None, NOW_S);
        assert_eq!(known, Err(ResolveError::NotAtHand(did.clone())));
    }
    // The staple of another DID.
    let bytes = others.write().unwrap();
    let client = of_node(&place, move |_| (200, bytes.clone())).await;
    assert!(matches!(proof_error(client.resolve(&did).await), StapleError::Document(_)));

    // An absence that is none: the proof of another DID that the map does not have.
    let absent = registry.resolve(place.holder(9).next().did()).unwrap();
    let answer =
        json!({"checkpoint": absent.snapshot.text(), "proof": Base64::encode_string(&absent.proof.write())});
    let client = of_node(&place, move |_| (404, answer.to_string().into_bytes())).await;
    let refused = proof_error(client.resolve(&did).await);
    assert!(matches!(refused, StapleError::Map(MapError::Root | MapError::Misplaced)), "{refused}");
}

#[tokio::test]
async fn an_operation_that_the_log_lacks_is_not_acknowledged() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    place.submit(&registry, vec![place.holder(2).next(), place.holder(3).next()]);
    let checkpoint = registry.snapshot().text().to_owned();
    let size = registry.snapshot().size();
    let proof = registry.inclusion(0, size).unwrap();
    let client = of_node(&place, move |path| {
        let answer = match path {
            "/operations" => json!({"number": 0, "checkpoint": checkpoint}),
            _ => json!({"hashes": proof.iter().map(|hash| Base64::encode_string(hash)).collect::<Vec<_>>()}),
        };
        (200, answer.to_string().into_bytes())
    })
    .await;
    let refused = client.submit(&holder.next()).await;
    let Err(ClientError::NotIncluded { url, error: MerkleError::Root }) = refused else {
        panic!("{refused:?}")
    };
    assert!(url.ends_with(&format!("/inclusion?number=0&size={size}")), "{url}");
}

#[tokio::test]
async fn an_old_checkpoint_is_stale_and_none_goes_back() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    place.submit(&registry, vec![holder.next()]);
    let did = holder.state().did().clone();
    let small = registry.resolve(&did).unwrap().staple().unwrap().write().unwrap();
    place.submit(&registry, vec![holder.next()]);
    let large = registry.snapshot().text().as_bytes().to_vec();

    let clock = Arc::new(AtomicI64::new(NOW_S));
    let now = Arc::clone(&clock);
    let hashes = registry.consistency(2, 4).unwrap();
    let client = of_node(&place, move |path| match path {
        "/checkpoint" => (200, large.clone()),
        path if path.starts_with("/consistency") => {
            let hashes: Vec<_> = hashes.iter().map(|hash| Base64::encode_string(hash)).collect();
            (200, json!({"hashes": hashes}).to_string().into_bytes())
        }
        _ => (200, small.clone()),
    })
    .await
    .with_clock(move || now.load(Ordering::Relaxed));
    client.resolve(&did).await.unwrap();
    client.checkpoint().await.unwrap();
    let rollback = CheckpointError::Rollback { offered: 2, accepted: 4 };
    assert_eq!(proof_error(client.resolve(&did).await), rollback.into());

    let age = i64::try_from(DEFAULT_CHECKPOINT_AGE).unwrap();
    clock.store(NOW_S + age, Ordering::Relaxed);
    client.checkpoint().await.unwrap();
    clock.store(NOW_S + age + 1, Ordering::Relaxed);
    let stale = CheckpointError::Stale { found: 0, needed: 1 };
    assert_eq!(proof_error(client.checkpoint().await), stale.into());
}

/// A watch hears an answer in every checkpoint that the registry has signed, and in nothing else.
#[tokio::test]
async fn an_old_checkpoint_is_an_answer_and_an_unsigned_one_is_none() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    place.submit(&registry, vec![holder.next()]);
    let smaller = registry.snapshot().text().to_owned();
    place.submit(&registry, vec![holder.next()]);
    let newest = registry.snapshot().checkpoint().clone();
    let answers = async |status: u16, note: &str, now: i64| {
        let note = note.as_bytes().to_vec();
        let client = of_node(&place, move |_| (status, note.clone())).await.with_clock(move || now);
        assert!(client.documents().accept(&newest, None));
        client.answers().await
    };
    let text = newest.to_string();
    let late = NOW_S + i64::try_from(DEFAULT_CHECKPOINT_AGE).unwrap() + 1;
    for (note, now) in [(&text, NOW_S), (&smaller, NOW_S), (&text, late)] {
        assert_eq!(answers(200, note, now).await, Ok(()));
    }
    let refused = answers(503, &text, NOW_S).await;
    assert!(matches!(refused, Err(ClientError::Refused { status: 503, .. })), "{refused:?}");
    let wrong = CheckpointError::from(NoteError::Signature(common::ORIGIN.into()));
    assert_eq!(proof_error(answers(200, &text.replacen("\n4\n", "\n5\n", 1), NOW_S).await), wrong.into());
    assert!(answers(200, "", NOW_S).await.is_err());
}

/// The registry's key has signed both histories.
#[tokio::test]
async fn two_histories_of_one_registry_are_noticed() {
    let place = RegistryDirectory::new();
    let first = place.open().unwrap();
    place.submit(&first, (0..3).map(|number| place.holder(number).next()).collect());
    Registry::create(&place.path("second"), &place.settings()).unwrap();
    let second = Registry::open(&place.path("second"), &place.settings()).unwrap();
    // Each history has three operations, with a root after the first and the last one.
    let client_of = async |dids: std::ops::Range<u64>| {
        place.submit(&second, dids.map(|number| place.holder(100 + number).next()).collect());
        let note = second.snapshot().text().as_bytes().to_vec();
        let size = second.snapshot().size();
        let old = size.min(5);
        let hashes = second.consistency(old, size).unwrap();
        let client = of_node(&place, move |path| match path {
            "/checkpoint" => (200, note.clone()),
            _ => {
                let hashes: Vec<_> = hashes.iter().map(|hash| Base64::encode_string(hash)).collect();
                (200, json!({"hashes": hashes}).to_string().into_bytes())
            }
        })
        .await;
        assert!(client.documents().accept(first.snapshot().checkpoint(), None));
        client
    };
    let client = client_of(0..3).await;
    assert_eq!(proof_error(client.checkpoint().await), CheckpointError::SplitView { size: 5 }.into());
    let client = client_of(3..4).await;
    let refused = client.checkpoint().await.unwrap_err();
    let ClientError::Inconsistent { url, old: 5, new: 7, error: MerkleError::Root } = &refused else {
        panic!("{refused}");
    };
    assert!(
        url.starts_with("https://localhost:") && refused.to_string().contains("another history"),
        "{refused}"
    );
    assert_eq!(client.documents().newest().unwrap(), *first.snapshot().checkpoint());
}

/// The registry's log continues, but ends with the root of a map that has another document with the same
/// number.
#[tokio::test]
async fn two_documents_with_one_number_are_no_deactivation() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    place.submit(&registry, vec![holder.next()]);
    let other = holder.other_document().canonical().to_owned();
    place.submit(&registry, vec![holder.next()]);
    let did = holder.state().did().clone();
    let right = registry.resolve(&did).unwrap().staple().unwrap().write().unwrap();
    place.submit(&registry, vec![place.holder(2).next()]);

    let (provider, hasher) = (&place.provider, Hasher(place.provider.sha256));
    let document = Sha256Hash::of(provider, other.as_bytes()).unwrap();
    let key = map_key(provider, &did).unwrap();
    let map = StateMap::default().with(hasher, key, MapLeaf { document, sequence: 1, active: true }).unwrap();
    let mut log = Tree::default();
    registry.entries(0, 5).unwrap().iter().for_each(|entry| log.push(hasher, hasher.leaf(entry)));
    log.push(hasher, hasher.leaf(&root_entry(&map.root(hasher))));
    let root = log.root(hasher, 6).unwrap();
    let path = log.inclusion(hasher, 5, 6).unwrap();
    let checkpoint = Checkpoint { root, ..registry.snapshot().checkpoint().checkpoint().clone() };
    assert_eq!(checkpoint.size, 6);
    let forged = SignedCheckpoint::sign(provider, checkpoint, &signers(&place), NOW).unwrap();
    let wrong = Staple {
        document: other.into_bytes(),
        checkpoint: forged.to_string().into_bytes(),
        proof: StateProof { map: map.prove(&key), path }.write(),
        membership: Vec::new(),
    };

    let wrong = wrong.write().unwrap();
    let proof = hashes(&log.consistency(hasher, 4, 6).unwrap());
    let lies = Arc::new(AtomicBool::new(false));
    let is_lying = Arc::clone(&lies);
    let node = Node::new(move |path| {
        let staple = if is_lying.load(Ordering::Relaxed) { &wrong } else { &right };
        (200, if path.ends_with("/staple") { staple.clone() } else { proof.clone() })
    })
    .await;
    let (documents, reported) = reporting(&place);
    let client = knowing(&place, &node, &documents);
    client.resolve(&did).await.unwrap();
    let before = documents.newest().unwrap();
    lies.store(true, Ordering::Relaxed);
    let refused = client.resolve(&did).await.unwrap_err();
    let ClientError::Document { error, .. } = &refused else { panic!("{refused}") };
    assert_eq!(**error, ResolveError::Conflict(did.clone(), 1));
    assert!(refused.to_string().starts_with(&node.url()), "{refused}");
    // Neither the document nor the checkpoint counts, and both checkpoints are reported.
    let known = documents.resolve(&did, None, NOW_S).unwrap();
    assert_eq!(known.document, *holder.state().document());
    assert_eq!(documents.newest().as_ref(), Some(&before));
    assert_eq!(reported.try_iter().collect::<Vec<_>>(), [(before, forged)]);
}

/// A peer shows another history of the same size while the registry answers.
#[tokio::test]
async fn a_second_history_is_noticed_while_an_answer_is_under_way() {
    let place = RegistryDirectory::new();
    let first = place.open().unwrap();
    let mut holder = place.holder(1);
    Registry::create(&place.path("second"), &place.settings()).unwrap();
    let second = Registry::open(&place.path("second"), &place.settings()).unwrap();
    let creation = holder.next();
    place.submit(&first, vec![creation.clone()]);
    place.submit(&second, vec![creation]);
    let did = holder.state().did().clone();
    let begin = first.snapshot().checkpoint().clone();
    place.submit(&first, vec![place.holder(2).next()]);
    place.submit(&second, vec![place.holder(3).next()]);
    let staple = first.resolve(&did).unwrap().staple().unwrap().write().unwrap();
    let [one, other] = [&first, &second].map(|registry| registry.snapshot().checkpoint().clone());

    for is_checkpoint in [false, true] {
        let (documents, reported) = reporting(&place);
        assert!(documents.accept(&begin, None));
        let staple = staple.clone();
        let note = one.to_string();
        let proof = hashes(&first.consistency(2, 4).unwrap());
        let begin = begin.clone();
        let other_of_peer = other.clone();
        let learning = Arc::clone(&documents);
        let node = Node::new(move |path| match path {
            "/checkpoint" => (200, note.clone().into_bytes()),
            path if path.ends_with("/staple") => (200, staple.clone()),
            _ => {
                learning.accept(&other_of_peer, Some(&begin));
                (200, proof.clone())
            }
        })
        .await;
        let client = knowing(&place, &node, &documents);
        let refused = if is_checkpoint {
            proof_error(client.checkpoint().await)
        } else {
            proof_error(client.resolve(&did).await)
        };
        assert_eq!(refused, CheckpointError::SplitView { size: 4 }.into());
        assert_eq!(documents.resolve(&did, None, NOW_S), Err(ResolveError::NotAtHand(did.clone())));
        assert_eq!(reported.try_iter().collect::<Vec<_>>(), [(other.clone(), one.clone())]);
    }
}

/// The evidence is not lost if it comes in a handshake.
#[test]
fn a_staple_of_a_second_history_is_reported() {
    let place = RegistryDirectory::new();
    let first = place.open().unwrap();
    let mut holder = place.holder(1);
    Registry::create(&place.path("second"), &place.settings()).unwrap();
    let second = Registry::open(&place.path("second"), &place.settings()).unwrap();
    place.submit(&first, vec![place.holder(2).next()]);
    place.submit(&second, vec![holder.next()]);
    let did = holder.state().did().clone();
    let staple = second.resolve(&did).unwrap().staple().unwrap().write().unwrap();
    let [one, other] = [&first, &second].map(|registry| registry.snapshot().checkpoint().clone());
    let (documents, reported) = reporting(&place);
    assert!(documents.accept(&one, None));
    let refused = documents.resolve(&did, Some(&staple), NOW_S);
    let split = CheckpointError::SplitView { size: 2 };
    assert_eq!(refused, Err(ResolveError::Proof(split.into())));
    assert_eq!(reported.try_iter().collect::<Vec<_>>(), [(one, other)]);
}

#[tokio::test]
async fn the_next_node_is_asked_if_one_has_no_proven_answer() {
    let site = Site::new(Limits::default()).await;
    let mut holder = site.place.holder(1);
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let dead = format!("https://localhost:{port}");
    let client = client(&site.place, &dead, site.connector()).with_node(&site.url()).unwrap();
    client.submit(&holder.next()).await.unwrap();
    let did = holder.state().did().clone();
    assert_eq!(client.resolve(&did).await.unwrap().1.document, *holder.state().document());
    assert_eq!(client.checkpoint().await.unwrap().checkpoint.checkpoint().size, 2);

    // The errors of all nodes are there; a proven absence needs no further node.
    let client = client.with_node("https://localhost:1").unwrap();
    let mut stranger = site.place.holder(2);
    stranger.next();
    let refused = client.submit(&stranger.next()).await.unwrap_err();
    let ClientError::Nodes(each) = &refused else { panic!("{refused}") };
    let [first, second, third] = each.as_slice() else { panic!("{refused}") };
    assert!(matches!(first, ClientError::Https(HttpsError::Unreachable { .. })), "{first}");
    assert!(matches!(second, ClientError::Refused { status: 409, .. }), "{second}");
    assert!(matches!(third, ClientError::Https(HttpsError::Unreachable { .. })), "{third}");
    assert!(refused.to_string().contains(&format!("{first}; {second}; {third}")), "{refused}");
    let did = stranger.state().did().clone();
    assert_eq!(client.resolve(&did).await.unwrap_err(), ClientError::Absent { url: site.url(), did });
    assert_eq!(client.with_node("http://a").unwrap_err(), HttpsError::Url("http://a".into()));
}

/// The answers of an honest node about a DID, at this moment.
fn answers(registry: &Registry, did: &Did) -> impl Fn(&str) -> (u16, Vec<u8>) + Send + Sync + use<> {
    let state = registry.resolve(did).unwrap();
    let note = state.snapshot.text().to_owned();
    let size = state.snapshot.size();
    let absence = json!({"checkpoint": note, "proof": Base64::encode_string(&state.proof.write())});
    let staple = state.staple().map(|staple| staple.write().unwrap());
    let proofs: Vec<_> = (1..size).map(|old| hashes(&registry.consistency(old, size).unwrap())).collect();
    move |path| match (path.split_once("?old="), &staple) {
        (Some((_, sizes)), _) => {
            let old: usize = sizes.split('&').next().unwrap().parse().unwrap();
            (200, proofs.get(old - 1).cloned().unwrap_or_default())
        }
        (None, _) if path == "/checkpoint" => (200, note.clone().into_bytes()),
        (None, Some(staple)) => (200, staple.clone()),
        (None, None) => (404, absence.to_string().into_bytes()),
    }
}

/// A stuck node, or one that hides a rotation or a creation on purpose, comes first.
#[tokio::test]
async fn a_new_client_believes_no_single_node_that_nothing_has_changed() {
    let place = RegistryDirectory::new();
    let (registry, mut holder, mut later) = (place.open().unwrap(), place.holder(1), place.holder(2));
    place.submit(&registry, vec![holder.next()]);
    let creation = later.next();
    let dids = [&holder, &later].map(|holder| holder.state().did().clone());
    let old = dids.each_ref().map(|did| answers(&registry, did));
    place.submit(&registry, vec![holder.next(), creation]);
    let new = dids.each_ref().map(|did| answers(&registry, did));
    for (((did, old), new), sequence) in dids.iter().zip(old).zip(new).zip([1, 0]) {
        let stuck = Node::new(old).await;
        let honest = stuck.beside(new).await;
        let alone = client(&place, &stuck.url(), stuck.connector.clone());
        let believed = alone.resolve(did).await.map(|(_, resolved)| resolved.sequence);
        assert!(matches!(believed, Ok(0) | Err(ClientError::Absent { .. })), "{believed:?}");
        for nodes in [[&stuck, &honest], [&honest, &stuck]] {
            let client = client(&place, &nodes[0].url(), stuck.connector.clone());
            let client = client.with_node(&nodes[1].url()).unwrap();
            assert_eq!(client.resolve(did).await.unwrap().1.sequence, sequence);
        }
    }
}

/// A slow node that is honest has nearly half of the time to say what a stuck one hides.
#[tokio::test(start_paused = true)]
async fn a_survey_waits_for_slow_nodes() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    place.submit(&registry, vec![holder.next()]);
    let did = holder.state().did().clone();
    let old = answers(&registry, &did);
    place.submit(&registry, vec![holder.next()]);
    let stuck = Node::new(old).await;
    let delay = HttpsClient::new(stuck.connector.clone()).deadline() * 2 / 5;
    let honest = stuck.slow_beside(delay, answers(&registry, &did)).await;
    let client = client(&place, &stuck.url(), stuck.connector.clone());
    let client = client.with_node(&honest.url()).unwrap();
    assert_eq!(client.resolve(&did).await.unwrap().1.sequence, 1);
}

#[tokio::test]
async fn the_node_that_has_answered_last_is_asked_first() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    place.submit(&registry, vec![holder.next()]);
    let did = holder.state().did().clone();
    let asked = Arc::new(AtomicI64::new(0));
    let counted = Arc::clone(&asked);
    let broken = Node::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        (500, Vec::new())
    })
    .await;
    let honest = broken.beside(answers(&registry, &did)).await;
    let client = client(&place, &broken.url(), broken.connector.clone()).with_node(&honest.url()).unwrap();
    // Once for its checkpoint, once for the DID; the next look-ups go to the other one at once.
    for _ in 0..3 {
        client.resolve(&did).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}

/// A block by one validator with this key, whose header has the hash of a checkpoint's text.
fn block(
    place: &RegistryDirectory,
    chain: &Chain,
    text: &str,
    key: &dyn SigningKey,
    height: u64,
) -> LightBlock {
    let new = MessageWriter::default;
    let hasher = Hasher(place.provider.sha256);
    let public = PublicKey::from_spki(key.public_key()).unwrap();
    let set = ValidatorSet::new(vec![(public.clone(), 10)]).unwrap().hash(hasher).unwrap();
    let state = Sha256Hash::of(&place.provider, text.as_bytes()).unwrap();
    let time = new().number(1, NOW - 100 + height).finish();
    let written = |hash: &[u8], signature: &[u8]| {
        let header =
            new().message(1, &[]).bytes(2, chain.id().as_bytes()).number(3, height).message(4, &time);
        let header =
            header.message(5, &[]).bytes(8, &set).bytes(9, &set).bytes(11, state.as_bytes()).finish();
        let vote = new().number(1, 2).message(3, &time).bytes(4, signature).finish();
        let id = new().bytes(1, hash).finish();
        let commit = new().number(1, height).message(3, &id).message(4, &vote).finish();
        let member = new().bytes(1, &public.spki()[12..]).finish();
        let member = new().message(2, &member).number(3, 10).finish();
        let signed = new().message(1, &header).message(2, &commit).finish();
        let written = new().message(1, &signed).message(2, &new().message(1, &member).finish());
        LightBlock::read(&written.finish()).unwrap()
    };
    let hash = written(&[], &[]).hash(hasher).unwrap();
    let vote = written(&hash, &[]).vote(0).unwrap();
    written(&hash, &sign(key, &place.provider, SignatureScheme::ED25519, &vote).unwrap())
}

/// The validators have signed both checkpoints, so one node's wrong proof is no evidence against them.
#[tokio::test]
async fn a_wrong_proof_of_one_node_says_nothing_about_the_validators() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    let key = common::key(&place.provider, [7, 7, 7]);
    let chain = Chain::new(&place.provider, common::ORIGIN, "example-1").unwrap();
    let proven = |height| {
        let text = registry.snapshot().checkpoint().checkpoint().to_string();
        let mut signed = SignedCheckpoint::unsigned(Checkpoint::read(&text).unwrap()).unwrap();
        signed.note_mut().add(chain.line(&block(&place, &chain, &text, &*key, height)));
        signed
    };
    place.submit(&registry, vec![holder.next()]);
    let before = proven(9);
    place.submit(&registry, vec![holder.next()]);
    let did = holder.state().did().clone();
    let staple = registry.resolve(&did).unwrap().staple().unwrap();
    let note = proven(12).to_string().into_bytes();
    let staple = Staple { checkpoint: note.clone(), ..staple }.write().unwrap();
    let answering = |proof: Vec<u8>| {
        let note = note.clone();
        let staple = staple.clone();
        move |path: &str| match path {
            "/checkpoint" => (200, note.clone()),
            path if path.ends_with("/staple") => (200, staple.clone()),
            _ => (200, proof.clone()),
        }
    };
    let lying = Node::new(answering(hashes(&[]))).await;
    let honest = lying.beside(answering(hashes(&registry.consistency(2, 4).unwrap()))).await;

    let validators = vec![(PublicKey::from_spki(key.public_key()).unwrap(), 10)];
    let trust = ChainTrust::new(chain.clone(), ValidatorSet::new(validators).unwrap(), NOW);
    let (reports, reported) = channel();
    let documents = RegistryDocuments::new(place.provider.clone(), RegistryTrust::replicated(trust));
    let documents = Arc::new(documents.with_report(move |_, _| reports.send(()).unwrap()));
    assert!(documents.accept(&before, None));
    let refused = knowing(&place, &lying, &documents).resolve(&did).await.unwrap_err();
    assert!(matches!(refused, ClientError::NotContinued { old: 2, new: 4, .. }), "{refused}");
    assert_eq!(documents.newest(), Some(before));
    let both = knowing(&place, &lying, &documents).with_node(&honest.url()).unwrap();
    assert_eq!(both.resolve(&did).await.unwrap().1.sequence, 1);
    assert_eq!(reported.try_iter().count(), 0);
}
