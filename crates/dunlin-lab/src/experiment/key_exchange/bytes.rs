//! The bytes of a handshake on real sockets, from captures: every TLS byte, and every byte on the link that
//! carried it.

use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use dunlin::{ClientConfig, DtlsConnection, ServerConfig, TlsConnection};

use super::super::blocking::Tls;
use super::super::datagrams::Sockets;
use super::super::foreign::Foreign;
use super::suites::{AllKeys, Case, Crypto, server_address};
use crate::Error;
use crate::error::{failed, socket_failed};
use crate::link::in_real_time;
use crate::net::{Ground, Pair};

/// Longer than any handshake, even at the lowest rate.
const PATIENCE: Duration = Duration::from_secs(60);

/// The stacks of a handshake.
pub(super) enum Stack<'a> {
    Dunlin(&'a Arc<ClientConfig>, &'a Arc<ServerConfig>),
    Foreign(&'a Foreign),
}

impl Stack<'_> {
    /// The name in rows.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Dunlin(..) => "dunlin",
            Self::Foreign(foreign) => foreign.name,
        }
    }
}

/// Runs a handshake on its own connection.
pub(super) fn connect(
    ground: &Ground,
    pair: &Pair,
    case: &Case,
    keys: (&AllKeys, &Crypto),
    stack: &Stack<'_>,
) -> Result<(), Error> {
    match stack {
        Stack::Dunlin(client, server) if case.over_datagrams => over_datagrams(pair, client, server),
        Stack::Dunlin(client, server) => over_tcp(pair, client, server).map(drop),
        Stack::Foreign(foreign) => foreign.connect(ground, pair, case, keys),
    }
}

/// Runs a handshake over UDP.
fn over_datagrams(pair: &Pair, client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Result<(), Error> {
    let sockets = Sockets::new(pair)?;
    let now = dunlin_tokio::now();
    let [from, to] = sockets.addresses;
    let mut client = DtlsConnection::client(client, server_address()?, to, now).map_err(failed)?;
    let mut server = DtlsConnection::server(server, from, now);
    sockets.carry(&mut client, &mut server, |why| failed(why))
}

/// Runs a handshake on an idle TCP connection. Returns its duration, from the client's first step to the
/// last step of the later side.
pub(super) fn over_tcp(
    pair: &Pair,
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> Result<Duration, Error> {
    let listener = pair.server.run(|| TcpListener::bind((Pair::SERVER, 0)))?.map_err(socket_failed)?;
    let address = listener.local_addr().map_err(socket_failed)?;
    let (accepted, is_accepted) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let serving = scope.spawn(move || {
            in_real_time();
            let (tcp, _) = listener.accept().map_err(socket_failed)?;
            // A client that ended early has failed and gives the reason.
            let _ = accepted.send(());
            let connection = TlsConnection::server(server, dunlin_tokio::now());
            let mut tls = Tls::new(tcp, connection, PATIENCE)?;
            let completed = complete(&mut tls)?;
            ended(&mut tls)?;
            Ok::<_, Error>(completed)
        });
        let connecting = pair.client.run(move || {
            in_real_time();
            let tcp = TcpStream::connect(address).map_err(socket_failed)?;
            // After TCP's handshake no packet remains that could delay the TLS handshake.
            is_accepted.recv().map_err(socket_failed)?;
            let start = Instant::now();
            let connection =
                TlsConnection::client(client, server_address()?, dunlin_tokio::now()).map_err(failed)?;
            let mut tls = Tls::new(tcp, connection, PATIENCE)?;
            let completed = complete(&mut tls)?;
            // The client closes first.
            tls.tcp.shutdown(Shutdown::Write).map_err(socket_failed)?;
            ended(&mut tls)?;
            Ok::<_, Error>((start, completed))
        });
        let connected = connecting.and_then(|connected| connected);
        if connected.is_err() {
            // The server may wait for a connection that does not come.
            let _ = pair.client.run(|| TcpStream::connect(address));
        }
        let served = serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (start, completed) = connected?;
        Ok(served?.max(completed).duration_since(start))
    })
}

/// Completes the handshake of a side, and returns the time of its end.
fn complete(tls: &mut Tls) -> Result<Instant, Error> {
    loop {
        tls.flush()?;
        if tls.connection.negotiated().is_some() {
            return Ok(Instant::now());
        }
        if !tls.receive_alone()? {
            return Err(failed("the peer closed within the handshake"));
        }
    }
}

/// Waits for the end of TCP, which comes without close_notify: only the handshake was sent.
fn ended(tls: &mut Tls) -> Result<(), Error> {
    match tls.tcp.read(&mut [0]).map_err(socket_failed)? {
        0 => Ok(()),
        _ => Err(failed("more than a handshake was sent")),
    }
}
