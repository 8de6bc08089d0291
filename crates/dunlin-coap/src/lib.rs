//! CoAP (RFC 7252) over DTLS, as `coaps`: messages of the crate [`coap_lite`] over
//! [`dunlin_tokio::DtlsAssociation`].
//!
//! A [`CoapClient`] sends requests over an association and observes resources (RFC 7641):
//!
//! ```no_run
//! use coap_lite::{CoapRequest, RequestType};
//! use dunlin_coap::{COAPS_PORT, CoapClient};
//! # use std::sync::Arc;
//! # use dunlin::{ClientConfig, ServerAddress};
//! # use dunlin_tokio::DtlsEndpoint;
//!
//! # async fn example(config: Arc<ClientConfig>) -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = DtlsEndpoint::bind("[::]:0".parse()?).await?;
//! let server = ServerAddress::parse("sensor.example", COAPS_PORT)?;
//! let dtls = endpoint.connect(&config, server, "[2001:db8::1]:5684".parse()?).await?;
//! let client = CoapClient::new(dtls)?;
//!
//! let mut request = CoapRequest::<()>::new();
//! request.set_method(RequestType::Get);
//! request.set_path("/temperature");
//! let response = client.request(request).await?;
//! println!("{:?}: {}", response.get_status(), String::from_utf8_lossy(&response.message.payload));
//! # Ok(())
//! # }
//! ```
//!
//! A [`CoapServer`] calls a [`Handler`] for each request. The handler knows the authenticated peer
//! ([`Peer`]).
//!
//! Both drive [`Exchanges`], which has neither I/O nor a clock and serves programs without tokio: it
//! retransmits confirmable messages, acknowledges them, repeats replies to duplicates, and matches responses
//! to requests.
//!
//! # Limits
//! A message is one record and one datagram. Block-wise transfer (RFC 7959), OSCORE and proxies are the
//! application's: it can name their options in [`Parameters::critical_options`], and handles them itself.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules                    what they contain
//! 3    client server            | one side of an association
//! 2    driver                   | moves messages between exchanges and an association
//! 1    exchanges                | the message layer, without I/O
//! 0    error handler options parameters | errors, the application's handler, options, settings
//! ```
//! <!-- end of layers -->
#![forbid(unsafe_code)]

mod client;
mod driver;
mod error;
mod exchanges;
mod handler;
mod options;
mod parameters;
mod server;

pub use client::{CoapClient, Observation};
pub use coap_lite;
pub use error::{CoapError, InvalidParameters};
pub use exchanges::{ExchangeEvent, ExchangeId, Exchanges, RequestId};
pub use handler::{Handler, Peer};
pub use parameters::Parameters;
pub use server::{Changes, CoapServer};

/// The UDP port of `coaps` (RFC 7252 §12.7).
pub const COAPS_PORT: u16 = 5684;
