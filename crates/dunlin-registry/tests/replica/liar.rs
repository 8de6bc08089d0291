//! A node that lies: it answers every question about a DID in the same way, and acknowledges every operation.

use std::sync::Arc;

use base64ct::{Base64, Encoding};
use dunlin::auth::Credential;
use dunlin::crypto::SigningKey;
use dunlin::wire::SignatureScheme;
use dunlin::{Profile, ServerConfig};
use dunlin_identity::encoding::json;
use dunlin_identity::encoding::protobuf::{Message, MessageWriter};
use dunlin_identity::key::{PublicKey, sign};
use dunlin_identity::transparency::{
    Chain, Checkpoint, Hasher, LightBlock, MapLeaf, SignedCheckpoint, Staple, StateMap, StateProof,
    ValidatorSet, map_key, root_entry,
};
use dunlin_identity::{DidDocument, Sha256Hash};
use dunlin_tokio::TlsAcceptor;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::common::{ORIGIN, key, key_of, provider};
use crate::node::{CHAIN, Net};

pub(crate) struct Liar {
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Liar {
    /// Says this about each DID.
    pub(crate) async fn start(net: &Net, answer: Value) -> Self {
        let provider = Arc::new(dunlin_awslc::provider());
        let key = net.tree.server.key.signing_key(&provider).unwrap();
        let credential = Credential::x509(net.tree.server.chain.clone(), key);
        let profile = Profile::builder(provider).credentials(vec![credential]).build().unwrap();
        let acceptor = TlsAcceptor::new(Arc::new(ServerConfig::new(profile).unwrap()));
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", socket.local_addr().unwrap().port());
        let answer = Arc::new(answer);
        let task = tokio::spawn(async move {
            loop {
                let (tcp, _) = socket.accept().await.unwrap();
                let acceptor = acceptor.clone();
                let answer = Arc::clone(&answer);
                tokio::spawn(async move {
                    let tls = acceptor.accept(tcp).await.unwrap();
                    let service = service_fn(|request: Request<Incoming>| {
                        let (status, content) = say(request.uri().path(), &answer);
                        let answer = Response::builder().status(status);
                        let answer = answer.body(Full::<Bytes>::from(content)).unwrap();
                        async { Ok::<_, std::convert::Infallible>(answer) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(tls), service)
                        .await;
                });
            }
        });
        Self { url, task }
    }
}

/// The answer to a path: a status, and the content.
fn say(path: &str, answer: &Value) -> (u16, Vec<u8>) {
    let status = if answer["document"].is_null() { 404 } else { 200 };
    let text = |name: &str| answer[name].as_str().unwrap();
    match path {
        "/operations" => (200, json!({"number": 0, "checkpoint": answer["checkpoint"]}).to_string().into()),
        "/consistency" | "/inclusion" => (200, b"{\"hashes\":[]}".to_vec()),
        path if path.ends_with("/staple") && status == 200 => {
            let document = json::canonical(&answer["document"]).unwrap().into_bytes();
            let checkpoint = text("checkpoint").into();
            let proof = Base64::decode_vec(text("proof")).unwrap();
            (200, Staple { document, checkpoint, proof, membership: Vec::new() }.write().unwrap())
        }
        _ => (status, answer.to_string().into_bytes()),
    }
}

/// A node's answer about a DID, with another document or another checkpoint.
fn with(answer: &Value, member: &str, value: Value) -> Value {
    let mut answer = answer.clone();
    answer[member] = value;
    answer
}

/// Lies about a DID, each with a part of the reason for which a client refuses it. `old` and `new` are true
/// answers before and after an update.
pub(crate) fn lies(net: &Net, old: &Value, new: &Value) -> Vec<(Value, &'static str)> {
    let validators: Vec<_> = (0..4).map(|number| key_of(&provider(), &net.seed(number))).collect();
    let own: Vec<_> = (0..4).map(|number| key(&provider(), [66, 66, number])).collect();
    let note = new["checkpoint"].as_str().unwrap();
    let unsigned = format!("{}\n\n\u{2014} a AAAAAAA=\n", note.split("\n\n").next().unwrap());
    vec![
        (with(new, "document", old["document"].clone()), "leads to another root"),
        (old.clone(), "but the registry has already shown"),
        (with(new, "checkpoint", old["checkpoint"].clone()), "but the registry has already shown"),
        (with(new, "document", Value::Null), "the registry's state map has the DID"),
        (with(new, "checkpoint", unsigned.into()), "not exactly one block"),
        // Another state in a header that no validator has signed, or too few, or that validators of the
        // liar's own have signed.
        (forged(new, &old["document"], &validators, &[]), "voting power of 0 of 40"),
        (forged(new, &old["document"], &validators, &[2]), "voting power of 10 of 40"),
        (forged(new, &old["document"], &validators, &[2, 3]), "voting power of 20 of 40"),
        (forged(new, &old["document"], &own, &[0, 1, 2, 3]), "too few known ones support"),
    ]
}

/// An answer with a state in which the DID has this document, in a block that some of the validators have
/// signed.
fn forged(answer: &Value, document: &Value, validators: &[Arc<dyn SigningKey>], signers: &[usize]) -> Value {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let did = answer["did"].as_str().unwrap().parse().unwrap();
    let document_hash = DidDocument::from_value(document.clone(), &did).unwrap().canonical().to_owned();
    let document_hash = Sha256Hash::of(&provider, document_hash.as_bytes()).unwrap();
    let place = map_key(&provider, &did).unwrap();
    let leaf = MapLeaf { document: document_hash, sequence: 99, active: true };
    let map = StateMap::default().with(hasher, place, leaf).unwrap();
    let origin = ORIGIN.to_owned();
    // The root of the map is the last of 1025 entries.
    let others = [1; 32];
    let root = hasher.node(&others, &hasher.leaf(&root_entry(&map.root(hasher))));
    let checkpoint = Checkpoint { origin, size: 1025, root };
    let state = Sha256Hash::of(&provider, checkpoint.to_string().as_bytes()).unwrap();

    let chain = Chain::new(&provider, ORIGIN, CHAIN).unwrap();
    let genuine = bytes_of(answer["checkpoint"].as_str().unwrap());
    let genuine = Message::read(&genuine).unwrap().message(1).unwrap();
    let block = |hash: &[u8], signatures: &[Vec<u8>]| {
        let keys: Vec<_> =
            validators.iter().map(|key| PublicKey::from_spki(key.public_key()).unwrap()).collect();
        let set = ValidatorSet::new(keys.iter().map(|key| (key.clone(), 10)).collect()).unwrap();
        let header = genuine.message(1).unwrap();
        let mut written = MessageWriter::default();
        for field in 1..=14 {
            written = match field {
                3 => written.number(field, header.number(field).unwrap()),
                8 => written.bytes(field, &set.hash(hasher).unwrap()),
                11 => written.bytes(field, state.as_bytes()),
                _ => written.message(field, header.bytes(field).unwrap()),
            };
        }
        let commit = genuine.message(2).unwrap();
        let id =
            MessageWriter::default().bytes(1, hash).message(2, commit.message(3).unwrap().bytes(2).unwrap());
        let mut signed =
            MessageWriter::default().number(1, commit.number(1).unwrap()).message(3, &id.finish());
        let mut members = MessageWriter::default();
        for (number, (key, signature)) in keys.iter().zip(signatures).enumerate() {
            let flag = if signers.contains(&number) { 2 } else { 1 };
            let vote = MessageWriter::default().number(1, flag).message(3, header.bytes(4).unwrap());
            signed = signed.message(4, &vote.bytes(4, signature).finish());
            let key = MessageWriter::default().bytes(1, &key.spki()[12..]).finish();
            members = members.message(1, &MessageWriter::default().message(2, &key).number(3, 10).finish());
        }
        let signed = MessageWriter::default().message(1, &written.finish()).message(2, &signed.finish());
        let block = MessageWriter::default().message(1, &signed.finish()).message(2, &members.finish());
        LightBlock::read(&block.finish()).unwrap()
    };
    let none = vec![Vec::new(); validators.len()];
    let hash = block(&[], &none).hash(hasher).unwrap();
    let unsigned = block(&hash, &none);
    let signature = |(number, key): (usize, &Arc<dyn SigningKey>)| {
        let vote = unsigned.vote(number);
        vote.map_or(Vec::new(), |vote| sign(&**key, &provider, SignatureScheme::ED25519, &vote).unwrap())
    };
    let signatures: Vec<_> = validators.iter().enumerate().map(signature).collect();
    let mut note = SignedCheckpoint::unsigned(checkpoint).unwrap();
    note.note_mut().add(chain.line(&block(&hash, &signatures)));
    let proof = Base64::encode_string(&StateProof { map: map.prove(&place), path: vec![others] }.write());
    json!({"did": answer["did"], "state": {"sequence": 99, "active": true}, "document": document,
        "checkpoint": note.to_string(), "proof": proof})
}

/// The block in a note with one signature.
fn bytes_of(note: &str) -> Vec<u8> {
    let line = note.lines().last().unwrap().rsplit(' ').next().unwrap();
    Base64::decode_vec(line).unwrap()[4..].to_vec()
}
