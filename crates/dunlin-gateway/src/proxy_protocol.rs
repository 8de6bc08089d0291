//! The header of the PROXY protocol, version 2, which tells a backend who the client is (haproxy.org,
//! proxy-protocol.txt).

use std::net::{IpAddr, SocketAddr};

use dunlin::wire::ProtocolVersion;
use dunlin::{HandshakeKind, Negotiated, PeerIdentity};

use crate::identity;

/// §2.2: the bytes with which each header begins.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// §2.2: version 2, command PROXY.
const VERSION_AND_COMMAND: u8 = 0x21;
/// §2.2: AF_INET and AF_INET6 in the upper half.
const INET: u8 = 0x10;
const INET6: u8 = 0x20;
/// §2.2.1 to §2.2.6: types of TLVs.
const TYPE_ALPN: u8 = 0x01;
const TYPE_AUTHORITY: u8 = 0x02;
const TYPE_SSL: u8 = 0x20;
const SUBTYPE_SSL_VERSION: u8 = 0x21;
const SUBTYPE_SSL_CN: u8 = 0x22;
const SUBTYPE_SSL_CIPHER: u8 = 0x23;
/// §2.2.6: bits of the field `client`.
const CLIENT_SSL: u8 = 0x01;
const CLIENT_CERT_CONN: u8 = 0x02;
const CLIENT_CERT_SESS: u8 = 0x04;
/// §2.2.7: the first type for applications. Here the identity as text, also of pre-shared and raw keys
/// ([`identity::typed`]).
const TYPE_IDENTITY: u8 = 0xe0;
/// The longest value of a TLV, in bytes, so that the whole header fits its length field. Longer ones are left
/// out, not cut: a cut name could be another client's.
const MAX_VALUE: usize = 4096;

/// Whether the client came over a stream or by datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Stream,
    Datagram,
}

/// The header for a client at `from` that has connected to `to` with this result.
pub(crate) fn header(
    transport: Transport,
    from: SocketAddr,
    to: SocketAddr,
    negotiated: &Negotiated,
) -> Vec<u8> {
    let mut body = vec![];
    let source = from.ip().to_canonical();
    let destination = to.ip().to_canonical();
    let family = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            body.extend_from_slice(&source.octets());
            body.extend_from_slice(&destination.octets());
            INET
        }
        (source, destination) => {
            for address in [source, destination] {
                body.extend_from_slice(&match address {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                    IpAddr::V6(v6) => v6.octets(),
                });
            }
            INET6
        }
    };
    body.extend_from_slice(&from.port().to_be_bytes());
    body.extend_from_slice(&to.port().to_be_bytes());
    if let Some(alpn) = &negotiated.alpn {
        tlv(&mut body, TYPE_ALPN, alpn);
    }
    if let Some(name) = &negotiated.server_name {
        tlv(&mut body, TYPE_AUTHORITY, name.as_bytes());
    }
    // It contains other TLVs. Each of them has its own limit.
    put(&mut body, TYPE_SSL, &ssl(negotiated));
    if let Some(identity) = negotiated.peer.as_ref().and_then(identity::typed) {
        tlv(&mut body, TYPE_IDENTITY, identity.as_bytes());
    }
    let protocol = match transport {
        Transport::Stream => 1,
        Transport::Datagram => 2,
    };
    let mut header = SIGNATURE.to_vec();
    header.extend_from_slice(&[VERSION_AND_COMMAND, family | protocol]);
    header.extend_from_slice(&u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes());
    header.append(&mut body);
    header
}

/// §2.2.6: the value of PP2_TYPE_SSL.
fn ssl(negotiated: &Negotiated) -> Vec<u8> {
    let has_certificate = matches!(negotiated.peer, Some(PeerIdentity::X509(_)));
    let client = match (has_certificate, negotiated.kind) {
        (false, _) => CLIENT_SSL,
        (true, HandshakeKind::Resumed) => CLIENT_SSL | CLIENT_CERT_SESS,
        (true, _) => CLIENT_SSL | CLIENT_CERT_CONN | CLIENT_CERT_SESS,
    };
    let mut value = vec![client];
    // Zero if the client presented a certificate and it was verified; the gateway accepts no others.
    value.extend_from_slice(&u32::from(!has_certificate).to_be_bytes());
    let version = match negotiated.version {
        Some(ProtocolVersion::TLS1_3) => "TLSv1.3",
        Some(ProtocolVersion::TLS1_2) => "TLSv1.2",
        Some(ProtocolVersion::DTLS1_3) => "DTLSv1.3",
        Some(ProtocolVersion::DTLS1_2) => "DTLSv1.2",
        _ => "",
    };
    if !version.is_empty() {
        tlv(&mut value, SUBTYPE_SSL_VERSION, version.as_bytes());
    }
    if let Some(suite) = negotiated.cipher_suite {
        tlv(&mut value, SUBTYPE_SSL_CIPHER, suite.to_string().as_bytes());
    }
    if let Some(name) = negotiated.peer.as_ref().and_then(identity::common_name) {
        tlv(&mut value, SUBTYPE_SSL_CN, name.as_bytes());
    }
    value
}

/// Adds a TLV, unless its value is longer than [`MAX_VALUE`].
fn tlv(to: &mut Vec<u8>, typ: u8, value: &[u8]) {
    if value.len() <= MAX_VALUE {
        put(to, typ, value);
    }
}

fn put(to: &mut Vec<u8>, typ: u8, value: &[u8]) {
    let Ok(len) = u16::try_from(value.len()) else { return };
    to.push(typ);
    to.extend_from_slice(&len.to_be_bytes());
    to.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a backend would take a client with a long name for one without TLS.
    #[test]
    fn a_long_name_does_not_hide_the_use_of_tls() {
        for (len, is_kept) in [(MAX_VALUE, true), (MAX_VALUE + 1, false)] {
            let mut value = vec![CLIENT_SSL];
            let mut body = vec![];
            tlv(&mut value, SUBTYPE_SSL_CN, &vec![b'a'; len]);
            assert_eq!(value.len() > 1, is_kept);
            put(&mut body, TYPE_SSL, &value);
            assert_eq!(body.first_chunk(), Some(&[TYPE_SSL]));
            assert_eq!(body.len(), 3 + value.len());
        }
    }
}
