//! The connection to the runner.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpStream};

use crate::options::Options;

/// The largest number of bytes to read at once.
const READ: usize = 16 * 1024;

/// A stream to the runner. It is closed in a way that lets the last written bytes arrive.
pub(crate) struct Transport {
    socket: TcpStream,
    /// Give the engine one byte at a time, to expose code that depends on larger pieces.
    bytewise: bool,
    /// Whether a write failed because the runner has closed. The error is ignored: the runner's alert says more.
    deaf: bool,
}

impl Transport {
    /// Connects, and identifies the test to the runner.
    pub(crate) fn connect(options: &Options) -> io::Result<Self> {
        let mut socket = match options.ipv6 {
            true => TcpStream::connect((Ipv6Addr::LOCALHOST, options.port))?,
            false => TcpStream::connect((Ipv4Addr::LOCALHOST, options.port))?,
        };
        socket.set_nodelay(true)?;
        socket.write_all(&options.shim_id.to_le_bytes())?;
        Ok(Self { socket, bytewise: options.is_async, deaf: false })
    }

    /// The next bytes; none at the end.
    pub(crate) fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; READ];
        let n = self.socket.read(&mut buffer)?;
        buffer.truncate(n);
        Ok(buffer)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.deaf |= self.socket.write_all(bytes).is_err();
    }

    /// How many of the `waiting` bytes the engine gets at once.
    pub(crate) const fn portion(&self, waiting: usize) -> usize {
        if self.bytewise && waiting > 1 { 1 } else { waiting }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        // Closing a socket with unread bytes resets the connection, and the reset may destroy the alert. So read to the end.
        if self.socket.shutdown(Shutdown::Write).is_ok() {
            let mut rest = [0; READ];
            while matches!(self.socket.read(&mut rest), Ok(n) if n > 0) {}
        }
    }
}
