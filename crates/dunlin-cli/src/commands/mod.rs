//! One module a command; each has its arguments and a `run`.

pub(crate) mod client;
pub(crate) mod did;
pub(crate) mod explain;
#[cfg(feature = "gateway")]
pub(crate) mod gateway;
pub(crate) mod pki;
mod program;
pub(crate) mod psk;
#[cfg(feature = "registry-server")]
pub(crate) mod registry;
pub(crate) mod server;
pub(crate) mod tunnel;
pub(crate) mod vc;
