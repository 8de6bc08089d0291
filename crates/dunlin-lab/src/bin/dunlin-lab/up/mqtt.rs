//! The part of MQTT 3.1.1 (OASIS 2014) that a device needs: it publishes a message below its own name, and
//! receives it there.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The types of packets with their flags (§2.2).
const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;
const DISCONNECT: u8 = 0xe0;
/// CONNECT up to the client ID (§3.1.2): protocol and level, clean session, keep alive of 60 s.
const CONNECT_HEADER: &[u8] = b"\0\x04MQTT\x04\x02\0\x3c";
/// The identifier of the only SUBSCRIBE packet, and its QoS.
const PACKET_ID: [u8; 2] = [0, 1];
const AT_MOST_ONCE: u8 = 0;
/// SUBACK refuses a subscription with this code (§3.9.3).
const REFUSED: u8 = 0x80;
/// The longest packet that a device reads, in bytes.
const MAX_PACKET: usize = 64 << 10;

/// Publishes the message at `devices/NAME/readings`. Returns the name in the topic and the message as the
/// broker has sent them back, which it does only for the client with this user name. The connection stays
/// open.
pub(super) async fn publish<S>(stream: &mut S, name: &str, message: &str) -> io::Result<(String, String)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let topic = text(&format!("devices/{name}/readings"));
    send(stream, CONNECT, &[CONNECT_HEADER, &text(name)].concat()).await?;
    match *receive(stream, CONNACK).await? {
        [_, 0] => {}
        [_, code] => return Err(io::Error::other(format!("the broker refused the device with code {code}"))),
        _ => return Err(malformed()),
    }
    send(stream, SUBSCRIBE, &[&PACKET_ID[..], &topic, &[AT_MOST_ONCE]].concat()).await?;
    if receive(stream, SUBACK).await?.last().is_none_or(|code| *code == REFUSED) {
        return Err(io::Error::other("the broker refused the subscription"));
    }
    send(stream, PUBLISH, &[&topic, message.as_bytes()].concat()).await?;
    let published = receive(stream, PUBLISH).await?;
    let (len, rest) = published.split_first_chunk().ok_or_else(malformed)?;
    let (topic, message) = rest.split_at_checked(u16::from_be_bytes(*len).into()).ok_or_else(malformed)?;
    let [topic, message] = [topic, message].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let name = topic.split('/').nth(1).ok_or_else(malformed)?.to_owned();
    send(stream, DISCONNECT, &[]).await?;
    Ok((name, message))
}

/// A text with its length (§1.5.3). Names and topics are short.
fn text(text: &str) -> Vec<u8> {
    let len = u16::try_from(text.len()).unwrap_or(u16::MAX);
    [&len.to_be_bytes()[..], text.as_bytes()].concat()
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the broker sent a packet that is no valid MQTT")
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), typ: u8, body: &[u8]) -> io::Result<()> {
    let mut packet = vec![typ];
    let mut len = body.len();
    // §2.2.3: seven bits a byte, the lowest first.
    while len > 0x7f {
        packet.push(0x80 | (len & 0x7f) as u8);
        len >>= 7;
    }
    packet.push(len as u8);
    packet.extend_from_slice(body);
    stream.write_all(&packet).await
}

/// Receives a packet, which must be of this type.
async fn receive(stream: &mut (impl AsyncRead + Unpin), typ: u8) -> io::Result<Vec<u8>> {
    let found = stream.read_u8().await?;
    let mut len = 0;
    let mut shift = 0;
    loop {
        let byte = stream.read_u8().await?;
        len |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        match byte & 0x80 {
            0 => break,
            _ if shift > 21 => return Err(malformed()),
            _ => {}
        }
    }
    if found & 0xf0 != typ & 0xf0 || len > MAX_PACKET {
        return Err(malformed());
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await?;
    Ok(body)
}
