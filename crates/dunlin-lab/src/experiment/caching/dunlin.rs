//! Dunlin on blocking sockets.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;

use dunlin::wire::ProtocolVersion;
use dunlin::{ClientConfig, ServerConfig, Side, TlsConnection};
use nix::libc::MSG_MORE;
use nix::sys::socket::{MsgFlags, send};

use super::super::blocking::Tls;
use super::case::{CONNECTIONS, Case, Handshake, PATIENCE};
use super::ends::{client, expect, server};
use super::{ANSWER, QUESTION, datagrams};
use crate::Error;
use crate::error::failed;
use crate::net::Pair;

/// Connects twice, as the case says.
pub(super) fn connect(pair: &Pair, case: &Case<'_>, mtu: u16) -> Result<(), Error> {
    if case.protocol.is_over_datagrams() {
        return datagrams::connect(pair, case, mtu);
    }
    let client = Arc::new(client(case)?);
    let server = Arc::new(server(case)?);
    let listener = pair.server.run(|| TcpListener::bind((Pair::SERVER, 0)))?.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    thread::scope(|scope| {
        let serving = scope
            .spawn(|| pair.server.run(|| CONNECTIONS.iter().try_for_each(|_| serve(&listener, &server))));
        let connecting = pair.client.run(|| {
            case.mode.handshakes().into_iter().try_for_each(|handshake| ask(address, &client, handshake))
        });
        if connecting.as_ref().is_ok_and(Result::is_ok) {
            serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
        } else {
            // The server waits for a connection that does not come.
            drop(TcpStream::connect(address));
        }
        connecting?
    })
}

/// One connection of the client.
fn ask(address: SocketAddr, config: &Arc<ClientConfig>, handshake: Handshake) -> Result<(), Error> {
    let mut tls = Tls::connect(address, config, PATIENCE)?;
    // The last flight is sent with the first data.
    while tls.connection.negotiated().is_none() {
        tls.flush()?;
        tls.receive_alone()?;
    }
    expect(Side::Client, tls.connection.negotiated(), handshake)?;
    tls.say(QUESTION)?;
    hear(&mut tls, ANSWER)?;
    close(&mut tls)?;
    while tls.receive_alone()? {}
    Ok(())
}

/// One connection of the server.
fn serve(listener: &TcpListener, config: &Arc<ServerConfig>) -> Result<(), Error> {
    let (tcp, _) = listener.accept().map_err(failed)?;
    let mut tls = Tls::new(tcp, TlsConnection::server(config, dunlin_tokio::now()), PATIENCE)?;
    while tls.connection.negotiated().is_none() {
        tls.flush()?;
        tls.receive_alone()?;
    }
    if tls.connection.negotiated().is_some_and(|all| all.version == Some(ProtocolVersion::TLS1_2)) {
        // RFC 5246 §7.3: the client waits for this side's Finished.
        tls.flush()?;
    }
    // In TLS 1.3 the ticket is sent with the answer.
    hear(&mut tls, QUESTION)?;
    tls.say(ANSWER)?;
    while tls.receive_alone()? {}
    close(&mut tls)
}

/// Waits for this message.
fn hear(tls: &mut Tls, message: &[u8]) -> Result<(), Error> {
    while tls.connection.received().len() < message.len() {
        if !tls.receive_alone()? {
            return Err(failed("the peer closed before it said anything"));
        }
    }
    if tls.connection.received() != message {
        return Err(failed("the peer said something else"));
    }
    tls.connection.consume(dunlin_tokio::now(), message.len()).map_err(failed)
}

/// Sends close_notify and, in the same segment, FIN.
fn close(tls: &mut Tls) -> Result<(), Error> {
    tls.connection.close();
    let waiting = tls.connection.transmit();
    let sent = send(tls.tcp.as_raw_fd(), waiting, MsgFlags::from_bits_retain(MSG_MORE)).map_err(failed)?;
    if sent < waiting.len() {
        return Err(failed("a short message does not fit"));
    }
    tls.connection.transmitted(sent);
    tls.tcp.shutdown(Shutdown::Write).map_err(failed)
}
