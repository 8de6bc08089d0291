//! A network namespace as a value.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

use crate::Error;

/// The directory of named namespaces of `ip netns`.
const NAMED: &str = "/run/netns";

/// The namespace of the calling thread; each thread of a process can have its own.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// A network namespace, held open.
///
/// A namespace made by [`new`](Self::new) has no name in the file system. The kernel removes it, with its
/// devices, when the last process, socket or descriptor in it is gone. So even a killed run leaves nothing
/// behind.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Makes a namespace, called `name` in messages. It has only a loopback device, which is down, and no
    /// IPv6, which would send packets of its own.
    ///
    /// # Errors
    /// The process lacks the privileges.
    pub fn new(name: &str) -> Result<Self, Error> {
        let what = format!("network namespace {name}");
        on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| Error::refused(&what, errno))?;
            without_ipv6()?;
            Self::held(name, Path::new(CURRENT))
        })
    }

    /// Opens the namespace that `ip netns` calls `name_or_path`, or the one at a path such as
    /// `/proc/4711/ns/net`.
    ///
    /// # Errors
    /// The namespace does not exist, or cannot be opened.
    pub fn open(name_or_path: &str) -> Result<Self, Error> {
        let path = if name_or_path.contains('/') {
            PathBuf::from(name_or_path)
        } else {
            Path::new(NAMED).join(name_or_path)
        };
        Self::held(name_or_path, &path)
    }

    fn held(name: &str, path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| {
            Error::new(
                format_args!("network namespace {name}"),
                error,
                "`ip netns list` shows those with a name; a path such as /proc/PID/ns/net does as well",
            )
        })?;
        Ok(Self { name: name.to_owned(), file })
    }

    /// The name by which it was made or opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A path to the namespace, valid while this value lives: for `nsenter --net=PATH` and `ip link … netns
    /// PATH`.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd()))
    }

    /// Moves the calling thread into the namespace permanently.
    ///
    /// # Errors
    /// The process lacks the privileges.
    pub fn enter(&self) -> Result<(), Error> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
            // The path is a file, but not a network namespace.
            Errno::EINVAL => Error::new(
                format_args!("network namespace {}", self.name),
                "is something else",
                "give the name of a namespace, or a path such as /proc/PID/ns/net",
            ),
            errno => Error::refused(format_args!("entering network namespace {}", self.name), errno),
        })
    }

    /// Runs `work` on a thread in the namespace, so that its sockets and processes belong there.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_own_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }

    /// Sets a parameter of IPv4 in the namespace, for example `tcp_rmem`.
    ///
    /// # Errors
    /// There is no such parameter, the value is wrong, or the process lacks the rights.
    pub fn set(&self, parameter: &str, value: &str) -> Result<(), Error> {
        let path = format!("/proc/sys/net/ipv4/{parameter}");
        let written = self.run(|| fs::write(&path, value))?;
        written.map_err(|error| Error::new(path, error, "run it where /proc/sys is writable"))
    }
}

/// Disables IPv6 in the namespace of the calling thread, for present and future devices.
fn without_ipv6() -> Result<(), Error> {
    for devices in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{devices}/disable_ipv6");
        match fs::write(&path, "1") {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::new(path, error, "run it where /proc/sys is writable"));
            }
            // A kernel without IPv6 has nothing to disable.
            _ => {}
        }
    }
    Ok(())
}

/// Runs `work` on a new thread, so that the caller stays in its namespaces.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| resume_unwind(panic))
}
