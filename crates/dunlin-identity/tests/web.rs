//! `did:web`, whose documents are on web servers.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod keys;

use std::cell::RefCell;

use dunlin_identity::encoding::json::MAX_JSON;
use dunlin_identity::method::web::{self, Fetch, HttpsUrl, WebError};
use dunlin_identity::{Did, DidDocument, DocumentError};
use keys::{ed25519, public};
use serde_json::{Value, json};

fn did(text: &str) -> Did {
    text.parse().unwrap()
}

#[test]
fn a_web_did_says_where_its_document_is() {
    // The examples of the specification, then an escape and the usual port.
    for (text, url) in [
        ("did:web:w3c-ccg.github.io", "https://w3c-ccg.github.io/.well-known/did.json"),
        ("did:web:w3c-ccg.github.io:user:alice", "https://w3c-ccg.github.io/user/alice/did.json"),
        ("did:web:example.com%3A3000", "https://example.com:3000/.well-known/did.json"),
        ("did:web:example.com%3A3000:user:alice", "https://example.com:3000/user/alice/did.json"),
        ("did:web:localhost%3a8443", "https://localhost:8443/.well-known/did.json"),
        ("did:web:a.example:%C3%BC:x_.y", "https://a.example/%C3%BC/x_.y/did.json"),
    ] {
        assert_eq!(web::locate(&did(text)).unwrap().to_string(), url);
    }
    let url = web::locate(&did("did:web:example.com%3A3000:user")).unwrap();
    assert_eq!((url.host(), url.port(), url.path()), ("example.com", 3000, "/user/did.json"));
    assert_eq!(web::locate(&did("did:web:example.com")).unwrap().port(), 443);
    assert_eq!(web::create("example.com", 3000, &["user"]), Ok(did("did:web:example.com%3A3000:user")));
    assert_eq!(web::create("example.com", 443, &[]), Ok(did("did:web:example.com")));
}

#[test]
fn refuses_web_dids_that_could_lead_elsewhere() {
    let refused = |text: &str| web::locate(&did(text)).unwrap_err();
    for host in [
        "127.0.0.1",
        "10.1",
        "a.0x7f",
        "1",
        "a..b",
        ".a",
        "a.",
        "-a.b",
        "a-.b",
        "a_b.c",
        "%61.example",
        "a.example%2F",
        "user%40a.example",
        "a.example%3B80",
        "",
        &"a".repeat(64),
        &"a.".repeat(130),
    ] {
        let text = format!("did:web:{host}:x");
        let text = if host.is_empty() { "did:web::x".to_owned() } else { text };
        assert_eq!(refused(&text), WebError::Host, "{text}");
    }
    for port in ["", "0", "65536", "080", "%2B80", "80%2F", "-1"] {
        assert_eq!(refused(&format!("did:web:a.example%3A{port}")), WebError::Port, "{port}");
    }
    for part in
        [".", "..", "a%2Fb", "a%2fb", "%2e%2e", "a%5Cb", "%00", "%0A", "%7f", "a%25b", "a%3Fb", "a%23b", ""]
    {
        assert_eq!(refused(&format!("did:web:a.example:{part}:b")), WebError::Path, "{part}");
    }
    assert_eq!(refused("did:key:z6MkiTBz"), WebError::Method("key".into()));
    assert_eq!(web::create("10.0.0.1", 443, &[]), Err(WebError::Host));
    assert_eq!(web::create("a.example", 443, &["a:b"]), Err(WebError::Path));
    assert_eq!(
        web::create("a.example", 443, &["a/b"]).map_err(|error| error.to_string().len() > 10),
        Err(true)
    );
}

/// A server with one answer, which remembers what was asked.
struct Server {
    answer: Result<Vec<u8>, &'static str>,
    asked: RefCell<Vec<(String, usize)>>,
}

impl Fetch for Server {
    type Error = &'static str;

    fn fetch(&self, url: &HttpsUrl, limit: usize) -> Result<Vec<u8>, &'static str> {
        self.asked.borrow_mut().push((url.to_string(), limit));
        self.answer.clone()
    }
}

#[test]
fn a_web_did_is_resolved_over_https_alone() {
    let web = did("did:web:issuer.example");
    let document = DidDocument::of_key(&web, "key-1", &public(&*ed25519(1))).unwrap();
    let resolve = |answer: Result<Value, &'static str>| {
        let answer = answer.map(|value| value.to_string().into_bytes());
        let server = Server { answer, asked: RefCell::default() };
        let resolved = web::resolve(&server, &web);
        assert_eq!(
            server.asked.into_inner(),
            [("https://issuer.example/.well-known/did.json".to_owned(), MAX_JSON)]
        );
        resolved
    };
    let value = document.value().clone();
    assert_eq!(resolve(Ok(value.clone())), Ok(document));
    assert_eq!(resolve(Err("refused")), Err(WebError::Fetch("refused")));
    // A false server: the document of another DID, or one without the context.
    let mut other = value.clone();
    other["id"] = json!("did:web:other.example");
    let expected = DocumentError::OtherDid(did("did:web:other.example"));
    assert_eq!(resolve(Ok(other)), Err(WebError::Document(expected)));
    for contexts in [json!([]), json!("https://www.w3.org/ns/did/v2"), json!({}), json!(null)] {
        let mut strange = value.clone();
        strange["@context"] = contexts;
        assert_eq!(resolve(Ok(strange)), Err(WebError::Context));
    }
    for contexts in [json!("https://www.w3.org/ns/did/v1"), value["@context"].clone()] {
        let mut fine = value.clone();
        fine["@context"] = contexts;
        assert!(resolve(Ok(fine)).is_ok());
    }
    let mut without = value.clone();
    without.as_object_mut().unwrap().remove("@context");
    assert!(resolve(Ok(without)).is_ok());
    assert!(matches!(resolve(Ok(json!([]))), Err(WebError::Document(DocumentError::Member("id")))));
    let mut long = value;
    long["name"] = "x".repeat(MAX_JSON).into();
    assert!(matches!(resolve(Ok(long)), Err(WebError::Document(DocumentError::Json(_)))));
    // Nothing is asked for a DID without a place.
    let server = Server { answer: Err("refused"), asked: RefCell::default() };
    assert_eq!(web::resolve(&server, &did("did:web:10.0.0.1")), Err(WebError::Host));
    assert!(server.asked.into_inner().is_empty());
}
