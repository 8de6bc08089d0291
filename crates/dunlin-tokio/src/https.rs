//! A client of HTTPS: HTTP/1.1 over Dunlin's TLS, for the few requests that programs make beside their own
//! protocol.
//!
//! Each request has a connection of its own, a deadline, and a longest content. Redirections are not
//! followed. Every error names the address, or the URL that has none.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use dunlin::ServerAddress;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::addresses;
use crate::connector::TlsConnector;

/// How long a request may take by default, from the look-up of the host's address to the last byte of the
/// answer.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// The longest content of an answer by default, in bytes.
pub const DEFAULT_MAX_CONTENT: usize = 64 * 1024;

/// The product of this client (RFC 9110 §10.1.5).
const PRODUCT: HeaderValue = HeaderValue::from_static(concat!("dunlin/", env!("CARGO_PKG_VERSION")));

/// The longest header of an answer, in bytes.
const MAX_HEADER: usize = 16 * 1024;

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpsError {
    /// The URL has another scheme than `https`, no host, or a user name.
    #[error("{0}: not a URL of HTTPS; write https://HOST[:PORT][/PATH]")]
    Url(String),
    /// Nothing accepts connections there.
    #[error("{address}: not connected: {why}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// The system's reason.
        why: String,
    },
    /// The server does not prove that it is this host, or shares no parameters.
    #[error("{address}: the TLS handshake failed: {why}")]
    Tls {
        /// Host and port.
        address: String,
        /// The reason.
        why: String,
    },
    /// The server breaks HTTP, or the connection.
    #[error("{address}: HTTP failed: {why}")]
    Http {
        /// Host and port.
        address: String,
        /// The reason.
        why: String,
    },
    /// The content of the answer is too long.
    #[error("{address}: the answer has more than {limit} bytes")]
    TooLong {
        /// Host and port.
        address: String,
        /// The longest content that this client takes.
        limit: usize,
    },
    /// The deadline has passed.
    #[error("{address}: no answer within {seconds} s")]
    Late {
        /// Host and port.
        address: String,
        /// The deadline.
        seconds: u64,
    },
}

/// A client, cheap to clone. Its connector decides whom it trusts.
#[derive(Clone)]
pub struct HttpsClient {
    connector: TlsConnector,
    deadline: Duration,
    max_content: usize,
}

impl HttpsClient {
    /// A client with [`DEFAULT_DEADLINE`] and [`DEFAULT_MAX_CONTENT`]. If the connector offers ALPN
    /// protocols, `http/1.1` is one of them.
    pub const fn new(connector: TlsConnector) -> Self {
        Self { connector, deadline: DEFAULT_DEADLINE, max_content: DEFAULT_MAX_CONTENT }
    }

    /// Sets how long a request may take.
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the longest content of an answer, in bytes.
    #[must_use]
    pub const fn with_max_content(mut self, max_content: usize) -> Self {
        self.max_content = max_content;
        self
    }

    /// How long a request may take.
    pub const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Sends a request for an absolute URL, and waits for the whole answer, of whatever status.
    ///
    /// # Errors
    /// [`HttpsError`].
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<Bytes>, HttpsError>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let place = Resource::of(request.uri())?;
        let answered = timeout(self.deadline, self.exchange(&place, request)).await;
        let late = HttpsError::Late { address: place.address, seconds: self.deadline.as_secs() };
        answered.unwrap_or(Err(late))
    }

    async fn exchange<B>(&self, place: &Resource, request: Request<B>) -> Result<Response<Bytes>, HttpsError>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let address = || place.address.clone();
        let connecting = async {
            let (host, port) = addresses::split(&place.address)?;
            addresses::connect(&addresses::look_up(host, port).await?).await
        };
        let tcp = connecting.await;
        let tcp =
            tcp.map_err(|error| HttpsError::Unreachable { address: address(), why: error.to_string() })?;
        // The request is one write.
        let _ = tcp.set_nodelay(true);
        let tls = self.connector.connect(tcp, place.name.clone()).await;
        let tls = tls.map_err(|error| HttpsError::Tls { address: address(), why: error.to_string() })?;
        exchange(tls, &place.address, place.origin_form(request), self.max_content).await
    }
}

/// Sends a request over an open connection, whose other side is already trusted, and waits for the whole
/// answer. `address` names it in errors.
///
/// # Errors
/// [`HttpsError::Http`], [`HttpsError::TooLong`].
pub async fn exchange<B>(
    connection: impl AsyncRead + AsyncWrite + Unpin,
    address: &str,
    request: Request<B>,
    max_content: usize,
) -> Result<Response<Bytes>, HttpsError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let failed = |why| HttpsError::Http { address: address.to_owned(), why };
    let http = |error: hyper::Error| failed(causes(&error));
    let handshake = http1::Builder::new().max_buf_size(MAX_HEADER).handshake(TokioIo::new(connection)).await;
    let (mut sender, connection) = handshake.map_err(http)?;
    let exchange = async {
        let (parts, body) = sender.send_request(request).await.map_err(http)?.into_parts();
        let content = Limited::new(body, max_content).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                HttpsError::TooLong { address: address.to_owned(), limit: max_content }
            } else {
                failed(causes(&*error))
            }
        })?;
        Ok(Response::from_parts(parts, content.to_bytes()))
    };
    let mut connection = pin!(connection);
    let mut exchange = pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // The end of the connection also ends the exchange; what had arrived before may be the whole answer.
        _ = &mut connection => exchange.await,
    }
}

impl fmt::Debug for HttpsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpsClient").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// An error with its causes. The errors of hyper show only the first cause.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Reads an HTTPS URL. Plain HTTP is refused: it does not authenticate the answers.
///
/// # Errors
/// [`HttpsError::Url`].
pub fn url(text: &str) -> Result<Uri, HttpsError> {
    let wrong = || HttpsError::Url(text.to_owned());
    let url: Uri = text.parse().map_err(|_| wrong())?;
    Resource::of(&url).map_err(|_| wrong())?;
    Ok(url)
}

/// A server, and the resource that a request names there.
struct Resource {
    /// `HOST:PORT`, with an IPv6 address in brackets.
    address: String,
    /// The name that the server has to prove.
    name: ServerAddress,
    host: HeaderValue,
    path: Uri,
}

impl Resource {
    fn of(url: &Uri) -> Result<Self, HttpsError> {
        let place = || {
            let authority = url.authority().filter(|_| url.scheme_str() == Some("https"))?;
            // RFC 9110 §4.2.4: a user name in a URL serves only to deceive.
            if authority.as_str().contains('@') {
                return None;
            }
            let host = authority.host();
            // RFC 3986 §3.2.3: the port may be left out or empty. Another text that is no port must not lead
            // to port 443.
            let port = match authority.as_str().strip_prefix(host)? {
                "" | ":" => 443,
                _ => authority.port_u16()?,
            };
            let name = ServerAddress::parse(host.trim_matches(['[', ']']), port).ok()?;
            let path = url.path_and_query().map_or("/", |path| path.as_str());
            // RFC 9110 §4.2.3: the default port is left out.
            let in_header = if port == 443 { host.to_owned() } else { format!("{host}:{port}") };
            Some(Self {
                address: format!("{host}:{port}"),
                name,
                host: in_header.try_into().ok()?,
                path: path.parse().ok()?,
            })
        };
        place().ok_or_else(|| HttpsError::Url(url.to_string()))
    }

    /// The request as HTTP/1.1 sends it: the host in a header, and only the path in the first line (RFC 9112
    /// §3.2.1).
    fn origin_form<B>(&self, mut request: Request<B>) -> Request<B> {
        request.headers_mut().insert(HOST, self.host.clone());
        // RFC 9110 §10.1.5. Some web servers refuse requests without it.
        request.headers_mut().entry(USER_AGENT).or_insert(PRODUCT);
        *request.uri_mut() = self.path.clone();
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_which_program_asks() {
        let place = Resource::of(&url("https://example.org/a").unwrap()).unwrap();
        let request = place.origin_form(Request::new(()));
        assert!(request.headers()[USER_AGENT].to_str().unwrap().starts_with("dunlin/0."));
        let own = Request::builder().header(USER_AGENT, "sensor/1").body(()).unwrap();
        assert_eq!(place.origin_form(own).headers()[USER_AGENT], "sensor/1");
    }

    #[test]
    fn only_urls_of_https_are_places() {
        let of = |text: &str| {
            let place = Resource::of(&url(text)?)?;
            Ok::<_, HttpsError>((place.address, place.host, place.path.to_string()))
        };
        let place = |address: &str, host: &'static str, path: &str| {
            Ok((address.to_owned(), HeaderValue::from_static(host), path.to_owned()))
        };
        assert_eq!(of("https://example.org"), place("example.org:443", "example.org", "/"));
        assert_eq!(of("https://example.org:8443/a?b"), place("example.org:8443", "example.org:8443", "/a?b"));
        assert_eq!(of("https://[::1]:1/a"), place("[::1]:1", "[::1]:1", "/a"));
        assert_eq!(of("https://example.org:/a"), place("example.org:443", "example.org", "/a"));
        for wrong in [
            "http://example.org",
            "example.org",
            "https:///path",
            "https://a@example.org",
            "https://a b",
            "https://example.org:84430",
            "https://example.org:abc",
            "https://[::1]:65536/",
            "",
        ] {
            assert_eq!(of(wrong), Err(HttpsError::Url(wrong.to_owned())), "{wrong}");
        }
    }
}
