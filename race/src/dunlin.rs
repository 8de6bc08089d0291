//! Dunlin over AWS-LC.

use std::hint::black_box;
use std::sync::Arc;

use dunlin::resume::Tickets;
use dunlin::{ClientAuth, ClientConfig, Profile, ServerConfig, TlsConnection, Trust};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions};
use dunlin_tests::peer::now;
use dunlin_tests::{KeyType, Leaf, Pki, awslc, localhost};

use crate::stack::{End, Maker};

impl End for TlsConnection {
    fn take(&mut self, mut bytes: &[u8]) -> usize {
        let (now, mut came) = (now(), 0);
        while !bytes.is_empty() {
            let taken = self.receive(now, bytes).unwrap();
            bytes = &bytes[taken..];
            while !self.received().is_empty() {
                let n = black_box(self.received()).len();
                came += n;
                self.consume(now, n).unwrap();
            }
        }
        // Whoever runs a connection takes its events.
        while self.poll_event().is_some() {}
        came
    }

    fn give(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.transmit());
        self.transmitted(self.transmit().len());
    }

    fn send(&mut self, data: &[u8]) {
        assert_eq!(Self::send(self, data).unwrap(), data.len());
    }

    fn is_connected(&self) -> bool {
        self.negotiated().is_some()
    }

    fn is_resumed(&self) -> bool {
        self.negotiated().unwrap().resumed
    }
}

pub(crate) fn makers(typ: KeyType, resumed: bool) -> (Maker, Maker) {
    let pki = Pki::shared(typ);
    let profile = |leaf: &Leaf| {
        Profile::builder(awslc())
            .cipher_suites(vec![&dunlin_awslc::TLS13_AES_128_GCM_SHA256])
            .groups(vec![dunlin_awslc::SECP256R1])
            .trust(Trust { x509: Some(pki.trust()), raw_key: None })
            .credentials(vec![leaf.x509(&awslc())])
            .build()
            .unwrap()
    };
    let client = ClientConfig::new(profile(&pki.client));
    let server =
        ServerConfig::new(profile(&pki.server)).unwrap().with_client_auth(ClientAuth::Required).unwrap();
    let (client, server) = match resumed {
        true => (
            client.with_sessions(Arc::new(MemoryClientSessions::new(1, 1))),
            server.with_tickets(Tickets::stateful(Arc::new(MemoryServerSessions::new(16)))),
        ),
        false => (client, server),
    };
    let (client, server) = (Arc::new(client), Arc::new(server));
    (
        Box::new(move || Box::new(TlsConnection::client(&client, localhost(), now()).unwrap())),
        Box::new(move || Box::new(TlsConnection::server(&server, now()))),
    )
}
