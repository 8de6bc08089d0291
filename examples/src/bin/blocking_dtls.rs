//! Many DTLS associations on one blocking socket of the standard library, without tokio: one thread for the
//! server, one for the client.
//!
//! Run it: `cargo run -p dunlin-examples --bin blocking_dtls`
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin::{
    AssociationId, ClientAuth, ClientConfig, Endpoint, EndpointEvent, EndpointLimits, Now, ServerAddress,
    ServerConfig, Side,
};
use dunlin_examples::DemoFiles;

/// An endpoint and its socket.
struct BlockingEndpoint {
    endpoint: Endpoint,
    socket: UdpSocket,
}

impl BlockingEndpoint {
    fn new(socket: UdpSocket) -> Self {
        Self { endpoint: Endpoint::new(EndpointLimits::default()), socket }
    }

    /// Sends the pending datagrams, then receives a datagram or handles the timers, whichever comes first.
    fn step(&mut self) -> Result<(), Box<dyn Error>> {
        self.send_output()?;
        // A read timeout of zero would wait for ever.
        let timer = self.endpoint.poll_timeout();
        let timer = timer.map(|at| Ok::<_, Box<dyn Error>>(at.since(now()?.monotonic))).transpose()?;
        self.socket.set_read_timeout(timer.map(|timer| timer.max(Duration::from_millis(1))))?;
        let mut datagram = [0; 65_536];
        match self.socket.recv_from(&mut datagram) {
            Ok((length, from)) => self.endpoint.receive(now()?, from, &datagram[..length]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                self.endpoint.handle_timeout(now()?);
            }
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    fn send_output(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some(transmit) = self.endpoint.poll_transmit(now()?) {
            self.socket.send_to(&transmit.datagram, transmit.to)?;
        }
        Ok(())
    }

    /// The data of the next record, if there is one. The first error ends the program.
    fn read(&mut self, id: AssociationId) -> Result<Option<Vec<u8>>, Box<dyn Error>> {
        let read = self.endpoint.update(id, |connection| (connection.read(), connection.error().cloned()));
        match read {
            Some((None, Some(error))) => Err(error.into()),
            Some((data, _)) => Ok(data),
            None => Ok(None),
        }
    }
}

/// The current time. The engine has no clock, so its caller passes the time.
fn now() -> Result<Now, Box<dyn Error>> {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(Now::from_unix_ms(u64::try_from(unix.as_millis())?))
}

/// Answers the first record of each client in capitals, until `clients` have closed.
fn serve(socket: UdpSocket, config: ServerConfig, clients: usize) -> Result<(), Box<dyn Error>> {
    let mut server = BlockingEndpoint::new(socket);
    server.endpoint.set_server(Some(Arc::new(config)));
    let mut closed = 0;
    while closed < clients {
        server.step()?;
        while let Some(event) = server.endpoint.poll_event() {
            let EndpointEvent::Changed(id) = event else { continue };
            while let Some(data) = server.read(id)? {
                let answer = data.to_ascii_uppercase();
                server.endpoint.update(id, |connection| connection.send(&answer)).transpose()?;
            }
            let connection = server.endpoint.association(id).map(|association| association.connection());
            if connection.is_some_and(|connection| connection.peer_has_closed()) {
                server.endpoint.remove(now()?, id);
                closed += 1;
            }
        }
    }
    server.send_output()
}

fn main() -> Result<(), Box<dyn Error>> {
    let files = DemoFiles::new()?;
    let config = ServerConfig::new(files.profile(Side::Server)?)?.with_client_auth(ClientAuth::Required)?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let address = socket.local_addr()?;
    let server = thread::spawn(move || serve(socket, config, 2).map_err(|error| error.to_string()));

    let config = Arc::new(ClientConfig::new(files.profile(Side::Client)?));
    for word in ["hello", "goodbye"] {
        let mut client = BlockingEndpoint::new(UdpSocket::bind("127.0.0.1:0")?);
        let name = ServerAddress::parse("localhost", address.port())?;
        let id = client.endpoint.connect(&config, name, address, now()?)?;
        let mut asked = false;
        let answer = loop {
            client.step()?;
            if let Some(answer) = client.read(id)? {
                break answer;
            }
            let association = client.endpoint.association(id).ok_or("no association")?;
            if !asked && association.connection().negotiated().is_some() {
                asked = true;
                client.endpoint.update(id, |connection| connection.send(word.as_bytes())).transpose()?;
            }
        };
        println!("client: the answer is {}", String::from_utf8(answer)?);
        client.endpoint.remove(now()?, id);
        client.send_output()?;
    }
    server.join().map_err(|_| "the server's thread panicked")??;
    Ok(())
}
