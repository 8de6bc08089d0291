//! Counts the instructions that a server needs for a record, without a socket.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use dunlin::{ClientConfig, DtlsConnection};
use dunlin_tests::localhost;
use dunlin_tokio::now;

use super::client::DATA;
#[cfg(feature = "openssl")]
use super::server::OpenSsl;
use super::server::{Dunlin, Echo, Out};
use super::{ids, profile, psk};
use crate::instructions::collected;
use crate::stack::counted_work;

/// The associations, and the records of each.
const ASSOCIATIONS: usize = 1000;
const RECORDS: usize = 10;

/// Prints the instructions of each server for a record.
pub(crate) fn count_records() {
    println!("\n| instructions for a record | |\n| --- | ---: |");
    for (name, has_ids) in super::SERVERS {
        if !name.starts_with("dunlin-tokio") && !name.starts_with("pion") {
            let args = ["load-records", name, if *has_ids { "ids" } else { "address" }];
            println!("| {name} | {:.0} |", collected(&args) / (ASSOCIATIONS * RECORDS) as f64);
        }
    }
}

/// Lets this server echo records. Valgrind counts its work.
pub(crate) fn perform(kind: &str, has_ids: bool) {
    match kind.split(',').next() {
        #[cfg(feature = "openssl")]
        Some("openssl") => echo(&mut OpenSsl::new(), has_ids),
        _ => echo(&mut Dunlin::new(has_ids), has_ids),
    }
}

fn echo(server: &mut impl Echo, has_ids: bool) {
    let config = ClientConfig::new(profile()).with_psks(vec![Arc::new(psk())]);
    let config = Arc::new(if has_ids { config.with_connection_ids(ids()) } else { config });
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 4433));
    let mut out = Out::new();
    let mut clients: Vec<_> = (0..ASSOCIATIONS as u32)
        .map(|n| {
            let from = SocketAddr::from((Ipv4Addr::from(0x7f01_0000 + n), 40_000));
            let mut client = DtlsConnection::client(&config, localhost(), to, now()).unwrap();
            while client.is_handshaking() {
                while let Some(transmit) = client.poll_transmit(now()) {
                    server.receive(now(), from, &transmit.datagram, &mut out);
                }
                for (_, datagram) in out.drain(..) {
                    client.receive(now(), to, &datagram).unwrap();
                }
            }
            (from, client)
        })
        .collect();
    let now = now();
    for _ in 0..RECORDS {
        for (from, client) in &mut clients {
            client.send(&DATA).unwrap();
            let record = client.poll_transmit(now).unwrap().datagram;
            counted_work(&mut || server.receive(now, *from, &record, &mut out));
            for (_, datagram) in out.drain(..) {
                client.receive(now, to, &datagram).unwrap();
            }
            assert_eq!(client.read().as_deref(), Some(&DATA[..]));
        }
    }
}
