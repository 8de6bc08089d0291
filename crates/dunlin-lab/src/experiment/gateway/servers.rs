//! The servers: Dunlin's gateway, and other programs that end TLS in front of a TCP server. All are
//! configured alike, each with one worker on the same core.

use std::fmt::Display;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use tempfile::TempDir;

use super::super::core::Core;
use super::keys::Keys;
use crate::Error;
use crate::net::{Ground, Namespace, Process};

/// The time in which a server must listen.
const PATIENCE: Duration = Duration::from_secs(10);
/// nginx's modules on Debian.
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

named! {
    /// A program that ends TLS.
    pub(super) enum Stack {
        Dunlin = "dunlin",
        Stunnel = "stunnel",
        Haproxy = "haproxy",
        Nginx = "nginx",
    }
}

impl Stack {
    /// Debian's packages.
    const fn packages(self) -> &'static str {
        match self {
            Self::Dunlin => "nothing",
            Self::Stunnel => "stunnel4",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx libnginx-mod-stream",
        }
    }

    /// The program.
    fn program(self) -> Result<PathBuf, Error> {
        let of = |path: &str| {
            if Path::new(path).exists() {
                Ok(PathBuf::from(path))
            } else {
                Err(self.failed(format_args!("{path} does not exist")))
            }
        };
        match self {
            Self::Dunlin => {
                // The product is installed beside this program.
                let beside = std::env::current_exe().map_err(|error| self.failed(error))?;
                of(&beside.with_file_name("dunlin").to_string_lossy())
            }
            Self::Stunnel => of("/usr/bin/stunnel4"),
            Self::Haproxy => of("/usr/sbin/haproxy"),
            Self::Nginx => of(STREAM_MODULE).and_then(|_| of("/usr/sbin/nginx")),
        }
    }

    fn failed(self, why: impl Display) -> Error {
        let advice = match self {
            Self::Dunlin => "install the package dunlin, or `cargo build --release -p dunlin-cli`".to_owned(),
            _ => format!("install it to have it measured: apt-get install {}", self.packages()),
        };
        Error::new(self.name(), why, advice)
    }
}

/// A running server.
pub(super) struct Server<'a> {
    pub(super) stack: Stack,
    pub(super) address: SocketAddr,
    process: Process<'a>,
    /// Its configuration and its log.
    directory: TempDir,
}

/// The parameters of a server.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) stack: Stack,
    pub(super) keys: &'a Keys,
    /// Whether the handshake cache is on.
    pub(super) is_cached: bool,
    pub(super) port: u16,
    pub(super) backend: SocketAddr,
    /// The gateway's other listener, for DTLS at the next port.
    pub(super) datagrams: Option<Datagrams>,
}

/// A listener for DTLS.
#[derive(Clone, Copy)]
pub(super) struct Datagrams {
    pub(super) backend: SocketAddr,
    /// The clients of both listeners.
    pub(super) clients: usize,
    /// How long a client's socket to the backend stays open without traffic.
    pub(super) backend_time: Duration,
}

impl<'a> Server<'a> {
    /// Starts a server on `core`, and waits until it listens.
    ///
    /// # Errors
    /// The program is missing, or does not listen.
    pub(super) fn start(
        ground: &'a Ground,
        namespace: &Namespace,
        core: Core,
        order: Order<'_>,
    ) -> Result<Self, Error> {
        let stack = order.stack;
        let failed = |error| stack.failed(error);
        let program = stack.program()?;
        let directory = tempfile::tempdir().map_err(failed)?;
        let file = directory.path().join("configuration.toml");
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, order.port).into();
        fs::write(&file, written(order, address, directory.path())).map_err(failed)?;
        let log = fs::File::create(directory.path().join("log")).map_err(failed)?;
        let mut command = Command::new(program);
        match stack {
            Stack::Dunlin => command.args(["gateway", "-c"]).arg(&file),
            Stack::Stunnel => command.arg(&file),
            Stack::Haproxy => command.args(["-db", "-f"]).arg(&file),
            Stack::Nginx => command.arg("-c").arg(&file).arg("-p").arg(directory.path()),
        };
        let errors = log.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let process = core.run(|| ground.spawn(namespace, &mut command))??;
        let mut server = Self { stack, address, process, directory };
        if server.process.listens(namespace, address, PATIENCE)? {
            Ok(server)
        } else {
            Err(server.told("it does not listen"))
        }
    }

    /// The address of its listener for DTLS.
    pub(super) fn datagrams(&self) -> SocketAddr {
        SocketAddr::new(self.address.ip(), self.address.port() + 1)
    }

    /// Its resident memory in bytes.
    pub(super) fn memory(&mut self) -> Result<u64, Error> {
        let id = self.process.child().id();
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kilobytes.map(|kilobytes| kilobytes << 10).ok_or_else(|| self.told("it has ended"))
    }

    /// An error with the last line of its log.
    fn told(&self, otherwise: &str) -> Error {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        self.stack.failed(log.lines().next_back().unwrap_or(otherwise))
    }

    /// The processor time of all its threads so far, also of those that have ended.
    pub(super) fn processor_time(&mut self) -> Result<Duration, Error> {
        let ended = || Error::new(self.stack.name(), "it has ended", "run it again");
        let id = self.process.child().id();
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).map_err(|_| self.told("it has ended"))?;
        // The name of the program, in parentheses, is the second field; utime and stime are the 14th and 15th
        // (proc_pid_stat(5)).
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
        let times: Vec<u64> =
            fields.into_iter().flatten().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
        let [user, system] = times[..] else { return Err(ended()) };
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
        Ok(Duration::from_secs_f64((user + system) as f64 / ticks as f64))
    }
}

/// The configuration of a server.
fn written(order: Order<'_>, address: SocketAddr, directory: &Path) -> String {
    let Order { keys, backend, .. } = order;
    let [root, chain, key, pair] = keys.files().map(|path| path.display().to_string());
    let directory = directory.display();
    match order.stack {
        Stack::Dunlin => gateway(order, address, [&*root, &*chain, &*key]),
        Stack::Stunnel => format!(
            "foreground = quiet
pid =
syslog = no
debug = 3
[tls]
accept = {address}
connect = {backend}
cert = {chain}
key = {key}
CAfile = {root}
verifyChain = yes
requireCert = yes
sslVersionMin = TLSv1.3
ciphersuites = TLS_AES_128_GCM_SHA256
curves = prime256v1
sessionResume = no
options = NO_TICKET
config = NumTickets:0
libwrap = no
socket = l:TCP_NODELAY=1
socket = r:TCP_NODELAY=1
"
        ),
        Stack::Haproxy => format!(
            "global
    nbthread 1
    maxconn 9000
    tune.ssl.cachesize 0
defaults
    mode tcp
    timeout connect 5s
    timeout client 5m
    timeout server 5m
frontend tls
    bind {address} ssl crt {pair} ca-file {root} verify required ssl-min-ver TLSv1.3 no-tls-tickets ciphersuites TLS_AES_128_GCM_SHA256 curves P-256
    default_backend plain
backend plain
    server plain {backend}
"
        ),
        Stack::Nginx => format!(
            "load_module {STREAM_MODULE};
daemon off;
master_process off;
worker_processes 1;
error_log {directory}/log crit;
pid {directory}/pid;
events {{
    worker_connections 18000;
}}
stream {{
    server {{
        listen {address} ssl backlog=4096;
        ssl_certificate {chain};
        ssl_certificate_key {key};
        ssl_client_certificate {root};
        ssl_verify_client on;
        ssl_verify_depth 3;
        ssl_protocols TLSv1.3;
        ssl_ecdh_curve prime256v1;
        ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
        ssl_conf_command NumTickets 0;
        ssl_session_cache off;
        ssl_session_tickets off;
        proxy_timeout 5m;
        proxy_pass {backend};
    }}
}}
"
        ),
    }
}

/// The configuration of the gateway.
fn gateway(order: Order<'_>, address: SocketAddr, [root, chain, key]: [&str; 3]) -> String {
    let cache = if order.is_cached { "\n[listener.cache]\nmode = \"compact\"\n" } else { "" };
    let listener = |address: SocketAddr, more: &str, backend: SocketAddr| {
        format!(
            "
[[listener]]
listen = \"{address}\"
versions = [\"1.3\"]
tickets = 0
{more}
[[listener.certificate]]
chain = \"{chain}\"
key = \"{key}\"

[listener.clients]
ca = \"{root}\"
{cache}
[[listener.route]]
to = \"{backend}\"
"
        )
    };
    // The clients of a measurement have few addresses, and all connect at the same time.
    let limits = match order.datagrams {
        Some(Datagrams { clients, .. }) => format!("connections = {clients}"),
        None => "connections = 9000
connections_per_host = 9000
handshakes = 9000
handshakes_per_host = 9000
handshake_time = \"60s\""
            .to_owned(),
    };
    let streams = listener(address, "", order.backend);
    let datagrams = order.datagrams.map(|Datagrams { backend, backend_time, .. }| {
        let next = SocketAddr::new(address.ip(), address.port() + 1);
        let limits = format!("[listener.limits]\nbackend_time = \"{}s\"\n", backend_time.as_secs());
        listener(next, "transport = \"dtls\"\n", backend)
            .replace("[listener.clients]", &format!("{limits}\n[listener.clients]"))
    });
    format!("[log]\nlevel = \"warn\"\n\n[limits]\n{limits}\n{streams}{}", datagrams.unwrap_or_default())
}
