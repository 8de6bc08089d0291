//! DTLS clients that stay: associations of the engine over one socket, each with an address of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::{ClientConfig, DtlsConnection, ServerAddress};
use dunlin_tokio::now;

use super::super::keys::SERVER_NAME;
use super::stage::{DTLS_PERIOD, Moment, Stage, Trips, failed};
use super::wire::Wire;
use crate::Error;

/// The data of a record.
const DATA: [u8; 64] = [7; 64];
/// The handshakes that are in progress at one time.
const HANDSHAKES: usize = 64;
/// How often the timers of handshakes are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// The time in which some handshake must end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the last echoes may take.
const LAST: Duration = Duration::from_secs(2);

/// A client.
struct Client {
    connection: DtlsConnection,
    server: SocketAddr,
    /// The record that is on its way: when it was sent.
    sent: Option<(Moment, Instant)>,
}

/// The clients.
pub(super) struct Dtls {
    wire: Wire,
    clients: Vec<Client>,
}

impl Dtls {
    /// Connects that many clients, to one server after the other.
    pub(super) fn connect(
        config: &Arc<ClientConfig>,
        servers: &[SocketAddr],
        number: usize,
    ) -> Result<Self, Error> {
        let mut all = Self { wire: Wire::new().map_err(failed)?, clients: Vec::with_capacity(number) };
        let mut servers = servers.iter().copied().cycle();
        let mut open = Vec::new();
        let mut looked = Instant::now();
        let mut latest = Instant::now();
        while all.clients.len() < number || !open.is_empty() {
            while open.len() < HANDSHAKES && all.clients.len() < number {
                let Some(server) = servers.next() else { break };
                let name = ServerAddress::parse(SERVER_NAME, server.port()).map_err(failed)?;
                let connection = DtlsConnection::client(config, name, server, now()).map_err(failed)?;
                open.push(all.clients.len());
                all.clients.push(Client { connection, server, sent: None });
                all.flush(all.clients.len() - 1);
            }
            all.receive(LOOK, |_, _| {})?;
            if looked.elapsed() > LOOK {
                looked = Instant::now();
                for at in &open {
                    all.look(*at)?;
                }
            }
            let before = open.len();
            // Until the server has acknowledged everything, a timer runs.
            open.retain(|at| {
                let connection = all.clients.get(*at).map(|client| &client.connection);
                connection.is_some_and(|of| of.is_handshaking() || of.poll_timeout().is_some())
            });
            if open.len() < before {
                latest = Instant::now();
            }
            if latest.elapsed() > PATIENCE {
                let done = all.clients.len() - open.len();
                return Err(failed(format_args!("{done} of {number} have connected over DTLS, then none")));
            }
        }
        Ok(all)
    }

    /// Sends a client's pending datagrams.
    fn flush(&mut self, at: usize) {
        let Some(client) = self.clients.get_mut(at) else { return };
        while let Some(transmit) = client.connection.poll_transmit(now()) {
            self.wire.send(at, client.server, &transmit.datagram);
        }
    }

    /// Looks at the timers of a client.
    fn look(&mut self, at: usize) -> Result<(), Error> {
        if let Some(client) = self.clients.get_mut(at) {
            client.connection.handle_timeout(now()).map_err(failed)?;
        }
        self.flush(at);
        Ok(())
    }

    /// Waits for datagrams up to this time, and passes data on to `heard`.
    fn receive(&mut self, time: Duration, mut heard: impl FnMut(&mut Client, usize)) -> Result<(), Error> {
        let clients = &mut self.clients;
        let mut heard_of = Vec::new();
        let mut error = None;
        let received = self.wire.receive(time, |at, datagram| {
            let Some(client) = clients.get_mut(at) else { return };
            if let Err(why) = client.connection.receive(now(), client.server, datagram) {
                error.get_or_insert(why);
            }
            while let Some(data) = client.connection.read() {
                heard(client, data.len());
            }
            heard_of.push(at);
        });
        received.map_err(failed)?;
        heard_of.into_iter().for_each(|at| self.flush(at));
        error.map_or(Ok(()), |error| Err(failed(error)))
    }

    /// Sends the records of all clients, one in each period, until the run ends.
    pub(super) fn hold(mut self, begin: Instant, stage: &Stage) -> Result<Trips, Error> {
        let mut trips = Trips::default();
        let number = self.clients.len() as u32;
        let gap = DTLS_PERIOD / number.max(1);
        let mut next = 0;
        let mut due = begin;
        let mut end = None;
        loop {
            let now = Instant::now();
            if stage.has_ended() && *end.get_or_insert(now + LAST) <= now {
                break;
            }
            while due <= Instant::now() && end.is_none() && number > 0 {
                self.send(next, stage.moment(), &mut trips)?;
                next = (next + 1) % self.clients.len();
                due += gap;
            }
            let wait = due.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), LOOK);
            self.receive(wait, |client, len| {
                if let (Some((moment, sent)), true) = (client.sent, len == DATA.len()) {
                    trips.note(moment, Some(sent.elapsed()));
                    client.sent = None;
                }
            })?;
        }
        for (moment, _) in self.clients.iter().filter_map(|client| client.sent) {
            trips.note(moment, None);
        }
        Ok(trips)
    }

    /// Sends the next record of a client. Its previous one is lost if no echo has come.
    fn send(&mut self, at: usize, moment: Moment, trips: &mut Trips) -> Result<(), Error> {
        self.look(at)?;
        if let Some(client) = self.clients.get_mut(at) {
            if let Some((lost, _)) = client.sent.replace((moment, Instant::now())) {
                trips.note(lost, None);
            }
            client.connection.send(&DATA).map_err(failed)?;
        }
        self.flush(at);
        Ok(())
    }
}
