//! The device and the server authenticate each other by X.509 certificates with P-256 keys, under one
//! authority.
#![no_std]
#![no_main]

use cortex_m_rt::entry;

#[entry]
fn main() -> ! {
    dunlin_firmware::run(dunlin_firmware::ecdsa::configure)
}
