//! The test vectors of the handshake cache (docs/handshake-cache-vectors.json). The engine reproduces them
//! byte for byte. docs/handshake-cache-vectors.py, an independent decoder, checks them against
//! docs/handshake-cache.md.
//!
//! `DUNLIN_WRITE_VECTORS=1 cargo test -p dunlin-tests --test cache vectors::` replaces the vectors, with new
//! keys.

use std::collections::HashMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

use dunlin::auth::X509Trust;
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::{AeadKey, CryptoProvider, Tls12CipherSuite, Tls13CipherSuite};
use dunlin::dissect::StreamKeys;
use dunlin::pki_types::{CertificateDer, PrivateKeyDer};
use dunlin::wire::{ContentType, NamedGroup};
use dunlin::{
    ClientAuth, ClientConfig, Credential, KeyLog, Profile, ServerConfig, Side, TlsConnection, Trust,
};
use dunlin_awslc::TLS13_AES_128_GCM_SHA256;
use dunlin_awslc::tls12::TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
use dunlin_sim::SeededRandom;
use dunlin_store::{MemoryClientCache, MemoryServerCache};
use dunlin_tests::{KeyType, NOW, Pki, awslc, localhost};
use serde_json::{Value, json};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("a string of hexadecimal digits");
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// New keys and certificates with Ed25519, whose signatures are deterministic.
fn new_identities() -> Value {
    let pki = Pki::new(KeyType::Ed25519);
    let of = |leaf: &dunlin_tests::Leaf| {
        let chain: Vec<_> = leaf.chain.iter().map(|certificate| hex(certificate)).collect();
        json!({ "key": hex(&leaf.key), "chain": chain })
    };
    json!({ "root": hex(&pki.root), "client": of(&pki.client), "server": of(&pki.server) })
}

/// The secrets of one connection, by their key log labels.
#[derive(Debug, Default)]
struct Secrets(Mutex<HashMap<String, Vec<u8>>>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8; 32], secret: &[u8]) {
        self.0.lock().unwrap().insert(label.to_owned(), secret.to_vec());
    }
}

/// The version and its cipher suite.
#[derive(Clone, Copy)]
enum Suite {
    Tls13(&'static Tls13CipherSuite),
    Tls12(&'static Tls12CipherSuite),
}

/// Keys that open the records of one side.
enum Keys {
    Tls13(StreamKeys),
    Tls12(Box<dyn AeadKey>, [u8; 4]),
}

impl Keys {
    /// Derives the keys from the key log; TLS 1.2 also needs the randoms of client and server.
    fn new(suite: Suite, side: Side, secrets: &Secrets, randoms: &[Vec<u8>]) -> Self {
        let secrets = secrets.0.lock().unwrap();
        match (suite, side) {
            (Suite::Tls13(suite), Side::Client) => {
                Self::Tls13(StreamKeys::new(suite, &secrets["CLIENT_HANDSHAKE_TRAFFIC_SECRET"]).unwrap())
            }
            (Suite::Tls13(suite), Side::Server) => {
                Self::Tls13(StreamKeys::new(suite, &secrets["SERVER_HANDSHAKE_TRAFFIC_SECRET"]).unwrap())
            }
            (Suite::Tls12(suite), side) => {
                let hmac = suite.hash.hmac(&secrets["CLIENT_RANDOM"]);
                // RFC 5246 §5, §6.3: two keys of 16 bytes, and two of 4 that begin the nonces (RFC 5288 §3).
                let seed = [b"key expansion", &randoms[1][..], &randoms[0]].concat();
                let first = hmac.sign(&[&seed]);
                let second = hmac.sign(&[first.as_ref()]);
                let block =
                    [first, second].map(|a| hmac.sign(&[a.as_ref(), &seed]).as_ref().to_vec()).concat();
                let of = usize::from(side == Side::Server);
                let key = suite.aead.key(&block[16 * of..][..16]).unwrap();
                Self::Tls12(key, block[32 + 4 * of..][..4].try_into().unwrap())
            }
        }
    }

    /// Returns the content of the record with this number; `None` if it is not under these keys.
    fn open(&self, number: u64, header: &[u8; 5], body: &[u8]) -> Option<Vec<u8>> {
        let mut data = body.to_vec();
        match self {
            Self::Tls13(keys) => {
                let opened = keys.open(number, header, &mut data).ok()?;
                Some(data[opened.content].to_vec())
            }
            Self::Tls12(key, salt) => {
                // RFC 5288 §3; RFC 5246 §6.2.3.3.
                let tag = data.split_off(data.len() - 16);
                let mut content = data.split_off(8);
                let nonce = [&salt[..], &data].concat().try_into().unwrap();
                let len = u16::try_from(content.len()).unwrap().to_be_bytes();
                let aad = [&number.to_be_bytes(), &header[..3], &len].concat();
                key.open(&nonce, &aad, &mut content, &tag).ok()?;
                Some(content)
            }
        }
    }
}

/// The handshake messages of one side: first the plaintext ones, then those under its handshake keys.
#[derive(Default)]
struct Reader {
    keys: Option<(Keys, u64)>,
    has_changed: bool,
    messages: Vec<u8>,
}

impl Reader {
    /// Returns the whole messages in these records.
    fn read(&mut self, suite: Suite, mut bytes: &[u8], keys: impl Fn() -> Keys) -> Vec<Vec<u8>> {
        while let Some((header, rest)) = bytes.split_first_chunk::<5>() {
            let (body, rest) = rest.split_at(usize::from(u16::from_be_bytes([header[3], header[4]])));
            bytes = rest;
            if header[0] == ContentType::CHANGE_CIPHER_SPEC.0 {
                self.has_changed = true;
                continue;
            }
            let is_clear = match suite {
                Suite::Tls13(_) => header[0] == ContentType::HANDSHAKE.0,
                Suite::Tls12(_) => !self.has_changed,
            };
            if is_clear {
                self.messages.extend_from_slice(body);
                continue;
            }
            let (keys, number) = self.keys.get_or_insert_with(|| (keys(), 0));
            // A record that the handshake keys do not open follows the handshake.
            let Some(content) = keys.open(*number, header, body) else { break };
            *number += 1;
            self.messages.extend_from_slice(&content);
        }
        let mut messages = Vec::new();
        while let Some([_, a, b, c]) = self.messages.first_chunk() {
            let len = 4 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if self.messages.len() < len {
                break;
            }
            messages.push(self.messages.drain(..len).collect());
        }
        messages
    }
}

/// One connection: its messages up to both Finished, and the data that an outsider needs to follow it.
fn connection(
    suite: Suite,
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    secrets: &Secrets,
) -> Value {
    let mut client = TlsConnection::client(client, localhost(), NOW).unwrap();
    let mut server = TlsConnection::server(server, NOW);
    let mut readers = [(); 2].map(|()| Reader::default());
    let mut randoms = Vec::new();
    let mut messages = Vec::new();
    loop {
        let mut quiet = true;
        for side in [Side::Client, Side::Server] {
            let (name, from, to) = match side {
                Side::Client => ("client", &mut client, &mut server),
                Side::Server => ("server", &mut server, &mut client),
            };
            let bytes = from.transmit().to_vec();
            from.transmitted(bytes.len());
            quiet &= bytes.is_empty();
            assert_eq!(to.receive(NOW, &bytes).unwrap(), bytes.len());
            let reader = &mut readers[usize::from(side == Side::Server)];
            for message in reader.read(suite, &bytes, || Keys::new(suite, side, secrets, &randoms)) {
                if randoms.len() < 2 {
                    // Each side's first message is its Hello.
                    randoms.push(message[6..38].to_vec());
                }
                messages.push(json!({ "from": name, "message": hex(&message) }));
            }
        }
        if quiet {
            break;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    // Complete the connection: after an unfinished one, the client would show its ticket again.
    client.close();
    let secrets = std::mem::take(&mut *secrets.0.lock().unwrap());
    let mut secrets: Vec<_> =
        secrets.into_iter().map(|(label, secret)| (label, json!(hex(&secret)))).collect();
    secrets.sort_by(|a, b| a.0.cmp(&b.0));
    let (version, id) = match suite {
        Suite::Tls13(suite) => ("TLS 1.3", suite.id),
        Suite::Tls12(suite) => ("TLS 1.2", suite.id),
    };
    json!({
        "version": version,
        "cipher_suite": id.to_string(),
        "messages": messages,
        "secrets": Value::Object(secrets.into_iter().collect()),
    })
}

/// A first connection and the next two.
fn connections(identities: &Value, suite: Suite, seed: u64) -> Vec<Value> {
    let provider = awslc();
    let mut groups = provider.groups.clone();
    groups.retain(|group| group.name() == NamedGroup::X25519);
    let secrets = Arc::new(Secrets::default());
    let profile = |side: &str, seed| {
        let random = Arc::new(SeededRandom::new(seed));
        let provider = CryptoProvider { groups: groups.clone(), random, ..(*provider).clone() };
        let provider = Arc::new(provider);
        let chain = identities[side]["chain"].as_array().unwrap().iter();
        let chain = chain.map(|certificate| CertificateDer::from(unhex(certificate))).collect();
        let key = PrivateKeyDer::Pkcs8(unhex(&identities[side]["key"]).into());
        let key = provider.key_loader.load(&key).unwrap();
        let anchors = X509Trust::anchors([CertificateDer::from(unhex(&identities["root"]))]).unwrap();
        let log: Arc<dyn KeyLog> = Arc::clone(&secrets) as _;
        let (tls13, tls12) = match suite {
            Suite::Tls13(suite) => (vec![suite], vec![]),
            Suite::Tls12(suite) => (vec![], vec![suite]),
        };
        Profile::builder(provider)
            .cipher_suites(tls13)
            .tls12_cipher_suites(tls12)
            .trust(Trust { x509: Some(anchors), raw_key: None })
            .credentials(vec![Credential::x509(chain, key)])
            // Both sides log the same secrets, so that one key log suffices.
            .key_log((side == "client").then_some(log))
            .build()
            .unwrap()
    };
    let client = ClientConfig::new(profile("client", seed));
    let client = client.with_handshake_cache(
        CacheMode::Compact,
        Arc::new(MemoryClientCache::default()),
        DEFAULT_MAX_AGE,
    );
    let server = ServerConfig::new(profile("server", seed + 1)).unwrap();
    let server = server
        .with_handshake_cache(CacheMode::Compact, Arc::new(MemoryServerCache::new(16)), DEFAULT_MAX_AGE)
        .unwrap();
    let server = Arc::new(server.with_client_auth(ClientAuth::Required).unwrap());
    let client = Arc::new(client);
    (0..3).map(|_| connection(suite, &client, &server, &secrets)).collect()
}

#[test]
fn engine_reproduces_the_vectors_and_the_decoder_accepts_them() {
    let path = format!("{DOCS}/handshake-cache-vectors.json");
    let write = std::env::var_os("DUNLIN_WRITE_VECTORS").is_some();
    let identities = if write {
        new_identities()
    } else {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        serde_json::from_str::<Value>(&text).unwrap()["identities"].clone()
    };
    let tls13 = connections(&identities, Suite::Tls13(&TLS13_AES_128_GCM_SHA256), 1);
    let tls12 = connections(&identities, Suite::Tls12(&TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256), 3);
    let made = [tls13, tls12].concat();
    let made = json!({ "identities": identities, "connections": made });
    if write {
        std::fs::write(&path, format!("{made:#}\n")).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        serde_json::from_str::<Value>(&text).unwrap() == made,
        "the vectors are not what the engine makes"
    );
    assert_eq!(
        followed(&path),
        Ok(["TLS 1.3", "TLS 1.2"]
            .map(|version| format!("{version}: 3 connections, 2 with every possible abbreviation\n"))
            .concat())
    );
}

/// Runs the independent decoder on the vectors in a file.
fn followed(path: &str) -> Result<String, String> {
    let mut python = Command::new("python3");
    python.arg(format!("{DOCS}/handshake-cache-vectors.py")).arg(path);
    let told = python.output().expect("python3 runs: `tools/setup test` installs it");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if told.status.success() { Ok(text(told.stdout)) } else { Err(text(told.stderr)) }
}

/// The decoder must reject changed vectors; otherwise its approval would prove nothing.
#[test]
fn decoder_rejects_changed_vectors() {
    let text = std::fs::read_to_string(format!("{DOCS}/handshake-cache-vectors.json")).unwrap();
    let vectors: Value = serde_json::from_str(&text).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    // The second connection of each version.
    let number_of =
        |connection: usize| vectors["connections"][connection]["messages"].as_array().unwrap().len();
    let all =
        [1, 4].into_iter().flat_map(|connection| (0..number_of(connection)).map(move |n| (connection, n)));
    for (connection, number) in all {
        let mut changed = vectors.clone();
        let message = &mut changed["connections"][connection]["messages"][number]["message"];
        let mut bytes = unhex(message);
        *bytes.last_mut().unwrap() ^= 1;
        *message = json!(hex(&bytes));
        std::fs::write(file.path(), changed.to_string()).unwrap();
        let told = followed(file.path().to_str().unwrap());
        assert!(
            told.is_err_and(|told| told.contains("AssertionError")),
            "connection {connection}, message {number}"
        );
    }
}
