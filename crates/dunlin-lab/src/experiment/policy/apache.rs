//! Apache httpd with OpenSSL as the other server, with the same keys, suites, group and signature scheme.
//!
//! One process serves all cases, each on a port of its own. Its log gives the server's time: the moment of
//! the accepted connection, and the moment after the last byte of the answer.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{User, chown};
use tempfile::TempDir;

use super::super::keys::SERVER_NAME;
use super::case::{Aes, Case, LowKey, Strategy};
use super::environment;
use super::keys::Keys;
use super::talk::{Side, keep_on_core, processor_time};
use crate::Error;
use crate::net::{Ground, Namespace, Process};

const NAME: &str = "apache";
/// Where Debian has the program and its modules.
const PROGRAM: &str = "/usr/sbin/apache2";
const MODULES: &str = "/usr/lib/apache2/modules";
/// The user that has few rights on every Debian, since Apache does not serve as root.
const USER: &str = "www-data";
/// The port of the first case, in a namespace of our own.
const FIRST_PORT: u16 = 4431;
/// The time in which Apache must listen, or write its log.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);
/// Time zones differ by multiples of a quarter of an hour.
const QUARTER_US: f64 = 900e6;

/// The distance from the port of a case to its port for plain HTTP.
const TO_HTTP: u16 = 100;

/// The cases of Apache by strategy and key. For a renegotiation, the path demands other suites, so Apache
/// asks the client for another handshake. It cannot show another certificate then. Redirections go by the
/// name in the URL.
const HOSTS: &[(Strategy, LowKey)] = &[
    (Strategy::None, LowKey::Rsa2048),
    (Strategy::Lowest, LowKey::Rsa2048),
    (Strategy::Renegotiation, LowKey::Rsa2048),
    (Strategy::RenegotiationHighest, LowKey::Rsa2048),
    (Strategy::RenegotiationLowest, LowKey::Rsa2048),
    (Strategy::Redirection, LowKey::Rsa2048),
    (Strategy::RedirectionUnauthenticated, LowKey::Rsa2048),
    (Strategy::Ticket, LowKey::Rsa2048),
    (Strategy::ChaCha20, LowKey::Rsa2048),
    #[cfg(feature = "legacy-lab")]
    (Strategy::Lowest, LowKey::Rsa1024),
    #[cfg(feature = "legacy-lab")]
    (Strategy::RenegotiationLowest, LowKey::Rsa1024),
];

/// An upload in Apache's logs.
pub(super) struct Told {
    /// The microseconds from accept to the last byte of the answer.
    pub(super) server_us: f64,
    /// The suite of the upload.
    pub(super) suite: String,
}

/// A running Apache.
pub(super) struct Apache<'a> {
    process: Process<'a>,
    directory: TempDir,
    /// The lines of the logs that are read already.
    accepted: usize,
    ended: usize,
    redirected: usize,
}

impl<'a> Apache<'a> {
    /// Starts it.
    ///
    /// # Errors
    /// It is not installed, or it does not listen.
    pub(super) fn start(
        ground: &'a Ground,
        namespace: &Namespace,
        address: Ipv4Addr,
        keys: &Keys,
        aes: Aes,
    ) -> Result<Self, Error> {
        if !Path::new(PROGRAM).exists() {
            return Err(failed(format_args!("{PROGRAM} does not exist")));
        }
        let directory = tempfile::tempdir().map_err(failed)?;
        let user = User::from_name(USER).map_err(failed)?;
        let user = user.ok_or_else(|| failed(format_args!("the user {USER} does not exist")))?;
        let files = directory.path().join("files");
        fs::create_dir(&files).map_err(failed)?;
        for path in [directory.path(), &files] {
            chown(path, Some(user.uid), Some(user.gid)).map_err(failed)?;
        }
        let configuration = directory.path().join("httpd.conf");
        fs::write(&configuration, written(directory.path(), address, keys, aes)).map_err(failed)?;
        let mut command = Command::new(PROGRAM);
        // One process, without children.
        command.arg("-X").arg("-f").arg(&configuration).envs(environment(aes).iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = ground.spawn(namespace, &mut command)?;
        keep_on_core(process.child().id(), Side::Server)?;
        let listens = process.listens(namespace, (address, port(HOSTS[0], aes)).into(), PATIENCE)?;
        // The log has a line about the connection by which that was found out.
        let apache = Self { process, directory, accepted: 1, ended: 0, redirected: 0 };
        if listens {
            return Ok(apache);
        }
        let log = fs::read_to_string(apache.path("error.log")).unwrap_or_default();
        Err(failed(log.lines().last().unwrap_or("it does not listen")))
    }

    /// The port that the client of a case connects to first. Each environment has an Apache of its own.
    pub(super) fn port(case: &Case) -> u16 {
        let https = port((case.strategy, case.low), case.aes);
        if case.strategy.is_redirection() { https + TO_HTTP } else { https }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Reads the logs of the next upload, and of the request for a redirection before it. Call it once for
    /// each upload.
    pub(super) fn told(&mut self, strategy: Strategy) -> Result<Told, Error> {
        let start = Instant::now();
        loop {
            let read = |name: &str| fs::read_to_string(self.path(name)).unwrap_or_default();
            let accepted = read("error.log");
            let ended = read("access.log");
            let plain = read("plain.log");
            let accepted = accepted.lines().filter(|line| line.contains("AH01964")).nth(self.accepted);
            let ended = whole(&ended).nth(self.ended).and_then(|line| line.split_once(' '));
            let redirection =
                if strategy.is_redirection() { whole(&plain).nth(self.redirected) } else { Some("0") };
            if let (Some(accepted), Some((ended, suite)), Some(redirection)) =
                (accepted.and_then(in_quarter), ended, redirection)
            {
                self.accepted += 1;
                self.ended += 1;
                self.redirected += usize::from(strategy.is_redirection());
                let (ended, redirection): (f64, f64) =
                    (ended.parse().map_err(failed)?, redirection.parse().map_err(failed)?);
                let server_us = (ended - accepted).rem_euclid(QUARTER_US) + redirection;
                return Ok(Told { server_us, suite: suite.to_owned() });
            }
            if start.elapsed() > PATIENCE {
                return Err(failed("its log lacks a connection"));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Its processor time so far, once it waits.
    pub(super) fn processor_time(&mut self) -> Result<Duration, Error> {
        processor_time(NAME, self.process.child().id())
    }
}

/// The port for HTTPS.
fn port(host: (Strategy, LowKey), aes: Aes) -> u16 {
    let at = HOSTS.iter().position(|of| *of == host).unwrap_or_default();
    FIRST_PORT + at as u16 + if aes == Aes::Hardware { 0 } else { HOSTS.len() as u16 }
}

/// The lines of a log that are complete.
fn whole(log: &str) -> impl Iterator<Item = &str> {
    log.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'))
}

/// The microseconds since the quarter of an hour, from a line that begins with `2026-11-23 05:15:26.123456`.
fn in_quarter(line: &str) -> Option<f64> {
    let time = line.split(' ').nth(1)?;
    let mut parts = time.split(':').skip(1);
    let (minutes, seconds): (f64, f64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((minutes * 60.0 + seconds) * 1e6 % QUARTER_US)
}

/// The configuration. Without `AcceptFilter`, the kernel would keep a connection until the client has sent
/// something, so the log would not count the time that the client takes for that.
fn written(directory: &Path, address: Ipv4Addr, keys: &Keys, aes: Aes) -> String {
    let here = directory.display();
    let modules = ["mpm_prefork", "authz_core", "alias", "setenvif", "ssl", "dav", "dav_fs"];
    let modules: String =
        modules.iter().map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n")).collect();
    let hosts: String = HOSTS.iter().map(|of| host(*of, address, keys, aes)).collect();
    format!(
        "ServerRoot \"{here}\"
DefaultRuntimeDir \"{here}\"
PidFile \"{here}/pid\"
ServerName localhost
User {USER}
Group {USER}
{modules}DocumentRoot \"{here}/files\"
DavLockDB \"{here}/lock\"
KeepAlive Off
AcceptFilter http none
AcceptFilter https none
ErrorLogFormat \"%{{cu}}t %M\"
ErrorLog \"{here}/error.log\"
LogLevel warn ssl:info
LogFormat \"%{{end:usec}}t %{{SSL_CIPHER}}x\" end
CustomLog \"{here}/access.log\" end env=!redirected
LogFormat \"%D\" duration
CustomLog \"{here}/plain.log\" duration env=redirected
SSLSessionCache none
<Directory \"{here}/files\">
    Dav On
    Require all granted
</Directory>
{hosts}"
    )
}

/// The part of the configuration for a case.
fn host((strategy, low_key): (Strategy, LowKey), address: Ipv4Addr, keys: &Keys, aes: Aes) -> String {
    let [high, low] = ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"];
    let (suites, key) = match strategy {
        Strategy::None => (high.to_owned(), &keys.high),
        Strategy::Renegotiation | Strategy::RenegotiationHighest => (format!("{high}:{low}"), &keys.high),
        // The path demands a part of this list, so Apache renegotiates to the suite that is in use already.
        Strategy::RenegotiationLowest => (format!("{low}:{high}"), keys.low(low_key)),
        Strategy::ChaCha20 => (format!("{high}:ECDHE-RSA-CHACHA20-POLY1305"), &keys.high),
        _ => (low.to_owned(), keys.low(low_key)),
    };
    // OpenSSL accepts short keys on this level only.
    let suites = if low_key == LowKey::Rsa1024 { format!("{suites}:@SECLEVEL=0") } else { suites };
    let demanding = |suite| format!("    <Location />\n        SSLCipherSuite {suite}\n    </Location>\n");
    let location = match strategy {
        Strategy::Renegotiation | Strategy::RenegotiationLowest => demanding(low),
        Strategy::RenegotiationHighest => demanding(high),
        _ => String::new(),
    };
    let tickets = if strategy == Strategy::Ticket { "on" } else { "off" };
    // A client that lists ChaCha20 first has no instructions for AES.
    let order = if strategy == Strategy::ChaCha20 { "off" } else { "on" };
    let verify = if strategy == Strategy::RedirectionUnauthenticated { "none" } else { "require" };
    let port = port((strategy, low_key), aes);
    let (root, [certificate, key]) = (keys.root.path(), key.paths());
    let root = root.display();
    let certificate = certificate.display();
    let key = key.display();
    let plain = if strategy.is_redirection() { redirecting(address, port) } else { String::new() };
    format!(
        "{plain}Listen {address}:{port}
<VirtualHost {address}:{port}>
    SSLEngine on
    SSLProtocol TLSv1.2
    SSLCipherSuite {suites}
    SSLHonorCipherOrder {order}
    SSLSessionTickets {tickets}
    SSLCertificateFile {certificate}
    SSLCertificateKeyFile {key}
    SSLCACertificateFile {root}
    SSLVerifyClient {verify}
{location}</VirtualHost>
"
    )
}

/// The host for plain HTTP, which redirects to `port`.
fn redirecting(address: Ipv4Addr, port: u16) -> String {
    let http = port + TO_HTTP;
    format!(
        "Listen {address}:{http}
<VirtualHost {address}:{http}>
    SetEnvIf Request_URI . redirected
    Redirect 307 / https://{SERVER_NAME}:{port}/
</VirtualHost>
"
    )
}

fn failed(why: impl std::fmt::Display) -> Error {
    Error::new(NAME, why, "install it to have it measured: apt-get install apache2-bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_time_of_a_line_in_the_log() {
        let line =
            "2026-11-23 05:46:26.250000 AH01964: Connection to child 0 established (server localhost:443)";
        assert_eq!(in_quarter(line), Some((60.0 + 26.25) * 1e6));
        assert_eq!(in_quarter("AH00094: Command line"), None);
    }
}
