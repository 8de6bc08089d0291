//! Tests whether a server's time reveals bad RSA padding: Welch's t test over ClientKeyExchange messages of
//! RSA_PSK, as in dudect (Reparaz, Balasch, Verbauwhede, 2017).
//!
//! ```text
//! cargo bench -p dunlin-tests --bench rsa_timing [-- SAMPLES]
//! ```
//!
//! Each sample is a new connection. Its time is that of the one call that receives the message, as an
//! attacker would see it without network noise. The class of each sample is random. |t| below 4.5 shows no
//! difference. The last line checks the method itself: its difference is public and must be visible.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a program for developers")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use dunlin::auth::{Psk, PskTable};
use dunlin::crypto::{CryptoProvider, SecureRandom};
use dunlin::{ClientConfig, Profile, ProfileBuilder, PskSource, ServerConfig, TlsConnection, Trust};
use dunlin_legacy::rsa::TLS12_RSA_PSK_WITH_AES_128_GCM_SHA256;
use dunlin_tests::tamper::{message, messages, records};
use dunlin_tests::{KeyType, NOW, Pki, localhost};

const SAMPLES: usize = 40_000;
/// Ciphertexts of each class, so that no single one dominates the measurement.
const CIPHERTEXTS: usize = 500;

/// The encrypted content.
#[derive(Clone, Copy)]
enum Class {
    Good,
    /// One wrong byte at a random place of the padding.
    BadPadding,
    BadVersion,
    /// A zero inside the padding: a message of another length.
    BadLength,
    /// No ciphertext of the key. The server decrypts nothing, and that may be public.
    NotBelowModulus,
}

fn main() {
    let samples = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(SAMPLES);
    let bench = Bench::new();
    println!("{samples} samples of each pair, RSA 2048");
    println!("{:<42} {:>12} {:>12} {:>8}", "good secret against", "good", "other", "t");
    for (class, name) in [
        (Class::Good, "another good secret"),
        (Class::BadPadding, "a wrong byte in the padding"),
        (Class::BadVersion, "a wrong version"),
        (Class::BadLength, "a wrong length"),
        (Class::NotBelowModulus, "not below the modulus (public)"),
    ] {
        let [good, other] = bench.measure(class, samples);
        let (t, [a, b]) = welch(good, other);
        println!("{name:<42} {a:>9.1} µs {b:>9.1} µs {t:>8.2}");
    }
}

/// Welch's t of the faster 90 % of both classes, since interrupted samples mean nothing, and both means in
/// microseconds.
fn welch(a: Vec<f64>, b: Vec<f64>) -> (f64, [f64; 2]) {
    let mut all = [&a[..], &b[..]].concat();
    all.sort_by(f64::total_cmp);
    let limit = all[all.len() * 9 / 10];
    let moments = |samples: Vec<f64>| {
        let kept: Vec<_> = samples.into_iter().filter(|s| *s <= limit).collect();
        let n = kept.len() as f64;
        let mean = kept.iter().sum::<f64>() / n;
        (mean, kept.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (n - 1.0) / n)
    };
    let ((a, var_a), (b, var_b)) = (moments(a), moments(b));
    ((a - b) / (var_a + var_b).sqrt(), [a, b])
}

struct Bench {
    random: Arc<dyn SecureRandom>,
    server: Arc<ServerConfig>,
    hello: Vec<u8>,
    /// An honest client's ClientKeyExchange up to its secret.
    identity: Vec<u8>,
}

fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}

impl Bench {
    fn new() -> Self {
        let provider = Arc::new(CryptoProvider {
            key_loader: dunlin_legacy::rsa::KEY_LOADER,
            ..dunlin_awslc::provider()
        });
        let pki = Pki::shared(KeyType::Rsa2048);
        let psk = || Psk::new("device-1", &[7; 32]).unwrap();
        let profile = || -> ProfileBuilder {
            let suites = vec![&TLS12_RSA_PSK_WITH_AES_128_GCM_SHA256];
            let profile =
                Profile::builder(provider.clone()).cipher_suites(vec![]).tls12_cipher_suites(suites);
            profile.rsa_encryption(dunlin_legacy::rsa::ENCRYPTION)
        };
        let client = profile().trust(Trust { x509: Some(pki.trust()), raw_key: None }).build().unwrap();
        let client = Arc::new(ClientConfig::new(client).with_psks(vec![Arc::new(psk())]));
        let server = profile().credentials(vec![pki.server.x509(&provider)]).build().unwrap();
        let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
        let server = Arc::new(ServerConfig::new(server).unwrap().with_psks(keys));

        let mut client = TlsConnection::client(&client, localhost(), NOW).unwrap();
        let hello = take(&mut client);
        let mut peer = TlsConnection::server(&server, NOW);
        peer.receive(NOW, &hello).unwrap();
        client.receive(NOW, &take(&mut peer)).unwrap();
        let exchange = messages(&records(&take(&mut client))[0][5..])[0].clone();
        let identity = exchange[4..4 + 2 + usize::from(exchange[5])].to_vec();
        Self { random: provider.random.clone(), server, hello, identity }
    }

    fn random(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.random.fill(&mut bytes).unwrap();
        bytes
    }

    fn below(&self, limit: usize) -> usize {
        let bytes = self.random(8);
        bytes.iter().fold(0, |n: usize, byte| n << 8 | usize::from(*byte)) % limit
    }

    /// Returns a record with a ClientKeyExchange of this class.
    fn record(&self, class: Class) -> Vec<u8> {
        let spki = &Pki::shared(KeyType::Rsa2048).server.public_key;
        let key = dunlin_legacy::rsa::ENCRYPTION.public_key(spki).unwrap();
        let len = key.modulus_len();
        let mut block: Vec<u8> = self.random(len).into_iter().map(|b| b.max(1)).collect();
        let separator = len - 49;
        (block[0], block[1], block[separator], block[separator + 1], block[separator + 2]) = (0, 2, 0, 3, 3);
        match class {
            Class::Good | Class::NotBelowModulus => {}
            Class::BadPadding => match self.below(3) {
                0 => block[0] = 1,
                1 => block[1] = 1,
                _ => block[separator] = 1,
            },
            Class::BadVersion => block[separator + 2] = 2,
            Class::BadLength => block[2 + self.below(separator - 2)] = 0,
        }
        let ciphertext = match class {
            Class::NotBelowModulus => vec![0xff; len],
            _ => key.encrypt(&block).unwrap(),
        };
        let body = [&self.identity[..], &(len as u16).to_be_bytes(), &ciphertext].concat();
        let message = message(16, &body);
        [&[22, 3, 3], &(message.len() as u16).to_be_bytes()[..], &message].concat()
    }

    /// Returns the microseconds for good secrets and for those of `class`.
    fn measure(&self, class: Class, samples: usize) -> [Vec<f64>; 2] {
        let records = [Class::Good, class]
            .map(|class| (0..CIPHERTEXTS).map(|_| self.record(class)).collect::<Vec<_>>());
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..samples {
            let which = self.below(2);
            let record = &records[which][self.below(CIPHERTEXTS)];
            let mut server = TlsConnection::server(&self.server, NOW);
            server.receive(NOW, &self.hello).unwrap();
            let start = Instant::now();
            let result = server.receive(NOW, black_box(record));
            let time = start.elapsed();
            result.unwrap();
            times[which].push(time.as_nanos() as f64 / 1000.0);
        }
        times
    }
}
