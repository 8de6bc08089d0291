//! Random histories of a registry, an issuer, holders and a server: full, cached, resumed, restarted and thawed connections give one verdict.
//!
//! `DUNLIN_HISTORIES` is their number.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use dunlin::auth::{Acceptance, Belief, DidProofs, KnownRegistry, Trust, Verifier as _, Verifiers};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::error::AuthenticationFailure;
use dunlin::resume::Tickets;
use dunlin::wire::AlertDescription as Alert;
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, DtlsConnection, Error, Now, PeerIdentity, Profile,
    Question, ServerConfig,
};
use dunlin_identity::credential::status::{Bitstring, StatusEntry, StatusPurpose};
use dunlin_identity::credential::{CREDENTIALS_V2, Contexts, Issuer, Seconds};
use dunlin_identity::did::{Did, DidUrl};
use dunlin_identity::document::{DidDocument, Relationship};
use dunlin_identity::handshake::{
    CredentialIdentity, CredentialVerifier, Known, ListedIssuer, Refusal, RegistryDocuments, Stapled,
};
use dunlin_identity::holding::Holding;
use dunlin_identity::knowledge::{Knowledge, Record};
use dunlin_identity::registry::checkpoint::RegistryTrust;
use dunlin_identity::registry::staple::StapleError;
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_store::{MemoryClientCache, MemoryClientSessions, MemoryServerCache, RotatingTickets};
use dunlin_tests::{KeyType, Pair, Pki, awslc, localhost};
use serde_json::json;

use super::registered::{Holder, Registry};

const BEGIN: Seconds = 1_767_225_600;
const HOLDERS: usize = 3;
const LIST: &str = "https://issuer.example/status/1";
const OUTAGE_AGE: Seconds = 3600;
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

/// What has really happened.
struct World {
    registry: Registry,
    issuer: Holder,
    holders: Vec<Holder>,
    /// Of the issuer's list, a bit for each holder.
    bits: Bitstring,
    now: Seconds,
    /// Whether the registry answers.
    answers: bool,
}

impl World {
    fn new() -> Self {
        let (issuer, holders): (_, Vec<_>) = (Holder::new(), (0..HOLDERS).map(|_| Holder::new()).collect());
        let mut registry = Registry::new();
        registry.put(&issuer);
        holders.iter().for_each(|holder| registry.put(holder));
        Self { registry, issuer, holders, bits: Bitstring::default(), now: BEGIN, answers: true }
    }

    fn issuing<T>(&self, issue: impl FnOnce(&Issuer<'_>) -> T) -> T {
        let (provider, method) = (awslc(), method(self.issuer.document(), Relationship::AssertionMethod));
        issue(&Issuer { provider: &provider, signer: &*self.issuer.key, method: &method })
    }

    fn credential(&self, holder: usize) -> Vec<u8> {
        let entry =
            StatusEntry { list: LIST.to_owned(), index: holder as u64, purpose: StatusPurpose::Revocation };
        let credential = json!({
            "@context": [CREDENTIALS_V2],
            "type": ["VerifiableCredential"],
            "issuer": self.issuer.did().as_str(),
            "credentialSubject": {"id": self.holders[holder].did().as_str()},
            "credentialStatus": entry.to_value(),
        });
        self.issuing(|issuer| issuer.issue_compact(&credential, &Contexts::default()).unwrap())
    }

    /// The issuer's list, as it is now.
    fn list(&self) -> Vec<u8> {
        let (did, until) = (self.issuer.did(), self.now + 400_000);
        let list = self.bits.credential(did, LIST, StatusPurpose::Revocation, self.now, until).unwrap();
        self.issuing(|issuer| issuer.issue_jwt(&list, &Contexts::default()).unwrap().into_bytes())
    }

    fn of(&self, did: &Did) -> &Holder {
        self.holders.iter().chain([&self.issuer]).find(|holder| holder.did() == did).unwrap()
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

/// A client with the key, proof, credential and list of one moment. Later it may be a thief who has stolen them.
struct Client {
    holder: usize,
    sequence: u64,
    /// The bits in its list.
    bits: Bitstring,
    configs: [Arc<ClientConfig>; 3],
    frozen: Option<(Vec<u8>, PeerIdentity)>,
    /// Whether the server has refused it for good.
    is_over: bool,
}

impl Client {
    fn new(world: &World, holder: usize, with_proof: bool) -> Self {
        let own = &world.holders[holder];
        let method = method(own.document(), Relationship::Authentication);
        let credential = world.credential(holder);
        let holding =
            Holding::of_credential(own.key.clone(), method, credential, &Contexts::default()).unwrap();
        let holding = holding.with_status(&[world.list()]).unwrap();
        let proof = world.registry.staple(own, world.now).write().unwrap();
        let holding = if with_proof { holding.with_proofs(Arc::new(Fixed(proof))) } else { holding };
        let credential = holding.to_tls(&awslc()).unwrap();
        let x509 = Trust { x509: Some(Pki::shared(KeyType::P256).trust()), raw_key: None };
        let profile = Profile::builder(awslc()).trust(x509).credentials(vec![credential]).build().unwrap();
        let config = ClientConfig::new(profile);
        let sessions = config.clone().with_sessions(Arc::new(MemoryClientSessions::new(8, 8)));
        let cache = Arc::new(MemoryClientCache::default());
        let cached = config.clone().with_handshake_cache(CacheMode::Compact, cache, DEFAULT_MAX_AGE);
        let configs = [config, sessions, cached].map(Arc::new);
        let (sequence, bits) = (own.state.sequence(), world.bits.clone());
        Self { holder, sequence, bits, configs, frozen: None, is_over: false }
    }
}

/// The server, with everything that its restarts keep.
struct Server {
    trust: RegistryTrust,
    issuer: Did,
    /// The file with a status list.
    list: Vec<u8>,
    tickets: Arc<RotatingTickets>,
    cache: Arc<MemoryServerCache>,
    known: Arc<Known>,
    documents: Arc<RegistryDocuments>,
    verifier: Arc<CredentialVerifier>,
    configs: [Arc<ServerConfig>; 3],
}

impl Server {
    fn new(world: &World) -> Self {
        let tickets = Arc::new(RotatingTickets::new(awslc()).unwrap());
        let cache = Arc::new(MemoryServerCache::new(64));
        let (trust, issuer) = (world.registry.trust(), world.issuer.did().clone());
        Self::begin(trust, issuer, world.list(), tickets, cache, &[])
    }

    fn begin(
        trust: RegistryTrust,
        issuer: Did,
        list: Vec<u8>,
        tickets: Arc<RotatingTickets>,
        cache: Arc<MemoryServerCache>,
        records: &[Record],
    ) -> Self {
        let known = Arc::new(Known::new(Knowledge::default()));
        known.merge(records.iter().map(|record| Record::read(&record.to_bytes()).unwrap()));
        let documents = RegistryDocuments::new(awslc(), trust.clone()).with_known(known.clone());
        let documents = Arc::new(documents.with_outage(OUTAGE_AGE, |_| {}));
        let verifier = CredentialVerifier::new(awslc(), Vec::<DidDocument>::new())
            .with_known(known.clone())
            .with_resolved_issuers([ListedIssuer::from(issuer.clone())])
            .with_unverified_status([list.clone()])
            .with_resolver(documents.clone())
            .asking();
        let verifier = Arc::new(verifier);
        let own: Credential = Pki::shared(KeyType::P256).server.x509(&awslc());
        let trusts = Verifiers::default().with(verifier.clone());
        let profile = Profile::builder(awslc()).trust(trusts).credentials(vec![own]).build().unwrap();
        let config = ServerConfig::new(profile).unwrap().with_client_auth(ClientAuth::Required).unwrap();
        let resumes = config.clone().with_tickets(Tickets::stateless(tickets.clone()));
        let caches = config.clone().with_handshake_cache(CacheMode::Compact, cache.clone(), DEFAULT_MAX_AGE);
        let configs = [config, resumes, caches.unwrap()].map(Arc::new);
        Self { trust, issuer, list, tickets, cache, known, documents, verifier, configs }
    }

    fn restart(&mut self) {
        let (tickets, cache, list) = (self.tickets.clone(), self.cache.clone(), self.list.clone());
        *self =
            Self::begin(self.trust.clone(), self.issuer.clone(), list, tickets, cache, &self.known.records());
    }

    /// Asks the registry about a DID.
    fn look_up(&self, world: &World, did: &Did) -> bool {
        if !world.answers {
            return false;
        }
        let staple = world.registry.staple(world.of(did), world.now);
        let newest = self.documents.newest();
        match self.documents.verify(did, &staple, newest.as_ref(), world.now) {
            Ok(resolved) => assert_eq!(self.documents.keep(&resolved, newest.as_ref(), world.now), Ok(true)),
            Err(StapleError::Deactivated(did)) => self.documents.deactivate(did),
            Err(error) => panic!("{error}"),
        }
        true
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

    /// What comes of a client; the error is the server's.
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

fn clock(now: Seconds) -> Now {
    Now::from_unix_ms(u64::try_from(now).unwrap() * 1000)
}

/// What the server must know, as this test sees it.
#[derive(Default)]
struct Facts {
    sequence: [u64; HOLDERS],
    ended: [bool; HOLDERS],
    revoked: [bool; HOLDERS],
}

/// How often what has happened, so that the histories say something.
#[derive(Debug, Default)]
struct Tally {
    accepted: usize,
    refused: usize,
    over: usize,
    thawed: usize,
    ended_by_answer: usize,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.over += other.over;
        self.thawed += other.thawed;
        self.ended_by_answer += other.ended_by_answer;
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
        let (world, random) = (World::new(), Random(seed));
        let server = Server::new(&world);
        let clients = (0..HOLDERS).map(|holder| Client::new(&world, holder, true)).collect();
        Self { random, world, server, clients, facts: Facts::default(), tally: Tally::default() }
    }

    fn step(&mut self) {
        let holder = self.random.below(HOLDERS);
        let is_active = self.world.holders[holder].state.is_active();
        match self.random.below(16) {
            0 if is_active => {
                self.world.holders[holder].rotate();
                self.world.registry.put(&self.world.holders[holder]);
            }
            1 if is_active => {
                self.world.holders[holder].end();
                self.world.registry.put(&self.world.holders[holder]);
            }
            2 => {
                self.world.now += 1;
                self.world.bits.set(holder as u64, true).unwrap();
            }
            3 => self.world.now += [1, 40, 400, 4000][self.random.below(4)],
            4 => {
                self.world.answers = !self.world.answers;
                self.server.documents.set_silent(!self.world.answers && self.random.below(2) == 0);
            }
            5 | 6 => {
                let was_silent = !self.world.answers && self.random.below(2) == 0;
                self.server.restart();
                self.server.documents.set_silent(was_silent);
            }
            7 => self.server.list = self.world.list(),
            8 if is_active => {
                let client = Client::new(&self.world, holder, self.random.below(3) > 0);
                self.clients.push(client);
            }
            9 => {
                if self.server.look_up(&self.world, &self.world.holders[holder].did().clone()) {
                    self.learn(holder);
                }
            }
            _ => self.visit(),
        }
    }

    /// The server has asked the registry about a holder.
    fn learn(&mut self, holder: usize) {
        let state = &self.world.holders[holder].state;
        self.facts.sequence[holder] = state.sequence().max(self.facts.sequence[holder]);
        self.facts.ended[holder] |= !state.is_active();
    }

    /// A client comes in every way, in random order.
    fn visit(&mut self) {
        let at = self.random.below(self.clients.len());
        let client = &self.clients[at];
        let holder = client.holder;
        let mut ways = WAYS;
        for last in (1..ways.len()).rev() {
            ways.swap(last, self.random.below(last + 1));
        }
        let before = client.frozen.as_ref().map(|(_, peer)| self.belief(peer));
        // The full handshake may ask the registry, and what it learns counts for the others from then on.
        let first = ways.map(|way| self.server.meet(&self.world, client, way));
        let verdicts = ways.map(|way| self.server.meet(&self.world, client, way));
        let full = ways.iter().position(|way| *way == Way::Full).unwrap();
        let is_accepted = first[full].is_ok();
        let shown: Vec<_> = ways.iter().zip(first.iter().zip(&verdicts)).collect();
        let over = |error: &Error| error.alert() == Some(Alert::CERTIFICATE_REVOKED);
        // A full handshake that cannot ask the registry has no verdict, and earlier ones last for their time.
        if is_accepted || self.world.answers || first[full].as_ref().is_err_and(over) {
            let after = first[full..].iter().chain(&verdicts);
            assert!(after.map(Result::is_ok).all(|is_ok| is_ok == is_accepted), "{shown:?}");
        }
        if first.iter().any(Result::is_ok) {
            assert!(!client.is_over, "accepted again: {shown:?}");
            assert!(!self.facts.ended[holder], "the DID has ended: {shown:?}");
            assert!(self.facts.sequence[holder] <= client.sequence, "the key was replaced: {shown:?}");
            assert!(!self.facts.revoked[holder], "the credential is revoked: {shown:?}");
        }
        if is_accepted {
            self.facts.sequence[holder] = client.sequence;
            for (number, revoked) in self.facts.revoked.iter_mut().enumerate() {
                *revoked |= client.bits.get(number as u64).unwrap();
            }
        }
        let is_over = verdicts.iter().any(|verdict| verdict.as_ref().is_err_and(over));
        self.tally.accepted += usize::from(is_accepted);
        self.tally.refused += usize::from(!is_accepted);
        self.tally.over += usize::from(is_over);
        if let Some(before) = before {
            self.thaw(at, before, is_accepted);
        }
        let client = &mut self.clients[at];
        client.is_over |= is_over;
        if is_accepted {
            self.server.freeze(&self.world, client);
        }
    }

    fn belief(&self, peer: &PeerIdentity) -> Belief {
        self.server.verifier.still_believes(peer, clock(self.world.now))
    }

    /// An association of this client goes on, unless the server knows better; or until the answer in the background says so. `before` is
    /// what the server knew before the client has come again, and `is_accepted` what has come of that.
    fn thaw(&mut self, at: usize, before: Belief, is_accepted: bool) {
        let Some((bytes, peer)) = &self.clients[at].frozen else { return };
        assert!(before != Belief::Ended || !is_accepted, "an association of a client with a place has ended");
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
            assert!(again.is_err() || belief != Belief::Ended);
            self.tally.ended_by_answer += usize::from(belief == Belief::Ended);
        }
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
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let mut all = Tally::default();
    std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads).map(|first| scope.spawn(move || run(first, threads, number))).collect();
        running.into_iter().for_each(|running| all.add(&running.join().unwrap()));
    });
    println!("{all:?}");
    let Tally { accepted, refused, over, thawed, ended_by_answer } = all;
    assert!([accepted, refused, over, thawed, ended_by_answer].iter().all(|count| *count > 0), "{all:?}");
}
