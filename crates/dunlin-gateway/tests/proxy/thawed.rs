//! Peers of thawed associations that lose their identities: after a restart nothing is known of them, so they
//! are asked about.

use std::time::Duration;

use dunlin_gateway::Gateway;
use dunlin_identity::DidDocument;
use dunlin_identity::credential::status::{StatusEntry, StatusPurpose};
use dunlin_identity::method::directory::{DOCUMENT, key_file};
use dunlin_identity::method::dunlin::{Operation, State};
use dunlin_identity::method::{KEY, Method};
use dunlin_pki::{KeyPair, KeyType};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::nodes::{any_port, free};
use crate::place::{Place, metric, metric_becomes, route, within};
use crate::registry::{LIST, Site, key, public};
use crate::restart::start;

const FROZEN: &str = "file = \"frozen\"\nids = \"ids\"\n";

/// Ends a DID in the registry.
pub(crate) fn end(site: &Site, (own, document, recovery): &(KeyPair, DidDocument, KeyPair)) {
    let provider = dunlin_awslc::provider();
    let create = Operation::create(&provider, &*key(own), document).unwrap();
    let state = State::create(&provider, &create).unwrap();
    let end = Operation::deactivate(&provider, &*key(recovery), &state).unwrap();
    site.registry.submit(end).unwrap();
}

/// Writes the directory of a DID, and the list that names it.
pub(crate) fn write(place: &Place, name: &str, (own, document, _): &(KeyPair, DidDocument, KeyPair)) {
    std::fs::create_dir(place.path(name)).unwrap();
    place.write(&format!("{name}/{DOCUMENT}"), document.canonical());
    place.write(&format!("{name}/{}", key_file(0)), &own.to_pem().unwrap());
    place.write(&format!("{name}.did"), document.id().as_str());
}

/// Sends to the tunnel until something arrives at the backend.
async fn arrives(backend: &UdpSocket, program: &UdpSocket, port: u16) {
    let mut buffer = [0; 16];
    let attempt = Duration::from_secs(1);
    within(async {
        loop {
            program.send_to(b"data", ("127.0.0.1", port)).await.unwrap();
            if timeout(attempt, backend.recv_from(&mut buffer)).await.is_ok() {
                return;
            }
        }
    })
    .await;
}

const COMPLETED: &str = "dunlin_gateway_handshakes_total{outcome=\"completed\"}";
const REFUSED: &str = "dunlin_gateway_frozen_associations_total{outcome=\"refused\"}";

#[tokio::test]
async fn a_tunnel_asks_about_the_server_of_a_thawed_association() {
    let place = Place::new();
    let site = Site::new(&place).await;
    let hub = site.device();
    write(&place, "hub", &hub);
    let backend = any_port().await;
    let program = any_port().await;
    let text = "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\ntransport = \"dtls\"\n\
                [[listener.certificate]]\ndid = \"hub\"\n[listener.clients]\n";
    let text = text.to_owned() + &Site::table("clients", site.port);
    let (gateway, to) = place.start(&(text + &route(backend.local_addr().unwrap().port(), ""))).await;
    let tunnel = format!(
        "[frozen]\n{FROZEN}[[listener]]\nname = \"local\"\nlisten = \"127.0.0.1:0\"\nto = \"localhost:{to}\"\n\
         transport = \"dtls\"\ntickets = false\n[listener.server]\ndids = \"hub.did\"\n{}",
        Site::table("server", site.port)
    );
    for _ in 0..2 {
        let (tunnel, port) = place.tunnel(&tunnel).await;
        arrives(&backend, &program, port).await;
        within(tunnel.stop()).await;
        assert!(place.path("frozen").exists());
    }
    assert_eq!(metric(&gateway, COMPLETED), 1.0);
    end(&site, &hub);
    let (_tunnel, _) = place.tunnel(&tunnel).await;
    metric_becomes(&gateway, "dunlin_gateway_dtls_associations", 0.0).await;
}

/// A gateway with this table about clients, which freezes the associations of its listener.
struct Frozen<'a> {
    place: &'a Place,
    text: String,
    port: u16,
    backend: UdpSocket,
}

impl<'a> Frozen<'a> {
    async fn new(place: &'a Place, clients: &str) -> Self {
        let backend = any_port().await;
        let [listen] = free();
        let text = format!(
            "[[listener]]\nname = \"test\"\nlisten = \"{listen}\"\ntransport = \"dtls\"\ntickets = 0\n\
             [[listener.certificate]]\nchain = \"server.pem\"\nkey = \"server.key\"\n[listener.frozen]\n{FROZEN}{clients}"
        );
        let text = text + &route(backend.local_addr().unwrap().port(), "");
        Self { place, text, port: listen.port(), backend }
    }

    async fn start(&self) -> Gateway {
        start(self.place, &self.text).await
    }

    /// A tunnel that shows an identity by these keys.
    fn tunnel(&self, own: &str) -> String {
        let Self { port, .. } = self;
        format!(
            "[[listener]]\nname = \"local\"\nlisten = \"127.0.0.1:0\"\nto = \"localhost:{port}\"\ntransport = \"dtls\"\n\
             tickets = false\n{own}[listener.server]\nca = \"root.pem\"\n"
        )
    }
}

#[tokio::test]
async fn a_gateway_asks_about_the_client_of_a_thawed_association() {
    let place = Place::new();
    let site = Site::new(&place).await;
    let device = site.device();
    write(&place, "device", &device);
    let clients = format!("[listener.clients]\ndids = \"device.did\"\n{}", Site::table("clients", site.port));
    let frozen = Frozen::new(&place, &clients).await;
    let gateway = frozen.start().await;
    let (_tunnel, port) = place.tunnel(&frozen.tunnel("did = \"device\"\n")).await;
    let program = any_port().await;
    arrives(&frozen.backend, &program, port).await;
    within(gateway.stop()).await;
    drop(gateway);
    let gateway = frozen.start().await;
    arrives(&frozen.backend, &program, port).await;
    assert_eq!((metric(&gateway, COMPLETED), metric(&gateway, REFUSED)), (0.0, 0.0));
    within(gateway.stop()).await;
    drop(gateway);
    end(&site, &device);
    let gateway = frozen.start().await;
    metric_becomes(&gateway, REFUSED, 1.0).await;
    metric_becomes(&gateway, "dunlin_gateway_dtls_associations", 0.0).await;
}

/// Another client sends the issuer's newer status list, which revokes the credential of the first one.
#[tokio::test]
async fn a_gateway_without_a_registry_ends_a_thawed_association_once_it_knows() {
    let place = Place::new();
    let site = Site::new(&place).await;
    for (name, index, revoked, age) in [("first", 7, false, 60), ("second", 8, true, 30)] {
        let pair = KeyPair::generate(KeyType::P256).unwrap();
        let document = KEY.resolve(&KEY.create(&public(&pair)).unwrap()).unwrap();
        let entry = StatusEntry { list: LIST.to_owned(), index, purpose: StatusPurpose::Revocation };
        place.write(&format!("{name}.key"), &pair.to_pem().unwrap());
        place.write(&format!("{name}.vc"), &site.issue_with(&document, &entry));
        place.write(&format!("{name}.status"), &site.list(revoked, age));
    }
    let frozen = Frozen::new(&place, "[listener.clients]\nvc_issuers = \"issuers\"\n").await;
    let own =
        |name: &str| format!("did = \"{name}.key\"\nvc = \"{name}.vc\"\nstaple_status = \"{name}.status\"\n");
    let gateway = frozen.start().await;
    let (_first, port) = place.tunnel(&frozen.tunnel(&own("first"))).await;
    let program = any_port().await;
    arrives(&frozen.backend, &program, port).await;
    within(gateway.stop()).await;
    drop(gateway);
    let gateway = frozen.start().await;
    arrives(&frozen.backend, &program, port).await;
    assert_eq!((metric(&gateway, COMPLETED), metric(&gateway, REFUSED)), (0.0, 0.0));
    let (_second, port) = place.tunnel(&frozen.tunnel(&own("second"))).await;
    arrives(&frozen.backend, &program, port).await;
    metric_becomes(&gateway, REFUSED, 1.0).await;
}
