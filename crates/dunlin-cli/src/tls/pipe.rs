//! Data from stdin to the peer, and from the peer to stdout.

use std::borrow::Cow;
use std::future::poll_fn;
use std::io::{self, IsTerminal};
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use dunlin::Error;
use dunlin::error::Misuse;
use dunlin_command::session::Session;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf, Stdin};

/// The commands, each a letter alone on a line, as in s_client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// `Q`: end the connection.
    Quit,
    /// `K` and `k`: update the sending keys; `K` also asks the peer to update its keys.
    UpdateKeys { both: bool },
    /// `R`: renegotiate, in TLS 1.2.
    Renegotiate,
}

impl Command {
    const fn from_letter(letter: u8) -> Option<Self> {
        match letter {
            b'Q' => Some(Self::Quit),
            b'K' => Some(Self::UpdateKeys { both: true }),
            b'k' => Some(Self::UpdateKeys { both: false }),
            b'R' => Some(Self::Renegotiate),
            _ => None,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Data(Vec<u8>),
    Command(Command),
}

/// Finds the commands, lines of one letter, in typed input.
#[derive(Debug, Default)]
struct Lines {
    in_line: bool,
    /// A letter at the beginning of an incomplete line.
    held: Option<u8>,
}

impl Lines {
    fn split(&mut self, chunk: &[u8]) -> Vec<Piece> {
        let held: Vec<u8> = self.held.take().into_iter().collect();
        let input = [&held, chunk].concat();
        let mut pieces = vec![];
        for line in input.split_inclusive(|b| *b == b'\n') {
            let at_start = !std::mem::replace(&mut self.in_line, !line.ends_with(b"\n"));
            let command = match line {
                [letter, b'\n'] | [letter, b'\r', b'\n'] if at_start => Command::from_letter(*letter),
                [letter] if at_start && Command::from_letter(*letter).is_some() => {
                    self.held = Some(*letter);
                    self.in_line = false;
                    continue;
                }
                _ => None,
            };
            pieces.push(command.map_or_else(|| Piece::Data(line.to_vec()), Piece::Command));
        }
        pieces
    }

    /// At the end of the input, a letter alone is a command even without a line end.
    fn end(&mut self) -> Option<Command> {
        self.held.take().and_then(Command::from_letter)
    }
}

/// Stdin, which serves one connection after the other.
pub(crate) struct Input {
    stdin: Stdin,
    buf: Box<[u8]>,
    lines: Option<Lines>,
    ended: bool,
    /// Bytes that were read.
    taken: u64,
}

/// How long a pipe may take to deliver further input.
const MORE_PATIENCE: Duration = Duration::from_millis(200);

impl Input {
    /// Stdin. With `commands`, lines with a single letter are commands if stdin is a terminal.
    pub(crate) fn new(commands: bool) -> Self {
        Self {
            stdin: tokio::io::stdin(),
            buf: vec![0; BUF_LEN].into(),
            lines: (commands && io::stdin().is_terminal()).then(Lines::default),
            ended: false,
            taken: 0,
        }
    }

    /// Returns more input; empty at its end. Dropping the future loses nothing.
    async fn read(&mut self) -> io::Result<Vec<Piece>> {
        let n = self.stdin.read(&mut self.buf).await?;
        let chunk = self.buf.get(..n).unwrap_or_default();
        self.ended = n == 0;
        self.taken += n as u64;
        Ok(match &mut self.lines {
            Some(lines) if n == 0 => lines.end().map(Piece::Command).into_iter().collect(),
            Some(lines) => lines.split(chunk),
            None if n == 0 => vec![],
            None => vec![Piece::Data(chunk.to_vec())],
        })
    }

    /// Checks that the peer received all input before it closed.
    async fn all_sent(&mut self, out: &Outgoing) -> Result<(), Broken> {
        let sent = self.taken - out.waiting().len() as u64;
        if !out.waiting().is_empty() || self.has_more().await { Err(Broken::Unsent(sent)) } else { Ok(()) }
    }

    /// Returns whether there is more input. A terminal, and a pipe that delivers nothing now, count as ended.
    async fn has_more(&mut self) -> bool {
        if self.ended || io::stdin().is_terminal() {
            return false;
        }
        let more = tokio::time::timeout(MORE_PATIENCE, self.read()).await;
        more.is_ok_and(|read| read.is_ok()) && !self.ended
    }
}

/// The size of the buffer in bytes.
const BUF_LEN: usize = 16 * 1024;

/// How long a client over datagrams waits for the peer's last data and close_notify.
pub(crate) const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// The effect of the end of stdin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// The connection is closed in this direction. The peer has this long to close its own.
    Close(Duration),
    /// Nothing more is sent, and the peer ends the connection.
    Wait,
}

/// How a connection ended without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer's close_notify came.
    Answered,
    /// Over datagrams, no close_notify came in time. The peer may be gone, and data may be missing.
    Unanswered,
    /// The user ended the connection without waiting for the peer.
    Quit,
}

/// Why the data stopped.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The connection failed.
    Connection(io::Error),
    /// The connection failed in a renegotiation that this side requested.
    Renegotiation(io::Error),
    /// Stdin failed.
    Stdin(io::Error),
    /// Stdout failed.
    Stdout(io::Error),
    /// The peer closed after this many bytes of stdin were sent, before the rest was.
    Unsent(u64),
}

/// Receives events of a connection while data flows. A closure receives only renegotiations.
pub(crate) trait Watch {
    /// A renegotiation is complete.
    fn renegotiated(&self, stream: &dyn Session);

    /// The peer has sent data, or ended.
    fn heard(&self) {}

    /// Returns the output for received data.
    fn shown<'d>(&self, data: &'d [u8]) -> Cow<'d, [u8]> {
        data.into()
    }
}

impl<F: Fn(&dyn Session)> Watch for F {
    fn renegotiated(&self, stream: &dyn Session) {
        self(stream);
    }
}

/// Carries data in both directions until the peer closes, or the end of stdin closes the connection.
pub(crate) async fn pipe(
    tls: &mut dyn Session,
    mut input: Option<&mut Input>,
    at_end: AtEnd,
    watch: impl Watch,
) -> Result<End, Broken> {
    let mut stdout = tokio::io::stdout();
    let mut buf = vec![0; BUF_LEN];
    let mut out = Outgoing::default();
    let mut renegotiations = tls.renegotiations();
    loop {
        let patience = match at_end {
            AtEnd::Close(patience) if out.closed && tls.is_datagram() => patience.min(LAST_PATIENCE),
            AtEnd::Close(patience) if out.closed || out.close && out.renegotiating => patience,
            _ => Duration::MAX,
        };
        let reading = input.as_deref_mut().filter(|i| !i.ended && out.is_idle());
        let did = tokio::select! {
            pieces = read(reading) => {
                take(tls, &mut out, pieces.map_err(Broken::Stdin)?).map_err(Broken::Connection)?;
                if at_end != AtEnd::Wait && input.as_ref().is_some_and(|i| i.ended) {
                    out.close = true;
                }
                continue;
            }
            did = tokio::time::timeout(patience, step(tls, &mut out, &mut buf)) => did,
        };
        // Check this before the end, too: a renegotiation may complete with the last bytes.
        let before = std::mem::replace(&mut renegotiations, tls.renegotiations());
        out.renegotiating &= before == renegotiations;
        (before.completed..renegotiations.completed).for_each(|_| watch.renegotiated(tls));
        if before.refused != renegotiations.refused {
            anstream::eprintln!(
                "dunlin: R: the server refuses a renegotiation; start the server with --renegotiation"
            );
        }
        if did.is_err() && !out.closed {
            // A peer that does not answer must not delay the end.
            out.renegotiating = false;
            continue;
        }
        if did.is_err() && tls.is_datagram() {
            // The peer's close_notify may be lost, and many peers send none.
            return Ok(End::Unanswered);
        }
        let did = did.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the peer did not close its side"));
        let broken = if out.renegotiating { Broken::Renegotiation } else { Broken::Connection };
        match did.flatten().map_err(broken)? {
            // Let the task of the socket receive, so that its queue does not overflow.
            Step::Sent if tls.is_datagram() => tokio::task::yield_now().await,
            Step::Sent | Step::Renegotiated => {}
            Step::Closed if out.quit => return Ok(End::Quit),
            Step::Closed => {}
            Step::Received(0) => {
                watch.heard();
                let closed = tls.shutdown().await.map_err(Broken::Connection);
                if let (AtEnd::Close(_), Some(input)) = (at_end, input) {
                    input.all_sent(&out).await?;
                }
                return closed.map(|()| End::Answered);
            }
            Step::Received(n) => {
                watch.heard();
                let data = watch.shown(buf.get(..n).unwrap_or_default());
                let written = async {
                    stdout.write_all(&data).await?;
                    stdout.flush().await
                };
                written.await.map_err(Broken::Stdout)?;
            }
        }
    }
}

/// The output that waits.
#[derive(Debug, Default)]
struct Outgoing {
    data: Vec<u8>,
    sent: usize,
    close: bool,
    closed: bool,
    quit: bool,
    /// Whether this side has requested a renegotiation, which must end before the connection is closed.
    renegotiating: bool,
    /// Why sending failed. The peer's reason may still arrive.
    failed: Option<io::Error>,
}

impl Outgoing {
    fn waiting(&self) -> &[u8] {
        self.data.get(self.sent..).unwrap_or_default()
    }

    fn is_idle(&self) -> bool {
        self.waiting().is_empty() && !self.close && self.failed.is_none()
    }
}

/// Reads more input; without input it waits for ever.
async fn read(input: Option<&mut Input>) -> io::Result<Vec<Piece>> {
    match input {
        Some(input) => input.read().await,
        None => std::future::pending().await,
    }
}

fn take(tls: &mut dyn Session, out: &mut Outgoing, pieces: Vec<Piece>) -> io::Result<()> {
    out.data.clear();
    out.sent = 0;
    for piece in pieces {
        match piece {
            Piece::Data(data) => out.data.extend(data),
            Piece::Command(Command::UpdateKeys { both }) => {
                possible(tls.update_keys(both), NO_NEW_KEYS)?;
            }
            Piece::Command(Command::Renegotiate) => {
                out.renegotiating |= possible(tls.renegotiate(), NO_RENEGOTIATION)?;
            }
            Piece::Command(Command::Quit) => {
                (out.close, out.quit, out.renegotiating) = (true, true, false);
                break;
            }
        }
    }
    Ok(())
}

const NO_NEW_KEYS: &str =
    "K, k: in TLS 1.2 only a renegotiation replaces keys; type R if the server allows it";
const NO_RENEGOTIATION: &str = "R: a renegotiation needs TLS 1.2, a peer with secure renegotiation, and no handshake in progress; type K in TLS 1.3";

/// Returns whether a command was executed. An impossible command gets a message and has no other effect.
fn possible(done: io::Result<()>, otherwise: &str) -> io::Result<bool> {
    match done.as_ref().err().and_then(|e| e.get_ref()).and_then(|e| e.downcast_ref()) {
        Some(Error::Misuse(Misuse::NotSupported(_))) => {
            anstream::eprintln!("dunlin: {otherwise}");
            Ok(false)
        }
        _ => done.map(|()| true),
    }
}

enum Step {
    Sent,
    Closed,
    Received(usize),
    /// A renegotiation is complete or refused, without data.
    Renegotiated,
}

/// Sends or receives, whichever is possible first. Dropping the future loses nothing.
async fn step(tls: &mut dyn Session, out: &mut Outgoing, buf: &mut [u8]) -> io::Result<Step> {
    let renegotiations = tls.renegotiations();
    poll_fn(|cx| {
        if tls.is_datagram() {
            // Received datagrams that the program does not read in time get lost, so they come first.
            let mut read = ReadBuf::new(buf);
            if let Poll::Ready(Ok(())) = Pin::new(&mut *tls).poll_read(cx, &mut read)
                && !read.filled().is_empty()
            {
                return Poll::Ready(Ok(Step::Received(read.filled().len())));
            }
        }
        if out.failed.is_none() {
            let sent = if !out.waiting().is_empty() {
                Pin::new(&mut *tls).poll_write(cx, out.waiting()).map_ok(Some)
            } else if out.close && !out.closed && !out.renegotiating {
                Pin::new(&mut *tls).poll_shutdown(cx).map_ok(|()| None)
            } else {
                Poll::Pending
            };
            match sent {
                Poll::Ready(Ok(Some(n))) => {
                    out.sent += n;
                    return Poll::Ready(Ok(Step::Sent));
                }
                Poll::Ready(Ok(None)) => {
                    out.closed = true;
                    return Poll::Ready(Ok(Step::Closed));
                }
                Poll::Ready(Err(e)) => out.failed = Some(e),
                Poll::Pending => {}
            }
        }
        let mut read = ReadBuf::new(buf);
        let received = Pin::new(&mut *tls).poll_read(cx, &mut read);
        if received.is_pending() && renegotiations != tls.renegotiations() {
            return Poll::Ready(Ok(Step::Renegotiated));
        }
        match ready!(received) {
            Ok(()) => Poll::Ready(Ok(Step::Received(read.filled().len()))),
            // An alert of the peer is more specific than the failed write.
            Err(e) if e.get_ref().is_some() => Poll::Ready(Err(e)),
            Err(e) => Poll::Ready(Err(out.failed.take().unwrap_or(e))),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(text: &str) -> Piece {
        Piece::Data(text.as_bytes().to_vec())
    }

    #[test]
    fn commands_are_lines_of_one_letter() {
        let mut lines = Lines::default();
        assert_eq!(lines.split(b"Quit\nQ\n"), [data("Quit\n"), Piece::Command(Command::Quit)]);
        assert_eq!(lines.split(b"k\r\n"), [Piece::Command(Command::UpdateKeys { both: false })]);
        // Q ends a line that began earlier.
        assert_eq!(lines.split(b"x"), [data("x")]);
        assert_eq!(lines.split(b"Q\n"), [data("Q\n")]);
        assert_eq!(lines.split(b"\nK K\n"), [data("\n"), data("K K\n")]);
    }

    #[test]
    fn commands_may_come_in_two_parts() {
        let mut lines = Lines::default();
        assert_eq!(lines.split(b"K"), []);
        assert_eq!(lines.split(b"\nK"), [Piece::Command(Command::UpdateKeys { both: true })]);
        assert_eq!(lines.split(b"eep\n"), [data("Keep\n")]);
        assert_eq!(lines.split(b"Q"), []);
        assert_eq!(lines.end(), Some(Command::Quit));
    }
}
