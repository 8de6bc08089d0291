//! The options of DTLS: datagrams, timeouts, connection IDs, ports of associations, and the emulation of
//! loss.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use dunlin::crypto::SecureRandom;
use dunlin::{ConnectionIds, MAX_CONNECTION_ID, Migration, NodeIds, PortScheme, Retransmission, Side};
use dunlin_command::error::{Error, misuse};

use crate::tls::lists;

/// The options of `client` and `server` that only DTLS has.
#[derive(Args, Clone, Default)]
pub(crate) struct DatagramOptions {
    /// The size of the largest datagram to send, in bytes of UDP payload: 80 to 65507 [default: 1200].
    #[arg(long, value_name = "BYTES", requires = "udp", value_parser = lists::bytes::<80, 65507>,
          help_heading = "Datagrams")]
    pub(crate) mtu: Option<u16>,
    /// Negotiate connection IDs (RFC 9146, RFC 9147 §9). The value is the ID that this side receives: the
    /// LENGTH of a random one, a decimal number of bytes from 0 to 32; or HEX, an even number of hexadecimal
    /// digits, with 0x before them if they could be a length. A server's IDs begin with HEX and continue with
    /// 8 random bytes. Without a value, a client receives an empty ID and sends the server's, and a server's
    /// IDs have 8 random bytes.
    #[arg(long, value_name = "HEX|LENGTH", requires = "udp", num_args = 0..=1, default_missing_value = "",
          value_parser = cid, help_heading = "Datagrams")]
    cid: Option<Cid>,
    /// Give an association without connection IDs a port of its own at the server, so that it goes on when
    /// the client's address changes (docs/association-ports.md). ipc: the server answers from that port; not
    /// behind port-restricted and symmetric NATs. ipc-unannounced: the same for all clients, without an
    /// extension. tcs: the server names the port in the handshake. tcs-message: the server names it after the
    /// handshake. A server needs --port-pool, and --migrate on-newer-record to follow clients. Only builds
    /// with the feature association-ports have it.
    #[arg(long, value_name = "SCHEME", requires = "udp", value_parser = scheme(), hide_possible_values = true,
          help_heading = "Datagrams")]
    pub(crate) scheme: Option<PortScheme>,
    /// When to follow a peer that takes part in no return routability checks to another address. never
    /// [default]; or on-newer-record: as soon as a newer authentic record comes from there. Then an attacker
    /// who forwards records can divert what this side sends, until the next record comes from the true
    /// address.
    #[arg(long, value_name = "WHEN", requires = "udp", value_parser = migration(), hide_possible_values = true,
          help_heading = "Datagrams")]
    migrate: Option<Migration>,
    /// When to send unanswered handshake messages again, in milliseconds: FIRST is the first timeout, which
    /// doubles up to LONGEST. From 10 to 86400000 [default: 1000-60000]. --timeout limits the whole
    /// handshake.
    #[arg(long, value_name = "FIRST[-LONGEST]", requires = "udp",
          value_parser = retransmission, help_heading = "Datagrams")]
    hs_timeout: Option<Retransmission>,
    /// Lose datagrams instead of sending them, for tests: those with these numbers, counted from 1 for each
    /// socket, as in 1,4-6; or N%, the same pseudo-random ones in every run. Loses no received datagrams: for
    /// these, give it to the peer, too.
    #[arg(long, value_name = "LIST|N%", requires = "udp", value_parser = loss, help_heading = "Debugging")]
    pub(crate) loss: Option<Loss>,
}

impl DatagramOptions {
    /// Whether this side negotiates connection IDs.
    pub(crate) const fn has_ids(&self) -> bool {
        self.cid.is_some()
    }

    /// Whether this side offers a mechanism by which an association survives a change of the client's
    /// address.
    pub(crate) const fn survives_changes(&self) -> bool {
        self.cid.is_some() || self.scheme.is_some()
    }

    /// Whether a server moves associations without return routability checks to another address of the
    /// client.
    pub(crate) fn follows_unchecked(&self) -> bool {
        self.migrate == Some(Migration::default().with_unchecked(true))
    }

    /// The retransmission timeouts, if they differ from the default.
    pub(crate) const fn retransmission(&self) -> Option<Retransmission> {
        self.hs_timeout
    }

    /// Whether a client follows its server to another port.
    pub(crate) const fn follows_server(&self) -> bool {
        matches!(self.scheme, Some(PortScheme::Ipc | PortScheme::IpcUnannounced))
    }

    /// How to follow a peer, if that differs from the default.
    pub(crate) const fn migration(&self) -> Option<Migration> {
        self.migrate
    }

    /// Makes the issuer of this side's connection IDs, if this side negotiates any.
    pub(crate) fn connection_ids(
        &self,
        side: Side,
        random: &Arc<dyn SecureRandom>,
    ) -> Result<Option<Arc<dyn ConnectionIds>>, Error> {
        let node = |node: &[u8], len| {
            let ids = NodeIds::new(node, len, Arc::clone(random)).map_err(|e| misuse(&e))?;
            Ok(Some(Arc::new(ids) as Arc<dyn ConnectionIds>))
        };
        match (&self.cid, side) {
            (None, _) => Ok(None),
            (Some(Cid::Default), Side::Client) => node(&[], 0),
            (Some(Cid::Default), Side::Server) => node(&[], RANDOM_LEN),
            (Some(Cid::Length(len)), _) => node(&[], *len),
            (Some(Cid::Bytes(id)), Side::Client) => Ok(Some(Arc::new(FixedId(id.clone())))),
            (Some(Cid::Bytes(begin)), Side::Server) if begin.len() + RANDOM_LEN > MAX_CONNECTION_ID => {
                let most = MAX_CONNECTION_ID - RANDOM_LEN;
                let why = format!("the IDs of a server begin with at most {most} bytes, not {}", begin.len());
                Err(Error::usage("--cid", why, "give fewer digits"))
            }
            (Some(Cid::Bytes(begin)), Side::Server) => node(begin, begin.len() + RANDOM_LEN),
        }
    }
}

/// The random bytes of a server's connection IDs: enough to be unique, and hard to guess.
const RANDOM_LEN: usize = 8;

/// The connection ID of a client, which has one connection on each socket.
#[derive(Debug)]
struct FixedId(Vec<u8>);

impl ConnectionIds for FixedId {
    fn id_len(&self) -> usize {
        self.0.len()
    }

    fn issue(&self) -> Result<Vec<u8>, dunlin::Error> {
        Ok(self.0.clone())
    }
}

/// The values of `--scheme`.
fn scheme() -> impl TypedValueParser<Value = PortScheme> {
    PossibleValuesParser::new(["ipc", "ipc-unannounced", "tcs", "tcs-message"])
        .try_map(|name| scheme_of(&name, PortScheme::AVAILABLE))
}

/// The scheme with this name, in a build with association ports.
fn scheme_of(name: &str, is_built: bool) -> Result<PortScheme, &'static str> {
    match name {
        _ if !is_built => Err(
            "this build has no association ports: build dunlin with --features association-ports, or use --cid",
        ),
        "ipc" => Ok(PortScheme::Ipc),
        "ipc-unannounced" => Ok(PortScheme::IpcUnannounced),
        "tcs" => Ok(PortScheme::Tcs),
        _ => Ok(PortScheme::TcsMessage),
    }
}

/// The values of `--migrate`. Peers that take part in checks are followed after a check in any case.
fn migration() -> impl TypedValueParser<Value = Migration> {
    PossibleValuesParser::new(["never", "on-newer-record"])
        .map(|name| Migration::default().with_unchecked(name == "on-newer-record"))
}

/// The ports of `--port-pool`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortPool(Vec<u16>);

impl PortPool {
    /// The ports; 0 stands for one that the system chooses.
    pub(crate) fn ports(&self) -> &[u16] {
        &self.0
    }
}

/// The most ports of a pool, each of which is a socket.
const MAX_POOL: usize = 4096;

/// Reads the value of `--port-pool`.
pub(crate) fn port_pool(text: &str) -> Result<PortPool, String> {
    if let Some(count) = text.strip_prefix("auto:") {
        let count = count.parse().ok().filter(|count| (1..=MAX_POOL).contains(count));
        let count = count.ok_or_else(|| format!("the number of ports is 1 to {MAX_POOL}, as in auto:16"))?;
        return Ok(PortPool(vec![0; count]));
    }
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let range = first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?;
        (*range.start() > 0 && !range.is_empty()).then_some(range)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    let ports: Vec<u16> = ranges.into_iter().flatten().flatten().collect();
    let mut seen = BTreeSet::new();
    if let Some(port) = ports.iter().find(|port| !seen.insert(**port)) {
        return Err(format!("port {port} is there twice"));
    }
    match ports.len() {
        1..=MAX_POOL => Ok(PortPool(ports)),
        0 => {
            Err("neither ports, as in 6000-6015,7000, nor auto and a number of ports, as in auto:16"
                .to_owned())
        }
        _ => Err(format!("a pool has at most {MAX_POOL} ports")),
    }
}

/// The value of `--cid`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cid {
    Default,
    Length(usize),
    Bytes(Vec<u8>),
}

fn cid(text: &str) -> Result<Cid, String> {
    let is_decimal = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if text.is_empty() {
        return Ok(Cid::Default);
    }
    // The digits of a longer number are hexadecimal.
    if is_decimal(text) && text.len() <= 2 {
        let len = text.parse().ok().filter(|len| *len <= MAX_CONNECTION_ID);
        return len.map(Cid::Length).ok_or_else(|| {
            format!("the length is above {MAX_CONNECTION_ID}; give a shorter one, or 0x{text} for this ID")
        });
    }
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let bytes = base16ct::mixed::decode_vec(digits).map_err(|_| {
        format!("neither a length from 0 to {MAX_CONNECTION_ID} nor an even number of hexadecimal digits")
    })?;
    match bytes.len() {
        0 => Err("no digits after 0x; give 0 for the empty ID".to_owned()),
        1..=MAX_CONNECTION_ID => Ok(Cid::Bytes(bytes)),
        len => Err(format!("the ID has {len} bytes; give at most {MAX_CONNECTION_ID}")),
    }
}

/// The longest timeout without LONGEST, and how long a connection lasts without an answer: the values of RFC
/// 9147 §5.8.1.
const LONGEST: Duration = Duration::from_secs(60);
const GIVE_UP: Duration = Duration::from_secs(243);

fn retransmission(text: &str) -> Result<Retransmission, String> {
    let ms = |text: &str| text.parse().ok().map(Duration::from_millis);
    let timeouts = match text.split_once('-') {
        Some((first, longest)) => ms(first).zip(ms(longest)),
        None => ms(text).map(|first| (first, first.max(LONGEST))),
    };
    let made = timeouts.and_then(|(first, longest)| {
        // The engine checks the range and the order.
        Retransmission::new(first, longest, longest.max(GIVE_UP)).ok()
    });
    made.ok_or_else(|| {
        "not FIRST or FIRST-LONGEST in milliseconds, from 10 to 86400000 with FIRST no longer than LONGEST"
            .to_owned()
    })
}

/// The value of `--loss`: which datagrams to lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The datagrams with these numbers, from 1.
    Numbers(Vec<RangeInclusive<u64>>),
    /// This many out of a hundred.
    Percent(u64),
}

fn loss(text: &str) -> Result<Loss, String> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent = percent.parse().ok().filter(|percent| *percent <= 100);
        return percent.map(Loss::Percent).ok_or_else(|| "not a percentage from 0% to 100%".to_owned());
    }
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let range = first.parse().ok()?..=last.parse().ok()?;
        (*range.start() > 0 && !range.is_empty()).then_some(range)
    };
    let ranges = text.split(',').map(range).collect::<Option<_>>();
    ranges.map(Loss::Numbers).ok_or_else(|| {
        "neither numbers of datagrams from 1 on, as in 1,4-6, nor a percentage, as in 10%".to_owned()
    })
}

impl Loss {
    /// A function that says of one datagram after the other whether it is lost.
    pub(crate) fn decider(&self) -> impl FnMut() -> bool + Send + use<> + 'static {
        let loss = self.clone();
        let mut number = 0;
        let mut state = SEED;
        move || {
            number += 1;
            match &loss {
                Loss::Numbers(ranges) => ranges.iter().any(|range| range.contains(&number)),
                Loss::Percent(percent) => splitmix(&mut state) % 100 < *percent,
            }
        }
    }
}

/// The same datagrams are lost in every run.
const SEED: u64 = 1;

/// The next number of SplitMix64 (Steele, Lea and Flood 2014).
const fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_association_ports_names_the_feature() {
        for name in ["ipc", "ipc-unannounced", "tcs", "tcs-message"] {
            assert!(scheme_of(name, true).is_ok(), "{name}");
            let why = scheme_of(name, false).unwrap_err();
            assert!(
                why.contains(
                    "this build has no association ports: build dunlin with --features association-ports"
                ),
                "{why}"
            );
        }
    }

    #[test]
    fn a_pool_is_a_list_of_ports_or_a_number_of_them() {
        assert_eq!(port_pool("6000-6002,7000"), Ok(PortPool(vec![6000, 6001, 6002, 7000])));
        assert_eq!(port_pool("auto:3"), Ok(PortPool(vec![0; 3])));
        for (text, why) in [
            ("", "neither ports"),
            ("0", "neither ports"),
            ("7-6", "neither ports"),
            ("6000-", "neither ports"),
            ("70000", "neither ports"),
            ("auto:0", "1 to 4096"),
            ("auto:", "1 to 4096"),
            ("1-4097", "at most 4096"),
        ] {
            assert!(port_pool(text).is_err_and(|told| told.contains(why)), "{text}");
        }
    }

    #[test]
    fn connection_ids_are_a_length_or_hexadecimal() {
        for (text, value) in [
            ("", Cid::Default),
            ("0", Cid::Length(0)),
            ("10", Cid::Length(10)),
            ("32", Cid::Length(32)),
            ("0x10", Cid::Bytes(vec![0x10])),
            ("a1", Cid::Bytes(vec![0xa1])),
            ("0010", Cid::Bytes(vec![0, 0x10])),
            ("DEADbeef", Cid::Bytes(vec![0xde, 0xad, 0xbe, 0xef])),
        ] {
            assert_eq!(cid(text), Ok(value), "{text}");
        }
        for (text, why) in [
            ("33", "the length is above 32; give a shorter one, or 0x33 for this ID"),
            ("abc", "neither a length"),
            ("localhost:4433", "neither a length"),
            ("-1", "neither a length"),
            ("0x", "no digits"),
            (&"ab".repeat(33), "the ID has 33 bytes; give at most 32"),
        ] {
            assert!(cid(text).is_err_and(|told| told.contains(why)), "{text}");
        }
    }

    #[test]
    fn a_server_adds_random_bytes_to_its_ids() {
        let random = dunlin_awslc::provider().random;
        let ids = |text: &str, side| {
            let options = DatagramOptions { cid: Some(cid(text).unwrap()), ..Default::default() };
            options.connection_ids(side, &random)
        };
        let issue = |text: &str, side| ids(text, side).unwrap().unwrap().issue().unwrap();
        assert!(issue("", Side::Client).is_empty());
        assert_eq!(issue("a1b2", Side::Client), [0xa1, 0xb2]);
        assert_eq!((issue("", Side::Server).len(), issue("5", Side::Server).len()), (8, 5));
        let [first, second] = [(); 2].map(|()| issue("a1b2", Side::Server));
        assert!(first.starts_with(&[0xa1, 0xb2]) && first.len() == 10 && first != second);
        assert!(ids(&"ab".repeat(24), Side::Server).is_ok());
        let error = ids(&"ab".repeat(25), Side::Server).err().unwrap().to_string();
        assert!(error.contains("--cid: the IDs of a server begin with at most 24 bytes, not 25"), "{error}");
    }

    #[test]
    fn timeouts_are_milliseconds() {
        let new = |first, longest, give_up| {
            Retransmission::new(
                Duration::from_millis(first),
                Duration::from_millis(longest),
                Duration::from_millis(give_up),
            )
        };
        for (text, timeouts) in [
            ("400", new(400, 60_000, 243_000)),
            ("400-8000", new(400, 8000, 243_000)),
            ("90000", new(90_000, 90_000, 243_000)),
            ("1000-300000", new(1000, 300_000, 300_000)),
        ] {
            assert_eq!(retransmission(text), Ok(timeouts.unwrap()), "{text}");
        }
        for text in ["", "9", "1s", "400-", "800-400", "1000-86400001", "-5"] {
            assert!(retransmission(text).is_err_and(|told| told.contains("milliseconds")), "{text}");
        }
        assert_eq!(retransmission("1000-60000"), Ok(Retransmission::default()));
    }

    #[test]
    fn loses_the_datagrams_with_these_numbers() {
        let lost = |text: &str| {
            let mut decider = loss(text).unwrap().decider();
            (1..=8).filter(|_| decider()).collect::<Vec<u64>>()
        };
        assert_eq!(lost("1,4-6"), [1, 4, 5, 6]);
        assert_eq!(lost("8"), [8]);
        assert!(lost("0%").is_empty());
        assert_eq!(lost("100%").len(), 8);
        for text in ["", "0", "3-2", "1,,2", "x", "101%", "%", "-1%", "1.5%"] {
            assert!(loss(text).is_err(), "{text}");
        }
    }

    #[test]
    fn loses_the_same_share_in_every_run() {
        let run = || {
            let mut decider = loss("30%").unwrap().decider();
            (0..10_000).map(|_| decider()).collect::<Vec<_>>()
        };
        let lost = run().iter().filter(|lost| **lost).count();
        assert!((2850..=3150).contains(&lost), "{lost}");
        assert_eq!(run(), run());
    }
}
