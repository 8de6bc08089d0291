//! Configuration: profiles, and what only a client or only a server has. This is the one place that names parts of
//! handshakes and hands them down.

use crate::sync::Arc;
use alloc::string::ToString;

use crate::auth::Trust;
use crate::error::{Error, Misuse};
use crate::record::datagram::MTU_RANGE;
use crate::resume::SettingsDigest;
use crate::settings::ProfileSettings;

mod client;
mod profile;
mod rules;
mod server;

pub use crate::handshake::setup::{ClientConfig, ServerConfig};
pub use profile::{Profile, ProfileBuilder};

/// A profile with another trust, if it still keeps the rules.
fn with_trust(profile: &ProfileSettings, trust: Trust) -> Result<Arc<ProfileSettings>, Error> {
    let profile = ProfileSettings { trust: trust.into(), ..profile.clone() };
    rules::check(&profile)?;
    Ok(Arc::new(profile))
}

fn check_mtu(mtu: usize) -> Result<usize, Error> {
    match MTU_RANGE.contains(&mtu) {
        true => Ok(mtu),
        false => Err(Misuse::Config(alloc::format!("an MTU is 64 to 65507 bytes, not {mtu}")).into()),
    }
}

/// The digest of what authenticates the peer under this configuration. A session resumes only under the digest
/// under which it was made: nobody keeps an identity that today's settings would not accept.
fn settings_digest(profile: &ProfileSettings, role: &[u8], client_auth: u8) -> SettingsDigest {
    digest(profile, |add| settings(profile, role, client_auth, add))
}

/// The same with what a client proves itself by: who has another credential, or none, is not who made the session.
fn session_settings_digest(profile: &ProfileSettings, role: &[u8]) -> SettingsDigest {
    digest(profile, |add| {
        settings(profile, role, 0, add);
        for credential in &profile.credentials {
            add(b"credential");
            add(&[credential.certificate_type().0]);
            credential.entries().for_each(&mut *add);
        }
    })
}

/// The digest of what `fill` adds, each with its length.
fn digest(profile: &ProfileSettings, fill: impl FnOnce(&mut dyn FnMut(&[u8]))) -> SettingsDigest {
    let mut hash = profile.provider.sha256.start();
    fill(&mut |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    });
    SettingsDigest::new(hash.current().as_ref())
}

fn settings(profile: &ProfileSettings, role: &[u8], client_auth: u8, add: &mut dyn FnMut(&[u8])) {
    add(b"dunlin settings 1");
    add(role);
    add(profile.name.as_bytes());
    add(profile.rank.to_string().as_bytes());
    add(&[client_auth]);
    for scheme in &profile.signature_schemes {
        add(&scheme.0.to_be_bytes());
    }
    add(b"in chains");
    for scheme in profile.chain_schemes() {
        add(&scheme.0.to_be_bytes());
    }
    for verifier in profile.trust.iter() {
        verifier.settings(add);
    }
}
