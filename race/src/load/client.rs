//! The client, which is the same for all servers: it drives Dunlin's engine over one socket, which sends from
//! many addresses of the loopback network, and keeps a number of records on the way. It seals records before
//! the clock runs, and opens the echoes after it has stopped, so that it needs less time for a record than
//! any server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::{ClientConfig, DtlsConnection};
use dunlin_tests::localhost;
use dunlin_tokio::now;

use super::wire::Wire;
use super::{ASSOCIATIONS, ids, profile, psk};

/// The bytes of data in a record.
pub(super) const DATA: [u8; 64] = [7; 64];
/// The records that are on the way at one time. Their buffers in the kernel fit into a socket of the default
/// size.
const WINDOW: usize = 96;
/// The handshakes that are in progress at one time.
const HANDSHAKES: usize = 16;
/// The records of each association in an interval of the measurement.
const RECORDS: usize = 10;
/// How long a server is measured at least. The last interval ends later.
const TIME: Duration = Duration::from_secs(5);
/// How long a record may take. It is lost if nothing arrives for this long.
const PATIENCE: Duration = Duration::from_millis(50);

/// Its associations.
struct Client {
    wire: Wire,
    server: SocketAddr,
    associations: Vec<DtlsConnection>,
    /// The sealed records of an interval, of equal length, and the received ones: the association, and the
    /// end in `received`.
    sealed: Vec<u8>,
    echoes: Vec<(usize, usize)>,
    received: Vec<u8>,
}

/// The address of an association on the loopback network.
fn address(at: usize) -> IpAddr {
    let [_, a, b, c] = (at as u32).to_be_bytes();
    Ipv4Addr::new(127, 1 + a, b, c).into()
}

/// The association with this address.
fn index(address: Option<IpAddr>) -> usize {
    let Some(IpAddr::V4(address)) = address else { panic!("the kernel names the destination") };
    let [_, a, b, c] = address.octets();
    u32::from_be_bytes([0, a - 1, b, c]) as usize
}

impl Client {
    fn new(server: SocketAddr) -> Self {
        Self {
            wire: Wire::new("0.0.0.0:0"),
            server,
            associations: Vec::new(),
            sealed: Vec::new(),
            echoes: Vec::new(),
            received: Vec::new(),
        }
    }

    /// Sends what an association has to send.
    fn flush(&mut self, at: usize) {
        while let Some(transmit) = self.associations[at].poll_transmit(now()) {
            self.wire.send_from(address(at), self.server, &transmit.datagram);
        }
    }

    fn connect(&mut self, config: &Arc<ClientConfig>) {
        let mut open = Vec::new();
        let mut checked = Instant::now();
        while self.associations.len() < ASSOCIATIONS || !open.is_empty() {
            while open.len() < HANDSHAKES && self.associations.len() < ASSOCIATIONS {
                open.push(self.associations.len());
                let client = DtlsConnection::client(config, localhost(), self.server, now()).unwrap();
                self.associations.push(client);
                self.flush(self.associations.len() - 1);
            }
            let mut got = Vec::new();
            self.wire.receive(|_, to, datagram| {
                got.push(index(to));
                self.associations[index(to)].receive(now(), self.server, datagram).unwrap();
            });
            got.into_iter().for_each(|at| self.flush(at));
            open.retain(|at| self.associations[*at].is_handshaking());
            if checked.elapsed() > Duration::from_millis(100) {
                checked = Instant::now();
                for at in open.clone() {
                    self.associations[at].handle_timeout(now()).unwrap();
                    self.flush(at);
                }
            }
        }
    }

    /// Seals the records of an interval, in the order in which they leave. Returns their length.
    fn seal(&mut self) -> usize {
        self.sealed.clear();
        let now = now();
        for at in (0..RECORDS).flat_map(|_| 0..ASSOCIATIONS) {
            let association = &mut self.associations[at];
            association.send(&DATA).unwrap();
            while let Some(transmit) = association.poll_transmit(now) {
                self.sealed.extend(transmit.datagram);
            }
        }
        let len = self.sealed.len() / (RECORDS * ASSOCIATIONS);
        assert_eq!(
            self.sealed.len(),
            len * RECORDS * ASSOCIATIONS,
            "records of equal length, and nothing else"
        );
        len
    }

    /// Sends these records, and receives the echoes. Returns the time from the first record to the last echo.
    fn exchange(&mut self, len: usize) -> Duration {
        let begin = Instant::now();
        let mut last = begin;
        let mut away = 0;
        let mut records = self.sealed.chunks(len).enumerate();
        self.echoes.clear();
        self.received.clear();
        while self.echoes.len() < RECORDS * ASSOCIATIONS {
            for (n, record) in records.by_ref().take(WINDOW - away) {
                self.wire.send_from(address(n % ASSOCIATIONS), self.server, record);
                away += 1;
            }
            let has_received = self.wire.receive(|_, to, datagram| {
                self.received.extend_from_slice(datagram);
                self.echoes.push((index(to), self.received.len()));
                away = away.saturating_sub(1);
            });
            if has_received {
                last = Instant::now();
            } else if last.elapsed() > PATIENCE {
                // The records on the way are lost.
                away = 0;
                if records.len() == 0 {
                    break;
                }
            }
        }
        last - begin
    }

    /// Opens the echoes. Returns how many have the data.
    fn open(&mut self) -> usize {
        let now = now();
        let mut begin = 0;
        let mut opened = 0;
        for (at, end) in &self.echoes {
            let association = &mut self.associations[*at];
            association.receive(now, self.server, &self.received[begin..*end]).unwrap();
            begin = *end;
            while let Some(data) = association.read() {
                assert_eq!(data, DATA);
                opened += 1;
            }
        }
        opened
    }
}

/// Connects to the server with this port and process. Prints the records in a second, the server's
/// microseconds for each, and the kB of its memory for an association.
pub(crate) fn load(port: &str, server: &str, has_ids: bool) {
    let mut config = ClientConfig::new(profile()).with_psks(vec![Arc::new(psk())]);
    if has_ids {
        config = config.with_connection_ids(ids());
    }
    let mut client = Client::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port.parse().unwrap()));
    let empty = resident(server);
    client.connect(&Arc::new(config));
    let mut time = Duration::ZERO;
    let mut ticks = 0.0;
    let mut echoes = 0;
    let mut sent = 0;
    let mut is_warm = false;
    while time < TIME {
        let len = client.seal();
        let before = processor_ticks(server);
        let interval = client.exchange(len);
        let after = processor_ticks(server);
        let opened = client.open();
        if std::mem::replace(&mut is_warm, true) {
            time += interval;
            ticks += after - before;
            echoes += opened;
            sent += RECORDS * ASSOCIATIONS;
        }
    }
    if echoes < sent {
        eprintln!("{} of {sent} records were lost", sent - echoes);
    }
    let rate = echoes as f64 / time.as_secs_f64();
    // USER_HZ is 100 on Linux.
    let cost = ticks * 10_000.0 / echoes as f64;
    println!("{rate} {cost} {}", (resident(server) - empty) / ASSOCIATIONS as f64);
}

/// The resident memory of a process, in kB.
fn resident(process: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The processor time of a process so far, in ticks of the kernel's clock.
fn processor_ticks(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
}
