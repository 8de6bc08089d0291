//! Runs a host of the simulation on real sockets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use dunlin_sim::Host;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt, socket,
    sockopt,
};

use crate::Error;
use crate::error::socket_failed;
use crate::link::in_real_time;

/// More than the largest datagram.
const BUFFER: usize = 1 << 16;
/// How often a host looks whether it has to end.
const LOOK: Duration = Duration::from_millis(200);
/// Links, IPv4 addresses and IPv4 routes (linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x40;

/// Tells when addresses or routes of a namespace change, and from which addresses the namespace reaches a
/// peer.
pub(super) struct Watch<'a> {
    fd: OwnedFd,
    devices: &'a [&'static str],
    peer: SocketAddr,
}

impl<'a> Watch<'a> {
    /// Watches the namespace of the calling thread.
    pub(super) fn new(devices: &'a [&'static str], peer: SocketAddr) -> Result<Self, Error> {
        let made = || {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
            bind(fd.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
            Ok(Self { fd, devices, peer })
        };
        made().map_err(|errno: Errno| socket_failed(errno))
    }

    /// Discards the messages that wait. Each only says that something has changed.
    fn drain(&self) {
        let mut buffer = [0; 4096];
        while recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty()).is_ok_and(|len| len > 0) {}
    }

    /// The address of each device from which the namespace reaches the peer; `None` without a route.
    fn addresses(&self) -> Vec<Option<IpAddr>> {
        let source = |device: &&str| {
            let socket = open((Ipv4Addr::UNSPECIFIED, 0).into(), Some(device)).ok()?;
            socket.connect(self.peer).ok()?;
            Some(socket.local_addr().ok()?.ip())
        };
        self.devices.iter().map(source).collect()
    }
}

/// Opens a socket at an address, over a device if one is named.
fn open(at: SocketAddr, device: Option<&str>) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    if let Some(device) = device {
        setsockopt(&socket, sockopt::BindToDevice, &device.into())?;
    }
    Ok(socket)
}

/// The sockets of a host, by their addresses.
#[derive(Default)]
pub(super) struct Sockets {
    open: BTreeMap<SocketAddr, UdpSocket>,
    /// The devices of the addresses, for a host with a watch.
    devices: BTreeMap<IpAddr, &'static str>,
}

impl Sockets {
    /// Opens a socket at this address.
    pub(super) fn open(&mut self, at: SocketAddr) -> Result<&UdpSocket, Error> {
        let device = self.devices.get(&at.ip()).copied();
        match self.open.entry(at) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(open(at, device).map_err(socket_failed)?)),
        }
    }

    /// Tells a host its addresses. Sockets at other ones are closed.
    pub(super) fn look(&mut self, watch: &Watch<'_>, host: &mut impl Host) {
        let addresses = watch.addresses();
        let with_device = addresses.iter().zip(watch.devices);
        self.devices = with_device.filter_map(|(address, device)| Some(((*address)?, *device))).collect();
        let devices = &self.devices;
        self.open.retain(|at, _| devices.contains_key(&at.ip()));
        host.set_addresses(dunlin_tokio::now(), &addresses);
    }

    /// Sends all waiting output. Without a network it is lost.
    fn flush(&mut self, host: &mut impl Host) {
        while let Some((from, transmit)) = host.poll_transmit(dunlin_tokio::now()) {
            let _ = self.open(from).map(|socket| socket.send_to(&transmit.datagram, transmit.to));
        }
    }

    /// Runs a host until `is_done`. A host whose addresses change has a watch.
    pub(super) fn run<H: Host>(
        &mut self,
        host: &mut H,
        watch: Option<&Watch<'_>>,
        is_done: impl Fn(&H) -> bool,
    ) -> Result<(), Error> {
        // The result is then about the network, not about the machine.
        in_real_time();
        let mut buffer = vec![0; BUFFER];
        loop {
            self.flush(host);
            if is_done(host) {
                return Ok(());
            }
            let timer = host.poll_timeout().map(|at| at.since(dunlin_tokio::now().monotonic));
            let has_changed = self.wait(timer.map_or(LOOK, |timer| timer.min(LOOK)), watch)?;
            if let Some(watch) = watch.filter(|_| has_changed) {
                watch.drain();
                self.look(watch, host);
            }
            self.receive(host, &mut buffer);
            let now = dunlin_tokio::now();
            if host.poll_timeout().is_some_and(|at| at <= now.monotonic) {
                host.handle_timeout(now);
            }
        }
    }

    /// Receives what waits at all sockets.
    fn receive(&self, host: &mut impl Host, buffer: &mut [u8]) {
        for (at, socket) in &self.open {
            // A datagram that did not reach its destination also appears as an error.
            while let Ok((len, from)) = socket.recv_from(buffer) {
                host.receive(dunlin_tokio::now(), *at, from, buffer.get(..len).unwrap_or_default());
            }
        }
    }

    /// Waits for a datagram or a change, and returns whether there was a change.
    fn wait(&self, most: Duration, watch: Option<&Watch<'_>>) -> Result<bool, Error> {
        let sockets = self.open.values().map(AsFd::as_fd);
        let watched = watch.map(|watch| watch.fd.as_fd());
        let fds = watched.into_iter().chain(sockets);
        let mut polled: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::ZERO);
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(socket_failed(errno)),
        }
        let first = polled.first().and_then(PollFd::any);
        Ok(watch.is_some() && first == Some(true))
    }
}
