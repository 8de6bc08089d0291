//! A proxy that terminates TLS and DTLS in front of existing servers: MQTT brokers, CoAP servers, and others
//! over TCP and UDP.
//!
//! A [`Gateway`] runs a [`Config`], which comes from TOML files (docs/gateway.md). The crate has no protocol
//! logic of its own: the handshakes are the engine's, driven by `dunlin-tokio`.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules                        what they contain
//! 7    gateway tunnel                 | start, reload and stop; the device side, whose clients know no TLS
//! 6    redirect                       | plain HTTP, from which clients are sent on to HTTPS
//! 6    renewal                        | renewals of certificates by ACME
//! 6    cluster                        | the state that several gateways share through Redis
//! 5    listener                       | sockets that accept clients
//! 4    service                        | listeners that a reload replaces, of gateways and tunnels
//! 4    tls policy_configs             | the engine's configurations of a listener: by route, or by policy
//! 4    admin status http              | `/metrics` and `/status`; listeners for plain HTTP
//! 3    builder                        | the parts of these configurations, from files and stores
//! 3    own                            | certificates, credentials and DIDs of both sides
//! 3    stores                         | the state that outlives a reload
//! 2    context                        | the state that all connections share
//! 2    memory shared_clients policy_file | the memory of a policy's clients; the policy's file
//! 1    acme                           | orders of certificates, and answers to challenges
//! 1    nodes                          | gateways with the same clients, which pass datagrams on
//! 1    proxy heard                    | the forwarding of clients' data, a module for each protocol
//! 1    metrics                        | counters
//! 1    known frozen                   | knowledge and its stores; files of frozen associations
//! 1    route redirected               | the route of a client; redirected clients that have not come yet
//! 0    config document                | TOML files, read key by key, with all faults
//! 0    policy                         | which profile a client gets, and why
//! 0    identity proxy_protocol        | how backends learn who the client is
//! 0    target                         | targets of HTTP requests
//! 0    life sockets                   | phases and tasks; a service manager's sockets
//! 0    clock dashboard                | the clocks; a page that shows metrics and status
//! ```
//! <!-- end of layers -->
#![forbid(unsafe_code)]

mod acme;
mod admin;
mod builder;
mod clock;
mod cluster;
pub mod config;
mod context;
mod dashboard;
mod document;
mod frozen;
mod gateway;
mod heard;
mod http;
mod identity;
mod known;
mod life;
mod listener;
mod memory;
mod metrics;
mod nodes;
mod own;
pub mod policy;
mod policy_configs;
mod policy_file;
mod proxy;
mod proxy_protocol;
mod redirect;
mod redirected;
mod renewal;
mod route;
mod service;
mod shared_clients;
mod sockets;
mod status;
mod stores;
mod target;
mod tls;
pub mod tunnel;

pub use config::{Config, Fault, Faults};
pub use gateway::Gateway;
pub use route::RouteReport;
pub use sockets::Sockets;
pub use tunnel::Tunnel;
pub use tunnel::config::TunnelConfig;
