//! A gateway between clients of this project and backends, over loopback, and tunnels beside clients without
//! TLS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod access;
mod acme;
mod admin;
mod chromium;
mod configuration;
mod credentials;
mod dashboard;
mod http;
mod http_faults;
#[path = "../common/kernel.rs"]
mod kernel;
mod mosquitto;
mod mqtt;
mod nft;
mod nodes;
mod open_files;
mod outage;
mod pebble;
mod place;
mod policy;
mod policy_dtls;
mod policy_known;
mod policy_sequences;
mod redirect;
mod registry;
mod reload;
mod restart;
mod shared;
mod tcp;
mod thawed;
mod tunnel;
mod tunnel_datagrams;
mod udp;
mod web;
