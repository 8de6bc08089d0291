//! Random histories of a registry, an issuer, holders and a server: full, cached, resumed, restarted and
//! thawed connections give one verdict.
//!
//! `DUNLIN_HISTORIES` is their number, and `DUNLIN_HISTORY` the only one to run, by its seed.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use dunlin::auth::{Acceptance, Belief, DidProofs, KnownRegistry, Trust, Verifier as _, Verifiers};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::SigningKey;
use dunlin::error::AuthenticationFailure;
use dunlin::resume::Tickets;
use dunlin::wire::AlertDescription as Alert;
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, DtlsConnection, Error, Now, PeerIdentity, Profile,
    Question, ServerConfig,
};
use dunlin_identity::credential::status::{Bitstring, StatusEntry, StatusPurpose};
use dunlin_identity::credential::{CREDENTIALS_V2, Contexts, Issuer, Seconds};
use dunlin_identity::handshake::{
    CredentialIdentity, CredentialVerifier, Holding, Known, ListedIssuer, Refusal, RegistryDocuments,
    RegistryWatch, Resolver as _, SILENT_TIME, Standing, Stapled,
};
use dunlin_identity::key::PublicKey;
use dunlin_identity::knowledge::{Knowledge, Record};
use dunlin_identity::transparency::{RegistryTrust, Staple, StapleError};
use dunlin_identity::{Did, DidDocument, DidUrl, Members, Relationship, Sha256Hash, TrustList};
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_store::{MemoryClientCache, MemoryClientSessions, MemoryServerCache, RotatingTickets};
use dunlin_tests::{KeyType, Pair, Pki, awslc, localhost};
use serde_json::{Value, json};

use super::registered::{Holder, Registry, key, public};

const BEGIN: Seconds = 1_767_225_600;
/// The holders on the list of peers. The one after them is a stranger, whose credential is as good.
const HOLDERS: usize = 3;
const LIST: &str = "https://issuer.example/status/1";
const OUTAGE_AGE: Seconds = 3600;
/// More than a checkpoint counts.
const DAY: Seconds = 90_000;
/// The events of a history.
const STEPS: usize = 14;

/// SplitMix64, so that a history repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }
}

fn method(document: &DidDocument, purpose: Relationship) -> DidUrl {
    document.keys(purpose).next().unwrap().0.clone()
}

/// The issuer, with one or two keys for assertions.
struct Authority {
    did: Did,
    keys: Vec<(DidUrl, Arc<dyn SigningKey>)>,
    /// Its documents, by their numbers.
    documents: Vec<DidDocument>,
}

impl Authority {
    fn new() -> Self {
        let first = Holder::new();
        let method = method(first.document(), Relationship::AssertionMethod);
        let documents = vec![first.document().clone()];
        Self { did: first.did().clone(), keys: vec![(method, first.key.clone())], documents }
    }

    fn document(&self) -> &DidDocument {
        self.documents.last().unwrap()
    }

    /// Takes another key, or gives the older of two up.
    fn change(&mut self) {
        if self.keys.len() == 2 {
            self.keys.remove(0);
        } else {
            let method = format!("{}#key-{}", self.did, self.documents.len());
            self.keys.push((method.parse().unwrap(), key()));
        }
        let mut value = self.document().value().clone();
        let ids = self.keys.iter().map(|(id, _)| id.to_string()).collect::<Value>();
        value["verificationMethod"] =
            self.keys.iter().map(|(id, key)| self.method(id, &public(key))).collect();
        (value["authentication"], value["assertionMethod"]) = (ids.clone(), ids);
        self.documents.push(DidDocument::from_value(value, &self.did).unwrap());
    }

    fn method(&self, id: &DidUrl, key: &PublicKey) -> Value {
        json!({
            "id": id.to_string(), "type": "Multikey", "controller": self.did.as_str(),
            "publicKeyMultibase": key.to_multikey(),
        })
    }
}

/// The registry node's behaviour when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Answers,
    /// It shows a checkpoint of yesterday.
    Old,
    Silent,
}

/// The true state of all parties.
struct World {
    registry: Registry,
    issuer: Authority,
    holders: Vec<Holder>,
    /// The list of peers, if the server has one; and the proofs of membership, if it knows only the root.
    peers: Option<TrustList>,
    members: Option<Members>,
    /// Of the issuer's list, a bit for each holder.
    bits: Bitstring,
    now: Seconds,
    node: Node,
}

impl World {
    /// The number decides whether the server has a list of peers, or the root over one, and whether the
    /// issuer has two keys.
    fn new(number: u64) -> Self {
        let (mut issuer, holders): (_, Vec<_>) =
            (Authority::new(), (0..=HOLDERS).map(|_| Holder::new()).collect());
        let mut registry = Registry::new();
        registry.put_document(issuer.document(), 0, true);
        if number.is_multiple_of(2) {
            issuer.change();
            registry.put_document(issuer.document(), 1, true);
        }
        holders.iter().for_each(|holder| registry.put(holder));
        let dids = || holders[..HOLDERS].iter().map(|holder| holder.did().clone());
        let members = (number % 3 == 2).then(|| Members::new(&awslc(), dids()));
        let peers = match &members {
            Some(members) => Some(TrustList::default().with_members(members.root(&awslc()).unwrap())),
            None => (number % 3 == 1).then(|| TrustList::new(dids())),
        };
        let bits = Bitstring::default();
        let node = Node::Answers;
        Self { registry, issuer, holders, peers, members, bits, now: BEGIN, node }
    }

    /// With one of the issuer's keys.
    fn issuing<T>(&self, key: usize, issue: impl FnOnce(&Issuer<'_>) -> T) -> T {
        let (method, signer) = &self.issuer.keys[key % self.issuer.keys.len()];
        issue(&Issuer { provider: &awslc(), signer: &**signer, method })
    }

    fn change_issuer(&mut self) {
        self.issuer.change();
        let sequence = self.issuer.documents.len() as u64 - 1;
        self.registry.put_document(self.issuer.document(), sequence, true);
    }

    /// The proof of a holder, with the proof of its membership.
    fn staple(&self, holder: usize) -> Staple {
        let holder = &self.holders[holder];
        let proof = |members: &Members| members.proof(&awslc(), holder.did());
        // A stranger shows the proof of another one.
        let other = |members: &Members| members.proof(&awslc(), self.holders[0].did()).unwrap();
        let membership =
            self.members.as_ref().map(|members| proof(members).unwrap_or_else(|_| other(members)));
        let membership = membership.unwrap_or_default();
        Staple { membership, ..self.registry.staple(holder, self.now) }
    }

    fn credential(&self, holder: usize, key: usize) -> Vec<u8> {
        let entry =
            StatusEntry { list: LIST.to_owned(), index: holder as u64, purpose: StatusPurpose::Revocation };
        let credential = json!({
            "@context": [CREDENTIALS_V2],
            "type": ["VerifiableCredential"],
            "issuer": self.issuer.did.as_str(),
            "credentialSubject": {"id": self.holders[holder].did().as_str()},
            "credentialStatus": entry.to_value(),
        });
        self.issuing(key, |issuer| issuer.issue_compact(&credential, &Contexts::default()).unwrap())
    }

    /// The issuer's list, as it is now.
    fn list(&self, key: usize) -> Vec<u8> {
        let did = &self.issuer.did;
        let until = self.now + 400_000;
        let list = self.bits.credential(did, LIST, StatusPurpose::Revocation, self.now, until).unwrap();
        self.issuing(key, |issuer| issuer.issue_jwt(&list, &Contexts::default()).unwrap().into_bytes())
    }

    /// The registry node's answer about a DID.
    fn answer(&self, did: &Did) -> Option<Staple> {
        let holder = self.holders.iter().find(|holder| holder.did() == did);
        let document = holder.map_or_else(|| self.issuer.document(), Holder::document);
        match self.node {
            Node::Answers => Some(self.registry.staple_of(document, self.now)),
            Node::Old => Some(self.registry.staple_of(document, self.now - DAY)),
            Node::Silent => None,
        }
    }
}

/// A stored proof.
#[derive(Debug)]
struct Fixed(Vec<u8>);

impl DidProofs for Fixed {
    fn latest(&self, _: &[KnownRegistry]) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }
}

/// The way in which a client comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Full,
    Resumed,
    Cached,
}

const WAYS: [Way; 3] = [Way::Full, Way::Resumed, Way::Cached];

/// A client with the key, proof, credential and list of one moment. Later it may be a thief who has stolen
/// them.
struct Client {
    holder: usize,
    sequence: u64,
    /// The issuer's keys behind its credential and its list.
    methods: [DidUrl; 2],
    /// The bits in its list.
    bits: Bitstring,
    configs: [Arc<ClientConfig>; 3],
    frozen: Option<(Vec<u8>, PeerIdentity)>,
    /// Whether the server has refused it for good.
    is_over: bool,
}

impl Client {
    /// `keys` are those of the issuer behind its credential and its list.
    fn new(world: &World, holder: usize, keys: [usize; 2], with_proof: bool) -> Self {
        let own = &world.holders[holder];
        let method = method(own.document(), Relationship::Authentication);
        let credential = world.credential(holder, keys[0]);
        let holding =
            Holding::of_credential(own.key.clone(), method, credential, &Contexts::default()).unwrap();
        let holding = holding.with_status(&[world.list(keys[1])]).unwrap();
        let proof = world.staple(holder).write().unwrap();
        let holding = if with_proof { holding.with_proofs(Arc::new(Fixed(proof))) } else { holding };
        let credential = holding.to_tls(&awslc()).unwrap();
        let x509 = Trust { x509: Some(Pki::shared(KeyType::P256).trust()), raw_key: None };
        let profile = Profile::builder(awslc()).trust(x509).credentials(vec![credential]).build().unwrap();
        let config = ClientConfig::new(profile);
        let sessions = config.clone().with_sessions(Arc::new(MemoryClientSessions::new(8, 8)));
        let cache = Arc::new(MemoryClientCache::default());
        let cached = config.clone().with_handshake_cache(CacheMode::Compact, cache, DEFAULT_MAX_AGE);
        let configs = [config, sessions, cached].map(Arc::new);
        let sequence = own.state.sequence();
        let bits = world.bits.clone();
        let methods = keys.map(|key| world.issuing(key, |issuer| issuer.method.clone()));
        Self { holder, sequence, methods, bits, configs, frozen: None, is_over: false }
    }
}

/// The server, with everything that its restarts keep.
struct Server {
    trust: RegistryTrust,
    issuer: Did,
    peers: Option<TrustList>,
    /// The file with a status list.
    list: Vec<u8>,
    tickets: Arc<RotatingTickets>,
    cache: Arc<MemoryServerCache>,
    known: Arc<Known>,
    documents: Arc<RegistryDocuments>,
    verifier: Arc<CredentialVerifier>,
    configs: [Arc<ServerConfig>; 3],
    /// The watches of its listeners.
    watches: Vec<RegistryWatch>,
    /// How many DIDs it has looked up, and how often an older proof or look-up has counted.
    asked: Cell<usize>,
    outages: Arc<AtomicUsize>,
}

impl Server {
    fn new(world: &World) -> Self {
        let tickets = Arc::new(RotatingTickets::new(awslc()).unwrap());
        let cache = Arc::new(MemoryServerCache::new(64));
        let of = (world.registry.trust(), world.issuer.did.clone(), world.peers.clone());
        Self::begin(of, world.list(0), tickets, cache, &[], world.now)
    }

    fn begin(
        (trust, issuer, peers): (RegistryTrust, Did, Option<TrustList>),
        list: Vec<u8>,
        tickets: Arc<RotatingTickets>,
        cache: Arc<MemoryServerCache>,
        records: &[Record],
        now: Seconds,
    ) -> Self {
        let known = Arc::new(Known::new(Knowledge::default()));
        known.merge(records.iter().map(|record| Record::read(&record.to_bytes()).unwrap()));
        let documents = RegistryDocuments::new(awslc(), trust.clone()).with_known(known.clone());
        let outages = Arc::new(AtomicUsize::new(0));
        let uses = outages.clone();
        let documents = documents.with_outage(OUTAGE_AGE, move |_| {
            uses.fetch_add(1, Ordering::Relaxed);
        });
        let documents = Arc::new(documents);
        let verifier = CredentialVerifier::new(awslc(), Vec::<DidDocument>::new())
            .with_known(known.clone())
            .with_resolved_issuers([ListedIssuer::from(issuer.clone())])
            .with_unverified_status([list.clone()])
            .with_resolver(documents.clone())
            .asking();
        let verifier = Arc::new(match &peers {
            Some(peers) => verifier.with_peers(peers.clone()),
            None => verifier,
        });
        let own: Credential = Pki::shared(KeyType::P256).server.x509(&awslc());
        let trusts = Verifiers::default().with(verifier.clone());
        let profile = Profile::builder(awslc()).trust(trusts).credentials(vec![own]).build().unwrap();
        let config = ServerConfig::new(profile).unwrap().with_client_auth(ClientAuth::Required).unwrap();
        let resumes = config.clone().with_tickets(Tickets::stateless(tickets.clone()));
        let caches = config.clone().with_handshake_cache(CacheMode::Compact, cache.clone(), DEFAULT_MAX_AGE);
        let configs = [config, resumes, caches.unwrap()].map(Arc::new);
        let watches = vec![documents.watch(instant(now))];
        let asked = Cell::new(0);
        Self {
            trust,
            issuer,
            peers,
            list,
            tickets,
            cache,
            known,
            documents,
            verifier,
            configs,
            watches,
            asked,
            outages,
        }
    }

    fn restart(&mut self, now: Seconds) {
        let tickets = self.tickets.clone();
        let cache = self.cache.clone();
        let list = self.list.clone();
        let of = (self.trust.clone(), self.issuer.clone(), self.peers.clone());
        *self = Self::begin(of, list, tickets, cache, &self.known.records(), now);
    }

    fn outages(&self) -> usize {
        self.outages.load(Ordering::Relaxed)
    }

    /// One of its watches asks the registry.
    fn watch(&self, world: &World, watch: usize) {
        let watch = &self.watches[watch % self.watches.len()];
        let now = instant(world.now);
        let signed_s = match world.node {
            Node::Answers => world.now,
            Node::Old => world.now - DAY,
            Node::Silent => {
                watch.unanswered(now);
                return;
            }
        };
        let note = world.registry.checkpoint(signed_s.try_into().unwrap()).to_string();
        assert_eq!(self.documents.check_answer(note.as_bytes(), world.now), Ok(()));
        watch.answered(now);
    }

    /// Asks the registry about a DID. Returns whether it has a proof that counts.
    fn look_up(&self, world: &World, did: &Did) -> bool {
        self.asked.set(self.asked.get() + 1);
        let Some(staple) = world.answer(did) else { return false };
        let newest = self.documents.newest();
        match self.documents.verify(did, &staple, newest.as_ref(), world.now) {
            Ok(resolved) => assert_eq!(self.documents.keep(&resolved, newest.as_ref(), world.now), Ok(true)),
            Err(StapleError::Deactivated(did)) => self.documents.deactivate(did),
            Err(error) => {
                assert!(world.node == Node::Old && error.is_old(), "{error}");
                return false;
            }
        }
        true
    }

    /// The number of the issuer's document that it knows to be the latest.
    fn known_issuer(&self, world: &World) -> Option<usize> {
        let is_latest = |(sequence, document): &(usize, &DidDocument)| {
            let hash = Sha256Hash::of(&awslc(), document.canonical().as_bytes()).unwrap();
            self.documents.standing(&self.issuer, &hash, *sequence as u64) == Standing::Latest
        };
        Some(world.issuer.documents.iter().enumerate().find(is_latest)?.0)
    }

    /// The answer of a program that looks documents up.
    fn answer(&self, world: &World, question: Question) -> Answer {
        let Question::Verify { certificates, did_proof, credential_status, algorithms, .. } = question else {
            panic!("{question:?}")
        };
        let stapled =
            Stapled { did_proof: did_proof.as_deref(), credential_status: credential_status.as_deref() };
        let judge = || self.verifier.judge(&certificates, stapled, &algorithms, world.now);
        let mut judged = judge();
        for _ in 0..2 {
            let Some(did) = judged.as_ref().err().and_then(Refusal::wanted).cloned() else { break };
            self.look_up(world, &did);
            judged = judge();
        }
        let accepted = judged.map(|peer| Acceptance::within(peer.validity).with_peer(peer));
        Answer::Verified(accepted.map_err(AuthenticationFailure::from))
    }

    /// Connects a client; the error is the server's.
    fn meet(&self, world: &World, client: &Client, way: Way) -> Result<(), Error> {
        let at = WAYS.iter().position(|other| *other == way).unwrap();
        let mut pair = Pair::at(&client.configs[at], &self.configs[at], clock(world.now));
        let mut run = pair.run();
        while let Some((id, question)) = pair.server_question() {
            let answered = pair.server.answer(clock(world.now), id, self.answer(world, question));
            run = answered.and_then(|()| pair.run());
        }
        match pair.server.error() {
            Some(error) => Err(error.clone()),
            None => {
                run.unwrap();
                pair.echo(b"hello").unwrap();
                assert!(pair.server.negotiated().unwrap().peer.is_some());
                Ok(())
            }
        }
    }

    /// Makes an association with a client, and freezes it.
    fn freeze(&self, world: &World, client: &mut Client) {
        let now = clock(world.now);
        let end = DtlsConnection::client(&client.configs[0], localhost(), SERVER_ADDRESS, now).unwrap();
        let server = DtlsConnection::server(&self.configs[0], CLIENT_ADDRESS, now);
        let mut pair = dunlin_sim::Pair::new(end, server, now, Duration::ZERO);
        // The verifier asks nothing: the connections before have shown everything.
        if pair.run().is_ok() && pair.server.negotiated().is_some() {
            let peer = pair.server.negotiated().unwrap().peer.clone().unwrap();
            if let Ok(bytes) = pair.server.freeze(pair.now) {
                client.frozen = Some((bytes.to_vec(), peer));
            }
        }
    }
}

/// The monotonic clock of a history.
fn instant(now: Seconds) -> Instant {
    static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);
    *ZERO + Duration::from_secs((now - BEGIN).try_into().unwrap())
}

fn clock(now: Seconds) -> Now {
    Now::from_unix_ms(u64::try_from(now).unwrap() * 1000)
}

/// The facts that the server must know, by this test's own account.
#[derive(Default)]
struct Facts {
    sequence: [u64; HOLDERS + 1],
    ended: [bool; HOLDERS + 1],
    revoked: [bool; HOLDERS + 1],
    /// When a watch has had an answer.
    answered: Seconds,
}

/// Counts of the events, so that the histories say something.
#[derive(Debug, Default)]
struct Tally {
    accepted: usize,
    refused: usize,
    over: usize,
    thawed: usize,
    ended_by_answer: usize,
    /// Uses of older proofs, and refusals of strangers and of keys that the issuer has removed.
    outages: usize,
    strangers: usize,
    removed: usize,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.over += other.over;
        self.thawed += other.thawed;
        self.ended_by_answer += other.ended_by_answer;
        self.outages += other.outages;
        self.strangers += other.strangers;
        self.removed += other.removed;
    }
}

struct History {
    random: Random,
    world: World,
    server: Server,
    clients: Vec<Client>,
    facts: Facts,
    tally: Tally,
}

impl History {
    fn new(seed: u64) -> Self {
        let world = World::new(seed);
        let random = Random(seed);
        let server = Server::new(&world);
        let clients = (0..=HOLDERS).rev().map(|holder| Client::new(&world, holder, [0; 2], true)).collect();
        let facts = Facts { answered: world.now, ..Facts::default() };
        Self { random, world, server, clients, facts, tally: Tally::default() }
    }

    fn step(&mut self) {
        let holder = self.random.below(HOLDERS);
        let is_active = self.world.holders[holder].state.is_active();
        match self.random.below(24) {
            0 if is_active => {
                self.world.holders[holder].rotate();
                self.world.registry.put(&self.world.holders[holder]);
            }
            1 if is_active => {
                self.world.holders[holder].end();
                self.world.registry.put(&self.world.holders[holder]);
            }
            2 | 13 => self.revoke(holder),
            3 => self.world.now += [1, 40, 400, 4000][self.random.below(4)],
            4 | 5 => {
                self.world.node = [Node::Answers, Node::Old, Node::Silent][self.random.below(3)];
                self.world.now += [0, 70][self.random.below(2)];
            }
            6 | 7 => {
                self.server.restart(self.world.now);
                self.facts.answered = self.world.now;
            }
            8 => self.server.list = self.world.list(self.random.below(2)),
            9 if is_active => {
                let keys = [(); 2].map(|()| self.random.below(2));
                // The server with the root over its peers needs the proof of membership.
                let with_proof = self.world.members.is_some() || self.random.below(3) > 0;
                self.clients.push(Client::new(&self.world, holder, keys, with_proof));
            }
            10 => {
                if self.server.look_up(&self.world, &self.world.holders[holder].did().clone()) {
                    self.learn(holder);
                }
            }
            11 => self.world.change_issuer(),
            12 => self.reload(),
            _ => {
                // The newest client comes as often as all others.
                let newest = self.clients.len() - 1;
                let at = [self.random.below(newest + 1), newest][self.random.below(2)];
                self.visit(at);
            }
        }
        self.watch();
    }

    /// A revocation, which another client brings along.
    fn revoke(&mut self, holder: usize) {
        self.world.now += 1;
        self.world.bits.set(holder as u64, true).unwrap();
        let other = (holder + 1) % HOLDERS;
        if self.world.holders[other].state.is_active() {
            let keys = [(); 2].map(|()| self.random.below(2));
            self.clients.push(Client::new(&self.world, other, keys, true));
        }
    }

    /// Another listener begins its watch, perhaps in the place of the first one.
    fn reload(&mut self) {
        self.server.watches.push(self.server.documents.watch(instant(self.world.now)));
        if self.server.watches.len() > 2 {
            self.server.watches.remove(0);
        }
    }

    /// The registry is silent exactly if no watch has had an answer for a minute, whatever peers have shown.
    fn watch(&mut self) {
        self.server.watch(&self.world, self.random.below(2));
        if self.world.node != Node::Silent {
            self.facts.answered = self.world.now;
        }
        let silent = u64::try_from(self.world.now - self.facts.answered).unwrap();
        assert_eq!(self.server.documents.is_silent(), silent >= SILENT_TIME.as_secs());
    }

    /// The server has asked the registry about a holder.
    fn learn(&mut self, holder: usize) {
        let state = &self.world.holders[holder].state;
        self.facts.sequence[holder] = state.sequence().max(self.facts.sequence[holder]);
        self.facts.ended[holder] |= !state.is_active();
    }

    /// A client comes in every way, in random order.
    fn visit(&mut self, at: usize) {
        if self.clients[at].holder == HOLDERS && self.world.peers.is_some() {
            return self.refuse(at);
        }
        let client = &self.clients[at];
        let holder = client.holder;
        let mut ways = WAYS;
        for last in (1..ways.len()).rev() {
            ways.swap(last, self.random.below(last + 1));
        }
        let before = client.frozen.as_ref().map(|(_, peer)| self.belief(peer));
        let was_removed = self.has_removed(&client.methods[0]);
        let outages = self.server.outages();
        // The full handshake may ask the registry, and what it learns counts for the others from then on.
        let first = ways.map(|way| self.server.meet(&self.world, client, way));
        let verdicts = ways.map(|way| self.server.meet(&self.world, client, way));
        let full = ways.iter().position(|way| *way == Way::Full).unwrap();
        let is_accepted = first[full].is_ok();
        let shown: Vec<_> = ways.iter().zip(first.iter().zip(&verdicts)).collect();
        let over = |error: &Error| error.alert() == Some(Alert::CERTIFICATE_REVOKED);
        // A full handshake that cannot ask the registry has no verdict, and earlier ones last for their time.
        let answers = self.world.node == Node::Answers;
        if is_accepted || answers || first[full].as_ref().is_err_and(over) {
            let after = first[full..].iter().chain(&verdicts);
            assert!(after.map(Result::is_ok).all(|is_ok| is_ok == is_accepted), "{shown:?}");
        }
        if first.iter().any(Result::is_ok) {
            assert!(!client.is_over, "accepted again: {shown:?}");
            assert!(!self.facts.ended[holder], "the DID has ended: {shown:?}");
            assert!(self.facts.sequence[holder] <= client.sequence, "the key was replaced: {shown:?}");
            assert!(!self.facts.revoked[holder], "the credential is revoked: {shown:?}");
            assert!(!was_removed, "the issuer has removed its key: {shown:?}");
        }
        if is_accepted {
            self.facts.sequence[holder] = client.sequence;
        }
        // A list by a key that the issuer has removed says nothing, nor does one by a key of a document that
        // the server has not seen.
        if is_accepted && self.has_key(&client.methods[1]) {
            for (number, revoked) in self.facts.revoked.iter_mut().enumerate() {
                *revoked |= client.bits.get(number as u64).unwrap();
            }
        }
        let is_over = verdicts.iter().any(|verdict| verdict.as_ref().is_err_and(over));
        self.tally.accepted += usize::from(is_accepted);
        self.tally.refused += usize::from(!is_accepted);
        self.tally.over += usize::from(is_over);
        self.tally.removed += usize::from(!is_accepted && self.has_removed(&client.methods[0]));
        self.tally.outages += self.server.outages() - outages;
        if let Some(before) = before {
            self.thaw(at, before, is_accepted);
        }
        let client = &mut self.clients[at];
        client.is_over |= is_over;
        if is_accepted {
            self.server.freeze(&self.world, client);
        }
    }

    /// A stranger, whose credential and proof are right, costs nothing and leaves nothing.
    fn refuse(&mut self, at: usize) {
        let kept = |server: &Server| {
            let lists = server.verifier.status_lists().iter().count();
            (server.known.records(), server.documents.newest(), lists, server.asked.get())
        };
        let before = kept(&self.server);
        for way in WAYS {
            let refused = self.server.meet(&self.world, &self.clients[at], way).unwrap_err();
            assert_eq!(refused.alert(), Some(Alert::UNKNOWN_CA), "{refused}");
        }
        assert!(kept(&self.server) == before, "something of a stranger was kept or looked up");
        self.tally.strangers += 1;
    }

    /// Whether the issuer has this key in the document that the server knows to be the latest.
    fn has_key(&self, method: &DidUrl) -> bool {
        let known = self.server.known_issuer(&self.world);
        let document = known.and_then(|known| self.world.issuer.documents.get(known));
        document.is_some_and(|document| document.find(method, Relationship::AssertionMethod).is_ok())
    }

    /// Whether the server knows that the issuer has removed this key.
    fn has_removed(&self, method: &DidUrl) -> bool {
        let Some(known) = self.server.known_issuer(&self.world) else { return false };
        let has = |document: &DidDocument| document.find(method, Relationship::AssertionMethod).is_ok();
        let (before, since) = self.world.issuer.documents.split_at(known);
        before.iter().any(has) && !since.first().is_some_and(has)
    }

    fn belief(&self, peer: &PeerIdentity) -> Belief {
        self.server.verifier.still_believes(peer, clock(self.world.now))
    }

    /// An association of this client goes on, unless the server knows better; or until the answer in the
    /// background says so. `before` is what the server knew before the client has come again, and
    /// `is_accepted` what has come of that.
    fn thaw(&mut self, at: usize, before: Belief, is_accepted: bool) {
        let Some((bytes, peer)) = &self.clients[at].frozen else { return };
        let is_current = self.has_current_issuer(peer);
        assert!(
            before != Belief::Ended || !is_accepted || !is_current,
            "an association of a client with a place has ended"
        );
        let thawed = DtlsConnection::thaw_server(&self.server.configs[0], bytes, clock(self.world.now));
        match (self.belief(peer), thawed) {
            (Belief::Ended, thawed) => assert!(thawed.is_err()),
            (_, Ok(_)) => self.tally.thawed += 1,
            // The verdict itself has ended.
            (_, Err(Error::Authentication(AuthenticationFailure::Expired(_)))) => return,
            (belief, Err(error)) => panic!("{belief:?}: {error}"),
        }
        let peer = peer.clone();
        let shown = CredentialIdentity::of(&peer).unwrap();
        let asked = [&shown.did, &shown.issuer].map(|did| self.server.look_up(&self.world, did));
        if asked == [true; 2] {
            let holder = self.clients[at].holder;
            self.learn(holder);
            let belief = self.belief(&peer);
            let again = self.server.meet(&self.world, &self.clients[at], Way::Full);
            assert!(again.is_ok() || belief != Belief::Holds, "{again:?}");
            assert!(again.is_err() || belief != Belief::Ended || !self.has_current_issuer(&peer));
            self.tally.ended_by_answer += usize::from(belief == Belief::Ended);
        }
    }

    /// Whether the server knows no later document of the issuer than the one behind this association, which
    /// ends with another document.
    fn has_current_issuer(&self, peer: &PeerIdentity) -> bool {
        let (document, sequence) = CredentialIdentity::of(peer).unwrap().issuer_document.unwrap();
        self.server.documents.standing(&self.server.issuer, &document, sequence) != Standing::Outdated
    }
}

/// The histories of each `threads`-th seed from `first` on.
fn run(first: u64, threads: u64, number: u64) -> Tally {
    let mut all = Tally::default();
    for seed in (first..number).step_by(usize::try_from(threads).unwrap()) {
        let mut history = History::new(seed);
        let told = catch_unwind(AssertUnwindSafe(|| (0..STEPS).for_each(|_| history.step())));
        assert!(told.is_ok(), "the history of the seed {seed}");
        all.add(&history.tally);
    }
    all
}

#[test]
fn every_way_to_connect_gives_one_verdict() {
    let number = std::env::var("DUNLIN_HISTORIES").map_or(1000, |number| number.parse().unwrap());
    if let Ok(seed) = std::env::var("DUNLIN_HISTORY") {
        let seed = seed.parse().unwrap();
        println!("{:?}", run(seed, 1, seed + 1));
        return;
    }
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let mut all = Tally::default();
    std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads).map(|first| scope.spawn(move || run(first, threads, number))).collect();
        running.into_iter().for_each(|running| all.add(&running.join().unwrap()));
    });
    println!("{all:?}");
    let Tally { accepted, refused, over, thawed, ended_by_answer, outages, strangers, removed } = all;
    let counts = [accepted, refused, over, thawed, ended_by_answer, outages, strangers, removed];
    assert!(counts.iter().all(|count| *count > 0), "{all:?}");
}
