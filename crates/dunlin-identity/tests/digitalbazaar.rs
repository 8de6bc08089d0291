//! Digital Bazaar's libraries for eddsa-jcs-2022 and ecdsa-jcs-2019 verify our credentials, and we verify
//! theirs.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail")]

mod keys;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use dunlin_identity::Did;
use dunlin_identity::credential::proof::ProofError;
use dunlin_identity::credential::{Contexts, CredentialError, Issuer, Seconds, Verifier};
use dunlin_identity::key::KeyError;
use dunlin_identity::method::{KEY, Method};
use keys::{ed25519, p256, p384, provider, public};
use serde_json::{Value, json};

const HOLDER: &str = "did:example:holder";

/// The answer of the program with these libraries (`tests/peers/digitalbazaar`).
fn peer(request: &Value) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pinned = root.join("tests/peers/digitalbazaar");
    let installed = root.join("target/peers/digitalbazaar");
    let lock = std::fs::read(installed.join("installed.json")).unwrap_or_default();
    let expected = std::fs::read(pinned.join("package-lock.json")).unwrap();
    assert!(lock == expected, "{installed:?} lacks these libraries: `tools/setup test` installs them");
    let program = std::fs::read_to_string(pinned.join("peer.mjs")).unwrap();
    // A program from the command line finds libraries in the current directory.
    let node = Command::new("node")
        .args(["--input-type=module", "--eval", &program])
        .current_dir(installed)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut node = node.expect("node: `tools/setup test` installs it");
    node.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn now() -> Seconds {
    UNIX_EPOCH.elapsed().map(|since| since.as_secs()).unwrap().try_into().unwrap()
}

/// A credential whose canonical form is not its usual one.
fn credential() -> Value {
    json!({
        "type": ["VerifiableCredential"],
        "@context": ["https://www.w3.org/ns/credentials/v2"],
        "name": "T\u{fc}r \u{20ac}\u{1f602}\u{7}\"",
        "weight": 1e21,
        "list": [0, 1e-7, 333_333_333.333_333_3, {"\u{1f602}": 1, "\u{fb33}": 2}],
        "credentialSubject": {"role": "sensor", "id": HOLDER},
    })
}

#[test]
fn the_libraries_verify_our_credentials_and_refuse_changed_ones() {
    for signer in [ed25519(1), p256(1), p384(1)] {
        let did = KEY.create(&public(&*signer)).unwrap();
        let method = did.with_fragment(did.identifier()).unwrap();
        let provider = provider();
        let issuer = Issuer { provider: &provider, signer: &*signer, method: &method };
        let mut unsigned = credential();
        unsigned["issuer"] = did.as_str().into();
        let signed = issuer.issue(&unsigned, &Contexts::default(), now()).unwrap();
        let mut signed: Value = serde_json::from_str(&signed).unwrap();
        assert_eq!(peer(&json!({"verify": signed})), json!({"verified": true, "why": ""}));
        signed["credentialSubject"]["role"] = "admin".into();
        let refused = peer(&json!({"verify": signed}));
        assert_eq!(refused, json!({"verified": false, "why": "Error: Invalid signature."}));
    }
}

#[test]
fn we_verify_credentials_of_the_libraries_and_refuse_changed_ones() {
    let holder: Did = HOLDER.parse().unwrap();
    for (curve, suite) in
        [("Ed25519", "eddsa-jcs-2022"), ("P-256", "ecdsa-jcs-2019"), ("P-384", "ecdsa-jcs-2019")]
    {
        let mut signed = peer(&json!({"sign": credential(), "curve": curve}));
        assert_eq!(signed["proof"]["cryptosuite"], suite);
        let issuer: Did = signed["issuer"].as_str().unwrap().parse().unwrap();
        let verifier = Verifier::new([KEY.resolve(&issuer).unwrap()]);
        let verify = |text: String| verifier.verify(&provider(), text.as_bytes(), &holder, now());
        assert_eq!(verify(signed.to_string()).unwrap().issuer, issuer);
        signed["credentialSubject"]["role"] = "admin".into();
        let refused = Err(CredentialError::Proof(ProofError::Key(KeyError::Signature)));
        assert_eq!(verify(signed.to_string()), refused);
    }
}
