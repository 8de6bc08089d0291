//! A device that shares a key with the server, and nothing else: PSK without (EC)DHE (psk_ke, RFC 8446 §2.2).
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use alloc::vec;

use cortex_m_rt::entry;
use dunlin::auth::Psk;
use dunlin::crypto::{CryptoProvider, SecureRandom};
use dunlin::wire::PskKeyExchangeMode;
use dunlin::{ClientConfig, Error, Profile};
use dunlin_firmware::parameters::Parameters;

#[entry]
fn main() -> ! {
    dunlin_firmware::run(configure)
}

fn configure(parameters: &mut Parameters, random: Arc<dyn SecureRandom>) -> Result<ClientConfig, Error> {
    let provider = CryptoProvider {
        cipher_suites: vec![&dunlin_rustcrypto::TLS13_AES_128_CCM_SHA256],
        groups: vec![],
        signatures: dunlin::crypto::SignatureAlgorithms { all: &[], schemes: &[] },
        ..dunlin_rustcrypto::provider(random)
    };
    let psk = Psk::new(parameters.bytes(), &parameters.bytes())?;
    let profile = Profile::builder(Arc::new(provider))
        .psk_modes(vec![PskKeyExchangeMode::PSK_KE])
        .compatibility_mode(false)
        .build()?;
    Ok(ClientConfig::new(profile).with_psks(vec![Arc::new(psk)]).with_server_name_sent(false))
}
