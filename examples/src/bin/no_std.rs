//! Runs the `no_std` program of `examples/no-std/src/lib.rs` with this machine's randomness and clock.
//!
//! Run it: `cargo run -p dunlin-examples --bin no_std`
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_rustcrypto::OsRandom;

fn main() -> Result<(), Box<dyn Error>> {
    let unix_ms = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let received = dunlin_example_no_std::run(Arc::new(OsRandom), unix_ms, "21.5 C")?;
    println!("the server received {received}");
    Ok(())
}
