//! A handshake in memory, on one thread: its bytes and the time of each side.

use std::sync::Arc;
use std::time::Duration;

use dunlin::{Answer, ClientConfig, Event, Question, ServerAddress, ServerConfig, TlsConnection};

use super::super::keys::SERVER_NAME;
use crate::Error;
use crate::error::failed;
use crate::experiment::watch::{Operations, for_identity, timed};

/// The bytes sent, the time and the operations of a side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) sent_bytes: usize,
    pub(super) time: Duration,
    pub(super) operations: Operations,
}

/// A handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake {
    pub(super) client: Side,
    pub(super) server: Side,
    /// From the server's receipt of the ClientHello until it has handled the client's Finished.
    pub(super) latency: Duration,
}

/// One end, and what it has done so far.
struct End {
    connection: TlsConnection,
    done: Side,
}

impl End {
    fn new(connection: TlsConnection, (time, operations): (Duration, Operations)) -> Self {
        Self { connection, done: Side { sent_bytes: 0, time, operations } }
    }

    /// Handles what the peer has sent, and returns the answer and the time that it took.
    fn turn(&mut self, received: &[u8], look_up: LookUp<'_>) -> Result<(Vec<u8>, Duration), Error> {
        let connection = &mut self.connection;
        let (sent, (time, operations)) = timed(|| {
            let now = dunlin_tokio::now();
            if !received.is_empty() {
                connection.receive(now, received).map_err(failed)?;
            }
            while let Some(event) = connection.poll_event() {
                if let Event::Question(id, question) = event {
                    let answer = for_identity(|| look_up(&question))?;
                    connection.answer(now, id, answer).map_err(failed)?;
                }
            }
            let sent = connection.transmit().to_vec();
            connection.transmitted(sent.len());
            Ok::<_, Error>(sent)
        });
        let sent = sent?;
        self.done.sent_bytes += sent.len();
        self.done.time += time;
        self.done.operations = self.done.operations.and(operations);
        Ok((sent, time))
    }
}

/// The callback that answers a verifier's question for a missing document.
pub(super) type LookUp<'a> = &'a dyn Fn(&Question) -> Result<Answer, Error>;

/// Runs a handshake.
pub(super) fn handshake(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    look_up: LookUp<'_>,
) -> Result<Handshake, Error> {
    let address = ServerAddress::parse(SERVER_NAME, 0).map_err(failed)?;
    let (connection, starting) = timed(|| TlsConnection::client(client, address, dunlin_tokio::now()));
    let mut client = End::new(connection.map_err(failed)?, starting);
    let (connection, starting) = timed(|| TlsConnection::server(server, dunlin_tokio::now()));
    let mut server = End::new(connection, starting);
    let (mut sent, _) = client.turn(&[], look_up)?;
    let mut latency = Duration::ZERO;
    // Neither side sends anything after the client's Finished, as there are no tickets.
    while !sent.is_empty() {
        let (answer, at_server) = server.turn(&sent, look_up)?;
        latency += at_server;
        if answer.is_empty() {
            break;
        }
        let at_client;
        (sent, at_client) = client.turn(&answer, look_up)?;
        latency += at_client;
    }
    if [&client, &server].iter().all(|end| end.connection.negotiated().is_some()) {
        Ok(Handshake { client: client.done, server: server.done, latency })
    } else {
        Err(failed("it does not end"))
    }
}
