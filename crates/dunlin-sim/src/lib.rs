//! A virtual network: endpoints that exchange datagrams or streams over links, in virtual time.
//!
//! Nothing here waits or looks at a clock: time passes only from one arrival to the next, so a simulated minute
//! takes no longer than the work that is done in it. With endpoints that take their randomness from
//! [`SeededRandom`], everything that happens follows from the seed.
//!
//! A [`Pair`] exchanges datagrams, a [`TcpPair`] streams over a TCP that sends what Linux would; both are a
//! [`Simulation`], of which a [`Fleet`] runs many. A [`Link`] says what becomes of packets ([`Impaired`]: delay, rate,
//! loss and what else happens), and a [`Medium`] what they cost on Ethernet, 802.15.4, LoRaWAN and NB-IoT.
#![forbid(unsafe_code)]

mod fleet;
mod link;
mod medium;
mod pair;
mod random;
mod tcp;
mod tls;

use dunlin::{DtlsConnection, Now};

pub use fleet::{Fleet, Simulation};
pub use link::{Conditions, Delay, Impaired, Link};
pub use medium::{Cost, Headers, LoRaDataRate, Medium};
pub use pair::{Pair, Sent, Unsettled};
pub use random::SeededRandom;
pub use tcp::{StreamEndpoint, TcpOptions, TcpPair};
pub use tls::{Application, Reply, TlsPeer};

/// One end of a path: it takes datagrams and has others to send.
pub trait Endpoint {
    /// Takes a datagram. What goes wrong is for the endpoint to keep, and for its owner to ask.
    fn receive(&mut self, now: Now, datagram: &[u8]);

    /// The next datagram to send.
    fn poll_transmit(&mut self, now: Now) -> Option<Vec<u8>>;
}

/// Its error is in [`DtlsConnection::error`].
impl Endpoint for DtlsConnection {
    fn receive(&mut self, now: Now, datagram: &[u8]) {
        let _ = Self::receive(self, now, datagram);
    }

    fn poll_transmit(&mut self, _: Now) -> Option<Vec<u8>> {
        Self::poll_transmit(self)
    }
}
