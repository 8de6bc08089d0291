//! The device has a pre-shared key and forward secrecy: PSK with X25519 (psk_dhe_ke, RFC 8446 §2.2).
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec;

use cortex_m_rt::entry;
use dunlin::auth::Psk;
use dunlin::crypto::{CryptoProvider, SecureRandom};
use dunlin::{ClientConfig, Error, Profile};
use dunlin_firmware::parameters::Parameters;
use dunlin_rustcrypto::{NO_KEY_LOADER, NO_SIGNATURES, SHA256, TLS13_AES_128_CCM_SHA256, X25519};

#[entry]
fn main() -> ! {
    dunlin_firmware::run(configure)
}

fn configure(parameters: &mut Parameters, random: Arc<dyn SecureRandom>) -> Result<ClientConfig, Error> {
    let provider = CryptoProvider {
        name: dunlin_rustcrypto::NAME,
        cipher_suites: vec![&TLS13_AES_128_CCM_SHA256],
        groups: vec![X25519],
        sha256: SHA256,
        signatures: NO_SIGNATURES,
        random,
        key_loader: NO_KEY_LOADER,
    };
    let psk = Psk::new(parameters.bytes(), &parameters.bytes())?;
    let profile = Profile::builder(Arc::new(provider)).compatibility_mode(false).build()?;
    Ok(ClientConfig::psk_only(profile, vec![Arc::new(psk)])?.with_server_name_sent(false))
}
