//! Return routability checks (RFC 9853). An independent decoder reads the messages.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dunlin::{DtlsConnection, Event, Local, Migration, Now, Path, PathCheck, Side};
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_tests::tamper::Secrets;
use dunlin_tests::{NOW, localhost};

use crate::decoder::{configs, decode};

/// The client's first interface and address, and its second one.
const FIRST: (Local, SocketAddr) = (Local(0), CLIENT_ADDRESS);
const SECOND: (Local, SocketAddr) =
    (Local(1), SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 7)), 40_001));

/// A client with two interfaces, and a server with one.
struct Ends {
    client: DtlsConnection,
    server: DtlsConnection,
    now: Now,
    /// The interfaces that have lost their network.
    dead: Vec<Local>,
    sent: Vec<(Side, Vec<u8>)>,
    secrets: Arc<Secrets>,
}

impl Ends {
    /// Both sides after a handshake over the first interface.
    fn new(of_client: Migration, of_server: Migration) -> Self {
        let secrets = Arc::new(Secrets::default());
        let (client, _) = configs(&secrets, of_client);
        let (_, server) = configs(&secrets, of_server);
        let client = DtlsConnection::client(&client, localhost(), SERVER_ADDRESS, NOW).unwrap();
        let server = DtlsConnection::server(&server, CLIENT_ADDRESS, NOW);
        let mut ends = Self { client, server, now: NOW, dead: Vec::new(), sent: Vec::new(), secrets };
        ends.exchange();
        assert!(!ends.client.is_handshaking() && !ends.server.is_handshaking());
        ends.sent.clear();
        ends
    }

    /// Delivers datagrams until both sides are silent.
    fn exchange(&mut self) {
        loop {
            let from_client = self.client.poll_transmit(self.now);
            let from_server = self.server.poll_transmit(self.now);
            if from_client.is_none() && from_server.is_none() {
                break;
            }
            if let Some(transmit) = from_client {
                self.sent.push((Side::Client, transmit.datagram.clone()));
                let (_, from) =
                    [FIRST, SECOND].into_iter().find(|(local, _)| *local == transmit.local).unwrap();
                if !self.dead.contains(&transmit.local) {
                    self.server.receive(self.now, from, &transmit.datagram).unwrap();
                }
            }
            if let Some(transmit) = from_server {
                self.sent.push((Side::Server, transmit.datagram.clone()));
                let to = [FIRST, SECOND].into_iter().find(|(_, address)| *address == transmit.to);
                if let Some((local, _)) = to.filter(|(local, _)| !self.dead.contains(local)) {
                    let path = Path { local, ..SERVER_ADDRESS.into() };
                    self.client.receive(self.now, path, &transmit.datagram).unwrap();
                }
            }
        }
    }

    /// Lets time pass until both sides have no timer.
    fn wait(&mut self) {
        while let Some(deadline) =
            [self.client.poll_timeout(), self.server.poll_timeout()].into_iter().flatten().min()
        {
            let pause = deadline.since(self.now.monotonic);
            self.now.monotonic = deadline;
            self.now.unix_ms += u64::try_from(pause.as_millis()).unwrap();
            self.client.handle_timeout(self.now).unwrap();
            self.server.handle_timeout(self.now).unwrap();
            self.exchange();
        }
    }

    /// The client's data, and whether the server has moved.
    fn at_server(&mut self) -> (Vec<u8>, Option<SocketAddr>) {
        let data = std::iter::from_fn(|| self.server.read()).flatten().collect();
        let moved = std::iter::from_fn(|| self.server.poll_event()).find_map(|event| match event {
            Event::PeerMoved(address) => Some(address),
            _ => None,
        });
        (data, moved)
    }

    /// Sender and name of each message that the independent decoder reads.
    fn names(&self) -> Vec<String> {
        let name = |line: String| {
            let parts: Vec<_> = line.split(' ').collect();
            format!("{} {}", parts[0], parts[2])
        };
        decode(&self.secrets, &self.sent).into_iter().map(name).collect()
    }
}

fn checked(check: PathCheck) -> Migration {
    Migration::new(check).with_timeout(Duration::from_millis(300)).unwrap()
}

/// RFC 9853 §5.4: the answer to a challenge "MUST" be sent.
#[test]
fn answers_a_challenge_although_much_data_waits() {
    let mut ends = Ends::new(checked(PathCheck::Basic), checked(PathCheck::Basic));
    ends.client.set_local(SECOND.0);
    ends.client.send(b"moved").unwrap();
    let moved = ends.client.poll_transmit(ends.now).unwrap();
    ends.server.receive(ends.now, SECOND.1, &moved.datagram).unwrap();
    let challenge = ends.server.poll_transmit(ends.now).unwrap();
    while ends.client.send(b"more").is_ok() {}
    let path = Path { local: SECOND.0, ..SERVER_ADDRESS.into() };
    ends.client.receive(ends.now, path, &challenge.datagram).unwrap();
    ends.exchange();
    assert_eq!(ends.at_server().1, Some(SECOND.1));
}

#[test]
fn a_client_that_leaves_a_live_path_says_so() {
    let mut ends = Ends::new(checked(PathCheck::Enhanced), checked(PathCheck::Enhanced));
    ends.client.set_local(SECOND.0);
    ends.client.send(b"moved").unwrap();
    ends.exchange();
    assert_eq!(ends.at_server(), (b"moved".to_vec(), Some(SECOND.1)));
    let expected = [
        "client data",
        "server path_challenge",
        "client path_drop",
        "server path_challenge",
        "client path_response",
    ];
    assert_eq!(ends.names(), expected);
    assert_eq!((ends.server.peer_address(), ends.server.poll_timeout()), (SECOND.1, None));
    ends.server.send(b"welcome").unwrap();
    assert_eq!(ends.server.poll_transmit(ends.now).unwrap().to, SECOND.1);
}

#[test]
fn a_client_whose_path_is_dead_moves_after_the_timeout() {
    let mut ends = Ends::new(checked(PathCheck::Enhanced), checked(PathCheck::Enhanced));
    ends.dead.push(FIRST.0);
    ends.client.set_local(SECOND.0);
    ends.client.send(b"moved").unwrap();
    ends.exchange();
    assert_eq!(ends.at_server(), (b"moved".to_vec(), None));
    // An answer reaches the client meanwhile, within the limit of amplification.
    ends.server.send(b"answer").unwrap();
    ends.exchange();
    assert_eq!(ends.client.read().as_deref(), Some(&b"answer"[..]));
    ends.wait();
    assert_eq!(ends.at_server(), (vec![], Some(SECOND.1)));
    assert_eq!(ends.server.path_checks().moved, 1);
}

#[test]
fn the_basic_check_takes_one_challenge() {
    let mut ends = Ends::new(checked(PathCheck::Basic), checked(PathCheck::Basic));
    ends.client.set_local(SECOND.0);
    ends.client.send(b"moved").unwrap();
    ends.exchange();
    assert_eq!(ends.at_server(), (b"moved".to_vec(), Some(SECOND.1)));
    assert_eq!(ends.names(), ["client data", "server path_challenge", "client path_response"]);
}

#[test]
fn a_forwarded_record_does_not_move_a_client_that_has_stayed() {
    let attacker: SocketAddr = ([203, 0, 113, 66], 666).into();
    let mut ends = Ends::new(checked(PathCheck::Enhanced), checked(PathCheck::Enhanced));
    ends.client.send(b"copied").unwrap();
    let record = ends.client.poll_transmit(ends.now).unwrap().datagram;
    // The copy is faster than the record itself, which then counts as a replay.
    ends.server.receive(ends.now, attacker, &record).unwrap();
    ends.server.receive(ends.now, FIRST.1, &record).unwrap();
    ends.sent.push((Side::Client, record));
    ends.exchange();
    assert_eq!(ends.at_server(), (b"copied".to_vec(), None));
    assert_eq!((ends.server.peer_address(), ends.server.path_checks().stayed), (FIRST.1, 1));
    assert_eq!(ends.names(), ["client data", "server path_challenge", "client path_response"]);
}

#[test]
fn a_victim_gets_at_most_three_times_the_bytes_of_a_forwarded_record() {
    for check in [PathCheck::Basic, PathCheck::Enhanced] {
        let victim: SocketAddr = ([203, 0, 113, 66], 666).into();
        let mut ends = Ends::new(checked(check), checked(check));
        // The attacker is on the path and lets nothing else through.
        ends.client.send(b"GET /large").unwrap();
        let record = ends.client.poll_transmit(ends.now).unwrap().datagram;
        ends.server.receive(ends.now, victim, &record).unwrap();
        let mut bytes = 0;
        for _ in 0..20 {
            ends.server.send(&[7; 40]).unwrap();
            if let Some(deadline) = ends.server.poll_timeout() {
                ends.now.monotonic = deadline;
                ends.server.handle_timeout(ends.now).unwrap();
            }
            while let Some(transmit) = ends.server.poll_transmit(ends.now) {
                bytes += if transmit.to == victim { transmit.datagram.len() } else { 0 };
            }
        }
        assert!(bytes > 0 && bytes <= 3 * record.len(), "{check:?}: {bytes} of {}", record.len());
        assert_eq!((ends.server.peer_address(), ends.server.path_checks().failed), (FIRST.1, 1));
    }
}

#[test]
fn stays_at_the_address_of_a_peer_that_takes_part_in_no_checks() {
    for (server, moved) in
        [(Migration::default(), None), (Migration::default().with_unchecked(true), Some(SECOND.1))]
    {
        let mut ends = Ends::new(Migration::never(), server);
        ends.client.set_local(SECOND.0);
        ends.client.send(b"moved").unwrap();
        ends.exchange();
        assert_eq!(ends.at_server(), (b"moved".to_vec(), moved));
        assert_eq!(ends.names(), ["client data"]);
    }
}

#[test]
fn a_replayed_record_from_another_address_begins_no_check() {
    let mut ends = Ends::new(checked(PathCheck::Basic), checked(PathCheck::Basic));
    ends.client.send(b"one").unwrap();
    let one = ends.client.poll_transmit(ends.now).unwrap().datagram;
    ends.client.send(b"two").unwrap();
    let two = ends.client.poll_transmit(ends.now).unwrap().datagram;
    ends.server.receive(ends.now, FIRST.1, &two).unwrap();
    // Older than the newest, and then a copy.
    ends.server.receive(ends.now, SECOND.1, &one).unwrap();
    ends.server.receive(ends.now, SECOND.1, &two).unwrap();
    assert_eq!((ends.server.path_checks().begun, ends.server.discarded().replayed), (0, 1));
    assert!(ends.server.poll_transmit(ends.now).is_none());
}
