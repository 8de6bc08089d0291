//! The duration of a handshake over a slow link: by the paper's model, by our model, and measured.
//!
//! The paper adds the processing time of both sides and the transmission time of all TLS bytes. Our model
//! counts the frames that follow each other, with their TCP and IP headers: the flights, and the
//! acknowledgement that TCP sends just before an answer. Frames in the opposite direction do not delay a
//! flight, because each direction has the full rate.

use std::net::Ipv4Addr;
use std::sync::Arc;

use dunlin::{ClientConfig, ServerConfig};
use etherparse::{Ethernet2Slice, Ipv4Slice, TcpHeaderSlice};

use super::bytes::over_tcp;
use super::suites::Case;
use crate::Error;
use crate::capture::{Direction, Frame};
use crate::link::{Line, Link};
use crate::net::{Ground, Namespace, Pair};
use crate::report::Row;

/// The paper's rates, in kilobits a second.
pub(super) const RATES: [u64; 3] = [10, 100, 1000];

/// The maximum number of measurements at the lowest rate, which takes most of the time.
const SLOW_RUNS: u32 = 5;

/// The components of a handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// The processing time of both sides in sequence.
    pub(super) computed_us: f64,
    /// The TLS bytes.
    pub(super) handshake_bytes: f64,
    /// The IP bytes that follow each other.
    pub(super) path_bytes: f64,
}

/// A link of a rate, and the stacks at its ends.
pub(super) struct SlowLink {
    pair: Pair,
    rate: u64,
    _link: Link,
}

impl SlowLink {
    /// Makes a link of `rate` kilobits a second in each direction, without delay.
    pub(super) fn new(ground: &Ground, rate: u64, seed: u64) -> Result<Self, Error> {
        let line = Line { rate_kbit_per_s: Some(rate), ..Line::default() };
        let (pair, link) = Link::between(ground, &line, seed)?;
        for (namespace, address) in [(&pair.client, Pair::CLIENT), (&pair.server, Pair::SERVER)] {
            patient(namespace, address)?;
        }
        Ok(Self { pair, rate, _link: link })
    }

    /// The row of a case at this rate, with at most `runs` handshakes.
    pub(super) fn row(
        &self,
        case: &Case,
        (client, server): (&Arc<ClientConfig>, &Arc<ServerConfig>),
        parts: Parts,
        runs: u32,
        row: Row,
    ) -> Result<Row, Error> {
        let runs = if self.rate == RATES[0] { runs.min(SLOW_RUNS) } else { runs };
        let measured = (0..runs).map(|_| Ok(over_tcp(&self.pair, client, server)?.as_secs_f64() * 1e3));
        let measured = measured.collect::<Result<Vec<_>, Error>>()?;
        // Bits divided by kilobits a second are milliseconds.
        let sent_ms = |bytes: f64| bytes * 8.0 / self.rate as f64;
        let computed_ms = parts.computed_us / 1e3;
        let model_ms = computed_ms + sent_ms(parts.path_bytes);
        let errors: Vec<_> = measured.iter().map(|ms| (ms / model_ms - 1.0) * 100.0).collect();
        let row = row
            .with("rate_kbit_per_s", self.rate)
            .figure("duration_ms", &measured)
            .figure("model_ms", &[model_ms])
            .figure("model_error_percent", &errors)
            .figure("path_bytes", &[parts.path_bytes])
            .figure("equation_1_ms", &[computed_ms + sent_ms(parts.handshake_bytes)])
            .figure("transmission_ms", &[sent_ms(parts.handshake_bytes)])
            .paper("transmission_ms", case.paper.map(sent_ms));
        Ok(row)
    }
}

/// Raises TCP's timeouts. A segment takes longer here than TCP usually waits for an acknowledgement, so TCP
/// would retransmit segments that are still in flight.
fn patient(namespace: &Namespace, address: Ipv4Addr) -> Result<(), Error> {
    namespace.ip(&format!(
        "route replace {} dev {} src {address} rto_min 30s\n",
        Pair::NETWORK,
        Pair::DEVICE
    ))?;
    namespace.set("tcp_early_retrans", "0")
}

/// The IP bytes on the critical path, from the first TLS byte to the last.
pub(super) fn path_bytes(frames: &[Frame]) -> u64 {
    let packets: Vec<_> = frames.iter().filter_map(Packet::of).collect();
    let carries = |packet: &Packet| packet.carries_data;
    let (Some(first), Some(last)) = (packets.iter().position(carries), packets.iter().rposition(carries))
    else {
        return 0;
    };
    let mut sum = 0;
    let mut acknowledgement = None;
    for packet in packets.iter().take(last + 1).skip(first) {
        if packet.carries_data {
            let before: Option<&Packet> = acknowledgement.take();
            let in_the_way = before.filter(|before| before.from_client == packet.from_client);
            sum += packet.len + in_the_way.map_or(0, |before| before.len);
        } else {
            acknowledgement = Some(packet);
        }
    }
    sum
}

/// The relevant data of a frame.
struct Packet {
    from_client: bool,
    /// The bytes from the IP header on.
    len: u64,
    carries_data: bool,
}

impl Packet {
    /// Reads a TCP frame captured at the client's device.
    fn of(frame: &Frame) -> Option<Self> {
        let ethernet = Ethernet2Slice::from_slice_without_fcs(&frame.bytes).ok()?;
        let ip = Ipv4Slice::from_slice(ethernet.payload_slice()).ok()?;
        let payload = ip.payload().payload;
        let tcp = TcpHeaderSlice::from_slice(payload).ok()?;
        Some(Self {
            from_client: frame.direction == Direction::Sent,
            len: ip.header().total_len().into(),
            carries_data: payload.len() > tcp.slice().len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use etherparse::PacketBuilder;

    use super::*;

    fn frame(direction: Direction, payload: usize) -> Frame {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        let mut bytes = Vec::new();
        builder.tcp(1, 2, 3, 4).write(&mut bytes, &vec![0; payload]).unwrap();
        Frame { time: Duration::ZERO, direction, bytes }
    }

    #[test]
    fn path_consists_of_flights_and_their_delays() {
        use Direction::{Received, Sent};
        let headers = 40;
        let frames = [
            // TCP's own handshake precedes.
            frame(Sent, 0),
            frame(Sent, 100),
            // This frame delays the answer.
            frame(Received, 0),
            frame(Received, 1000),
            // This frame crosses the server's flight.
            frame(Sent, 0),
            frame(Received, 500),
            frame(Sent, 0),
            frame(Sent, 60),
            // This frame follows the last TLS byte.
            frame(Received, 0),
        ];
        assert_eq!(path_bytes(&frames), 100 + 1000 + 500 + 60 + 4 * headers + 2 * headers);
        assert_eq!(path_bytes(&frames[..1]), 0);
    }
}
