//! DTLS to UDP: each association has a socket to its backend, which opens at the first datagram. It stays
//! open with the association, since a backend may send long after the client has asked (RFC 7641), but no
//! longer than `backend_time` without traffic.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dunlin::Ended;
use dunlin::error::Misuse;
use dunlin::places::GivesWay;
use dunlin_tokio::{AssociationEnded, DtlsAssociation, addresses};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{sleep_until, timeout};

use crate::clock::timer;

/// The largest datagram, in bytes (RFC 768).
pub(crate) const MAX_DATAGRAM: usize = 65_535;

/// Why an association has ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The client has closed it, or the endpoint has forgotten it.
    Closed,
    /// The gateway stops.
    Stopped,
    /// Its next part follows in another process.
    Frozen,
    /// The client gave way to another one at a limit.
    GaveWay(GivesWay),
    /// Nothing has arrived from the client for too long.
    Forgotten,
    /// It failed.
    Failed(io::Error),
}

impl End {
    fn of(error: io::Error) -> Self {
        match AssociationEnded::of(&error) {
            Some(Ended::GaveWay(why)) => return Self::GaveWay(why),
            Some(Ended::Idle) => return Self::Forgotten,
            _ => {}
        }
        let engine = error.get_ref().and_then(|error| error.downcast_ref());
        match engine {
            Some(dunlin::Error::Misuse(Misuse::Frozen)) => Self::Frozen,
            _ => Self::Failed(error),
        }
    }
}

/// A backend for datagrams.
pub(crate) struct Backend<'a> {
    /// Its host and port.
    pub(crate) to: &'a str,
    /// Source addresses, used in turn: one address has ports for 28,000 sockets to the same backend. Empty:
    /// any.
    pub(crate) sources: &'a [IpAddr],
    /// The next source address.
    pub(crate) next: &'a AtomicUsize,
    /// How long a socket may stay without traffic.
    pub(crate) backend_time: Duration,
    pub(crate) connect_time: Duration,
    /// Makes the PROXY header before each datagram of a client at this address; empty: none. Backends of
    /// datagrams expect one in each.
    pub(crate) header: &'a (dyn Fn(SocketAddr) -> Vec<u8> + Send + Sync),
}

impl Backend<'_> {
    /// Opens a socket to the backend.
    pub(crate) async fn open(&self) -> io::Result<UdpSocket> {
        let (host, port) = addresses::split(self.to)?;
        let found = timeout(self.connect_time, addresses::look_up(host, port)).await;
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for to in found.map_err(|_| io::ErrorKind::TimedOut)?? {
            match self.connect(to).await {
                Ok(socket) => return Ok(socket),
                // Another address may have a route.
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn connect(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        let own = match (self.sources, to.ip()) {
            ([], IpAddr::V4(_)) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            ([], IpAddr::V6(_)) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
            (sources, _) => {
                let next = self.next.fetch_add(1, Ordering::Relaxed);
                sources.iter().cycle().nth(next % sources.len()).copied().unwrap_or(to.ip())
            }
        };
        let socket = UdpSocket::bind(SocketAddr::new(own, 0)).await?;
        socket.connect(to).await?;
        Ok(socket)
    }
}

/// The traffic of an association.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    pub(crate) from_client: u64,
    pub(crate) to_client: u64,
    /// Datagrams that were lost between the gateway and the backend, or were too long for the client.
    pub(crate) dropped: u64,
}

/// The error that waits at this socket, which is taken off it.
fn pending_error(socket: &UdpSocket) -> Option<io::Error> {
    let taken = socket.try_io(Interest::ERROR, || match socket.take_error()? {
        Some(error) => Ok(error),
        // The runtime waits for the next one only after this.
        None => Err(io::ErrorKind::WouldBlock.into()),
    });
    taken.ok()
}

/// An event on the way to a backend.
pub(crate) enum ToBackend<'a> {
    /// A socket is open.
    Opened,
    /// No socket opens, or the network says that the backend takes no datagrams.
    Failed(&'a io::Error),
    /// The socket is closed after `backend_time` without traffic. Later datagrams from the backend are lost.
    Expired,
}

/// Passes datagrams until the association ends. `note` is called with each event on the way to the backend.
pub(crate) async fn pass(
    client: &DtlsAssociation,
    backend: &Backend<'_>,
    passed: &mut Passed,
    mut note: impl FnMut(ToBackend<'_>),
    stop: impl Future<Output = ()>,
) -> End {
    let mut stop = std::pin::pin!(stop);
    let mut socket = None;
    let mut latest = timer();
    let mut from = client.peer_address();
    let mut header = (backend.header)(from);
    loop {
        let receive = async {
            match &socket {
                Some(open) => {
                    let open: &UdpSocket = open;
                    open.ready(Interest::READABLE | Interest::ERROR).await
                }
                None => std::future::pending().await,
            }
        };
        let idle = async {
            match &socket {
                Some(_) => sleep_until(latest + backend.backend_time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            received = client.recv() => {
                let data = match received {
                    Ok(Some(data)) => data,
                    Ok(None) => return End::Closed,
                    Err(error) => return End::of(error),
                };
                passed.from_client += data.len() as u64;
                latest = timer();
                if socket.is_none() {
                    let result = backend.open().await;
                    note(result.as_ref().map_or_else(ToBackend::Failed, |_| ToBackend::Opened));
                    socket = result.ok();
                }
                let Some(open) = &socket else {
                    passed.dropped += 1;
                    continue;
                };
                // A connection ID lets the client's address change.
                if client.peer_address() != from {
                    from = client.peer_address();
                    header = (backend.header)(from);
                }
                let sent = match &header[..] {
                    [] => open.send(&data).await,
                    header => open.send(&[header, &data].concat()).await,
                };
                // It may also be the answer to an earlier datagram. Datagrams may be lost.
                if let Err(error) = sent {
                    passed.dropped += 1;
                    note(ToBackend::Failed(&error));
                }
            }
            _ = receive => {
                let Some(open) = &socket else { continue };
                // A port without a program answers with ICMP's error, which makes nothing readable.
                if let Some(error) = pending_error(open) {
                    passed.dropped += 1;
                    note(ToBackend::Failed(&error));
                    continue;
                }
                // It ends with this branch: an association that waits holds no buffer.
                let mut datagram = Vec::with_capacity(MAX_DATAGRAM);
                let len = match open.try_recv_buf(&mut datagram) {
                    Ok(len) => len,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => {
                        passed.dropped += 1;
                        note(ToBackend::Failed(&error));
                        continue;
                    }
                };
                latest = timer();
                match client.send(&datagram).await {
                    Ok(()) => passed.to_client += len as u64,
                    // Too long for a record; the client asks again or gives up, as if the network had lost
                    // it.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => passed.dropped += 1,
                    Err(error) => return End::of(error),
                }
            }
            () = idle => {
                socket = None;
                note(ToBackend::Expired);
            }
            () = &mut stop => return End::Stopped,
        }
    }
}
