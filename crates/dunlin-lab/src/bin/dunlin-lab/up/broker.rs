//! Mosquitto, if it is installed, behind the gateway.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// The sample for the gateway's users, whose port is another one here.
const CONFIG: &str = include_str!("../../../../../../docs/samples/mosquitto/mosquitto.conf");
const ACL: &str = include_str!("../../../../../../docs/samples/mosquitto/acl");
const SAMPLE_PORT: &str = "1883";
/// The names of the files.
pub(super) const FILES: [&str; 2] = ["mosquitto.conf", "acl"];
/// Debian installs it outside the PATH of ordinary users.
const DIRECTORIES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
/// How often a free port is tried: another program may take it before Mosquitto does.
const ATTEMPTS: u8 = 8;
/// How long Mosquitto may take to listen, and how often it is asked.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Finds the program.
pub(super) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(DIRECTORIES.map(PathBuf::from));
    directories.map(|directory| directory.join("mosquitto")).find(|program| program.is_file())
}

/// A running broker, which ends with this value.
pub(super) struct Broker {
    child: Child,
    address: SocketAddr,
}

impl Broker {
    /// Starts the broker with its files in this directory.
    pub(super) async fn start(program: &Path, dir: &Path, existing: Existing) -> Result<Self, Error> {
        let failed =
            |error| Error::failed(program.display(), error, "remove it from PATH, or correct its package");
        let [config, acl] = FILES.map(|name| dir.join(name));
        files::write(&acl, ACL.as_bytes(), Access::Public, existing)?;
        let mut replace = existing;
        for _ in 0..ATTEMPTS {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
            let address = free.local_addr().map_err(failed)?;
            drop(free);
            // Started by root, it would become a user that cannot read the directory.
            let text = CONFIG.replace(SAMPLE_PORT, &address.port().to_string()) + "user root\n";
            files::write(&config, text.as_bytes(), Access::Public, replace)?;
            replace = Existing::Replace;
            let mut command = Command::new(program);
            command.arg("-c").arg(FILES[0]).current_dir(dir);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            // Ctrl-C at the terminal ends the devices first.
            let child = command.process_group(0).spawn().map_err(failed)?;
            let mut broker = Self { child, address };
            if broker.listens().await.map_err(failed)? {
                return Ok(broker);
            }
        }
        Err(failed(io::Error::other("it ends when it is started")))
    }

    /// Waits until the broker listens. Returns false if it has ended.
    async fn listens(&mut self) -> io::Result<bool> {
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            if TcpStream::connect(self.address).await.is_ok() {
                return Ok(true);
            }
            if begin.elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sleep(PAUSE).await;
        }
        Ok(false)
    }

    /// The address on which it listens.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It fails only if the broker has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
