//! The identity of a client in the forms that backends understand.

use std::fmt::Write;

use dunlin::auth::{OtherIdentity, SubjectName};
use dunlin::wire::CertificateType;
use dunlin::{Negotiated, PeerIdentity};
use dunlin_identity::encoding::json;
use dunlin_identity::handshake::CredentialIdentity;
use dunlin_pki::CertificateInfo;

/// The way in which a client has proved its identity, for logs and metrics.
pub(crate) fn way(peer: Option<&PeerIdentity>) -> &'static str {
    match peer {
        None => "anonymous",
        Some(PeerIdentity::X509(_)) => "x509",
        Some(PeerIdentity::RawKey(_)) => "raw_key",
        Some(PeerIdentity::Psk(_)) => "psk",
        Some(PeerIdentity::Other(id)) if is_credential(id) => "vc",
        Some(PeerIdentity::Other(id)) if is_bare_did(id) => "did",
        Some(_) => "other",
    }
}

/// Whether the identity is a DID with a verifiable credential.
fn is_credential(id: &OtherIdentity) -> bool {
    id.certificate_type() == CertificateType::VERIFIABLE_CREDENTIAL
}

/// Whether the identity is a DID alone.
fn is_bare_did(id: &OtherIdentity) -> bool {
    id.certificate_type() == CertificateType::DECENTRALISED_IDENTIFIER
}

/// The DID of the issuer of the client's verifiable credential. The configuration lists all issuers that
/// count.
pub(crate) fn issuer(peer: Option<&PeerIdentity>) -> Option<String> {
    CredentialIdentity::of(peer?).map(|credential| credential.issuer.to_string())
}

/// The claims of a credential as canonical JSON in ASCII, which a header can carry: other characters have
/// JSON's escapes. `None` if the claims are not known.
pub(crate) fn claims(credential: &CredentialIdentity) -> Option<String> {
    let text = json::canonical(&credential.claims.clone()?.into()).ok()?;
    Some(text.chars().fold(String::with_capacity(text.len()), |mut ascii, c| {
        match c {
            ' '..='~' => ascii.push(c),
            // RFC 8259 §7: a character outside the BMP is a surrogate pair.
            _ => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                let _ = write!(ascii, "\\u{unit:04x}");
            }),
        }
        ascii
    }))
}

/// The identity as one text with its kind, for the log: `anonymous`, or as [`PeerIdentity`] shows it, but a
/// raw key by the digest that rules and backends have.
pub(crate) fn shown(negotiated: &Negotiated) -> String {
    match &negotiated.peer {
        None => "anonymous".to_owned(),
        Some(PeerIdentity::RawKey(key)) => {
            format!("raw key sha256:{}", hex(dunlin_awslc::SHA256.hash(&[key]).as_ref()))
        }
        Some(peer) => peer.to_string(),
    }
}

/// The longest subject in the log, in characters: a client chooses it.
const MAX_SUBJECT: usize = 256;

/// Subject, serial number and SHA-256 digest of a certificate that is not the proven identity of a client.
/// The first two are empty if the certificate does not parse.
pub(crate) fn marks(certificate: &[u8]) -> [String; 3] {
    let sha256 = hex(dunlin_awslc::SHA256.hash(&[certificate]).as_ref());
    match CertificateInfo::from_der(certificate) {
        Ok(CertificateInfo { subject, serial, .. }) => {
            let cut = |text: String| text.escape_debug().take(MAX_SUBJECT).collect();
            [cut(subject), cut(serial), sha256]
        }
        Err(_) => [String::new(), String::new(), sha256],
    }
}

/// The common name of a certificate without other names. It stays the same in resumed and cached handshakes,
/// which have no certificate.
pub(crate) fn common_name(peer: &PeerIdentity) -> Option<&str> {
    let PeerIdentity::X509(id) = peer else { return None };
    id.common_name.as_deref()
}

/// The identity as a user name. It comes from what a resumed session keeps, so that a client has the same
/// name in all its connections: the first DNS name or URI of its certificate; the common name of a
/// certificate without such names; the device or the identity of a pre-shared key; a DID, with or without a
/// verifiable credential; otherwise a fingerprint in hexadecimal. `None` for anonymous clients.
pub(crate) fn name(peer: &PeerIdentity) -> Option<String> {
    Some(match peer {
        PeerIdentity::X509(id) => match (id.names.first(), &id.common_name) {
            (Some(name), _) => name.text().to_owned(),
            (None, Some(name)) => name.clone(),
            (None, None) => hex(&id.fingerprint),
        },
        PeerIdentity::RawKey(key) => hex(dunlin_awslc::SHA256.hash(&[key]).as_ref()),
        PeerIdentity::Psk(id) => id.name.clone().unwrap_or_else(|| dunlin_store::psk::text_of(&id.identity)),
        // The text of a long DID is cut, so another DID could have the same.
        PeerIdentity::Other(id) if is_credential(id) || is_bare_did(id) => {
            String::from_utf8_lossy(id.id()).into_owned()
        }
        PeerIdentity::Other(id) => id.text().to_owned(),
        _ => return None,
    })
}

/// The identity with its kind, as the gateway's TLV of the PROXY protocol carries it: `x509:NAME`,
/// `psk:IDENTITY`, `vc:DID`, a bare DID, which begins with `did:`, or `raw_key:SHA-256 of the key in
/// hexadecimal`. `None` for anonymous clients.
pub(crate) fn typed(peer: &PeerIdentity) -> Option<String> {
    Some(match peer {
        PeerIdentity::X509(id) => match (id.names.first(), common_name(peer)) {
            (Some(SubjectName::Dns(name)), _) => format!("x509:dns:{name}"),
            (Some(SubjectName::Uri(uri)), _) => format!("x509:uri:{uri}"),
            (_, Some(name)) => format!("x509:cn:{name}"),
            _ => format!("x509:sha256:{}", hex(&id.fingerprint)),
        },
        PeerIdentity::RawKey(key) => {
            format!("raw_key:sha256:{}", hex(dunlin_awslc::SHA256.hash(&[key]).as_ref()))
        }
        PeerIdentity::Psk(id) => format!("psk:{}", dunlin_store::psk::text_of(&id.identity)),
        PeerIdentity::Other(id) if is_credential(id) => format!("vc:{}", String::from_utf8_lossy(id.id())),
        PeerIdentity::Other(id) if is_bare_did(id) => String::from_utf8_lossy(id.id()).into_owned(),
        PeerIdentity::Other(id) => format!("other:{}:{}", id.certificate_type(), id.text()),
        _ => return None,
    })
}

/// The bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use dunlin::auth::X509Identity;

    use super::*;

    #[test]
    fn a_comma_begins_no_other_common_name() {
        let id = X509Identity {
            chain: vec![],
            names: vec![],
            common_name: Some("x,CN=admin".into()),
            fingerprint: [0; 32],
            not_after_s: 0,
            details: None,
        };
        let peer = PeerIdentity::X509(id);
        assert_eq!(common_name(&peer), Some("x,CN=admin"));
        assert_eq!(typed(&peer).as_deref(), Some("x509:cn:x,CN=admin"));
    }
}
