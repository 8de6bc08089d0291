//! What the tests of this crate share.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::sync::Arc;
use std::time::Duration;

use dunlin::crypto::CryptoProvider;
use dunlin::{
    ClientAuth, ClientConfig, DtlsConnection, Event, Profile, ProfileBuilder, ServerConfig, Side, Trust,
};
use dunlin_sim::{Endpoint, Pair};
use dunlin_tests::{KeyType, NOW, Pki, localhost};

/// One way.
pub(crate) const DELAY: Duration = Duration::from_millis(20);

/// A client and a server that authenticate each other by ECDSA on P-256.
pub(crate) struct Configs {
    pub(crate) client: ClientConfig,
    pub(crate) server: ServerConfig,
}

impl Configs {
    /// With the same provider on both sides.
    pub(crate) fn new(provider: &Arc<CryptoProvider>) -> Self {
        Self::with(provider, |profile| profile)
    }

    /// The same, with something changed on both sides.
    pub(crate) fn with(
        provider: &Arc<CryptoProvider>,
        change: impl Fn(ProfileBuilder) -> ProfileBuilder,
    ) -> Self {
        let profile = |side| change(profile(provider, side)).build().unwrap();
        Self::of(profile(Side::Client), profile(Side::Server))
    }

    /// Of these profiles.
    pub(crate) fn of(client: Profile, server: Profile) -> Self {
        let server = ServerConfig::new(server).unwrap().with_client_auth(ClientAuth::Required).unwrap();
        Self { client: ClientConfig::new(client), server }
    }

    /// Whether the server wants a cookie first.
    pub(crate) fn cookies(mut self, on: bool) -> Self {
        self.server = self.server.with_cookies(on);
        self
    }

    /// The largest datagrams of both sides.
    pub(crate) fn mtu(mut self, mtu: usize) -> Self {
        self.client = self.client.with_mtu(mtu).unwrap();
        self.server = self.server.with_mtu(mtu).unwrap();
        self
    }

    pub(crate) fn client(self) -> DtlsConnection {
        DtlsConnection::client(&Arc::new(self.client), localhost(), NOW).unwrap()
    }

    pub(crate) fn server(self) -> DtlsConnection {
        DtlsConnection::server(&Arc::new(self.server), NOW)
    }

    /// Both, before the first datagram.
    pub(crate) fn pair(self) -> Pair<DtlsConnection, DtlsConnection> {
        let client = DtlsConnection::client(&Arc::new(self.client), localhost(), NOW).unwrap();
        let server = DtlsConnection::server(&Arc::new(self.server), NOW);
        Pair::new(client, server, NOW, DELAY)
    }
}

/// A profile for one side: its certificate, and trust in the root of the other's.
pub(crate) fn profile(provider: &Arc<CryptoProvider>, side: Side) -> ProfileBuilder {
    let pki = Pki::shared(KeyType::P256);
    let leaf = match side {
        Side::Client => &pki.client,
        Side::Server => &pki.server,
    };
    Profile::builder(Arc::clone(provider))
        .trust(Trust { x509: Some(pki.trust()), raw_key: None })
        .credentials(vec![leaf.x509(provider)])
}

/// Runs until both sides are connected and have told each other so.
pub(crate) fn connect(pair: &mut Pair<DtlsConnection, DtlsConnection>) {
    pair.run().unwrap();
    for side in [&mut pair.client, &mut pair.server] {
        assert_eq!(side.error(), None);
        assert!(!side.is_handshaking(), "the handshake stands still");
        assert!(matches!(side.poll_event(), Some(Event::Connected)));
    }
}

/// All that a connection has received.
pub(crate) fn received(connection: &mut DtlsConnection) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| connection.read()).collect()
}

/// Data from each side to the other.
pub(crate) fn exchange(pair: &mut Pair<DtlsConnection, DtlsConnection>) {
    pair.client.send(b"ping").unwrap();
    pair.server.send(b"pong").unwrap();
    pair.run().unwrap();
    assert_eq!(received(&mut pair.server), [b"ping"]);
    assert_eq!(received(&mut pair.client), [b"pong"]);
}

/// The longest datagram that a side sent.
pub(crate) fn longest<C: Endpoint, S: Endpoint>(pair: &Pair<C, S>, by: Side) -> usize {
    pair.sent.iter().filter(|sent| sent.by == by).map(|sent| sent.datagram.len()).max().unwrap_or(0)
}

/// How many datagrams a side sent.
pub(crate) fn datagrams<C: Endpoint, S: Endpoint>(pair: &Pair<C, S>, by: Side) -> usize {
    pair.sent.iter().filter(|sent| sent.by == by).count()
}
