//! Client and server in virtual time, over a network with a NAT and an interface that gets other addresses.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use dunlin::{Instant, Now, Transmit};
use dunlin_sim::{Change, Conditions, Delay, Host, Impaired, InterfaceId, Link, Nat, Network};

use super::super::keys::Keys;
use super::case::{Case, Figures, HANDSHAKE, Path, TALK};
use super::client::Client;
use super::configs::configs;
use super::server::{POOL, Server};
use crate::Error;
use crate::error::failed;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 5684);
/// The public address of the NAT before each interface.
const PUBLIC: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), IpAddr::V4(Ipv4Addr::new(203, 0, 113, 2))];
/// The time after which the NAT forgets a mapping, as in Linux.
const MAPPING: Duration = Duration::from_secs(120);
/// The time to a change is longer by up to this, at random. Otherwise all changes would fall on the same few
/// phases of the exchange of messages.
const SCATTER: Duration = Duration::from_millis(500);
/// The bytes of the headers of IPv4 and UDP.
const HEADERS: u64 = 20 + 8;
/// The number of changes without an acknowledgement after which a client never gets another.
const HOPELESS: u32 = 6;

/// The address of one of the client's interfaces after `number` changes.
fn address(interface: usize, number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::new(10, interface as u8, 0, 10)) + number))
}

/// A host that the network and its owner share.
struct Shared<H>(Rc<RefCell<H>>);

impl<H: Host> Host for Shared<H> {
    fn receive(&mut self, now: Now, at: SocketAddr, from: SocketAddr, datagram: &[u8]) {
        self.0.borrow_mut().receive(now, at, from, datagram);
    }

    fn poll_transmit(&mut self, now: Now) -> Option<(SocketAddr, Transmit)> {
        self.0.borrow_mut().poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.borrow().poll_timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.0.borrow_mut().handle_timeout(now);
    }

    fn set_addresses(&mut self, now: Now, addresses: &[Option<IpAddr>]) {
        self.0.borrow_mut().set_addresses(now, addresses);
    }
}

/// A network with a client and its server.
struct Course {
    network: Network<Box<dyn Host>>,
    client: Rc<RefCell<Client>>,
    server: Rc<RefCell<Server>>,
    interfaces: Vec<InterfaceId>,
}

impl Course {
    fn new(case: &Case, keys: &Keys, messages: u32, random: &mut fastrand::Rng) -> Result<Self, Error> {
        let configs = configs(keys, case.scheme)?;
        let Path { delay, loss_percent, nat, .. } = case.path;
        let mut network: Network<Box<dyn Host>> = Network::new(dunlin_tokio::now());
        let client = Rc::new(RefCell::new(Client::new(configs.0, case.scheme, SERVER, messages)));
        let server = Rc::new(RefCell::new(Server::new(configs.1, case.server, SERVER.port(), POOL.to_vec())));
        let host = network.add(Box::new(Shared(Rc::clone(&server))));
        let near = || -> Box<dyn Link> { Box::new(Delay::default()) };
        network.attach(host, SERVER.ip(), None, [near(), near()]);
        let host = network.add(Box::new(Shared(Rc::clone(&client))));
        let conditions = Conditions { delay, loss: f64::from(loss_percent) / 100.0, ..Conditions::default() };
        let mut interfaces = Vec::new();
        for (number, public) in PUBLIC.into_iter().enumerate().take(case.scheme.interfaces()) {
            let nat = nat.map(|kind| network.add_nat(Nat::new(kind, public, MAPPING, random.u64(..))));
            let mut far = || -> Box<dyn Link> { Box::new(Impaired::new(conditions, random.u64(..))) };
            let links = [far(), far()];
            interfaces.push(network.attach(host, address(number, 0), nat, links));
        }
        Ok(Self { network, client, server, interfaces })
    }

    fn run_until(&mut self, at: Duration) -> Result<(), Error> {
        self.network.run_for(at.saturating_sub(self.network.elapsed())).map_err(failed)
    }

    /// The results so far.
    fn figures(&self) -> Figures {
        let client = self.client.borrow().figures().clone();
        let missing = self.server.borrow().missing(client.acknowledged);
        let sent = &self.network.sent;
        let packets = sent.len() as u64;
        let bytes = sent.iter().map(|sent| sent.datagram.len() as u64 + HEADERS).sum();
        Figures { missing, packets, bytes, ..client }
    }
}

/// Runs a case.
pub(super) fn run(case: &Case, keys: &Keys, seed: u64) -> Result<Figures, Error> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut course = Course::new(case, keys, TALK.messages, &mut random)?;
    let mut handovers = 0;
    let mut acknowledged = 0;
    let mut hopeless = 0;
    for number in 1.. {
        let scatter = SCATTER.mul_f64(random.f64());
        let (at, which) = TALK.change(number, case.scheme.interfaces());
        course.run_until(at + Duration::from_millis(scatter.as_millis() as u64))?;
        let so_far = course.client.borrow().figures().acknowledged;
        hopeless = if so_far == acknowledged { hopeless + 1 } else { 0 };
        acknowledged = so_far;
        if course.client.borrow().is_done() || hopeless == HOPELESS {
            break;
        }
        if let Some(downtime) = case.path.downtime {
            handovers += 1;
            let down = course.network.elapsed();
            let interface = course.interfaces[which];
            course.network.change(Change::Address(interface, None));
            course.run_until(down + downtime)?;
            course.network.change(Change::Address(interface, Some(address(which, handovers))));
        }
    }
    Ok(Figures { handovers, ..course.figures() })
}

/// Runs the handshake of a case alone. Its figures include what both sides send after it of their own accord.
pub(super) fn handshake(case: &Case, keys: &Keys, seed: u64) -> Result<Figures, Error> {
    let mut course = Course::new(case, keys, HANDSHAKE.messages, &mut fastrand::Rng::with_seed(seed))?;
    course.network.run().map_err(failed)?;
    Ok(course.figures())
}
