//! TLS on a blocking socket, for uploads.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use dunlin::{Answer, Event, Question, TlsConnection};

use crate::Error;
use crate::error::failed;

/// The length of four records.
const BUFFER: usize = 1 << 16;
/// Longer than any upload.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection and its socket.
pub(super) struct Tls {
    tcp: TcpStream,
    pub(super) connection: TlsConnection,
    buffer: Vec<u8>,
    /// Whether the client has refused to renegotiate.
    pub(super) is_refused: bool,
}

impl Tls {
    pub(super) fn new(tcp: TcpStream, connection: TlsConnection) -> Result<Self, Error> {
        tcp.set_nodelay(true).and_then(|()| tcp.set_read_timeout(Some(PATIENCE))).map_err(failed)?;
        Ok(Self { tcp, connection, buffer: vec![0; BUFFER], is_refused: false })
    }

    /// Sends all waiting output.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let waiting = self.connection.transmit();
        self.tcp.write_all(waiting).map_err(failed)?;
        let sent = waiting.len();
        self.connection.transmitted(sent);
        Ok(())
    }

    /// Receives bytes, answers the questions that they raise, and gives data to `sink`. Returns false at the
    /// end of TCP.
    pub(super) fn receive(
        &mut self,
        answer: &mut dyn FnMut(&Question) -> Answer,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let len = self.tcp.read(&mut self.buffer).map_err(failed)?;
        if len == 0 {
            self.connection.receive_end().map_err(failed)?;
            return Ok(false);
        }
        let mut taken = 0;
        loop {
            let rest = self.buffer.get(taken..len).unwrap_or_default();
            let step = self.connection.receive(dunlin_tokio::now(), rest);
            let answered = step.and_then(|step| {
                taken += step;
                answer_all(&mut self.connection, &mut self.is_refused, answer)
            });
            if let Err(error) = answered {
                // The peer gets an alert. If it does not, this side's reason is still the better one.
                let _ = self.flush();
                return Err(failed(error));
            }
            let data = self.connection.received();
            let data_len = data.len();
            if data_len > 0 {
                sink(data)?;
                self.connection.consume(dunlin_tokio::now(), data_len).map_err(failed)?;
            } else if taken == len {
                return Ok(true);
            }
        }
    }

    /// Sends data.
    pub(super) fn say(&mut self, mut data: &[u8]) -> Result<(), Error> {
        while !data.is_empty() {
            let taken = self.connection.send(data).map_err(failed)?;
            data = data.get(taken..).unwrap_or_default();
            self.flush()?;
        }
        Ok(())
    }

    /// Sends close_notify.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        self.connection.close();
        self.flush()
    }
}

/// Answers all open questions.
fn answer_all(
    connection: &mut TlsConnection,
    is_refused: &mut bool,
    answer: &mut dyn FnMut(&Question) -> Answer,
) -> Result<(), dunlin::Error> {
    while let Some(event) = connection.poll_event() {
        match event {
            Event::Question(id, question) => {
                connection.answer(dunlin_tokio::now(), id, answer(&question))?;
            }
            Event::RenegotiationRefused => *is_refused = true,
            _ => {}
        }
    }
    Ok(())
}
