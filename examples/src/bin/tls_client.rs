//! A client that authenticates by a certificate, sends a line, and prints the answer.
//!
//! Run it: `dunlin pki demo --out demo`, start `tls_server`, then
//! `cargo run -p dunlin-examples --bin tls_client -- demo`
//!
//! docs/tutorials/rust.md explains it.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use dunlin::auth::X509Trust;
use dunlin::pki_types::{CertificateDer, pem::PemObject};
use dunlin::{ClientConfig, Profile, ServerAddress, Side, Trust};
use dunlin_pki::LoadedCredential;
use dunlin_tokio::TlsConnector;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("use: tls_client DIRECTORY [ADDRESS:PORT]")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:4433".to_owned());

    // ANCHOR: connect
    let config = ClientConfig::new(profile(directory.as_ref())?);
    let connector = TlsConnector::new(Arc::new(config));
    let tcp = TcpStream::connect(address).await?;
    // The server's certificate must have this name, whatever its address is.
    let server = ServerAddress::parse("localhost", tcp.peer_addr()?.port())?;
    let mut tls = connector.connect(tcp, server).await?;
    let bytes = tls.handshake_bytes();
    println!("the handshake sent {} bytes and received {}", bytes.written, bytes.read);

    tls.write_all(b"hello").await?;
    tls.shutdown().await?; // Ends this direction only.
    let mut answer = String::new();
    tls.read_to_string(&mut answer).await?;
    println!("the answer is {answer}");
    // ANCHOR_END: connect
    Ok(())
}

/// Trusts the root, and authenticates the client by its certificate.
fn profile(directory: &Path) -> Result<Profile, Box<dyn Error>> {
    let provider = Arc::new(dunlin_awslc::provider());
    let certificate = directory.join("client.pem");
    let key = directory.join("client.key");
    let loaded =
        LoadedCredential::load(&certificate, Some(&key), Side::Client, SystemTime::now(), &provider)?;
    let roots = CertificateDer::pem_file_iter(directory.join("root.pem"))?.collect::<Result<Vec<_>, _>>()?;
    let trust = Trust { x509: Some(X509Trust::anchors(roots)?), raw_key: None };
    Ok(Profile::builder(provider).trust(trust).credentials(vec![loaded.credential]).build()?)
}
