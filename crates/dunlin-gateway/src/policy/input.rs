//! The input of `explain`: credentials of clients, and ClientHellos.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use dunlin::{ClientHelloInfo, DtlsConnection, Event, Now, Profile, Question, ServerConfig, TlsConnection};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_pki::Item;

use super::client::Client;

/// Why an input cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The file cannot be read, or holds neither a certificate nor a public key.
    #[error("{0}")]
    NotACredential(dunlin_pki::Error),
    /// The certificate cannot be parsed.
    #[error("the certificate cannot be parsed")]
    Certificate,
    /// The bytes begin with neither a handshake record nor a ClientHello.
    #[error("neither a handshake record nor a ClientHello")]
    NotAHello,
    /// The ClientHello is incomplete.
    #[error("the ClientHello is incomplete")]
    Incomplete,
    /// The engine rejects the ClientHello; why.
    #[error("a server rejects this ClientHello: {0}")]
    Rejected(String),
}

/// The client of the first certificate in a file, or else of its first public key. Its issuer's key is known
/// if the issuer's certificate is in the file, too. Nothing is verified.
///
/// # Errors
/// [`InputError::NotACredential`]; [`InputError::Certificate`].
pub fn client_from_pem(pem: &[u8]) -> Result<Client, InputError> {
    let mut certificates = vec![];
    let mut keys = vec![];
    let items = dunlin_pki::parse_for(pem, "certificate or public key", |item| match item {
        Item::Certificate(_) | Item::PublicKey(_) => Some(item),
        _ => None,
    });
    for item in items.map_err(InputError::NotACredential)? {
        match item {
            Item::Certificate(der) => certificates.push(der),
            Item::PublicKey(key) => keys.push(key),
            _ => {}
        }
    }
    let mut certificates = certificates.into_iter();
    if let Some(leaf) = certificates.next() {
        let client = Client::from_certificate(&leaf).ok_or(InputError::Certificate)?;
        return Ok(client.issued_by_one_of(&leaf, certificates));
    }
    // One of the two is there.
    Ok(Client::with_raw_key(keys.first().ok_or(InputError::Certificate)?))
}

/// The largest content of a TLS record, in bytes (RFC 8446 §5.1).
const MAX_CONTENT: usize = 1 << 14;

/// Reads a ClientHello as a server's engine reads it. `packets` are the first bytes of a connection: records
/// of TLS in any division, or datagrams of DTLS; or a handshake message of TLS without records.
///
/// # Errors
/// The bytes are no ClientHello, an incomplete one, or one that the engine rejects.
pub fn client_hello<'a>(packets: impl IntoIterator<Item = &'a [u8]>) -> Result<ClientHelloInfo, InputError> {
    let mut packets = packets.into_iter();
    let first = packets.next().unwrap_or_default();
    let server = server().map_err(|error| InputError::Rejected(error.to_string()))?;
    let rejected = |error: dunlin::Error| InputError::Rejected(error.to_string());
    let now = Now::default();
    match first {
        // RFC 9147 §4: the version of DTLS records. A cookie is not demanded here.
        [22, 254, ..] => {
            let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let mut connection = DtlsConnection::server(&server, peer, now);
            for packet in std::iter::once(first).chain(packets) {
                connection.receive(now, peer, packet).map_err(rejected)?;
                if let Some(info) = asked(&mut || connection.poll_event()) {
                    return Ok(info);
                }
            }
        }
        [22, 3, ..] => {
            let mut connection = TlsConnection::server(&server, now);
            for packet in std::iter::once(first).chain(packets) {
                connection.receive(now, packet).map_err(rejected)?;
                if let Some(info) = asked(&mut || connection.poll_event()) {
                    return Ok(info);
                }
            }
        }
        [1, 0, ..] => {
            let record = |content: &[u8]| {
                let len = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
                [&[22, 3, 1][..], &len, content].concat()
            };
            let records: Vec<Vec<u8>> = first.chunks(MAX_CONTENT).map(record).collect();
            return client_hello(records.iter().map(Vec::as_slice));
        }
        _ => return Err(InputError::NotAHello),
    }
    Err(InputError::Incomplete)
}

/// A server that asks for a profile, whatever the client offers.
fn server() -> Result<Arc<ServerConfig>, dunlin::Error> {
    let profile = Profile::builder(Arc::new(dunlin_awslc::provider()));
    let profile = profile.tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec()).build()?;
    Ok(Arc::new(ServerConfig::choosing(profile)?.with_cookies(false)))
}

/// The ClientHello in the question for a profile.
fn asked(poll: &mut dyn FnMut() -> Option<Event>) -> Option<ClientHelloInfo> {
    while let Some(event) = poll() {
        if let Event::Question(_, Question::ChooseProfile(info)) = event {
            return Some(info);
        }
    }
    None
}
