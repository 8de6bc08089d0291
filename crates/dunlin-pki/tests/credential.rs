//! Credentials from PEM files: whole, with another key, out of date, for the other side.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dunlin::{Credential, Side};
use dunlin_pki::{
    Error, KeyPair, KeyType, LoadError, LoadedCredential, Refusal, Tree, TreeSpec, certificates_to_pem,
};
use tempfile::TempDir;

struct Files {
    directory: TempDir,
    tree: Tree,
}

impl Files {
    fn new(key_type: KeyType) -> Self {
        let tree = Tree::generate(&TreeSpec::new(key_type, 30).unwrap()).unwrap();
        let place = Self { directory: TempDir::new().unwrap(), tree };
        let server = &place.tree.server;
        let chain = certificates_to_pem(&server.chain).unwrap();
        let key = server.key.to_pem().unwrap();
        place.write("server.pem", &chain);
        place.write("server.key", &key);
        place.write("both.pem", &[&key[..], &chain].concat());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    fn load(&self, certificate: &str, key: Option<&str>) -> Result<LoadedCredential, LoadError> {
        self.load_for(certificate, key, Side::Server, SystemTime::now())
    }

    fn load_for(
        &self,
        certificate: &str,
        key: Option<&str>,
        side: Side,
        now: SystemTime,
    ) -> Result<LoadedCredential, LoadError> {
        let key = key.map(|key| self.path(key));
        let provider = dunlin_awslc::provider();
        LoadedCredential::load(&self.path(certificate), key.as_deref(), side, now, &provider)
    }

    fn refusal(&self, side: Side, now: SystemTime) -> Option<Refusal> {
        self.load_for("server.pem", Some("server.key"), side, now).unwrap().refusal
    }
}

#[test]
fn loads_a_chain_and_its_key_from_one_file_or_two() {
    for key_type in [KeyType::P256, KeyType::Rsa2048, KeyType::Ed25519] {
        let place = Files::new(key_type);
        for (certificate, key) in [("server.pem", Some("server.key")), ("both.pem", None)] {
            let loaded = place.load(certificate, key).unwrap();
            let Credential::X509 { chain, .. } = &loaded.credential else { panic!("not a chain") };
            assert_eq!(*chain, place.tree.server.chain);
            assert_eq!(loaded.key.public_key(), place.tree.server.key.public_key());
            assert_eq!(loaded.refusal, None);
        }
    }
}

#[test]
fn refuses_a_key_of_another_certificate() {
    let place = Files::new(KeyType::P256);
    place.write("other.key", &KeyPair::generate(KeyType::P256).unwrap().to_pem().unwrap());
    let error = place.load("server.pem", Some("other.key")).unwrap_err();
    assert_eq!(error, LoadError { file: place.path("other.key"), error: Error::KeyMismatch });
    let told = "other.key: the private key does not belong to the certificate; give the private key of";
    assert!(error.to_string().contains(told), "{error}");
    // The first key of a file counts.
    let own = place.tree.server.key.to_pem().unwrap();
    let other = KeyPair::generate(KeyType::P256).unwrap().to_pem().unwrap();
    place.write("both.key", &format!("{}{}", *other, *own));
    let error = place.load("server.pem", Some("both.key")).unwrap_err();
    assert_eq!(error.error, Error::FirstKeyMismatch(2));
    // The key must belong to the first certificate; a key of another one in the chain is refused.
    let mut chain = place.tree.server.chain.clone();
    chain.reverse();
    place.write("reversed.pem", &certificates_to_pem(&chain).unwrap());
    let error = place.load("reversed.pem", Some("server.key")).unwrap_err();
    assert_eq!(error.error, Error::KeyMismatch);
}

#[test]
fn names_the_file_that_cannot_be_used() {
    let place = Files::new(KeyType::P256);
    place.write("text", "no PEM");
    let file = |certificate, key| {
        let LoadError { file, error } = place.load(certificate, key).unwrap_err();
        (file.strip_prefix(place.directory.path()).unwrap().to_owned(), error)
    };
    let missing = |wanted, labels: &[&str]| {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Error::Missing { wanted, labels }
    };
    let unreadable = Error::Unreadable(std::io::ErrorKind::NotFound);
    let named = |file: &str, error: &Error| (Path::new(file).to_owned(), error.clone());
    assert_eq!(file("none", None), named("none", &unreadable));
    assert_eq!(file("server.pem", Some("none")), named("none", &unreadable));
    assert_eq!(file("text", Some("server.key")), named("text", &Error::UnknownFormat));
    assert_eq!(file("server.pem", Some("text")), named("text", &Error::UnknownFormat));
    assert_eq!(file("server.pem", None), named("server.pem", &missing("private key", &["CERTIFICATE"; 2])));
    assert_eq!(file("server.key", None), named("server.key", &missing("certificate", &["PRIVATE KEY"])));
    fs::File::create(place.path("large")).unwrap().set_len((1 << 20) + 1).unwrap();
    let large = Error::Unreadable(std::io::ErrorKind::FileTooLarge);
    assert_eq!(file("large", None), named("large", &large));
}

#[test]
fn reports_why_peers_will_refuse_the_chain() {
    let place = Files::new(KeyType::P256);
    let now = SystemTime::now();
    let month = Duration::from_secs(31 * 24 * 60 * 60);
    assert!(matches!(place.refusal(Side::Server, now + month), Some(Refusal::Expired { issuer: None, .. })));
    let early = place.refusal(Side::Server, now - month);
    assert!(matches!(early, Some(Refusal::NotYetValid { issuer: None, .. })));
    assert_eq!(place.refusal(Side::Client, now), Some(Refusal::Purpose(Side::Client)));

    let root = &place.tree.root;
    place.write("server.pem", &certificates_to_pem(&[root.certificate().clone()]).unwrap());
    place.write("server.key", &root.key().to_pem().unwrap());
    assert_eq!(place.refusal(Side::Server, now), Some(Refusal::Authority));
}
