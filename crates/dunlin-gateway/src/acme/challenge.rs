//! Answers to the challenges of authorities: by a TLS handshake (RFC 8737) and by plain HTTP (RFC 8555 §8.3).

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use dunlin::crypto::CryptoProvider;
use dunlin::{ClientHelloInfo, Credential, Profile, ServerConfig};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_pki::KeyType;
use rcgen::CustomExtension;
use tokio::task::spawn_blocking;

use super::files::{Home, Key};
use super::self_signed;

/// The protocol of the challenge by TLS (RFC 8737 §4).
const ACME_TLS: &[u8] = b"acme-tls/1";

/// The path of the challenge by HTTP, before the token.
const PATH: &str = "/.well-known/acme-challenge/";

/// The places of the answers: the directories of the authorities of all listeners. Any listener answers for
/// all, because the authority connects to the ports 443 and 80 whatever the certificate is for.
#[derive(Default)]
pub(crate) struct Challenges {
    places: ArcSwap<Places>,
}

/// The directories, and the names of the certificates that are ordered there.
#[derive(Default)]
pub(crate) struct Places {
    pub(crate) homes: Vec<Home>,
    /// In lower case. Files are read for no other name that a stranger sends.
    pub(crate) names: HashSet<String>,
}

impl Places {
    fn find(&self, key: &Key<'_>) -> Option<String> {
        self.homes.iter().find_map(|home| home.find_answer(key))
    }
}

impl Challenges {
    pub(crate) fn replace(&self, places: Places) {
        self.places.store(Arc::new(places));
    }

    /// The configuration for an authority that validates a name by this ClientHello. `None` for all others.
    pub(crate) fn by_tls(
        &self,
        hello: &ClientHelloInfo,
        provider: &Arc<CryptoProvider>,
    ) -> Option<Arc<ServerConfig>> {
        // RFC 8737 §3: the authority offers this protocol alone, and the name that it validates.
        let [protocol] = &hello.alpn[..] else { return None };
        if protocol != ACME_TLS {
            return None;
        }
        let name = hello.server_name.as_deref()?;
        let places = self.places.load();
        if !places.names.contains(&name.to_ascii_lowercase()) {
            return None;
        }
        let authorization = places.find(&Key::Name(name))?;
        config(name, &authorization, provider)
            .map_err(|error| tracing::error!(name, error, "no answer to an ACME challenge"))
            .ok()
    }

    /// The content for an authority that validates a name by a request for this path. `None` for all others.
    pub(crate) async fn by_http(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(PATH)?.to_owned();
        let places = self.places.load_full();
        // Only the files tell which tokens another gateway awaits, and strangers can ask for any.
        spawn_blocking(move || places.find(&Key::Token(&token))).await.ok()?
    }
}

/// RFC 8737 §3: a self-signed certificate for the name alone, with the digest of the key authorization in a
/// critical extension.
fn config(
    name: &str,
    authorization: &str,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<ServerConfig>, String> {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, authorization.as_bytes());
    let extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
    let (certificate, pair) = self_signed(vec![name.to_owned()], KeyType::P256, extensions)?;
    let key = pair.signing_key(provider).map_err(|error| error.to_string())?;
    let profile = Profile::builder(provider.clone())
        .credentials(vec![Credential::x509(vec![certificate], key)])
        .tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
        .alpn(vec![ACME_TLS.to_vec()])
        .build();
    // RFC 8737 §3: both sides close after the handshake.
    let config = profile.and_then(ServerConfig::handshake_only).map_err(|error| error.to_string())?;
    Ok(Arc::new(config))
}
