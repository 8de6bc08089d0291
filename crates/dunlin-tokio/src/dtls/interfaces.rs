//! The local interfaces of a client's endpoint, and their sockets.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use dunlin::Local;
use tokio::net::UdpSocket;

use super::socket::Socket;

/// A local interface over which a client sends: a device of the system, or an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interface {
    /// The device with this name, such as `eth0`, with whatever address it has. Only Linux has devices here.
    /// The endpoint sends over this device alone if the program may bind a socket to a device, which Linux
    /// allows every program since version 5.7. Otherwise the endpoint binds to the device's address, and the
    /// system's routes choose the device.
    Device(String),
    /// The device that has this address, while it has it. Systems other than Linux do not tell when the
    /// address goes.
    Address(IpAddr),
    /// Wherever the system sends to the server: another device, or another address, as routes change.
    Default,
}

/// `default`, an IP address, or else the name of a device.
impl FromStr for Interface {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "default" => Self::Default,
            _ => text.parse().map_or_else(|_| Self::Device(text.to_owned()), Self::Address),
        })
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A device and one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceAddress {
    device: Option<String>,
    ip: IpAddr,
}

impl Interface {
    /// Where a socket of this interface belongs now, for a peer of the same family as `peer`. `None` while
    /// the interface is down or has no address. `present`: `None` if the system does not tell where addresses
    /// are.
    fn place(&self, peer: SocketAddr, present: Option<&[DeviceAddress]>) -> Option<DeviceAddress> {
        let mut of_family =
            present.unwrap_or_default().iter().filter(|place| place.ip.is_ipv4() == peer.is_ipv4());
        match self {
            Self::Default => source(peer).map(|ip| DeviceAddress { device: None, ip }),
            Self::Device(name) => of_family.find(|place| place.device.as_deref() == Some(name)).cloned(),
            // Every address of the loopback network works, although the device has only one.
            Self::Address(ip)
                if (ip.is_loopback() || present.is_none()) && ip.is_ipv4() == peer.is_ipv4() =>
            {
                Some(DeviceAddress { device: None, ip: *ip })
            }
            Self::Address(ip) => of_family.find(|place| place.ip == *ip).cloned(),
        }
    }
}

/// The addresses of all devices that are up and have a carrier.
#[cfg(target_os = "linux")]
fn places() -> io::Result<Option<Vec<DeviceAddress>>> {
    use nix::net::if_::InterfaceFlags;
    let needed = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let place = |entry: nix::ifaddrs::InterfaceAddress| {
        let address = entry.address.filter(|_| entry.flags.contains(needed))?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        let ip = v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))?;
        // An address of the link alone needs a scope, and reaches no other network.
        let is_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        (!is_local).then_some(DeviceAddress { device: Some(entry.interface_name), ip })
    };
    Ok(Some(nix::ifaddrs::getifaddrs()?.filter_map(place).collect()))
}

/// Other systems only tell by a failure to bind.
#[cfg(not(target_os = "linux"))]
fn places() -> io::Result<Option<Vec<DeviceAddress>>> {
    Ok(None)
}

/// The socket of an interface.
pub(super) struct Home {
    pub(super) local: Local,
    pub(super) socket: Socket,
    /// Where it is bound; `None` for the single socket of an endpoint without interfaces.
    place: Option<DeviceAddress>,
    /// The socket's address.
    pub(super) address: SocketAddr,
}

impl Home {
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        let socket = Socket::new(socket)?;
        let address = socket.local_addr()?;
        Ok(Self { local: Local::default(), socket, place: None, address })
    }

    /// Binds a socket in this place.
    fn bind(local: Local, place: DeviceAddress) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(SocketAddr::new(place.ip, 0))?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket)?;
        #[cfg(target_os = "linux")]
        if let Some(device) = &place.device {
            // Without this, the system may send over another device. Linux before 5.7 reserves it to
            // privileged programs.
            let _ = socket.bind_device(Some(device.as_bytes()));
        }
        Ok(Self { local, place: Some(place), ..Self::new(socket)? })
    }
}

/// The interfaces that a client's endpoint was given, the best first.
pub(super) struct Interfaces {
    list: Vec<Interface>,
    peer: SocketAddr,
    /// The number of the next socket.
    next: u32,
    /// The system did not tell where addresses are, or gave no socket for one.
    lacks_something: bool,
    /// The interfaces that are down or have no address.
    missing: Vec<Interface>,
}

impl Interfaces {
    pub(super) const fn new(list: Vec<Interface>, peer: SocketAddr) -> Self {
        Self { list, peer, next: 0, lacks_something: false, missing: Vec::new() }
    }

    pub(super) fn set(&mut self, list: Vec<Interface>) {
        self.list = list;
    }

    /// The sockets that belong to the interfaces now, the best first. Sockets in `before` that still fit
    /// stay. `None` if nothing changes.
    pub(super) fn refresh(&mut self, before: &[Arc<Home>]) -> Option<Vec<Arc<Home>>> {
        self.refresh_in(before, places())
    }

    /// The interfaces that are down or have no address, since the latest refresh.
    pub(super) fn missing(&self) -> &[Interface] {
        &self.missing
    }

    /// Whether the latest refresh should be repeated later, although no address changes.
    pub(super) const fn lacks_something(&self) -> bool {
        self.lacks_something
    }

    fn refresh_in(
        &mut self,
        before: &[Arc<Home>],
        present: io::Result<Option<Vec<DeviceAddress>>>,
    ) -> Option<Vec<Arc<Home>>> {
        self.lacks_something = present.is_err();
        // An interface in an unknown state may be up.
        let present = present.ok()?;
        self.missing.clear();
        let mut homes: Vec<Arc<Home>> = Vec::new();
        for interface in &self.list {
            let Some(place) = interface.place(self.peer, present.as_deref()) else {
                // The system does not tell of everything on which a route depends.
                self.lacks_something |= *interface == Interface::Default;
                self.missing.push(interface.clone());
                continue;
            };
            if homes.iter().any(|home| home.place.as_ref() == Some(&place)) {
                continue;
            }
            if let Some(home) = before.iter().find(|home| home.place.as_ref() == Some(&place)) {
                homes.push(Arc::clone(home));
                continue;
            }
            match Home::bind(Local(self.next), place) {
                Ok(home) => {
                    self.next = self.next.wrapping_add(1);
                    homes.push(Arc::new(home));
                }
                // The address has gone meanwhile, or there are too many open files.
                Err(_) => self.lacks_something = true,
            }
        }
        let is_same = homes.len() == before.len()
            && homes.iter().zip(before).all(|(home, before)| home.local == before.local);
        (!is_same).then_some(homes)
    }
}

/// The address from which the system would send to `peer`; `None` without a route.
pub(super) fn source(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    // This sends nothing.
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(device: &str, ip: &str) -> DeviceAddress {
        DeviceAddress { device: Some(device.to_owned()), ip: ip.parse().unwrap() }
    }

    #[test]
    fn an_interface_is_an_address_or_a_device() {
        let parse = |text: &str| text.parse::<Interface>().unwrap();
        assert_eq!(parse("192.0.2.7"), Interface::Address("192.0.2.7".parse().unwrap()));
        assert_eq!(parse("2001:db8::1"), Interface::Address("2001:db8::1".parse().unwrap()));
        assert_eq!(parse("wlan0"), Interface::Device("wlan0".to_owned()));
        assert_eq!((parse("wlan0").to_string(), parse("default")), ("wlan0".to_owned(), Interface::Default));
    }

    #[test]
    fn finds_the_address_of_a_device_in_the_family_of_the_peer() {
        let present = [place("eth0", "192.0.2.7"), place("eth0", "2001:db8::7"), place("wlan0", "192.0.2.8")];
        let [v4, v6] = ["198.51.100.1:1", "[2001:db8::1]:1"].map(|peer| peer.parse().unwrap());
        let find = |name: &str, peer| name.parse::<Interface>().unwrap().place(peer, Some(&present));
        assert_eq!(find("eth0", v4), Some(place("eth0", "192.0.2.7")));
        assert_eq!(find("eth0", v6), Some(place("eth0", "2001:db8::7")));
        assert_eq!(find("192.0.2.8", v4), Some(place("wlan0", "192.0.2.8")));
        assert_eq!((find("wlan0", v6), find("192.0.2.9", v4), find("eth1", v4)), (None, None, None));
        assert!(find("127.0.0.3", v4).is_some() && find("127.0.0.3", v6).is_none());
        // Other systems than Linux do not tell where addresses are.
        let untold = |name: &str, peer| name.parse::<Interface>().unwrap().place(peer, None);
        assert!(untold("192.0.2.9", v4).is_some() && untold("192.0.2.9", v6).is_none());
        assert!(untold("2001:db8::7", v6).is_some() && untold("eth0", v4).is_none());
    }

    #[test]
    fn the_loopback_device_is_there() {
        let peer = "127.0.0.1:1".parse().unwrap();
        assert_eq!(source(peer), Some(Ipv4Addr::LOCALHOST.into()));
        let present = places().unwrap();
        assert!(Interface::Device("lo".to_owned()).place(peer, present.as_deref()).is_some());
    }

    #[tokio::test]
    async fn keeps_sockets_while_the_system_does_not_tell_of_addresses() {
        let first = Interface::Address(Ipv4Addr::new(127, 0, 0, 2).into());
        let elsewhere = Interface::Address(Ipv4Addr::new(192, 0, 2, 7).into());
        let mut interfaces = Interfaces::new(vec![first.clone()], "127.0.0.1:1".parse().unwrap());
        let failure = || Err(io::Error::other("too many open files"));
        assert!(interfaces.refresh_in(&[], failure()).is_none() && interfaces.lacks_something());
        let before = interfaces.refresh_in(&[], Ok(Some(vec![]))).unwrap();
        assert!(before.len() == 1 && !interfaces.lacks_something());
        assert!(interfaces.refresh_in(&before, failure()).is_none(), "the socket stays");
        assert!(interfaces.lacks_something());
        assert!(interfaces.refresh_in(&before, Ok(Some(vec![]))).is_none() && !interfaces.lacks_something());
        // The system gives no socket for an address.
        interfaces.set(vec![first, elsewhere]);
        assert!(interfaces.refresh_in(&before, Ok(Some(vec![place("eth0", "192.0.2.7")]))).is_none());
        assert!(interfaces.lacks_something());
    }
}
