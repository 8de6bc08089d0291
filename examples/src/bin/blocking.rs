//! The engine over blocking sockets of the standard library, without tokio: one thread for the server, one
//! for the client.
//!
//! Run it: `cargo run -p dunlin-examples --bin blocking`
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin::{ClientAuth, ClientConfig, Now, ServerAddress, ServerConfig, Side, TlsConnection};
use dunlin_examples::DemoFiles;

/// A connection and its socket.
struct BlockingTls {
    connection: TlsConnection,
    tcp: TcpStream,
    /// The peer's bytes that the connection has not taken yet.
    waiting: Vec<u8>,
}

impl BlockingTls {
    /// Runs the handshake to its end.
    fn new(connection: TlsConnection, tcp: TcpStream) -> Result<Self, Box<dyn Error>> {
        let mut tls = Self { connection, tcp, waiting: Vec::new() };
        while tls.connection.is_handshaking() {
            tls.receive()?;
        }
        tls.send_output()?;
        Ok(tls)
    }

    /// Sends the connection's pending output.
    fn send_output(&mut self) -> Result<(), Box<dyn Error>> {
        while !self.connection.transmit().is_empty() {
            let sent = self.tcp.write(self.connection.transmit())?;
            self.connection.transmitted(sent);
        }
        Ok(())
    }

    /// Passes the peer's bytes to the connection, and waits for some if there are none.
    fn receive(&mut self) -> Result<(), Box<dyn Error>> {
        self.send_output()?;
        if self.waiting.is_empty() {
            let mut bytes = [0; 4096];
            let length = self.tcp.read(&mut bytes)?;
            self.waiting.extend_from_slice(&bytes[..length]);
        }
        let result = if self.waiting.is_empty() {
            self.connection.receive_end()
        } else {
            self.connection.receive(now()?, &self.waiting).map(|taken| drop(self.waiting.drain(..taken)))
        };
        // After an error, the output may contain an alert that tells the peer why.
        self.send_output()?;
        // This example needs no event: there are no questions, and `is_handshaking` and `peer_has_closed`
        // tell the rest.
        while self.connection.poll_event().is_some() {}
        Ok(result?)
    }

    fn write(&mut self, data: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut data = data;
        while !data.is_empty() {
            let taken = self.connection.send(data)?;
            data = &data[taken..];
            self.send_output()?;
        }
        Ok(())
    }

    /// Reads until the peer closes its direction.
    fn read_to_end(&mut self) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut data = Vec::new();
        loop {
            let received = self.connection.received();
            data.extend_from_slice(received);
            let length = received.len();
            self.connection.consume(now()?, length)?;
            if length == 0 {
                if self.connection.peer_has_closed() {
                    return Ok(data);
                }
                self.receive()?;
            }
        }
    }

    /// Closes this direction.
    fn close(&mut self) -> Result<(), Box<dyn Error>> {
        self.connection.close();
        self.send_output()
    }
}

/// The current time. The engine has no clock, so its caller passes the time.
fn now() -> Result<Now, Box<dyn Error>> {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(Now::from_unix_ms(u64::try_from(unix.as_millis())?))
}

fn main() -> Result<(), Box<dyn Error>> {
    let files = DemoFiles::new()?;
    let server = ServerConfig::new(files.profile(Side::Server)?)?.with_client_auth(ClientAuth::Required)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let serve = move || -> Result<(), Box<dyn Error>> {
        let (tcp, _) = listener.accept()?;
        let mut tls = BlockingTls::new(TlsConnection::server(&Arc::new(server), now()?), tcp)?;
        let peer = tls.connection.negotiated().and_then(|negotiated| negotiated.peer.as_ref());
        println!("server: the client is {}", peer.map_or("anonymous".to_owned(), ToString::to_string));
        let request = tls.read_to_end()?;
        tls.write(&request.to_ascii_uppercase())?;
        tls.close()
    };
    let server = thread::spawn(move || serve().map_err(|error| error.to_string()));

    let client = Arc::new(ClientConfig::new(files.profile(Side::Client)?));
    let name = ServerAddress::parse("localhost", address.port())?;
    let mut tls =
        BlockingTls::new(TlsConnection::client(&client, name, now()?)?, TcpStream::connect(address)?)?;
    tls.write(b"hello")?;
    tls.close()?;
    println!("client: the answer is {}", String::from_utf8(tls.read_to_end()?)?);
    server.join().map_err(|_| "the server's thread panicked")??;
    Ok(())
}
