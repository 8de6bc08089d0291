//! The connection to the runner. With DTLS, it is a sequence of packets and of commands about the clock and
//! the MTU, as in BoringSSL's `packet_adapter.go`.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpStream};

use std::time::Duration;

use crate::options::Options;

/// A packet, after its length in 4 bytes.
const PACKET: u8 = b'P';
/// Advances the clock by nanoseconds in 8 bytes. The shim answers with [`CLOCK_ADVANCED`] before it handles
/// its timers.
const ADVANCE_CLOCK: u8 = b'T';
const CLOCK_ADVANCED: u8 = b't';
/// Sets the MTU, 4 bytes.
const SET_MTU: u8 = b'M';
/// Compares the next timeout with nanoseconds in 8 bytes; the largest number means no timeout.
const EXPECT_TIMEOUT: u8 = b'E';
/// Sets the first timeout of retransmissions, in 4 bytes of milliseconds.
const SET_TIMEOUT: u8 = b'U';

/// The longest packet, in bytes: the runner sends none that UDP could not carry.
const MAX_PACKET: u32 = 1 << 16;

/// A packet or a command that the runner sends with DTLS.
pub(crate) enum Command {
    Packet(Vec<u8>),
    AdvanceClock(Duration),
    SetMtu(usize),
    /// The time until the next timeout; `None` for no timeout.
    ExpectTimeout(Option<Duration>),
    /// The first timeout of retransmissions.
    SetTimeout(Duration),
    End,
}

/// The largest number of bytes to read at once.
const READ: usize = 16 * 1024;

/// A stream to the runner. It is closed in a way that lets the last written bytes arrive.
pub(crate) struct Transport {
    socket: TcpStream,
    /// Give the engine one byte at a time, to expose code that depends on larger pieces.
    bytewise: bool,
    /// Whether a write failed because the runner has closed. The error is ignored: the runner's alert says
    /// more.
    deaf: bool,
}

impl Transport {
    /// Connects, and identifies the test to the runner.
    pub(crate) fn connect(options: &Options) -> io::Result<Self> {
        let mut socket = if options.ipv6 {
            TcpStream::connect((Ipv6Addr::LOCALHOST, options.port))?
        } else {
            TcpStream::connect((Ipv4Addr::LOCALHOST, options.port))?
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

    pub(crate) fn write_packet(&mut self, packet: &[u8]) {
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX).to_be_bytes();
        self.write(&[&[PACKET], &len[..], packet].concat());
    }

    /// Waits for the next command.
    pub(crate) fn command(&mut self) -> io::Result<Command> {
        let mut opcode = [0];
        if self.socket.read(&mut opcode)? == 0 {
            return Ok(Command::End);
        }
        let [opcode] = opcode;
        Ok(match opcode {
            PACKET => {
                let len = u32::from_be_bytes(self.exactly()?);
                if len > MAX_PACKET {
                    return Err(io::Error::other(format!("the runner's packet has {len} bytes")));
                }
                let mut packet = vec![0; len as usize];
                self.socket.read_exact(&mut packet)?;
                Command::Packet(packet)
            }
            ADVANCE_CLOCK => {
                let by = Duration::from_nanos(u64::from_be_bytes(self.exactly()?));
                self.write(&[CLOCK_ADVANCED]);
                Command::AdvanceClock(by)
            }
            SET_MTU => Command::SetMtu(u32::from_be_bytes(self.exactly()?) as usize),
            EXPECT_TIMEOUT => {
                let nanoseconds = u64::from_be_bytes(self.exactly()?);
                let is_some = nanoseconds != u64::MAX;
                Command::ExpectTimeout(is_some.then_some(Duration::from_nanos(nanoseconds)))
            }
            SET_TIMEOUT => {
                Command::SetTimeout(Duration::from_millis(u32::from_be_bytes(self.exactly()?).into()))
            }
            other => return Err(io::Error::other(format!("the runner sent the unknown opcode {other}"))),
        })
    }

    fn exactly<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.socket.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// How many of the `waiting` bytes the engine gets at once.
    pub(crate) const fn portion(&self, waiting: usize) -> usize {
        if self.bytewise && waiting > 1 { 1 } else { waiting }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        // Closing a socket with unread bytes resets the connection, and the reset may destroy the alert. So
        // read to the end.
        if self.socket.shutdown(Shutdown::Write).is_ok() {
            let mut rest = [0; READ];
            while matches!(self.socket.read(&mut rest), Ok(n) if n > 0) {}
        }
    }
}
