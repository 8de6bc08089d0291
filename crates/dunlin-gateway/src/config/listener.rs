//! The tables `[[listener]]`: where clients connect, who may connect, and where their data goes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dunlin::SsiMessages;
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::places::PlaceLimits;
use dunlin_store::StoreUrl;
use toml::de::DeValue;

use super::NamePattern;
use super::acme;
use super::certificate::{OwnFiles, check_names};
use super::redirect::RedirectConfig;
use super::shared::SharedConfig;
use super::store;
use super::{
    AdminConfig, COUNT, CredentialTrust, DEFAULT_CONNECTIONS, Fault, Field, FileField, FrozenConfig, Kind,
    MAX_COUNT, OwnCredential, Place, Section,
};
use crate::policy::Access;
use dunlin_tokio::addresses;

pub(crate) const ADDRESS: Kind = Kind {
    name: "an IP address with a port",
    allowed: "write it as in \"0.0.0.0:8883\" or \"[::]:8883\"; 0.0.0.0 and [::] stand for all addresses",
};
const BACKEND: Kind = Kind {
    name: "a host with a port",
    allowed: "write the address of the server behind the gateway, as in \"127.0.0.1:1883\"",
};
const SOURCE: Kind = Kind {
    name: "an IP address",
    allowed: "write addresses of this machine without a port, as in \"127.0.0.2\"",
};
const SERVER_NAME: Kind = Kind {
    name: "a host name",
    allowed: "write it as in \"mqtt.example.org\", or \"*.example.org\" for all names with one more label",
};
const PROTOCOL: Kind = Kind {
    name: "an ALPN protocol of 1 to 255 bytes",
    allowed: "write it as in \"mqtt\", \"coap\" or \"http/1.1\" (IANA lists the names)",
};
const VERSION: Kind =
    Kind { name: "an enabled version", allowed: "write \"1.2\" or \"1.3\", or both in an array" };
const TICKETS: Kind = Kind { name: "a number from 0 to 10", allowed: "0 disables resumption" };
const HEADER: Kind = Kind {
    name: "a number of bytes from 1024 to 1048576",
    allowed: "write a number without quotation marks",
};

/// Limits on clients. Each is counted when it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `connections`: simultaneous connections of the listener.
    pub connections: usize,
    /// `connections_per_host`: simultaneous connections from one address; of IPv6, from one network of 64
    /// bits.
    pub connections_per_host: usize,
    /// `connections_per_network`: simultaneous connections from one IPv6 network of 48 bits.
    pub connections_per_network: usize,
    /// `silent_time`: how long a client must have sent nothing before it may give way to another one.
    pub silent_time: Duration,
    /// `forget_time`: how long an association of DTLS goes on without anything from its client.
    pub forget_time: Duration,
    /// `handshakes`: simultaneous handshakes.
    pub handshakes: usize,
    /// `handshakes_per_host`: simultaneous handshakes with one address or network, as for
    /// `connections_per_host`.
    pub handshakes_per_host: usize,
    /// `handshake_time`: how long a handshake may take.
    pub handshake_time: Duration,
    /// `idle_time`: how long a connection may stay without traffic.
    pub idle_time: Duration,
    /// `backend_time`: how long the socket of an association of DTLS to its backend may stay without traffic.
    pub backend_time: Duration,
    /// `connect_time`: how long the connection to the backend may take.
    pub connect_time: Duration,
    /// `header_bytes`: the length of the header of an HTTP message, in bytes.
    pub header_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: DEFAULT_CONNECTIONS,
            // Many clients may share the address of one NAT.
            connections_per_host: 1000,
            // A site has up to 65,536 networks of 64 bits. It must not take all places.
            connections_per_network: 4000,
            // Longer than any request takes. A device that sleeps comes back when it can.
            silent_time: Duration::from_secs(30 * 60),
            forget_time: Duration::from_secs(7 * 24 * 3600),
            handshakes: 1000,
            // A host that sends nothing leaves most places to the others.
            handshakes_per_host: 100,
            handshake_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(300),
            // As long as an association without its client. An observed resource may stay the same for days
            // (RFC 7641 §4.5).
            backend_time: Duration::from_secs(7 * 24 * 3600),
            connect_time: Duration::from_secs(5),
            header_bytes: 16 << 10,
        }
    }
}

impl Limits {
    /// The limits on places of clients.
    pub(crate) const fn places(&self) -> PlaceLimits {
        PlaceLimits {
            all: self.connections,
            per_host: self.connections_per_host,
            per_network: self.connections_per_network,
            silence: Some(self.silent_time),
        }
    }

    /// Reads the limits. `defaults` replaces absent ones.
    pub(super) fn read(section: Option<&mut Section<'_>>, defaults: &Self) -> Self {
        let Some(section) = section else { return defaults.clone() };
        let size = |number: Option<u64>, default| number.and_then(|n| n.try_into().ok()).unwrap_or(default);
        Self {
            connections: size(section.number("connections", COUNT, 1, MAX_COUNT), defaults.connections),
            connections_per_network: size(
                section.number("connections_per_network", COUNT, 1, MAX_COUNT),
                defaults.connections_per_network,
            ),
            silent_time: section.duration("silent_time").unwrap_or(defaults.silent_time),
            forget_time: section.duration("forget_time").unwrap_or(defaults.forget_time),
            connections_per_host: size(
                section.number("connections_per_host", COUNT, 1, MAX_COUNT),
                defaults.connections_per_host,
            ),
            handshakes: size(section.number("handshakes", COUNT, 1, MAX_COUNT), defaults.handshakes),
            handshakes_per_host: size(
                section.number("handshakes_per_host", COUNT, 1, MAX_COUNT),
                defaults.handshakes_per_host,
            ),
            handshake_time: section.duration("handshake_time").unwrap_or(defaults.handshake_time),
            idle_time: section.duration("idle_time").unwrap_or(defaults.idle_time),
            backend_time: section.duration("backend_time").unwrap_or(defaults.backend_time),
            connect_time: section.duration("connect_time").unwrap_or(defaults.connect_time),
            header_bytes: size(section.number("header_bytes", HEADER, 1024, 1 << 20), defaults.header_bytes),
        }
    }
}

/// Whether clients come over TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// TLS over TCP.
    Tls,
    /// DTLS over UDP.
    Dtls,
}

/// The enabled versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// TLS 1.2.
    pub tls12: bool,
    /// TLS 1.3.
    pub tls13: bool,
}

/// Whether clients must authenticate themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// The gateway requests no certificate or raw key. Clients may use a pre-shared key.
    None,
    /// The gateway accepts clients without a certificate or raw key.
    Optional,
    /// The gateway refuses clients that prove no identity.
    Required,
}

/// The table `[listener.clients]`: how clients authenticate themselves.
#[derive(Clone, Debug)]
pub struct ClientsConfig {
    /// Whether they must.
    pub verify: Verify,
    /// Files with the certificates of trusted authorities.
    pub ca: Vec<FileField>,
    /// Files with CRLs, which each issuer of a client's certificate must then have.
    pub crl: Vec<FileField>,
    /// Files with trusted raw public keys.
    pub raw_keys: Vec<FileField>,
    /// Trust in verifiable credentials.
    pub credentials: CredentialTrust,
    /// The file or database of pre-shared keys.
    pub psk: Option<FileField>,
    /// Whether pre-shared keys also work without (EC)DHE, and so without forward secrecy.
    pub psk_without_dhe: bool,
    /// The place of the table.
    pub place: Place,
}

/// The table `[listener.cache]`: the handshake cache.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// The certificates that both sides omit.
    pub mode: CacheMode,
    /// The store in which entries outlive the process: a file, `sqlite:FILE` or a Redis URL. `None`: in
    /// memory.
    pub store: Option<Field<StoreUrl>>,
    /// The key file of the store.
    pub key: Option<FileField>,
    /// How long verified certificates stay valid.
    pub max_age: Duration,
    /// The place of the table.
    pub place: Place,
}

/// The user name that an MQTT broker gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserName {
    /// The name in the identity, as in `sensor-7`.
    Name,
    /// The identity with its kind, as in `psk:sensor-7`.
    Typed,
}

/// The keys of a route with `protocol = "mqtt"`.
#[derive(Clone, Debug)]
pub struct MqttConfig {
    /// The user name.
    pub user_name: UserName,
    /// A file with the password that the broker gets with each user name.
    pub password: Option<FileField>,
}

/// The protocol between the gateway and a backend.
#[derive(Clone, Debug)]
pub enum RouteProtocol {
    /// The bytes as they are.
    Tcp,
    /// HTTP/1.1, with the client's identity in headers.
    Http,
    /// The datagrams as they are, from these source addresses in turn; empty: any.
    Udp(Vec<IpAddr>),
    /// MQTT, with the client's identity as user name.
    Mqtt(MqttConfig),
}

/// A table `[[listener.route]]`: which clients go to which backend.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// The name for the log and the metrics.
    pub name: String,
    /// The requested server names; empty: any, and none.
    pub sni: Vec<NamePattern>,
    /// The application protocols; empty: any, and none.
    pub alpn: Vec<Vec<u8>>,
    /// The protocol.
    pub protocol: RouteProtocol,
    /// The host and port of the backend.
    pub to: Field<String>,
    /// Whether the backend gets a PROXY protocol header of version 2.
    pub proxy_protocol: bool,
    /// `allow`: the clients that may use the route.
    pub access: Access,
    /// The place of the table.
    pub place: Place,
}

/// A table `[[listener]]`.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// The name for the log and the metrics.
    pub name: String,
    /// The address to listen on.
    pub listen: Field<SocketAddr>,
    /// Whether clients come over TCP or UDP.
    pub transport: TransportKind,
    /// The policy that gives each client its profile: a TOML file or an SQLite database (docs/policy.md). Its
    /// profiles then take the place of `versions` and `clients.verify`.
    pub policy: Option<FileField>,
    /// A listener for plain HTTP that sends clients on to this one.
    pub redirect: Option<RedirectConfig>,
    /// The enabled versions.
    pub versions: Versions,
    /// The server's certificates, credentials and DIDs. Of those that suit the client, one with the name that
    /// it wants comes first.
    pub certificates: Vec<OwnFiles>,
    /// Whether clients may get the raw public key of a certificate instead (RFC 7250).
    pub raw_public_key: bool,
    /// The number of tickets after a full handshake.
    pub tickets: u8,
    /// `[shared]`: where the gateway shares the keys of tickets with others; `None`: nowhere.
    pub shared: Option<SharedConfig>,
    /// How clients authenticate themselves.
    pub clients: ClientsConfig,
    /// The handshake cache.
    pub cache: Option<CacheConfig>,
    /// The storage of associations while no gateway runs; `None`: they end with it.
    pub frozen: Option<FrozenConfig>,
    /// Limits on clients.
    pub limits: Limits,
    /// The routes in order of preference; at least one.
    pub routes: Vec<RouteConfig>,
    /// The place of the table.
    pub place: Place,
}

impl ListenerConfig {
    /// Reads the table. Faults are reported, and values with faults left out.
    pub(super) fn read(mut section: Section<'_>, defaults: &Limits) -> Self {
        let place = section.place().clone();
        let listen = section.read("listen", ADDRESS, |value| addresses::parse(value.as_str()?).ok());
        let name = section.text("name").map(|name| name.value);
        let transports = [("tls", TransportKind::Tls), ("dtls", TransportKind::Dtls)];
        let transport = section.one_of("transport", &transports).unwrap_or(TransportKind::Tls);
        let policy = section.file("policy");
        let versions = versions(&mut section, policy.is_some());
        let certificates: Vec<_> =
            section.tables("certificate").into_iter().filter_map(OwnFiles::read).collect();
        check_names(certificates.iter().filter_map(OwnFiles::name), policy.is_some(), &section);
        let raw_public_key = section.switch("raw_public_key").unwrap_or(false);
        let tickets = section.number("tickets", TICKETS, 0, 10).and_then(|n| n.try_into().ok()).unwrap_or(2);
        let clients = match section.table("clients") {
            Some(clients) => {
                let dids: Vec<_> = certificates.iter().filter_map(OwnFiles::did).collect();
                ClientsConfig::read(clients, policy.is_some(), &dids)
            }
            None => ClientsConfig::none(place.clone()),
        };
        let cache = section.table("cache").and_then(cache);
        let frozen = section.table("frozen").and_then(FrozenConfig::read);
        if let Some(frozen) = frozen.as_ref().filter(|_| transport == TransportKind::Tls) {
            let what = "only DTLS associations survive a restart";
            section.fault(frozen.place.fault(what, "write transport = \"dtls\", or leave this table out"));
        }
        let redirect = section.table("redirect").and_then(RedirectConfig::read);
        if let Some(redirect) = &redirect
            && (policy.is_none() || transport == TransportKind::Dtls)
        {
            let what = "a redirection is a hint for the policy of a listener with transport = \"tls\"";
            section.fault(redirect.place.fault(what, "add the key policy, or leave this table out"));
        }
        let mut own_limits = section.table("limits");
        let limits = Limits::read(own_limits.as_mut(), defaults);
        if limits.forget_time < limits.silent_time && transport == TransportKind::Dtls {
            let table = own_limits.as_ref().map_or(&place, |limits| limits.place());
            let what = "forget_time is shorter than silent_time";
            section.fault(table.fault(what, "write a longer forget_time, or a shorter silent_time"));
        }
        if let Some(own_limits) = own_limits {
            own_limits.end();
        }
        let routes = section.tables("route");
        if !section.has("route") {
            section.missing("route", "add a table [[listener.route]] with the address of the backend");
        }
        let routes: Vec<_> =
            routes.into_iter().enumerate().map(|(i, route)| RouteConfig::read(route, i, transport)).collect();
        if !section.has("certificate") && clients.psk.is_none() {
            let advice = "add a table [[listener.certificate]], or psk in [listener.clients]";
            section.missing("certificate", advice);
        }
        if let Some(did) = certificates.iter().find_map(OwnFiles::did).filter(|_| !versions.tls13) {
            let what = "only TLS 1.3 and DTLS 1.3 have DIDs";
            section.fault(did.did.place.fault(what, "add \"1.3\" to versions, or leave did out"));
        }
        let has_http = routes.iter().any(|route| matches!(route.protocol, RouteProtocol::Http));
        if let Some(cache) = &cache
            && has_http
            && cache.mode != CacheMode::Rfc7924
        {
            let what = "servers behind a route with protocol = \"http\" get the certificates of clients, which this mode omits";
            section.fault(
                cache.place.fault(what, "write mode = \"rfc7924\", which omits those of the gateway alone"),
            );
        }
        if let Some(cache) = &cache
            && !has_http
            && cache.mode != CacheMode::Rfc7924
            && compares_keys(&routes, &clients)
        {
            let what = "allow compares the keys of certificates, which this mode omits";
            let advice = "write mode = \"rfc7924\", or compare fingerprint instead of key";
            section.fault(cache.place.fault(what, advice));
        }
        if let Some(frozen) = &frozen
            && compares_keys(&routes, &clients)
        {
            let what = "allow compares the keys of certificates, which frozen associations omit";
            section.fault(frozen.place.fault(what, "compare fingerprint instead of key"));
        }
        let is_anonymous = !clients.trusts() && clients.psk.is_none();
        if let Some(place) =
            routes.iter().find_map(|route| route.access.by_identity()).filter(|_| is_anonymous)
        {
            let what = "this entry admits nobody, because clients of this listener prove no identity";
            section.fault(place.fault(what, "add ca, raw_keys, vc_issuers or psk to [listener.clients]"));
        }
        if !certificates.is_empty() && clients.needs_psk() {
            let what = "the certificates have no effect, because clients can authenticate by psk only";
            let advice = "add ca or raw_keys to [listener.clients], write verify = \"none\" there, or leave the certificates out";
            section.fault(clients.place.fault(what, advice));
        }
        if !section.has("listen") {
            section.missing("listen", ADDRESS.allowed);
        }
        section.end();
        let (listen, name) = named(listen, name, &place);
        Self {
            name,
            listen,
            transport,
            policy,
            redirect,
            versions,
            certificates,
            raw_public_key,
            tickets,
            shared: None,
            clients,
            cache,
            frozen,
            limits,
            routes,
            place,
        }
    }

    /// How DIDs travel.
    pub(crate) fn messages(&self) -> SsiMessages {
        let own = self.certificates.iter().filter_map(OwnFiles::did);
        self.clients.credentials.messages(own)
    }

    /// A warning if the handshake cache, or its store, can never have an entry.
    pub(crate) fn idle_cache(&self) -> Option<Fault> {
        let CacheConfig { mode, store, place, .. } = self.cache.as_ref()?;
        let messages = self.messages();
        let alone = matches!(messages, SsiMessages::Alone | SsiMessages::Links);
        let is_certificate =
            |own: &OwnFiles| own.did().is_none_or(|own| self.versions.tls13 && !alone && !own.is_bare());
        let ClientsConfig { verify, ca, raw_keys, credentials, .. } = &self.clients;
        let has_clients = *verify != Verify::None
            && *mode != CacheMode::Rfc7924
            && (!ca.is_empty() || !raw_keys.is_empty() || (credentials.issuers.is_some() && !alone));
        let (what, advice) = match (self.certificates.is_empty(), store) {
            (true, _) => {
                ("clients authenticate by psk only, so no certificate can be cached", "leave this table out")
            }
            (false, _) if !has_clients && !self.certificates.iter().any(is_certificate) => (
                "DIDs travel in messages of their own here, and the cache keeps certificates only",
                "leave this table out",
            ),
            (false, Some(_)) if *mode == CacheMode::Rfc7924 => (
                "in mode rfc7924 the gateway caches nothing itself, so store has no effect",
                "leave store out, or use another mode",
            ),
            (false, Some(_)) if !has_clients => (
                "clients prove no identity by certificate, so store has no effect",
                "leave store out, or add ca, raw_keys or vc_issuers to [listener.clients]",
            ),
            _ => return None,
        };
        Some(place.fault(what, advice))
    }

    /// Whether sessions must have the certificates of clients.
    pub(crate) fn needs_certificates(&self) -> bool {
        let is_http = |route: &RouteConfig| matches!(route.protocol, RouteProtocol::Http);
        self.routes.iter().any(is_http) || compares_keys(&self.routes, &self.clients)
    }

    /// Whether sessions and cache entries must have subject, issuer and e-mail addresses of clients.
    pub(crate) fn needs_details(&self) -> bool {
        self.routes.iter().any(|route| route.access.needs_details())
    }
}

/// The address and the name of a listener. Without a valid address, which is a fault, both are unlike those
/// of the other listeners.
pub(crate) fn named(
    listen: Option<Field<SocketAddr>>,
    name: Option<String>,
    table: &Place,
) -> (Field<SocketAddr>, String) {
    let usual = listen.as_ref().map_or_else(|| table.to_string(), |listen| listen.value.to_string());
    let none = || Field { value: SocketAddr::from(([127, 0, 0, 1], 0)), place: table.clone() };
    (listen.unwrap_or_else(none), name.unwrap_or(usual))
}

/// Whether a route admits clients by the keys of their certificates.
fn compares_keys(routes: &[RouteConfig], clients: &ClientsConfig) -> bool {
    !clients.ca.is_empty() && routes.iter().any(|route| route.access.needs_certificate())
}

/// Reads the application protocols.
pub(crate) fn alpn(section: &mut Section<'_>) -> Vec<Vec<u8>> {
    let protocol = |value: &DeValue<'_>| {
        let name = value.as_str()?.as_bytes().to_vec();
        (1..=255).contains(&name.len()).then_some(name)
    };
    let names = section.list("alpn", PROTOCOL, protocol);
    names.into_iter().flatten().map(|name| name.value).collect()
}

/// Reads the enabled versions: by default both.
pub(crate) fn versions(section: &mut Section<'_>, has_policy: bool) -> Versions {
    let parse = |value: &DeValue<'_>| match value.as_str()? {
        "1.2" => Some(false),
        "1.3" => Some(true),
        _ => None,
    };
    match section.list("versions", VERSION, parse) {
        Some(list) if has_policy => {
            if let Some(first) = list.first() {
                let what = "the profiles of the policy say which versions are enabled";
                section.fault(first.place.fault(what, "leave versions out, or the key policy"));
            }
            Versions { tls12: true, tls13: true }
        }
        None => Versions { tls12: true, tls13: true },
        Some(list) => Versions {
            tls12: list.iter().any(|version| !version.value),
            tls13: list.is_empty() || list.iter().any(|version| version.value),
        },
    }
}

impl ClientsConfig {
    fn none(place: Place) -> Self {
        Self {
            verify: Verify::None,
            ca: vec![],
            crl: vec![],
            raw_keys: vec![],
            credentials: CredentialTrust::default(),
            psk: None,
            psk_without_dhe: false,
            place,
        }
    }

    /// Whether certificates, raw keys or credentials of clients are trusted.
    pub(crate) const fn trusts(&self) -> bool {
        !self.ca.is_empty() || !self.raw_keys.is_empty() || self.credentials.trusts()
    }

    /// Whether a pre-shared key is the only way to authenticate, and clients must.
    pub(crate) const fn needs_psk(&self) -> bool {
        matches!(self.verify, Verify::Required) && self.psk.is_some() && !self.trusts()
    }

    fn read(mut section: Section<'_>, has_policy: bool, own: &[&OwnCredential]) -> Self {
        let place = section.place().clone();
        let verify = section.one_of(
            "verify",
            &[("none", Verify::None), ("optional", Verify::Optional), ("required", Verify::Required)],
        );
        if has_policy && section.has("verify") {
            let what = "the profiles of the policy say how clients authenticate";
            section.fault(place.fault(what, "leave verify out, or the key policy"));
        }
        let (ca, crl) = (section.files("ca"), section.files("crl"));
        let raw_keys = section.files("raw_keys");
        let credentials = CredentialTrust::read(&mut section, own);
        let psk = section.file("psk");
        let psk_without_dhe = section.switch("psk_without_dhe").unwrap_or(false);
        let trusts = !ca.is_empty() || !raw_keys.is_empty() || credentials.trusts();
        // Trust that nothing demands must not look like protection.
        let verify = match has_policy {
            // Each profile states its own demand.
            true => Verify::Optional,
            false => verify.unwrap_or(if trusts || psk.is_some() { Verify::Required } else { Verify::None }),
        };
        if !has_policy && verify != Verify::None && !trusts && psk.is_none() {
            let what = "verify demands an identity, but no ca, raw_keys, vc_issuers, dids or psk is given";
            section.fault(place.fault(what, "add one of them"));
        }
        if verify == Verify::None && trusts {
            let what =
                "clients are not asked for certificates, but ca, raw_keys, vc_issuers or dids trusts some";
            section
                .fault(place.fault(what, "write verify = \"required\" or \"optional\", or leave them out"));
        }
        if !crl.is_empty() && ca.is_empty() {
            section.fault(place.fault("crl has no effect without ca", "add ca, or leave crl out"));
        }
        section.end();
        Self { verify, ca, crl, raw_keys, credentials, psk, psk_without_dhe, place }
    }
}

/// Reads the table of a handshake cache.
pub(crate) fn cache(mut section: Section<'_>) -> Option<CacheConfig> {
    let place = section.place().clone();
    let modes =
        [("rfc7924", CacheMode::Rfc7924), ("bithac", CacheMode::Bithac), ("compact", CacheMode::Compact)];
    let mode = section.one_of("mode", &modes);
    let forms = "write the name of a file, sqlite:FILE or redis://HOST:PORT/DB";
    let store = store::store(&mut section, "store", forms);
    let key = section.file("key");
    let max_age = section.duration("max_age").unwrap_or(DEFAULT_MAX_AGE);
    if !section.has("mode") {
        section.missing("mode", "write \"compact\", which saves the most bytes, \"bithac\" or \"rfc7924\"");
    }
    section.end();
    Some(CacheConfig { mode: mode?, store, key, max_age, place })
}

impl RouteConfig {
    fn read(mut section: Section<'_>, index: usize, transport: TransportKind) -> Self {
        let place = section.place().clone();
        let sni = section.list("sni", SERVER_NAME, |value| NamePattern::parse(value.as_str()?));
        let alpn = alpn(&mut section);
        let to = section.read("to", BACKEND, |value| host_and_port(value.as_str()?));
        let name = section.text("name").map(|name| name.value);
        let proxy_protocol = section.switch("proxy_protocol").unwrap_or(false);
        let remote = section.switch("remote").unwrap_or(false);
        let protocol = route_protocol(&mut section, transport);
        let access = Access::read(&mut section);
        match &to {
            None if section.has("to") => {}
            None => section.missing("to", BACKEND.allowed),
            // ghostunnel's rule: data that TLS protected must not leave the machine unprotected by accident.
            Some(to) if !remote && !is_local(&to.value) => section.fault(to.place.fault(
                format!("{} is on another machine, and the way to it is not encrypted", to.value),
                "name an address of this machine, or write remote = true if that network is trusted",
            )),
            Some(_) => {}
        }
        section.end();
        Self {
            name: name.unwrap_or_else(|| index.to_string()),
            sni: sni.into_iter().flatten().map(|field| field.value).collect(),
            alpn,
            protocol: protocol.unwrap_or(RouteProtocol::Tcp),
            to: to.unwrap_or_else(|| Field { value: String::new(), place: place.clone() }),
            proxy_protocol,
            access,
            place,
        }
    }
}

/// Reads the protocol, and the keys that belong to it.
fn route_protocol(section: &mut Section<'_>, transport: TransportKind) -> Option<RouteProtocol> {
    if transport == TransportKind::Dtls {
        if section.has("protocol") {
            section.one_of("protocol", &[("udp", ())])?;
        }
        let sources = section.list("source", SOURCE, |value| value.as_str()?.parse::<IpAddr>().ok());
        let sources = sources.into_iter().flatten().map(|source| source.value);
        return Some(RouteProtocol::Udp(sources.collect()));
    }
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Word {
        Tcp,
        Http,
        Mqtt,
    }
    let protocol = match section.has("protocol") {
        true => section.one_of("protocol", &[("tcp", Word::Tcp), ("http", Word::Http), ("mqtt", Word::Mqtt)]),
        false => Some(Word::Tcp),
    };
    if protocol? == Word::Http {
        return Some(RouteProtocol::Http);
    }
    if protocol? == Word::Mqtt {
        let names = [("name", UserName::Name), ("typed", UserName::Typed)];
        let user_name = section.one_of("user_name", &names).unwrap_or(UserName::Name);
        let password = section.file("password_file");
        return Some(RouteProtocol::Mqtt(MqttConfig { user_name, password }));
    }
    Some(RouteProtocol::Tcp)
}

/// The text itself, if it is a host with a port.
pub(crate) fn host_and_port(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let is_host = match host.strip_prefix('[') {
        Some(v6) => v6.strip_suffix(']')?.parse::<IpAddr>().is_ok(),
        None => !host.is_empty() && !host.contains(':') && !host.contains(char::is_whitespace),
    };
    (is_host && port.parse::<u16>().is_ok_and(|port| port != 0)).then(|| text.to_owned())
}

/// The host of a host with a port, without the brackets of an IPv6 address.
pub(crate) fn host_of(to: &str) -> &str {
    let host = to.rsplit_once(':').map_or(to, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether this host is the machine itself.
fn is_local(to: &str) -> bool {
    let host = host_of(to);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Checks the names and addresses of listeners against each other.
pub(super) fn check_together(
    listeners: &[ListenerConfig],
    admin: Option<&AdminConfig>,
    faults: &RefCell<Vec<Fault>>,
) {
    let mut addresses = of_admin(admin);
    for redirect in listeners.iter().filter_map(|listener| listener.redirect.as_ref()) {
        check_address(&redirect.listen, false, &mut addresses, faults);
    }
    let sockets = listeners.iter().map(|listener| {
        (&listener.listen, listener.transport == TransportKind::Dtls, &*listener.name, &listener.place)
    });
    check_unique(sockets, addresses, faults);
    acme::check_together(listeners, faults);
    let mut files = HashMap::new();
    for frozen in listeners.iter().filter_map(|listener| listener.frozen.as_ref()) {
        if let Some(first) = files.insert(&frozen.file.value, &frozen.place) {
            let what = format!("{} is also the file of {first}", frozen.file.value.display());
            faults.borrow_mut().push(frozen.file.place.fault(what, "give each listener a file of its own"));
        }
    }
    for listener in listeners {
        let mut names = HashMap::new();
        for route in &listener.routes {
            if let Some(first) = names.insert(&route.name, &route.place) {
                let what = format!("the name {:?} is also that of {first}", route.name);
                faults.borrow_mut().push(route.place.fault(what, "give each route a name of its own"));
            }
        }
    }
}

/// The addresses of sockets, whether they are for datagrams, and their places.
pub(crate) type Addresses<'a> = Vec<(SocketAddr, bool, &'a Place)>;

/// The address of the administrative listener.
pub(crate) fn of_admin(admin: Option<&AdminConfig>) -> Addresses<'_> {
    admin.map(|admin| (admin.listen.value, false, &admin.listen.place)).into_iter().collect()
}

/// Checks that each listener has a name of its own, and an address of its own that is not among `addresses`.
/// A listener is its address, whether it receives datagrams, its name, and the place of its table.
pub(crate) fn check_unique<'a>(
    listeners: impl Iterator<Item = (&'a Field<SocketAddr>, bool, &'a str, &'a Place)>,
    mut addresses: Addresses<'a>,
    faults: &RefCell<Vec<Fault>>,
) {
    let mut names = HashMap::new();
    for (address, is_datagram, name, table) in listeners {
        check_address(address, is_datagram, &mut addresses, faults);
        if let Some(first) = names.insert(name, table) {
            let what = format!("the name {name:?} is also that of {first}");
            faults.borrow_mut().push(table.fault(what, "give each listener a name of its own"));
        }
    }
}

fn check_address<'a>(
    Field { value: address, place }: &'a Field<SocketAddr>,
    is_datagram: bool,
    addresses: &mut Addresses<'a>,
    faults: &RefCell<Vec<Fault>>,
) {
    // The kernel lets one socket of a family have a port on all addresses, and then none on a single one.
    let is_taken = |other: &SocketAddr| {
        let is_covered = other == address || [other, address].iter().any(|of| of.ip().is_unspecified());
        other.port() == address.port() && other.is_ipv4() == address.is_ipv4() && is_covered
    };
    let first = addresses.iter().find(|(other, kind, _)| *kind == is_datagram && is_taken(other));
    if let Some((other, _, first)) = first.filter(|_| address.port() != 0) {
        let what = match other == address {
            true => format!("{address} is also the address of {first}"),
            false => format!("{address} has the port of {other}, the address of {first}"),
        };
        faults.borrow_mut().push(place.fault(what, "give each listener an address of its own"));
    }
    addresses.push((*address, is_datagram, place));
}
