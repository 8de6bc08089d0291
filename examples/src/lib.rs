//! Short programs that use Dunlin. Each is one file in `src/bin`, and begins with a line that says how to run
//! it.
//!
//! This library only makes the certificates and keys that the examples load. A real program gets them from
//! its authority; `dunlin pki demo` makes the same files.
#![forbid(unsafe_code)]

pub mod coap;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use dunlin::auth::X509Trust;
use dunlin::pki_types::{CertificateDer, pem::PemObject};
use dunlin::{Profile, Side, Trust};
use dunlin_pki::{KeyType, LoadedCredential, Tree, TreeSpec, certificates_to_pem};
use tempfile::TempDir;

/// PEM files in a temporary directory, which is deleted with this value.
pub struct DemoFiles {
    directory: TempDir,
}

impl DemoFiles {
    /// Makes `root.pem`, `server.pem`, `server.key`, `client.pem` and `client.key`. The server is
    /// `localhost`, the client `device-1`.
    ///
    /// # Errors
    /// A file cannot be written, or the system gives no randomness.
    pub fn new() -> Result<Self, Box<dyn Error>> {
        let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 1)?)?;
        let files = Self { directory: tempfile::tempdir()? };
        fs::write(files.path("root.pem"), certificates_to_pem(tree.root.chain())?)?;
        for (name, identity) in [("server", &tree.server), ("client", &tree.client)] {
            fs::write(files.path(&format!("{name}.pem")), certificates_to_pem(&identity.chain)?)?;
            fs::write(files.path(&format!("{name}.key")), identity.key.to_pem()?.as_bytes())?;
        }
        Ok(files)
    }

    /// A profile that trusts the root and authenticates this side by its certificate. `src/bin/mutual_tls.rs`
    /// repeats this code, to be complete by itself.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn profile(&self, side: Side) -> Result<Profile, Box<dyn Error>> {
        let provider = Arc::new(dunlin_awslc::provider());
        let name = if side == Side::Server { "server" } else { "client" };
        let certificate = self.path(&format!("{name}.pem"));
        let key = self.path(&format!("{name}.key"));
        let loaded = LoadedCredential::load(&certificate, Some(&key), side, SystemTime::now(), &provider)?;
        let roots = CertificateDer::pem_file_iter(self.path("root.pem"))?.collect::<Result<Vec<_>, _>>()?;
        let trust = Trust { x509: Some(X509Trust::anchors(roots)?), raw_key: None };
        Ok(Profile::builder(provider).trust(trust).credentials(vec![loaded.credential]).build()?)
    }

    /// The path of the file with this name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}
