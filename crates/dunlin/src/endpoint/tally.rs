//! The bytes of an association and of its handshake.

use crate::connection::DtlsConnection;
use crate::protocol::Side;
use crate::wire::{HandshakeType, ProtocolVersion};

/// Received and sent bytes, in this order. A handshake is far below 4 GB.
type Pair = (u32, u32);

/// Counts the bytes of datagrams. Both sides count the same ones for the handshake: up to the last Finished,
/// whatever follows before the application looks.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) received: u64,
    pub(super) sent: u64,
    handshake: Pair,
    request: Pair,
    /// The server's requests for another ClientHello so far.
    requests: u8,
    /// The handshake is complete, so `handshake.0` is final.
    is_complete: bool,
    /// Its last datagram has left, so `handshake.1` is final.
    has_left: bool,
}

impl Tally {
    /// Begins to count. A thawed connection has no handshake to count.
    pub(super) fn new(connection: &DtlsConnection) -> Self {
        Self { is_complete: !connection.is_handshaking(), ..Self::default() }
    }

    /// The bytes of the handshake, once it is complete and its last datagram has left.
    pub(super) fn handshake(&self) -> Option<(u64, u64)> {
        self.has_left.then_some((self.handshake.0.into(), self.handshake.1.into()))
    }

    /// The bytes of the handshake up to the server's latest request for another ClientHello.
    pub(super) fn request(&self) -> (u64, u64) {
        (self.request.0.into(), self.request.1.into())
    }

    /// Counts a datagram that was taken out.
    pub(super) fn transmit(&mut self, len: usize, connection: &DtlsConnection) {
        self.sent += len as u64;
        self.finish(connection);
    }

    /// Takes note of a change of the connection.
    pub(super) fn check(&mut self, connection: &DtlsConnection) {
        if connection.is_handshaking() {
            return self.check_requests(connection);
        }
        if self.is_complete {
            return;
        }
        self.is_complete = true;
        self.handshake = self.present();
        let version = connection.negotiated().and_then(|negotiated| negotiated.version);
        // RFC 9147 §5.7: only an ACK and tickets follow the client's Finished, which is the last one.
        self.has_left = connection.side() == Side::Server && version == Some(ProtocolVersion::DTLS1_3);
        self.finish(connection);
    }

    /// The rest of the output at the end of the handshake belongs to it.
    fn finish(&mut self, connection: &DtlsConnection) {
        if self.is_complete && !self.has_left && !connection.has_output() {
            self.has_left = true;
            self.handshake.1 = self.present().1;
        }
    }

    /// The next ClientHello of a client has not left when its request comes.
    fn check_requests(&mut self, connection: &DtlsConnection) {
        let requests = connection.messages().iter().filter(|message| {
            !message.sent && (message.is_retry || message.typ == HandshakeType::HELLO_VERIFY_REQUEST)
        });
        let requests = requests.count().min(u8::MAX.into()) as u8;
        if requests > self.requests {
            self.requests = requests;
            self.request = self.present();
        }
    }

    fn present(&self) -> Pair {
        let of = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        (of(self.received), of(self.sent))
    }
}
