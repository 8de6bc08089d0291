//! Dunlin on blocking sockets.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;

use dunlin::wire::ProtocolVersion;
use dunlin::{ClientConfig, ServerAddress, ServerConfig, Side, TlsConnection};
use nix::libc::MSG_MORE;
use nix::sys::socket::{MsgFlags, send};

use super::super::keys::SERVER_NAME;
use super::case::{CONNECTIONS, Case, Handshake, PATIENCE};
use super::ends::{client, expect, server};
use super::{ANSWER, QUESTION, Stack, datagrams};
use crate::Error;
use crate::error::failed;
use crate::net::{Ground, Pair};

/// More than the payload of the largest TCP segment.
const BUFFER: usize = 1 << 16;

pub(super) struct Dunlin;

impl Stack for Dunlin {
    fn name(&self) -> &'static str {
        "dunlin"
    }

    fn has(&self, _: &Case<'_>, _: u16) -> bool {
        true
    }

    fn connect(&self, _: &Ground, pair: &Pair, case: &Case<'_>, mtu: u16) -> Result<(), Error> {
        if case.protocol.is_over_datagrams() {
            return datagrams::connect(pair, case, mtu);
        }
        let client = Arc::new(client(case)?);
        let server = Arc::new(server(case)?);
        let listener = pair.server.run(|| TcpListener::bind((Pair::SERVER, 0)))?.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        thread::scope(|scope| {
            let serving = scope
                .spawn(|| pair.server.run(|| CONNECTIONS.iter().try_for_each(|_| serve(&listener, &server))));
            let connecting = pair.client.run(|| {
                case.mode.handshakes().into_iter().try_for_each(|handshake| ask(address, &client, handshake))
            });
            if connecting.as_ref().is_ok_and(Result::is_ok) {
                serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
            } else {
                // The server waits for a connection that does not come.
                drop(TcpStream::connect(address));
            }
            connecting?
        })
    }
}

/// One connection of the client.
fn ask(address: SocketAddr, config: &Arc<ClientConfig>, handshake: Handshake) -> Result<(), Error> {
    let tcp = TcpStream::connect(address).map_err(failed)?;
    let server = ServerAddress::parse(SERVER_NAME, address.port()).map_err(failed)?;
    let connection = TlsConnection::client(config, server, dunlin_tokio::now()).map_err(failed)?;
    let mut tls = Tls::new(tcp, connection)?;
    // The last flight is sent with the first data.
    while tls.connection.negotiated().is_none() {
        tls.flush()?;
        tls.receive()?;
    }
    expect(Side::Client, tls.connection.negotiated(), handshake)?;
    tls.say(QUESTION)?;
    tls.flush()?;
    tls.hear(ANSWER)?;
    tls.close()?;
    tls.hear_end()
}

/// One connection of the server.
fn serve(listener: &TcpListener, config: &Arc<ServerConfig>) -> Result<(), Error> {
    let (tcp, _) = listener.accept().map_err(failed)?;
    let mut tls = Tls::new(tcp, TlsConnection::server(config, dunlin_tokio::now()))?;
    while tls.connection.negotiated().is_none() {
        tls.flush()?;
        tls.receive()?;
    }
    if tls.connection.negotiated().is_some_and(|all| all.version == Some(ProtocolVersion::TLS1_2)) {
        // RFC 5246 §7.3: the client waits for this side's Finished.
        tls.flush()?;
    }
    // In TLS 1.3 the ticket is sent with the answer.
    tls.hear(QUESTION)?;
    tls.say(ANSWER)?;
    tls.flush()?;
    tls.hear_end()?;
    tls.close()
}

/// A connection and its socket. Output waits for a flush, so that it can share a segment with later output.
struct Tls {
    tcp: TcpStream,
    connection: TlsConnection,
    buffer: Vec<u8>,
}

impl Tls {
    fn new(tcp: TcpStream, connection: TlsConnection) -> Result<Self, Error> {
        tcp.set_nodelay(true).and_then(|()| tcp.set_read_timeout(Some(PATIENCE))).map_err(failed)?;
        Ok(Self { tcp, connection, buffer: vec![0; BUFFER] })
    }

    /// Sends all waiting output.
    fn flush(&mut self) -> Result<(), Error> {
        let waiting = self.connection.transmit();
        self.tcp.write_all(waiting).map_err(failed)?;
        let sent = waiting.len();
        self.connection.transmitted(sent);
        Ok(())
    }

    /// Receives bytes; returns false at the end of TCP.
    fn receive(&mut self) -> Result<bool, Error> {
        let len = self.tcp.read(&mut self.buffer).map_err(failed)?;
        let received = self.buffer.get(..len).unwrap_or_default();
        let taken = match len {
            0 => self.connection.receive_end().map(|()| 0),
            _ => self.connection.receive(dunlin_tokio::now(), received),
        };
        match taken {
            Ok(taken) if taken == len => Ok(len > 0),
            // `receive` stops at unread data or a question; neither occurs here.
            Ok(_) => Err(failed("more came than was agreed")),
            Err(error) => {
                // The peer gets an alert. If it does not, this side's reason is still the better one.
                let _ = self.flush();
                Err(failed(error))
            }
        }
    }

    /// Seals a message.
    fn say(&mut self, message: &[u8]) -> Result<(), Error> {
        match self.connection.send(message).map_err(failed)? {
            len if len == message.len() => Ok(()),
            _ => Err(failed("a short message does not fit")),
        }
    }

    /// Waits for this message.
    fn hear(&mut self, message: &[u8]) -> Result<(), Error> {
        while self.connection.received().len() < message.len() {
            if !self.receive()? {
                return Err(failed("the peer closed before it said anything"));
            }
        }
        if self.connection.received() != message {
            return Err(failed("the peer said something else"));
        }
        self.connection.consume(dunlin_tokio::now(), message.len()).map_err(failed)
    }

    /// Waits until the peer has closed.
    fn hear_end(&mut self) -> Result<(), Error> {
        while self.receive()? {}
        Ok(())
    }

    /// Sends close_notify and, in the same segment, FIN.
    fn close(&mut self) -> Result<(), Error> {
        self.connection.close();
        let waiting = self.connection.transmit();
        match send(self.tcp.as_raw_fd(), waiting, MsgFlags::from_bits_retain(MSG_MORE)) {
            Ok(sent) if sent == waiting.len() => {}
            Ok(_) => return Err(failed("a short message does not fit")),
            Err(errno) => return Err(failed(io::Error::from(errno))),
        }
        let sent = waiting.len();
        self.connection.transmitted(sent);
        self.tcp.shutdown(Shutdown::Write).map_err(failed)
    }
}
