//! The interface to a client's cache. [`crate::handshake::client`] implements it; only a configuration with a
//! cache points there.

use alloc::boxed::Box;
use core::fmt;

use super::{Form, Use};
use crate::address::ServerAddress;
use crate::cache::{CachedPeer, Fingerprint, Vouched};
use crate::error::Error;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::handshake::setup::ClientConfig;
use crate::message::Message;
use crate::wire::CertificateType;

/// The part of a client's cache that makes offers.
pub(crate) trait Caching: Send + Sync + fmt::Debug {
    /// The offer for this server. `None` if the client's profile trusts no certificates. `resumes` tells that
    /// the client also offers a session or another PSK. If the offer names the server's certificates and the
    /// handshake fails, the next handshake is full: names are short, so they may match the certificates of
    /// another server.
    fn offer(
        &self,
        cx: &mut Cx<'_>,
        config: &ClientConfig,
        server: &ServerAddress,
        resumes: bool,
    ) -> Option<Box<dyn Offered>>;
}

/// The client's offer, until the server answers it.
pub(crate) trait Offered: Send + Sync {
    /// Adds the offer to a ClientHello.
    fn extensions(&self, w: &mut ExtensionsWriter);

    /// The same offer, for another answer to it. Both have the same tickets.
    #[cfg(feature = "association-ports")]
    fn again(&self) -> Box<dyn Offered>;

    /// The use of the cache that the server accepted. `None` if this handshake uses nothing of the cache and
    /// will store nothing.
    fn answered(
        self: Box<Self>,
        extensions: &Extensions<'_>,
        usage: Use,
    ) -> Result<Option<Box<dyn Agreed>>, Error>;
}

/// The use of the cache on which both sides have agreed.
pub(crate) trait Agreed: Send + Sync {
    /// Whether the server recognized this client by a ticket.
    fn uses_ticket(&self) -> bool;

    /// The cached server, if it may abbreviate its Certificate of this type.
    fn server(&self, typ: CertificateType) -> Option<&CachedPeer>;

    /// The cached server and the form of the abbreviation, if this TLS 1.2 Certificate is abbreviated.
    fn certificate(&self, body: &[u8], typ: CertificateType) -> Option<(Box<CachedPeer>, Form)>;

    /// If `message` abbreviates a cached CertificateRequest: that request, its fingerprint and the form.
    /// Otherwise notes the full request, so that the client can keep it.
    fn certificate_request(&mut self, message: &Message) -> Option<(Message, Fingerprint, Form)>;

    /// Records the evidence for the server, which has authenticated.
    fn server_proven(&mut self, vouched: Option<Vouched>);

    /// Records which credential this client uses, if any. Returns the fingerprint of its Certificate if the
    /// server has it.
    fn proves_by(&mut self, credential: Option<usize>) -> Option<Fingerprint>;

    /// Stores the result, since the handshake is complete and the server authenticated. `finished` tells
    /// whether the server is known to have this client's Finished.
    fn keep(
        self: Box<Self>,
        cx: &mut Cx<'_>,
        config: &ClientConfig,
        finished: HasFinished,
    ) -> Result<(), Error>;
}

/// A client's handshake cache in one handshake.
#[derive(Default)]
pub(crate) enum Cache {
    /// The client or the server does not use it.
    #[default]
    None,
    Offered(Box<dyn Offered>),
    Agreed(Box<dyn Agreed>),
}

impl Cache {
    /// The same offer, for another answer to it. `None` once the server has answered.
    #[cfg(feature = "association-ports")]
    pub(crate) fn again(&self) -> Option<Self> {
        match self {
            Self::None => Some(Self::None),
            Self::Offered(offered) => Some(Self::Offered(offered.again())),
            Self::Agreed(_) => None,
        }
    }

    pub(crate) fn agreed(&self) -> Option<&dyn Agreed> {
        match self {
            Self::Agreed(agreed) => Some(&**agreed),
            Self::Offered(_) | Self::None => None,
        }
    }

    pub(crate) fn agreed_mut(&mut self) -> Option<&mut Box<dyn Agreed>> {
        match self {
            Self::Agreed(agreed) => Some(agreed),
            Self::Offered(_) | Self::None => None,
        }
    }

    pub(crate) fn into_agreed(self) -> Option<Box<dyn Agreed>> {
        match self {
            Self::Agreed(agreed) => Some(agreed),
            Self::Offered(_) | Self::None => None,
        }
    }
}

/// Whether the server is known to have this client's Finished. Without it, the server stores no ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HasFinished {
    Yes,
    /// The client's Finished was the last message, and the server has not answered yet.
    Unknown,
}
