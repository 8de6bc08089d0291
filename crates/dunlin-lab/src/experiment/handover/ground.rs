//! The client's network on real devices: a line whose address changes, perhaps a NAT, and the server behind it.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use dunlin_sim::NatKind;

use super::case::Path;
use crate::Error;
use crate::link::{Counts, Line, Link};
use crate::net::{End, Ground, Namespace, veth};

/// The server's address.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 79, 128, 1);
/// The NAT's address at the server's side, which is public, and at the client's side.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(10, 79, 128, 254);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 79, 127, 1);
/// The client's network includes the server, so that it needs no route of its own. Behind a NAT it is one half, the server's the other.
const WHOLE: u8 = 16;
const HALF: u8 = 17;
const CLIENT_DEVICE: &str = "line0";
const SERVER_DEVICE: &str = "veth0";
const MTU: u16 = 1500;
/// The time that a command takes to change the device, which is a part of the downtime.
const COMMAND: Duration = Duration::from_millis(3);

/// Masquerading in Linux is a port-restricted NAT that keeps ports where it can. Packets that it does not permit get no answer.
const NAT: &str = "
table ip nat {
    chain out { type nat hook postrouting priority 100; oifname \"veth0\" masquerade; }
}
table ip filter {
    chain in { type filter hook input priority 0; iifname \"veth0\" udp dport 1024-65535 drop; }
}
";

/// The address of the client after `number` changes.
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 79, 0, 10)) + number)
}

/// The namespaces of a case, and the line between them.
pub(super) struct Place {
    pub(super) client: Namespace,
    pub(super) server: Namespace,
    link: Link,
    /// Holds the NAT.
    _router: Option<Namespace>,
}

impl Place {
    pub(super) fn new(ground: &Ground, path: &Path, seed: u64) -> Result<Self, Error> {
        let (client, server) = (ground.namespace("client")?, ground.namespace("server")?);
        let line = Line { delay: path.delay, loss_percent: path.loss_percent.into(), ..Line::default() };
        let end = |namespace, device, address, prefix| End {
            namespace,
            device,
            address: Some((address, prefix)),
            mtu: MTU,
        };
        let here = end(&client, CLIENT_DEVICE, address(0), WHOLE);
        let (link, router) = match path.nat {
            None => (Link::start([here, end(&server, CLIENT_DEVICE, SERVER, WHOLE)], &line, seed)?, None),
            Some(NatKind::PortRestricted) => {
                let router = ground.namespace("router")?;
                let link = Link::start([here, end(&router, CLIENT_DEVICE, GATEWAY, HALF)], &line, seed)?;
                veth([end(&router, SERVER_DEVICE, PUBLIC, HALF), end(&server, SERVER_DEVICE, SERVER, HALF)])?;
                router.nft(NAT)?;
                forward(&router)?;
                (link, Some(router))
            }
            Some(kind) => {
                return Err(Error::new(
                    "NAT",
                    format_args!("{} exists in virtual time only", kind.name()),
                    "use --way virtual",
                ));
            }
        };
        Ok(Self { client, server, link, _router: router })
    }

    /// Changes the client's address after each period until the end, and returns how often. The interface really goes down and comes
    /// back.
    pub(super) fn hand_over(
        &self,
        downtime: Option<Duration>,
        period: Duration,
        end: &Receiver<()>,
    ) -> Result<u32, Error> {
        let start = Instant::now();
        for number in 1.. {
            let next = downtime.map_or(Duration::MAX, |_| period * number);
            match end.recv_timeout(next.saturating_sub(start.elapsed())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(number - 1),
            }
            self.client.ip(&format!("link set {CLIENT_DEVICE} down\naddress flush dev {CLIENT_DEVICE}\n"))?;
            let down = start.elapsed();
            // The rest of the downtime is that of the commands.
            let rest = downtime.unwrap_or_default().saturating_sub(COMMAND * 2);
            std::thread::sleep((down + rest).saturating_sub(start.elapsed()));
            let address = address(number);
            self.client.ip(&format!(
                "address add {address}/{WHOLE} dev {CLIENT_DEVICE}\nlink set {CLIENT_DEVICE} up\n"
            ))?;
        }
        Ok(0)
    }

    /// The packets that the line has carried.
    pub(super) fn counts(&self) -> Counts {
        self.link.counts()
    }
}

/// Lets a namespace forward packets.
fn forward(router: &Namespace) -> Result<(), Error> {
    let path = "/proc/sys/net/ipv4/ip_forward";
    let written = router.run(|| fs::write(path, "1"))?;
    written.map_err(|error| Error::new(path, error, "run it where /proc/sys is writable"))
}
