//! Dunlin in virtual time: the same engine over a model of Linux's TCP.

use std::sync::Arc;
use std::time::Duration;

use ::dunlin::{ClientConfig, ServerAddress, ServerConfig, Side, TlsConnection};
use dunlin_sim::{Application, Delay, Reply, TcpOptions, TcpPair, TlsPeer};

use super::super::keys::SERVER_NAME;
use super::case::{Case, Handshake};
use super::ends::{client, expect, server};
use super::{ANSWER, DELAY, FIRST_PORT, PAUSE, QUESTION, datagrams};
use crate::Error;
use crate::capture::{Direction, Frame};
use crate::error::failed;

/// The addresses of both ends, which only select IPv4.
const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];

/// Returns the frames of the two connections of the case.
pub(super) fn frames(case: &Case<'_>, mtu: u16) -> Result<Vec<Frame>, Error> {
    if case.protocol.is_over_datagrams() {
        return datagrams::in_virtual_time(case, mtu);
    }
    let client = Arc::new(client(case)?);
    let server = Arc::new(server(case)?);
    let mut frames = Vec::new();
    let mut begin = Duration::ZERO;
    for (port, handshake) in (FIRST_PORT..).zip(case.mode.handshakes()) {
        let options = TcpOptions { mtu: mtu.into(), client_port: port, ..TcpOptions::default() };
        frames.extend(connect(&client, &server, options, handshake)?.into_iter().map(|mut frame| {
            frame.time += begin;
            frame
        }));
        begin = frames.last().map_or(begin, |frame: &Frame| frame.time) + PAUSE;
    }
    Ok(frames)
}

/// Runs one connection: a question, an answer, and the close.
fn connect(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    options: TcpOptions,
    handshake: Handshake,
) -> Result<Vec<Frame>, Error> {
    let now = dunlin_tokio::now();
    let address = ServerAddress::parse(SERVER_NAME, 0).map_err(failed)?;
    let asks = |connection: &TlsConnection, data: &[u8]| match data {
        b"" if !connection.peer_has_closed() => Reply { data: QUESTION.to_vec(), close: false },
        data => Reply { data: vec![], close: data == ANSWER },
    };
    let answers = |connection: &TlsConnection, data: &[u8]| match data {
        QUESTION => Reply { data: ANSWER.to_vec(), close: false },
        _ => Reply { data: vec![], close: connection.peer_has_closed() },
    };
    let client = TlsPeer::new(TlsConnection::client(client, address, now).map_err(failed)?, asks);
    let server = TlsPeer::new(TlsConnection::server(server, now), answers);
    let link = || Box::new(Delay(DELAY));
    let mut pair = TcpPair::new(client, server, now, options, link(), link());
    pair.run().map_err(failed)?;
    ended(Side::Client, pair.client(), handshake)?;
    ended(Side::Server, pair.server(), handshake)?;
    let frames = pair.sent.iter().map(|sent| Frame {
        time: Duration::from_millis(now.unix_ms) + sent.after,
        direction: if sent.by == Side::Client { Direction::Sent } else { Direction::Received },
        bytes: [&ETHERNET, &sent.packet[..]].concat(),
    });
    Ok(frames.collect())
}

/// Checks the result of the connection.
fn ended<A: Application>(side: Side, peer: &TlsPeer<A>, handshake: Handshake) -> Result<(), Error> {
    let connection = &peer.connection;
    if let Some(error) = connection.error() {
        return Err(failed(error));
    }
    expect(side, connection.negotiated(), handshake)?;
    if connection.has_closed() && connection.peer_has_closed() {
        Ok(())
    } else {
        Err(failed("a connection did not end"))
    }
}
