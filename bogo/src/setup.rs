//! Makes profiles and configurations from the options, and holds the state that all connections of the
//! process share.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use dunlin::auth::{FindPsk, Psk, RawKeyTrust, Trust, X509Trust};
use dunlin::crypto::{CryptoProvider, SignatureAlgorithms};
use dunlin::early::MAX_EARLY_DATA;
use dunlin::resume::{ClientSession, ClientSessions, SealTickets, Session, SessionKey, Tickets};
use dunlin::wire::{CertificateType, NamedGroup, ProtocolVersion, SignatureScheme};
use dunlin::{
    ClientAuth, ClientConfig, ClientHelloInfo, EarlyDataProtocols, KeyLog, Now, Profile, PskSource,
    Retransmission, ServerAddress, ServerConfig, SingleUse,
};
use dunlin_store::{MemoryServerSessions, MemoryUseOnce, RotatingTickets};

use crate::Failure;
use crate::compression::algorithms;
use crate::keys::Credentials;
use crate::options::{Options, Renegotiation};
use crate::suites;

/// The longest time between two retransmissions.
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The state that all connections of the process share.
pub(crate) struct Shared {
    pub(crate) sessions: Arc<OneSession>,
    stored: Option<Arc<MemoryServerSessions>>,
    sealed: Option<Arc<RotatingTickets>>,
    /// The tickets that were used for early data.
    pub(crate) used: Arc<MemoryUseOnce>,
    /// A server's sessions for answers to questions.
    pub(crate) asked: HashMap<Vec<u8>, Session>,
    /// The scheme with which the peer signed when the session began.
    pub(crate) peer_signature: Option<SignatureScheme>,
    /// The group of the session's key exchange.
    pub(crate) group: Option<NamedGroup>,
    /// The OCSP response of the peer's certificate when the session began.
    pub(crate) ocsp_response: Option<Vec<u8>>,
    /// A clock that only the options and the runner advance, in time since 1970.
    clock: Duration,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let unix = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self {
            sessions: Arc::default(),
            stored: None,
            sealed: None,
            used: Arc::new(MemoryUseOnce::with_new_keys(16)),
            asked: HashMap::new(),
            peer_signature: None,
            group: None,
            ocsp_response: None,
            clock: Duration::from_secs(unix.as_secs()),
        }
    }

    /// The time on the clock.
    pub(crate) fn now(&self) -> Now {
        Now::from_unix_ms(u64::try_from(self.clock.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.clock += by;
    }
}

/// The client's session store. As the runner expects, the next connection offers the latest session.
#[derive(Debug, Default)]
pub(crate) struct OneSession(Mutex<Option<ClientSession>>);

impl OneSession {
    fn lock(&self) -> MutexGuard<'_, Option<ClientSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_one(&self) -> bool {
        self.lock().is_some()
    }

    /// Whether there is a session that allows early data.
    pub(crate) fn allows_early_data(&self) -> bool {
        self.lock().as_ref().is_some_and(|session| session.max_early_data() > 0)
    }
}

impl ClientSessions for OneSession {
    fn put(&self, _: SessionKey, session: ClientSession) {
        *self.lock() = Some(session);
    }

    fn take(&self, _: &SessionKey, _: Now) -> Option<ClientSession> {
        self.lock().take()
    }

    fn forget(&self, _: &SessionKey, ticket: &[u8]) {
        self.lock().take_if(|session| session.ticket() == ticket);
    }
}

/// A server's external keys.
#[derive(Debug)]
struct Known(Vec<Arc<Psk>>);

impl FindPsk for Known {
    fn find(&self, identity: &[u8], _: Now) -> Option<Arc<Psk>> {
        self.0.iter().find(|psk| psk.identity() == identity).cloned()
    }
}

/// A sealer that never makes a ticket.
#[derive(Debug)]
struct NoTicket;

impl SealTickets for NoTicket {
    fn seal(&self, _: Now, _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn open(&self, _: Now, _: &[u8], _: &[u8]) -> Option<zeroize::Zeroizing<Vec<u8>>> {
        None
    }
}

/// The traffic secrets, by their labels in a key log.
#[derive(Default)]
pub(crate) struct TrafficSecrets(Mutex<HashMap<String, Vec<u8>>>);

impl TrafficSecrets {
    pub(crate) fn get(&self, label: &str) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(label).cloned().unwrap_or_default()
    }
}

impl fmt::Debug for TrafficSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficSecrets").finish_non_exhaustive()
    }
}

impl KeyLog for TrafficSecrets {
    fn log(&self, label: &str, _: &[u8; 32], secret: &[u8]) {
        let mut secrets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.insert(label.into(), secret.to_vec());
    }
}

/// The groups for which a client sends a share by default.
const KEY_SHARES: [NamedGroup; 2] = [NamedGroup::X25519MLKEM768, NamedGroup::X25519];

/// The groups that TLS 1.2 supports.
const CURVES: [NamedGroup; 4] =
    [NamedGroup::X25519, NamedGroup::SECP256R1, NamedGroup::SECP384R1, NamedGroup::SECP521R1];

/// The default signature_algorithms. The runner expects Ed25519 only if an option names it.
const VERIFY_SCHEMES: [SignatureScheme; 8] = [
    SignatureScheme::ECDSA_SECP256R1_SHA256,
    SignatureScheme::RSA_PSS_RSAE_SHA256,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::ECDSA_SECP384R1_SHA384,
    SignatureScheme::RSA_PSS_RSAE_SHA384,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PSS_RSAE_SHA512,
    SignatureScheme::RSA_PKCS1_SHA512,
];

/// The versions whose sessions are kept like TLS 1.3 sessions.
const NEWEST: [ProtocolVersion; 2] = [ProtocolVersion::TLS1_3, ProtocolVersion::DTLS1_3];

/// The default MTU: BoringSSL sends data of any length in one datagram, and the runner reads no more than
/// this.
const MTU: usize = 16 * 1024 + 256;

/// The default name of a server. It is not sent as server_name.
const SERVER_NAME: &str = "server.example";

/// The role, and its configuration.
pub(crate) enum Role {
    Client(Arc<ClientConfig>, ServerAddress),
    /// The configurations for TLS 1.3 clients and for others, whose sessions are kept in different ways.
    Server(Arc<ServerConfig>, Arc<ServerConfig>),
}

/// The configuration of one connection, with the objects to be examined afterwards.
pub(crate) struct Setup {
    pub(crate) role: Role,
    pub(crate) credentials: Credentials,
    pub(crate) secrets: Arc<TrafficSecrets>,
    provider: Arc<CryptoProvider>,
}

impl Setup {
    pub(crate) fn new(options: &Options, shared: &mut Shared) -> Result<Self, Failure> {
        let provider = Arc::new(provider());
        let credentials = Credentials::load(options, &provider)?;
        let secrets = Arc::new(TrafficSecrets::default());
        let profile = profile(options, &credentials, &secrets, &provider, None)?;
        let role = if options.server {
            server_role(options, &credentials, &provider, profile, shared)?
        } else {
            let name = options.host_name.as_deref().unwrap_or(SERVER_NAME);
            let config = client(options, profile, shared)?.with_psks(credentials.psks.clone());
            Role::Client(Arc::new(config), ServerAddress::parse(name, options.port)?)
        };
        Ok(Self { role, credentials, secrets, provider })
    }

    /// A server configuration for this client, whose preferences its ClientHello has told.
    pub(crate) fn server_for(
        &self,
        options: &Options,
        shared: &mut Shared,
        client: &ClientHelloInfo,
    ) -> Result<Arc<ServerConfig>, Failure> {
        let Self { credentials, secrets, provider, .. } = self;
        let profile = profile(options, credentials, secrets, provider, Some(client))?;
        let role = server_role(options, credentials, provider, profile, shared)?;
        match role {
            Role::Server(tls13, _) if NEWEST.iter().any(|version| client.versions.contains(version)) => {
                Ok(tls13)
            }
            Role::Server(_, tls12) => Ok(tls12),
            Role::Client(..) => Err(Failure::Unexpected("a client was asked for its profile".into())),
        }
    }
}

fn server_role(
    options: &Options,
    credentials: &Credentials,
    provider: &Arc<CryptoProvider>,
    profile: Profile,
    shared: &mut Shared,
) -> Result<Role, Failure> {
    let psks = match options.is_async {
        _ if credentials.psks.is_empty() => None,
        true => Some(PskSource::Ask),
        false => Some(PskSource::Here(Arc::new(Known(credentials.psks.clone())))),
    };
    let mut config = |version| {
        let tickets = tickets(options, provider, shared, version)?;
        Ok::<_, Failure>(Arc::new(server(options, profile.clone(), tickets, psks.as_ref())?))
    };
    Ok(Role::Server(config(ProtocolVersion::TLS1_3)?, config(ProtocolVersion::TLS1_2)?))
}

fn provider() -> CryptoProvider {
    let mut provider = dunlin_awslc::provider();
    provider.groups.insert(0, dunlin_awslc::X25519MLKEM768);
    provider.groups.extend([dunlin_awslc::SECP521R1, dunlin_awslc::ML_KEM_1024]);
    provider.key_loader = dunlin_legacy::lab::KEY_LOADER;
    provider.signatures = signatures(dunlin_awslc::ALL_SIGNATURES);
    provider
}

/// Adds the legacy code point for RSA PKCS#1 v1.5 of TLS 1.3 clients, which no default list has.
fn signatures(all: SignatureAlgorithms) -> SignatureAlgorithms {
    let legacy = SignatureScheme::RSA_PKCS1_SHA256_LEGACY;
    let pkcs1 = all.schemes.iter().filter(|(scheme, _)| *scheme == SignatureScheme::RSA_PKCS1_SHA256);
    let schemes: Vec<_> =
        all.schemes.iter().copied().chain(pkcs1.map(|(_, algorithms)| (legacy, *algorithms))).collect();
    // Leaking is fine: the process makes a few lists and ends with its test.
    SignatureAlgorithms { all: all.all, schemes: schemes.leak() }
}

fn profile(
    options: &Options,
    credentials: &Credentials,
    secrets: &Arc<TrafficSecrets>,
    provider: &Arc<CryptoProvider>,
    client: Option<&ClientHelloInfo>,
) -> Result<Profile, Failure> {
    let groups = suites::groups(options, provider, client)?;
    let schemes = verify_schemes(options, provider);
    let trust = trust(options, !credentials.psks.is_empty());
    let is_trusting = trust.x509.is_some() || trust.raw_key.is_some();
    let listed = |types: &Vec<CertificateType>| (!types.is_empty()).then(|| types.clone());
    let peer_types = listed(&options.peer_certificate_types).filter(|_| is_trusting);
    let own_types = listed(&options.client_certificate_types);
    let tls13 = options.allows(ProtocolVersion::TLS1_3);
    let tls12 = options.allows(ProtocolVersion::TLS1_2);
    if !tls13 && !tls12 {
        return Err(Failure::Unimplemented("versions before TLS 1.2".into()));
    }
    // ECDHE in TLS 1.2 needs a curve.
    let has_curve = groups.iter().any(|group| CURVES.contains(&group.name()));
    let mut profile = Profile::builder(Arc::clone(provider))
        .cipher_suites(if tls13 { suites::tls13(options, client) } else { Vec::new() })
        .tls12_cipher_suites(if tls12 && has_curve { suites::tls12(options, client)? } else { Vec::new() })
        .rsa_encryption(dunlin_legacy::lab::ENCRYPTION)
        .danger_legacy_lab()
        .extended_master_secret_required(false)
        .renegotiation(matches!(options.renegotiation, Renegotiation::Free | Renegotiation::Once))
        .groups(groups)
        .signature_schemes(schemes)
        .peer_certificate_types(peer_types)
        .own_certificate_types(own_types)
        .trust(trust)
        .request_ocsp(options.request_ocsp)
        .alpn(alpn(options))
        .named_authorities(options.authorities.clone())
        .max_sent_record(options.max_sent_record)
        .certificate_compressors(algorithms(&options.compression).map(|one| one as _).collect())
        .certificate_decompressors(algorithms(&options.compression).map(|one| one as _).collect())
        .credentials(credentials.for_client(client));
    for index in &credentials.reserved {
        profile = profile.reserve_credential(*index);
    }
    // If the callback declines, no OCSP response is stapled.
    for (index, response) in credentials.ocsp_responses.iter().filter(|_| !options.decline_ocsp_callback) {
        profile = profile.ocsp_response(*index, response.clone());
    }
    if options.export_traffic_secrets {
        profile = profile.key_log(Some(Arc::clone(secrets) as Arc<dyn KeyLog>));
    }
    Ok(profile.build()?)
}

/// The supported ones among the options' signature_algorithms. SHA-1 is not supported.
fn verify_schemes(options: &Options, provider: &CryptoProvider) -> Vec<SignatureScheme> {
    const NOT_OF_SERVERS: [SignatureScheme; 4] = [
        SignatureScheme::RSA_PKCS1_SHA256_LEGACY,
        SignatureScheme::RSA_PKCS1_SHA256,
        SignatureScheme::RSA_PKCS1_SHA384,
        SignatureScheme::RSA_PKCS1_SHA512,
    ];
    let wanted = &options.verify_schemes;
    let wanted = if wanted.is_empty() { &VERIFY_SCHEMES[..] } else { wanted };
    let known = |scheme: &SignatureScheme| provider.signatures.schemes.iter().any(|(s, _)| s == scheme);
    let mut schemes: Vec<_> = wanted.iter().copied().filter(known).collect();
    // A TLS 1.3 profile needs a scheme with which servers can sign (RFC 8446 §4.4.3). No peer of these tests
    // supports this one.
    if schemes.iter().all(|s| NOT_OF_SERVERS.contains(s)) {
        schemes.push(SignatureScheme::MLDSA44);
    }
    schemes
}

/// Verification is always a question, because the options decide the result.
fn trust(options: &Options, has_psk: bool) -> Trust {
    let types = &options.peer_certificate_types;
    let has = |typ: CertificateType| types.contains(&typ);
    // A client with a PSK accepts certificates only if an option tells it to verify them.
    let takes_any = !options.server && !has_psk;
    if takes_any || options.verify_peer || options.require_client_certificate {
        let x509 = types.is_empty() || has(CertificateType::X509);
        let raw_key = has(CertificateType::RAW_PUBLIC_KEY);
        return Trust { x509: x509.then_some(X509Trust::Ask), raw_key: raw_key.then_some(RawKeyTrust::Ask) };
    }
    Trust::default()
}

fn alpn(options: &Options) -> Vec<Vec<u8>> {
    match (&options.select_alpn, options.server) {
        (_, false) => options.advertise_alpn.clone(),
        // The runner's clients never offer this protocol.
        (_, true) if options.reject_alpn => vec![b"none of these".to_vec()],
        (Some(protocol), true) => vec![protocol.clone().into_bytes()],
        (None, true) => Vec::new(),
    }
}

fn client(options: &Options, profile: Profile, shared: &Shared) -> Result<ClientConfig, Failure> {
    let hinted = options.groups.iter().find(|group| options.hinted_groups.contains(group));
    let shares = match &options.key_shares {
        _ if hinted.is_some() => hinted.copied().into_iter().collect(),
        Some(shares) => shares.clone(),
        // One share of a hybrid and one of a curve, as most clients send them.
        None if options.groups.is_empty() => KEY_SHARES.to_vec(),
        None => options.groups.first().copied().into_iter().collect(),
    };
    let config = ClientConfig::new(profile)
        .with_key_shares(shares)?
        .with_server_name_sent(options.host_name.is_some())
        .with_credential_required(true)
        .with_fallback(options.fallback)
        .with_reverification(options.reverify_on_resume)
        .with_retransmission(retransmission(options)?)
        .with_unforgeable_transport(true)
        .with_full_record_headers(true)
        .with_mtu(options.mtu.unwrap_or(MTU))?;
    let config =
        if options.early_data { config.with_early_data(protocols(&options.advertise_alpn)) } else { config };
    Ok(if options.no_ticket {
        config
    } else {
        config.with_sessions(Arc::clone(&shared.sessions) as Arc<dyn ClientSessions>)
    })
}

/// BoringSSL's timeouts, and its patience: 400 ms, doubled up to a minute. The connection fails instead of
/// the 13th retransmission.
fn retransmission(options: &Options) -> Result<Retransmission, Failure> {
    let first = Duration::from_millis(options.initial_timeout_ms.unwrap_or(400));
    let timeouts = std::iter::successors(Some(first), |timeout| Some((*timeout * 2).min(LONGEST_TIMEOUT)));
    Ok(Retransmission::new(first, LONGEST_TIMEOUT, timeouts.take(13).sum())?.with_patience(true))
}

/// Allows early data for these protocols, and without ALPN.
fn protocols(alpn: &[Vec<u8>]) -> EarlyDataProtocols {
    EarlyDataProtocols::named(alpn.to_vec()).and_unnamed()
}

/// How a server keeps the sessions of this version. BoringSSL uses tickets in both versions, and session IDs
/// in TLS 1.2 if there is no ticket. By default TLS 1.3 tickets only name a session, which is kept here or
/// asked for.
fn tickets(
    options: &Options,
    provider: &Arc<CryptoProvider>,
    shared: &mut Shared,
    version: ProtocolVersion,
) -> Result<Tickets, Failure> {
    let is_named = match version {
        ProtocolVersion::TLS1_2 => options.no_ticket || options.expect.session_id == Some(true),
        _ => !options.sealed_tickets,
    };
    Ok(match () {
        () if options.no_ticket && version == ProtocolVersion::TLS1_3 => Tickets::none(),
        () if options.skip_ticket => Tickets::stateless(Arc::new(NoTicket)),
        () if is_named && options.is_async => Tickets::ask(),
        () if is_named => {
            let stored = shared.stored.get_or_insert_with(|| Arc::new(MemoryServerSessions::new(16)));
            Tickets::stateful(Arc::clone(stored) as _)
        }
        () => {
            let tickets = match shared.sealed.take() {
                Some(tickets) => tickets,
                None => {
                    let once = SingleUse::Register(Arc::clone(&shared.used) as _);
                    Arc::new(RotatingTickets::new(Arc::clone(provider))?.with_single_use(once))
                }
            };
            shared.sealed = Some(Arc::clone(&tickets));
            let stored = shared.stored.get_or_insert_with(|| Arc::new(MemoryServerSessions::new(16)));
            Tickets::stateless(tickets).or_session_ids(Arc::clone(stored) as _)
        }
    })
}

fn server(
    options: &Options,
    profile: Profile,
    tickets: Tickets,
    psks: Option<&PskSource>,
) -> Result<ServerConfig, Failure> {
    let client_auth = match (options.require_client_certificate, options.verify_peer) {
        (true, _) => ClientAuth::Required,
        (false, true) => ClientAuth::Optional,
        (false, false) => ClientAuth::None,
    };
    // The question lets the shim check the ClientHello and its versions. It also makes the server acknowledge
    // server_name.
    let config = match (ServerConfig::new(profile.clone()), psks) {
        (Ok(config), None) => config,
        (Ok(config), Some(psks)) => config.with_psks(psks.clone()),
        (Err(_), Some(psks)) => ServerConfig::psk_only(profile, psks.clone())?,
        // Tests of servers without a credential expect the handshake to fail, not the configuration.
        (Err(_), None) => ServerConfig::choosing(profile)?,
    };
    let config = config
        .with_client_auth(client_auth)?
        .with_tickets(tickets)
        .with_psk_identity_hint(options.psk_identity.as_str())?
        .with_profile_choice(!options.no_server_name_ack)
        .with_cookies(false)
        .with_retransmission(retransmission(options)?)
        .with_unforgeable_transport(true)
        .with_full_record_headers(true)
        .with_mtu(options.mtu.unwrap_or(MTU))?;
    if options.early_data {
        Ok(config.with_early_data(protocols(&alpn(options)), MAX_EARLY_DATA)?)
    } else {
        Ok(config)
    }
}
