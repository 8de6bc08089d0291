//! The independent decoder of DTLS 1.3 in Python (`tests/data/dtls13/decoder.py`), and the common code of its
//! tests.

use std::fmt::Write as _;
use std::process::Command;
use std::sync::{Arc, Mutex};

use dunlin::wire::CipherSuite;
use dunlin::{ClientAuth, ClientConfig, ConnectionIds, Error, Migration, Profile, ServerConfig, Side, Trust};
use dunlin_tests::tamper::Secrets;
use dunlin_tests::{KeyType, Pki, awslc};
use serde_json::{Value, json};

/// IDs that count from the byte after the first field, of the length in the second one.
#[derive(Debug)]
struct Counter(Mutex<u8>, usize);

impl ConnectionIds for Counter {
    fn id_len(&self) -> usize {
        self.1
    }

    fn issue(&self) -> Result<Vec<u8>, Error> {
        let mut next = self.0.lock().unwrap();
        *next += 1;
        Ok(vec![*next; self.1])
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The configurations of a client with IDs from c1c1c1 on, and of a server with IDs from 5151515151 on, which
/// authenticate each other. The client logs its secrets.
pub(crate) fn configs(
    secrets: &Arc<Secrets>,
    migration: Migration,
) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let pki = Pki::shared(KeyType::P256);
    let suite = awslc().suite(CipherSuite::TLS_CHACHA20_POLY1305_SHA256).unwrap();
    let profile = |leaf: &dunlin_tests::Leaf| {
        Profile::builder(awslc())
            .cipher_suites(vec![suite])
            .trust(Trust { x509: Some(pki.trust()), raw_key: None })
            .credentials(vec![leaf.x509(&awslc())])
    };
    let ids = |first: u8, len| Arc::new(Counter(Mutex::new(first), len));
    let client = profile(&pki.client).key_log(Some(secrets.clone())).build().unwrap();
    let client = ClientConfig::new(client).with_connection_ids(ids(0xc0, 3)).with_migration(migration);
    let server = ServerConfig::new(profile(&pki.server).build().unwrap())
        .and_then(|server| server.with_client_auth(ClientAuth::Required))
        .unwrap()
        .with_connection_ids(ids(0x50, 5))
        .with_migration(migration);
    (Arc::new(client), Arc::new(server))
}

/// The records that the decoder reads from `datagrams` with their senders, without ACKs: sender, connection
/// ID and content of each.
pub(crate) fn decode(secrets: &Secrets, datagrams: &[(Side, Vec<u8>)]) -> Vec<String> {
    let exchange = exchange(secrets, datagrams);
    let told = run(&exchange).unwrap();
    // The decoder notices a changed record, or its approval would prove nothing.
    let mut changed = exchange;
    let last = changed["datagrams"].as_array_mut().unwrap().last_mut().unwrap();
    let datagram = last["datagram"].as_str().unwrap().to_owned();
    let end = if datagram.ends_with("00") { "01" } else { "00" };
    last["datagram"] = json!(format!("{}{end}", &datagram[..datagram.len() - 2]));
    assert!(run(&changed).is_err());
    let parts = told.lines().map(|line| line.splitn(4, ' ').collect::<Vec<_>>());
    let parts = parts.filter(|parts| !parts[3].starts_with("ack"));
    parts.map(|parts| [parts[0], parts[1], parts[3]].join(" ")).collect()
}

fn exchange(secrets: &Secrets, datagrams: &[(Side, Vec<u8>)]) -> Value {
    let of = |side| if side == Side::Client { "client" } else { "server" };
    let datagrams = datagrams.iter().map(|(by, bytes)| json!({ "from": of(*by), "datagram": hex(bytes) }));
    json!({
        "secrets": {
            "client": hex(&secrets.get("CLIENT_TRAFFIC_SECRET_0")),
            "server": hex(&secrets.get("SERVER_TRAFFIC_SECRET_0")),
        },
        // A side's records carry the other side's ID.
        "id_len": { "client": 5, "server": 3 },
        "datagrams": datagrams.collect::<Vec<_>>(),
    })
}

fn run(exchange: &Value) -> Result<String, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), exchange.to_string()).unwrap();
    let decoder = concat!(env!("CARGO_MANIFEST_DIR"), "/data/dtls13/decoder.py");
    let told = Command::new("python3").arg(decoder).arg(file.path()).output().expect("python3 runs");
    if told.status.success() {
        Ok(String::from_utf8(told.stdout).unwrap())
    } else {
        Err(String::from_utf8(told.stderr).unwrap())
    }
}
