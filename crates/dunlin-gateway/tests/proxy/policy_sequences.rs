//! Random sequences of connections and reloads through a gateway with a policy. No sequence of hints,
//! addresses, reloads and renegotiations gives a client a profile below the floor, a weaker profile than its
//! identity demands, or an identity that it did not prove.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use dunlin::ServerAddress;
use dunlin::wire::CipherSuite;
use dunlin_gateway::policy::{self, Attribute};
use dunlin_store::MemoryClientSessions;
use dunlin_tokio::TlsConnector;
use fastrand::Rng;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::place::{Client, Place, route, within};

/// How many sequences a run has. `DUNLIN_SEEDS` sets another number, for long runs.
fn runs() -> u64 {
    let set = std::env::var("DUNLIN_SEEDS").ok();
    set.map_or(4, |runs| runs.parse().expect("DUNLIN_SEEDS is a number"))
}

/// The profiles: a name, the suites of TLS 1.3 and TLS 1.2 that tell it from the others, and how clients
/// authenticate.
const PROFILES: [(&str, [&str; 2], &str); 4] = [
    ("strong", ["TLS_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"], "request"),
    (
        "middle",
        ["TLS_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"],
        "certificate",
    ),
    ("low", ["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"], "certificate"),
    ("meter", ["TLS_AES_128_CCM_SHA256", "TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256"], "psk"),
];

/// The number of clients: two with certificates, one with a pre-shared key, one without identity.
const CLIENTS: usize = 4;

/// A policy, and its demands.
#[derive(Clone)]
struct Plan {
    text: String,
    floor: i64,
    /// By profile.
    ranks: [i64; 4],
    /// By client.
    demanded: [i64; CLIENTS],
}

impl Plan {
    fn random(rng: &mut Rng, fingerprints: &[String; 2]) -> Self {
        let floor = *rng.choice(&[5, 20, 30]).unwrap();
        let ranks = [100, rng.i64(40..60), rng.i64(floor..40), rng.i64(floor..60)];
        let turns = rng.choice(["none", "up", "down", "both"]).unwrap();
        let mut text = format!("floor = {floor}\nrenegotiation = \"{turns}\"\n");
        for ((name, suites, client), rank) in PROFILES.iter().zip(ranks) {
            text += &format!(
                "[profile.{name}]\nrank = {rank}\nversions = [\"1.2\", \"1.3\"]\nclient = \"{client}\"\ncipher_suites = {suites:?}\n"
            );
            if *client == "certificate" && rng.bool() {
                text += "address_lifetime = \"1h\"\n";
            }
        }
        let mut demanded = [100; CLIENTS];
        for (client, fingerprint) in fingerprints.iter().enumerate() {
            let profile = rng.usize(0..3);
            if profile > 0 {
                let name = PROFILES[profile].0;
                text += &format!("[[rule]]\nwhen.fingerprint = \"{fingerprint}\"\nprofile = \"{name}\"\n");
                demanded[client] = ranks[profile];
            }
        }
        if rng.bool() {
            text += "[[rule]]\nwhen.psk = \"sensor-*\"\nprofile = \"meter\"\n";
            demanded[2] = ranks[3];
        }
        Self { text, floor, ranks, demanded }
    }

    /// The rank of the profile with this suite.
    fn rank_of(&self, suite: CipherSuite) -> i64 {
        let name = suite.name().unwrap();
        let at = PROFILES.iter().position(|(_, suites, _)| suites.contains(&name));
        self.ranks[at.expect("a suite of a profile")]
    }
}

/// A backend that answers each line with the identity in the PROXY header.
async fn identities() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    port
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut header = [0; 16];
    stream.read_exact(&mut header).await?;
    let mut fields = vec![0; usize::from(u16::from_be_bytes([header[14], header[15]]))];
    stream.read_exact(&mut fields).await?;
    // The fields follow the addresses.
    let mut rest = &fields[12..];
    let mut identity = String::from("anonymous");
    while let [typ, high, low, more @ ..] = rest {
        let (value, more) = more.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        if *typ == 0xe0 {
            identity = String::from_utf8(value.to_vec()).unwrap();
        }
        rest = more;
    }
    let (read, mut write) = stream.split();
    let mut lines = BufReader::new(read).lines();
    while lines.next_line().await?.is_some() {
        write.write_all(format!("{identity}\n").as_bytes()).await?;
    }
    Ok(())
}

/// Connects from this address. Returns the suite in the end, and the identity that the backend knows.
async fn connect(client: &Client, port: u16, from: &str) -> std::io::Result<(CipherSuite, String)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(format!("{from}:0").parse().unwrap())?;
    let tcp = socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    let name = ServerAddress::parse("localhost", port).unwrap();
    let mut tls = TlsConnector::new(Arc::new(client.config())).connect(tcp, name).await?;
    let mut identity = String::new();
    // A renegotiation is complete before the second answer.
    for _ in 0..2 {
        tls.write_all(b"who\n").await?;
        tls.flush().await?;
        identity.clear();
        BufReader::new(&mut tls).read_line(&mut identity).await?;
    }
    let suite = tls.negotiated().cipher_suite.unwrap();
    tls.shutdown().await?;
    tls.read_to_end(&mut vec![]).await?;
    Ok((suite, identity.trim_end().to_owned()))
}

#[tokio::test]
async fn no_sequence_turns_a_policy_against_a_user() {
    let place = Place::new();
    place.make_pki("other-");
    let roots = ["root.pem", "other-root.pem"].map(|root| std::fs::read_to_string(place.path(root)).unwrap());
    place.write("roots.pem", &roots.concat());
    let fingerprints = ["", "other-"].map(|prefix| {
        let pem = std::fs::read(place.path(&format!("{prefix}client.pem"))).unwrap();
        let client = policy::client_from_pem(&pem).unwrap();
        client.values(&Attribute::Fingerprint).next().unwrap().to_owned()
    });
    let text = "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\npolicy = \"policy.toml\"\n\
                [[listener.certificate]]\nchain = \"server.pem\"\nkey = \"server.key\"\n\
                [listener.clients]\nca = \"roots.pem\"\npsk = \"keys.psk\"\n"
        .to_owned()
        + &route(identities().await, "proxy_protocol = true");
    let mut profiles = BTreeSet::new();
    let mut failed = 0;
    for seed in 0..runs() {
        let rng = &mut Rng::with_seed(seed);
        let plain = place.client("root.pem");
        let certified = ["", "other-"].map(|prefix| place.with_certificate(plain.clone(), prefix));
        let [first, second] = certified;
        let mut clients = [first, second, Client { psk: true, ..plain.clone() }, plain];
        for client in &mut clients {
            client.sessions = Some(Arc::new(MemoryClientSessions::default()));
        }
        let mut plan = Plan::random(rng, &fingerprints);
        place.write("policy.toml", &plan.text);
        let (gateway, port) = place.start(&text).await;
        let mut trace = vec![];
        for _ in 0..40 {
            let client = rng.usize(..CLIENTS);
            clients[client].tls12 = rng.bool();
            let from = format!("127.0.0.{}", rng.u8(1..4));
            // Some connections run while the policy changes.
            let mut plans = vec![plan.clone()];
            let reload = async {
                if rng.u8(..4) == 0 {
                    plan = Plan::random(rng, &fingerprints);
                    place.write("policy.toml", &plan.text);
                    gateway.reload(place.config(&text)).await.unwrap();
                }
            };
            let (connected, ()) =
                within(async { tokio::join!(connect(&clients[client], port, &from), reload) }).await;
            plans.push(plan.clone());
            trace.push(format!("client {client} from {from}: {connected:?}"));
            let trace = || format!("seed {seed}: {trace:#?}\n{}", plan.text);
            let Ok((suite, identity)) = connected else {
                failed += 1;
                continue;
            };
            profiles.insert(suite);
            let is_right = |plan: &Plan| {
                let rank = plan.rank_of(suite);
                rank >= plan.floor && rank >= plan.demanded[client]
            };
            assert!(plans.iter().any(is_right), "{}", trace());
            let expected = ["x509:cn:device-1", "x509:cn:device-2", "psk:sensor-7", "anonymous"][client];
            assert_eq!(identity, expected, "{}", trace());
        }
    }
    // The sequences reach all profiles, in both versions, and clients that are refused.
    assert!(profiles.len() >= 7 && failed > 0, "{profiles:?}, {failed} failed");
}
