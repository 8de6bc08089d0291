//! Servers that choose a profile for each client by who the client is: hints, proven identities and ranks.

use std::sync::Arc;

use dunlin::auth::{Psk, PskTable};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::error::{Misuse, PeerIncompatible};
use dunlin::resume::{ClientSessions, Tickets};
use dunlin::wire::{AlertDescription, CipherSuite, NamedGroup};
use dunlin::{
    Answer, ClientAuth, ClientConfig, ClientHelloInfo, DtlsConnection, Error, Event, IdentifiedClient,
    KnownBy, KnownClient, PeerIdentity, Profile, ProfileBuilder, PskSource, Question, ServerConfig,
    ServerProfiles, Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_store::{MemoryClientCache, MemoryServerCache};
use dunlin_tests::ends::{self, with_sessions};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc, localhost};
use webpki::EndEntityCert;

fn pki() -> &'static Pki {
    Pki::shared(KeyType::P256)
}

fn builder() -> ProfileBuilder {
    let trust = Trust { x509: Some(pki().trust()), raw_key: None };
    Profile::builder(awslc()).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec()).trust(trust)
}

/// A profile of this name and rank, with TLS 1.2 and 1.3.
fn profile(name: &str, rank: i32) -> ProfileBuilder {
    builder().name(name).rank(rank).credentials(vec![pki().server.x509(&awslc())])
}

/// A server that requires a certificate of its clients.
fn required(profile: ProfileBuilder) -> ServerConfig {
    ServerConfig::new(profile.build().unwrap()).unwrap().with_client_auth(ClientAuth::Required).unwrap()
}

/// The profiles "low", "middle" and "high" with the ranks 1, 2 and 3. "middle" is the default.
fn profiles(edit: impl Fn(ServerConfig) -> ServerConfig) -> ServerProfiles {
    let [low, middle, high] =
        [("low", 1), ("middle", 2), ("high", 3)].map(|(name, rank)| edit(required(profile(name, rank))));
    ServerProfiles::new(middle, vec![low, high], 1).unwrap()
}

/// A client that speaks one version.
fn client(is_tls12: bool, edit: impl FnOnce(ClientConfig) -> ClientConfig) -> Arc<ClientConfig> {
    let profile =
        if is_tls12 { builder().cipher_suites(vec![]) } else { builder().tls12_cipher_suites(vec![]) };
    let profile = profile.credentials(vec![pki().client.x509(&awslc())]).build().unwrap();
    Arc::new(edit(ClientConfig::new(profile)))
}

fn keeping(is_tls12: bool, sessions: &Arc<dyn ClientSessions>) -> Arc<ClientConfig> {
    client(is_tls12, |client| client.with_sessions(sessions.clone()))
}

/// The questions of a handshake: hints, then identified clients.
#[derive(Default)]
struct Asked {
    hints: Vec<ClientHelloInfo>,
    /// The client of the hints, as far as the server knew it then.
    known: Option<KnownClient>,
    clients: Vec<IdentifiedClient>,
}

/// Connects. The server chooses the profile `hinted` for the ClientHello, and says that `proven` is the
/// profile of the identity.
fn connect(
    client: &Arc<ClientConfig>,
    profiles: &ServerProfiles,
    hinted: &str,
    proven: &str,
) -> (Pair, Result<(), Error>, Asked) {
    let mut pair = Pair::new(client, profiles.server());
    let mut asked = Asked::default();
    loop {
        let mut result = pair.run();
        if let (Ok(()), Some((id, question))) = (&result, pair.server_question()) {
            let name = match question {
                Question::ChooseProfile(hints) => {
                    asked.known = profiles.recognize(NOW, &hints);
                    asked.hints.push(hints);
                    hinted
                }
                Question::ProfileOf(client) => {
                    asked.clients.push(*client);
                    proven
                }
                _ => panic!("an unexpected question"),
            };
            result = pair.server.answer(NOW, id, Answer::Profile(profiles.get(name).cloned()));
            if result.is_ok() {
                continue;
            }
            pair.run().unwrap_err();
        }
        return (pair, result, asked);
    }
}

fn name_in_use(pair: &Pair) -> &str {
    &pair.server.negotiated().unwrap().profile
}

#[test]
fn the_proven_identity_decides_whatever_the_hints_said() {
    const RANKS: [&str; 3] = ["low", "middle", "high"];
    for is_tls12 in [false, true] {
        for (used, hinted) in RANKS.into_iter().enumerate() {
            for (needed, proven) in RANKS.into_iter().enumerate() {
                let (mut pair, result, asked) =
                    connect(&client(is_tls12, |c| c), &profiles(|s| s), hinted, proven);
                let [identified] = &asked.clients[..] else { panic!("{}", asked.clients.len()) };
                assert_eq!(identified.identity.to_string(), "X.509 device-1");
                assert_eq!((&*identified.profile, identified.is_proven), (hinted, true));
                assert!(identified.validity.is_some());
                if used >= needed {
                    result.unwrap();
                    assert_eq!(name_in_use(&pair), hinted);
                    pair.echo(b"hello").unwrap();
                } else {
                    assert_eq!(result, Err(PeerIncompatible::Rank.into()));
                    assert!(pair.server.negotiated().is_none());
                    let denied = Error::AlertReceived(AlertDescription::ACCESS_DENIED);
                    assert_eq!(pair.client.error(), Some(&denied));
                }
            }
        }
    }
}

#[test]
fn an_identity_without_profile_is_refused() {
    for is_tls12 in [false, true] {
        let (pair, result, _) = connect(&client(is_tls12, |c| c), &profiles(|s| s), "middle", "none");
        assert_eq!(result, Err(PeerIncompatible::Refused.into()));
        assert_eq!(pair.client.error(), Some(&Error::AlertReceived(AlertDescription::ACCESS_DENIED)));
    }
}

/// Here a caller has removed the demand for certificates from a profile after the rules were checked.
#[test]
fn a_client_without_identity_gets_no_profile_below_the_default() {
    for is_tls12 in [false, true] {
        let profiles = profiles(|s| s);
        for (name, is_strong) in [("low", false), ("middle", true), ("high", true)] {
            let config = ServerConfig::clone(profiles.get(name).unwrap());
            let config = config.with_client_auth(ClientAuth::None).unwrap();
            let mut pair = Pair::new(&client(is_tls12, |c| c), profiles.server());
            pair.run().unwrap();
            let (id, _) = pair.server_question().unwrap();
            pair.server.answer(NOW, id, Answer::Profile(Some(Arc::new(config)))).unwrap();
            let result = pair.run();
            if is_strong {
                pair.echo(b"hello").unwrap();
            } else {
                assert_eq!(result, Err(PeerIncompatible::Rank.into()));
            }
        }
    }
}

#[test]
fn a_configuration_from_elsewhere_is_no_answer() {
    let profiles = profiles(|s| s);
    let mut pair = Pair::new(&client(false, |c| c), profiles.server());
    pair.run().unwrap();
    let (id, _) = pair.server_question().unwrap();
    let answer = Answer::Profile(Some(Arc::new(required(profile("foreign", 9)))));
    let result = pair.server.answer(NOW, id, answer);
    assert!(matches!(result, Err(Error::Misuse(Misuse::Config(_)))), "{result:?}");
    // After a reload, handshakes get answers from the new profiles. A higher floor of the previous ones still
    // binds them.
    for (floor, is_kept) in [(1, true), (2, false)] {
        let previous = ServerProfiles::new(required(profile("middle", 2)), vec![], floor).unwrap();
        let mut pair = Pair::new(&client(false, |c| c), previous.server());
        pair.run().unwrap();
        let (id, _) = pair.server_question().unwrap();
        let result = pair.server.answer(NOW, id, Answer::Profile(profiles.get("low").cloned()));
        assert_eq!(result, if is_kept { Ok(()) } else { Err(PeerIncompatible::Rank.into()) });
    }
}

/// An authority validates a name by a handshake, whatever the profiles of the server are (RFC 8737 §3).
#[test]
fn a_handshake_without_data_needs_no_profile_of_the_server() {
    for is_tls12 in [false, true] {
        let profiles = profiles(|s| s);
        let mut pair = Pair::new(&client(is_tls12, |c| c), profiles.server());
        pair.run().unwrap();
        let (id, _) = pair.server_question().unwrap();
        let validation = ServerConfig::handshake_only(profile("validation", 0).build().unwrap()).unwrap();
        pair.server.answer(NOW, id, Answer::Profile(Some(Arc::new(validation)))).unwrap();
        pair.run().unwrap();
        assert_eq!(name_in_use(&pair), "validation");
        assert!(pair.client.negotiated().is_some() && pair.client.peer_has_closed());
        // No data passes in either direction.
        assert_eq!(pair.server.send(b"data"), Err(Misuse::SendClosed.into()));
        pair.client.send(b"data").unwrap();
        pair.run().unwrap();
        assert_eq!(pair.server.received(), b"");
    }
}

#[test]
fn a_refusal_has_the_alert_of_its_reason() {
    for (answer, why, alert) in [
        (None, PeerIncompatible::Refused, AlertDescription::ACCESS_DENIED),
        (
            Some(PeerIncompatible::ApplicationProtocol),
            PeerIncompatible::ApplicationProtocol,
            AlertDescription::NO_APPLICATION_PROTOCOL,
        ),
        (
            Some(PeerIncompatible::ServerName),
            PeerIncompatible::ServerName,
            AlertDescription::UNRECOGNIZED_NAME,
        ),
        (
            Some(PeerIncompatible::NoServerName),
            PeerIncompatible::NoServerName,
            AlertDescription::MISSING_EXTENSION,
        ),
    ] {
        let profiles = profiles(|s| s);
        let mut pair = Pair::new(&client(false, |c| c), profiles.server());
        pair.run().unwrap();
        let (id, _) = pair.server_question().unwrap();
        let answer = answer.map_or(Answer::Profile(None), Answer::Refused);
        assert_eq!(pair.server.answer(NOW, id, answer), Err(why.into()));
        assert_eq!(pair.run(), Err(Error::AlertReceived(alert)));
    }
}

/// A session carries its rank, and the client's present profile decides whether it resumes.
#[test]
fn a_session_resumes_only_where_its_rank_and_its_client_allow() {
    for tickets in ends::tickets() {
        for is_tls12 in [false, true] {
            // The second connection: the hint, the profile of the identity, whether it resumes, whether it
            // succeeds.
            for (first, hinted, proven, resumes, succeeds) in [
                ("low", "low", "low", true, true),
                ("middle", "low", "low", true, true),
                ("low", "middle", "low", false, true),
                // The client needs more than before: the session does not resume, and the full handshake is
                // as weak.
                ("low", "low", "high", false, false),
                ("low", "high", "high", false, true),
                ("high", "high", "high", true, true),
            ] {
                let profiles = profiles(|server| server.with_tickets(tickets.clone()));
                let client = keeping(is_tls12, &with_sessions());
                connect(&client, &profiles, first, "low").1.unwrap();
                let (pair, result, asked) = connect(&client, &profiles, hinted, proven);
                let what = format!("{is_tls12} {first} {hinted} {proven}");
                if succeeds {
                    result.unwrap();
                    assert_eq!(pair.server.negotiated().unwrap().is_resumed(), resumes, "{what}");
                    assert_eq!(name_in_use(&pair), hinted);
                } else {
                    assert_eq!(result, Err(PeerIncompatible::Rank.into()), "{what}");
                }
                let proofs: Vec<_> = asked.clients.iter().map(|client| client.is_proven).collect();
                let is_weighed = first != "low" || hinted == "low";
                let expected: &[bool] = match (is_weighed, resumes) {
                    (_, true) => &[false],
                    (true, false) => &[false, true],
                    (false, false) => &[true],
                };
                assert_eq!(proofs, expected, "{what}");
            }
        }
    }
}

#[test]
fn profiles_that_break_a_rule_together_are_refused() {
    let refused = |default: ServerConfig, other: ServerConfig, floor| {
        ServerProfiles::new(default, vec![other], floor).unwrap_err().to_string()
    };
    let default = || required(profile("default", 2));
    let optional = |builder: ProfileBuilder| {
        let config = ServerConfig::new(builder.build().unwrap()).unwrap();
        config.with_client_auth(ClientAuth::Optional).unwrap()
    };
    let key = || PskSource::Here(Arc::new(PskTable::from_iter([Psk::new("d", &[7; 32]).unwrap()])));
    let keys_alone = |rank| {
        let profile = Profile::builder(awslc()).name("keys").rank(rank).build().unwrap();
        ServerConfig::psk_only(profile, key()).unwrap()
    };
    for (other, floor, rule) in [
        (
            required(profile("default", 3)),
            0,
            "profile default: another profile of this server has the same name",
        ),
        (required(profile("low", 0)), 1, "profile low: its rank 0 is below the floor 1"),
        (
            optional(profile("low", 1)),
            0,
            "profile low: its rank 1 is below that of the default profile, 2: require the client's certificate, or raise the rank",
        ),
        (optional(profile("low", 1)).with_psks(key()), 0, "profile low: its rank 1 is below that"),
        (
            required(profile("old", 3).cipher_suites(vec![])),
            0,
            "profile old: it lacks TLS 1.3, which another profile of this server enables: add TLS 1.3 suites, or remove them there",
        ),
        (
            required(profile("high", 3).renegotiation(true)),
            0,
            "profile high: its clients may renegotiate: a server of several profiles begins renegotiations itself",
        ),
        (
            ServerConfig::choosing(builder().name("none").build().unwrap()).unwrap(),
            0,
            "profile none: it serves no client: add a credential or pre-shared keys",
        ),
    ] {
        let why = refused(default(), other, floor);
        assert!(why.starts_with(&format!("configuration: {rule}")), "{why}");
    }
    assert!(
        refused(required(profile("default", 0)), keys_alone(2), 1).contains("profile default: its rank 0")
    );
    let old = || required(profile("old", 2).cipher_suites(vec![]));
    assert!(refused(old(), required(profile("new", 3)), 0).contains("profile old: it lacks TLS 1.3"));
    // A server without TLS 1.3 may choose among profiles without it. PSKs alone authenticate every client.
    ServerProfiles::new(old(), vec![required(profile("older", 1).cipher_suites(vec![]))], 1).unwrap();
    ServerProfiles::new(default(), vec![keys_alone(1), optional(profile("high", 3))], 1).unwrap();
}

#[test]
fn a_client_is_recognized_by_its_session_whatever_profile_it_had() {
    // "high" does not require certificates, so its trust differs from that of the others.
    for tickets in ends::tickets() {
        for is_tls12 in [false, true] {
            for (name, rank) in [("low", 1), ("high", 3)] {
                let optional = ServerConfig::new(profile("high", 3).build().unwrap()).unwrap();
                let high =
                    optional.with_client_auth(ClientAuth::Optional).unwrap().with_tickets(tickets.clone());
                let [low, middle] = [("low", 1), ("middle", 2)]
                    .map(|(name, rank)| required(profile(name, rank)).with_tickets(tickets.clone()));
                let profiles = ServerProfiles::new(middle, vec![low, high], 1).unwrap();
                let client = keeping(is_tls12, &with_sessions());
                let (_, result, asked) = connect(&client, &profiles, name, "low");
                result.unwrap();
                assert!(asked.known.is_none());
                let (pair, result, asked) = connect(&client, &profiles, name, "low");
                result.unwrap();
                assert!(pair.server.negotiated().unwrap().is_resumed());
                let known = asked.known.unwrap();
                assert_eq!((known.by, known.rank), (KnownBy::Session, Some(rank)));
                assert_eq!(known.identity.to_string(), "X.509 device-1");
                // An expired session tells nothing.
                let late = dunlin::Now { unix_ms: NOW.unix_ms + 8 * 24 * 3_600_000, ..NOW };
                assert!(profiles.recognize(late, &asked.hints[0]).is_none());
            }
        }
    }
}

#[test]
fn a_client_is_recognized_by_its_cached_certificate() {
    for mode in [CacheMode::Bithac, CacheMode::Compact] {
        for is_tls12 in [false, true] {
            let store = Arc::new(MemoryServerCache::new(8));
            let profiles =
                profiles(|s| s.with_handshake_cache(mode, store.clone(), DEFAULT_MAX_AGE).unwrap());
            let cache = Arc::new(MemoryClientCache::new(8));
            let client = client(is_tls12, |c| c.with_handshake_cache(mode, cache.clone(), DEFAULT_MAX_AGE));
            let (_, result, asked) = connect(&client, &profiles, "low", "low");
            result.unwrap();
            assert!(asked.known.is_none());
            // The entry serves another profile of the same trust.
            let (pair, result, asked) = connect(&client, &profiles, "high", "low");
            result.unwrap();
            assert!(pair.server.negotiated().unwrap().is_peer_cached());
            let hints = &asked.hints[0];
            let names = hints.cache.as_ref().unwrap();
            assert_eq!((names.tickets.len(), names.certificates.len()), (1, 1));
            let known = asked.known.as_ref().unwrap();
            assert_eq!((known.by, known.rank), (KnownBy::Cache, None));
            assert_eq!(known.identity.to_string(), "X.509 device-1");
        }
    }
}

#[test]
fn a_client_is_recognized_by_its_psk() {
    let psk = || Psk::new("device-9", &[7; 32]).unwrap();
    let source = || PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    let profiles = profiles(|s| s.with_psks(source()));
    let client = client(false, |client| client.with_psks(vec![Arc::new(psk())]));
    let (pair, result, asked) = connect(&client, &profiles, "low", "low");
    result.unwrap();
    assert_eq!(name_in_use(&pair), "low");
    let known = asked.known.unwrap();
    assert_eq!((known.by, known.identity.to_string()), (KnownBy::Psk, "PSK device-9".into()));
    let [identified] = &asked.clients[..] else { panic!("one client") };
    assert!(identified.is_proven && identified.identity == known.identity);
    assert_eq!(connect(&client, &profiles, "low", "middle").1, Err(PeerIncompatible::Rank.into()));
}

#[test]
fn hints_tell_what_the_client_offers_in_tls12() {
    for is_tls12 in [false, true] {
        let (_, result, asked) =
            connect(&keeping(is_tls12, &with_sessions()), &profiles(|s| s), "middle", "low");
        result.unwrap();
        let hints = &asked.hints[0];
        assert_eq!(hints.session_ticket, is_tls12.then(Vec::new));
        assert_eq!((hints.extended_master_secret, hints.secure_renegotiation), (is_tls12, is_tls12));
        assert!(hints.cache.is_none());
        // The compatibility mode of TLS 1.3 has a session ID.
        assert_eq!(hints.session_id.is_empty(), is_tls12);
        assert_eq!((hints.retried_suite, hints.retried_group), (None, None));
        let tickets = Tickets::stateful(Arc::new(dunlin_store::MemoryServerSessions::new(8)));
        let profiles = profiles(|s| s.with_tickets(tickets.clone()));
        let client = keeping(is_tls12, &with_sessions());
        connect(&client, &profiles, "low", "low").1.unwrap();
        let hints = connect(&client, &profiles, "low", "low").2.hints.remove(0);
        assert_eq!(
            (hints.session_id.len(), hints.psk_identities.len()),
            if is_tls12 { (16, 0) } else { (32, 1) }
        );
    }
}

/// The certificates of a peer do not outlive its handshake, but their names do if the profile wants them.
#[test]
fn subject_and_issuer_survive_resumption_and_the_cache() {
    let certificate = &pki().client.chain[0];
    for is_tls12 in [false, true] {
        let mut servers: Vec<Box<dyn Fn(ServerConfig) -> ServerConfig>> = Vec::new();
        for tickets in ends::tickets() {
            servers.push(Box::new(move |server| server.with_tickets(tickets.clone())));
        }
        let store = Arc::new(MemoryServerCache::new(8));
        servers.push(Box::new(move |server| {
            server.with_handshake_cache(CacheMode::Compact, store.clone(), DEFAULT_MAX_AGE).unwrap()
        }));
        for (has_cache, server) in servers.iter().enumerate().map(|(i, server)| (i == 2, server)) {
            let plain = Arc::new(server(required(profile("server", 0))));
            let detailed = Arc::new(server(required(profile("server", 0).x509_details(true))));
            let sessions = with_sessions();
            let cache = Arc::new(MemoryClientCache::new(8));
            let client = client(is_tls12, |client| {
                if has_cache {
                    client.with_handshake_cache(CacheMode::Compact, cache, DEFAULT_MAX_AGE)
                } else {
                    client.with_sessions(sessions)
                }
            });
            // Whether the server takes the client from a session or the cache. An entry without details does
            // not count.
            for (server, is_known) in [(&plain, false), (&plain, true), (&detailed, false), (&detailed, true)]
            {
                let mut pair = Pair::new(&client, server);
                pair.connect().unwrap();
                let negotiated = pair.server.negotiated().unwrap();
                assert_eq!(negotiated.is_resumed() || negotiated.is_peer_cached(), is_known);
                let Some(PeerIdentity::X509(id)) = &negotiated.peer else { panic!("no certificate") };
                let Some(details) = &id.details else {
                    assert!(Arc::ptr_eq(server, &plain));
                    continue;
                };
                assert!(Arc::ptr_eq(server, &detailed));
                // Subject and issuer stand in the certificate as they are here.
                for name in [details.subject(), details.issuer()] {
                    assert!(name.len() > 2 && certificate.windows(name.len()).any(|window| window == name));
                }
                assert_ne!(details.subject(), details.issuer());
                assert_eq!(details.emails().count(), 0);
                let issuer = EndEntityCert::try_from(&pki().client.chain[1]).unwrap();
                let digest = awslc().sha256.hash(&[&issuer.subject_public_key_info()]);
                assert_eq!(details.issuer_key().map(|key| &key[..]), Some(digest.as_ref()));
            }
        }
    }
}

/// Over datagrams, the default has demanded a cookie by a HelloRetryRequest before anyone chooses a profile.
/// The suite and the group of that request bind the choice.
#[test]
fn a_profile_chosen_after_a_cookie_keeps_the_suite_and_group_of_the_request() {
    const AES: CipherSuite = CipherSuite::TLS_AES_128_GCM_SHA256;
    const CHACHA: CipherSuite = CipherSuite::TLS_CHACHA20_POLY1305_SHA256;
    let suites = |ids: &[CipherSuite]| {
        let suite = |id: &CipherSuite| awslc().suite(*id).unwrap();
        ids.iter().map(suite).collect::<Vec<_>>()
    };
    let profile = |name: &str, ids: &[CipherSuite], group| {
        required(profile(name, 2).cipher_suites(suites(ids)).groups(vec![group]))
    };
    // The client's first share is of X25519, so the request names P-256.
    let p256 = dunlin_awslc::SECP256R1;
    let x25519 = dunlin_awslc::X25519;
    let others = vec![
        profile("fits", &[CHACHA, AES], p256),
        profile("other suite", &[CHACHA], p256),
        profile("other group", &[AES], x25519),
    ];
    let profiles = ServerProfiles::new(profile("default", &[AES], p256), others, 2).unwrap();
    for (name, expected) in [
        ("default", Ok(())),
        ("fits", Ok(())),
        ("other suite", Err(PeerIncompatible::CipherSuite.into())),
        ("other group", Err(PeerIncompatible::Group.into())),
    ] {
        let (server, result, hints) = connect_by_datagrams(&profiles, name);
        assert_eq!(result, expected, "{name}");
        assert_eq!(hints.retried_suite, Some(AES));
        assert_eq!(hints.retried_group, Some(NamedGroup::SECP256R1));
        assert_eq!(*hints.shares, [NamedGroup::SECP256R1]);
        if expected.is_ok() {
            let negotiated = server.negotiated().unwrap();
            assert_eq!((&*negotiated.profile, negotiated.cipher_suite), (name, Some(AES)));
        }
    }
}

/// A request for a cookie alone binds the choice to the client's share. Otherwise the server would blame the
/// client (RFC 8446 §4.1.2).
#[test]
fn a_profile_chosen_after_a_cookie_has_a_group_of_the_clients_share() {
    let p256 = dunlin_awslc::SECP256R1;
    let x25519 = dunlin_awslc::X25519;
    let profile = |name: &str, groups| required(profile(name, 2).groups(groups));
    let others = vec![profile("fits", vec![p256, x25519]), profile("other group", vec![p256])];
    let profiles = ServerProfiles::new(profile("default", vec![x25519]), others, 2).unwrap();
    for (name, expected) in
        [("default", Ok(())), ("fits", Ok(())), ("other group", Err(PeerIncompatible::Group.into()))]
    {
        let (server, result, hints) = connect_by_datagrams(&profiles, name);
        assert_eq!(result, expected, "{name}");
        assert!(hints.retried_suite.is_some() && hints.retried_group.is_none());
        assert_eq!(*hints.shares, [NamedGroup::X25519]);
        if expected.is_ok() {
            assert_eq!(server.negotiated().unwrap().profile, name);
        }
    }
}

/// Connects over datagrams to the profile of this name. Returns also the hints of the ClientHello.
fn connect_by_datagrams(
    profiles: &ServerProfiles,
    name: &str,
) -> (DtlsConnection, Result<(), Error>, ClientHelloInfo) {
    let [ours, theirs] = [1, 2].map(|host| std::net::SocketAddr::from(([192, 0, 2, host], 5684)));
    let mut client = DtlsConnection::client(&client(false, |c| c), localhost(), theirs, NOW).unwrap();
    let mut server = DtlsConnection::server(profiles.server(), ours, NOW);
    let mut result = Ok(());
    let mut hints = ClientHelloInfo::default();
    loop {
        let mut is_quiet = true;
        while let Some(sent) = client.poll_transmit(NOW) {
            result = result.and(server.receive(NOW, ours, &sent.datagram));
            is_quiet = false;
        }
        while let Some(event) = server.poll_event() {
            let Event::Question(id, question) = event else { continue };
            if let Question::ChooseProfile(of_hello) = question {
                hints = of_hello;
            }
            let answer = Answer::Profile(profiles.get(name).cloned());
            result = result.and(server.answer(NOW, id, answer));
            is_quiet = false;
        }
        while let Some(sent) = server.poll_transmit(NOW) {
            let _ = client.receive(NOW, theirs, &sent.datagram);
            is_quiet = false;
        }
        if is_quiet || result.is_err() {
            return (server, result, hints);
        }
    }
}
