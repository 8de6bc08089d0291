//! The connection to the runner.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpStream};

use crate::options::Options;

/// The largest piece that is read at once.
const READ: usize = 16 * 1024;

/// A stream to the runner. It is closed so that what was written last still arrives.
pub(crate) struct Transport {
    socket: TcpStream,
    /// One byte at a time, to find what depends on more.
    bytewise: bool,
    /// The runner has closed, which its alert says better than a failed write.
    deaf: bool,
}

impl Transport {
    /// Connects, and says which test this is.
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

    /// How many of `waiting` bytes the engine gets at once.
    pub(crate) const fn portion(&self, waiting: usize) -> usize {
        if self.bytewise && waiting > 1 { 1 } else { waiting }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        // A socket with unread bytes is reset when it is closed, and the reset overtakes the alert before it.
        if self.socket.shutdown(Shutdown::Write).is_ok() {
            let mut rest = [0; READ];
            while matches!(self.socket.read(&mut rest), Ok(n) if n > 0) {}
        }
    }
}
