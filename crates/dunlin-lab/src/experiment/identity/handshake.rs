//! A handshake in memory, on one thread: its bytes and the time of each side.

use std::sync::Arc;
use std::time::Duration;

use dunlin::{Answer, ClientConfig, Event, Question, ServerAddress, ServerConfig, TlsConnection};

use super::super::keys::SERVER_NAME;
use super::super::memory::{self, MAKING};
use crate::Error;
use crate::error::failed;
use crate::experiment::watch::{Operations, for_identity};

/// The bytes sent, the time and the operations of a side.
#[derive(Clone, Copy, Debug, Default)]
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

/// The callback that answers a verifier's question for a missing document.
pub(super) type LookUp<'a> = &'a dyn Fn(&Question) -> Result<Answer, Error>;

/// Runs a handshake.
pub(super) fn handshake(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    look_up: LookUp<'_>,
) -> Result<Handshake, Error> {
    let address = ServerAddress::parse(SERVER_NAME, 0).map_err(failed)?;
    let now = dunlin_tokio::now();
    let answer = |connection: &mut TlsConnection| {
        while let Some(event) = connection.poll_event() {
            if let Event::Question(id, question) = event {
                let answer = for_identity(|| look_up(&question))?;
                connection.answer(now, id, answer).map_err(failed)?;
            }
        }
        Ok(())
    };
    let client = || TlsConnection::client(client, address, now);
    let turns = memory::handshake(now, client, || TlsConnection::server(server, now), answer)?;
    let of = |side| {
        turns.iter().filter(|turn| turn.side == side).fold(Side::default(), |sum, turn| Side {
            sent_bytes: sum.sent_bytes + turn.sent_bytes,
            time: sum.time + turn.time,
            operations: sum.operations.and(turn.operations),
        })
    };
    // The client's first flight comes before the server receives anything. Neither side sends anything after
    // the client's Finished, as there are no tickets.
    let latency = turns.iter().skip(MAKING + 1).map(|turn| turn.time).sum();
    Ok(Handshake { client: of(dunlin::Side::Client), server: of(dunlin::Side::Server), latency })
}
