//! Replicas of a registry under four real CometBFT nodes (tests/peers/cometbft) on loopback. A client submits
//! at one and asks another, nodes are killed and come back, and nodes lie. Each node is two processes:
//! CometBFT, and this program as its replica.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;
#[path = "replica/liar.rs"]
mod liar;
#[path = "replica/node.rs"]
mod node;

use std::path::Path;

use base64ct::{Base64, Encoding};
use common::{Holder, ORIGIN, provider};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::dunlin::{Operation, first_document};
use dunlin_identity::transparency::{RegistryTrust, Staple, StapleError};
use dunlin_identity::{Did, Sha256Hash};
use dunlin_pki::{KeyPair, KeyType};
use dunlin_registry::client::{ClientError, RegistryClient, Submitted};
use dunlin_tokio::https::HttpsError;
use liar::Liar;
use node::{CHILD, Net, now_s};
use serde_json::json;

/// Asks until the answer is active with this sequence number. A node may be some blocks behind, or not have a
/// proof yet after its start.
async fn until(client: &RegistryClient, did: &Did, sequence: u64) {
    loop {
        match client.resolve(did).await {
            Ok((_, resolved)) if resolved.sequence == sequence => return,
            Err(ClientError::Proof { error: StapleError::Deactivated(_), .. }) => panic!("deactivated"),
            _ => tokio::task::yield_now().await,
        }
    }
}

/// Submits until the operation is accepted. On a slow machine, no block may come in time.
async fn submitted(client: &RegistryClient, operation: &Operation) -> Submitted {
    loop {
        match client.submit(operation).await {
            Ok(submitted) => return submitted,
            Err(error) => assert!(error.to_string().contains("status 503"), "{error}"),
        }
    }
}

/// The size of the largest log that the client has accepted.
fn size(client: &RegistryClient) -> Option<u64> {
    client.documents().newest().map(|newest| newest.checkpoint().size)
}

/// An operation that was submitted at one node is proven by all others.
async fn submits_at_one_and_resolves_at_another(net: &Net, holder: &mut Holder) {
    let operation = holder.next();
    let did = holder.state().did().clone();
    let client = net.client([0]);
    // The chain has just begun, or is about to.
    let absent = ClientError::Absent { url: net.url(0).to_owned(), did: did.clone() };
    while client.resolve(&did).await.unwrap_err() != absent {
        tokio::task::yield_now().await;
    }
    assert_eq!(submitted(&client, &operation).await.number, 0);
    for number in 1..4 {
        until(&net.client([number]), &did, 0).await;
    }
    // The holder's staple, from another node and from CometBFT itself, is proven as well.
    let trust = RegistryTrust::replicated(net.trust());
    let staple = net.get(1, &format!("/dids/{did}/staple")).await;
    let asked = net.rpc(2, "abci_query", json!({"path": "/dids", "data": hex(did.as_str())})).await;
    let value = asked["response"]["value"].as_str().unwrap();
    for staple in [staple, Base64::decode_vec(value).unwrap()] {
        let staple = Staple::read(&staple).unwrap();
        let resolved = staple.verify(&provider(), &did, &trust, None, now_s()).unwrap();
        assert_eq!(&resolved.document, holder.state().document());
    }
    // A repeated operation is acknowledged again. All nodes refuse an invalid one, signed with an
    // unauthorised key.
    assert_eq!(submitted(&client, &operation).await.number, 0);
    let mut other = holder.clone();
    let second = other.next();
    let third = other.next();
    let refused = net.client(0..4).submit(&third).await.unwrap_err();
    let ClientError::Nodes(each) = &refused else { panic!("{refused}") };
    assert!(
        each.iter().all(|error| error.to_string().contains("sequence number 2 instead of 1")),
        "{refused}"
    );
    assert_eq!(each.len(), 4);
    // The same update at two nodes at once is one entry of the log.
    let first_client = net.client([0]);
    let second_client = net.client([1]);
    let (first, second) = tokio::join!(submitted(&first_client, &second), submitted(&second_client, &second));
    assert_eq!((first.number, second.number), (2, 2));
    holder.next();
    until(&client, &did, 1).await;
    assert_eq!(size(&client), Some(4));
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// With one node killed, clients go on. The node comes back, and has the same state.
async fn a_killed_node_comes_back(net: &mut Net, holder: &mut Holder) {
    let did = holder.state().did().clone();
    net.kill(2);
    let refused = net.client([2]).resolve(&did).await;
    let unreachable = matches!(refused, Err(ClientError::Https(HttpsError::Unreachable { .. })));
    assert!(unreachable, "{refused:?}");
    let client = net.client([2, 1]);
    for _ in 0..3 {
        submitted(&client, &holder.next()).await;
    }
    net.restart(2);
    let sequence = holder.state().sequence();
    until(&net.client([2]), &did, sequence).await;
    assert_eq!(net.text(2).await, net.text(0).await);

    // The replica alone is killed: CometBFT ends, too, and both come back.
    net.kill_replica(3);
    submitted(&client, &holder.next()).await;
    net.restart(3);
    until(&net.client([3]), &did, holder.state().sequence()).await;
    assert_eq!(net.text(3).await, net.text(0).await);
}

/// Whatever one node says, the client goes on to one that does not lie.
async fn lies_are_refused(net: &Net, holder: &mut Holder) {
    let did = holder.state().did().clone();
    let old = net.answer(0, &did).await;
    let operation = holder.next();
    // It acknowledges an operation, and keeps it to itself.
    let liar = Liar::start(net, old.clone()).await;
    let refused = net.client_of([&liar.url]).submit(&operation).await;
    assert!(matches!(refused, Err(ClientError::NotIncluded { .. })), "{refused:?}");
    let client = net.client_of([liar.url.as_str(), net.url(1)]);
    submitted(&client, &operation).await;
    let sequence = holder.state().sequence();
    until(&client, &did, sequence).await;
    let newest = client.documents().newest().unwrap();

    let new = net.answer(1, &did).await;
    for (lie, expected) in liar::lies(net, &old, &new) {
        let liar = Liar::start(net, lie).await;
        let knows = |client: RegistryClient| {
            assert!(client.documents().accept(&newest, None));
            client
        };
        let refused = knows(net.client_of([&liar.url])).resolve(&did).await.unwrap_err();
        assert!(refused.to_string().contains(expected), "{expected}: {refused}");
        let client = knows(net.client_of([liar.url.as_str(), net.url(1)]));
        assert_eq!(client.resolve(&did).await.unwrap().1.sequence, sequence, "{expected}");
    }
}

/// Two valid signatures of one operation wait in the nodes. A block takes one of them, and no node stops
/// because of the other.
async fn two_signatures_stop_no_node(net: &Net) {
    let provider = dunlin_awslc::provider();
    let [own, next, recovery] = [(); 3].map(|()| KeyPair::generate(KeyType::P256).unwrap());
    let public = |pair: &KeyPair| PublicKey::from_spki(pair.public_key()).unwrap();
    let hash = |pair| Sha256Hash::of_key(&provider, &public(pair)).unwrap();
    let document = first_document(&provider, ORIGIN, &public(&own), hash(&next), hash(&recovery)).unwrap();
    let signer = own.signing_key(&provider).unwrap();
    let [first, second] = [(); 2].map(|()| Operation::create(&provider, &*signer, &document).unwrap());
    assert_ne!(first.canonical(), second.canonical());
    let first_client = net.client([0]);
    let second_client = net.client([1]);
    let both = tokio::join!(first_client.submit(&first), second_client.submit(&second));
    assert!(both.0.is_err() || both.1.is_err());
    for number in 0..4 {
        let client = net.client([number]);
        while client.resolve(first.did()).await.is_err() {
            // A node that has ended does not answer.
            net.rpc(number, "health", json!({})).await;
        }
        net.rpc(number, "health", json!({})).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    if let Some(home) = std::env::var_os(CHILD) {
        return node::child(Path::new(&home)).await;
    }
    let mut net = Net::start(4);
    let mut holder = Holder::new(&provider(), [9, 1]);
    submits_at_one_and_resolves_at_another(&net, &mut holder).await;
    a_killed_node_comes_back(&mut net, &mut holder).await;
    lies_are_refused(&net, &mut holder).await;
    two_signatures_stop_no_node(&net).await;
    println!(
        "4 nodes: an operation at one is proven by the others, a killed node comes back, lies are refused, and two signatures of \
         an operation stop no node"
    );
}
