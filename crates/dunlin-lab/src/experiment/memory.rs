//! Handshakes in memory, over any transport, and the work of each side in them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use dunlin::{DtlsConnection, Now, Side, TlsConnection};

use super::watch::{Operations, timed};
use crate::Error;
use crate::error::failed;

/// One side over any transport.
pub(super) trait End {
    /// Takes the output, in pieces that stay together.
    fn flight(&mut self, now: Now) -> Vec<Vec<u8>>;
    fn receive(&mut self, now: Now, piece: &[u8]) -> Result<(), dunlin::Error>;
    fn is_connected(&self) -> bool;
}

impl End for TlsConnection {
    fn flight(&mut self, _: Now) -> Vec<Vec<u8>> {
        let bytes = self.transmit().to_vec();
        self.transmitted(bytes.len());
        vec![bytes]
    }

    fn receive(&mut self, now: Now, piece: &[u8]) -> Result<(), dunlin::Error> {
        self.receive(now, piece).map(drop)
    }

    fn is_connected(&self) -> bool {
        self.negotiated().is_some()
    }
}

/// The address of both sides, which never leave this process.
pub(super) const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4433);

impl End for DtlsConnection {
    fn flight(&mut self, now: Now) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.poll_transmit(now)).map(|transmit| transmit.datagram).collect()
    }

    fn receive(&mut self, now: Now, piece: &[u8]) -> Result<(), dunlin::Error> {
        self.receive(now, ADDRESS, piece)
    }

    fn is_connected(&self) -> bool {
        self.negotiated().is_some()
    }
}

/// The work of one side between two flights of the other, or in the making of its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) side: Side,
    /// The flight that it sent at the end.
    pub(super) sent_bytes: usize,
    pub(super) time: Duration,
    pub(super) operations: Operations,
}

/// The turns in which both sides make their connections.
pub(super) const MAKING: usize = 2;

/// Makes both sides, and lets them take turns until neither sends anything. `settle` answers the questions that
/// a flight raises.
pub(super) fn handshake<E: End>(
    now: Now,
    client: impl FnOnce() -> Result<E, dunlin::Error>,
    server: impl FnOnce() -> E,
    mut settle: impl FnMut(&mut E) -> Result<(), Error>,
) -> Result<Vec<Turn>, Error> {
    let turn = |side, sent: &[Vec<u8>], (time, operations)| {
        let sent_bytes = sent.iter().map(Vec::len).sum();
        Turn { side, sent_bytes, time, operations }
    };
    let (client, spent) = timed(client);
    let mut client = client.map_err(failed)?;
    let mut turns = vec![turn(Side::Client, &[], spent)];
    let (mut server, spent) = timed(server);
    turns.push(turn(Side::Server, &[], spent));
    let mut received = Vec::new();
    for side in [Side::Client, Side::Server].into_iter().cycle() {
        let end = if side == Side::Client { &mut client } else { &mut server };
        let (sent, spent) = timed(|| {
            received.iter().try_for_each(|piece: &Vec<u8>| end.receive(now, piece)).map_err(failed)?;
            settle(end)?;
            Ok::<_, Error>(end.flight(now))
        });
        received = sent?;
        turns.push(turn(side, &received, spent));
        if received.iter().all(Vec::is_empty) {
            break;
        }
    }
    if client.is_connected() && server.is_connected() { Ok(turns) } else { Err(failed("it does not end")) }
}
