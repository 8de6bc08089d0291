//! Helpers for this crate's tests.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::sync::Arc;
use std::time::Duration;

use dunlin::crypto::CryptoProvider;
use dunlin::wire::ProtocolVersion;
use dunlin::{
    ClientAuth, ClientConfig, DtlsConnection, Event, Now, Profile, ProfileBuilder, ServerConfig, Side, Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_sim::{CLIENT_ADDRESS, Endpoint, Link, Pair, SERVER_ADDRESS};
use dunlin_tests::{KeyType, NOW, Pki, awslc, localhost};

pub(crate) mod net;
pub(crate) mod peer;

pub(crate) const VERSIONS: [ProtocolVersion; 2] = [ProtocolVersion::DTLS1_2, ProtocolVersion::DTLS1_3];

/// The delay of one direction.
pub(crate) const DELAY: Duration = Duration::from_millis(20);

/// A client and a server of the engine.
pub(crate) type OwnPair = Pair<DtlsConnection, DtlsConnection>;

/// The configurations of a client and a server.
pub(crate) struct Configs {
    pub(crate) client: ClientConfig,
    pub(crate) server: ServerConfig,
    /// When the connection begins.
    pub(crate) now: Now,
}

impl Configs {
    /// The server demands no cookie.
    pub(crate) fn new(client: ClientConfig, server: ServerConfig) -> Self {
        Self { client, server: server.with_cookies(false), now: NOW }
    }

    /// Both sides have this provider and authenticate each other by ECDSA on P-256.
    pub(crate) fn ecdsa(provider: &Arc<CryptoProvider>) -> Self {
        Self::with(provider, |profile| profile)
    }

    /// The same, after `change` was applied to both profiles.
    pub(crate) fn with(
        provider: &Arc<CryptoProvider>,
        change: impl Fn(ProfileBuilder) -> ProfileBuilder,
    ) -> Self {
        let profile = |side| change(profile(provider, side, KeyType::P256)).build().unwrap();
        Self::of(profile(Side::Client), profile(Side::Server))
    }

    /// Both sides speak only this version, and the server demands a cookie.
    pub(crate) fn of_version(version: ProtocolVersion) -> Self {
        let profile = |profile: ProfileBuilder| match version {
            ProtocolVersion::DTLS1_2 => {
                profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
            }
            _ => profile,
        };
        Self::with(&awslc(), profile).cookies(true)
    }

    /// Configurations with these profiles; the server demands client authentication.
    pub(crate) fn of(client: Profile, server: Profile) -> Self {
        let server = ServerConfig::new(server).unwrap().with_client_auth(ClientAuth::Required).unwrap();
        Self::new(ClientConfig::new(client), server)
    }

    /// Sets whether the server demands a cookie.
    pub(crate) fn cookies(mut self, on: bool) -> Self {
        self.server = self.server.with_cookies(on);
        self
    }

    /// Sets the largest datagrams of both sides.
    pub(crate) fn mtu(mut self, mtu: usize) -> Self {
        self.client = self.client.with_mtu(mtu).unwrap();
        self.server = self.server.with_mtu(mtu).unwrap();
        self
    }

    pub(crate) fn client(&self) -> DtlsConnection {
        DtlsConnection::client(&Arc::new(self.client.clone()), localhost(), SERVER_ADDRESS, self.now).unwrap()
    }

    pub(crate) fn server(&self) -> DtlsConnection {
        DtlsConnection::server(&Arc::new(self.server.clone()), CLIENT_ADDRESS, self.now)
    }

    /// A client and a server, before the first datagram.
    pub(crate) fn pair(&self) -> OwnPair {
        Pair::new(self.client(), self.server(), self.now, DELAY)
    }

    /// The same, joined by copies of this link.
    pub(crate) fn pair_over<L: Link + Clone + 'static>(&self, link: &L) -> OwnPair {
        let link = || Box::new(link.clone());
        Pair::with_links(self.client(), self.server(), self.now, link(), link())
    }
}

/// A profile with the certificate of `side` and trust in the peer's root.
pub(crate) fn profile(provider: &Arc<CryptoProvider>, side: Side, keys: KeyType) -> ProfileBuilder {
    let pki = Pki::shared(keys);
    let leaf = match side {
        Side::Client => &pki.client,
        Side::Server => &pki.server,
    };
    Profile::builder(Arc::clone(provider))
        .trust(Trust { x509: Some(pki.trust()), raw_key: None })
        .credentials(vec![leaf.x509(provider)])
}

/// The operations that the tests use of both implementations, the engine and dimpl.
pub(crate) trait App: Endpoint {
    /// Asserts that the handshake is complete.
    fn assert_connected(&self);
    fn send(&mut self, data: &[u8]);
    /// All data received since the last call.
    fn received(&mut self) -> Vec<Vec<u8>>;
    fn close(&mut self);
    fn peer_has_closed(&self) -> bool;
}

impl App for DtlsConnection {
    fn assert_connected(&self) {
        assert_eq!(self.error(), None);
        assert!(!self.is_handshaking(), "the handshake is stuck");
    }

    fn send(&mut self, data: &[u8]) {
        Self::send(self, data).unwrap();
    }

    fn received(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.read()).collect()
    }

    fn close(&mut self) {
        Self::close(self);
    }

    fn peer_has_closed(&self) -> bool {
        Self::peer_has_closed(self)
    }
}

/// Runs until both sides are connected.
pub(crate) fn connect<C: App, S: App>(pair: &mut Pair<C, S>) {
    pair.run().unwrap();
    pair.client.assert_connected();
    pair.server.assert_connected();
}

/// Sends data in both directions and checks its arrival.
pub(crate) fn exchange<C: App, S: App>(pair: &mut Pair<C, S>) {
    for data in [&b"ping"[..], &[7; 200]] {
        pair.client.send(data);
        pair.server.send(data);
        pair.run().unwrap();
        assert_eq!(pair.server.received(), [data]);
        assert_eq!(pair.client.received(), [data]);
    }
}

/// Closes the client, then the server. Data that the server sends in between arrives.
pub(crate) fn close<C: App, S: App>(pair: &mut Pair<C, S>) {
    pair.client.close();
    pair.run().unwrap();
    assert!(pair.server.peer_has_closed() && !pair.client.peer_has_closed());
    pair.server.send(b"last words");
    pair.server.close();
    pair.run().unwrap();
    assert_eq!(pair.client.received(), [b"last words"]);
    assert!(pair.client.peer_has_closed());
}

/// All events of a connection.
pub(crate) fn events(connection: &mut DtlsConnection) -> Vec<Event> {
    std::iter::from_fn(|| connection.poll_event()).collect()
}

/// The length of the longest datagram that a side sent.
pub(crate) fn longest<C: Endpoint, S: Endpoint>(pair: &Pair<C, S>, by: Side) -> usize {
    sent(pair, by, 0).iter().map(|datagram| datagram.len()).max().unwrap_or(0)
}

/// The datagrams that a side sent, except among the first `skip` of both sides.
pub(crate) fn sent<C: Endpoint, S: Endpoint>(pair: &Pair<C, S>, by: Side, skip: usize) -> Vec<&[u8]> {
    pair.sent.iter().skip(skip).filter(|sent| sent.by == by).map(|sent| &sent.packet[..]).collect()
}

/// The two low bits of the epoch, from a protected record.
pub(crate) fn epoch_bits(record: &[u8]) -> u8 {
    assert_eq!(record[0] >> 5, 1, "not protected");
    record[0] & 3
}

/// A link with [`DELAY`] that adds datagrams: before each one those that `before` makes of it, and after it
/// those that `after` makes.
pub(crate) fn around(
    mut before: impl FnMut(&[u8]) -> Vec<Vec<u8>> + Clone + 'static,
    mut after: impl FnMut(&[u8]) -> Vec<Vec<u8>> + Clone + 'static,
) -> impl Link + Clone + 'static {
    move |_: Duration, datagram: Vec<u8>| {
        let before = before(&datagram);
        let after = after(&datagram);
        before
            .into_iter()
            .chain([datagram])
            .chain(after)
            .map(|datagram| (DELAY, datagram))
            .collect::<Vec<_>>()
    }
}
