//! Decentralised identities in TLS 1.3 beside certificates: bytes, latency at the server, and the paper's
//! model.
//!
//! Both sides have the paper's suite and group, one type of keys, and no server name, session ID or ticket. A
//! new pair of holders is drawn for each handshake. Both ends run in memory on one thread, so the latency has
//! no network in it, except for look-ups in a registry: those go over real sockets and the lab's own link.

mod case;
mod handshake;
mod kind;
mod node;
mod paper;
mod people;
mod resolver;

use std::sync::{Arc, Mutex};

use case::{Case, Resolver, cases, network_cases};
use dunlin::auth::Verifiers;
use dunlin::crypto::CryptoProvider;
use dunlin::{ClientAuth, ClientConfig, Credential, Profile, Question, ServerConfig};
use dunlin_pki::KeyType;
use fastrand::Rng;
use handshake::{Handshake, Side, handshake};
use kind::Kind;
use node::{LookUpBytes, Node};
use people::{Holder, Judge, People};
use resolver::{LookUps, LookedUp, Staples};

use super::keys::schemes;
use super::watch::{self, WatchedVerifier};
use super::{Experiment, Plan, Progress, Way};
use crate::Error;
use crate::error::failed;
use crate::link::in_real_time;
use crate::net::Ground;
use crate::report::{About, Row, median_of};

/// The holders of each type of keys, from which every handshake draws.
const HOLDERS: usize = 100;
/// The holders in a quick run: one for each side.
const QUICK_HOLDERS: usize = 2;
/// The handshakes before the first measured one, of each case. The second one can resume a connection to the
/// registry.
const WARM_UP: u32 = 2;
/// The DIDs in the registry whose proofs the holders staple, also in a quick run.
const REGISTERED: usize = 100_000;
const QUICK_REGISTERED: usize = 1000;
/// The delays of the link to the registry in each direction, in milliseconds, and that of a quick run.
const DELAYS_MS: [u32; 3] = [0, 5, 15];
const QUICK_DELAYS_MS: [u32; 1] = [5];
/// The most handshakes of a case whose resolver asks over the network.
const NETWORK_RUNS: u32 = 100;
/// The types of keys: those of the paper, and a post-quantum one.
const KEY_TYPES: [KeyType; 4] = [KeyType::Rsa2048, KeyType::P256, KeyType::Ed25519, KeyType::MlDsa44];
/// The types of keys of the registry's DIDs: ML-DSA does not sign its operations.
const NETWORK_KEY_TYPES: [KeyType; 3] = [KeyType::Rsa2048, KeyType::P256, KeyType::Ed25519];
/// The percentiles of figures 4 and 5.
const PERCENTILES: [usize; 7] = [1, 5, 25, 50, 75, 95, 99];

/// The experiment `identity`.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "identity",
    about: About {
        subject: "cost of handshakes with certificates, credentials and bare DIDs",
        paper: Some(
            "L. Perugini, A. Vesco: On the Integration of Self-Sovereign Identity with TLS 1.3 Handshake to Build Trust in \
             IoT Systems, LINKS Foundation.",
        ),
        terms: &[
            ("x509", "a certificate and that of its issuer, below the root that the peer trusts; lean form"),
            ("vc", "a verifiable credential, in the message VC"),
            ("did", "a bare decentralised identifier, in the message DID"),
            ("json", "the credential is JSON with a proof, as in the paper"),
            ("json_status", "the same with an entry in a status list that the verifier has"),
            ("compact", "the credential is CBOR and COSE"),
            ("cached", "the verifier already has the document of the peer's DID"),
            ("stapled", "the peer sends the document and its proof along; the registry has 100,000 DIDs"),
            ("network", "the verifier asks a registry over HTTPS, by a full handshake"),
            ("network_resumed", "the same with a resumption, in which the request is early data"),
            ("network_hmac", "the verifier asks a registry by a datagram; HMAC authenticates the answer"),
            ("delay", "that of the link to the registry, in each direction"),
            ("server, client", "what each side shows"),
            ("certificate", "the peer's certificate chain (the paper's T_C)"),
            ("model", "the latency by equations (1), (2) and (5) to (8) of the paper"),
        ],
    },
    packages: &[],
    ways: &[Way::Real, Way::Virtual],
    runs: 1000,
    run,
};

fn run(plan: &Plan, progress: &Progress, rows: &mut Vec<Row>) -> Result<(), Error> {
    let provider = Arc::new(watch::provider(&dunlin_awslc::provider()));
    let (network_keys, delays): (&[KeyType], &[u32]) = match (plan.way, plan.quick) {
        (Way::Virtual, _) => (&[], &[]),
        (Way::Real, true) => (&[KeyType::P256], &QUICK_DELAYS_MS),
        (Way::Real, false) => (&NETWORK_KEY_TYPES, &DELAYS_MS),
    };
    let network_runs = plan.runs.min(NETWORK_RUNS);
    let runs = plan.runs as usize * KEY_TYPES.len();
    progress.steps(KEY_TYPES.len() + runs + network_keys.len() * delays.len() * network_runs as usize);
    let ground = (plan.way == Way::Real).then(Ground::new).transpose()?;
    for key_type in KEY_TYPES {
        progress.now(key_type.name());
        let lab = Lab::new(plan, &provider, key_type)?;
        progress.step();
        rows.extend(lab.in_memory(plan.runs, progress)?);
        let Some(ground) = ground.as_ref().filter(|_| network_keys.contains(&key_type)) else { continue };
        for delay_ms in delays {
            rows.extend(lab.over_network(ground, *delay_ms, network_runs, progress)?);
        }
    }
    Ok(())
}

/// The state that all cases of a key type share.
struct Lab {
    key_type: KeyType,
    people: People,
    staples: Staples,
    seed: u64,
}

impl Lab {
    fn new(plan: &Plan, provider: &Arc<CryptoProvider>, key_type: KeyType) -> Result<Self, Error> {
        let mut random = Rng::with_seed(plan.seed);
        let (holders, registered) =
            if plan.quick { (QUICK_HOLDERS, QUICK_REGISTERED) } else { (HOLDERS, REGISTERED) };
        let people = People::new(provider.clone(), key_type, holders, &mut random)?;
        let staples = Staples::new(&people, registered, &mut random)?;
        Ok(Self { key_type, people, staples, seed: plan.seed })
    }

    /// The paper's tables and figures, without a network.
    fn in_memory(&self, runs: u32, progress: &Progress) -> Result<Vec<Row>, Error> {
        let cases = cases(self.key_type).into_iter().map(|case| Measured::new(case, self, None));
        let mut cases = cases.collect::<Result<Vec<_>, _>>()?;
        watch::undisturbed(|| self.measure(&mut cases, runs, progress))?;
        let mut rows = case_rows(&cases);
        rows.extend(message_rows(self.key_type, &cases));
        rows.extend(difference_rows(&cases));
        Ok(rows)
    }

    /// The cases whose resolvers ask a registry behind a link with this delay.
    fn over_network(
        &self,
        ground: &Ground,
        delay_ms: u32,
        runs: u32,
        progress: &Progress,
    ) -> Result<Vec<Row>, Error> {
        let node = Arc::new(Node::start(ground, &self.people, delay_ms, self.seed)?);
        let cases = network_cases(self.key_type, delay_ms);
        let cases = cases.into_iter().map(|case| Measured::new(case, self, Some(&node)));
        let mut cases = cases.collect::<Result<Vec<_>, _>>()?;
        node.pair.client.run(|| {
            in_real_time();
            self.measure(&mut cases, runs, progress)
        })??;
        // The original handshakes have rows already.
        let is_original = |row: &Row| row.get("resolver").is_none();
        Ok(case_rows(&cases).into_iter().filter(|row| !is_original(row)).collect())
    }

    /// Measures the cases in turns, so that other programs disturb all alike.
    fn measure(&self, cases: &mut [Measured], runs: u32, progress: &Progress) -> Result<(), Error> {
        let mut random = Rng::with_seed(self.seed);
        for measured in &mut *cases {
            for _ in 0..WARM_UP {
                measured.draw(&mut random)?;
            }
        }
        for _ in 0..runs {
            for measured in &mut *cases {
                let done = measured.draw(&mut random)?;
                measured.done.push(done);
            }
            progress.step();
        }
        Ok(())
    }
}

/// A case, and its handshakes.
struct Measured {
    case: Case,
    /// The configurations of each holder; of clients that do not authenticate there is one.
    clients: Vec<Arc<ClientConfig>>,
    servers: Vec<Arc<ServerConfig>>,
    /// The resolver of DIDs over the network.
    look_ups: Option<LookUps>,
    /// The length of the server's chain.
    chain: usize,
    done: Vec<Done>,
}

/// A handshake, and the bytes of its look-ups.
struct Done {
    handshake: Handshake,
    look_ups: LookUpBytes,
}

impl Measured {
    fn new(case: Case, lab: &Lab, node: Option<&Arc<Node>>) -> Result<Self, Error> {
        let people = &lab.people;
        let looked_up = Arc::new(LookedUp::default());
        let resolver: Arc<dyn dunlin_identity::handshake::Resolver> = match case.resolver {
            Resolver::Cached => people.cached()?,
            Resolver::Stapled => lab.staples.resolver(&people.provider),
            Resolver::Network(..) => looked_up.clone(),
        };
        let judge = |kind| people.verifier(kind, &resolver);
        let of_server = judge(case.server)?;
        let of_client = case.client.map(judge).transpose()?;
        let judges = [Some(&of_server), of_client.as_ref()].into_iter().flatten().cloned().collect();
        let trust = |judge: Option<&Judge>| match judge {
            Some(judge) => Verifiers::default().with(Arc::new(WatchedVerifier(judge.verifier()))),
            None => Verifiers::default(),
        };
        let of_server = trust(Some(&of_server));
        let of_client = trust(of_client.as_ref());
        let shown = |holder: &Holder, kind| {
            let stapled = case.resolver == Resolver::Stapled;
            let staple = stapled.then(|| lab.staples.of(&people.provider, holder)).transpose()?;
            people.credential(holder, kind, case.form, staple)
        };
        let server = |holder: &Holder| {
            let own = vec![shown(holder, case.server)?];
            let server =
                ServerConfig::new(profile(people, &case, of_client.clone(), own)?).map_err(failed)?;
            let auth = if case.client.is_some() { ClientAuth::Required } else { ClientAuth::None };
            Ok(Arc::new(server.with_client_auth(auth).map_err(failed)?))
        };
        let client = |own: Vec<Credential>| {
            let client = ClientConfig::new(profile(people, &case, of_server.clone(), own)?);
            Ok(Arc::new(client.with_server_name_sent(false)))
        };
        let clients = match case.client {
            None => vec![client(Vec::new())?],
            Some(kind) => {
                let clients = people.holders.iter().map(|holder| client(vec![shown(holder, kind)?]));
                clients.collect::<Result<_, Error>>()?
            }
        };
        let servers = people.holders.iter().map(server).collect::<Result<_, Error>>()?;
        let chain = people.holders.first().map_or(0, |holder| holder.chain.len());
        let look_ups = match (case.resolver, node) {
            (Resolver::Network(asking, _), Some(node)) => {
                let provider = people.provider.clone();
                let node = node.clone();
                let bytes = Mutex::default();
                Some(LookUps { provider, judges, looked_up, asking, node, bytes })
            }
            _ => None,
        };
        Ok(Self { case, clients, servers, look_ups, chain, done: Vec::new() })
    }

    /// Runs a handshake between random holders.
    fn draw(&self, random: &mut Rng) -> Result<Done, Error> {
        let client =
            self.clients.get(random.usize(..self.clients.len())).ok_or_else(|| failed("no client"))?;
        let server =
            self.servers.get(random.usize(..self.servers.len())).ok_or_else(|| failed("no server"))?;
        let Some(look_ups) = &self.look_ups else {
            let nobody = |_: &Question| Err(failed("a document is missing"));
            let handshake = handshake(client, server, &nobody)?;
            return Ok(Done { handshake, look_ups: LookUpBytes::default() });
        };
        let handshake = handshake(client, server, &|question| look_ups.answer(question))?;
        look_ups.node.settle()?;
        Ok(Done { handshake, look_ups: look_ups.take_bytes() })
    }

    fn figures(&self, of: impl Fn(&Handshake) -> f64) -> Vec<f64> {
        self.done.iter().map(|done| of(&done.handshake)).collect()
    }

    fn latencies_ms(&self) -> Vec<f64> {
        self.figures(|done| done.latency.as_secs_f64() * 1e3)
    }

    /// The row of the case, beside the original handshake, the model and the paper.
    fn row(&self, all: &[Self]) -> Row {
        let case = &self.case;
        let us = |side: Side| side.time.as_secs_f64() * 1e6;
        let latencies = self.latencies_ms();
        let latency = median_of(&latencies);
        let paper = case.paper();
        let bytes = paper.as_ref().and_then(|paper| paper.bytes.as_ref());
        let mut row = case
            .row()
            .figure("server_bytes", &self.figures(|done| done.server.sent_bytes as f64))
            .paper("server_bytes", bytes.map(|bytes| bytes.total))
            .figure("client_bytes", &self.figures(|done| done.client.sent_bytes as f64));
        if case.client.is_none() {
            let signatures = |done: &Handshake| done.client.operations.signature_bytes as f64;
            row = row
                .figure("public_key_bytes", &self.figures(|done| self.public_key_bytes(done)))
                .paper("public_key_bytes", bytes.map(|bytes| bytes.public_keys))
                .figure("signature_bytes", &self.figures(signatures))
                .paper("signature_bytes", bytes.map(|bytes| bytes.signatures));
        }
        let row = row
            .figure("latency_ms", &latencies)
            .paper("latency_ms", paper.as_ref().map(|paper| paper.latency_ms))
            .figure("client_us", &self.figures(|done| us(done.client)))
            .figure("server_us", &self.figures(|done| us(done.server)));
        let row = if self.look_ups.is_some() { self.with_look_ups(row) } else { row };
        let original = find(all, &case.original()).filter(|_| !case.is_original());
        let Some(original) = original.map(|original| median_of(&original.latencies_ms())) else { return row };
        let row = row.figure("latency_of_x509_percent", &[latency / original * 100.0]);
        let message = |kind| find(all, &case.unilateral(kind)).map(|of| median_of(&of.messages_ms()));
        let mut kinds = [Some(case.server), case.client].into_iter().flatten().chain([Kind::X509]);
        if kinds.any(|kind| message(kind).is_none()) {
            return row;
        }
        let model =
            paper::model(original, case.server, case.client, |kind| message(kind).unwrap_or_default());
        let error = |model: f64, latency: f64| (model / latency - 1.0) * 100.0;
        let papers = paper.and_then(|paper| Some((paper.model_ms?, paper.latency_ms)));
        row.figure("model_ms", &[model])
            .figure("model_error_percent", &[error(model, latency)])
            .paper("model_ms", papers.map(|(model, _)| model))
            .paper("model_error_percent", papers.map(|(model, latency)| error(model, latency)))
    }

    /// Adds the bytes between both sides and the registry. In the paper, a server sends 377 to resolve the
    /// DID of its client.
    fn with_look_ups(&self, row: Row) -> Row {
        let of = |bytes: fn(&LookUpBytes) -> usize| {
            self.done.iter().map(|done| bytes(&done.look_ups) as f64).collect::<Vec<_>>()
        };
        row.figure("resolver_bytes", &of(|bytes| bytes.sent))
            .paper("resolver_bytes", self.case.client.is_none().then_some(paper::RESOLVER_BYTES))
            .figure("resolver_answer_bytes", &of(|bytes| bytes.received))
    }

    /// The times in which the client has judged the identity of the server, in milliseconds.
    fn messages_ms(&self) -> Vec<f64> {
        self.figures(|done| done.client.operations.identity.as_secs_f64() * 1e3)
    }

    /// The bytes of the public keys that the server has sent: those of its chain. The keys of credentials and
    /// DIDs come from elsewhere.
    fn public_key_bytes(&self, done: &Handshake) -> f64 {
        let client = &done.client.operations;
        match self.case.server {
            // One key verifies each signature, and all have the same length.
            Kind::X509 => (client.public_key_bytes * self.chain) as f64 / f64::from(client.verified.max(1)),
            Kind::Vc | Kind::Did => 0.0,
        }
    }
}

/// A profile with the paper's suite and group.
fn profile(people: &People, case: &Case, trust: Verifiers, own: Vec<Credential>) -> Result<Profile, Error> {
    let group = people.provider.group(dunlin::wire::NamedGroup::X25519);
    let profile = Profile::builder(people.provider.clone())
        .compatibility_mode(false)
        .cipher_suites(vec![&dunlin_awslc::TLS13_AES_256_GCM_SHA384])
        .groups(vec![group.ok_or_else(|| failed("a group is missing"))?])
        .signature_schemes(schemes(case.key_type))
        .ssi_messages(case.messages())
        .trust(trust)
        .credentials(own);
    profile.build().map_err(failed)
}

fn find<'a>(cases: &'a [Measured], wanted: &Case) -> Option<&'a Measured> {
    cases.iter().find(|measured| measured.case == *wanted)
}

fn case_rows(cases: &[Measured]) -> Vec<Row> {
    cases.iter().map(|measured| measured.row(cases)).collect()
}

/// The handshakes in which the server alone authenticates, as the paper's, with cached documents.
fn unilateral(cases: &[Measured], kind: Kind) -> Option<&Measured> {
    cases.iter().find(|of| of.case.server == kind && of.case.client.is_none() && of.case.is_of_paper())
}

/// The times for judging each kind of identity, in milliseconds: T_C, T_V + T_D and T_D of the paper.
fn message_ms(cases: &[Measured], kind: Kind) -> Vec<f64> {
    unilateral(cases, kind).map(Measured::messages_ms).unwrap_or_default()
}

/// The rows of Table III.
fn message_rows(key_type: KeyType, cases: &[Measured]) -> Vec<Row> {
    let row = |message: &str, measured: Vec<f64>, paper: Option<f64>| {
        let row = Row::new().with("stack", "dunlin").with("credential", key_type.name());
        row.with("message", message).figure("verify_ms", &measured).paper("verify_ms", paper)
    };
    let signature = |done: &Handshake| {
        let client = &done.client.operations;
        client.verifying.as_secs_f64() * 1e3 / f64::from(client.verified.max(1))
    };
    let signatures = unilateral(cases, Kind::X509).map(|of| of.figures(signature)).unwrap_or_default();
    let names = [("certificate", Kind::X509), ("vc", Kind::Vc), ("did", Kind::Did)];
    let messages =
        names.map(|(name, kind)| row(name, message_ms(cases, kind), paper::message_ms(key_type, kind)));
    let signature = row("signature", signatures, paper::signature_ms(key_type));
    [signature].into_iter().chain(messages).collect()
}

/// The rows of figures 4 and 5: how much longer a handshake with credentials takes than one with
/// certificates, as measured and by the model, each sorted. Handshakes of the same turn are compared.
fn difference_rows(cases: &[Measured]) -> Vec<Row> {
    let sorted = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values
    };
    let certificates = message_ms(cases, Kind::X509);
    let credentials = message_ms(cases, Kind::Vc);
    let deltas: Vec<_> = credentials.iter().zip(&certificates).map(|(vc, x509)| vc - x509).collect();
    let mut rows = Vec::new();
    for (figure, client, sides) in [("4", None, 1.0), ("5", Some(Kind::Vc), 2.0)] {
        let vc = cases
            .iter()
            .find(|of| of.case.server == Kind::Vc && of.case.client == client && of.case.is_of_paper());
        let Some(vc) = vc else { continue };
        let Some(x509) = cases.iter().find(|of| of.case == vc.case.original()) else { continue };
        let measured = vc.latencies_ms().into_iter().zip(x509.latencies_ms()).map(|(vc, x509)| vc - x509);
        let measured = sorted(measured.collect());
        let model = sorted(deltas.iter().map(|delta| delta * sides).collect());
        for percentile in PERCENTILES {
            let at = |values: &[f64]| values.get(values.len().saturating_sub(1) * percentile / 100).copied();
            let (Some(measured), Some(model)) = (at(&measured), at(&model)) else { continue };
            let row = Row::new().with("stack", "dunlin").with("credential", vc.case.key_type.name());
            let is_mean = figure == "4" && percentile == 50 && vc.case.key_type == KeyType::P256;
            rows.push(
                row.with("figure", figure)
                    .with("percentile", percentile)
                    .figure("difference_ms", &[measured])
                    .figure("model_difference_ms", &[model])
                    .paper("difference_ms", is_mean.then_some(paper::FIGURE_4)),
            );
        }
    }
    rows
}
