//! The target `endpoint`: a server with honest clients, which lose datagrams, move and begin anew, between forged datagrams from
//! any address, and copies of the clients' records that somebody else sends from elsewhere.
//!
//! No forged datagram has a right tag or cookie. So none of them adds an association or ends that of a client, and an address that has
//! proven nothing gets at most three times the bytes that came from it. In the end, every connected client still exchanges data.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use dunlin::error::Error;
use dunlin::{AssociationId, DtlsConnection, Endpoint, EndpointEvent, EndpointLimits, Now, Side};
use dunlin_null::{MAC, TAG};

use crate::MEMORY;
use crate::script::Script;
use crate::setting::{NOW, Setting, World, localhost};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 4433);

/// The honest clients.
const CLIENTS: usize = 3;
/// The addresses of forgers.
const FORGERS: u8 = 4;
/// How often clients begin anew.
const MAX_RESTARTS: usize = 12;
/// The most datagrams on the way to one side. Further ones push out the oldest. Without encryption, an older datagram could pass for a
/// new one (RFC 9147 §4.2.2).
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

struct Client {
    connection: Box<DtlsConnection>,
    address: SocketAddr,
    /// The server's side, once both sides are connected.
    served: Option<AssociationId>,
    /// Data on the way to the server.
    sent: BTreeSet<Vec<u8>>,
    /// Datagrams on the way to the client.
    incoming: Vec<Vec<u8>>,
}

struct Play<'s> {
    script: Script<'s>,
    world: World,
    server: Endpoint,
    now: Now,
    clients: Vec<Client>,
    /// Datagrams on the way to the server, with their senders.
    incoming: Vec<(SocketAddr, Vec<u8>)>,
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
    let world = World::new(Setting::of_endpoint(&mut script), Side::Server);
    let mut limits = EndpointLimits::default();
    (limits.associations, limits.partial_hellos) = (64, 4);
    (limits.half_open, limits.half_open_per_host) = (6, 6);
    let mut server = Endpoint::new(limits);
    server.set_server(Some(world.server.clone()));
    let mut play = Play {
        script,
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

/// A datagram without a right tag or cookie.
fn forged(datagram: &[u8]) -> Vec<u8> {
    let is_proof = |byte: &u8| *byte == TAG[0] || *byte == MAC[0];
    datagram.iter().map(|byte| if is_proof(byte) { byte ^ 0x80 } else { *byte }).collect()
}

/// Whether every record of a datagram is protected, as far as its first byte tells: DTLS 1.3, or DTLS 1.2 with a connection ID.
fn is_protected(datagram: &[u8]) -> bool {
    matches!(datagram.first(), Some(0x20..=0x3f | 25))
}

impl Play<'_> {
    /// A client at an address that no other has had.
    fn client(&mut self) -> Client {
        self.ports += 1;
        let connection = DtlsConnection::client(&self.world.client, localhost(), SERVER, self.now).unwrap();
        Client {
            connection: Box::new(connection),
            address: address(100, self.ports),
            served: None,
            sent: BTreeSet::new(),
            incoming: Vec::new(),
        }
    }

    fn step(&mut self) {
        let what = self.script.u8() % 14;
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
            5 => {
                self.ports += 1;
                let port = self.ports;
                let client = &mut self.clients[who];
                // Without keys, a connection does not follow.
                if client.served.is_some() {
                    client.address = address(100, port);
                    client.incoming.clear();
                }
            }
            6 => self.send(who),
            7 | 8 => {
                let bytes = self.script.bytes().to_vec();
                let from = self.forger(who);
                self.forge(from, &bytes);
            }
            9 => {
                let which = self.script.below(self.copied.len());
                let (at, value) = (self.script.u16(), self.script.u8());
                let Some(mut copy) = self.copied.get(which).cloned() else { return };
                if let Some(byte) = copy.get_mut(usize::from(at)) {
                    *byte = value;
                }
                let from = self.forger(who);
                self.forge(from, &copy);
            }
            // Somebody else sends a client's datagram from another address.
            10 => {
                let which = self.script.below(self.incoming.len());
                let from = self.forger(CLIENTS);
                if let Some((_, copy)) = self.incoming.get(which).filter(|(_, copy)| is_protected(copy)) {
                    let copy = copy.clone();
                    self.receive(from, &copy);
                }
            }
            11 => {
                let time = Duration::from_millis(100) * self.script.u8().into();
                self.pass(time);
            }
            12 if self.restarts < MAX_RESTARTS => {
                self.restarts += 1;
                // At the same address, datagrams of both connections would look alike without keys.
                self.clients[who] = self.client();
            }
            // A forged datagram to a client.
            13 => {
                let bytes = forged(self.script.bytes());
                let client = &mut self.clients[who];
                if client.served.is_some() {
                    client.connection.receive(self.now, SERVER, &bytes).unwrap();
                }
            }
            _ => {}
        }
    }

    /// The sender of a forged datagram: a forger, or a connected client's address. Before a client is connected, nothing protects its
    /// handshake.
    fn forger(&mut self, who: usize) -> SocketAddr {
        let which = self.script.u8() % (FORGERS + 1);
        match self.clients.get(who).filter(|client| client.served.is_some() && which == FORGERS) {
            Some(client) => client.address,
            None => address(which, 7),
        }
    }

    fn forge(&mut self, from: SocketAddr, bytes: &[u8]) {
        let (len, half_open) = (self.server.len(), self.server.half_open());
        self.receive(from, &forged(bytes));
        assert_eq!((self.server.len(), self.server.half_open()), (len, half_open), "a forged association");
    }

    fn receive(&mut self, from: SocketAddr, datagram: &[u8]) {
        if !self.proven.contains(&from) {
            self.unproven.entry(from).or_default().0 += datagram.len();
        }
        self.server.receive(self.now, from, datagram);
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
            if let Some(client) = client {
                assert!(client.sent.remove(&data), "data that came before, or were never sent");
            }
        }
        if has_ended && !self.clients.iter().any(|client| client.served == Some(id)) {
            self.server.remove(self.now, id);
            self.begun.remove(&id);
        }
    }

    fn send(&mut self, who: usize) {
        self.pieces += 1;
        let data = [&self.pieces.to_be_bytes()[..], self.script.bytes()].concat();
        let client = &mut self.clients[who];
        if client.served.is_some() && client.connection.send(&data).is_ok() {
            client.sent.insert(data);
        }
    }

    /// Puts all output on its way.
    fn transmit(&mut self) {
        for who in 0..CLIENTS {
            while let Some(transmit) = self.clients[who].connection.poll_transmit(self.now) {
                self.copy(&transmit.datagram);
                self.incoming.push((self.clients[who].address, transmit.datagram));
            }
        }
        while let Some(transmit) = self.server.poll_transmit(self.now) {
            if !self.proven.contains(&transmit.to) {
                let (received, sent) = self.unproven.entry(transmit.to).or_default();
                *sent += transmit.datagram.len();
                assert!(*sent <= *received * MAX_AMPLIFICATION, "{sent} bytes for {received}");
            }
            self.copy(&transmit.datagram);
            if let Some(client) = self.clients.iter_mut().find(|client| client.address == transmit.to) {
                client.incoming.push(transmit.datagram);
                shorten(&mut client.incoming, MAX_ON_WAY);
            }
        }
        shorten(&mut self.incoming, MAX_ON_WAY);
    }

    fn copy(&mut self, datagram: &[u8]) {
        self.copied.push(datagram.to_vec());
        shorten(&mut self.copied, MAX_COPIED);
    }

    /// Delivers the datagram at this place to the server, and those for the clients. Returns whether there were any.
    fn deliver(&mut self, which: usize) -> bool {
        let mut were_any = false;
        if !self.incoming.is_empty() {
            were_any = true;
            let (from, datagram) = self.incoming.remove(which % self.incoming.len());
            self.receive(from, &datagram);
        }
        for client in &mut self.clients {
            for datagram in std::mem::take(&mut client.incoming) {
                were_any = true;
                // The connection keeps its error.
                let _ = client.connection.receive(self.now, SERVER, &datagram);
            }
            while client.connection.poll_event().is_some() {}
        }
        were_any
    }

    fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        self.now.unix_ms += u64::try_from(time.as_millis()).unwrap();
        self.server.handle_timeout(self.now);
        for client in &mut self.clients {
            let is_due = |deadline| deadline <= self.now.monotonic;
            if client.connection.poll_timeout().is_some_and(is_due) {
                // The connection keeps its error.
                let _ = client.connection.handle_timeout(self.now);
            }
        }
        self.listen();
    }

    /// Finds the associations of the clients that are connected, and checks that none of them was lost.
    fn check(&mut self) {
        assert!(self.server.len() <= CLIENTS + MAX_RESTARTS, "{} associations", self.server.len());
        for client in &mut self.clients {
            match client.served {
                // The network has lost all acknowledgements of its last flight.
                Some(_) if client.connection.error() == Some(&Error::TimedOut) => client.served = None,
                Some(id) => {
                    assert_eq!(client.connection.error(), None, "a client was lost");
                    let association = self.server.association(id).expect("the server keeps the association");
                    assert_eq!((association.ended(), association.connection().error()), (None, None));
                }
                None if client.connection.negotiated().is_some() && client.connection.error().is_none() => {
                    let server = &self.server;
                    client.served = self.begun.iter().copied().find(|id| {
                        server.association(*id).is_some_and(|association| {
                            let connection = association.connection();
                            let is_live = connection.negotiated().is_some() && connection.error().is_none();
                            let mut ids = connection.connection_ids();
                            is_live && ids.any(|id| id == client.connection.peer_connection_id())
                        })
                    });
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
            self.send(who);
        }
        self.settle();
        for _ in 0..LAST_TIMERS {
            let clients = self.clients.iter().filter_map(|client| client.connection.poll_timeout());
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
            let sent = &self.clients[who].sent;
            assert!(!sent.iter().any(|data| data.starts_with(&latest)), "data did not arrive at the server");
            self.server.update(id, |connection| connection.send(&latest)).unwrap().unwrap();
            self.settle();
            let client = &mut self.clients[who].connection;
            let mut received = std::iter::from_fn(|| client.read());
            assert!(received.any(|data| data == latest), "data did not arrive at the client");
        }
        self.check();
        self.clients.iter().any(|client| client.served.is_some())
    }
}

/// Drops the oldest beyond `most`.
fn shorten<T>(queue: &mut Vec<T>, most: usize) {
    queue.drain(..queue.len().saturating_sub(most));
}
