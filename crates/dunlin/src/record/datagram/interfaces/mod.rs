//! A client's local interfaces: over which one it sends, and what it sends again when that one fails.
//!
//! * A probe is a challenge of RFC 9853 with up to two repetitions. The first interface in the caller's order
//!   on which the server has answered the latest probe is the best one.
//! * The client probes an interface when it appears or changes its address. It probes the present one when
//!   the server has sent nothing for a while after the client's data, and after [`PROOF_AFTER`] records of
//!   data without an answer to a probe: the server's records do not show that it receives the client's. It
//!   probes one that has failed again, with a backoff, when data leaves. So an idle connection sends nothing.
//! * A client that leaves an interface first sends a record that tells the server the new address: in DTLS
//!   1.3 an ACK "which does not contain any record numbers" (RFC 9147 §7.1; a peer that has messages to send
//!   again may do so, §7.2), or in DTLS 1.2 an empty record of data (RFC 5246 §6.2.1). Challenges do not
//!   count (RFC 9853 §8.1.2). Then come the kept data records as they were, and the unacknowledged messages.
//! * Where each interface has a connection ID of its own, the client keeps asking the server for spare ones,
//!   and repeats nothing. It probes a quiet interface again after the server has issued [`REFRESH_AFTER`]
//!   IDs, so that the server keeps its ID.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::receive::ReceivedRecord;
use super::routability::Cookie;
use crate::address::{Local, PathChange};
use crate::flight::RecordNumber;
use crate::settings::{Linking, MAX_INTERFACES, Multihoming};
use crate::time::Instant;

mod driver;

/// The most records of data that are kept while the server has confirmed none of them.
const MAX_KEPT: usize = 32;

/// The connection IDs that a client wants beside the present one: for other interfaces and new addresses.
const SPARE_IDS: usize = MAX_INTERFACES;

/// How often a client asks for connection IDs without data in between. Servers may count too many requests as
/// an attack, as this engine does after 32 messages.
const MAX_IDLE_ASKS: u8 = 8;

/// The records of data without an answer to a probe after which the client probes the present interface.
const PROOF_AFTER: usize = MAX_KEPT;

/// The new connection IDs after which a client probes a quiet interface again: a server has room for a few,
/// and drops those first that were not used for the longest time.
const REFRESH_AFTER: usize = 3;

/// The pause before the next probe of an interface that has failed. It doubles with each failure.
const RETRY_AFTER: Duration = Duration::from_secs(30);
const LONGEST_RETRY: Duration = Duration::from_secs(60 * 60);

/// The shortest wait for an answer: schedulers and radio networks delay datagrams by this much.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);

/// The client's knowledge of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing yet, since it or its address is new.
    New,
    /// The server has answered there.
    Valid,
    /// The server has not answered there.
    Failed,
}

#[derive(Clone)]
struct Interface {
    local: Local,
    standing: Standing,
    probe: Option<Probe>,
    /// The latest round-trip time, and the shortest.
    rtt: Option<(Duration, Duration)>,
    /// The server's connection ID for this interface, while another one is present and each has its own.
    id: Option<Vec<u8>>,
    /// The one before it, which the server may have dropped.
    left_id: Option<Vec<u8>>,
    /// Whether the latest attempt had that one again, and got no answer.
    is_reused: bool,
    /// Whether nothing has been sent from its address yet.
    is_fresh: bool,
    /// The challenges of a probe that has failed. The answer may only be late.
    late: Vec<(Cookie, Instant)>,
    /// The pause after the next failure, and when the interface may be probed again.
    retry: (Duration, Instant),
    /// The data records sent over it since the latest answer, and the server's new connection IDs since then.
    unproven: usize,
    issued: usize,
    /// The highest number of a record of the server that came over it while it was the present one.
    newest: RecordNumber,
}

/// An interface has no connection ID of its own.
pub(super) struct NoId;

/// A probe without an answer so far.
#[derive(Clone)]
struct Probe {
    /// The cookie of each challenge, and when it was sent.
    sent: Vec<(Cookie, Instant)>,
    /// When the next challenge is due, or the interface fails.
    next: Instant,
}

/// A record of data that was sent and may not have arrived.
#[derive(Clone)]
struct Kept {
    at: Instant,
    epoch: u64,
    /// Its bytes, if it may be repeated.
    datagram: Option<Vec<u8>>,
    /// Whether it has left over several interfaces.
    is_covered: bool,
}

/// The interfaces of a client.
#[derive(Clone)]
pub(super) struct Interfaces {
    settings: Multihoming,
    /// The best first.
    list: Vec<Interface>,
    kept: VecDeque<Kept>,
    /// How many records of data are unconfirmed, but not kept for lack of room.
    overflow: usize,
    /// When the latest data was sent.
    sent_at: Instant,
    /// When the latest authentic record came over the present interface.
    heard_at: Option<Instant>,
    /// Whether the client has asked for spare connection IDs that have not come yet.
    has_asked: bool,
    /// How often it has asked since it last sent data.
    asked: u8,
    /// Whether the server had no spare connection ID when it was last asked.
    is_declined: bool,
    /// Whether data has left that lets the client ask or probe again.
    wakes: bool,
    /// The latest change of this side's path that the caller has not taken yet.
    change: Option<PathChange>,
}

impl Interface {
    const fn new(local: Local, standing: Standing) -> Self {
        let is_fresh = matches!(standing, Standing::New);
        Self {
            local,
            standing,
            probe: None,
            rtt: None,
            id: None,
            left_id: None,
            is_reused: false,
            is_fresh,
            late: Vec::new(),
            retry: (RETRY_AFTER, Instant(0)),
            unproven: 0,
            issued: 0,
            newest: RecordNumber { epoch: 0, sequence: 0 },
        }
    }

    /// The server has not answered its probe.
    fn fail(&mut self, now: Instant) {
        self.standing = Standing::Failed;
        self.late = self.probe.take().map(|probe| probe.sent).unwrap_or_default();
        self.left_id = self.id.take().or(self.left_id.take());
        let (pause, _) = self.retry;
        self.retry = ((pause * 2).min(LONGEST_RETRY), now + pause);
    }

    /// Whether the server should answer there again, before it drops the interface's connection ID.
    const fn is_forgotten(&self) -> bool {
        matches!(self.standing, Standing::Valid) && self.id.is_some() && self.issued >= REFRESH_AFTER
    }

    /// A connection ID for the next attempt at this address: the previous one and a spare one in turn, so
    /// that a dead interface does not use up the spare ones.
    fn next_id(&mut self, spare: impl FnOnce() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        self.is_reused = !self.is_reused && self.left_id.is_some();
        let left = self.left_id.clone();
        if self.is_reused { left } else { spare().or(left) }
    }

    /// Keeps the connection ID under which the client has sent over this interface until now.
    fn keep(&mut self, id: Vec<u8>) {
        match self.standing {
            // The latest attempt reused the older of two IDs. The server has more likely dropped that one.
            Standing::Failed if self.is_reused && self.left_id.is_some() => {}
            Standing::Failed => self.left_id = Some(id),
            Standing::New | Standing::Valid => self.id = Some(id),
        }
    }

    /// How long the client waits for an answer of the server before it doubts the interface.
    fn patience(&self, timeout: Duration) -> Duration {
        self.rtt.map_or(timeout / 3, |(rtt, _)| (rtt * 2).max(SHORTEST_WAIT).min(timeout))
    }

    /// The pause after a challenge. RFC 9853 §5.5: together three round-trip times.
    fn pause(&self, timeout: Duration) -> Duration {
        self.rtt.map_or(timeout / 3, |(rtt, _)| rtt.max(SHORTEST_WAIT).min(timeout / 3))
    }
}

impl Interfaces {
    pub(super) fn new(settings: Multihoming, local: Local) -> Self {
        Self {
            settings,
            list: [Interface::new(local, Standing::Valid)].into(),
            kept: VecDeque::new(),
            overflow: 0,
            sent_at: Instant(0),
            heard_at: None,
            has_asked: false,
            asked: 0,
            is_declined: false,
            wakes: false,
            change: None,
        }
    }

    fn is_unlinkable(&self) -> bool {
        self.settings.linking == Linking::Unlinkable
    }

    /// Whether each record leaves over this interface, the present one or not.
    pub(super) fn sends_copies_over(&self, local: Local) -> bool {
        let is_known = self.list.iter().any(|interface| interface.local == local);
        self.settings.linking == Linking::Duplicated && is_known
    }

    fn interface(&mut self, local: Local) -> Option<&mut Interface> {
        self.list.iter_mut().find(|interface| interface.local == local)
    }

    /// The connection ID for an answer over an interface that is not the present one, if each has its own.
    ///
    /// # Errors
    /// There is none, so the client must not answer.
    pub(super) fn id(&self, local: Local) -> Result<Option<&[u8]>, NoId> {
        if !self.is_unlinkable() {
            return Ok(None);
        }
        let interface = self.list.iter().find(|interface| interface.local == local).ok_or(NoId)?;
        interface.id.as_deref().or(interface.left_id.as_deref()).map(Some).ok_or(NoId)
    }

    /// Whether the server has not answered the latest request for connection IDs.
    pub(super) const fn awaits_ids(&self) -> bool {
        self.has_asked
    }

    /// The server has sent this many new connection IDs. After an empty answer, the client asks again only
    /// once it has used a spare ID.
    pub(super) fn got_ids(&mut self, count: usize) {
        self.has_asked = false;
        self.is_declined = count == 0;
        for interface in &mut self.list {
            interface.issued = interface.issued.saturating_add(count);
        }
    }

    /// The peer is at another address now, so what is known of the interfaces may have changed.
    pub(super) fn peer_moved(&mut self) {
        for interface in &mut self.list {
            interface.probe = None;
            interface.late = Vec::new();
            if interface.standing == Standing::Failed {
                interface.standing = Standing::New;
            }
        }
        self.wakes = true;
    }

    /// Notes a datagram that leaves over `local`. `epoch`: the epoch of the data record in it, if there is
    /// one. Returns the other interfaces over which a copy leaves.
    fn sent(&mut self, now: Instant, epoch: Option<u64>, datagram: &[u8], local: Local) -> Vec<Local> {
        let is_copied = self.settings.linking == Linking::Duplicated;
        let others: Vec<_> = self.list.iter().filter(|i| is_copied && i.local != local).collect();
        let is_covered = others.iter().any(|other| other.standing == Standing::Valid);
        let others = others.into_iter().map(|other| other.local).collect();
        if let Some(epoch) = epoch {
            self.sent_at = now;
            if self.kept.len() >= MAX_KEPT {
                let oldest = self.kept.pop_front();
                self.overflow += usize::from(oldest.is_some_and(|oldest| !oldest.is_covered));
            }
            let datagram = (!is_covered && !self.is_unlinkable()).then(|| datagram.to_vec());
            self.kept.push_back(Kept { at: now, epoch, datagram, is_covered });
            self.wake(now, local);
        }
        others
    }

    /// Data leaves over `present`. An interface that has failed a while ago may work again, and each one if
    /// the present one has failed.
    fn wake(&mut self, now: Instant, present: Local) {
        self.wakes |= self.asked >= MAX_IDLE_ASKS;
        self.asked = 0;
        let mut has_failed = false;
        if let Some(interface) = self.interface(present) {
            interface.unproven = interface.unproven.saturating_add(1);
            has_failed = interface.standing == Standing::Failed;
        }
        for interface in self.list.iter_mut().filter(|i| i.standing == Standing::Failed) {
            let (_, at) = interface.retry;
            if has_failed || at <= now {
                interface.standing = Standing::New;
                self.wakes = true;
            }
        }
    }

    /// The server can have received what was sent until this moment.
    fn confirm(&mut self, until: Instant) {
        while self.kept.front().is_some_and(|kept| kept.at <= until) {
            self.kept.pop_front();
            self.overflow = 0;
        }
        if self.kept.is_empty() {
            // An idle connection keeps no memory for them.
            self.kept = VecDeque::new();
        }
    }

    /// An authentic record has come over the present interface. `is_checked`: probes tell its validity.
    fn heard(&mut self, now: Instant, heard: &ReceivedRecord, is_checked: bool) {
        let is_copied = self.sends_copies_over(heard.path.local);
        let Some(interface) = self.interface(heard.path.local) else { return };
        // The server may send copies, too, of which the first came over another interface. Each counts once.
        if heard.is_copy && !(is_copied && heard.number > interface.newest) {
            return;
        }
        interface.newest = interface.newest.max(heard.number);
        if !is_checked {
            interface.standing = Standing::Valid;
        }
        let rtt = interface.rtt;
        // Without a round-trip time, count only data sent before the previous record arrived.
        let before = self.heard_at.replace(now);
        match (rtt, before) {
            (Some((_, least)), _) => self.confirm(Instant(0) + now.since(Instant(0)).saturating_sub(least)),
            (None, Some(before)) => self.confirm(before),
            (None, None) => {}
        }
    }

    /// Marks an interface as valid if `cookie` answers its probe or its latest failed one; else `false`.
    fn answered(&mut self, now: Instant, local: Local, cookie: Cookie, present: Local) -> bool {
        let Some(interface) = self.interface(local) else { return false };
        let sent = interface.probe.iter().flat_map(|probe| &probe.sent).chain(&interface.late);
        let Some((_, at)) = sent.copied().find(|(sent, _)| *sent == cookie) else { return false };
        let rtt = now.since(at);
        let least = interface.rtt.map_or(rtt, |(_, least)| least.min(rtt));
        interface.rtt = Some((rtt, least));
        interface.standing = Standing::Valid;
        (interface.probe, interface.late) = (None, Vec::new());
        interface.retry = (RETRY_AFTER, now);
        interface.is_reused = false;
        (interface.unproven, interface.issued) = (0, 0);
        if local != present {
            // A late answer came to a challenge under this ID.
            interface.id = interface.id.take().or_else(|| interface.left_id.take());
        }
        if local == present {
            self.confirm(at);
        }
        true
    }

    /// The first valid interface, if the client should leave the present one for it.
    fn better(&self, present: Local) -> Option<Local> {
        let best = self.list.iter().find(|interface| interface.standing == Standing::Valid)?;
        (best.local != present).then_some(best.local)
    }

    /// The interfaces to which the client can change when the present one fails, the best first. If the
    /// present one is gone, another failed one is worth an attempt.
    fn candidates(&self, present: Local) -> Vec<Local> {
        let is_gone = !self.list.iter().any(|interface| interface.local == present);
        let with = |standing| {
            let fits =
                move |interface: &&Interface| interface.standing == standing && interface.local != present;
            self.list.iter().filter(fits).map(|interface| interface.local)
        };
        let failed = with(Standing::Failed).filter(|_| is_gone);
        with(Standing::Valid).chain(with(Standing::New)).chain(failed).collect()
    }

    /// When a probe is due, or the present interface is in doubt.
    fn deadline(&self, present: Local) -> Option<Instant> {
        let due = self.list.iter().filter_map(|interface| interface.probe.as_ref()).map(|probe| probe.next);
        due.chain(self.doubt(present)).min()
    }

    /// When the present interface is in doubt, since the server has confirmed nothing after the oldest
    /// unconfirmed data, or has answered no probe for long.
    fn doubt(&self, present: Local) -> Option<Instant> {
        let interface = self.list.iter().find(|interface| interface.local == present)?;
        let is_open = interface.probe.is_none() && interface.standing != Standing::Failed;
        let oldest = if is_open { self.kept.front() } else { None };
        let is_unproven = is_open && interface.unproven >= PROOF_AFTER;
        match oldest.map(|oldest| oldest.at + interface.patience(self.settings.timeout)) {
            // It is due at once: the latest data has just left.
            _ if is_unproven => Some(self.sent_at),
            doubt => doubt,
        }
    }

    /// Takes what is kept: the datagrams to repeat, all of `epoch`, and the number of records that are
    /// neither repeated nor sent over another interface, too.
    fn take_kept(&mut self, epoch: u64) -> (Vec<Vec<u8>>, usize) {
        let mut lost = core::mem::take(&mut self.overflow);
        let mut again = Vec::new();
        for kept in core::mem::take(&mut self.kept) {
            match kept.datagram.filter(|_| kept.epoch == epoch) {
                Some(datagram) => again.push(datagram),
                None => lost += usize::from(!kept.is_covered),
            }
        }
        (again, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// The server first drops the IDs that the client has left. A failed interface must keep the newest one.
    #[test]
    fn a_failed_interface_keeps_the_newer_of_two_ids() {
        let mut interface = Interface::new(Local(1), Standing::Failed);
        interface.left_id = Some(vec![1]);
        // No probe under 2 was answered, and there is no spare ID. So the next attempt has the previous ID.
        let older = interface.next_id(|| None).unwrap();
        interface.left_id = Some(vec![2]);
        assert_eq!(older, [1]);
        interface.keep(older);
        assert_eq!(interface.next_id(|| None), Some(vec![2]));
        // Now an attempt with the older ID got an answer.
        interface.probe = Some(Probe { sent: vec![(Cookie::default(), Instant(0))], next: Instant(0) });
        let mut interfaces = Interfaces::new(Multihoming::unlinkable(), Local(0));
        interfaces.list.push(interface);
        let interface = interfaces.interface(Local(1)).unwrap();
        assert_eq!(interface.next_id(|| None), Some(vec![2]));
        assert!(
            interfaces.answered(Instant(9), Local(1), Cookie::default(), Local(1)),
            "the present interface"
        );
        let interface = interfaces.interface(Local(1)).unwrap();
        interface.fail(Instant(9));
        interface.keep(vec![1]);
        assert_eq!(interface.next_id(|| None), Some(vec![1]), "the ID with the answer");
    }
}
