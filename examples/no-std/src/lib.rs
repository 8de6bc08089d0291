//! The engine in a `no_std` program: a device and a server in one process, over buffers instead of a network.
//!
//! CI also builds it for a Cortex-M4F (`make bare-metal`). Run it on a PC: `cargo run -p dunlin-examples
//! --bin no_std`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;

use dunlin::auth::{Psk, PskTable};
use dunlin::crypto::SecureRandom;
use dunlin::wire::SignatureScheme;
use dunlin::{ClientConfig, Error, Now, Profile, PskSource, ServerAddress, ServerConfig, TlsConnection};
use dunlin_rustcrypto::{TLS13_AES_128_CCM_SHA256, X25519};

/// Sends `reading` from a device to a server, and returns what the server received. `random` must be a source
/// of good randomness, such as the chip's generator, and `unix_ms` is the time in milliseconds since 1970.
///
/// # Errors
/// The source of randomness failed.
pub fn run(random: Arc<dyn SecureRandom>, unix_ms: u64, reading: &str) -> Result<String, Error> {
    let provider = Arc::new(dunlin_rustcrypto::provider(random));
    let mut key = [0; 32];
    provider.random.fill(&mut key)?;
    let profile =
        Profile::lean(provider, &TLS13_AES_128_CCM_SHA256, X25519, SignatureScheme::ED25519).build()?;
    let client = ClientConfig::psk_only(profile.clone(), vec![Arc::new(Psk::new("sensor-7", &key)?)])?;
    let keys = PskTable::from_iter([Psk::new("sensor-7", &key)?]);
    let server = ServerConfig::psk_only(profile, PskSource::Here(Arc::new(keys)))?;

    let now = Now::from_unix_ms(unix_ms);
    let mut device = TlsConnection::client(&Arc::new(client), ServerAddress::parse("localhost", 8883)?, now)?;
    let mut server = TlsConnection::server(&Arc::new(server), now);
    while device.is_handshaking() || server.is_handshaking() {
        transfer(&mut device, &mut server, now)?;
        transfer(&mut server, &mut device, now)?;
    }
    device.send(reading.as_bytes())?;
    device.close();
    transfer(&mut device, &mut server, now)?;
    Ok(String::from_utf8_lossy(server.received()).into_owned())
}

/// Carries the bytes that one side has to send to the other. On a device, the network does this.
fn transfer(from: &mut TlsConnection, to: &mut TlsConnection, now: Now) -> Result<(), Error> {
    let taken = to.receive(now, from.transmit())?;
    from.transmitted(taken);
    Ok(())
}
