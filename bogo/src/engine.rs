//! The engine's connection, over a stream or over datagrams. The rest of the shim does not distinguish the
//! two.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use dunlin::error::Misuse;
use dunlin::wire::AlertDescription;
use dunlin::{
    Answer, ClientConfig, DtlsConnection, EarlyData, Error, Event, MessageSize, Negotiated, Now, QuestionId,
    ServerAddress, ServerConfig, Side, TlsConnection,
};

use crate::Failure;
use crate::transport::Transport;

/// The runner's address. The engine only compares it.
const RUNNER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A connection of the engine.
pub(crate) enum Engine {
    Stream(Box<TlsConnection>),
    Datagrams {
        dtls: Box<DtlsConnection>,
        /// The rest of the record that was read last.
        record: Vec<u8>,
    },
}

/// Calls the same method of either connection.
macro_rules! either {
    ($engine:expr, $name:ident($($argument:expr),*)) => {
        match $engine {
            Self::Stream(tls) => tls.$name($($argument),*),
            Self::Datagrams { dtls, .. } => dtls.$name($($argument),*),
        }
    };
}

impl Engine {
    pub(crate) fn client(
        config: &Arc<ClientConfig>,
        server: ServerAddress,
        is_dtls: bool,
        now: Now,
    ) -> Result<Self, Error> {
        Ok(if is_dtls {
            Self::over_datagrams(DtlsConnection::client(config, server, RUNNER, now)?)
        } else {
            Self::Stream(Box::new(TlsConnection::client(config, server, now)?))
        })
    }

    pub(crate) fn server(config: &Arc<ServerConfig>, is_dtls: bool, now: Now) -> Self {
        if is_dtls {
            Self::over_datagrams(DtlsConnection::server(config, RUNNER, now))
        } else {
            Self::Stream(Box::new(TlsConnection::server(config, now)))
        }
    }

    fn over_datagrams(dtls: DtlsConnection) -> Self {
        Self::Datagrams { dtls: Box::new(dtls), record: Vec::new() }
    }

    pub(crate) const fn dtls(&mut self) -> Option<&mut DtlsConnection> {
        match self {
            Self::Stream(_) => None,
            Self::Datagrams { dtls, .. } => Some(dtls),
        }
    }

    pub(crate) const fn side(&self) -> Side {
        either!(self, side())
    }

    pub(crate) const fn is_handshaking(&self) -> bool {
        either!(self, is_handshaking())
    }

    pub(crate) fn negotiated(&self) -> Option<&Negotiated> {
        either!(self, negotiated())
    }

    pub(crate) fn messages(&self) -> &[MessageSize] {
        either!(self, messages())
    }

    pub(crate) const fn peer_has_closed(&self) -> bool {
        either!(self, peer_has_closed())
    }

    pub(crate) const fn has_closed(&self) -> bool {
        either!(self, has_closed())
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        either!(self, poll_event())
    }

    pub(crate) fn answer(&mut self, now: Now, id: QuestionId, answer: Answer) -> Result<(), Error> {
        either!(self, answer(now, id, answer))
    }

    pub(crate) fn abort(&mut self, alert: AlertDescription) {
        either!(self, abort(alert));
    }

    pub(crate) fn close(&mut self) {
        either!(self, close());
    }

    pub(crate) fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<(), Error> {
        either!(self, export(label, context, out))
    }

    pub(crate) fn tls_unique(&self) -> Option<[u8; 12]> {
        either!(self, tls_unique())
    }

    /// Replaces the sending keys, unless the previous replacement still waits for its ACK.
    pub(crate) fn update_keys(&mut self, both: bool) -> Result<(), Error> {
        match either!(self, update_keys(both)) {
            Err(Error::Misuse(Misuse::KeyUpdateWaits)) => Ok(()),
            result => result,
        }
    }

    /// Early data, which the engine has only over streams.
    pub(crate) fn early_data(&mut self) -> Option<EarlyData<'_>> {
        match self {
            Self::Stream(tls) => tls.early_data(),
            Self::Datagrams { .. } => None,
        }
    }

    /// Takes received bytes, or one datagram. Returns how many bytes it took.
    pub(crate) fn receive(&mut self, now: Now, bytes: &[u8]) -> Result<usize, Error> {
        match self {
            Self::Stream(tls) => tls.receive(now, bytes),
            Self::Datagrams { dtls, .. } => dtls.receive(now, RUNNER, bytes).map(|()| bytes.len()),
        }
    }

    /// Reports the end of the runner's stream. Datagrams have no end: the connection then waits for nothing
    /// more.
    pub(crate) fn receive_end(&mut self) -> Result<(), Failure> {
        match self {
            Self::Stream(tls) => Ok(tls.receive_end()?),
            Self::Datagrams { .. } => {
                Err(Failure::Unexpected("the runner closed its stream of datagrams".into()))
            }
        }
    }

    /// The data to read, as much as there is. Over datagrams, it is the rest of one record.
    pub(crate) fn received(&mut self) -> &[u8] {
        match self {
            Self::Stream(tls) => tls.received(),
            Self::Datagrams { dtls, record } => {
                while record.is_empty() {
                    let Some(next) = dtls.read() else { break };
                    *record = next;
                }
                record
            }
        }
    }

    /// Removes the first `n` bytes of the received data.
    pub(crate) fn consume(&mut self, now: Now, n: usize) -> Result<(), Error> {
        match self {
            Self::Stream(tls) => tls.consume(now, n),
            Self::Datagrams { record, .. } => {
                record.drain(..n.min(record.len()));
                Ok(())
            }
        }
    }

    /// Sends data. Returns how many bytes it took. Over datagrams, the data must fit into one record.
    pub(crate) fn send(&mut self, data: &[u8]) -> Result<usize, Error> {
        match self {
            Self::Stream(tls) => tls.send(data),
            Self::Datagrams { dtls, .. } => dtls.send(data).map(|()| data.len()),
        }
    }

    /// Writes the output, and removes it.
    pub(crate) fn flush(&mut self, now: Now, transport: &mut Transport) {
        match self {
            Self::Stream(tls) => {
                let n = tls.transmit().len();
                transport.write(tls.transmit());
                tls.transmitted(n);
            }
            Self::Datagrams { dtls, .. } => {
                while let Some(transmit) = dtls.poll_transmit(now) {
                    transport.write_packet(&transmit.datagram);
                }
            }
        }
    }

    /// Writes only the first byte of the output, and removes it. Datagrams are indivisible.
    pub(crate) fn flush_byte(&mut self, transport: &mut Transport) {
        if let Self::Stream(tls) = self {
            let first: Vec<u8> = tls.transmit().iter().copied().take(1).collect();
            transport.write(&first);
            tls.transmitted(first.len());
        }
    }
}
