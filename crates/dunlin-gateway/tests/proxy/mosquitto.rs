//! The sample for Mosquitto, with the real broker and its clients.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tokio::process::Command as AsyncCommand;

use crate::place::{PSK, Place, listener, route, sample, within};

/// A broker that ends with the test.
struct Broker(Child);

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The sample for a tunnel, with its listener for MQTT alone.
fn tunnel_sample() -> String {
    sample("tunnel/tunnel.toml").rsplit_once("[[listener]]").unwrap().0.to_owned()
}

/// Starts the broker of the sample. Returns it with its port and its log.
fn broker(place: &Place) -> (Broker, u16, Receiver<String>) {
    place.write("acl", &sample("mosquitto/acl"));
    // Started by root, it would become a user that cannot read the directory.
    start(place, "mosquitto.conf", &(sample("mosquitto/mosquitto.conf") + "user root\n"))
}

/// Starts a broker with this configuration, in which 1883 stands for its port.
fn start(place: &Place, name: &str, config: &str) -> (Broker, u16, Receiver<String>) {
    // Debian installs it outside the PATH of ordinary users.
    let program =
        ["/usr/sbin/mosquitto", "/usr/bin/mosquitto"].into_iter().find(|path| Path::new(path).exists());
    let program = program.expect("mosquitto: `tools/setup test` installs it");
    loop {
        // Mosquitto chooses no free port itself, and another program may take this one first.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        place.write(name, &config.replace("1883", &free.to_string()));
        let mut command = Command::new(program);
        command.args(["-v", "-c", name]).current_dir(place.path(""));
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let broker = Broker(child);
        if log.any(|line| line.contains(" running")) {
            // The broker must not wait for a reader.
            let (lines, read) = std::sync::mpsc::channel();
            std::thread::spawn(move || log.for_each(|line| drop(lines.send(line))));
            return (broker, free, read);
        }
    }
}

/// Runs a client of Mosquitto, and returns what it prints.
async fn run(place: &Place, program: &str, arguments: &str) -> String {
    let mut command = AsyncCommand::new(program);
    command.args(arguments.split_whitespace()).current_dir(place.path("")).kill_on_drop(true);
    let output = within(command.output()).await.expect("mosquitto-clients: `tools/setup test` installs them");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {stdout}{stderr}");
    stdout.into_owned()
}

/// The gateway of the sample, in front of the broker with this port.
fn gateway(broker_port: u16) -> String {
    sample("mosquitto/gateway.toml")
        .replace("devices.pem", "root.pem")
        .replace(":1883", &format!(":{broker_port}"))
}

/// The options of clients with a certificate and with a pre-shared key.
fn clients(port: u16) -> [String; 2] {
    let server = format!("-h localhost -p {port} -q 1 -u admin -P secret");
    [
        format!("--cafile root.pem --cert client.pem --key client.key {server}"),
        format!("--psk {} --psk-identity {} {server}", PSK.1, PSK.0),
    ]
}

/// A device that names the client ID of another one would end its connection, and get its session.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_cannot_take_the_client_id_of_another_one() {
    let place = Place::new();
    let (_broker, broker_port, log) = broker(&place);
    let (_gateway, port) = place.start(&gateway(broker_port)).await;
    let [x509, _] = clients(port);
    run(&place, "mosquitto_pub", &format!("{x509} -i sensor-7 -t devices/x509:cn:device-1/a -m own")).await;
    let new = loop {
        let line = log.recv_timeout(Duration::from_secs(60)).unwrap();
        if line.contains("New client connected") {
            break line;
        }
    };
    assert!(new.contains(" as x509:cn:device-1 ("), "{new}");
}

/// Clients with a certificate and clients with a pre-shared key reach the topics below their own names, and
/// no others. They claim another user name, which the broker does not see.
#[tokio::test(flavor = "multi_thread")]
async fn mosquittos_clients_reach_only_their_own_topics() {
    let place = Place::new();
    let (_broker, broker_port, _) = broker(&place);
    let (_gateway, port) = place.start(&gateway(broker_port)).await;
    let [x509, psk] = clients(port);
    for version in ["mqttv311", "mqttv5"] {
        // Retained messages wait for their subscribers. The broker drops the forged ones, which come last.
        for (who, name, message) in [
            (&x509, "x509:cn:device-1", "own"),
            (&psk, "x509:cn:device-1", "forged"),
            (&psk, "psk:sensor-7", "own"),
            (&x509, "psk:sensor-7", "forged"),
        ] {
            let options = format!("{who} -V {version} -r -t devices/{name}/{version} -m {message}");
            run(&place, "mosquitto_pub", &options).await;
        }
        for (who, name) in [(&x509, "x509:cn:device-1"), (&psk, "psk:sensor-7")] {
            let options = format!("{who} -V {version} -C 1 -W 60 -t devices/{name}/{version}");
            assert_eq!(run(&place, "mosquitto_sub", &options).await, "own\n", "{version} {name}");
        }
    }
}

/// A device with two connections would lose the first one.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_readme_bring_a_message() {
    let place = Place::new();
    let (_broker, broker_port, _) = broker(&place);
    let (_gateway, port) = place.start(&gateway(broker_port)).await;
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let commands = readme.lines().filter(|line| line.starts_with("mosquitto_"));
    let mut said = String::new();
    for command in commands {
        let (program, options) = command.split_once(' ').unwrap();
        let options = options.replace("8883", &port.to_string()).replace('\'', "");
        said += &run(&place, program, &options).await;
    }
    assert_eq!(said, "devices/x509:cn:device-1/temperature 21\n");
}

/// Clients that know no TLS get the identity of their device, whatever user name they claim.
#[tokio::test(flavor = "multi_thread")]
async fn mosquittos_clients_without_tls_reach_the_broker_through_a_tunnel() {
    let place = Place::new();
    let (_broker, broker_port, _) = broker(&place);
    let config = sample("mosquitto/gateway.toml")
        .replace("0.0.0.0:8883", "127.0.0.1:0")
        .replace("127.0.0.1:9464", "127.0.0.1:0")
        .replace("devices.pem", "root.pem")
        .replace(":1883", &format!(":{broker_port}"));
    let (_gateway, port) = place.start(&config).await;
    let config = tunnel_sample()
        .replace("127.0.0.1:1883", "127.0.0.1:0")
        .replace("gateway.example:8883", &format!("127.0.0.1:{port}"))
        .replace("device.", "client.")
        .replace("gateway-ca.pem", "root.pem")
        .replace("/var/lib/dunlin-tunnel/", "");
    let (_tunnel, local) = place.tunnel(&config).await;
    let client = format!("-h 127.0.0.1 -p {local} -q 1 -u admin -P secret");
    for (name, message) in [("x509:cn:device-1", "own"), ("psk:sensor-7", "forged")] {
        run(&place, "mosquitto_pub", &format!("{client} -r -t devices/{name}/t -m {message}")).await;
    }
    let told =
        run(&place, "mosquitto_sub", &format!("{client} -C 1 -W 60 -t devices/x509:cn:device-1/t")).await;
    assert_eq!(told, "own\n");
}

/// A broker passes all topics on to the one behind the gateway, as a site does to its headquarters. Without
/// other settings, it speaks MQTT 3.1.1 and says by a bit of the version that it is a bridge;
/// `bridge_protocol_version` chooses the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_of_mosquitto_reaches_the_broker() {
    let place = Place::new();
    let open = "listener 1883 127.0.0.1\nallow_anonymous true\nuser root\n";
    for version in ["", "bridge_protocol_version mqttv31\n", "bridge_protocol_version mqttv50\n"] {
        let (_central, central, _) = start(&place, "central.conf", open);
        let config =
            listener("") + "[listener.clients]\nca = \"root.pem\"\n" + &route(central, "protocol = \"mqtt\"");
        let (_gateway, port) = place.start(&config).await;
        let bridge = format!(
            "{open}connection plant\naddress localhost:{port}\ntopic # both 1\nrestart_timeout 1\n{version}\
             bridge_cafile root.pem\nbridge_certfile client.pem\nbridge_keyfile client.key\n"
        );
        let (_bridge, local, _) = start(&place, "bridge.conf", &bridge);
        let publish = format!("-h 127.0.0.1 -p {local} -q 1 -r -t plant/temperature -m 21");
        run(&place, "mosquitto_pub", &publish).await;
        let subscribe = format!("-h 127.0.0.1 -p {central} -C 1 -W 60 -t plant/temperature");
        assert_eq!(run(&place, "mosquitto_sub", &subscribe).await, "21\n", "{version}");
    }
}
