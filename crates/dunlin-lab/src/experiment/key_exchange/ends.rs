//! One side of a handshake in memory, over any transport.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dunlin::{DtlsConnection, Now, TlsConnection};

/// One side over any transport.
pub(super) trait End {
    /// Takes the output, in pieces that stay together.
    fn flight(&mut self, now: Now) -> Vec<Vec<u8>>;
    fn receive(&mut self, now: Now, piece: &[u8]) -> Result<(), dunlin::Error>;
    fn is_connected(&self) -> bool;
}

impl End for TlsConnection {
    fn flight(&mut self, _: Now) -> Vec<Vec<u8>> {
        let bytes = self.transmit().to_vec();
        self.transmitted(bytes.len());
        vec![bytes]
    }

    fn receive(&mut self, now: Now, piece: &[u8]) -> Result<(), dunlin::Error> {
        self.receive(now, piece).map(drop)
    }

    fn is_connected(&self) -> bool {
        self.negotiated().is_some()
    }
}

/// The address of both sides, which never leave this process.
pub(super) const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4433);

impl End for DtlsConnection {
    fn flight(&mut self, now: Now) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.poll_transmit(now)).map(|transmit| transmit.datagram).collect()
    }

    fn receive(&mut self, now: Now, piece: &[u8]) -> Result<(), dunlin::Error> {
        self.receive(now, ADDRESS, piece)
    }

    fn is_connected(&self) -> bool {
        self.negotiated().is_some()
    }
}
