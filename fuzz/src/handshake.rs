//! The targets `client` and `server`: one side of a handshake, and a peer whose messages are changed on the
//! way.
//!
//! The peer is also the engine, with keys that do not encrypt, so a changed message is still authentic. A
//! script chooses the configurations (see [`Setting`]), then changes to each message, record and answer.
//! After its end nothing is changed, so an empty script is a complete connection. `Watched` and this module
//! check the rules:
//!
//! * Without the values that prove an identity, no handshake completes. A script can have these values
//!   removed from everything that is delivered.
//! * Without changes, the handshake completes.

use dunlin::error::{Error, Misuse};
use dunlin::wire::{AlertDescription, ProtocolVersion};
use dunlin::{Answer, ClientAuth, Event, Now, PeerIdentity, Question, QuestionId, Side, TransportKind};
use dunlin_null::{MAC, SIGNATURE, TAG};

use crate::edit::{Dialect, edit, remove_extension};
use crate::end::{End, Watched, refusal};
use crate::script::Script;
use crate::setting::{NOW, Resumption, Setting, World};
use crate::traffic::{HANDSHAKE, Joiner, Message, Protection, Record, Unit};

/// More turns than an unchanged connection needs. Each byte of a script may need one more.
const MAX_TURNS: usize = 64;

/// The type of the extension extended_master_secret (RFC 7627 §5.1).
const EXTENDED_MASTER_SECRET: u16 = 23;

/// The versions without certificate types and binders.
const TLS12: [Option<ProtocolVersion>; 2] = [Some(ProtocolVersion::TLS1_2), Some(ProtocolVersion::DTLS1_2)];

/// The early data of clients.
const EARLY: &[u8] = b"at first";

/// The target `client`. Returns whether it connected.
pub fn client(input: &[u8]) -> bool {
    run(Side::Client, input)
}

/// The target `server`. Returns whether it connected.
pub fn server(input: &[u8]) -> bool {
    run(Side::Server, input)
}

fn run(side: Side, input: &[u8]) -> bool {
    let mut script = Script::new(input);
    let setting = Setting::read(&mut script);
    let mut world = World::new(setting, side);
    if setting.is_rehearsed() {
        rehearse(&mut world, side);
    }
    let mut play = Play::new(script, world, side);
    play.run();
    play.finish()
}

/// Makes a connection without changes, so that both sides store tickets and certificates.
fn rehearse(world: &mut World, tested: Side) {
    let mut ends = [tested, tested.peer()].map(|side| End::new(world, side, NOW));
    let mut is_quiet = false;
    while !is_quiet {
        is_quiet = true;
        for (from, to) in [(0, 1), (1, 0)] {
            while let Some(packet) = ends[from].transmit(usize::MAX) {
                is_quiet = false;
                ends[to].receive(NOW, &packet).unwrap();
            }
            while let Some(event) = ends[to].poll_event() {
                is_quiet = false;
                match event {
                    Event::Question(id, question) => {
                        ends[to].answer(NOW, id, world.answer(&question)).unwrap();
                        // Input that waited for the answer.
                        ends[to].receive(NOW, &[]).unwrap();
                    }
                    Event::NewSession(id, session) => drop(world.sessions.insert(id, session)),
                    _ => {}
                }
            }
        }
    }
    assert!(
        ends.iter().all(|end| end.negotiated().is_some()),
        "the connection before the test does not complete"
    );
}

/// The values that are removed from all input of the tested side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Withheld {
    Nothing,
    /// The value of every Finished, binder and cookie.
    Mac,
    /// Like `Mac`, but only up to the server's first protected record: binders, but not Finished.
    Binder,
    /// The tag of every record.
    Tag,
    /// The value of every signature in the handshake.
    Signature,
}

impl Withheld {
    /// A byte that every such value contains.
    const fn byte(self) -> Option<u8> {
        match self {
            Self::Nothing => None,
            Self::Mac | Self::Binder => Some(MAC[0]),
            Self::Tag => Some(TAG[0]),
            Self::Signature => Some(SIGNATURE[0]),
        }
    }
}

struct Play<'s> {
    script: Script<'s>,
    world: World,
    side: Side,
    kind: TransportKind,
    dialect: Dialect,
    tested: Watched,
    peer: End,
    now: Now,
    withheld: Withheld,
    /// Whether anything differs from an unchanged connection.
    is_disturbed: bool,
    /// Joins the peer's output.
    joiner: Joiner,
    /// Units that are delayed.
    held: Vec<Unit>,
    /// Bytes that the tested side has not consumed yet.
    waiting: Vec<u8>,
    question: Option<(QuestionId, Question)>,
    /// The number of the next record to deliver, and of the next message.
    record: u64,
    message: u16,
    /// The protection of the peer's last record.
    protection: Option<Protection>,
    /// The longest content of a record, the number of bytes delivered at once, and the padding, in bytes.
    content_limit: usize,
    chunk: usize,
    padding: usize,
    received: Vec<u8>,
    /// Whether early data arrived.
    early: bool,
}

impl<'s> Play<'s> {
    fn new(mut script: Script<'s>, world: World, side: Side) -> Self {
        let withheld = match script.u8() % 8 {
            1 => Withheld::Mac,
            2 => Withheld::Tag,
            3 => Withheld::Signature,
            4 => Withheld::Binder,
            _ => Withheld::Nothing,
        };
        let chunk = match script.u8() {
            0 => usize::MAX,
            n => n.into(),
        };
        let Setting { kind, .. } = world.setting;
        let mut tested = Watched::new(&world, side, NOW);
        let mut peer = End::new(&world, side.peer(), NOW);
        tested.send_early(EARLY);
        let _ = peer.send_early(EARLY);
        Self {
            script,
            side,
            kind,
            dialect: Dialect::of(&world.setting),
            tested,
            peer,
            now: NOW,
            withheld,
            is_disturbed: withheld != Withheld::Nothing,
            joiner: Joiner::new(&world.setting),
            held: Vec::new(),
            waiting: Vec::new(),
            question: None,
            record: 0,
            message: 0,
            protection: None,
            content_limit: world.setting.content_limit(),
            chunk,
            padding: 0,
            received: Vec::new(),
            early: false,
            world,
        }
    }

    fn run(&mut self) {
        let most = MAX_TURNS + self.script.len();
        for turn in 0.. {
            assert!(turn < most, "no end after {turn} turns");
            let is_quiet = !self.carry_from_peer() & !self.carry_from_tested() & !self.answers();
            self.act();
            if is_quiet && self.script.is_empty() {
                break;
            }
        }
        if self.tested.is_connected() && !self.is_disturbed {
            self.converse();
        }
    }

    /// Carries the peer's output, changed as the script demands. Returns whether there was any.
    fn carry_from_peer(&mut self) -> bool {
        let mut any = false;
        while let Some(packet) = self.peer.transmit(usize::MAX) {
            any = true;
            for mut unit in self.joiner.join(&packet) {
                if let (Unit::Message(message), true) = (&mut unit, self.world.setting.is_unbound()) {
                    remove_extension(self.dialect, message, EXTENDED_MASTER_SECRET);
                }
                self.unit(unit);
            }
        }
        any
    }

    /// Carries the tested side's output without changes. Returns whether there was any.
    fn carry_from_tested(&mut self) -> bool {
        let mut any = false;
        while let Some(packet) = self.tested.transmit() {
            any = true;
            // The peer may fail because of earlier changed input.
            let _ = self.peer.receive(self.now, &packet);
            while let Some(event) = self.peer.poll_event() {
                if let Event::Question(id, question) = event {
                    let _ = self.peer.answer(self.now, id, self.world.answer(&question));
                }
            }
            while self.peer.read_early(self.now).is_some() {}
            while let Ok(Some(_)) = self.peer.read(self.now, usize::MAX) {}
        }
        any
    }

    /// Takes the events, and answers a question. Returns whether there was any.
    fn answers(&mut self) -> bool {
        while let Some(data) = self.tested.read_early(self.now) {
            self.judge_early(&data);
        }
        while let Some(data) = self.tested.read(self.now) {
            self.received.extend(data);
        }
        let mut any = false;
        for event in self.tested.events() {
            any = true;
            match event {
                Event::Question(id, question) => {
                    let open = self.question.replace((id, question));
                    assert!(open.is_none(), "two questions at once");
                }
                Event::NewSession(id, session) => drop(self.world.sessions.insert(id, session)),
                _ => {}
            }
        }
        if self.tested.is_connected() {
            self.judge();
        }
        let Some((id, question)) = self.question.take() else { return any };
        let what = self.script.u8() % 8;
        self.is_disturbed |= (1..=3).contains(&what);
        let answer = match what {
            1 => Answer::Failed,
            2 => refusal(&question),
            // An answer of another kind leaves the question open.
            3 => {
                let wrong = match question {
                    Question::Sign { .. } => Answer::Psk(None),
                    _ => Answer::Signature(Vec::new()),
                };
                let result = self.tested.answer(self.now, id, wrong);
                if self.tested.end().error().is_none() {
                    assert_eq!(result, Err(Error::Misuse(Misuse::WrongAnswer)));
                    self.question = Some((id, question));
                }
                return true;
            }
            // The answer comes later.
            4 => {
                self.question = Some((id, question));
                return true;
            }
            _ => self.world.answer(&question),
        };
        let is_over = self.tested.end().error().is_some();
        let result = self.tested.answer(self.now, id, answer);
        assert!(!is_over || result.is_err(), "a closed connection accepted an answer");
        // There was only one question.
        let again = self.tested.answer(self.now, id, Answer::Failed);
        assert!(again.is_err(), "a question was answered twice");
        self.deliver(&[]);
        true
    }

    /// Changes a unit of the peer as the script demands.
    fn unit(&mut self, unit: Unit) {
        let held = std::mem::take(&mut self.held);
        self.protection = match &unit {
            Unit::Message(message) => message.protection,
            Unit::Record(record) => record.protection,
        };
        let what = self.script.u8() % 20;
        self.is_disturbed |= what != 0;
        match (what, unit) {
            (1, _) => {}
            (2, unit) => {
                self.whole(&unit);
                self.whole(&unit);
            }
            (3, unit) => self.held.push(unit),
            (4..=7, Unit::Message(mut message)) => {
                edit(self.dialect, &mut message, &mut self.script);
                self.whole(&Unit::Message(message));
            }
            (8, Unit::Message(message)) => {
                let announced = self.script.u16().into();
                self.announced(&message, announced);
            }
            (9, unit) => {
                let typ = self.script.u8();
                let body = self.script.bytes().to_vec();
                self.whole(&Unit::Message(Message { typ, body, protection: self.protection }));
                self.whole(&unit);
            }
            (10, unit) => {
                self.stray_record();
                self.whole(&unit);
            }
            (11, unit) => {
                let bytes = self.script.bytes();
                self.deliver(bytes);
                self.whole(&unit);
            }
            (12, unit) => {
                self.padding = self.script.u8().into();
                self.whole(&unit);
            }
            (13, unit) => {
                self.content_limit = usize::from(self.script.u8()).max(1);
                self.whole(&unit);
            }
            (14, unit) => {
                self.reprotect(&unit);
            }
            (15, Unit::Message(message)) if self.kind == TransportKind::Datagram => {
                self.in_disorder(&message);
            }
            (_, unit) => self.whole(&unit),
        }
        for unit in held {
            self.whole(&unit);
        }
    }

    /// Delivers a record that the peer did not send.
    fn stray_record(&mut self) {
        let typ = self.script.u8();
        let protection = match self.script.u8() % 4 {
            0 => None,
            1 => self.protection,
            n => Some(self.other_protection(n == 2)),
        };
        let record = Record { typ, content: self.script.bytes().to_vec(), protection };
        self.records(&[record]);
    }

    /// Returns keys of another kind or time than the peer's.
    fn other_protection(&mut self, first: bool) -> Protection {
        let epoch = self.script.u8() & 3;
        match (self.world.setting.tls12, first) {
            (Some(_), true) => self.world.setting.tls12_protection(),
            (_, first) => {
                let id = self.protection.and_then(|protection| protection.id);
                Protection { tag_len: if first { 16 } else { 8 }, epoch, tls12: None, id }
            }
        }
    }

    /// Delivers a unit under other keys than it was sent with.
    fn reprotect(&mut self, unit: &Unit) {
        let protection = match self.script.u8() % 3 {
            0 => None,
            n => Some(self.other_protection(n == 1)),
        };
        self.whole(&match unit {
            Unit::Message(message) => Unit::Message(Message { protection, ..message.clone() }),
            Unit::Record(record) => Unit::Record(Record { protection, ..record.clone() }),
        });
    }

    fn whole(&mut self, unit: &Unit) {
        match unit {
            Unit::Message(message) => self.announced(message, message.body.len()),
            Unit::Record(record) => self.records(std::slice::from_ref(record)),
        }
    }

    /// Sends a message whose header announces this length.
    fn announced(&mut self, message: &Message, announced: usize) {
        let number = self.message;
        self.message = number.wrapping_add(1);
        let records: Vec<Record> = match self.kind {
            TransportKind::Stream => {
                let bytes = message.with_header(announced);
                bytes.chunks(self.content_limit).map(|piece| record(message, piece.to_vec())).collect()
            }
            TransportKind::Datagram => {
                let room = self.content_limit.saturating_sub(12).max(1);
                let count = message.body.len().div_ceil(room).max(1);
                let piece = |i: usize| i * room..message.body.len().min((i + 1) * room);
                (0..count).map(|i| record(message, fragment(message, announced, number, piece(i)))).collect()
            }
        };
        self.records(&records);
    }

    /// Sends the fragments of a message from the last to the first, each overlapping the next.
    fn in_disorder(&mut self, message: &Message) {
        let number = self.message;
        self.message = number.wrapping_add(1);
        let len = message.body.len();
        let room = usize::from(self.script.u8()).max(1);
        let overlap = usize::from(self.script.u8());
        for i in (0..len.div_ceil(room).max(1)).rev() {
            let piece = i * room..len.min((i + 1) * room + overlap);
            self.records(&[record(message, fragment(message, len, number, piece))]);
        }
    }

    fn records(&mut self, records: &[Record]) {
        let mut bytes = Vec::new();
        for record in records {
            record.write(self.kind, self.record, self.padding, &mut bytes);
            self.record += 1;
        }
        self.deliver(&bytes);
    }

    /// Delivers bytes or a datagram to the tested side, without the withheld values.
    fn deliver(&mut self, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        let is_past = self.withheld == Withheld::Binder && self.tested.has_protected();
        if let Some(byte) = self.withheld.byte().filter(|_| !is_past) {
            bytes.iter_mut().filter(|b| **b == byte).for_each(|b| *b ^= 1);
        }
        if self.kind == TransportKind::Datagram {
            let _ = self.tested.receive(self.now, &bytes);
            return;
        }
        self.waiting.extend(bytes);
        while !self.waiting.is_empty() {
            let chunk = self.waiting.len().min(self.chunk);
            let taken = match self.tested.receive(self.now, &self.waiting[..chunk]) {
                Ok(taken) => taken,
                Err(_) => self.waiting.len(),
            };
            self.waiting.drain(..taken);
            if taken < chunk {
                break;
            }
        }
    }

    /// Makes a call that the script demands.
    fn act(&mut self) {
        let what = self.script.u8() % 24;
        self.is_disturbed |= (1..=17).contains(&what);
        match what {
            1 => drop(self.tested.send(self.script.bytes())),
            2 => self.tested.update_keys(false),
            3 => self.tested.update_keys(true),
            4 => self.tested.close(),
            5 => self.tested.abort(AlertDescription(self.script.u8())),
            6 => drop(self.peer.send(self.script.bytes())),
            7 => drop(self.peer.update_keys(true)),
            8 => self.peer.close(),
            9 => self.tested.receive_end(),
            10 => self.tested.export(),
            11 => self.stray_record(),
            12 => {
                let typ = self.script.u8();
                let body = self.script.bytes().to_vec();
                self.whole(&Unit::Message(Message { typ, body, protection: self.protection }));
            }
            13 => {
                let hours = u64::from(self.script.u8());
                self.now = Now::from_unix_ms(self.now.unix_ms + hours * 3_600_000);
            }
            14 => self.tested.renegotiate(self.now),
            15 => drop(self.peer.renegotiate(self.now)),
            16 => self.tested.change_ids(self.script.u8()),
            17 => self.peer.change_ids(self.script.u8()),
            _ => {}
        }
    }

    /// Checks the rules of a completed handshake.
    fn judge(&self) {
        let negotiated = self.tested.end().negotiated().expect("connected without negotiated parameters");
        match self.withheld {
            Withheld::Nothing => {}
            // A client sees no certificate types, and TLS 1.2 has none.
            Withheld::Binder => assert!(
                self.side == Side::Client
                    || TLS12.contains(&negotiated.version)
                    || !negotiated.is_resumed() && !matches!(negotiated.peer, Some(PeerIdentity::Psk(_))),
                "believed {:?} without a binder",
                negotiated.peer
            ),
            Withheld::Mac | Withheld::Tag => panic!("connected without {:?}", self.withheld),
            Withheld::Signature => assert!(
                negotiated.is_resumed() || matches!(negotiated.peer, None | Some(PeerIdentity::Psk(_))),
                "believed {:?} without a signature",
                negotiated.peer
            ),
        }
        let must_know = self.side == Side::Client || self.world.setting.client_auth == ClientAuth::Required;
        assert!(negotiated.peer.is_some() || !must_know, "connected without a peer identity");
        let is_psk = matches!(negotiated.peer, Some(PeerIdentity::Psk(_)));
        assert!(is_psk == self.world.setting.is_psk() || negotiated.peer.is_none(), "another way");
    }

    /// Checks early data: the sender has the secret of a session, and the data are as sent.
    fn judge_early(&mut self, data: &[u8]) {
        self.early = true;
        assert!(self.world.setting.early() && self.side == Side::Server, "early data without permission");
        assert_ne!(self.world.setting.resumption, Resumption::None, "early data without a session");
        assert!(
            !matches!(self.withheld, Withheld::Mac | Withheld::Tag),
            "early data without {:?}",
            self.withheld
        );
        assert!(self.is_disturbed || data == EARLY, "early data changed on the way");
    }

    /// Sends data both ways on an unchanged connection, and closes it.
    fn converse(&mut self) {
        let Setting { kind, resumption, .. } = self.world.setting;
        let retries = self.world.setting.retries() || self.world.setting.cookies();
        let is_tls13 = self.world.setting.tls12.is_none();
        let has_early = self.world.setting.early() && kind == TransportKind::Stream && is_tls13 && !retries;
        let is_early = has_early && resumption != Resumption::None && self.side == Side::Server;
        assert!(self.early || !is_early, "early data is lost");
        let negotiated = self.tested.end().negotiated().expect("connected without negotiated parameters");
        let is_cached = self.world.setting.is_peer_cached(self.side);
        assert!(negotiated.is_peer_cached() || !is_cached, "the cache is not used");
        assert_eq!(self.tested.end().has_ids(), self.world.setting.has_ids(), "connection IDs");
        if self.world.setting.tls12.is_some() && self.world.setting.renegotiates() {
            self.renegotiate();
        }
        assert_eq!(self.tested.send(b"there"), Ok(5));
        while let Some(packet) = self.tested.transmit() {
            self.peer.receive(self.now, &packet).unwrap();
        }
        let data = self.peer.read(self.now, usize::MAX);
        assert_eq!(data, Ok(Some(b"there".to_vec())));
        assert_eq!(self.peer.send(b"back"), Ok(4));
        self.peer.close();
        self.carry_from_peer();
        self.answers();
        assert_eq!(self.received, b"back");
        assert!(self.tested.end().peer_has_closed(), "the tested side got no close_notify");
        self.tested.export();
        self.tested.close();
        self.carry_from_tested();
        assert!(self.peer.peer_has_closed(), "the peer got no close_notify");
    }

    /// Lets both sides renegotiate.
    fn renegotiate(&mut self) {
        for count in 1..=2 {
            match count {
                1 => self.tested.renegotiate(self.now),
                _ => self.peer.renegotiate(self.now).unwrap(),
            }
            while self.carry_from_peer() | self.carry_from_tested() | self.answers() {}
            assert_eq!(self.tested.renegotiations(), count, "{:?}", self.tested.end().error());
        }
    }

    fn finish(mut self) -> bool {
        self.carry_from_tested();
        let connected = self.tested.is_connected();
        if connected {
            self.judge();
        } else {
            assert!(self.is_disturbed, "undisturbed, and yet: {:?}", self.tested.end().error());
        }
        self.tested.finish();
        connected
    }
}

fn record(message: &Message, content: Vec<u8>) -> Record {
    Record { typ: HANDSHAKE, content, protection: message.protection }
}

/// Returns a fragment: its header and its piece (RFC 9147 §5.2).
fn fragment(message: &Message, announced: usize, number: u16, piece: std::ops::Range<usize>) -> Vec<u8> {
    let uint24 = |value: usize| (value as u32).to_be_bytes().into_iter().skip(1);
    let mut bytes = vec![message.typ];
    bytes.extend(uint24(announced));
    bytes.extend(number.to_be_bytes());
    bytes.extend(uint24(piece.start));
    bytes.extend(uint24(piece.len()));
    bytes.extend_from_slice(&message.body[piece]);
    bytes
}
