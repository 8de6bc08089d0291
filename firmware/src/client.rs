//! The client that all programs share: a handshake, a line sent and received, the end.

use alloc::sync::Arc;

use dunlin::crypto::SecureRandom;
use dunlin::{ClientConfig, Error, Now, ServerAddress, TlsConnection};

use crate::board::{self, Uart};
use crate::parameters::Parameters;
use crate::random::SimulationRandom;

/// The name that the server's certificate has to be for.
const SERVER: &str = "localhost";
const LINE: &[u8] = b"21.5 degrees in the greenhouse, and it travels light.\n";

/// Runs the program with the configuration that `configure` makes of the parameters and the source of randomness.
pub fn run(configure: fn(&mut Parameters, Arc<dyn SecureRandom>) -> Result<ClientConfig, Error>) -> ! {
    board::start_heap();
    let mut parameters = Parameters::open();
    let random = Arc::new(SimulationRandom::new(parameters.bytes()));
    let now = parameters.now();
    let Ok(config) = configure(&mut parameters, random) else { board::fail("configuration") };
    let Ok(address) = ServerAddress::parse(SERVER, 0) else { board::fail("address") };
    let Ok(connection) = TlsConnection::client(&Arc::new(config), address, now) else { board::fail("start") };
    let mut client = Client { connection, network: Uart::network(), now };
    match client.exchange() {
        Ok(true) => board::succeed(),
        Ok(false) => board::fail("the echo differs"),
        Err(_) => {
            // The alert: the server's log has the reason.
            client.flush();
            board::fail("connection")
        }
    }
}

struct Client {
    connection: TlsConnection,
    network: Uart,
    now: Now,
}

impl Client {
    /// The whole connection; whether the line came back as it was.
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

    /// Sends what there is and takes in a byte.
    fn step(&mut self) -> Result<(), Error> {
        self.flush();
        let byte = self.network.read();
        self.connection.receive(self.now, &[byte])?;
        // Without questions, events tell nothing that the connection does not.
        while self.connection.poll_event().is_some() {}
        Ok(())
    }

    fn flush(&mut self) {
        self.network.write(self.connection.transmit());
        self.connection.transmitted(self.connection.transmit().len());
    }
}
