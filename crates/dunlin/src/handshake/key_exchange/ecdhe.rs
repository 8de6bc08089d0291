//! Ephemeral Diffie-Hellman keys on an elliptic curve (RFC 8422 §5.10).

use alloc::boxed::Box;
use alloc::vec::Vec;

use zeroize::Zeroizing;

use super::Premaster;
use crate::crypto::{ActiveKeyExchange, KeyExchangeGroup, SharedSecret};
use crate::error::{Error, PeerMisbehaved};
use crate::settings::ProfileSettings;
use crate::wire::{Field, NamedGroup};

/// The server's first curve that the client supports. A client without supported_groups is assumed to support
/// P-256, since RFC 8422 §4 leaves the choice to the server.
pub(super) fn common_group(
    profile: &ProfileSettings,
    theirs: Option<&[NamedGroup]>,
) -> Option<&'static dyn KeyExchangeGroup> {
    let theirs = theirs.unwrap_or(&[NamedGroup::SECP256R1]);
    profile.groups.iter().copied().find(|g| g.name().is_curve() && theirs.contains(&g.name()))
}

/// The curve that the server chose. RFC 8422 §5.4: the client must have offered it.
pub(super) fn group(
    profile: &ProfileSettings,
    name: NamedGroup,
) -> Result<&'static dyn KeyExchangeGroup, Error> {
    let group = profile.group(name).filter(|g| g.name().is_curve());
    group.ok_or(PeerMisbehaved::NotOffered(Field::Group).into())
}

pub(super) fn respond(
    profile: &ProfileSettings,
    group: &dyn KeyExchangeGroup,
    share: &[u8],
) -> Result<(Vec<u8>, Premaster), Error> {
    let answer = group.respond(&*profile.provider.random, share);
    let (share, secret) = answer.map_err(|_| PeerMisbehaved::BadKeyShare)?;
    Ok((share, premaster(&secret)))
}

pub(super) fn complete(active: Box<dyn ActiveKeyExchange>, share: &[u8]) -> Result<Premaster, Error> {
    let secret = active.complete(share).map_err(|_| PeerMisbehaved::BadKeyShare)?;
    Ok(premaster(&secret))
}

/// RFC 8422 §5.10: the premaster secret has all bytes of the coordinate, including leading zeros.
fn premaster(secret: &SharedSecret) -> Premaster {
    Zeroizing::new(secret.as_bytes().to_vec())
}
