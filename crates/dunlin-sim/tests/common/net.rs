//! Endpoints at their addresses, on a network without delay.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dunlin::error::Error;
use dunlin::{AssociationId, Endpoint, EndpointEvent, EndpointLimits, Now};
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_tests::{NOW, localhost};

use super::Configs;

/// Endpoints at their addresses, on a network without delay.
pub(crate) struct Net {
    pub(crate) endpoints: BTreeMap<SocketAddr, Endpoint>,
    pub(crate) now: Now,
    /// The associations that clients have begun, by the address of the endpoint.
    pub(crate) incoming: Vec<(SocketAddr, AssociationId)>,
    /// The handshakes that failed at once.
    pub(crate) failed: Vec<(SocketAddr, Error)>,
    /// Every datagram so far: sender, receiver, content.
    pub(crate) sent: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    /// Datagrams from this address are lost.
    pub(crate) muted: Option<SocketAddr>,
}

impl Net {
    /// A server at [`SERVER_ADDRESS`].
    pub(crate) fn new(configs: &Configs, limits: EndpointLimits) -> Self {
        let mut server = Endpoint::new(limits);
        server.set_server(Some(Arc::new(configs.server.clone())));
        let endpoints = BTreeMap::from([(SERVER_ADDRESS, server)]);
        Self { endpoints, now: NOW, incoming: Vec::new(), failed: Vec::new(), sent: Vec::new(), muted: None }
    }

    pub(crate) fn at(&mut self, address: SocketAddr) -> &mut Endpoint {
        self.endpoints.entry(address).or_insert_with(|| Endpoint::new(EndpointLimits::default()))
    }

    pub(crate) fn server(&mut self) -> &mut Endpoint {
        self.at(SERVER_ADDRESS)
    }

    pub(crate) fn connect(&mut self, configs: &Configs, from: SocketAddr) -> AssociationId {
        let config = Arc::new(configs.client.clone());
        let now = self.now;
        self.at(from).connect(&config, localhost(), SERVER_ADDRESS, now).unwrap()
    }

    /// Carries datagrams until there are none.
    pub(crate) fn run(&mut self) {
        loop {
            let now = self.now;
            let mut carried = Vec::new();
            for (address, endpoint) in &mut self.endpoints {
                carried.extend(
                    std::iter::from_fn(|| endpoint.poll_transmit(now)).map(|t| (*address, t.to, t.datagram)),
                );
            }
            for (from, to, datagram) in &carried {
                if self.muted == Some(*from) {
                    continue;
                }
                if let Some(endpoint) = self.endpoints.get_mut(to) {
                    endpoint.receive(now, *from, datagram);
                }
            }
            for (address, endpoint) in &mut self.endpoints {
                while let Some(event) = endpoint.poll_event() {
                    match event {
                        EndpointEvent::Incoming(id) => self.incoming.push((*address, id)),
                        EndpointEvent::Failed(peer, error) => self.failed.push((peer, error)),
                        _ => {}
                    }
                }
            }
            self.sent.append(&mut carried.clone());
            if carried.is_empty() {
                return;
            }
        }
    }

    /// Lets this time pass at once.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        let now = self.now;
        self.endpoints.values_mut().for_each(|endpoint| endpoint.handle_timeout(now));
        self.run();
    }

    pub(crate) fn is_connected(&mut self, at: SocketAddr, id: AssociationId) -> bool {
        let association = self.at(at).association(id).unwrap();
        association.connection().negotiated().is_some() && association.connection().error().is_none()
    }

    /// Sends data to the peer of an association.
    pub(crate) fn send(&mut self, at: SocketAddr, id: AssociationId, data: &[u8]) {
        self.at(at).update(id, |connection| connection.send(data)).unwrap().unwrap();
        self.run();
    }

    pub(crate) fn read(&mut self, at: SocketAddr, id: AssociationId) -> Option<Vec<u8>> {
        self.at(at).update(id, |connection| connection.read()).unwrap()
    }

    /// The associations of the server whose handshake is complete and that have not ended.
    pub(crate) fn served(&mut self) -> Vec<AssociationId> {
        let ids: Vec<_> = self.incoming.iter().map(|(_, id)| *id).collect();
        let server = self.server();
        let is_live = |id: &AssociationId| {
            server.association(*id).is_some_and(|a| {
                let connection = a.connection();
                connection.negotiated().is_some() && connection.error().is_none() && a.ended().is_none()
            })
        };
        ids.into_iter().filter(is_live).collect()
    }
}

pub(crate) fn client(n: u16) -> SocketAddr {
    SocketAddr::new(CLIENT_ADDRESS.ip(), n)
}

/// Lets a client go through the exchange of the cookie and then fall silent. The server has a half-open
/// association afterwards.
pub(crate) fn half_open(net: &mut Net, configs: &Configs, address: SocketAddr) -> AssociationId {
    let id = net.connect(configs, address);
    for _ in 0..2 {
        let Some(hello) = net.at(address).poll_transmit(NOW) else { break };
        net.server().receive(NOW, address, &hello.datagram);
        while let Some(answer) = net.server().poll_transmit(NOW) {
            net.endpoints.get_mut(&answer.to).unwrap().receive(NOW, SERVER_ADDRESS, &answer.datagram);
        }
    }
    id
}
