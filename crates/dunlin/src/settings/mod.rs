//! Settings as the states of a handshake read them: plain data that names no part of the handshake.
//! [`crate::config`] builds and validates them.

use crate::sync::Arc;
use core::fmt;

use crate::auth::{ChoosePsk, FindPsk};

mod profile;

pub(crate) use profile::{ProfileSettings, Tls12};

/// Whether a server asks clients for a certificate or raw key. A PSK, which proves the client already, replaces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientAuth {
    /// It does not ask.
    #[default]
    None,
    /// It asks, and goes on without.
    Optional,
    /// It asks, and refuses clients without.
    Required,
}

/// How a client of TLS 1.2 chooses its pre-shared key.
#[derive(Clone, Default)]
pub enum PskChoice {
    /// The first that it has, whatever the server's hint says (RFC 4279 §5.2).
    #[default]
    First,
    /// At hand.
    Here(Arc<dyn ChoosePsk>),
    /// Elsewhere: the connection asks [`crate::Question::ChoosePsk`].
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
#[derive(Clone, Default)]
pub enum PskSource {
    /// It has none.
    #[default]
    None,
    /// At hand.
    Here(Arc<dyn FindPsk>),
    /// Elsewhere: the connection asks [`crate::Question::FindPsk`].
    Ask,
}

impl fmt::Debug for PskSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Here(_) => "Here",
            Self::Ask => "Ask",
        })
    }
}
