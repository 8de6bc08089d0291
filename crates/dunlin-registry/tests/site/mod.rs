//! A registry over HTTPS on loopback, and a client of it.

#![allow(dead_code, reason = "not every test uses every part")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dunlin::auth::{Credential, X509Trust};
use dunlin::{ClientConfig, Profile, ServerAddress, ServerConfig, Trust};
use dunlin_pki::{KeyType, Tree, TreeSpec, certificates_to_pem};
use dunlin_registry::Registry;
use dunlin_registry::server::{Limits, serve};
use dunlin_tokio::{TlsAcceptor, TlsConnector, TlsStream};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::common::{NOW, RegistryDirectory};

/// A server on localhost, and clients that trust it.
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) connector: TlsConnector,
    /// The root that clients trust, in PEM.
    roots: String,
}

impl Tls {
    pub(crate) fn new() -> Self {
        let provider = Arc::new(dunlin_awslc::provider());
        let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 1).unwrap()).unwrap();
        let key = tree.server.key.signing_key(&provider).unwrap();
        let credential = Credential::x509(tree.server.chain.clone(), key);
        let profile = Profile::builder(Arc::clone(&provider)).credentials(vec![credential]);
        let acceptor = TlsAcceptor::new(Arc::new(ServerConfig::new(profile.build().unwrap()).unwrap()));
        let trust = X509Trust::anchors(tree.root.chain().to_vec()).unwrap();
        let profile = Profile::builder(provider).trust(Trust { x509: Some(trust), raw_key: None });
        let connector = TlsConnector::new(Arc::new(ClientConfig::new(profile.build().unwrap())));
        Self { acceptor, connector, roots: certificates_to_pem(tree.root.chain()).unwrap() }
    }
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(crate) struct Site {
    pub(crate) place: RegistryDirectory,
    pub(crate) registry: Arc<Registry>,
    pub(crate) address: SocketAddr,
    /// The root that clients trust, in PEM.
    pub(crate) roots: String,
    tls: Tls,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<io::Result<()>>,
}

impl Site {
    pub(crate) async fn new(limits: Limits) -> Self {
        Self::at(NOW, limits).await
    }

    /// With this time.
    pub(crate) async fn at(now_s: u64, limits: Limits) -> Self {
        let place = RegistryDirectory::new();
        place.clock.store(now_s, Ordering::Relaxed);
        let registry = place.open().unwrap();
        Self::of(place, registry, limits).await
    }

    /// Of this registry.
    pub(crate) async fn of(place: RegistryDirectory, registry: Registry, limits: Limits) -> Self {
        let tls = Tls::new();
        let registry = Arc::new(registry);
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let server =
            tokio::spawn(serve(Arc::clone(&registry), socket, tls.acceptor.clone(), limits, stopped));
        Self { place, registry, address, roots: tls.roots.clone(), tls, stop: Some(stop), server }
    }

    /// The URL of the registry.
    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// A connector that trusts the registry's server.
    pub(crate) fn connector(&self) -> TlsConnector {
        self.tls.connector.clone()
    }

    pub(crate) async fn tls(&self) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerAddress::parse("localhost", self.address.port()).unwrap();
        let tcp = TcpStream::connect(self.address).await?;
        self.tls.connector.connect(tcp, name).await.map_err(io::Error::other)
    }

    pub(crate) async fn client(&self) -> Client {
        let (sender, connection) = handshake(TokioIo::new(self.tls().await.unwrap())).await.unwrap();
        tokio::spawn(connection);
        Client(sender)
    }

    /// Stops the server and waits until it has ended.
    pub(crate) async fn stop(mut self) -> io::Result<()> {
        drop(self.stop.take());
        self.server.await.unwrap()
    }

    /// Waits until the server has ended by itself.
    pub(crate) async fn ended(self) -> io::Result<()> {
        self.server.await.unwrap()
    }
}

/// A connection that stays open.
pub(crate) struct Client(SendRequest<Full<Bytes>>);

impl Client {
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> hyper::Result<Answer> {
        let request = Request::builder().method(method).uri(path).header("Host", "localhost");
        let answer = self.0.send_request(request.body(Full::new(body.into())).unwrap()).await?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes().to_vec();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path, Bytes::new()).await.unwrap()
    }

    pub(crate) async fn post(&mut self, body: impl Into<Bytes>) -> Answer {
        self.send(Method::POST, "/operations", body).await.unwrap()
    }
}
