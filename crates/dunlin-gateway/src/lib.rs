//! A proxy that ends TLS and DTLS in front of existing servers: MQTT brokers, CoAP servers, and others over
//! TCP and UDP.
//!
//! A [`Gateway`] runs a [`Config`], which comes from TOML files (docs/gateway.md). The crate has no protocol
//! logic of its own: the handshakes are the engine's, driven by `dunlin-tokio`.
//!
//! * `document`: TOML files, read key by key, with all faults at once. `config`: the configuration that they
//!   contain.
//! * `sockets`: sockets that a service manager has opened.
//! * `gateway`: start, reload, stop; `service`: the parts of these that a tunnel has, too.
//! * `listener`: sockets that accept clients. `proxy`: the forwarding of clients' data, a module for each
//!   protocol.
//! * `redirect`: plain HTTP, from which clients are sent on to HTTPS under one-time names.
//! * `nodes`: several gateways with the same clients, which pass datagrams on to each other.
//! * `frozen`: the file of associations that survive a restart.
//! * `route`: which backend a client gets.
//! * `tls`: the engine's configurations, from files and stores. `credentials`: verifiable credentials in
//!   files.
//! * [`https`]: the TLS of HTTPS, for the clients and servers of registries, did:web and ACME.
//! * `acme`: certificates that the gateway orders and renews.
//! * `shared`: the state that several gateways share through Redis.
//! * `identity`, `proxy_protocol`: how backends learn who the client is.
//! * `plain`: listeners for plain HTTP, for `redirect` and `admin`.
//! * `admin`, `status`: `/metrics` and `/status`. `dashboard`: a page that shows them.
//! * `limits`, `metrics`: limits by name, and counters. `clock`: the time in seconds. `throttle`: log lines
//!   that clients cause.
//! * [`tunnel`]: the device side, with clients that know no TLS.
//! * [`policy`]: which profile a client gets, and why. `policed`: listeners with a policy.
#![forbid(unsafe_code)]

mod acme;
mod admin;
mod clock;
pub mod config;
mod credentials;
mod dashboard;
mod document;
mod frozen;
mod gateway;
mod heard;
pub mod https;
mod identity;
pub mod known;
mod life;
mod listener;
mod lookups;
mod metrics;
mod nodes;
mod own;
mod plain;
mod policed;
pub mod policy;
mod proxy;
mod proxy_protocol;
mod redirect;
mod route;
mod service;
mod shared;
mod sockets;
mod status;
mod target;
mod throttle;
mod tls;
pub mod tunnel;

pub use config::{Config, Fault, Faults};
pub use gateway::Gateway;
pub use route::RouteReport;
pub use sockets::Sockets;
pub use tunnel::Tunnel;
pub use tunnel::config::TunnelConfig;
