//! The thread that moves packets between the devices.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tun_rs::SyncDevice;

use super::line::{Counts, Direction, Packet, State};
use crate::Error;

/// The size of the largest IP packet.
const MAX_PACKET: usize = 65535;

/// The number of packets read from one device before the other gets its turn, and before due packets are
/// sent.
const BATCH: usize = 64;

/// Any real-time priority is above all programs with time slices.
const PRIORITY: u8 = 10;

/// How long before a packet is due the thread wakes up and then spins, because the kernel's timers are less
/// exact.
const EARLY: Duration = Duration::from_micros(100);

/// Gives the calling thread real-time priority if permitted.
pub(crate) fn in_real_time() -> bool {
    let fifo = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    ThreadPriorityValue::try_from(PRIORITY).is_ok_and(|value| {
        set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Crossplatform(value), fifo).is_ok()
    })
}

/// Forwards between the two `devices` until `stop` becomes readable.
pub(super) fn run(
    devices: &[SyncDevice; 2],
    stop: BorrowedFd<'_>,
    mut state: State,
    counts: &Mutex<Counts>,
) -> Result<(), Error> {
    let [a, b] = devices;
    let start = Instant::now();
    let mut buffer = vec![0; MAX_PACKET];
    loop {
        while let Some(packet) = state.arrived(start.elapsed()) {
            let to = if packet.direction == Direction::AToB { b } else { a };
            deliver(&packet, to, start, &mut counts.lock().unwrap_or_else(PoisonError::into_inner))?;
        }
        let wait = state.due().map(|due| TimeSpec::from(due.saturating_sub(start.elapsed() + EARLY)));
        let mut polled = [a.as_fd(), b.as_fd(), stop].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match ppoll(&mut polled, wait, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(gone(&errno.desc())),
        }
        let [from_a, from_b, stopped] = polled.map(|fd| fd.revents().unwrap_or(PollFlags::POLLERR));
        if !stopped.is_empty() {
            return Ok(());
        }
        for (device, events, direction) in [(a, from_a, Direction::AToB), (b, from_b, Direction::BToA)] {
            if events.contains(PollFlags::POLLERR) {
                return Err(gone(&"a device was removed"));
            }
            if events.contains(PollFlags::POLLIN) {
                take(device, direction, start, &mut state, &mut buffer, counts)?;
            }
        }
    }
}

/// Reads the waiting packets of `device`.
fn take(
    device: &SyncDevice,
    direction: Direction,
    start: Instant,
    state: &mut State,
    buffer: &mut [u8],
    counts: &Mutex<Counts>,
) -> Result<(), Error> {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..BATCH {
        match device.recv(buffer) {
            Ok(len) => {
                let packet = buffer.get(..len).unwrap_or_default();
                state.send(direction, start.elapsed(), packet, &mut counts);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(gone(&error)),
        }
    }
    Ok(())
}

/// Writes `packet` to the device at the other end.
fn deliver(packet: &Packet, to: &SyncDevice, start: Instant, counts: &mut Counts) -> Result<(), Error> {
    let late = start.elapsed().saturating_sub(packet.due);
    match to.send(&packet.bytes) {
        Ok(_) => {
            counts.forwarded += 1;
            counts.forwarded_bytes += packet.bytes.len() as u64;
            counts.late += late;
            counts.latest = counts.latest.max(late);
        }
        // A device that is down drops packets, like a pulled cable.
        Err(error) if error.raw_os_error() == Some(Errno::EIO as i32) => counts.refused += 1,
        Err(error) => return Err(gone(&error)),
    }
    Ok(())
}

fn gone(why: &dyn std::fmt::Display) -> Error {
    Error::new("link", why, "keep the namespaces and devices until the link has ended")
}
