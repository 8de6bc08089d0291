//! HTTPS to an ACME directory, over Dunlin's own TLS.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dunlin::auth::X509Trust;
use dunlin::crypto::CryptoProvider;
use dunlin::{ClientConfig, Profile, ServerAddress, Trust};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_tokio::TlsConnector;
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::time::timeout;

use crate::proxy;

/// How long the connection to the directory may take.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// How long a request may take, with its connection and its handshake.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// The longest content of a response, in bytes: a chain of certificates has some thousands.
const MAX_CONTENT: usize = 1 << 20;

/// The HTTP client for one directory. Each request has a connection of its own: an order makes some ten requests.
#[derive(Clone)]
pub(crate) struct AcmeHttp(TlsConnector);

impl AcmeHttp {
    /// A client that trusts these authorities.
    ///
    /// # Errors
    /// The provider lacks what a profile needs.
    pub(crate) fn new(provider: &Arc<CryptoProvider>, trust: X509Trust) -> Result<Self, dunlin::Error> {
        let profile = Profile::builder(provider.clone())
            .trust(Trust { x509: Some(trust), raw_key: None })
            .tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
            .alpn(vec![b"http/1.1".to_vec()])
            .build()?;
        Ok(Self(TlsConnector::new(Arc::new(ClientConfig::new(profile)))))
    }

    async fn exchange(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, String> {
        let uri = request.uri().clone();
        let (host, port) = server(&uri)?;
        let named = |what: &str, why: &dyn std::fmt::Display| format!("{host}:{port}: {what}: {why}");
        let connected = proxy::connect(&format!("{host}:{port}"), CONNECT_TIME).await;
        let tcp = connected.map_err(|(_, error)| named("not connected", &error))?;
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let server =
            ServerAddress::parse(name, port).map_err(|error| named("no name of a server", &error))?;
        let tls = self.0.connect(tcp, server).await;
        let tls = tls.map_err(|error| named("the TLS handshake failed", &error))?;
        let (mut sender, connection) =
            handshake(TokioIo::new(tls)).await.map_err(|error| named("HTTP failed", &error))?;
        // It ends with the sender, or with the timeout that drops both.
        let exchange = async {
            let response = sender.send_request(origin_form(request, &host, port)?).await;
            let response = response.map_err(|error| named("HTTP failed", &error))?;
            let (parts, body) = response.into_parts();
            let content = Limited::new(body, MAX_CONTENT).collect().await;
            let content = content.map_err(|error| named("the response was not received", &error))?;
            Ok(BytesResponse { parts, body: Box::new(content.to_bytes()) })
        };
        tokio::pin!(connection, exchange);
        let mut is_open = true;
        loop {
            tokio::select! {
                response = &mut exchange => return response,
                // The end of the connection also ends the exchange.
                _ = &mut connection, if is_open => is_open = false,
            }
        }
    }
}

/// Host and port of a URL of HTTPS. A directory must not lead to another scheme (RFC 8555 §6.1).
fn server(uri: &Uri) -> Result<(String, u16), String> {
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(host)) => Ok((host.to_owned(), uri.port_u16().unwrap_or(443))),
        _ => Err(format!("{uri}: the directory names a URL that is not one of HTTPS")),
    }
}

/// The request as HTTP/1.1 sends it: the host in a header, and only the path in the first line.
fn origin_form(
    request: Request<BodyWrapper<Bytes>>,
    host: &str,
    port: u16,
) -> Result<Request<BodyWrapper<Bytes>>, String> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let bad = |what: &str| format!("{}: {what}", parts.uri);
    let path = path.parse::<Uri>().map_err(|error| bad(&error.to_string()))?;
    let host = if port == 443 { host.to_owned() } else { format!("{host}:{port}") };
    let host = HeaderValue::try_from(host).map_err(|error| bad(&error.to_string()))?;
    parts.headers.insert(HOST, host);
    parts.uri = path;
    Ok(Request::from_parts(parts, body))
}

impl HttpClient for AcmeHttp {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (client, uri) = (self.clone(), request.uri().clone());
        Box::pin(async move {
            let late = |_| Err(format!("{uri}: no response within {} s", REQUEST_TIME.as_secs()));
            let response = timeout(REQUEST_TIME, client.exchange(request)).await.unwrap_or_else(late);
            response.map_err(|error| Error::Other(error.into()))
        })
    }
}
