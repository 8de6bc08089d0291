//! The TLS 1.2 server's choice of suite, group and credential, which depend on each other (RFC 5246 §7.4.2,
//! RFC 8422 §5.1).

use alloc::vec::Vec;

use crate::auth::Credential;
use crate::auth::select;
use crate::crypto::{KeyExchangeGroup, Tls12CipherSuite, Tls12KeyExchange};
use crate::error::{Error, PeerIncompatible};
use crate::handshake::key_exchange;
use crate::handshake::negotiate::{Demands, key_share};
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::settings::ClientAuth;
use crate::wire::SignatureScheme;

/// The server's choice for this client.
pub(super) struct Choice {
    pub suite: &'static Tls12CipherSuite,
    pub group: Option<&'static dyn KeyExchangeGroup>,
    /// The server's credential, in suites with a certificate.
    pub own: Option<Own>,
}

/// The index of the server's credential, and the use of its key.
#[derive(Clone, Copy)]
pub(super) enum Own {
    Signs(select::Choice),
    /// The key decrypts the client's secret (RFC 5246 §7.4.7.1).
    Decrypts(usize),
}

impl Own {
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Signs(choice) => choice.index,
            Self::Decrypts(index) => index,
        }
    }
}

/// A suite that the client also offers, and for which both sides have the necessary group and credential. A
/// suite decides which keys can sign, so the server first finds the credential that each suite allows, and
/// then takes the one that suits the client best (RFC 6066 §3). With one credential, or with a suite that
/// needs none, it takes its first common suite. The error explains why the last common suite failed.
pub(super) fn choose(config: &ServerConfig, hello: &ClientHello) -> Result<Choice, Error> {
    let profile = &config.profile;
    let groups = key_share::groups(hello)?;
    let mut reason = PeerIncompatible::CipherSuite;
    let mut choices = Vec::new();
    let suites = profile.tls12.iter().flat_map(|tls12| tls12.suites.iter().copied());
    for suite in suites.filter(|suite| hello.cipher_suites.contains(&suite.id)) {
        if suite.is_anonymous() && config.client_auth == ClientAuth::Required {
            // RFC 5246 §7.4.4: an anonymous server may not request a certificate, and this server requires
            // one.
            continue;
        }
        if !has_key_for(config, suite) {
            // Keep a reason from an earlier suite: it is more informative.
            if reason == PeerIncompatible::CipherSuite {
                reason = PeerIncompatible::SuiteAuthentication;
            }
            continue;
        }
        let group = match key_exchange::common_group(suite, profile, groups.as_deref()) {
            Ok(group) => group,
            Err(why) => {
                reason = why;
                continue;
            }
        };
        if !suite.has_certificate() && choices.is_empty() {
            return Ok(Choice { suite, group, own: None });
        }
        if !suite.has_certificate() {
            continue;
        }
        match credential(config, hello, suite)? {
            Ok(own) => choices.push((own, Choice { suite, group, own: Some(own) })),
            Err(why) => reason = why,
        }
        if profile.credentials.len() == 1 && !choices.is_empty() {
            break;
        }
    }
    best(config, hello, choices)?.ok_or(reason.into())
}

/// The choice with the credential that suits the client best, with the server's first suite for it. Of
/// credentials that suit equally well, the first one counts that signs, and then the first one that decrypts:
/// RSA key exchange has no forward secrecy.
fn best(
    config: &ServerConfig,
    hello: &ClientHello,
    mut choices: Vec<(Own, Choice)>,
) -> Result<Option<Choice>, Error> {
    let profile = &config.profile;
    choices.sort_by_key(|(own, _)| (matches!(own, Own::Decrypts(_)), own.index()));
    let demands = Demands::of_tls12_client(hello)?;
    let credentials: Vec<_> =
        choices.iter().filter_map(|(own, _)| profile.credentials.get(own.index())).collect();
    let wanted = demands.wanted(&|_| true);
    let best = select::first_of_best(profile.provider.signatures, &credentials, &wanted);
    Ok(best.map(|at| choices.swap_remove(at).1))
}

/// Whether the server has the keys with which this suite authenticates it.
fn has_key_for(config: &ServerConfig, suite: &Tls12CipherSuite) -> bool {
    let mut keys = config.profile.credentials.iter().map(Credential::key);
    // `credential` checks later whether an RSA key can decrypt.
    let certified = !suite.has_certificate() || keys.any(|key| suite.takes_key(key.schemes()));
    certified && (!suite.has_psk() || config.psks.is_some())
}

/// The credential for this suite and client.
pub(super) fn credential(
    config: &ServerConfig,
    hello: &ClientHello,
    suite: &Tls12CipherSuite,
) -> Result<Result<Own, PeerIncompatible>, Error> {
    let groups = key_share::groups(hello)?;
    let demands = Demands::of_tls12_client(hello)?;
    // RFC 8422 §5.1: the client's supported_groups also apply to the curve of the server's key.
    let has_curve = |scheme: SignatureScheme| {
        scheme.curve().is_none_or(|curve| groups.as_ref().is_none_or(|groups| groups.contains(&curve)))
    };
    let allows = |scheme| suite.authentication.allows(scheme) && has_curve(scheme);
    let profile = &config.profile;
    if suite.key_exchange == Tls12KeyExchange::Rsa {
        let signatures = profile.provider.signatures;
        let wanted = demands.wanted(&allows);
        let choice = select::select_decrypting(
            signatures,
            &profile.credentials,
            &profile.certificates.reserved,
            &wanted,
        );
        return Ok(choice.map(Own::Decrypts));
    }
    // If only the client's list of curves excludes the credential, the error names the curve.
    Ok(demands.choose(profile, &allows).map(Own::Signs).map_err(|why| {
        let otherwise = demands.choose(profile, &|scheme| suite.authentication.allows(scheme));
        let curve = otherwise.ok().and_then(|choice| choice.scheme.curve());
        curve.map_or(why, PeerIncompatible::CurveOfKey)
    }))
}
