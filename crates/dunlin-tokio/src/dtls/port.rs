//! Several sockets on one port, so that several cores receive.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use dunlin::crypto::SecureRandom;
use dunlin::error::Misuse;
use dunlin::{ConnectionIds, DtlsConnection, EndpointLimits, NodeIds, ServerConfig};
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use tokio::net::UdpSocket;

use super::association::DtlsAssociation;
use super::endpoint::DtlsEndpoint;
use super::frozen::{Adopted, adopt};
use super::shared::{Port, Shared, State, owner};
use crate::error::from_tls;

/// The random bytes of a connection ID: enough to be unique, and hard to guess.
const RANDOM_LEN: usize = 8;

/// Several endpoints on one port, each with a socket and a task of its own (`SO_REUSEPORT`, on Linux only).
/// The kernel spreads clients over the sockets by their address. If a client with a connection ID moves to
/// another address, its datagrams may arrive at another socket. Its ID names the endpoint that has its
/// association, which gets the datagrams.
///
/// Associations without connection IDs are lost to the peer when its address changes, as at any endpoint, and
/// also when the number of sockets on the port changes. The endpoints can freeze their associations
/// ([`DtlsEndpoint::freeze`]), and [`Self::resume`] continues them.
///
/// # Examples
/// ```no_run
/// # async fn example(
/// #     config: dunlin::ServerConfig,
/// #     provider: dunlin::crypto::CryptoProvider,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
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
    /// Binds `sockets` sockets, at least one and at most 255, to this address. `limits` apply to each
    /// endpoint. `node_len` is the length in bytes of the node that [`Self::set_server`] names.
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
        let opened = Opened::new(address, sockets, node_len, limits)?;
        Ok(opened.run(BTreeMap::new()))
    }

    /// Binds sockets as [`Self::bind`] does, and continues connections which were thawed
    /// ([`DtlsConnection::thaw_server`]). Each belongs to the endpoint that its connection ID names, also if
    /// there were more sockets before. Datagrams for those without an ID are handed over by the peer's
    /// address. `node` and `random` are the parameters of [`Self::set_server`], for further IDs of these
    /// associations. The sockets are bound before the first connection is taken from `connections`.
    ///
    /// # Errors
    /// The system cannot bind a socket to the address, or the node is too long.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn resume(
        address: SocketAddr,
        sockets: u8,
        node: &[u8],
        random: &Arc<dyn SecureRandom>,
        limits: EndpointLimits,
        connections: impl IntoIterator<Item = DtlsConnection>,
    ) -> io::Result<ResumedPort> {
        let opened = Opened::new(address, sockets, node.len(), limits)?;
        let issuers = (0..opened.shared.len()).map(|own| issuer(node, own, random));
        let issuers = issuers.collect::<Result<Vec<_>, _>>().map_err(from_tls)?;
        let mut associations = Vec::new();
        let mut refused = Vec::new();
        let mut thawed = BTreeMap::new();
        for mut connection in connections {
            let peer = connection.peer_address();
            let name = connection.connection_ids().next().map(|id| (id.len(), id.get(node.len()).copied()));
            let own = match name {
                Some((len, Some(name))) if len == opened.id_len() => owner(name, opened.shared.len()),
                Some((len, _)) => {
                    let why = format!(
                        "its connection IDs have {len} bytes, and those of the port {}",
                        opened.id_len()
                    );
                    refused.push((peer, Misuse::Config(why).into()));
                    continue;
                }
                None => thawed.len() % opened.shared.len(),
            };
            let (Some(shared), Some(issuer)) = (opened.shared.get(own), issuers.get(own)) else { continue };
            connection.set_connection_ids(Arc::clone(issuer) as Arc<dyn ConnectionIds>);
            match adopt(shared, connection) {
                Ok(adopted) => {
                    associations.push((own, adopted));
                    if name.is_none() {
                        thawed.insert(peer, own);
                    }
                }
                Err(error) => refused.push((peer, error)),
            }
        }
        let port = opened.run(thawed);
        let own =
            |(own, adopted): (usize, Adopted)| Some(adopted.association(&port.endpoints.get(own)?.handle));
        let associations = associations.into_iter().filter_map(own).collect();
        Ok(ResumedPort { port, associations, refused })
    }

    /// Sets the configuration for new clients of all endpoints ([`DtlsEndpoint::set_server`]). Their
    /// connection IDs begin with `node`, which names this server to a load balancer and may be empty. A byte
    /// follows that names the endpoint, and 8 random ones.
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
            let ids = issuer(node, own, random)?;
            configs.push(config.map(|config| Arc::new(config.clone().with_connection_ids(ids))));
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

    /// The number of datagrams that arrived at another socket than their association's, and were handed over.
    pub fn handed_over(&self) -> u64 {
        self.endpoints.iter().map(|endpoint| endpoint.handle.0.handed_over()).sum()
    }
}

/// A port with associations that another process has frozen.
#[derive(Debug)]
#[non_exhaustive]
pub struct ResumedPort {
    /// The port.
    pub port: DtlsPort,
    /// Its associations, for the application to serve.
    pub associations: Vec<DtlsAssociation>,
    /// The peers of connections that the endpoints did not take in, and why ([`dunlin::Endpoint::adopt`]). A
    /// peer hears nothing if its connection has IDs of another length than the port's.
    pub refused: Vec<(SocketAddr, dunlin::Error)>,
}

/// The sockets of a port whose tasks do not run yet.
struct Opened {
    shared: Vec<Arc<Shared>>,
    node_len: usize,
}

impl Opened {
    fn new(
        mut address: SocketAddr,
        sockets: u8,
        node_len: usize,
        limits: EndpointLimits,
    ) -> io::Result<Self> {
        let mut shared = Vec::new();
        for _ in 0..sockets.max(1) {
            let one = Shared::new(open(address)?, limits)?;
            // All sockets have the port that the first one got.
            address = one.read(State::first_address).unwrap_or(address);
            shared.push(Arc::new(one));
        }
        Ok(Self { shared, node_len })
    }

    /// The length of connection IDs.
    const fn id_len(&self) -> usize {
        self.node_len + 1 + RANDOM_LEN
    }

    /// Starts the tasks.
    fn run(self, thawed: BTreeMap<SocketAddr, usize>) -> DtlsPort {
        let id_len = self.id_len();
        let node_len = self.node_len;
        let thawed = Arc::new(thawed);
        for (own, shared) in self.shared.iter().enumerate() {
            shared.join(Port {
                id_len,
                at: node_len,
                own,
                endpoints: self.shared.iter().map(Arc::downgrade).collect(),
                thawed: Arc::clone(&thawed),
                handed_over: AtomicU64::new(0),
            });
        }
        DtlsPort { endpoints: self.shared.into_iter().map(DtlsEndpoint::run).collect(), node_len }
    }
}

/// The issuer of the connection IDs of the endpoint with this number.
fn issuer(node: &[u8], own: usize, random: &Arc<dyn SecureRandom>) -> Result<Arc<NodeIds>, dunlin::Error> {
    let node = [node, &[own as u8]].concat();
    NodeIds::new(&node, node.len() + RANDOM_LEN, Arc::clone(random)).map(Arc::new)
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
