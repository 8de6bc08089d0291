//! Ephemeral Diffie-Hellman keys in a finite field of RFC 7919 (RFC 5246 §8.1.2).

use alloc::boxed::Box;
use alloc::vec::Vec;

use zeroize::Zeroizing;

use super::Premaster;
use crate::crypto::{ActiveKeyExchange, KeyExchangeGroup, SharedSecret};
use crate::error::{Error, PeerIncompatible, PeerMisbehaved};
use crate::settings::ProfileSettings;
use crate::wire::NamedGroup;

/// The server's first finite field that the client supports. RFC 7919 §4: a client that names no field
/// accepts any. A client that names some accepts only those.
pub(super) fn common_group(
    profile: &ProfileSettings,
    theirs: Option<&[NamedGroup]>,
) -> Option<&'static dyn KeyExchangeGroup> {
    let theirs = theirs.unwrap_or_default();
    let names_some = theirs.iter().any(|g| g.is_finite_field());
    let mut fields = profile.groups.iter().copied().filter(|g| g.finite_field().is_some());
    fields.find(|g| !names_some || theirs.contains(&g.name()))
}

/// The group with this prime and generator. RFC 7919 §3: the client rejects every other group.
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

/// Pads a share to `len` bytes. The peer may have stripped its leading zeros.
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
    // RFC 7919 §3, §5.1: the group checks that the share is in range.
    let (share, secret) = answer.map_err(|_| PeerMisbehaved::BadFieldShare)?;
    Ok((share, premaster(&secret)))
}

pub(super) fn complete(active: Box<dyn ActiveKeyExchange>, share: &[u8]) -> Result<Premaster, Error> {
    let share = padded(share, active.share().len())?;
    let secret = active.complete(&share).map_err(|_| PeerMisbehaved::BadFieldShare)?;
    Ok(premaster(&secret))
}

/// RFC 5246 §8.1.2: the premaster secret has no leading zeros. The time to strip them reveals their number.
/// That helps no attacker, because this side uses each share for one handshake only.
fn premaster(secret: &SharedSecret) -> Premaster {
    Zeroizing::new(without_zeros(secret.as_bytes()).to_vec())
}

fn without_zeros(mut number: &[u8]) -> &[u8] {
    while let [0, rest @ ..] = number {
        number = rest;
    }
    number
}
