//! Several gateways with the same clients: datagrams of a client may arrive at any of them (docs/gateway.md).
//!
//! The connection ID in a datagram names the gateway that has its association. Another gateway passes the
//! datagram on to it, with the client's address and the address that the client has asked. The answers go
//! back the same way: a load balancer or NAT expects them from the gateway, and from the address, to which it
//! has sent the datagram. [`envelope`] is the form of datagrams between gateways.
//!
//! A datagram is passed on once only, since one that came from another gateway goes to an association or
//! nowhere.

mod envelope;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dunlin::crypto::{CryptoProvider, HmacKey};
use dunlin::{CookieKeys, NodeMask, Path};
use dunlin_store::cache::{KeyFault, read_key};
use dunlin_tokio::throttle::{Line, Throttle};
use dunlin_tokio::{DtlsEndpoint, OtherNodes, WeakDtlsEndpoint};
use tokio::net::UdpSocket as AsyncUdpSocket;
use tokio::sync::watch;

use crate::clock::now;
use crate::config::{Fault, NodesConfig};
use crate::life::{Phase, reached};
use crate::metrics::{Metrics, Passed};
use crate::proxy::udp::MAX_DATAGRAM;
use envelope::{Direction, Envelope, ListenerId, Number, Window};

/// The keys that gateways derive from their shared key.
pub(crate) struct NodeKeys {
    /// The number of this gateway.
    pub(crate) own: u16,
    /// Hides the number in connection IDs.
    pub(crate) mask: NodeMask,
    /// Lets each gateway accept the cookies of the others.
    pub(crate) cookies: CookieKeys,
    envelopes: Box<dyn HmacKey>,
}

impl NodeKeys {
    /// Reads the key file.
    pub(crate) fn read(config: &NodesConfig, provider: &CryptoProvider) -> Result<Self, Fault> {
        let path = &config.key.value;
        let told = |fault: KeyFault| {
            config.key.place.fault(format!("{}: {fault}", path.display()), fault.advice(path))
        };
        let root = provider.sha256.hmac(&*read_key(path).map_err(told)?);
        let key = |label: &[u8]| root.sign(&[b"dunlin gateway nodes 1 ", label]);
        let failed = |error: dunlin::Error| config.key.place.fault(error.to_string(), "report this error");
        Ok(Self {
            own: config.own,
            mask: NodeMask::new(provider, key(b"connection IDs").as_ref()).map_err(failed)?,
            cookies: CookieKeys::new(key(b"cookies").as_ref()).map_err(failed)?,
            envelopes: provider.sha256.hmac(key(b"datagrams").as_ref()),
        })
    }
}

/// Another gateway.
struct Peer {
    address: SocketAddr,
    /// Connected, so that the system reports a gateway that is down.
    socket: UdpSocket,
    sent: AtomicU64,
    received: Mutex<Window>,
    counts: Counts,
}

impl Peer {
    fn new(address: SocketAddr, node: u16, metrics: &Metrics) -> io::Result<Self> {
        let any = match address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        socket.connect(address)?;
        let received = Mutex::new(Window::new());
        Ok(Self { address, socket, sent: AtomicU64::new(0), received, counts: metrics.of_node(node) })
    }
}

/// Counts the fates of datagrams from and for another gateway.
type Counts = Box<dyn Fn(Passed) + Send + Sync>;

/// The gateways with the same clients, as this one sees them.
pub(crate) struct Nodes {
    keys: Arc<NodeKeys>,
    /// When this gateway began, in milliseconds since 1970.
    start: u64,
    peers: BTreeMap<u16, Peer>,
    /// The endpoints of the listeners; several while associations of a replaced one go on.
    endpoints: Mutex<HashMap<ListenerId, Vec<WeakDtlsEndpoint>>>,
    /// Counts datagrams that no gateway has sent.
    forged: Counts,
    lines: Throttle,
}

impl Nodes {
    /// # Errors
    /// An address to which the system cannot send.
    pub(crate) fn new(
        config: &NodesConfig,
        keys: Arc<NodeKeys>,
        metrics: &Metrics,
    ) -> Result<Arc<Self>, Fault> {
        let mut peers = BTreeMap::new();
        for node in &config.others {
            let told = |error: io::Error| {
                let what = format!("{}: {error}", node.address);
                config.place.fault(what, "give an address that this machine can send to")
            };
            peers.insert(node.number, Peer::new(node.address, node.number, metrics).map_err(told)?);
        }
        Ok(Arc::new(Self {
            keys,
            start: now().unix_ms,
            peers,
            endpoints: Mutex::default(),
            forged: metrics.of_no_node(),
            lines: Throttle::default(),
        }))
    }

    /// Lets a listener's endpoint pass datagrams on, and get those that others pass on.
    pub(crate) fn join(self: &Arc<Self>, listener: &str, endpoint: &DtlsEndpoint) {
        let id = ListenerId::of(&*self.keys.envelopes, listener);
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let of_listener = endpoints.entry(id).or_default();
        of_listener.retain(|endpoint| endpoint.upgrade().is_some());
        of_listener.push(endpoint.downgrade());
        drop(endpoints);
        let link = Link { nodes: self.clone(), listener: listener.to_owned(), id };
        endpoint.set_other_nodes(Arc::new(link));
    }

    /// The endpoints of a listener, the latest first.
    fn endpoints(&self, id: ListenerId) -> Vec<DtlsEndpoint> {
        let endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.get(&id).into_iter().flatten().rev().filter_map(WeakDtlsEndpoint::upgrade).collect()
    }

    /// Receives the datagrams of other gateways until this one ends all connections.
    pub(crate) async fn run(self: Arc<Self>, socket: AsyncUdpSocket, phases: watch::Receiver<Phase>) {
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            let received = tokio::select! {
                received = socket.recv_from(&mut buffer) => received,
                () = reached(&phases, Phase::Ending) => return,
            };
            // An error is about an earlier datagram.
            let Ok((len, from)) = received else { continue };
            self.received(from, buffer.get(..len).unwrap_or_default());
        }
    }

    fn received(&self, from: SocketAddr, sealed: &[u8]) {
        let opened = Envelope::open(&*self.keys.envelopes, sealed).filter(|it| it.to == self.keys.own);
        let Some((envelope, peer)) = opened.and_then(|it| Some((it, self.peers.get(&it.from)?))) else {
            (self.forged)(Passed::Forged);
            if let Some(Line { left_out }) = self.lines.line("", "forged", now()) {
                let advice = "if it came from another gateway, give both the same key and the same tables [[nodes.node]]";
                tracing::warn!(%from, left_out, "nodes: a datagram is not authentic; {advice}");
            }
            return;
        };
        let is_new = peer.received.lock().unwrap_or_else(PoisonError::into_inner).take(envelope.number);
        (peer.counts)(match envelope.direction {
            _ if !is_new => Passed::Replayed,
            Direction::ToOwner => {
                let path = envelope.path();
                let datagram = envelope.datagram;
                let takes = |endpoint: &DtlsEndpoint| endpoint.receive_over(envelope.from, path, datagram);
                if self.endpoints(envelope.listener).iter().any(takes) {
                    Passed::Delivered
                } else {
                    Passed::Unknown
                }
            }
            Direction::ToClient => match self.endpoints(envelope.listener).first() {
                None => Passed::Unknown,
                Some(endpoint) => match endpoint.send_as_is(envelope.path(), envelope.datagram) {
                    Ok(()) => Passed::Sent,
                    Err(_) => Passed::Lost,
                },
            },
        });
    }
}

/// The link from the endpoint of a listener to the other gateways.
struct Link {
    nodes: Arc<Nodes>,
    listener: String,
    id: ListenerId,
}

impl Link {
    fn send(&self, peer: &Peer, to: u16, direction: Direction, path: Path, datagram: &[u8]) {
        let Nodes { keys, start, lines, .. } = &*self.nodes;
        let number = Number { start: *start, number: peer.sent.fetch_add(1, Ordering::Relaxed) };
        let client = path.peer;
        let asked = path.source;
        let envelope =
            Envelope { direction, from: keys.own, to, number, listener: self.id, client, asked, datagram };
        let sealed = envelope.seal(&*keys.envelopes);
        let mut result = peer.socket.send(&sealed);
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            // This is the answer to an earlier datagram. The gateway may be back.
            (peer.counts)(Passed::Lost);
            self.tell(lines, peer, to, &ErrorKind::ConnectionRefused.into());
            result = peer.socket.send(&sealed);
        }
        (peer.counts)(match (&result, direction) {
            (Ok(_), Direction::ToOwner) => Passed::Forwarded,
            (Ok(_), Direction::ToClient) => Passed::Returned,
            (Err(_), _) => Passed::Lost,
        });
        if let Err(error) = result {
            self.tell(lines, peer, to, &error);
        }
    }

    fn tell(&self, lines: &Throttle, peer: &Peer, node: u16, error: &io::Error) {
        if let Some(Line { left_out }) = lines.line(&self.listener, "lost", now()) {
            let listener = &self.listener;
            let address = peer.address;
            let advice = "the gateway there is down, or its address is another one";
            tracing::warn!(listener, node, %address, %error, left_out, "nodes: a datagram is lost; {advice}");
        }
    }
}

impl OtherNodes for Link {
    fn take(&self, path: Path, datagram: &[u8]) -> bool {
        let id = dunlin::connection_id(datagram, NodeMask::ID_LEN);
        let Some(node) = id.and_then(|id| self.nodes.keys.mask.node_of(id)) else { return false };
        let Some(peer) = self.nodes.peers.get(&node) else { return false };
        self.send(peer, node, Direction::ToOwner, path, datagram);
        true
    }

    fn send_over(&self, node: u16, path: Path, datagram: &[u8]) -> bool {
        let Some(peer) = self.nodes.peers.get(&node) else { return false };
        self.send(peer, node, Direction::ToClient, path, datagram);
        true
    }
}
