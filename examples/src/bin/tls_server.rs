//! A server for many clients, which authenticate by certificates. It answers each client in capitals.
//!
//! Run it: `dunlin pki demo --out demo`, then `cargo run -p dunlin-examples --bin tls_server -- demo`
//!
//! docs/tutorials/rust.md explains it.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use dunlin::auth::X509Trust;
use dunlin::pki_types::{CertificateDer, pem::PemObject};
use dunlin::{ClientAuth, Profile, ServerConfig, Side, Trust};
use dunlin_pki::LoadedCredential;
use dunlin_tokio::TlsAcceptor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("use: tls_server DIRECTORY [ADDRESS:PORT]")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:4433".to_owned());

    // ANCHOR: accept
    let config = ServerConfig::new(profile(directory.as_ref())?)?.with_client_auth(ClientAuth::Required)?;
    let acceptor = TlsAcceptor::new(Arc::new(config));
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (tcp, address) = listener.accept().await?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(&acceptor, tcp).await {
                eprintln!("{address}: {error}");
            }
        });
    }
    // ANCHOR_END: accept
}

// ANCHOR: serve
/// Completes the handshake, reads until the client closes its direction, and answers in capitals.
async fn serve(acceptor: &TlsAcceptor, tcp: TcpStream) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut tls = acceptor.accept(tcp).await?;
    // Authorisation is the application's task: this server only prints the proven identity.
    if let Some(client) = &tls.negotiated().peer {
        println!("the client is {client}");
    }
    let mut request = String::new();
    tls.read_to_string(&mut request).await?; // An error if the connection ends without a close_notify.
    tls.write_all(request.to_uppercase().as_bytes()).await?;
    tls.shutdown().await?;
    Ok(())
}
// ANCHOR_END: serve

// ANCHOR: profile
/// Trusts the root, and authenticates the server by its certificate.
fn profile(directory: &Path) -> Result<Profile, Box<dyn Error>> {
    let provider = Arc::new(dunlin_awslc::provider());
    let certificate = directory.join("server.pem");
    let key = directory.join("server.key");
    let loaded =
        LoadedCredential::load(&certificate, Some(&key), Side::Server, SystemTime::now(), &provider)?;
    let roots = CertificateDer::pem_file_iter(directory.join("root.pem"))?.collect::<Result<Vec<_>, _>>()?;
    let trust = Trust { x509: Some(X509Trust::anchors(roots)?), raw_key: None };
    Ok(Profile::builder(provider).trust(trust).credentials(vec![loaded.credential]).build()?)
}
// ANCHOR_END: profile
