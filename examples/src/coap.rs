//! Common code of the CoAP examples: their command line, and the profiles of both sides.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use dunlin::auth::{Psk, PskTable, X509Trust};
use dunlin::pki_types::{CertificateDer, pem::PemObject};
use dunlin::{ClientAuth, ClientConfig, Profile, ProfileBuilder, PskSource, ServerConfig, Side, Trust};
use dunlin_awslc::tls12::{
    TLS12_CIPHER_SUITES, TLS12_ECDHE_ECDSA_WITH_AES_128_CCM_8, TLS12_PSK_CIPHER_SUITES,
    TLS12_PSK_WITH_AES_128_CCM_8,
};
use dunlin_pki::LoadedCredential;

/// An error that ends a program. `main` prints it as a sentence, for it prints what `Debug` says.
pub struct Failure(Box<dyn Error>);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// The command line: `ADDRESS psk IDENTITY KEY …` or `ADDRESS x509 DIRECTORY …`.
pub struct Arguments {
    /// The server's address.
    pub address: SocketAddr,
    /// The arguments after the credentials.
    pub rest: Vec<String>,
    credentials: Credentials,
}

/// How both sides authenticate each other.
enum Credentials {
    /// A pre-shared key with its identity.
    Psk(Psk),
    /// Files as `dunlin pki demo` writes them.
    X509(PathBuf),
}

impl Arguments {
    /// Reads the command line of this program. `usage` says what follows the credentials.
    ///
    /// # Errors
    /// The command line is wrong; the error shows how to use the program.
    pub fn read(usage: &str) -> Result<Self, Box<dyn Error>> {
        let usage = format!(
            "use: ADDRESS psk IDENTITY KEY{usage} (16 bytes or more in hexadecimal), or ADDRESS x509 DIRECTORY{usage}"
        );
        let mut arguments = std::env::args().skip(1);
        let mut next = || arguments.next().ok_or(usage.clone());
        let address = next()?.parse().map_err(|e| format!("ADDRESS: {e}; {usage}"))?;
        let credentials = match next()?.as_str() {
            "psk" => {
                let identity = next()?;
                let key = next()?;
                let key = hexadecimal(&key).ok_or_else(|| format!("KEY is not hexadecimal; {usage}"))?;
                Credentials::Psk(Psk::new(identity, &key)?)
            }
            "x509" => Credentials::X509(next()?.into()),
            _ => return Err(usage.into()),
        };
        Ok(Self { address, credentials, rest: arguments.collect() })
    }

    /// The client's configuration, for DTLS 1.2 and 1.3.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn client(self) -> Result<ClientConfig, Box<dyn Error>> {
        Ok(match self.credentials {
            Credentials::Psk(psk) => ClientConfig::psk_only(psk_profile()?, vec![Arc::new(psk)])?,
            Credentials::X509(directory) => ClientConfig::new(x509_profile(&directory, Side::Client)?),
        })
    }

    /// The server's configuration, for DTLS 1.2 and 1.3. Clients must authenticate.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn server(self) -> Result<ServerConfig, Box<dyn Error>> {
        Ok(match self.credentials {
            Credentials::Psk(psk) => {
                let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk])));
                ServerConfig::psk_only(psk_profile()?, keys)?
            }
            Credentials::X509(directory) => {
                let config = ServerConfig::new(x509_profile(&directory, Side::Server)?)?;
                config.with_client_auth(ClientAuth::Required)?
            }
        })
    }
}

fn builder() -> ProfileBuilder {
    Profile::builder(Arc::new(dunlin_awslc::provider()))
}

/// RFC 7252 §9.1.3.1: with a key, every CoAP endpoint has TLS_PSK_WITH_AES_128_CCM_8. The other suites come
/// first.
fn psk_profile() -> Result<Profile, Box<dyn Error>> {
    let suites = [TLS12_PSK_CIPHER_SUITES, &[&TLS12_PSK_WITH_AES_128_CCM_8]].concat();
    Ok(builder().tls12_cipher_suites(suites).build()?)
}

/// RFC 7252 §9.1.3.3: with certificates, every CoAP endpoint has TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8.
fn x509_profile(directory: &Path, side: Side) -> Result<Profile, Box<dyn Error>> {
    let name = if side == Side::Server { "server" } else { "client" };
    let file = |end: &str| directory.join(format!("{name}.{end}"));
    let provider = Arc::new(dunlin_awslc::provider());
    let loaded =
        LoadedCredential::load(&file("pem"), Some(&file("key")), side, SystemTime::now(), &provider)?;
    let roots = CertificateDer::pem_file_iter(directory.join("root.pem"))?.collect::<Result<Vec<_>, _>>()?;
    let trust = Trust { x509: Some(X509Trust::anchors(roots)?), raw_key: None };
    let suites = [TLS12_CIPHER_SUITES, &[&TLS12_ECDHE_ECDSA_WITH_AES_128_CCM_8]].concat();
    Ok(builder().tls12_cipher_suites(suites).trust(trust).credentials(vec![loaded.credential]).build()?)
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.as_bytes().chunks(2).map(byte).collect()
}
