//! Configuration: profiles, and the settings of clients and servers. Only this module names the parts of
//! handshakes and stores pointers to them in a configuration.

use crate::sync::Arc;

use crate::auth::Verifiers;
use crate::error::{Error, Misuse};
use crate::resume::SettingsDigest;
use crate::settings::{MTU_RANGE, ProfileSettings};

mod client;
mod datagram;
mod profile;
mod profiles;
mod rules;
mod server;

pub use crate::handshake::setup::{ClientConfig, ServerConfig};
pub use profile::{Profile, ProfileBuilder};
pub use profiles::{KnownBy, KnownClient, ServerProfiles};

/// A copy of the profile with another trust, if it still obeys the rules.
fn with_trust(profile: &ProfileSettings, trust: Verifiers) -> Result<Arc<ProfileSettings>, Error> {
    let profile = ProfileSettings { trust, ..profile.clone() };
    rules::check(&profile)?;
    Ok(Arc::new(profile))
}

pub(crate) fn check_mtu(mtu: usize) -> Result<usize, Error> {
    if MTU_RANGE.contains(&mtu) {
        Ok(mtu)
    } else {
        Err(Misuse::Config(alloc::format!("an MTU is 80 to 65507 bytes, not {mtu}")).into())
    }
}

/// The digest of who is believed and how strongly. It covers the trust (anchors, policy, CRLs), the schemes
/// for chains and handshakes, the certificate types, the provider, which decides on the smallest keys, and
/// whether clients must authenticate. Cache entries and sessions are bound to it, so no peer keeps an
/// identity that today's settings would reject. Profiles of equal trust share entries, since the peer signs
/// in every handshake. They also share sessions, within the limit of [`Session::rank`].
///
/// [`Session::rank`]: crate::resume::Session
fn trust_digest(profile: &ProfileSettings, role: &[u8], client_auth: u8) -> SettingsDigest {
    digest(profile, |add| trust(profile, role, client_auth, add))
}

/// The digest of a client's trust and its credentials. A client with other credentials, or none, must not
/// resume the session.
fn session_digest(profile: &ProfileSettings, role: &[u8]) -> SettingsDigest {
    digest(profile, |add| {
        trust(profile, role, 0, add);
        credentials(profile, add);
    })
}

/// The digest of which profile it is: name, rank, suites, groups, PSK modes and credentials. Early data and
/// cookies are bound to it.
fn profile_digest(profile: &ProfileSettings) -> SettingsDigest {
    digest(profile, |add| {
        add(b"dunlin profile 1");
        add(profile.name.as_bytes());
        add(&profile.rank.to_be_bytes());
        let older = profile.tls12.iter().flat_map(|tls12| &tls12.suites).map(|suite| suite.id);
        for suite in profile.cipher_suites.iter().map(|suite| suite.id).chain(older) {
            add(&suite.0.to_be_bytes());
        }
        add(b"groups");
        profile.groups.iter().for_each(|group| add(&group.name().0.to_be_bytes()));
        add(b"PSK modes");
        profile.psk.modes.iter().for_each(|mode| add(&[mode.0]));
        credentials(profile, add);
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

fn trust(profile: &ProfileSettings, role: &[u8], client_auth: u8, add: &mut dyn FnMut(&[u8])) {
    add(b"dunlin trust 2");
    add(role);
    add(&[client_auth]);
    add(profile.provider.name.as_bytes());
    for scheme in &profile.signature_schemes {
        add(&scheme.0.to_be_bytes());
    }
    add(b"in chains");
    for scheme in profile.chain_schemes() {
        add(&scheme.0.to_be_bytes());
    }
    // Identities without details must not come from sessions and entries of another time.
    if profile.x509_details.is_some() {
        add(b"X.509 details");
    }
    add(b"types");
    profile.peer_types().iter().for_each(|typ| add(&[typ.0]));
    // Verifiers may be more lenient towards the public implementation, so its sessions stay apart.
    if profile.ssi.is_links() {
        add(b"links");
    }
    for verifier in profile.trust.iter() {
        add(&[verifier.certificate_type().0]);
        verifier.settings(add);
    }
}

fn credentials(profile: &ProfileSettings, add: &mut dyn FnMut(&[u8])) {
    for credential in &profile.credentials {
        add(b"credential");
        add(&[credential.certificate_type().0]);
        credential.entries().for_each(&mut *add);
    }
}
