//! Dissects a frame into the headers of link, IP, TCP or UDP, and their payload.

use std::net::{IpAddr, SocketAddr};

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_file::DataLink;

use crate::capture::Frame;

/// The sizes of a frame's headers in bytes, and its TCP segment or UDP datagram, if it has a readable one.
pub(crate) struct Packet<'a> {
    pub(crate) link: usize,
    pub(crate) ip: usize,
    pub(crate) transport: usize,
    pub(crate) segment: Option<Segment<'a>>,
    /// The rest of the frame, in bytes.
    pub(crate) other: usize,
    pub(crate) not_captured: usize,
    /// Whether it is a fragment of an IP packet, which is not read.
    pub(crate) is_piece: bool,
}

/// The contents of a TCP or UDP header, and its payload.
pub(crate) struct Segment<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// The fields of TCP; `None` for UDP.
    pub(crate) tcp: Option<Tcp>,
    pub(crate) payload: &'a [u8],
}

/// The fields of a TCP header that the flows need.
#[derive(Clone, Copy)]
pub(crate) struct Tcp {
    pub(crate) sequence: u32,
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
}

impl<'a> Packet<'a> {
    pub(crate) fn read(frame: &Frame<'a>) -> Self {
        let len = frame.data.len();
        let nothing = Self {
            link: 0,
            ip: 0,
            transport: 0,
            segment: None,
            other: len,
            not_captured: frame.wire_len.saturating_sub(len),
            is_piece: false,
        };
        let Some(link) = link_header(frame.link, frame.data) else { return nothing };
        let rest = frame.data.get(link..).unwrap_or_default();
        let Ok(packet) = LaxSlicedPacket::from_ip(rest) else {
            return Self { link, other: len - link, ..nothing };
        };
        let Some((ip, payload, from, to, fragmented)) = net(packet.net.as_ref()) else {
            return Self { link, other: len - link, ..nothing };
        };
        // Ethernet pads short frames after the IP packet. The padding counts as link.
        let link = len - ip - payload;
        let unread = Self { link, ip, other: payload, ..nothing };
        if fragmented {
            return Self { is_piece: true, ..unread };
        }
        let (header, ports, tcp, content) = match &packet.transport {
            Some(TransportSlice::Tcp(s)) => {
                let tcp = Tcp {
                    sequence: s.sequence_number(),
                    syn: s.syn(),
                    ack: s.ack(),
                    fin: s.fin(),
                    rst: s.rst(),
                };
                (s.header_slice().len(), (s.source_port(), s.destination_port()), Some(tcp), s.payload())
            }
            Some(TransportSlice::Udp(s)) => {
                (s.header_slice().len(), (s.source_port(), s.destination_port()), None, s.payload())
            }
            _ => return unread,
        };
        let segment = Segment {
            from: SocketAddr::new(from, ports.0),
            to: SocketAddr::new(to, ports.1),
            tcp,
            payload: content,
        };
        Self {
            transport: header,
            other: payload.saturating_sub(header + content.len()),
            segment: Some(segment),
            ..unread
        }
    }
}

/// The lengths of IP header and payload, both addresses, and whether the packet is a fragment.
fn net(net: Option<&LaxNetSlice<'_>>) -> Option<(usize, usize, IpAddr, IpAddr, bool)> {
    match net? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            let extensions = ip.extensions().auth.as_ref().map_or(0, |auth| auth.slice().len());
            Some((
                header.slice().len() + extensions,
                ip.payload().payload.len(),
                header.source_addr().into(),
                header.destination_addr().into(),
                ip.payload().fragmented,
            ))
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            Some((
                header.slice().len() + ip.extensions().slice().len(),
                ip.payload().payload.len(),
                header.source_addr().into(),
                header.destination_addr().into(),
                ip.payload().fragmented,
            ))
        }
        LaxNetSlice::Arp(_) => None,
    }
}

/// Whether frames of this link type are supported.
pub(crate) const fn is_read(link: DataLink) -> bool {
    use DataLink as L;
    matches!(
        link,
        L::ETHERNET | L::LINUX_SLL | L::LINUX_SLL2 | L::NULL | L::LOOP | L::RAW | L::IPV4 | L::IPV6 | RAW_TOO
    )
}

/// LINKTYPE_RAW on systems that write their own number of DLT_RAW instead.
const RAW_TOO: DataLink = DataLink::Unknown(12);

/// The length of the link-layer header before an IP packet; `None` if the frame carries something else.
fn link_header(link: DataLink, frame: &[u8]) -> Option<usize> {
    let number = |at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let is_ip = |typ| matches!(typ, 0x0800 | 0x86dd);
    match link {
        DataLink::ETHERNET => {
            let mut at = 12;
            // IEEE 802.1Q and 802.1ad tags, at most two.
            while at < 20 && matches!(number(at)?, 0x8100 | 0x88a8) {
                at += 4;
            }
            is_ip(number(at)?).then_some(at + 2)
        }
        DataLink::LINUX_SLL => is_ip(number(14)?).then_some(16),
        DataLink::LINUX_SLL2 => is_ip(number(0)?).then_some(20),
        // Skip the address family, whose numbers differ between systems. IP has its own version field.
        DataLink::NULL | DataLink::LOOP => Some(4),
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 | RAW_TOO => Some(0),
        _ => None,
    }
    .filter(|header| *header <= frame.len())
}
