//! Configuration: profiles, and the settings of clients and servers. Only this module names the parts of handshakes and
//! stores pointers to them in a configuration.

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
pub use server::MAX_PREDECESSORS;

/// A copy of the profile with another trust, if it still obeys the rules.
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

/// The digest of the settings that authenticate the peer. A session resumes only under the digest under which it was made, so
/// no peer keeps an identity that today's settings would reject.
fn settings_digest(profile: &ProfileSettings, role: &[u8], client_auth: u8) -> SettingsDigest {
    digest(profile, |add| settings(profile, role, client_auth, add))
}

/// The same digest with the client's credentials added. A client with other credentials, or none, must not resume the session.
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

/// The digest of the values that `fill` adds. Each value is hashed with its length in front.
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
