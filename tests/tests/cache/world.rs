//! A client and a server whose certificates, trust, clocks and caches change between their connections. Each
//! connection is made twice at the same moment, with the caches and without. Both must end alike.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use dunlin::auth::{Revocation, X509Trust};
use dunlin::pki_types::PrivateKeyDer;
use dunlin::{
    ClientAuth, ClientConfig, Credential, Error, Now, Profile, ProfileBuilder, ServerConfig, Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_pki::{Authority, CaSpec, CrlSpec, Identity, KeyPair, KeyType, LeafSpec, Subject, Validity};
use dunlin_store::{MemoryClientCache, MemoryServerCache};
use dunlin_tests::peer::now;
use dunlin_tests::{Pair, awslc, carry};

use crate::{Setup, cached, of_version};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum age of entries.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(8 * 24 * 60 * 60);

/// The certificate of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certificate {
    /// Issued by the first authority, valid from twenty days ago for fifty days.
    Long,
    /// As [`Certificate::Long`], with another key.
    Other,
    /// Expires in five days.
    Short,
    /// Valid since three days ago.
    Young,
    /// Issued by the second authority.
    Foreign,
}

pub(crate) const CERTIFICATES: [Certificate; 5] =
    [Certificate::Long, Certificate::Other, Certificate::Short, Certificate::Young, Certificate::Foreign];

/// The trust settings of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belief {
    First,
    Second,
    Both,
    /// The first authority, with an empty CRL.
    Unrevoked,
    /// The first authority, with a CRL that lists [`Certificate::Long`].
    Revoked,
    /// The first authority, with a CRL that expires in two days and must not be overdue.
    Fresh,
}

pub(crate) const BELIEFS: [Belief; 6] =
    [Belief::First, Belief::Second, Belief::Both, Belief::Unrevoked, Belief::Revoked, Belief::Fresh];

/// The credentials of one role.
struct Role {
    credentials: Vec<Credential>,
    /// The other role's trust settings for them.
    trust: Vec<X509Trust>,
}

fn time(days: i64) -> SystemTime {
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(now().unix_ms);
    let distance = DAY * days.unsigned_abs() as u32;
    if days < 0 { now - distance } else { now + distance }
}

fn validity(from: i64, until: i64) -> Validity {
    Validity::new(time(from), time(until)).unwrap()
}

fn key() -> KeyPair {
    KeyPair::generate(KeyType::P256).unwrap()
}

impl Role {
    fn new(authorities: &[Authority; 2], is_client: bool) -> Self {
        let issue = |certificate: &Certificate| {
            let (authority, from, until) = match certificate {
                Certificate::Long | Certificate::Other => (0, -20, 30),
                Certificate::Short => (0, -20, 5),
                Certificate::Young => (0, -3, 30),
                Certificate::Foreign => (1, -20, 30),
            };
            let validity = validity(from, until);
            let spec = if is_client {
                LeafSpec::client(Subject::common_name("device-1").unwrap(), validity)
            } else {
                LeafSpec::server(["localhost".parse().unwrap()], validity)
            };
            authorities[authority].issue(&spec, key()).unwrap()
        };
        let identities: Vec<Identity> = CERTIFICATES.iter().map(issue).collect();
        let long = identities[0].chain[0].clone();
        let list = |revoke, days| {
            let validity = validity(-20, days);
            let spec = CrlSpec { previous: None, revoke, reason: None, validity };
            Revocation::new([authorities[0].revocation_list(&spec).unwrap()]).unwrap().leaf_only()
        };
        let trust = |belief: &Belief| {
            let [first, second] = authorities.each_ref().map(|a| a.certificate().clone());
            let of_first = || X509Trust::anchors([first.clone()]).unwrap();
            match belief {
                Belief::First => of_first(),
                Belief::Second => X509Trust::anchors([second]).unwrap(),
                Belief::Both => X509Trust::anchors([first, second]).unwrap(),
                Belief::Unrevoked => of_first().with_revocation(list(vec![], 30)).unwrap(),
                Belief::Revoked => of_first().with_revocation(list(vec![long.clone()], 30)).unwrap(),
                Belief::Fresh => of_first().with_revocation(list(vec![], 2).refuse_overdue()).unwrap(),
            }
        };
        let credential = |identity: &Identity| {
            let der = identity.key.to_pkcs8().unwrap().to_vec();
            let key = awslc().key_loader.load(&PrivateKeyDer::Pkcs8(der.into())).unwrap();
            Credential::x509(identity.chain.clone(), key)
        };
        Self {
            credentials: identities.iter().map(credential).collect(),
            trust: BELIEFS.iter().map(trust).collect(),
        }
    }
}

fn roles() -> &'static [Role; 2] {
    static ROLES: OnceLock<[Role; 2]> = OnceLock::new();
    ROLES.get_or_init(|| {
        let authorities = ["First", "Second"].map(|name| {
            let spec = CaSpec::new(Subject::common_name(name).unwrap(), validity(-20, 30));
            Authority::root(&spec, key()).unwrap()
        });
        [Role::new(&authorities, true), Role::new(&authorities, false)]
    })
}

/// One side.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) certificate: Certificate,
    pub(crate) belief: Belief,
}

/// Both sides, with their caches.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) client: Side,
    pub(crate) server: Side,
    pub(crate) clients: Arc<MemoryServerCache>,
    pub(crate) servers: Arc<MemoryClientCache>,
    /// The time of all clocks, in milliseconds since 1970.
    pub(crate) now_ms: u64,
}

impl World {
    /// Both sides have [`Certificate::Long`] and [`Belief::First`], and their caches are empty.
    pub(crate) fn new(setup: Setup) -> Self {
        let side = || Side { certificate: Certificate::Long, belief: Belief::First };
        Self {
            setup,
            client: side(),
            server: side(),
            clients: Arc::new(MemoryServerCache::new(8)),
            servers: Arc::new(MemoryClientCache::new(8)),
            now_ms: now().unix_ms,
        }
    }

    pub(crate) fn pass(&mut self, days: i64) {
        let distance = (DAY * days.unsigned_abs() as u32).as_millis() as u64;
        self.now_ms = if days < 0 { self.now_ms - distance } else { self.now_ms + distance };
    }

    pub(crate) fn lose_servers(&mut self) {
        self.servers = Arc::new(MemoryClientCache::new(8));
    }

    pub(crate) fn lose_clients(&mut self) {
        self.clients = Arc::new(MemoryServerCache::new(8));
    }

    fn profile(&self, is_client: bool) -> ProfileBuilder {
        let [client, server] = roles();
        let (own, peer, side) =
            if is_client { (client, server, &self.client) } else { (server, client, &self.server) };
        let credential = own.credentials[side.certificate as usize].clone();
        let trust = Trust { x509: Some(peer.trust[side.belief as usize].clone()), raw_key: None };
        let profile = Profile::builder(awslc()).trust(trust).credentials(vec![credential]);
        if is_client {
            // The server chooses the version.
            profile.tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
        } else {
            of_version(self.setup.version, profile)
        }
    }

    /// A connection with the current configurations, with the caches or without.
    pub(crate) fn pair(&self, has_cache: bool) -> Pair {
        let client = ClientConfig::new(self.profile(true).build().unwrap());
        let server = ServerConfig::new(self.profile(false).build().unwrap()).unwrap();
        let server = server.with_client_auth(ClientAuth::Required).unwrap();
        let mode = self.setup.mode;
        let (client, server) = if has_cache {
            (
                client.with_handshake_cache(mode, self.servers.clone(), MAX_AGE),
                server.with_handshake_cache(mode, self.clients.clone(), MAX_AGE).unwrap(),
            )
        } else {
            (client, server)
        };
        Pair::at(&Arc::new(client), &Arc::new(server), Now::from_unix_ms(self.now_ms))
    }

    /// Connects with the caches and without, which must end alike. Returns which certificates were omitted,
    /// or the error.
    pub(crate) fn connect(&self) -> Result<[bool; 2], Error> {
        let (with, pair) = run(self.pair(true));
        let (without, _) = run(self.pair(false));
        assert_eq!(with, without, "{self:?}");
        // The side that finds the fault has the error; the other side has received an alert.
        let fault = |error: &Error| !matches!(error, Error::AlertReceived(_));
        with.errors.into_iter().flatten().find(fault).map_or_else(|| Ok(cached(&pair)), Err)
    }
}

/// The result of a connection.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// The number of flights of the handshake, in both directions.
    flights: usize,
    /// The peers' identities: as the client and as the server sees them.
    peers: [Option<String>; 2],
    errors: [Option<Error>; 2],
}

fn run(mut pair: Pair) -> (Outcome, Pair) {
    let mut flights = 0;
    let mut silent = 0;
    while silent < 2 {
        let now = pair.now;
        // Errors remain in the connections.
        for is_client in [true, false] {
            let (from, to) = if is_client {
                (&mut pair.client, &mut pair.server)
            } else {
                (&mut pair.server, &mut pair.client)
            };
            let sent = carry(from, to, now).0 > 0;
            flights += usize::from(sent);
            silent = if sent { 0 } else { silent + 1 };
        }
    }
    let errors = [&pair.client, &pair.server].map(|end| end.error().cloned());
    if errors == [None, None] {
        pair.echo(b"hello").unwrap();
    }
    let peers = [&pair.client, &pair.server].map(|end| {
        let peer = end.negotiated()?.peer.clone()?;
        let dunlin::auth::PeerIdentity::X509(id) = peer else { panic!("no X.509") };
        Some(format!("{:?} {:?}", id.fingerprint, id.not_after_s))
    });
    (Outcome { flights, peers, errors }, pair)
}
