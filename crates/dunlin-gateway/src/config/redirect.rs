//! The table `[listener.redirect]`: a listener for plain HTTP that asks clients who they are, and sends them
//! on to HTTPS.

use std::net::SocketAddr;

use dunlin_tokio::addresses;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeValue;

use super::{ADDRESS, Field, Kind, NamePattern, Place, Section};
use crate::policy::Attribute;

const NAMES: Kind = Kind {
    name: "a wildcard name",
    allowed: "write it as in \"*.login.example.org\", which a certificate of the listener must cover",
};
const ATTRIBUTE: Kind = Kind {
    name: "an attribute that a URL may name",
    allowed: "write name, email, subject, issuer, dns, uri, fingerprint or key",
};
const PORTS: Kind = Kind {
    name: "a range of at most 256 ports",
    allowed: "write it as in \"9000-9031\"; the gateway listens on each of these ports",
};
const PORT: Kind = Kind { name: "a port", allowed: "write a number from 1 to 65535" };

/// How long a redirected client may take to come, unless the configuration says otherwise.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(30);

/// The most ports of a pool. Each takes a socket.
const MAX_PORTS: u16 = 256;

/// The link between a request over plain HTTP and the connection of the same client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// A one-time name below this domain.
    Name(String),
    /// A port of this pool, on the address of the listener.
    Port(RangeInclusive<u16>),
}

/// Redirection from plain HTTP, by which the gateway learns before the ServerHello who may be calling.
#[derive(Clone, Debug)]
pub struct RedirectConfig {
    /// The address to listen on for plain HTTP.
    pub listen: Field<SocketAddr>,
    /// The link between the request and the connection.
    pub join: Join,
    /// The attributes of clients that are taken from the query of the URL.
    pub attributes: Vec<Attribute>,
    /// The port for HTTPS in the new URL. `None`: the listener's port.
    pub port: Option<u16>,
    /// How long a one-time name waits for its client.
    pub lifetime: Duration,
    /// Whether a redirected client gets the profile of the client that it names, without a proof. Anyone can
    /// name any client: this is the paper's variant, for measurements.
    pub danger_unauthenticated: bool,
    /// The place of the table.
    pub place: Place,
}

/// The attributes of certificates. A redirection leads below the default only to a profile that demands one.
fn attribute(value: &DeValue<'_>) -> Option<Attribute> {
    let attribute = Attribute::from_key(value.as_str()?)?;
    let is_certified = !matches!(
        attribute,
        Attribute::Kind | Attribute::Psk | Attribute::Device | Attribute::Id | Attribute::Claim(_)
    );
    is_certified.then_some(attribute)
}

impl RedirectConfig {
    /// Reads the table. `None` if a fault leaves it unusable.
    pub(super) fn read(mut section: Section<'_>) -> Option<Self> {
        let place = section.place().clone();
        let listen = section.read("listen", ADDRESS, |value| addresses::parse(value.as_str()?).ok());
        let domain = section.read("names", NAMES, |value| {
            let name = value.as_str()?;
            NamePattern::parse(name)?;
            Some(name.strip_prefix("*.")?.to_ascii_lowercase())
        });
        let ports = section.read("ports", PORTS, |value| {
            let (first, last) = value.as_str()?.split_once('-')?;
            let ports: (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
            let is_range = ports.0 > 0 && ports.0 <= ports.1 && ports.1 - ports.0 < MAX_PORTS;
            is_range.then_some(ports.0..=ports.1)
        });
        let attributes = section.list("attributes", ATTRIBUTE, attribute).unwrap_or_default();
        let port = section.number("port", PORT, 1, u16::MAX.into()).and_then(|port| port.try_into().ok());
        let lifetime = section.duration("lifetime").unwrap_or(DEFAULT_LIFETIME);
        let danger_unauthenticated = section.switch("danger_redirect_unauthenticated").unwrap_or(false);
        if !section.has("listen") {
            section.missing("listen", ADDRESS.allowed);
        }
        if section.has("names") == section.has("ports") {
            let what = "either one-time names or ports join a request and a connection";
            section.fault(place.fault(what, "give names, or ports"));
        }
        let join = match (domain, ports) {
            (Some(domain), _) => Some(Join::Name(domain.value)),
            (None, ports) => ports.map(|ports| Join::Port(ports.value)),
        };
        section.end();
        let attributes = attributes.into_iter().map(|field| field.value).collect();
        Some(Self { listen: listen?, join: join?, attributes, port, lifetime, danger_unauthenticated, place })
    }
}
