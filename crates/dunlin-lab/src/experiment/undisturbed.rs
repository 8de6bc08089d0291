//! The frames of connections on real sockets, captured again until nothing has disturbed them.

use std::borrow::Borrow;
use std::time::Duration;

use super::datagrams::is_undisturbed;
use crate::Error;
use crate::capture::{Capture, Frame};
use crate::count::{Connection, connections};
use crate::net::Pair;

/// Longer than any connection, even with large keys on a busy machine or at the lowest rate.
const PATIENCE: Duration = Duration::from_secs(60);
/// The maximum number of repetitions if packets were retransmitted.
const ATTEMPTS: u32 = 10;

/// Returns the frames of `count` connections between two namespaces, over TCP from SYN to FIN. On a busy
/// machine, TCP or a stack may mistake a delay for a loss and retransmit. That is not the stack's fault, so the
/// measurement is repeated.
pub(super) fn frames<P: Borrow<Pair>>(
    name: &str,
    (count, over_datagrams): (usize, bool),
    pair: impl Fn() -> Result<P, Error>,
    connect: impl Fn(&Pair) -> Result<(), Error>,
) -> Result<Vec<Frame>, Error> {
    let spoilt = |why: &str| Error::new(name, why, "run it again on an idle machine");
    for attempt in 1..=ATTEMPTS {
        let made = pair()?;
        let pair: &Pair = made.borrow();
        let mut capture = Capture::start(&pair.client, Pair::DEVICE)?;
        let connected = connect(pair);
        if over_datagrams {
            let frames = capture.finish()?;
            // A rival may fail when its datagrams come late.
            match (is_undisturbed(&frames), connected) {
                (true, connected) => return connected.map(|()| frames),
                (false, Err(error)) if attempt == ATTEMPTS => return Err(error),
                (false, _) => continue,
            }
        }
        connected?;
        let closed = |frames: &[Frame]| {
            let all = connections(frames);
            all.len() == count && all.iter().all(Connection::is_closed)
        };
        if !capture.wait(PATIENCE, closed)? {
            return Err(spoilt("each connection should open and close, but one does not"));
        }
        let frames = capture.finish()?;
        if connections(&frames).iter().all(|connection| connection.resent_packets == 0) {
            return Ok(frames);
        }
    }
    Err(spoilt("packets are sent again and again"))
}
