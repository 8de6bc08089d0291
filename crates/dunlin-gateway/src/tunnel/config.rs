//! The configuration of a tunnel: TOML files in the manner of a gateway's, read by the same reader.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use dunlin::pki_types::ServerName;
use dunlin::places::PlaceLimits;
use dunlin::{MAX_INTERFACES, Multihoming, ServerAddress};
use dunlin_tokio::{Interface, addresses};
use toml::de::DeValue;

use crate::config::{
    self, ADDRESS, AdminConfig, CacheConfig, CertificateFiles, Common, CredentialTrust, DEFAULT_CONNECTIONS,
    Fault, Faults, Field, FileField, FrozenConfig, Kind, MAX_COUNT, OwnCredential, Place, Section, Source,
    TransportKind, Versions,
};

const SERVER: Kind = Kind {
    name: "a host with a port",
    allowed: "write the server's name or address, as in \"gateway.example.org:8883\"",
};
const SERVER_NAME: Kind = Kind {
    name: "a host name or an IP address",
    allowed: "write the name in the server's certificate, as in \"mqtt.example.org\"",
};
const MTU: Kind = Kind {
    name: "a number of bytes from 80 to 65507",
    allowed: "write the length of the largest datagram that the network carries",
};
const INTERFACE: Kind = Kind {
    name: "an interface",
    allowed: "write a device, as in \"wlan0\", an address of this machine, or \"default\"",
};

/// Limits and times of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelLimits {
    /// `connections`: simultaneous connections of the listener.
    pub connections: usize,
    /// `connections_per_host`: simultaneous connections from one local address; of IPv6, from one network of
    /// 64 bits.
    pub connections_per_host: usize,
    /// `connections_per_network`: simultaneous connections from one IPv6 network of 48 bits.
    pub connections_per_network: usize,
    /// `silent_time`: how long a local program must have sent nothing before it may give way to another one.
    pub silent_time: Duration,
    /// `connect_time`: how long a client's connection may wait for the server, all attempts included.
    pub connect_time: Duration,
    /// `handshake_time`: how long one handshake may take.
    pub handshake_time: Duration,
    /// `idle_time`: how long a connection or association may stay without traffic.
    pub idle_time: Duration,
    /// `retry_time`: the pause after the first failed attempt. It doubles with each further failure.
    pub retry_time: Duration,
    /// `longest_retry_time`: the longest pause between two attempts.
    pub longest_retry_time: Duration,
}

impl Default for TunnelLimits {
    fn default() -> Self {
        Self {
            connections: DEFAULT_CONNECTIONS,
            connections_per_host: 1000,
            connections_per_network: 4000,
            silent_time: Duration::from_secs(30 * 60),
            connect_time: Duration::from_secs(15),
            handshake_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(300),
            retry_time: Duration::from_millis(200),
            longest_retry_time: Duration::from_secs(60),
        }
    }
}

impl TunnelLimits {
    /// The limits on places of local programs.
    pub(crate) const fn places(&self) -> PlaceLimits {
        PlaceLimits {
            all: self.connections,
            per_host: self.connections_per_host,
            per_network: self.connections_per_network,
            silence: Some(self.silent_time),
        }
    }

    /// Reads the limits. `defaults` replaces absent ones.
    fn read(section: Option<&mut Section<'_>>, defaults: &Self) -> Self {
        let Some(section) = section else { return defaults.clone() };
        let size = |number: Option<u64>, default| number.and_then(|n| n.try_into().ok()).unwrap_or(default);
        let connections = section.number("connections", config::COUNT, 1, MAX_COUNT);
        let per_host = section.number("connections_per_host", config::COUNT, 1, MAX_COUNT);
        let per_network = section.number("connections_per_network", config::COUNT, 1, MAX_COUNT);
        Self {
            connections: size(connections, defaults.connections),
            connections_per_host: size(per_host, defaults.connections_per_host),
            connections_per_network: size(per_network, defaults.connections_per_network),
            silent_time: section.duration("silent_time").unwrap_or(defaults.silent_time),
            connect_time: section.duration("connect_time").unwrap_or(defaults.connect_time),
            handshake_time: section.duration("handshake_time").unwrap_or(defaults.handshake_time),
            idle_time: section.duration("idle_time").unwrap_or(defaults.idle_time),
            retry_time: section.duration("retry_time").unwrap_or(defaults.retry_time),
            longest_retry_time: section.duration("longest_retry_time").unwrap_or(defaults.longest_retry_time),
        }
    }
}

/// The table `[listener.server]`: which servers the tunnel trusts.
#[derive(Clone, Debug)]
pub struct ServerTrust {
    /// Files with the certificates of trusted authorities.
    pub ca: Vec<FileField>,
    /// Files with CRLs, which each issuer of a server's certificate must then have.
    pub crl: Vec<FileField>,
    /// Files with trusted raw public keys.
    pub raw_keys: Vec<FileField>,
    /// Trust in verifiable credentials.
    pub credentials: CredentialTrust,
}

/// The table `[listener.psk]`: a pre-shared key, by which both sides authenticate.
#[derive(Clone, Debug)]
pub struct TunnelPsk {
    /// The file with the key.
    pub file: FileField,
    /// Its identity; `None` if the file has one key only.
    pub identity: Option<Field<String>>,
    /// Whether the key also works without (EC)DHE, and so without forward secrecy.
    pub without_dhe: bool,
}

/// The keys of a listener for datagrams.
#[derive(Clone, Debug)]
pub struct Datagrams {
    /// Whether all local clients share one association. Otherwise each local address and port has its own.
    pub shared: bool,
    /// Whether associations have connection IDs, with which they survive a change of this machine's address.
    pub connection_ids: bool,
    /// The length of the largest datagram, in bytes.
    pub mtu: Option<usize>,
    /// The interfaces to send over, the best first; empty: wherever the system sends.
    pub interfaces: Vec<Interface>,
    /// How associations use the interfaces.
    pub multihoming: Option<Multihoming>,
    /// How long the server may leave datagrams unanswered before the tunnel checks that it still has the
    /// association.
    pub probe_time: Duration,
}

impl Default for Datagrams {
    fn default() -> Self {
        Self {
            shared: false,
            connection_ids: true,
            mtu: None,
            interfaces: vec![],
            multihoming: None,
            probe_time: Duration::from_secs(30),
        }
    }
}

/// A table `[[listener]]` of a tunnel: where local programs connect, and the server that gets their data over
/// TLS or DTLS.
#[derive(Clone, Debug)]
pub struct TunnelListener {
    /// The name for the log and the metrics.
    pub name: String,
    /// The local address to listen on.
    pub listen: Field<SocketAddr>,
    /// TLS: local programs connect over TCP. DTLS: they send datagrams over UDP.
    pub transport: TransportKind,
    /// The server's host and port.
    pub to: Field<String>,
    /// The name in the server's certificate, and its port.
    pub server: ServerAddress,
    /// The enabled versions.
    pub versions: Versions,
    /// The application protocols to offer.
    pub alpn: Vec<Vec<u8>>,
    /// The tunnel's certificates. The first one that suits the server is used.
    pub certificates: Vec<CertificateFiles>,
    /// Whether the server may get the raw public key of a certificate instead (RFC 7250).
    pub raw_public_key: bool,
    /// A verifiable credential, which comes before the certificates.
    pub credential: Option<OwnCredential>,
    /// Whether the tunnel resumes sessions.
    pub tickets: bool,
    /// The trust in servers.
    pub trust: ServerTrust,
    /// The pre-shared key.
    pub psk: Option<TunnelPsk>,
    /// The handshake cache.
    pub cache: Option<CacheConfig>,
    /// Limits and times.
    pub limits: TunnelLimits,
    /// The keys for datagrams.
    pub datagrams: Datagrams,
    /// The place of the table.
    pub place: Place,
}

/// The configuration of a tunnel.
#[derive(Clone, Debug)]
pub struct TunnelConfig {
    /// The log, the end, and the administrative listener.
    pub common: Common,
    /// The storage of associations while no tunnel runs; `None`: they end with it.
    pub frozen: Option<FrozenConfig>,
    /// The listeners, in the order of the file; at least one.
    pub listeners: Vec<TunnelListener>,
}

impl TunnelConfig {
    /// The most files that the tunnel may have open, if every listener has all its connections: each has one
    /// to the server. If every listener has the default number, it is a few files: then the tunnel serves as
    /// many programs as the system allows.
    pub fn open_files(&self) -> u64 {
        if self.listeners.iter().all(|listener| listener.limits.connections == DEFAULT_CONNECTIONS) {
            return config::FEW_FILES;
        }
        let of_listener = |listener: &TunnelListener| match listener.transport {
            TransportKind::Tls => 2 * listener.limits.connections as u64,
            TransportKind::Dtls => listener.limits.connections as u64,
        };
        self.listeners.iter().map(of_listener).fold(config::OTHER_FILES, u64::saturating_add)
    }

    /// Reads this text as if it were the file `path`.
    ///
    /// # Errors
    /// All faults of the text.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Faults> {
        let (config, faults) = Self::of(&[Source::new(path, text.to_owned())], vec![]);
        Faults::none_in(faults).map(|()| config)
    }

    /// The readable part of the configuration, and the faults.
    pub(super) fn of(sources: &[Source], found: Vec<Fault>) -> (Self, Vec<Fault>) {
        config::walk(sources, found, |sections, faults| {
            let read =
                |limits: Option<&mut Section<'_>>| TunnelLimits::read(limits, &TunnelLimits::default());
            let (common, defaults) = Common::read(sections, "tunnel", read);
            let tables = config::listener_tables(sections).into_iter();
            let listeners: Vec<_> = tables.map(|table| TunnelListener::read(table, &defaults)).collect();
            config::demand_listeners(listeners.is_empty(), sections, faults, "docs/tunnel.md");
            check_together(&listeners, common.admin.as_ref(), faults);
            let frozen = config::single(sections, "frozen").and_then(|section| frozen(section, &listeners));
            Self { common, frozen, listeners }
        })
    }
}

fn frozen(section: Section<'_>, listeners: &[TunnelListener]) -> Option<FrozenConfig> {
    if let Some(listener) = listeners.iter().find(|listener| !listener.datagrams.interfaces.is_empty()) {
        let what = "associations over several interfaces cannot be frozen";
        section.fault(listener.place.fault(what, "leave interfaces out, or the table [frozen]"));
    }
    FrozenConfig::read(section)
}

fn check_together(listeners: &[TunnelListener], admin: Option<&AdminConfig>, faults: &RefCell<Vec<Fault>>) {
    let sockets = listeners.iter().map(|listener| {
        (&listener.listen, listener.transport == TransportKind::Dtls, &*listener.name, &listener.place)
    });
    config::check_unique(sockets, config::of_admin(admin), faults);
}

impl TunnelListener {
    /// Reads the table. Faults are reported, and values with faults left out.
    fn read(mut section: Section<'_>, defaults: &TunnelLimits) -> Self {
        let place = section.place().clone();
        let listen = listen(&mut section);
        let name = section.text("name").map(|name| name.value);
        let transports = [("tls", TransportKind::Tls), ("dtls", TransportKind::Dtls)];
        let transport = section.one_of("transport", &transports).unwrap_or(TransportKind::Tls);
        let (to, server) = server(&mut section);
        let versions = config::versions(&mut section, false);
        let alpn = config::alpn(&mut section);
        let certificates: Vec<_> =
            section.tables("certificate").into_iter().filter_map(config::certificate).collect();
        config::check_names(certificates.iter().filter_map(|files| files.name.as_ref()), false, &section);
        let raw_public_key = section.switch("raw_public_key").unwrap_or(false);
        let credential = config::own_credential(&mut section);
        if let Some(own) = credential.as_ref().filter(|_| !versions.tls13) {
            let what = "only TLS 1.3 and DTLS 1.3 have DIDs";
            section.fault(own.did.place.fault(what, "add \"1.3\" to versions, or leave did out"));
        }
        let tickets = section.switch("tickets").unwrap_or(true);
        let psk = section.table("psk").and_then(psk);
        let has_psk = section.has("psk");
        let trust = trust(&mut section, has_psk, credential.as_ref());
        let cache = section.table("cache").and_then(config::cache);
        let mut own_limits = section.table("limits");
        let limits = TunnelLimits::read(own_limits.as_mut(), defaults);
        if let Some(own_limits) = own_limits {
            own_limits.end();
        }
        let datagrams = datagrams(&mut section, transport);
        section.end();
        let (listen, name) = config::named(listen, name, &place);
        let nowhere = || ServerAddress::new(ServerName::from(listen.value.ip()), 0);
        Self {
            name,
            transport,
            to: to.unwrap_or_else(|| Field { value: String::new(), place: place.clone() }),
            server: server.unwrap_or_else(nowhere),
            listen,
            versions,
            alpn,
            certificates,
            raw_public_key,
            credential,
            tickets,
            trust,
            psk,
            cache,
            limits,
            datagrams,
            place,
        }
    }
}

/// Reads the local address. Every program that reaches it speaks to the server with the identity of this
/// device.
fn listen(section: &mut Section<'_>) -> Option<Field<SocketAddr>> {
    let listen = section.read("listen", ADDRESS, |value| addresses::parse(value.as_str()?).ok());
    let remote = section.switch("remote").unwrap_or(false);
    if !section.has("listen") {
        section.missing("listen", "write an address of this machine, as in \"127.0.0.1:1883\"");
    }
    if let Some(Field { value, place }) =
        listen.as_ref().filter(|field| !remote && !field.value.ip().to_canonical().is_loopback())
    {
        section.fault(place.fault(
            format!("everyone who reaches {value} could use the identity of this device, unencrypted"),
            "name a loopback address, as in \"127.0.0.1:1883\", or write remote = true if that network is trusted",
        ));
    }
    listen
}

/// Reads the server's address, and the name in its certificate, which is by default the host of the address.
fn server(section: &mut Section<'_>) -> (Option<Field<String>>, Option<ServerAddress>) {
    let to = section.read("to", SERVER, |value| config::host_and_port(value.as_str()?));
    let parse = |value: &DeValue<'_>| ServerName::try_from(value.as_str()?.to_owned()).ok();
    let name = section.read("server_name", SERVER_NAME, parse);
    let Some(field) = &to else {
        if !section.has("to") {
            section.missing("to", SERVER.allowed);
        }
        return (None, None);
    };
    let port = field.value.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or_default();
    let server = match name {
        Some(name) => Some(ServerAddress::new(name.value, port)),
        None => {
            let host = config::host_of(&field.value);
            // A certificate names an address without its zone.
            let name = addresses::ip_of(host).map_or_else(|| host.to_owned(), |ip| ip.to_string());
            ServerAddress::parse(&name, port).ok()
        }
    };
    if server.is_none() {
        let what = format!("{} has no host name or IP address", field.value);
        section.fault(field.place.fault(what, SERVER.allowed));
    }
    (to, server)
}

fn trust(section: &mut Section<'_>, has_psk: bool, own: Option<&OwnCredential>) -> ServerTrust {
    let mut trust =
        ServerTrust { ca: vec![], crl: vec![], raw_keys: vec![], credentials: CredentialTrust::default() };
    let mut of = section.place().clone();
    if let Some(mut table) = section.table("server") {
        of = table.place().clone();
        trust.ca = table.files("ca");
        trust.crl = table.files("crl");
        trust.raw_keys = table.files("raw_keys");
        trust.credentials = config::credential_trust(&mut table, own.as_slice());
        if let Some(issuers) =
            trust.credentials.issuers.as_ref().filter(|_| trust.credentials.peers.is_none())
        {
            // A credential is not bound to a host name.
            let what = "every holder of a credential by these issuers could pass for the server";
            table.fault(issuers.place.fault(what, "name the DIDs of the server in vc_peers"));
        }
        if !trust.crl.is_empty() && trust.ca.is_empty() {
            table.fault(of.fault("crl has no effect without ca", "add ca, or leave crl out"));
        }
        table.end();
    }
    let trusts = !trust.ca.is_empty() || !trust.raw_keys.is_empty() || trust.credentials.trusts();
    if !trusts && !has_psk {
        let advice = "add ca, raw_keys, vc_issuers or dids to [listener.server], or a table [listener.psk]";
        section.fault(of.fault("no server is trusted", advice));
    }
    if !trusts && (section.has("certificate") || section.has("did")) && has_psk {
        let what = "certificates and did have no effect, because the pre-shared key authenticates both sides";
        let advice = "add ca, raw_keys, vc_issuers or dids to [listener.server], or leave them out";
        section.fault(of.fault(what, advice));
    }
    trust
}

fn psk(mut section: Section<'_>) -> Option<TunnelPsk> {
    let file = section.file("file");
    let identity = section.text("identity");
    let without_dhe = section.switch("without_dhe").unwrap_or(false);
    if !section.has("file") {
        section.missing("file", "name a file with the key, as `dunlin psk new` makes it");
    }
    section.end();
    Some(TunnelPsk { file: file?, identity, without_dhe })
}

/// Reads the keys that only listeners for datagrams have.
fn datagrams(section: &mut Section<'_>, transport: TransportKind) -> Datagrams {
    let defaults = Datagrams::default();
    if transport == TransportKind::Tls {
        return defaults;
    }
    let shared = section.one_of("association", &[("each", false), ("shared", true)]);
    let connection_ids = section.switch("connection_ids").unwrap_or(defaults.connection_ids);
    let mtu = section.number("mtu", MTU, 80, 65_507);
    let parse =
        |value: &DeValue<'_>| value.as_str().filter(|text| !text.is_empty())?.parse::<Interface>().ok();
    let interfaces: Vec<_> = section.list("interfaces", INTERFACE, parse).into_iter().flatten().collect();
    let modes = [
        ("unlinkable", Multihoming::unlinkable()),
        ("linkable", Multihoming::linkable()),
        ("duplicated", Multihoming::duplicated()),
    ];
    let multihoming = section.one_of("multihoming", &modes);
    let place = section.place().clone();
    if let Some(last) = interfaces.get(MAX_INTERFACES) {
        let what = format!("more than {MAX_INTERFACES} interfaces");
        section.fault(last.place.fault(what, "name the best ones"));
    }
    if interfaces.is_empty() && multihoming.is_some() {
        let what = "multihoming has no effect without interfaces";
        section.fault(place.fault(what, "add interfaces = [..], or leave multihoming out"));
    }
    if !interfaces.is_empty() && multihoming.is_none() && !connection_ids {
        let what = "without connection IDs, a change of the interface ends the association";
        let advice = "leave connection_ids out, or write multihoming = \"linkable\"";
        section.fault(place.fault(what, advice));
    }
    Datagrams {
        shared: shared.unwrap_or(defaults.shared),
        connection_ids,
        mtu: mtu.and_then(|mtu| mtu.try_into().ok()),
        interfaces: interfaces.into_iter().map(|interface| interface.value).collect(),
        multihoming,
        probe_time: section.duration("probe_time").unwrap_or(defaults.probe_time),
    }
}
