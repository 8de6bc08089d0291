//! NATs: they share a public address among the hosts behind them, and decide which packets come in.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How a NAT chooses public ports and filters packets: the classical names of RFC 3489 §5, which RFC 4787
/// §4.1 and §5 replace by mapping and filtering behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NatKind {
    /// A socket has one public port, to which every host may send.
    FullCone,
    /// A socket has one public port, to which hosts may send that it has sent to, from any port.
    AddressRestricted,
    /// A socket has one public port, to which sockets may send that it has sent to.
    PortRestricted,
    /// A socket has a public port for each socket that it sends to, and only that one may send there.
    Symmetric,
}

impl NatKind {
    /// All kinds, the most permissive first.
    pub const ALL: [Self; 4] =
        [Self::FullCone, Self::AddressRestricted, Self::PortRestricted, Self::Symmetric];

    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FullCone => "full_cone",
            Self::AddressRestricted => "address_restricted",
            Self::PortRestricted => "port_restricted",
            Self::Symmetric => "symmetric",
        }
    }
}

/// The ports that a NAT chooses from: all that need no privileges.
const FIRST_PORT: u16 = 1024;

/// A NAT with one public address. Its public ports are random, but reproducible from a seed.
#[derive(Clone, Debug)]
pub struct Nat {
    kind: NatKind,
    public: IpAddr,
    timeout: Duration,
    random: fastrand::Rng,
    mappings: Vec<Mapping>,
}

/// A public port and the socket that has it.
#[derive(Clone, Debug)]
struct Mapping {
    inside: SocketAddr,
    /// The only destination, behind a symmetric NAT.
    destination: Option<SocketAddr>,
    port: u16,
    /// Where the socket has sent through this port.
    sent_to: BTreeSet<SocketAddr>,
    /// When it has last sent.
    used_at: Duration,
}

impl Nat {
    /// A NAT that forgets a mapping `timeout` after the last packet from inside. Packets from outside do not
    /// keep it alive (RFC 4787 §4.3).
    pub fn new(kind: NatKind, public: IpAddr, timeout: Duration, seed: u64) -> Self {
        Self { kind, public, timeout, random: fastrand::Rng::with_seed(seed), mappings: Vec::new() }
    }

    /// The public address.
    pub const fn public(&self) -> IpAddr {
        self.public
    }

    /// The kind.
    pub const fn kind(&self) -> NatKind {
        self.kind
    }

    /// The number of mappings at the time `at` since the beginning.
    pub fn mappings(&mut self, at: Duration) -> usize {
        self.expire(at);
        self.mappings.len()
    }

    /// Forgets all mappings, as after a restart.
    pub fn restart(&mut self) {
        self.mappings.clear();
    }

    /// Lets a packet out at the time `at`. Returns its public source; `None` if no public port is free.
    pub fn outbound(&mut self, at: Duration, from: SocketAddr, to: SocketAddr) -> Option<SocketAddr> {
        self.expire(at);
        let destination = (self.kind == NatKind::Symmetric).then_some(to);
        let is_wanted = |mapping: &Mapping| mapping.inside == from && mapping.destination == destination;
        let index = match self.mappings.iter().position(is_wanted) {
            Some(index) => index,
            None => {
                let port = self.free_port()?;
                let sent_to = BTreeSet::new();
                self.mappings.push(Mapping { inside: from, destination, port, sent_to, used_at: at });
                self.mappings.len() - 1
            }
        };
        let mapping = self.mappings.get_mut(index)?;
        mapping.sent_to.insert(to);
        mapping.used_at = at;
        Some(SocketAddr::new(self.public, mapping.port))
    }

    /// Lets a packet in at the time `at`. Returns the socket inside that receives it, if there is one and the
    /// NAT permits it.
    pub fn inbound(&mut self, at: Duration, from: SocketAddr, to: SocketAddr) -> Option<SocketAddr> {
        self.expire(at);
        let mapping = self.mappings.iter().find(|mapping| mapping.port == to.port())?;
        let is_permitted = match self.kind {
            NatKind::FullCone => true,
            NatKind::AddressRestricted => mapping.sent_to.iter().any(|sent| sent.ip() == from.ip()),
            NatKind::PortRestricted | NatKind::Symmetric => mapping.sent_to.contains(&from),
        };
        is_permitted.then_some(mapping.inside)
    }

    fn expire(&mut self, at: Duration) {
        let timeout = self.timeout;
        self.mappings.retain(|mapping| at.saturating_sub(mapping.used_at) < timeout);
    }

    /// A random free port.
    fn free_port(&mut self) -> Option<u16> {
        let used: BTreeSet<_> = self.mappings.iter().map(|mapping| mapping.port).collect();
        let first = self.random.u16(FIRST_PORT..);
        (first..=u16::MAX).chain(FIRST_PORT..first).find(|port| !used.contains(port))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);
    const NOW: Duration = Duration::ZERO;

    const fn socket(host: u8, port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), port)
    }

    const INSIDE: SocketAddr = socket(1, 5000);
    const PEER: SocketAddr = socket(9, 4433);
    const OTHER_PORT: SocketAddr = socket(9, 4434);
    const OTHER_HOST: SocketAddr = socket(8, 4433);

    fn nat(kind: NatKind) -> Nat {
        Nat::new(kind, IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), TIMEOUT, 7)
    }

    /// RFC 3489 §5, kind by kind.
    #[test]
    fn filters_by_kind() {
        use NatKind::{AddressRestricted, FullCone, PortRestricted, Symmetric};
        let expected = [
            (FullCone, [true, true, true]),
            (AddressRestricted, [true, true, false]),
            (PortRestricted, [true, false, false]),
            (Symmetric, [true, false, false]),
        ];
        for (kind, expected) in expected {
            let mut nat = nat(kind);
            let public = nat.outbound(NOW, INSIDE, PEER).unwrap();
            assert_eq!(public.ip(), nat.public());
            let comes_in = [PEER, OTHER_PORT, OTHER_HOST].map(|from| nat.inbound(NOW, from, public));
            assert_eq!(comes_in, expected.map(|permitted| permitted.then_some(INSIDE)), "{kind:?}");
            assert_eq!(nat.inbound(NOW, PEER, SocketAddr::new(public.ip(), public.port() ^ 1)), None);
        }
    }

    #[test]
    fn only_a_symmetric_nat_has_a_port_for_each_destination() {
        for kind in NatKind::ALL {
            let mut nat = nat(kind);
            let ports = [PEER, OTHER_PORT, PEER].map(|to| nat.outbound(NOW, INSIDE, to).unwrap().port());
            assert_eq!(ports[0], ports[2]);
            assert_eq!(ports[0] == ports[1], kind != NatKind::Symmetric, "{kind:?}");
            // Another socket always has a port of its own.
            assert_ne!(nat.outbound(NOW, socket(2, 5000), PEER).unwrap().port(), ports[0]);
            assert_eq!(nat.inbound(NOW, OTHER_PORT, SocketAddr::new(nat.public(), ports[1])), Some(INSIDE));
        }
    }

    #[test]
    fn mappings_expire_unless_the_inside_sends() {
        let mut nat = nat(NatKind::FullCone);
        let public = nat.outbound(NOW, INSIDE, PEER).unwrap();
        let almost = TIMEOUT - Duration::from_millis(1);
        assert_eq!(nat.outbound(almost, INSIDE, PEER), Some(public));
        assert_eq!(nat.inbound(almost + almost, PEER, public), Some(INSIDE));
        // The packet from outside has not kept it alive.
        assert_eq!(nat.inbound(almost + TIMEOUT, PEER, public), None);
        assert_ne!(nat.outbound(almost + TIMEOUT, INSIDE, PEER), Some(public));
        nat.restart();
        assert_eq!(nat.mappings(almost + TIMEOUT), 0);
    }

    #[test]
    fn public_ports_are_reproducible_and_finite() {
        let ports = |seed| {
            let mut nat = Nat { random: fastrand::Rng::with_seed(seed), ..nat(NatKind::FullCone) };
            [1, 2, 3].map(|port| nat.outbound(NOW, socket(1, port), PEER).unwrap().port())
        };
        assert_eq!(ports(1), ports(1));
        assert_ne!(ports(1), ports(2));
        let mut full = nat(NatKind::FullCone);
        let mapping = |port| Mapping {
            inside: socket(1, port),
            destination: None,
            port,
            sent_to: BTreeSet::new(),
            used_at: NOW,
        };
        full.mappings = (FIRST_PORT..u16::MAX).map(mapping).collect();
        assert_eq!(full.outbound(NOW, socket(2, 1), PEER).map(|public| public.port()), Some(u16::MAX));
        assert_eq!(full.outbound(NOW, socket(2, 2), PEER), None);
    }
}
