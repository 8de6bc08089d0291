//! The paths of a connection: over which one this side sends, and whether the peer really is where its
//! records seem to come from (RFC 9853, RFC 9146 §6).
//!
//! A newer authentic record from another address begins a check. The basic one sends a challenge there. The
//! enhanced one first asks over the present path whether the peer has left it: an attacker who forwards
//! copies of records faster than the true path cannot answer that. The peer's address changes once the answer
//! to a challenge has come back from the new one. Until then the new address gets at most
//! [`MAX_AMPLIFICATION`] times the bytes of the authentic records that came from it.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::copies::Others;
use super::receive::ReceivedRecord;
use super::routability::{CHALLENGES, Cookie, PathMessage};
use super::{Datagram, MAX_AMPLIFICATION};
use crate::address::{Local, Path};
use crate::crypto::SecureRandom;
use crate::error::Error;
use crate::flight::RecordNumber;
use crate::flight::timers::Timer;
use crate::protocol::Side;
use crate::settings::{Migration, PathCheck};
use crate::time::Instant;

/// The number of checks of the peer's address so far, by outcome (RFC 9853 §7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathChecks {
    /// Checks that have begun.
    pub begun: u64,
    /// The peer answered from the new address, which counts from then on.
    pub moved: u64,
    /// The peer is still at its present address: it said so, or sent something newer from there. A network
    /// that delivers copies over another path can be an attack.
    pub stayed: u64,
    /// No answer came before the check ended or a still newer address took its place.
    pub failed: u64,
}

/// The message that the connection has to send after a step of a check, and its path.
pub(super) type Challenge = Option<(Path, PathMessage)>;

pub(super) struct Paths {
    side: Side,
    /// The path of everything that this side sends. The peer has proven, or the caller has named, the peer's
    /// address.
    present: Path,
    check: Option<Box<Check>>,
    migration: Migration,
    /// The source of cookies. `None` unless both sides take part in return routability checks.
    random: Option<Arc<dyn SecureRandom>>,
    counts: PathChecks,
    /// The other paths to a client that sends over several.
    pub(super) others: Others,
}

/// A check of another address of the peer.
struct Check {
    path: Path,
    /// The number of the record that began it.
    since: RecordNumber,
    /// The bytes of authentic records that came over the path, and of what was sent over it.
    received: usize,
    sent: usize,
    stage: Stage,
    /// The cookies of this stage.
    cookies: Vec<Cookie>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The path is one over which the client sends copies, so a copy over the present path may follow.
    /// Nothing is asked yet.
    Wait,
    /// The peer is asked over the present path whether it has left that path (RFC 9853 §5.2).
    Present,
    /// The peer is asked over the new path (RFC 9853 §5.1).
    New,
}

impl Paths {
    pub(super) fn new(side: Side, present: Path, migration: Migration) -> Self {
        let counts = PathChecks::default();
        let others = Others::default();
        Self { side, present, check: None, migration, random: None, counts, others }
    }

    /// Both sides have agreed to take part in checks.
    pub(super) fn agree(&mut self, random: Arc<dyn SecureRandom>) {
        self.random = Some(random);
    }

    /// Whether both sides take part in checks.
    pub(super) const fn are_checked(&self) -> bool {
        self.random.is_some()
    }

    pub(super) const fn present(&self) -> Path {
        self.present
    }

    pub(super) const fn counts(&self) -> PathChecks {
        self.counts
    }

    /// The source of cookies, if both sides take part in checks.
    pub(super) fn random(&self) -> Option<Arc<dyn SecureRandom>> {
        self.random.clone()
    }

    /// The path to the sender of a record that came over `path`. A client chooses its interface itself; a
    /// server answers where it was asked.
    const fn back(&self, path: Path) -> Path {
        match self.side {
            Side::Client => Path { peer: path.peer, ..self.present },
            Side::Server => path,
        }
    }

    /// The same paths once more. `None` once an address is under check.
    #[cfg(feature = "association-ports")]
    pub(super) fn again(&self) -> Option<Self> {
        let Self { side, present, check: None, migration, random, counts, .. } = self else { return None };
        Some(Self {
            side: *side,
            present: *present,
            check: None,
            migration: *migration,
            random: random.clone(),
            counts: *counts,
            others: Others::default(),
        })
    }

    pub(super) const fn side(&self) -> Side {
        self.side
    }

    /// Whether this side checks new addresses of its peer.
    pub(super) const fn may_check(&self) -> bool {
        self.are_checked() && self.migration.check.is_some()
    }

    /// The bytes that this path may still get, if it is under check.
    fn budget_of_check(&self, path: Path) -> Option<usize> {
        self.check.as_ref().filter(|check| check.path.peer == path.peer).map(|check| check.budget())
    }

    /// The path under check, if the check began with this record or an earlier one.
    fn checked_since(&self, number: RecordNumber) -> Option<Path> {
        self.check.as_ref().filter(|check| check.since <= number).map(|check| check.path)
    }

    /// Ends a check: the peer still uses the present path.
    pub(super) fn stay(&mut self) {
        if let Some(check) = self.check.take() {
            self.counts.stayed += u64::from(check.stage != Stage::Wait);
        }
    }

    /// Sends over this path from now on.
    #[cfg(feature = "association-ports")]
    pub(super) const fn set_present(&mut self, path: Path) {
        self.present = path;
    }

    /// Sends to this port of the peer from now on.
    #[cfg(feature = "association-ports")]
    pub(super) fn set_peer_port(&mut self, port: u16) {
        self.present.peer.set_port(port);
    }

    /// Sends over this socket or interface of the caller from now on.
    pub(super) fn set_local(&mut self, local: Local) {
        self.present.local = local;
        if self.side == Side::Client
            && let Some(check) = self.check.as_mut()
        {
            check.path.local = local;
        }
    }

    /// The path of the next datagram, of `len` bytes, and one for a copy of it. `reserve` bytes of the budget
    /// stay for a challenge.
    ///
    /// An answer goes to the address of the newest record, as far as the budget of an address under check
    /// allows (RFC 9853 §5). While it is open whether the peer has left the present path, a copy goes over
    /// that one: an attacker may have forwarded the record.
    pub(super) fn next(&mut self, len: usize, reserve: usize) -> (Path, Option<Path>) {
        match &mut self.check {
            // Datagrams over the present path leave over this one, too.
            Some(check) if check.stage == Stage::Wait || self.others.are_sent_over(check.path) => {
                (self.present, None)
            }
            Some(check) if len.saturating_add(reserve) <= check.budget() => {
                check.sent += len;
                (check.path, (check.stage == Stage::Present).then_some(self.present))
            }
            _ => (self.present, None),
        }
    }

    /// Takes `len` bytes of a message about `path` from the path's budget. `false` if there are not enough
    /// left. An address that is neither the peer's nor under check has a budget for each of its records, here
    /// of `received` bytes.
    pub(super) fn spend(&mut self, path: Path, len: usize, received: usize) -> bool {
        match self.check.as_mut().filter(|check| check.path.leads_as(&path)) {
            Some(check) if len > check.budget() => false,
            Some(check) => {
                check.sent += len;
                true
            }
            None if path.peer == self.present.peer => true,
            None => {
                let of_record = len <= received.saturating_mul(MAX_AMPLIFICATION);
                self.others.spend(path, len).unwrap_or(of_record)
            }
        }
    }

    /// Whether the connection follows its peer without a check.
    pub(super) const fn follow_unchecked(&self) -> bool {
        self.migration.is_unchecked_allowed && !self.are_checked()
    }

    /// Takes note of an authentic record of `len` bytes, which came over `path`. `is_newest`: its number is
    /// above all others, and it says something that is not about paths. Returns whether the peer's address
    /// has changed, and the challenge to send.
    pub(super) fn heard(
        &mut self,
        path: Path,
        len: usize,
        is_newest: bool,
    ) -> Result<(bool, Challenge), Error> {
        let path = self.back(path);
        if let Some(check) = self.check.as_mut().filter(|check| check.path.leads_as(&path)) {
            check.received = check.received.saturating_add(len);
            if is_newest {
                // The peer may ask several addresses of this side meanwhile.
                check.path.source = path.source;
            }
            return Ok((false, None));
        }
        if !is_newest {
            return Ok((false, None));
        }
        if path.peer == self.present.peer {
            // RFC 9853 §8.1.2: a newer record over the present path ends the attempt to leave it.
            self.stay();
            // A client chooses its interface itself. A server answers where it was asked.
            if self.side == Side::Server {
                self.present = path;
            }
            return Ok((false, None));
        }
        match self.migration.check.filter(|_| self.are_checked()) {
            Some(_) if self.others.are_sent_over(path) => {
                if self.check.is_none() {
                    let since = self.others.newest();
                    let stage = Stage::Wait;
                    let check = Check { path, since, received: len, sent: 0, stage, cookies: Vec::new() };
                    self.check = Some(Box::new(check));
                }
                Ok((false, None))
            }
            Some(kind) => {
                self.counts.begun += 1;
                self.counts.failed +=
                    u64::from(self.check.as_ref().is_some_and(|check| check.stage != Stage::Wait));
                let since = self.others.newest();
                let stage = Stage::first(kind);
                let check = Check { path, since, received: len, sent: 0, stage, cookies: Vec::new() };
                self.check = Some(Box::new(check));
                Ok((false, self.challenge()?))
            }
            // The caller accepts that any forwarder of a record can move the connection.
            None if self.follow_unchecked() => {
                self.present = path;
                Ok((true, None))
            }
            None => Ok((false, None)),
        }
    }

    /// Handles an answer to a challenge, which came over `path`. Returns whether the peer's address has
    /// changed, and the challenge to send. RFC 9853 §5.4: an answer that fits no challenge is ignored.
    pub(super) fn answered(&mut self, path: Path, message: PathMessage) -> Result<(bool, Challenge), Error> {
        if let PathMessage::Response(cookie) = message
            && self.others.answered(path, cookie)
        {
            return Ok((false, None));
        }
        let Some(check) = &mut self.check else { return Ok((false, None)) };
        let (asked, cookie) = match (check.stage, message) {
            (Stage::Present, PathMessage::Response(cookie) | PathMessage::Drop(cookie)) => {
                (self.present, cookie)
            }
            (Stage::New, PathMessage::Response(cookie)) => (check.path, cookie),
            _ => return Ok((false, None)),
        };
        if path.peer != asked.peer || !check.cookies.contains(&cookie) {
            return Ok((false, None));
        }
        match (check.stage, message) {
            (Stage::Present, PathMessage::Drop(_)) => {
                check.begin_new();
                Ok((false, self.challenge()?))
            }
            (Stage::Wait | Stage::Present, _) => {
                self.check = None;
                self.counts.stayed += 1;
                Ok((false, None))
            }
            (Stage::New, _) => {
                let path = check.path;
                self.others.remove(path);
                self.present = self.back(path);
                self.check = None;
                self.counts.moved += 1;
                Ok((true, None))
            }
        }
    }

    /// The answer to a challenge that came over `path`. RFC 9853 §5.2: path_drop over a path that this side
    /// has left.
    pub(super) fn answer(&self, path: Path, cookie: Cookie) -> PathMessage {
        if path.local == self.present.local {
            PathMessage::Response(cookie)
        } else {
            PathMessage::Drop(cookie)
        }
    }

    /// The time after which [`Self::expire`] is due, while a check runs.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.check.as_ref().map(|_| self.migration.timeout / CHALLENGES)
    }

    /// Handles the end of a pause without an answer: the next challenge, the next stage, or the end of the
    /// check.
    pub(super) fn expire(&mut self) -> Result<Challenge, Error> {
        let Some(check) = &mut self.check else { return Ok(None) };
        if check.stage == Stage::Wait {
            self.counts.begun += 1;
            check.stage = self.migration.check.map_or(Stage::Present, Stage::first);
        }
        if check.cookies.len() >= CHALLENGES as usize {
            match check.stage {
                Stage::Wait | Stage::Present => check.begin_new(),
                Stage::New => {
                    self.check = None;
                    self.counts.failed += 1;
                    return Ok(None);
                }
            }
        }
        self.challenge()
    }

    /// The next challenge of the check. Each has a cookie of its own (RFC 9853 §5.3).
    fn challenge(&mut self) -> Result<Challenge, Error> {
        let (Some(check), Some(random)) = (&mut self.check, &self.random) else { return Ok(None) };
        let mut cookie = Cookie::default();
        random.fill(&mut cookie)?;
        check.cookies.push(cookie);
        let path = if check.stage == Stage::New { check.path } else { self.present };
        Ok(Some((path, PathMessage::Challenge(cookie))))
    }

    /// Takes note of an authentic record, or a copy of one. `newest` is the highest number of one.
    pub(super) fn note(&mut self, now: Instant, newest: RecordNumber, heard: &ReceivedRecord) {
        let is_counted = self.budget_of_check(heard.path).is_some();
        let wait = self.migration.timeout;
        self.others.heard(now, newest, heard, is_counted, wait);
    }

    /// Takes note of a further copy of a record. Returns a challenge, of `len` bytes, to send over another
    /// path that the client uses.
    pub(super) fn copied(&mut self, heard: &ReceivedRecord, len: usize) -> Result<Challenge, Error> {
        if self.side == Side::Client || !self.may_check() || !self.others.is_recent(heard.number) {
            return Ok(None);
        }
        let path = if heard.path.peer == self.present.peer {
            // The first copy came over a path that is now under check.
            match self.checked_since(heard.number) {
                Some(path) if self.others.are_sent_over(path) => {
                    // The client still uses the present path.
                    self.stay();
                    return Ok(None);
                }
                Some(path) => path,
                None => return Ok(None),
            }
        } else {
            heard.path
        };
        let budget = self.budget_of_check(path);
        let received = if budget.is_some() { 0 } else { heard.len };
        self.others.add(path, heard.number, received);
        if !self.others.is_due(path, len, budget, self.migration.timeout / CHALLENGES) {
            return Ok(None);
        }
        let Some(random) = self.random.clone() else { return Ok(None) };
        let mut cookie = Cookie::default();
        random.fill(&mut cookie)?;
        self.others.challenged(path, cookie);
        Ok(Some((path, PathMessage::Challenge(cookie))))
    }

    /// The paths for copies of a datagram that leaves over `path`, and over `also`.
    pub(super) fn copies(&self, now: Instant, path: Path, also: Option<Path>) -> Vec<Path> {
        let has = |other: &Path| other.peer == path.peer || also.is_some_and(|also| also.peer == other.peer);
        self.others.fresh(now).filter(|other| !has(other)).collect()
    }
}

impl Stage {
    /// The first stage of a check of this kind.
    const fn first(kind: PathCheck) -> Self {
        match kind {
            PathCheck::Basic => Self::New,
            PathCheck::Enhanced => Self::Present,
        }
    }
}

impl Check {
    /// The bytes that the new address may still get.
    const fn budget(&self) -> usize {
        self.received.saturating_mul(MAX_AMPLIFICATION).saturating_sub(self.sent)
    }

    fn begin_new(&mut self) {
        self.stage = Stage::New;
        self.cookies.clear();
    }
}

impl Datagram {
    /// Takes note of the path of an authentic record.
    pub(super) fn follow(&mut self, heard: &ReceivedRecord) -> Result<(), Error> {
        self.paths.note(self.now, self.receiver.newest(), heard);
        if heard.is_copy {
            return self.heard_copy(heard);
        }
        if heard.is_newest && self.retransmit.gave_up && self.complete && self.sender.is_outstanding() {
            // The peer is back, and still lacks a message.
            self.progress();
            self.retransmit.resend_wanted = true;
        }
        self.heard_over(heard);
        if self.heard_at_port(heard) {
            return Ok(());
        }
        let next = self.paths.heard(heard.path, heard.len, heard.is_newest)?;
        self.after_step(next)
    }

    /// Handles a message about the path over which it came in a record of `len` bytes. RFC 9853 §5.4: a
    /// challenge gets exactly one answer, at once, over its path.
    pub(super) fn path_message(&mut self, path: Path, len: usize, message: PathMessage) -> Result<(), Error> {
        match message {
            // The answer finds room beside waiting data, but challenges must not make the output grow without
            // end.
            PathMessage::Challenge(_) if !self.sender.has_room_for_answers() => Ok(()),
            PathMessage::Challenge(cookie) => {
                // RFC 9853 §9: another ID on another path, so that observers of a client's probe cannot link
                // it to the present one.
                let is_probe = self.paths.side() == Side::Server && path.peer != self.paths.present().peer;
                let of_path = is_probe.then(|| self.sender.ids.of(path.peer)).flatten().map(<[u8]>::to_vec);
                let room = self.sender.path_message_len_with(of_path.as_deref());
                // The peer's connection ID can be much longer than the challenge, which an attacker may have
                // forwarded.
                if !self.paths.spend(path, room, len) {
                    return Ok(());
                }
                if of_path.is_some() {
                    self.sender.ids.keep(path.peer);
                }
                let is_used = self
                    .interfaces
                    .as_ref()
                    .is_some_and(|interfaces| interfaces.sends_copies_over(path.local));
                let answer =
                    if is_used { PathMessage::Response(cookie) } else { self.paths.answer(path, cookie) };
                let is_left = matches!(answer, PathMessage::Drop(_));
                let id = match self
                    .interfaces
                    .as_ref()
                    .filter(|_| is_left)
                    .map(|interfaces| interfaces.id(path.local))
                {
                    Some(Err(_)) => return Ok(()),
                    Some(Ok(id)) => id.map(<[u8]>::to_vec),
                    None => of_path,
                };
                self.sender.path_message(path, answer, id)
            }
            answer => {
                if self.probe_answered(path, answer)? {
                    return Ok(());
                }
                let next = self.paths.answered(path, answer)?;
                self.after_step(next)
            }
        }
    }

    /// Completes a step of a check: notes a new address of the peer, sends a challenge, and keeps the timer.
    pub(super) fn after_step(&mut self, (has_moved, challenge): (bool, Challenge)) -> Result<(), Error> {
        if has_moved {
            self.has_moved = true;
            // RFC 9147 §9: another ID on another path, so that observers cannot link the two.
            self.sender.ids.move_to(self.paths.present().peer);
            if let Some(interfaces) = &mut self.interfaces {
                interfaces.peer_moved();
            }
        }
        if let Some((path, message)) = challenge {
            self.timers.stop(Timer::CheckPath);
            self.send_about(path, message)?;
        }
        match self.paths.pause() {
            Some(pause) => self.timers.start(Timer::CheckPath, self.now + pause),
            None => self.timers.stop(Timer::CheckPath),
        }
        Ok(())
    }

    /// Sends a message about a path over it, if the output and the budget of an address under check have
    /// room. The timer sends another challenge.
    fn send_about(&mut self, path: Path, message: PathMessage) -> Result<(), Error> {
        let len = self.sender.path_message_len();
        if self.sender.has_room() && self.paths.spend(path, len, 0) {
            self.sender.path_message(path, message, None)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;

    #[derive(Debug)]
    struct Counter(core::sync::atomic::AtomicU8);

    impl SecureRandom for Counter {
        fn fill(&self, out: &mut [u8]) -> Result<(), crate::crypto::CryptoError> {
            out.fill(self.0.fetch_add(1, core::sync::atomic::Ordering::Relaxed));
            Ok(())
        }
    }

    fn path(host: u8) -> Path {
        SocketAddr::from(([192, 0, 2, host], 5684)).into()
    }

    fn paths(check: PathCheck) -> Paths {
        let mut paths = Paths::new(Side::Server, path(1), Migration::new(check));
        paths.agree(Arc::new(Counter(0.into())));
        paths
    }

    /// The cookie of a challenge to this host.
    fn cookie(challenge: Challenge, host: u8) -> Cookie {
        match challenge {
            Some((to, PathMessage::Challenge(cookie))) if to == path(host) => cookie,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_check_goes_on_when_the_peer_asks_another_address_of_this_side() {
        let mut paths = paths(PathCheck::Basic);
        let asked = |last| Path { source: Some([198, 51, 100, last].into()), ..path(2) };
        let (_, challenge) = paths.heard(asked(1), 40, true).unwrap();
        let Some((_, PathMessage::Challenge(cookie))) = challenge else { panic!("{challenge:?}") };
        for last in [2, 1, 2] {
            assert_eq!(paths.heard(asked(last), 40, true).unwrap(), (false, None));
        }
        assert_eq!((paths.counts().begun, paths.counts().failed), (1, 0));
        assert_eq!(paths.budget_of_check(asked(1)), Some(4 * 40 * MAX_AMPLIFICATION));
        assert!(paths.answered(asked(2), PathMessage::Response(cookie)).unwrap().0);
        assert_eq!(paths.present(), asked(2));
    }

    #[test]
    fn the_basic_check_moves_the_peer_after_its_answer() {
        let mut paths = paths(PathCheck::Basic);
        assert!(paths.heard(path(1), 40, true).unwrap() == (false, None) && paths.pause().is_none());
        let (moved, challenge) = paths.heard(path(2), 40, true).unwrap();
        let first = cookie(challenge, 2);
        assert!(!moved && paths.present() == path(1) && paths.pause().is_some());
        let second = cookie(paths.expire().unwrap(), 2);
        assert_ne!(first, second);
        // Another cookie, another path, another answer.
        assert_eq!(paths.answered(path(2), PathMessage::Response([9; 8])).unwrap(), (false, None));
        assert_eq!(paths.answered(path(1), PathMessage::Response(first)).unwrap(), (false, None));
        assert_eq!(paths.answered(path(2), PathMessage::Drop(first)).unwrap(), (false, None));
        assert_eq!(paths.answered(path(2), PathMessage::Response(first)).unwrap(), (true, None));
        assert_eq!((paths.present(), paths.pause()), (path(2), None));
        assert_eq!(paths.answered(path(2), PathMessage::Response(second)).unwrap(), (false, None));
        assert_eq!(paths.counts(), PathChecks { begun: 1, moved: 1, ..PathChecks::default() });
    }

    #[test]
    fn the_enhanced_check_asks_over_the_present_path_first() {
        // The peer has left the present path.
        let mut left = paths(PathCheck::Enhanced);
        let asked = cookie(left.heard(path(2), 40, true).unwrap().1, 1);
        // An attacker on the new path cannot know this cookie, and cannot send it from there.
        assert_eq!(left.answered(path(2), PathMessage::Drop(asked)).unwrap(), (false, None));
        let challenge = cookie(left.answered(path(1), PathMessage::Drop(asked)).unwrap().1, 2);
        assert_eq!(left.answered(path(2), PathMessage::Response(challenge)).unwrap(), (true, None));
        // The peer has not moved: an attacker forwards its records. So it gets its answers, too.
        let mut stayed = paths(PathCheck::Enhanced);
        let asked = cookie(stayed.heard(path(2), 40, true).unwrap().1, 1);
        assert_eq!(stayed.next(40, 40), (path(2), Some(path(1))));
        assert_eq!(stayed.answered(path(1), PathMessage::Response(asked)).unwrap(), (false, None));
        assert_eq!((stayed.present(), stayed.pause(), stayed.counts().stayed), (path(1), None, 1));
        // The present path is dead.
        let mut dead = paths(PathCheck::Enhanced);
        cookie(dead.heard(path(2), 40, true).unwrap().1, 1);
        for _ in 1..CHALLENGES {
            cookie(dead.expire().unwrap(), 1);
        }
        let challenge = cookie(dead.expire().unwrap(), 2);
        assert_eq!(dead.answered(path(2), PathMessage::Response(challenge)).unwrap(), (true, None));
        assert_eq!(dead.present(), path(2));
    }

    #[test]
    fn a_check_without_an_answer_fails_and_changes_nothing() {
        let mut paths = paths(PathCheck::Basic);
        cookie(paths.heard(path(2), 40, true).unwrap().1, 2);
        for _ in 1..CHALLENGES {
            cookie(paths.expire().unwrap(), 2);
        }
        assert_eq!((paths.expire().unwrap(), paths.pause(), paths.present()), (None, None, path(1)));
        assert_eq!(paths.counts(), PathChecks { begun: 1, failed: 1, ..PathChecks::default() });
    }

    #[test]
    fn a_newer_record_over_the_present_path_ends_a_check() {
        let mut paths = paths(PathCheck::Basic);
        let challenge = cookie(paths.heard(path(2), 40, true).unwrap().1, 2);
        assert_eq!(paths.heard(path(1), 40, false).unwrap(), (false, None));
        assert!(paths.pause().is_some());
        assert_eq!(paths.heard(path(1), 40, true).unwrap(), (false, None));
        assert_eq!(paths.answered(path(2), PathMessage::Response(challenge)).unwrap(), (false, None));
        assert_eq!((paths.present(), paths.counts().stayed), (path(1), 1));
    }

    #[test]
    fn an_address_under_check_gets_at_most_three_times_what_it_sent() {
        let to = |host| (path(host), None);
        let mut paths = paths(PathCheck::Basic);
        assert_eq!(paths.next(1000, 50), to(1));
        cookie(paths.heard(path(2), 100, true).unwrap().1, 2);
        assert!(
            paths.spend(path(2), 40, 0) && paths.spend(path(1), 1000, 0) && !paths.spend(path(2), 261, 1000)
        );
        // Another address: three times the record that asks.
        assert!(paths.spend(path(3), 108, 36) && !paths.spend(path(3), 109, 36));
        assert_eq!((paths.next(211, 50), paths.next(210, 50)), (to(1), to(2)));
        assert_eq!((paths.next(1, 50), paths.next(50, 0)), (to(1), to(2)));
        // An older record from there adds to the budget. A newer one from elsewhere begins another check with
        // its own.
        assert_eq!(paths.heard(path(2), 20, false).unwrap(), (false, None));
        assert_eq!((paths.next(60, 0), paths.next(1, 0)), (to(2), to(1)));
        cookie(paths.heard(path(3), 10, true).unwrap().1, 3);
        assert_eq!((paths.next(31, 0), paths.next(30, 0)), (to(1), to(3)));
    }

    #[test]
    fn follows_without_a_check_only_if_the_settings_say_so() {
        let never = Migration::new(PathCheck::Basic);
        for (migration, follows) in
            [(never, false), (never.with_unchecked(true), true), (Migration::never(), false)]
        {
            let mut paths = Paths::new(Side::Server, path(1), migration);
            assert_eq!(paths.heard(path(2), 40, true).unwrap(), (follows, None));
            assert_eq!(paths.present(), path(if follows { 2 } else { 1 }));
            assert_eq!(paths.heard(path(3), 40, false).unwrap(), (false, None));
        }
    }

    #[test]
    fn a_server_answers_from_the_address_of_the_newest_record() {
        let asked = |source: [u8; 4], host| Path { source: Some(source.into()), ..path(host) };
        let first = [198, 51, 100, 1];
        let second = [198, 51, 100, 2];
        let mut server = Paths::new(Side::Server, asked(first, 1), Migration::new(PathCheck::Basic));
        server.agree(Arc::new(Counter(0.into())));
        assert_eq!(server.heard(asked(second, 1), 40, false).unwrap(), (false, None));
        assert_eq!(server.next(40, 0).0, asked(first, 1), "a record that came late");
        assert_eq!(server.heard(asked(second, 1), 40, true).unwrap(), (false, None));
        assert_eq!(server.next(40, 0).0, asked(second, 1));
        // The challenge of a new address leaves from the address that was asked from there.
        let (_, challenge) = server.heard(asked(first, 2), 40, true).unwrap();
        let Some((to, PathMessage::Challenge(cookie))) = challenge else { panic!("{challenge:?}") };
        assert_eq!((to, server.present()), (asked(first, 2), asked(second, 1)));
        assert!(server.answered(asked(first, 2), PathMessage::Response(cookie)).unwrap().0);
        assert_eq!(server.present(), asked(first, 2));
        // A client's system chooses.
        let mut client = Paths::new(Side::Client, path(1), Migration::never().with_unchecked(true));
        client.heard(asked(first, 2), 40, true).unwrap();
        assert_eq!(client.present(), path(2));
    }

    #[test]
    fn answers_a_challenge_over_a_path_that_it_has_left_with_path_drop() {
        let mut client = Paths::new(Side::Client, path(1), Migration::default());
        assert_eq!(client.answer(path(1), [1; 8]), PathMessage::Response([1; 8]));
        client.set_local(Local(1));
        assert_eq!(client.answer(path(1), [2; 8]), PathMessage::Drop([2; 8]));
        assert_eq!(client.answer(Path { local: Local(1), ..path(1) }, [3; 8]), PathMessage::Response([3; 8]));
        // A client goes on over the interface that it has chosen; a server follows.
        assert_eq!(client.heard(path(1), 40, true).unwrap(), (false, None));
        assert_eq!(client.present().local, Local(1));
        // Also while it checks whether the server has moved.
        client.agree(Arc::new(Counter(0.into())));
        client.heard(path(2), 40, true).unwrap();
        client.set_local(Local(2));
        assert_eq!(client.next(40, 0).0, Path { local: Local(2), ..path(2) });
        let mut server = paths(PathCheck::Basic);
        assert_eq!(server.heard(Path { local: Local(7), ..path(1) }, 40, true).unwrap(), (false, None));
        assert_eq!(server.present().local, Local(7));
    }
}
