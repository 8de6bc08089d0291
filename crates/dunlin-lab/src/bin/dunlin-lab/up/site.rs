//! The gateway of the demonstration: its directory with keys, its configuration, and its start.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_gateway::{Config, Fault, Faults, Gateway, Tunnel, TunnelConfig};
use tempfile::TempDir;

use super::authority::Running;
use super::broker::{self, Broker};
use super::services::Services;
use super::setup::{DIDS, ISSUERS, PSKS, RAW_KEYS, REGISTRY, ROOT, SERVER, Setup};
use dunlin_command::faults::told;

const CONFIG: &str = "gateway.toml";
const POLICY: &str = "policy.toml";
const TUNNEL: &str = "tunnel.toml";

/// The policy. The files of the directory show what the gateway can do, so they have comments.
const POLICY_TEXT: &str = r#"# Which profile a client gets, by who it is (docs/policy.md). A change applies to new connections within a second.
# `dunlin gateway explain -c policy.toml --psk-identity meter-5` says why.

floor = 10
default = "strong"
renegotiation = "down"

# Everyone whom no rule names. Lean devices, which verify P-256 alone, get the second certificate.
[profile.strong]
rank = 100
versions = ["1.3", "1.2"]
certificates = ["strong", "fast"]
client = "any"

# Meters have a pre-shared key and no power to spare.
[profile.meter]
rank = 20
cipher_suites = ["TLS_AES_128_CCM_SHA256", "TLS_AES_128_GCM_SHA256"]
client = "psk"

# Old controllers speak TLS 1.2 and compute slowly. The gateway learns who they are, lets them renegotiate, and remembers their addresses.
[profile.controller]
rank = 50
versions = ["1.3", "1.2"]
cipher_suites = ["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]
certificates = "fast"
client = "certificate"
address_lifetime = "1h"

[[rule]]
name = "meters"
when.psk = "meter-*"
profile = "meter"

[[rule]]
name = "controllers"
when.dns = "turbine-*"
profile = "controller"
"#;

/// A value for each listener of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listeners<T> {
    /// TLS for HTTP.
    pub(super) web: T,
    /// TLS for lines over TCP.
    pub(super) lines: T,
    /// DTLS for CoAP.
    pub(super) coap: T,
    /// TLS for MQTT, if there is a broker.
    pub(super) mqtt: Option<T>,
    /// The dashboard, over HTTP.
    pub(super) admin: T,
}

impl Listeners<u16> {
    /// Consecutive ports from this one on, or free ones if it is 0. `None` if there are not enough.
    pub(super) fn from(first: u16, has_broker: bool) -> Option<Self> {
        let port = |index: u16| if first == 0 { Some(0) } else { first.checked_add(index) };
        let [web, lines, coap, admin, mqtt] = [port(0)?, port(1)?, port(2)?, port(3)?, port(4)?];
        Some(Self { web, lines, coap, mqtt: Some(mqtt).filter(|_| has_broker), admin })
    }
}

impl<T> Listeners<T> {
    fn map<U>(self, f: impl Fn(T) -> U) -> Listeners<U> {
        let Self { web, lines, coap, mqtt, admin } = self;
        Listeners { web: f(web), lines: f(lines), coap: f(coap), mqtt: mqtt.map(&f), admin: f(admin) }
    }
}

/// The directory with the gateway's files.
enum Directory {
    /// It stays.
    Given(PathBuf),
    /// It is removed with this value.
    Temporary(TempDir),
}

impl Directory {
    fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(dir) => dir.path(),
        }
    }
}

/// The directory, the ports and the broker of the gateway.
pub(super) struct Options<'a> {
    /// The directory for its files; a temporary one without it.
    pub(super) dir: Option<&'a Path>,
    /// The treatment of files that exist.
    pub(super) existing: Existing,
    /// The ports on 127.0.0.1.
    pub(super) ports: Listeners<u16>,
    /// The program of the broker.
    pub(super) broker: Option<&'a Path>,
}

impl Options<'_> {
    /// Makes the directory.
    fn directory(&self, setup: &Setup) -> Result<Directory, Error> {
        let Some(path) = self.dir else {
            let made = tempfile::Builder::new().prefix("dunlin-up-").tempdir();
            let advice = "free some space, or give a directory with --dir";
            return made
                .map(Directory::Temporary)
                .map_err(|error| Error::failed("a temporary directory", error, advice));
        };
        let names = setup.files.iter().map(|file| &*file.name).chain([CONFIG, POLICY, TUNNEL]);
        let paths: Vec<_> = names.chain(broker::FILES).map(|name| path.join(name)).collect();
        files::check_new(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>(), self.existing)?;
        files::create_directory(path)?;
        Ok(Directory::Given(path.to_owned()))
    }

    /// The error for faults of a configuration made here: only the ports are the user's.
    fn faults(&self, faults: &Faults) -> Error {
        let advice = "choose another --port, or none for any that are free";
        let failed = |fault: &Fault| Error::failed("gateway", fault.description(), advice);
        faults.iter().next().filter(|_| self.ports.web != 0).map_or_else(|| told(faults), failed)
    }
}

/// A running gateway with its files, and the programs beside it.
pub(super) struct Site {
    gateway: Gateway,
    registry: Running,
    addresses: Listeners<SocketAddr>,
    tunnel: Option<Tunnel>,
    /// It ends before the directory is removed.
    broker: Option<Broker>,
    directory: Directory,
}

impl Site {
    /// Writes the files, and starts broker, gateway and tunnel.
    pub(super) async fn start(
        setup: &Setup,
        services: Services,
        options: &Options<'_>,
    ) -> Result<Self, Error> {
        let directory = options.directory(setup)?;
        let dir = directory.path();
        let existing = options.existing;
        for file in &setup.files {
            files::write(&dir.join(&file.name), file.content.as_bytes(), file.access, existing)?;
        }
        let broker = match options.broker {
            Some(program) => Some(Broker::start(program, dir, existing).await?),
            None => None,
        };
        let registry = setup.authority.start().await?;
        let config = |ports| {
            let broker = broker.as_ref().map(Broker::address);
            let backends = Backends { services, broker, registry: &registry.url };
            config(ports, &backends, |name| setup.files.iter().any(|file| file.name == name))
        };
        let path = dir.join(CONFIG);
        files::write(&dir.join(POLICY), POLICY_TEXT.as_bytes(), Access::Public, existing)?;
        files::write(&path, config(options.ports).as_bytes(), Access::Public, existing)?;
        let loaded = Config::load(&path).map_err(|faults| told(&faults))?;
        let gateway = Gateway::start(loaded).await.map_err(|faults| options.faults(&faults))?;
        let addresses = bound(&gateway).ok_or_else(|| {
            Error::failed(
                "gateway",
                "it has another set of listeners",
                "this is a fault in dunlin; report it",
            )
        })?;
        // The kept file names the ports that are in use now, so that the same gateway can start again.
        let ports = addresses.map(|address| address.port());
        files::write(&path, config(ports).as_bytes(), Access::Public, Existing::Replace)?;
        let tunnel = match tunnel(setup, &addresses) {
            Some(text) => {
                let path = dir.join(TUNNEL);
                files::write(&path, text.as_bytes(), Access::Public, existing)?;
                let loaded = TunnelConfig::load(&path).map_err(|faults| told(&faults))?;
                Some(Tunnel::start(loaded).await.map_err(|faults| told(&faults))?)
            }
            None => None,
        };
        Ok(Self { gateway, registry, addresses, tunnel, broker, directory })
    }

    /// The tunnel's address for each device that has one, by the device's name.
    pub(super) fn tunnels(&self) -> HashMap<String, SocketAddr> {
        self.tunnel.iter().flat_map(Tunnel::addresses).collect()
    }

    /// The URL of the registry.
    pub(super) fn registry(&self) -> &str {
        &self.registry.url
    }

    /// The addresses on which the gateway listens.
    pub(super) const fn addresses(&self) -> &Listeners<SocketAddr> {
        &self.addresses
    }

    /// Ends everything, and removes a temporary directory.
    pub(super) async fn end(self) -> Result<(), Error> {
        if let Some(tunnel) = &self.tunnel {
            tunnel.end().await;
        }
        self.gateway.end().await;
        drop((self.broker, self.registry));
        if let Directory::Temporary(dir) = self.directory {
            let path = dir.path().to_owned();
            dir.close().map_err(|error| Error::failed(path.display(), error, "remove it by hand"))?;
        }
        Ok(())
    }
}

fn bound(gateway: &Gateway) -> Option<Listeners<SocketAddr>> {
    let addresses = gateway.addresses();
    let of = |wanted: &str| addresses.iter().find(|(name, _)| name == wanted).map(|(_, address)| *address);
    let web = of("web")?;
    let lines = of("lines")?;
    let coap = of("coap")?;
    let mqtt = of("mqtt");
    Some(Listeners { web, lines, coap, mqtt, admin: gateway.admin_address()? })
}

/// The configuration of the tunnels, one for each device that has one.
fn tunnel(setup: &Setup, gateway: &Listeners<SocketAddr>) -> Option<String> {
    let mut text = String::new();
    for device in setup.devices.iter().filter(|device| device.way.has_tunnel()) {
        let name = &device.name;
        let to = device.way.link().of(gateway)?;
        let _ = write!(
            text,
            r#"
[[listener]]
name = "{name}"
listen = "127.0.0.1:0"
to = "{to}"
server_name = "{SERVER}"

[[listener.certificate]]
chain = "{name}.pem"
key = "{name}.key"

[listener.server]
ca = "{ROOT}"
"#
        );
    }
    let comment = "# The tunnels of `dunlin-lab up` (docs/tunnel.md), beside devices that know no TLS.\n";
    (!text.is_empty()).then(|| format!("{comment}{text}"))
}

/// The servers behind the gateway, and the registry beside it.
struct Backends<'a> {
    services: Services,
    broker: Option<SocketAddr>,
    registry: &'a str,
}

/// The gateway's configuration.
fn config(ports: Listeners<u16>, backends: &Backends<'_>, has: impl Fn(&str) -> bool) -> String {
    let Backends { services, broker, registry } = backends;
    let listen = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let dids = if has(DIDS) {
        format!("dids = {DIDS:?}            # for drones, which prove a DID alone\n")
    } else {
        String::new()
    };
    let raw_keys = if has(RAW_KEYS) { format!("raw_keys = {RAW_KEYS:?}\n") } else { String::new() };
    let listener = |name: &str, port: u16, keys: &str, tables: &str| {
        format!(
            r#"
[[listener]]
name = "{name}"
listen = "{}"
{keys}policy = "{POLICY}"
raw_public_key = true           # certificates, and their keys alone (RFC 7250)

[[listener.certificate]]
name = "strong"                 # P-384
chain = "strong.pem"
key = "strong.key"

[[listener.certificate]]
name = "fast"                   # P-256
chain = "fast.pem"
key = "fast.key"

[listener.clients]
ca = "{ROOT}"
psk = "{PSKS}"
psk_without_dhe = true          # for meters, which have no (EC)DHE
{raw_keys}
{tables}
"#,
            listen(port)
        )
    };
    let mut text = format!(
        r#"# The gateway of `dunlin-lab up` (docs/gateway.md). `dunlin gateway -c {CONFIG}` starts it again, without the servers behind it.

[admin]
listen = "{}"      # dashboard, /metrics and /status
"#,
        listen(ports.admin)
    );
    let web = format!(
        r#"[[listener.route]]
protocol = "http"               # the header Dunlin-Client-Identity tells who the client is
to = "{}""#,
        services.web
    );
    let cache = r#"[listener.cache]                # each side sends its certificate once
mode = "compact""#;
    let lines = format!(
        r#"vc_issuers = "{ISSUERS}"          # for robots, which have verifiable credentials
{dids}
[listener.clients.registry]     # it knows the keys of their DIDs
url = "{registry}"
key = "{REGISTRY}"
ca = "{ROOT}"

{cache}

[[listener.route]]
proxy_protocol = true           # a PROXY header tells who the client is
to = "{}""#,
        services.lines
    );
    let coap = format!(
        r#"{cache}

[[listener.route]]
proxy_protocol = true           # in each datagram
to = "{}""#,
        services.coap
    );
    let mut listeners = vec![
        ("Web clients", listener("web", ports.web, "", &web)),
        ("Any protocol over TCP", listener("lines", ports.lines, "", &lines)),
        ("CoAP over DTLS", listener("coap", ports.coap, "transport = \"dtls\"\n", &coap)),
    ];
    if let (Some(port), Some(broker)) = (ports.mqtt, broker) {
        let mqtt = format!(
            r#"{cache}

[[listener.route]]
protocol = "mqtt"               # the user name tells who the client is
user_name = "typed"             # and of which kind
to = "{broker}""#
        );
        listeners.push(("MQTT, with Mosquitto behind it", listener("mqtt", port, "", &mqtt)));
    }
    for (comment, table) in listeners {
        let _ = write!(text, "\n# {comment}.{table}");
    }
    text
}
