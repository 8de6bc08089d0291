//! A device over DTLS without connection IDs, which moves: its socket is replaced while it talks. The server
//! has given its association a port of its own there (TCS), and so still knows it. The endpoints of
//! dunlin-tokio keep their sockets, so the device drives the engine.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::{AssociationId, ClientConfig, Endpoint, EndpointLimits, ServerAddress};
use dunlin_coap::coap_lite::{CoapRequest, MessageClass, Packet, ResponseType};
use dunlin_command::events::Handshake;
use dunlin_command::report::identity;
use dunlin_tokio::now;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::device::{Talked, micros, reading};

/// The longest datagram that the device reads, in bytes.
const MAX_DATAGRAM: usize = 4096;
/// How long the device waits if the engine has nothing to do.
const IDLE: Duration = Duration::from_secs(60);

/// Does the handshake, and sends the message with CoAP from both addresses.
pub(super) async fn rove(
    config: &Arc<ClientConfig>,
    name: ServerAddress,
    server: SocketAddr,
    homes: [IpAddr; 2],
    message: &str,
) -> io::Result<Talked> {
    let started = Instant::now();
    let socket = UdpSocket::bind((homes[0], 0)).await?;
    let mut endpoint = Endpoint::new(EndpointLimits::default());
    let id = endpoint.connect(config, name, server, now()).map_err(io::Error::other)?;
    let mut rover = Rover { endpoint, id, socket };
    rover.drive(|rover| rover.handshake()).await?;
    let handshake_us = micros(started);
    let mut handshake = rover.handshake().unwrap_or_default();
    handshake.association_port = Some(rover.drive(|rover| rover.port()).await?);
    rover.ask(message, 1).await?;
    rover.socket = UdpSocket::bind((homes[1], 0)).await?;
    let answer = rover.ask(message, 2).await?;
    let moved_to = Some(rover.socket.local_addr()?);
    rover.endpoint.update(id, |connection| connection.close());
    rover.flush().await?;
    Ok(Talked { handshake, handshake_us, answer, moved_to })
}

struct Rover {
    endpoint: Endpoint,
    id: AssociationId,
    socket: UdpSocket,
}

impl Rover {
    /// Sends and receives until this returns a value.
    async fn drive<T>(&mut self, mut until: impl FnMut(&mut Self) -> Option<T>) -> io::Result<T> {
        let mut datagram = vec![0; MAX_DATAGRAM];
        loop {
            self.flush().await?;
            if let Some(value) = until(self) {
                return Ok(value);
            }
            let association = self.endpoint.association(self.id).ok_or(io::ErrorKind::NotConnected)?;
            if let Some(error) = association.connection().error() {
                return Err(io::Error::other(error.clone()));
            }
            if association.ended().is_some() || association.connection().peer_has_closed() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let pause = self.endpoint.poll_timeout().map_or(IDLE, |at| at.since(now().monotonic));
            match timeout(pause, self.socket.recv_from(&mut datagram)).await {
                Ok(received) => {
                    let (len, from) = received?;
                    self.endpoint.receive(now(), from, datagram.get(..len).unwrap_or_default());
                }
                Err(_) => self.endpoint.handle_timeout(now()),
            }
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        while let Some(transmit) = self.endpoint.poll_transmit(now()) {
            self.socket.send_to(&transmit.datagram, transmit.to).await?;
        }
        Ok(())
    }

    /// The result of the handshake, once it is complete.
    fn handshake(&self) -> Option<Handshake> {
        let association = self.endpoint.association(self.id)?;
        let negotiated = association.connection().negotiated()?;
        let all = (association.bytes_received(), association.bytes_sent());
        let (read, written) = association.handshake_bytes().unwrap_or(all);
        Some(Handshake {
            version: negotiated.version.map(|version| version.to_string()),
            cipher_suite: negotiated.cipher_suite.map(|suite| suite.to_string()),
            group: negotiated.group.map(|group| group.to_string()),
            peer: negotiated.peer.as_ref().map(identity),
            kind: negotiated.kind.into(),
            resumed: negotiated.is_resumed(),
            handshake_bytes_read: read,
            handshake_bytes_written: written,
            ..Handshake::default()
        })
    }

    /// The port of the association at the server, once the server has spoken from there.
    fn port(&self) -> Option<u16> {
        let connection = self.endpoint.association(self.id)?.connection();
        connection.association_port().map(|(_, port)| port)
    }

    /// Sends a request with this ID, and returns the payload of its response.
    async fn ask(&mut self, message: &str, id: u16) -> io::Result<String> {
        let mut request: CoapRequest<()> = reading(message);
        request.message.header.message_id = id;
        let request = request.message.to_bytes().map_err(|error| io::Error::other(error.to_string()))?;
        let sent = self.endpoint.update(self.id, |connection| connection.send(&request));
        sent.ok_or(io::ErrorKind::NotConnected)?.map_err(io::Error::other)?;
        let read = |rover: &mut Self| rover.endpoint.update(rover.id, |connection| connection.read())?;
        loop {
            let Ok(packet) = Packet::from_bytes(&self.drive(read).await?) else { continue };
            // A repeated response has the ID of the previous request.
            if packet.header.message_id == id {
                return match packet.header.code {
                    MessageClass::Response(ResponseType::Content) => {
                        String::from_utf8(packet.payload).map_err(io::Error::other)
                    }
                    code => Err(io::Error::other(format!("the CoAP server answered {code}"))),
                };
            }
        }
    }
}
