//! Datagrams that the sockets have not taken yet: a queue for each socket, so that one that takes nothing
//! stops no other.

use std::io;

use dunlin::{Local, Transmit};

use super::socket::SEND_BATCH;

/// Where datagrams come from, and where they go.
pub(super) trait Outlet {
    /// The next datagram.
    fn next(&mut self) -> Option<Transmit>;

    /// Sends datagrams over this socket. Returns how many of them are done with. An error is about the first
    /// datagram.
    fn send(&mut self, local: Local, datagrams: &[Transmit]) -> io::Result<usize>;

    /// Whether what waits for this socket, which takes nothing, may be lost so that other sockets go on:
    /// every association has left it for another one, or it has associations of its own beside others at
    /// other ports.
    fn may_lose(&self, local: Local) -> bool;

    /// Takes note of an error of a socket. This datagram is lost, and the engine sends it again if it
    /// matters.
    fn failed(&mut self, error: &io::Error, lost: &Transmit);
}

/// The datagrams that wait.
#[derive(Default)]
pub(super) struct Unsent {
    queues: Vec<Queue>,
}

struct Queue {
    local: Local,
    waiting: Vec<Transmit>,
    /// Whether the socket takes nothing now.
    is_blocked: bool,
}

impl Unsent {
    /// The sockets that must take something before all datagrams are sent.
    pub(super) fn blocked(&self) -> Vec<Local> {
        self.queues.iter().map(|queue| queue.local).collect()
    }

    /// Whether another datagram may come. A socket that takes nothing keeps one batch; then the senders have
    /// to wait, unless the batch may be lost.
    fn has_room(&self) -> bool {
        let open = self.queues.iter().filter(|queue| !queue.is_blocked);
        let is_open = open.map(|queue| queue.waiting.len()).sum::<usize>() < SEND_BATCH;
        is_open && self.queues.iter().all(|queue| queue.waiting.len() < SEND_BATCH)
    }

    fn push(&mut self, transmit: Transmit) {
        match self.queues.iter_mut().find(|queue| queue.local == transmit.local) {
            Some(queue) => queue.waiting.push(transmit),
            None => {
                self.queues.push(Queue { local: transmit.local, waiting: vec![transmit], is_blocked: false });
            }
        }
    }

    /// Sends what waits, as far as the sockets take it. Returns whether no further datagram comes.
    pub(super) fn flush(&mut self, outlet: &mut impl Outlet) -> bool {
        self.queues.iter_mut().for_each(|queue| queue.is_blocked = false);
        loop {
            let mut is_drained = false;
            while !is_drained && self.has_room() {
                match outlet.next() {
                    Some(transmit) => self.push(transmit),
                    None => is_drained = true,
                }
            }
            let Some(queue) = self.queues.iter_mut().find(|queue| !queue.is_blocked) else {
                return is_drained;
            };
            match outlet.send(queue.local, &queue.waiting) {
                Ok(sent) => drop(queue.waiting.drain(..sent.min(queue.waiting.len()))),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    queue.is_blocked = true;
                    // Datagrams that wait for a dead interface, or for one port of a pool, must not delay the
                    // output over other sockets.
                    if queue.waiting.len() >= SEND_BATCH && outlet.may_lose(queue.local) {
                        queue.waiting.clear();
                    }
                }
                Err(e) => {
                    let lost = queue.waiting.remove(0);
                    outlet.failed(&e, &lost);
                }
            }
            self.queues.retain(|queue| !queue.waiting.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, VecDeque};

    use super::*;

    /// Sockets. Some of them take nothing.
    #[derive(Default)]
    struct Sockets {
        input: VecDeque<Transmit>,
        blocked: BTreeSet<Local>,
        /// The sockets whose datagrams may be lost.
        left: BTreeSet<Local>,
        refused: BTreeSet<Local>,
        sent: BTreeMap<Local, Vec<u8>>,
        errors: usize,
    }

    impl Sockets {
        fn add(&mut self, local: u32, bytes: impl IntoIterator<Item = u8>) {
            let to = ([192, 0, 2, 1], 5684).into();
            let transmit = |byte| Transmit { local: Local(local), source: None, to, datagram: vec![byte] };
            self.input.extend(bytes.into_iter().map(transmit));
        }

        fn sent(&self, local: u32) -> &[u8] {
            self.sent.get(&Local(local)).map_or(&[], Vec::as_slice)
        }
    }

    impl Outlet for Sockets {
        fn next(&mut self) -> Option<Transmit> {
            self.input.pop_front()
        }

        fn send(&mut self, local: Local, datagrams: &[Transmit]) -> io::Result<usize> {
            assert!(datagrams.iter().all(|transmit| transmit.local == local) && !datagrams.is_empty());
            if self.blocked.contains(&local) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if self.refused.contains(&local) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            // A system call may take fewer.
            let taken = datagrams.len().min(5);
            self.sent.entry(local).or_default().extend(datagrams[..taken].iter().map(|t| t.datagram[0]));
            Ok(taken)
        }

        fn may_lose(&self, local: Local) -> bool {
            self.left.contains(&local)
        }

        fn failed(&mut self, _: &io::Error, _: &Transmit) {
            self.errors += 1;
        }
    }

    #[test]
    fn a_blocked_socket_does_not_stop_the_others() {
        let mut unsent = Unsent::default();
        let mut sockets = Sockets::default();
        sockets.blocked.insert(Local(0));
        for byte in 0..20 {
            sockets.add(0, [byte]);
            sockets.add(1, [byte]);
        }
        assert!(unsent.flush(&mut sockets));
        assert_eq!((sockets.sent(0).len(), sockets.sent(1).len()), (0, 20));
        assert_eq!(unsent.blocked(), [Local(0)]);
        // It takes datagrams again, in order.
        sockets.blocked.clear();
        assert!(unsent.flush(&mut sockets) && unsent.blocked().is_empty());
        assert_eq!(sockets.sent(0), (0..20).collect::<Vec<_>>());
        assert_eq!(sockets.sent(1), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn senders_wait_for_a_blocked_socket_that_an_association_uses() {
        let mut unsent = Unsent::default();
        let mut sockets = Sockets::default();
        sockets.blocked.insert(Local(0));
        sockets.add(0, 0..200);
        assert!(!unsent.flush(&mut sockets));
        assert_eq!(sockets.input.len(), 200 - SEND_BATCH);
        assert!(!unsent.flush(&mut sockets));
        assert_eq!(sockets.input.len(), 200 - SEND_BATCH, "it takes nothing, so nothing more comes");
        // The association goes over to another interface, and says so there.
        sockets.left.insert(Local(0));
        sockets.input.clear();
        sockets.add(1, [1, 2]);
        assert!(unsent.flush(&mut sockets) && unsent.blocked().is_empty());
        assert_eq!(sockets.sent(1), [1, 2]);
    }

    /// A port of a pool takes nothing. Its own datagrams are lost, and datagrams of other ports leave.
    #[test]
    fn what_waits_for_one_port_of_a_pool_stops_no_other_port() {
        let mut unsent = Unsent::default();
        let mut sockets = Sockets::default();
        sockets.blocked.insert(Local(1));
        sockets.left.insert(Local(1));
        sockets.add(1, 0..200);
        sockets.add(2, [1, 2]);
        assert!(unsent.flush(&mut sockets));
        assert_eq!((sockets.sent(1).len(), sockets.sent(2)), (0, &[1, 2][..]));
        sockets.blocked.clear();
        assert!(unsent.flush(&mut sockets) && sockets.sent(1).len() < SEND_BATCH);
    }

    #[test]
    fn an_error_loses_one_datagram() {
        let mut unsent = Unsent::default();
        let mut sockets = Sockets::default();
        sockets.refused.insert(Local(0));
        sockets.add(0, [1, 2]);
        sockets.add(1, [3]);
        assert!(unsent.flush(&mut sockets) && unsent.blocked().is_empty());
        assert_eq!((sockets.errors, sockets.sent(0), sockets.sent(1)), (2, &[][..], &[3][..]));
    }
}
