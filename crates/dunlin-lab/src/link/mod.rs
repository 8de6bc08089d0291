//! A line with delay, jitter, loss, a rate and cuts, between two network namespaces.
//!
//! Many kernels lack netem, so the lab forwards packets itself: a TUN device in each namespace, and a thread
//! that reads from one and writes to the other at the packet's time. The thread runs under `SCHED_FIFO` if
//! permitted; otherwise a busy machine adds milliseconds.

mod forward;
mod line;

use std::fmt::Display;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use crate::Error;
use crate::net::{End, Ground, MTU, Pair};

pub(crate) use forward::in_real_time;
pub use line::{Counts, Cut, Line};

/// A link that forwards until it is dropped; its devices vanish with it.
#[derive(Debug)]
pub struct Link {
    stop: Arc<EventFd>,
    ended: Arc<EventFd>,
    counts: Arc<Mutex<Counts>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
    realtime: bool,
}

impl Link {
    /// Makes the devices, brings them up and forwards between them as `line` says. `seed` determines the lost
    /// packets.
    ///
    /// # Errors
    /// The line is impossible, TUN devices are missing, or the process lacks privileges.
    pub fn start(ends: [End<'_>; 2], line: &Line, seed: u64) -> Result<Self, Error> {
        line.check()?;
        let [a, b] = ends;
        let devices = [a.device()?, b.device()?];
        let broken = |error: &dyn Display| Error::new("link", error, "free some resources");
        let event = || {
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC).map(Arc::new).map_err(|errno| broken(&errno.desc()))
        };
        let stop = event()?;
        let ended = event()?;
        let counts = Arc::new(Mutex::new(Counts::default()));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = {
            let stop = Arc::clone(&stop);
            let ended = Arc::clone(&ended);
            let counts = Arc::clone(&counts);
            let state = line::State::new(line.clone(), seed);
            std::thread::Builder::new().name("link".into()).spawn(move || {
                // Neither can fail while the link exists. Afterwards the result does not matter.
                let _ = ready.send(in_real_time());
                let result = forward::run(&devices, stop.as_fd(), state, &counts);
                let _ = ended.write(1);
                result
            })
        };
        let thread = thread.map_err(|error| broken(&error))?;
        let realtime = is_ready.recv().unwrap_or(false);
        Ok(Self { stop, ended, counts, thread: Some(thread), realtime })
    }

    /// Makes two namespaces, joined by a line of Ethernet's MTU.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn between(ground: &Ground, line: &Line, seed: u64) -> Result<(Pair, Self), Error> {
        let pair = ground.apart()?;
        let link = Self::start(pair.ends(MTU), line, seed)?;
        Ok((pair, link))
    }

    /// Returns whether the thread has real-time priority. Without it, delays are longer on a busy machine.
    pub fn is_real_time(&self) -> bool {
        self.realtime
    }

    /// The counts of packets so far.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forwards until `signal` becomes readable, and returns the counts.
    ///
    /// # Errors
    /// The link ended before, because a device was removed.
    pub fn run_until(self, signal: impl AsFd) -> Result<Counts, Error> {
        let mut polled = [signal.as_fd(), self.ended.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        while let Err(errno) = poll(&mut polled, PollTimeout::NONE) {
            if errno != Errno::EINTR {
                return Err(Error::new("link", errno.desc(), "free some resources"));
            }
        }
        self.stop()
    }

    /// Ends the link and returns the counts.
    ///
    /// # Errors
    /// The link had ended before, because a device was removed.
    pub fn stop(mut self) -> Result<Counts, Error> {
        self.end().map(|()| self.counts())
    }

    fn end(&mut self) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.stop.write(1).map_err(|errno| Error::new("link", errno.desc(), "end the process"))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Only a caller of `stop` learns the result.
        let _ = self.end();
    }
}

impl End<'_> {
    fn device(&self) -> Result<SyncDevice, Error> {
        let what = || format!("TUN device {} in network namespace {}", self.device, self.namespace.name());
        let made = self.namespace.run(|| {
            let mut builder = DeviceBuilder::new().name(self.device).layer(Layer::L3).mtu(self.mtu);
            if let Some((address, prefix)) = self.address {
                builder = builder.ipv4(address, prefix, None);
            }
            let device = builder.build_sync()?;
            device.set_nonblocking(true)?;
            Ok(device)
        })?;
        made.map_err(|error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(what(), "there is no /dev/net/tun", "load the kernel module: modprobe tun")
            }
            std::io::ErrorKind::PermissionDenied => {
                Error::new(what(), "needs root or CAP_NET_ADMIN", "run it with sudo")
            }
            std::io::ErrorKind::ResourceBusy => {
                Error::new(what(), "is there already", "take another name, or end what uses it")
            }
            _ => Error::new(what(), error, "check its name, address and MTU"),
        })
    }
}
