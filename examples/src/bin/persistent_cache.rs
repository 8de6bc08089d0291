//! Two handshakes with a handshake cache that outlives the programs: in the second, neither side sends its
//! certificate again, but each proves its key.
//!
//! Run it: `cargo run -p dunlin-examples --bin persistent_cache`
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;

use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::{ClientAuth, ClientConfig, ServerAddress, ServerConfig, Side};
use dunlin_examples::DemoFiles;
use dunlin_store::cache::CacheStore;
use dunlin_tokio::{TlsAcceptor, TlsConnector};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let files = DemoFiles::new()?;
    // A client finds its entry by the server's name and port.
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let first = connect(&files, &listener).await?;
    let second = connect(&files, &listener).await?;
    println!("handshakes: {first} bytes, then {second}: {} bytes saved", first - second);
    Ok(())
}

/// Makes one connection with new configurations, as after a restart of both programs. Returns the bytes of
/// its handshake.
async fn connect(files: &DemoFiles, listener: &TcpListener) -> Result<u64, Box<dyn Error>> {
    let provider = Arc::new(dunlin_awslc::provider());
    // Each store is a file, with a key file beside it. Both are created if they are missing.
    let cache = CacheStore::file(files.path("clients.cache"))
        .open_server(&provider, Box::new(|fault| println!("server: {fault}")))?;
    let server = ServerConfig::new(files.profile(Side::Server)?)?
        .with_client_auth(ClientAuth::Required)?
        .with_handshake_cache(CacheMode::Compact, Arc::new(cache), DEFAULT_MAX_AGE)?;
    let cache = CacheStore::file(files.path("servers.cache"))
        .open_client(&provider, Box::new(|fault| println!("client: {fault}")))?;
    let client = ClientConfig::new(files.profile(Side::Client)?).with_handshake_cache(
        CacheMode::Compact,
        Arc::new(cache),
        DEFAULT_MAX_AGE,
    );

    let acceptor = TlsAcceptor::new(Arc::new(server));
    let serve = async {
        let (tcp, _) = listener.accept().await?;
        let mut tls = acceptor.accept(tcp).await?;
        tls.write_all(b"welcome").await?;
        tls.shutdown().await?;
        tls.read_to_end(&mut Vec::new()).await?;
        Ok::<_, Box<dyn Error>>(())
    };
    let connector = TlsConnector::new(Arc::new(client));
    let address = listener.local_addr()?;
    let ask = async {
        let tcp = TcpStream::connect(address).await?;
        let mut tls = connector.connect(tcp, ServerAddress::parse("localhost", address.port())?).await?;
        let mut greeting = String::new();
        tls.read_to_string(&mut greeting).await?;
        tls.shutdown().await?;
        Ok((greeting, tls))
    };
    let ((), (greeting, tls)) = tokio::try_join!(serve, ask)?;
    println!("client: {greeting}, after a handshake of the kind {:?}", tls.negotiated().kind);
    let bytes = tls.handshake_bytes();
    Ok(bytes.read + bytes.written)
}
