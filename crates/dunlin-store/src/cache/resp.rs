//! What little of Redis's protocol the cache speaks (RESP2): with one deadline for a question and its answers, and room for no more
//! than what was asked for, whoever it is that answers.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use redis::{Cmd, ConnectionAddr, ConnectionInfo};

/// The longest line, in bytes: what stands in one is a number or a few words.
const MAX_LINE: u64 = 512;

/// Why Redis does not answer as it should.
pub(super) enum Trouble {
    /// It answers, and refuses: the code and what it says of it.
    Refused(String),
    /// What is on the line now is anybody's guess.
    Broken(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// One answer; what is in an array follows it.
pub(super) enum Answer {
    Text,
    Bytes(Vec<u8>),
    Nothing,
    Array(usize),
}

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

/// Reads and writes until then, however many bytes come and go on the way.
struct Timed {
    socket: Box<dyn Socket>,
    until: Instant,
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(late()) } else { Ok(left) }
}

fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "it does not answer in time")
}

/// A socket says `WouldBlock` where its time is up.
fn timely<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => late(),
        _ => error,
    })
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.set_timeout(left(self.until)?)?;
        timely(self.socket.read(bytes))
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

/// A connection.
pub(super) struct Link(BufReader<Timed>);

impl Link {
    /// Connects until then, and says who asks and for which database.
    pub(super) fn new(to: &ConnectionInfo, until: Instant) -> Result<Self, Trouble> {
        let socket = socket(to.addr(), until)?;
        let mut link = Self(BufReader::new(Timed { socket, until }));
        let settings = to.redis_settings();
        if let Some(password) = settings.password() {
            let mut auth = redis::cmd("AUTH");
            auth.arg(settings.username()).arg(password);
            link.ask(&auth, until)?;
        }
        if settings.db() != 0 {
            link.ask(redis::cmd("SELECT").arg(settings.db()), until)?;
        }
        Ok(link)
    }

    /// The answer to a command.
    pub(super) fn ask(&mut self, command: &Cmd, until: Instant) -> Result<Answer, Trouble> {
        self.say(&command.get_packed_command(), until)?;
        self.answer(0)
    }

    /// Commands, whose answers are then to be taken.
    pub(super) fn say(&mut self, commands: &[u8], until: Instant) -> io::Result<()> {
        self.0.get_mut().until = until;
        self.0.get_mut().write_all(commands)
    }

    /// The next answer, which has room for so many bytes.
    pub(super) fn answer(&mut self, max_len: usize) -> Result<Answer, Trouble> {
        let mut line = Vec::new();
        (&mut self.0).take(MAX_LINE).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            let why = "it hangs up without an answer, as a port for TLS does: name one without";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, why).into());
        }
        let foreign = || {
            let why =
                "what it says is not Redis's protocol, at least not in the clear: name a port without TLS";
            Trouble::Broken(io::Error::new(ErrorKind::InvalidData, why))
        };
        let text = line.strip_suffix(b"\r\n").and_then(|line| str::from_utf8(line).ok());
        let (kind, text) = text.and_then(|text| text.split_at_checked(1)).ok_or_else(foreign)?;
        let len = || match text {
            "-1" => Ok(None),
            text => text.parse::<usize>().map(Some).map_err(|_| foreign()),
        };
        match kind {
            "+" | ":" => Ok(Answer::Text),
            "-" => Err(Trouble::Refused(text.to_owned())),
            "*" => Ok(len()?.map_or(Answer::Nothing, Answer::Array)),
            "$" => match len()? {
                None => Ok(Answer::Nothing),
                Some(len) if len <= max_len => {
                    let mut bytes = vec![0; len + 2];
                    self.0.read_exact(&mut bytes)?;
                    bytes.truncate(len);
                    Ok(Answer::Bytes(bytes))
                }
                Some(_) => Err(Trouble::Broken(io::Error::other("it says more than it was asked for"))),
            },
            _ => Err(foreign()),
        }
    }
}

fn socket(to: &ConnectionAddr, until: Instant) -> io::Result<Box<dyn Socket>> {
    match to {
        ConnectionAddr::Tcp(host, port) => {
            let mut last = io::Error::new(ErrorKind::NotFound, "its name has no address");
            for address in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, left(until)?) {
                    Ok(stream) => return stream.set_nodelay(true).map(|()| Box::new(stream) as _),
                    Err(error) => last = error,
                }
            }
            timely(Err(last))
        }
        ConnectionAddr::Unix(path) => {
            let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
            // This holds for connecting, too, where as many wait already as may.
            socket.set_write_timeout(Some(left(until)?.max(Duration::from_micros(1))))?;
            timely(socket.connect(&socket2::SockAddr::unix(path)?))?;
            Ok(Box::new(UnixStream::from(socket)))
        }
        _ => Err(io::Error::new(ErrorKind::Unsupported, "there is no TLS to Redis")),
    }
}
