//! Compact credentials: issuing, another implementation of COSE, their sizes, and every refusal.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod keys;

use std::sync::Arc;

use coset::{CoseSign1, CoseSign1Builder, HeaderBuilder, TaggedCborSerializable, iana};
use dunlin::crypto::SigningKey;
use dunlin_identity::credential::{
    Contexts, CoseError, CredentialError, Issuer, MAX_CREDENTIAL, Seconds, VerifiedCredential, Verifier,
};
use dunlin_identity::encoding::cbor::{self, Cbor, CborFault};
use dunlin_identity::encoding::json::JsonFault;
use dunlin_identity::key::{self, KeyError, KeyType};
use dunlin_identity::method::{KEY, Method};
use dunlin_identity::{Did, DidDocument, DidUrl, DocumentError};
use keys::{ed25519, p256, p384, provider, public, rsa};
use serde_json::{Value, json};

const NOW: Seconds = 1_677_281_798;
const CONTEXT: &[u8] = b"dunlin compact credential 1";

/// An issuer, a holder, and a verifier that trusts the issuer.
struct Case {
    signer: Arc<dyn SigningKey>,
    method: DidUrl,
    holder: Did,
    verifier: Verifier,
}

fn case(signer: Arc<dyn SigningKey>) -> Case {
    let did = KEY.create(&public(&*signer)).unwrap();
    of(signer, &did, did.identifier())
}

fn of(signer: Arc<dyn SigningKey>, did: &Did, fragment: &str) -> Case {
    let holder = KEY.create(&public(&*ed25519(7))).unwrap();
    let document = DidDocument::of_key(did, fragment, &public(&*signer)).unwrap();
    Case { signer, method: did.with_fragment(fragment).unwrap(), holder, verifier: Verifier::new([document]) }
}

impl Case {
    /// The members of the paper's credentials.
    fn credential(&self) -> Value {
        json!({
            "@context": ["https://www.w3.org/ns/credentials/v2"],
            "id": "urn:uuid:01234567-89ab-cdef-0123-456789abcdef",
            "type": ["VerifiableCredential"],
            "issuer": self.method.did().as_str(),
            "validFrom": "2023-01-01T00:00:00Z",
            "validUntil": "2024-01-01T00:00:00Z",
            "credentialSubject": {"id": self.holder.as_str()},
        })
    }

    fn issue(&self, credential: &Value) -> Result<Vec<u8>, CredentialError> {
        let provider = provider();
        let issuer = Issuer { provider: &provider, signer: &*self.signer, method: &self.method };
        issuer.issue_compact(credential, &Contexts::default())
    }

    fn verify(&self, message: &[u8]) -> Result<VerifiedCredential, CredentialError> {
        self.verifier.verify(&provider(), message, &self.holder, NOW)
    }

    /// Signs this header and payload, without the issuer's checks.
    fn verify_signed(&self, header: Cbor, payload: &Cbor) -> Result<VerifiedCredential, CredentialError> {
        let header = cbor::write(&header);
        let payload = cbor::write(payload);
        let parts = [header.as_slice(), CONTEXT, payload.as_slice()].map(|part| Cbor::Bytes(part.to_vec()));
        let signed = Cbor::Array([vec![text("Signature1")], parts.into()].concat());
        let scheme = public(&*self.signer).key_type().default_scheme();
        let signature = key::sign(&*self.signer, &provider(), scheme, &cbor::write(&signed)).unwrap();
        self.verify(&message(header, Vec::new(), payload, signature))
    }

    /// The refusal of the issued credential after `change` of its payload.
    fn refusal(&self, change: impl FnOnce(&mut Vec<(Cbor, Cbor)>)) -> CoseError {
        let Cbor::Map(mut members) = self.payload() else { panic!("a map") };
        change(&mut members);
        self.refused(alg(-19), &Cbor::Map(members))
    }

    fn refused(&self, header: Cbor, payload: &Cbor) -> CoseError {
        match self.verify_signed(header, payload) {
            Err(CredentialError::Cose(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    fn payload(&self) -> Cbor {
        let message = self.issue(&self.credential()).unwrap();
        cbor::read(&CoseSign1::from_tagged_slice(&message).unwrap().payload.unwrap()).unwrap()
    }
}

fn text(text: &str) -> Cbor {
    Cbor::Text(text.to_owned())
}

fn label(label: u64, value: Cbor) -> (Cbor, Cbor) {
    (Cbor::Unsigned(label), value)
}

fn alg(number: i64) -> Cbor {
    Cbor::Map(vec![label(1, number.into())])
}

fn message(header: Vec<u8>, unprotected: Vec<(Cbor, Cbor)>, payload: Vec<u8>, signature: Vec<u8>) -> Vec<u8> {
    let parts =
        vec![Cbor::Bytes(header), Cbor::Map(unprotected), Cbor::Bytes(payload), Cbor::Bytes(signature)];
    cbor::write(&Cbor::Tag(18, Box::new(Cbor::Array(parts))))
}

#[test]
fn every_type_of_key_issues_compact_credentials_that_verify() {
    for signer in [ed25519(1), p256(1), p384(1), rsa()] {
        let case = case(signer);
        let verified = case.verify(&case.issue(&case.credential()).unwrap()).unwrap();
        assert_eq!(verified.credential, case.credential());
        assert_eq!((&verified.issuer, &verified.subject), (case.method.did(), &case.holder));
        assert_eq!(verified.valid_until, Some(1_704_067_200));
    }
}

/// A lean X.509 leaf or intermediate has on average at most 342 (Ed25519), 405 (P-256) and 803 bytes
/// (RSA-2048), and a peer sends both.
#[test]
fn a_compact_credential_is_smaller_than_one_certificate() {
    let did = format!("did:dunlin:{}", &key::base58btc(&[9; 32])[1..]).parse().unwrap();
    let sizes = [ed25519(1), p256(1), p384(1), rsa()].map(|signer| {
        let [of_key, of_dunlin] = [case(signer.clone()), of(signer, &did, "key-0")];
        [of_key, of_dunlin].map(|case| case.issue(&case.credential()).unwrap().len())
    });
    assert_eq!(sizes, [[185, 183], [186, 183], [235, 216], [619, 377]]);
}

#[test]
fn another_implementation_reads_and_writes_compact_credentials() {
    for (signer, algorithm) in [(ed25519(1), -19), (p256(1), -9), (p384(1), -51), (rsa(), -37)] {
        let case = case(signer);
        let scheme = public(&*case.signer).key_type().default_scheme();
        let ours = CoseSign1::from_tagged_slice(&case.issue(&case.credential()).unwrap()).unwrap();
        ours.verify_signature(CONTEXT, |signature, signed| {
            public(&*case.signer).verify(&provider(), scheme, signed, signature)
        })
        .unwrap();

        let header = HeaderBuilder::new().algorithm(match algorithm {
            -37 => iana::Algorithm::PS256,
            -9 => iana::Algorithm::ESP256,
            -51 => iana::Algorithm::ESP384,
            _ => iana::Algorithm::Ed25519,
        });
        let theirs = CoseSign1Builder::new()
            .protected(header.build())
            .payload(ours.payload.unwrap())
            .create_signature(CONTEXT, |signed| {
                key::sign(&*case.signer, &provider(), scheme, signed).unwrap()
            });
        assert!(case.verify(&theirs.build().to_tagged_vec().unwrap()).is_ok());
    }
}

#[test]
fn everything_that_a_credential_says_returns() {
    let case = case(ed25519(1));
    let texts = [
        "",
        "revocation",
        "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp",
        "did:key:z",
        "did:key:u6MkiTBz",
        "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp#1",
        "did:dunlin:4zvwRjXUKGfvwnParsHAS3HuSVzV5cA4McphgmoCtajS",
        "did:dunlin:11",
        "did:jwk:eyJrdHkiOiJPS1AifQ",
        "did:jwk:eyJrdHkiOiJPS1AifR",
        "did:web:example.com%3A8443:a",
        "did:peer:0z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp",
        "urn:uuid:01234567-89ab-cdef-0123-456789abcdef",
        "urn:uuid:01234567-89AB-cdef-0123-456789abcdef",
        "urn:uuid:0123456789abcdef0123456789abcdef",
        "1970-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "1969-12-31T23:59:59Z",
        "2023-01-01T00:00:00z",
        "2023-01-01t00:00:00Z",
        "2023-01-01T00:00:60Z",
        "2023-01-01T00:00:00.0Z",
        "user",
        &format!("u{}", "A".repeat(63)),
        &format!("u{}", "B".repeat(64)),
        &format!("u{}", "_".repeat(66)),
    ];
    let numbers =
        json!([0, -1, 1.5, 9_007_199_254_740_991_i64, -9_007_199_254_740_991_i64, 1e21, 1e-7, 5e-324]);
    let mut credential = case.credential();
    credential["credentialSubject"]["claims"] = json!({"texts": texts, "numbers": numbers, "other": [null, true, false, {}, [], {"id": {"type": "x"}}]});
    credential["type"] = json!("VerifiableCredential");
    credential["issuer"] = json!({"id": case.method.did().as_str(), "name": "an issuer"});
    assert_eq!(case.verify(&case.issue(&credential).unwrap()).unwrap().credential, credential);
    // RFC 8785 writes these alike.
    credential["credentialSubject"]["claims"] = json!([1.0, -0.0]);
    let verified = case.verify(&case.issue(&credential).unwrap()).unwrap();
    assert_eq!(verified.credential["credentialSubject"]["claims"], json!([1, 0]));
    credential["credentialSubject"]["claims"] = json!(1_u64 << 53);
    assert_eq!(case.issue(&credential), Err(CredentialError::Cose(CoseError::Value(JsonFault::Number))));
}

#[test]
fn every_changed_byte_is_noticed() {
    let case = case(ed25519(1));
    let credential = case.issue(&case.credential()).unwrap();
    for at in 0..credential.len() {
        for bit in 0..8 {
            let mut changed = credential.clone();
            changed[at] ^= 1 << bit;
            assert!(case.verify(&changed).is_err(), "byte {at}, bit {bit}");
        }
        assert!(case.verify(&credential[..at]).is_err());
    }
    let mut longer = credential;
    longer.push(0);
    let Err(CredentialError::Cose(CoseError::Message(error))) = case.verify(&longer) else { panic!() };
    assert_eq!((error.fault, error.at), (CborFault::Trailing, longer.len() - 1));
}

#[test]
fn refuses_other_messages_of_cose() {
    let case = case(ed25519(1));
    let sign1 = CoseSign1::from_tagged_slice(&case.issue(&case.credential()).unwrap()).unwrap();
    let header = cbor::write(&alg(-19));
    let payload = sign1.payload.unwrap();
    let structure = Err(CredentialError::Cose(CoseError::Structure));
    let key_id = vec![label(4, Cbor::Bytes(vec![1]))];
    let unprotected = message(header.clone(), key_id, payload.clone(), sign1.signature.clone());
    assert_eq!(case.verify(&unprotected), structure);
    let good = message(header, Vec::new(), payload, sign1.signature);
    assert!(case.verify(&good).is_ok());
    // The tag of COSE_Sign (98) has another first byte; a COSE_Sign1 without content or of other parts has
    // this one.
    assert_eq!(case.verify(&[&[0xd8, 98], &good[1..]].concat()), Err(CredentialError::Form));
    assert_eq!(case.verify(&[0xd2, 0x80]), structure);
    assert_eq!(case.verify(&[0xd2, 0x84, 0x40, 0xa0, 0xf6, 0x40]), structure);
    assert_eq!(case.verify(&[0xd2, 0x00]), structure);
    let wrong = case.verify(&[&good[..good.len() - 1], &[good[good.len() - 1] ^ 1]].concat());
    assert_eq!(wrong, Err(CredentialError::Cose(CoseError::Key(KeyError::Signature))));
}

#[test]
fn the_header_has_the_algorithm_of_the_key_and_nothing_else() {
    let case = case(ed25519(1));
    let payload = case.payload();
    // EdDSA without a curve, ES256, HMAC, none.
    for number in [-8, -7, 5, 0] {
        assert_eq!(case.refused(alg(number), &payload), CoseError::Algorithm(number));
    }
    for number in [-9, -51, -37] {
        assert_eq!(case.refused(alg(number), &payload), CoseError::KeyType(KeyType::Ed25519));
    }
    let with = |members: Vec<(Cbor, Cbor)>| {
        let header = Cbor::Map([vec![label(1, (-19).into())], members].concat());
        case.refused(header, &payload)
    };
    // crit, content type, x5chain, a COSE key.
    for number in [2, 3, 33, 25] {
        assert_eq!(with(vec![label(number, Cbor::Bytes(vec![1]))]), CoseError::Members);
    }
    assert_eq!(with(vec![label(4, text("a"))]), CoseError::Members);
    assert_eq!(case.refused(Cbor::Map(Vec::new()), &payload), CoseError::Members);
    assert_eq!(case.refused(Cbor::Map(vec![label(1, text("Ed25519"))]), &payload), CoseError::Members);
    assert_eq!(case.refused(Cbor::Array(Vec::new()), &payload), CoseError::Members);
    // The key ID of a `did:key` goes without saying.
    let usual = case.method.fragment().unwrap().as_bytes().to_vec();
    assert_eq!(with(vec![label(4, Cbor::Bytes(usual))]), CoseError::KeyId);
    assert_eq!(with(vec![label(4, Cbor::Bytes(b"\xff".to_vec()))]), CoseError::KeyId);
    assert_eq!(with(vec![label(4, Cbor::Bytes(b"a b".to_vec()))]), CoseError::KeyId);
}

#[test]
fn other_methods_name_the_key() {
    let did: Did = "did:web:issuer.example".parse().unwrap();
    let web = of(ed25519(1), &did, "signing-2");
    let message = web.issue(&web.credential()).unwrap();
    assert!(web.verify(&message).is_ok());
    let header = alg(-19);
    let payload = web.payload();
    assert_eq!(web.refused(header, &payload), CoseError::KeyId);
    let unknown = Cbor::Map(vec![label(1, (-19).into()), label(4, Cbor::Bytes(b"signing-1".to_vec()))]);
    let refused = web.verify_signed(unknown, &payload);
    assert!(matches!(refused, Err(CredentialError::IssuerKey(_))), "{refused:?}");
}

#[test]
fn refuses_a_credential_of_a_key_that_the_issuer_has_replaced() {
    let did: Did = format!("did:dunlin:{}", &key::base58btc(&[9; 32])[1..]).parse().unwrap();
    let mut case = of(ed25519(1), &did, "key-0");
    let message = case.issue(&case.credential()).unwrap();
    assert!(case.verify(&message).is_ok());
    let rotated = DidDocument::of_key(&did, "key-1", &public(&*ed25519(2))).unwrap();
    case.verifier = Verifier::new([rotated]);
    let unknown = DocumentError::Unknown(case.method.clone());
    assert_eq!(case.verify(&message), Err(CredentialError::IssuerKey(unknown)));
    // The new key has another fragment, which the credential names.
    let new = of(ed25519(2), &did, "key-1");
    assert!(case.verify(&new.issue(&new.credential()).unwrap()).is_ok());
}

#[test]
fn a_credential_has_one_short_form() {
    let case = case(ed25519(1));
    assert!(case.verify_signed(alg(-19), &case.payload()).is_ok());
    let subject = || Cbor::Map(vec![label(6, text(case.holder.as_str()))]);
    // Defaults written out; a known name, a DID and a subject in the long form.
    assert_eq!(
        case.refusal(|members| members.push(label(0, Cbor::Array(vec![Cbor::Bytes(vec![0, 0])])))),
        CoseError::NotShort
    );
    assert_eq!(
        case.refusal(|members| members.push(label(5, Cbor::Array(vec![Cbor::Bytes(vec![0, 1])])))),
        CoseError::NotShort
    );
    assert_eq!(case.refusal(|members| members.push((text("name"), Cbor::Null))), CoseError::NotShort);
    assert_eq!(case.refusal(|members| members[1].1 = subject()), CoseError::NotShort);
    assert_eq!(
        case.refusal(|members| members.push(label(12, text("1970-01-01T00:00:00Z")))),
        CoseError::NotShort
    );
    assert_eq!(case.refusal(|members| members.push(label(12, Cbor::Bytes(vec![2, 0])))), CoseError::NotShort);
    assert_eq!(case.refusal(|members| members.push(label(12, Cbor::Float(1.0)))), CoseError::NotShort);
    // The same member by label and by name.
    let twice = case.refusal(|members| members.push((text("issuer"), Cbor::Null)));
    assert_eq!(twice, CoseError::Value(JsonFault::Duplicate("issuer".into())));
}

#[test]
fn refuses_labels_and_bytes_that_stand_for_nothing() {
    let case = case(ed25519(1));
    assert_eq!(case.refusal(|members| members.push(label(16, Cbor::Null))), CoseError::Label("16".into()));
    assert_eq!(
        case.refusal(|members| members.push((Cbor::Null, Cbor::Null))),
        CoseError::Label("null".into())
    );
    for (bytes, shown) in [
        (vec![], "h''"),
        (vec![4], "h'04'"),
        (vec![0, 9], "h'0009'"),
        (vec![0, 0, 0], "h'000000'"),
        (vec![1, 2], "h'0102'"),
        (vec![0xe0, 1], "h'e001'"),
        (vec![2, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "h'027fffffffffffffff'"),
        (vec![0xe3, 0xff], "h'e3ff'"),
    ] {
        let refused = case.refusal(|members| members.push(label(12, Cbor::Bytes(bytes))));
        assert_eq!(refused, CoseError::Bytes(shown.into()));
    }
    // No DID, although it begins like one.
    assert_eq!(
        case.refusal(|members| members.push(label(12, Cbor::Bytes(b"\xe3a b".to_vec())))),
        CoseError::NotShort
    );
    assert_eq!(case.refused(alg(-19), &Cbor::Array(Vec::new())), CoseError::Payload);
    let tagged = case.refusal(|members| members.push(label(12, Cbor::Tag(1, Box::new(Cbor::Null)))));
    assert_eq!(tagged, CoseError::Payload);
    let large = case.refusal(|members| members.push(label(12, Cbor::Unsigned(1 << 53))));
    assert_eq!(large, CoseError::Value(JsonFault::Number));
    // The position is that in the payload.
    let nested = |members: &mut Vec<(Cbor, Cbor)>| {
        members.push(label(12, (0..40).fold(Cbor::Null, |inner, _| Cbor::Array(vec![inner]))));
    };
    let CoseError::Content(error) = case.refusal(nested) else { panic!("a fault of the CBOR") };
    assert_eq!(error.fault, CborFault::TooDeep);
}

#[test]
fn bounds_what_a_short_form_grows_to() {
    let case = case(ed25519(1));
    let long = |credential: &mut Value, count| {
        credential["credentialSubject"]["a"] =
            vec!["https://w3id.org/security/data-integrity/v2"; count].into();
    };
    let mut credential = case.credential();
    long(&mut credential, 300);
    assert!(case.verify(&case.issue(&credential).unwrap()).is_ok());
    long(&mut credential, 400);
    assert_eq!(case.issue(&credential), Err(CredentialError::TooLong));

    // A message of 13 kB that would have 186 kB in JSON.
    let Cbor::Map(mut members) = case.payload() else { panic!("a map") };
    members.push(label(12, Cbor::Array(vec![Cbor::Bytes(vec![0, 7]); 4000])));
    assert_eq!(case.verify_signed(alg(-19), &Cbor::Map(members)), Err(CredentialError::TooLong));
    assert_eq!(
        case.verify(&[&[0xd2], [0; MAX_CREDENTIAL].as_slice()].concat()),
        Err(CredentialError::TooLong)
    );
}

#[test]
fn the_other_checks_are_those_of_every_form() {
    let case = case(ed25519(1));
    let mut credential = case.credential();
    credential["validUntil"] = json!("2023-02-01T00:00:00Z");
    assert_eq!(case.verify(&case.issue(&credential).unwrap()), Err(CredentialError::Expired));
    credential["validUntil"] = json!("2024-02-01T00:00:00Z");
    credential["validFrom"] = json!("2024-01-01T00:00:00Z");
    assert_eq!(case.verify(&case.issue(&credential).unwrap()), Err(CredentialError::NotYetValid));
    credential["validFrom"] = json!("2023-01-01T00:00:00Z");
    credential["credentialSubject"]["id"] = json!("did:example:other");
    let foreign = case.verify(&case.issue(&credential).unwrap());
    assert_eq!(foreign, Err(CredentialError::Subject("did:example:other".into())));
    credential["issuer"] = json!("did:example:other");
    let other = CredentialError::UntrustedIssuer("did:example:other".into());
    assert_eq!(case.issue(&credential), Err(other));
    let mut proven = case.credential();
    proven["proof"] = json!({});
    assert_eq!(case.issue(&proven), Err(CredentialError::Unchecked("proof")));
    let nobody = Verifier::default();
    let message = case.issue(&case.credential()).unwrap();
    let untrusted = CredentialError::UntrustedIssuer(case.method.did().to_string());
    assert_eq!(nobody.verify(&provider(), &message, &case.holder, NOW), Err(untrusted));
}
