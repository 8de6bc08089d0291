//! A server that calls a handler for each request.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use dunlin_tokio::{DtlsEndpoint, DtlsIncoming, DtlsOptions};
use tokio::sync::broadcast;
use tokio::task::JoinSet;

use crate::driver::Driver;
use crate::error::InvalidParameters;
use crate::handler::Handler;
use crate::parameters::Parameters;

/// The most changes that wait for an association. If there are more, all its observers are notified.
const MAX_CHANGES: usize = 64;

/// Tells servers that their resources change ([`CoapServer::with_changes`]). It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Changes(broadcast::Sender<Arc<str>>);

impl Default for Changes {
    fn default() -> Self {
        Self(broadcast::channel(MAX_CHANGES).0)
    }
}

impl Changes {
    /// Notifies the observers of the resource at this path, such as `sensors/temperature`. An observer that
    /// has not acknowledged the previous notification gets the next one afterwards.
    pub fn notify(&self, path: &str) {
        // The call fails if the server has no association. Then there is no observer.
        let _ = self.0.send(path.trim_start_matches('/').into());
    }
}

/// A CoAP server on a DTLS endpoint, whose configuration says how clients authenticate
/// ([`DtlsEndpoint::set_server`]).
///
/// # Examples
/// ```no_run
/// use coap_lite::CoapRequest;
/// use dunlin_coap::{CoapServer, Peer};
/// # use dunlin_tokio::DtlsEndpoint;
///
/// # async fn example(endpoint: DtlsEndpoint) {
/// let server = CoapServer::new(endpoint, async |request: CoapRequest<Peer>| {
///     let mut response = request.response?;
///     let identity = request.source.as_ref().and_then(Peer::identity);
///     response.message.payload = identity.map(ToString::to_string).unwrap_or_default().into_bytes();
///     Some(response)
/// });
/// server.run().await;
/// # }
/// ```
pub struct CoapServer<H> {
    endpoint: DtlsEndpoint,
    handler: Arc<H>,
    parameters: Parameters,
    options: DtlsOptions,
    changes: Changes,
}

impl<H: Handler> CoapServer<H> {
    /// A server with the default parameters.
    pub fn new(endpoint: DtlsEndpoint, handler: H) -> Self {
        Self {
            endpoint,
            handler: Arc::new(handler),
            parameters: Parameters::default(),
            options: DtlsOptions::new(),
            changes: Changes::default(),
        }
    }

    /// Sets the parameters.
    ///
    /// # Errors
    /// A parameter is out of range.
    pub fn with_parameters(mut self, parameters: Parameters) -> Result<Self, InvalidParameters> {
        parameters.check()?;
        self.parameters = parameters;
        Ok(self)
    }

    /// Sets the options of handshakes.
    #[must_use]
    pub fn with_options(mut self, options: DtlsOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the value that tells of changes of resources.
    #[must_use]
    pub fn with_changes(mut self, changes: Changes) -> Self {
        self.changes = changes;
        self
    }

    /// Serves clients until the future is dropped, which ends all associations.
    pub async fn run(self) {
        let mut associations = JoinSet::new();
        loop {
            tokio::select! {
                incoming = self.endpoint.accept() => {
                    let association = self.serve(incoming);
                    associations.spawn(association);
                }
                Some(_) = associations.join_next() => {}
            }
        }
    }

    /// Serves one client.
    fn serve(&self, incoming: DtlsIncoming) -> impl Future<Output = ()> + Send + use<H> {
        let handler = Arc::clone(&self.handler);
        let parameters = self.parameters.clone();
        let options = self.options.clone();
        let changes = self.changes.0.subscribe();
        async move {
            let address = incoming.peer_address();
            let served = async {
                let association = incoming.accept_with(&options).await?;
                Driver::new(association, parameters)?.run_server(Arc::clone(&handler), changes).await
            };
            if let Err(error) = served.await {
                handler.disconnected(address, &error);
            }
        }
    }
}

impl<H> fmt::Debug for CoapServer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoapServer").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
