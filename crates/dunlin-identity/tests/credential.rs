//! Credentials: the published vectors of the cryptosuites, issuing, and every refusal.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod keys;

use std::sync::Arc;

use base64ct::{Base64UrlUnpadded, Encoding};
use dunlin::crypto::SigningKey;
use dunlin_identity::credential::proof::{self, MAX_ISSUER_CLOCK_SKEW, ProofError};
use dunlin_identity::credential::{
    Context, Contexts, CredentialError, Issuer, JwtError, MAX_CREDENTIAL, Seconds, VerifiedCredential,
    Verifier, of_file,
};
use dunlin_identity::encoding::json::JsonFault;
use dunlin_identity::key::{self, KeyError, KeyType, PublicKey, multibase_decode};
use dunlin_identity::method::{KEY, Method};
use dunlin_identity::{Did, DidDocument, DidUrl, DocumentError};
use keys::{P256, P384, ecdsa_of, ed25519, ed25519_of, p256, p384, provider, public, rsa};
use serde_json::{Value, json};

/// 2023-02-24T23:36:38Z, when the vectors were created.
const CREATED: Seconds = 1_677_281_798;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A signed document, and the key pair.
type Vector = (Value, PublicKey, Arc<dyn SigningKey>);

/// The unsigned document, and a vector for each curve.
fn vectors() -> (Value, [Vector; 3]) {
    let pair = |keys: &str, load: fn(&[u8]) -> Arc<dyn SigningKey>| {
        let keys = parsed(keys);
        let secret = keys.get("secretKeyMultibase").or_else(|| keys.get("privateKeyMultibase")).unwrap();
        // A multicodec prefix of two bytes stands before the key.
        let secret = multibase_decode(secret.as_str().unwrap()).unwrap();
        (PublicKey::from_multikey(keys["publicKeyMultibase"].as_str().unwrap()).unwrap(), load(&secret[2..]))
    };
    let vector = |signed, (public, signer)| (parsed(signed), public, signer);
    let ed25519 = pair(include_str!("data/eddsa-jcs-2022/key.json"), ed25519_of);
    let p256 = pair(include_str!("data/ecdsa-jcs-2019-p256/key.json"), |secret| ecdsa_of(secret, P256));
    let p384 = pair(include_str!("data/ecdsa-jcs-2019-p384/key.json"), |secret| ecdsa_of(secret, P384));
    let vectors = [
        vector(include_str!("data/eddsa-jcs-2022/signed.json"), ed25519),
        vector(include_str!("data/ecdsa-jcs-2019-p256/signed.json"), p256),
        vector(include_str!("data/ecdsa-jcs-2019-p384/signed.json"), p384),
    ];
    (parsed(include_str!("data/unsigned.json")), vectors)
}

#[test]
fn the_published_proofs_verify() {
    let (_, vectors) = vectors();
    for (signed, public, _) in vectors {
        let method = proof::verify(&provider(), &signed, &public, CREATED).unwrap();
        assert_eq!(method.to_string(), signed["proof"]["verificationMethod"].as_str().unwrap());
        assert_eq!(KEY.create(&public).unwrap(), *method.did());
        for (member, value) in [("name", json!("Other")), ("id", json!("urn:uuid:0")), ("extra", json!(1))] {
            let mut changed = signed.clone();
            changed[member] = value;
            let refused = proof::verify(&provider(), &changed, &public, CREATED);
            assert_eq!(refused, Err(ProofError::Key(KeyError::Signature)), "{member}");
        }
        let mut changed = signed.clone();
        changed["proof"]["created"] = json!("2023-02-24T23:36:37Z");
        assert_eq!(
            proof::verify(&provider(), &changed, &public, CREATED),
            Err(ProofError::Key(KeyError::Signature))
        );
    }
}

#[test]
fn signing_the_published_document_gives_the_published_proof() {
    let (unsigned, vectors) = vectors();
    for (signed, public, signer) in vectors {
        let method: DidUrl = signed["proof"]["verificationMethod"].as_str().unwrap().parse().unwrap();
        let mut own = proof::sign(&provider(), &*signer, &method, &unsigned, CREATED).unwrap();
        proof::verify(&provider(), &own, &public, CREATED).unwrap();
        if public.key_type() != KeyType::Ed25519 {
            // ECDSA signatures differ each time.
            assert_ne!(own["proof"]["proofValue"], signed["proof"]["proofValue"]);
            own["proof"]["proofValue"] = signed["proof"]["proofValue"].clone();
        }
        assert_eq!(own, signed);
    }
}

#[test]
fn credentials_of_another_implementation_verify() {
    let signed = [
        include_str!("data/digitalbazaar/ed25519.json"),
        include_str!("data/digitalbazaar/p256.json"),
        include_str!("data/digitalbazaar/p384.json"),
    ];
    let holder: Did = "did:example:holder".parse().unwrap();
    for text in signed {
        let issuer: Did = parsed(text)["issuer"].as_str().unwrap().parse().unwrap();
        let verifier = Verifier::new([KEY.resolve(&issuer).unwrap()]);
        let verified = verifier.verify(&provider(), text.as_bytes(), &holder, CREATED).unwrap();
        assert_eq!(verified.issuer, issuer);
        for (from, to) in [("1e-7", "2e-7"), ("1e+21", "1e+22"), ("Tür", "Tor"), ("[0,", "[1,")] {
            assert!(text.contains(from));
            let changed = text.replace(from, to);
            let refused = verifier.verify(&provider(), changed.as_bytes(), &holder, CREATED);
            assert_eq!(refused, Err(CredentialError::Proof(ProofError::Key(KeyError::Signature))));
        }
    }
}

/// An issuer with its `did:key`, a holder, and a verifier that trusts the issuer.
struct Case {
    signer: Arc<dyn SigningKey>,
    method: DidUrl,
    holder: Did,
    verifier: Verifier,
}

fn case(signer: Arc<dyn SigningKey>) -> Case {
    let did = KEY.create(&public(&*signer)).unwrap();
    let method = did.with_fragment(did.identifier()).unwrap();
    let holder = KEY.create(&public(&*ed25519(7))).unwrap();
    Case { signer, method, holder, verifier: Verifier::new([KEY.resolve(&did).unwrap()]) }
}

impl Case {
    fn credential(&self) -> Value {
        json!({
            "@context": ["https://www.w3.org/ns/credentials/v2"],
            "type": ["VerifiableCredential"],
            "issuer": self.method.did().as_str(),
            "validFrom": "2023-01-01T00:00:00Z",
            "validUntil": "2024-01-01T01:00:00+01:00",
            "credentialSubject": {"id": self.holder.as_str()},
        })
    }

    fn issue(&self, credential: &Value) -> Result<String, CredentialError> {
        let provider = provider();
        let issuer = Issuer { provider: &provider, signer: &*self.signer, method: &self.method };
        issuer.issue(credential, &Contexts::default(), CREATED)
    }

    fn issue_jwt(&self, credential: &Value) -> Result<String, CredentialError> {
        let provider = provider();
        let issuer = Issuer { provider: &provider, signer: &*self.signer, method: &self.method };
        issuer.issue_jwt(credential, &Contexts::default())
    }

    fn verify(&self, credential: &str) -> Result<VerifiedCredential, CredentialError> {
        self.verifier.verify(&provider(), credential.as_bytes(), &self.holder, CREATED)
    }

    /// Signs what `change` makes of the credential, without the issuer's checks.
    fn verify_signed(&self, change: impl FnOnce(&mut Value)) -> Result<VerifiedCredential, CredentialError> {
        let mut credential = self.credential();
        change(&mut credential);
        let signed = proof::sign(&provider(), &*self.signer, &self.method, &credential, CREATED).unwrap();
        self.verify(&signed.to_string())
    }

    /// Verifies the issued credential after `change`.
    fn verify_changed(&self, change: impl FnOnce(&mut Value)) -> Result<VerifiedCredential, CredentialError> {
        let mut credential = parsed(&self.issue(&self.credential()).unwrap());
        change(&mut credential);
        self.verify(&credential.to_string())
    }

    /// Signs a JWT with this header, and this payload in place of the credential's.
    fn verify_jwt(
        &self,
        change_header: impl FnOnce(&mut Value),
        change_payload: impl FnOnce(&mut Value),
    ) -> Result<VerifiedCredential, CredentialError> {
        let mut header = json!({"alg": "EdDSA", "typ": "vc+jwt", "kid": self.method.to_string()});
        let mut payload = self.credential();
        change_header(&mut header);
        change_payload(&mut payload);
        let encode = |bytes: &[u8]| Base64UrlUnpadded::encode_string(bytes);
        let signed =
            format!("{}.{}", encode(header.to_string().as_bytes()), encode(payload.to_string().as_bytes()));
        let scheme = public(&*self.signer).key_type().schemes()[0];
        let signature = key::sign(&*self.signer, &provider(), scheme, signed.as_bytes()).unwrap();
        self.verify(&format!("{signed}.{}", encode(&signature)))
    }
}

/// Editors write a byte order mark and a line break. Both are bytes of CBOR in the compact form.
#[test]
fn a_file_is_read_as_an_editor_writes_it() {
    for text in ["{\"a\":1}", "eyJ.e30.AA"] {
        for file in [text.to_owned(), format!("{text}\r\n"), format!("\u{feff}{text}\n")] {
            assert_eq!(of_file(file.as_bytes()), text.as_bytes());
        }
    }
    let compact = [0xd2, 0x84, b'\n'];
    assert_eq!(of_file(&compact), compact);
}

#[test]
fn every_type_of_key_issues_credentials_that_verify() {
    for signer in [ed25519(1), p256(1), p384(1), rsa()] {
        let case = case(signer);
        for text in [case.issue(&case.credential()).unwrap(), case.issue_jwt(&case.credential()).unwrap()] {
            let verified = case.verify(&text).unwrap();
            assert_eq!(verified.credential, case.credential());
            assert_eq!((&verified.issuer, &verified.subject), (case.method.did(), &case.holder));
            assert_eq!(verified.valid_until, Some(1_704_067_200));
        }
    }
}

#[test]
fn refuses_a_credential_that_was_changed() {
    let case = case(ed25519(1));
    let wrong = Err(CredentialError::Proof(ProofError::Key(KeyError::Signature)));
    assert_eq!(case.verify_changed(|value| value["credentialSubject"]["role"] = json!("admin")), wrong);
    assert_eq!(case.verify_changed(|value| value["validUntil"] = json!("2034-01-01T00:00:00Z")), wrong);
    // The proof's own metadata is signed, too.
    assert_eq!(case.verify_changed(|value| value["proof"]["created"] = json!("2023-02-24T23:36:00Z")), wrong);
    assert_eq!(case.verify_changed(|value| value["proof"]["nonce"] = json!("1")), wrong);
}

#[test]
fn trusts_the_listed_issuers_alone() {
    let trusted = case(ed25519(1));
    let other = case(ed25519(2));
    let credential = other.issue(&other.credential()).unwrap();
    let untrusted = Err(CredentialError::UntrustedIssuer(other.method.did().to_string()));
    assert_eq!(trusted.verify(&credential), untrusted);
    let nobody = Verifier::default().verify(&provider(), credential.as_bytes(), &other.holder, CREATED);
    assert_eq!(nobody, untrusted);

    // A credential of the trusted issuer, signed by another key.
    let mut forged = other.credential();
    forged["issuer"] = trusted.method.did().as_str().into();
    let forged = proof::sign(&provider(), &*other.signer, &other.method, &forged, CREATED).unwrap();
    let unknown = DocumentError::Unknown(other.method.clone());
    assert_eq!(trusted.verify(&forged.to_string()), Err(CredentialError::IssuerKey(unknown)));
}

#[test]
fn the_issuers_key_must_be_for_assertions() {
    let mut case = case(ed25519(1));
    let mut document = KEY.resolve(case.method.did()).unwrap().value().clone();
    document["assertionMethod"] = json!([]);
    case.verifier = Verifier::new([DidDocument::from_value(document, case.method.did()).unwrap()]);
    let refused = DocumentError::NotAuthorised(case.method.clone(), "assertionMethod");
    assert_eq!(case.verify_changed(|_| ()), Err(CredentialError::IssuerKey(refused)));
}

#[test]
fn only_the_subject_presents_a_credential() {
    let mut case = case(ed25519(1));
    let credential = case.issue(&case.credential()).unwrap();
    let subject = case.holder.to_string();
    case.holder = KEY.create(&public(&*ed25519(8))).unwrap();
    assert_eq!(case.verify(&credential), Err(CredentialError::Subject(subject)));
}

#[test]
fn a_credential_is_valid_between_its_times() {
    let case = case(ed25519(1));
    for text in [case.issue(&case.credential()).unwrap(), case.issue_jwt(&case.credential()).unwrap()] {
        let at = |now| case.verifier.verify(&provider(), text.as_bytes(), &case.holder, now).map(|_| ());
        let from = 1_672_531_200;
        let until = 1_704_067_200;
        assert_eq!(at(until), Ok(()));
        assert_eq!(at(until + 1), Err(CredentialError::Expired));
        // The proof of the first one was created later than `from`.
        let early = at(from - 1).unwrap_err();
        assert!(matches!(early, CredentialError::NotYetValid | CredentialError::Proof(ProofError::Future)));
    }
    let refused = case.verify_signed(|value| value["validFrom"] = json!("2023-02-24T23:36:39Z"));
    assert_eq!(refused, Err(CredentialError::NotYetValid));
    assert!(case.verify_signed(|value| value["validFrom"] = json!("2023-02-24T23:36:38Z")).is_ok());
    for bad in [json!("2023-01-01"), json!("2023-01-01T00:00:00"), json!(0)] {
        let refused = case.verify_signed(|value| value["validFrom"] = bad);
        assert_eq!(refused, Err(CredentialError::Member("validFrom")));
    }
}

#[test]
fn a_proof_is_not_created_later_than_now() {
    let case = case(ed25519(1));
    let at = |created| {
        let signed =
            proof::sign(&provider(), &*case.signer, &case.method, &case.credential(), created).unwrap();
        case.verify(&signed.to_string()).map(|_| ())
    };
    assert_eq!(at(CREATED + MAX_ISSUER_CLOCK_SKEW), Ok(()));
    assert_eq!(at(CREATED + MAX_ISSUER_CLOCK_SKEW + 1), Err(CredentialError::Proof(ProofError::Future)));
}

#[test]
fn refuses_proofs_with_the_check_that_failed() {
    let case = case(ed25519(1));
    let with = |name: &str, value: Value| {
        let refused = case.verify_changed(|credential| credential["proof"][name] = value).unwrap_err();
        let CredentialError::Proof(error) = refused else { panic!("{refused}") };
        error
    };
    assert_eq!(with("type", json!("Ed25519Signature2020")), ProofError::Type("Ed25519Signature2020".into()));
    assert_eq!(
        with("cryptosuite", json!("eddsa-rdfc-2022")),
        ProofError::Cryptosuite("eddsa-rdfc-2022".into())
    );
    assert_eq!(
        with("cryptosuite", json!("ecdsa-jcs-2019")),
        ProofError::KeyType("ecdsa-jcs-2019", KeyType::Ed25519)
    );
    assert_eq!(
        with("proofPurpose", json!("authentication")),
        ProofError::Purpose { found: "authentication".into(), expected: "assertionMethod" }
    );
    assert_eq!(with("previousProof", json!("urn:1")), ProofError::Chain);
    assert_eq!(with("expires", json!("2023-02-24T23:36:38Z")), ProofError::Expired);
    assert_eq!(with("created", json!("yesterday")), ProofError::Member("created"));
    assert_eq!(
        with("verificationMethod", json!("https://example/key")),
        ProofError::Member("verificationMethod")
    );
    assert_eq!(with("proofValue", json!("uAAAA")), ProofError::Member("proofValue"));
    assert_eq!(with("proofValue", json!("z0")), ProofError::Key(KeyError::Multibase));
    assert_eq!(with("proofValue", json!("z1")), ProofError::Key(KeyError::Signature));
    assert_eq!(with("@context", json!(["https://w3id.org/security/jwk/v1"])), ProofError::Context);

    let several = case.verify_changed(|value| value["proof"] = json!([value["proof"]]));
    assert_eq!(several, Err(CredentialError::Proof(ProofError::Several)));
    let missing = case.verify(&case.credential().to_string());
    assert_eq!(missing, Err(CredentialError::Proof(ProofError::Missing)));
}

#[test]
fn returns_only_contexts_that_the_proof_covers() {
    let case = case(ed25519(1));
    let added = "https://w3id.org/security/jwk/v1";
    let verified =
        case.verify_changed(|value| value["@context"].as_array_mut().unwrap().push(added.into())).unwrap();
    assert_eq!(verified.credential, case.credential());
}

#[test]
fn knows_contexts_by_name() {
    let case = case(ed25519(1));
    let url = "https://example/terms/v1";
    let add = |value: &mut Value| value["@context"].as_array_mut().unwrap().push(url.into());
    assert_eq!(case.verify_signed(add), Err(CredentialError::Context(url.into())));
    assert_eq!(
        case.verify_signed(|value| value["@context"] = json!([])),
        Err(CredentialError::Context(String::new()))
    );
    let first = "https://www.w3.org/2018/credentials/v1";
    let refused = case.verify_signed(|value| value["@context"] = json!([first]));
    assert_eq!(refused, Err(CredentialError::Context(first.into())));
    let inline =
        case.verify_signed(|value| value["@context"].as_array_mut().unwrap().push(json!({"a": "urn:a"})));
    assert_eq!(inline, Err(CredentialError::Member("@context")));

    let known = Contexts::default().with(Context { url: url.into(), sha256: "00".repeat(32) });
    let verifier = Verifier::new([KEY.resolve(case.method.did()).unwrap()]).with_contexts(known);
    assert!(Case { verifier, ..case }.verify_signed(add).is_ok());
}

#[test]
fn refuses_credentials_that_it_cannot_check_wholly() {
    let case = case(ed25519(1));
    for name in ["credentialSchema", "termsOfUse"] {
        let refused = case.verify_signed(|value| value[name] = json!({"id": "https://example/1"}));
        assert_eq!(refused, Err(CredentialError::Unchecked(name)));
    }
    assert_eq!(case.verify_signed(|value| value["type"] = json!("Other")), Err(CredentialError::Type));
    let subjects = json!([{"id": case.holder.as_str()}, {"id": "did:example:other"}]);
    let refused = case.verify_signed(|value| value["credentialSubject"] = subjects);
    assert_eq!(refused, Err(CredentialError::Member("credentialSubject")));
    assert_eq!(
        case.verify_signed(|value| value["issuer"] = json!({})),
        Err(CredentialError::Member("issuer"))
    );
}

/// VC Data Model 2.0 §4.4, §4.6, §5.3, §5.4, §5.6: what is not used may be there, but not malformed.
#[test]
fn refuses_malformed_members_that_it_does_not_use() {
    let case = case(ed25519(1));
    let with =
        |name: &str, member: &Value| case.verify_signed(|value| value[name] = member.clone()).map(drop);
    let resource = json!({"id": "https://example/a", "digestSRI": "sha384-AAAA"});
    for (name, right, wrong) in [
        (
            "id",
            json!(["urn:uuid:1", "https://example/1"]),
            json!(["1", "", 7, ["urn:uuid:1"], {}, null, "1:a"]),
        ),
        (
            "name",
            json!(["a", {"@value": "b", "@language": "en"}, ["a", {"@value": "b"}]]),
            json!([7, {}, [], [7], null]),
        ),
        ("description", json!(["a"]), json!([{"@value": 7}])),
        (
            "evidence",
            json!([{"type": "A"}, [{"type": ["A", "B"]}]]),
            json!([{}, "A", {"type": 7}, [], [{"type": "A"}, {}], {"type": []}]),
        ),
        ("refreshService", json!([{"type": "A", "id": "urn:a"}]), json!([{"id": "urn:a"}, null])),
        ("renderMethod", json!([{"type": "A"}]), json!([{}])),
        ("confidenceMethod", json!([{"type": "A"}]), json!([{}])),
        (
            "relatedResource",
            json!([resource, [resource]]),
            json!([{"id": "https://example/a"}, {"digestSRI": "a"}, "a", []]),
        ),
    ] {
        for member in right.as_array().unwrap() {
            assert_eq!(with(name, member), Ok(()), "{name} {member}");
        }
        for member in wrong.as_array().unwrap() {
            let refused = case.verify_signed(|value| value[name] = member.clone()).map(drop);
            assert!(
                matches!(refused, Err(CredentialError::Member(found)) if found == name),
                "{name} {member} {refused:?}"
            );
        }
    }
}

#[test]
fn an_issuer_signs_no_credential_that_verifiers_refuse() {
    let case = case(ed25519(1));
    let with = |name: &str, value: Value| {
        let mut credential = case.credential();
        credential[name] = value;
        (case.issue(&credential).unwrap_err(), case.issue_jwt(&credential).unwrap_err())
    };
    let other = CredentialError::UntrustedIssuer("did:example:a".into());
    assert_eq!(with("issuer", json!("did:example:a")), (other.clone(), other));
    assert_eq!(with("type", json!([])), (CredentialError::Type, CredentialError::Type));
    let long = with("name", "x".repeat(MAX_CREDENTIAL).into());
    assert_eq!(long, (CredentialError::TooLong, CredentialError::TooLong));
    let proofs = with("proof", json!({}));
    assert_eq!(proofs, (CredentialError::Proof(ProofError::Several), CredentialError::Unchecked("proof")));
}

#[test]
fn bounds_the_length_and_checks_the_form() {
    let case = case(ed25519(1));
    assert_eq!(case.verify(&format!("{{{}", " ".repeat(MAX_CREDENTIAL))), Err(CredentialError::TooLong));
    for text in ["", "\u{0}", "[]", " {}"] {
        assert_eq!(case.verify(text), Err(CredentialError::Form), "{text:?}");
    }
    let credential = case.issue(&case.credential()).unwrap();
    let doubled = credential.replacen('{', "{\"issuer\":\"did:example:a\",", 1);
    let Err(CredentialError::Json(error)) = case.verify(&doubled) else { panic!("a fault of the JSON") };
    assert_eq!(error.fault, JsonFault::Duplicate("issuer".into()));
}

#[test]
fn a_jwts_algorithm_must_fit_the_issuers_key() {
    let case = case(ed25519(1));
    assert!(case.verify_jwt(|_| (), |_| ()).is_ok());
    assert!(case.verify_jwt(|header| header["alg"] = json!("Ed25519"), |_| ()).is_ok());
    let with = |alg: &str| case.verify_jwt(|header| header["alg"] = json!(alg), |_| ()).unwrap_err();
    for alg in ["none", "None", "HS256", "RS256", "ES256K", ""] {
        assert_eq!(with(alg), CredentialError::Jwt(JwtError::Algorithm(alg.into())));
    }
    for alg in ["ES256", "ES384", "PS256"] {
        assert_eq!(with(alg), CredentialError::Jwt(JwtError::KeyType(KeyType::Ed25519)));
    }
}

#[test]
fn a_jwts_header_brings_no_key_and_no_extension() {
    let case = case(ed25519(1));
    for name in ["jwk", "jku", "x5c", "x5u", "crit", "b64", "iss"] {
        let refused = case.verify_jwt(|header| header[name] = json!({}), |_| ());
        assert_eq!(refused, Err(CredentialError::Jwt(JwtError::Unexpected(name.into()))));
    }
    for (name, value) in [("typ", "JWT"), ("cty", "jwt"), ("kid", "#key")] {
        let refused = case.verify_jwt(|header| header[name] = json!(value), |_| ());
        assert_eq!(refused, Err(CredentialError::Jwt(JwtError::Header(name))));
    }
    let other: DidUrl = "did:example:a#1".parse().unwrap();
    let refused = case.verify_jwt(|header| header["kid"] = json!("did:example:a#1"), |_| ());
    assert_eq!(refused, Err(CredentialError::IssuerKey(DocumentError::Unknown(other))));
}

#[test]
fn a_credential_ends_with_its_jwt() {
    let case = case(ed25519(1));
    let until = |end: i64| {
        case.verify_jwt(|_| (), |payload| payload["exp"] = json!(end)).map(|verified| verified.valid_until)
    };
    // RFC 7519 §4.1.4: not at this time or later. The credential itself ends at 1_704_067_200.
    assert_eq!(until(CREATED + 10), Ok(Some(CREATED + 9)));
    assert_eq!(until(1_704_067_300), Ok(Some(1_704_067_200)));
}

/// RFC 7519 §2: a NumericDate may have a fraction.
#[test]
fn times_of_a_jwt_may_have_a_fraction() {
    let case = case(ed25519(1));
    let with = |name: &str, time: Value| {
        case.verify_jwt(|_| (), |payload| payload[name] = time).map(|verified| verified.valid_until)
    };
    let now = CREATED as f64;
    let half = 0.5;
    assert_eq!(with("exp", json!(now + half)), Ok(Some(CREATED)));
    assert_eq!(with("exp", json!(now + 10.0)), Ok(Some(CREATED + 9)));
    assert_eq!(with("exp", json!(now - half)), Err(CredentialError::Jwt(JwtError::Expired)));
    for name in ["nbf", "iat"] {
        assert!(with(name, json!(now - half)).is_ok());
        assert_eq!(with(name, json!(now + half)), Err(CredentialError::Jwt(JwtError::NotYetValid)));
    }
    for time in [json!(1e300), json!(-1e300), json!("1.5"), json!(null), json!(true)] {
        assert_eq!(with("exp", time), Err(CredentialError::Jwt(JwtError::Claim("exp"))));
    }
}

#[test]
fn a_jwts_claims_agree_with_the_credential() {
    let case = case(ed25519(1));
    let with =
        |name: &str, value: Value| case.verify_jwt(|_| (), |payload| payload[name] = value).map(|_| ());
    assert_eq!(with("iss", case.method.did().as_str().into()), Ok(()));
    assert_eq!(with("sub", case.holder.as_str().into()), Ok(()));
    assert_eq!(with("exp", json!(CREATED + 1)), Ok(()));
    assert_eq!(with("nbf", json!(CREATED)), Ok(()));
    let claim = |name| Err(CredentialError::Jwt(JwtError::Claim(name)));
    assert_eq!(with("iss", json!("did:example:a")), claim("iss"));
    assert_eq!(with("sub", json!("did:example:a")), claim("sub"));
    assert_eq!(with("jti", json!("urn:1")), claim("jti"));
    assert_eq!(with("vc", json!({})), claim("vc"));
    assert_eq!(with("aud", json!("https://verifier.example")), claim("aud"));
    assert_eq!(with("exp", json!("soon")), claim("exp"));
    assert_eq!(with("exp", json!(CREATED)), Err(CredentialError::Jwt(JwtError::Expired)));
    assert_eq!(with("nbf", json!(CREATED + 1)), Err(CredentialError::Jwt(JwtError::NotYetValid)));
    assert_eq!(with("iat", json!(CREATED + 1)), Err(CredentialError::Jwt(JwtError::NotYetValid)));
    assert_eq!(with("proof", json!({})), Err(CredentialError::Unchecked("proof")));
}

#[test]
fn refuses_malformed_and_changed_jwts() {
    let case = case(p256(1));
    let text = case.issue_jwt(&case.credential()).unwrap();
    let (signed, signature) = text.rsplit_once('.').unwrap();
    for bad in ["e", "e.e", "e30.e30", &format!("{text}="), &format!("{text}.e30"), &format!("{signed}.")] {
        let refused = case.verify(bad).unwrap_err();
        assert!(matches!(refused, CredentialError::Jwt(_)), "{bad}: {refused}");
    }
    assert_eq!(
        case.verify(&format!("{signed}.")),
        Err(CredentialError::Jwt(JwtError::Key(KeyError::Signature)))
    );
    let mut bytes = Base64UrlUnpadded::decode_vec(signature).unwrap();
    assert_eq!(bytes.len(), 64);
    bytes[63] ^= 1;
    let wrong = format!("{signed}.{}", Base64UrlUnpadded::encode_string(&bytes));
    assert_eq!(case.verify(&wrong), Err(CredentialError::Jwt(JwtError::Key(KeyError::Signature))));
}

#[test]
fn every_changed_byte_is_noticed() {
    let case = case(ed25519(1));
    for text in [case.issue(&case.credential()).unwrap(), case.issue_jwt(&case.credential()).unwrap()] {
        for at in 0..text.len() {
            for byte in [b'"', b'0', b'z', text.as_bytes()[at] ^ 1, text.as_bytes()[at] ^ 0x80] {
                let mut changed = text.clone().into_bytes();
                changed[at] = byte;
                let same = changed == text.as_bytes();
                let verified = case.verifier.verify(&provider(), &changed, &case.holder, CREATED);
                assert_eq!(verified.is_ok(), same, "byte {at} as {byte:#04x}");
            }
            // Every prefix is refused, too.
            assert!(case.verify(&text[..at]).is_err());
        }
    }
}

#[test]
fn errors_are_one_short_line() {
    let case = case(ed25519(1));
    let long = "a\n\u{1b}".repeat(2000);
    let value = || Value::from(long.clone());
    let refused = [
        case.verify_changed(|credential| credential["proof"]["type"] = value()),
        case.verify_changed(|credential| credential["proof"]["cryptosuite"] = value()),
        case.verify_changed(|credential| credential["proof"]["proofPurpose"] = value()),
        case.verify_changed(|credential| credential["issuer"] = value()),
        case.verify_changed(|credential| credential["@context"] = value()),
        case.verify_signed(|credential| credential["credentialSubject"]["id"] = value()),
        case.verify_jwt(|header| header["alg"] = "a\n".repeat(900).into(), |_| ()),
        case.verify_jwt(|header| header["a\n".repeat(900)] = json!(1), |_| ()),
        case.verify(&format!("{{\"{0}\":1,\"{0}\":1}}", "a\\n".repeat(2000))),
    ];
    for error in refused {
        let text = error.unwrap_err().to_string();
        assert!(text.len() < 500 && !text.contains(char::is_control), "{text}");
    }
}
