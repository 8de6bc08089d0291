//! The device and the server authenticate each other by a bare `did:key` with an Ed25519 key. Each knows the
//! other's DID. The parameters are the device's DID, the server's, and the device's private key (PKCS#8).
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;

use cortex_m_rt::entry;
use dunlin::auth::Identifier;
use dunlin::crypto::SecureRandom;
use dunlin::wire::DidMethod;
use dunlin::{ClientConfig, Error};
use dunlin_firmware::did::{self, KnownServer};
use dunlin_firmware::parameters::Parameters;

#[entry]
fn main() -> ! {
    dunlin_firmware::run(configure)
}

fn configure(parameters: &mut Parameters, random: Arc<dyn SecureRandom>) -> Result<ClientConfig, Error> {
    let own = Identifier::new(did::did(parameters)?.as_str(), DidMethod::KEY);
    let server = KnownServer(did::did(parameters)?);
    did::configure(parameters, did::provider(random), own, Arc::new(server))
}
