//! Apache httpd with OpenSSL as the other server, with the same keys, suites, group and signature scheme.
//!
//! One process serves all cases, each on a port of its own. Its log gives the server's time: the moment of the accepted connection,
//! and the moment after the last byte of the answer.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{User, chown};
use tempfile::TempDir;

use super::case::{Aes, Strategy};
use super::environment;
use super::keys::Keys;
use super::talk::processor_time;
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

/// The strategies of Apache. `renegotiation` demands another suite for the path, so Apache asks the client for another handshake. It
/// cannot show another certificate then.
pub(super) const STRATEGIES: [Strategy; 4] =
    [Strategy::None, Strategy::Lowest, Strategy::Renegotiation, Strategy::Ticket];

/// A running Apache.
pub(super) struct Apache<'a> {
    process: Process<'a>,
    directory: TempDir,
    /// The lines of the logs that are read already.
    accepted: usize,
    ended: usize,
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
        let process = ground.spawn(namespace, &mut command)?;
        let mut apache = Self { process, directory, accepted: 0, ended: 0 };
        apache.wait(namespace, (address, Self::port(Strategy::None, aes)))?;
        Ok(apache)
    }

    /// The port of a strategy. Each environment has an Apache of its own.
    pub(super) fn port(strategy: Strategy, aes: Aes) -> u16 {
        let at = STRATEGIES.iter().position(|of| *of == strategy).unwrap_or_default();
        let first = if aes == Aes::Hardware { 0 } else { STRATEGIES.len() };
        FIRST_PORT + (first + at) as u16
    }

    /// Waits until it listens.
    fn wait(&mut self, namespace: &Namespace, address: (Ipv4Addr, u16)) -> Result<(), Error> {
        let start = Instant::now();
        while namespace.run(|| TcpStream::connect(address))?.is_err() {
            let has_ended = self.process.child().try_wait().map_err(failed)?.is_some();
            if has_ended || start.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.path("error.log")).unwrap_or_default();
                return Err(failed(log.lines().last().unwrap_or("it does not listen")));
            }
            thread::sleep(PAUSE);
        }
        // The log has a line about this connection.
        self.accepted += 1;
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The microseconds of the connection after the previous one, from accept to the last byte of the answer. Call it once for each
    /// upload.
    pub(super) fn server_us(&mut self) -> Result<f64, Error> {
        let start = Instant::now();
        loop {
            let read = |name: &str| fs::read_to_string(self.path(name)).unwrap_or_default();
            let (accepted, ended) = (read("error.log"), read("access.log"));
            let accepted = accepted.lines().filter(|line| line.contains("AH01964")).nth(self.accepted);
            if let Some((accepted, ended)) = accepted.and_then(in_quarter).zip(whole(&ended).nth(self.ended))
            {
                self.accepted += 1;
                self.ended += 1;
                let ended: f64 = ended.parse().map_err(failed)?;
                return Ok((ended - accepted).rem_euclid(QUARTER_US));
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

/// The configuration.
fn written(directory: &Path, address: Ipv4Addr, keys: &Keys, aes: Aes) -> String {
    let here = directory.display();
    let modules = ["mpm_prefork", "authz_core", "ssl", "dav", "dav_fs"];
    let modules: String =
        modules.iter().map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n")).collect();
    let hosts: String = STRATEGIES.iter().map(|strategy| host(*strategy, address, keys, aes)).collect();
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
ErrorLogFormat \"%{{cu}}t %M\"
ErrorLog \"{here}/error.log\"
LogLevel warn ssl:info
LogFormat \"%{{end:usec}}t\" end
CustomLog \"{here}/access.log\" end
SSLSessionCache none
<Directory \"{here}/files\">
    Dav On
    Require all granted
</Directory>
{hosts}"
    )
}

/// The part of the configuration for a strategy.
fn host(strategy: Strategy, address: Ipv4Addr, keys: &Keys, aes: Aes) -> String {
    let [high, low] = ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"];
    let (suites, key) = match strategy {
        Strategy::None => (high.to_owned(), &keys.high),
        Strategy::Lowest | Strategy::Ticket => (low.to_owned(), &keys.low),
        _ => (format!("{high}:{low}"), &keys.high),
    };
    let location = match strategy {
        Strategy::Renegotiation => {
            format!("    <Location />\n        SSLCipherSuite {low}\n    </Location>\n")
        }
        _ => String::new(),
    };
    let tickets = if strategy == Strategy::Ticket { "on" } else { "off" };
    let port = Apache::port(strategy, aes);
    let (root, [certificate, key]) = (keys.root.path(), key.paths());
    let (root, certificate, key) = (root.display(), certificate.display(), key.display());
    format!(
        "Listen {address}:{port}
<VirtualHost {address}:{port}>
    SSLEngine on
    SSLProtocol TLSv1.2
    SSLCipherSuite {suites}
    SSLHonorCipherOrder on
    SSLSessionTickets {tickets}
    SSLCertificateFile {certificate}
    SSLCertificateKeyFile {key}
    SSLCACertificateFile {root}
    SSLVerifyClient require
{location}</VirtualHost>
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
