//! NewConnectionId and RequestConnectionId (RFC 9147 §9), which no other implementation has. An independent decoder in Python
//! (`tests/data/dtls13/decoder.py`) reads the datagrams.

use std::fmt::Write as _;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::wire::CipherSuite;
use dunlin::{
    ClientAuth, ClientConfig, ConnectionIds, DtlsConnection, Error, Profile, ServerConfig, Side, Trust,
};
use dunlin_sim::{CLIENT_ADDRESS, Pair, SERVER_ADDRESS};
use dunlin_tests::tamper::Secrets;
use dunlin_tests::{KeyType, NOW, Pki, awslc, localhost};
use serde_json::json;

/// IDs that count, of this length.
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn an_independent_decoder_reads_the_messages_about_connection_ids() {
    let secrets = Arc::new(Secrets::default());
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
    let client = ClientConfig::new(client).with_connection_ids(ids(0xc0, 3));
    let server = ServerConfig::new(profile(&pki.server).build().unwrap())
        .and_then(|server| server.with_client_auth(ClientAuth::Required))
        .unwrap()
        .with_connection_ids(ids(0x50, 5));
    let client = DtlsConnection::client(&Arc::new(client), localhost(), SERVER_ADDRESS, NOW).unwrap();
    let server = DtlsConnection::server(&Arc::new(server), CLIENT_ADDRESS, NOW);
    let mut pair = Pair::new(client, server, NOW, Duration::from_millis(20));
    pair.run().unwrap();
    let mut expected = Vec::new();
    pair.client.request_connection_ids(2).unwrap();
    pair.run().unwrap();
    let [c1, s1, s2, s3] = [[0xc1; 3].to_vec(), [0x51; 5].to_vec(), [0x52; 5].to_vec(), [0x53; 5].to_vec()];
    let c2 = vec![0xc2; 3];
    expected.push(format!("client {} request_connection_id 2", hex(&s1)));
    expected.push(format!("server {} new_connection_id cid_spare {},{}", hex(&c1), hex(&s2), hex(&s3)));
    assert!(pair.client.use_spare_connection_id());
    pair.client.send(b"spare").unwrap();
    pair.run().unwrap();
    expected.push(format!("client {} data {}", hex(&s2), hex(b"spare")));
    pair.client.replace_connection_id().unwrap();
    pair.run().unwrap();
    pair.server.send(b"replaced").unwrap();
    pair.run().unwrap();
    expected.push(format!("client {} new_connection_id cid_immediate {}", hex(&s2), hex(&c2)));
    expected.push(format!("server {} data {}", hex(&c2), hex(b"replaced")));

    let of = |side| if side == Side::Client { "client" } else { "server" };
    let datagrams: Vec<_> =
        pair.sent.iter().map(|sent| json!({ "from": of(sent.by), "datagram": hex(&sent.packet) })).collect();
    let exchange = json!({
        "secrets": {
            "client": hex(&secrets.get("CLIENT_TRAFFIC_SECRET_0")),
            "server": hex(&secrets.get("SERVER_TRAFFIC_SECRET_0")),
        },
        // What a side sends carries the other side's ID.
        "id_len": { "client": 5, "server": 3 },
        "datagrams": datagrams,
    });
    let decode = |exchange: &serde_json::Value| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), exchange.to_string()).unwrap();
        let decoder = concat!(env!("CARGO_MANIFEST_DIR"), "/data/dtls13/decoder.py");
        let told = Command::new("python3").arg(decoder).arg(file.path()).output().expect("python3 runs");
        match told.status.success() {
            true => Ok(String::from_utf8(told.stdout).unwrap()),
            false => Err(String::from_utf8(told.stderr).unwrap()),
        }
    };
    let told = decode(&exchange).unwrap();
    // Sender, ID and content, without the record's number and without ACKs.
    let lines: Vec<_> = told
        .lines()
        .map(|line| line.splitn(4, ' ').collect::<Vec<_>>())
        .filter(|parts| !parts[3].starts_with("ack"))
        .map(|parts| [parts[0], parts[1], parts[3]].join(" "))
        .collect();
    assert_eq!(lines, expected, "{told}");
    // The decoder notices a changed record, or its approval would prove nothing.
    let mut changed = exchange;
    let last = changed["datagrams"].as_array_mut().unwrap().last_mut().unwrap();
    let datagram = last["datagram"].as_str().unwrap().to_owned();
    last["datagram"] = json!(format!("{}00", &datagram[..datagram.len() - 2]));
    assert!(decode(&changed).is_err() || datagram.ends_with("00"));
}
