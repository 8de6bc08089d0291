//! `did:peer`, algorithms 0 and 2: the identifier contains the keys and services (DIF, Peer DID Method
//! Specification).

use base64ct::{Base64UrlUnpadded, Encoding};
use dunlin_identity::encoding::json;
use dunlin_identity::key::{KeyError, PublicKey};
use dunlin_identity::method::{Method, MethodError};
use dunlin_identity::{DID_CONTEXT, Did, DidDocument, MULTIKEY_CONTEXT};
use serde_json::{Map, Value, json};

/// `did:peer` with one key (algorithm 0), which it also makes, and with several keys and services (algorithm
/// 2). The other algorithms need documents that the peer has sent before.
#[derive(Debug)]
pub struct Peer;

/// The method, for [`Methods`](dunlin_identity::method::Methods).
pub static PEER: Peer = Peer;

/// The relationships of keys by their codes (Method 2, Purpose Codes).
const PURPOSES: [(char, &str); 5] = [
    ('A', "assertionMethod"),
    ('E', "keyAgreement"),
    ('V', "authentication"),
    ('I', "capabilityInvocation"),
    ('D', "capabilityDelegation"),
];

/// The abbreviated names of members (Method 2, Common String Abbreviations).
const NAMES: [(&str, &str); 4] =
    [("t", "type"), ("s", "serviceEndpoint"), ("r", "routingKeys"), ("a", "accept")];

impl Method for Peer {
    fn name(&self) -> &'static str {
        "peer"
    }

    fn create(&self, key: &PublicKey) -> Result<Did, MethodError> {
        // Peer DID Method §3: base58btc alone.
        let multikey = key.to_multikey_base58().ok_or(MethodError::Key("peer", KeyError::UnknownType))?;
        Ok(format!("did:peer:0{multikey}").parse()?)
    }

    fn resolve(&self, did: &Did) -> Result<DidDocument, MethodError> {
        self.check(did)?;
        let mut characters = did.identifier().chars();
        match (characters.next(), characters.as_str()) {
            (Some('0'), key) if key.starts_with('z') => {
                let public = PublicKey::from_multikey(key).map_err(|error| match error {
                    KeyError::Multibase => MethodError::Encoding("peer"),
                    error => MethodError::Key("peer", error),
                })?;
                Ok(DidDocument::of_key(did, key, &public)?)
            }
            (Some('2'), elements) => several(did, elements),
            _ => Err(MethodError::Encoding("peer")),
        }
    }
}

/// The document of algorithm 2.
fn several(did: &Did, elements: &str) -> Result<DidDocument, MethodError> {
    let malformed = MethodError::Encoding("peer");
    let mut elements = elements.split('.');
    // Each element begins with a point.
    if elements.next() != Some("") {
        return Err(malformed);
    }
    let mut keys = Vec::new();
    let mut services = Vec::new();
    let mut nameless = 0_usize;
    let mut relationships = Map::new();
    for element in elements {
        let mut characters = element.chars();
        let code = characters.next();
        let content = characters.as_str();
        if code == Some('S') {
            let text = Base64UrlUnpadded::decode_vec(content).map_err(|_| malformed.clone())?;
            let mut service = expand(&json::read(&text)?);
            let members = service.as_object_mut().ok_or_else(|| malformed.clone())?;
            if !members.contains_key("id") {
                let id = if nameless == 0 { "#service".to_owned() } else { format!("#service-{nameless}") };
                members.insert("id".to_owned(), id.into());
                nameless += 1;
            }
            services.push(service);
            continue;
        }
        let purpose = PURPOSES.iter().find(|(purpose, _)| code == Some(*purpose));
        let (_, relationship) = purpose.ok_or_else(|| malformed.clone())?;
        let id = format!("#key-{}", keys.len() + 1);
        let list = relationships.entry(*relationship).or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.push(id.as_str().into());
        }
        keys.push(json!({
            "id": id,
            "type": "Multikey",
            "controller": did.as_str(),
            "publicKeyMultibase": content,
        }));
    }
    let mut document = json!({
        "@context": [DID_CONTEXT, MULTIKEY_CONTEXT],
        "id": did.as_str(),
        "verificationMethod": keys,
    });
    if let Some(members) = document.as_object_mut() {
        members.append(&mut relationships);
        if !services.is_empty() {
            members.insert("service".to_owned(), services.into());
        }
    }
    Ok(DidDocument::from_value(document, did)?)
}

/// Writes out the abbreviations of a service: names everywhere, and the type.
fn expand(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let expanded = members.iter().map(|(name, value)| {
                let full =
                    NAMES.iter().find(|(short, _)| name == short).map_or(name.as_str(), |(_, full)| *full);
                let value =
                    if full == "type" && value == "dm" { "DIDCommMessaging".into() } else { expand(value) };
                (full.to_owned(), value)
            });
            Value::Object(expanded.collect())
        }
        Value::Array(elements) => elements.iter().map(expand).collect(),
        other => other.clone(),
    }
}
