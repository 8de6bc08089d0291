//! The processing time of a handshake on each side, divided into key exchange, signatures and the rest.

use std::sync::Arc;
use std::time::Duration;

use dunlin::crypto::{CryptoError, RsaEncryption, RsaPublicKey};
use dunlin::{ClientConfig, DtlsConnection, ServerConfig, Side, TlsConnection};
use pki_types::SubjectPublicKeyInfoDer;

use super::super::memory::{self, ADDRESS, Turn};
use super::suites::{self, Case, Crypto};
use crate::Error;
use crate::experiment::watch::{self, for_keys};
use crate::report::Row;

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
        let client = || DtlsConnection::client(client, address, ADDRESS, now);
        memory::handshake(now, client, || DtlsConnection::server(server, ADDRESS, now), |_| Ok(()))
    } else {
        let client = || TlsConnection::client(client, address, now);
        memory::handshake(now, client, || TlsConnection::server(server, now), |_| Ok(()))
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
