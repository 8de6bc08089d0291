//! A UDP socket with its associations.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use dunlin::{
    ClientConfig, EndpointDiscarded, EndpointLimits, Local, Path, PortCounts, ServerAddress, ServerConfig,
    Transmit,
};
use tokio::net::UdpSocket;

use super::association::DtlsAssociation;
use super::handshake::DtlsOptions;
use super::interfaces::{Interface, Interfaces};
use super::nodes::{self, OtherNodes};
use super::shared::{Handle, Owned, Shared};
use crate::addresses::plain;
use crate::clock::now;
use crate::error::HandshakeError;

/// A UDP socket with any number of DTLS associations, as client and as server. It is cheap to clone.
///
/// A task drives the socket until the endpoint and all its associations are dropped. [`dunlin::Endpoint`]
/// says how it finds the association of a datagram, and what it keeps of clients before they have proven
/// their address.
///
/// # Examples
/// A server. Each handshake has its own task, so that a slow client does not delay the others.
/// ```no_run
/// use std::sync::Arc;
///
/// use dunlin::ServerConfig;
/// use dunlin_tokio::DtlsEndpoint;
///
/// # async fn example(config: ServerConfig) -> Result<(), Box<dyn std::error::Error>> {
/// let endpoint = DtlsEndpoint::bind("127.0.0.1:5684".parse()?).await?;
/// endpoint.set_server(Some(Arc::new(config)));
/// loop {
///     let incoming = endpoint.accept().await;
///     tokio::spawn(async move {
///         let client = incoming.peer_address();
///         match incoming.accept().await {
///             Ok(dtls) => while let Ok(Some(data)) = dtls.recv().await {
///                 println!("{client}: {} bytes", data.len());
///             },
///             Err(error) => eprintln!("{client}: {error}"),
///         }
///     });
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct DtlsEndpoint {
    pub(super) handle: Arc<Handle>,
}

impl DtlsEndpoint {
    /// An endpoint on a new socket at this address, with the default limits. It is only a client until
    /// [`Self::set_server`].
    ///
    /// # Errors
    /// The system cannot bind a socket to the address.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::new(UdpSocket::bind(address).await?, EndpointLimits::default())
    }

    /// An endpoint on this socket. If the socket is connected, the endpoint has only this peer, and a
    /// handshake fails at once if the network says that no program receives there.
    ///
    /// # Errors
    /// The socket has no address.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(socket: UdpSocket, limits: EndpointLimits) -> io::Result<Self> {
        Ok(Self::run(Arc::new(Shared::new(socket, limits)?)))
    }

    /// Starts the task.
    pub(super) fn run(shared: Arc<Shared>) -> Self {
        tokio::spawn(Arc::clone(&shared).drive());
        Self { handle: Arc::new(Handle(shared)) }
    }

    /// A client's endpoint with a socket for each of these interfaces, the best first, on the way to
    /// `server`. Its connections need [`ClientConfig::with_multihoming`]. They use the best interface that
    /// works, as [`dunlin::Multihoming`] says.
    ///
    /// An interface may be down, or have no address yet. On Linux, the endpoint notices at once when
    /// interfaces and addresses come and go, and looks again each second if the system cannot tell of them.
    /// Elsewhere, interfaces are addresses, and associations notice by their probes that one does not work.
    ///
    /// # Errors
    /// The system cannot report changes of addresses.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn over(interfaces: Vec<Interface>, server: SocketAddr, limits: EndpointLimits) -> io::Result<Self> {
        let shared = Arc::new(Shared::over(Interfaces::new(interfaces, server), limits)?);
        tokio::spawn(Arc::clone(&shared).drive());
        Ok(Self { handle: Arc::new(Handle(shared)) })
    }

    /// Replaces the interfaces of an endpoint from [`Self::over`], or looks again at their addresses.
    /// Associations leave interfaces that are missing, and send what may be lost there over another one.
    pub fn set_interfaces(&self, interfaces: Vec<Interface>) {
        self.handle.0.act(|state| state.set_interfaces(interfaces));
    }

    /// The interfaces of [`Self::over`] that are down or have no address of the server's family, in the order
    /// of the list. The endpoint uses each as soon as it is up.
    pub fn missing_interfaces(&self) -> Vec<Interface> {
        self.handle.0.read(super::shared::State::missing_interfaces)
    }

    /// Lets associations of this client tell their servers at once when the machine sends from another
    /// address ([`dunlin::DtlsConnection::address_changed`]). The socket must be bound to the unspecified
    /// address (`0.0.0.0` or `[::]`). If it is connected, this ends its connection, which binds it to one
    /// address of the machine. On systems other than Linux, this has no effect.
    ///
    /// # Errors
    /// The system cannot report changes of addresses, or another program has taken the socket's port when its
    /// connection ended.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn watch_addresses(&self) -> io::Result<()> {
        self.handle.0.watch()
    }

    /// The socket's address; the address of the best interface, if the endpoint has several. Without any, it
    /// is `0.0.0.0` with port 0.
    pub fn local_addr(&self) -> SocketAddr {
        let none = SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, 0));
        self.handle.0.read(|state| state.first_address()).unwrap_or(none)
    }

    /// Adds ports to the pool for associations without connection IDs ([`dunlin::PortScheme`]): sockets that
    /// are bound to this endpoint's address, each with a port of its own, and not connected. Each costs a
    /// file descriptor and some work for every datagram.
    ///
    /// # Errors
    /// There are no sockets, or too many ([`dunlin::Endpoint::add_ports`]); or one of them has no address.
    pub fn add_ports(&self, sockets: impl IntoIterator<Item = UdpSocket>) -> io::Result<()> {
        let sockets = sockets.into_iter().collect();
        self.handle.0.act(|state| state.add_ports(sockets))
    }

    /// Counts about the ports of associations.
    pub fn ports(&self) -> PortCounts {
        self.handle.0.read(|state| state.endpoint.ports())
    }

    /// Sets the configuration for new clients ([`dunlin::Endpoint::set_server`]). With `None` the endpoint
    /// accepts no more clients. After [`Self::freeze`] this has no effect.
    pub fn set_server(&self, config: Option<Arc<ServerConfig>>) {
        self.handle.0.act(|state| {
            if !state.is_frozen {
                state.endpoint.set_server(config);
            }
        });
    }

    /// Changes the limits ([`dunlin::Endpoint::set_limits`]).
    pub fn set_limits(&self, limits: EndpointLimits) {
        self.handle.0.act(|state| state.endpoint.set_limits(limits));
    }

    /// Sets a function that says, by the address of its sender, whether to discard the ClientHello of a new
    /// client without an answer ([`dunlin::Endpoint::set_refusal`]). It must not use this endpoint.
    pub fn set_refusal(&self, is_refused: impl Fn(SocketAddr) -> bool + Send + Sync + 'static) {
        self.handle.0.act(|state| state.endpoint.set_refusal(is_refused));
    }

    /// Sets a function that says of each datagram, just before it is sent, whether to lose it instead. For
    /// tests of programs on bad networks.
    pub fn set_loss(&self, is_lost: impl FnMut() -> bool + Send + 'static) {
        self.handle.0.act(|state| state.loss = Some(Box::new(is_lost)));
    }

    /// Waits for the next client that has proven its address, whose handshake has begun. The caller can drop
    /// the future without loss.
    pub async fn accept(&self) -> DtlsIncoming {
        let begun = poll_fn(|cx| self.poll_incoming(cx)).await;
        DtlsIncoming { begun }
    }

    fn poll_incoming(&self, cx: &Context<'_>) -> Poll<Result<Owned, (SocketAddr, dunlin::Error)>> {
        self.handle.0.act(|state| {
            while let Some(id) = state.incoming.pop_first() {
                if let Some(association) = state.endpoint.association(id) {
                    let peer = association.connection().peer_address();
                    return Poll::Ready(Ok(Owned { handle: Arc::clone(&self.handle), id, peer }));
                }
            }
            if let Some(failed) = state.failed.pop_front() {
                return Poll::Ready(Err(failed));
            }
            state.wait_for_client(cx);
            Poll::Pending
        })
    }

    /// Connects to `server` at the address `peer`.
    ///
    /// # Examples
    /// A client with connection IDs, whose association goes on when its address changes. It sends the
    /// server's ID, and asks for an empty one, because its socket has only one association. Its datagrams
    /// have at most 256 bytes.
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use dunlin::{ClientConfig, NodeIds, Profile, ServerAddress};
    /// use dunlin_tokio::DtlsEndpoint;
    ///
    /// # async fn example(profile: Profile) -> Result<(), Box<dyn std::error::Error>> {
    /// let random = dunlin_awslc::provider().random;
    /// let config = ClientConfig::new(profile)
    ///     .with_connection_ids(Arc::new(NodeIds::new(&[], 0, random)?))
    ///     .with_mtu(256)?;
    /// let endpoint = DtlsEndpoint::bind("0.0.0.0:0".parse()?).await?;
    /// let server = ServerAddress::parse("sensors.example", 5684)?;
    /// let dtls = endpoint.connect(&Arc::new(config), server, "192.0.2.7:5684".parse()?).await?;
    /// assert!(!dtls.peer_connection_id().is_empty(), "the server negotiates connection IDs, too");
    /// dtls.send(b"hello").await?;
    /// if let Some(answer) = dtls.recv().await? {
    ///     println!("{} bytes", answer.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The handshake failed or took longer than [`crate::DEFAULT_TIMEOUT`], there is an association with this
    /// address, or no interface of [`Self::over`] is up.
    pub async fn connect(
        &self,
        config: &Arc<ClientConfig>,
        server: ServerAddress,
        peer: SocketAddr,
    ) -> Result<DtlsAssociation, HandshakeError> {
        self.connect_with(config, server, peer, &DtlsOptions::new()).await
    }

    /// Connects with these options.
    ///
    /// # Errors
    /// The errors of [`Self::connect`].
    pub async fn connect_with(
        &self,
        config: &Arc<ClientConfig>,
        server: ServerAddress,
        peer: SocketAddr,
        options: &DtlsOptions,
    ) -> Result<DtlsAssociation, HandshakeError> {
        let peer = plain(peer);
        let id = self.handle.0.act(|state| state.connect(config, server, peer))?;
        options.handshake(Owned { handle: Arc::clone(&self.handle), id, peer }).await
    }

    /// Passes datagrams that belong to other nodes on to them.
    pub fn set_other_nodes(&self, nodes: Arc<dyn OtherNodes>) {
        self.handle.0.act(|state| state.nodes = Some(nodes));
    }

    /// Processes a datagram that another node has received over this path. The endpoint answers over this
    /// node, because a load balancer or NAT expects answers from where it has sent the datagram. To the
    /// association, it is another path to its client, and the client's address counts only after a check
    /// ([`dunlin::Migration`]) unless it is the present one.
    ///
    /// Returns whether the datagram has the connection ID of an association here. Any other one is discarded.
    pub fn receive_over(&self, node: u16, path: Path, datagram: &[u8]) -> bool {
        self.handle.0.act(|state| {
            let is_here = state.endpoint.has_id_of(datagram);
            if is_here {
                state.endpoint.receive(now(), Path { local: nodes::local(node), ..path }, datagram);
            }
            is_here
        })
    }

    /// Sends a datagram from this endpoint's socket as it is, for an association of another node.
    ///
    /// # Errors
    /// The socket does not take it now, or the endpoint has none.
    pub fn send_as_is(&self, path: Path, datagram: &[u8]) -> io::Result<()> {
        let Path { source, peer: to, .. } = path;
        let transmit = Transmit { local: Local::default(), source, to, datagram: datagram.to_vec() };
        self.handle.0.read(|state| state.send_now(&transmit))
    }

    /// This endpoint, as a value that does not keep it open.
    pub fn downgrade(&self) -> WeakDtlsEndpoint {
        WeakDtlsEndpoint(Arc::downgrade(&self.handle))
    }

    /// The number of associations, including those whose handshake is not complete.
    pub fn associations(&self) -> usize {
        self.handle.0.read(|state| state.endpoint.len())
    }

    /// Counts of the datagrams that belonged to no association, or were beyond a limit.
    pub fn discarded(&self) -> EndpointDiscarded {
        self.handle.0.read(|state| state.endpoint.discarded())
    }
}

impl fmt::Debug for DtlsEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DtlsEndpoint").field("local_addr", &self.local_addr()).finish_non_exhaustive()
    }
}

/// An endpoint that this value does not keep open.
#[derive(Clone)]
pub struct WeakDtlsEndpoint(Weak<Handle>);

impl WeakDtlsEndpoint {
    /// The endpoint, unless all that keeps it open is gone: its handles and associations.
    pub fn upgrade(&self) -> Option<DtlsEndpoint> {
        self.0.upgrade().map(|handle| DtlsEndpoint { handle })
    }
}

impl fmt::Debug for WeakDtlsEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakDtlsEndpoint").finish_non_exhaustive()
    }
}

/// A client that has begun a handshake. Its handshake continues by itself, except for questions. Dropping the
/// value aborts it.
pub struct DtlsIncoming {
    /// The association, or the address and the error of a handshake that has failed at once.
    begun: Result<Owned, (SocketAddr, dunlin::Error)>,
}

impl DtlsIncoming {
    /// The client's address.
    pub const fn peer_address(&self) -> SocketAddr {
        match &self.begun {
            Ok(owned) => owned.peer,
            Err((peer, _)) => *peer,
        }
    }

    /// Completes the handshake.
    ///
    /// # Errors
    /// The handshake failed or took longer than [`crate::DEFAULT_TIMEOUT`].
    pub async fn accept(self) -> Result<DtlsAssociation, HandshakeError> {
        self.accept_with(&DtlsOptions::new()).await
    }

    /// Completes the handshake with these options.
    ///
    /// # Errors
    /// The handshake failed or took too long.
    pub async fn accept_with(self, options: &DtlsOptions) -> Result<DtlsAssociation, HandshakeError> {
        match self.begun {
            Ok(owned) => options.handshake(owned).await,
            Err((_, error)) => Err(error.into()),
        }
    }
}

impl fmt::Debug for DtlsIncoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DtlsIncoming").field("peer_address", &self.peer_address()).finish_non_exhaustive()
    }
}
