//! The cost of a packet on a medium: frames, bytes and airtime. Each figure comes from the standard named
//! beside it.

use std::time::Duration;

/// The IP and transport headers of a packet, before compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// IPv6 rather than IPv4.
    pub ipv6: bool,
    /// The TCP or UDP header, in bytes.
    pub transport: usize,
}

impl Headers {
    /// UDP over IPv6, as in constrained networks.
    pub const UDP: Self = Self { ipv6: true, transport: 8 };

    const fn ip(self) -> usize {
        if self.ipv6 { 40 } else { 20 }
    }
}

/// The cost of sending a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The number of frames on the medium.
    pub frames: usize,
    /// The bytes in these frames, including headers.
    pub bytes: usize,
    /// The time that sending them takes.
    pub airtime: Duration,
}

impl Cost {
    fn add(&mut self, bytes: usize, airtime: Duration) {
        self.frames += 1;
        self.bytes += bytes;
        self.airtime += airtime;
    }
}

/// The data rates of LoRaWAN in Europe (RP002-1.0.4 §2.4.3: EU863-870, 125 kHz).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoRaDataRate {
    /// DR0: spreading factor 12, the slowest rate with the widest range.
    Dr0,
    /// DR1: spreading factor 11.
    Dr1,
    /// DR2: spreading factor 10.
    Dr2,
    /// DR3: spreading factor 9.
    Dr3,
    /// DR4: spreading factor 8.
    Dr4,
    /// DR5: spreading factor 7.
    Dr5,
}

impl LoRaDataRate {
    const fn spreading_factor(self) -> u32 {
        12 - self as u32
    }

    /// The largest application payload N, without options (RP002-1.0.4 §2.4.6).
    const fn max_payload(self) -> usize {
        match self {
            Self::Dr0 | Self::Dr1 | Self::Dr2 => 51,
            Self::Dr3 => 115,
            Self::Dr4 | Self::Dr5 => 222,
        }
    }
}

/// A link layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Ethernet with its 14-byte header, without preamble and checksum, as in a capture.
    Ethernet {
        /// The rate in bits per second.
        rate: u64,
    },
    /// IEEE 802.15.4 at 250 kbit/s (2450 MHz O-QPSK) with short addresses in one PAN, and 6LoWPAN: RFC 6282
    /// with both addresses elided, fragments of RFC 4944. Acknowledgements and channel access are not
    /// counted.
    Ieee802154,
    /// LoRaWAN 1.0.4. SCHC compresses the headers to a rule and fragments without acknowledgements (RFC
    /// 9011). The pauses of the duty cycle are not counted.
    LoRaWan(LoRaDataRate),
    /// NB-IoT (3GPP release 13) at its peak rates: one tone of 15 kHz up, all twelve down. ROHC compresses
    /// the headers.
    NbIot {
        /// Whether the packet goes from the device to the network.
        uplink: bool,
    },
}

/// 802.15.4-2020 §7: frame control, sequence number, PAN, two short addresses, frame check sequence.
const MAC802154: usize = 2 + 1 + 2 + 2 + 2 + 2;
/// 802.15.4-2020 §12.1.2: preamble, start-of-frame delimiter, length; and aMaxPhyPacketSize.
const PHY802154: usize = 4 + 1 + 1;
const MAX_FRAME802154: usize = 127;
/// RFC 6282 §3.1: LOWPAN_IPHC with both addresses, traffic class and hop limit elided.
const IPHC: usize = 2;
/// RFC 6282 §4.3: LOWPAN_NHC for UDP with both ports in full, and the checksum.
const NHC_UDP: usize = 1 + 4 + 2;
/// RFC 4944 §5.3: the header of the first fragment, and of the others.
const FRAG1: usize = 4;
const FRAGN: usize = 5;

/// LoRaWAN 1.0.4 §4: MHDR, FHDR without options, FPort (which names the SCHC rule, RFC 9011 §5.2), MIC.
const LORAWAN: usize = 1 + 7 + 1 + 4;
/// RFC 9011 §5.6.2: window and fragment number; the last fragment also has the RCS.
const SCHC_FRAGMENT: usize = 1;
const SCHC_LAST: usize = 1 + 4;

/// TS 36.323 §6.2.3, 36.322 §6.2.1.4, 36.321 §6.1.2 and 36.212 §5.1.1: PDCP, RLC in acknowledged mode, MAC,
/// CRC.
const NBIOT: usize = 1 + 2 + 2 + 3;
/// TS 36.213 tables 16.5.1.2-2 and 16.4.1.5.1-1 (release 13): the largest transport blocks, 1000 bits up, 680
/// bits down.
const NBIOT_UP: usize = 1000 / 8;
const NBIOT_DOWN: usize = 680 / 8;
/// The peak rates of release 13, including scheduling, in bits per second (3GPP TR 45.820 §7.3, as published
/// by GSMA).
const NBIOT_UP_RATE: u64 = 16_900;
const NBIOT_DOWN_RATE: u64 = 26_150;
/// RFC 5795: an established context, and the UDP checksum.
const ROHC: usize = 3 + 2;

impl Medium {
    /// The cost of a packet with these headers and `payload` bytes of payload.
    pub fn cost(self, headers: Headers, payload: usize) -> Cost {
        let mut cost = Cost::default();
        match self {
            Self::Ethernet { rate } => {
                let bytes = 14 + headers.ip() + headers.transport + payload;
                cost.add(bytes, at_rate(bytes, rate));
            }
            Self::Ieee802154 => ieee802154(headers, payload, &mut cost),
            Self::LoRaWan(data_rate) => {
                // SCHC compresses UDP headers to the rule in the port. It has no rule for TCP.
                let packet = payload + if headers == Headers::UDP { 0 } else { headers.transport };
                lorawan(data_rate, packet, &mut cost);
            }
            Self::NbIot { uplink } => {
                let (block, rate) =
                    if uplink { (NBIOT_UP, NBIOT_UP_RATE) } else { (NBIOT_DOWN, NBIOT_DOWN_RATE) };
                let packet = payload + if headers == Headers::UDP { ROHC } else { ROHC + headers.transport };
                for piece in pieces(packet, |_| block - NBIOT) {
                    cost.add(piece + NBIOT, at_rate(piece + NBIOT, rate));
                }
            }
        }
        cost
    }
}

/// The sizes of the pieces of a packet; `room` gives the capacity of the piece with this index.
fn pieces(packet: usize, room: impl Fn(usize) -> usize) -> impl Iterator<Item = usize> {
    let mut left = Some(packet);
    (0..).map_while(move |i| {
        let piece = left?.min(room(i));
        left = left.map(|left| left - piece).filter(|left| *left > 0);
        Some(piece)
    })
}

fn at_rate(bytes: usize, rate: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 * 8.0 / rate.max(1) as f64)
}

fn ieee802154(headers: Headers, payload: usize, cost: &mut Cost) {
    let mut add = |bytes| cost.add(bytes, at_rate(PHY802154 + bytes, 250_000));
    let compressed = match headers {
        Headers::UDP => IPHC + NHC_UDP,
        // The next-header field is sent inline, and TCP is not compressed.
        Headers { ipv6: true, transport } => IPHC + 1 + transport,
        // IPv4 is not compressed either.
        Headers { ipv6: false, transport } => 1 + 20 + transport,
    };
    let room = MAX_FRAME802154 - MAC802154;
    if compressed + payload <= room {
        return add(MAC802154 + compressed + payload);
    }
    // Fragments begin at multiples of 8 bytes of the uncompressed packet (RFC 4944 §5.3).
    let saved = headers.ip() + headers.transport - compressed;
    let first = ((room - FRAG1 + saved) / 8 * 8).saturating_sub(saved);
    let others = (room - FRAGN) / 8 * 8;
    let room = |i| if i == 0 { first } else { others };
    for (i, piece) in pieces(compressed + payload, room).enumerate() {
        add(MAC802154 + if i == 0 { FRAG1 } else { FRAGN } + piece);
    }
}

fn lorawan(data_rate: LoRaDataRate, packet: usize, cost: &mut Cost) {
    let max = data_rate.max_payload();
    let mut add = |payload| cost.add(LORAWAN + payload, lora_airtime(data_rate, LORAWAN + payload));
    if packet <= max {
        return add(packet);
    }
    let fragments: Vec<_> = pieces(packet, |_| max - SCHC_FRAGMENT).collect();
    let mut left = fragments.len();
    for fragment in fragments {
        left -= 1;
        match left {
            0 if fragment + SCHC_LAST <= max => add(fragment + SCHC_LAST),
            0 => {
                add(fragment + SCHC_FRAGMENT);
                add(SCHC_LAST);
            }
            _ => add(fragment + SCHC_FRAGMENT),
        }
    }
}

/// Semtech AN1200.13 §4: 125 kHz, coding rate 4/5, explicit header, CRC, a preamble of 8 symbols.
fn lora_airtime(data_rate: LoRaDataRate, bytes: usize) -> Duration {
    let sf = f64::from(data_rate.spreading_factor());
    let symbol = sf.exp2() / 125_000.0;
    let low_rate = if sf >= 11.0 { 2.0 } else { 0.0 };
    let bits = 8.0 * bytes as f64 - 4.0 * sf + 28.0 + 16.0;
    let payload = 8.0 + (bits / (4.0 * (sf - low_rate))).ceil().max(0.0) * 5.0;
    Duration::from_secs_f64((8.0 + 4.25 + payload) * symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_counts_the_bytes_of_a_capture() {
        let cost = Medium::Ethernet { rate: 1_000_000 }.cost(Headers { ipv6: false, transport: 32 }, 100);
        assert_eq!((cost.frames, cost.bytes), (1, 14 + 20 + 32 + 100));
        assert_eq!(cost.airtime, Duration::from_micros(166 * 8));
    }

    #[test]
    fn six_lowpan_fragments_fill_their_frames() {
        let cost = |payload| Medium::Ieee802154.cost(Headers::UDP, payload);
        // 127 - 11 - 9 bytes fit one frame.
        assert_eq!((cost(107).frames, cost(107).bytes), (1, 127));
        let two = cost(108);
        assert_eq!(two.frames, 2);
        assert_eq!(two.bytes, 9 + 108 + 2 * 11 + 4 + 5);
        // The first fragment ends at byte 144 of the packet, 39 of which compression saves. Each other one
        // holds 104.
        assert_eq!((cost(105 - 9 + 104).frames, cost(105 - 9 + 105).frames), (2, 3));
        assert_eq!(cost(107).airtime, Duration::from_micros((6 + 127) * 32));
    }

    /// The expected values come from airtime calculators: full frames of DR0 and DR5, and a frame of 64 bytes
    /// at DR5.
    #[test]
    fn lora_airtime_matches_published_calculators() {
        let cost = |data_rate, payload| Medium::LoRaWan(data_rate).cost(Headers::UDP, payload);
        for (data_rate, payload, tenths_of_ms) in
            [(LoRaDataRate::Dr0, 51, 27935), (LoRaDataRate::Dr5, 51, 1180), (LoRaDataRate::Dr5, 222, 3689)]
        {
            let airtime = cost(data_rate, payload).airtime;
            assert_eq!((airtime.as_micros() + 50) / 100, tenths_of_ms, "{data_rate:?} {payload}");
        }
        assert_eq!(cost(LoRaDataRate::Dr0, 51).frames, 1);
        // Fragments of 50 and 2 bytes; the last one also has the checksum.
        assert_eq!(cost(LoRaDataRate::Dr0, 52), {
            let mut cost = Cost::default();
            cost.add(64, lora_airtime(LoRaDataRate::Dr0, 64));
            cost.add(20, lora_airtime(LoRaDataRate::Dr0, 20));
            cost
        });
        assert_eq!(cost(LoRaDataRate::Dr0, 100).frames, 3);
    }

    #[test]
    fn nbiot_splits_packets_into_transport_blocks() {
        let up = Medium::NbIot { uplink: true }.cost(Headers::UDP, 125 - 8 - 5);
        assert_eq!((up.frames, up.bytes), (1, 125));
        let down = Medium::NbIot { uplink: false }.cost(Headers::UDP, 125 - 8 - 5);
        assert_eq!((down.frames, down.bytes), (2, 125 + 8));
    }

    #[test]
    fn an_empty_packet_takes_one_frame() {
        for medium in [Medium::Ieee802154, Medium::LoRaWan(LoRaDataRate::Dr3), Medium::NbIot { uplink: true }]
        {
            assert_eq!(medium.cost(Headers::UDP, 0).frames, 1);
        }
    }
}
