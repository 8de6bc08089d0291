//! The server's cost of an upload, by the way in which the server learns which encryption scheme the client
//! needs.
//!
//! Both sides run in processes of their own, on the loopback device of a namespace. They exist for the whole
//! run, and this process has them make one upload at a time, case by case, so other programs disturb all
//! cases alike. An upload costs more after one of another case, which has filled the processor's caches with
//! other things. So the order of the cases is random, and before the uploads that count there is one of the
//! same case that does not.

mod apache;
mod captured;
mod case;
mod client;
mod cost;
mod curl;
mod instructions;
mod keys;
mod model;
mod row;
mod server;
mod talk;
mod tls;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use apache::Apache;
use case::{Aes, Case, ClientKind, LowKey, SIZES, Stack, Strategy};
use keys::Keys;
use row::Figures;
use talk::{Side, Talk};

use super::foreign::{Foreign, Library, is_installed};
use super::{Experiment, Plan, Progress, Way};
use crate::Error;
use crate::error::failed;
use crate::net::{Ground, MTU, Namespace, Pair};
use crate::report::{About, Row};

/// The uploads before the first measured one: sessions, cached certificates and addresses are then known to
/// both sides.
const WARM_UP: usize = 2;
/// The sizes of a quick run.
const QUICK_SIZES: usize = 2;
/// TCP's receive buffers: least, initial and greatest size in bytes. With Linux's initial 128 KiB, the buffer
/// grows while a connection lasts, by what the handshake was. A server then waited up to a third more often
/// in `cached` than in `lowest`, in an upload of 10 MB.
const RECEIVE_BUFFERS: &str = "4096 4194304 4194304";
/// OpenSSL and AWS-LC then work without AES-NI and PCLMULQDQ.
const WITHOUT_AES: [(&str, &str); 1] = [("OPENSSL_ia32cap", "~0x200000200000000")];

/// OpenSSL's client.
const UPLOADER: Library = Library::openssl(&[include_str!("upload.c")], false);

/// The experiment `policy`.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "policy",
    about: About {
        subject: "cost of an upload when each client gets the encryption scheme that it needs",
        paper: Some(
            "CAN-SEAT: Client-Aware Negotiation for Secure and Efficient Data Transmission, Energies 2020, 13, 5777.",
        ),
        terms: &[
            ("none", "every client has the highest scheme: AES-256-GCM with SHA-384, RSA-4096"),
            ("lowest", "the server has only the lowest scheme: AES-128-GCM with SHA-256, RSA-2048"),
            ("renegotiation", "a second handshake lowers the scheme, in each connection"),
            (
                "renegotiation_highest",
                "both handshakes have the highest scheme: the paper's Table 4, scenarios 1 and 3",
            ),
            (
                "renegotiation_lowest",
                "both handshakes have the lowest scheme: the paper's Table 4, scenarios 2 and 4",
            ),
            ("redirection", "a request over plain HTTP names the client; its certificate must match"),
            ("redirection_unauthenticated", "the same, but the server asks for no certificate"),
            ("address", "the server remembers the client's address"),
            ("ticket", "the client resumes a session of the lowest scheme"),
            ("psk", "the identity of a pre-shared key names the client; TLS 1.3 with AES-128-GCM"),
            ("cached", "a ticket of the handshake cache names the client; the handshake is full"),
            ("chacha20", "as none, but a client that prefers ChaCha20 gets it"),
        ],
    },
    packages: &["apache2-bin", "curl", "libssl-dev", "valgrind"],
    ways: &[Way::Real],
    runs: 20,
    run,
};

fn run(plan: &Plan, progress: &Progress, rows: &mut Vec<Row>) -> Result<(), Error> {
    let aes: &[Aes] = match (plan.quick, cfg!(target_arch = "x86_64")) {
        (false, true) => &[Aes::Hardware, Aes::Software],
        _ => &[Aes::Hardware],
    };
    let sizes = if plan.quick { SIZES.get(..QUICK_SIZES).unwrap_or_default() } else { &SIZES };
    let ground = Ground::new()?;
    let place = Place {
        pair: &ground.pair(MTU)?,
        ground: &ground,
        keys: &Keys::new()?,
        files: &tempfile::tempdir().map_err(failed)?,
    };
    for namespace in [&place.pair.client, &place.pair.server] {
        namespace.set("tcp_rmem", RECEIVE_BUFFERS)?;
    }
    let uploader = progress.without(UPLOADER.compile());
    let has_curl = progress.without(is_installed(curl::PROGRAM, curl::ADVICE)).is_some();
    let mut apaches = BTreeMap::new();
    for aes in aes.iter().filter(|_| uploader.is_some()) {
        let namespace = &place.pair.server;
        let keys = place.keys;
        let apache = Apache::start(&ground, namespace, Pair::SERVER, keys, *aes);
        apaches.extend(progress.without(apache).map(|apache| (*aes, apache)));
    }
    let is_there = |case: &Case| match (case.stack, case.client) {
        (Stack::Apache, ClientKind::Curl) => has_curl && apaches.contains_key(&case.aes),
        (Stack::Apache, _) => apaches.contains_key(&case.aes),
        (Stack::Dunlin, ClientKind::OpenSsl) => uploader.is_some(),
        (Stack::Dunlin, ClientKind::Dunlin) => true,
        (Stack::Dunlin, ClientKind::Curl) => has_curl,
    };
    let cases: Vec<_> = case::cases(aes).into_iter().filter(is_there).collect();
    progress.steps(cases.len() + sizes.len() * cases.len() * plan.runs as usize);
    let mut ends = Vec::new();
    for case in &cases {
        progress.now(case.name());
        let start = Start { namespace: &place.pair.server, key_log: None, tool: None };
        let mut end = Ends::start(&place, *case, uploader.as_ref(), start)?;
        for _ in 0..WARM_UP {
            end.once(SIZES[0], &mut apaches)?;
        }
        ends.push(end);
        progress.step();
    }
    let mut figures = Figures::default();
    let mut random = fastrand::Rng::with_seed(plan.seed);
    for _ in 0..plan.runs {
        for size in sizes {
            random.shuffle(&mut ends);
            for end in &mut ends {
                progress.now(end.case.name());
                end.once(*size, &mut apaches)?;
                for _ in 0..end.case.uploads() {
                    let upload = end.upload(*size, &mut apaches)?;
                    figures.uploads.entry((*size, end.case)).or_default().push(upload);
                }
                progress.step();
            }
        }
    }
    drop(ends);
    if let Some(directory) = &plan.captures {
        for case in &cases {
            progress.now(format!("capture of {}", case.name()));
            captured::save(directory, &place, *case, uploader.as_ref(), &mut apaches)?;
        }
    }
    for case in cases.iter().filter(|case| !plan.quick && instructions::are_counted(case)) {
        progress.now(format!("instructions of {}", case.name()));
        let counted = instructions::count(&place, *case, sizes, uploader.as_ref());
        let Some(counts) = progress.without(counted) else { break };
        figures.count(*case, sizes, &counts);
    }
    rows.extend(figures.rows(sizes, &cases));
    for aes in aes.iter().filter(|_| !plan.quick) {
        progress.now("single operations");
        rows.extend(cost::rows(*aes)?);
    }
    Ok(())
}

/// The environment of the processes of a case.
const fn environment(aes: Aes) -> &'static [(&'static str, &'static str)] {
    match aes {
        Aes::Hardware => &[],
        Aes::Software => &WITHOUT_AES,
    }
}

/// The place of a run.
struct Place<'a> {
    ground: &'a Ground,
    pair: &'a Pair,
    keys: &'a Keys,
    files: &'a tempfile::TempDir,
}

/// The figures of one upload.
#[derive(Clone, Copy, Debug, Default)]
struct Upload {
    client_us: f64,
    server_us: f64,
    server_cpu_us: f64,
    /// The server's signatures, if it counts them.
    signatures: Option<f64>,
    /// Whether it had the cipher that the strategy is to bring about.
    has_its_cipher: bool,
}

/// How to start both sides of a case.
#[derive(Clone, Copy)]
struct Start<'b> {
    /// The namespace of the client.
    namespace: &'b Namespace,
    /// The file for the client's keys.
    key_log: Option<&'b Path>,
    /// The program with its options that runs Dunlin's server, which then ends after this number of uploads.
    tool: Option<(&'static str, &'b [OsString], usize)>,
}

/// Both sides of a case.
struct Ends<'a> {
    case: Case,
    client: Talk<'a>,
    /// `None` if the server is Apache, which all its cases share.
    server: Option<Talk<'a>>,
}

impl<'a> Ends<'a> {
    fn start(
        place: &Place<'a>,
        case: Case,
        uploader: Option<&Foreign>,
        start: Start<'_>,
    ) -> Result<Self, Error> {
        let (server, [https, http]) = match case.stack {
            Stack::Apache => (None, [Apache::port(&case); 2].map(|port| port.to_string())),
            Stack::Dunlin => {
                let mut talk = Self::server(place, case, start)?;
                let ports = talk.hear()?;
                let (https, http) = ports.split_once(' ').ok_or_else(unknown)?;
                (Some(talk), [https, http].map(str::to_owned))
            }
        };
        let port = if case.strategy.is_redirection() { http } else { https };
        let address = Pair::SERVER.to_string();
        let mut words: Vec<OsString> = match case.client {
            ClientKind::OpenSsl => {
                let mode = match case.strategy {
                    Strategy::Ticket => "resume",
                    Strategy::Psk => "psk",
                    strategy if strategy.is_redirection() => "redirect",
                    _ => "-",
                };
                [&address, &*port, "/upload", mode, suites(&case)].map(OsString::from).into()
            }
            ClientKind::Dunlin => {
                ["client", case.strategy.name(), &format!("{address}:{port}")].map(OsString::from).into()
            }
            ClientKind::Curl => ["curl", case.strategy.name(), &address, &port].map(OsString::from).into(),
        };
        words.push(place.keys.roots.path().into());
        words.extend(place.keys.client.paths());
        let mut command = match (case.client, uploader) {
            (ClientKind::OpenSsl, Some(uploader)) => uploader.command(words),
            _ => this_program(words, None)?,
        };
        command.envs(environment(case.aes).iter().copied());
        command.envs(start.key_log.map(|file| ("SSLKEYLOGFILE", file)));
        let client =
            Talk::start(Side::Client, case.client.name(), place.ground, start.namespace, &mut command)?;
        Ok(Self { case, client, server })
    }

    /// Starts Dunlin's server.
    fn server(place: &Place<'a>, case: Case, start: Start<'_>) -> Result<Talk<'a>, Error> {
        let keys = place.keys;
        let address = Pair::SERVER.to_string();
        let mut words = ["server", case.strategy.name(), &address].map(OsString::from).to_vec();
        words.push(keys.root.path().into());
        words.extend(keys.high.paths());
        words.extend(keys.low(case.low).paths());
        words.push(case.low.name().into());
        words.push(place.files.path().into());
        words.push(start.tool.map_or(0, |(.., uploads)| uploads).to_string().into());
        let mut command = this_program(words, start.tool.map(|(tool, options, _)| (tool, options)))?;
        let namespace = &place.pair.server;
        Talk::start(
            Side::Server,
            "dunlin",
            place.ground,
            namespace,
            command.envs(environment(case.aes).iter().copied()),
        )
    }

    /// Makes one upload with the cipher that the strategy is to bring about.
    fn upload(&mut self, size: usize, apaches: &mut BTreeMap<Aes, Apache<'_>>) -> Result<Upload, Error> {
        let upload = self.once(size, apaches)?;
        if upload.has_its_cipher {
            Ok(upload)
        } else {
            Err(talk::failed(&self.case.name(), "the upload has the other scheme"))
        }
    }

    /// Makes one upload to Dunlin's server, whose figures do not count.
    fn untimed(&mut self, size: usize) -> Result<(), Error> {
        self.client.tell(&size.to_string())?;
        let told = self.client.hear();
        // A server that has failed gives the better reason.
        self.server.as_mut().map_or(Ok(String::new()), Talk::hear)?;
        told.map(drop)
    }

    /// Makes one upload.
    fn once(&mut self, size: usize, apaches: &mut BTreeMap<Aes, Apache<'_>>) -> Result<Upload, Error> {
        let mut apache = apaches.get_mut(&self.case.aes);
        let mut spent = |server: &mut Option<Talk<'_>>| match (server, &mut apache) {
            (Some(server), _) => server.processor_time(),
            (None, Some(apache)) => apache.processor_time(),
            (None, None) => Ok(Duration::ZERO),
        };
        let before = spent(&mut self.server)?;
        self.client.tell(&size.to_string())?;
        let told = self.client.hear();
        let line = self.server.as_mut().map(|server| server.hear()).transpose();
        // A server that has failed gives the better reason.
        let line = line?;
        let told = told?;
        let us = |after: Duration| after.saturating_sub(before).as_secs_f64() * 1e6;
        let server_cpu_us = us(spent(&mut self.server)?);
        let unknown = || talk::failed(&self.case.name(), format_args!("unknown figures: {told}, {line:?}"));
        let number = |text: &str| text.parse::<f64>().map_err(|_| unknown());
        let (client_us, theirs) = told.split_once(' ').ok_or_else(unknown)?;
        let (server_us, signatures, ours) =
            match (line.as_deref().map(|line| line.split(' ').collect::<Vec<_>>()).as_deref(), apache) {
                (Some([us, signatures, suite, ..]), _) => {
                    (number(us)?, Some(number(signatures)?), (*suite).to_owned())
                }
                (None, Some(apache)) => {
                    let told = apache.told(self.case.strategy)?;
                    (told.server_us, None, told.suite)
                }
                _ => return Err(unknown()),
            };
        let cipher = self.case.strategy.cipher();
        let has_it = |suite: &str| suite.replace(['-', '_'], "").contains(cipher);
        // curl does not tell its suite.
        let has_its_cipher = has_it(&ours) && (theirs == curl::NO_SUITE || has_it(theirs));
        Ok(Upload { client_us: number(client_us)?, server_us, server_cpu_us, signatures, has_its_cipher })
    }
}

/// The suites of OpenSSL's client, in its order.
const fn suites(case: &Case) -> &'static str {
    match (case.strategy, case.low) {
        (Strategy::ChaCha20, _) => "ECDHE-RSA-CHACHA20-POLY1305:ECDHE-RSA-AES256-GCM-SHA384",
        (_, LowKey::Rsa2048) => "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256",
        // OpenSSL accepts short keys on this level only.
        (_, LowKey::Rsa1024) => "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256:@SECLEVEL=0",
    }
}

/// A command that runs one side in another process, by `tool` if there is one.
fn this_program(words: Vec<OsString>, tool: Option<(&str, &[OsString])>) -> Result<Command, Error> {
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = match tool {
        Some((tool, options)) => {
            let mut command = Command::new(tool);
            command.args(options).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.arg("upload").args(words);
    Ok(command)
}

/// Runs one side of an upload, or measures the cost of single operations, when this program has started
/// itself. `words` are the side, or `costs`, and its arguments.
///
/// # Errors
/// A word is unknown, a file has other contents, or a connection failed.
pub fn side_of_upload(words: &[OsString]) -> Result<(), Error> {
    match words.split_first() {
        Some((side, words)) if side == "server" => server::run(words),
        Some((side, words)) if side == "client" => client::run(words),
        Some((side, words)) if side == "curl" => curl::run(words),
        Some((side, words)) if side == "costs" => cost::run(words),
        _ => Err(unknown()),
    }
}

fn unknown() -> Error {
    Error::new("lab upload", "unknown words", "this is for the lab itself")
}
