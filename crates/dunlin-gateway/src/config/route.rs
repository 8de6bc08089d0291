//! The tables `[[listener.route]]`: which clients go to which backend.

use std::net::IpAddr;

use dunlin_tokio::addresses;
use toml::de::DeValue;

use super::{Field, FileField, Kind, NamePattern, Place, Section, TransportKind};
use crate::policy::Access;

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

/// Reads the application protocols.
pub(crate) fn alpn(section: &mut Section<'_>) -> Vec<Vec<u8>> {
    let protocol = |value: &DeValue<'_>| {
        let name = value.as_str()?.as_bytes().to_vec();
        (1..=255).contains(&name.len()).then_some(name)
    };
    let names = section.list("alpn", PROTOCOL, protocol);
    names.into_iter().flatten().map(|name| name.value).collect()
}

impl RouteConfig {
    /// Reads the table.
    pub(super) fn read(mut section: Section<'_>, index: usize, transport: TransportKind) -> Self {
        let place = section.place().clone();
        let sni = section.list("sni", SERVER_NAME, |value| {
            let name = value.as_str()?;
            NamePattern::parse(name.strip_suffix('.').unwrap_or(name))
        });
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
            Some(to) if !remote && !addresses::is_this_machine(host_of(&to.value)) => {
                section.fault(to.place.fault(
                    format!("{} is on another machine, and the way to it is not encrypted", to.value),
                    "name an address of this machine, or write remote = true if that network is trusted",
                ));
            }
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
    let protocol = if section.has("protocol") {
        section.one_of("protocol", &[("tcp", Word::Tcp), ("http", Word::Http), ("mqtt", Word::Mqtt)])
    } else {
        Some(Word::Tcp)
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
        Some(v6) => addresses::ip_of(v6.strip_suffix(']')?).is_some(),
        None => !host.is_empty() && !host.contains(':') && !host.contains(char::is_whitespace),
    };
    (is_host && port.parse::<u16>().is_ok_and(|port| port != 0)).then(|| text.to_owned())
}

/// The host of a host with a port, without the brackets of an IPv6 address, but with its zone.
pub(crate) fn host_of(to: &str) -> &str {
    let host = to.rsplit_once(':').map_or(to, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}
