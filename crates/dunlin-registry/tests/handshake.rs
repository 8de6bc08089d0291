//! Handshakes in which the documents of peers come from a registry: proofs that peers send along, look-ups,
//! and every refusal with its alert.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;
mod hub;
mod node;
mod site;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use base64ct::{Base64, Encoding};
use common::{Holder, RegistryDirectory};
use dunlin::auth::{Belief, DidProofs, KnownRegistry};
use dunlin::crypto::SigningKey;
use dunlin::wire::{AlertDescription as Alert, SignatureScheme};
use dunlin::{Negotiated, SsiMessages};
use dunlin_identity::handshake::{
    CredentialVerifier, IdentifierVerifier, Judge, RegistryDocuments, Resolver as _, Stapled,
};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::web;
use dunlin_identity::transparency::{DEFAULT_CHECKPOINT_AGE, Staple};
use dunlin_identity::{Did, DidDocument, TrustList};
use dunlin_pki::{KeyPair, KeyType};
use dunlin_registry::Registry;
use dunlin_registry::client::RegistryClient;
use dunlin_registry::lookup::{LookUpError, LookUps, WebDocuments};
use dunlin_registry::server::Limits;
use dunlin_registry::stapler::{Stapler, StaplerError};
use dunlin_tokio::DtlsEndpoint;
use dunlin_tokio::https::HttpsClient;
use hub::{Fixed, Hub, Operator, PATIENCE, bare, fixed, now_s, provider, registry_client, trust};
use node::Node;
use pki_types::CertificateDer;
use serde_json::json;
use site::Site;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{pause, timeout};

/// The reason if a peer does not have the key of the document.
const OTHER_KEY: &str = "the signature over the handshake does not verify";

/// A registry with the time of this machine, and a DID in it.
async fn site_with_did() -> (Site, Holder) {
    let site = Site::at(now_s(), Limits::default()).await;
    let mut holder = site.place.holder(1);
    site.place.submit(&site.registry, vec![holder.next()]);
    (site, holder)
}

/// The URL of a server that does not run.
async fn closed() -> String {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("https://localhost:{}", socket.local_addr().unwrap().port())
}

fn staple(site: &Site, did: &Did) -> Staple {
    site.registry.resolve(did).unwrap().staple().unwrap()
}

#[tokio::test]
async fn a_proof_that_is_sent_along_needs_no_network() {
    let (site, holder) = site_with_did().await;
    let operator = Operator::new();
    let client = registry_client(&site.place, &site.url(), site.connector());
    let key = holder.key(0);
    let document = holder.state().document();
    let public = PublicKey::from_spki(key.public_key()).unwrap();
    let stapler = Arc::new(Stapler::new(client, document.id().clone(), public));
    stapler.refresh().await.unwrap();
    // No server answers there.
    let unreachable = registry_client(&site.place, &closed().await, site.connector());
    let hub = Hub::asking(&operator, &unreachable);
    let own = || operator.shown(document, key.clone(), Some(stapler.clone()));
    for _ in 0..2 {
        let peer = hub.accepts(own()).await;
        assert_eq!((&peer.did, peer.sequence), (document.id(), 0));
    }
    // Without a proof, what was proven before still counts.
    hub.accepts(operator.shown(document, key.clone(), None)).await;
    site.stop().await.unwrap();
    hub.accepts(own()).await;
}

#[tokio::test]
async fn a_document_is_looked_up_once() {
    let (site, holder) = site_with_did().await;
    let operator = Operator::new();
    let document = holder.state().document();
    let client = registry_client(&site.place, &site.url(), site.connector());
    let hub = Hub::asking(&operator, &client);
    let own = || operator.shown(document, holder.key(0), None);
    assert_eq!(&hub.accepts(own()).await.did, document.id());
    site.stop().await.unwrap();
    hub.accepts(own()).await;
}

/// Registries are asked at once: the first one here answers only when the second one has been asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_registry_holds_up_no_other() {
    let (site, holder) = site_with_did().await;
    let did = holder.state().did();
    let proof = staple(&site, did).write().unwrap();
    let (asked, other) = channel();
    let other = Mutex::new(other);
    let slow = Node::new(move |_| {
        let _ = other.lock().unwrap().recv();
        (500, Vec::new())
    });
    let good = Node::new(move |_| {
        let _ = asked.send(());
        (200, proof.clone())
    });
    let clients = [slow.await, good.await].map(|node| {
        let documents = RegistryDocuments::new(provider(), trust(&site.place, DEFAULT_CHECKPOINT_AGE));
        let https = HttpsClient::new(node.connector.clone()).with_deadline(Duration::from_hours(1));
        RegistryClient::new(provider(), &node.url(), https, Arc::new(documents)).unwrap()
    });
    let look_ups = LookUps::new(clients.to_vec(), None);
    timeout(PATIENCE, look_ups.look_up(did)).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_unreachable_registry_refuses_the_peer_and_is_named() {
    let (site, holder) = site_with_did().await;
    let operator = Operator::new();
    let document = holder.state().document();
    let url = closed().await;
    let hub = Hub::asking(&operator, &registry_client(&site.place, &url, site.connector()));
    let address = url.trim_start_matches("https://");
    let why = format!("{} cannot be looked up: {address}: not connected: ", document.id());
    hub.refuses(operator.shown(document, holder.key(0), None), Alert::BAD_CERTIFICATE, &why).await;
    // Others are not delayed, and a proof still suffices.
    hub.accepts(operator.shown(document, holder.key(0), fixed(&staple(&site, document.id())))).await;
    // A peer of an unknown issuer causes no look-up.
    let stranger = Operator::new();
    let unknown = stranger.shown(document, holder.key(0), None);
    hub.refuses(unknown, Alert::UNKNOWN_CA, "is not trusted").await;
}

/// A registry that accepts connections and stays silent delays the handshake that asks it, and no other one
/// at the same endpoint.
async fn a_silent_registry_delays_one_handshake_alone(over_udp: bool) {
    let (site, holder) = site_with_did().await;
    let operator = Operator::new();
    let mut other = site.place.holder(2);
    site.place.submit(&site.registry, vec![other.next()]);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("localhost:{}", silent.local_addr().unwrap().port());
    let documents = Arc::new(RegistryDocuments::new(provider(), trust(&site.place, DEFAULT_CHECKPOINT_AGE)));
    let https = HttpsClient::new(site.connector().with_timeout(2 * PATIENCE)).with_deadline(PATIENCE);
    let client = RegistryClient::new(provider(), &format!("https://{address}"), https, documents).unwrap();
    let hub = Hub::asking(&operator, &client);
    let endpoint = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    endpoint.set_server(Some(hub.config.clone()));
    let meet = async |own| if over_udp { hub.meet_at(&endpoint, own).await } else { hub.meet(own).await };
    let mut waiting = pin!(meet(operator.shown(holder.state().document(), holder.key(0), None)));
    let _asked = tokio::select! {
        ended = &mut waiting => panic!("{ended:?}"),
        asked = silent.accept() => asked.unwrap(),
    };
    let document = other.state().document();
    let own = operator.shown(document, other.key(0), fixed(&staple(&site, document.id())));
    let (server, client) = tokio::select! {
        biased;
        ended = &mut waiting => panic!("{ended:?}"),
        ended = meet(own) => ended,
    };
    client.unwrap();
    assert_eq!(&server.unwrap().did, document.id());
    // From now on the clock advances as soon as nothing else happens.
    pause();
    let why = format!("{address}: no answer within {} s", PATIENCE.as_secs());
    Hub::is_refusal(waiting.await, Alert::BAD_CERTIFICATE, &why);
}

#[tokio::test]
async fn a_silent_registry_delays_one_handshake_alone_over_tcp() {
    a_silent_registry_delays_one_handshake_alone(false).await;
}

#[tokio::test]
async fn a_silent_registry_delays_one_handshake_alone_over_udp() {
    a_silent_registry_delays_one_handshake_alone(true).await;
}

#[tokio::test]
async fn false_proofs_are_refused() {
    let (site, mut holder) = site_with_did().await;
    let operator = Operator::new();
    let old = holder.state().document().clone();
    let before = staple(&site, old.id());
    let mut other = site.place.holder(2);
    site.place.submit(&site.registry, vec![other.next()]);
    let small = staple(&site, other.state().did());
    site.place.submit(&site.registry, vec![holder.next()]);
    let right = staple(&site, old.id());
    let text = String::from_utf8(right.checkpoint.clone()).unwrap();
    let shown = |staple: &Staple| operator.shown(&old, holder.key(0), fixed(staple));
    let forged = Staple { checkpoint: text.replacen("\n6\n", "\n7\n", 1).into_bytes(), ..right.clone() };
    let mixed = Staple { document: before.document.clone(), ..right.clone() };
    let others = Staple { proof: staple(&site, other.state().did()).proof, ..right.clone() };
    for (staple, why) in [
        (forged, "the signature of registry.example/1 is wrong"),
        // A document that was replaced, with the newest proof; and the proof of another DID.
        (mixed, "another root"),
        (others, "another root"),
    ] {
        let hub = Hub::offline(&site.place, &operator);
        hub.refuses(shown(&staple), Alert::BAD_CERTIFICATE, why).await;
    }
    let hub = Hub::offline(&site.place, &operator);
    let malformed: Option<Arc<dyn DidProofs>> = Some(Arc::new(Fixed(vec![0; 5])));
    let own = operator.shown(&old, holder.key(0), malformed);
    hub.refuses(own, Alert::DECODE_ERROR, "proof of a DID: the field document").await;
    // The key before the rotation does not belong to the proven document.
    hub.refuses(shown(&right), Alert::DECRYPT_ERROR, OTHER_KEY).await;
    // This side has seen the larger log, so the proof of the smaller one is too old.
    let own = operator.shown(other.state().document(), other.key(0), fixed(&small));
    let why = "its log has 4 entries, but the registry has already shown 6";
    hub.refuses(own, Alert::CERTIFICATE_EXPIRED, why).await;
}

#[tokio::test]
async fn a_stale_proof_is_refused_or_replaced_by_a_look_up() {
    let (site, holder) = site_with_did().await;
    let operator = Operator::new();
    let document = holder.state().document();
    // The same history, signed a day ago.
    let late = RegistryDirectory::new();
    late.clock.store(now_s() - DEFAULT_CHECKPOINT_AGE - 10, Ordering::Relaxed);
    let registry = late.open().unwrap();
    let mut same = late.holder(1);
    late.submit(&registry, vec![same.next()]);
    let stale = registry.resolve(document.id()).unwrap().staple().unwrap();
    let own = || operator.shown(document, holder.key(0), fixed(&stale));
    let hub = Hub::offline(&site.place, &operator);
    hub.refuses(own(), Alert::CERTIFICATE_EXPIRED, "0 of 1 trusted witnesses have signed it within").await;

    let client = registry_client(&site.place, &site.url(), site.connector());
    Hub::asking(&operator, &client).accepts(own()).await;
    let url = closed().await;
    let hub = Hub::asking(&operator, &registry_client(&site.place, &url, site.connector()));
    hub.refuses(own(), Alert::BAD_CERTIFICATE, "cannot be looked up: localhost:").await;
}

#[tokio::test]
async fn a_rotated_key_and_a_deactivated_did_are_noticed() {
    let (site, mut holder) = site_with_did().await;
    let operator = Operator::new();
    let old = holder.state().document().clone();
    let old_key = holder.key(0);
    let client = registry_client(&site.place, &site.url(), site.connector());
    let hub = Hub::asking(&operator, &client);
    let before = staple(&site, old.id());
    hub.accepts(operator.shown(&old, old_key.clone(), None)).await;

    site.place.submit(&site.registry, vec![holder.next()]);
    let new = holder.state().document().clone();
    let new_key = holder.key(1);
    let proof = fixed(&staple(&site, old.id()));
    let peer = hub.accepts(operator.shown(&new, new_key.clone(), proof.clone())).await;
    assert_eq!(peer.sequence, 1);
    // The previous key with the proof of the new one, without a proof, and with the proof of its own time.
    hub.refuses(operator.shown(&old, old_key.clone(), proof), Alert::DECRYPT_ERROR, OTHER_KEY).await;
    hub.refuses(operator.shown(&old, old_key.clone(), None), Alert::DECRYPT_ERROR, OTHER_KEY).await;
    hub.refuses(operator.shown(&old, old_key, fixed(&before)), Alert::DECRYPT_ERROR, OTHER_KEY).await;

    site.place.submit(&site.registry, vec![holder.deactivate()]);
    let proof = fixed(&staple(&site, old.id()));
    let own = |proof| operator.shown(&new, new_key.clone(), proof);
    let fresh = Hub::asking(&operator, &registry_client(&site.place, &site.url(), site.connector()));
    fresh.refuses(own(None), Alert::CERTIFICATE_REVOKED, "is deactivated").await;
    hub.refuses(own(proof), Alert::CERTIFICATE_REVOKED, "is deactivated").await;
    hub.refuses(own(None), Alert::CERTIFICATE_REVOKED, "is deactivated").await;
}

#[tokio::test]
async fn a_bare_did_is_looked_up_once() {
    let (site, holder) = site_with_did().await;
    let document = holder.state().document();
    let client = registry_client(&site.place, &site.url(), site.connector());
    let hub = Hub::of_dids(&[document.id()], &client);
    let own = || bare(document, holder.key(0), None);
    let peer = hub.accepts(own()).await;
    assert_eq!((&peer.did, peer.sequence), (document.id(), 0));
    // The hub looks up no DID that is not on the list.
    let mut stranger = site.place.holder(2);
    site.place.submit(&site.registry, vec![stranger.next()]);
    site.stop().await.unwrap();
    hub.accepts(own()).await;
    let unknown = bare(stranger.state().document(), stranger.key(0), None);
    hub.refuses(unknown, Alert::UNKNOWN_CA, "is not on the list of trusted DIDs").await;
}

#[tokio::test]
async fn an_unreachable_registry_refuses_a_bare_did() {
    let (site, holder) = site_with_did().await;
    let document = holder.state().document();
    let url = closed().await;
    let hub = Hub::of_dids(&[document.id()], &registry_client(&site.place, &url, site.connector()));
    let address = url.trim_start_matches("https://");
    let why = format!("{} cannot be looked up: {address}: not connected: ", document.id());
    hub.refuses(bare(document, holder.key(0), None), Alert::BAD_CERTIFICATE, &why).await;
    hub.accepts(bare(document, holder.key(0), fixed(&staple(&site, document.id())))).await;
}

#[tokio::test]
async fn stale_and_forged_proofs_of_bare_dids_are_refused() {
    let (site, holder) = site_with_did().await;
    let document = holder.state().document();
    let own = |staple: &Staple| bare(document, holder.key(0), fixed(staple));
    let right = staple(&site, document.id());
    let text = String::from_utf8(right.checkpoint.clone()).unwrap();
    let forged = Staple { checkpoint: text.replacen("\n2\n", "\n3\n", 1).into_bytes(), ..right.clone() };
    let client = registry_client(&site.place, &site.url(), site.connector());
    let hub = Hub::of_dids(&[document.id()], &client);
    let why = "the signature of registry.example/1 is wrong";
    hub.refuses(own(&forged), Alert::BAD_CERTIFICATE, why).await;
    let malformed: Option<Arc<dyn DidProofs>> = Some(Arc::new(Fixed(vec![0; 5])));
    let own_malformed = bare(document, holder.key(0), malformed);
    hub.refuses(own_malformed, Alert::DECODE_ERROR, "proof of a DID: the field document").await;
    // The same history, signed a day ago.
    let late = RegistryDirectory::new();
    late.clock.store(now_s() - DEFAULT_CHECKPOINT_AGE - 10, Ordering::Relaxed);
    let registry = late.open().unwrap();
    late.submit(&registry, vec![late.holder(1).next()]);
    let stale = registry.resolve(document.id()).unwrap().staple().unwrap();
    hub.accepts(own(&stale)).await;
    // Without look-ups, nothing replaces it.
    let documents = RegistryDocuments::new(provider(), trust(&site.place, DEFAULT_CHECKPOINT_AGE));
    let verifier = IdentifierVerifier::new(provider(), TrustList::new([document.id().clone()]));
    let offline = Hub::of(verifier.with_resolver(Arc::new(documents)), SsiMessages::Alone, None);
    let why = "0 of 1 trusted witnesses have signed it within";
    offline.refuses(own(&stale), Alert::CERTIFICATE_EXPIRED, why).await;
}

#[tokio::test]
async fn a_rotated_and_a_deactivated_bare_did_are_noticed() {
    let (site, mut holder) = site_with_did().await;
    let old = holder.state().document().clone();
    let old_key = holder.key(0);
    let client = || registry_client(&site.place, &site.url(), site.connector());
    let hub = Hub::of_dids(&[old.id()], &client());
    hub.accepts(bare(&old, old_key.clone(), None)).await;
    site.place.submit(&site.registry, vec![holder.next()]);
    let new = holder.state().document().clone();
    let new_key = holder.key(1);
    let proof = fixed(&staple(&site, old.id()));
    assert_eq!(hub.accepts(bare(&new, new_key.clone(), proof)).await.sequence, 1);
    hub.refuses(bare(&old, old_key.clone(), None), Alert::DECRYPT_ERROR, "").await;
    // A server that has learnt nothing yet asks the registry.
    Hub::of_dids(&[old.id()], &client()).refuses(bare(&old, old_key, None), Alert::DECRYPT_ERROR, "").await;

    site.place.submit(&site.registry, vec![holder.deactivate()]);
    let fresh = Hub::of_dids(&[old.id()], &client());
    for proof in [None, fixed(&staple(&site, old.id()))] {
        let own = bare(&new, new_key.clone(), proof);
        fresh.refuses(own, Alert::CERTIFICATE_REVOKED, "is deactivated").await;
    }
}

/// The first document of an issuer counts until this side hears that there is another one.
#[tokio::test]
async fn an_issuer_that_has_rotated_its_key_is_noticed() {
    let (site, mut holder) = site_with_did().await;
    let first = holder.state().document().clone();
    let operator = Operator { key: holder.key(0), document: first.clone() };
    let client = registry_client(&site.place, &site.url(), site.connector());
    let look_ups = LookUps::new(vec![client.clone()], None);
    let verifier = CredentialVerifier::new(provider(), [first]).with_resolver(client.documents().clone());
    let entry = [CertificateDer::from(operator.issue(Operator::new().document.id()))];
    let judged =
        || verifier.judge(&entry, Stapled::default(), provider().signatures.all, now_s().try_into().unwrap());
    look_ups.look_up_issuers(&verifier).await;
    assert!(judged().is_ok());
    site.place.submit(&site.registry, vec![holder.next()]);
    assert!(judged().is_ok());
    look_ups.look_up_issuers(&verifier).await;
    let refused = judged().unwrap_err();
    assert_eq!(refused.alert(), Alert::CERTIFICATE_REVOKED, "{refused}");
    assert!(refused.to_string().contains("no longer the latest"), "{refused}");
    // A verifier that is gone causes no look-ups.
    look_ups.watch_issuers(Weak::new()).await;
}

#[tokio::test]
async fn documents_of_did_web_come_over_https() {
    let operator = Operator::new();
    let key = KeyPair::generate(KeyType::P256).unwrap().signing_key(&provider()).unwrap();
    let text = Arc::new(std::sync::RwLock::new(String::new()));
    let served = Arc::clone(&text);
    let node = Node::new(move |path| match path {
        "/.well-known/did.json" => (200, served.read().unwrap().clone().into_bytes()),
        _ => (404, Vec::new()),
    })
    .await;
    let public = PublicKey::from_spki(key.public_key()).unwrap();
    let of = |path: &[&str]| {
        let did = web::create("localhost", node.port, path).unwrap();
        DidDocument::of_key(&did, "key-1", &public).unwrap()
    };
    let document = of(&[]);
    let missing = of(&["elsewhere"]);
    *text.write().unwrap() = document.canonical().to_owned();
    let hub = Hub::of_web(&operator, node.connector.clone());
    let peer = hub.accepts(operator.shown(&document, key.clone(), None)).await;
    assert_eq!(&peer.did, document.id());
    let why = format!("cannot be looked up: {}/elsewhere/did.json: status 404", node.url());
    hub.refuses(operator.shown(&missing, key.clone(), None), Alert::BAD_CERTIFICATE, &why).await;
    // A web server with a document of another DID.
    *text.write().unwrap() = missing.canonical().to_owned();
    let hub = Hub::of_web(&operator, node.connector.clone());
    let why = format!("cannot be looked up: {}/.well-known/did.json: ", node.url());
    hub.refuses(operator.shown(&document, key, None), Alert::BAD_CERTIFICATE, &why).await;
}

/// The verifier knows only the DIDs of its issuers.
#[tokio::test]
async fn issuer_and_holder_are_looked_up_in_one_handshake() {
    let [issuer, holder] =
        [(); 2].map(|()| KeyPair::generate(KeyType::P256).unwrap().signing_key(&provider()).unwrap());
    let served = Arc::new(std::sync::RwLock::new(HashMap::<String, Vec<u8>>::new()));
    let answers = Arc::clone(&served);
    let node = Node::new(move |path| match answers.read().unwrap().get(path) {
        Some(text) => (200, text.clone()),
        None => (404, Vec::new()),
    })
    .await;
    let of = |name: &str, key: &Arc<dyn SigningKey>| {
        let did = web::create("localhost", node.port, &[name]).unwrap();
        DidDocument::of_key(&did, "key-1", &PublicKey::from_spki(key.public_key()).unwrap()).unwrap()
    };
    let of_issuer = of("issuer", &issuer);
    let of_holder = of("holder", &holder);
    let operator = Operator { key: issuer, document: of_issuer.clone() };
    let own = || operator.shown(&of_holder, holder.clone(), None);
    let hub = || {
        let web = WebDocuments::new(provider(), HttpsClient::new(node.connector.clone()));
        let look_ups = LookUps::new(Vec::new(), Some(web));
        let verifier = CredentialVerifier::new(provider(), Vec::<DidDocument>::new());
        let verifier = verifier.with_resolved_issuers([of_issuer.id().clone()]);
        Hub::of(verifier.asking_with(look_ups.resolvers()), SsiMessages::Off, Some(&look_ups))
    };
    let serve = |document: &DidDocument, name: &str| {
        let path = format!("/{name}/did.json");
        served.write().unwrap().insert(path, document.canonical().as_bytes().to_vec());
    };
    let why = |name: &str| format!("cannot be looked up: {}/{name}/did.json: status 404", node.url());
    hub().refuses(own(), Alert::BAD_CERTIFICATE, &why("issuer")).await;
    serve(&of_issuer, "issuer");
    hub().refuses(own(), Alert::BAD_CERTIFICATE, &why("holder")).await;
    serve(&of_holder, "holder");
    // Also after a look-up, the profile says which signatures of issuers count. The document in which the key
    // is says nothing.
    let web = WebDocuments::new(provider(), HttpsClient::new(node.connector.clone()));
    let look_ups = LookUps::new(Vec::new(), Some(web));
    let verifier = CredentialVerifier::new(provider(), Vec::<DidDocument>::new());
    let verifier = verifier.with_resolved_issuers([of_issuer.id().clone()]).asking_with(look_ups.resolvers());
    let strict = Hub::with(verifier, SsiMessages::Off, Some(&look_ups), |profile| {
        profile.certificate_signature_schemes(Some(vec![SignatureScheme::ED25519]))
    });
    for _ in 0..2 {
        strict.refuses(own(), Alert::UNSUPPORTED_CERTIFICATE, "which is not accepted here").await;
    }
    let hub = hub();
    assert_eq!(&hub.accepts(own()).await.did, of_holder.id());
    // Both are at hand now.
    served.write().unwrap().clear();
    hub.accepts(own()).await;
}

/// However many handshakes wait for one DID, one request is under way. A failure serves those who ask at
/// once.
#[tokio::test]
async fn look_ups_of_one_did_are_shared() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let node = Node::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        (404, Vec::new())
    })
    .await;
    let web = WebDocuments::new(provider(), HttpsClient::new(node.connector.clone()));
    let look_ups = LookUps::new(Vec::new(), Some(web));
    let did = web::create("localhost", node.port, &[]).unwrap();
    let all = (0..200).map(|_| {
        let look_ups = look_ups.clone();
        let did = did.clone();
        tokio::spawn(async move { look_ups.look_up(&did).await })
    });
    for one in all.collect::<Vec<_>>() {
        assert!(matches!(one.await.unwrap(), Err(LookUpError::Status { status: 404, .. })));
    }
    assert!(asked.load(Ordering::SeqCst) < 20, "{asked:?}");
    // After a pause, it asks again.
    let before = asked.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1)).await;
    look_ups.look_up(&did).await.unwrap_err();
    assert_eq!(asked.load(Ordering::SeqCst), before + 1);
}

/// The registry's key has signed both histories. The proof of the second one comes along, or the registry
/// answers with it.
#[tokio::test]
async fn a_second_history_is_refused() {
    let (site, holder) = site_with_did().await;
    let operator = Operator::new();
    let first = site.registry.snapshot();
    let place = &site.place;
    Registry::create(&place.path("second"), &place.settings()).unwrap();
    let second = Registry::open(&place.path("second"), &place.settings()).unwrap();
    let mut other = place.holder(2);
    place.submit(&second, vec![other.next()]);
    let document = other.state().document();
    let in_second = || second.resolve(document.id()).unwrap().staple().unwrap();
    let shown = |proofs| operator.shown(document, other.key(0), proofs);
    let hub = Hub::offline(place, &operator);
    let own = fixed(&staple(&site, holder.state().did()));
    hub.accepts(operator.shown(holder.state().document(), holder.key(0), own)).await;
    let why = "the registry has signed two histories of 2 entries";
    hub.refuses(shown(fixed(&in_second())), Alert::BAD_CERTIFICATE, why).await;

    for (dids, why) in [(0..0, why), (0..1, "it may show others another history")] {
        place.submit(&second, dids.map(|number| place.holder(100 + number).next()).collect());
        let size = second.snapshot().size();
        let proof = in_second().write().unwrap();
        let hashes = second.consistency(2, size).unwrap();
        let hashes: Vec<_> = hashes.iter().map(|hash| Base64::encode_string(hash)).collect();
        let node = Node::new(move |path| {
            if path.starts_with("/consistency") {
                (200, json!({"hashes": hashes}).to_string().into_bytes())
            } else {
                (200, proof.clone())
            }
        })
        .await;
        let client = registry_client(place, &node.url(), node.connector.clone());
        assert!(client.documents().accept(first.checkpoint(), None));
        let hub = Hub::asking(&operator, &client);
        hub.refuses(shown(None), Alert::BAD_CERTIFICATE, &format!("cannot be looked up: {}", node.url()))
            .await;
        hub.refuses(shown(None), Alert::BAD_CERTIFICATE, why).await;
    }
}

/// The node has the registry's certificate, but not its key.
#[tokio::test]
async fn a_document_that_a_false_node_forges_is_refused() {
    let (site, holder) = site_with_did().await;
    let operator = Operator::new();
    let forged = holder.other_document();
    let right = staple(&site, forged.id());
    let document = forged.canonical().as_bytes().to_vec();
    let of_document = Staple { document: document.clone(), ..right.clone() };
    let text = String::from_utf8(right.checkpoint).unwrap();
    let checkpoint = text.replacen("\n2\n", "\n3\n", 1).into_bytes();
    let of_checkpoint = Staple { document, checkpoint, proof: right.proof, membership: Vec::new() };
    for (staple, why) in
        [(of_document, "another root"), (of_checkpoint, "the signature of registry.example/1 is wrong")]
    {
        let bytes = staple.write().unwrap();
        let node = Node::new(move |_| (200, bytes.clone())).await;
        let hub = Hub::asking(&operator, &registry_client(&site.place, &node.url(), node.connector.clone()));
        let own = || operator.shown(&forged, holder.key(1), None);
        let asked = format!("{} cannot be looked up: {}", forged.id(), node.url());
        hub.refuses(own(), Alert::BAD_CERTIFICATE, &asked).await;
        hub.refuses(own(), Alert::BAD_CERTIFICATE, why).await;
    }
}

/// A registry or web server without TLS, and one that redirects to such a server.
#[tokio::test]
async fn documents_on_plain_http_are_refused() {
    let (site, holder) = site_with_did().await;
    let operator = Operator::new();
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = plain.local_addr().unwrap().port();
    let target = format!("http://localhost:{port}/did.json");
    let node = Node::new(move |_| (302, target.clone().into_bytes())).await;
    let key = KeyPair::generate(KeyType::P256).unwrap().signing_key(&provider()).unwrap();
    let shown =
        |document: &DidDocument, key: &Arc<dyn SigningKey>| operator.shown(document, key.clone(), None);
    let of_web = |port| {
        let did = web::create("localhost", port, &[]).unwrap();
        DidDocument::of_key(&did, "key-1", &PublicKey::from_spki(key.public_key()).unwrap()).unwrap()
    };
    let asking =
        |url: &str| Hub::asking(&operator, &registry_client(&site.place, url, node.connector.clone()));
    let web = Hub::of_web(&operator, node.connector.clone());
    let document = holder.state().document();

    // A redirection is not followed.
    let why = format!("cannot be looked up: {}/", node.url());
    for (hub, own) in
        [(&asking(&node.url()), shown(document, &holder.key(0))), (&web, shown(&of_web(node.port), &key))]
    {
        hub.refuses(own.clone(), Alert::BAD_CERTIFICATE, &why).await;
        hub.refuses(own, Alert::BAD_CERTIFICATE, "status 302").await;
    }
    let plain = plain.into_std().unwrap();
    assert_eq!(plain.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);

    // Right answers, but without TLS.
    let served = of_web(port);
    let contents = [staple(&site, document.id()).write().unwrap(), served.canonical().as_bytes().to_vec()];
    let plain = TcpListener::from_std(plain).unwrap();
    let serving = async {
        for content in contents {
            let (mut tcp, _) = plain.accept().await.unwrap();
            let header = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
            tcp.write_all(&[header.as_bytes(), &content].concat()).await.unwrap();
            // The client leaves.
            let _ = tcp.read_to_end(&mut Vec::new()).await;
        }
    };
    let why = format!("cannot be looked up: localhost:{port}: the TLS handshake failed: ");
    let refusing = async {
        let registry = asking(&format!("https://localhost:{port}"));
        registry.refuses(shown(document, &holder.key(0)), Alert::BAD_CERTIFICATE, &why).await;
        web.refuses(shown(&served, &key), Alert::BAD_CERTIFICATE, &why).await;
    };
    tokio::join!(serving, refusing);
}

#[tokio::test]
async fn a_stapler_sends_proofs_of_its_own_key_to_peers_that_accept_them() {
    let (site, mut holder) = site_with_did().await;
    let did = holder.state().did().clone();
    let client = registry_client(&site.place, &site.url(), site.connector());
    let public = |key: Arc<dyn SigningKey>| PublicKey::from_spki(key.public_key()).unwrap();
    let member = Stapler::new(client.clone(), did.clone(), public(holder.key(0)));
    let member = member.with_membership(b"member".to_vec());
    let stapler = Stapler::new(client, did.clone(), public(holder.key(0)));
    let key_id = trust(&site.place, 1).known(None)[0].key_id;
    let accepted = |oldest_size| [KnownRegistry { key_id, oldest_size }];
    assert_eq!(stapler.latest(&accepted(0)), None);
    stapler.refresh().await.unwrap();
    let held = staple(&site, &did).write().unwrap();
    assert_eq!(stapler.latest(&accepted(1)).as_ref(), Some(&held));
    member.refresh().await.unwrap();
    let with_membership = Staple { membership: b"member".to_vec(), ..staple(&site, &did) };
    assert_eq!(member.latest(&accepted(1)), Some(with_membership.write().unwrap()));
    // The peer knows a larger log, or another registry.
    assert_eq!(stapler.latest(&accepted(3)), None);
    assert_eq!(stapler.latest(&[KnownRegistry { key_id: [0; 8], oldest_size: 0 }]), None);

    site.place.submit(&site.registry, vec![holder.next()]);
    let other_key = Err(StaplerError::OtherKey { url: site.url(), did: did.clone() });
    assert_eq!(stapler.refresh().await, other_key);
    assert_eq!(stapler.latest(&accepted(0)), None);
    stapler.set_key(public(holder.key(1)));
    stapler.refresh().await.unwrap();
    assert_eq!(stapler.latest(&accepted(2)), Some(staple(&site, &did).write().unwrap()));
    stapler.set_key(public(holder.key(0)));
    assert_eq!(stapler.latest(&accepted(0)), None);

    site.place.submit(&site.registry, vec![holder.deactivate()]);
    assert!(matches!(stapler.refresh().await, Err(StaplerError::Client(_))));
    assert_eq!(stapler.latest(&accepted(0)), None);
}

/// The clock of this test advances as soon as nothing else happens.
#[tokio::test(start_paused = true)]
async fn failures_of_a_stapler_are_reported_once_until_they_change() {
    let place = RegistryDirectory::new();
    let mut holder = place.holder(1);
    holder.next();
    let client = registry_client(&place, "https://localhost:1", site::Tls::new().connector);
    let public = PublicKey::from_spki(holder.key(0).public_key()).unwrap();
    let stapler = Stapler::new(client, holder.state().did().clone(), public);
    let reported = Mutex::new(Vec::new());
    let keeping =
        stapler.keep_fresh(&place.provider, |error| reported.lock().unwrap().push(error.to_string()));
    assert!(timeout(Duration::from_secs(3600), keeping).await.is_err());
    let reported = reported.into_inner().unwrap();
    assert!(reported.len() == 1 && reported[0].contains("localhost:1: "), "{reported:?}");
}

/// A peer of whom nothing is known after a restart is asked about, until the answer says that it has ended.
#[tokio::test]
async fn a_thawed_peer_is_asked_about_in_the_background() {
    let (site, mut holder) = site_with_did().await;
    let did = holder.state().did().clone();
    let restarted = || {
        let client = registry_client(&site.place, &site.url(), site.connector());
        let look_ups = LookUps::new(vec![client], None);
        let verifier = IdentifierVerifier::new(provider(), TrustList::new([did.clone()]));
        let verifier = Arc::new(verifier.asking_with(look_ups.resolvers()));
        (look_ups.answers(vec![verifier.clone()]), verifier, look_ups)
    };
    let (_, verifier, look_ups) = restarted();
    look_ups.look_up(&did).await.unwrap();
    let entry = CertificateDer::from(did.as_str().as_bytes().to_vec());
    let peer = verifier.judge(&[entry], None, now_s().try_into().unwrap()).unwrap().identity;
    let (answers, ..) = restarted();
    assert_eq!(answers.belief(&peer), Belief::Unknown);
    let known = async {
        while answers.belief(&peer) == Belief::Unknown {
            tokio::task::yield_now().await;
        }
    };
    let mut first = Negotiated::default();
    let mut second = Negotiated::default();
    (first.peer, second.peer_certified) = (Some(peer.clone()), Some(Box::new(peer.clone())));
    tokio::select! {
        () = answers.ended(&first) => panic!("the DID has not ended"),
        () = known => assert_eq!(answers.belief(&peer), Belief::Holds),
    }
    site.place.submit(&site.registry, vec![holder.deactivate()]);
    // With RSA_PSK, the identity by a certificate is a second one.
    for negotiated in [first, second] {
        let (answers, ..) = restarted();
        timeout(PATIENCE, answers.ended(&negotiated)).await.unwrap();
        assert_eq!(answers.belief(&peer), Belief::Ended);
    }
}

/// Only the program's own watch says that a registry is silent, after a minute. The clock of this test
/// advances as soon as nothing else happens.
#[tokio::test(start_paused = true)]
async fn a_registry_without_an_answer_for_a_minute_is_silent() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    place.submit(&registry, vec![holder.next()]);
    let did = holder.state().did();
    let staple = registry.resolve(did).unwrap().staple().unwrap();
    let documents = RegistryDocuments::new(provider(), trust(&place, DEFAULT_CHECKPOINT_AGE));
    let documents = Arc::new(documents.with_outage(3600, |_| {}));
    let now = common::NOW.try_into().unwrap();
    let resolved = documents.verify(did, &staple, None, now).unwrap();
    assert!(documents.keep(&resolved, None, now).unwrap());
    // While the registry is silent, this side asks for no larger log.
    let is_silent = || documents.registries()[0].oldest_size == 0;
    let https = HttpsClient::new(site::Tls::new().connector).with_deadline(Duration::from_secs(5));
    let client = RegistryClient::new(provider(), "https://localhost:1", https, documents.clone()).unwrap();
    let look_ups = LookUps::new(vec![client], None);
    look_ups.look_up(did).await.unwrap_err();
    assert!(!is_silent());
    let verifier = IdentifierVerifier::new(provider(), TrustList::new([did.clone()]));
    let verifier: Arc<dyn Judge> = Arc::new(verifier.asking_with(look_ups.resolvers()));
    let watching = look_ups.watch_registries(Arc::downgrade(&verifier));
    let mut watching = pin!(watching);
    assert!(timeout(Duration::from_secs(59), &mut watching).await.is_err());
    assert!(!is_silent());
    assert!(timeout(Duration::from_secs(30), &mut watching).await.is_err());
    assert!(is_silent());
    drop(verifier);
    watching.await;
    assert!(!is_silent());
}
