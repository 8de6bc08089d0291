//! Dissects a frame into the headers of link, IP, TCP or UDP, and their payload. Headers of PPPoE, MPLS and
//! VXLAN, and all before them, count as link.

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
    /// The encapsulation that may hold packets and is not read.
    pub(crate) wrapped: Option<&'static str>,
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
        let not_captured = frame.wire_len.saturating_sub(frame.data.len());
        Self { not_captured, ..Self::within(frame.link, frame.data, MAX_TUNNELS) }
    }

    /// Reads a frame, and the one inside it if it is a tunnel. The depth of tunnels is bounded.
    fn within(link: DataLink, frame: &'a [u8], tunnels: usize) -> Self {
        let outer = Self::outermost(link, frame);
        let tunnelled = outer.segment.as_ref().filter(|_| tunnels > 0).and_then(vxlan);
        let Some(inner) = tunnelled.map(|inner| Self::within(DataLink::ETHERNET, inner, tunnels - 1)) else {
            return outer;
        };
        if inner.segment.is_none() && !inner.is_piece {
            return outer;
        }
        let header = outer.link + outer.ip + outer.transport + VXLAN_HEADER;
        Self { link: header + inner.link, other: outer.other + inner.other, ..inner }
    }

    fn outermost(link: DataLink, frame: &'a [u8]) -> Self {
        let len = frame.len();
        let nothing = Self {
            link: 0,
            ip: 0,
            transport: 0,
            segment: None,
            other: len,
            not_captured: 0,
            is_piece: false,
            wrapped: None,
        };
        let Some(link) = link_header(link, frame) else { return nothing };
        let rest = frame.get(link..).unwrap_or_default();
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
            _ => return Self { wrapped: packet.net.as_ref().and_then(in_ip), ..unread },
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
            wrapped: in_udp(&segment),
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

/// How many tunnels may be in each other.
const MAX_TUNNELS: usize = 2;

/// The length of a VXLAN header in bytes (RFC 7348 §5).
const VXLAN_HEADER: usize = 8;

/// The Ethernet frame in a VXLAN datagram.
fn vxlan<'a>(outer: &Segment<'a>) -> Option<&'a [u8]> {
    // The port of RFC 7348 §5, and the port of older Linux kernels.
    let is_port = outer.tcp.is_none() && matches!(outer.to.port(), 4789 | 8472);
    let (header, inner) = outer.payload.split_first_chunk::<VXLAN_HEADER>().filter(|_| is_port)?;
    // RFC 7348 §5: the flag I is set, and the reserved bits are ignored on receipt.
    let [flags, ..] = header;
    (flags & 8 != 0).then_some(inner)
}

/// The encapsulation in a UDP datagram that is not read, by its port.
fn in_udp(segment: &Segment<'_>) -> Option<&'static str> {
    match segment.to.port() {
        _ if segment.tcp.is_some() => None,
        // RFC 8926 §3.3, draft-ietf-nvo3-vxlan-gpe, 3GPP TS 29.281 §4.4.2, and RFC 8086 §8.
        6081 => Some("Geneve"),
        4790 => Some("VXLAN-GPE"),
        2152 => Some("GTP-U"),
        4754 => Some("GRE"),
        _ => None,
    }
}

/// The encapsulation in an IP packet that is not read, by IANA's protocol numbers.
fn in_ip(net: &LaxNetSlice<'_>) -> Option<&'static str> {
    let payload = match net {
        LaxNetSlice::Ipv4(ip) => ip.payload(),
        LaxNetSlice::Ipv6(ip) => ip.payload(),
        LaxNetSlice::Arp(_) => return None,
    };
    match payload.ip_number.0 {
        4 | 41 => Some("IP in IP"),
        47 => Some("GRE"),
        50 => Some("IPsec"),
        97 => Some("EtherIP"),
        115 => Some("L2TP"),
        _ => None,
    }
}

/// The big-endian number at this place.
fn number(frame: &[u8], at: usize) -> Option<u16> {
    let (bytes, _) = frame.get(at..)?.split_first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// The length of the link-layer header before an IP packet; `None` if the frame carries something else.
fn link_header(link: DataLink, frame: &[u8]) -> Option<usize> {
    match link {
        DataLink::ETHERNET => ip_behind(frame, number(frame, 12)?, 14),
        DataLink::LINUX_SLL => ip_behind(frame, number(frame, 14)?, 16),
        DataLink::LINUX_SLL2 => ip_behind(frame, number(frame, 0)?, 20),
        // Skip the address family, whose numbers differ between systems. IP has its own version field.
        DataLink::NULL | DataLink::LOOP => Some(4),
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 | RAW_TOO => Some(0),
        _ => None,
    }
    .filter(|header| *header <= frame.len())
}

/// The offset of the IP packet in the content of this EtherType, which begins at `at`.
fn ip_behind(frame: &[u8], mut typ: u16, mut at: usize) -> Option<usize> {
    loop {
        match typ {
            0x0800 | 0x86dd => return Some(at),
            // IEEE 802.1Q and 802.1ad tags, and the type of outer tags before 802.1ad.
            0x8100 | 0x88a8 | 0x9100 => (typ, at) = (number(frame, at + 2)?, at + 4),
            // PPPoE (RFC 2516 §4): a header of six bytes, then the protocol of PPP.
            0x8864 => {
                let is_ip = matches!(number(frame, at + 6)?, 0x0021 | 0x0057);
                return is_ip.then_some(at + 8);
            }
            // MPLS (RFC 3032 §2.1): the last label has the bit S.
            0x8847 | 0x8848 => {
                let labels = frame.get(at..)?.chunks_exact(4);
                at += 4 * (1 + labels.take_while(|label| label.get(2).is_some_and(|b| b & 1 == 0)).count());
                // No type follows. An IP packet begins with its version, and the control word before an
                // Ethernet frame with zero (RFC 4385 §3).
                match frame.get(at)? >> 4 {
                    4 | 6 => return Some(at),
                    0 => (typ, at) = (number(frame, at + 16)?, at + 18),
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
}
