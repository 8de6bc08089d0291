//! A gateway in front of existing servers: it terminates TLS and DTLS, and gives each client the profile that suits it.
//!
//! [`policy`] decides which profile that is, and says why.

pub mod policy;
