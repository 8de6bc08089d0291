//! A fleet that loses power and comes back under new addresses, at the limit of a gateway's listener. `make
//! soak` runs it with 9,000 devices (`DUNLIN_FLEET`), for which a process needs 20,000 open files.

use std::net::SocketAddr;

use dunlin::HandshakeKind;
use dunlin_pki::{KeyType, Tree, TreeSpec, certificates_to_pem};

use crate::fleet::{Fleet, devices, fleet_size};
use crate::nodes::{Clients, backends};
use crate::peers::{Running, port_in};
use dunlin_tests::place::Place;

#[test]
fn a_fleet_that_has_lost_power_comes_back_at_the_limit_while_tls_clients_are_served() {
    let count = fleet_size();
    let spec = TreeSpec::new(KeyType::P256, 30).unwrap();
    let tree = Tree::generate(&spec).unwrap();
    let place = Place::new();
    place.write("server.pem", certificates_to_pem(&tree.server.chain).unwrap());
    place.write("server.key", tree.server.key.to_pem().unwrap().as_bytes());
    place.write("root.pem", certificates_to_pem(&[tree.root.certificate().clone()]).unwrap());
    let mut devices = devices(count + count.div_ceil(30), &tree, &spec);
    let over_tls = devices.split_off(count);
    let [datagrams, streams] = backends();
    let rest = "[[listener.certificate]]\nchain = \"server.pem\"\nkey = \"server.key\"\n\
                [listener.clients]\nca = \"root.pem\"\n[[listener.route]]\nto = \"127.0.0.1:";
    let text = format!(
        "[limits]\nhandshake_time = \"1m\"\nidle_time = \"1h\"\n\
         [[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:0\"\n[listener.limits]\nconnections = {}\n{rest}{streams}\"\n\
         [[listener]]\nname = \"coap\"\nlisten = \"127.0.0.1:0\"\ntransport = \"dtls\"\n\
         [listener.limits]\nconnections = {count}\nidle_time = \"5s\"\n{rest}{datagrams}\"\n",
        over_tls.len()
    );
    place.write("gateway.toml", text);
    let gateway = Running::new(&place, "gateway -c gateway.toml");
    let [tls, dtls] = ["\"web\"", "\"coap\""].map(|name| {
        let line = gateway.log_where(|line| line.contains(name) && line.contains("listening"));
        SocketAddr::from(([127, 0, 0, 1], port_in(&line)))
    });
    let fleet = Fleet::new(&tree, dtls);
    let clients = Clients::new(&over_tls, &fleet, tls);
    assert_eq!(clients.connected(HandshakeKind::Full), over_tls.len());
    assert_eq!(clients.handshakes(), 0);
    fleet.all(&format!("{count} devices connect"), &mut devices, Fleet::connect);
    for round in 1..=2 {
        let before = clients.echoes();
        devices.iter_mut().for_each(|device| device.lose_power());
        fleet.all(&format!("{count} devices come back, {round}"), &mut devices, Fleet::connect);
        println!("meanwhile {} TLS clients got {} echoes", over_tls.len(), clients.echoes() - before);
        fleet.all("a record each way on every association", &mut devices, Fleet::talk);
        // A small fleet comes back within the pause between two records of a client.
        clients.served_after(before);
    }
    assert_eq!(clients.handshakes(), 0, "no TLS client had to connect again");
}
