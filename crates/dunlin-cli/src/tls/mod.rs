//! The shared parts of the commands that speak TLS: options, configurations, explanations and pipes.

pub(crate) mod cache;
pub(crate) mod credentials;
pub(crate) mod crl;
pub(crate) mod datagrams;
pub(crate) mod follow;
pub(crate) mod frozen;
pub(crate) mod identity;
pub(crate) mod interfaces;
pub(crate) mod keylog;
mod kinds;
pub(crate) mod lists;
pub(crate) mod log;
pub(crate) mod options;
pub(crate) mod pipe;
pub(crate) mod psks;
pub(crate) mod reasons;
pub(crate) mod sessions;
pub(crate) mod tls12;
