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

/// Where `ip netns` keeps the namespaces that have a name.
const NAMED: &str = "/run/netns";

/// The namespace of the calling thread: each thread of a process can have its own.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// A network namespace, held open.
///
/// One made by [`new`](Self::new) has no name in the file system: the kernel removes it, with its devices, when the
/// last process, socket or descriptor in it is gone. So nothing is left of a run that was killed.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// A new namespace, called `name` in messages. It has only a loopback device, which is down, and no IPv6: IPv6 would send
    /// packets of its own, which would be counted.
    ///
    /// # Errors
    /// Without the privileges to make one.
    pub fn new(name: &str) -> Result<Self, Error> {
        let what = format!("network namespace {name}");
        on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| Error::refused(&what, errno))?;
            without_ipv6()?;
            Self::held(name, Path::new(CURRENT))
        })
    }

    /// The namespace that `ip netns` calls `name_or_path`, or the one behind a path such as `/proc/4711/ns/net`.
    ///
    /// # Errors
    /// If there is none, or it may not be opened.
    pub fn open(name_or_path: &str) -> Result<Self, Error> {
        let path = match name_or_path.contains('/') {
            true => PathBuf::from(name_or_path),
            false => Path::new(NAMED).join(name_or_path),
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

    /// The name it was made or opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A path that leads to it while this value lives: for `nsenter --net=PATH` and for `ip link … netns PATH`.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd()))
    }

    /// Moves the calling thread into the namespace, for good.
    ///
    /// # Errors
    /// Without the privileges to do so.
    pub fn enter(&self) -> Result<(), Error> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
            // The path is a file, but no network namespace.
            Errno::EINVAL => Error::new(
                format_args!("network namespace {}", self.name),
                "is something else",
                "give the name of a namespace, or a path such as /proc/PID/ns/net",
            ),
            errno => Error::refused(format_args!("entering network namespace {}", self.name), errno),
        })
    }

    /// Does `work` on a thread in the namespace: sockets that it opens and processes that it starts belong there.
    ///
    /// # Errors
    /// Those of [`enter`](Self::enter).
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_own_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }
}

/// Switches IPv6 off in the namespace of the calling thread, for the devices that are there and those to come.
fn without_ipv6() -> Result<(), Error> {
    for devices in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{devices}/disable_ipv6");
        match fs::write(&path, "1") {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::new(path, error, "run it where /proc/sys is writable"));
            }
            // A kernel without IPv6 has nothing to switch off.
            _ => {}
        }
    }
    Ok(())
}

/// Does `work` on a thread that ends with it, so that the caller stays in its namespaces.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| resume_unwind(panic))
}
