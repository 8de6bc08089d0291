//! Runs a host of the simulation on real sockets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use dunlin_sim::Host;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use crate::Error;
use crate::link::in_real_time;

/// More than the largest datagram.
const BUFFER: usize = 1 << 16;
/// How often a host looks whether it has to end.
const LOOK: Duration = Duration::from_millis(200);
/// Links, IPv4 addresses and IPv4 routes (linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x40;

/// Tells when addresses or routes of a namespace change.
pub(super) struct Watch(OwnedFd);

impl Watch {
    /// Watches the namespace of the calling thread.
    pub(super) fn new() -> Result<Self, Error> {
        let made = || {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
            bind(fd.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
            Ok(Self(fd))
        };
        made().map_err(|errno: Errno| failed(errno.into()))
    }

    /// Discards the messages that wait. Each only says that something has changed.
    fn drain(&self) {
        let mut buffer = [0; 4096];
        while recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()).is_ok_and(|len| len > 0) {}
    }
}

/// The address from which the calling thread's namespace reaches `peer`; `None` without a route.
pub(super) fn source_towards(peer: SocketAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The sockets of a host, by their addresses.
#[derive(Default)]
pub(super) struct Sockets(BTreeMap<SocketAddr, UdpSocket>);

impl Sockets {
    /// Opens a socket at this address.
    pub(super) fn open(&mut self, at: SocketAddr) -> Result<&UdpSocket, Error> {
        match self.0.entry(at) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(place) => {
                let socket = UdpSocket::bind(at).map_err(failed)?;
                socket.set_nonblocking(true).map_err(failed)?;
                Ok(place.insert(socket))
            }
        }
    }

    /// Closes the sockets at other addresses than this one.
    fn keep(&mut self, address: Option<IpAddr>) {
        self.0.retain(|at, _| Some(at.ip()) == address);
    }

    /// Sends all waiting output. Without a network it is lost.
    fn flush(&mut self, host: &mut impl Host) {
        while let Some((from, transmit)) = host.poll_transmit(dunlin_tokio::now()) {
            let _ = self.open(from).map(|socket| socket.send_to(&transmit.datagram, transmit.to));
        }
    }

    /// Runs a host until `is_done`. A host whose address changes has a watch, and a peer that it wants to reach.
    pub(super) fn run<H: Host>(
        &mut self,
        host: &mut H,
        watch: Option<(&Watch, SocketAddr)>,
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
            let has_changed =
                self.wait(timer.map_or(LOOK, |timer| timer.min(LOOK)), watch.map(|(watch, _)| watch))?;
            if let (true, Some((watch, peer))) = (has_changed, watch) {
                watch.drain();
                let address = source_towards(peer);
                host.set_addresses(dunlin_tokio::now(), &[address]);
                self.keep(address);
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
        for (at, socket) in &self.0 {
            // A datagram that did not reach its destination also appears as an error.
            while let Ok((len, from)) = socket.recv_from(buffer) {
                host.receive(dunlin_tokio::now(), *at, from, buffer.get(..len).unwrap_or_default());
            }
        }
    }

    /// Waits for a datagram or a change, and returns whether there was a change.
    fn wait(&self, most: Duration, watch: Option<&Watch>) -> Result<bool, Error> {
        let sockets = self.0.values().map(AsFd::as_fd);
        let watched = watch.map(|watch| watch.0.as_fd());
        let fds = watched.into_iter().chain(sockets);
        let mut polled: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::ZERO);
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        let first = polled.first().and_then(PollFd::any);
        Ok(watch.is_some() && first == Some(true))
    }
}

fn failed(why: std::io::Error) -> Error {
    Error::new("a socket of the lab", why, "run it again on an idle machine")
}
