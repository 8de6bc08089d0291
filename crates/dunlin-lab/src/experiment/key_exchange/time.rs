//! The processing time of a handshake on each side, divided into key exchange, signatures and the rest.

use std::sync::Arc;
use std::time::Duration;

use dunlin::crypto::{CryptoError, RsaEncryption, RsaPublicKey};
use dunlin::{ClientConfig, DtlsConnection, Now, ServerConfig, Side, TlsConnection};
use pki_types::SubjectPublicKeyInfoDer;

use super::ends::{ADDRESS, End};
use super::suites::{self, Case, Crypto};
use crate::Error;
use crate::error::failed;
use crate::experiment::watch::{self, Operations, for_keys, timed};
use crate::report::Row;

/// The work of one side between two flights of the other.
pub(super) struct Turn {
    pub(super) side: Side,
    /// The flight that it sent at the end.
    pub(super) sent_bytes: usize,
    time: Duration,
    operations: Operations,
}

/// The work of a whole handshake.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    total_us: f64,
    key_us: f64,
    signature_us: f64,
}

/// Runs a handshake in memory.
pub(super) fn handshake(
    case: &Case,
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> Result<Vec<Turn>, Error> {
    let now = dunlin_tokio::now();
    let address = suites::server_address()?;
    if case.over_datagrams {
        turns(
            now,
            || DtlsConnection::client(client, address, ADDRESS, now),
            || DtlsConnection::server(server, ADDRESS, now),
        )
    } else {
        turns(now, || TlsConnection::client(client, address, now), || TlsConnection::server(server, now))
    }
}

/// Creates both sides, and lets them take turns until neither sends anything.
fn turns<E: End>(
    now: Now,
    client: impl FnOnce() -> Result<E, dunlin::Error>,
    server: impl FnOnce() -> E,
) -> Result<Vec<Turn>, Error> {
    let mut turns = Vec::new();
    let mut side = Side::Client;
    let mut received = Vec::new();
    let (client_end, starting) = timed(client);
    let mut client_end = client_end.map_err(failed)?;
    let (mut server_end, listening) = timed(server);
    let mut starting = Some(starting);
    let mut listening = Some(listening);
    loop {
        let (end, before) = match side {
            Side::Client => (&mut client_end, starting.take()),
            Side::Server => (&mut server_end, listening.take()),
        };
        let (sent, (time, operations)) = timed(|| {
            received.iter().try_for_each(|piece: &Vec<u8>| end.receive(now, piece))?;
            Ok::<_, dunlin::Error>(end.flight(now))
        });
        received = sent.map_err(failed)?;
        let sent_bytes = received.iter().map(Vec::len).sum();
        turns.push(Turn { side, sent_bytes, time, operations });
        if let (Some((time, operations)), Some(turn)) = (before, turns.last_mut()) {
            turn.time += time;
            turn.operations = turn.operations.and(operations);
        }
        if sent_bytes == 0 {
            break;
        }
        side = if side == Side::Client { Side::Server } else { Side::Client };
    }
    if client_end.is_connected() && server_end.is_connected() {
        Ok(turns)
    } else {
        Err(failed("it does not end"))
    }
}

/// The costs of handshakes as figures.
#[derive(Default)]
pub(super) struct Times {
    client: Vec<Cost>,
    server: Vec<Cost>,
}

impl Times {
    /// Adds a handshake.
    pub(super) fn add(&mut self, turns: &[Turn]) {
        let mut costs = [Cost::default(); 2];
        for turn in turns {
            let cost = &mut costs[usize::from(turn.side == Side::Server)];
            let us = |time: Duration| time.as_secs_f64() * 1e6;
            cost.total_us += us(turn.time);
            cost.key_us += us(turn.operations.key);
            cost.signature_us += us(turn.operations.signature);
        }
        let [client, server] = costs;
        self.client.push(client);
        self.server.push(server);
    }

    /// Adds the total times of client and server in handshakes, in microseconds.
    pub(super) fn add_totals(&mut self, both: &[[f64; 2]]) {
        for [client, server] in both {
            self.client.push(Cost { total_us: *client, ..Cost::default() });
            self.server.push(Cost { total_us: *server, ..Cost::default() });
        }
    }

    /// The figures of a stack that does not report its operations.
    pub(super) fn totals(&self, row: Row) -> Row {
        let of = |costs: &[Cost]| costs.iter().map(|cost| cost.total_us).collect::<Vec<_>>();
        row.figure("client_us", &of(&self.client)).figure("server_us", &of(&self.server))
    }

    /// The figures of both sides.
    pub(super) fn figures(&self, row: Row) -> Row {
        let sides = [("client", &self.client), ("server", &self.server)];
        sides.into_iter().fold(row, |row, (side, costs)| {
            let of = |cost: fn(&Cost) -> f64| costs.iter().map(cost).collect::<Vec<_>>();
            row.figure(&format!("{side}_us"), &of(|cost| cost.total_us))
                .figure(&format!("{side}_key_us"), &of(|cost| cost.key_us))
                .figure(&format!("{side}_signature_us"), &of(|cost| cost.signature_us))
                .figure(
                    &format!("{side}_common_us"),
                    &of(|cost| cost.total_us - cost.key_us - cost.signature_us),
                )
        })
    }
}

/// Wraps the cryptography and the keys that it loads, so that they record their time. Some parts stay until
/// the process ends; an experiment makes them once.
pub(super) fn watched(crypto: &Crypto) -> Crypto {
    let provider = watch::provider(&crypto.provider);
    Crypto { provider: Arc::new(provider), rsa: Box::leak(Box::new(Rsa(crypto.rsa))) }
}

#[derive(Debug)]
struct Rsa(&'static dyn RsaEncryption);

impl RsaEncryption for Rsa {
    fn public_key(&self, spki: &SubjectPublicKeyInfoDer<'_>) -> Result<Box<dyn RsaPublicKey>, CryptoError> {
        let key = for_keys(|| self.0.public_key(spki))?;
        Ok(Box::new(Encrypter(key)))
    }
}

struct Encrypter(Box<dyn RsaPublicKey>);

impl RsaPublicKey for Encrypter {
    fn modulus_len(&self) -> usize {
        self.0.modulus_len()
    }

    fn encrypt(&self, block: &[u8]) -> Result<Vec<u8>, CryptoError> {
        for_keys(|| self.0.encrypt(block))
    }
}
