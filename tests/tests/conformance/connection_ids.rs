//! NewConnectionId and RequestConnectionId (RFC 9147 §9), which no other implementation has. An independent
//! decoder reads the datagrams.

use std::sync::Arc;
use std::time::Duration;

use dunlin::{DtlsConnection, Migration};
use dunlin_sim::{CLIENT_ADDRESS, Pair, SERVER_ADDRESS};
use dunlin_tests::tamper::Secrets;
use dunlin_tests::{NOW, localhost};

use crate::decoder::{configs, decode, hex};

#[test]
fn an_independent_decoder_reads_the_messages_about_connection_ids() {
    let secrets = Arc::new(Secrets::default());
    let (client, server) = configs(&secrets, Migration::default());
    let client = DtlsConnection::client(&client, localhost(), SERVER_ADDRESS, NOW).unwrap();
    let server = DtlsConnection::server(&server, CLIENT_ADDRESS, NOW);
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
    let datagrams: Vec<_> = pair.sent.iter().map(|sent| (sent.by, sent.packet.clone())).collect();
    assert_eq!(decode(&secrets, &datagrams), expected);
}
