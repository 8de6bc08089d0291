//! Messages after the handshake over a stream: a side refuses those that it does not read by their header,
//! and keeps nothing of them.

use std::sync::Arc;

use dunlin::Error;
use dunlin::error::PeerMisbehaved;
use dunlin::wire::{Field, HandshakeType};
use dunlin::{ClientConfig, ServerConfig, TlsConnection};
use dunlin_tests::tamper::{Keys, Secrets};
use dunlin_tests::{KeyType, NOW, Pair, awslc, ends};

/// Gives a connected side the header of a message with this type.
fn header_for(side: fn(&mut Pair) -> &mut TlsConnection, label: &str, typ: u8) -> Result<(), Error> {
    let secrets = Arc::new(Secrets::default());
    let profile = |builder: dunlin::ProfileBuilder| builder.key_log(Some(secrets.clone())).build().unwrap();
    let client = ClientConfig::new(profile(ends::client_profile(KeyType::P256)));
    let server = ServerConfig::new(profile(ends::server_profile(KeyType::P256))).unwrap();
    let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
    pair.connect().unwrap();
    let keys = Keys::new(awslc().cipher_suites[0], &secrets.get(label));
    side(&mut pair).receive(NOW, &keys.seal(0, &[typ, 0, 0x10, 0, 22])).map(drop)
}

#[test]
fn refuses_a_message_that_nobody_reads_by_its_header() {
    for typ in 0..=u8::MAX {
        let unexpected =
            PeerMisbehaved::UnexpectedMessage { got: HandshakeType(typ), expected: Field::ApplicationData };
        let update = HandshakeType::KEY_UPDATE.0;
        let ticket = HandshakeType::NEW_SESSION_TICKET.0;
        let server = header_for(|pair| &mut pair.server, "CLIENT_TRAFFIC_SECRET_0", typ);
        let client = header_for(|pair| &mut pair.client, "SERVER_TRAFFIC_SECRET_0", typ);
        assert_eq!(server, if typ == update { Ok(()) } else { Err(unexpected.clone().into()) });
        assert_eq!(client, if [update, ticket].contains(&typ) { Ok(()) } else { Err(unexpected.into()) });
    }
}
