//! The servers behind the gateway, as they might have existed before it: they know no TLS. Each answers with
//! the identity that the gateway has told it, and with the device's message. A CoAP server beside the gateway
//! speaks DTLS itself.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use dunlin_coap::coap_lite::{CoapRequest, CoapResponse, Packet};
use dunlin_coap::{CoapServer, Peer};
use dunlin_command::report::identity as identity_of;
use dunlin_tokio::{DtlsEndpoint, places};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::setup::{Setup, Way};

/// The ports of each device with TCS: one for its association, and one for the next.
const PORTS: usize = 2;
/// The maximum length of a message in bytes.
const MAX_MESSAGE: usize = 64 << 10;
/// The header with the client's identity (docs/gateway.md).
const IDENTITY: &str = "dunlin-client-identity";
/// The length of the fixed part of a PROXY header in bytes, and of the addresses after it, by their family.
const PROXY_FIXED: usize = 16;
const PROXY_INET: (u8, usize) = (1, 12);
const PROXY_INET6: (u8, usize) = (2, 36);
/// The type of the field with the identity (docs/gateway.md).
const PROXY_IDENTITY: u8 = 0xe0;

/// The addresses of the servers, on free ports of 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Services {
    /// HTTP.
    pub(super) web: SocketAddr,
    /// Lines over TCP, after a PROXY header.
    pub(super) lines: SocketAddr,
    /// CoAP over UDP, after a PROXY header.
    pub(super) coap: SocketAddr,
    /// CoAP over DTLS, without the gateway.
    pub(super) coaps: SocketAddr,
}

impl Services {
    /// Starts the servers, which run until the runtime ends.
    pub(super) async fn start(setup: &Setup) -> io::Result<Self> {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let web = TcpListener::bind(free).await?;
        let lines = TcpListener::bind(free).await?;
        let coap = UdpSocket::bind(free).await?;
        let coaps = DtlsEndpoint::bind(free).await?;
        coaps.set_server(Some(setup.coaps.clone()));
        // Each association has a port of its own.
        let mut ports = vec![];
        for _ in setup.devices.iter().filter(|device| device.way == Way::Tcs) {
            for _ in 0..PORTS {
                ports.push(UdpSocket::bind(free).await?);
            }
        }
        if !ports.is_empty() {
            coaps.add_ports(ports)?;
        }
        let services = Self {
            web: web.local_addr()?,
            lines: lines.local_addr()?,
            coap: coap.local_addr()?,
            coaps: coaps.local_addr(),
        };
        tokio::spawn(CoapServer::new(coaps, answer_coaps).run());
        tokio::spawn(accept(web, serve_web));
        tokio::spawn(accept(lines, serve_lines));
        tokio::spawn(serve_coap(coap));
        Ok(services)
    }
}

/// Serves each connection in a task of its own. The gateway reports connections that fail.
async fn accept<F: Future<Output = ()> + Send + 'static>(listener: TcpListener, serve: fn(TcpStream) -> F) {
    loop {
        let (tcp, _) = places::accept(&listener, |_| {}).await;
        tokio::spawn(serve(tcp));
    }
}

async fn serve_web(tcp: TcpStream) {
    // A failure ends the connection, which the gateway reports.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(tcp), service_fn(answer)).await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let identity = request.headers().get(IDENTITY).and_then(|value| value.to_str().ok());
    let identity = identity.unwrap_or("anonymous").to_owned();
    let mut response = Response::new(Full::default());
    match Limited::new(request.into_body(), MAX_MESSAGE).collect().await {
        Ok(message) => *response.body_mut() = reply(&identity, &message.to_bytes()).into(),
        Err(_) => *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE,
    }
    Ok(response)
}

/// The identity in a line, then the message.
fn reply(identity: &str, message: &[u8]) -> Vec<u8> {
    [identity.as_bytes(), b"\n", message].concat()
}

/// Sends the identity in a line, then echoes all data.
async fn serve_lines(mut tcp: TcpStream) {
    let serve = async {
        let mut header = vec![0; PROXY_FIXED];
        tcp.read_exact(&mut header).await?;
        let len = header.last_chunk().copied().map(u16::from_be_bytes).unwrap_or_default();
        header.resize(PROXY_FIXED + usize::from(len), 0);
        tcp.read_exact(header.get_mut(PROXY_FIXED..).unwrap_or_default()).await?;
        let (identity, _) = proxied(&header).ok_or(io::ErrorKind::InvalidData)?;
        tcp.write_all(&reply(&identity, b"")).await?;
        let (mut reader, mut writer) = tcp.split();
        copy(&mut reader, &mut writer).await?;
        writer.shutdown().await
    };
    let _ = serve.await;
}

/// Answers each datagram. The gateway sends the answer to the client whose port it has used.
async fn serve_coap(socket: UdpSocket) {
    let mut datagram = vec![0; usize::from(u16::MAX)];
    loop {
        // An error is about an earlier datagram to a port that is closed now.
        let Ok((len, from)) = socket.recv_from(&mut datagram).await else { continue };
        if let Some(answer) = datagram.get(..len).and_then(coap_answer) {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

fn coap_answer(datagram: &[u8]) -> Option<Vec<u8>> {
    let (identity, message) = proxied(datagram)?;
    let request = CoapRequest::from_packet(Packet::from_bytes(message).ok()?, ());
    let mut response = request.response?;
    response.message.payload = reply(&identity, &request.message.payload);
    response.message.to_bytes().ok()
}

async fn answer_coaps(request: CoapRequest<Peer>) -> Option<CoapResponse> {
    let identity = request.source.as_ref().and_then(Peer::identity);
    let identity = identity.map_or_else(|| "anonymous".to_owned(), identity_of);
    let mut response = request.response?;
    response.message.payload = reply(&identity, &request.message.payload);
    Some(response)
}

/// Splits off the PROXY header, and returns the identity in it and the data after it.
fn proxied(data: &[u8]) -> Option<(String, &[u8])> {
    let (header, rest) = data.split_at_checked(PROXY_FIXED)?;
    let len = header.last_chunk().copied().map(u16::from_be_bytes)?;
    let (body, rest) = rest.split_at_checked(len.into())?;
    let family = header.get(13)? >> 4;
    let addresses = [PROXY_INET, PROXY_INET6].into_iter().find(|(known, _)| *known == family)?.1;
    let mut fields = body.get(addresses..)?;
    while let Some(([typ, high, low], after)) = fields.split_first_chunk() {
        let (value, next) = after.split_at_checked(u16::from_be_bytes([*high, *low]).into())?;
        if *typ == PROXY_IDENTITY {
            return Some((String::from_utf8(value.to_vec()).ok()?, rest));
        }
        fields = next;
    }
    Some(("anonymous".to_owned(), rest))
}
