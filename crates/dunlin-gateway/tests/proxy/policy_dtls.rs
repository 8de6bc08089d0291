//! Policies over DTLS, where the demand for a cookie names a suite before the gateway may look a client up.

use std::sync::Arc;

use dunlin::HandshakeKind;
use dunlin::crypto::Tls13CipherSuite;
use dunlin::wire::{CipherSuite, ProtocolVersion};
use dunlin_awslc::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384};
use dunlin_pki::KeyType;

use crate::nodes::free;
use crate::place::{Client, Place, metric, route, within};
use crate::restart::{KEYS, echo_datagrams, start};
use crate::udp::connect;

const STRONG: CipherSuite = CipherSuite::TLS_AES_256_GCM_SHA384;
const OF_METERS: CipherSuite = CipherSuite::TLS_CHACHA20_POLY1305_SHA256;
const WEAK: CipherSuite = CipherSuite::TLS_AES_128_GCM_SHA256;

/// The default has suites with SHA-384 only, and the others with SHA-256 only.
const POLICY: &str = r#"
floor = 10
[profile.strong]
rank = 100
client = "request"
cipher_suites = "TLS_AES_256_GCM_SHA384"
[profile.low]
rank = 20
client = "certificate"
cipher_suites = "TLS_AES_128_GCM_SHA256"
address_lifetime = "1h"
[profile.meter]
rank = 20
client = "psk"
cipher_suites = "TLS_CHACHA20_POLY1305_SHA256"
"#;

const LISTENER: &str = r#"
[[listener]]
name = "test"
listen = "127.0.0.1:0"
transport = "dtls"
policy = "policy.toml"
[[listener.certificate]]
chain = "server.pem"
key = "server.key"
[listener.clients]
ca = "root.pem"
psk = "keys.toml"
"#;

fn place(rules: &str) -> Place {
    let place = Place::new();
    place.write("keys.toml", KEYS);
    place.write("policy.toml", &(POLICY.to_owned() + rules));
    place
}

/// Rules that give the client with the certificate the profile `low`.
const DEVICES: &str = "[[rule]]\nname = \"devices\"\nwhen.issuer = \"CN=*\"\nprofile = \"low\"\n";

/// The profile, the suite and the kind of a client's handshake.
type Met = (&'static str, CipherSuite, HandshakeKind);

async fn meets(client: &Client, port: u16, (profile, suite, kind): Met, at: &str) {
    let dtls = connect(client, port).await;
    let negotiated = dtls.negotiated();
    assert_eq!((negotiated.cipher_suite, negotiated.kind), (Some(suite), kind), "{at}");
    // The gateway answers only clients that it serves.
    dtls.send(profile.as_bytes()).await.unwrap();
    assert_eq!(within(dtls.recv()).await.unwrap().as_deref(), Some(profile.as_bytes()), "{at}");
    dtls.close();
    while let Ok(Some(_)) = within(dtls.recv()).await {}
}

fn served(gateway: &dunlin_gateway::Gateway, profile: &str) -> f64 {
    metric(
        gateway,
        &format!(
            "dunlin_gateway_policy_decisions_total{{stage=\"finished\",verdict=\"serve\",profile=\"{profile}\"}}"
        ),
    )
}

#[tokio::test]
async fn a_device_with_a_key_for_sha256_gets_its_profile_beside_a_default_with_sha384() {
    let by_pattern = "[[rule]]\nname = \"meters\"\nwhen.psk = \"sensor-*\"\nprofile = \"meter\"\n";
    let by_device = by_pattern.replace("psk = \"sensor-*\"", "device = \"meter in hall *\"");
    let in_table = "[[client]]\ndevice = \"meter in hall 3\"\nprofile = \"meter\"\n";
    // A ticket comes before the key. The suite of another profile has the same hash.
    for rules in [by_pattern, &by_device, in_table] {
        for default in ["request", "certificate"] {
            let place = place(rules);
            place.write("policy.toml", &(POLICY.replace("\"request\"", &format!("\"{default}\"")) + rules));
            let (gateway, port) =
                place.start(&(LISTENER.to_owned() + &route(echo_datagrams().await, ""))).await;
            let client = Client { psk: true, sessions: Some(Arc::default()), ..place.client("root.pem") };
            meets(&client, port, ("meter", OF_METERS, HandshakeKind::Full), rules).await;
            meets(&client, port, ("meter", OF_METERS, HandshakeKind::Resumed), rules).await;
            assert_eq!(served(&gateway, "meter"), 2.0, "{rules}");
            // A client with a certificate gets the default.
            let other = place.with_certificate(place.client("root.pem"), "");
            meets(&other, port, ("strong", STRONG, HandshakeKind::Full), rules).await;
        }
    }
}

#[tokio::test]
async fn a_client_gets_the_profile_that_its_address_and_then_its_session_name() {
    let place = place(DEVICES);
    let [listen] = free();
    let text = LISTENER.replace("127.0.0.1:0", &listen.to_string()) + &route(echo_datagrams().await, "");
    let gateway = start(&place, &text).await;
    let port = listen.port();
    let client = place.with_certificate(place.client("root.pem"), "");
    let all: Vec<&'static Tls13CipherSuite> = vec![&TLS13_AES_256_GCM_SHA384, &TLS13_AES_128_GCM_SHA256];
    let client = Client { sessions: Some(Arc::default()), suites: Some(all), ..client };
    // Nothing in this ClientHello names the client, so the default profile chooses the suite.
    meets(&client, port, ("strong", STRONG, HandshakeKind::Full), "a stranger").await;
    // This one has no suite of the default. Its address names it.
    let weak = Client {
        suites: Some(vec![&TLS13_AES_128_GCM_SHA256]),
        sessions: Some(Arc::default()),
        ..client.clone()
    };
    meets(&weak, port, ("low", WEAK, HandshakeKind::Full), "by address").await;
    // The hash of the ticket tells the suite, also beside another one that the client would prefer.
    let both = Client { suites: client.suites.clone(), ..weak.clone() };
    meets(&both, port, ("low", WEAK, HandshakeKind::Resumed), "by session").await;
    // A gateway that has lost the keys of the ticket, and the address, still serves the client, which shows
    // its certificate.
    within(gateway.stop()).await;
    drop(gateway);
    let _gateway = start(&place, &text).await;
    meets(&both, port, ("low", WEAK, HandshakeKind::Full), "by a ticket of before").await;
}

/// Before the cookie of DTLS 1.2, the default profile without that version refuses no client.
#[tokio::test]
async fn a_profile_alone_may_speak_dtls_12() {
    let old = "[profile.old]\nrank = 100\nversions = [\"1.2\", \"1.3\"]\n[[rule]]\nwhen.newest_version = \"1.2\"\nprofile = \"old\"\n";
    let place = place("");
    place.write("policy.toml", &(POLICY.replace("floor = 10", "floor = 10\ndefault = \"strong\"") + old));
    let (_gateway, port) = place.start(&(LISTENER.to_owned() + &route(echo_datagrams().await, ""))).await;
    let client = Client { tls12: true, ..place.client("root.pem") };
    let dtls = connect(&client, port).await;
    assert_eq!(dtls.negotiated().version, Some(ProtocolVersion::DTLS1_2));
}

/// The warnings of `--check` about the policy, without its path.
fn warnings(place: &Place, listener: &str) -> Vec<String> {
    let config = place.config(&(listener.to_owned() + &route(1, "")));
    let found = dunlin_gateway::Gateway::check(config).unwrap_or_else(|faults| panic!("{faults}"));
    let of_policy =
        |warning: &dunlin_gateway::Fault| Some(warning.to_string().rsplit_once("policy.toml:")?.1.to_owned());
    found.iter().filter_map(of_policy).collect()
}

#[tokio::test]
async fn a_check_names_profiles_that_dtls_13_cannot_reach() {
    let meters = "[[rule]]\nname = \"meters\"\nwhen.psk = \"sensor-*\"\nprofile = \"meter\"\n";
    let place = place(&(DEVICES.to_owned() + meters));
    let lost = "7: profile.low: over DTLS 1.3 no client gets it that offers TLS_AES_256_GCM_SHA384, the suite of profile strong: the \
                demand for a cookie names a suite before the client is known; list TLS_AES_256_GCM_SHA384 here, too, or begin the suites \
                of strong with one of this profile";
    assert_eq!(warnings(&place, LISTENER), [lost]);
    // Over TLS, the gateway looks clients up before it chooses a suite.
    assert!(warnings(&place, &LISTENER.replace("transport = \"dtls\"\n", "")).is_empty());
    let both = POLICY.replace(
        "client = \"certificate\"\ncipher_suites = ",
        "client = \"certificate\"\ncipher_suites = [\"TLS_AES_256_GCM_SHA384\", \"TLS_AES_128_GCM_SHA256\"] # ",
    );
    place.write("policy.toml", &(both + DEVICES + meters));
    assert!(warnings(&place, LISTENER).is_empty());
}

#[tokio::test]
async fn a_check_warns_of_ranks_that_contradict_security_levels() {
    let place = place("");
    place.make_pki_of("long-", KeyType::P521, &["localhost"]);
    let suites = POLICY.replace("_128_GCM_SHA256", "_x").replace("_256_GCM_SHA384", "_128_GCM_SHA256");
    let suites = suites.replace("_x", "_256_GCM_SHA384");
    place.write("policy.toml", &(suites + DEVICES));
    let listener = LISTENER.replace("transport = \"dtls\"\n", "");
    let expected = "3: profile.strong: the suite TLS_AES_128_GCM_SHA256 gives near-term protection, and profile meter (rank 20), of a lower \
                    rank, long-term protection; leave it out, or give the weaker profile the lower rank";
    assert_eq!(warnings(&place, &listener), [expected]);
    let named = POLICY.replace("client = \"request\"", "client = \"request\"\ncertificates = \"near\"");
    let named =
        named.replace("client = \"certificate\"", "client = \"certificate\"\ncertificates = \"long\"");
    place.write("policy.toml", &(named + DEVICES));
    let certificate = |name: &str, prefix: &str| {
        format!(
            "[[listener.certificate]]\nname = \"{name}\"\nchain = \"{prefix}server.pem\"\nkey = \"{prefix}server.key\"\n"
        )
    };
    let own = "[[listener.certificate]]\nchain = \"server.pem\"\nkey = \"server.key\"\n";
    let listener = listener.replace(own, &(certificate("near", "") + &certificate("long", "long-")));
    let expected = "3: profile.strong: the certificate near gives near-term protection, and profile low (rank 20), of a lower rank, long-term \
                    protection; leave it out, or give the weaker profile the lower rank";
    assert_eq!(warnings(&place, &listener), [expected]);
}
