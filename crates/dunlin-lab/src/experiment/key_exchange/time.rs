//! The processing time of a handshake on each side, divided into key exchange, signatures and the rest.
//!
//! The engine needs no change: its provider has groups and signature algorithms that record their time.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::crypto::{
    ActiveKeyExchange, CryptoError, CryptoProvider, FiniteField, KeyExchangeGroup, KeyLoader, RsaDecryption,
    RsaEncryption, RsaPublicKey, SecureRandom, SharedSecret, SignatureAlgorithms, SigningKey,
};
use dunlin::wire::{NamedGroup, SignatureScheme};
use dunlin::{ClientConfig, DtlsConnection, Now, ServerConfig, Side, TlsConnection};
use pki_types::{
    AlgorithmIdentifier, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer,
};
use zeroize::Zeroizing;

use super::ends::{ADDRESS, End};
use super::failed;
use super::suites::{self, Case, Crypto};
use crate::Error;
use crate::link::in_real_time;
use crate::net::on_own_thread;
use crate::report::Row;

thread_local! {
    /// The time that this thread has spent since the last call.
    static SPENT: Cell<Operations> = const { Cell::new(Operations { key: Duration::ZERO, signature: Duration::ZERO }) };
}

/// Time by operation.
#[derive(Clone, Copy, Debug, Default)]
struct Operations {
    /// Key shares and their secrets; encryption and decryption of secrets.
    key: Duration,
    /// Signing and verifying, in the handshake and in certificates.
    signature: Duration,
}

fn for_keys<T>(work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    SPENT.with(|spent| {
        let so_far = spent.get();
        spent.set(Operations { key: so_far.key + start.elapsed(), ..so_far });
    });
    result
}

fn for_signatures<T>(work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    SPENT.with(|spent| {
        let so_far = spent.get();
        spent.set(Operations { signature: so_far.signature + start.elapsed(), ..so_far });
    });
    result
}

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
    let (now, address) = (dunlin_tokio::now(), suites::server_address()?);
    match case.over_datagrams {
        false => {
            turns(now, || TlsConnection::client(client, address, now), || TlsConnection::server(server, now))
        }
        true => turns(
            now,
            || DtlsConnection::client(client, address, ADDRESS, now),
            || DtlsConnection::server(server, ADDRESS, now),
        ),
    }
}

/// Creates both sides, and lets them take turns until neither sends anything.
fn turns<E: End>(
    now: Now,
    client: impl FnOnce() -> Result<E, dunlin::Error>,
    server: impl FnOnce() -> E,
) -> Result<Vec<Turn>, Error> {
    let mut turns = Vec::new();
    let (mut side, mut received) = (Side::Client, Vec::new());
    let (client_end, starting) = timed(client);
    let mut client_end = client_end.map_err(failed)?;
    let (mut server_end, listening) = timed(server);
    let (mut starting, mut listening) = (Some(starting), Some(listening));
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
            turn.operations.key += operations.key;
            turn.operations.signature += operations.signature;
        }
        if sent_bytes == 0 {
            break;
        }
        side = if side == Side::Client { Side::Server } else { Side::Client };
    }
    match client_end.is_connected() && server_end.is_connected() {
        true => Ok(turns),
        false => Err(failed("it does not end")),
    }
}

/// Runs `work` on a thread that, if permitted, no other program interrupts. Processes that it starts inherit this.
pub(super) fn undisturbed<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    on_own_thread(|| {
        in_real_time();
        work()
    })
}

/// Runs `work`. Returns its duration, and how much of it went to each operation.
fn timed<T>(work: impl FnOnce() -> T) -> (T, (Duration, Operations)) {
    SPENT.set(Operations::default());
    let start = Instant::now();
    let result = work();
    let time = start.elapsed();
    (result, (time, SPENT.get()))
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

/// Wraps the cryptography and the keys that it loads, so that they record their time. Parts of a provider are static, so the
/// wrapped parts stay until the process ends; an experiment makes them once.
pub(super) fn watched(crypto: &Crypto) -> Crypto {
    let all = &*crypto.provider;
    let group = |group: &&'static dyn KeyExchangeGroup| {
        let group: &'static dyn KeyExchangeGroup = Box::leak(Box::new(Group(*group)));
        group
    };
    let signatures = |algorithms: &[&'static dyn SignatureVerificationAlgorithm]| {
        let watched = algorithms.iter().map(|algorithm| {
            let verifier: &'static dyn SignatureVerificationAlgorithm =
                Box::leak(Box::new(Verifier(*algorithm)));
            verifier
        });
        &*watched.collect::<Vec<_>>().leak()
    };
    let schemes = all.signatures.schemes.iter().map(|(scheme, of)| (*scheme, signatures(of)));
    let provider = CryptoProvider {
        groups: all.groups.iter().map(group).collect(),
        signatures: SignatureAlgorithms {
            all: signatures(all.signatures.all),
            schemes: schemes.collect::<Vec<_>>().leak(),
        },
        key_loader: Box::leak(Box::new(Loader(all.key_loader))),
        ..all.clone()
    };
    Crypto { provider: Arc::new(provider), rsa: Box::leak(Box::new(Rsa(crypto.rsa))) }
}

#[derive(Debug)]
struct Group(&'static dyn KeyExchangeGroup);

impl KeyExchangeGroup for Group {
    fn name(&self) -> NamedGroup {
        self.0.name()
    }

    fn start(&self, random: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        let active = for_keys(|| self.0.start(random))?;
        Ok(Box::new(Active(active)))
    }

    fn finite_field(&self) -> Option<FiniteField> {
        self.0.finite_field()
    }

    fn respond(
        &self,
        random: &dyn SecureRandom,
        peer: &[u8],
    ) -> Result<(Vec<u8>, SharedSecret), CryptoError> {
        for_keys(|| self.0.respond(random, peer))
    }
}

struct Active(Box<dyn ActiveKeyExchange>);

impl ActiveKeyExchange for Active {
    fn share(&self) -> &[u8] {
        self.0.share()
    }

    fn complete(&self, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        for_keys(|| self.0.complete(peer))
    }
}

#[derive(Debug)]
struct Verifier(&'static dyn SignatureVerificationAlgorithm);

impl SignatureVerificationAlgorithm for Verifier {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        for_signatures(|| self.0.verify_signature(public_key, message, signature))
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.0.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0.signature_alg_id()
    }
}

#[derive(Debug)]
struct Loader(&'static dyn KeyLoader);

impl KeyLoader for Loader {
    fn load(&self, der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError> {
        let key = self.0.load(der)?;
        Ok(Arc::new(Signer { decrypts: Decrypter(key.clone()), key }))
    }
}

#[derive(Debug)]
struct Signer {
    key: Arc<dyn SigningKey>,
    decrypts: Decrypter,
}

impl SigningKey for Signer {
    fn schemes(&self) -> &[SignatureScheme] {
        self.key.schemes()
    }

    fn public_key(&self) -> &SubjectPublicKeyInfoDer<'static> {
        self.key.public_key()
    }

    fn sign(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        for_signatures(|| self.key.sign(scheme, message, random))
    }

    fn decryption(&self) -> Option<&dyn RsaDecryption> {
        self.key.decryption().map(|_| &self.decrypts as &dyn RsaDecryption)
    }
}

/// The interface of a key that can decrypt.
#[derive(Debug)]
struct Decrypter(Arc<dyn SigningKey>);

impl RsaDecryption for Decrypter {
    fn modulus_len(&self) -> usize {
        self.0.decryption().map_or(0, RsaDecryption::modulus_len)
    }

    fn decrypt(&self, ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        for_keys(|| self.0.decryption().ok_or(CryptoError)?.decrypt(ciphertext))
    }
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
