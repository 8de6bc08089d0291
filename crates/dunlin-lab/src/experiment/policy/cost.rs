//! The cost of single operations, as in the paper's Table 2 and its figure 7: signatures by the length of the
//! key, and encryption.

use std::ffi::OsString;
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::Instant;

use dunlin::crypto::{Aead, NONCE_LEN};
use dunlin::wire::SignatureScheme;
use dunlin_pki::{KeyPair, KeyType};
use pki_types::PrivateKeyDer;
#[cfg(feature = "legacy-lab")]
use pki_types::pem::PemObject;

use super::case::Aes;
use super::{environment, this_program, unknown};
use crate::Error;
use crate::error::failed;
use crate::report::{Row, median_of};

/// The length of a full record, in bytes.
const RECORD: usize = 1 << 14;
/// The measurements of an operation, and the repetitions of each one.
const TURNS: usize = 15;
const SIGNATURES: u32 = 4;
const RECORDS: u32 = 64;

/// Where an RSA key comes from.
#[derive(Clone, Copy)]
enum Source {
    Generated(KeyType),
    /// A file, since `dunlin-pki` generates no key of this length.
    File(&'static [u8]),
    /// Only the provider of the laboratory uses it.
    #[cfg(feature = "legacy-lab")]
    Short(&'static dunlin_legacy::lab::identity::Identity),
}

/// The keys, the paper's strongest first: the name, the key, and the level of the paper's Table 1.
const KEYS: &[(&str, Source, &str)] = &[
    ("rsa7680", Source::File(include_bytes!("data/rsa7680.der")), "near-term"),
    ("rsa8192", Source::File(include_bytes!("data/rsa8192.der")), "near-term"),
    ("rsa4096", Source::Generated(KeyType::Rsa4096), "near-term"),
    ("rsa3072", Source::Generated(KeyType::Rsa3072), "near-term"),
    ("rsa2048", Source::Generated(KeyType::Rsa2048), "below near-term"),
    #[cfg(feature = "legacy-lab")]
    ("rsa1024", Source::Short(&dunlin_legacy::lab::identity::RSA_1024), "legacy"),
    #[cfg(feature = "legacy-lab")]
    ("rsa512", Source::Short(&dunlin_legacy::lab::identity::RSA_512), "below legacy"),
];
/// The ciphers, AES-256 first, to which the others are compared.
const CIPHERS: [(&str, &str); 3] =
    [("aes256gcm", "long-term"), ("aes128gcm", "near-term"), ("chacha20poly1305", "long-term")];

/// The rows of an environment: the median time of each operation, and its ratio to the first algorithm of the
/// kind.
pub(super) fn rows(aes: Aes) -> Result<Vec<Row>, Error> {
    let mut command = this_program(["costs", aes.name()].map(OsString::from).into(), None)?;
    command.envs(environment(aes).iter().copied()).stdin(Stdio::null()).stderr(Stdio::piped());
    let told = output(&mut command)?;
    let mut rows = Vec::new();
    let mut first: Option<(String, f64)> = None;
    for line in told.lines() {
        let mut words = line.split(' ');
        let (Some(operation), Some(algorithm)) = (words.next(), words.next()) else { return Err(unknown()) };
        let measured = words.map(str::parse).collect::<Result<Vec<f64>, _>>().map_err(|_| unknown())?;
        let row = Row::new()
            .with("stack", "dunlin")
            .with("operation", operation)
            .with("algorithm", algorithm)
            .with("level", level_of(algorithm))
            .with("aes", aes.name())
            .with("way", "real")
            .figure("operation_us", &measured);
        let us = median_of(&measured);
        let row = row.figure("operations_per_s", &measured.iter().map(|us| 1e6 / us).collect::<Vec<_>>());
        let row = match &first {
            Some((of, first)) if of == operation => row.figure("ratio_percent", &[us / first * 100.0]),
            _ => {
                first = Some((operation.to_owned(), us));
                row
            }
        };
        let papers = paper(operation, algorithm, aes).unwrap_or_default();
        rows.push(papers.iter().fold(row, |row, (name, percent)| row.paper(name, *percent)));
    }
    Ok(rows)
}

fn output(command: &mut Command) -> Result<String, Error> {
    let output = command.output().map_err(failed)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(failed(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("it has failed")))
    }
}

fn level_of(algorithm: &str) -> &'static str {
    let keys = KEYS.iter().map(|(name, _, level)| (*name, *level));
    keys.chain(CIPHERS).find(|(name, _)| *name == algorithm).map_or("", |(_, level)| level)
}

/// The paper's Table 2: RSA-512 against RSA-7680, AES-128 against AES-256. Its processors are an Intel Core
/// i7-6700, a Xilinx Zynq UltraScale+ and an FT-2000+ (FTC662).
fn paper(operation: &str, algorithm: &str, aes: Aes) -> Option<Vec<(&'static str, f64)>> {
    let percents = match (operation, algorithm, aes) {
        ("sign", "rsa512", _) => [2.20, 3.07, 2.13],
        ("verify", "rsa512", _) => [9.95, 8.79, 7.35],
        ("seal", "aes128gcm", Aes::Software) => [74.48, 76.08, 76.99],
        ("seal", "aes128gcm", Aes::Hardware) => [87.49, 87.12, 95.48],
        _ => return None,
    };
    let names = ["ratio_percent", "zynq_ratio_percent", "ft2000_ratio_percent"];
    Some(names.into_iter().zip(percents).collect())
}

/// Measures in this process, and prints a line for each operation: its name, the algorithm, and the
/// microseconds of each measurement. RSA does not depend on AES, so it is measured once.
pub(super) fn run(words: &[OsString]) -> Result<(), Error> {
    let print = |operation: &str, algorithm: &str, measured: Vec<f64>| {
        let measured: Vec<_> = measured.iter().map(|us| format!("{us:.4}")).collect();
        println!("{operation} {algorithm} {}", measured.join(" "));
    };
    if words.first().is_some_and(|aes| aes == Aes::Hardware.name()) {
        let keys = KEYS.iter().map(|(name, source, _)| Ok((*name, signing(*source, TURNS)?)));
        let keys = keys.collect::<Result<Vec<_>, Error>>()?;
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
fn timed(turns: usize, times: u32, mut work: impl FnMut() -> Result<(), Error>) -> Result<Vec<f64>, Error> {
    work()?;
    let turn = |_| {
        let start = Instant::now();
        (0..times).try_for_each(|_| work())?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(times))
    };
    (0..turns).map(turn).collect()
}

/// The times of signing and of verifying.
fn signing(source: Source, turns: usize) -> Result<(Vec<f64>, Vec<f64>), Error> {
    const SCHEME: SignatureScheme = SignatureScheme::RSA_PKCS1_SHA256;
    let (provider, der) = match source {
        Source::Generated(typ) => {
            let der = KeyPair::generate(typ).and_then(|pair| pair.to_pkcs8()).map_err(failed)?;
            (dunlin_awslc::provider(), PrivateKeyDer::Pkcs8(der.to_vec().into()))
        }
        Source::File(der) => (dunlin_awslc::provider(), PrivateKeyDer::Pkcs8(der.into())),
        #[cfg(feature = "legacy-lab")]
        Source::Short(identity) => {
            let der = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(failed)?;
            (dunlin_legacy::lab::provider(), der)
        }
    };
    let key = provider.key_loader.load(&der).map_err(failed)?;
    // The longest keys take a tenth of a second.
    let times = if matches!(source, Source::File(_)) { 1 } else { SIGNATURES };
    let message = [7; 32];
    let sign = || key.sign(SCHEME, &message, &*provider.random).map_err(failed);
    let signature = sign()?;
    let verifier = provider.signatures.schemes.iter().find(|(scheme, _)| *scheme == SCHEME);
    let verifier = verifier.and_then(|(_, all)| all.first()).ok_or_else(|| failed("RSA is missing"))?;
    // The bits of the key are a sequence (RFC 8017 A.1.1) at the end of its SubjectPublicKeyInfo, behind the
    // number of unused bits. The first octet of its length depends on the key's.
    let spki = key.public_key().as_ref();
    let begins = |bytes: &[u8]| matches!(bytes, [0, 0x30, 0x48..=0x7f | 0x81 | 0x82]);
    let at = spki.windows(3).position(begins).map(|at| at + 1);
    let public = at.and_then(|at| spki.get(at..)).ok_or_else(|| failed("unknown form of a key"))?;
    let signed = timed(turns, times, || sign().map(|signature| drop(black_box(signature))))?;
    let verified = timed(turns, times * 8, || {
        verifier.verify_signature(public, &message, &signature).map_err(|_| failed("a signature is wrong"))
    })?;
    Ok((signed, verified))
}

/// The times of sealing a full record.
fn sealing(aead: &dyn Aead) -> Result<Vec<f64>, Error> {
    let algorithm = aead.algorithm();
    let key = aead.key(&vec![7; algorithm.key_len()]).map_err(failed)?;
    let mut data = vec![7; RECORD];
    let mut tag = vec![0; algorithm.tag_len()];
    timed(TURNS, RECORDS, || key.seal(&[7; NONCE_LEN], &[], black_box(&mut data), &mut tag).map_err(failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns of the paper's Table 2.
    #[test]
    fn rows_have_the_ratios_of_the_papers_processors() {
        let cells = [
            ("sign", "rsa512", Aes::Hardware),
            ("verify", "rsa512", Aes::Hardware),
            ("seal", "aes128gcm", Aes::Software),
            ("seal", "aes128gcm", Aes::Hardware),
        ];
        for (processor, column) in [
            ("ratio_percent", [2.20, 9.95, 74.48, 87.49]),
            ("zynq_ratio_percent", [3.07, 8.79, 76.08, 87.12]),
            ("ft2000_ratio_percent", [2.13, 7.35, 76.99, 95.48]),
        ] {
            for ((operation, algorithm, aes), percent) in cells.into_iter().zip(column) {
                let papers = paper(operation, algorithm, aes).unwrap();
                assert!(papers.contains(&(processor, percent)), "{operation} {processor}: {papers:?}");
            }
        }
        assert!(paper("sign", "rsa1024", Aes::Hardware).is_none());
    }

    #[test]
    fn signs_with_every_key() {
        for (name, source, level) in KEYS {
            // The generated keys take seconds.
            if matches!(source, Source::Generated(_)) {
                continue;
            }
            let (signed, verified) = signing(*source, 1).unwrap();
            assert!(signed.iter().chain(&verified).all(|us| *us > 0.0), "{name}");
            assert_eq!(level_of(name), *level);
        }
    }
}
