//! HTTPS to an ACME directory, over Dunlin's own TLS.

use std::pin::Pin;
use std::time::Duration;

use dunlin_tokio::TlsConnector;
use dunlin_tokio::https::HttpsClient;
use hyper::Request;
use hyper::body::Bytes;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

/// How long a request may take, with its connection and its handshake.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// The longest content of a response, in bytes: a chain of certificates has some thousands.
const MAX_CONTENT: usize = 1 << 20;

/// The HTTP client for one directory. Each request has a connection of its own: an order makes some ten
/// requests. A directory must not lead to another scheme than HTTPS (RFC 8555 §6.1).
#[derive(Clone)]
pub(crate) struct AcmeHttp(HttpsClient);

impl AcmeHttp {
    /// A client over these connections.
    pub(crate) fn new(connector: TlsConnector) -> Self {
        let https = HttpsClient::new(connector);
        Self(https.with_deadline(REQUEST_TIME).with_max_content(MAX_CONTENT))
    }
}

impl HttpClient for AcmeHttp {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.0.clone();
        Box::pin(async move {
            let response = client.send(request).await.map_err(|error| Error::Other(error.into()))?;
            let (parts, content) = response.into_parts();
            Ok(BytesResponse { parts, body: Box::new(content) })
        })
    }
}
