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

use super::Datagram;
use super::receive::Heard;
use super::routability::{CHALLENGES, Cookie, PathMessage};
use crate::address::{Local, Path, PathChange};
use crate::error::{Error, Misuse};
use crate::flight::RecordNumber;
use crate::flight::timers::Timer;
use crate::message::connection_ids::{self, Usage};
use crate::settings::{Linking, MAX_INTERFACES, Multihoming};
use crate::time::Instant;
use crate::transport::Emitter;

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
pub(super) struct Homes {
    settings: Multihoming,
    /// The best first.
    interfaces: Vec<Interface>,
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

impl Homes {
    pub(super) fn new(settings: Multihoming, local: Local) -> Self {
        Self {
            settings,
            interfaces: [Interface::new(local, Standing::Valid)].into(),
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
        let is_known = self.interfaces.iter().any(|interface| interface.local == local);
        self.settings.linking == Linking::Duplicated && is_known
    }

    fn interface(&mut self, local: Local) -> Option<&mut Interface> {
        self.interfaces.iter_mut().find(|interface| interface.local == local)
    }

    /// The connection ID for an answer over an interface that is not the present one, if each has its own.
    ///
    /// # Errors
    /// There is none, so the client must not answer.
    pub(super) fn id(&self, local: Local) -> Result<Option<&[u8]>, NoId> {
        if !self.is_unlinkable() {
            return Ok(None);
        }
        let interface = self.interfaces.iter().find(|interface| interface.local == local).ok_or(NoId)?;
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
        for interface in &mut self.interfaces {
            interface.issued = interface.issued.saturating_add(count);
        }
    }

    /// The peer is at another address now, so what is known of the interfaces may have changed.
    pub(super) fn peer_moved(&mut self) {
        for interface in &mut self.interfaces {
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
        let others: Vec<_> = self.interfaces.iter().filter(|i| is_copied && i.local != local).collect();
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
        for interface in self.interfaces.iter_mut().filter(|i| i.standing == Standing::Failed) {
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
    fn heard(&mut self, now: Instant, heard: &Heard, is_checked: bool) {
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
        let best = self.interfaces.iter().find(|interface| interface.standing == Standing::Valid)?;
        (best.local != present).then_some(best.local)
    }

    /// The interfaces to which the client can change when the present one fails, the best first. If the
    /// present one is gone, another failed one is worth an attempt.
    fn candidates(&self, present: Local) -> Vec<Local> {
        let is_gone = !self.interfaces.iter().any(|interface| interface.local == present);
        let with = |standing| {
            let fits =
                move |interface: &&Interface| interface.standing == standing && interface.local != present;
            self.interfaces.iter().filter(fits).map(|interface| interface.local)
        };
        let failed = with(Standing::Failed).filter(|_| is_gone);
        with(Standing::Valid).chain(with(Standing::New)).chain(failed).collect()
    }

    /// When a probe is due, or the present interface is in doubt.
    fn deadline(&self, present: Local) -> Option<Instant> {
        let due =
            self.interfaces.iter().filter_map(|interface| interface.probe.as_ref()).map(|probe| probe.next);
        due.chain(self.doubt(present)).min()
    }

    /// When the present interface is in doubt, since the server has confirmed nothing after the oldest
    /// unconfirmed data, or has answered no probe for long.
    fn doubt(&self, present: Local) -> Option<Instant> {
        let interface = self.interfaces.iter().find(|interface| interface.local == present)?;
        let is_open = interface.probe.is_none() && interface.standing != Standing::Failed;
        let oldest = self.kept.front().filter(|_| is_open);
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

impl Datagram {
    /// Uses these interfaces from now on, the best first.
    pub(crate) fn set_interfaces(&mut self, now: Instant, locals: &[Local]) -> Result<(), Error> {
        let Some(homes) = &mut self.homes else {
            return Err(
                Misuse::Config("several interfaces need ClientConfig::with_multihoming".into()).into()
            );
        };
        let is_repeated =
            locals.iter().enumerate().any(|(i, local)| locals.iter().take(i).any(|l| l == local));
        if locals.len() > MAX_INTERFACES || is_repeated {
            let why = alloc::format!(
                "a connection has at most {MAX_INTERFACES} interfaces, each with a number of its own; not {locals:?}"
            );
            return Err(Misuse::Config(why).into());
        }
        let present = self.paths.present().local;
        let was_up = homes.interface(present).is_some();
        let before = core::mem::take(&mut homes.interfaces);
        let mut before: Vec<_> = before.into_iter().map(Some).collect();
        homes.interfaces = locals
            .iter()
            .map(|local| {
                let known = before.iter_mut().find(|i| i.as_ref().is_some_and(|i| i.local == *local));
                known.and_then(Option::take).unwrap_or(Interface::new(*local, Standing::New))
            })
            .collect();
        self.now = now;
        match locals.contains(&present) {
            true if was_up => {}
            is_back => self.leave(is_back)?,
        }
        self.tend()
    }

    /// The address of an interface has changed.
    pub(crate) fn address_changed(&mut self, now: Instant, local: Local) -> Result<(), Error> {
        self.now = now;
        let is_present = local == self.paths.present().local;
        match self.homes.as_mut().map(|homes| homes.interface(local)) {
            Some(Some(interface)) => {
                *interface = Interface::new(local, Standing::New);
                // They have the connection ID of the previous address.
                self.sender.drop_output_over(local);
            }
            Some(None) => return Ok(()),
            None if is_present => {
                // Waiting datagrams have the connection ID of the previous address.
                if self.sender.ids.advance() {
                    self.sender.drop_output();
                }
                return self.announce();
            }
            None => return Ok(()),
        }
        if is_present {
            self.leave(true)?;
        }
        self.tend()
    }

    /// Does what is due at the client's interfaces, and plans the timer.
    pub(crate) fn tend(&mut self) -> Result<(), Error> {
        let Some(homes) = self.homes.as_mut().filter(|_| self.complete && !self.sender.is_closed()) else {
            return Ok(());
        };
        homes.wakes = false;
        self.ask_for_ids()?;
        self.probe_new()?;
        self.plan_probes();
        Ok(())
    }

    /// Takes note of a datagram that leaves to the peer, and sends copies over the other interfaces if the
    /// settings say so. An address under check gets no copies, since they would go beyond its budget.
    pub(super) fn note_sent(&mut self, now: Instant, epoch: Option<u64>, datagram: &[u8], path: Path) {
        let Some(homes) = self.homes.as_mut().filter(|_| self.complete) else { return };
        self.now = now;
        let copies = homes.sent(now, epoch, datagram, path.local);
        let is_peers = path.peer == self.paths.present().peer;
        for local in copies.into_iter().filter(|_| is_peers) {
            self.sender.transmit_next(Path { local, ..path }, datagram.to_vec());
        }
        self.plan_probes();
    }

    /// Takes note of the interface over which an authentic record came.
    pub(super) fn heard_over(&mut self, heard: &Heard) {
        let is_checked = self.paths.are_checked();
        let (now, present) = (self.now, self.paths.present().local);
        if let Some(homes) = self.homes.as_mut().filter(|_| heard.path.local == present) {
            homes.heard(now, heard, is_checked);
            self.plan_probes();
        }
    }

    /// Handles the answer to a probe. `false` if it is not one.
    pub(super) fn probe_answered(&mut self, path: Path, message: PathMessage) -> Result<bool, Error> {
        let present = self.paths.present();
        let (PathMessage::Response(cookie) | PathMessage::Drop(cookie)) = message else { return Ok(false) };
        let Some(homes) = self.homes.as_mut().filter(|_| path.peer == present.peer) else { return Ok(false) };
        if !homes.answered(self.now, path.local, cookie, present.local) {
            return Ok(false);
        }
        if let Some(better) = homes.better(present.local) {
            self.change_to(better, false)?;
        }
        self.tend()?;
        Ok(true)
    }

    /// Handles the timer of probes.
    pub(super) fn expire_probes(&mut self) -> Result<(), Error> {
        let (now, present) = (self.now, self.paths.present().local);
        let Some(homes) = &mut self.homes else { return Ok(()) };
        let in_doubt = homes.doubt(present).is_some_and(|at| at <= now).then_some(present);
        let mut due: Vec<_> = in_doubt.into_iter().collect();
        let mut has_failed = false;
        for interface in &mut homes.interfaces {
            let Some(probe) = interface.probe.as_ref().filter(|probe| probe.next <= now) else { continue };
            if probe.sent.len() < CHALLENGES as usize {
                due.push(interface.local);
            } else {
                interface.fail(now);
                has_failed |= interface.local == present;
            }
        }
        for local in due {
            self.challenge_over(local)?;
        }
        if has_failed {
            self.leave(false)?;
            self.renew_id();
        }
        self.tend()
    }

    /// Where the present interface has failed and there is no other: uses another connection ID, since the
    /// server may have dropped the present one.
    fn renew_id(&mut self) {
        let (present, needs_ids) = (self.paths.present().local, self.needs_ids());
        let Some(homes) = self.homes.as_mut().filter(|_| needs_ids) else { return };
        let ids = &mut self.sender.ids;
        let interface = homes.interface(present).filter(|present| present.standing == Standing::Failed);
        if let Some(interface) = interface
            && let Some(id) = interface.next_id(|| ids.take_spare())
        {
            interface.left_id = Some(ids.replace(id));
        }
    }

    /// How many spare connection IDs of the peer there are.
    pub(crate) fn spare_peer_ids(&self) -> usize {
        self.sender.ids.spare().count()
    }

    /// Takes the latest change of this side's path.
    pub(super) fn path_change(&mut self) -> Option<PathChange> {
        self.homes.as_mut()?.change.take()
    }

    /// Leaves the present interface for the best other one. `may_stay`: or it continues from its new address.
    fn leave(&mut self, may_stay: bool) -> Result<(), Error> {
        let present = self.paths.present().local;
        let Some(homes) = &self.homes else { return Ok(()) };
        let valid = |local: &Local| {
            homes.interfaces.iter().any(|i| i.local == *local && i.standing == Standing::Valid)
        };
        let candidates = homes.candidates(present);
        let candidates: Vec<_> = match may_stay {
            true => candidates.into_iter().filter(valid).chain([present]).collect(),
            false => candidates,
        };
        for local in &candidates {
            if self.change_to(*local, false)? {
                return Ok(());
            }
        }
        // RFC 9147 §9: a client without a spare ID should keep its address. But it would lose its connection.
        let best = if may_stay { candidates.last() } else { candidates.first() };
        match best {
            Some(best) => self.change_to(*best, true).map(drop),
            None => Ok(()),
        }
    }

    /// Sends over this interface from now on. `may_link`: under the present connection ID if it needs one of
    /// its own and there is none; otherwise nothing changes then, and the result is `false`.
    fn change_to(&mut self, local: Local, may_link: bool) -> Result<bool, Error> {
        let from = self.paths.present();
        let needs_id = self.complete && self.needs_ids();
        let Some(homes) = &mut self.homes else { return Ok(false) };
        let (mut unsent, mut is_linked) = (0, false);
        if needs_id {
            homes.is_declined = false;
            let ids = &mut self.sender.ids;
            let own = homes
                .interface(local)
                .and_then(|interface| interface.id.take().or_else(|| interface.next_id(|| ids.take_spare())));
            match own.map(|id| ids.replace(id)) {
                // An interface that has failed or has a new address gets another ID.
                Some(before) => {
                    let left = homes.interface(from.local).filter(|left| left.local != local);
                    // A fresh address has no part in the ID.
                    let left = left.filter(|left| !left.is_fresh);
                    // Waiting datagrams have this ID: they leave over their interface or never (RFC 9853 §9).
                    unsent = self.sender.waiting_data();
                    match left {
                        Some(_) => self.sender.fix_output(from),
                        None => drop(self.sender.drop_output()),
                    }
                    if let Some(left) = left {
                        left.keep(before);
                    }
                }
                None if may_link => is_linked = true,
                None => return Ok(false),
            }
        }
        if let Some(interface) = homes.interface(local) {
            interface.is_fresh = false;
            if interface.standing == Standing::Failed {
                interface.standing = Standing::New;
            }
        }
        self.paths.set_local(local);
        let (again, lost) = homes.take_kept(self.sender.epoch());
        let repeated = again.len();
        if self.complete {
            let unrepeated = lost.saturating_add(unsent);
            let change = PathChange { from, to: self.paths.present(), repeated, unrepeated, is_linked };
            homes.change = Some(homes.change.take().map_or(change, |before| before.followed_by(change)));
        }
        self.announce()?;
        for datagram in again {
            self.sender.repeat_data(datagram);
        }
        Ok(true)
    }

    /// Tells the peer of the present address by a new record, and sends again what it has not acknowledged.
    fn announce(&mut self) -> Result<(), Error> {
        if self.sender.is_closed() {
            return Ok(());
        }
        if self.complete {
            self.sender.announce()?;
        }
        match self.sender.is_outstanding() {
            true => self.resend(self.budget()),
            false => Ok(()),
        }
    }

    /// Whether each interface has a connection ID of its own.
    fn needs_ids(&self) -> bool {
        self.sends_connection_id() && self.homes.as_ref().is_some_and(|homes| homes.is_unlinkable())
    }

    /// Exchanges spare connection IDs with the server (RFC 9147 §9).
    fn ask_for_ids(&mut self) -> Result<(), Error> {
        if !self.needs_ids() || !self.protocol().has_key_update() || !self.sender.may_send_message() {
            return Ok(());
        }
        let spare = self.sender.ids.spare().count();
        let unused = self.receiver.ids.unused();
        let Some(homes) = &mut self.homes else { return Ok(()) };
        // The interfaces keep some of them. More would make the server drop those.
        let kept = homes.interfaces.iter().filter(|interface| interface.id.is_some()).count();
        let missing = SPARE_IDS.saturating_sub(spare + kept);
        if missing == 0 || homes.has_asked || homes.asked >= MAX_IDLE_ASKS || homes.is_declined {
            return Ok(());
        }
        homes.has_asked = true;
        homes.asked += 1;
        let missing = u8::try_from(missing).unwrap_or(u8::MAX);
        self.message(connection_ids::write_request(missing)?)?;
        // The server answers over each interface under an ID of its own, too.
        let lacking = u8::try_from(SPARE_IDS.saturating_sub(unused)).unwrap_or(u8::MAX);
        let own = self.receiver.ids.issue(lacking, Usage::Spare)?;
        if !own.is_empty() && self.sender.may_send_ids(0, Usage::Spare) {
            self.message(connection_ids::write_new(&own, Usage::Spare)?)?;
        }
        self.flush()
    }

    /// Probes new interfaces, and interfaces whose state is no longer known.
    fn probe_new(&mut self) -> Result<(), Error> {
        let (present, needs_ids) = (self.paths.present().local, self.needs_ids());
        let Some(homes) = &mut self.homes else { return Ok(()) };
        let mut new = Vec::new();
        for interface in &mut homes.interfaces {
            let is_due = interface.standing == Standing::New || needs_ids && interface.is_forgotten();
            if !is_due || interface.probe.is_some() {
                continue;
            }
            if needs_ids && interface.local != present && interface.id.is_none() {
                interface.id = interface.next_id(|| self.sender.ids.take_spare());
                if interface.id.is_none() {
                    continue;
                }
            }
            new.push(interface.local);
        }
        new.into_iter().try_for_each(|local| self.challenge_over(local))
    }

    /// Sends the next challenge of a probe over this interface.
    fn challenge_over(&mut self, local: Local) -> Result<(), Error> {
        let (present, needs_ids) = (self.paths.present(), self.needs_ids());
        let Some(random) = self.paths.random() else { return Ok(()) };
        let Some(homes) = &mut self.homes else { return Ok(()) };
        let timeout = homes.settings.timeout;
        let Some(interface) = homes.interface(local) else { return Ok(()) };
        let next = self.now + interface.pause(timeout);
        let id = interface.id.clone().filter(|_| local != present.local);
        if needs_ids && local != present.local && id.is_none() {
            // It needs an ID first.
            (interface.probe, interface.standing) = (None, Standing::New);
            return Ok(());
        }
        let probe = interface.probe.get_or_insert(Probe { sent: Vec::new(), next });
        probe.next = next;
        if !self.sender.has_room_for_answers() {
            // A challenge that does not leave does not count.
            return Ok(());
        }
        let mut cookie = Cookie::default();
        random.fill(&mut cookie)?;
        probe.sent.push((cookie, self.now));
        self.sender.path_message(Path { local, ..present }, PathMessage::Challenge(cookie), id)
    }

    fn plan_probes(&mut self) {
        self.timers.stop(Timer::Probe);
        let present = self.paths.present().local;
        let Some(homes) = self.homes.as_ref().filter(|_| !self.sender.is_closed()) else { return };
        let probes = homes.deadline(present).filter(|_| self.paths.are_checked());
        if let Some(deadline) = homes.wakes.then_some(self.now).or(probes) {
            self.timers.start(Timer::Probe, deadline);
        }
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
        let mut homes = Homes::new(Multihoming::unlinkable(), Local(0));
        homes.interfaces.push(interface);
        let interface = homes.interface(Local(1)).unwrap();
        assert_eq!(interface.next_id(|| None), Some(vec![2]));
        assert!(homes.answered(Instant(9), Local(1), Cookie::default(), Local(1)), "the present interface");
        let interface = homes.interface(Local(1)).unwrap();
        interface.fail(Instant(9));
        interface.keep(vec![1]);
        assert_eq!(interface.next_id(|| None), Some(vec![1]), "the ID with the answer");
    }
}
