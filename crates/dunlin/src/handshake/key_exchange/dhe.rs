//! Ephemeral keys in a finite field (RFC 5246 §8.1.2), which is one of RFC 7919.

use alloc::boxed::Box;
use alloc::vec::Vec;

use zeroize::Zeroizing;

use super::Premaster;
use crate::crypto::{ActiveKeyExchange, KeyExchangeGroup, SharedSecret};
use crate::error::{Error, PeerIncompatible, PeerMisbehaved};
use crate::settings::ProfileSettings;
use crate::wire::NamedGroup;

/// Our first field that the client has, too. RFC 7919 §4: one that names none takes any, and one that names some takes no
/// other.
pub(super) fn common_group(
    profile: &ProfileSettings,
    theirs: Option<&[NamedGroup]>,
) -> Option<&'static dyn KeyExchangeGroup> {
    let theirs = theirs.unwrap_or_default();
    let names_some = theirs.iter().any(|g| g.is_finite_field());
    let mut fields = profile.groups.iter().copied().filter(|g| g.finite_field().is_some());
    fields.find(|g| !names_some || theirs.contains(&g.name()))
}

/// The group with this prime and generator. RFC 7919 §3: with another one the client ends the handshake.
pub(super) fn group(
    profile: &ProfileSettings,
    prime: &[u8],
    generator: &[u8],
) -> Result<&'static dyn KeyExchangeGroup, Error> {
    let is_it = |group: &&dyn KeyExchangeGroup| {
        group
            .finite_field()
            .is_some_and(|f| f.prime == without_zeros(prime) && f.generator == without_zeros(generator))
    };
    let bits = 8 * without_zeros(prime).len();
    profile.groups.iter().copied().find(is_it).ok_or(PeerIncompatible::FiniteField(bits).into())
}

/// A share of this length, which its sender may have sent without leading zeros.
fn padded(share: &[u8], len: usize) -> Result<Vec<u8>, Error> {
    let share = without_zeros(share);
    let zeros = len.checked_sub(share.len()).ok_or(PeerMisbehaved::BadFieldShare)?;
    let mut padded = alloc::vec![0; zeros];
    padded.extend_from_slice(share);
    Ok(padded)
}

pub(super) fn respond(
    profile: &ProfileSettings,
    group: &dyn KeyExchangeGroup,
    share: &[u8],
) -> Result<(Vec<u8>, Premaster), Error> {
    let len = group.finite_field().map_or(0, |f| f.prime.len());
    let answer = group.respond(&*profile.provider.random, &padded(share, len)?);
    // RFC 7919 §3, §5.1: the group looks at the range.
    let (share, secret) = answer.map_err(|_| PeerMisbehaved::BadFieldShare)?;
    Ok((share, premaster(&secret)))
}

pub(super) fn complete(active: Box<dyn ActiveKeyExchange>, share: &[u8]) -> Result<Premaster, Error> {
    let share = padded(share, active.share().len())?;
    let secret = active.complete(&share).map_err(|_| PeerMisbehaved::BadFieldShare)?;
    Ok(premaster(&secret))
}

/// RFC 5246 §8.1.2: without leading zeros. Their number can be told from the time that is needed, but every share of ours is
/// for one handshake, so that nobody can ask for more.
fn premaster(secret: &SharedSecret) -> Premaster {
    Zeroizing::new(without_zeros(secret.as_bytes()).to_vec())
}

fn without_zeros(mut number: &[u8]) -> &[u8] {
    while let [0, rest @ ..] = number {
        number = rest;
    }
    number
}
