//! The parameters that a seed chooses, and the hosts of its network.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin::wire::ProtocolVersion;
use dunlin::{
    Endpoint, EndpointLimits, Instant, Migration, Multihoming, NodeIds, Now, PathCheck, PortScheme, Transmit,
};
use dunlin_sim::{Conditions, Host, Impaired, Link, MultiHomed, NatKind, Pooled};
use dunlin_tests::awslc;

use crate::common::{Configs, VERSIONS};

/// The mechanism that keeps the association when its client moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Connection IDs of these lengths, in bytes: those that the client gives, and the server's.
    Ids { client: usize, server: usize },
    /// A port of its own at the server.
    Port(PortScheme),
}

impl Scheme {
    fn is_ipc(self) -> bool {
        matches!(self, Self::Port(PortScheme::Ipc | PortScheme::IpcUnannounced))
    }
}

/// The component that chooses the client's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// The connection.
    Unlinkable,
    Linkable,
    Duplicated,
    /// The caller of the connection.
    Caller,
    /// The system, below an endpoint: the first interface that is up. The caller reports new addresses or
    /// not.
    System {
        reports: bool,
    },
}

impl Driver {
    fn multihoming(self) -> Option<Multihoming> {
        match self {
            Self::Unlinkable => Some(Multihoming::unlinkable()),
            Self::Linkable => Some(Multihoming::linkable()),
            Self::Duplicated => Some(Multihoming::duplicated()),
            Self::Caller | Self::System { .. } => None,
        }
    }
}

/// The parameters that a seed chooses.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) version: ProtocolVersion,
    pub(crate) scheme: Scheme,
    pub(crate) driver: Driver,
    /// `None`: both sides follow newer records without a check.
    pub(crate) check: Option<PathCheck>,
    pub(crate) nats: Vec<Option<NatKind>>,
    /// The time after which a NAT forgets a mapping.
    pub(crate) mapping: Duration,
    /// The ports of the server's pool.
    pub(crate) ports: u16,
    pub(crate) conditions: Conditions,
}

impl World {
    pub(crate) fn new(random: &mut fastrand::Rng) -> Self {
        let version = random.choice(VERSIONS).unwrap();
        let system = Driver::System { reports: random.bool() };
        let scheme = match random.u8(0..12) {
            n @ 0..4 => Scheme::Port(PORT_SCHEMES[usize::from(n)]),
            _ => Scheme::Ids { client: random.usize(0..=20), server: random.usize(1..=20) },
        };
        let driver = match (scheme, version) {
            (Scheme::Port(_), _) if scheme.is_ipc() => system,
            (Scheme::Port(_), _) => random.choice([Driver::Caller, system]).unwrap(),
            (Scheme::Ids { client: 0, .. }, _) => random.choice([Driver::Caller, system]).unwrap(),
            // Shorter IDs are likely to come twice, and observers link only longer ones.
            (Scheme::Ids { client: 4.., server: 4.. }, ProtocolVersion::DTLS1_3) if random.bool() => {
                Driver::Unlinkable
            }
            _ => random
                .choice([Driver::Linkable, Driver::Linkable, Driver::Duplicated, Driver::Caller, system])
                .unwrap(),
        };
        let kinds: Vec<_> = [None, None].into_iter().chain(NatKind::ALL.map(Some)).collect();
        let mut nats: Vec<_> = (0..random.usize(1..=3)).map(|_| *random.choice(&kinds).unwrap()).collect();
        // The matrix of docs/association-ports.md. After the handshake, the client itself sends to the port
        // first.
        if scheme.is_ipc() {
            nats[0] = nats[0].filter(|kind| matches!(kind, NatKind::FullCone | NatKind::AddressRestricted));
        }
        let check = match scheme {
            Scheme::Port(_) => None,
            Scheme::Ids { .. } => {
                random.choice([Some(PathCheck::Basic), Some(PathCheck::Enhanced), None]).unwrap()
            }
        };
        Self {
            version,
            scheme,
            driver,
            check,
            nats,
            mapping: Duration::from_secs(random.u64(30..300)),
            ports: random.u16(1..4),
            conditions: Conditions {
                delay: Duration::from_millis(random.u64(1..60)),
                jitter: Duration::from_millis(random.u64(0..20)),
                loss: random.f64() * 0.2,
                reorder: random.f64() * 0.2,
                duplicate: random.f64() * 0.3,
                ..Conditions::default()
            },
        }
    }

    /// The row and the column of the matrix.
    pub(crate) fn name(&self) -> String {
        let scheme = match self.scheme {
            Scheme::Ids { .. } => format!("connection IDs, {:?}", self.driver),
            Scheme::Port(scheme) => format!("{scheme:?}, {:?}", self.driver),
        };
        let nats: Vec<_> = self.nats.iter().map(|nat| nat.map_or("none", NatKind::name)).collect();
        format!("{}, {scheme}: {}", self.version, nats.join(" + "))
    }

    pub(crate) fn configs(&self) -> Configs {
        let mut configs = Configs::of_version(self.version);
        let migration = match self.check {
            Some(check) => Migration::new(check).with_timeout(Duration::from_millis(600)).unwrap(),
            None => Migration::never().with_unchecked(true),
        };
        (configs.client, configs.server) = match self.scheme {
            Scheme::Ids { client, server } => {
                let ids = |len| Arc::new(NodeIds::new(&[], len, awslc().random.clone()).unwrap());
                (
                    configs.client.with_connection_ids(ids(client)),
                    configs.server.with_connection_ids(ids(server)),
                )
            }
            Scheme::Port(scheme) => {
                (configs.client.with_port_scheme(scheme), configs.server.with_port_scheme(scheme))
            }
        };
        configs.client = configs.client.with_migration(migration);
        configs.server = configs.server.with_migration(migration);
        if let Some(multihoming) = self.driver.multihoming() {
            configs.client = configs.client.with_multihoming(multihoming).unwrap();
        }
        configs
    }

    /// Whether the client finds its server again after the server's address has changed. Without connection
    /// IDs, an endpoint finds it by its address only.
    pub(crate) fn follows_server(&self) -> bool {
        match self.scheme {
            Scheme::Ids { client, .. } => client > 0,
            Scheme::Port(_) => self.driver == Driver::Caller,
        }
    }

    pub(crate) fn links(&self, random: &mut fastrand::Rng, carries: &Arc<AtomicBool>) -> [Box<dyn Link>; 2] {
        [(); 2].map(|()| {
            let carries = Arc::clone(carries);
            let mut link = Impaired::new(self.conditions, random.u64(..));
            let link = move |at: Duration, datagram: Vec<u8>| {
                if carries.load(Ordering::Relaxed) { link.carry(at, datagram) } else { Vec::new() }
            };
            Box::new(link) as Box<dyn Link>
        })
    }
}

const PORT_SCHEMES: [PortScheme; 4] =
    [PortScheme::Ipc, PortScheme::IpcUnannounced, PortScheme::Tcs, PortScheme::TcsMessage];

/// The hosts of the network.
pub(crate) enum Side {
    Connection(Box<MultiHomed>),
    Endpoint(Box<Pooled>),
    Gone,
}

impl Side {
    fn host(&mut self) -> Option<&mut dyn Host> {
        match self {
            Self::Connection(client) => Some(&mut **client),
            Self::Endpoint(host) => Some(&mut **host),
            Self::Gone => None,
        }
    }
}

impl Host for Side {
    fn receive(&mut self, now: Now, at: SocketAddr, from: SocketAddr, datagram: &[u8]) {
        if let Some(host) = self.host() {
            host.receive(now, at, from, datagram);
        }
    }

    fn poll_transmit(&mut self, now: Now) -> Option<(SocketAddr, Transmit)> {
        self.host()?.poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Connection(client) => client.poll_timeout(),
            Self::Endpoint(host) => host.poll_timeout(),
            Self::Gone => None,
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        if let Some(host) = self.host() {
            host.handle_timeout(now);
        }
    }

    fn set_addresses(&mut self, now: Now, addresses: &[Option<IpAddr>]) {
        if let Some(host) = self.host() {
            host.set_addresses(now, addresses);
        }
    }
}

/// A host with an endpoint and a socket at this port.
pub(crate) fn endpoint_host(port: u16) -> Side {
    let endpoint = Endpoint::new(EndpointLimits::default());
    Side::Endpoint(Box::new(Pooled::new(endpoint, port, None).unwrap()))
}
