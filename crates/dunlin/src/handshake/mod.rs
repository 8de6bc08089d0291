//! The handshakes of the client and of the server. Each file follows the order of the RFC's figure.
//! States exchange whole messages with one interface to the transport, [`crate::transport::Emitter`].
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules                         what they contain
//! 6    tls12_table                   | the table through which a configuration reaches both sides of TLS 1.2
//! 5    client server                 | `start` until the version is known, then `tls12` or `tls13`
//! 4    tls12                         | what both sides of TLS 1.2 share
//! 3    negotiate                     | what each extension does on either side
//! 2    cached                        | abbreviated messages: the receiver has them in its cache
//! 2    post                          | messages after the handshake
//! 2    prove verify ssi              | Certificate and CertificateVerify, or messages in their place
//! 1    step context                  | the kinds of states, and how a state acts on the outside
//! 1    effects event progress commit | events, secrets to log, what the driver may do, changes in stores
//! 0    setup question hints          | configurations, questions and answers, the content of a ClientHello
//! 0    negotiated retry              | the result; HelloRetryRequest and its cookie
//! 0    key_exchange signature        | the premaster secret of TLS 1.2; what CertificateVerify signs
//! ```
//! <!-- end of layers -->

use crate::sync::Arc;

use client::Certificates;
pub(crate) use context::Cx;
use negotiate::early_data::EarlyDataClient;
use negotiate::ssi_parameters::SsiSteps;
pub(crate) use step::{AwaitAnswer, ExpectMessage, Step};
use tls12::Handshakes;

pub(crate) mod cached;
pub(crate) mod client;
pub(crate) mod commit;
pub(crate) mod context;
pub(crate) mod effects;
pub(crate) mod event;
pub(crate) mod hints;
pub(crate) mod key_exchange;
pub(crate) mod negotiate;
pub(crate) mod negotiated;
pub(crate) mod post;
pub(crate) mod progress;
pub(crate) mod prove;
pub(crate) mod question;
pub(crate) mod retry;
pub(crate) mod server;
pub(crate) mod setup;
pub(crate) mod signature;
pub(crate) mod ssi;
pub(crate) mod step;
pub(crate) mod tls12;
pub(crate) mod tls12_table;
pub(crate) mod verify;

/// The parts of the handshake that a client's configuration needs. A program links only the parts to which
/// its configurations point. The configuration contains these pointers, and the functions behind them take
/// the configuration, so the pointers are in the module that all of them share.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientParts {
    /// `None` without TLS 1.2.
    pub(crate) tls12: Option<&'static Handshakes>,
    /// `None` without ssi_parameters.
    pub(crate) ssi: Option<&'static SsiSteps>,
    /// `None` if the client uses pre-shared keys only.
    pub(crate) certificates: Option<&'static Certificates>,
    pub(crate) early_data: Option<EarlyDataClient>,
    pub(crate) cache: Option<Arc<dyn cached::client::Caching>>,
}

/// The parts of the handshake that a server's configuration needs, as [`ClientParts`].
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerParts {
    /// `None` without TLS 1.2.
    pub(crate) tls12: Option<&'static Handshakes>,
    /// `None` without ssi_parameters.
    pub(crate) ssi: Option<&'static SsiSteps>,
    pub(crate) cache: Option<Arc<dyn cached::server::Caching>>,
}
