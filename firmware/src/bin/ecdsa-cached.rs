//! The program `ecdsa` with the handshake cache. The last parameter is the cache entry of the previous boot,
//! as from the device's flash, or empty. At the end the program prints the new entry in hexadecimal, for the
//! next boot, and whose certificates the handshake omitted.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use core::fmt;

use cortex_m_rt::entry;
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::SecureRandom;
use dunlin::{ClientConfig, Error, Negotiated, TlsConnection};
use dunlin_firmware::cache::OneServer;
use dunlin_firmware::parameters::Parameters;
use dunlin_firmware::{ecdsa, print};

static CACHE: OneServer = OneServer::empty();

#[entry]
fn main() -> ! {
    dunlin_firmware::run_and_report(configure, report)
}

fn configure(parameters: &mut Parameters, random: Arc<dyn SecureRandom>) -> Result<ClientConfig, Error> {
    let config = ecdsa::configure(parameters, random)?;
    CACHE.restore(parameters.bytes());
    Ok(config.with_handshake_cache(CacheMode::Compact, Arc::new(&CACHE), DEFAULT_MAX_AGE))
}

fn report(connection: &TlsConnection) {
    let negotiated = connection.negotiated();
    let own = u8::from(negotiated.is_some_and(Negotiated::is_own_cached));
    let peer = u8::from(negotiated.is_some_and(Negotiated::is_peer_cached));
    print(format_args!("own_cached {own}\npeer_cached {peer}\nentry {}\n", Hexadecimal(&CACHE.bytes())));
}

struct Hexadecimal<'b>(&'b [u8]);

impl fmt::Display for Hexadecimal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
