//! A registry in a temporary directory, and DIDs for it.

#![allow(dead_code, reason = "not every test uses every part")]

pub(crate) mod log;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_identity::encoding::json::Value;
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::dunlin::{Operation, State, first_document};
use dunlin_identity::{DidDocument, Sha256Hash};
use dunlin_registry::{Registry, RegistryError, Settings};
use pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;

pub(crate) const ORIGIN: &str = "registry.example/1";
pub(crate) const NOW: u64 = 1_800_000_000;

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(dunlin_rustcrypto::provider(Arc::new(dunlin_rustcrypto::OsRandom)))
}

/// The Ed25519 key of a seed that begins with these numbers.
pub(crate) fn key(provider: &CryptoProvider, numbers: [u64; 3]) -> Arc<dyn SigningKey> {
    key_of(provider, &[numbers.map(u64::to_be_bytes).as_flattened(), &[0; 8]].concat())
}

/// The Ed25519 key of a seed (RFC 8410 §7).
pub(crate) fn key_of(provider: &CryptoProvider, seed: &[u8]) -> Arc<dyn SigningKey> {
    let der = [b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20", seed].concat();
    provider.key_loader.load(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der))).unwrap()
}

fn public(key: &dyn SigningKey) -> PublicKey {
    PublicKey::from_spki(key.public_key()).unwrap()
}

/// The holder of a DID, who signs its operations one after the other.
#[derive(Clone)]
pub(crate) struct Holder {
    provider: Arc<CryptoProvider>,
    numbers: [u64; 2],
    pub(crate) state: Option<State>,
}

impl Holder {
    pub(crate) fn new(provider: &Arc<CryptoProvider>, numbers: [u64; 2]) -> Self {
        Self { provider: Arc::clone(provider), numbers, state: None }
    }

    pub(crate) fn key(&self, sequence: u64) -> Arc<dyn SigningKey> {
        let [a, b] = self.numbers;
        key(&self.provider, [a, b, sequence])
    }

    fn hash(&self, sequence: u64) -> Sha256Hash {
        Sha256Hash::of_key(&self.provider, &public(&*self.key(sequence))).unwrap()
    }

    /// A creation first, then updates. The holder goes on as if the registry had accepted it.
    pub(crate) fn next(&mut self) -> Operation {
        let provider = Arc::clone(&self.provider);
        let (operation, state) = match &self.state {
            None => {
                let recovery = self.hash(u64::MAX);
                let document =
                    first_document(&provider, ORIGIN, &public(&*self.key(0)), self.hash(1), recovery);
                let operation = Operation::create(&provider, &*self.key(0), &document.unwrap()).unwrap();
                let state = State::create(&provider, &operation).unwrap();
                (operation, state)
            }
            Some(state) => {
                let number = state.sequence() + 1;
                let document = state.rotated(&public(&*self.key(number)), self.hash(number + 1)).unwrap();
                let operation = Operation::update(&provider, &*self.key(number), state, &document).unwrap();
                (operation.clone(), state.apply(&provider, &operation).unwrap())
            }
        };
        self.state = Some(state);
        operation
    }

    /// Another document than that of [`Self::next`], with the same number.
    pub(crate) fn other_document(&self) -> DidDocument {
        let number = self.state().sequence() + 1;
        self.state().rotated(&public(&*self.key(number)), self.hash(99)).unwrap()
    }

    /// An update whose document has another member, too.
    pub(crate) fn publish(&mut self, member: &str, value: Value) -> Operation {
        let provider = Arc::clone(&self.provider);
        let state = self.state.take().unwrap();
        let number = state.sequence() + 1;
        let document = state.rotated(&public(&*self.key(number)), self.hash(number + 1)).unwrap();
        let mut document = document.value().clone();
        document[member] = value;
        let document = DidDocument::from_value(document, state.did()).unwrap();
        let operation = Operation::update(&provider, &*self.key(number), &state, &document).unwrap();
        self.state = Some(state.apply(&provider, &operation).unwrap());
        operation
    }

    /// The end of the DID, by the recovery key.
    pub(crate) fn deactivate(&mut self) -> Operation {
        let state = self.state.take().unwrap();
        let operation = Operation::deactivate(&self.provider, &*self.key(u64::MAX), &state).unwrap();
        self.state = Some(state.apply(&self.provider, &operation).unwrap());
        operation
    }

    pub(crate) fn state(&self) -> &State {
        self.state.as_ref().unwrap()
    }
}

/// A directory for a registry, and the registry's clock.
pub(crate) struct RegistryDirectory {
    directory: TempDir,
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) clock: Arc<AtomicU64>,
}

impl RegistryDirectory {
    pub(crate) fn new() -> Self {
        let place = Self {
            directory: tempfile::tempdir().unwrap(),
            provider: provider(),
            clock: Arc::new(AtomicU64::new(NOW)),
        };
        Registry::create(&place.path("registry"), &place.settings()).unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn settings(&self) -> Settings {
        let clock = Arc::clone(&self.clock);
        let key = key(&self.provider, [1, 2, 3]);
        let settings = Settings::new(Arc::clone(&self.provider), ORIGIN, key);
        Settings {
            clock: Arc::new(move || clock.load(Ordering::Relaxed)),
            refresh: Duration::from_hours(1),
            ..settings
        }
    }

    pub(crate) fn open(&self) -> Result<Registry, RegistryError> {
        Registry::open(&self.path("registry"), &self.settings())
    }

    pub(crate) fn holder(&self, number: u64) -> Holder {
        Holder::new(&self.provider, [7, number])
    }

    /// Submits operations and waits for all. The first has a transaction of its own, in whose answer the
    /// writer waits for the others.
    pub(crate) fn submit(&self, registry: &Registry, operations: Vec<Operation>) {
        let ((answer, answered), (go, gone)) = (channel(), channel::<()>());
        let mut operations = operations.into_iter();
        let told = answer.clone();
        let Some(first) = operations.next() else { return };
        let wait = move |result: Result<_, _>| {
            told.send(result.is_ok()).unwrap();
            // The sender is dropped when all are submitted.
            let _ = gone.recv();
        };
        registry.submit_then(first, wait).unwrap();
        assert!(answered.recv().unwrap());
        for operation in operations {
            let answer = answer.clone();
            let told = move |result: Result<_, _>| answer.send(result.is_ok()).unwrap();
            registry.submit_then(operation, told).unwrap();
        }
        drop((answer, go));
        assert!(answered.iter().all(|accepted| accepted));
    }
}
