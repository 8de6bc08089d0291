//! A network of hosts with several interfaces each, perhaps behind NATs.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dunlin::{DtlsConnection, Instant, Local, Now, Path, Transmit};

use crate::pair::{limited, settle};
use crate::{Endpoint, Link, Nat, Simulation, Unsettled};

/// A host of a [`Network`]: its sockets, and what uses them.
pub trait Host {
    /// Receives a datagram from `from` that was sent to its address `at`. The host ignores ports at which it
    /// has no socket.
    fn receive(&mut self, now: Now, at: SocketAddr, from: SocketAddr, datagram: &[u8]);

    /// The next datagram to send and its source, if there is one. A datagram from an address that the host
    /// does not have is lost.
    fn poll_transmit(&mut self, now: Now) -> Option<(SocketAddr, Transmit)>;

    /// The deadline of the host's next timer on its monotonic clock, if it has one.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Handles the timers whose deadline has come.
    fn handle_timeout(&mut self, now: Now);

    /// Learns the addresses of its interfaces, which have changed, in the order in which they were attached;
    /// `None` is down.
    fn set_addresses(&mut self, now: Now, addresses: &[Option<IpAddr>]);
}

/// A host with one socket that is bound to a port, but to no address: it sends from the first interface that
/// is up.
#[derive(Debug)]
pub struct OneSocket<E> {
    /// The user of the socket.
    pub endpoint: E,
    port: u16,
    address: Option<IpAddr>,
}

impl<E> OneSocket<E> {
    /// A host whose socket is bound to `port`.
    pub const fn new(endpoint: E, port: u16) -> Self {
        Self { endpoint, port, address: None }
    }
}

impl<E: Endpoint> Host for OneSocket<E> {
    fn receive(&mut self, now: Now, at: SocketAddr, from: SocketAddr, datagram: &[u8]) {
        if at.port() == self.port {
            self.endpoint.receive(now, from, datagram);
        }
    }

    fn poll_transmit(&mut self, now: Now) -> Option<(SocketAddr, Transmit)> {
        loop {
            let transmit = self.endpoint.poll_transmit(now)?;
            // Without an address the datagram is lost.
            if let Some(address) = self.address {
                return Some((SocketAddr::new(address, self.port), transmit));
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.endpoint.handle_timeout(now);
    }

    fn set_addresses(&mut self, _: Now, addresses: &[Option<IpAddr>]) {
        self.address = addresses.iter().flatten().next().copied();
    }
}

/// A host with one connection, and a socket for each of its interfaces: [`Local`] counts them in the order in
/// which they were attached.
pub struct MultiHomed {
    /// The connection, which keeps its error.
    pub connection: DtlsConnection,
    port: u16,
    addresses: Vec<Option<IpAddr>>,
    is_attentive: bool,
}

impl MultiHomed {
    /// A host whose sockets are bound to `port`.
    pub const fn new(connection: DtlsConnection, port: u16) -> Self {
        Self { connection, port, addresses: Vec::new(), is_attentive: false }
    }

    /// A host that also tells its connection which interfaces are up, in the order in which they were
    /// attached, and when an address has changed.
    pub const fn attentive(connection: DtlsConnection, port: u16) -> Self {
        Self { connection, port, addresses: Vec::new(), is_attentive: true }
    }
}

impl Host for MultiHomed {
    fn receive(&mut self, now: Now, at: SocketAddr, from: SocketAddr, datagram: &[u8]) {
        let interface = self.addresses.iter().position(|address| *address == Some(at.ip()));
        if at.port() == self.port
            && let Some(interface) = interface
        {
            let path = Path { local: Local(interface as u32), ..from.into() };
            let _ = self.connection.receive(now, path, datagram);
        }
    }

    fn poll_transmit(&mut self, now: Now) -> Option<(SocketAddr, Transmit)> {
        loop {
            let transmit = self.connection.poll_transmit(now)?;
            // Over an interface that is down the datagram is lost.
            if let Some(Some(address)) = self.addresses.get(transmit.local.0 as usize) {
                return Some((SocketAddr::new(*address, self.port), transmit));
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        let _ = self.connection.handle_timeout(now);
    }

    fn set_addresses(&mut self, now: Now, addresses: &[Option<IpAddr>]) {
        let before = std::mem::replace(&mut self.addresses, addresses.to_vec());
        if !self.is_attentive {
            return;
        }
        let locals = |fits: &dyn Fn(usize, IpAddr) -> bool| -> Vec<Local> {
            let up = addresses.iter().enumerate().filter(|(n, ip)| ip.is_some_and(|ip| fits(*n, ip)));
            up.map(|(n, _)| Local(n as u32)).collect()
        };
        // The connection keeps its error.
        let is_multihomed = self.connection.set_interfaces(now, &locals(&|_, _| true)).is_ok();
        // For a connection with several interfaces, one that comes up is another interface.
        let has_changed =
            |before: Option<IpAddr>, ip| before != Some(ip) && !(is_multihomed && before.is_none());
        let changed = locals(&|n, ip| before.get(n).is_some_and(|before| has_changed(*before, ip)));
        for local in changed {
            let _ = self.connection.address_changed(now, local);
        }
    }
}

/// Hosts of different kinds in one network.
impl<H: Host + ?Sized> Host for Box<H> {
    fn receive(&mut self, now: Now, at: SocketAddr, from: SocketAddr, datagram: &[u8]) {
        (**self).receive(now, at, from, datagram);
    }

    fn poll_transmit(&mut self, now: Now) -> Option<(SocketAddr, Transmit)> {
        (**self).poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (**self).poll_timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        (**self).handle_timeout(now);
    }

    fn set_addresses(&mut self, now: Now, addresses: &[Option<IpAddr>]) {
        (**self).set_addresses(now, addresses);
    }
}

/// A host of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(usize);

/// An interface of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceId(usize);

/// A NAT of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NatId(usize);

/// A change of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The interface gets another address; with `None` it goes down. Packets to its previous address are
    /// lost.
    Address(InterfaceId, Option<IpAddr>),
    /// The NAT forgets its mappings.
    Restart(NatId),
}

/// A datagram that a host has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentBy {
    /// The time since the beginning.
    pub after: Duration,
    /// The host.
    pub host: HostId,
    /// The source, as the host sees it.
    pub from: SocketAddr,
    /// The destination.
    pub to: SocketAddr,
    /// The content.
    pub datagram: Vec<u8>,
}

struct Interface {
    host: HostId,
    address: Option<IpAddr>,
    nat: Option<NatId>,
    up: Box<dyn Link>,
    down: Box<dyn Link>,
}

struct Packet {
    from: SocketAddr,
    to: SocketAddr,
    datagram: Vec<u8>,
}

enum Event {
    /// A packet has left the link of a sender.
    AtRouter(InterfaceId, Packet),
    /// A packet has left the link of a receiver.
    AtHost(InterfaceId, Packet),
    Change(Change),
}

/// Hosts that exchange datagrams. Every interface has a link in each direction to one router in the middle,
/// directly or through a NAT. The router delivers at once what the links have carried.
pub struct Network<H> {
    /// The current time of all hosts.
    pub now: Now,
    /// All datagrams that hosts have sent so far, in order.
    pub sent: Vec<SentBy>,
    start: Now,
    clock: Duration,
    hosts: Vec<H>,
    interfaces: Vec<Interface>,
    nats: Vec<Nat>,
    /// Ordered by time, then by the order of their making.
    events: BTreeMap<(Duration, usize), Event>,
    made: usize,
}

impl<H: Host> Network<H> {
    /// A network without hosts.
    pub const fn new(now: Now) -> Self {
        Self {
            now,
            sent: Vec::new(),
            start: now,
            clock: Duration::ZERO,
            hosts: Vec::new(),
            interfaces: Vec::new(),
            nats: Vec::new(),
            events: BTreeMap::new(),
            made: 0,
        }
    }

    /// Adds a host without interfaces.
    pub fn add(&mut self, host: H) -> HostId {
        self.hosts.push(host);
        HostId(self.hosts.len() - 1)
    }

    /// Adds a NAT. Its public address must not be the address of an interface.
    pub fn add_nat(&mut self, nat: Nat) -> NatId {
        self.nats.push(nat);
        NatId(self.nats.len() - 1)
    }

    /// Gives a host an interface with an address, behind a NAT if it has one. `up` carries what the host
    /// sends, `down` what it receives. Addresses behind different NATs may be equal.
    pub fn attach(
        &mut self,
        host: HostId,
        address: IpAddr,
        nat: Option<NatId>,
        [up, down]: [Box<dyn Link>; 2],
    ) -> InterfaceId {
        self.interfaces.push(Interface { host, address: None, nat, up, down });
        let interface = InterfaceId(self.interfaces.len() - 1);
        self.change(Change::Address(interface, Some(address)));
        interface
    }

    /// A host.
    ///
    /// # Panics
    /// It is a host of another network.
    pub fn host(&mut self, id: HostId) -> &mut H {
        &mut self.hosts[id.0]
    }

    /// A NAT.
    ///
    /// # Panics
    /// It is a NAT of another network.
    pub fn nat(&mut self, id: NatId) -> &mut Nat {
        &mut self.nats[id.0]
    }

    /// The time since the beginning.
    pub const fn elapsed(&self) -> Duration {
        self.clock
    }

    /// Changes the network now.
    pub fn change(&mut self, change: Change) {
        match change {
            Change::Restart(nat) => self.nat(nat).restart(),
            Change::Address(interface, address) => {
                let interface = &mut self.interfaces[interface.0];
                interface.address = address;
                let host = interface.host;
                let of_host = self.interfaces.iter().filter(|interface| interface.host == host);
                let addresses: Vec<_> = of_host.map(|interface| interface.address).collect();
                self.hosts[host.0].set_addresses(self.now, &addresses);
            }
        }
    }

    /// Changes the network after this time. A [`run`](Self::run) does not end before.
    pub fn schedule(&mut self, after: Duration, change: Change) {
        self.happen(after, Event::Change(change));
    }

    /// Carries datagrams and lets timers expire, until no event is left.
    ///
    /// # Errors
    /// [`Unsettled`] if the hosts keep sending.
    pub fn run(&mut self) -> Result<(), Unsettled> {
        settle(self)
    }

    /// Does the same for this time, and advances the clock to its end.
    ///
    /// # Errors
    /// [`Unsettled`] if the hosts send too much in this time.
    pub fn run_for(&mut self, time: Duration) -> Result<(), Unsettled> {
        let end = self.clock + time;
        limited(self, end)?;
        self.advance(end);
        Ok(())
    }

    fn advance(&mut self, at: Duration) {
        self.clock = self.clock.max(at);
        let unix_ms = self.start.unix_ms + self.clock.as_millis() as u64;
        self.now = Now { monotonic: self.start.monotonic + self.clock, unix_ms };
    }

    fn happen(&mut self, after: Duration, event: Event) {
        self.events.insert((self.clock + after, self.made), event);
        self.made += 1;
    }

    /// Hands what the hosts send to the links of their interfaces.
    fn transmit(&mut self) {
        for index in 0..self.hosts.len() {
            while let Some((from, transmit)) = self.hosts[index].poll_transmit(self.now) {
                let (host, Transmit { to, datagram, .. }) = (HostId(index), transmit);
                self.sent.push(SentBy { after: self.clock, host, from, to, datagram: datagram.clone() });
                let is_source =
                    |interface: &Interface| interface.host == host && interface.address == Some(from.ip());
                let Some(by) = self.interfaces.iter().position(is_source) else { continue };
                for (after, datagram) in self.interfaces[by].up.carry(self.clock, datagram) {
                    self.happen(after, Event::AtRouter(InterfaceId(by), Packet { from, to, datagram }));
                }
            }
        }
    }

    /// Sends a packet on from the router, through the NATs of both sides. It may be lost there.
    fn route(&mut self, by: InterfaceId, packet: Packet) -> Option<()> {
        let Packet { mut from, mut to, datagram } = packet;
        if let Some(nat) = self.interfaces[by.0].nat {
            from = self.nats[nat.0].outbound(self.clock, from, to)?;
        }
        let nat = self.nats.iter().position(|nat| nat.public() == to.ip());
        if let Some(nat) = nat {
            to = self.nats[nat].inbound(self.clock, from, to)?;
        }
        let is_target = |interface: &Interface| {
            interface.address == Some(to.ip()) && interface.nat.map(|NatId(nat)| nat) == nat
        };
        let receiver = self.interfaces.iter().position(is_target)?;
        for (after, datagram) in self.interfaces[receiver].down.carry(self.clock, datagram) {
            self.happen(after, Event::AtHost(InterfaceId(receiver), Packet { from, to, datagram }));
        }
        Some(())
    }

    /// The time of the next timer, and its host.
    fn timer(&self) -> Option<(Duration, usize)> {
        let of = |(index, host): (usize, &H)| {
            host.poll_timeout().map(|at| (at.since(self.start.monotonic).max(self.clock), index))
        };
        self.hosts.iter().enumerate().filter_map(of).min()
    }
}

impl<H: Host> Simulation for Network<H> {
    fn next(&mut self) -> Option<Duration> {
        self.transmit();
        let event = self.events.keys().next().map(|(at, _)| *at);
        event.into_iter().chain(self.timer().map(|(at, _)| at)).min()
    }

    fn step(&mut self) {
        let event = self.events.keys().next().map(|(at, _)| *at);
        if let Some((at, host)) = self.timer().filter(|(at, _)| event.is_none_or(|event| *at < event)) {
            self.advance(at);
            self.hosts[host].handle_timeout(self.now);
            return;
        }
        let Some(((at, _), event)) = self.events.pop_first() else { return };
        self.advance(at);
        match event {
            Event::Change(change) => self.change(change),
            Event::AtRouter(by, packet) => {
                // A packet without a way is lost.
                let _ = self.route(by, packet);
            }
            Event::AtHost(interface, Packet { from, to, datagram }) => {
                let interface = &self.interfaces[interface.0];
                if interface.address == Some(to.ip()) {
                    self.hosts[interface.host.0].receive(self.now, to, from, &datagram);
                }
            }
        }
    }
}
