//! TLS on a blocking socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use dunlin::{ClientConfig, ServerAddress, TlsConnection};

use super::keys::SERVER_NAME;
use crate::Error;
use crate::error::{failed, socket_failed};

/// More than the payload of the largest TCP segment.
const BUFFER: usize = 1 << 16;

/// A connection and its socket.
pub(super) struct Tls {
    pub(super) tcp: TcpStream,
    pub(super) connection: TlsConnection,
    buffer: Vec<u8>,
    /// The bytes that this side has sent and received.
    pub(super) sent: usize,
    pub(super) received: usize,
}

impl Tls {
    /// A connection that waits for its peer up to `patience`.
    pub(super) fn new(tcp: TcpStream, connection: TlsConnection, patience: Duration) -> Result<Self, Error> {
        tcp.set_nodelay(true).and_then(|()| tcp.set_read_timeout(Some(patience))).map_err(socket_failed)?;
        Ok(Self { tcp, connection, buffer: vec![0; BUFFER], sent: 0, received: 0 })
    }

    /// A client that has connected over TCP.
    pub(super) fn connect(
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        patience: Duration,
    ) -> Result<Self, Error> {
        let tcp = TcpStream::connect(address).map_err(socket_failed)?;
        let server = ServerAddress::parse(SERVER_NAME, address.port()).map_err(failed)?;
        let connection = TlsConnection::client(config, server, dunlin_tokio::now()).map_err(failed)?;
        Self::new(tcp, connection, patience)
    }

    /// Sends all waiting output.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let waiting = self.connection.transmit();
        self.tcp.write_all(waiting).map_err(socket_failed)?;
        let sent = waiting.len();
        self.connection.transmitted(sent);
        self.sent += sent;
        Ok(())
    }

    /// Sends data after the output that waits, in the same segments.
    pub(super) fn say(&mut self, mut data: &[u8]) -> Result<(), Error> {
        while !data.is_empty() {
            let taken = self.connection.send(data).map_err(failed)?;
            data = data.get(taken..).unwrap_or_default();
            self.flush()?;
        }
        Ok(())
    }

    /// Receives bytes. The connection stops at questions and at data; `handle` goes on with it there, and
    /// returns whether it has. Returns false at the end of TCP.
    pub(super) fn receive(
        &mut self,
        handle: impl FnMut(&mut TlsConnection) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let len = self.tcp.read(&mut self.buffer).map_err(socket_failed)?;
        self.received += len;
        if len == 0 {
            return self.connection.receive_end().map(|()| false).map_err(failed);
        }
        let taken = self.take(len, handle);
        if taken.is_err() {
            // The peer gets an alert. If it does not, this side's reason is still the better one.
            let _ = self.flush();
        }
        taken.map(|()| true)
    }

    fn take(
        &mut self,
        len: usize,
        mut handle: impl FnMut(&mut TlsConnection) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let mut taken = 0;
        loop {
            let rest = self.buffer.get(taken..len).unwrap_or_default();
            taken += self.connection.receive(dunlin_tokio::now(), rest).map_err(failed)?;
            if !handle(&mut self.connection)? {
                return if taken == len { Ok(()) } else { Err(failed("more came than was agreed")) };
            }
        }
    }

    /// Receives bytes of a handshake, or data that waits in the connection.
    pub(super) fn receive_alone(&mut self) -> Result<bool, Error> {
        self.receive(|_| Ok(false))
    }
}
