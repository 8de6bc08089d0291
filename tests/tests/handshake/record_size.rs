//! Record sizes: max_fragment_length (RFC 6066 §4) beside record_size_limit (RFC 8449).

use std::sync::Arc;

use dunlin::auth::{Psk, PskTable};
use dunlin::error::PeerMisbehaved;
use dunlin::wire::{ExtensionType, Field};
use dunlin::{
    ClientAuth, ClientConfig, Error, Event, Profile, ProfileBuilder, PskSource, ServerConfig, TlsConnection,
    Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_tests::ends;
use dunlin_tests::peer::{Files, Link, Process, Server, listen, now};
use dunlin_tests::tamper::{self, Secrets, message, records};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc, null_psk_suite};

type Edit = &'static dyn Fn(ProfileBuilder) -> ProfileBuilder;

fn tls12(profile: ProfileBuilder) -> ProfileBuilder {
    profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
}

const VERSIONS: [Edit; 2] = [&|profile| profile, &tls12];

/// A pair with mutual X.509.
fn pair(client: ProfileBuilder, server: ProfileBuilder) -> Pair {
    let provider = awslc();
    let pki = Pki::shared(KeyType::Rsa2048);
    let trust = || Trust { x509: Some(pki.trust()), raw_key: None };
    let client = client.trust(trust()).credentials(vec![pki.client.x509(&provider)]);
    let server = server.trust(trust()).credentials(vec![pki.server.x509(&provider)]);
    let server = ServerConfig::new(server.build().unwrap()).unwrap();
    let server = server.with_client_auth(ClientAuth::Required).unwrap();
    Pair::new(&Arc::new(ClientConfig::new(client.build().unwrap())), &Arc::new(server))
}

fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}

/// Returns the longest record of each side, from the ServerHello through 10 kB of data in each direction.
fn longest(mut pair: Pair) -> [usize; 2] {
    let mut longest = [0; 2];
    let first = take(&mut pair.client);
    pair.server.receive(NOW, &first).unwrap();
    let mut said = [false; 2];
    loop {
        let mut went = 0;
        for i in [0, 1] {
            let (from, to) = match i {
                0 => (&mut pair.client, &mut pair.server),
                _ => (&mut pair.server, &mut pair.client),
            };
            if !from.is_handshaking() && !said[i] {
                said[i] = from.send(&[7; 10_000]).unwrap() == 10_000;
            }
            let bytes = take(from);
            went += bytes.len();
            longest[i] = records(&bytes).iter().map(|r| r.len() - 5).max().unwrap_or(0).max(longest[i]);
            let mut taken = 0;
            while taken < bytes.len() || !to.received().is_empty() {
                taken += to.receive(NOW, &bytes[taken..]).unwrap();
                let n = to.received().len();
                to.consume(NOW, n).unwrap();
            }
        }
        if went == 0 {
            assert!(said[0] && said[1], "the handshake does not continue");
            return longest;
        }
    }
}

/// The overhead of a record: content type and tag, or an explicit nonce and the tag.
const OVERHEAD: std::ops::RangeInclusive<usize> = 16..=24;

#[test]
fn length_applies_in_both_directions_from_the_first_answer() {
    let profile = || Profile::builder(awslc());
    for version in VERSIONS {
        for length in [512, 1024, 2048, 4096] {
            let longest =
                longest(pair(version(profile()).max_fragment_length(Some(length)), version(profile())));
            for longest in longest {
                assert!(OVERHEAD.contains(&(longest - usize::from(length))), "{length}: {longest}");
            }
        }
        // Only clients offer the extension.
        let longest = longest(pair(version(profile()), version(profile()).max_fragment_length(Some(512))));
        assert!(longest.iter().all(|l| *l > 10_000), "{longest:?}");
    }
}

/// RFC 8449 §5.
#[test]
fn record_size_limit_takes_precedence() {
    let profile = || Profile::builder(awslc());
    for version in VERSIONS {
        let client = || version(profile()).max_fragment_length(Some(512)).record_size_limit(Some(2000));
        // The client's limit applies to the server; the client is limited only if the server sends a limit,
        // too.
        for (server, of_client) in [(None, 10_000), (Some(700), 700)] {
            let server = version(profile()).record_size_limit(server);
            let [client, server] = longest(pair(client(), server));
            assert!((1999..=2024).contains(&server) && (of_client - 1..=of_client + 24).contains(&client));
        }
    }
}

#[test]
fn profile_refuses_other_lengths() {
    for length in [0, 511, 513, 8192, 16384] {
        let result = Profile::builder(awslc()).max_fragment_length(Some(length)).build();
        let Err(Error::Misuse(why)) = result.map(drop) else { panic!("{length}") };
        assert!(why.to_string().contains("max_fragment_length is 512, 1024, 2048 or 4096 bytes"), "{why}");
    }
}

const MAX_FRAGMENT_LENGTH: ExtensionType = ExtensionType::MAX_FRAGMENT_LENGTH;
const RECORD_SIZE_LIMIT: ExtensionType = ExtensionType::RECORD_SIZE_LIMIT;

/// Returns the result of a TLS 1.3 client that offers both extensions for EncryptedExtensions with these.
fn answered(extensions: &[(ExtensionType, &[u8])]) -> Result<(), Error> {
    let secrets = Arc::new(Secrets::default());
    let provider = awslc();
    let profile = || Profile::builder(provider.clone());
    let client = profile().max_fragment_length(Some(1024)).record_size_limit(Some(2000));
    let mut pair = pair(client, profile().key_log(Some(secrets.clone())));
    let hello = take(&mut pair.client);
    pair.server.receive(NOW, &hello).unwrap();
    let flight = take(&mut pair.server);
    let secret = secrets.get("SERVER_HANDSHAKE_TRAFFIC_SECRET");
    // The first suite of both sides.
    let suite = provider.cipher_suites[0].id;
    let flight = tamper::rewrite(&provider, suite, &secret, &flight, |mut messages| {
        let list: Vec<u8> = extensions
            .iter()
            .flat_map(|(typ, body)| {
                [&typ.0.to_be_bytes()[..], &(body.len() as u16).to_be_bytes(), body].concat()
            })
            .collect();
        messages[0] = message(8, &[&(list.len() as u16).to_be_bytes()[..], &list].concat());
        // The later messages would reveal the change.
        messages.truncate(1);
        messages
    });
    pair.client.receive(NOW, &flight).map(drop)
}

#[test]
fn client_rejects_an_answer_that_it_did_not_offer() {
    assert_eq!(answered(&[(MAX_FRAGMENT_LENGTH, &[2])]), Ok(()));
    for code in [1, 3, 4] {
        let result = answered(&[(MAX_FRAGMENT_LENGTH, &[code])]);
        assert_eq!(
            result,
            Err(PeerMisbehaved::NotOffered(Field::Extension(ExtensionType::MAX_FRAGMENT_LENGTH)).into()),
            "{code}"
        );
    }
    for code in [0, 5, 255] {
        let result = answered(&[(MAX_FRAGMENT_LENGTH, &[code])]);
        assert_eq!(
            result,
            Err(PeerMisbehaved::IllegalParameter(Field::Extension(ExtensionType::MAX_FRAGMENT_LENGTH)).into()),
            "{code}"
        );
    }
    let result = answered(&[(MAX_FRAGMENT_LENGTH, &[2]), (RECORD_SIZE_LIMIT, &[2, 0])]);
    let both = PeerMisbehaved::IllegalParameter(Field::RecordSizeLimitToo);
    assert_eq!(result, Err(both.into()));
}

/// TLS 1.2 without real cryptography, so that changes on the wire go undetected. The client offers 512 bytes.
fn open_pair() -> Pair {
    let provider = Arc::new(dunlin_null::null_provider());
    let profile = |length| {
        let profile = Profile::builder(provider.clone()).danger_skip_provider_check().renegotiation(true);
        let profile = profile.cipher_suites(vec![]).tls12_cipher_suites(vec![null_psk_suite()]);
        profile.max_fragment_length(length).build().unwrap()
    };
    let psk = || Psk::new("d1", &[7; 32]).unwrap();
    let client = ClientConfig::new(profile(Some(512))).with_psks(vec![Arc::new(psk())]);
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    Pair::new(&Arc::new(client), &Arc::new(ServerConfig::psk_only(profile(None), keys).unwrap()))
}

/// Replaces the only occurrence of the extension in a flight.
fn replaced(flight: &[u8], old: &[u8; 5], new: &[u8; 5]) -> Vec<u8> {
    let places: Vec<_> = (0..flight.len() - 4).filter(|i| flight[*i..].starts_with(old)).collect();
    let [at] = places[..] else { panic!("{places:?}") };
    let mut flight = flight.to_vec();
    flight[at..at + 5].copy_from_slice(new);
    flight
}

const OF_512: [u8; 5] = [0, 1, 0, 1, 1];
const OF_1024: [u8; 5] = [0, 1, 0, 1, 2];
/// An unknown extension.
const UNKNOWN: [u8; 5] = [0x7a, 0x7a, 0, 1, 1];

#[test]
fn receiver_rejects_records_above_the_agreed_length() {
    // Each side believes that the other has agreed to its length.
    let mut pair = open_pair();
    let hello = replaced(&take(&mut pair.client), &OF_512, &OF_1024);
    pair.server.receive(NOW, &hello).unwrap();
    let answer = replaced(&take(&mut pair.server), &OF_1024, &OF_512);
    pair.client.receive(NOW, &answer).unwrap();
    pair.connect().unwrap();
    for (len, goes_on) in [(512, true), (513, false)] {
        pair.server.send(&vec![7; len]).unwrap();
        let record = take(&mut pair.server);
        assert_eq!(records(&record).len(), 1);
        let result = pair.client.receive(NOW, &record).map(drop);
        assert_eq!(result, if goes_on { Ok(()) } else { Err(PeerMisbehaved::RecordOverflow.into()) });
        let n = pair.client.received().len();
        let _ = pair.client.consume(NOW, n);
    }
}

/// RFC 8449 §4: a limit applies to the keys of the handshake that negotiated it.
#[test]
fn renegotiation_can_lift_the_limit() {
    let mut pair = open_pair();
    pair.connect().unwrap();
    // Returns the lengths of the data records that arrive.
    let lengths = |from: &mut TlsConnection, to: &mut TlsConnection| {
        from.send(&[7; 1000]).unwrap();
        let bytes = take(from);
        let mut taken = 0;
        while taken < bytes.len() || !to.received().is_empty() {
            taken += to.receive(NOW, &bytes[taken..]).unwrap();
            let n = to.received().len();
            to.consume(NOW, n).unwrap();
        }
        let data = records(&bytes).into_iter().filter(|record| record[0] == 23);
        data.map(|record| record.len() - 5 - 16).collect::<Vec<_>>()
    };
    assert_eq!(lengths(&mut pair.server, &mut pair.client), [512, 488]);
    pair.client.renegotiate(NOW).unwrap();
    let hello = replaced(&take(&mut pair.client), &OF_512, &UNKNOWN);
    pair.server.receive(NOW, &hello).unwrap();
    // The old keys are in force, and with them the old length.
    assert_eq!(lengths(&mut pair.server, &mut pair.client), [512, 488]);
    pair.run().unwrap();
    assert!(pair.client_events.iter().any(|e| matches!(e, Event::Renegotiated)));
    assert_eq!(lengths(&mut pair.server, &mut pair.client), [1000]);
    assert_eq!(lengths(&mut pair.client, &mut pair.server), [1000]);
}

fn openssl(files: &Files, is_server: bool) -> Vec<String> {
    let pki = Pki::shared(KeyType::P256);
    let own = if is_server { &pki.server } else { &pki.client };
    let cert = files.write("cert.pem", own.chain_pem());
    let key = files.write("key.pem", own.key_pem());
    let root = files.write("root.pem", pki.root_pem());
    ["-cert", &cert, "-cert_chain", &cert, "-key", &key, "-CAfile", &root].map(str::to_owned).to_vec()
}

fn both_versions(profile: ProfileBuilder) -> ProfileBuilder {
    profile.tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
}

/// OpenSSL's client refuses records above the length that it requested.
#[test]
fn openssls_client_gets_small_records() {
    for version in ["-tls1_3", "-tls1_2"] {
        let (listener, port) = listen();
        let config = ends::server_config_with(both_versions(ends::server_profile(KeyType::P256)), |s| s);
        let files = Files::default();
        let connect = format!("127.0.0.1:{port}");
        let mut args = vec!["s_client", "-connect", &connect, "-servername", "localhost", version];
        args.extend(["-maxfraglen", "512", "-quiet"]);
        let identity = openssl(&files, false);
        args.extend(identity.iter().map(String::as_str));
        let mut peer = Process::client("openssl", &args);
        let mut link = Link::accept(TlsConnection::server(&config, now()), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{version}: {e} / {}", peer.errors()));
        let line = [&b"x".repeat(5000)[..], b"end\n"].concat();
        link.send(&line).unwrap();
        peer.output_until("data", |o| o.windows(5004).any(|w| w == line));
    }
}

#[test]
fn openssls_server_accepts_the_length() {
    for version in ["-tls1_3", "-tls1_2"] {
        let files = Files::default();
        let identity = openssl(&files, true);
        let mut args = vec!["s_server", "-accept", "127.0.0.1:4433", "-Verify", "3", "-quiet", version];
        args.extend(identity.iter().map(String::as_str));
        let mut peer = Server::start(files, "openssl", &args);
        let profile = both_versions(ends::client_profile(KeyType::P256)).max_fragment_length(Some(512));
        let mut link = Link::to_server(ends::client_with(profile, |c| c), &peer);
        link.handshake().unwrap_or_else(|e| panic!("{version}: {e} / {}", peer.process.errors()));
        link.connection.send(&[b'x'; 5000]).unwrap();
        let longest = records(link.connection.transmit()).iter().map(|r| r.len() - 5).max();
        assert!(OVERHEAD.contains(&(longest.unwrap() - 512)), "{longest:?}");
        link.send(b"end\n").unwrap();
        peer.process.output_until("data", |o| o.windows(4).any(|w| w == b"end\n"));
    }
}
