//! The time that a change of the client's address costs, scheme by scheme.
//!
//! A client sends 600 messages, one at a time, each 100 ms after the acknowledgement of the previous one.
//! Every ten seconds its interface goes down and comes back with another address. A client whose connection
//! does not survive that connects again after the application's timeout of one second. The others send their
//! message again at once, and on a timer that follows the round trip.

mod case;
mod client;
mod configs;
mod ground;
mod real;
mod server;
mod sockets;
mod virtual_time;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use case::{Case, Figures, HANDSHAKE, Path, Scheme, ServerKind, TALK, Talk};
use configs::keys;
use dunlin::PortScheme;
use dunlin_sim::NatKind;
use real::{Rival, Stack};

use super::keys::Keys;
use super::{Experiment, Plan, Progress, Way};
use crate::Error;
use crate::net::Ground;
use crate::report::{About, Row, median_of};

const DELAYS_MS: [u64; 3] = [5, 30, 100];
const LOSSES_PERCENT: [u32; 3] = [0, 1, 5];
const DOWNTIMES_MS: [u64; 3] = [5, 650, 2000];
/// The delay at which a quick run measures the NATs.
const NAT_DELAY: Duration = Duration::from_millis(30);

/// The experiment `handover`.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "handover",
    about: About {
        subject: "time that a change of the client's address costs over DTLS (fast session resumption)",
        paper: Some(
            "G. Caminati, S. Kiade, G. D'Angelo, S. Ferretti, V. Ghini: Fast Session Resumption in DTLS for Mobile Communications, \
             IEEE CCNC 2020, University of Bologna.",
        ),
        terms: &[
            ("standard", "a new full handshake after the application's timeout of one second"),
            ("session_id, ticket", "a resumption after the same timeout"),
            (
                "ipc",
                "the server answers from a port of its own for each association (implicit port communication)",
            ),
            (
                "tcs, tcs_message",
                "the server announces such a port by an extension, or by a message (temporary connected socket)",
            ),
            (
                "tcs_multihomed",
                "tcs with two interfaces that go down in turns; the client goes over to the other one",
            ),
            (
                "cid12, cid13",
                "connection IDs of DTLS 1.2 and 1.3, with return routability checks; Mbed TLS follows a new address without one",
            ),
            (
                "cid_multihomed",
                "cid13 with two interfaces that go down in turns; records are repeated over the other one",
            ),
            ("cid_multihomed_duplicates", "the same, and each record leaves over both interfaces at once"),
            ("listening", "the server accepts new clients at any time"),
            ("single", "the server has one association, and frees it after one second of silence"),
            (
                "lost per handover",
                "the time beyond that without handovers, divided by their number, less the downtime unless there are two interfaces",
            ),
            (
                "saved",
                "the time saved against standard with the single server; the paper's Table I has it for TCS with as many interfaces",
            ),
        ],
    },
    packages: &["libssl-dev"],
    ways: &[Way::Real, Way::Virtual],
    runs: 5,
    run,
};

fn run(plan: &Plan, progress: &Progress, rows: &mut Vec<Row>) -> Result<(), Error> {
    if !PortScheme::AVAILABLE {
        let why = "this build has no association ports, which it compares";
        return Err(Error::new("handover", why, "build dunlin with --features association-ports"));
    }
    let keys = keys()?;
    let seeds = (0..u64::from(plan.runs)).map(|run| plan.seed.wrapping_add(run)).collect::<Vec<_>>();
    rows.extend(match plan.way {
        Way::Real => on_sockets(&keys, &seeds, progress)?,
        Way::Virtual => in_virtual_time(&keys, &seeds, plan.quick, progress)?,
    });
    Ok(())
}

fn in_virtual_time(keys: &Keys, seeds: &[u64], quick: bool, progress: &Progress) -> Result<Vec<Row>, Error> {
    let cases = cases(&paths(quick), |_| true);
    let all: BTreeSet<_> = cases.iter().flat_map(|case| [*case, case.undisturbed()]).collect();
    let alone: BTreeSet<_> = cases.iter().map(|case| case.handshake()).collect();
    progress.steps(all.len() + alone.len());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let run = |case: &Case| seeds.iter().map(|seed| virtual_time::run(case, keys, *seed)).collect();
    let all = in_parallel(all, Case::name, cores, progress, run)?;
    let handshake =
        |case: &Case| seeds.iter().map(|seed| virtual_time::handshake(case, keys, *seed)).collect();
    let alone = in_parallel(alone, Case::name, cores, progress, handshake)?;
    let results = Results { all, alone };
    Ok(cases.iter().map(|case| results.row(case, "dunlin", Way::Virtual, None)).collect())
}

/// Measures all cases side by side, since they hardly compute.
fn on_sockets(keys: &Keys, seeds: &[u64], progress: &Progress) -> Result<Vec<Row>, Error> {
    let ground = Ground::new()?;
    let mut stacks = vec![Stack::Dunlin];
    let rivals = [Rival::openssl(), Rival::mbedtls(&[])];
    stacks.extend(rivals.into_iter().filter_map(|rival| progress.without(rival)).map(Stack::Rival));
    let paths: Vec<_> = paths(true)
        .into_iter()
        .filter(|path| path.nat.is_none_or(|nat| nat == NatKind::PortRestricted))
        .collect();
    let of_stack: Vec<_> = stacks
        .iter()
        .map(|stack| {
            let mut cases = cases(&paths, |scheme| stack.has(scheme));
            // Two NATs exist in virtual time only.
            cases.retain(|case| case.path.nat.is_none() || case.scheme.interfaces() == 1);
            cases
        })
        .collect();
    let mut all = BTreeSet::new();
    let mut alone = BTreeSet::new();
    for (stack, cases) in of_stack.iter().enumerate() {
        all.extend(cases.iter().flat_map(|case| [*case, case.undisturbed()]).map(|case| (stack, case)));
        alone.extend(cases.iter().map(|case| (stack, case.handshake())));
    }
    progress.steps((all.len() + alone.len()) * seeds.len());
    let mut results: Vec<_> = stacks.iter().map(|_| Results::default()).collect();
    for seed in seeds {
        let measure = |cases: &BTreeSet<(usize, Case)>, talk: Talk| {
            in_parallel(
                cases.clone(),
                |(_, case)| case.name(),
                cases.len(),
                progress,
                |(stack, case): &(usize, Case)| stacks[*stack].run(&ground, case, keys, talk, *seed),
            )
        };
        for ((stack, case), figures) in measure(&all, TALK)? {
            results[stack].all.entry(case).or_default().push(figures);
        }
        for ((stack, case), figures) in measure(&alone, HANDSHAKE)? {
            results[stack].alone.entry(case).or_default().push(figures);
        }
    }
    let mut rows = Vec::new();
    let openssl = stacks.iter().position(|stack| stack.name() == "openssl");
    let openssl = openssl.and_then(|number| results.get(number));
    for ((stack, cases), results) in stacks.iter().zip(&of_stack).zip(&results) {
        rows.extend(cases.iter().map(|case| results.row(case, stack.name(), Way::Real, openssl)));
    }
    Ok(rows)
}

/// The paths of a run. A quick one has those of the cases with a target value, and each NAT once.
fn paths(quick: bool) -> Vec<Path> {
    let is_quick = |path: &Path| {
        let is_plain = path.nat.is_none() || path.delay == NAT_DELAY;
        is_plain && path.loss_percent == 0 && path.downtime == Some(Duration::from_millis(DOWNTIMES_MS[0]))
    };
    let mut paths = Vec::new();
    for delay in DELAYS_MS.map(Duration::from_millis) {
        for nat in [None].into_iter().chain(NatKind::ALL.map(Some)) {
            for loss_percent in LOSSES_PERCENT {
                let downtimes = DOWNTIMES_MS.map(|ms| Some(Duration::from_millis(ms)));
                paths.extend(downtimes.map(|downtime| Path { delay, loss_percent, nat, downtime }));
            }
        }
    }
    paths.retain(|path| !quick || is_quick(path));
    paths
}

/// The cases on these paths, with the schemes that a stack has.
fn cases(paths: &[Path], has: impl Fn(Scheme) -> bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for path in paths {
        for scheme in Scheme::ALL.into_iter().filter(|scheme| has(*scheme)) {
            cases.extend(scheme.servers().iter().map(|server| Case { scheme, server: *server, path: *path }));
        }
    }
    cases
}

/// Does the work of each case, with this many workers.
fn in_parallel<K: Copy + Ord + Send + Sync, T: Send>(
    cases: BTreeSet<K>,
    name: impl Fn(&K) -> String + Sync,
    workers: usize,
    progress: &Progress,
    work: impl Fn(&K) -> Result<T, Error> + Sync,
) -> Result<BTreeMap<K, T>, Error> {
    let cases: Vec<_> = cases.into_iter().collect();
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = work(case)?;
            progress.now(name(case));
            progress.step();
            done.push((*case, result));
        }
        Ok::<_, Error>(done)
    };
    let done = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        workers.into_iter().map(join).collect::<Result<Vec<_>, _>>()
    })?;
    Ok(done.into_iter().flatten().collect())
}

/// The results of all runs of a stack.
#[derive(Default)]
struct Results {
    /// Of the cases, and of the same without changes of the address.
    all: BTreeMap<Case, Vec<Figures>>,
    /// Of the first handshakes.
    alone: BTreeMap<Case, Vec<Figures>>,
}

impl Results {
    fn of(&self, case: &Case) -> &[Figures] {
        self.all.get(case).map_or(&[], Vec::as_slice)
    }

    /// The times to the last acknowledgement in milliseconds; none if a run got less than all of them.
    fn times(&self, case: &Case) -> Vec<f64> {
        let times = self.of(case).iter().map(|run| run.wall_clock.map(|time| time.as_secs_f64() * 1e3));
        times.collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// The time saved against another scheme of this or another stack, in percent.
    fn saved(&self, case: &Case, others: &Self, other: Case) -> Vec<f64> {
        let others = others.times(&other);
        if others.is_empty() || case.scheme == other.scheme {
            return Vec::new();
        }
        let reference = median_of(&others);
        self.times(case).iter().map(|time| (1.0 - time / reference) * 100.0).collect()
    }

    /// The time lost in each change of the address, beyond the downtime, in milliseconds.
    fn lost(&self, case: &Case) -> Vec<f64> {
        let without = self.times(&case.undisturbed());
        if without.is_empty() {
            return Vec::new();
        }
        // The time without changes varies with the losses.
        let without = without.iter().sum::<f64>() / without.len() as f64;
        // With two interfaces, one is always up.
        let has_one = case.scheme.interfaces() == 1;
        let downtime = |run: &Figures| {
            let downtime = run.downtime.or(case.path.downtime).filter(|_| has_one);
            downtime.map_or(0.0, |downtime| downtime.as_secs_f64() * 1e3)
        };
        let runs = self.times(case).into_iter().zip(self.of(case));
        runs.map(|(time, run)| (time - without) / f64::from(run.handovers.max(1)) - downtime(run)).collect()
    }

    /// How long the interface was really down in each change, in milliseconds. None in virtual time, where
    /// that is the case's downtime.
    fn downtimes(&self, case: &Case) -> Vec<f64> {
        self.of(case).iter().filter_map(|run| Some(run.downtime?.as_secs_f64() * 1e3)).collect()
    }

    /// The row of a case; `openssl` has OpenSSL's results of the same run.
    fn row(&self, case: &Case, stack: &str, way: Way, openssl: Option<&Self>) -> Row {
        let of = |figure: fn(&Figures) -> f64| self.of(case).iter().map(figure).collect::<Vec<_>>();
        let seconds: Vec<_> = self.times(case).iter().map(|ms| ms / 1e3).collect();
        let listening = Case { server: ServerKind::Listening, ..case.reference() };
        let row = case
            .row(stack)
            .with("way", way.name())
            .figure("wall_clock_s", &seconds)
            .figure("lost_per_handover_ms", &self.lost(case));
        let saved = [
            ("saved_percent", self.saved(case, self, case.reference())),
            ("saved_over_listening_percent", self.saved(case, self, listening)),
            (
                "saved_over_openssl_percent",
                openssl.map_or_else(Vec::new, |openssl| self.saved(case, openssl, case.reference())),
            ),
        ];
        let row = saved.iter().fold(row, |row, (name, saved)| {
            let paper = if saved.is_empty() { None } else { case.paper_saved_percent() };
            row.figure(name, saved).paper(name, paper)
        });
        let row = row
            .figure("handovers", &of(|run| run.handovers.into()))
            .figure("measured_downtime_ms", &self.downtimes(case))
            .figure("messages_acknowledged", &of(|run| run.acknowledged.into()))
            .figure("messages_missing", &of(|run| run.missing.into()))
            .figure("messages_resent", &of(|run| run.resent.into()))
            .figure("handshakes", &of(|run| run.handshakes.into()))
            .figure("handshakes_resumed", &of(|run| run.resumed.into()))
            .figure("total_bytes", &of(|run| run.bytes as f64))
            .figure("packets", &of(|run| run.packets as f64));
        let ms = |run: &Figures| run.first_handshake.map_or(0.0, |time| time.as_secs_f64() * 1e3);
        let Some(first) = self.alone.get(&case.handshake()) else {
            return row.figure("first_handshake_ms", &of(ms));
        };
        let of = |figure: fn(&Figures) -> f64| first.iter().map(figure).collect::<Vec<_>>();
        row.figure("first_handshake_ms", &of(ms))
            .figure("first_handshake_bytes", &of(|run| run.bytes as f64))
            .figure("first_handshake_packets", &of(|run| run.packets as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(scheme: Scheme, server: ServerKind, nat: Option<NatKind>, downtime_ms: Option<u64>) -> Case {
        let downtime = downtime_ms.map(Duration::from_millis);
        Case { scheme, server, path: Path { delay: NAT_DELAY, loss_percent: 0, nat, downtime } }
    }

    fn run(case: &Case) -> Figures {
        let figures = virtual_time::run(case, &keys().unwrap(), 1).unwrap();
        assert_eq!((figures.acknowledged, figures.missing), (TALK.messages, 0), "{}", case.name());
        figures
    }

    fn results(cases: &[Case]) -> Results {
        let with_references = cases.iter().flat_map(|case| [*case, case.undisturbed()]);
        let all = with_references.map(|case| (case, vec![run(&case)])).collect();
        Results { all, alone: BTreeMap::new() }
    }

    /// The run of a case, and how many milliseconds it has lost with each handover.
    fn run_and_lost(case: &Case) -> (Figures, f64) {
        let results = results(&[*case]);
        (results.of(case)[0].clone(), results.lost(case)[0])
    }

    /// A message on its way during the change takes at most another round trip.
    #[test]
    fn connection_ids_lose_at_most_a_round_trip_behind_every_nat() {
        for nat in [None].into_iter().chain(NatKind::ALL.map(Some)) {
            for scheme in [Scheme::Cid12, Scheme::Cid13] {
                let case = case(scheme, ServerKind::Listening, nat, Some(5));
                let (run, lost) = run_and_lost(&case);
                assert!(lost <= 2.0 * NAT_DELAY.as_millis() as f64, "{}: {lost} ms", case.name());
                assert_eq!(run.handshakes, 1);
            }
        }
    }

    #[test]
    fn ports_of_associations_survive_changes_where_the_nat_lets_the_server_answer() {
        for nat in [None].into_iter().chain(NatKind::ALL.map(Some)) {
            let is_blocked = matches!(nat, Some(NatKind::PortRestricted | NatKind::Symmetric));
            for scheme in [Scheme::Ipc, Scheme::Tcs, Scheme::TcsMessage] {
                let case = case(scheme, ServerKind::Listening, nat, Some(5));
                if scheme == Scheme::Ipc && is_blocked {
                    let figures = virtual_time::run(&case, &keys().unwrap(), 1).unwrap();
                    // Once its attempts have emptied the pool, it gets an ordinary association, which ends
                    // with the first change.
                    assert_eq!(figures.wall_clock, None, "{}", case.name());
                    assert!(figures.acknowledged < TALK.messages / 2, "{figures:?}");
                    continue;
                }
                let (run, lost) = run_and_lost(&case);
                assert!(lost <= 2.0 * NAT_DELAY.as_millis() as f64, "{}: {lost} ms", case.name());
                assert_eq!(run.handshakes, 1);
            }
        }
    }

    /// The paper's Table I: its own scheme in the nearest setting, and with two interfaces at a downtime of
    /// two seconds.
    #[test]
    fn ports_of_associations_save_at_least_the_papers_time() {
        for delay_ms in DELAYS_MS {
            for (scheme, downtime_ms) in
                [(Scheme::Tcs, 5), (Scheme::TcsMessage, 5), (Scheme::TcsMultihomed, 2000)]
            {
                let mut case = case(scheme, ServerKind::Listening, None, Some(downtime_ms));
                case.path.delay = Duration::from_millis(delay_ms);
                let results = results(&[case, case.reference()]);
                let saved = results.saved(&case, &results, case.reference())[0];
                let paper = case.paper_saved_percent().unwrap();
                assert!(saved >= paper, "{}: {saved} % instead of {paper} %", case.name());
            }
        }
    }

    /// Over both interfaces at once, only an acknowledgement can be lost, and only with the interface that it
    /// arrives at.
    #[test]
    fn two_interfaces_lose_less_than_a_round_trip() {
        for nat in [None, Some(NatKind::Symmetric)] {
            for (scheme, most) in [(Scheme::CidMultihomed, 60.0), (Scheme::CidMultihomedDuplicates, 20.0)] {
                let case = case(scheme, ServerKind::Listening, nat, Some(2000));
                let (run, lost) = run_and_lost(&case);
                assert!(lost <= most, "{}: {lost} ms", case.name());
                assert_eq!(run.handshakes, 1);
                assert!(run.handovers > 10, "{run:?}");
            }
        }
    }

    #[test]
    fn other_schemes_lose_their_timeout_and_connect_again() {
        use Scheme::{SessionId, Standard, Ticket};
        for (scheme, round_trips) in [(Standard, 3), (SessionId, 2), (Ticket, 2)] {
            let case = case(scheme, ServerKind::Listening, None, Some(5));
            let (run, lost) = run_and_lost(&case);
            assert_eq!(run.handshakes, 1 + run.handovers, "{scheme:?}");
            assert_eq!(run.resumed, if scheme == Standard { 0 } else { run.handovers }, "{scheme:?}");
            // The timeout began with the message, so a part of it is the round trip of a usual message, or
            // the downtime.
            let expected = 1000.0 + f64::from(round_trips) * 60.0;
            assert!((expected - 10.0..expected + 60.0).contains(&lost), "{scheme:?}: {lost} ms");
            assert_eq!(run.resent, run.handovers);
        }
    }

    #[test]
    fn a_server_with_one_association_makes_clients_wait_longer() {
        let [single, listening] = [ServerKind::Single, ServerKind::Listening]
            .map(|server| case(Scheme::Standard, server, None, Some(5)));
        let [single, listening] = [single, listening].map(|case| run(&case).wall_clock.unwrap());
        assert!(single > listening + Duration::from_secs(1), "{single:?} and {listening:?}");
    }

    #[test]
    fn runs_are_reproducible() {
        let mut case = case(Scheme::Cid13, ServerKind::Listening, Some(NatKind::Symmetric), Some(650));
        case.path.loss_percent = 5;
        let keys = keys().unwrap();
        let times = |seed| {
            let run = virtual_time::run(&case, &keys, seed).unwrap();
            (run.wall_clock, run.resent, run.packets)
        };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }

    #[test]
    fn a_quick_run_has_every_scheme_and_nat() {
        let [quick, full] = [true, false].map(|quick| cases(&paths(quick), |_| true));
        assert!(quick.len() < full.len() / 10 && quick.iter().all(|case| full.contains(case)));
        let both = |case: &Case| (case.scheme, case.path.nat);
        let of = |cases: &[Case]| cases.iter().map(both).collect::<BTreeSet<_>>();
        assert_eq!(of(&quick), of(&full));
    }
}
