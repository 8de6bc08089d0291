//! The configuration: TOML files, read and checked as a whole, with all faults at once.
//!
//! [`Config::load`] reads a file, or all `*.toml` files of a directory in the order of their names. Keys and
//! certificates are read when a gateway starts or reloads. If the configuration has a fault, `load` reads
//! them itself, to report both kinds at once.

mod acme;
mod cache;
mod certificate;
mod clients;
mod credentials;
mod frozen;
mod limits;
mod listener;
mod name;
mod nodes;
mod redirect;
mod route;
mod shared;
mod store;
mod together;
mod transport;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

pub use dunlin_setup::credentials::{CredentialTrust, OwnCredential};
use dunlin_store::text;
use dunlin_tokio::addresses;

pub use crate::document::{Fault, Faults, Field, FileField, Place};
pub(crate) use crate::document::{Kind, Section, Source};
pub use acme::{AcmeChallenge, AcmeConfig};
pub use cache::CacheConfig;
pub(crate) use cache::cache;
pub use certificate::{CertificateFiles, OwnFiles};
pub(crate) use certificate::{certificate, check_names};
pub use clients::{ClientsConfig, Verify};
pub(crate) use credentials::{credential_trust, own_credential};
pub use frozen::FrozenConfig;
pub use limits::Limits;
pub use listener::ListenerConfig;
pub(crate) use listener::named;
pub use name::NamePattern;
pub use nodes::{NodeConfig, NodesConfig};
pub use redirect::{Join, RedirectConfig};
pub use route::{MqttConfig, RouteConfig, RouteProtocol, UserName};
pub(crate) use route::{alpn, host_and_port, host_of};
pub use shared::SharedConfig;
pub(crate) use together::{check_unique, of_admin, of_both_families, without_clients};
pub(crate) use transport::versions;
pub use transport::{TransportKind, Versions};

/// The largest configuration file, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// The most files in a directory of configuration files.
const MAX_FILES: usize = 1000;

/// The time that established connections have to end after SIGTERM, unless the configuration says otherwise.
const DEFAULT_SHUTDOWN_TIME: Duration = Duration::from_secs(30);

/// The maximum number of simultaneous connections of a listener, unless the configuration says otherwise.
pub(crate) const DEFAULT_CONNECTIONS: usize = 10_000;

/// The open files without which a program with default limits serves hardly any client.
pub(crate) const FEW_FILES: u64 = 1024;

/// The open files of a program beside its connections: log, sockets of listeners, stores.
pub(crate) const OTHER_FILES: u64 = 100;

/// The least important events that the log contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Failures of the gateway itself.
    Error,
    /// Also failed connections.
    Warn,
    /// Also each connection and its end.
    Info,
    /// Also choices and details of each connection.
    Debug,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object in each line.
    Json,
}

/// The table `[log]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The least important events that the log contains.
    pub level: LogLevel,
    /// The form of the log.
    pub format: LogFormat,
}

/// The table `[admin]`.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// The address to listen on.
    pub listen: Field<SocketAddr>,
    /// Names of this machine that requests may have in `Host`, besides `localhost` and IP addresses. In lower
    /// case.
    pub hosts: Vec<String>,
}

/// The settings that gateways and tunnels have in common.
#[derive(Clone, Debug)]
pub struct Common {
    /// The log.
    pub log: LogConfig,
    /// How long established connections may go on after the program was told to stop.
    pub shutdown_time: Duration,
    /// `[admin]`: where `/metrics` and `/status` are; `None`: nowhere.
    pub admin: Option<AdminConfig>,
    /// `[known] file`: where the program keeps what has ended; `None`: in its memory.
    pub known: Option<FileField>,
}

impl Common {
    /// Reads the common tables. `own` is the name of the program's own table, and `read_limits` reads
    /// `[limits]`.
    pub(crate) fn read<'a, L>(
        sections: &mut [Section<'a>],
        own: &'static str,
        read_limits: impl FnOnce(Option<&mut Section<'a>>) -> L,
    ) -> (Self, L) {
        let log = log(single(sections, "log"));
        let mut program = single(sections, own);
        let shutdown_time = program.as_mut().and_then(|table| table.duration("shutdown_time"));
        if let Some(program) = program {
            program.end();
        }
        let admin = admin(single(sections, "admin"));
        let mut limits = single(sections, "limits");
        let read = read_limits(limits.as_mut());
        if let Some(limits) = limits {
            limits.end();
        }
        let shutdown_time = shutdown_time.unwrap_or(DEFAULT_SHUTDOWN_TIME);
        let common = Self { log, shutdown_time, admin, known: known(single(sections, "known")) };
        (common, read)
    }
}

/// The configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// The log, the end, and the administrative listener.
    pub common: Common,
    /// `[nodes]`: other gateways that serve the same clients; `None`: there is none.
    pub nodes: Option<NodesConfig>,
    /// The listeners, in the order of the file; at least one.
    pub listeners: Vec<ListenerConfig>,
}

impl Config {
    /// Whether `path` is a configuration rather than a policy: a directory, or TOML with the key `listener`.
    pub fn is_at(path: &Path) -> bool {
        let has_listener = |text: String| {
            let source = Source::new(path, text);
            source.parse(&mut vec![]).get_ref().iter().any(|(name, _)| name.get_ref() == "listener")
        };
        path.is_dir() || read(path).is_ok_and(has_listener)
    }

    /// Reads this text as if it were the file `path`.
    ///
    /// # Errors
    /// All faults of the text.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Faults> {
        let (config, faults) = Self::of(&[Source::new(path, text.to_owned())], vec![]);
        Faults::none_in(faults).map(|()| config)
    }

    /// The most files that the gateway may have open, if every listener has all its clients: each has a
    /// connection to the backend. If every listener has the default numbers, it is a few files: then the
    /// gateway serves as many clients as the system allows.
    pub fn open_files(&self) -> u64 {
        let defaults = Limits::default();
        let is_default = |limits: &Limits| {
            (limits.connections, limits.handshakes) == (defaults.connections, defaults.handshakes)
        };
        if self.listeners.iter().all(|listener| is_default(&listener.limits)) {
            return FEW_FILES;
        }
        let of_listener = |listener: &ListenerConfig| {
            let Limits { connections, handshakes, .. } = listener.limits;
            let connections = connections as u64;
            let handshakes = handshakes as u64;
            match listener.transport {
                // Failed handshakes that wait for their client to close have as many places as the others.
                TransportKind::Tls => 2 * connections + 2 * handshakes,
                TransportKind::Dtls => connections,
            }
        };
        self.listeners.iter().map(of_listener).fold(OTHER_FILES, u64::saturating_add)
    }

    /// The readable part of the configuration, and the faults.
    pub(crate) fn of(sources: &[Source], found: Vec<Fault>) -> (Self, Vec<Fault>) {
        walk(sources, found, |sections, faults| {
            let (common, defaults) =
                Common::read(sections, "gateway", |limits| Limits::read(limits, &Limits::default()));
            let nodes = NodesConfig::read(sections, faults);
            let tables = listener_tables(sections).into_iter();
            let mut listeners: Vec<_> = tables.map(|table| ListenerConfig::read(table, &defaults)).collect();
            demand_listeners(listeners.is_empty(), sections, faults, "docs/gateway.md");
            if let Some(shared) = SharedConfig::read(sections) {
                listeners.iter_mut().for_each(|listener| listener.shared = Some(shared.clone()));
            }
            together::check_together(&listeners, common.admin.as_ref(), faults);
            Self { common, nodes, listeners }
        })
    }
}

/// The content of the file `path`, or of the `*.toml` files of the directory `path`, and the faults of
/// unreadable ones.
pub(crate) fn load(path: &Path) -> Result<(Vec<Source>, Vec<Fault>), Faults> {
    let mut faults = vec![];
    let mut sources = vec![];
    for file in files(path).map_err(Faults::one)? {
        match read(&file) {
            Ok(text) => sources.push(Source::new(file, text)),
            Err(fault) => faults.push(fault),
        }
    }
    Ok((sources, faults))
}

/// Parses files and lets `read` read their tables. Returns its result with all faults: `found`, faults of the
/// syntax, faults that `read` adds, and the keys that `read` leaves out.
pub(crate) fn walk<T>(
    sources: &[Source],
    mut found: Vec<Fault>,
    read: impl FnOnce(&mut [Section<'_>], &RefCell<Vec<Fault>>) -> T,
) -> (T, Vec<Fault>) {
    let parsed: Vec<_> = sources.iter().map(|source| source.parse(&mut found)).collect();
    let faults = RefCell::new(found);
    let mut sections: Vec<_> = sources
        .iter()
        .zip(&parsed)
        .map(|(source, table)| Section::top(source, table.get_ref(), &faults))
        .collect();
    let value = read(&mut sections, &faults);
    sections.into_iter().for_each(Section::end);
    (value, faults.take())
}

/// The tables `[[listener]]` of all files.
pub(crate) fn listener_tables<'a>(sections: &mut [Section<'a>]) -> Vec<Section<'a>> {
    sections.iter_mut().flat_map(|section| section.tables("listener")).collect()
}

/// Adds a fault if the files have no other fault, and no listener.
pub(crate) fn demand_listeners(
    is_empty: bool,
    sections: &[Section<'_>],
    faults: &RefCell<Vec<Fault>>,
    document: &str,
) {
    let is_complete = faults.borrow().is_empty();
    if is_empty && is_complete {
        let place = sections.first().map(|section| section.place().clone());
        let advice = format!("add a table [[listener]], as {document} describes");
        let fault = Fault::elsewhere("there is no listener", advice);
        faults.borrow_mut().push(Fault { place, ..fault });
    }
}

/// An address to listen on.
pub(crate) const ADDRESS: Kind = Kind {
    name: "an IP address with a port",
    allowed: "write it as in \"0.0.0.0:8883\" or \"[::]:8883\"; 0.0.0.0 and [::] stand for all addresses",
};

/// A number of connections or handshakes.
pub(crate) const COUNT: Kind =
    Kind { name: "a number from 1 to 10000000", allowed: "write a number without quotation marks" };
/// The largest number of connections: more than the memory of a machine holds.
pub(crate) const MAX_COUNT: u64 = 10_000_000;

/// The table under this key, which only one of the files may contain.
pub(crate) fn single<'a>(sections: &mut [Section<'a>], key: &'static str) -> Option<Section<'a>> {
    let mut found: Option<Section<'a>> = None;
    for section in sections {
        let Some(table) = section.table(key) else { continue };
        match &found {
            None => found = Some(table),
            Some(first) => {
                let what = format!("the table {key} is also in {}", first.place());
                table.fault(table.place().fault(what, "write it in one file"));
            }
        }
    }
    found
}

/// A name in the header `Host`.
const HOST: Kind = Kind {
    name: "a host name",
    allowed: "write names of this machine without a port, as in \"gateway.example.org\"",
};

fn admin(section: Option<Section<'_>>) -> Option<AdminConfig> {
    let mut section = section?;
    let address = section.read("listen", ADDRESS, |value| addresses::parse(value.as_str()?).ok());
    let remote = section.switch("remote").unwrap_or(false);
    let hosts = section.list("hosts", HOST, |value| {
        let name = value.as_str()?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        (!name.is_empty() && name.chars().all(is_name)).then(|| name.to_ascii_lowercase())
    });
    let hosts = hosts.unwrap_or_default().into_iter().map(|field| field.value).collect();
    if !section.has("listen") {
        section.missing("listen", "write an address of this machine, as in \"127.0.0.1:9464\"");
    }
    if let Some(Field { value, place }) =
        address.as_ref().filter(|address| !remote && !address.value.ip().to_canonical().is_loopback())
    {
        section.fault(place.fault(
            format!("everyone who reaches {value} could read which clients connect"),
            "name a loopback address, as in \"127.0.0.1:9464\", or write remote = true if that network is trusted",
        ));
    }
    section.end();
    Some(AdminConfig { listen: address?, hosts })
}

fn known(section: Option<Section<'_>>) -> Option<FileField> {
    let mut section = section?;
    let file = section.file("file");
    if !section.has("file") {
        section.missing("file", "name a file for this program alone, as in \"/var/lib/dunlin/known\"");
    }
    section.end();
    file
}

fn log(section: Option<Section<'_>>) -> LogConfig {
    let mut log = LogConfig { level: LogLevel::Info, format: LogFormat::Text };
    if let Some(mut section) = section {
        let levels = [
            ("error", LogLevel::Error),
            ("warn", LogLevel::Warn),
            ("info", LogLevel::Info),
            ("debug", LogLevel::Debug),
        ];
        log.level = section.one_of("level", &levels).unwrap_or(log.level);
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        log.format = section.one_of("format", &formats).unwrap_or(log.format);
        section.end();
    }
    log
}

/// The file itself, or the configuration files of a directory.
fn files(path: &Path) -> Result<Vec<std::path::PathBuf>, Fault> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |error: std::io::Error| Fault::of_file(path, error, "give a directory that can be read");
    let mut files = vec![];
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        // Other systems leave files such as `._gateway.toml` beside those that they copy, and editors
        // `.gateway.toml.swp`.
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && file.extension().is_some_and(|extension| extension == "toml") && file.is_file() {
            files.push(file);
        }
        if files.len() > MAX_FILES {
            let what = format!("more than {MAX_FILES} configuration files");
            return Err(Fault::of_file(path, what, "merge some of them"));
        }
    }
    files.sort();
    if files.is_empty() {
        Err(Fault::of_file(path, "no file with a name that ends in .toml", "write one, or name a file"))
    } else {
        Ok(files)
    }
}

fn read(path: &Path) -> Result<String, Fault> {
    use std::io::Read;
    let unread = |error: std::io::Error| {
        let (why, advice) = text::unreadable(&error, "give a file of TOML");
        Fault::of_file(path, why, advice)
    };
    let file = std::fs::File::open(path).map_err(unread)?;
    let mut content = vec![];
    file.take(MAX_FILE + 1).read_to_end(&mut content).map_err(unread)?;
    if content.len() as u64 > MAX_FILE {
        let what = format!("larger than {} MiB", MAX_FILE >> 20);
        return Err(Fault::of_file(path, what, "give a file of TOML"));
    }
    let text = text::text(&content).map_err(|why| Fault::of_file(path, why, why.advice()))?;
    Ok(text.to_string())
}
