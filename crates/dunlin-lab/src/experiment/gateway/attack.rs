//! Attacks on a gateway that serves other clients.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dunlin::{ClientConfig, DtlsConnection, ServerAddress, TlsConnection};
use dunlin_tokio::now;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::super::keys::SERVER_NAME;
use super::backend::SOURCE;
use super::load::{self, Target};
use super::stage::{Stage, failed};
use super::wire::Wire;
use crate::Error;

/// The ClientHellos of a flood, each second.
const HELLOS: f64 = 20_000.0;
/// How often the flood sends those that are due, and an attack looks whether its phase has ended.
const STEP: Duration = Duration::from_millis(1);
const LOOK: Duration = Duration::from_millis(20);
/// The addresses from which ClientHellos come, and the number of the first one.
const FLOODERS: usize = 50_000;
const FIRST_FLOODER: usize = 1 << 20;
/// The time between two handshakes that stay half-open. Two gateways then reach their limit of 1000
/// handshakes each after 5 seconds.
const HALF_OPEN_PERIOD: Duration = Duration::from_micros(2500);
/// The slow clients: those that send a ClientHello, which are more than two gateways take, and those that
/// read data.
const SLOW_HELLOS: usize = 2500;
const SLOW_READERS: usize = 50;
/// The time in which a slow client sends a byte, or reads [`SIP`] bytes.
const SLOW_PERIOD: Duration = Duration::from_secs(1);
const SIP: usize = 1024;
/// The kernel's buffer for a slow reader, and its buffer for the plain server's data to one, in bytes. Linux
/// may keep 32 MB, which is a fast download before it is a slow one.
pub(super) const ROOM: u32 = 64 << 10;
/// The addresses of attackers over TCP.
const ATTACKERS: u32 = 250;
const FIRST_ATTACKER: u32 = Ipv4Addr::new(127, 9, 0, 1).to_bits();

named! {
    /// The attack on a gateway in a phase.
    pub(super) enum Attack {
        None = "none",
        /// ClientHellos without a cookie over DTLS, from random addresses.
        Flood = "flood",
        /// Handshakes over TLS that go no further than the ClientHello.
        HalfOpen = "half_open",
        /// Clients that send a byte a second, and others that read a kilobyte a second.
        Slow = "slow",
    }
}

impl Attack {
    /// The attack of the phase with this number.
    pub(super) const fn of(phase: usize) -> Self {
        Self::ALL[phase % Self::ALL.len()]
    }
}

/// The attackers' targets and settings.
struct Attacker<'a> {
    targets: &'a [Target],
    client: &'a Arc<ClientConfig>,
    stage: &'a Arc<Stage>,
}

/// Attacks in each phase, until the run ends. Returns how often, for each of [`Attack::ALL`].
pub(super) fn run(
    targets: &[Target],
    datagrams: &[SocketAddr],
    client: &Arc<ClientConfig>,
    stage: &Arc<Stage>,
) -> Result<[u64; Attack::ALL.len()], Error> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let attacker = Attacker { targets, client, stage };
    let mut made = [0; Attack::ALL.len()];
    while !stage.has_ended() {
        let phase = stage.phase();
        let attack = Attack::of(phase);
        let number = match attack {
            Attack::Flood => attacker.flood(datagrams, phase)?,
            Attack::HalfOpen => runtime.block_on(attacker.half_open(phase))?,
            Attack::Slow => runtime.block_on(attacker.slow(phase))?,
            Attack::None => {
                thread::sleep(LOOK);
                0
            }
        };
        if let Some(all) = made.get_mut(phase % Attack::ALL.len()) {
            *all += number;
        }
    }
    Ok(made)
}

impl Attacker<'_> {
    fn goes_on(&self, phase: usize) -> bool {
        self.stage.phase() == phase && !self.stage.has_ended()
    }

    /// Sends ClientHellos without a cookie from many addresses.
    fn flood(&self, servers: &[SocketAddr], phase: usize) -> Result<u64, Error> {
        let wire = Wire::new().map_err(failed)?;
        let mut hellos = Vec::new();
        for server in servers {
            let name = ServerAddress::parse(SERVER_NAME, server.port()).map_err(failed)?;
            let mut connection = DtlsConnection::client(self.client, name, *server, now()).map_err(failed)?;
            hellos.extend(connection.poll_transmit(now()).map(|transmit| (*server, transmit.datagram)));
        }
        let begin = Instant::now();
        let mut sent = 0;
        let mut hellos = hellos.iter().cycle();
        while self.goes_on(phase) {
            let due = (begin.elapsed().as_secs_f64() * HELLOS) as usize;
            for (server, hello) in hellos.by_ref().take(due.saturating_sub(sent)) {
                wire.send(FIRST_FLOODER + sent % FLOODERS, *server, hello);
                sent += 1;
            }
            thread::sleep(STEP);
        }
        Ok(sent as u64)
    }

    /// Begins handshakes and leaves them.
    async fn half_open(&self, phase: usize) -> Result<u64, Error> {
        let mut tasks = JoinSet::new();
        let mut due = Instant::now();
        let mut number = 0;
        while self.goes_on(phase) {
            let Some(target) = self.target(number) else { break };
            let hello = hello(&target, self.client)?;
            let from = number as u32;
            tasks.spawn(async move {
                let mut tcp = connect(from, &target).await?;
                tcp.write_all(&hello).await?;
                // The gateway answers, and ends the connection when its patience is over.
                while tcp.read(&mut [0; SIP]).await? > 0 {}
                Ok::<_, io::Error>(())
            });
            number += 1;
            due += HALF_OPEN_PERIOD;
            // A timer of tokio is not exact to less than a millisecond.
            if due > Instant::now() {
                sleep_until(due.into()).await;
            }
            while tasks.try_join_next().is_some() {}
        }
        tasks.shutdown().await;
        Ok(number as u64)
    }

    /// Keeps slow clients connected. They come one after the other, within a few periods. Returns how often
    /// one has connected.
    async fn slow(&self, phase: usize) -> Result<u64, Error> {
        let mut tasks = JoinSet::new();
        let connected = Arc::new(AtomicU64::new(0));
        let gap = SLOW_PERIOD / (SLOW_HELLOS + SLOW_READERS) as u32;
        for number in 0..SLOW_HELLOS {
            sleep(gap).await;
            let Some(target) = self.target(number).filter(|_| self.goes_on(phase)) else { break };
            let hello = hello(&target, self.client)?;
            let connected = connected.clone();
            tasks.spawn(async move {
                loop {
                    let sent = async {
                        let mut tcp = connect(number as u32, &target).await?;
                        connected.fetch_add(1, Ordering::Relaxed);
                        for byte in &hello {
                            tcp.write_all(&[*byte]).await?;
                            sleep(SLOW_PERIOD).await;
                        }
                        Ok::<_, io::Error>(())
                    };
                    // The gateway has ended the connection; the client comes again.
                    if sent.await.is_err() {
                        sleep(SLOW_PERIOD).await;
                    }
                }
            });
        }
        for number in 0..SLOW_READERS {
            sleep(gap).await;
            let Some(target) = self.target(number) else { break };
            let client = self.client.clone();
            let connected = connected.clone();
            tasks.spawn(async move {
                let Ok(mut tls) = load::shaken_with(Some(ROOM), &target, &client).await else { return };
                connected.fetch_add(1, Ordering::Relaxed);
                let _ = tls.write_all(&[SOURCE]).await;
                while tls.read(&mut [0; SIP]).await.is_ok_and(|len| len > 0) {
                    sleep(SLOW_PERIOD).await;
                }
            });
        }
        while self.goes_on(phase) {
            sleep(LOOK).await;
        }
        tasks.shutdown().await;
        Ok(connected.load(Ordering::Relaxed))
    }

    /// The gateway of an attacker with this number.
    fn target(&self, number: usize) -> Option<Target> {
        self.targets.get(number % self.targets.len().max(1)).copied()
    }
}

/// The first flight of a client.
fn hello(target: &Target, client: &Arc<ClientConfig>) -> Result<Vec<u8>, Error> {
    let name = ServerAddress::parse(SERVER_NAME, target.address.port()).map_err(failed)?;
    Ok(TlsConnection::client(client, name, now()).map_err(failed)?.transmit().to_vec())
}

/// Connects from the address of an attacker.
async fn connect(number: u32, target: &Target) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let from = Ipv4Addr::from_bits(FIRST_ATTACKER + number % ATTACKERS);
    socket.bind(SocketAddr::new(IpAddr::V4(from), 0))?;
    let tcp = socket.connect(target.address).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}
