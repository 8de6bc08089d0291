//! Reads the frames of capture files: pcap and pcapng.

use std::borrow::Cow;

use pcap_file::DataLink;
use pcap_file::PcapError;
use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgParser};

/// The most frames to read. Each takes a few hundred bytes of memory; captures of handshakes have far fewer.
const MAX_FRAMES: usize = 1 << 20;

/// The pcapng block that holds secrets, and the type of secrets for a TLS key log: "TLSK"
/// (draft-ietf-opsawg-pcapng §4.7).
const DECRYPTION_SECRETS: u32 = 0x0a;
const TLS_KEY_LOG: u32 = 0x544c_534b;

/// A captured frame.
pub(crate) struct Frame<'a> {
    /// Microseconds since 1970.
    pub(crate) time_us: u64,
    pub(crate) link: DataLink,
    /// The captured bytes.
    pub(crate) data: &'a [u8],
    /// The length on the wire, in bytes.
    pub(crate) wire_len: usize,
}

/// The frames of a file.
#[derive(Default)]
pub(crate) struct Capture<'a> {
    pub(crate) frames: Vec<Frame<'a>>,
    /// Key logs inside the file.
    pub(crate) key_logs: Vec<&'a [u8]>,
    /// Why reading ended before the end of the file.
    pub(crate) stopped: Option<String>,
}

/// Whether `bytes` begin like a capture file.
pub(crate) fn is_capture(bytes: &[u8]) -> bool {
    is_pcapng(bytes)
        || matches!(
            bytes.first_chunk(),
            Some(
                [0xa1, 0xb2, 0xc3, 0xd4]
                    | [0xd4, 0xc3, 0xb2, 0xa1]
                    | [0xa1, 0xb2, 0x3c, 0x4d]
                    | [0x4d, 0x3c, 0xb2, 0xa1]
            )
        )
}

fn is_pcapng(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a])
}

impl<'a> Capture<'a> {
    /// Reads all frames up to the end or the first damage.
    pub(crate) fn read(file: &'a [u8]) -> Self {
        let mut capture = Self::default();
        let read = if is_pcapng(file) { capture.pcapng(file) } else { capture.pcap(file) };
        if let Err(error) = read {
            let number = capture.frames.len() + 1;
            capture.stopped = Some(match error {
                Stop::Damaged(PcapError::IncompleteBuffer) => {
                    format!("the file is cut off in frame {number}")
                }
                Stop::Damaged(error) => format!("the file is damaged at frame {number}: {error}"),
                Stop::TooMany => format!("only the first {MAX_FRAMES} frames were read"),
            });
        }
        capture
    }

    fn push(&mut self, frame: Frame<'a>) -> Result<(), Stop> {
        if self.frames.len() == MAX_FRAMES {
            return Err(Stop::TooMany);
        }
        self.frames.push(frame);
        Ok(())
    }

    fn pcap(&mut self, file: &'a [u8]) -> Result<(), Stop> {
        let (mut rest, parser) = PcapParser::new(file)?;
        let header = parser.header();
        let per_second = match header.ts_resolution {
            pcap_file::TsResolution::MicroSecond => 1_000_000,
            pcap_file::TsResolution::NanoSecond => 1_000_000_000,
        };
        while !rest.is_empty() {
            // The parser's other method refuses frames that the capture cut short.
            let (after, packet) = parser.next_raw_packet(rest)?;
            rest = after;
            let fraction = u64::from(packet.ts_frac) * 1_000_000 / per_second;
            self.push(Frame {
                time_us: u64::from(packet.ts_sec) * 1_000_000 + fraction,
                link: header.datalink,
                wire_len: packet.orig_len as usize,
                data: borrowed(packet.data)?,
            })?;
        }
        Ok(())
    }

    fn pcapng(&mut self, file: &'a [u8]) -> Result<(), Stop> {
        let (mut rest, mut parser) = PcapNgParser::new(file)?;
        while !rest.is_empty() {
            let (after, block) = parser.next_block(rest)?;
            rest = after;
            match block {
                Block::EnhancedPacket(packet) => {
                    let interface = parser
                        .packet_interface(&packet)
                        .ok_or(PcapError::InvalidInterfaceId(packet.interface_id))?;
                    let time_us = time_us(&packet, interface);
                    let link = interface.linktype;
                    let wire_len = packet.original_len as usize;
                    self.push(Frame { time_us, link, wire_len, data: borrowed(packet.data)? })?;
                }
                Block::SimplePacket(packet) => {
                    let interface = parser.interfaces().first().ok_or(PcapError::InvalidInterfaceId(0))?;
                    let wire_len = packet.original_len as usize;
                    // The block pads the frame, and gives no captured length.
                    let snap_len = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
                    let data = borrowed(packet.data)?;
                    let captured = wire_len.min(snap_len as usize).min(data.len());
                    let data = data.get(..captured).unwrap_or(data);
                    self.push(Frame { time_us: 0, link: interface.linktype, wire_len, data })?;
                }
                Block::Unknown(block) if block.type_ == DECRYPTION_SECRETS => {
                    self.key_logs.extend(key_log(borrowed(block.value)?));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The key log in a block of secrets, if it holds one.
fn key_log(block: &[u8]) -> Option<&[u8]> {
    let (kind, rest) = block.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    // The numbers are in the section's byte order, which the parser does not give. The known type reveals it.
    let len = match [u32::from_le_bytes(*kind), u32::from_be_bytes(*kind)] {
        [TLS_KEY_LOG, _] => u32::from_le_bytes(*len),
        [_, TLS_KEY_LOG] => u32::from_be_bytes(*len),
        _ => return None,
    };
    rest.get(..len as usize)
}

/// Converts a packet's timestamp to microseconds. pcap-file takes it for nanoseconds, whatever the
/// interface's unit is.
fn time_us(packet: &EnhancedPacketBlock<'_>, interface: &InterfaceDescriptionBlock<'_>) -> u64 {
    let ticks = packet.timestamp.as_nanos();
    let resolution = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    // A negative power of 10, or of 2 if the high bit is set; microseconds by default
    // (draft-ietf-opsawg-pcapng §4.2).
    let (base, exponent): (u128, _) = match resolution.unwrap_or(6) {
        exponent @ 0..0x80 => (10, exponent),
        exponent => (2, exponent & 0x7f),
    };
    let per_second = base.checked_pow(exponent.into()).unwrap_or(u128::MAX);
    (ticks * 1_000_000 / per_second) as u64
}

/// The parser works on a slice, so its data is always borrowed from there.
fn borrowed<'a>(data: Cow<'a, [u8]>) -> Result<&'a [u8], PcapError> {
    match data {
        Cow::Borrowed(data) => Ok(data),
        Cow::Owned(_) => Err(PcapError::InvalidField("a frame that is not in the file")),
    }
}

/// Why reading stops before the end of the file.
enum Stop {
    Damaged(PcapError),
    TooMany,
}

impl From<PcapError> for Stop {
    fn from(error: PcapError) -> Self {
        Self::Damaged(error)
    }
}
