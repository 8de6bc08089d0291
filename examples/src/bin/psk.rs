//! A device and a server authenticate each other by a pre-shared key, with the smallest messages.
//!
//! Run it: `cargo run -p dunlin-examples --bin psk`
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;

use dunlin::auth::{Psk, PskTable};
use dunlin::wire::SignatureScheme;
use dunlin::{ClientConfig, Profile, PskSource, ServerAddress, ServerConfig};
use dunlin_awslc::{TLS13_AES_128_CCM_SHA256, X25519};
use dunlin_tokio::{TlsAcceptor, TlsConnector};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let provider = Arc::new(dunlin_awslc::provider());
    // A real key comes from `dunlin psk new` (docs/psk.md). It has at least 16 random bytes.
    let mut key = [0; 32];
    provider.random.fill(&mut key)?;
    // The lean profile has one cipher suite and one group. With X25519, past connections stay secret if the
    // key leaks.
    let profile =
        Profile::lean(provider, &TLS13_AES_128_CCM_SHA256, X25519, SignatureScheme::ED25519).build()?;

    let keys = PskTable::from_iter([Psk::new("sensor-7", &key)?]);
    let config = ServerConfig::psk_only(profile.clone(), PskSource::Here(Arc::new(keys)))?;
    let acceptor = TlsAcceptor::new(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await?;
        let mut tls = acceptor.accept(tcp).await?;
        let mut data = String::new();
        tls.read_to_string(&mut data).await?;
        if let Some(device) = &tls.negotiated().peer {
            println!("server: {device} says {data}");
        }
        tls.shutdown().await
    });

    let config = ClientConfig::psk_only(profile, vec![Arc::new(Psk::new("sensor-7", &key)?)])?;
    let tcp = TcpStream::connect(address).await?;
    let name = ServerAddress::parse("localhost", address.port())?;
    let mut tls = TlsConnector::new(Arc::new(config)).connect(tcp, name).await?;
    let bytes = tls.handshake_bytes();
    println!("device: the handshake sent {} bytes and received {}", bytes.written, bytes.read);
    tls.write_all(b"21.5 C").await?;
    tls.shutdown().await?;
    // Wait for the server's close_notify: without it, the data could have been cut off.
    tls.read_to_end(&mut Vec::new()).await?;
    server.await??;
    Ok(())
}
