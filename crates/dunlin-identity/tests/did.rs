//! DIDs, their documents, and the methods `did:key` and `did:jwk` against published vectors.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod keys;

use base64ct::{Base64UrlUnpadded, Encoding};
use dunlin::wire::SignatureScheme;
use dunlin_identity::encoding::json::{JsonFault, MAX_JSON, Value, read_bounded};
use dunlin_identity::key::{KeyError, KeyType, MAX_MULTIBASE, PublicKey, base58btc, multibase_decode};
use dunlin_identity::method::{JWK, KEY, Method, MethodError, Methods};
use dunlin_identity::{
    Did, DidDocument, DidError, DidUrl, DocumentError, MAX_DID, MAX_RELATIONSHIP_ENTRIES,
    MAX_VERIFICATION_METHODS, Relationship,
};
use serde_json::json;

const ED25519: &str = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp";

fn did(text: &str) -> Did {
    text.parse().unwrap()
}

fn vectors(text: &str) -> serde_json::Map<String, Value> {
    let Value::Object(vectors) = read_bounded(text.as_bytes(), 1 << 20).unwrap() else { panic!("an object") };
    vectors
}

/// The document has exactly this key, under the ids that the published document lists.
fn check(document: &DidDocument, published: &Value, key: &PublicKey) {
    for relationship in [Relationship::Authentication, Relationship::AssertionMethod] {
        let ids: Vec<_> =
            document.keys(relationship).map(|(id, key)| (id.to_string(), key.clone())).collect();
        let expected = published[relationship.name()][0].as_str().unwrap().to_owned();
        assert_eq!(ids, [(expected, key.clone())]);
    }
    assert_eq!(document.value()["id"], published["id"]);
}

#[test]
fn did_key_agrees_with_its_published_vectors_of_ed25519() {
    let vectors = vectors(include_str!("data/did-key/ed25519-x25519.json"));
    let mut checked = 0;
    for (name, vector) in &vectors {
        let pair = &vector["verificationKeyPair"];
        let key = match pair["publicKeyBase58"].as_str() {
            Some(text) => {
                let raw = multibase_decode(&format!("z{text}")).unwrap();
                PublicKey::from_multikey(&base58btc(&[&[0xed, 1], raw.as_slice()].concat())).unwrap()
            }
            None => PublicKey::from_jwk(pair["publicKeyJwk"].as_object().unwrap()).unwrap(),
        };
        assert_eq!(key.key_type(), KeyType::Ed25519);
        check(&KEY.resolve(&did(name)).unwrap(), &vector["didDocument"], &key);
        assert_eq!(KEY.create(&key).unwrap().as_str(), name);
        checked += 1;
    }
    assert_eq!(checked, 5);
}

#[test]
fn did_key_agrees_with_its_published_vectors_of_curves_and_rsa() {
    let mut vectors_of = vectors(include_str!("data/did-key/nist-curves.json"));
    vectors_of.extend(vectors(include_str!("data/did-key/rsa.json")));
    let mut checked = Vec::new();
    for (name, vector) in &vectors_of {
        let published = &vector["didDocument"]["verificationMethod"][0];
        let Some(jwk) = published["publicKeyJwk"].as_object() else {
            // One vector has the key in base58 alone.
            let raw =
                multibase_decode(&format!("z{}", published["publicKeyBase58"].as_str().unwrap())).unwrap();
            let multikey = base58btc(&[&[0x80, 0x24], raw.as_slice()].concat());
            check(
                &KEY.resolve(&did(name)).unwrap(),
                &vector["didDocument"],
                &PublicKey::from_multikey(&multikey).unwrap(),
            );
            checked.push("P-256");
            continue;
        };
        if jwk.get("crv").is_some_and(|curve| curve == "P-521") {
            assert_eq!(KEY.resolve(&did(name)), Err(MethodError::Key("key", KeyError::UnknownType)));
            continue;
        }
        let key = PublicKey::from_jwk(jwk).unwrap();
        check(&KEY.resolve(&did(name)).unwrap(), &vector["didDocument"], &key);
        assert_eq!(KEY.create(&key).unwrap().as_str(), name);
        assert_eq!(key.to_jwk().as_object().unwrap(), jwk);
        assert_eq!(PublicKey::from_spki(key.spki()), Ok(key.clone()));
        checked.push(match key.key_type() {
            KeyType::P256 => "P-256",
            KeyType::P384 => "P-384",
            KeyType::Rsa => "RSA",
            KeyType::Ed25519 => "Ed25519",
            KeyType::MlDsa44 => "ML-DSA-44",
        });
    }
    checked.sort_unstable();
    assert_eq!(checked, ["P-256", "P-256", "P-256", "P-384", "P-384", "RSA", "RSA"]);
}

#[test]
fn did_jwk_agrees_with_the_examples_of_its_specification() {
    let published = vectors(include_str!("data/did-jwk/p256.json"));
    let name = did(published["id"].as_str().unwrap());
    let document = JWK.resolve(&name).unwrap();
    assert_eq!(document.value(), &Value::Object(published));
    let (id, key) = document.keys(Relationship::Authentication).next().unwrap();
    assert_eq!(id.to_string(), format!("{name}#0"));
    assert_eq!(JWK.create(key).unwrap(), name);

    let published = Value::Object(vectors(include_str!("data/did-jwk/x25519.json")));
    let document = JWK.resolve(&did(published["id"].as_str().unwrap())).unwrap();
    assert_eq!(document.value(), &published);
    assert_eq!(document.keys(Relationship::Authentication).count(), 0);
}

#[test]
fn every_type_of_key_makes_a_did_jwk_that_resolves_to_it() {
    let mut all = vectors(include_str!("data/did-key/nist-curves.json"));
    all.extend(vectors(include_str!("data/did-key/rsa.json")));
    all.extend(vectors(include_str!("data/did-key/ed25519-x25519.json")));
    let methods = Methods::default();
    for document in all.keys().filter_map(|name| methods.resolve(&did(name)).ok()) {
        let (_, key) = document.keys(Relationship::AssertionMethod).next().unwrap();
        let jwk = methods.get("jwk").unwrap().create(key).unwrap();
        let resolved = methods.resolve(&jwk).unwrap();
        assert_eq!(resolved.keys(Relationship::AssertionMethod).next().unwrap().1, key);
    }
}

#[test]
fn refuses_unknown_methods() {
    assert_eq!(Methods::default().resolve(&did("did:web:example")), Err(MethodError::Unknown("web".into())));
    let other = did(&ED25519.replace("key", "web"));
    assert_eq!(KEY.resolve(&other), Err(MethodError::Unknown("web".into())));
    assert_eq!(JWK.resolve(&other), Err(MethodError::Unknown("web".into())));
}

#[test]
fn did_key_refuses_malformed_keys() {
    let resolve = |identifier: &str| KEY.resolve(&did(&format!("did:key:{identifier}"))).unwrap_err();
    assert_eq!(resolve("6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp"), MethodError::Encoding("key"));
    assert_eq!(resolve("z0OIl"), MethodError::Encoding("key"));
    assert_eq!(resolve("uAAAA"), MethodError::Encoding("key"));
    let key = |bytes: &[u8]| resolve(&base58btc(bytes));
    let malformed = |typ| MethodError::Key("key", KeyError::Malformed(typ));
    assert_eq!(key(&[&[0xed, 1], [7; 31].as_slice()].concat()), malformed(KeyType::Ed25519));
    // x = 0 and a wrong prefix; no point has the x-coordinate 2^256 - 1.
    assert_eq!(key(&[&[0x80, 0x24, 5], [0; 32].as_slice()].concat()), malformed(KeyType::P256));
    assert_eq!(key(&[&[0x80, 0x24, 2], [0xff; 32].as_slice()].concat()), malformed(KeyType::P256));
    assert_eq!(key(&[&[0x81, 0x24, 2], [0; 32].as_slice()].concat()), malformed(KeyType::P384));
    assert_eq!(key(&[0x85, 0x24, 0x30, 0]), malformed(KeyType::Rsa));
    // An RSAPublicKey with a modulus of 8 bits.
    assert_eq!(
        key(&[0x85, 0x24, 0x30, 7, 2, 2, 0, 0x9f, 2, 1, 3]),
        MethodError::Key("key", KeyError::RsaSize(8))
    );
    assert_eq!(key(&[0xec, 1, 0]), MethodError::Key("key", KeyError::UnknownType));
    assert_eq!(
        resolve(&format!("z{}", "1".repeat(MAX_MULTIBASE))),
        MethodError::Key("key", KeyError::TooLong)
    );
}

#[test]
fn a_multikey_with_an_uncompressed_point_is_malformed() {
    let vectors = vectors(include_str!("data/did-key/nist-curves.json"));
    let (name, _) = vectors.iter().find(|(name, _)| name.starts_with("did:key:zDn")).unwrap();
    let document = KEY.resolve(&did(name)).unwrap();
    let (_, key) = document.keys(Relationship::Authentication).next().unwrap();
    let spki: &[u8] = key.spki().as_ref();
    let point = &spki[spki.len() - 65..];
    let text = base58btc(&[&[0x80, 0x24], point].concat());
    assert_eq!(PublicKey::from_multikey(&text), Err(KeyError::Malformed(KeyType::P256)));
}

#[test]
fn a_jwk_is_refused_with_the_member_that_is_wrong() {
    let good = json!({"kty": "EC", "crv": "P-256",
        "x": "igrFmi0whuihKnj9R3Om1SoMph72wUGeFaBbzG2vzns", "y": "efsX5b10x8yjyrj4ny3pGfLcY7Xby1KzgqOdqnsrJIM"});
    let with = |name: &str, value: Value| {
        let mut jwk = good.as_object().unwrap().clone();
        jwk.insert(name.to_owned(), value);
        PublicKey::from_jwk(&jwk)
    };
    assert!(with("kid", json!("a")).is_ok());
    assert!(with("use", json!("sig")).is_ok());
    assert_eq!(with("use", json!("enc")), Err(KeyError::Use));
    assert!(with("key_ops", json!(["sign", "verify"])).is_ok());
    assert_eq!(with("key_ops", json!(["sign"])), Err(KeyError::Use));
    assert_eq!(with("key_ops", json!("verify")), Err(KeyError::Use));
    assert!(with("alg", json!("ES256")).is_ok());
    assert_eq!(with("alg", json!("ECDH-ES")), Err(KeyError::Use));
    assert_eq!(
        with("d", json!("gPh-VvVS8MbvKQ9LSVVmfnxnKjHn4Tqj0bmbpehRlpc")),
        Err(KeyError::PrivateKey("d"))
    );
    assert_eq!(with("kty", json!("oct")), Err(KeyError::UnknownType));
    assert_eq!(with("kty", json!(1)), Err(KeyError::JwkMember("kty")));
    assert_eq!(with("x", json!("AAAA")), Err(KeyError::JwkMember("x")));
    assert_eq!(
        with("x", json!("igrFmi0whuihKnj9R3Om1SoMph72wUGeFaBbzG2vzns=")),
        Err(KeyError::JwkMember("x"))
    );
    assert_eq!(with("y", json!("A".repeat(43))), Err(KeyError::Malformed(KeyType::P256)));
}

/// With a public key of small order, everyone can make signatures.
#[test]
fn refuses_ed25519_points_of_small_order() {
    let neutral = [&[1][..], &[0; 31]].concat();
    let of_order_2 = [&[0xec][..], &[0xff; 30], &[0x7f]].concat();
    for point in [vec![0; 32], neutral, of_order_2] {
        let text = base58btc(&[&[0xed, 0x01], point.as_slice()].concat());
        assert_eq!(PublicKey::from_multikey(&text), Err(KeyError::Malformed(KeyType::Ed25519)));
    }
}

#[test]
fn an_rsa_jwk_has_one_form() {
    let vectors = vectors(include_str!("data/did-key/rsa.json"));
    let jwk = vectors.values().next().unwrap()["publicKeyJwk"].as_object().unwrap();
    assert!(PublicKey::from_jwk(jwk).is_ok());
    for name in ["n", "e"] {
        let number = Base64UrlUnpadded::decode_vec(jwk[name].as_str().unwrap()).unwrap();
        let padded = Base64UrlUnpadded::encode_string(&[&[0], number.as_slice()].concat());
        let mut jwk = jwk.clone();
        jwk.insert(name.to_owned(), padded.into());
        assert_eq!(PublicKey::from_jwk(&jwk), Err(KeyError::JwkMember(name)));
    }
}

#[test]
fn did_jwk_refuses_bad_json() {
    let resolve = |text: &str| {
        JWK.resolve(&did(&format!("did:jwk:{}", Base64UrlUnpadded::encode_string(text.as_bytes()))))
            .unwrap_err()
    };
    let MethodError::Json(error) = resolve(r#"{"kty":"OKP","kty":"EC"}"#) else {
        panic!("a fault of the JSON")
    };
    assert_eq!(error.fault, JsonFault::Duplicate("kty".into()));
    assert_eq!(resolve("[]"), MethodError::Encoding("jwk"));
    assert_eq!(
        resolve(r#"{"kty":"OKP","crv":"Ed25519","d":"AA"}"#),
        MethodError::Key("jwk", KeyError::PrivateKey("d"))
    );
    assert_eq!(JWK.resolve(&did("did:jwk:a.b")), Err(MethodError::Encoding("jwk")));
}

#[test]
fn accepts_and_refuses_dids_as_did_core_says() {
    for text in [
        "did:a:b",
        "did:example:123456789abcdefghi",
        "did:web:w3c.example:user%3Aalice",
        "did:x:::a",
        "did:9:A-_.",
    ] {
        assert_eq!(did(text).as_str(), text);
    }
    assert_eq!(
        (did("did:web:a:b").method().to_owned(), did("did:web:a:b").identifier()),
        ("web".into(), "a:b")
    );
    let refused = |text: &str| text.parse::<Did>().unwrap_err();
    assert_eq!(refused("DID:a:b"), DidError::Scheme);
    assert_eq!(refused("did:a"), DidError::Method);
    assert_eq!(refused("did:A:b"), DidError::Method);
    assert_eq!(refused("did::b"), DidError::Method);
    for text in
        ["did:a:", "did:a:b:", "did:a:b c", "did:a:%2", "did:a:%zz", "did:a:b#c", "did:a:b/c", "did:a:\u{e9}"]
    {
        assert_eq!(refused(text), DidError::Identifier, "{text}");
    }
    assert_eq!(refused(&format!("did:a:{}", "b".repeat(MAX_DID))), DidError::TooLong);
}

#[test]
fn splits_did_urls() {
    let url: DidUrl = "did:a:b/path?query=1#key-1".parse().unwrap();
    assert_eq!((url.did(), url.fragment()), (&did("did:a:b"), Some("key-1")));
    assert_eq!(url.to_string(), "did:a:b/path?query=1#key-1");
    assert_eq!(DidUrl::relative("#k", &did("did:a:b")).unwrap().to_string(), "did:a:b#k");
    assert_eq!("did:a:b#a#b".parse::<DidUrl>(), Err(DidError::Url));
    assert_eq!("did:a:b#\u{e9}".parse::<DidUrl>(), Err(DidError::Url));
}

/// A document of `did:example:a` with one Multikey, changed by `change`.
fn document(change: impl FnOnce(&mut Value)) -> Result<DidDocument, DocumentError> {
    let mut value = json!({
        "id": "did:example:a",
        "verificationMethod": [{"id": "#k", "type": "Multikey", "controller": "did:example:a",
            "publicKeyMultibase": did(ED25519).identifier()}],
        "authentication": ["did:example:a#k"],
    });
    change(&mut value);
    DidDocument::from_value(value, &did("did:example:a"))
}

fn method(id: &str) -> Value {
    json!({"id": id, "type": "Multikey", "controller": "did:example:a", "publicKeyMultibase": did(ED25519).identifier()})
}

#[test]
fn a_key_serves_only_the_relationships_that_list_it() {
    let good = document(|_| ()).unwrap();
    let id: DidUrl = "did:example:a#k".parse().unwrap();
    assert!(good.find(&id, Relationship::Authentication).is_ok());
    let refused = good.find(&id, Relationship::AssertionMethod).unwrap_err();
    assert_eq!(refused, DocumentError::NotAuthorised(id.clone(), "assertionMethod"));
    let other: DidUrl = "did:example:a#other".parse().unwrap();
    assert_eq!(good.find(&other, Relationship::Authentication), Err(DocumentError::Unknown(other)));

    let embedded = document(|value| value["assertionMethod"] = json!([method("#e")])).unwrap();
    let id: DidUrl = "did:example:a#e".parse().unwrap();
    assert!(embedded.find(&id, Relationship::AssertionMethod).is_ok());
    assert!(embedded.find(&id, Relationship::Authentication).is_err());
}

#[test]
fn a_key_of_another_controller_does_not_count() {
    let foreign =
        document(|value| value["verificationMethod"][0]["controller"] = json!("did:example:b")).unwrap();
    let id: DidUrl = "did:example:a#k".parse().unwrap();
    assert_eq!(foreign.find(&id, Relationship::Authentication), Err(DocumentError::Controller(id)));
    assert_eq!(foreign.keys(Relationship::Authentication).count(), 0);
}

#[test]
fn a_key_of_another_did_does_not_count() {
    let foreign = document(|value| {
        value["verificationMethod"][0]["id"] = json!("did:example:b#k");
        value["authentication"] = json!(["did:example:b#k"]);
    });
    let (foreign, id): (_, DidUrl) = (foreign.unwrap(), "did:example:b#k".parse().unwrap());
    assert_eq!(foreign.find(&id, Relationship::Authentication), Err(DocumentError::Controller(id)));
    assert_eq!(foreign.keys(Relationship::Authentication).count(), 0);
}

#[test]
fn ignores_methods_of_unknown_types() {
    let unknown =
        document(|value| value["verificationMethod"][0]["type"] = json!("Bls12381G2Key2020")).unwrap();
    let id: DidUrl = "did:example:a#k".parse().unwrap();
    assert_eq!(unknown.find(&id, Relationship::Authentication), Err(DocumentError::UnknownType(id)));
}

#[test]
fn refuses_malformed_documents_and_says_why() {
    let refused = |change: fn(&mut Value)| document(change).unwrap_err();
    assert_eq!(
        refused(|value| value["id"] = json!("did:example:b")),
        DocumentError::OtherDid(did("did:example:b"))
    );
    assert_eq!(refused(|value| *value = json!([])), DocumentError::Member("id"));
    assert_eq!(refused(|value| value["id"] = json!("x")), DocumentError::Did("id", DidError::Scheme));
    assert_eq!(
        refused(|value| value["authentication"] = json!("#k")),
        DocumentError::Member("authentication")
    );
    assert_eq!(
        refused(|value| value["authentication"] = json!(["#gone"])),
        DocumentError::Dangling("authentication", "did:example:a#gone".parse().unwrap())
    );
    let key: DidUrl = "did:example:a#k".parse().unwrap();
    assert_eq!(
        refused(
            |value| value["verificationMethod"][0]["publicKeyMultibase"] = json!(base58btc(&[0xed, 1, 0]))
        ),
        DocumentError::Key(key.clone(), KeyError::Malformed(KeyType::Ed25519)),
    );
    assert_eq!(
        refused(|value| value["verificationMethod"][0]["secretKeyMultibase"] = json!("z1")),
        DocumentError::PrivateKey("secretKeyMultibase")
    );
    assert_eq!(
        refused(|value| value["verificationMethod"][0]["publicKeyJwk"] = json!({})),
        DocumentError::Member("publicKeyJwk")
    );
    assert_eq!(
        refused(|value| value["verificationMethod"] = json!([null])),
        DocumentError::Member("verificationMethod")
    );
    assert_eq!(
        refused(|value| value["authentication"] = json!([method("#k")])),
        DocumentError::Duplicate(key)
    );
}

#[test]
fn bounds_keys_relationships_and_length() {
    let methods = |count: usize| (0..count).map(|number| method(&format!("#{number}"))).collect::<Vec<_>>();
    let with = |count: usize| {
        document(|value| {
            value["verificationMethod"] = methods(count).into();
            value["authentication"] = json!([]);
        })
    };
    assert!(with(MAX_VERIFICATION_METHODS).is_ok());
    assert_eq!(with(MAX_VERIFICATION_METHODS + 1), Err(DocumentError::TooManyMethods));
    let listing = |count: usize| document(|value| value["authentication"] = vec!["#k"; count].into());
    assert!(listing(MAX_RELATIONSHIP_ENTRIES).is_ok());
    assert_eq!(listing(MAX_RELATIONSHIP_ENTRIES + 1), Err(DocumentError::TooManyEntries("authentication")));
    let long = format!("{{\"id\": \"did:example:a\", \"x\": \"{}\"}}", "x".repeat(MAX_JSON));
    assert!(matches!(DidDocument::read(long.as_bytes(), &did("did:example:a")), Err(DocumentError::Json(_))));
}

/// RFC 8037 §A.4 and RFC 7515 §A.3.
#[test]
fn the_signatures_of_the_jose_rfcs_verify() {
    let vectors = [
        (
            json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}),
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijc\
             NR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
        ),
        (
            json!({"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
                "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}),
            "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp\
             0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        ),
    ];
    for (jwk, jws) in vectors {
        let key = PublicKey::from_jwk(jwk.as_object().unwrap()).unwrap();
        let (signed, signature) = jws.rsplit_once('.').unwrap();
        let signature = Base64UrlUnpadded::decode_vec(signature).unwrap();
        let verify = |message: &[u8], signature: &[u8]| {
            key.verify(&keys::provider(), key.key_type().default_scheme(), message, signature)
        };
        assert_eq!(verify(signed.as_bytes(), &signature), Ok(()));
        assert_eq!(verify(b"other", &signature), Err(KeyError::Signature));
        assert_eq!(verify(signed.as_bytes(), &signature[..63]), Err(KeyError::Signature));
        let other = SignatureScheme::RSA_PSS_RSAE_SHA256;
        let refused = key.verify(&keys::provider(), other, signed.as_bytes(), &signature);
        assert_eq!(refused, Err(KeyError::Scheme(key.key_type(), other)));
    }
}
