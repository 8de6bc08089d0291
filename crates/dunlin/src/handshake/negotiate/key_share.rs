//! `supported_groups` and `key_share` (RFC 8446 §4.2.7, §4.2.8): the groups of the key exchange, and the
//! public keys.

use super::{Choices, HelloDraft, Offer, Selection};
use crate::crypto::{ActiveKeyExchange, KeyExchangeGroup, SharedSecret, Tls12KeyExchange, Tls13CipherSuite};
use crate::error::{Error, Misuse, PeerIncompatible, PeerMisbehaved};
use crate::extension::key_share::{self, Entry, Selected};
use crate::extension::supported_groups::SupportedGroups;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::handshake::hints::ClientHelloInfo;
use crate::handshake::retry::Retry;
use crate::handshake::setup::{ClientConfig, ServerConfig};
use crate::message::ClientHello;
use crate::protocol::Protocol;
use crate::sync::Arc;
use crate::wire::{ExtensionType, Field, NamedGroup, PskKeyExchangeMode};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A key share that the client offered.
#[derive(Clone)]
pub(crate) struct OfferedShare {
    group: NamedGroup,
    /// Shared with the state that a client keeps for another ServerHello.
    active: Arc<Box<dyn ActiveKeyExchange>>,
    /// The curve of a hybrid group, if the client offers its share separately, too.
    component: Option<NamedGroup>,
}

impl OfferedShare {
    fn entries(&self) -> impl Iterator<Item = Entry> {
        let component = self.active.component().filter(|(group, _)| self.component == Some(*group));
        let whole = (self.group, self.active.share());
        [Some(whole), component]
            .into_iter()
            .flatten()
            .map(|(group, share)| Entry { group, share: share.to_vec() })
    }

    /// Whether it contains a share of `group`.
    fn offers(&self, group: NamedGroup) -> bool {
        self.group == group || self.component == Some(group)
    }

    /// The shared secret with the server's share.
    fn complete(self, server: &Entry) -> Result<SharedSecret, Error> {
        let secret = if self.group == server.group {
            self.active.complete(&server.share)
        } else {
            self.active.complete_component(&server.share)
        };
        // The group rejects invalid shares (RFC 8446 §4.2.8.2, §7.4.2) and ciphertexts of a wrong length
        // (FIPS 203 §7.3).
        secret.map_err(|_| PeerMisbehaved::BadKeyShare.into())
    }
}

/// The shares of the first ClientHello.
pub(crate) fn shares(config: &ClientConfig) -> Result<Vec<OfferedShare>, Error> {
    let profile = &config.profile;
    let mut shares = Vec::new();
    if profile.has_tls13() && is_used(config) {
        for group in &config.key_shares {
            let group = profile.group(*group).ok_or(Misuse::Config("a key share without group".into()))?;
            let active = group.start(&*profile.provider.random)?;
            let component = active.component().map(|(name, _)| name);
            // If a hybrid is the only share, the client also offers the share of its curve.
            let alone = config.key_shares.len() == 1;
            let component = component.filter(|c| alone && profile.group(*c).is_some());
            shares.push(OfferedShare { group: group.name(), active: Arc::new(active), component });
        }
    }
    Ok(shares)
}

/// Whether (EC)DHE is possible. It is not if the client can use only psk_ke.
fn is_used(config: &ClientConfig) -> bool {
    !config.profile.trust.is_empty() || config.profile.allows_mode(PskKeyExchangeMode::PSK_DHE_KE)
}

pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let config = &offer.terms.config;
    if offer.offers_tls13() && is_used(config) {
        let groups = &config.profile.groups;
        hello.extensions.put(&SupportedGroups(groups.iter().map(|g| g.name()).collect()));
        // RFC 8446 §4.2.8: the shares are in the order of supported_groups.
        let shares_of = |group| {
            offer.shares.iter().flat_map(OfferedShare::entries).filter(move |entry| entry.group == group)
        };
        let entries = groups.iter().flat_map(|g| shares_of(g.name())).collect();
        hello.extensions.put(&key_share::Offer(entries));
    }
}

/// The groups of a client that uses them in TLS 1.2 only.
pub(super) fn offer_tls12(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let config = &offer.terms.config;
    let uses = |kind| offer.tls12_suites.iter().any(|s| s.key_exchange == kind);
    let curves = uses(Tls12KeyExchange::Ecdhe);
    let fields = uses(Tls12KeyExchange::Dhe);
    if !(curves || fields) || offer.offers_tls13() && is_used(config) {
        return;
    }
    // RFC 7919 §3: supported_groups lists finite fields together with curves.
    let is_field = |g: &NamedGroup| g.is_finite_field() && !g.is_private_field();
    let fits = |g: &NamedGroup| curves && g.is_curve() || fields && is_field(g);
    let groups: Vec<_> = config.profile.groups.iter().map(|g| g.name()).filter(fits).collect();
    // RFC 7919 §4: a client that names no field accepts any.
    hello.extensions.put_some((!groups.is_empty()).then_some(SupportedGroups(groups)).as_ref());
    if offer.offers_tls13() {
        // RFC 8446 §9.2: supported_groups requires key_share, even an empty one. This applies if the client
        // uses TLS 1.3 with psk_ke only.
        hello.extensions.put(&key_share::Offer(Vec::new()));
    }
}

/// Handles the group of a HelloRetryRequest. A request without a group must have a cookie.
pub(super) fn accept_retry(
    _: &mut Cx<'_>,
    offer: &mut Offer,
    request: &Extensions<'_>,
    _: &'static Tls13CipherSuite,
) -> Result<(), Error> {
    if let Some(key_share::Retry(group)) = request.get()? {
        let config = &offer.terms.config;
        // RFC 8446 §4.2.8: the client must have offered the group for TLS 1.3, and must not have sent a share
        // of it.
        let known = if is_used(config) { config.profile.group(group) } else { None };
        let known = known.ok_or(PeerMisbehaved::NotOffered(Field::Group))?;
        if offer.shares.iter().any(|s| s.offers(group)) {
            return Err(PeerMisbehaved::PointlessRetry.into());
        }
        // RFC 8446 §4.1.2: the second ClientHello has one share, of that group.
        let active = known.start(&*config.profile.provider.random)?;
        offer.shares = [OfferedShare { group, active: Arc::new(active), component: None }].into();
    } else if offer.cookie.is_none() {
        return Err(PeerMisbehaved::PointlessRetry.into());
    }
    Ok(())
}

/// Completes the key exchange with the server's share.
pub(super) fn select(
    cx: &mut Cx<'_>,
    offer: &mut Offer,
    extensions: &Extensions<'_>,
    selection: &mut Selection,
) -> Result<(), Error> {
    let profile = &offer.terms.config.profile;
    let has_psk = selection.psk.is_some();
    selection.shared = match extensions.get::<Selected>()? {
        Some(Selected(entry)) => {
            if has_psk && !profile.allows_mode(PskKeyExchangeMode::PSK_DHE_KE) {
                return Err(PeerMisbehaved::NotOffered(Field::PskMode).into());
            }
            let at = offer.shares.iter().position(|s| s.offers(entry.group));
            let share = offer.shares.swap_remove(at.ok_or(PeerMisbehaved::NotOffered(Field::Group))?);
            cx.draft.group = Some(entry.group);
            Some(share.complete(&entry)?)
        }
        // Only psk_ke needs no key share.
        None if has_psk && profile.allows_mode(PskKeyExchangeMode::PSK_KE) => None,
        // RFC 8446 §4.2.11: a PSK without the key share that its mode requires is illegal_parameter.
        None if has_psk => {
            return Err(PeerMisbehaved::IllegalParameter(Field::PskWithoutKeyShare).into());
        }
        None => return Err(PeerMisbehaved::MissingExtension(ExtensionType::KEY_SHARE).into()),
    };
    Ok(())
}

/// RFC 8446 §9.2: key_share without supported_groups, or the reverse, is missing_extension.
pub(super) fn check(extensions: &Extensions<'_>) -> Result<(), Error> {
    let groups = extensions.has(ExtensionType::SUPPORTED_GROUPS);
    let shares = extensions.has(ExtensionType::KEY_SHARE);
    match (groups, shares) {
        (true, false) => Err(PeerMisbehaved::MissingExtension(ExtensionType::KEY_SHARE).into()),
        (false, true) => Err(PeerMisbehaved::MissingExtension(ExtensionType::SUPPORTED_GROUPS).into()),
        _ => Ok(()),
    }
}

/// The client's groups. `None` if it names none.
pub(crate) fn groups(hello: &ClientHello) -> Result<Option<Vec<NamedGroup>>, Error> {
    Ok(hello.extensions().get::<SupportedGroups>()?.map(|groups| groups.0))
}

pub(super) fn hint(hello: &ClientHello, info: &mut ClientHelloInfo) -> Result<(), Error> {
    info.groups = groups(hello)?.unwrap_or_default();
    // TLS 1.2 ignores the extension, even if it cannot be read.
    let shares = hello.extensions().get::<key_share::Offer>().ok().flatten();
    info.shares = shares.iter().flat_map(|offer| &offer.0).map(|entry| entry.group).collect();
    Ok(())
}

/// The groups that both sides support, in the server's order.
pub(super) fn common_groups(
    config: &ServerConfig,
    hello: &ClientHello,
) -> Result<Vec<&'static dyn KeyExchangeGroup>, Error> {
    let theirs = groups(hello)?.unwrap_or_default();
    Ok(config.profile.groups.iter().copied().filter(|g| theirs.contains(&g.name())).collect())
}

/// A group and the client's share of it.
pub(crate) type Share = (&'static dyn KeyExchangeGroup, Vec<u8>);

/// The server's choice of a share.
pub(crate) enum ShareChoice {
    Use(Share),
    /// The server needs a HelloRetryRequest with this group first.
    Request(&'static dyn KeyExchangeGroup),
}

/// Chooses among the shares of this ClientHello, which answers `retry` if that is present.
pub(crate) fn choose(
    config: &ServerConfig,
    hello: &ClientHello,
    retry: Option<&Retry>,
) -> Result<ShareChoice, Error> {
    let shares = hello.extensions().require::<key_share::Offer>()?;
    let groups = common_groups(config, hello)?;
    let first = *groups.first().ok_or(PeerIncompatible::Group)?;
    let with_share = groups.into_iter().find_map(|g| Some((g, shares.share(g.name())?.to_vec())));
    match (retry, with_share) {
        // RFC 8446 §4.1.2, §4.2.8: the second ClientHello has one share, of the requested group.
        (Some(Retry { group: Some(group), .. }), Some(share))
            if share.0.name() == *group && shares.0.len() == 1 =>
        {
            Ok(ShareChoice::Use(share))
        }
        (Some(Retry { group: None, .. }), Some(share)) => Ok(ShareChoice::Use(share)),
        // If the server requested only a cookie, the client had to keep its share.
        (Some(_), _) => Err(PeerMisbehaved::IllegalParameter(Field::KeyShareAfterRetry).into()),
        (None, Some(share)) => Ok(ShareChoice::Use(share)),
        (None, None) => Ok(ShareChoice::Request(first)),
    }
}

/// A HelloRetryRequest names the group for which the server wants a share.
pub(super) fn retry(_: Protocol, retry: &Retry, _: Option<&[u8]>, w: &mut ExtensionsWriter) {
    w.put_some(retry.group.map(key_share::Retry).as_ref());
}

/// Computes the server's share and the shared secret.
pub(crate) fn respond(
    cx: &mut Cx<'_>,
    config: &ServerConfig,
    share: Option<Share>,
) -> Result<(Option<Entry>, Option<SharedSecret>), Error> {
    let Some((group, peer)) = share else { return Ok((None, None)) };
    let answer = group.respond(&*config.profile.provider.random, &peer);
    let (share, shared) = answer.map_err(|_| PeerMisbehaved::BadKeyShare)?;
    cx.draft.group = Some(group.name());
    Ok((Some(Entry { group: group.name(), share }), Some(shared)))
}

pub(super) fn answer(_: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    w.put_some(chosen.share.clone().map(Selected).as_ref());
    Ok(())
}
