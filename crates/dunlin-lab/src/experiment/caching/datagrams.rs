//! Dunlin over datagrams: a question, an answer, and the close, on real sockets and in virtual time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::dunlin::error::Misuse;
use ::dunlin::{ClientConfig, DtlsConnection, Instant, Now, ServerAddress, ServerConfig, Side, Transmit};
use dunlin_sim::{CLIENT_ADDRESS, Endpoint, SERVER_ADDRESS, Sent};

use super::super::datagrams::{IP_AND_UDP, Sockets, Talking, frames};
use super::super::keys::SERVER_NAME;
use super::case::{Case, Handshake};
use super::ends::{client, expect, server};
use super::{ANSWER, DELAY, FIRST_PORT, PAUSE, QUESTION};
use crate::Error;
use crate::capture::Frame;
use crate::error::failed;
use crate::net::Pair;

/// The configurations of both sides for links with this MTU.
fn configs(case: &Case<'_>, mtu: u16) -> Result<(Arc<ClientConfig>, Arc<ServerConfig>), Error> {
    let largest = usize::from(mtu.saturating_sub(IP_AND_UDP));
    let client = client(case)?.with_mtu(largest).map_err(failed)?;
    let server = server(case)?.with_mtu(largest).map_err(failed)?;
    Ok((Arc::new(client), Arc::new(server)))
}

/// Connects twice on real sockets.
pub(super) fn connect(pair: &Pair, case: &Case<'_>, mtu: u16) -> Result<(), Error> {
    let configs = configs(case, mtu)?;
    for handshake in case.mode.handshakes() {
        let sockets = Sockets::new(pair)?;
        let [mut client, mut server] =
            talkers((&configs.0, &configs.1), sockets.addresses, dunlin_tokio::now())?;
        sockets.carry(&mut client, &mut server, |why| failed(why))?;
        check([&client, &server], handshake)?;
    }
    Ok(())
}

/// Returns the frames of both connections in virtual time.
pub(super) fn in_virtual_time(case: &Case<'_>, mtu: u16) -> Result<Vec<Frame>, Error> {
    let configs = configs(case, mtu)?;
    let mut now = dunlin_tokio::now();
    let mut all = Vec::new();
    for (port, handshake) in (FIRST_PORT..).zip(case.mode.handshakes()) {
        let addresses = [SocketAddr::new(CLIENT_ADDRESS.ip(), port), SERVER_ADDRESS];
        let (sent, end) = run((&configs.0, &configs.1), addresses, now, DELAY, handshake)?;
        all.extend(frames(&sent, addresses, Duration::from_millis(now.unix_ms), mtu)?);
        let pause = end.monotonic.since(now.monotonic) + PAUSE;
        now = Now { monotonic: now.monotonic + pause, unix_ms: now.unix_ms + pause.as_millis() as u64 };
    }
    Ok(all)
}

/// Runs one connection over links with this delay. Returns its datagrams and the time of its end.
pub(super) fn run(
    configs: (&Arc<ClientConfig>, &Arc<ServerConfig>),
    addresses: [SocketAddr; 2],
    now: Now,
    delay: Duration,
    handshake: Handshake,
) -> Result<(Vec<Sent>, Now), Error> {
    let [client, server] = talkers(configs, addresses, now)?;
    let mut pair = dunlin_sim::Pair::new(client, server, now, delay);
    pair.client_address = addresses[0];
    pair.server_address = addresses[1];
    pair.run().map_err(failed)?;
    check([&pair.client, &pair.server], handshake)?;
    Ok((pair.sent, pair.now))
}

/// A client and a server before their first datagram.
fn talkers(
    (client, server): (&Arc<ClientConfig>, &Arc<ServerConfig>),
    [from, to]: [SocketAddr; 2],
    now: Now,
) -> Result<[Talker; 2], Error> {
    // Sessions and entries of the cache are the server's, whatever its port.
    let name = ServerAddress::parse(SERVER_NAME, 0).map_err(failed)?;
    let client = DtlsConnection::client(client, name, to, now).map_err(failed)?;
    let server = DtlsConnection::server(server, from, now);
    let talker = |connection, side| Talker { connection, side, asked: false, message: None };
    Ok([talker(client, Side::Client), talker(server, Side::Server)])
}

/// Checks the result of a connection.
fn check(ends: [&Talker; 2], handshake: Handshake) -> Result<(), Error> {
    for end in ends {
        if let Some(error) = end.connection.error() {
            return Err(failed(error));
        }
        expect(end.side, end.connection.negotiated(), handshake)?;
        if !end.has_ended() {
            return Err(failed("a connection did not end"));
        }
    }
    Ok(())
}

/// A side that sends its message and closes.
struct Talker {
    connection: DtlsConnection,
    side: Side,
    /// Whether the client has said its message.
    asked: bool,
    /// The message that waits until the output has room: a large flight over a small MTU fills it.
    message: Option<&'static [u8]>,
}

impl Talker {
    fn talk(&mut self) -> Result<(), ::dunlin::Error> {
        if self.side == Side::Client && !self.asked && self.connection.negotiated().is_some() {
            self.asked = true;
            self.message = Some(QUESTION);
        }
        while let Some(data) = self.connection.read() {
            match &data[..] {
                QUESTION => self.message = Some(ANSWER),
                _ => self.connection.close(),
            }
        }
        self.flush()?;
        if self.connection.peer_has_closed() {
            self.connection.close();
        }
        Ok(())
    }

    /// Sends the message if the output has room.
    fn flush(&mut self) -> Result<(), ::dunlin::Error> {
        let Some(message) = self.message else { return Ok(()) };
        match self.connection.send(message) {
            Err(::dunlin::Error::Misuse(Misuse::OutputFull)) => Ok(()),
            sent => {
                self.message = None;
                sent
            }
        }
    }
}

impl Talking for Talker {
    fn connection(&self) -> &DtlsConnection {
        &self.connection
    }

    fn has_ended(&self) -> bool {
        self.connection.has_closed() && self.connection.peer_has_closed()
    }
}

impl Endpoint for Talker {
    fn receive(&mut self, now: Now, from: SocketAddr, datagram: &[u8]) {
        // The connection keeps its error.
        let _ = self.connection.receive(now, from, datagram).and_then(|()| self.talk());
    }

    fn poll_transmit(&mut self, now: Now) -> Option<Transmit> {
        // The connection keeps its error.
        let _ = self.flush();
        self.connection.poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        let _ = self.connection.handle_timeout(now);
    }
}
