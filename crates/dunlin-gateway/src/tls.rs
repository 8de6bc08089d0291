//! The engine's configurations of a listener, made from its files and stores.

use std::sync::Arc;

use arc_swap::ArcSwap;
use dunlin::crypto::CryptoProvider;
use dunlin::wire::PskKeyExchangeMode;
use dunlin::{ClientAuth, Profile, ProfileBuilder, PskSource, ServerConfig};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_registry::lookup::LookUpAnswers;
use dunlin_registry::stapler::Stapler;
use dunlin_setup::files::{REPORT, content, in_file, open_to_others, reason};
use zeroize::Zeroizing;

use crate::builder::{Cache, ConfigBuilder, Files};
use crate::config::{Fault, Faults, ListenerConfig, RouteConfig, RouteProtocol, Verify};
use crate::own::OwnIdentity;
use crate::policy_configs::{self, PolicyConfigs, ProfileDigest};
use crate::policy_file::PolicyFile;
use crate::stores::Stores;

/// A listener's configurations for the engine.
pub(crate) enum ServerConfigs {
    /// Each route has one for all its clients.
    ByRoute(Box<RouteConfigs>),
    /// The listener's policy chooses.
    ByPolicy(Arc<PolicyConfigs>),
}

impl ServerConfigs {
    /// The configuration with which connections begin. It asks for another one. `None` for a listener without
    /// routes, which the configuration refuses.
    pub(crate) fn choosing(&self) -> Option<Arc<ServerConfig>> {
        match self {
            Self::ByRoute(routed) => Some(routed.built.load().choosing.clone()),
            Self::ByPolicy(policed) => policed.choosing(),
        }
    }

    /// The configurations for frozen associations that have begun with this profile, each with its route.
    pub(crate) fn thawing(&self, profile: ProfileDigest) -> Vec<(usize, Arc<ServerConfig>)> {
        match self {
            Self::ByRoute(routed) if profile == ProfileDigest::default() => {
                routed.built.load().routes.iter().cloned().enumerate().collect()
            }
            Self::ByRoute(_) => vec![],
            Self::ByPolicy(policed) => policed.thawing(profile),
        }
    }

    pub(crate) const fn policed(&self) -> Option<&Arc<PolicyConfigs>> {
        match self {
            Self::ByRoute(_) => None,
            Self::ByPolicy(policed) => Some(policed),
        }
    }

    /// The sources of proofs of the listener's DIDs.
    pub(crate) fn staplers(&self) -> Vec<Arc<Stapler>> {
        self.builder().files.own.load().iter().filter_map(|own| own.stapler.clone()).collect()
    }

    fn builder(&self) -> &ConfigBuilder {
        match self {
            Self::ByRoute(routed) => &routed.builder,
            Self::ByPolicy(policed) => policed.builder(),
        }
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        self.builder().stores.provider.clone()
    }

    /// The answers about clients whose documents are in a registry.
    pub(crate) fn answers(&self) -> Option<LookUpAnswers> {
        self.builder().files.answers.clone()
    }

    /// Whether this is the certificate with this number.
    pub(crate) fn is_in_force(&self, at: usize, own: &OwnIdentity) -> bool {
        let all = self.builder().files.own.load();
        all.get(at).is_some_and(|other| !other.is_pending && other.leaf() == own.leaf())
    }

    /// Replaces the certificate with this number, for new connections.
    ///
    /// # Errors
    /// Requirements of the settings that the certificate does not meet. The previous certificate then stays
    /// in force.
    pub(crate) fn renew(&self, at: usize, own: OwnIdentity) -> Result<(), Faults> {
        let builder = self.builder();
        let _change = builder.change();
        let mut all = builder.files.own.load().to_vec();
        if let Some(place) = all.get_mut(at) {
            *place = own;
        }
        match self {
            Self::ByRoute(routed) => {
                routed.built.store(Arc::new(BuiltConfigs::new(builder, &all).map_err(Faults::sorted)?));
            }
            Self::ByPolicy(policed) => policed.remake(&all).map_err(Faults::sorted)?,
        }
        builder.files.own.store(Arc::new(all));
        Ok(())
    }
}

/// The configurations of a listener without a policy.
pub(crate) struct RouteConfigs {
    builder: ConfigBuilder,
    built: ArcSwap<BuiltConfigs>,
}

impl RouteConfigs {
    /// # Errors
    /// Settings that contradict each other.
    fn new(builder: ConfigBuilder) -> Result<Self, Vec<Fault>> {
        let built = BuiltConfigs::new(&builder, &builder.files.own.load())?;
        Ok(Self { builder, built: ArcSwap::from_pointee(built) })
    }

    /// The configuration of the route with this number. `None` while it has no certificate.
    pub(crate) fn route(&self, number: usize) -> Option<Arc<ServerConfig>> {
        self.built.load().routes.get(number).cloned()
    }
}

/// The configurations made from a set of certificates.
struct BuiltConfigs {
    /// Chooses one of the others for each ClientHello.
    choosing: Arc<ServerConfig>,
    /// One for each route; none as long as clients would get neither a certificate nor a pre-shared key.
    routes: Vec<Arc<ServerConfig>>,
}

impl BuiltConfigs {
    fn new(builder: &ConfigBuilder, own: &[OwnIdentity]) -> Result<Self, Vec<Fault>> {
        let ConfigBuilder { listener, files, tickets, cache, stores, .. } = builder;
        let mut faults = vec![];
        let own: Vec<_> = own.iter().filter(|own| !own.is_pending).collect();
        let profile = || profile(listener, files, &own, &stores.provider);
        let make = |route: &RouteConfig| {
            let config = server_config(listener, route, files, own.is_empty(), profile())?;
            let config = stores.over_datagrams(config.with_tickets(tickets.clone()))?;
            match cache {
                Some(Cache { mode, store, max_age }) => {
                    config.with_handshake_cache(*mode, store.clone(), *max_age)
                }
                None => Ok(config),
            }
        };
        let mut routes = vec![];
        let has_credentials = !own.is_empty() || files.psks.is_some();
        for route in listener.routes.iter().filter(|_| has_credentials) {
            match make(route) {
                Ok(config) => routes.push(Arc::new(config)),
                Err(error) => {
                    faults.push(
                        listener.place.fault(reason(&error), "change the settings or files named here"),
                    );
                }
            }
        }
        // Before a client has returned its cookie, this profile chooses version, suite and group, so it is
        // the profile of the routes.
        let base = profile().build().and_then(ServerConfig::choosing);
        match base.and_then(|config| stores.over_datagrams(config)) {
            Ok(choosing) if faults.is_empty() => Ok(Self { choosing: Arc::new(choosing), routes }),
            Ok(_) => Err(faults),
            Err(error) => {
                faults.push(listener.place.fault(reason(&error), REPORT));
                Err(faults)
            }
        }
    }
}

/// A password, wiped when it is dropped.
pub(crate) type Password = Zeroizing<Vec<u8>>;

/// Reads the passwords of the routes.
pub(crate) fn passwords(
    listener: &ListenerConfig,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Vec<Option<Password>> {
    let mut password = |route: &RouteConfig| {
        let RouteProtocol::Mqtt(mqtt) = &route.protocol else { return None };
        let file = mqtt.password.as_ref()?;
        warnings.extend(open_to_others(file, "the password"));
        let read = content(file).and_then(|mut content| {
            while content.last().is_some_and(|byte| matches!(byte, b'\r' | b'\n')) {
                content.pop();
            }
            let advice = "write the password into it, in 1 to 65535 bytes and without a line break";
            match content.len() {
                1..=65_535 => Ok(content),
                len => Err(in_file(file, &format!("{len} bytes"), advice)),
            }
        });
        read.map_err(|fault| faults.push(fault)).ok()
    };
    listener.routes.iter().map(&mut password).collect()
}

/// Reads the files of `listener` and makes its configurations. With `stores` it also opens the handshake
/// cache. `policy` is the content of the listener's policy file, unless that has a fault.
///
/// Faults are added to `faults`, and `None` is returned. Problems with which the gateway can go on are added
/// to `warnings`.
pub(crate) fn server_configs(
    listener: &ListenerConfig,
    policy: Option<Arc<PolicyFile>>,
    stores: &Arc<Stores>,
    opens_stores: bool,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) -> Option<ServerConfigs> {
    let is_readable = |part| !faults.iter().any(|fault| listener.place.is_hidden_by(fault, part));
    let is_complete = is_readable("");
    let has_clients = is_readable(".cert") && is_readable(".clients");
    let is_complete = is_complete && listener.policy.is_some() == policy.is_some();
    let builder = ConfigBuilder::read(listener, stores, opens_stores, faults, warnings);
    let Some(builder) = builder.filter(|_| is_complete) else {
        // The engine would refuse missing parts, but these faults do not depend on them.
        if let Some(policy) = policy.filter(|_| has_clients) {
            faults.extend(policy_configs::mismatches(listener, &policy.current()));
        }
        return None;
    };
    let made = match policy {
        Some(policy) => {
            PolicyConfigs::new(policy, builder).map(|policed| ServerConfigs::ByPolicy(Arc::new(policed)))
        }
        None => RouteConfigs::new(builder).map(|routed| ServerConfigs::ByRoute(Box::new(routed))),
    };
    made.map_err(|found| faults.extend(found)).ok()
}

/// The part of a profile that all routes of a listener share.
fn profile(
    listener: &ListenerConfig,
    files: &Files,
    own: &[&OwnIdentity],
    provider: &Arc<CryptoProvider>,
) -> ProfileBuilder {
    let mut profile = Profile::builder(provider.clone())
        .credentials(OwnIdentity::credentials(listener.raw_public_key, own.iter().copied()))
        .trust(files.trust.clone())
        .ssi_messages(listener.messages())
        .x509_details(listener.needs_details());
    if listener.versions.tls12 {
        let mut suites = TLS12_CIPHER_SUITES.to_vec();
        if listener.clients.psk_without_dhe {
            suites.extend(TLS12_PSK_CIPHER_SUITES);
        }
        // A suite with a pre-shared key authenticates the client, as in TLS 1.3, so it comes first.
        suites.sort_by_key(|suite| files.psks.is_some() != suite.has_psk());
        profile = profile.tls12_cipher_suites(suites);
    }
    if !listener.versions.tls13 {
        profile = profile.cipher_suites(vec![]);
    }
    if listener.clients.psk_without_dhe {
        profile = profile.psk_modes(vec![PskKeyExchangeMode::PSK_DHE_KE, PskKeyExchangeMode::PSK_KE]);
    }
    profile
}

fn server_config(
    listener: &ListenerConfig,
    route: &RouteConfig,
    files: &Files,
    is_psk_only: bool,
    profile: ProfileBuilder,
) -> Result<ServerConfig, dunlin::Error> {
    let profile = profile.alpn(route.alpn.clone()).send_authorities(route.names_authorities()).build()?;
    let source = files.psks.clone().map(PskSource::Here);
    let config = match source {
        Some(source) if is_psk_only => ServerConfig::psk_only(profile, source)?,
        Some(source) => ServerConfig::new(profile)?.with_psks(source),
        None => ServerConfig::new(profile)?,
    };
    config.with_client_auth(match listener.clients.verify {
        Verify::None => ClientAuth::None,
        // With pre-shared keys alone, every client proves one.
        _ if !files.trusts => ClientAuth::None,
        Verify::Optional => ClientAuth::Optional,
        Verify::Required => ClientAuth::Required,
    })
}
