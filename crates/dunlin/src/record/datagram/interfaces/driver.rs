//! How a client tends its interfaces: it probes them, leaves them, and exchanges connection IDs.

use alloc::vec::Vec;

use super::super::Datagram;
use super::super::receive::ReceivedRecord;
use super::super::routability::{CHALLENGES, Cookie, PathMessage};
use super::{Interface, MAX_IDLE_ASKS, Probe, SPARE_IDS, Standing};
use crate::address::{Local, Path, PathChange};
use crate::error::{Error, Misuse};
use crate::flight::timers::Timer;
use crate::message::connection_ids::{self, Usage};
use crate::settings::MAX_INTERFACES;
use crate::time::Instant;
use crate::transport::Emitter;

impl Datagram {
    /// Uses these interfaces from now on, the best first.
    pub(crate) fn set_interfaces(&mut self, now: Instant, locals: &[Local]) -> Result<(), Error> {
        let Some(interfaces) = &mut self.interfaces else {
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
        let was_up = interfaces.interface(present).is_some();
        let before = core::mem::take(&mut interfaces.list);
        let mut before: Vec<_> = before.into_iter().map(Some).collect();
        interfaces.list = locals
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
        match self.interfaces.as_mut().map(|interfaces| interfaces.interface(local)) {
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
        let Some(interfaces) = self.interfaces.as_mut().filter(|_| self.complete && !self.sender.is_closed())
        else {
            return Ok(());
        };
        interfaces.wakes = false;
        self.ask_for_ids()?;
        self.probe_new()?;
        self.plan_probes();
        Ok(())
    }

    /// Takes note of a datagram that leaves to the peer, and sends copies over the other interfaces if the
    /// settings say so. An address under check gets no copies, since they would go beyond its budget.
    pub(in crate::record::datagram) fn note_sent(
        &mut self,
        now: Instant,
        epoch: Option<u64>,
        datagram: &[u8],
        path: Path,
    ) {
        let Some(interfaces) = self.interfaces.as_mut().filter(|_| self.complete) else { return };
        self.now = now;
        let copies = interfaces.sent(now, epoch, datagram, path.local);
        let is_peers = path.peer == self.paths.present().peer;
        for local in copies.into_iter().filter(|_| is_peers) {
            self.sender.transmit_next(Path { local, ..path }, datagram.to_vec());
        }
        self.plan_probes();
    }

    /// Takes note of the interface over which an authentic record came.
    pub(in crate::record::datagram) fn heard_over(&mut self, heard: &ReceivedRecord) {
        let is_checked = self.paths.are_checked();
        let now = self.now;
        let present = self.paths.present().local;
        if heard.path.local == present
            && let Some(interfaces) = self.interfaces.as_mut()
        {
            interfaces.heard(now, heard, is_checked);
            self.plan_probes();
        }
    }

    /// Handles the answer to a probe. `false` if it is not one.
    pub(in crate::record::datagram) fn probe_answered(
        &mut self,
        path: Path,
        message: PathMessage,
    ) -> Result<bool, Error> {
        let present = self.paths.present();
        let (PathMessage::Response(cookie) | PathMessage::Drop(cookie)) = message else { return Ok(false) };
        let Some(interfaces) = self.interfaces.as_mut().filter(|_| path.peer == present.peer) else {
            return Ok(false);
        };
        if !interfaces.answered(self.now, path.local, cookie, present.local) {
            return Ok(false);
        }
        if let Some(better) = interfaces.better(present.local) {
            self.change_to(better, false)?;
        }
        self.tend()?;
        Ok(true)
    }

    /// Handles the timer of probes.
    pub(in crate::record::datagram) fn expire_probes(&mut self) -> Result<(), Error> {
        let now = self.now;
        let present = self.paths.present().local;
        let Some(interfaces) = &mut self.interfaces else { return Ok(()) };
        let in_doubt = interfaces.doubt(present).is_some_and(|at| at <= now).then_some(present);
        let mut due: Vec<_> = in_doubt.into_iter().collect();
        let mut has_failed = false;
        for interface in &mut interfaces.list {
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
        let present = self.paths.present().local;
        let needs_ids = self.needs_ids();
        let Some(interfaces) = self.interfaces.as_mut().filter(|_| needs_ids) else { return };
        let ids = &mut self.sender.ids;
        let interface = interfaces.interface(present).filter(|present| present.standing == Standing::Failed);
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
    pub(in crate::record::datagram) fn path_change(&mut self) -> Option<PathChange> {
        self.interfaces.as_mut()?.change.take()
    }

    /// Leaves the present interface for the best other one. `may_stay`: or it continues from its new address.
    fn leave(&mut self, may_stay: bool) -> Result<(), Error> {
        let present = self.paths.present().local;
        let Some(interfaces) = &self.interfaces else { return Ok(()) };
        let valid = |local: &Local| {
            interfaces.list.iter().any(|i| i.local == *local && i.standing == Standing::Valid)
        };
        let candidates = interfaces.candidates(present);
        let candidates: Vec<_> = if may_stay {
            candidates.into_iter().filter(valid).chain([present]).collect()
        } else {
            candidates
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
        let Some(interfaces) = &mut self.interfaces else { return Ok(false) };
        let mut unsent = 0;
        let mut is_linked = false;
        if needs_id {
            interfaces.is_declined = false;
            let ids = &mut self.sender.ids;
            let own = interfaces
                .interface(local)
                .and_then(|interface| interface.id.take().or_else(|| interface.next_id(|| ids.take_spare())));
            match own.map(|id| ids.replace(id)) {
                // An interface that has failed or has a new address gets another ID.
                Some(before) => {
                    let left = interfaces.interface(from.local).filter(|left| left.local != local);
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
        if let Some(interface) = interfaces.interface(local) {
            interface.is_fresh = false;
            if interface.standing == Standing::Failed {
                interface.standing = Standing::New;
            }
        }
        self.paths.set_local(local);
        let (again, lost) = interfaces.take_kept(self.sender.epoch());
        let repeated = again.len();
        if self.complete {
            let unrepeated = lost.saturating_add(unsent);
            let change = PathChange { from, to: self.paths.present(), repeated, unrepeated, is_linked };
            interfaces.change =
                Some(interfaces.change.take().map_or(change, |before| before.followed_by(change)));
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
        if self.sender.is_outstanding() { self.resend(self.budget()) } else { Ok(()) }
    }

    /// Whether each interface has a connection ID of its own.
    fn needs_ids(&self) -> bool {
        self.sends_connection_id()
            && self.interfaces.as_ref().is_some_and(|interfaces| interfaces.is_unlinkable())
    }

    /// Exchanges spare connection IDs with the server (RFC 9147 §9).
    fn ask_for_ids(&mut self) -> Result<(), Error> {
        if !self.needs_ids() || !self.protocol().has_key_update() || !self.sender.may_send_message() {
            return Ok(());
        }
        let spare = self.sender.ids.spare().count();
        let unused = self.receiver.ids.unused();
        let Some(interfaces) = &mut self.interfaces else { return Ok(()) };
        // The interfaces keep some of them. More would make the server drop those.
        let kept = interfaces.list.iter().filter(|interface| interface.id.is_some()).count();
        let missing = SPARE_IDS.saturating_sub(spare + kept);
        if missing == 0 || interfaces.has_asked || interfaces.asked >= MAX_IDLE_ASKS || interfaces.is_declined
        {
            return Ok(());
        }
        interfaces.has_asked = true;
        interfaces.asked += 1;
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
        let present = self.paths.present().local;
        let needs_ids = self.needs_ids();
        let Some(interfaces) = &mut self.interfaces else { return Ok(()) };
        let mut new = Vec::new();
        for interface in &mut interfaces.list {
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
        let present = self.paths.present();
        let needs_ids = self.needs_ids();
        let Some(random) = self.paths.random() else { return Ok(()) };
        let Some(interfaces) = &mut self.interfaces else { return Ok(()) };
        let timeout = interfaces.settings.timeout;
        let Some(interface) = interfaces.interface(local) else { return Ok(()) };
        let next = self.now + interface.pause(timeout);
        let id = if local != present.local { interface.id.clone() } else { None };
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
        let Some(interfaces) = self.interfaces.as_ref().filter(|_| !self.sender.is_closed()) else { return };
        let probes = if self.paths.are_checked() { interfaces.deadline(present) } else { None };
        if let Some(deadline) = interfaces.wakes.then_some(self.now).or(probes) {
            self.timers.start(Timer::Probe, deadline);
        }
    }
}
