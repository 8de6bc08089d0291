//! A UDP socket without DTLS, as a gateway or tunnel needs one for local programs.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use dunlin::{Path, Transmit};
use tokio::net::UdpSocket;

use super::socket::{Buffers, Socket};

/// A UDP socket for plain datagrams that answers from the address that was asked, also if it is bound to all
/// addresses of the machine.
///
/// Otherwise, the system chooses the source of an answer, and a program that has asked another address of the
/// machine drops it.
pub struct PlainSocket(Socket);

/// The memory for the datagrams that one call receives.
pub struct PlainBuffers(Buffers);

impl PlainBuffers {
    /// Memory that the system provides as far as it is used.
    pub fn new() -> Self {
        Self(Buffers::new())
    }
}

impl Default for PlainBuffers {
    fn default() -> Self {
        Self::new()
    }
}

impl PlainSocket {
    /// Takes over this socket.
    ///
    /// # Errors
    /// The system cannot tell which addresses were asked, or the socket has no address.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        Socket::new(socket).map(Self)
    }

    /// The socket's address.
    ///
    /// # Errors
    /// It has none.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Waits for datagrams, and calls `f` for each that one system call gives. Only one task may receive. The
    /// caller can drop the future without loss.
    ///
    /// # Errors
    /// The system cannot receive, for example for lack of memory.
    pub async fn receive(
        &self,
        buffers: &mut PlainBuffers,
        mut f: impl FnMut(Path, &[u8]),
    ) -> io::Result<()> {
        loop {
            poll_fn(|cx| self.0.poll_readable(cx)).await;
            match self.0.receive(&mut buffers.0, &mut f) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received.map(drop),
            }
        }
    }

    /// Sends a datagram back over the path of another one. Any number of tasks may send.
    ///
    /// # Errors
    /// The system cannot send it.
    pub async fn send(&self, datagram: Vec<u8>, over: Path) -> io::Result<()> {
        let transmit = Transmit { local: over.local, source: over.source, to: over.peer, datagram };
        loop {
            self.0.writable().await?;
            match self.0.send(std::slice::from_ref(&transmit)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return sent.map(drop),
            }
        }
    }
}

impl fmt::Debug for PlainBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainBuffers").finish_non_exhaustive()
    }
}

impl fmt::Debug for PlainSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainSocket").field("local_addr", &self.local_addr().ok()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[tokio::test]
    async fn answers_from_the_address_that_was_asked() {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        for listen in ["0.0.0.0:0", "[::]:0"] {
            let socket = PlainSocket::new(UdpSocket::bind(listen).await.unwrap()).unwrap();
            let port = socket.local_addr().unwrap().port();
            for host in ["127.0.0.1", "127.0.0.2"] {
                let asked = SocketAddr::new(host.parse::<IpAddr>().unwrap(), port);
                client.send_to(b"question", asked).await.unwrap();
                let mut paths = vec![];
                let note = |path, datagram: &[u8]| paths.push((path, datagram.to_vec()));
                socket.receive(&mut PlainBuffers::new(), note).await.unwrap();
                let (path, question) = paths.pop().unwrap();
                assert_eq!((path.peer, &*question), (client.local_addr().unwrap(), &b"question"[..]));
                socket.send(b"answer".to_vec(), path).await.unwrap();
                let mut answer = [0; 16];
                let (len, from) = client.recv_from(&mut answer).await.unwrap();
                assert_eq!((&answer[..len], from), (&b"answer"[..], asked), "{listen}");
            }
        }
    }
}
