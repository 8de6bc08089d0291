//! The handler that a server calls for each request, and the peer that a request names.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use coap_lite::{CoapRequest, CoapResponse};
use dunlin::auth::PeerIdentity;
use dunlin_tokio::DtlsAssociation;

use crate::error::CoapError;

/// The peer of a request: `source` of a [`CoapRequest`].
#[derive(Clone, Debug)]
pub struct Peer {
    address: SocketAddr,
    identity: Option<Arc<PeerIdentity>>,
}

impl Peer {
    pub(crate) fn new(association: &DtlsAssociation) -> Self {
        let identity = association.negotiated().peer.clone().map(Arc::new);
        Self { address: association.peer_address(), identity }
    }

    /// The peer's address in the handshake. A client with a connection ID may have moved since.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The identity that the peer has proven in the handshake. `None` if the server lets clients stay
    /// anonymous.
    pub fn identity(&self) -> Option<&PeerIdentity> {
        self.identity.as_deref()
    }
}

/// Answers requests. Every `async` function or closure with the type of [`Handler::handle`] is a handler.
pub trait Handler: Send + Sync + 'static {
    /// Answers a request. [`CoapRequest::source`] is the peer, and [`CoapRequest::response`] an empty
    /// response with code 2.05 (Content). With `None` the client gets no response. A handler that panics
    /// answers 5.00 (Internal Server Error).
    ///
    /// A response that takes long follows an empty acknowledgement ([`crate::Parameters::piggyback`]).
    ///
    /// If the request asks for notifications ([`CoapRequest::get_observe_flag`]), a handler lets the client
    /// observe the resource by setting the response's Observe option to any value. The server then calls the
    /// handler again with the same request for each change ([`crate::Changes::notify`]).
    fn handle(&self, request: CoapRequest<Peer>) -> impl Future<Output = Option<CoapResponse>> + Send;

    /// Called for a response that could not be sent.
    fn failed(&self, _peer: &Peer, _error: &CoapError) {}

    /// Called when a handshake or an association with this address has failed.
    fn disconnected(&self, _address: SocketAddr, _error: &CoapError) {}
}

impl<F, R> Handler for F
where
    F: Fn(CoapRequest<Peer>) -> R + Send + Sync + 'static,
    R: Future<Output = Option<CoapResponse>> + Send,
{
    fn handle(&self, request: CoapRequest<Peer>) -> impl Future<Output = Option<CoapResponse>> + Send {
        self(request)
    }
}
