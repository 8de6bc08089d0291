//! The first bytes of each client, for programs that read ClientHellos themselves.

use std::net::SocketAddr;

use dunlin::Side;

use crate::Error;
use crate::capture::{self, Capture};
use crate::dissect;
use crate::dtls;
use crate::flow::{Content, Flows};
use crate::tls;

/// The most bytes of a flight, in bytes: more than the longest ClientHello that a server accepts.
const MAX_FLIGHT: usize = 256 << 10;

/// The first flight of a client, from the ClientHello on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstFlight {
    /// The client's address.
    pub client: SocketAddr,
    /// The server's address.
    pub server: SocketAddr,
    /// The beginning of the stream, or datagrams in the order of the capture. They have up to 256 KiB in all.
    pub packets: Vec<Vec<u8>>,
}

/// The first flight of each client in a capture, in the order of their first packets. Connections whose
/// ClientHello is not in the capture are left out. `file` is the content of a pcap or pcapng file.
///
/// # Errors
/// [`Error::NotACapture`]. A capture with damage further on is read up to the damage.
pub fn first_flights(file: &[u8]) -> Result<Vec<FirstFlight>, Error> {
    if !capture::is_capture(file) {
        return Err(Error::NotACapture);
    }
    let capture = Capture::read(file);
    let mut flights = Vec::new();
    for flow in &Flows::of(&capture).flows {
        let (end, packets) = match &flow.content {
            Content::Tcp(streams) => {
                let begins = |data: &[u8]| dissect::sender(&tls::plain_handshake(data)) == Some(Side::Client);
                let Some(end) = streams.iter().position(|stream| begins(&stream.data)) else { continue };
                let Some(stream) = streams.get(end) else { continue };
                let data = stream.data.get(..MAX_FLIGHT).unwrap_or(&stream.data);
                (end, vec![data.to_vec()])
            }
            Content::Udp(datagrams) => {
                let from = |place: usize| flow.packets.get(place).map_or(0, |packet| packet.from);
                let hello = datagrams.iter().position(|(_, bytes)| dtls::is_client_hello(bytes));
                let Some((first, end)) = hello.and_then(|i| Some((i, from(datagrams.get(i)?.0)))) else {
                    continue;
                };
                let mut room = MAX_FLIGHT;
                let of_client = datagrams.iter().skip(first).filter(|(place, _)| from(*place) == end);
                let fits = |bytes: &&[u8]| {
                    let left = room.checked_sub(bytes.len());
                    room = left.unwrap_or(0);
                    left.is_some()
                };
                (end, of_client.map(|(_, bytes)| *bytes).take_while(fits).map(<[u8]>::to_vec).collect())
            }
        };
        let [first, second] = flow.ends;
        let (client, server) = if end == 0 { (first, second) } else { (second, first) };
        flights.push(FirstFlight { client, server, packets });
    }
    Ok(flights)
}
