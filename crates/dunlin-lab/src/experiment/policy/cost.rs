//! The cost of single operations, as in the paper's Table 2 and its figure 7: signatures by the length of the key, and encryption.

use std::ffi::OsString;
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::Instant;

use dunlin::crypto::{Aead, CryptoProvider, NONCE_LEN};
use dunlin::wire::SignatureScheme;
use dunlin_pki::{KeyPair, KeyType};
use pki_types::PrivateKeyDer;

use super::case::Aes;
use super::tls::failed;
use super::{environment, this_program, unknown};
use crate::Error;
use crate::report::{Row, median_of};

/// The length of a full record, in bytes.
const RECORD: usize = 1 << 14;
/// The measurements of an operation, and the repetitions of each one.
const TURNS: usize = 15;
const SIGNATURES: u32 = 4;
const RECORDS: u32 = 64;

/// The algorithms, the strongest of each kind first: the name, and the level of the paper's Table 1.
const KEYS: [(&str, KeyType, &str); 3] = [
    ("rsa4096", KeyType::Rsa4096, "near-term"),
    ("rsa3072", KeyType::Rsa3072, "near-term"),
    ("rsa2048", KeyType::Rsa2048, "below near-term"),
];
const CIPHERS: [(&str, &str); 3] =
    [("aes256gcm", "long-term"), ("aes128gcm", "near-term"), ("chacha20poly1305", "long-term")];

/// The rows of an environment: the median time of each operation, and its ratio to the strongest algorithm of the kind.
pub(super) fn rows(aes: Aes) -> Result<Vec<Row>, Error> {
    let mut command = this_program(["costs", aes.name()].map(OsString::from).into())?;
    command.envs(environment(aes).iter().copied()).stdin(Stdio::null()).stderr(Stdio::piped());
    let told = output(&mut command)?;
    let mut rows = Vec::new();
    let mut strongest: Option<(String, f64)> = None;
    for line in told.lines() {
        let mut words = line.split(' ');
        let (Some(operation), Some(algorithm)) = (words.next(), words.next()) else { return Err(unknown()) };
        let measured = words.map(str::parse).collect::<Result<Vec<f64>, _>>().map_err(|_| unknown())?;
        let row = Row::new()
            .with("stack", "dunlin")
            .with("operation", operation)
            .with("algorithm", algorithm)
            .with("level", level(algorithm))
            .with("aes", aes.name())
            .with("way", "real")
            .figure("operation_us", &measured);
        let us = median_of(&measured);
        let row = match &strongest {
            Some((of, strongest)) if of == operation => {
                row.figure("ratio_percent", &[us / strongest * 100.0])
            }
            _ => {
                strongest = Some((operation.to_owned(), us));
                row
            }
        };
        rows.push(match paper(operation, algorithm, aes) {
            Some(percent) => row.paper("ratio_percent", percent),
            None => row,
        });
    }
    Ok(rows)
}

fn output(command: &mut Command) -> Result<String, Error> {
    let output = command.output().map_err(failed)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            Err(failed(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("it has failed")))
        }
    }
}

fn level(algorithm: &str) -> &'static str {
    let keys = KEYS.iter().map(|(name, _, level)| (*name, *level));
    keys.chain(CIPHERS).find(|(name, _)| *name == algorithm).map_or("", |(_, level)| level)
}

/// The paper's Table 2 on its Intel processor. Its RSA keys have 512 and 7680 bits.
fn paper(operation: &str, algorithm: &str, aes: Aes) -> Option<f64> {
    match (operation, algorithm, aes) {
        ("sign", "rsa2048", _) => Some(2.20),
        ("verify", "rsa2048", _) => Some(9.95),
        ("seal", "aes128gcm", Aes::Software) => Some(74.48),
        ("seal", "aes128gcm", Aes::Hardware) => Some(87.49),
        _ => None,
    }
}

/// Measures in this process, and prints a line for each operation: its name, the algorithm, and the microseconds of each
/// measurement. RSA does not depend on AES, so it is measured once.
pub(super) fn run(words: &[OsString]) -> Result<(), Error> {
    let provider = dunlin_awslc::provider();
    let print = |operation: &str, algorithm: &str, measured: Vec<f64>| {
        let measured: Vec<_> = measured.iter().map(|us| format!("{us:.4}")).collect();
        println!("{operation} {algorithm} {}", measured.join(" "));
    };
    if words.first().is_some_and(|aes| aes == Aes::Hardware.name()) {
        let keys = KEYS.map(|(name, typ, _)| Ok((name, signing(&provider, typ)?)));
        let keys = keys.into_iter().collect::<Result<Vec<_>, Error>>()?;
        for (name, (signed, _)) in &keys {
            print("sign", name, signed.clone());
        }
        for (name, (_, verified)) in &keys {
            print("verify", name, verified.clone());
        }
    }
    for (name, _) in CIPHERS {
        let suite = match name {
            "aes256gcm" => &dunlin_awslc::TLS13_AES_256_GCM_SHA384,
            "aes128gcm" => &dunlin_awslc::TLS13_AES_128_GCM_SHA256,
            _ => &dunlin_awslc::TLS13_CHACHA20_POLY1305_SHA256,
        };
        print("seal", name, sealing(suite.aead)?);
    }
    Ok(())
}

/// The microseconds of one operation of `work`, several times.
fn timed(times: u32, mut work: impl FnMut() -> Result<(), Error>) -> Result<Vec<f64>, Error> {
    work()?;
    let turn = |_| {
        let start = Instant::now();
        (0..times).try_for_each(|_| work())?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(times))
    };
    (0..TURNS).map(turn).collect()
}

/// The times of signing and of verifying.
fn signing(provider: &CryptoProvider, typ: KeyType) -> Result<(Vec<f64>, Vec<f64>), Error> {
    const SCHEME: SignatureScheme = SignatureScheme::RSA_PKCS1_SHA256;
    let pair = KeyPair::generate(typ).map_err(failed)?;
    let der = pair.to_pkcs8().map_err(failed)?;
    let key = provider.key_loader.load(&PrivateKeyDer::Pkcs8(der.as_slice().into())).map_err(failed)?;
    let message = [7; 32];
    let sign = || key.sign(SCHEME, &message, &*provider.random).map_err(failed);
    let signature = sign()?;
    let verifier = provider.signatures.schemes.iter().find(|(scheme, _)| *scheme == SCHEME);
    let verifier = verifier.and_then(|(_, all)| all.first()).ok_or_else(|| failed("RSA is missing"))?;
    // The bits of the key are the last part of its SubjectPublicKeyInfo, a sequence (RFC 8017 A.1.1) of more than 255 bytes.
    let spki = key.public_key().as_ref();
    let at = spki.windows(3).rposition(|bytes| bytes == [0, 0x30, 0x82]).map(|at| at + 1);
    let public = at.and_then(|at| spki.get(at..)).ok_or_else(|| failed("unknown form of a key"))?;
    let signed = timed(SIGNATURES, || sign().map(|signature| drop(black_box(signature))))?;
    let verified = timed(SIGNATURES * 8, || {
        verifier.verify_signature(public, &message, &signature).map_err(|_| failed("a signature is wrong"))
    })?;
    Ok((signed, verified))
}

/// The times of sealing a full record.
fn sealing(aead: &dyn Aead) -> Result<Vec<f64>, Error> {
    let algorithm = aead.algorithm();
    let key = aead.key(&vec![7; algorithm.key_len()]).map_err(failed)?;
    let (mut data, mut tag) = (vec![7; RECORD], vec![0; algorithm.tag_len()]);
    timed(RECORDS, || key.seal(&[7; NONCE_LEN], &[], black_box(&mut data), &mut tag).map_err(failed))
}
