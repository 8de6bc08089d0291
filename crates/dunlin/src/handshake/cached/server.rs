//! The interface to a server's cache. [`crate::handshake::server`] implements it; only a configuration with a
//! cache points there.

use crate::sync::Arc;
use alloc::boxed::Box;
use core::fmt;

use super::{Form, Use};
use crate::auth::PeerIdentity;
use crate::cache::{CachedPeer, Fingerprint, ServerCache, Ticket, Vouched};
use crate::error::Error;
use crate::extension::ExtensionsWriter;
use crate::handshake::Cx;
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::resume::SettingsDigest;
use crate::time::Now;
use crate::wire::CertificateType;

/// The part of a server's cache that answers a ClientHello.
pub(crate) trait Caching: Send + Sync + fmt::Debug {
    /// The part of the client's offer that the server accepts. `None` if the client offers no cache. The
    /// look-up does not change the store, because the client has not authenticated yet.
    fn agree(
        &self,
        cx: &mut Cx<'_>,
        config: &ServerConfig,
        hello: &ClientHello,
        sends: &Sends<'_>,
        usage: Use,
    ) -> Result<Option<Box<dyn Agreed>>, Error>;

    /// The client with this ticket, if its entry is usable under one of these digests of trust. The client
    /// has proven nothing.
    fn recognize(&self, now: Now, ticket: &Ticket, trusts: &[SettingsDigest]) -> Option<PeerIdentity>;

    /// The store of clients.
    fn store(&self) -> Arc<dyn ServerCache>;

    /// The same cache with another store.
    fn with_store(&self, store: Arc<dyn ServerCache>) -> Arc<dyn Caching>;
}

/// The use of the cache on which both sides have agreed.
pub(crate) trait Agreed: Send + Sync {
    /// Adds the answer to EncryptedExtensions, or to the ServerHello in TLS 1.2.
    fn extensions(&self, w: &mut ExtensionsWriter);

    /// The fingerprint of the server's Certificate, if the client has it, and the form of its abbreviation in
    /// TLS 1.2.
    fn own(&self) -> Option<(Fingerprint, Form)>;

    /// The fingerprint of the server's TLS 1.2 CertificateRequest, if the client has it, and the form of its
    /// abbreviation.
    fn request(&self) -> Option<(Fingerprint, Form)>;

    /// Takes the cached client, if it may abbreviate its Certificate.
    fn take_client(&mut self) -> Option<Box<CachedPeer>>;

    /// Records the evidence for the client, once it has authenticated.
    fn client_proven(&mut self, vouched: Option<Vouched>);

    /// Stores the client under a new ticket, since its Finished was verified and its identity is known.
    fn keep(self: Box<Self>, cx: &Cx<'_>, config: &ServerConfig) -> Result<(), Error>;
}

/// The credentials that this server will send and request.
pub(crate) struct Sends<'a> {
    /// The index of its credential.
    pub(in crate::handshake) credential: Option<usize>,
    /// Its TLS 1.2 CertificateRequest.
    pub(in crate::handshake) request: Option<&'a [u8]>,
    /// The type of certificate that it requests. `None` if it requests none.
    pub(in crate::handshake) client_type: Option<CertificateType>,
}
