//! A connection to Redis with one deadline for connecting, the question and its answers. The protocol is the
//! `redis` crate's; its own `Connection` is not used because it connects to a Unix socket without a timeout,
//! starts its read timeout anew with each read, and buffers an answer of any length.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use redis::{
    ConnectionAddr, ConnectionInfo, ConnectionLike, ErrorKind as RedisErrorKind, Parser, RedisError,
    RedisResult, Value,
};

use super::MAX_RECORD_LEN;

/// The most bytes that are read for one question: a record, and a kilobyte for its frame or for error
/// messages.
const MAX_ANSWER_LEN: usize = MAX_RECORD_LEN as usize + 1024;

trait Socket: Read + Write + Send {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()>;
}

impl Socket for TcpStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout)).and_then(|()| self.set_write_timeout(Some(timeout)))
    }
}

impl Socket for UnixStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout)).and_then(|()| self.set_write_timeout(Some(timeout)))
    }
}

/// A socket that reads and writes until a deadline, and reads a bounded number of bytes.
struct Timed {
    socket: Box<dyn Socket>,
    until: Instant,
    /// How many bytes may still be read.
    room: usize,
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(late()) } else { Ok(left) }
}

fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "no answer in time")
}

/// A socket whose timeout expires returns `WouldBlock`.
fn timely<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => late(),
        _ => error,
    })
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let room = self.room.min(bytes.len());
        let Some(bytes) = bytes.get_mut(..room).filter(|bytes| !bytes.is_empty()) else {
            return Err(io::Error::other("the answer is longer than a record can be"));
        };
        self.socket.set_timeout(left(self.until)?)?;
        let read = timely(self.socket.read(bytes))?;
        if read == 0 {
            let why =
                "the connection was closed without an answer, as a TLS port does: name a port without TLS";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, why));
        }
        self.room -= read;
        Ok(read)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_timeout(left(self.until)?)?;
        timely(self.socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// A connection to Redis.
pub(crate) struct RedisConnection {
    timed: Timed,
    parser: Parser,
    db: i64,
    is_open: bool,
}

impl RedisConnection {
    /// Connects before the deadline, authenticates, and selects the database.
    pub(crate) fn new(to: &ConnectionInfo, until: Instant) -> RedisResult<Self> {
        let timed = Timed { socket: socket(to.addr(), until)?, until, room: MAX_ANSWER_LEN };
        let settings = to.redis_settings();
        let mut connection = Self { timed, parser: Parser::new(), db: settings.db(), is_open: true };
        if let Some(password) = settings.password() {
            redis::cmd("AUTH").arg(settings.username()).arg(password).exec(&mut connection)?;
        }
        if connection.db != 0 {
            redis::cmd("SELECT").arg(connection.db).exec(&mut connection)?;
        }
        Ok(connection)
    }

    /// Starts a question with this deadline.
    pub(super) const fn begin(&mut self, until: Instant) {
        self.timed.until = until;
        self.timed.room = MAX_ANSWER_LEN;
    }

    /// Starts another question with the same deadline.
    pub(crate) const fn go_on(&mut self) {
        self.timed.room = MAX_ANSWER_LEN;
    }

    /// Returns `result`. After an error of the connection or the protocol, the connection is not used again.
    fn checked<T>(&mut self, result: RedisResult<T>) -> RedisResult<T> {
        self.is_open &= result.is_ok();
        result
    }

    fn send(&mut self, commands: &[u8]) -> RedisResult<()> {
        let sent = self.timed.write_all(commands).map_err(RedisError::from);
        self.checked(sent)
    }

    fn receive(&mut self) -> RedisResult<Value> {
        let received = self.parser.parse_value(&mut self.timed);
        self.checked(received)
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.send(command)?;
        self.receive()
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.send(commands)?;
        // Read all answers, so that the next question gets its own. The first refusal is the cause of the
        // others.
        let mut values = Vec::new();
        let mut refused = None;
        for index in 0..offset + count {
            match self.receive()? {
                Value::ServerError(error) if index < offset => drop(refused.get_or_insert(error)),
                value if index >= offset => values.push(value),
                _ => {}
            }
        }
        refused.map_or(Ok(values), |error| Err(error.into()))
    }

    fn get_db(&self) -> i64 {
        self.db
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").exec(self).is_ok()
    }

    fn is_open(&self) -> bool {
        self.is_open
    }
}

/// The error in words for a user.
pub(crate) fn why(error: &RedisError) -> String {
    match (error.kind(), error.code()) {
        (RedisErrorKind::Io, _) => error.to_string(),
        (RedisErrorKind::Parse, _) => {
            "the answer is not Redis's protocol, perhaps TLS: name a Redis port without TLS".to_owned()
        }
        (_, Some("NOAUTH")) => "Redis needs a password: write redis://:PASSWORD@HOST".to_owned(),
        (_, Some("WRONGPASS")) => "Redis refuses the user or the password of the URL".to_owned(),
        (_, Some(code)) => match error.detail() {
            Some(detail) => format!("Redis answers: {} {}", code.escape_debug(), detail.escape_debug()),
            None => format!("Redis answers: {}", code.escape_debug()),
        },
        (_, None) => error.to_string().escape_debug().to_string(),
    }
}

/// Connects to the first of these addresses that answers. Each has an equal share of the time that is left,
/// so that a dead one does not hide a good one.
fn connect(addresses: &[SocketAddr], until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host name has no address");
    for (address, rest) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        match TcpStream::connect_timeout(address, (left(until)? / rest).max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    timely(Err(last))
}

fn socket(to: &ConnectionAddr, until: Instant) -> io::Result<Box<dyn Socket>> {
    match to {
        ConnectionAddr::Tcp(host, port) => {
            let addresses: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
            let stream = connect(&addresses, until)?;
            stream.set_nodelay(true).map(|()| Box::new(stream) as _)
        }
        ConnectionAddr::Unix(path) => {
            let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
            // The write timeout also limits connect(), which blocks while the listener's backlog is full.
            socket.set_write_timeout(Some(left(until)?.max(Duration::from_micros(1))))?;
            timely(socket.connect(&socket2::SockAddr::unix(path)?))?;
            Ok(Box::new(UnixStream::from(socket)))
        }
        _ => Err(io::Error::new(ErrorKind::Unsupported, "TLS to Redis is not supported")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_dead_address_does_not_hide_a_good_one() {
        let good = TcpListener::bind("127.0.0.1:0").unwrap();
        // A listener whose queue is full takes no connections, without an error.
        let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        full.listen(0).unwrap();
        let dead = full.local_addr().unwrap().as_socket().unwrap();
        let fill = || TcpStream::connect_timeout(&dead, Duration::from_millis(200)).ok();
        let _waiting: Vec<_> = std::iter::from_fn(fill).collect();
        let soon = || Instant::now() + Duration::from_secs(1);
        let connected = connect(&[dead, good.local_addr().unwrap()], soon()).unwrap();
        assert_eq!(connected.peer_addr().unwrap(), good.local_addr().unwrap());
        assert_eq!(connect(&[dead], soon()).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(connect(&[], soon()).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
