//! The targets `client` and `server`: one side of a handshake, and a peer whose messages are changed on the way.
//!
//! The peer is the engine too, with keys that hide nothing, so a message that was changed is still authentic. A script
//! says who meets whom (see [`Setting`]), then what happens to each message, record and answer; where it ends, all goes
//! its ordinary way, and an empty one is a whole connection. What must hold is said in `Watched` and here:
//!
//! * without the values that prove something, nobody is believed: a script can have them taken out of all that is
//!   delivered, and then the handshake must not complete;
//! * with nothing changed, it must.

use dunlin::error::{Error, Misuse};
use dunlin::wire::{AlertDescription, ProtocolVersion};
use dunlin::{Answer, ClientAuth, Event, Now, PeerIdentity, Question, QuestionId, Side, TransportKind};
use dunlin_null::{MAC, SIGNATURE, TAG};

use crate::edit::{Dialect, edit, remove_extension};
use crate::end::{End, Watched, refusal};
use crate::script::Script;
use crate::setting::{NOW, Resumption, Setting, World};
use crate::traffic::{HANDSHAKE, Joiner, Message, Protection, Record, Unit};

/// More turns than a connection needs of its own accord; each byte of a script may ask for one more.
const MAX_TURNS: usize = 64;

/// The type of an extension (RFC 7627 §5.1).
const EXTENDED_MASTER_SECRET: u16 = 23;

/// What clients send early, where they can.
const EARLY: &[u8] = b"at first";

/// The target `client`; whether it connected.
pub fn client(input: &[u8]) -> bool {
    run(Side::Client, input)
}

/// The target `server`; whether it connected.
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

/// Two sides meet undisturbed, for the tickets and the certificates that they keep.
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
                        // What waited behind the question.
                        ends[to].receive(NOW, &[]).unwrap();
                    }
                    Event::NewSession(id, session) => drop(world.sessions.insert(id, session)),
                    _ => {}
                }
            }
        }
    }
    assert!(ends.iter().all(|end| end.negotiated().is_some()), "the rehearsal stands still");
}

/// What is taken out of all that the tested side gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Withheld {
    Nothing,
    /// The value of every Finished, binder and cookie.
    Mac,
    /// The same up to the server's first protected record: the binders, but not the Finished.
    Binder,
    /// The tag of every record.
    Tag,
    /// The value of every signature in the handshake.
    Signature,
}

impl Withheld {
    /// A byte that no such value can do without.
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
    /// Whether anything differs from an ordinary connection.
    is_disturbed: bool,
    /// What the peer sends.
    joiner: Joiner,
    /// Units that were held back.
    held: Vec<Unit>,
    /// Bytes that the tested side did not take yet.
    waiting: Vec<u8>,
    question: Option<(QuestionId, Question)>,
    /// The number of the next record that is delivered, and of the next message.
    record: u64,
    message: u16,
    /// How the last record of the peer was protected.
    protection: Option<Protection>,
    /// The longest content of a record, in bytes, how many bytes come at once, and the padding.
    content_limit: usize,
    chunk: usize,
    padding: usize,
    received: Vec<u8>,
    /// Whether early data came.
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
            joiner: Joiner::new(kind),
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

    /// Carries what the peer sends, changed as the script says; whether there was something.
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

    /// Carries what the tested side sends, as it is; whether there was something.
    fn carry_from_tested(&mut self) -> bool {
        let mut any = false;
        while let Some(packet) = self.tested.transmit() {
            any = true;
            // A peer that is confused by what it got before may well fail.
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

    /// Looks at the events, and answers a question; whether there was something.
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
            // Of another kind: the question stays.
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
            // Later.
            4 => {
                self.question = Some((id, question));
                return true;
            }
            _ => self.world.answer(&question),
        };
        let is_over = self.tested.end().error().is_some();
        let result = self.tested.answer(self.now, id, answer);
        assert!(!is_over || result.is_err(), "an answer after the end was taken");
        // It was the only one.
        let again = self.tested.answer(self.now, id, Answer::Failed);
        assert!(again.is_err(), "a question was answered twice");
        self.deliver(&[]);
        true
    }

    /// What the script has happen to a unit of the peer's.
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
                let (typ, body) = (self.script.u8(), self.script.bytes().to_vec());
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

    /// A record from nowhere.
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

    /// Keys of another kind or time than the peer's.
    fn other_protection(&mut self, first: bool) -> Protection {
        let epoch = self.script.u8() & 3;
        match (self.world.setting.tls12, first) {
            (Some(_), true) => self.world.setting.tls12_protection(),
            (_, first) => Protection { tag_len: if first { 16 } else { 8 }, epoch, tls12: None },
        }
    }

    /// A unit under other keys than it was sent with.
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

    /// Sends a message whose header says that it is so long.
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

    /// The fragments of a message from the last to the first, each longer than it need be.
    fn in_disorder(&mut self, message: &Message) {
        let number = self.message;
        self.message = number.wrapping_add(1);
        let (len, room) = (message.body.len(), usize::from(self.script.u8()).max(1));
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

    /// Gives bytes or a datagram to the tested side, without what is withheld.
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

    /// A call that the script wants.
    fn act(&mut self) {
        let what = self.script.u8() % 24;
        self.is_disturbed |= (1..=15).contains(&what);
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
                let (typ, body) = (self.script.u8(), self.script.bytes().to_vec());
                self.whole(&Unit::Message(Message { typ, body, protection: self.protection }));
            }
            13 => {
                let hours = u64::from(self.script.u8());
                self.now = Now::from_unix_ms(self.now.unix_ms + hours * 3_600_000);
            }
            14 => self.tested.renegotiate(self.now),
            15 => drop(self.peer.renegotiate(self.now)),
            _ => {}
        }
    }

    /// What must hold of a connection that says it is one.
    fn judge(&self) {
        let negotiated = self.tested.end().negotiated().expect("connected with nothing agreed");
        match self.withheld {
            Withheld::Nothing => {}
            // A client is shown none, and TLS 1.2 has none.
            Withheld::Binder => assert!(
                self.side == Side::Client
                    || negotiated.version == Some(ProtocolVersion::TLS1_2)
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
        assert!(negotiated.peer.is_some() || !must_know, "connected to nobody");
        let is_psk = matches!(negotiated.peer, Some(PeerIdentity::Psk(_)));
        assert!(is_psk == self.world.setting.is_psk() || negotiated.peer.is_none(), "another way");
    }

    /// Early data comes from who has the secret of a session, and as it was sent.
    fn judge_early(&mut self, data: &[u8]) {
        self.early = true;
        assert!(self.world.setting.early() && self.side == Side::Server, "early data that nobody allowed");
        assert_ne!(self.world.setting.resumption, Resumption::None, "early data without a session");
        assert!(
            !matches!(self.withheld, Withheld::Mac | Withheld::Tag),
            "early data without {:?}",
            self.withheld
        );
        assert!(self.is_disturbed || data == EARLY, "early data changed on the way");
    }

    /// An ordinary connection carries data both ways, and ends.
    fn converse(&mut self) {
        let Setting { kind, resumption, .. } = self.world.setting;
        let retries = self.world.setting.retries() || self.world.setting.cookies();
        let is_tls13 = self.world.setting.tls12.is_none();
        let has_early = self.world.setting.early() && kind == TransportKind::Stream && is_tls13 && !retries;
        let is_early = has_early && resumption != Resumption::None && self.side == Side::Server;
        assert!(self.early || !is_early, "early data is lost");
        let negotiated = self.tested.end().negotiated().expect("connected with nothing agreed");
        let is_cached = self.world.setting.is_peer_cached(self.side);
        assert!(negotiated.is_peer_cached() || !is_cached, "the cache is not used");
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
        assert!(self.tested.end().peer_has_closed(), "the end did not come");
        self.tested.export();
        self.tested.close();
        self.carry_from_tested();
        assert!(self.peer.peer_has_closed(), "the end did not arrive");
    }

    /// Both may begin another handshake.
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

/// RFC 9147 §5.2: the header of a fragment, and its piece.
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
