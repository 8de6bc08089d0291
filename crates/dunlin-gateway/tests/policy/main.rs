//! Policies: faults when they are loaded, decisions, and invariants under sequences of hints, addresses,
//! reloads and renegotiations.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod clients;
mod decisions;
mod engine;
mod faults;
mod input;
#[path = "../common/kernel.rs"]
mod kernel;
mod known;
mod nft;
mod properties;
mod reload;
mod tables;

use dunlin_gateway::policy::{self, Attribute, Claim, Client, Hello, Hints, Policy, Source};

/// The policy of this text.
fn policy(text: &str) -> Policy {
    policy::parse("policy.toml", text).unwrap_or_else(|faults| panic!("{faults}"))
}

/// A client with an X.509 certificate by this issuer for this DNS name.
fn x509(issuer: &str, dns: &str) -> Client {
    let mut client = Client::of_kind("x509");
    client.add(Attribute::Issuer, issuer.into());
    client.add(Attribute::Dns, dns.into());
    client
}

/// Hints that name this client.
fn claimed(source: Source, client: Client) -> Hints {
    Hints { claims: vec![Claim { source, client }], ..Hints::default() }
}

/// Hints with this server name.
fn server_name(name: &str) -> Hints {
    Hints { hello: Hello { server_name: Some(name.into()), ..Hello::default() }, ..Hints::default() }
}
