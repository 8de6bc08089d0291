//! Several sockets on one port, so that several cores receive.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use dunlin::crypto::SecureRandom;
use dunlin::error::Misuse;
use dunlin::{EndpointLimits, NodeIds, ServerConfig};
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use tokio::net::UdpSocket;

use super::endpoint::DtlsEndpoint;
use super::shared::Port;

/// The random bytes of a connection ID: enough to be unique, and hard to guess.
const RANDOM_LEN: usize = 8;

/// Several endpoints on one port, each with a socket and a task of its own (`SO_REUSEPORT`, on Linux only). The kernel spreads clients over
/// the sockets by their address. If a client with a connection ID moves to another address, its datagrams may arrive at another socket. Its
/// ID names the endpoint that has its association, which gets the datagrams.
///
/// Associations without connection IDs are lost to the peer when its address changes, as at any endpoint, and also when the number of
/// sockets on the port changes. The endpoints can freeze their associations ([`DtlsEndpoint::freeze`]), but a port does not resume any.
///
/// # Examples
/// ```no_run
/// # async fn example(config: dunlin::ServerConfig, provider: dunlin::crypto::CryptoProvider) -> Result<(), Box<dyn std::error::Error>> {
/// use dunlin_tokio::DtlsPort;
///
/// let port = DtlsPort::bind("0.0.0.0:5684".parse()?, 4, 0, dunlin::EndpointLimits::default())?;
/// port.set_server(Some(&config), &[], &provider.random)?;
/// for endpoint in port.endpoints() {
///     let endpoint = endpoint.clone();
///     tokio::spawn(async move {
///         loop {
///             let incoming = endpoint.accept().await;
///             tokio::spawn(incoming.accept());
///         }
///     });
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DtlsPort {
    endpoints: Vec<DtlsEndpoint>,
    node_len: usize,
}

impl DtlsPort {
    /// Binds `sockets` sockets, at least one and at most 255, to this address. `limits` are those of each endpoint. `node_len` is the
    /// length in bytes of the node that [`Self::set_server`] names.
    ///
    /// # Errors
    /// The system cannot bind a socket to the address, for example because another user has one there.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn bind(
        address: SocketAddr,
        sockets: u8,
        node_len: usize,
        limits: EndpointLimits,
    ) -> io::Result<Self> {
        let mut endpoints = Vec::new();
        let mut address = address;
        for _ in 0..sockets.max(1) {
            let endpoint = DtlsEndpoint::new(open(address)?, limits)?;
            // All sockets have the port that the first one got.
            address = endpoint.local_addr();
            endpoints.push(endpoint);
        }
        for (own, endpoint) in endpoints.iter().enumerate() {
            endpoint.handle.0.join(Port {
                id_len: node_len + 1 + RANDOM_LEN,
                at: node_len,
                own,
                endpoints: endpoints.iter().map(|other| Arc::downgrade(&other.handle.0)).collect(),
                handed_over: AtomicU64::new(0),
            });
        }
        Ok(Self { endpoints, node_len })
    }

    /// Sets the configuration for new clients of all endpoints ([`DtlsEndpoint::set_server`]). Their connection IDs begin with `node`, which
    /// names this server to a load balancer and may be empty. A byte follows that names the endpoint, and 8 random ones.
    ///
    /// # Errors
    /// `node` has another length than [`Self::bind`] was told, or is too long.
    pub fn set_server(
        &self,
        config: Option<&ServerConfig>,
        node: &[u8],
        random: &Arc<dyn SecureRandom>,
    ) -> Result<(), dunlin::Error> {
        if node.len() != self.node_len {
            let why =
                format!("the node has {} bytes, and the port was bound for {}", node.len(), self.node_len);
            return Err(Misuse::Config(why).into());
        }
        let mut configs = Vec::new();
        for own in 0..self.endpoints.len() {
            let node = [node, &[own as u8]].concat();
            let ids = NodeIds::new(&node, node.len() + RANDOM_LEN, Arc::clone(random))?;
            configs.push(config.map(|config| Arc::new(config.clone().with_connection_ids(Arc::new(ids)))));
        }
        self.endpoints.iter().zip(configs).for_each(|(endpoint, config)| endpoint.set_server(config));
        Ok(())
    }

    /// The endpoints. The application accepts the clients of each.
    pub fn endpoints(&self) -> &[DtlsEndpoint] {
        &self.endpoints
    }

    /// The address of the sockets.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.endpoints.first().map(DtlsEndpoint::local_addr)
    }

    /// The number of datagrams that arrived at another socket than that of their association, and were handed over.
    pub fn handed_over(&self) -> u64 {
        self.endpoints.iter().map(|endpoint| endpoint.handle.0.handed_over()).sum()
    }
}

/// A socket that shares its port with others of this user.
fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    UdpSocket::from_std(socket.into())
}

impl fmt::Debug for DtlsPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DtlsPort").field("endpoints", &self.endpoints).finish()
    }
}
