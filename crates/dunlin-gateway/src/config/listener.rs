//! The tables `[[listener]]`: where clients connect, who may connect, and where their data goes.

use std::net::SocketAddr;

use dunlin::SsiMessages;
use dunlin::cache::CacheMode;
use dunlin_tokio::addresses;

use super::cache::cache;
use super::certificate::check_names;
use super::transport::versions;
use super::{
    ADDRESS, CacheConfig, ClientsConfig, Fault, Field, FileField, FrozenConfig, Kind, Limits, OwnFiles,
    Place, RedirectConfig, RouteConfig, RouteProtocol, Section, SharedConfig, TransportKind, Verify,
    Versions,
};

const TICKETS: Kind = Kind { name: "a number from 0 to 10", allowed: "0 disables resumption" };
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

/// The parts of a listener that must fit together, in the order of their faults.
const CHECKS: [fn(&ListenerConfig) -> Option<Fault>; 8] = [
    ListenerConfig::freezes_streams,
    ListenerConfig::redirects_without_policy,
    ListenerConfig::has_did_without_13,
    ListenerConfig::omits_certificates_for_http,
    ListenerConfig::caches_without_keys,
    ListenerConfig::freezes_without_keys,
    ListenerConfig::admits_unknown_clients,
    ListenerConfig::has_idle_certificates,
];

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
        let redirect = section.table("redirect").and_then(RedirectConfig::read);
        let limits = limits(&mut section, transport, defaults);
        let routes = routes(&mut section, transport);
        if !section.has("certificate") && clients.psk.is_none() {
            let advice = "add a table [[listener.certificate]], or psk in [listener.clients]";
            section.missing("certificate", advice);
        }
        if !section.has("listen") {
            section.missing("listen", ADDRESS.allowed);
        }
        let (listen, name) = named(listen, name, &place);
        let config = Self {
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
        };
        CHECKS.iter().filter_map(|check| check(&config)).for_each(|fault| section.fault(fault));
        section.end();
        config
    }

    fn freezes_streams(&self) -> Option<Fault> {
        let frozen = self.frozen.as_ref().filter(|_| self.transport == TransportKind::Tls)?;
        let what = "only DTLS associations survive a restart";
        Some(frozen.place.fault(what, "write transport = \"dtls\", or leave this table out"))
    }

    fn redirects_without_policy(&self) -> Option<Fault> {
        let redirect = self.redirect.as_ref()?;
        let what = "redirect needs a policy and transport = \"tls\"";
        (self.policy.is_none() || self.transport == TransportKind::Dtls)
            .then(|| redirect.place.fault(what, "add the missing one, or leave this table out"))
    }

    fn has_did_without_13(&self) -> Option<Fault> {
        let did = self.certificates.iter().find_map(OwnFiles::did).filter(|_| !self.versions.tls13)?;
        let what = "only TLS 1.3 and DTLS 1.3 have DIDs";
        Some(did.did.place.fault(what, "add \"1.3\" to versions, or leave did out"))
    }

    /// The handshake cache, if its mode omits certificates of clients.
    fn cache_without_clients(&self) -> Option<&CacheConfig> {
        self.cache.as_ref().filter(|cache| cache.mode != CacheMode::Rfc7924)
    }

    fn has_http(&self) -> bool {
        self.routes.iter().any(|route| matches!(route.protocol, RouteProtocol::Http))
    }

    fn omits_certificates_for_http(&self) -> Option<Fault> {
        let cache = self.cache_without_clients().filter(|_| self.has_http())?;
        let what = "servers behind a route with protocol = \"http\" get the certificates of clients, which this mode omits";
        Some(cache.place.fault(what, "write mode = \"rfc7924\", which omits those of the gateway alone"))
    }

    fn caches_without_keys(&self) -> Option<Fault> {
        let cache = self.cache_without_clients().filter(|_| !self.has_http() && self.compares_keys())?;
        let what = "allow compares the keys of certificates, which this mode omits";
        Some(cache.place.fault(what, "write mode = \"rfc7924\", or compare fingerprint instead of key"))
    }

    fn freezes_without_keys(&self) -> Option<Fault> {
        let frozen = self.frozen.as_ref().filter(|_| self.compares_keys())?;
        let what = "allow compares the keys of certificates, which frozen associations omit";
        Some(frozen.place.fault(what, "compare fingerprint instead of key"))
    }

    fn admits_unknown_clients(&self) -> Option<Fault> {
        if self.clients.trusts() || self.clients.psk.is_some() {
            return None;
        }
        let place = self.routes.iter().find_map(|route| route.access.by_identity())?;
        let what = "this entry admits no client, because clients of this listener prove no identity";
        Some(place.fault(what, "add ca, raw_keys, vc_issuers or psk to [listener.clients]"))
    }

    fn has_idle_certificates(&self) -> Option<Fault> {
        let what = "the certificates have no effect, because clients can authenticate by psk only";
        let advice = "add ca or raw_keys to [listener.clients], write verify = \"none\" there, or leave the certificates out";
        (!self.certificates.is_empty() && self.clients.needs_psk())
            .then(|| self.clients.place.fault(what, advice))
    }

    /// Whether a route admits clients by the keys of their certificates.
    fn compares_keys(&self) -> bool {
        !self.clients.ca.is_empty() && self.routes.iter().any(|route| route.access.needs_certificate())
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
        let alone = matches!(messages, SsiMessages::Alone);
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
        self.has_http() || self.compares_keys()
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

/// Reads the limits.
fn limits(section: &mut Section<'_>, transport: TransportKind, defaults: &Limits) -> Limits {
    let mut table = section.table("limits");
    let limits = Limits::read(table.as_mut(), defaults);
    if limits.forget_time < limits.silent_time && transport == TransportKind::Dtls {
        let place = table.as_ref().map_or_else(|| section.place(), |table| table.place());
        let what = "forget_time is shorter than silent_time";
        section.fault(place.fault(what, "write a longer forget_time, or a shorter silent_time"));
    }
    if let Some(table) = table {
        table.end();
    }
    limits
}

/// Reads the routes.
fn routes(section: &mut Section<'_>, transport: TransportKind) -> Vec<RouteConfig> {
    let tables = section.tables("route");
    if !section.has("route") {
        section.missing("route", "add a table [[listener.route]] with the address of the backend");
    }
    tables.into_iter().enumerate().map(|(i, route)| RouteConfig::read(route, i, transport)).collect()
}
