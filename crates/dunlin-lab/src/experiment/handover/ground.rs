//! The client's network on real devices: a line whose address changes, perhaps a NAT, and the server behind
//! it.

use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use dunlin_sim::NatKind;

use super::case::{Path, Talk};
use crate::Error;
use crate::link::{Line, Link};
use crate::net::{End, Ground, MTU, Namespace, veth};

/// The server's address.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 79, 128, 1);
/// The NAT's address at the server's side, which is public, and at the client's side.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(10, 79, 128, 254);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 79, 127, 1);
/// The client's network includes the server, so that it needs no route of its own. Behind a NAT it is one
/// half, the server's the other.
const WHOLE: u8 = 16;
const HALF: u8 = 17;
/// The devices of the client's interfaces, and of the other ends of their lines.
pub(super) const DEVICES: [&str; 2] = ["line0", "line1"];
/// The networks of the client's interfaces, for the server's routes.
const NETWORKS: [&str; 2] = ["10.79.0.0/18", "10.79.64.0/18"];
const SERVER_DEVICE: &str = "veth0";
/// The time that a command takes to change the device, which is a part of the downtime.
const COMMAND: Duration = Duration::from_millis(3);

/// Masquerading in Linux is a port-restricted NAT that keeps ports where it can. Packets that it does not
/// permit get no answer.
const NAT: &str = "
table ip nat {
    chain out { type nat hook postrouting priority 100; oifname \"veth0\" masquerade; }
}
table ip filter {
    chain in { type filter hook input priority 0; iifname \"veth0\" udp dport 1024-65535 drop; }
}
";

/// The address of one of the client's interfaces after `number` changes.
fn address(interface: usize, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 79, 64 * interface as u8, 10)) + number)
}

/// The namespaces of a case, and the lines between them.
pub(super) struct Place {
    pub(super) client: Namespace,
    pub(super) server: Namespace,
    links: Vec<Link>,
    /// Holds the NAT.
    _router: Option<Namespace>,
}

impl Place {
    /// A place whose client has this many interfaces.
    pub(super) fn new(ground: &Ground, path: &Path, interfaces: usize, seed: u64) -> Result<Self, Error> {
        let client = ground.namespace("client")?;
        let server = ground.namespace("server")?;
        let line = Line { delay: path.delay, loss_percent: path.loss_percent.into(), ..Line::default() };
        let end = |namespace, device, address, prefix| End {
            namespace,
            device,
            address: Some((address, prefix)),
            mtu: MTU,
        };
        let here = |interface: usize| end(&client, DEVICES[interface], address(interface, 0), WHOLE);
        let mut router = None;
        let links = match (path.nat, interfaces) {
            (None, 1) => {
                vec![Link::start([here(0), end(&server, DEVICES[0], SERVER, WHOLE)], &line, seed)?]
            }
            (None, 2) => {
                [&client, &server].into_iter().try_for_each(without_filter)?;
                let there = end(&server, DEVICES[0], SERVER, 32);
                let first = Link::start([here(0), there], &line, seed)?;
                let there = End { address: None, ..end(&server, DEVICES[1], SERVER, 32) };
                let second = Link::start([here(1), there], &line, seed.wrapping_add(1))?;
                let route = |interface: usize| {
                    let device = DEVICES[interface];
                    let network = NETWORKS[interface];
                    format!("link set {device} up\nroute add {network} dev {device}\n")
                };
                server.ip(&[route(0), route(1)].concat())?;
                vec![first, second]
            }
            (Some(NatKind::PortRestricted), 1) => {
                let made = ground.namespace("router")?;
                let link = Link::start([here(0), end(&made, DEVICES[0], GATEWAY, HALF)], &line, seed)?;
                veth([end(&made, SERVER_DEVICE, PUBLIC, HALF), end(&server, SERVER_DEVICE, SERVER, HALF)])?;
                made.nft(NAT)?;
                made.set("ip_forward", "1")?;
                router = Some(made);
                vec![link]
            }
            (nat, _) => {
                let nat = nat.map_or("none", NatKind::name);
                let why = format_args!("{nat}, with {interfaces} interfaces, exists in virtual time only");
                return Err(Error::new("NAT", why, "use --way virtual"));
            }
        };
        Ok(Self { client, server, links, _router: router })
    }

    /// Changes the client's addresses until the end, and returns how often, and how long the interface was
    /// down each time. It really goes down and comes back: on a busy machine, its commands take longer than
    /// the wanted downtime.
    pub(super) fn hand_over(
        &self,
        downtime: Option<Duration>,
        talk: Talk,
        end: &Receiver<()>,
    ) -> Result<(u32, Option<Duration>), Error> {
        let start = Instant::now();
        let mut total = Duration::ZERO;
        for number in 1.. {
            let (at, interface) = talk.change(number, self.links.len());
            let next = downtime.map_or(Duration::MAX, |_| at);
            match end.recv_timeout(next.saturating_sub(start.elapsed())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    let times = number - 1;
                    return Ok((times, total.checked_div(times)));
                }
            }
            let device = DEVICES[interface];
            let address = address(interface, number);
            self.client.ip(&format!("link set {device} down\naddress flush dev {device}\n"))?;
            let down = start.elapsed();
            // The commands take the rest of the downtime.
            let rest = downtime.unwrap_or_default().saturating_sub(COMMAND * 2);
            std::thread::sleep((down + rest).saturating_sub(start.elapsed()));
            self.client.ip(&format!("address add {address}/{WHOLE} dev {device}\nlink set {device} up\n"))?;
            total += start.elapsed().saturating_sub(down);
        }
        Ok((0, None))
    }

    /// The packets that the lines have carried, and their bytes.
    pub(super) fn carried(&self) -> (u64, u64) {
        let counts = self.links.iter().map(Link::counts);
        counts.fold((0, 0), |(packets, bytes), of| (packets + of.forwarded, bytes + of.forwarded_bytes))
    }
}

/// Lets a namespace take packets on an interface over which it would not answer.
fn without_filter(namespace: &Namespace) -> Result<(), Error> {
    ["all", "default"].iter().try_for_each(|devices| namespace.set(&format!("conf/{devices}/rp_filter"), "0"))
}
