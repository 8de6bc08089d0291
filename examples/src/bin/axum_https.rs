//! HTTPS with axum. Clients authenticate by certificates, and a handler gets the client's identity.
//!
//! Run it: `cargo run -p dunlin-examples --bin axum_https`
#![forbid(unsafe_code)]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::extract::connect_info::Connected;
use axum::routing::get;
use axum::serve::{IncomingStream, Listener};
use dunlin::{ClientAuth, ClientConfig, PeerIdentity, ServerAddress, ServerConfig, Side};
use dunlin_examples::DemoFiles;
use dunlin_tokio::{TlsAcceptor, TlsConnector, TlsStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, Receiver};

/// The connections whose handshakes are complete.
struct TlsListener {
    address: SocketAddr,
    connections: Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl TlsListener {
    /// Accepts connections and makes each handshake in its own task, so that a slow client does not delay the
    /// others.
    fn new(tcp: TcpListener, acceptor: TlsAcceptor) -> io::Result<Self> {
        let address = tcp.local_addr()?;
        let (sender, connections) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok((stream, client)) = tcp.accept().await {
                let acceptor = acceptor.clone();
                let sender = sender.clone();
                tokio::spawn(async move {
                    match acceptor.accept(stream).await {
                        Ok(tls) => drop(sender.send((tls, client)).await),
                        Err(error) => eprintln!("{client}: {error}"),
                    }
                });
            }
        });
        Ok(Self { address, connections })
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            // The socket has failed: there are no more connections.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}

/// The client's identity, for handlers.
#[derive(Clone)]
struct Client(Option<PeerIdentity>);

impl Connected<IncomingStream<'_, TlsListener>> for Client {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        Self(stream.io().negotiated().peer.clone())
    }
}

async fn greet(ConnectInfo(Client(identity)): ConnectInfo<Client>) -> String {
    match identity {
        Some(identity) => format!("hello, {identity}"),
        None => "hello, stranger".to_owned(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let files = DemoFiles::new()?;
    let profile = files.profile(Side::Server)?;
    let acceptor =
        TlsAcceptor::new(Arc::new(ServerConfig::new(profile)?.with_client_auth(ClientAuth::Required)?));
    let listener = TlsListener::new(TcpListener::bind("127.0.0.1:0").await?, acceptor)?;
    let address = listener.local_addr()?;
    let app = Router::new().route("/", get(greet));
    tokio::spawn(axum::serve(listener, app.into_make_service_with_connect_info::<Client>()).into_future());

    // A client of this server. With the files of `dunlin pki demo`, curl does the same:
    // curl --cacert root.pem --cert client.pem --key client.key https://localhost:PORT/
    let connector = TlsConnector::new(Arc::new(ClientConfig::new(files.profile(Side::Client)?)));
    let name = ServerAddress::parse("localhost", address.port())?;
    let mut tls = connector.connect(TcpStream::connect(address).await?, name).await?;
    tls.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    tls.flush().await?;
    let mut response = String::new();
    tls.read_to_string(&mut response).await?;
    println!("{response}");
    Ok(())
}
