//! The server's cost of an upload, by the way in which the server learns which encryption scheme the client needs.
//!
//! Both sides run in processes of their own, on the loopback device of a namespace. They exist for the whole run, and this process
//! has them make one upload at a time, case by case, so other programs disturb all cases alike.

mod apache;
mod case;
mod client;
mod cost;
mod count;
mod keys;
mod model;
mod server;
mod talk;
mod tls;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use apache::Apache;
use case::{Aes, Case, ClientKind, SIZES, Stack, Strategy};
use keys::Keys;
use model::Line;
use talk::Talk;

use super::foreign::{Foreign, Library};
use super::{Experiment, Plan, Progress, Way};
use crate::Error;
use crate::net::{Ground, Pair};
use crate::report::{Row, median_of};

/// The MTU of Ethernet, in bytes.
const MTU: u16 = 1500;
/// The uploads before the first measured one: sessions, cached certificates and addresses are then known to both sides.
const WARM_UP: usize = 2;
/// The sizes of a quick run.
const QUICK_SIZES: usize = 2;
/// OpenSSL and AWS-LC then work without AES-NI and PCLMULQDQ.
const WITHOUT_AES: [(&str, &str); 1] = [("OPENSSL_ia32cap", "~0x200000200000000")];

/// OpenSSL's client.
const UPLOADER: Library = Library {
    name: "openssl",
    source: &[include_str!("../openssl.c"), include_str!("upload.c")],
    link: &["-lssl", "-lcrypto"],
    package: "libssl-dev",
};

/// The experiment `policy`.
pub(super) struct Policy;

impl Experiment for Policy {
    fn name(&self) -> &'static str {
        "policy"
    }

    fn about(&self) -> &'static str {
        "cost of an upload when each client gets the encryption scheme that it needs"
    }

    fn paper(&self) -> Option<&'static str> {
        Some(
            "CAN-SEAT: Client-Aware Negotiation for Secure and Efficient Data Transmission, Energies 2020, 13, 5777.",
        )
    }

    fn terms(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("none", "every client has the highest scheme: AES-256-GCM with SHA-384, RSA-4096"),
            ("lowest", "the server has only the lowest scheme: AES-128-GCM with SHA-256, RSA-2048"),
            ("renegotiation", "a second handshake lowers the scheme, in each connection"),
            ("address", "the server remembers the client's address"),
            ("ticket", "the client resumes a session of the lowest scheme"),
            ("cached", "a ticket of the handshake cache names the client; the handshake is full"),
        ]
    }

    fn ways(&self) -> &'static [Way] {
        &[Way::Real]
    }

    fn runs(&self) -> u32 {
        20
    }

    fn run(&self, plan: &Plan, progress: &Progress) -> Result<Vec<Row>, Error> {
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
            files: &tempfile::tempdir().map_err(tls::failed)?,
        };
        let left_out = |error: &Error| progress.note(&format!("left out: {error}"));
        let uploader = UPLOADER.compile().inspect_err(left_out).ok();
        let mut apaches = BTreeMap::new();
        for aes in aes.iter().filter(|_| uploader.is_some()) {
            let (namespace, keys) = (&place.pair.server, place.keys);
            let apache = Apache::start(&ground, namespace, Pair::SERVER, keys, *aes);
            apaches.extend(apache.inspect_err(left_out).ok().map(|apache| (*aes, apache)));
        }
        let is_there = |case: &Case| match (case.stack, case.client) {
            (Stack::Apache, _) => apaches.contains_key(&case.aes),
            (Stack::Dunlin, ClientKind::OpenSsl) => uploader.is_some(),
            (Stack::Dunlin, ClientKind::Dunlin) => true,
        };
        let cases: Vec<_> = case::cases(aes).into_iter().filter(is_there).collect();
        progress.steps(cases.len() + sizes.len() * cases.len() * plan.runs as usize);
        let mut ends = Vec::new();
        for case in &cases {
            progress.now(case.name());
            let mut end = Ends::start(&place, *case, uploader.as_ref())?;
            for _ in 0..WARM_UP {
                end.once(SIZES[0], &mut apaches)?;
            }
            ends.push(end);
            progress.step();
        }
        let mut figures: BTreeMap<(usize, Case), Vec<Upload>> = BTreeMap::new();
        for _ in 0..plan.runs {
            for size in sizes {
                for end in &mut ends {
                    progress.now(end.case.name());
                    let upload = end.upload(*size, &mut apaches)?;
                    figures.entry((*size, end.case)).or_default().push(upload);
                    progress.step();
                }
            }
        }
        let mut rows = rows(sizes, &cases, &figures);
        for aes in aes.iter().filter(|_| !plan.quick) {
            progress.now("single operations");
            rows.extend(cost::rows(*aes)?);
        }
        Ok(rows)
    }
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
    /// Whether it had the lowest scheme.
    is_lowered: bool,
}

/// Both sides of a case.
struct Ends<'a> {
    case: Case,
    client: Talk<'a>,
    /// `None` if the server is Apache, which all its cases share.
    server: Option<Talk<'a>>,
}

impl<'a> Ends<'a> {
    fn start(place: &Place<'a>, case: Case, uploader: Option<&Foreign>) -> Result<Self, Error> {
        let (ground, keys) = (place.ground, place.keys);
        let namespace = &place.pair.server;
        let environment = environment(case.aes).iter().copied();
        let (strategy, address) = (case.strategy.name(), Pair::SERVER.to_string());
        let mut server = None;
        let port = match case.stack {
            Stack::Apache => Apache::port(case.strategy, case.aes).to_string(),
            Stack::Dunlin => {
                let mut words = ["server", strategy, &address].map(OsString::from).to_vec();
                words.push(keys.root.path().into());
                words.extend(keys.high.paths());
                words.extend(keys.low.paths());
                words.push(directory(place.files.path(), case)?);
                let mut command = this_program(words)?;
                let mut talk = Talk::start("dunlin", ground, namespace, command.envs(environment.clone()))?;
                let port = talk.hear()?;
                server = Some(talk);
                port
            }
        };
        let mut words: Vec<OsString> = match case.client {
            ClientKind::OpenSsl => {
                let resumption = if case.strategy == Strategy::Ticket { "resume" } else { "-" };
                [&address, &*port, "/upload", resumption].map(OsString::from).into()
            }
            ClientKind::Dunlin => {
                ["client", strategy, &format!("{address}:{port}")].map(OsString::from).into()
            }
        };
        words.push(keys.root.path().into());
        words.extend(keys.client.paths());
        let mut command = match (case.client, uploader) {
            (ClientKind::OpenSsl, Some(uploader)) => uploader.command(words),
            _ => this_program(words)?,
        };
        let client = Talk::start(case.client.name(), ground, namespace, command.envs(environment))?;
        Ok(Self { case, client, server })
    }

    /// Makes one upload with the scheme that the strategy is to bring about.
    fn upload(&mut self, size: usize, apaches: &mut BTreeMap<Aes, Apache<'_>>) -> Result<Upload, Error> {
        let upload = self.once(size, apaches)?;
        match upload.is_lowered == self.case.strategy.is_lowered() {
            true => Ok(upload),
            false => Err(talk::failed(&self.case.name(), "the upload has the other scheme")),
        }
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
        let (line, told) = (line?, told?);
        let us = |after: Duration| after.saturating_sub(before).as_secs_f64() * 1e6;
        let server_cpu_us = us(spent(&mut self.server)?);
        let unknown = || talk::failed(&self.case.name(), format_args!("unknown figures: {told}, {line:?}"));
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<f64>().ok());
        let mut words = told.split(' ');
        let client_us = number(words.next()).ok_or_else(unknown)?;
        let suite = words.next().ok_or_else(unknown)?.replace(['-', '_'], "");
        let is_lowered = suite.contains("AES128");
        let upload = Upload { client_us, server_cpu_us, is_lowered, ..Upload::default() };
        match (line.as_deref().map(|line| line.split(' ').collect::<Vec<_>>()).as_deref(), apache) {
            (Some([server_us, signatures, ..]), _) => {
                let (server_us, signatures) = (number(Some(server_us)), number(Some(signatures)));
                Ok(Upload { server_us: server_us.ok_or_else(unknown)?, signatures, ..upload })
            }
            (None, Some(apache)) => Ok(Upload { server_us: apache.server_us()?, ..upload }),
            _ => Err(unknown()),
        }
    }
}

/// The directory of a server's upload.
fn directory(parent: &Path, case: Case) -> Result<OsString, Error> {
    let path = parent.join(case.name());
    std::fs::create_dir(&path).map_err(tls::failed)?;
    Ok(path.into())
}

/// A command that runs one side in another process.
fn this_program(words: Vec<OsString>) -> Result<Command, Error> {
    let mut command = Command::new(std::env::current_exe().map_err(tls::failed)?);
    command.args(["lab", "upload"]).args(words);
    Ok(command)
}

/// The rows of all sizes and cases.
fn rows(sizes: &[usize], cases: &[Case], figures: &BTreeMap<(usize, Case), Vec<Upload>>) -> Vec<Row> {
    let of = |size: usize, case: Case, figure: fn(&Upload) -> f64| {
        let uploads = figures.get(&(size, case)).map(Vec::as_slice).unwrap_or_default();
        uploads.iter().map(figure).collect::<Vec<_>>()
    };
    let mut rows = Vec::new();
    for size in sizes {
        for case in cases {
            let all = |figure| of(*size, *case, figure);
            let row = case.row(*size).figure("server_us", &all(|upload| upload.server_us));
            let row = match case.paper_us(*size) {
                Some(us) => row.paper("server_us", us),
                None => row,
            };
            let row = row
                .figure("server_cpu_us", &all(|upload| upload.server_cpu_us))
                .figure("client_us", &all(|upload| upload.client_us));
            let counted: Vec<_> = figures
                .get(&(*size, *case))
                .into_iter()
                .flatten()
                .filter_map(|upload| upload.signatures)
                .collect();
            let row = row.figure("signatures", &counted);
            let cpu = |size: usize, case| median_of(&of(size, case, |upload| upload.server_cpu_us));
            let row = match line(sizes, *case, cpu) {
                Some(line) => {
                    let model = line.at(*size as f64);
                    let error = (model / cpu(*size, *case) - 1.0) * 100.0;
                    row.figure("server_cpu_model_us", &[model]).figure("model_error_percent", &[error])
                }
                None => row,
            };
            rows.push(match case.strategy {
                Strategy::None => row,
                _ => reduced(row, |case, figure| median_of(&of(*size, case, figure)), *case, *size),
            });
        }
    }
    rows
}

/// The paper's model of a case: equation (1) fitted to its medians, or for renegotiations equation (2) with the fits of the others.
fn line(sizes: &[usize], case: Case, cpu: impl Fn(usize, Case) -> f64) -> Option<Line> {
    let of = |strategy| {
        let case = Case { strategy, ..case };
        let points: Vec<_> = sizes.iter().map(|size| (*size as f64, cpu(*size, case))).collect();
        Line::through(&points).filter(|_| points.iter().all(|(_, us)| *us > 0.0))
    };
    if case.strategy != Strategy::Renegotiation {
        return of(case.strategy);
    }
    let (first, last, resumed) = (of(Strategy::None)?, of(Strategy::Lowest)?, of(Strategy::Ticket)?);
    // Apache shows the same certificate again.
    let second = if case.stack == Stack::Apache { first } else { last };
    Some(model::renegotiated(first, second, resumed, last))
}

/// Adds by how much the case costs less than the highest scheme, of the medians.
fn reduced(row: Row, median: impl Fn(Case, fn(&Upload) -> f64) -> f64, case: Case, size: usize) -> Row {
    let percent = |figure| (1.0 - median(case, figure) / median(case.reference(), figure)) * 100.0;
    let row = row.figure("reduction_percent", &[percent(|upload| upload.server_us)]);
    let row = match case.paper_us(size).zip(case.reference().paper_us(size)) {
        Some((us, reference)) => row.paper("reduction_percent", (1.0 - us / reference) * 100.0),
        None => row,
    };
    row.figure("cpu_reduction_percent", &[percent(|upload| upload.server_cpu_us)])
}

/// Runs one side of an upload, or measures the cost of single operations, when this program has started itself. `words` are the side, or
/// `costs`, and its arguments.
///
/// # Errors
/// A word is unknown, a file has other contents, or a connection failed.
pub fn side_of_upload(words: &[OsString]) -> Result<(), Error> {
    match words.split_first() {
        Some((side, words)) if side == "server" => server::run(words),
        Some((side, words)) if side == "client" => client::run(words),
        Some((side, words)) if side == "costs" => cost::run(words),
        _ => Err(unknown()),
    }
}

fn unknown() -> Error {
    Error::new("lab upload", "unknown words", "this is for the lab itself")
}
