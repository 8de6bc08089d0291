//! Facts about a client in a full, a resumed, a cached and a thawed connection: each is as in the full
//! handshake, or unknown.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use dunlin::auth::{Psk, PskTable, RawKeyTrust, Verifiers, X509Trust};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::resume::Tickets;
use dunlin::{
    ClientAuth, ClientConfig, Credential, DtlsConnection, HandshakeKind, Now, Profile, PskSource,
    ServerAddress, ServerConfig, SsiMessages, Trust,
};
use dunlin_gateway::policy::{Attribute, Client, Finished, Hints, Policy, Turn, Verdict};
use dunlin_identity::credential::{CREDENTIALS_V2, Contexts, Issuer};
use dunlin_identity::handshake::{CredentialVerifier, Holding, IdentifierVerifier};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::{KEY, Method};
use dunlin_identity::{Relationship, TrustList};
use dunlin_pki::{AltName, KeyPair, KeyType, LeafSpec, Subject, Tree, TreeSpec};
use dunlin_store::{MemoryClientCache, MemoryClientSessions, MemoryServerCache, RotatingTickets};
use serde_json::json;

const CLIENT: &str = "192.0.2.1:1000";
const SERVER: &str = "192.0.2.2:5684";
const IDENTITY: &[u8] = b"meter-7";

/// How a client authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By a certificate. The server keeps subject, issuer, the issuer's key and e-mail addresses if the flag
    /// is set.
    X509(bool),
    /// As the former, with a DNS name beside the common name.
    X509WithDns(bool),
    RawKey,
    /// By the key of a device.
    Psk,
    Credential,
    Did,
}

impl Kind {
    fn keeps_details(self) -> bool {
        matches!(self, Self::X509(true) | Self::X509WithDns(true))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Full,
    Resumed,
    Cached,
    Thawed,
}

/// A server and a client that authenticates in one way.
struct World {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    now: Now,
}

fn key() -> Psk {
    Psk::new(IDENTITY, &[7; 32]).unwrap().with_name("meter in hall 3")
}

/// The credential of a client with this key, and the trust of its server.
fn identity(kind: Kind, provider: &Arc<CryptoProvider>) -> (Option<Credential>, Verifiers) {
    let pair = KeyPair::generate(KeyType::P256).unwrap();
    let signer: Arc<dyn SigningKey> = pair.signing_key(provider).unwrap();
    let did = KEY.create(&PublicKey::from_spki(signer.public_key()).unwrap()).unwrap();
    match kind {
        Kind::X509(_) | Kind::X509WithDns(_) => {
            let spec = TreeSpec {
                client: Subject::common_name("device-1").unwrap(),
                ..TreeSpec::new(KeyType::P256, 10).unwrap()
            };
            let tree = Tree::generate(&spec).unwrap();
            let trust = X509Trust::anchors(vec![tree.root.certificate().clone()]).unwrap();
            let identity = match kind {
                Kind::X509WithDns(_) => {
                    let client = LeafSpec::client(spec.client, spec.validity);
                    let names = vec!["a.example.com".parse::<AltName>().unwrap()];
                    tree.intermediate.issue(&LeafSpec { names, ..client }, pair).unwrap()
                }
                _ => tree.client,
            };
            let own = Credential::x509(identity.chain, identity.key.signing_key(provider).unwrap());
            (Some(own), Trust { x509: Some(trust), raw_key: None }.into())
        }
        Kind::RawKey => {
            let trust = Trust { x509: None, raw_key: Some(RawKeyTrust::DangerAnyone) };
            (Some(Credential::raw_key(signer)), trust.into())
        }
        Kind::Psk => (None, Verifiers::default()),
        Kind::Credential => {
            let document = KEY.resolve(&did).unwrap();
            let method = document.keys(Relationship::AssertionMethod).next().unwrap().0;
            let issuer = Issuer { provider, signer: &*signer, method };
            let claims = json!({ "id": did.as_str(), "role": "sensor", "halls": ["north", "south"] });
            let credential = json!({
                "@context": [CREDENTIALS_V2],
                "type": ["VerifiableCredential"],
                "issuer": did.as_str(),
                "validUntil": "2100-01-01T00:00:00Z",
                "credentialSubject": claims,
            });
            let credential = issuer.issue_jwt(&credential, &Contexts::default()).unwrap();
            let holding =
                Holding::for_handshakes(signer.clone(), credential.into_bytes(), &[], &Contexts::default());
            let verifier = CredentialVerifier::new(provider.clone(), [document]);
            let own = holding.unwrap().to_tls(provider).unwrap();
            (Some(own), Verifiers::default().with(Arc::new(verifier)))
        }
        Kind::Did => {
            let holding = Holding::of_key(signer, &[]).unwrap();
            let verifier = IdentifierVerifier::new(provider.clone(), TrustList::new([did]));
            let own = holding.to_tls(provider).unwrap();
            (Some(own), Verifiers::default().with(Arc::new(verifier)))
        }
    }
}

impl World {
    fn new(kind: Kind, connection: Connection) -> Self {
        let provider = Arc::new(dunlin_awslc::provider());
        let (own, trust) = identity(kind, &provider);
        let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 10).unwrap()).unwrap();
        let root = X509Trust::anchors(vec![tree.root.certificate().clone()]).unwrap();
        let of_server =
            Credential::x509(tree.server.chain.clone(), tree.server.key.signing_key(&provider).unwrap());
        let is_psk = kind == Kind::Psk;
        let ssi = if kind == Kind::Did { SsiMessages::Beside } else { SsiMessages::Off };
        let profile = Profile::builder(provider.clone()).trust(trust).ssi_messages(ssi);
        let profile = profile.x509_details(kind.keeps_details());
        let server = if is_psk {
            let keys: PskTable = [key()].into_iter().collect();
            ServerConfig::psk_only(profile.build().unwrap(), PskSource::Here(Arc::new(keys))).unwrap()
        } else {
            let profile = profile.credentials(vec![of_server]).build().unwrap();
            ServerConfig::new(profile).unwrap().with_client_auth(ClientAuth::Required).unwrap()
        };
        let tickets = Tickets::stateless(Arc::new(RotatingTickets::new(provider.clone()).unwrap()));
        let profile = Profile::builder(provider).ssi_messages(ssi).credentials(own.into_iter().collect());
        let trust = Trust { x509: Some(root), raw_key: None };
        let client = ClientConfig::new(profile.trust(trust).build().unwrap());
        let client = if is_psk { client.with_psks(vec![Arc::new(key())]) } else { client };
        let (client, server) = match connection {
            Connection::Resumed => (
                client.with_sessions(Arc::new(MemoryClientSessions::default())),
                server.with_tickets(tickets),
            ),
            Connection::Cached => {
                let mode = CacheMode::Compact;
                let store = Arc::new(MemoryServerCache::new(8));
                let cache = Arc::new(MemoryClientCache::new(8));
                let server = server.with_handshake_cache(mode, store, DEFAULT_MAX_AGE).unwrap();
                (client.with_handshake_cache(mode, cache, DEFAULT_MAX_AGE), server)
            }
            Connection::Full | Connection::Thawed => (client, server),
        };
        let unix = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let now = Now::from_unix_ms(unix.as_millis().try_into().unwrap());
        Self { server: Arc::new(server), client: Arc::new(client), now }
    }

    /// The server's side of a connection.
    fn connect(&self) -> DtlsConnection {
        let (now, to, from): (_, SocketAddr, SocketAddr) =
            (self.now, SERVER.parse().unwrap(), CLIENT.parse().unwrap());
        let name = ServerAddress::parse("localhost", 5684).unwrap();
        let mut client = DtlsConnection::client(&self.client, name, to, now).unwrap();
        let mut server = DtlsConnection::server(&self.server, from, now);
        loop {
            let mut is_idle = true;
            while let Some(transmit) = client.poll_transmit(now) {
                server.receive(now, from, &transmit.datagram).unwrap();
                is_idle = false;
            }
            while let Some(transmit) = server.poll_transmit(now) {
                client.receive(now, to, &transmit.datagram).unwrap();
                is_idle = false;
            }
            while client.poll_event().is_some() || server.poll_event().is_some() {}
            if is_idle {
                return server;
            }
        }
    }

    /// The client as the server knows it in a connection of this kind, and in a full handshake.
    fn clients(self, connection: Connection) -> (Client, Client) {
        let known = |server: &DtlsConnection| {
            let negotiated = server.negotiated().expect("a complete handshake");
            Client::proven(negotiated.peer.as_ref().expect("an identity"), negotiated.peer_validity)
        };
        let mut first = self.connect();
        assert_eq!(first.negotiated().unwrap().kind, HandshakeKind::Full);
        let full = known(&first);
        let again = match connection {
            Connection::Full => self.connect(),
            Connection::Resumed | Connection::Cached => {
                let again = self.connect();
                let negotiated = again.negotiated().unwrap();
                let is_cached = negotiated.is_peer_cached();
                assert_eq!(
                    (negotiated.is_resumed(), is_cached),
                    (connection == Connection::Resumed, connection == Connection::Cached)
                );
                again
            }
            Connection::Thawed => {
                let frozen = first.freeze(self.now).unwrap();
                DtlsConnection::thaw_server(&self.server, &frozen, self.now).unwrap()
            }
        };
        (known(&again), full)
    }
}

/// The attributes that a connection of this kind does not know, or not all of their values.
fn lost(kind: Kind, connection: Connection) -> &'static [&'static str] {
    match (kind, connection) {
        // Only the details tell on which path the server has verified the certificate.
        (Kind::X509(false) | Kind::X509WithDns(false), Connection::Full) => &["issuer_key"],
        (_, Connection::Full) => &[],
        (Kind::X509(true) | Kind::X509WithDns(true), _) => &["key"],
        (Kind::X509(false) | Kind::X509WithDns(false), _) => {
            &["email", "issuer", "issuer_key", "key", "name", "subject"]
        }
        (Kind::RawKey | Kind::Psk | Kind::Credential | Kind::Did, _) => &[],
    }
}

const ATTRIBUTES: &[&str] = &[
    "kind",
    "name",
    "email",
    "subject",
    "issuer",
    "issuer_key",
    "dns",
    "uri",
    "fingerprint",
    "key",
    "psk",
    "device",
    "id",
    "claim.role",
    "claim.halls",
    "claim.other",
];

const POLICY: &str =
    "[profile.strong]\nrank = 100\nclient = \"any\"\n[profile.low]\nrank = 20\nclient = \"any\"\n";

/// A policy with one rule, or one entry of the client table, about this attribute.
fn policy_about(is_entry: bool, key: &str, value: &str, action: &str) -> Policy {
    let text = if is_entry {
        format!("{POLICY}[[client]]\n{key} = {value:?}\n{action}\n")
    } else {
        format!("{POLICY}[[rule]]\nwhen.{key} = {value:?}\n{action}\n")
    };
    crate::policy(&text)
}

/// Whether the policy serves the client under this profile.
fn serves(policy: &Policy, client: &Client, profile: &str) -> bool {
    let hints = Hints::default();
    let used = policy.profile(profile).unwrap();
    let finished =
        Finished { used, client: Some(client), hints: &hints, is_resumed: true, turn: Turn::Impossible };
    policy.after(&finished, 0).verdict == Verdict::Serve
}

/// A rule that refuses the client always does, and one that lowers it does so only if this side knows that it
/// holds.
fn check_rules(client: &Client, full: &Client, attribute: &Attribute, at: &str) {
    let key = attribute.key();
    let is_unknown = client.is_unknown(attribute);
    let own: Vec<_> = full.values(attribute).collect();
    let known: Vec<_> = client.values(attribute).collect();
    for value in &own {
        for is_entry in [false, true] {
            let refusing = policy_about(is_entry, &key, value, "refuse = true");
            assert!(!serves(&refusing, client, "strong"), "{at}: served in spite of {key} = {value}");
            let lowering = policy_about(is_entry, &key, value, "profile = \"low\"");
            let is_known = known.contains(value);
            assert_eq!(serves(&lowering, client, "low"), is_known, "{at}: {key} = {value}");
        }
    }
    let foreign = match &*key {
        "kind" => "other".to_owned(),
        "fingerprint" | "key" | "issuer_key" => "0".repeat(64),
        _ => "some other value".to_owned(),
    };
    // Of another value, an unknown attribute may be one that is refused; and it never lowers.
    let other = policy_about(false, &key, &foreign, "refuse = true");
    assert_eq!(serves(&other, client, "strong"), !is_unknown, "{at}: {key}");
    assert!(!serves(&policy_about(false, &key, &foreign, "profile = \"low\""), client, "low"));
}

#[test]
fn a_connection_knows_what_the_full_handshake_knew_or_that_it_does_not() {
    for kind in [
        Kind::X509(true),
        Kind::X509(false),
        Kind::X509WithDns(true),
        Kind::X509WithDns(false),
        Kind::RawKey,
        Kind::Psk,
        Kind::Credential,
        Kind::Did,
    ] {
        for connection in [Connection::Full, Connection::Resumed, Connection::Cached, Connection::Thawed] {
            let has_entries =
                matches!(kind, Kind::X509(_) | Kind::X509WithDns(_) | Kind::RawKey | Kind::Credential);
            if connection == Connection::Cached && !has_entries {
                continue;
            }
            let at = format!("{kind:?}, {connection:?}");
            let (client, full) = World::new(kind, connection).clients(connection);
            assert_eq!(
                (client.not_after_s(), client.has_unknown_end()),
                (full.not_after_s(), full.has_unknown_end()),
                "{at}"
            );
            let mut unknown = BTreeSet::new();
            for key in ATTRIBUTES {
                let attribute = Attribute::from_key(key).unwrap();
                let values =
                    |client: &Client| client.values(&attribute).map(str::to_owned).collect::<BTreeSet<_>>();
                let own = values(&full);
                let known = values(&client);
                assert_eq!(
                    full.is_unknown(&attribute),
                    lost(kind, Connection::Full).contains(key),
                    "{at}: {key}"
                );
                if client.is_unknown(&attribute) {
                    assert!(unknown.insert(*key) && known.is_subset(&own), "{at}: {key}");
                } else {
                    assert_eq!(known, own, "{at}: {key}");
                }
                check_rules(&client, &full, &attribute, &at);
                // `explain` has no session, and says the same.
                if connection == Connection::Resumed {
                    let told = full.without_its_certificate(kind.keeps_details());
                    assert_eq!(told.doubtful(), client.doubtful(), "{at}");
                    assert_eq!(told.is_unknown(&attribute), client.is_unknown(&attribute), "{at}: {key}");
                    assert!(values(&told).is_subset(&known), "{at}: {key}");
                }
            }
            assert_eq!(unknown.into_iter().collect::<Vec<_>>(), lost(kind, connection), "{at}");
        }
    }
}

/// The list above names each attribute that a condition can ask, except for claims, whose names are open.
#[test]
fn the_table_has_every_attribute() {
    let page = include_str!("../../../../docs/policy.md");
    let (_, table) = page.split_once("Conditions on the client's identity:").unwrap();
    let (table, _) = table.split_once("In these texts").unwrap();
    let keys: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("| `")).collect();
    let names = keys.iter().flat_map(|line| line.split('|').next().unwrap().split(", "));
    let names: BTreeSet<_> = names.map(|name| name.trim().trim_matches('`')).collect();
    let conditions = ["claim.NAME", "valid_at_least", "valid_at_most"];
    let named = names.iter().copied().filter(|name| !conditions.contains(name));
    let listed = ATTRIBUTES.iter().copied().filter(|name| !name.starts_with("claim."));
    assert_eq!(named.collect::<BTreeSet<_>>(), listed.collect());
}

/// A backend receives the DNS name, and no name constraint was compared with the common name beside it.
#[test]
fn a_common_name_beside_a_dns_name_grants_and_lowers_nothing() {
    for connection in [Connection::Full, Connection::Resumed, Connection::Cached, Connection::Thawed] {
        let kind = Kind::X509WithDns(true);
        let (client, _) = World::new(kind, connection).clients(connection);
        let name = Attribute::Name;
        let dns = Attribute::Dns;
        assert_eq!(client.values(&dns).collect::<Vec<_>>(), ["a.example.com"], "{connection:?}");
        assert_eq!((client.values(&name).count(), client.is_unknown(&name)), (0, false), "{connection:?}");
        assert_eq!(client.doubtful(), [(name, "device-1".to_owned())], "{connection:?}");
        for is_entry in [false, true] {
            let rule = |value, action| policy_about(is_entry, "name", value, action);
            assert!(!serves(&rule("device-1", "profile = \"low\""), &client, "low"), "{connection:?}");
            // It was refused while the common name counted. Other clients with DNS names are served.
            assert!(!serves(&rule("device-1", "refuse = true"), &client, "strong"), "{connection:?}");
            assert!(serves(&rule("device-2", "refuse = true"), &client, "strong"), "{connection:?}");
        }
    }
}
