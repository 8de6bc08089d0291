//! Established connections between two sides of the engine: key updates, exporters, the key log, and the end.

use std::sync::{Arc, Mutex};

use dunlin::error::{Misuse, PeerMisbehaved};
use dunlin::wire::{AlertDescription, Field, HandshakeType};
use dunlin::{ClientAuth, ClientConfig, Error, Event, KeyLog, Profile, ProfileBuilder, ServerConfig, Trust};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_tests::{KeyType, Leaf, Pair, Pki, awslc};

/// P-256 on both sides, over AWS-LC.
fn profiles() -> (ProfileBuilder, ProfileBuilder) {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let profile = |leaf: &Leaf| {
        let trust = Trust { x509: Some(pki.trust()), raw_key: None };
        Profile::builder(provider.clone()).trust(trust).credentials(vec![leaf.x509(&provider)])
    };
    (profile(&pki.client), profile(&pki.server))
}

fn mutual(client: ProfileBuilder, server: ProfileBuilder) -> Pair {
    let client = ClientConfig::new(client.build().unwrap());
    let server = ServerConfig::new(server.build().unwrap()).unwrap();
    Pair::new(&Arc::new(client), &Arc::new(server.with_client_auth(ClientAuth::Required).unwrap()))
}

#[test]
fn keys_can_be_updated_in_every_combination() {
    let (client, server) = profiles();
    let mut pair = mutual(client, server);
    pair.connect().unwrap();
    for both in [false, true] {
        pair.client.update_keys(both).unwrap();
        pair.echo(b"after the client's").unwrap();
        pair.server.update_keys(both).unwrap();
        pair.echo(b"after the server's").unwrap();
    }
    pair.run().unwrap();
    assert!(pair.client_events.iter().any(|e| matches!(e, Event::PeerUpdatedKeys)));
    assert!(pair.server_events.iter().any(|e| matches!(e, Event::PeerUpdatedKeys)));
}

#[test]
fn keys_are_updated_after_the_configured_number_of_records() {
    let (client, server) = profiles();
    let mut pair = mutual(client.key_update_after(Some(3)), server);
    pair.connect().unwrap();
    for i in 0..10u8 {
        pair.echo(&[i]).unwrap();
    }
    pair.run().unwrap();
    let updates = pair.server.messages().iter().filter(|m| m.typ == HandshakeType::KEY_UPDATE).count();
    assert_eq!(updates, 3);
}

#[test]
fn answers_to_key_updates_do_not_pile_up() {
    let (client, server) = profiles();
    let mut pair = mutual(client, server);
    pair.connect().unwrap();
    let mut flood = Vec::new();
    for _ in 0..10 {
        pair.client.update_keys(true).unwrap();
        flood.extend_from_slice(pair.client.transmit());
        let n = pair.client.transmit().len();
        pair.client.transmitted(n);
    }
    pair.server.receive(pair.now, &flood).unwrap();
    let answers = pair.server.messages().iter().filter(|m| m.sent && m.typ == HandshakeType::KEY_UPDATE);
    assert_eq!(answers.count(), 1);
    pair.echo(b"still in step").unwrap();
    // Without data between them, a flood of requests ends the connection.
    let error = (0..64).find_map(|_| {
        pair.client.update_keys(false).unwrap();
        dunlin_tests::carry(&mut pair.client, &mut pair.server, pair.now).1.err()
    });
    assert_eq!(error, Some(PeerMisbehaved::Flood(Field::KeyUpdates).into()));
}

#[test]
fn sends_nothing_after_close_notify() {
    let (client, server) = profiles();
    let mut pair = mutual(client, server);
    pair.connect().unwrap();
    pair.server.close();
    pair.run().unwrap();
    // The other direction is open: its keys can change, but the answer would come too late.
    pair.client.update_keys(true).unwrap();
    pair.run().unwrap();
    assert!(pair.server_events.iter().any(|e| matches!(e, Event::PeerUpdatedKeys)));
    assert!(!pair.client_events.iter().any(|e| matches!(e, Event::PeerUpdatedKeys)));
    assert!(!pair.server.messages().iter().any(|m| m.sent && m.typ == HandshakeType::KEY_UPDATE));
    let refused = Err(Misuse::SendClosed.into());
    assert_eq!(pair.server.update_keys(false), refused);
    assert_eq!(pair.server.send(b"x"), Err(Misuse::SendClosed.into()));
    let sent =
        dunlin_tests::transfer(&mut pair.client, &mut pair.server, pair.now, b"still arrives").unwrap();
    assert_eq!(sent, b"still arrives");
}

/// RFC 8446 §6.1, RFC 5246 §7.2.1.
#[test]
fn close_notify_during_the_handshake_is_answered() {
    let closed = Error::AlertReceived(AlertDescription::CLOSE_NOTIFY);
    let mut rounds = 0;
    for (is_tls12, by_client, flights) in (0..16).map(|i| (i & 1 > 0, i & 2 > 0, i / 4)) {
        let version = |profile: ProfileBuilder| {
            if is_tls12 {
                profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
            } else {
                profile
            }
        };
        let (client, server) = profiles();
        let mut pair = mutual(version(client), version(server));
        for flight in 0..flights {
            let (from, to) = match flight % 2 {
                0 => (&mut pair.client, &mut pair.server),
                _ => (&mut pair.server, &mut pair.client),
            };
            dunlin_tests::carry(from, to, pair.now).1.unwrap();
        }
        if by_client {
            pair.client.close();
        } else {
            pair.server.close();
        }
        let result = pair.run();
        let (closer, other) =
            if by_client { (&pair.client, &pair.server) } else { (&pair.server, &pair.client) };
        if !other.is_handshaking() && other.error().is_none() {
            // The server's Finished came before close_notify.
            assert!(other.peer_has_closed());
            continue;
        }
        assert_eq!(result, Err(closed.clone()));
        assert_eq!(other.error(), Some(&closed));
        let is_answered = closer.peer_has_closed() || closer.error() == Some(&closed);
        assert!(is_answered, "TLS 1.2: {is_tls12}, by the client: {by_client}, after {flights} flights");
        rounds += 1;
    }
    assert!(rounds >= 8, "{rounds}");
}

#[test]
fn exporters_agree() {
    let (client, server) = profiles();
    let mut pair = mutual(client, server);
    let mut before = [0; 32];
    assert!(pair.client.export(b"EXPORTER-test", None, &mut before).is_err());
    pair.connect().unwrap();
    let export = |context: &[u8]| {
        let mut a = [0; 40];
        let mut b = [0; 40];
        pair.client.export(b"EXPORTER-test", Some(context), &mut a).unwrap();
        pair.server.export(b"EXPORTER-test", Some(context), &mut b).unwrap();
        assert_eq!(a, b);
        a
    };
    assert_ne!(export(b""), export(b"context"));
    assert!(pair.client.export(b"EXPORTER-test", None, &mut vec![0; 255 * 32 + 1]).is_err());
}

#[derive(Debug, Default)]
struct Log(Mutex<Vec<(String, Vec<u8>)>>);

impl KeyLog for Log {
    fn log(&self, label: &str, _: &[u8; 32], secret: &[u8]) {
        self.0.lock().unwrap().push((label.to_owned(), secret.to_vec()));
    }
}

#[test]
fn both_sides_log_the_same_secrets() {
    let ours = Arc::new(Log::default());
    let theirs = Arc::new(Log::default());
    let (client, server) = profiles();
    let mut pair = mutual(client.key_log(Some(ours.clone())), server.key_log(Some(theirs.clone())));
    pair.connect().unwrap();
    let sorted = |log: &Log| {
        let mut lines = log.0.lock().unwrap().clone();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&ours), sorted(&theirs));
    assert_eq!(sorted(&ours).len(), 5);
}

#[test]
fn each_direction_closes_separately() {
    let (client, server) = profiles();
    let mut pair = mutual(client, server);
    pair.connect().unwrap();
    pair.client.send(b"last words").unwrap();
    pair.client.close();
    assert!(pair.client.send(b"more").is_err());
    pair.run().unwrap();
    // The reader gets all data sent before the end, then the end.
    assert_eq!(pair.server.received(), b"last words");
    assert!(!pair.server.peer_has_closed());
    pair.server.consume(pair.now, 10).unwrap();
    assert!(pair.server.peer_has_closed());
    // The other direction stays open.
    assert_eq!(pair.server.send(b"an answer").unwrap(), 9);
    pair.run().unwrap();
    assert_eq!(pair.client.received(), b"an answer");
    pair.client.consume(pair.now, 9).unwrap();
    pair.server.close();
    pair.run().unwrap();
    assert!(pair.client.peer_has_closed());
    pair.client.receive_end().unwrap();
    pair.server.receive_end().unwrap();
}

#[test]
fn reports_an_end_without_close_notify_as_truncation() {
    let (client, server) = profiles();
    let mut pair = mutual(client, server);
    pair.connect().unwrap();
    assert_eq!(pair.client.receive_end(), Err(Error::Truncated));
}
