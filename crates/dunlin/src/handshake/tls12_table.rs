//! The table of both sides of TLS 1.2. It is above them: an established connection, which both sides end in,
//! begins a renegotiation through it.

use super::negotiate::TLS12_OFFERS;
use super::tls12::{Handshakes, client_refused};
use super::{client, server};

pub(crate) static HANDSHAKES: Handshakes = Handshakes {
    client_suites: client::tls12::usable_suites,
    offers: TLS12_OFFERS,
    client: client::tls12::server_hello,
    client_again: client::start::renegotiate,
    client_refused,
    server: server::tls12::client_hello,
};
