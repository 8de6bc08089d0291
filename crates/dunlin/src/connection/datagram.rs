//! A connection over datagrams.

use crate::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use super::Connection;
use crate::address::{Local, Path, ServerAddress};
use crate::config::{ClientConfig, ServerConfig, check_mtu};
use crate::error::{Error, Misuse};
use crate::message::connection_ids::{self, Usage};
use crate::protocol::{Protocol, Side};
use crate::record::datagram::{Claim, Datagram, Discarded, PathChecks, PoolPort};
use crate::settings::{NoPort, PortScheme};
use crate::time::{Instant, Now};
use crate::transport::{Emitter, Transport};
use crate::wire::{ExtensionType, Field};

/// A datagram to transmit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The socket or interface to send it from; always the default one for a caller that names no other.
    pub local: Local,
    /// The address to send it from ([`Path::source`]). A caller whose machine has lost that address lets the
    /// system choose.
    pub source: Option<IpAddr>,
    /// The address to send it to.
    pub to: SocketAddr,
    /// Its content.
    pub datagram: Vec<u8>,
}

/// The standing of a client at a server after its first datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing worth keeping: the next datagram may go to a new connection.
    Unknown,
    /// A part of a ClientHello.
    PartOfHello,
    /// The client may have a connection: it has returned a cookie, or the server demands none. The connection
    /// may have failed since.
    Admitted,
}

impl Connection<Datagram> {
    /// Creates a client that connects to `server` at the address `peer`. Its ClientHello is ready to
    /// transmit.
    ///
    /// The engine only compares addresses. A caller on a network without IP maps the network's addresses to
    /// any others, one to one.
    ///
    /// # Errors
    /// The random source failed, or a value of the configuration does not fit its field, or its connection
    /// IDs do not suit [`crate::Multihoming::unlinkable`], or it has a scheme of ports that this build lacks
    /// ([`PortScheme::AVAILABLE`]).
    pub fn client(
        config: &Arc<ClientConfig>,
        server: ServerAddress,
        peer: impl Into<Path>,
        now: Now,
    ) -> Result<Self, Error> {
        config.check_multihoming()?;
        if config.datagram.port_scheme.is_some() && !PortScheme::AVAILABLE {
            return Err(PortScheme::unavailable());
        }
        Self::new_client(config, server, Datagram::new(Side::Client, &config.datagram, peer.into()), now)
    }

    /// Creates a server that waits for a ClientHello from the address `peer`.
    pub fn server(config: &Arc<ServerConfig>, peer: impl Into<Path>, now: Now) -> Self {
        let transport = Datagram::new(Side::Server, &config.datagram, peer.into());
        let forgets = config.demands_cookie(Protocol::Dtls13);
        Self::new_server(config, if forgets { transport.forgetful() } else { transport }, now)
    }

    /// The standing of the client at a server with this configuration.
    pub(crate) fn standing(&self, config: &ServerConfig) -> Standing {
        let has_hello = !self.messages().is_empty();
        let is_free = !config.demands_cookie(Protocol::Dtls13);
        if self.transport.is_address_proven() || has_hello && is_free {
            return Standing::Admitted;
        }
        if self.error.is_none() && !has_hello && self.kept_bytes() > 0 {
            Standing::PartOfHello
        } else {
            Standing::Unknown
        }
    }

    /// The random of the client's latest ClientHello.
    pub(crate) const fn client_random(&self) -> [u8; 32] {
        self.effects.client_random
    }

    /// The bytes of incomplete messages that this side keeps.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.transport.kept_bytes()
    }

    /// When the latest authentic record arrived, or when the association was thawed.
    pub(crate) fn heard_at(&self) -> Instant {
        self.transport.heard_at().0
    }

    /// Begins to look for the next authentic record that is not a copy.
    #[cfg(feature = "association-ports")]
    pub(crate) const fn forget_authentic(&mut self) {
        self.transport.forget_authentic();
    }

    /// Whether such a record has arrived since then.
    #[cfg(feature = "association-ports")]
    pub(crate) const fn is_newly_authentic(&self) -> bool {
        self.transport.is_newly_authentic()
    }

    /// When the latest authentic record arrived, in milliseconds of the monotonic clock. It is negative if
    /// that was before the clock began: a thawed association may have been silent for longer than its process
    /// runs.
    pub(crate) fn heard_ms(&self) -> i64 {
        let (heard_at, silent_before) = self.transport.heard_at();
        let silent_before = i64::try_from(silent_before.as_millis()).unwrap_or(i64::MAX);
        i64::try_from(heard_at.0).unwrap_or(i64::MAX).saturating_sub(silent_before)
    }

    /// When nothing authentic has arrived from the peer for `limit`. The time in which the association was
    /// frozen counts.
    pub(crate) fn idle_at(&self, limit: Duration) -> Instant {
        let (heard_at, silent_before) = self.transport.heard_at();
        heard_at + limit.saturating_sub(silent_before)
    }

    /// When [`Self::expire_keys`] drops the keys of the previous epoch; `None` without any.
    pub(crate) fn keys_expiry(&self) -> Option<Instant> {
        if self.error.is_none() { self.transport.keys_expiry() } else { None }
    }

    /// Drops the keys of the previous epoch if they are too old.
    pub(crate) fn expire_keys(&mut self, now: Now) {
        self.transport.expire_keys(now.monotonic);
    }

    /// When the connection may rest; `None` if it rests, or if its handshake is not complete.
    pub(crate) fn rest_at(&self) -> Option<Instant> {
        if self.error.is_none() { self.transport.rest_at() } else { None }
    }

    /// Drops what an idle connection can make again for the next record.
    pub(crate) fn rest(&mut self) {
        self.effects.messages.shrink_to_fit();
        self.transport.rest();
    }

    /// How many connection IDs this side has issued.
    pub(crate) const fn issued_ids(&self) -> u32 {
        self.transport.issued_ids()
    }

    /// The peer's address. It changes as [`crate::Migration`] says, and [`crate::Event::PeerMoved`] reports
    /// that.
    pub const fn peer_address(&self) -> SocketAddr {
        self.transport.path().peer
    }

    /// The path over which this side sends.
    pub const fn path(&self) -> Path {
        self.transport.path()
    }

    /// Sends over this socket or interface of the caller from now on, for example because the previous one
    /// has lost its network. In DTLS 1.3 this side uses a spare connection ID of the peer there, if it has
    /// one ([`Self::request_connection_ids`]). Observers of both paths can still link them by the ID in the
    /// peer's challenge, until the peer has moved. The peer follows once it has received newer data and has
    /// checked the new address.
    pub fn set_local(&mut self, local: Local) {
        if local != self.transport.path().local {
            self.transport.set_local(local);
        }
    }

    /// Sets the interfaces over which a client with [`crate::Multihoming`] may send, the best first: at most
    /// [`crate::MAX_INTERFACES`], and none while the caller has no network. A new interface is used once the
    /// server has answered a probe there; if the present one is missing, another one is used at once. A
    /// socket that is bound to another address counts as another interface, or the caller reports it by
    /// [`Self::address_changed`].
    ///
    /// The connection begins with the interface of its first path alone. Then ask for
    /// [`Connection::poll_timeout`] again.
    ///
    /// # Errors
    /// [`Misuse::Config`] without [`crate::ClientConfig::with_multihoming`], with too many interfaces, or
    /// with one twice; that leaves the connection unchanged. Or the connection has failed.
    pub fn set_interfaces(&mut self, now: Now, interfaces: &[Local]) -> Result<(), Error> {
        self.check()?;
        let set = self.transport.set_interfaces(now.monotonic, interfaces);
        self.after_path(set)
    }

    /// Tells the connection that the address of one of the caller's sockets or interfaces has changed. If the
    /// connection sends over it, it tells the peer the new address at once, by a record without content, and
    /// sends again what the peer has not acknowledged; or it changes to another interface on which the server
    /// has answered ([`crate::Multihoming`]). Where it has spare connection IDs of the peer and may use them,
    /// the new address gets one of its own.
    ///
    /// In DTLS 1.2 the record without content is an empty record of data, which the peer's application may
    /// see.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn address_changed(&mut self, now: Now, local: Local) -> Result<(), Error> {
        self.check()?;
        let changed = self.transport.address_changed(now.monotonic, local);
        self.after_path(changed)
    }

    /// Reports what a change of this side's interfaces has caused.
    fn after_path(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        self.note_path();
        match result {
            Err(e @ Error::Misuse(_)) => Err(e),
            Err(e) => self.fail(e),
            Ok(()) => Ok(()),
        }
    }

    /// The number of checks of the peer's address so far, by outcome.
    pub const fn path_checks(&self) -> PathChecks {
        self.transport.path_checks()
    }

    /// Processes a datagram that was received over the path `from`; a caller with a single socket passes the
    /// peer's address. Discards records that are not authentic ([`Connection::discarded`]). While a question
    /// is open, it also discards records for which it has no room; the peer sends them again.
    ///
    /// During the handshake and without connection IDs, it discards datagrams from another address than the
    /// peer's. With connection IDs it takes authentic records from anywhere, and follows the peer to another
    /// address as [`crate::Migration`] says.
    ///
    /// # Errors
    /// The error that ends the connection. The caller should still transmit what remains: it may include an
    /// alert.
    pub fn receive(&mut self, now: Now, from: impl Into<Path>, datagram: &[u8]) -> Result<(), Error> {
        self.check()?;
        self.transport.push(now.monotonic, from.into(), datagram);
        self.drive(now)?;
        let tended = self.transport.tend();
        self.after_path(tended)?;
        // RFC 9147 §4.5.3: new keys long before the limit of forged records. The peer's KeyUpdate answers
        // this side's.
        let can_ask = self.progress.is_connected()
            && !self.progress.send_closed
            && self.transport.protocol().has_key_update()
            && !self.transport.key_update_waits();
        if can_ask && self.transport.wants_new_keys() { self.update_keys(true) } else { Ok(()) }
    }

    /// Takes the next datagram to transmit. Call it until it returns `None`, and then ask
    /// for [`Connection::poll_timeout`]: the timer of a flight starts when its last datagram leaves.
    pub fn poll_transmit(&mut self, now: Now) -> Option<Transmit> {
        let (Path { local, source, peer: to }, datagram) = self.transport.transmit(now.monotonic)?;
        Some(Transmit { local, source, to, datagram })
    }

    /// Whether a datagram waits for transmission.
    pub(crate) fn has_output(&self) -> bool {
        self.transport.has_output()
    }

    /// Takes the data of the next record, as the peer sent it. Records can be lost or reordered on the way.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        // In DTLS 1.2, data can arrive before the Finished of its epoch.
        self.progress.is_connected().then_some(())?;
        let data = self.transport.receiver().read()?;
        self.effects.reset_idle();
        self.commit.heard(true);
        Some(data)
    }

    /// Sends `data` in one record and one datagram.
    ///
    /// # Errors
    /// [`crate::error::Misuse::DataTooLong`] above [`Connection::max_data`], and
    /// [`crate::error::Misuse::OutputFull`] while too many datagrams wait for transmission; both leave the
    /// connection unchanged. Or the handshake is not complete, this side has closed, the connection has
    /// failed, or the cipher failed.
    pub fn send(&mut self, data: &[u8]) -> Result<(), Error> {
        self.check_send()?;
        self.transport.sender().check_data(data.len())?;
        match self.transport.sender().application_data(data) {
            Ok(()) => Ok(()),
            Err(e) => self.fail(e),
        }
    }

    /// Changes the largest datagram to send, in bytes of UDP payload: 80 to 65507. It counts from the next
    /// datagram on, retransmissions included (RFC 9147 §4.4). So a caller can follow what it learns about the
    /// path.
    ///
    /// # Errors
    /// The value is outside this range, which leaves the connection unchanged.
    pub fn set_mtu(&mut self, mtu: usize) -> Result<(), Error> {
        self.transport.sender().set_mtu(check_mtu(mtu)?);
        Ok(())
    }

    /// Changes the first timeout of retransmissions, for example after a measurement of the round-trip time
    /// (RFC 9147 §5.8.2). A timeout that runs changes in the same proportion. Then ask for
    /// [`Connection::poll_timeout`] again.
    ///
    /// # Errors
    /// [`Misuse::Config`], unless 10 ms ≤ `first` ≤ the longest timeout, which leaves the connection
    /// unchanged.
    pub fn set_first_timeout(&mut self, first: Duration) -> Result<(), Error> {
        self.transport.set_first_timeout(first)
    }

    /// The longest data that [`Connection::send`] accepts, in bytes. It depends on the MTU and the cipher
    /// suite.
    pub fn max_data(&self) -> usize {
        self.transport.max_data()
    }

    /// The connection IDs by which the peer's datagrams are found, the oldest first. Empty before the
    /// ServerHello and without IDs. Over DTLS 1.3, the peer can ask for more.
    pub fn connection_ids(&self) -> impl Iterator<Item = &[u8]> {
        self.transport.own_ids()
    }

    /// The connection ID in this side's records; empty without one.
    pub fn peer_connection_id(&self) -> &[u8] {
        self.transport.peer_id()
    }

    /// Asks the peer for spare connection IDs (RFC 9147 §9), for [`Self::use_spare_connection_id`]. The peer
    /// may send fewer.
    ///
    /// # Errors
    /// [`Misuse::NotSupported`] in DTLS 1.2, or if this side sends no connection IDs;
    /// [`Misuse::KeyUpdateWaits`]. Or the handshake is not complete, this side has closed, or the connection
    /// has failed.
    pub fn request_connection_ids(&mut self, count: u8) -> Result<(), Error> {
        self.check_ids(self.transport.sends_connection_id())?;
        if self.transport.key_update_waits() {
            return Err(Misuse::KeyUpdateWaits.into());
        }
        // The peer's answer is work that this side requested, so it does not count as an attack.
        self.effects.reset_idle();
        let request = self.transport.message(connection_ids::write_request(count)?);
        match request.and_then(|()| self.transport.end_of_flight()) {
            Ok(()) => Ok(()),
            Err(e) => self.fail(e),
        }
    }

    /// Gives the peer a new connection ID of this side, which it uses at once (RFC 9147 §9). Earlier ones
    /// stay valid for a time. If all places are taken and the peer has not used the latest replacement yet,
    /// nothing is sent.
    ///
    /// # Errors
    /// As [`Self::request_connection_ids`], if this side receives no connection IDs; or no ID could be
    /// issued.
    pub fn replace_connection_id(&mut self) -> Result<(), Error> {
        self.check_ids(self.transport.receives_connection_id())?;
        match self.transport.issue_connection_ids(1, Usage::Immediate) {
            Ok(()) => Ok(()),
            Err(e) => self.fail(e),
        }
    }

    /// Uses a spare connection ID of the peer from now on, so that an observer cannot link what follows to
    /// what was sent before, for example from another address. `false` if there is none.
    pub fn use_spare_connection_id(&mut self) -> bool {
        self.transport.use_spare_peer_id()
    }

    /// The number of the peer's spare connection IDs. [`Self::use_spare_connection_id`] uses them, and so do
    /// the interfaces of [`crate::Multihoming::unlinkable`].
    pub fn spare_connection_ids(&self) -> usize {
        self.transport.spare_peer_ids()
    }

    fn check_ids(&self, has_ids: bool) -> Result<(), Error> {
        self.check()?;
        if self.progress.send_closed {
            return Err(Misuse::SendClosed.into());
        }
        if !self.progress.is_connected() {
            return Err(Misuse::HandshakeNotComplete.into());
        }
        // RFC 9147 §9: an endpoint must not send these messages without IDs. DTLS 1.2 has no such messages.
        if has_ids && self.transport.protocol().has_key_update() {
            Ok(())
        } else {
            Err(Misuse::NotSupported(Field::Extension(ExtensionType::CONNECTION_ID)).into())
        }
    }

    /// Counts of what was received and discarded so far.
    pub const fn discarded(&self) -> Discarded {
        self.transport.discarded()
    }

    /// When the connection was used last.
    pub(crate) const fn clock(&self) -> Now {
        self.now
    }

    /// Offers a port of the endpoint's pool to the client of this server, or says why there is none.
    pub(crate) const fn offer_port(&mut self, port: Result<PoolPort, NoPort>) {
        self.transport.offer_port(port);
    }

    /// The claim of this server's connection on the pool.
    pub(crate) const fn port_claim(&self) -> Claim {
        self.transport.port_claim()
    }

    /// The peer's port on the path that this side has left, and where it still listens.
    pub(crate) const fn old_port(&self) -> Option<u16> {
        self.transport.old_port()
    }

    /// The scheme and the server's port of this association, if it has a port of its own. A client does not
    /// tell the announcements of a scheme apart, and knows the port of [`PortScheme::TcsMessage`] only after
    /// the handshake.
    pub const fn association_port(&self) -> Option<(PortScheme, u16)> {
        self.transport.association_port()
    }
}

const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Connection<Datagram>>();
};
