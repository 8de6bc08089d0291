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
