//! Policies that answer the engine's questions.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

use dunlin::auth::X509Trust;
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE, ServerCache};
use dunlin::resume::Tickets;
use dunlin::{
    Answer, ClientConfig, ClientHelloInfo, Credential, Error, Event, Now, PeerIdentity, Profile,
    ProfileBuilder, Question, ServerAddress, ServerConfig, TlsConnection, Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_gateway::policy::{
    AddressTable, Attribute, Client, Decision, Hints, PolicyServer, Verdict, client_from_pem,
};
use dunlin_pki::{KeyType, Tree, TreeSpec};
use dunlin_store::{MemoryClientCache, MemoryClientSessions, MemoryServerCache, RotatingTickets};

use crate::policy;

const POLICY: &str = r#"
floor = 10
[profile.strong]
rank = 100
client = "request"
[profile.low]
rank = 20
client = "certificate"
address_lifetime = "1h"
[[rule]]
name = "devices"
when.issuer = "CN=Dunlin intermediate"
when.name = "device-*"
profile = "low"
"#;

struct World {
    server: PolicyServer,
    client: Arc<ClientConfig>,
    addresses: AddressTable,
    now: Now,
    /// The profile of the last connection.
    in_use: RefCell<String>,
}

/// The decisions of a connection, and the profile that it ended with; or the server's error.
type Outcome = (Vec<Decision>, Result<Option<PeerIdentity>, Error>);

impl World {
    /// A client of TLS 1.3.
    fn new(text: &str) -> Self {
        Self::with(text, |profile| profile)
    }

    /// A client of TLS 1.2 that renegotiates.
    fn of_tls12(text: &str) -> Self {
        let text = text.replace("client = ", "versions = [\"1.2\", \"1.3\"]\nclient = ");
        Self::with(&text, |profile| {
            let suites = TLS12_CIPHER_SUITES.to_vec();
            profile.cipher_suites(vec![]).tls12_cipher_suites(suites).renegotiation(true)
        })
    }

    fn with(text: &str, of_client: impl FnOnce(ProfileBuilder) -> ProfileBuilder) -> Self {
        let provider = Arc::new(dunlin_awslc::provider());
        let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 10).unwrap()).unwrap();
        let trust = || Trust {
            x509: Some(X509Trust::anchors(vec![tree.root.certificate().clone()]).unwrap()),
            raw_key: None,
        };
        let credential = |identity: &dunlin_pki::Identity| {
            Credential::x509(identity.chain.clone(), identity.key.signing_key(&provider).unwrap())
        };
        let tickets = Tickets::stateless(Arc::new(RotatingTickets::new(Arc::clone(&provider)).unwrap()));
        let cache: Arc<dyn ServerCache> = Arc::new(MemoryServerCache::new(8));
        let text = text.replace("ISSUER_KEY", &issuer_key(&tree));
        let clock = || dunlin_tokio::now().unix_s();
        let server = PolicyServer::new(Arc::new(policy(&text)), clock, |profile| {
            let built = profile.build(&provider, vec![credential(&tree.server)], trust())?;
            let config = ServerConfig::new(built)?.with_client_auth(profile.client_auth())?;
            let config = config.with_tickets(tickets.clone());
            config.with_handshake_cache(CacheMode::Compact, Arc::clone(&cache), DEFAULT_MAX_AGE)
        })
        .unwrap();
        let client = Profile::builder(Arc::clone(&provider)).credentials(vec![credential(&tree.client)]);
        let client = ClientConfig::new(of_client(client.trust(trust())).build().unwrap());
        let client = client.with_sessions(Arc::new(MemoryClientSessions::default()));
        let unix = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let now = Now::from_unix_ms(unix.as_millis().try_into().unwrap());
        Self {
            server,
            client: Arc::new(client),
            addresses: AddressTable::new(10),
            now,
            in_use: RefCell::default(),
        }
    }

    /// A connection of the client from this address.
    fn connect(&self, address: &str) -> Outcome {
        let (now, address): (_, IpAddr) = (self.now, address.parse().unwrap());
        let name = ServerAddress::parse("localhost", 443).unwrap();
        let mut client = TlsConnection::client(&self.client, name, now).unwrap();
        let mut server = TlsConnection::server(self.server.profiles().server(), now);
        let mut decisions = Vec::new();
        let mut hints = Hints::default();
        for _ in 0..10 {
            let flight = client.transmit().to_vec();
            client.transmitted(flight.len());
            let mut taken = 0;
            loop {
                match server.receive(now, &flight[taken..]) {
                    Ok(n) => taken += n,
                    Err(error) => return (decisions, Err(error)),
                }
                let mut is_asked = false;
                while let Some(event) = server.poll_event() {
                    let Event::Question(id, question) = event else { continue };
                    is_asked = true;
                    let config = match question {
                        Question::ChooseProfile(info) => {
                            let (answered, kept) = self.choose(&info, address);
                            hints = kept;
                            decisions.push(answered.0);
                            answered.1
                        }
                        Question::ProfileOf(client) => {
                            let used = self.server.policy().profile(&client.profile).unwrap();
                            let answered = self.server.profile_of(&client, used, &hints, now);
                            decisions.push(answered.decision);
                            answered.config
                        }
                        other => panic!("{other:?}"),
                    };
                    if let Err(error) = server.answer(now, id, Answer::Profile(config)) {
                        return (decisions, Err(error));
                    }
                }
                if taken == flight.len() && !is_asked {
                    break;
                }
            }
            let flight = server.transmit().to_vec();
            server.transmitted(flight.len());
            if let Err(error) = client.receive(now, &flight) {
                return (decisions, Err(error));
            }
            while client.poll_event().is_some() {}
        }
        self.in_use
            .replace(server.negotiated().map(|negotiated| negotiated.profile.clone()).unwrap_or_default());
        let peer = server.negotiated().and_then(|negotiated| negotiated.peer.clone());
        (decisions, Ok(peer))
    }

    fn choose(
        &self,
        info: &ClientHelloInfo,
        address: IpAddr,
    ) -> ((Decision, Option<Arc<ServerConfig>>), Hints) {
        let (answered, hints) = self.server.choose(info, address, None, Some(&self.addresses), self.now);
        ((answered.decision, answered.config), hints)
    }
}

/// As `dunlin gateway explain` finds it in the client's chain.
fn issuer_key(tree: &Tree) -> String {
    let pem = dunlin_pki::certificates_to_pem(&tree.client.chain).unwrap();
    let client = client_from_pem(pem.as_bytes()).unwrap();
    client.values(&Attribute::IssuerKey).next().expect("the issuer's certificate in the chain").to_owned()
}

fn profiles(decisions: &[Decision]) -> Vec<&str> {
    decisions.iter().map(|decision| decision.profile.name.as_str()).collect()
}

#[test]
fn a_stranger_gets_its_profile_from_the_next_connection_on() {
    let world = World::new(POLICY);
    let (first, peer) = world.connect("10.0.0.1");
    assert_eq!(profiles(&first), ["strong", "strong"]);
    assert_eq!(first[1].next.as_ref().unwrap().name, "low");
    let low = world.server.policy().profile("low").unwrap();
    let peer = peer.unwrap().expect("a client with an identity");
    let client = Client::of(&peer);
    assert!(world.addresses.remember("10.0.0.1".parse().unwrap(), &client, low, world.now.unix_ms / 1000));

    // The ticket of the first connection names the client, with its issuer, which a rule looks at.
    let (by_ticket, resumed) = world.connect("10.0.0.9");
    assert_eq!(profiles(&by_ticket)[0], "low", "{by_ticket:?}");
    assert!(by_ticket[0].to_string().contains("claimed by session"), "{}", by_ticket[0]);
    assert!(resumed.is_ok(), "{resumed:?}");
    assert_eq!(world.in_use.take(), "low");

    // The address alone gives the hint, to a client without its session.
    let stranger = World { client: Arc::new(without_sessions(&world)), ..world };
    let (second, peer) = stranger.connect("10.0.0.1");
    assert_eq!(profiles(&second), ["low", "low"]);
    assert!(
        second[0].to_string().contains("claimed by remembered address; downgrade from strong (rank 100)")
    );
    assert!(peer.is_ok(), "{peer:?}");
    let (elsewhere, _) = stranger.connect("10.0.0.2");
    assert_eq!(elsewhere[0].profile.name, "strong");
}

fn without_sessions(world: &World) -> ClientConfig {
    ClientConfig::new(world.client.profile())
}

/// Another authority can have the name of an issuer, but not its key. Sessions and entries of the cache keep
/// the key.
#[test]
fn a_rule_compares_the_key_of_the_issuer() {
    for (key, profile) in [("ISSUER_KEY", "low"), (&"0".repeat(64), "strong")] {
        let text =
            POLICY.replace("when.issuer = \"CN=Dunlin intermediate\"", &format!("when.issuer_key = {key:?}"));
        for has_sessions in [true, false] {
            let world = World::new(&text);
            let client = without_sessions(&world);
            let cache = Arc::new(MemoryClientCache::new(8));
            let client = client.with_handshake_cache(CacheMode::Compact, cache, DEFAULT_MAX_AGE);
            let world = if has_sessions { world } else { World { client: Arc::new(client), ..world } };
            for is_first in [true, false, false] {
                let (decisions, peer) = world.connect("10.0.0.1");
                let client = Client::of(&peer.unwrap().expect("a client with an identity"));
                assert!(!client.is_unknown(&Attribute::IssuerKey));
                let last = decisions.last().unwrap();
                let wanted = last.next.as_ref().map_or(&last.profile.name, |next| &next.name);
                assert_eq!(wanted, profile, "{is_first} {last:?}");
            }
        }
    }
}

/// Neither sessions nor entries of the cache keep the public key of a certificate.
#[test]
fn a_rule_that_refuses_another_key_refuses_no_client_that_comes_back() {
    let other = "[[rule]]\nwhen.key = \"".to_owned() + &"0".repeat(64) + "\"\nrefuse = true\n";
    let text = POLICY.replace("[[rule]]", &format!("{other}[[rule]]"));
    for has_sessions in [true, false] {
        let world = World::new(&text);
        let cache = Arc::new(MemoryClientCache::new(8));
        let client = without_sessions(&world);
        let client = client.with_handshake_cache(CacheMode::Compact, cache, DEFAULT_MAX_AGE);
        let world = if has_sessions { world } else { World { client: Arc::new(client), ..world } };
        for _ in 0..3 {
            let (decisions, peer) = world.connect("10.0.0.1");
            assert!(peer.is_ok(), "{peer:?} {decisions:?}");
            assert_eq!(decisions.last().unwrap().verdict, Verdict::Serve);
        }
    }
}

#[test]
fn refuses_a_client_whose_identity_demands_more_than_the_hint_said() {
    let world = World::new(&POLICY.replace("device-*", "other-*"));
    let low = world.server.policy().profile("low").unwrap();
    let mut other = Client::of_kind("x509");
    other.add(Attribute::Issuer, "CN=Dunlin intermediate".into());
    other.add(Attribute::Name, "other-1".into());
    world.addresses.remember("10.0.0.1".parse().unwrap(), &other, low, world.now.unix_ms / 1000);
    let (decisions, outcome) = world.connect("10.0.0.1");
    assert_eq!(decisions[0].profile.name, "low");
    let last = decisions.last().unwrap();
    assert_eq!((last.verdict, last.profile.name.as_str()), (Verdict::Refuse, "strong"));
    let error = outcome.unwrap_err();
    assert_eq!(error.alert(), Some(dunlin::wire::AlertDescription::ACCESS_DENIED), "{error}");
}

#[test]
fn renegotiates_once_to_the_profile_of_the_identity() {
    let world = World::of_tls12(&format!("renegotiation = \"down\"{POLICY}"));
    let (decisions, peer) = world.connect("10.0.0.1");
    let verdicts: Vec<_> = decisions.iter().map(|d| (d.verdict, d.profile.name.as_str())).collect();
    assert_eq!(verdicts, [(Verdict::Serve, "strong"), (Verdict::Renegotiate, "low")]);
    assert_eq!(world.in_use.take(), "low");
    assert!(matches!(peer, Ok(Some(PeerIdentity::X509(_)))), "{peer:?}");

    // The policy does not allow it.
    let world = World::of_tls12(POLICY);
    let (decisions, peer) = world.connect("10.0.0.1");
    assert_eq!(profiles(&decisions), ["strong", "strong"]);
    assert!(peer.is_ok(), "{peer:?}");
}
