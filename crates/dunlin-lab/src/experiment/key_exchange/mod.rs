//! The cost of each key exchange: bytes, time on both sides, and the duration over a slow link.
//!
//! Both sides have one suite, group and signature scheme, and no server name, session ID or ticket.
//! Certificates are leaves directly below the root that both trust. The same applies to OpenSSL and GnuTLS.
//! Over datagrams, servers demand a cookie.

mod bytes;
mod draft;
mod duration;
mod foreign;
#[cfg(feature = "legacy-lab")]
mod legacy;
mod suites;
mod time;

use bytes::Stack;
use duration::{Parts, RATES, SlowLink, path_bytes};
use foreign::LIBRARIES;
use serde_json::Value;
use suites::{AllKeys, Case, Crypto};
use time::Times;

use super::foreign::Foreign;
use super::{Experiment, Plan, Progress, Way, undisturbed, watch};
use crate::Error;
use crate::capture::{Frame, save_pcap};
use crate::count::{Layers, connections};
use crate::net::{Ground, MTU, Pair};
use crate::report::{About, Row};

/// The number of handshakes in a turn of a stack, and the number of turns.
const HANDSHAKES: usize = 20;
const TURNS: usize = 10;

/// The experiment `key-exchange`.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "key-exchange",
    about: About {
        subject: "cost of each key exchange: bytes, processing time, duration over slow links",
        paper: Some(
            "F.-C. Kuo, H. Tschofenig, F. Meyer, X. Fu: Comparison Studies between Pre-Shared and Public Key Exchange \
             Mechanisms for Transport Layer Security, University of Goettingen and Siemens. The draft is \
             draft-ietf-iotops-security-protocol-comparison.",
        ),
        terms: &[
            ("psk", "a plain pre-shared key"),
            (
                "dhe_psk, ecdhe_psk",
                "a pre-shared key, and a fresh key exchange in a finite field or on a curve",
            ),
            ("rsa_psk", "a pre-shared key, and a secret under the server's RSA key"),
            ("rsa", "the client encrypts the secret to the server's RSA key; obsolete"),
            (
                "dhe_rsa, ecdhe_rsa, ecdhe_ecdsa, dhe_dss",
                "a fresh key exchange that the server signs; DSA is obsolete",
            ),
            ("dh_anon", "a fresh key exchange that neither side signs; obsolete"),
            ("raw_key", "public keys without certificates (RFC 7250)"),
            ("server, mutual", "only the server has a certificate, or both sides have one"),
            (
                "as shipped",
                "with the library's own settings; the other rows have what it offers for small hellos",
            ),
            ("overtake", "above this rate RSA takes less time than DHE_PSK, by the paper's equation (1)"),
        ],
    },
    packages: &["libssl-dev", "libgnutls28-dev"],
    ways: &[Way::Real, Way::Virtual],
    runs: 20,
    run,
};

fn run(plan: &Plan, progress: &Progress, rows: &mut Vec<Row>) -> Result<(), Error> {
    let cases = suites::cases();
    #[cfg(feature = "legacy-lab")]
    let cases = [cases, legacy::cases()].concat();
    let lab = Lab::new(plan, progress)?;
    let rates = lab.real.as_ref().map_or(0, |real| real.links.len());
    let over_tcp = cases.iter().filter(|case| !case.over_datagrams).count();
    progress.steps(cases.len() + over_tcp * rates + draft::len());
    let mut slow = Vec::new();
    for case in &cases {
        progress.now(case.name());
        let measured = lab.rows(case)?;
        progress.step();
        if let (Some(real), Some(ours), false) = (&lab.real, measured.first(), case.over_datagrams) {
            slow.extend(lab.durations(real, case, ours, progress)?);
        }
        rows.extend(measured);
    }
    let overtaking = overtaking(rows);
    rows.extend(overtaking);
    rows.extend(slow);
    rows.extend(draft::rows(progress)?);
    Ok(())
}

/// The common parts of all measurements.
struct Lab<'a> {
    plan: &'a Plan,
    keys: AllKeys,
    ordinary: Means,
    #[cfg(feature = "legacy-lab")]
    legacy: Means,
    /// Real sockets, in that way of running.
    real: Option<Real>,
}

/// The cryptography, and a copy that records its time.
struct Means {
    crypto: Crypto,
    watched: Crypto,
}

impl Means {
    fn new(crypto: Crypto) -> Self {
        Self { watched: time::watched(&crypto), crypto }
    }
}

/// The parts for measurements on real sockets.
struct Real {
    links: Vec<SlowLink>,
    rivals: Vec<Foreign>,
    ground: Ground,
}

impl Real {
    fn new(plan: &Plan, progress: &Progress) -> Result<Self, Error> {
        let ground = Ground::new()?;
        let links = RATES.map(|rate| SlowLink::new(&ground, rate, plan.seed));
        let links = links.into_iter().collect::<Result<_, _>>()?;
        let rivals = LIBRARIES.iter().filter_map(|library| progress.without(library.compile())).collect();
        Ok(Self { links, rivals, ground })
    }
}

impl<'a> Lab<'a> {
    fn new(plan: &'a Plan, progress: &Progress) -> Result<Self, Error> {
        let real = match plan.way {
            Way::Real => Some(Real::new(plan, progress)?),
            Way::Virtual => None,
        };
        #[cfg(feature = "legacy-lab")]
        progress.note(dunlin_legacy::lab::WARNING);
        Ok(Self {
            plan,
            #[cfg(feature = "legacy-lab")]
            keys: AllKeys::new(legacy::keys())?,
            #[cfg(not(feature = "legacy-lab"))]
            keys: AllKeys::new([])?,
            ordinary: Means::new(Crypto::new()),
            #[cfg(feature = "legacy-lab")]
            legacy: Means::new(legacy::crypto()),
            real,
        })
    }

    /// Returns the cryptography of a case.
    fn means(&self, case: &Case) -> &Means {
        match case.is_legacy {
            #[cfg(feature = "legacy-lab")]
            true => &self.legacy,
            _ => &self.ordinary,
        }
    }

    /// Returns the bytes and times of a case: Dunlin's row, and the rows of OpenSSL and GnuTLS if they have
    /// the suite. The time is OpenSSL's with small hellos.
    fn rows(&self, case: &Case) -> Result<Vec<Row>, Error> {
        let Some(real) = &self.real else {
            let [ours, _] = self.times(case, None)?;
            return Ok(vec![ours.figures(self.bytes_in_memory(case)?)]);
        };
        let rivals = || real.rivals.iter().filter(|rival| rival.has(case));
        let [ours, theirs] = self.times(case, rivals().find(|rival| rival.has_times(case)))?;
        let pair = real.ground.pair(MTU)?;
        let (client, server) = case.configs(&self.means(case).crypto, &self.keys)?;
        let stack = Stack::Dunlin(&client, &server);
        let mut rows = vec![ours.figures(self.bytes(&real.ground, &pair, case, &stack)?)];
        for rival in rivals() {
            let row = self.bytes(&real.ground, &pair, case, &Stack::Foreign(rival))?;
            rows.push(if rival.has_times(case) { theirs.totals(row) } else { row });
        }
        Ok(rows)
    }

    fn row(&self, case: &Case, stack: &str) -> Row {
        case.row(stack).with("way", self.plan.way.name())
    }

    /// Measures handshakes in memory for both stacks in turns.
    fn times(&self, case: &Case, openssl: Option<&Foreign>) -> Result<[Times; 2], Error> {
        let (client, server) = case.configs(&self.means(case).watched, &self.keys)?;
        let turns = if self.plan.quick { 1 } else { TURNS };
        watch::undisturbed(|| {
            let mut ours = Times::default();
            let mut theirs = Times::default();
            // The first handshake finds empty processor caches.
            time::handshake(case, &client, &server)?;
            for _ in 0..turns {
                for _ in 0..HANDSHAKES {
                    ours.add(&time::handshake(case, &client, &server)?);
                }
                if let Some(openssl) = openssl {
                    theirs.add_totals(&openssl.times(
                        case,
                        (&self.keys, &self.means(case).crypto),
                        HANDSHAKES,
                    )?);
                }
            }
            Ok([ours, theirs])
        })
    }

    /// Measures the bytes of handshakes on real sockets.
    fn bytes(&self, ground: &Ground, pair: &Pair, case: &Case, stack: &Stack<'_>) -> Result<Row, Error> {
        let mut layers = Vec::new();
        let mut paths = Vec::new();
        for run in 0..self.plan.runs {
            let keys = (&self.keys, &self.means(case).crypto);
            let kind = (1, case.over_datagrams);
            let connect = |pair: &Pair| bytes::connect(ground, pair, case, keys, stack);
            let frames = undisturbed::frames(&case.name(), kind, || Ok(pair), connect)?;
            layers.extend(connections(&frames).first().map(|connection| connection.layers()));
            paths.push(path_bytes(&frames) as f64);
            if run == 0 {
                self.save(&frames, case, stack)?;
            }
        }
        let of = |figure: fn(&Layers) -> u64| layers.iter().map(|all| figure(all) as f64).collect::<Vec<_>>();
        let row = self
            .row(case, stack.name())
            .figure("handshake_bytes", &of(|layers| layers.tls_bytes))
            .paper("handshake_bytes", case.paper)
            .figure("total_bytes", &of(|layers| layers.total_bytes()))
            .figure("packets", &of(|layers| layers.packets));
        Ok(if case.over_datagrams { row } else { row.figure(PATH, &paths) })
    }

    fn save(&self, frames: &[Frame], case: &Case, stack: &Stack<'_>) -> Result<(), Error> {
        let Some(directory) = &self.plan.captures else { return Ok(()) };
        save_pcap(frames, &directory.join(format!("{}-{}.pcap", stack.name(), case.name()).replace(' ', "-")))
    }

    /// Measures the bytes of handshakes in memory.
    fn bytes_in_memory(&self, case: &Case) -> Result<Row, Error> {
        let (client, server) = case.configs(&self.means(case).crypto, &self.keys)?;
        let sent = (0..self.plan.runs).map(|_| {
            let turns = time::handshake(case, &client, &server)?;
            Ok(turns.iter().map(|turn| turn.sent_bytes).sum::<usize>() as f64)
        });
        let sent = sent.collect::<Result<Vec<_>, Error>>()?;
        let row = self.row(case, "dunlin").figure("handshake_bytes", &sent);
        Ok(row.paper("handshake_bytes", case.paper))
    }

    /// Measures the duration of a case at each rate; `measured` is its row of bytes and times.
    fn durations(
        &self,
        real: &Real,
        case: &Case,
        measured: &Row,
        progress: &Progress,
    ) -> Result<Vec<Row>, Error> {
        let of = |name| measured.get(name).and_then(Value::as_f64).unwrap_or_default();
        let parts = Parts {
            computed_us: of("client_us") + of("server_us"),
            handshake_bytes: of("handshake_bytes"),
            path_bytes: of(PATH),
        };
        let (client, server) = case.configs(&self.means(case).crypto, &self.keys)?;
        let rows = real.links.iter().map(|link| {
            let row = link.row(case, (&client, &server), parts, self.plan.runs, self.row(case, "dunlin"));
            progress.step();
            row
        });
        rows.collect()
    }
}

/// The name of [`Parts::path_bytes`] in rows.
const PATH: &str = "path_bytes";

/// The rates above which RSA takes less time than DHE_PSK, for each stack and size of keys: the paper's
/// conclusion. By its equation (1), both take equal time at the rate where the bytes that DHE_PSK saves take
/// as long as its additional computation. There is no row if DHE_PSK also computes less.
fn overtaking(rows: &[Row]) -> Vec<Row> {
    let is = |row: &Row, mechanism: &str| {
        row.get("mechanism").is_some_and(|of| of == mechanism)
            && row.get("protocol").is_some_and(|of| of == "tls1.2")
    };
    let number = |row: &Row, figure: &str| row.get(figure).and_then(Value::as_f64);
    let cost = |row: &Row| {
        Some((number(row, "handshake_bytes")?, number(row, "client_us")? + number(row, "server_us")?))
    };
    let rate = |rsa: &Row| {
        let same = |row: &&Row| ["stack", "key_bits"].iter().all(|name| row.get(name) == rsa.get(name));
        let psk = rows.iter().filter(|row| is(row, "dhe_psk")).find(same)?;
        let ((psk_bytes, psk_us), (rsa_bytes, rsa_us)) = (cost(psk)?, cost(rsa)?);
        // Bits divided by microseconds are megabits a second.
        let kbit_per_s = (rsa_bytes - psk_bytes) * 8.0 / (psk_us - rsa_us) * 1e3;
        let copied = ["stack", "protocol", "authentication", "key_bits", "way"].iter();
        let row = Row::new().with("mechanism", "rsa");
        let row = copied.fold(row, |row, name| row.with_some(name, rsa.get(name).cloned()));
        (kbit_per_s > 0.0).then(|| row.figure("overtake_kbit_per_s", &[kbit_per_s]))
    };
    rows.iter().filter(|row| is(row, "rsa")).filter_map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rsa_overtakes_where_bytes_and_time_balance() {
        let row = |stack: &str, mechanism: &str, bits: u32, bytes: f64, us: f64| {
            let row = Row::new().with("stack", stack).with("protocol", "tls1.2").with("mechanism", mechanism);
            let row = row.with("key_bits", bits).figure("handshake_bytes", &[bytes]);
            row.figure("client_us", &[us]).figure("server_us", &[us])
        };
        let rows = [
            row("dunlin", "dhe_psk", 2048, 1000.0, 1000.0),
            row("dunlin", "rsa", 2048, 1250.0, 500.0),
            row("openssl", "dhe_psk", 2048, 1000.0, 5000.0),
            row("openssl", "rsa", 2048, 1250.0, 500.0),
            // RSA computes more, so it never overtakes.
            row("dunlin", "dhe_psk", 512, 400.0, 10.0),
            row("dunlin", "rsa", 512, 700.0, 20.0),
            row("dunlin", "rsa", 1024, 700.0, 20.0),
        ];
        let found: Vec<_> = overtaking(&rows)
            .iter()
            .map(|row| (row.get("stack").cloned(), row.get("overtake_kbit_per_s").and_then(Value::as_f64)))
            .collect();
        // 2000 bits take one millisecond at 2 Mbit/s, and nine at 0.2222 Mbit/s.
        let expected = [(Some("dunlin".into()), 2000.0), (Some("openssl".into()), 2000.0 / 9.0)];
        assert_eq!(found.len(), expected.len());
        for ((stack, rate), (expected_stack, expected_rate)) in found.into_iter().zip(expected) {
            assert_eq!(stack, expected_stack);
            assert!((rate.unwrap() / expected_rate - 1.0).abs() < 1e-9, "{rate:?}");
        }
    }
}
