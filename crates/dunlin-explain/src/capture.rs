//! Capture files, pcap and pcapng: their frames, and how far they can be read.

use std::borrow::Cow;

use pcap_file::DataLink;
use pcap_file::PcapError;
use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgParser};

/// More frames than a capture of handshakes has; what is kept of each takes some hundred bytes of memory.
const MAX_FRAMES: usize = 1 << 20;

/// The block of pcapng that holds a key log, and the kind of its secrets: "TLSK"
/// (draft-ietf-opsawg-pcapng §4.7).
const DECRYPTION_SECRETS: u32 = 0x0a;
const TLS_KEY_LOG: u32 = 0x544c_534b;

/// A frame as it was captured.
pub(crate) struct Frame<'a> {
    /// Since 1970, in microseconds.
    pub(crate) time_us: u64,
    pub(crate) link: DataLink,
    /// What was captured of it.
    pub(crate) data: &'a [u8],
    /// Its length on the wire.
    pub(crate) wire_len: usize,
}

/// The frames of a file.
#[derive(Default)]
pub(crate) struct Capture<'a> {
    pub(crate) frames: Vec<Frame<'a>>,
    /// Key logs that the file carries itself.
    pub(crate) key_logs: Vec<&'a [u8]>,
    /// Why reading ended before the end of the file.
    pub(crate) stopped: Option<String>,
}

/// Whether `bytes` begin as a capture file does.
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
    /// Reads as many frames as the file has whole.
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
            // The raw form: the other one refuses frames that were cut at the capture's length.
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
                    let (time_us, link) = (time_us(&packet, interface), interface.linktype);
                    let wire_len = packet.original_len as usize;
                    self.push(Frame { time_us, link, wire_len, data: borrowed(packet.data)? })?;
                }
                Block::SimplePacket(packet) => {
                    let interface = parser.interfaces().first().ok_or(PcapError::InvalidInterfaceId(0))?;
                    let wire_len = packet.original_len as usize;
                    // What is not the frame is padding of the block.
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
    // In the order of the section, which is told by the value that has to stand there.
    let len = match [u32::from_le_bytes(*kind), u32::from_be_bytes(*kind)] {
        [TLS_KEY_LOG, _] => u32::from_le_bytes(*len),
        [_, TLS_KEY_LOG] => u32::from_be_bytes(*len),
        _ => return None,
    };
    rest.get(..len as usize)
}

/// The library gives the number in the block as nanoseconds, whatever the unit of the interface.
fn time_us(packet: &EnhancedPacketBlock<'_>, interface: &InterfaceDescriptionBlock<'_>) -> u64 {
    let ticks = packet.timestamp.as_nanos();
    let resolution = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    // draft-ietf-opsawg-pcapng §4.2: a negative power of 10, or with the high bit of 2; microseconds by default.
    let (base, exponent): (u128, _) = match resolution.unwrap_or(6) {
        exponent @ 0..0x80 => (10, exponent),
        exponent => (2, exponent & 0x7f),
    };
    let per_second = base.checked_pow(exponent.into()).unwrap_or(u128::MAX);
    (ticks * 1_000_000 / per_second) as u64
}

/// A parser of a slice borrows from it.
fn borrowed<'a>(data: Cow<'a, [u8]>) -> Result<&'a [u8], PcapError> {
    match data {
        Cow::Borrowed(data) => Ok(data),
        Cow::Owned(_) => Err(PcapError::InvalidField("a frame that is not in the file")),
    }
}

/// Why the rest of a file is not read.
enum Stop {
    Damaged(PcapError),
    TooMany,
}

impl From<PcapError> for Stop {
    fn from(error: PcapError) -> Self {
        Self::Damaged(error)
    }
}
