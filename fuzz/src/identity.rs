//! The targets `documents`, `credentials` and `proofs`: what strangers send about decentralised identities.
//! The provider verifies no signature: a constant passes.

use std::sync::{Arc, LazyLock};

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_identity::credential::status::{
    self, Bitstring, StatusEntry, StatusList, StatusLists, StatusPurpose,
};
use dunlin_identity::credential::{Contexts, CredentialError, Issuer, Seconds, VerifiedCredential, Verifier};
use dunlin_identity::encoding::cbor;
use dunlin_identity::encoding::json::{self, MAX_JSON, Value};
use dunlin_identity::handshake::Holding;
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::dunlin::{Operation, State, first_document};
use dunlin_identity::method::web;
use dunlin_identity::method::{JWK, KEY, Method, Methods};
use dunlin_identity::transparency::{Hasher, NodeHash, Nodes, Tree};
use dunlin_identity::{Did, DidDocument, DidUrl, Members, Relationship, Sha256Hash, TrustList};
use dunlin_identity_interop::ott::{self, OttDid};
use dunlin_identity_interop::{Audience, PEER, present, verify_presentation};
use dunlin_null::null_provider;
use pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::registry::{self, Registry};
use crate::script::Script;

/// 2026-11-23T00:00:00Z.
const NOW: Seconds = 1_795_392_000;
const NOW_S: u64 = NOW as u64;

/// The keys of the issuer and the holder, from the vectors of did:key, and a third one.
const ISSUER: &str = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp";
const HOLDER: &str = "did:key:z6MkjchhfUsD6mmvni8mCdXHw216Xrm9bQe2mBH1P5RDjVJG";
const THIRD: &str = "did:key:z6MknGc3ocHs3zdPiJbnaaqDi58NGb4pk1Sp9WxWufuXSdxf";

const LIST: &str = "https://issuer.example/status/1";
const REGISTRY: &str = "registry.example/1";
const AUDIENCE: Audience<'_> = Audience { challenge: "1", domain: "https://verifier.example" };

/// Keys, trust and lists, which do not change.
struct World {
    provider: CryptoProvider,
    sha256: CryptoProvider,
    methods: Methods,
    verifier: Verifier,
    lists: StatusLists,
    registry: Registry,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let provider = null_provider();
    let issuer: Did = ISSUER.parse().unwrap();
    let verifier = Verifier::new([KEY.resolve(&issuer).unwrap()]);
    let mut bits = Bitstring::default();
    bits.set(7, true).unwrap();
    let list = bits.credential(&issuer, LIST, StatusPurpose::Revocation, NOW, NOW + 10).unwrap();
    let signed = sign(&provider, &list);
    let mut lists = StatusLists::default();
    lists.insert(StatusList::verify(&verifier, &provider, &signed[2], LIST, NOW).unwrap()).unwrap();
    let sha256 = dunlin_rustcrypto::provider(Arc::new(dunlin_null::CountingRandom::default()));
    let registry = Registry::new(&provider, REGISTRY, &signer_of(&provider, THIRD));
    World {
        provider,
        sha256,
        methods: Methods::new([&KEY as &dyn Method, &JWK, &PEER]),
        verifier,
        lists,
        registry,
    }
});

/// The verification method of a `did:key`.
fn method_of(did: &str) -> DidUrl {
    let did: Did = did.parse().unwrap();
    did.with_fragment(did.identifier()).unwrap()
}

fn key_of(did: &str) -> PublicKey {
    KEY.resolve(&did.parse().unwrap()).unwrap().keys(Relationship::Authentication).next().unwrap().1.clone()
}

fn signer_of(provider: &CryptoProvider, did: &str) -> Arc<dyn SigningKey> {
    let key = PrivatePkcs8KeyDer::from(key_of(did).spki().to_vec());
    provider.key_loader.load(&PrivateKeyDer::Pkcs8(key)).unwrap()
}

/// The issuer's credential as JSON, as a JWT and in the compact form.
fn sign(provider: &CryptoProvider, credential: &Value) -> [Vec<u8>; 3] {
    let signer = signer_of(provider, ISSUER);
    let method = method_of(ISSUER);
    let contexts = Contexts::default();
    let issuer = Issuer { provider, signer: &*signer, method: &method };
    [
        issuer.issue(credential, &contexts, NOW).unwrap().into_bytes(),
        issuer.issue_jwt(credential, &contexts).unwrap().into_bytes(),
        issuer.issue_compact(credential, &contexts).unwrap(),
    ]
}

/// The target `documents`. The first byte chooses the reader. A value that was read and written is the same
/// value when it is read again.
pub fn documents(input: &[u8]) -> bool {
    let Some((choice, bytes)) = input.split_first() else { return false };
    match choice % 9 {
        0 => canonical_again(bytes).is_some(),
        1 => {
            let Ok(item) = cbor::read(bytes) else { return false };
            assert_eq!(cbor::write(&item), bytes, "{item}");
            true
        }
        2 => did(bytes),
        3 => document(bytes).is_some(),
        4 => operation(bytes),
        5 => ledger_document(bytes),
        7 => registry::read_note(bytes) | registry::read_entry(bytes),
        8 => {
            let (create, _) = history();
            WORLD.registry.read_staple(&WORLD.provider, create.did(), bytes, NOW_S)
        }
        _ => {
            let text = str::from_utf8(bytes).ok();
            text.is_some_and(|text| TrustList::read(text).is_ok())
        }
    }
}

/// Reads a value whose canonical form is a value with the same canonical form.
fn canonical_again(bytes: &[u8]) -> Option<Value> {
    let value = json::read(bytes).ok()?;
    let text = json::canonical(&value).expect("a value that was read has a canonical form");
    // Numbers can become longer: 1e5 is 100000.
    let again = json::read_bounded(text.as_bytes(), 20 * MAX_JSON).expect("a canonical form can be read");
    assert_eq!(json::canonical(&again).as_ref(), Ok(&text));
    Some(value)
}

fn did(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    let Ok(url) = text.parse::<DidUrl>() else { return false };
    assert_eq!(url.to_string(), text);
    if let Ok(document) = WORLD.methods.resolve(url.did()) {
        assert_eq!(document.id(), url.did());
        same_keys(&document);
    }
    if let Ok(place) = web::locate(url.did()) {
        let text = place.to_string();
        assert!(text.starts_with("https://") && text.ends_with("/did.json"), "{text}");
        assert!(!text.contains("/../") && !text.contains('@') && !text.contains('\\'), "{text}");
    }
    true
}

fn document(bytes: &[u8]) -> Option<DidDocument> {
    let value = canonical_again(bytes)?;
    let did: Did = value.get("id")?.as_str()?.parse().ok()?;
    let document = DidDocument::from_value(value, &did).ok()?;
    same_keys(&document);
    for relationship in [Relationship::Authentication, Relationship::AssertionMethod] {
        for (id, key) in document.keys(relationship) {
            assert_eq!((id.did(), document.find(id, relationship)), (&did, Ok(key)));
        }
    }
    Some(document)
}

/// A key is the same key in each of its forms.
fn same_keys(document: &DidDocument) {
    for key in document.methods().iter().filter_map(|method| method.key.as_ref()) {
        assert_eq!(PublicKey::from_spki(key.spki()).as_ref(), Ok(key));
        assert_eq!(PublicKey::from_multikey(&key.to_multikey()).as_ref(), Ok(key));
        assert_eq!(PublicKey::from_jwk(key.to_jwk().as_object().unwrap()).as_ref(), Ok(key));
    }
}

/// An operation of `did:dunlin`, after the creation of a DID.
fn operation(bytes: &[u8]) -> bool {
    let Ok(operation) = Operation::read(bytes) else { return false };
    let text = operation.canonical().expect("an operation that was read has a canonical form");
    if let Ok(again) = Operation::read(text.as_bytes()) {
        assert_eq!(again.canonical().as_ref(), Ok(&text));
    }
    let provider = &WORLD.provider;
    let (first, _) = history();
    let before = State::create(provider, &first).expect("a right creation");
    if let Ok(after) = before.apply(provider, &operation) {
        assert_eq!((after.sequence(), after.did()), (1, before.did()));
    }
    if let Ok(created) = State::create(provider, &operation) {
        assert_eq!((created.sequence(), created.is_active()), (0, true));
    }
    true
}

/// The creation of a DID, and an update.
fn history() -> (Operation, Operation) {
    let provider = &WORLD.provider;
    let hash = |did| Sha256Hash::of_key(provider, &key_of(did)).unwrap();
    let recovery = Sha256Hash::of(provider, b"recovery").unwrap();
    let document = first_document(provider, REGISTRY, &key_of(ISSUER), hash(HOLDER), recovery).unwrap();
    let create = Operation::create(provider, &*signer_of(provider, ISSUER), &document).unwrap();
    let state = State::create(provider, &create).unwrap();
    let rotated = state.rotated(&key_of(HOLDER), hash(THIRD)).unwrap();
    let update = Operation::update(provider, &*signer_of(provider, HOLDER), &state, &rotated).unwrap();
    (create, update)
}

fn ledger_document(bytes: &[u8]) -> bool {
    let id = json::read(bytes).ok().and_then(|value| Some(value.get("id")?.as_str()?.to_owned()));
    let did = id.and_then(|id| format!("{id}:{}", "00".repeat(32)).parse().ok());
    let Some(did) = did.and_then(|did: Did| OttDid::read(&did).ok()) else { return false };
    let Ok(document) = ott::read_document(bytes, &did) else { return false };
    assert_eq!(Ok(document.id().clone()), did.did());
    true
}

/// The target `credentials`. The first byte chooses what the rest is: a credential, a presentation, a list's
/// credential, a list, or the lists beside a credential.
///
/// A credential that verifies has the trusted issuer and the holder. Issued again in each form, it is the
/// same credential.
pub fn credentials(input: &[u8]) -> bool {
    let Some((choice, bytes)) = input.split_first() else { return false };
    let World { provider, verifier, lists, .. } = &*WORLD;
    let holder: Did = HOLDER.parse().unwrap();
    match choice % 5 {
        0 => {
            let signer = signer_of(provider, HOLDER);
            let method = method_of(HOLDER);
            let held = Holding::of_credential(signer, method, bytes.to_vec(), &Contexts::default());
            let verified = verifier.verify_with_status(provider, bytes, &holder, lists, NOW);
            if let Ok(verified) = &verified {
                assert!(held.is_ok(), "{held:?}");
                again(verified);
            }
            held.is_ok()
        }
        1 => {
            let document = KEY.resolve(&holder).unwrap();
            let verified = verify_presentation(verifier, provider, bytes, &document, AUDIENCE, lists, NOW);
            verified.iter().flatten().for_each(again);
            verified.is_ok()
        }
        2 => StatusList::verify(verifier, provider, bytes, LIST, NOW).is_ok(),
        3 => {
            let list = str::from_utf8(bytes).ok().and_then(|text| Bitstring::decode(text).ok());
            list.is_some_and(|list| Bitstring::decode(&list.encode()) == Ok(list))
        }
        _ => {
            let Ok(staple) = status::read_staple(bytes) else { return false };
            assert_eq!(status::write_staple(&staple).as_deref(), Ok(bytes));
            staple.iter().any(|list| status::list_url(list).is_ok())
        }
    }
}

fn again(verified: &VerifiedCredential) {
    assert_eq!((verified.issuer.as_str(), verified.subject.as_str()), (ISSUER, HOLDER));
    assert!(verified.valid_until.is_none_or(|until| until >= NOW));
    assert!(verified.status_until.is_none_or(|until| until >= NOW));
    let World { provider, verifier, lists, .. } = &*WORLD;
    let signer = signer_of(provider, ISSUER);
    let method = method_of(ISSUER);
    let contexts = Contexts::default();
    let issuer = Issuer { provider, signer: &*signer, method: &method };
    let Ok(compact) = issuer.issue_compact(&verified.credential, &contexts) else { return };
    match verifier.verify_with_status(provider, &compact, &verified.subject, lists, NOW) {
        Ok(again) => {
            assert_eq!(json::canonical(&again.credential), json::canonical(&verified.credential));
        }
        // Numbers such as 1e5 are shorter in JSON.
        Err(error) => assert_eq!(error, CredentialError::TooLong),
    }
}

/// The target `proofs`: a tree of up to 256 leaves, a proof, and changes of it. A proof verifies exactly if
/// nothing has changed.
pub fn proofs(input: &[u8]) -> bool {
    let mut script = Script::new(input);
    let hasher = Hasher(WORLD.sha256.sha256);
    let kind = script.u8() % 5;
    let size = 1 + script.below(256) as u64;
    let mut tree = Tree::default();
    for index in 0..size {
        tree.push(hasher, hasher.leaf(&index.to_be_bytes()));
    }
    let root = tree.root(hasher, size).unwrap();
    let chosen = script.below(usize::try_from(size).unwrap()) as u64;
    match kind {
        0 => {
            let proof = tree.inclusion(hasher, chosen, size).unwrap();
            let leaf = tree.node(0, chosen).unwrap();
            let mut hashes = [vec![leaf, root], proof].concat();
            let is_changed = change(&mut hashes, &mut script);
            let verified = hasher.verify_inclusion(hashes[0], chosen, size, &hashes[1], &hashes[2..]);
            // The only leaf is the root, and both may change alike.
            let is_same = size == 1 && hashes.len() == 2 && hashes[0] == hashes[1];
            assert_eq!(verified.is_err(), is_changed && !is_same, "leaf {chosen} of {size}");
        }
        1 => {
            let old = chosen + 1;
            let proof = tree.consistency(hasher, old, size).unwrap();
            let mut hashes = [vec![tree.root(hasher, old).unwrap(), root], proof].concat();
            let is_changed = change(&mut hashes, &mut script);
            let old = (old, &hashes[0]);
            let new = (size, &hashes[1]);
            let verified = hasher.verify_consistency(old, new, &hashes[2..]);
            // Both roots of one tree may change alike.
            let is_same = old.0 == size && hashes.len() == 2 && hashes[0] == hashes[1];
            assert_eq!(verified.is_err(), is_changed && !is_same, "{old:?} and {new:?}");
        }
        2 => {
            let dids = (0..size).map(|number| format!("did:example:{number}").parse().unwrap());
            let members = Members::new(&WORLD.sha256, dids);
            let list = TrustList::default().with_members(members.root(&WORLD.sha256).unwrap());
            let did = format!("did:example:{chosen}").parse().unwrap();
            let right = members.proof(&WORLD.sha256, &did).unwrap();
            let mut proof = right.clone();
            while !script.is_empty() {
                let at = script.below(proof.len() + 1);
                if at < proof.len() { proof[at] ^= script.u8() } else { proof.push(script.u8()) }
            }
            let verified = list.check(&WORLD.sha256, &did, Some(&proof));
            assert_eq!(verified.is_ok(), proof == right, "{verified:?}");
        }
        4 => registry::map_proof(&WORLD.sha256, size, chosen, &mut script),
        _ => {
            // Anything, at any size: an answer, and no endless loop.
            let number = |script: &mut Script<'_>| u64::from_be_bytes(std::array::from_fn(|_| script.u8()));
            let index = number(&mut script);
            let size = number(&mut script);
            let hashes = vec![root; script.below(200)];
            assert!(hasher.verify_inclusion([1; 32], index, size, &root, &hashes).is_err());
            assert!(hasher.verify_consistency((index, &[1; 32]), (size, &root), &hashes).is_err());
        }
    }
    true
}

/// Changes, removes and adds hashes. Returns whether they are others now.
fn change(hashes: &mut Vec<NodeHash>, script: &mut Script<'_>) -> bool {
    let right = hashes.clone();
    while !script.is_empty() {
        let what = script.u8() % 4;
        let at = script.below(hashes.len());
        match what {
            // The first two are no part of the proof.
            1 if at >= 2 => drop(hashes.remove(at)),
            2 if at >= 2 => hashes.insert(at, hashes[usize::from(script.u8()) % hashes.len()]),
            3 => hashes.push(hashes[at]),
            _ => hashes[at][script.below(32)] ^= script.u8(),
        }
    }
    *hashes != right
}

/// The initial inputs of the three targets.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut seeds = Vec::new();
    let mut add = |target: &'static str, choice: u8, bytes: &[u8]| {
        seeds.push((target, [&[choice], bytes].concat()));
    };
    let entry = StatusEntry { list: LIST.to_owned(), index: 5, purpose: StatusPurpose::Revocation };
    let credential = format!(
        "{{\"@context\":[\"https://www.w3.org/ns/credentials/v2\"],\"type\":[\"VerifiableCredential\"],\
         \"id\":\"urn:uuid:01234567-89ab-cdef-0123-456789abcdef\",\"issuer\":\"{ISSUER}\",\
         \"validFrom\":\"2026-01-01T00:00:00Z\",\"validUntil\":\"2027-01-01T00:00:00Z\",\
         \"credentialSubject\":{{\"id\":\"{HOLDER}\",\"name\":\"Tür\",\"rates\":[1,-1,0.5,1e-7,null,true]}},\
         \"credentialStatus\":{}}}",
        entry.to_value()
    );
    let provider = &WORLD.provider;
    let credential = json::read(credential.as_bytes()).unwrap();
    let forms = sign(provider, &credential);
    forms.iter().for_each(|form| add("credentials", 0, form));
    let texts: Vec<_> = forms[..2].iter().map(|form| str::from_utf8(form).unwrap()).collect();
    let signer = signer_of(provider, HOLDER);
    let method = method_of(HOLDER);
    let presentation = present(provider, &*signer, &method, &texts, AUDIENCE, NOW).unwrap();
    add("credentials", 1, presentation.as_bytes());
    let bits = Bitstring::default();
    let issuer: Did = ISSUER.parse().unwrap();
    let list = bits.credential(&issuer, LIST, StatusPurpose::Revocation, NOW, NOW + 10).unwrap();
    let lists = sign(provider, &list);
    lists.iter().for_each(|form| add("credentials", 2, form));
    add("credentials", 4, &status::write_staple(&lists).unwrap());
    add("credentials", 3, bits.encode().as_bytes());

    add("documents", 0, json::canonical(&credential).unwrap().as_bytes());
    add("documents", 1, &forms[2]);
    for text in [
        ISSUER,
        "did:web:example.com%3A3000:user:alice",
        "did:peer:0z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp#1",
    ] {
        add("documents", 2, text.as_bytes());
    }
    let jwk = JWK.create(&key_of(ISSUER)).unwrap();
    add("documents", 2, jwk.as_str().as_bytes());
    for document in [KEY.resolve(&issuer).unwrap(), JWK.resolve(&jwk).unwrap()] {
        add("documents", 3, document.canonical().as_bytes());
    }
    let (create, update) = history();
    add("documents", 4, create.canonical().unwrap().as_bytes());
    add("documents", 4, update.canonical().unwrap().as_bytes());
    let ledger = ott::document(&[7; 32], "2026-01-01T00:00:00Z", &key_of(ISSUER), &key_of(HOLDER)).unwrap();
    add("documents", 5, ledger.as_bytes());
    let list = format!("# one\n{ISSUER}\nmembers 7 {}\n", "ab".repeat(32));
    add("documents", 6, list.as_bytes());
    let state = State::create(provider, &create).unwrap();
    let staple = WORLD.registry.staple(provider, state.document(), NOW_S);
    add("documents", 7, &staple.checkpoint);
    add("documents", 8, &staple.write().unwrap());

    for (kind, size) in [(0, 0), (0, 6), (0, 99), (1, 0), (1, 7), (1, 99), (2, 12), (2, 99), (4, 0), (4, 99)]
    {
        add("proofs", kind, &[size, 5]);
        add("proofs", kind, &[size, 3, 0, 2, 4, 1]);
    }
    add("proofs", 3, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 9, 64]);
    seeds
}
