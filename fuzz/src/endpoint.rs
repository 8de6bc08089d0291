//! The target `endpoint`: a server with honest clients, which lose datagrams, move, use several interfaces,
//! are frozen and begin anew, between forged datagrams from any address, and copies of both sides' records
//! that an attacker sends from elsewhere.
//!
//! No forged datagram has a right tag or cookie. So none of them adds an association or ends a client's, and
//! an address that has proven nothing gets at most three times the bytes that came from it. The state of both
//! sides is bounded, and no data arrive twice. In the end, every connected client still exchanges data.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use dunlin::error::{Error, Misuse};
use dunlin::{
    AssociationId, DtlsConnection, Endpoint, EndpointEvent, EndpointLimits, Instant, Local, Now, Path,
    Transmit,
};
use dunlin_null::{MAC, TAG};

use crate::MEMORY;
use crate::script::Script;
use crate::setting::{NOW, Setting, World, localhost};
use crate::shape::Shape;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 4433);
/// The ports of associations without connection IDs, and how many a host may have.
const POOL: [u16; 6] = [6001, 6002, 6003, 6004, 6005, 6006];
const PORTS_PER_HOST: usize = 4;
/// A port of the server's host at which nothing listens.
const CLOSED: u16 = 7000;

/// The honest clients.
const CLIENTS: usize = 3;
/// The addresses of forgers.
const FORGERS: u8 = 4;
/// How often clients begin anew.
const MAX_RESTARTS: usize = 12;
/// The most datagrams on the way from one side of an association to the other. Further ones push out the
/// oldest. Without encryption, an older datagram could pass for a new one (RFC 9147 §4.2.2).
const MAX_ON_WAY: usize = 32;
/// The honest datagrams that a forger can copy.
const MAX_COPIED: usize = 32;
/// Times what an unproven address has sent (docs/security.md, `MAX_AMPLIFICATION`).
const MAX_AMPLIFICATION: usize = 3;
/// The memory that the server and its clients may use, in bytes.
const MAX_HELD: isize = 4 << 20;
/// The turns in which everything comes to rest.
const MAX_TURNS: usize = 4096;
/// The timers that expire at the end, so that the checks of all addresses end.
const LAST_TIMERS: usize = 64;
/// The interfaces of a client with several.
const INTERFACES: u32 = 3;
/// The limits of incomplete handshakes.
const HALF_OPEN: usize = 6;
/// How often the callers of a client's association renew connection IDs or keys. A peer takes too many
/// renewals without data for an attack (docs/security.md, `MAX_IDLE_MESSAGES`).
const MAX_RENEWALS: usize = 16;
/// The most connection IDs that a connection keeps of each kind.
const MAX_IDS: usize = 16;

/// The owner of a client's connection.
enum Caller {
    Endpoint(Box<Endpoint>, AssociationId),
    /// For another implementation, whose connection IDs can be longer than this one's.
    Alone(Box<DtlsConnection>),
}

impl Caller {
    fn receive(&mut self, now: Now, path: Path, datagram: &[u8]) {
        match self {
            Self::Endpoint(endpoint, _) => endpoint.receive(now, path, datagram),
            // The connection keeps its error.
            Self::Alone(connection) => drop(connection.receive(now, path, datagram)),
        }
    }

    fn poll_transmit(&mut self, now: Now) -> Option<Transmit> {
        match self {
            Self::Endpoint(endpoint, _) => endpoint.poll_transmit(now),
            Self::Alone(connection) => connection.poll_transmit(now),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Endpoint(endpoint, _) => endpoint.poll_timeout(),
            Self::Alone(connection) => connection.poll_timeout(),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        match self {
            Self::Endpoint(endpoint, _) => endpoint.handle_timeout(now),
            Self::Alone(connection) => drop(connection.handle_timeout(now)),
        }
    }

    fn freeze(&mut self, now: Now) -> Result<Vec<u8>, Error> {
        let frozen = match self {
            Self::Endpoint(endpoint, id) => endpoint.freeze(now, *id).unwrap(),
            Self::Alone(connection) => connection.freeze(now),
        };
        frozen.map(|bytes| bytes.to_vec())
    }

    /// Goes on with a connection that was thawed.
    fn adopt(&mut self, now: Now, thawed: DtlsConnection) {
        match self {
            Self::Endpoint(endpoint, id) => {
                **endpoint = Endpoint::new(EndpointLimits::default());
                *id = endpoint.adopt(now, thawed).unwrap();
            }
            Self::Alone(connection) => **connection = thawed,
        }
    }
}

/// An honest client.
struct Client {
    caller: Caller,
    /// The addresses of its interfaces.
    addresses: Vec<SocketAddr>,
    /// The server's side, once both sides are connected.
    served: Option<AssociationId>,
    renewals: usize,
    /// Data on the way to the server, and to the client.
    sent: [BTreeSet<Vec<u8>>; 2],
    /// Datagrams on the way to the client, with the server's port and the interface.
    incoming: Vec<(u16, Local, Vec<u8>)>,
    /// The bytes that came from each address of an attacker, and that the client sent there.
    unproven: BTreeMap<SocketAddr, (usize, usize)>,
}

impl Client {
    fn connection(&self) -> &DtlsConnection {
        match &self.caller {
            Caller::Endpoint(endpoint, id) => endpoint.association(*id).unwrap().connection(),
            Caller::Alone(connection) => connection,
        }
    }

    fn update<R>(&mut self, f: impl FnOnce(&mut DtlsConnection) -> R) -> R {
        match &mut self.caller {
            Caller::Endpoint(endpoint, id) => endpoint.update(*id, f).unwrap(),
            Caller::Alone(connection) => f(connection),
        }
    }

    /// Takes what has arrived. Returns the data.
    fn read(&mut self) -> Vec<Vec<u8>> {
        if let Caller::Endpoint(endpoint, _) = &mut self.caller {
            while endpoint.poll_event().is_some() {}
        }
        let data = self.update(|connection| {
            while connection.poll_event().is_some() {}
            std::iter::from_fn(|| connection.read()).collect::<Vec<_>>()
        });
        for data in data.iter().filter(|data| !data.is_empty()) {
            assert!(self.sent[1].remove(data), "data that the client has, or that were never sent");
        }
        data
    }

    fn use_interfaces(&mut self, now: Now, chosen: &[Local]) {
        // A connection with one interface refuses that.
        let _ = self.update(|connection| connection.set_interfaces(now, chosen));
    }

    fn interfaces(&self) -> Vec<Local> {
        (0..self.addresses.len() as u32).map(Local).collect()
    }
}

struct Play<'s> {
    script: Script<'s>,
    shape: Shape,
    world: World,
    server: Endpoint,
    now: Now,
    clients: Vec<Client>,
    /// Datagrams on the way to the server, with its port, their senders, and the number of the client.
    incoming: Vec<(u16, SocketAddr, Vec<u8>, usize)>,
    /// Honest datagrams in either direction, the latest ones.
    copied: Vec<Vec<u8>>,
    /// The associations of clients that the server has not forgotten.
    begun: BTreeSet<AssociationId>,
    /// The bytes that came from each address, and that the server sent there, until the address was proven.
    unproven: BTreeMap<SocketAddr, (usize, usize)>,
    proven: BTreeSet<SocketAddr>,
    ports: u16,
    restarts: usize,
    pieces: u32,
}

/// Runs the target. Returns whether a client was connected at the end.
pub fn run(input: &[u8]) -> bool {
    let before = MEMORY.allocated() as isize;
    let mut script = Script::new(input);
    let setting = Setting::of_endpoint(&mut script);
    let shape = Shape::read(&mut script);
    let world = shape.world(setting);
    let mut limits = EndpointLimits::default();
    (limits.associations, limits.partial_hellos, limits.ports_per_host) = (64, 4, PORTS_PER_HOST);
    (limits.half_open, limits.half_open_per_host) = (HALF_OPEN, HALF_OPEN);
    let mut server = Endpoint::new(limits);
    server.set_server(Some(world.server.clone()));
    server.add_ports(POOL.map(|port| (Local(port.into()), port))).unwrap();
    let mut play = Play {
        script,
        shape,
        world,
        server,
        now: NOW,
        clients: Vec::new(),
        incoming: Vec::new(),
        copied: Vec::new(),
        begun: BTreeSet::new(),
        unproven: BTreeMap::new(),
        proven: BTreeSet::new(),
        ports: 1,
        restarts: 0,
        pieces: 0,
    };
    for _ in 0..CLIENTS {
        let client = play.client();
        play.clients.push(client);
    }
    while !play.script.is_empty() {
        play.step();
        play.check();
        let held = MEMORY.allocated() as isize - before;
        assert!(held < MAX_HELD, "{held} bytes are held");
    }
    play.finish()
}

/// The address of a host of clients or forgers.
fn address(network: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, network, 1)), port)
}

fn is_forger(at: SocketAddr) -> bool {
    (0..=FORGERS).any(|network| at.ip() == address(network, 0).ip())
}

/// A datagram without a right tag or cookie.
fn forged(datagram: &[u8]) -> Vec<u8> {
    let is_proof = |byte: &u8| *byte == TAG[0] || *byte == MAC[0];
    datagram.iter().map(|byte| if is_proof(byte) { byte ^ 0x80 } else { *byte }).collect()
}

/// Whether every record of a datagram is protected, as far as its first one tells: DTLS 1.3, or DTLS 1.2 with
/// a connection ID or, in epoch 1, with data or a record about the association's port.
fn is_protected(datagram: &[u8]) -> bool {
    matches!(datagram, [0x20..=0x3f | 25, ..] | [23 | 30, _, _, 0, 1, ..])
}

impl Play<'_> {
    /// A client at addresses that no other has had.
    fn client(&mut self) -> Client {
        self.ports += 1;
        let config = &self.world.client;
        let now = self.now;
        let caller = if self.shape.has_long_ids() {
            let connection = DtlsConnection::client(config, localhost(), SERVER, now);
            Caller::Alone(Box::new(connection.unwrap()))
        } else {
            let mut endpoint = Box::new(Endpoint::new(EndpointLimits::default()));
            let id = endpoint.connect(config, localhost(), SERVER, now).unwrap();
            Caller::Endpoint(endpoint, id)
        };
        let interfaces = if self.shape.has_interfaces() { INTERFACES } else { 1 };
        Client {
            caller,
            addresses: (0..interfaces).map(|n| address(100 + n as u8, self.ports)).collect(),
            served: None,
            renewals: 0,
            sent: Default::default(),
            incoming: Vec::new(),
            unproven: BTreeMap::new(),
        }
    }

    fn step(&mut self) {
        let what = self.script.u8() % 20;
        let who = self.script.below(CLIENTS);
        match what {
            0 | 1 => self.transmit(),
            2 | 3 => {
                let which = self.script.u8().into();
                self.deliver(which);
            }
            // Loses a datagram.
            4 => {
                let which = self.script.below(self.incoming.len());
                if which < self.incoming.len() {
                    self.incoming.remove(which);
                }
            }
            5 => self.move_client(who),
            6 => self.send(who),
            7 | 8 => {
                let bytes = self.script.bytes().to_vec();
                let at = self.port();
                let from = self.forger(who);
                self.forge(at, from, &bytes);
            }
            9 => {
                let which = self.script.below(self.copied.len());
                let at = self.script.u16();
                let value = self.script.u8();
                let Some(mut copy) = self.copied.get(which).cloned() else { return };
                if let Some(byte) = copy.get_mut(usize::from(at)) {
                    *byte = value;
                }
                let at = self.port();
                let from = self.forger(who);
                self.forge(at, from, &copy);
            }
            10 => self.forward(who),
            11 => {
                let time = Duration::from_millis(100) * self.script.u8().into();
                self.pass(time);
            }
            12 if self.restarts < MAX_RESTARTS => {
                self.restarts += 1;
                // At the same address, datagrams of both connections would look alike without keys.
                self.clients[who] = self.client();
            }
            13 => self.forge_to_client(who),
            14 => {
                let chosen = self.script.u8();
                let now = self.now;
                let client = &mut self.clients[who];
                // Its ClientHello would begin two associations at the server, whose records look alike
                // without keys.
                if client.served.is_none() {
                    return;
                }
                let chosen: Vec<_> =
                    client.interfaces().into_iter().filter(|local| chosen >> local.0 & 1 == 1).collect();
                client.use_interfaces(now, &chosen);
            }
            15 => {
                let local = Local(self.script.u8().into());
                let now = self.now;
                if self.clients[who].served.is_none() {
                    return;
                }
                let _ = self.clients[who].update(|connection| connection.address_changed(now, local));
            }
            16 => self.freeze_server(who),
            17 => self.freeze_client(who),
            18 => self.answer(who),
            19 => self.renew(who),
            _ => {}
        }
    }

    /// A port of the server's host.
    fn port(&mut self) -> u16 {
        if self.shape.has_ports() {
            let which = self.script.below(POOL.len() + 2);
            [&[SERVER.port(), CLOSED][..], &POOL].concat()[which]
        } else {
            SERVER.port()
        }
    }

    /// Gives a client another address on one of its interfaces.
    fn move_client(&mut self, who: usize) {
        self.ports += 1;
        let which = if self.shape.has_interfaces() { self.script.below(INTERFACES as usize) } else { 0 };
        let has_port = |id| {
            let association = self.server.association(id);
            association.is_some_and(|association| association.connection().association_port().is_some())
        };
        // Without keys, a connection does not follow. Without connection IDs, only one with a port does.
        let follows = self.clients[who].served.is_some_and(|id| !self.shape.has_ports() || has_port(id));
        let client = &mut self.clients[who];
        let has_left_welcome = client.connection().path().peer.port() != SERVER.port();
        if follows && (has_left_welcome || !self.shape.has_ports()) {
            client.addresses[which] = address(100 + which as u8, self.ports);
            client.incoming.retain(|(_, local, _)| local.0 as usize != which);
        }
    }

    /// An attacker sends a datagram of a client, or one of the server to a client, from another address.
    fn forward(&mut self, who: usize) {
        let which = self.script.below(self.incoming.len() + self.clients[who].incoming.len());
        let from = self.forger(CLIENTS);
        if let Some((at, sender, copy, _)) = self.incoming.get(which) {
            if is_protected(copy) {
                // A server that follows a client there would take the records of others from that address for
                // the client's, without keys.
                let from = SocketAddr::new(from.ip(), sender.port());
                let at = *at;
                let copy = copy.clone();
                self.receive(at, from, &copy);
            }
            return;
        }
        let client = &mut self.clients[who];
        let copy = client.incoming.get(which.saturating_sub(self.incoming.len()));
        // Without a check, an attacker could direct both sides at itself until one of them hears the other.
        if let Some((_, local, copy)) =
            copy.filter(|(_, _, copy)| is_protected(copy) && self.shape.is_checked())
        {
            let path = Path { local: *local, ..from.into() };
            let copy = copy.clone();
            client.unproven.entry(from).or_default().0 += copy.len();
            client.caller.receive(self.now, path, &copy);
            client.read();
        }
    }

    /// A forged datagram to a client. Before a client is connected, nothing protects its handshake; then a
    /// forger may only end it.
    fn forge_to_client(&mut self, who: usize) {
        let bytes = forged(self.script.bytes());
        let peer = SocketAddr::new(SERVER.ip(), self.port());
        let now = self.now;
        let follows = self.shape.has_ports();
        let client = &mut self.clients[who];
        if client.served.is_some() || follows && peer.port() != SERVER.port() {
            client.caller.receive(now, peer.into(), &bytes);
            client.read();
        }
    }

    /// An association that is frozen goes on in another process, which the server's endpoint stands for.
    fn freeze_server(&mut self, who: usize) {
        let Some(id) = self.clients[who].served else { return };
        match self.server.freeze(self.now, id).unwrap() {
            Ok(bytes) => {
                let thawed = DtlsConnection::thaw_server(&self.world.server, &bytes, self.now).unwrap();
                self.server.remove(self.now, id);
                self.begun.remove(&id);
                let thawed = self.server.adopt(self.now, thawed).unwrap();
                self.begun.insert(thawed);
                self.clients[who].served = Some(thawed);
                // Its numbers skip ahead. Without encryption, a late datagram would pass for a new one.
                self.clients[who].incoming.clear();
            }
            Err(error) => assert!(is_refusal(&error), "{error:?}"),
        }
    }

    fn freeze_client(&mut self, who: usize) {
        let now = self.now;
        let config = self.world.client.clone();
        let client = &mut self.clients[who];
        if client.served.is_none() {
            return;
        }
        client.read();
        match client.caller.freeze(now) {
            Ok(bytes) => {
                let thawed = DtlsConnection::thaw_client(&config, localhost(), &bytes, now).unwrap();
                client.caller.adopt(now, thawed);
                let all = client.interfaces();
                client.use_interfaces(now, &all);
                self.incoming.clear();
            }
            Err(error) => assert!(is_refusal(&error), "{error:?}"),
        }
    }

    /// The server sends data to a client.
    fn answer(&mut self, who: usize) {
        self.pieces += 1;
        let data = self.pieces.to_be_bytes().to_vec();
        let client = &mut self.clients[who];
        let Some(id) = client.served else { return };
        if self.server.update(id, |connection| connection.send(&data)).unwrap().is_ok() {
            client.sent[1].insert(data);
        }
    }

    /// Either side renews connection IDs or keys, if it can.
    fn renew(&mut self, who: usize) {
        let what = self.script.u8();
        let renew = |connection: &mut DtlsConnection| {
            // A connection that cannot refuses it.
            let _ = match what >> 1 & 3 {
                0 => connection.replace_connection_id(),
                1 => connection.request_connection_ids(what >> 3),
                2 => {
                    connection.use_spare_connection_id();
                    Ok(())
                }
                _ => connection.update_keys(what & 8 != 0),
            };
        };
        let client = &mut self.clients[who];
        let Some(id) = client.served.filter(|_| client.renewals < MAX_RENEWALS) else { return };
        client.renewals += 1;
        if what & 1 == 0 { client.update(renew) } else { self.server.update(id, renew).unwrap() }
    }

    /// The sender of a forged datagram: a forger, or a connected client's address. Before a client is
    /// connected, nothing protects its handshake.
    fn forger(&mut self, who: usize) -> SocketAddr {
        let which = self.script.u8() % (FORGERS + 1);
        match self.clients.get(who).filter(|client| client.served.is_some() && which == FORGERS) {
            Some(client) => client.addresses[0],
            None => address(which, 7),
        }
    }

    fn forge(&mut self, at: u16, from: SocketAddr, bytes: &[u8]) {
        let len = self.server.len();
        let half_open = self.server.half_open();
        self.receive(at, from, &forged(bytes));
        assert_eq!((self.server.len(), self.server.half_open()), (len, half_open), "a forged association");
    }

    /// The server gets a datagram at one of its ports.
    fn receive(&mut self, at: u16, from: SocketAddr, datagram: &[u8]) {
        let local = if at == SERVER.port() { Local::default() } else { Local(at.into()) };
        if at == CLOSED {
            return;
        }
        if !self.proven.contains(&from) {
            self.unproven.entry(from).or_default().0 += datagram.len();
        }
        self.server.receive(self.now, Path { local, ..from.into() }, datagram);
        self.listen();
    }

    /// Takes the server's events and data.
    fn listen(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                EndpointEvent::Incoming(id) => {
                    self.begun.insert(id);
                    let association = self.server.association(id).unwrap();
                    self.proven.insert(association.connection().peer_address());
                }
                EndpointEvent::Changed(id) => self.look(id),
                _ => {}
            }
        }
    }

    fn look(&mut self, id: AssociationId) {
        let Some(association) = self.server.association(id) else { return };
        self.proven.insert(association.connection().peer_address());
        let has_ended = association.ended().is_some() || association.connection().error().is_some();
        while let Some(data) = self.server.update(id, |connection| connection.read()).flatten() {
            let client = self.clients.iter_mut().find(|client| client.served == Some(id));
            // Data of a client that began anew may still arrive.
            if let Some(client) = client.filter(|_| !data.is_empty()) {
                assert!(client.sent[0].remove(&data), "data that came before, or were never sent");
            }
        }
        if has_ended && !self.clients.iter().any(|client| client.served == Some(id)) {
            self.server.remove(self.now, id);
            self.begun.remove(&id);
        }
    }

    fn send(&mut self, who: usize) {
        self.pieces += 1;
        // In the end, the budget of a new address must suffice for a challenge, data, a KeyUpdate and an ACK,
        // each with the client's connection ID.
        let is_last = self.script.is_empty() && self.shape.has_long_ids();
        let padding: &[u8] = if is_last { &[0; 512] } else { &[] };
        let data = [&self.pieces.to_be_bytes()[..], self.script.bytes(), padding].concat();
        let client = &mut self.clients[who];
        if client.served.is_some() && client.update(|connection| connection.send(&data)).is_ok() {
            client.sent[0].insert(data);
        }
    }

    /// Puts all output on its way.
    fn transmit(&mut self) {
        let is_checked = self.shape.is_checked();
        for who in 0..CLIENTS {
            while let Some(transmit) = self.clients[who].caller.poll_transmit(self.now) {
                let client = &mut self.clients[who];
                if transmit.to.ip() == SERVER.ip() {
                    // The client has no other interface.
                    let Some(from) = client.addresses.get(transmit.local.0 as usize) else { continue };
                    self.incoming.push((transmit.to.port(), *from, transmit.datagram.clone(), who));
                } else {
                    let (received, sent) = client.unproven.entry(transmit.to).or_default();
                    check_amplification(&mut *sent, *received, transmit.datagram.len(), is_checked);
                }
                self.copy(&transmit.datagram);
            }
            // Each client by itself: the others would push out all of one that begins before them, again and
            // again.
            let count = self.incoming.iter().filter(|datagram| datagram.3 == who).count();
            let mut surplus = count.saturating_sub(MAX_ON_WAY);
            self.incoming.retain(|datagram| {
                let is_surplus = datagram.3 == who && surplus > 0;
                surplus -= usize::from(is_surplus);
                !is_surplus
            });
        }
        while let Some(transmit) = self.server.poll_transmit(self.now) {
            if !self.proven.contains(&transmit.to) {
                let (received, sent) = self.unproven.entry(transmit.to).or_default();
                // A client that sends copies can have proven further addresses.
                let is_limited = !self.shape.sends_copies() || is_forger(transmit.to);
                check_amplification(sent, *received, transmit.datagram.len(), is_limited);
            }
            self.copy(&transmit.datagram);
            let port = match transmit.local {
                Local(0) => SERVER.port(),
                Local(port) => u16::try_from(port).unwrap(),
            };
            for client in &mut self.clients {
                if let Some(local) = client.addresses.iter().position(|address| *address == transmit.to) {
                    client.incoming.push((port, Local(local as u32), transmit.datagram.clone()));
                    shorten(&mut client.incoming, MAX_ON_WAY);
                }
            }
        }
    }

    fn copy(&mut self, datagram: &[u8]) {
        self.copied.push(datagram.to_vec());
        shorten(&mut self.copied, MAX_COPIED);
    }

    /// Delivers the datagram at this place to the server, and those for the clients. Returns whether there
    /// were any.
    fn deliver(&mut self, which: usize) -> bool {
        let mut were_any = false;
        if !self.incoming.is_empty() {
            were_any = true;
            let (at, from, datagram, _) = self.incoming.remove(which % self.incoming.len());
            self.receive(at, from, &datagram);
        }
        for client in &mut self.clients {
            for (port, local, datagram) in std::mem::take(&mut client.incoming) {
                were_any = true;
                let peer = SocketAddr::new(SERVER.ip(), port);
                client.caller.receive(self.now, Path { local, ..peer.into() }, &datagram);
            }
            client.read();
        }
        were_any
    }

    fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        self.now.unix_ms += u64::try_from(time.as_millis()).unwrap();
        self.server.handle_timeout(self.now);
        for client in &mut self.clients {
            let is_due = |deadline| deadline <= self.now.monotonic;
            if client.caller.poll_timeout().is_some_and(is_due) {
                client.caller.handle_timeout(self.now);
            }
        }
        self.listen();
    }

    /// Finds the associations of the clients that are connected, and checks that none of them was lost, and
    /// that the state is bounded.
    fn check(&mut self) {
        assert!(self.server.len() <= CLIENTS + MAX_RESTARTS, "{} associations", self.server.len());
        let half_open = self.server.half_open();
        let ports = self.server.ports();
        assert!(half_open <= HALF_OPEN, "{half_open} incomplete handshakes");
        assert!(ports.used <= ports.ports && ports.used <= PORTS_PER_HOST, "{ports:?}");
        for client in &mut self.clients {
            match client.served {
                // The network has lost all acknowledgements of its last flight.
                Some(_) if client.connection().error() == Some(&Error::TimedOut) => client.served = None,
                Some(id) => {
                    let connection = client.connection();
                    assert_eq!(connection.error(), None, "a client was lost");
                    let association = self.server.association(id).expect("the server keeps the association");
                    assert_eq!((association.ended(), association.connection().error()), (None, None));
                    for connection in [connection, association.connection()] {
                        let own = connection.connection_ids().count();
                        let spare = connection.spare_connection_ids();
                        assert!(own <= MAX_IDS && spare <= MAX_IDS, "{own} and {spare} connection IDs");
                    }
                }
                None if client.connection().negotiated().is_some()
                    && client.connection().error().is_none() =>
                {
                    let server = &self.server;
                    let has_ports = self.shape.has_ports();
                    client.served = self.begun.iter().copied().find(|id| {
                        server.association(*id).is_some_and(|association| {
                            let connection = association.connection();
                            let is_live = connection.negotiated().is_some() && connection.error().is_none();
                            let mut ids = connection.connection_ids();
                            let is_its = if has_ports {
                                client.addresses.contains(&connection.peer_address())
                            } else {
                                ids.any(|id| id == client.connection().peer_connection_id())
                            };
                            is_live && association.ended().is_none() && is_its
                        })
                    });
                    if client.served.is_some() {
                        let now = self.now;
                        let all = client.interfaces();
                        client.use_interfaces(now, &all);
                    }
                }
                None => {}
            }
        }
    }

    /// Exchanges datagrams until there are none.
    fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < MAX_TURNS, "no end after {turn} turns");
            self.transmit();
            if !self.deliver(0) {
                return;
            }
        }
    }

    /// Lets everything come to rest, and exchanges data with every connected client.
    fn finish(mut self) -> bool {
        self.settle();
        self.check();
        for who in 0..CLIENTS {
            let now = self.now;
            let all = self.clients[who].interfaces();
            self.clients[who].use_interfaces(now, &all);
            self.send(who);
        }
        self.settle();
        for _ in 0..LAST_TIMERS {
            let clients = self.clients.iter().filter_map(|client| client.caller.poll_timeout());
            let Some(next) = clients.chain(self.server.poll_timeout()).min() else { break };
            self.pass(next.since(self.now.monotonic).min(Duration::from_secs(1)));
            self.settle();
            self.check();
        }
        for who in 0..CLIENTS {
            let Some(id) = self.clients[who].served else { continue };
            self.send(who);
            let latest = self.pieces.to_be_bytes();
            self.settle();
            let sent = &self.clients[who].sent[0];
            assert!(!sent.iter().any(|data| data.starts_with(&latest)), "data did not arrive at the server");
            self.server.update(id, |connection| connection.send(&latest)).unwrap().unwrap();
            self.clients[who].sent[1].insert(latest.to_vec());
            self.settle();
            assert!(!self.clients[who].sent[1].contains(&latest[..]), "data did not arrive at the client");
        }
        self.check();
        self.clients.iter().any(|client| client.served.is_some())
    }
}

/// Counts what leaves to an address that has proven nothing.
fn check_amplification(sent: &mut usize, received: usize, len: usize, is_limited: bool) {
    *sent += len;
    assert!(!is_limited || *sent <= received * MAX_AMPLIFICATION, "{sent} bytes for {received}");
}

/// Whether an association refuses to be frozen, and goes on as it is.
fn is_refusal(error: &Error) -> bool {
    use Misuse::{FlightWaits, HandshakeNotComplete, NotSupported, SendClosed};
    matches!(error, Error::Misuse(FlightWaits | HandshakeNotComplete | NotSupported(_) | SendClosed))
}

/// Drops the oldest beyond `most`.
fn shorten<T>(queue: &mut Vec<T>, most: usize) {
    queue.drain(..queue.len().saturating_sub(most));
}
