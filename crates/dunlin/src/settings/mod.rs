//! The settings that the states of a handshake read: plain data, independent of the handshake's code.
//! [`crate::config`] builds and validates them.

use crate::sync::Arc;
use core::fmt;

use crate::auth::{ChoosePsk, FindPsk};

mod datagram;
mod migration;
mod multihoming;
mod nodes;
mod ports;
mod profile;
mod ranks;
mod ssi;

pub use datagram::{ConnectionIds, CookieKeys, MAX_CONNECTION_ID, NodeIds, Retransmission};
pub(crate) use datagram::{DatagramSettings, MTU_RANGE};
pub use migration::{Migration, PathCheck};
pub(crate) use multihoming::Linking;
pub use multihoming::{MAX_INTERFACES, Multihoming};
pub use nodes::{MaskedNodeIds, NodeMask};
pub use ports::{NoPort, PortScheme};
pub(crate) use profile::{
    CertificateSettings, ProfileSettings, PskSettings, ReadDetails, RecordSettings, Tls12,
};
pub(crate) use ranks::Ranks;
pub use ssi::SsiMessages;

/// Whether a server asks clients for a certificate or raw key. It never asks if a PSK authenticates the
/// client. (Beside a PSK of [`crate::ProfileBuilder::tls_cert_with_extern_psk`], certificates authenticate.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientAuth {
    /// The server does not ask.
    #[default]
    None,
    /// The server asks, and accepts clients without a certificate.
    Optional,
    /// The server asks, and rejects clients without a certificate.
    Required,
}

/// How a TLS 1.2 client chooses its pre-shared key.
#[derive(Clone, Default)]
pub enum PskChoice {
    /// The client uses its first key, whatever the server's hint says (RFC 4279 §5.2).
    #[default]
    First,
    /// This object chooses at once.
    Here(Arc<dyn ChoosePsk>),
    /// The connection asks the caller by [`crate::Question::ChoosePsk`].
    Ask,
}

impl fmt::Debug for PskChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "First",
            Self::Here(_) => "Here",
            Self::Ask => "Ask",
        })
    }
}

/// Where a server finds external PSKs.
#[derive(Clone)]
pub enum PskSource {
    /// This object finds them at once.
    Here(Arc<dyn FindPsk>),
    /// The connection asks the caller by [`crate::Question::FindPsk`].
    Ask,
}

impl fmt::Debug for PskSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Here(_) => "Here",
            Self::Ask => "Ask",
        })
    }
}
