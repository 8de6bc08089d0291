//! A client and a server authenticate each other by certificates, on tokio.
//!
//! Run it: `cargo run -p dunlin-examples --bin mutual_tls`
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::time::SystemTime;

use dunlin::auth::X509Trust;
use dunlin::pki_types::{CertificateDer, pem::PemObject};
use dunlin::{ClientAuth, ClientConfig, Profile, ServerAddress, ServerConfig, Side, Trust};
use dunlin_examples::DemoFiles;
use dunlin_pki::LoadedCredential;
use dunlin_tokio::{TlsAcceptor, TlsConnector};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let files = DemoFiles::new()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;

    let config = ServerConfig::new(profile(&files, Side::Server)?)?.with_client_auth(ClientAuth::Required)?;
    let acceptor = TlsAcceptor::new(Arc::new(config));
    let server = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await?;
        let mut tls = acceptor.accept(tcp).await?;
        if let Some(client) = &tls.negotiated().peer {
            println!("server: the client is {client}");
        }
        let mut request = String::new();
        tls.read_to_string(&mut request).await?;
        tls.write_all(request.to_uppercase().as_bytes()).await?;
        tls.shutdown().await
    });

    let config = ClientConfig::new(profile(&files, Side::Client)?);
    let connector = TlsConnector::new(Arc::new(config));
    let tcp = TcpStream::connect(address).await?;
    // The client checks the server's certificate against this name.
    let mut tls = connector.connect(tcp, ServerAddress::parse("localhost", address.port())?).await?;
    if let Some(server) = &tls.negotiated().peer {
        println!("client: the server is {server}");
    }
    tls.write_all(b"hello").await?;
    tls.shutdown().await?; // Ends this direction only.
    let mut answer = String::new();
    tls.read_to_string(&mut answer).await?;
    println!("client: the answer is {answer}");
    server.await??;
    Ok(())
}

/// Trusts the root, and authenticates this side by its certificate.
fn profile(files: &DemoFiles, side: Side) -> Result<Profile, Box<dyn Error>> {
    let provider = Arc::new(dunlin_awslc::provider());
    let name = if side == Side::Server { "server" } else { "client" };
    let certificate = files.path(&format!("{name}.pem"));
    let key = files.path(&format!("{name}.key"));
    let loaded = LoadedCredential::load(&certificate, Some(&key), side, SystemTime::now(), &provider)?;
    let roots = CertificateDer::pem_file_iter(files.path("root.pem"))?.collect::<Result<Vec<_>, _>>()?;
    let trust = Trust { x509: Some(X509Trust::anchors(roots)?), raw_key: None };
    Ok(Profile::builder(provider).trust(trust).credentials(vec![loaded.credential]).build()?)
}
