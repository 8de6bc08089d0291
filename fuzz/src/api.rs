//! The target `api`: two connected peers, and every call of the interface in any order and at any time.
//!
//! The path between them loses and reorders datagrams, and splits a stream anywhere, but forges nothing. So
//! all received data were sent: on a stream in order and complete, over datagrams at most once. A connection
//! fails only if one of the two callers made it fail.

use dunlin::error::{Error, Misuse};
use dunlin::wire::AlertDescription;
use dunlin::{Answer, Event, Question, QuestionId, Side, TransportKind};

use crate::end::Watched;
use crate::script::Script;
use crate::setting::{NOW, Setting, World};

/// The turns in which the two peers exchange data before the script begins.
const MAX_TURNS: usize = 4096;

/// The messages after the handshake that a peer accepts without data between them (docs/security.md,
/// `MAX_IDLE_MESSAGES`).
const MAX_IDLE: usize = 32;

/// The tickets that a server sends after its handshake.
const TICKETS: usize = 2;

/// The timers that expire before a connection gives up.
const MAX_TIMEOUTS: usize = 8;

/// A datagram is lost if this many others have overtaken it. Without encryption, a datagram opens under every
/// number that its header can stand for, and the replay window would accept an old datagram as a new one.
/// With real keys it would not open.
const MAX_LATE: usize = 60;

struct Party {
    watched: Watched,
    /// Packets on the way to this peer, each with the number under which it was sent.
    incoming: Vec<(usize, Vec<u8>)>,
    /// The number of packets sent to this peer.
    sent: usize,
    question: Option<(QuestionId, Question)>,
    /// Data that the other peer sent and that have not arrived yet; on a stream, in one piece.
    expected: Vec<Vec<u8>>,
}

struct Table<'s> {
    script: Script<'s>,
    kind: TransportKind,
    world: World,
    parties: [Party; 2],
    /// Whether a caller aborted a connection.
    is_forced: bool,
    /// The most messages that each peer may have received without data between them.
    idle: [usize; 2],
    timeouts: usize,
}

/// Runs the target. Returns whether both peers connected.
pub fn run(input: &[u8]) -> bool {
    let mut script = Script::new(input);
    let setting = Setting::read(&mut script);
    let side = if script.flag() { Side::Server } else { Side::Client };
    let world = World::new(setting, side);
    let party = |side| Party {
        watched: Watched::new(&world, side, NOW),
        incoming: Vec::new(),
        sent: 0,
        question: None,
        expected: Vec::new(),
    };
    let parties = [party(Side::Client), party(Side::Server)];
    let kind = setting.kind;
    let mut table = Table { script, kind, world, parties, is_forced: false, idle: [TICKETS, 0], timeouts: 0 };
    // A script begins before or after the handshake.
    if table.script.u8() & 3 != 0 || table.script.is_empty() {
        table.settle();
        assert!(table.parties.iter().all(|party| party.watched.is_connected()), "the peers do not connect");
    }
    while !table.script.is_empty() {
        let who = usize::from(table.script.flag());
        table.step(who);
    }
    table.settle();
    let connected = table.parties.iter().all(|party| party.watched.is_connected());
    for party in table.parties {
        party.watched.finish();
    }
    connected
}

impl Table<'_> {
    /// Exchanges packets without changes until neither peer has anything to send.
    fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < MAX_TURNS, "no end after {turn} turns");
            let mut is_quiet = true;
            for who in [0, 1] {
                self.transmit(who);
                is_quiet &= !self.receive(1 - who, 0, usize::MAX);
                self.look(1 - who);
                is_quiet &= !self.answer(1 - who, 0);
                self.read(1 - who);
            }
            if is_quiet {
                return;
            }
        }
    }

    fn step(&mut self, who: usize) {
        let what = self.script.u8() % 17;
        match what {
            0 | 1 => self.transmit(who),
            2 => {
                let which = self.script.u8().into();
                let len = self.script.u16().into();
                self.receive(who, which, len);
            }
            3 => self.read(who),
            4 => self.look(who),
            5 => {
                let how = self.script.u8();
                self.answer(who, how);
            }
            6 | 7 => self.send(who),
            8 => {
                let both = self.script.flag();
                self.count_idle(1 - who);
                if both {
                    self.count_idle(who);
                }
                self.parties[who].watched.update_keys(both);
            }
            9 => {
                // Before the handshake completes, closing is no orderly end (RFC 8446 §6.1).
                self.is_forced |= self.parties.iter().any(|party| !party.watched.is_connected());
                self.parties[who].watched.close();
            }
            10 => {
                self.is_forced = true;
                self.parties[who].watched.abort(AlertDescription(self.script.u8()));
            }
            11 => self.parties[who].watched.export(),
            12 if self.kind == TransportKind::Stream => {
                // A HelloRequest, and the ClientHello that answers it.
                self.count_idle(0);
                self.count_idle(1);
                self.parties[who].watched.renegotiate(NOW);
            }
            // Loses a datagram.
            12 if self.kind == TransportKind::Datagram => {
                let which = self.script.below(self.parties[who].incoming.len());
                if which < self.parties[who].incoming.len() {
                    self.parties[who].incoming.remove(which);
                }
            }
            // Duplicates a datagram.
            13 if self.kind == TransportKind::Datagram => {
                let which = self.script.below(self.parties[who].incoming.len());
                if let Some(packet) = self.parties[who].incoming.get(which).cloned() {
                    self.parties[who].incoming.push(packet);
                }
            }
            14 if self.kind == TransportKind::Datagram => {
                // A peer that leaves more retransmissions unanswered counts as gone.
                self.timeouts += 1;
                self.is_forced |= self.timeouts > MAX_TIMEOUTS;
                self.parties[who].watched.expire();
            }
            14 => {
                self.is_forced = true;
                self.parties[who].watched.receive_end();
            }
            16 => {
                let how = self.script.u8();
                // A NewConnectionId, or a request for one and its answer.
                self.count_idle(1 - who);
                self.count_idle(who);
                self.parties[who].watched.change_ids(how);
            }
            // An answer without a question.
            15 => {
                let Some((id, _)) = &self.parties[who].question else { return };
                let wrong = Answer::Profile(None);
                let id = *id;
                if let Some((_, Question::ChooseProfile(_))) = self.parties[who].question {
                    return;
                }
                let result = self.parties[who].watched.answer(NOW, id, wrong);
                let is_over = self.parties[who].watched.end().error().is_some();
                assert!(is_over || result == Err(Error::Misuse(Misuse::WrongAnswer)));
            }
            _ => {}
        }
        self.judge(who);
    }

    /// Counts a message to `who` that this peer may receive without data since the previous one. Too many are
    /// a flood.
    fn count_idle(&mut self, who: usize) {
        self.idle[who] += 1;
        self.is_forced |= self.idle[who] > MAX_IDLE;
    }

    fn judge(&self, who: usize) {
        let error = self.parties[who].watched.end().error();
        // A handshake over datagrams gives up when too much is lost.
        let has_given_up = self.kind == TransportKind::Datagram && error == Some(&Error::TimedOut);
        assert!(
            error.is_none() || has_given_up || self.is_forced,
            "it failed although no caller made it fail: {error:?}"
        );
    }

    /// Puts the packets of one peer on their way to the other.
    fn transmit(&mut self, who: usize) {
        while let Some(packet) = self.parties[who].watched.transmit() {
            let to = &mut self.parties[1 - who];
            to.sent += 1;
            match (self.kind, to.incoming.first_mut()) {
                (TransportKind::Stream, Some((_, stream))) => stream.extend(packet),
                _ => to.incoming.push((to.sent, packet)),
            }
        }
    }

    /// Delivers some of the packets on the way. Returns whether there were any.
    fn receive(&mut self, who: usize, which: usize, len: usize) -> bool {
        let party = &mut self.parties[who];
        if party.incoming.is_empty() {
            return false;
        }
        match self.kind {
            TransportKind::Datagram => {
                let (number, packet) = party.incoming.remove(which % party.incoming.len());
                if party.sent - number <= MAX_LATE {
                    let _ = party.watched.receive(NOW, &packet);
                }
            }
            TransportKind::Stream => {
                let (_, stream) = &mut party.incoming[0];
                let len = stream.len().min(len);
                let result = party.watched.receive(NOW, &stream[..len]);
                let taken = result.unwrap_or(stream.len());
                stream.drain(..taken);
                let is_moving = taken > 0;
                if stream.is_empty() {
                    party.incoming.clear();
                }
                self.judge(who);
                return is_moving;
            }
        }
        self.judge(who);
        true
    }

    fn look(&mut self, who: usize) {
        for event in self.parties[who].watched.events() {
            match event {
                Event::Question(id, question) => {
                    let open = self.parties[who].question.replace((id, question));
                    assert!(open.is_none(), "two questions at once");
                }
                Event::NewSession(id, session) => drop(self.world.sessions.insert(id, session)),
                _ => {}
            }
        }
    }

    /// Answers the open question. Returns whether there was one.
    fn answer(&mut self, who: usize, how: u8) -> bool {
        let Some((id, question)) = self.parties[who].question.take() else { return false };
        let answer = match how % 8 {
            1 => {
                self.is_forced = true;
                Answer::Failed
            }
            _ => self.world.answer(&question),
        };
        let _ = self.parties[who].watched.answer(NOW, id, answer);
        self.judge(who);
        true
    }

    fn send(&mut self, who: usize) {
        let len = usize::from(self.script.u16());
        let tag = self.script.u8();
        let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(7) ^ tag).collect();
        if self.kind == TransportKind::Datagram && self.world.setting.updates() {
            // The KeyUpdate that precedes the data may arrive without them.
            self.count_idle(1 - who);
        }
        if let Ok(taken) = self.parties[who].watched.send(&data) {
            let expected = &mut self.parties[1 - who].expected;
            match (self.kind, expected.first_mut()) {
                (TransportKind::Stream, Some(stream)) => stream.extend_from_slice(&data[..taken]),
                _ => expected.push(data[..taken].to_vec()),
            }
        }
    }

    fn read(&mut self, who: usize) {
        let party = &mut self.parties[who];
        while let Some(data) = party.watched.read(NOW) {
            match self.kind {
                TransportKind::Stream => {
                    let expected = party.expected.first_mut().expect("data that were never sent");
                    assert!(expected.starts_with(&data), "data changed on the way");
                    expected.drain(..data.len());
                }
                TransportKind::Datagram => {
                    let found = party.expected.iter().position(|sent| *sent == data);
                    party.expected.remove(found.expect("data that arrived before, or were never sent"));
                }
            }
        }
        self.judge(who);
    }
}
