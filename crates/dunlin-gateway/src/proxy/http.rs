//! TLS to HTTP/1.1: requests get headers with the client's identity, and pass to a connection of their own
//! client to the backend.
//!
//! A backend connection serves one client only, so that a fault in the framing of a message cannot mix up
//! clients.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use dunlin::{Negotiated, PeerIdentity};
use dunlin_identity::handshake::CredentialIdentity;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
    UPGRADE,
};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connect;
use super::tcp::{CLOSE_PATIENCE, Counted, Traffic};
use crate::config::Limits;
use crate::identity;
use crate::target::{self, Refusal};

/// The client's certificate and its chain without the leaf (RFC 9440 §2.2, §2.3).
const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");
/// The identity as text with its kind, whatever the way of authentication ([`identity::typed`]).
const CLIENT_IDENTITY: HeaderName = HeaderName::from_static("dunlin-client-identity");
/// The issuer of the client's verifiable credential, and the credential's claims.
const CLIENT_ISSUER: HeaderName = HeaderName::from_static("dunlin-client-issuer");
const CLIENT_CLAIMS: HeaderName = HeaderName::from_static("dunlin-client-claims");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Headers that only the gateway may set, and headers that applications take for them. They tell the client's
/// identity and the requested host.
const OWN: [&str; 12] = [
    "client-cert",
    "client-cert-chain",
    "dunlin-client-claims",
    "dunlin-client-identity",
    "dunlin-client-issuer",
    "forwarded",
    "true-client-ip",
    "x-client-ip",
    "x-original-host",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
];

/// The headers that begin so are the gateway's, too. Many frameworks believe `X-Forwarded-Host`, and some
/// proxies `X-Forwarded`.
const OWN_PREFIX: &str = "x-forwarded";

/// Whether only the gateway may send this header.
fn is_own(name: &HeaderName) -> bool {
    let name = plain(name);
    OWN.contains(&&*name) || name.starts_with(OWN_PREFIX)
}

/// The name for which a backend may take this one: if it turns headers into variables, as CGI does, every
/// character becomes `_` that is no letter or digit.
fn plain(name: &HeaderName) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    name.as_str().chars().map(letter).collect()
}

/// Headers of one connection, besides those that `Connection` names (RFC 9110 §7.6.1).
///
/// `Trailer` is among them: fields of a trailer could otherwise carry headers that only the gateway may set.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The only protocol to which a connection may switch. In others, such as HTTP/2, a client could say who it
/// is.
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// The longest `Client-Cert-Chain`, in bytes. Backends limit their headers; a longer chain is left out, and
/// the leaf is still there.
const MAX_CHAIN: usize = 16 << 10;

/// The longest `Dunlin-Client-Claims`, in bytes. Longer claims are left out.
const MAX_CLAIMS: usize = 4 << 10;

/// How many fields the header of a message may have.
pub(crate) const MAX_FIELDS: usize = 256;

type Body = BoxBody<Bytes, hyper::Error>;

/// Why a client gets no answer of the backend.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the server behind the gateway cannot be reached")]
    Unreachable(#[source] io::Error),
    #[error("the server behind the gateway closed the connection before it answered")]
    Closed(#[source] hyper::Error),
    #[error("the server behind the gateway answered with something that is not HTTP/1")]
    NotHttp(#[source] hyper::Error),
    #[error("the header of the answer is too long, or has more than {MAX_FIELDS} fields")]
    TooLong(#[source] hyper::Error),
    #[error("the server behind the gateway answered in a transfer coding besides chunked")]
    Coding,
    #[error(
        "the server behind the gateway answered 101 without a request for it, or without Upgrade: websocket"
    )]
    Switched,
    /// The client's fault.
    #[error("the content of the request is damaged, or breaks off")]
    Content(#[source] hyper::Error),
}

impl From<hyper::Error> for Fault {
    fn from(error: hyper::Error) -> Self {
        // To hyper, the client's request is its user's.
        match () {
            () if error.is_user() => Self::Content(error),
            () if error.is_parse_too_large() => Self::TooLong(error),
            () if error.is_parse() => Self::NotHttp(error),
            () => Self::Closed(error),
        }
    }
}

impl Fault {
    fn status(&self) -> StatusCode {
        match self {
            Self::Content(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::BAD_GATEWAY,
        }
    }
}

/// The backend of a client, with the settings of requests to it.
pub(crate) struct Exchange {
    /// Its host and port.
    pub(crate) to: String,
    pub(crate) connect_time: Duration,
    /// The PROXY header at the beginning of each connection; empty: none.
    pub(crate) proxy_header: Vec<u8>,
    /// The headers that the gateway adds.
    pub(crate) headers: HeaderMap,
    /// Called with the outcome of each connection to the backend.
    pub(crate) connected: Box<dyn Fn(&'static str) + Send + Sync>,
    /// Called for each request that gets no answer of the backend.
    pub(crate) failed: Box<dyn Fn(&Fault) + Send + Sync>,
    /// Whether the route serves this host. Otherwise a request for it gets status 421.
    pub(crate) serves: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Whether the client may use the route. Otherwise each request gets status 403.
    pub(crate) is_admitted: bool,
}

/// The headers that tell a backend who the client is.
pub(crate) fn headers(negotiated: &Negotiated, from: SocketAddr) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut add = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    if let Some(PeerIdentity::X509(id)) = &negotiated.peer {
        // RFC 9440 §2.1: a byte sequence of RFC 8941.
        let item = |der: &[u8]| format!(":{}:", Base64::encode_string(der));
        if let [leaf, chain @ ..] = &id.chain[..] {
            add(CLIENT_CERT, item(leaf));
            let chain = chain.iter().map(|der| item(der)).collect::<Vec<_>>().join(", ");
            if !chain.is_empty() && chain.len() <= MAX_CHAIN {
                add(CLIENT_CERT_CHAIN, chain);
            }
        }
    }
    if let Some(identity) = negotiated.peer.as_ref().and_then(identity::typed) {
        // A name outside ASCII, which a header cannot carry, is escaped.
        add(CLIENT_IDENTITY, identity.escape_default().to_string());
    }
    if let Some(credential) = negotiated.peer.as_ref().and_then(CredentialIdentity::of) {
        add(CLIENT_ISSUER, credential.issuer.to_string());
        if let Some(claims) = identity::claims(&credential).filter(|claims| claims.len() <= MAX_CLAIMS) {
            add(CLIENT_CLAIMS, claims);
        }
    }
    // Without brackets, which only RFC 7239 has, for `Forwarded`.
    add(FORWARDED_FOR, from.ip().to_canonical().to_string());
    add(FORWARDED_PROTO, "https".to_owned());
    headers
}

/// Why a connection has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    /// Both sides have finished.
    #[error("closed")]
    Closed,
    /// There was no traffic for the idle time.
    #[error("no traffic within idle_time")]
    Idle,
    /// The gateway stops.
    #[error("the gateway stops")]
    Stopped,
    /// The header of a request was too long.
    #[error("the header of a request was too long, or had more than {MAX_FIELDS} fields")]
    HeaderTooLong,
    /// The content of an answer did not come to its end.
    #[error("the backend broke off its answer: {0}")]
    Backend(hyper::Error),
    /// The client broke HTTP, or its connection failed.
    #[error("the client's connection failed: {0}")]
    Failed(hyper::Error),
}

/// The result of [`serve`].
pub(crate) struct Served {
    pub(crate) end: End,
    /// Bytes of application data.
    pub(crate) from_client: u64,
    pub(crate) to_client: u64,
}

/// Serves the requests of a client until it ends. Once the first of `stops` is ready, the request in progress
/// is the last one; the second one ends it.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    client: S,
    exchange: Arc<Exchange>,
    limits: &Limits,
    stops: [impl Future<Output = ()>; 2],
) -> Served {
    let traffic = Arc::new(Traffic::begin());
    let upgraded = Arc::new(Mutex::new(JoinSet::new()));
    let backend = Arc::new(Mutex::new(None));
    let service = {
        let upgraded = upgraded.clone();
        service_fn(move |request| {
            let exchange = exchange.clone();
            let backend = backend.clone();
            let upgraded = upgraded.clone();
            async move { Ok::<_, Infallible>(exchange.answer(request, &backend, &upgraded).await) }
        })
    };
    let mut http = http1::Builder::new();
    let http = http
        .timer(TokioTimer::new())
        // It also runs between requests, where the idle time ends the connection first, with a close_notify.
        .header_read_timeout(limits.idle_time.saturating_add(2 * CLOSE_PATIENCE))
        // hyper's buffer holds 8 KiB at least.
        .max_buf_size(limits.header_bytes.max(8192))
        // Some devices and backends know a field only in one case, though it has none (RFC 9110 §5.1).
        .preserve_header_case(true)
        .title_case_headers(true)
        .max_headers(MAX_FIELDS);
    let client = TokioIo::new(Counted::new(client, traffic.clone()));
    let mut connection = std::pin::pin!(http.serve_connection(client, service).with_upgrades());
    let [drain, ending] = stops;
    let idle = traffic.idle(limits.idle_time);
    let mut drain = std::pin::pin!(drain);
    let mut ending = std::pin::pin!(ending);
    let mut idle = std::pin::pin!(idle);
    let mut is_draining = false;
    let ended = loop {
        tokio::select! {
            ended = &mut connection => break ended.map_err(|error| match () {
                () if error.is_parse_too_large() => End::HeaderTooLong,
                () if error.is_user() => End::Backend(error),
                () => End::Failed(error),
            }),
            () = &mut drain, if !is_draining => {
                is_draining = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut ending => break Err(End::Stopped),
            () = &mut idle => break Err(End::Idle),
        }
    };
    let end = match ended {
        Ok(()) => {
            // The connection may go on as another protocol.
            let mut upgraded = upgraded.lock().await;
            tokio::select! {
                _ = upgraded.join_next(), if !upgraded.is_empty() => End::Closed,
                () = &mut ending, if !upgraded.is_empty() => End::Stopped,
                () = &mut idle, if !upgraded.is_empty() => End::Idle,
                else => End::Closed,
            }
        }
        Err(end) => {
            if matches!(end, End::Idle | End::Stopped) {
                // Between requests, the client gets a close_notify. A response that is not complete is cut
                // off.
                connection.as_mut().graceful_shutdown();
                let _ = timeout(CLOSE_PATIENCE, connection).await;
            }
            end
        }
    };
    let [from_client, to_client] =
        [&traffic.from_client, &traffic.to_client].map(|bytes| bytes.load(Ordering::Relaxed));
    Served { end, from_client, to_client }
}

impl Exchange {
    async fn answer(
        &self,
        mut request: Request<Incoming>,
        backend: &Mutex<Option<SendRequest<Incoming>>>,
        upgraded: &Mutex<JoinSet<()>>,
    ) -> Response<Body> {
        if !self.is_admitted {
            return problem(StatusCode::FORBIDDEN, "this client may not use this server\n".to_owned());
        }
        let host = match target::host_of(&request).and_then(|host| {
            check_fields(request.headers())?;
            Ok(host)
        }) {
            Ok(host) => host,
            Err((status, text)) => return problem(status, text.to_owned()),
        };
        if host.as_ref().is_some_and(|host| !target::name_of(host).is_some_and(|name| (self.serves)(name))) {
            let text = "connect to this host to ask for it\n";
            return problem(StatusCode::MISDIRECTED_REQUEST, text.to_owned());
        }
        // RFC 9110 §7.8: HTTP/1.0 has no Upgrade.
        let asks_to_switch = request.version() >= Version::HTTP_11 && switches(request.headers());
        let client_side = asks_to_switch.then(|| hyper::upgrade::on(&mut request));
        self.rewrite(&mut request, host.as_ref(), asks_to_switch);
        let response = self.ask(request, &mut *backend.lock().await).await;
        let mut response = match response.and_then(|response| check(response, client_side.is_some())) {
            Ok(response) => response,
            Err(fault) => {
                (self.failed)(&fault);
                return problem(fault.status(), format!("{fault}\n"));
            }
        };
        let has_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        // RFC 9110 §6.2: the version of this connection, not the backend's.
        *response.version_mut() = Version::HTTP_11;
        strip(response.headers_mut());
        if let Some(client_side) = client_side.filter(|_| has_switched) {
            let backend_side = hyper::upgrade::on(&mut response);
            upgraded.lock().await.spawn(async move {
                if let (Ok(client), Ok(backend)) = tokio::join!(client_side, backend_side) {
                    let mut client = TokioIo::new(client);
                    let mut backend = TokioIo::new(backend);
                    // The end of either side ends both; who failed is of no matter to the other.
                    let _ = copy_bidirectional(&mut client, &mut backend).await;
                }
            });
            switch(response.headers_mut());
        }
        response.map(BodyExt::boxed)
    }

    /// Passes a request to the backend, over the connection that was kept if there is one.
    async fn ask(
        &self,
        mut request: Request<Incoming>,
        kept: &mut Option<SendRequest<Incoming>>,
    ) -> Result<Response<Incoming>, Fault> {
        if let Some(mut sender) = kept.take()
            && sender.ready().await.is_ok()
        {
            // The backend may close an idle connection at any time. hyper returns a request that it has not
            // begun to write, which goes over a new connection. A request that it has begun to write is lost
            // with the connection: the client gets an error.
            match sender.try_send_request(request).await {
                Ok(response) => {
                    *kept = Some(sender);
                    return Ok(response);
                }
                Err(mut failed) => match failed.take_message() {
                    Some(returned) => request = returned,
                    None => return Err(failed.into_error().into()),
                },
            }
        }
        let mut sender = self.connect().await?;
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        *kept = Some(sender);
        Ok(response)
    }

    async fn connect(&self) -> Result<SendRequest<Incoming>, Fault> {
        let failed = |(outcome, error)| {
            (self.connected)(outcome);
            Fault::Unreachable(error)
        };
        let mut stream = connect(&self.to, self.connect_time).await.map_err(failed)?;
        if !self.proxy_header.is_empty() {
            use tokio::io::AsyncWriteExt;
            let written = stream.write_all(&self.proxy_header).await;
            written.map_err(|error| failed(("failed", error)))?;
        }
        let mut http = hyper::client::conn::http1::Builder::new();
        // RFC 9112 §5.1, §5.2: a proxy mends a blank before the colon and folded lines.
        http.allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .preserve_header_case(true)
            .title_case_headers(true)
            .max_headers(MAX_FIELDS);
        let shaken = http.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| failed(("failed", io::Error::other(error))))?;
        (self.connected)("connected");
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    /// Replaces headers that only the gateway may set, and removes headers about the client's connection.
    fn rewrite(&self, request: &mut Request<Incoming>, host: Option<&Authority>, asks_to_switch: bool) {
        *request.version_mut() = Version::HTTP_11;
        // hyper would write the fields that are inserted below with the client's spelling, and some backends
        // know only one.
        request.extensions_mut().clear();
        *request.uri_mut() = target::origin_form(request.uri());
        let headers = request.headers_mut();
        let own: Vec<_> = headers.keys().filter(|name| is_own(name)).cloned().collect();
        for name in own {
            headers.remove(name);
        }
        let is_chunked = headers.contains_key(TRANSFER_ENCODING);
        strip(headers);
        if is_chunked {
            // Otherwise hyper leaves out the body of a GET or HEAD.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if asks_to_switch {
            switch(headers);
        }
        // RFC 9112 §3.2: a request of HTTP/1.0 may have none, and one of HTTP/1.1 must.
        if let Ok(host) = HeaderValue::from_str(host.map_or(&self.to, Authority::as_str)) {
            headers.insert(HOST, host);
        }
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
    }
}

/// Whether a message switches to WebSocket, and to nothing else (RFC 9110 §7.8).
fn switches(headers: &HeaderMap) -> bool {
    let mut options = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names_it =
        options.any(|value| value.split(',').any(|option| option.trim().eq_ignore_ascii_case("upgrade")));
    let mut protocols = headers.get_all(UPGRADE).iter();
    let is_websocket = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes());
    names_it && protocols.next().is_some_and(is_websocket) && protocols.next().is_none()
}

/// Makes a message switch to WebSocket.
fn switch(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

/// Removes the headers of one connection.
fn strip(headers: &mut HeaderMap) {
    let options = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<_> = options
        .flat_map(|value| value.split(','))
        .filter_map(|option| HeaderName::try_from(option.trim()).ok())
        .collect();
    if headers.contains_key(TRANSFER_ENCODING) {
        // RFC 9112 §6.3: it overrides Content-Length, which must not reach the other side without it.
        headers.remove(CONTENT_LENGTH);
    }
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Checks the fields about the content of a request. Its content passes without transfer codings, and only
/// hyper's chunks are taken off. A backend that turns headers into variables, as CGI does, could take
/// `Content_Length` for the length of the content.
pub(crate) fn check_fields(headers: &HeaderMap) -> Result<(), Refusal> {
    let frames = |name: &HeaderName| {
        let known = [CONTENT_LENGTH, TRANSFER_ENCODING];
        !known.contains(name) && known.iter().any(|known| known.as_str() == plain(name))
    };
    if headers.keys().any(frames) {
        let text = "a name of the header may be taken for Content-Length or Transfer-Encoding\n";
        return Err((StatusCode::BAD_REQUEST, text));
    }
    match is_coded(headers) {
        Coded::Not | Coded::Chunked => Ok(()),
        Coded::Twice => Err((StatusCode::BAD_REQUEST, "the content is chunked twice\n")),
        // RFC 9112 §6.1
        Coded::Otherwise => {
            Err((StatusCode::NOT_IMPLEMENTED, "the gateway knows no transfer coding besides chunked\n"))
        }
    }
}

/// Checks the header of an answer to a request that asked to switch, or did not.
fn check(mut response: Response<Incoming>, asked_to_switch: bool) -> Result<Response<Incoming>, Fault> {
    let has_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if has_switched && !(asked_to_switch && switches(response.headers())) {
        return Err(Fault::Switched);
    }
    if let Coded::Twice | Coded::Otherwise = is_coded(response.headers()) {
        return Err(Fault::Coding);
    }
    // RFC 9110 §8.6: of a list of equal lengths, which hyper has checked, one goes on.
    let headers = response.headers_mut();
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.split(',').next());
    if let Some(length) = length.and_then(|length| HeaderValue::from_str(length.trim()).ok()) {
        headers.insert(CONTENT_LENGTH, length);
    }
    Ok(response)
}

/// The transfer codings of a message (RFC 9112 §6.1).
enum Coded {
    Not,
    Chunked,
    /// Chunked several times, which no sender may do.
    Twice,
    Otherwise,
}

fn is_coded(headers: &HeaderMap) -> Coded {
    let mut chunked = 0;
    for value in headers.get_all(TRANSFER_ENCODING) {
        for coding in value.as_bytes().split(|byte| *byte == b',') {
            match coding.trim_ascii() {
                // An empty element is among the others: hyper decides by the last one, whatever RFC 9110
                // §5.6.1 says.
                coding if coding.eq_ignore_ascii_case(b"chunked") => chunked += 1,
                _ => return Coded::Otherwise,
            }
        }
    }
    match chunked {
        0 => Coded::Not,
        1 => Coded::Chunked,
        _ => Coded::Twice,
    }
}

fn problem(code: StatusCode, text: String) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
