//! MQTT: the user name of a CONNECT packet becomes the client's proven identity. The rest of a connection is
//! passed on unchanged.
//!
//! MQTT 3.1, 3.1.1 (OASIS 2014) and 5 (OASIS 2019). A user name, a password and authentication data of the
//! client never reach the broker: it would take them for the gateway's statement.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The type of a CONNECT packet with its reserved flags (MQTT 5 §2.1.2, §2.1.3).
const CONNECT: u8 = 0x10;
/// The connect flags (MQTT 5 §3.1.2.3).
const FLAG_RESERVED: u8 = 0x01;
const FLAG_WILL: u8 = 0x04;
const FLAG_PASSWORD: u8 = 0x40;
const FLAG_USER_NAME: u8 = 0x80;

/// The type of a CONNACK packet with its reserved flags.
const CONNACK: u8 = 0x20;
/// The bit of the level by which bridges of Mosquitto and others say that they are one. Brokers then keep the
/// retain flag of messages.
const BRIDGE: u8 = 0x80;
/// The longest text or binary data of MQTT, in bytes (§1.5.4).
const MAX_TEXT: usize = u16::MAX as usize;
/// The longest idle time that a keep alive can demand. A keep alive has up to 18 hours, and a client that is
/// gone would keep its place.
const MAX_KEPT_ALIVE: Duration = Duration::from_secs(3 * 60 * 60);

/// Why the gateway does not pass a client's first packet on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The packet is longer than the first number, and its protocol level is the second one.
    #[error("its CONNECT packet has more than {0} bytes")]
    TooLong(usize, u8),
    /// It breaks the protocol.
    #[error("its first packet is no valid CONNECT packet of MQTT 3.1, 3.1.1 or 5")]
    Malformed,
    /// It has a level that is none of these versions.
    #[error("its first packet has the protocol level {0:#04x}, and not that of MQTT 3.1, 3.1.1 or 5")]
    Version(u8),
    /// The client would authenticate to the broker itself (MQTT 5 §4.12).
    #[error("it authenticates by a method of MQTT, and the gateway has authenticated it already")]
    Authenticates,
    /// The identity cannot be a user name.
    #[error("its identity cannot be a user name of MQTT")]
    Identity,
}

impl ConnectError {
    /// The CONNACK packet for a client whose CONNECT packet cannot be read further (MQTT 5 §3.1.2.2,
    /// [MQTT-3.1.2-2] of MQTT 3.1.1). Others get none (MQTT 5 §4.13).
    pub(crate) const fn answer(&self) -> Option<&'static [u8]> {
        match self {
            Self::Version(5) => Some(&[CONNACK, 3, 0, 0x84, 0]),
            Self::Version(_) => Some(&[CONNACK, 2, 0, 1]),
            // MQTT 5 §3.1.4: Packet too large. MQTT 3.1.1 has no code for it.
            Self::TooLong(_, 5) => Some(&[CONNACK, 3, 0, 0x95, 0]),
            _ => None,
        }
    }
}

/// A CONNECT packet, without its user name and password.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Connect {
    /// 3, 4 or 5, without the bit of bridges.
    level: u8,
    /// In seconds; 0 if the client may be silent for any time.
    keep_alive: u16,
    /// Whether it has an authentication method or authentication data.
    authenticates: bool,
    flags: u8,
    /// From the protocol name to the level.
    protocol: Vec<u8>,
    /// From the keep alive to the end of the will.
    middle: Vec<u8>,
}

/// Reads parts of a packet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], ConnectError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(ConnectError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, ConnectError> {
        self.take(1)?.first().copied().ok_or(ConnectError::Malformed)
    }

    /// Text or binary data with its length.
    fn text(&mut self) -> Result<&'a [u8], ConnectError> {
        let len = [self.u8()?, self.u8()?];
        self.take(u16::from_be_bytes(len).into())
    }

    /// MQTT 5 §2.2.2: properties with their length.
    fn properties(&mut self) -> Result<Self, ConnectError> {
        let mut len = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.u8()?;
            len |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return self.take(len).map(Self);
            }
        }
        Err(ConnectError::Malformed)
    }

    /// The next property: its identifier, and its value without a length of the whole (MQTT 5 §2.2.2.2).
    fn property(&mut self) -> Result<(u8, &'a [u8]), ConnectError> {
        let id = self.u8()?;
        let value = match id {
            0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2a => self.take(1)?,
            0x13 | 0x21 | 0x22 | 0x23 => self.take(2)?,
            0x02 | 0x11 | 0x18 | 0x27 => self.take(4)?,
            0x03 | 0x08 | 0x09 | 0x12 | 0x15 | 0x16 | 0x1a | 0x1c | 0x1f => self.text()?,
            // User Property.
            0x26 => self.text().and_then(|_| self.text())?,
            _ => return Err(ConnectError::Malformed),
        };
        Ok((id, value))
    }

    /// Whether the properties of a CONNECT packet (MQTT 5 §3.1.2.11) have an authentication method or
    /// authentication data.
    fn authenticates(mut self) -> Result<bool, ConnectError> {
        let mut found = false;
        while !self.0.is_empty() {
            match self.property()?.0 {
                // Authentication Method and Authentication Data.
                0x15 | 0x16 => found = true,
                // The others of a CONNECT packet, from Session Expiry Interval to Maximum Packet Size.
                0x11 | 0x17 | 0x19 | 0x21 | 0x22 | 0x26 | 0x27 => {}
                _ => return Err(ConnectError::Malformed),
            }
        }
        Ok(found)
    }
}

/// The first packet of a broker.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The bytes read so far, which the client must get.
    pub(crate) bytes: Vec<u8>,
    /// Why it cannot be read further.
    pub(crate) failure: Option<io::Error>,
}

impl Answer {
    /// Reads the first packet of a broker, of at most `max` bytes. A caller that stops waiting keeps the
    /// bytes read so far, and so does one whose broker ends its direction.
    pub(crate) async fn read<S: AsyncRead + Unpin>(&mut self, broker: &mut S, max: usize) {
        while let Some(missing) = self.missing().filter(|missing| self.bytes.len() + missing <= max) {
            match broker.take(missing as u64).read_buf(&mut self.bytes).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
        }
    }

    /// How many bytes are missing at least; `None` if the packet is complete or no CONNACK packet.
    fn missing(&self) -> Option<usize> {
        let Some((typ, rest)) = self.bytes.split_first() else { return Some(2) };
        if *typ != CONNACK {
            return None;
        }
        let mut len = 0;
        for (shift, i) in [0, 7, 14, 21].into_iter().zip(0..) {
            let Some(byte) = rest.get(i) else { return Some(1) };
            len |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let missing = (i + 1 + len).saturating_sub(rest.len());
                return (missing > 0).then_some(missing);
            }
        }
        None
    }

    /// Server Keep Alive, which counts instead of the client's keep alive (MQTT 5 §3.2.2.3.14).
    fn keep_alive(&self) -> Option<u16> {
        let (&typ, rest) = self.bytes.split_first()?;
        let body = rest.iter().position(|byte| byte & 0x80 == 0).and_then(|end| rest.get(end + 1..))?;
        let mut r = Reader(body);
        // The flags and the reason code.
        r.take(2).ok().filter(|_| typ == CONNACK)?;
        let mut properties = r.properties().ok()?;
        loop {
            if let (0x13, value) = properties.property().ok()? {
                return Some(u16::from_be_bytes(value.try_into().ok()?));
            }
        }
    }
}

impl Connect {
    /// Reads the first packet of a client, of at most `max` bytes.
    pub(crate) async fn read<S: AsyncRead + Unpin>(client: &mut S, max: usize) -> Result<Self, ConnectError> {
        if client.read_u8().await? != CONNECT {
            return Err(ConnectError::Malformed);
        }
        let mut len = 0;
        let mut is_complete = false;
        // §1.5.5: the length has at most four bytes.
        for shift in [0, 7, 14, 21] {
            let byte = client.read_u8().await?;
            len |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                is_complete = true;
                break;
            }
        }
        match (is_complete, len > max) {
            (false, _) => return Err(ConnectError::Malformed),
            (true, true) => {
                let mut begin = [0; 7];
                // The level is beside the length, in most cases, or the client need not know more.
                tokio::select! {
                    biased;
                    _ = client.read_exact(&mut begin) => {}
                    () = std::future::ready(()) => {}
                }
                return Err(match begin {
                    [0, 4, b'M', b'Q', b'T', b'T', level] => ConnectError::TooLong(max, level & !BRIDGE),
                    _ => ConnectError::TooLong(max, 3),
                });
            }
            (true, false) => {}
        }
        let mut body = vec![0; len];
        client.read_exact(&mut body).await?;
        Self::parse(&body)
    }

    /// Reads the body of the packet.
    fn parse(body: &[u8]) -> Result<Self, ConnectError> {
        let mut r = Reader(body);
        let name = r.text()?;
        let level = r.u8()?;
        let level = level & !BRIDGE;
        match (name, level) {
            (b"MQTT", 4 | 5) | (b"MQIsdp", 3) => {}
            // Other versions have another form after the level.
            (b"MQTT" | b"MQIsdp", _) => return Err(ConnectError::Version(level)),
            _ => return Err(ConnectError::Malformed),
        }
        let protocol = body.get(..body.len() - r.0.len()).unwrap_or_default();
        let flags = r.u8()?;
        // §3.1.2.3; MQTT 3.1.1 §3.1.2.9: a password needs a user name.
        if flags & FLAG_RESERVED != 0
            || level < 5 && flags & (FLAG_USER_NAME | FLAG_PASSWORD) == FLAG_PASSWORD
        {
            return Err(ConnectError::Malformed);
        }
        let begin = r.0;
        let keep_alive = u16::from_be_bytes([r.u8()?, r.u8()?]);
        let authenticates = level == 5 && r.properties()?.authenticates()?;
        r.text()?;
        if flags & FLAG_WILL != 0 {
            if level == 5 {
                r.properties()?;
            }
            r.text()?;
            r.text()?;
        }
        let middle = begin.get(..begin.len() - r.0.len()).unwrap_or_default();
        for flag in [FLAG_USER_NAME, FLAG_PASSWORD] {
            if flags & flag != 0 {
                r.text()?;
            }
        }
        match r.0 {
            [] => {
                let protocol = protocol.to_vec();
                let middle = middle.to_vec();
                Ok(Self { level, keep_alive, authenticates, flags, protocol, middle })
            }
            _ => Err(ConnectError::Malformed),
        }
    }

    /// The packet with this user name and password. Without a user name it has no password either. Characters
    /// with a meaning in topics are percent-encoded: otherwise a broker whose access lists contain user names
    /// would let `dev1` read the topics of `dev1/sub`.
    pub(crate) fn with(
        &self,
        user_name: Option<&str>,
        password: Option<&[u8]>,
    ) -> Result<Vec<u8>, ConnectError> {
        if self.authenticates {
            return Err(ConnectError::Authenticates);
        }
        let mut flags = self.flags & !(FLAG_USER_NAME | FLAG_PASSWORD);
        let mut end = vec![];
        if let Some(name) = user_name {
            // §1.5.4: no text contains U+0000; other control characters may confuse brokers and their logs.
            if name.is_empty() || name.contains(char::is_control) {
                return Err(ConnectError::Identity);
            }
            flags |= FLAG_USER_NAME;
            text(&mut end, outside_topics(name).as_bytes())?;
            if let Some(password) = password {
                flags |= FLAG_PASSWORD;
                text(&mut end, password)?;
            }
        }
        let mut len = self.protocol.len() + 1 + self.middle.len() + end.len();
        let mut packet = vec![CONNECT];
        loop {
            let byte = u8::try_from(len & 0x7f).map_err(|_| ConnectError::Malformed)?;
            len >>= 7;
            match len {
                0 => {
                    packet.push(byte);
                    break;
                }
                _ => packet.push(byte | 0x80),
            }
        }
        packet.extend_from_slice(&self.protocol);
        packet.push(flags);
        packet.extend_from_slice(&self.middle);
        packet.append(&mut end);
        Ok(packet)
    }

    /// Whether the broker's CONNACK packet may have a keep alive of its own.
    pub(crate) const fn has_server_keep_alive(&self) -> bool {
        self.level == 5
    }

    /// How long this client may be silent: one and a half times the keep alive (MQTT 5 §3.1.2.10), which is
    /// the broker's if its answer has one, and `idle_time` without a keep alive.
    pub(crate) fn idle_time(&self, answer: &Answer, idle_time: Duration) -> Duration {
        match answer.keep_alive().unwrap_or(self.keep_alive) {
            0 => idle_time,
            keep_alive => {
                let silent = Duration::from_millis(u64::from(keep_alive) * 1500);
                silent.min(idle_time.max(MAX_KEPT_ALIVE))
            }
        }
    }

    /// The CONNACK packet that says that the broker cannot be reached (MQTT 5 §3.2.2.2, MQTT 3.1.1 §3.2.2.3).
    pub(crate) const fn unavailable(&self) -> &'static [u8] {
        match self.level {
            5 => &[CONNACK, 3, 0, 0x88, 0],
            _ => &[CONNACK, 2, 0, 3],
        }
    }

    /// The CONNACK packet that says that the client may not connect: because of its authentication method
    /// (MQTT 5 §4.12), or because it is not authorized.
    pub(crate) const fn refused(&self, why: &ConnectError) -> &'static [u8] {
        match (self.level, why) {
            (5, ConnectError::Authenticates) => &[CONNACK, 3, 0, 0x8c, 0],
            (5, _) => &[CONNACK, 3, 0, 0x87, 0],
            _ => &[CONNACK, 2, 0, 5],
        }
    }
}

/// A name in which no character separates levels of topics or is a wildcard (MQTT 5 §4.7.1). Different names
/// stay different.
fn outside_topics(name: &str) -> String {
    name.chars().fold(String::with_capacity(name.len()), |mut encoded, c| {
        match c {
            '/' => encoded.push_str("%2F"),
            '#' => encoded.push_str("%23"),
            '+' => encoded.push_str("%2B"),
            '%' => encoded.push_str("%25"),
            c => encoded.push(c),
        }
        encoded
    })
}

fn text(to: &mut Vec<u8>, bytes: &[u8]) -> Result<(), ConnectError> {
    let len = u16::try_from(bytes.len()).ok().filter(|len| usize::from(*len) <= MAX_TEXT);
    to.extend_from_slice(&len.ok_or(ConnectError::Identity)?.to_be_bytes());
    to.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQTT 3.1.1 with a will, the user name "u" and the password "p".
    const V4: &[u8] = b"\x10\x1b\0\x04MQTT\x04\xc6\0\x3c\0\x02id\0\x01t\0\x02up\0\x01u\0\x01p";
    /// MQTT 5 with properties of the connection and of the will, without a user name.
    const V5: &[u8] =
        b"\x10\x20\0\x04MQTT\x05\x06\0\x3c\x05\x11\0\0\0\x0a\0\x02id\x05\x18\0\0\0\x05\0\x01t\0\x01p";

    async fn read(mut packet: &[u8]) -> Result<Connect, ConnectError> {
        Connect::read(&mut packet, 1000).await
    }

    #[tokio::test]
    async fn replaces_user_name_and_password() {
        let connect = read(V4).await.unwrap();
        let with = connect.with(Some("device-1"), None).unwrap();
        assert_eq!(with, b"\x10\x1f\0\x04MQTT\x04\x86\0\x3c\0\x02id\0\x01t\0\x02up\0\x08device-1");
        let without = connect.with(None, Some(b"x")).unwrap();
        assert_eq!(without, b"\x10\x15\0\x04MQTT\x04\x06\0\x3c\0\x02id\0\x01t\0\x02up");
        let connect = read(V5).await.unwrap();
        let with = connect.with(Some("d"), Some(b"secret")).unwrap();
        assert_eq!(
            with,
            b"\x10\x2b\0\x04MQTT\x05\xc6\0\x3c\x05\x11\0\0\0\x0a\0\x02id\x05\x18\0\0\0\x05\0\x01t\0\x01p\0\x01d\0\x06secret"
        );
        assert_eq!(read(&with).await.unwrap().middle, connect.middle);
    }

    /// An access list with `devices/%u/#` gives no client the topics of another one.
    #[tokio::test]
    async fn a_user_name_is_one_level_of_a_topic_and_no_wildcard() {
        let connect = read(V4).await.unwrap();
        for (name, encoded) in [
            ("dev1/sub", "dev1%2Fsub"),
            ("#", "%23"),
            ("+", "%2B"),
            ("did:web:a.example%3A8443", "did:web:a.example%253A8443"),
            ("x509:uri:spiffe://a/b", "x509:uri:spiffe:%2F%2Fa%2Fb"),
        ] {
            let packet = connect.with(Some(name), None).unwrap();
            assert!(packet.ends_with(encoded.as_bytes()), "{name}: {packet:x?}");
            assert_eq!(packet[packet.len() - encoded.len() - 1], encoded.len() as u8);
        }
    }

    /// MQTT 5 §3.1.2.11.9, §3.1.2.11.10. The broker would take them for proven.
    #[tokio::test]
    async fn authentication_data_does_not_pass() {
        let packet = |properties: &[u8]| {
            let mut body = b"\0\x04MQTT\x05\x02\0\x3c".to_vec();
            body.push(properties.len() as u8);
            body.extend_from_slice(properties);
            body.extend_from_slice(b"\0\x02id");
            [&[CONNECT, body.len() as u8][..], &body].concat()
        };
        for properties in [&b"\x15\0\x01m"[..], b"\x16\0\x01d", b"\x11\0\0\0\x0a\x15\0\x01m\x16\0\x01d"] {
            let connect = read(&packet(properties)).await.unwrap();
            let error = connect.with(Some("d"), None).unwrap_err();
            assert!(matches!(error, ConnectError::Authenticates), "{error}");
            assert_eq!(connect.refused(&error), [0x20, 3, 0, 0x8c, 0]);
        }
        // All other properties pass, also with these bytes as values.
        let others =
            b"\x11\0\0\0\x15\x21\0\x16\x27\0\0\0\x16\x22\0\x15\x19\x01\x17\x01\x26\0\x01\x15\0\x01\x16";
        let connect = read(&packet(others)).await.unwrap();
        assert_eq!(connect.with(None, None).unwrap(), packet(others));
        for malformed in [&b"\x15"[..], b"\x15\0\x02m", b"\x7f\0"] {
            assert!(matches!(read(&packet(malformed)).await, Err(ConnectError::Malformed)));
        }
    }

    /// Mosquitto, NanoMQ and others set the highest bit of the level. The broker gets it, too.
    #[tokio::test]
    async fn bridges_pass_with_their_bit() {
        for (name, level) in [("MQIsdp", 0x83), ("MQTT", 0x84), ("MQTT", 0x85)] {
            let properties = if level == 0x85 { &[0][..] } else { &[] };
            let head = [&[0, name.len() as u8], name.as_bytes(), &[level, 0x02, 0, 60], properties].concat();
            let body = [&head[..], b"\0\x02id"].concat();
            let packet = [&[CONNECT, body.len() as u8][..], &body].concat();
            let connect = read(&packet).await.unwrap();
            assert_eq!(connect.with(None, None).unwrap(), packet);
            assert_eq!(connect.has_server_keep_alive(), level == 0x85);
        }
    }

    #[tokio::test]
    async fn other_versions_are_refused_in_words_of_mqtt() {
        for (name, level, answer) in [
            ("MQTT", 3, Some(&b"\x20\x02\0\x01"[..])),
            ("MQTT", 6, Some(b"\x20\x02\0\x01")),
            ("MQTT", 0x86, Some(b"\x20\x02\0\x01")),
            ("MQIsdp", 4, Some(b"\x20\x02\0\x01")),
            ("MQIsdp", 5, Some(b"\x20\x03\0\x84\0")),
            ("MQXX", 4, None),
        ] {
            let body =
                [&[0, name.len() as u8], name.as_bytes(), &[level], b"what a later version has"].concat();
            let packet = [&[CONNECT, body.len() as u8][..], &body].concat();
            assert_eq!(read(&packet).await.unwrap_err().answer(), answer, "{name} {level}");
        }
    }

    #[tokio::test]
    async fn the_idle_time_follows_the_keep_alive() {
        let packet = |keep_alive: u16| {
            let [high, low] = keep_alive.to_be_bytes();
            [&b"\x10\x0f\0\x04MQTT\x05\x02"[..], &[high, low], b"\0\0\x02id"].concat()
        };
        let answer = |properties: &[u8]| {
            let len = properties.len() as u8;
            Answer { bytes: [&[CONNACK, 3 + len, 0, 0, len][..], properties].concat(), failure: None }
        };
        let [idle, minute] = [300, 60].map(Duration::from_secs);
        for (keep_alive, answer, time) in [
            (40, answer(&[]), minute),
            (40, Answer::default(), minute),
            (0, answer(&[]), idle),
            // After a reason, a user property and a maximum of packets.
            (40, answer(b"\x1f\0\x01r\x26\0\x01a\0\x01b\x27\0\0\x13\0\x13\0\x14"), Duration::from_secs(30)),
            (0, answer(b"\x13\0\x14"), Duration::from_secs(30)),
            (40, answer(b"\x13\0\0"), idle),
            (40, answer(b"\x7f\x13\0\x14"), minute),
            // Any other packet has no keep alive.
            (40, Answer { bytes: b"\xf0\x06\0\0\x03\x13\0\x14".to_vec(), failure: None }, minute),
            (u16::MAX, answer(&[]), MAX_KEPT_ALIVE),
        ] {
            let connect = read(&packet(keep_alive)).await.unwrap();
            assert_eq!(connect.idle_time(&answer, idle), time, "{keep_alive} {answer:?}");
        }
        let connect = read(&packet(u16::MAX)).await.unwrap();
        assert_eq!(connect.idle_time(&answer(&[]), 2 * MAX_KEPT_ALIVE), 2 * MAX_KEPT_ALIVE);
    }

    /// The client gets every byte that the gateway has read of an answer.
    #[tokio::test]
    async fn reads_one_packet_of_the_broker_and_loses_nothing() {
        let long = [&[CONNACK, 0x80, 0x01][..], &[0; 128]].concat();
        for (sent, read, max) in [
            (&b"\x20\x02\0\0more"[..], 4, 100),
            (&[&long[..], b"more"].concat(), long.len(), 1000),
            // Longer than the limit, cut short, no CONNACK packet, and a malformed length.
            (&long, 3, 100),
            (b"\x20\x02\0", 3, 100),
            (b"", 0, 100),
            (b"\x30\x02\0\0", 2, 100),
            (b"\x20\xff\xff\xff\xff\x01", 5, 100),
        ] {
            let mut answer = Answer::default();
            let mut broker = sent;
            answer.read(&mut broker, max).await;
            assert_eq!(answer.bytes, sent[..read], "{sent:x?}");
            assert_eq!(broker, &sent[read..]);
        }
    }

    #[tokio::test]
    async fn long_packets_have_a_long_length() {
        let connect = read(V4).await.unwrap();
        let name = "n".repeat(300);
        let with = connect.with(Some(&name), None).unwrap();
        // 21 + 2 + 300 bytes, in groups of seven bits.
        assert_eq!(with[..3], [0x10, 0xc3, 0x02]);
        assert_eq!(read(&with).await.unwrap().middle, connect.middle);
    }

    #[tokio::test]
    async fn refuses_malformed_packets() {
        for cut in 0..V4.len() {
            assert!(read(&V4[..cut]).await.is_err(), "{cut} bytes");
        }
        let mut trailing = V4.to_vec();
        trailing.push(0);
        trailing[1] += 1;
        let mut reserved = V4.to_vec();
        reserved[9] |= 1;
        let mut password_alone = V4.to_vec();
        password_alone[9] &= !FLAG_USER_NAME;
        for packet in
            [&trailing[..], &reserved, &password_alone, b"\x20\x02\0\0", b"\x10\xff\xff\xff\xff\x01"]
        {
            assert!(matches!(read(packet).await, Err(ConnectError::Malformed)), "{packet:x?}");
        }
        for (mut long, level, answer) in [(V4, 4, None), (V5, 5, Some(&b"\x20\x03\0\x95\0"[..]))] {
            let error = Connect::read(&mut long, 26).await.unwrap_err();
            assert_eq!(error.answer(), answer);
            assert!(matches!(error, ConnectError::TooLong(26, found) if found == level), "{error:?}");
        }
    }

    #[tokio::test]
    async fn an_identity_that_is_no_text_of_mqtt_is_refused() {
        let connect = read(V4).await.unwrap();
        for name in ["", "a\0b", "a\nb", &"n".repeat(65_536)] {
            assert!(matches!(connect.with(Some(name), None), Err(ConnectError::Identity)), "{}", name.len());
        }
    }
}
