//! The load: clients over TLS 1.3, the same ones against every server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dunlin::{ClientConfig, ServerAddress};
use dunlin_tokio::{TlsConnector, TlsStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use super::super::keys::SERVER_NAME;
use super::backend::{ECHO, SINK, SOURCE, Sunk};
use super::servers::Server;
use crate::Error;

/// The bytes of a message, whose echo the client awaits.
const MESSAGE: usize = 64;
/// The bytes of a write or read in bulk.
const BULK: usize = 64 << 10;
/// The source addresses of clients, after 127.0.0.1.
const SOURCES: u32 = 64;
/// How long a client waits for the end of a handshake, for an echo, or for the end of a connection.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time before the measurement in bulk begins.
const RUN_UP: Duration = Duration::from_millis(100);

/// The server of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    /// Whether the handshakes of a client after its first one are cached.
    pub(super) is_cached: bool,
}

impl Target {
    /// A running server as the target.
    pub(super) fn of(server: &Server<'_>, is_cached: bool) -> Self {
        Self { name: server.stack.name(), address: server.address, is_cached }
    }

    fn failed(&self, why: impl std::fmt::Display) -> Error {
        Error::new(self.name, why, "run it again, without other programs")
    }
}

/// An address for a client, another one than for the previous client.
fn source() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let turn = NEXT.fetch_add(1, Ordering::Relaxed) % SOURCES;
    Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + 1 + turn)
}

/// A client whose first message has come back.
pub(super) async fn connected(
    target: &Target,
    config: &Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, Error> {
    let mut tls = shaken(target, config).await?;
    exchange(&mut tls).await.map_err(|error| target.failed(error))?;
    Ok(tls)
}

/// A client after its handshake.
pub(super) async fn shaken(
    target: &Target,
    config: &Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, Error> {
    shaken_with(None, target, config).await
}

/// As `shaken`, with a receive buffer of `room` bytes.
pub(super) async fn shaken_with(
    room: Option<u32>,
    target: &Target,
    config: &Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, Error> {
    let failed = |error: io::Error| target.failed(error);
    let socket = TcpSocket::new_v4().map_err(failed)?;
    if let Some(room) = room {
        socket.set_recv_buffer_size(room).map_err(failed)?;
    }
    socket.bind(SocketAddr::new(IpAddr::V4(source()), 0)).map_err(failed)?;
    let tcp = socket.connect(target.address).await.map_err(failed)?;
    tcp.set_nodelay(true).map_err(failed)?;
    let server =
        ServerAddress::parse(SERVER_NAME, target.address.port()).map_err(|error| target.failed(error))?;
    let connector = TlsConnector::new(config.clone()).with_timeout(PATIENCE);
    connector.connect(tcp, server).await.map_err(|error| target.failed(error))
}

/// Sends a message and awaits its echo.
pub(super) async fn exchange(tls: &mut TlsStream<TcpStream>) -> io::Result<()> {
    let message = [ECHO; MESSAGE];
    tls.write_all(&message).await?;
    let mut echo = [0; MESSAGE];
    timeout(PATIENCE, tls.read_exact(&mut echo)).await??;
    if echo == message { Ok(()) } else { Err(io::Error::other("the echo differs from the message")) }
}

/// Closes a connection and awaits its end. Servers differ in whether they send a close_notify or just close.
pub(super) async fn close(mut tls: TlsStream<TcpStream>) {
    let ended = async {
        let _ = tls.shutdown().await;
        while tls.read(&mut [0; MESSAGE]).await.is_ok_and(|len| len > 0) {}
    };
    let _ = timeout(PATIENCE, ended).await;
}

/// Runs clients until all have ended; returns their results, or the first error.
pub(super) async fn all<T: Send + 'static>(
    clients: impl IntoIterator<Item = impl Future<Output = Result<T, Error>> + Send + 'static>,
) -> Result<Vec<T>, Error> {
    let mut tasks: JoinSet<_> = clients.into_iter().collect();
    let mut results = Vec::with_capacity(tasks.len());
    while let Some(result) = tasks.join_next().await {
        results.push(result.map_err(|error| Error::new("a client", error, "run it again"))??);
    }
    Ok(results)
}

/// Makes connections for this time: connect, handshake, a message and its echo, close. Each configuration has
/// one connection at a time, at least one in all. Returns their number and the time that they took.
pub(super) async fn connections(
    target: &Target,
    configs: &[Arc<ClientConfig>],
    is_first: bool,
    time: Duration,
) -> Result<(u64, Duration), Error> {
    let begin = Instant::now();
    let clients = configs.iter().map(|config| {
        let target = *target;
        let config = config.clone();
        async move {
            let mut count = 0;
            loop {
                let tls = connected(&target, &config).await?;
                let negotiated = tls.negotiated();
                let is_cached = negotiated.is_own_cached() && negotiated.is_peer_cached();
                if is_cached != target.is_cached && !is_first || negotiated.is_resumed() {
                    return Err(target.failed("a handshake is of another kind"));
                }
                close(tls).await;
                count += 1;
                if begin.elapsed() >= time {
                    return Ok(count);
                }
            }
        }
    });
    let counts = all(clients).await?;
    Ok((counts.iter().sum(), begin.elapsed()))
}

/// Clients that connect at the same time and stay, with their times to connect.
pub(super) struct Concurrent {
    /// The times from TCP's SYN to the first echo.
    pub(super) connects: Vec<Duration>,
    pub(super) clients: Vec<TlsStream<TcpStream>>,
}

/// Connects that many clients at the same time.
pub(super) async fn concurrent(
    target: &Target,
    config: &Arc<ClientConfig>,
    number: usize,
) -> Result<Concurrent, Error> {
    let barrier = Arc::new(Barrier::new(number));
    let clients = (0..number).map(|_| {
        let target = *target;
        let config = config.clone();
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            let begin = Instant::now();
            let tls = connected(&target, &config).await?;
            Ok((begin.elapsed(), tls))
        }
    });
    let (connects, clients) = all(clients).await?.into_iter().unzip();
    Ok(Concurrent { connects, clients })
}

/// Each client sends a message in each period, for this time. Returns the times to the echoes. Without a
/// period it sends the next message when the echo has come.
pub(super) async fn round_trips(
    target: &Target,
    clients: Vec<TlsStream<TcpStream>>,
    period: Option<Duration>,
    time: Duration,
) -> Result<(Vec<Duration>, Vec<TlsStream<TcpStream>>), Error> {
    let begin = Instant::now();
    let number = clients.len().max(1) as u32;
    let clients = clients.into_iter().zip(0_u32..).map(|(mut tls, at)| {
        let target = *target;
        async move {
            let mut times = Vec::new();
            // The clients are spread evenly over a period.
            let mut due = begin + period.unwrap_or_default() * at / number;
            while due < begin + time && begin.elapsed() < time {
                let is_late = Instant::now() > due;
                if !is_late {
                    sleep_until(due.into()).await;
                }
                // A message that waited for the previous echo has waited for the server. The clock of this
                // process does not count.
                let sent =
                    if is_late && period.is_some() && !times.is_empty() { due } else { Instant::now() };
                exchange(&mut tls).await.map_err(|error| target.failed(error))?;
                times.push(sent.elapsed());
                due += period.unwrap_or_default();
            }
            Ok((times, tls))
        }
    });
    let (times, clients): (Vec<_>, Vec<_>) = all(clients).await?.into_iter().unzip();
    Ok((times.concat(), clients))
}

/// Closes connections.
pub(super) async fn close_all(clients: Vec<TlsStream<TcpStream>>) -> Result<(), Error> {
    let clients = clients.into_iter().map(|tls| async {
        close(tls).await;
        Ok(())
    });
    all(clients).await.map(drop)
}

named! {
    /// The direction of bulk data.
    pub(super) enum Direction {
        /// From the clients to the backend.
        Upload = "upload",
        /// From the backend to the clients.
        Download = "download",
    }
}

/// Sends data over that many connections for this time. `measured` gives the server's processor time at the
/// begin and at the end. Returns the number of bytes that arrived, the time, and the processor time.
pub(super) async fn bulk(
    target: &Target,
    config: &Arc<ClientConfig>,
    number: usize,
    direction: Direction,
    sunk: &Sunk,
    time: Duration,
    measured: &mut (dyn FnMut() -> Result<Duration, Error> + Send),
) -> Result<(u64, Duration, Duration), Error> {
    let mut streams = Vec::new();
    for _ in 0..number {
        streams.push(shaken(target, config).await?);
    }
    let read = Sunk::default();
    let mut tasks = JoinSet::new();
    for mut tls in streams {
        let read = read.clone();
        tasks.spawn(async move {
            let mut data = vec![SINK; BULK];
            match direction {
                Direction::Upload => loop {
                    tls.write_all(&data).await?;
                },
                Direction::Download => {
                    tls.write_all(&[SOURCE]).await?;
                    loop {
                        match tls.read(&mut data).await? {
                            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                            len => read.fetch_add(len as u64, Ordering::Relaxed),
                        };
                    }
                }
            }
        });
    }
    sleep(RUN_UP).await;
    let counter = if direction == Direction::Upload { sunk } else { &read };
    let count = counter.load(Ordering::Relaxed);
    let begin = Instant::now();
    let spent = measured()?;
    tokio::select! {
        () = sleep(time) => {}
        ended = tasks.join_next() => {
            let why: io::Result<()> = ended.and_then(Result::ok).unwrap_or(Ok(()));
            let why = why.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
            return Err(target.failed(why));
        }
    }
    let result =
        (counter.load(Ordering::Relaxed) - count, begin.elapsed(), measured()?.saturating_sub(spent));
    tasks.shutdown().await;
    Ok(result)
}

/// The value below which this share of the measured ones lies, in milliseconds.
pub(super) fn percentile_ms(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let at = (times.len() as f64 * share).ceil() as usize;
    times.get(at.saturating_sub(1)).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_measured_value() {
        let mut times: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        for (share, expected) in [(0.5, 100.0), (0.99, 198.0), (0.999, 200.0), (0.0, 1.0), (1.0, 200.0)] {
            assert_eq!(percentile_ms(&mut times, share), expected);
        }
        assert_eq!(percentile_ms(&mut [], 0.5), 0.0);
    }
}
