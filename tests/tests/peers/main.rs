//! Other implementations as the peer, in both roles.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod by_identity;
mod dtls12;
mod gnutls;
mod go;
mod mbedtls;
mod openssl;
mod pion;
mod rustls;
mod scandium;
mod tls12;
mod wolfssl;
mod wolfssl13;
