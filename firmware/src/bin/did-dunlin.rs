//! The device and the server authenticate each other by a bare `did:dunlin`. Each sends the proof of its
//! latest document along, so neither asks the registry. The parameters are the server's DID, the registry's
//! two keys, the newest checkpoint that the device has accepted, the device's DID, its staple, and its
//! private key (PKCS#8).
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;

use cortex_m_rt::entry;
use dunlin::auth::Identifier;
use dunlin::crypto::SecureRandom;
use dunlin::wire::DidMethod;
use dunlin::{ClientConfig, Error};
use dunlin_firmware::did::{self, ProvenServer, StoredProof};
use dunlin_firmware::parameters::Parameters;

#[entry]
fn main() -> ! {
    dunlin_firmware::run(configure)
}

fn configure(parameters: &mut Parameters, random: Arc<dyn SecureRandom>) -> Result<ClientConfig, Error> {
    let provider = did::provider(random);
    let server = ProvenServer::read(parameters, provider.clone())?;
    let own = did::did(parameters)?;
    let proof = StoredProof { staple: parameters.bytes(), registry: server.known() };
    let own =
        Identifier { proofs: Some(Arc::new(proof)), ..Identifier::new(own.as_str(), DidMethod::DUNLIN) };
    did::configure(parameters, provider, own, Arc::new(server))
}
