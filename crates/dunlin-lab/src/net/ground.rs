//! Namespaces, and processes that do not outlive the experiment.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};

use super::namespace::on_own_thread;
use super::{End, Namespace, set_mtu, veth};
use crate::Error;

/// The MTU of Ethernet, in bytes.
pub(crate) const MTU: u16 = 1500;
/// How often a process is asked whether it listens.
const PAUSE: Duration = Duration::from_millis(1);

/// Starts processes in namespaces, and ends them all when it is dropped or when this process ends, even by
/// SIGKILL.
///
/// The processes have a PID namespace. Its first process only reads from a pipe to which only this process
/// can write. When this process is gone, the first process reads the end of the pipe and exits, and the
/// kernel kills the others with it.
#[derive(Debug)]
pub struct Ground {
    first: Child,
    pids: File,
}

/// A process that a [`Ground`] started; killed when it is dropped.
#[derive(Debug)]
pub struct Process<'a> {
    child: Child,
    _ground: &'a Ground,
}

/// Two namespaces, joined by a pair of Ethernet devices or by a line.
#[derive(Debug)]
pub struct Pair {
    /// The clients' namespace.
    pub client: Namespace,
    /// The servers' namespace.
    pub server: Namespace,
}

impl Ground {
    /// Prepares to start processes.
    ///
    /// # Errors
    /// The process lacks the privileges.
    pub fn new() -> Result<Self, Error> {
        let what = "PID namespace";
        let failed = |error: std::io::Error| Error::new(what, error, "check that /proc is there, and cat");
        let mut first = on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWPID).map_err(|errno| Error::refused(what, errno))?;
            let mut cat = Command::new("cat");
            cat.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            cat.spawn().map_err(failed)
        })?;
        match File::open(format!("/proc/{}/ns/pid", first.id())) {
            Ok(pids) => Ok(Self { first, pids }),
            Err(error) => {
                end(&mut first);
                Err(failed(error))
            }
        }
    }

    /// Makes a namespace. Its name in messages includes the number of this process.
    ///
    /// # Errors
    /// The process lacks the privileges.
    pub fn namespace(&self, name: &str) -> Result<Namespace, Error> {
        Namespace::new(&format!("dunlin-{}-{name}", process::id()))
    }

    /// Makes two namespaces, joined by Ethernet.
    ///
    /// # Errors
    /// As [`veth`].
    pub fn pair(&self, mtu: u16) -> Result<Pair, Error> {
        let pair = self.apart()?;
        veth(pair.ends(mtu))?;
        Ok(pair)
    }

    /// Makes two namespaces, which nothing joins yet.
    pub(crate) fn apart(&self) -> Result<Pair, Error> {
        Ok(Pair { client: self.namespace("client")?, server: self.namespace("server")? })
    }

    /// Starts `command` in a network namespace.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn spawn(&self, namespace: &Namespace, command: &mut Command) -> Result<Process<'_>, Error> {
        let child = namespace.run(|| {
            setns(&self.pids, CloneFlags::CLONE_NEWPID)
                .map_err(|errno| Error::refused("PID namespace", errno))?;
            let program = command.get_program().to_string_lossy().into_owned();
            command.spawn().map_err(|error| Error::new(program, error, "install it, or correct its path"))
        })??;
        Ok(Process { child, _ground: self })
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        end(&mut self.first);
    }
}

impl Process<'_> {
    /// The process, to talk to or to wait for. Its number here differs from the one inside its PID namespace.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits until the process listens at this address; returns false if it has ended, or is too late.
    pub(crate) fn listens(
        &mut self,
        namespace: &Namespace,
        address: SocketAddr,
        patience: Duration,
    ) -> Result<bool, Error> {
        let start = Instant::now();
        while namespace.run(|| TcpStream::connect(address))?.is_err() {
            if start.elapsed() > patience || !matches!(self.child.try_wait(), Ok(None)) {
                return Ok(false);
            }
            thread::sleep(PAUSE);
        }
        Ok(true)
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Kills a process and waits for its end. Both fail only if that has happened before.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

impl Pair {
    /// The address of the client's device.
    pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
    /// The address of the server's device.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
    /// The name of the device in both namespaces.
    pub const DEVICE: &str = "veth0";
    /// The network of both.
    pub(crate) const NETWORK: &str = "10.77.0.0/24";
    const PREFIX: u8 = 24;

    /// Sets the MTU on both ends.
    ///
    /// # Errors
    /// The devices refuse the value: IPv4 needs 68 bytes.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), Error> {
        set_mtu(self.ends(mtu))
    }

    /// The ends of what joins them.
    pub(crate) fn ends(&self, mtu: u16) -> [End<'_>; 2] {
        [(&self.client, Self::CLIENT), (&self.server, Self::SERVER)].map(|(namespace, address)| End {
            namespace,
            device: Self::DEVICE,
            address: Some((address, Self::PREFIX)),
            mtu,
        })
    }
}
