//! A host between clients and a server, which forwards datagrams, loses them, and copies them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The relay's treatment of the datagrams of clients.
#[derive(Default)]
struct Plan {
    /// The clients whose datagrams, and those for them, are lost.
    lost: Vec<IpAddr>,
    /// Whether a copy of each datagram from a client reaches the server first, from the attacker's address.
    is_copied: bool,
    /// The datagrams of clients so far.
    seen: Vec<Vec<u8>>,
    is_over: bool,
}

/// Forwards between clients and a server. The server sees a socket of its own for each address of a client.
pub(crate) struct Relay {
    plan: Arc<Mutex<Plan>>,
    socket: UdpSocket,
    /// The attacker's address, which the server may take for a client's.
    attacker: Arc<UdpSocket>,
}

fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    socket
}

impl Relay {
    pub(crate) fn new() -> Self {
        let attacker = socket("127.0.0.66");
        attacker.set_nonblocking(true).unwrap();
        Self { plan: Arc::default(), socket: socket("127.0.0.1"), attacker: Arc::new(attacker) }
    }

    /// Begins to forward to this server. Returns the address for clients.
    pub(crate) fn begin(&self, server: SocketAddr) -> SocketAddr {
        let inner = self.socket.try_clone().unwrap();
        let plan = Arc::clone(&self.plan);
        let attacker = Arc::clone(&self.attacker);
        thread::spawn(move || {
            let mut outer: BTreeMap<SocketAddr, UdpSocket> = BTreeMap::new();
            let mut buffer = [0; 65_536];
            while !plan.lock().unwrap().is_over {
                while let Ok((len, from)) = inner.recv_from(&mut buffer) {
                    let is_copied = {
                        let mut plan = plan.lock().unwrap();
                        if plan.lost.contains(&from.ip()) {
                            continue;
                        }
                        plan.seen.push(buffer[..len].to_vec());
                        plan.is_copied
                    };
                    if is_copied {
                        attacker.send_to(&buffer[..len], server).unwrap();
                    }
                    let out = outer.entry(from).or_insert_with(|| {
                        let out = socket("127.0.0.1");
                        out.set_nonblocking(true).unwrap();
                        out
                    });
                    out.send_to(&buffer[..len], server).unwrap();
                }
                for (client, out) in &outer {
                    while let Ok(len) = out.recv(&mut buffer) {
                        if !plan.lock().unwrap().lost.contains(&client.ip()) {
                            inner.send_to(&buffer[..len], client).unwrap();
                        }
                    }
                }
            }
        });
        self.socket.local_addr().unwrap()
    }

    /// Loses everything from and for clients at this address.
    pub(crate) fn lose(&self, client: IpAddr) {
        self.plan.lock().unwrap().lost.push(client);
    }

    /// Lets copies of the clients' datagrams reach the server first, from the attacker's address, or no more.
    pub(crate) fn copy(&self, on: bool) {
        self.plan.lock().unwrap().is_copied = on;
    }

    /// The datagrams of clients so far.
    pub(crate) fn seen(&self) -> Vec<Vec<u8>> {
        self.plan.lock().unwrap().seen.clone()
    }

    pub(crate) fn attacker(&self) -> &UdpSocket {
        &self.attacker
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.plan.lock().unwrap().is_over = true;
    }
}
