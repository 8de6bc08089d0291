//! The client that all programs share: it completes a handshake, sends and receives a line, and closes.

use alloc::boxed::Box;
use alloc::sync::Arc;

use dunlin::crypto::SecureRandom;
use dunlin::error::Misuse;
use dunlin::pki_types::{DnsName, ServerName};
use dunlin::{ClientConfig, Error, Now, ServerAddress, TlsConnection};

use crate::board::{self, Uart};
use crate::parameters::Parameters;
use crate::random::SimulationRandom;

/// The name that the server's certificate must have.
const SERVER: &str = "localhost";
const LINE: &[u8] = b"21.5 degrees in the greenhouse, and it travels light.\n";

/// Runs the program with the configuration that `configure` makes.
#[inline(always)]
pub fn run(configure: Configure) -> ! {
    run_and_report(configure, |_| ())
}

/// As [`run`], but calls `report` after the connection.
pub fn run_and_report(configure: Configure, report: fn(&TlsConnection)) -> ! {
    board::start_heap();
    let Ok(mut client) = Client::new(configure) else { board::fail("configuration") };
    match client.exchange() {
        Ok(true) => {
            report(&client.connection);
            board::succeed()
        }
        Ok(false) => board::fail("the echo differs"),
        Err(_) => {
            // Send the alert, so that the server's log has the reason.
            client.flush();
            board::fail("connection")
        }
    }
}

/// A function that makes the configuration from the parameters and a random source.
pub type Configure = fn(&mut Parameters, Arc<dyn SecureRandom>) -> Result<ClientConfig, Error>;

struct Client {
    connection: Box<TlsConnection>,
    network: Uart,
    now: Now,
}

impl Client {
    /// Not inlined, so that its stack frame is gone when the handshake begins.
    #[inline(never)]
    fn new(configure: Configure) -> Result<Self, Error> {
        let mut parameters = Parameters::open();
        let random = Arc::new(SimulationRandom::new(parameters.bytes()));
        let now = parameters.now();
        let config = Arc::new(configure(&mut parameters, random)?);
        let name = DnsName::try_from(SERVER).map_err(|_| Misuse::Config("the name".into()))?;
        let address = ServerAddress::new(ServerName::DnsName(name), 0);
        let connection = Box::new(TlsConnection::client(&config, address, now)?);
        Ok(Self { connection, network: Uart::network(), now })
    }

    // ANCHOR: exchange
    /// Runs the whole connection. Returns whether the server echoed the line unchanged.
    fn exchange(&mut self) -> Result<bool, Error> {
        while self.connection.is_handshaking() {
            self.step()?;
        }
        self.connection.send(LINE)?;
        while self.connection.received().len() < LINE.len() {
            self.step()?;
        }
        let same = self.connection.received() == LINE;
        self.connection.consume(self.now, LINE.len())?;
        self.connection.close();
        while !self.connection.peer_has_closed() {
            self.step()?;
        }
        Ok(same)
    }

    /// Sends all output and receives a byte.
    fn step(&mut self) -> Result<(), Error> {
        self.flush();
        let byte = self.network.read();
        self.connection.receive(self.now, &[byte])?;
        // Without questions, the events can be ignored.
        while self.connection.poll_event().is_some() {}
        Ok(())
    }

    fn flush(&mut self) {
        self.network.write(self.connection.transmit());
        self.connection.transmitted(self.connection.transmit().len());
    }
    // ANCHOR_END: exchange
}
