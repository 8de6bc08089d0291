//! Authentication by X.509: path validation by rustls-webpki (RFC 5280), names by RFC 6125 and RFC 9525.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use super::X509Identity;
use crate::crypto::{CryptoProvider, SignatureAlgorithms};
use crate::error::{AuthenticationFailure, Error, Misuse};
use crate::handshake::Side;

/// Which chains are believed.
#[derive(Clone, Debug)]
pub enum X509Trust {
    /// Those that lead to one of these anchors. Make them with [`X509Trust::anchors`].
    Anchors(Vec<TrustAnchor<'static>>),
    /// Whatever the answer to [`crate::Question::Verify`] says.
    Ask,
    /// Any: the peer proves that it has the leaf's key, and the application must decide what that is worth.
    DangerAnyone,
}

impl X509Trust {
    /// The anchors in root certificates.
    ///
    /// # Errors
    /// There is none, or one does not parse; which, counted from 1.
    pub fn anchors<'c>(roots: impl IntoIterator<Item = CertificateDer<'c>>) -> Result<Self, Error> {
        let mut anchors = Vec::new();
        for (i, root) in roots.into_iter().enumerate() {
            let anchor = webpki::anchor_from_trusted_cert(&root)
                .map_err(|e| Misuse::Config(alloc::format!("trust anchor {}: {e}", i + 1)))?;
            anchors.push(anchor.to_owned());
        }
        if anchors.is_empty() {
            return Err(Misuse::Config("there is no trust anchor".into()).into());
        }
        Ok(Self::Anchors(anchors))
    }

    /// The distinguished names of the anchors in DER, for certificate_authorities (RFC 8446 §4.2.4).
    pub(crate) fn authorities(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Anchors(anchors) => anchors.iter().map(|a| sequence(&a.subject)).collect(),
            Self::Ask | Self::DangerAnyone => Vec::new(),
        }
    }

    /// Whether the chain is believed; `None` if that must be asked. A server's must be for `name`.
    pub(crate) fn verify(
        &self,
        provider: &CryptoProvider,
        chain: &[CertificateDer<'_>],
        peer: Side,
        name: Option<&ServerName<'_>>,
        now: UnixTime,
    ) -> Option<Result<(), AuthenticationFailure>> {
        match self {
            Self::Anchors(anchors) => Some(verify(provider.signatures, anchors, chain, peer, name, now)),
            Self::Ask => None,
            Self::DangerAnyone => Some(Ok(())),
        }
    }
}

fn verify(
    algorithms: SignatureAlgorithms,
    anchors: &[TrustAnchor<'_>],
    chain: &[CertificateDer<'_>],
    peer: Side,
    name: Option<&ServerName<'_>>,
    now: UnixTime,
) -> Result<(), AuthenticationFailure> {
    let (leaf, intermediates) = chain.split_first().ok_or(AuthenticationFailure::NoCertificate)?;
    let leaf = EndEntityCert::try_from(leaf).map_err(|e| failure(&e, name))?;
    let usage = match peer {
        Side::Server => KeyUsage::server_auth(),
        Side::Client => KeyUsage::client_auth(),
    };
    leaf.verify_for_usage(algorithms.all, anchors, intermediates, now, usage, None, None)
        .map_err(|e| failure(&e, name))?;
    if let Some(name) = name {
        leaf.verify_is_valid_for_subject_name(name).map_err(|e| failure(&e, Some(name)))?;
    }
    Ok(())
}

/// The check that failed, in our words.
fn failure(error: &webpki::Error, name: Option<&ServerName<'_>>) -> AuthenticationFailure {
    use AuthenticationFailure as F;
    use webpki::Error as W;
    match error {
        W::CertExpired { .. } => F::Expired,
        W::CertNotValidYet { .. } => F::NotValidYet,
        W::CertNotValidForName(_) => {
            F::NameMismatch(name.map_or_else(String::new, crate::connection::name_text))
        }
        W::UnknownIssuer => F::UnknownIssuer,
        W::InvalidSignatureForPublicKey => F::BadChainSignature,
        W::CertRevoked => F::Revoked,
        W::RequiredEkuNotFoundContext(_) | W::EmptyEkuExtension | W::CaUsedAsEndEntity => F::WrongPurpose,
        W::NameConstraintViolation
        | W::PathLenConstraintViolated
        | W::EndEntityUsedAsCa
        | W::InvalidCertValidity => F::ConstraintViolated,
        W::UnsupportedSignatureAlgorithmContext(_)
        | W::UnsupportedSignatureAlgorithmForPublicKeyContext(_)
        | W::UnsupportedCriticalExtension
        | W::UnsupportedCertVersion => F::UnsupportedAlgorithm,
        W::BadDer
        | W::BadDerTime
        | W::TrailingData(_)
        | W::MalformedExtensions
        | W::MalformedDnsIdentifier
        | W::ExtensionValueInvalid
        | W::InvalidSerialNumber
        | W::SignatureAlgorithmMismatch => F::BadEncoding,
        other => F::Rejected(alloc::format!("its certificate is not acceptable: {other}")),
    }
}

impl X509Identity {
    pub(crate) fn new(
        provider: &CryptoProvider,
        chain: Vec<CertificateDer<'static>>,
    ) -> Result<Self, AuthenticationFailure> {
        let leaf = chain.first().ok_or(AuthenticationFailure::NoCertificate)?;
        let mut fingerprint = [0; 32];
        for (to, from) in fingerprint.iter_mut().zip(provider.sha256.hash(&[leaf]).as_ref()) {
            *to = *from;
        }
        let parsed = EndEntityCert::try_from(leaf).map_err(|_| AuthenticationFailure::BadEncoding)?;
        let names =
            parsed.valid_dns_names().chain(parsed.valid_uri_names()).map(ToString::to_string).collect();
        Ok(Self { chain, names, fingerprint })
    }
}

/// A DER SEQUENCE with this content: webpki keeps names without their header.
fn sequence(content: &[u8]) -> Vec<u8> {
    let mut out = alloc::vec![0x30];
    let len = content.len().to_be_bytes();
    match content.len() {
        0..=0x7f => out.push(content.len() as u8),
        _ => {
            let digits: Vec<u8> = len.iter().copied().skip_while(|b| *b == 0).collect();
            out.push(0x80 | digits.len() as u8);
            out.extend_from_slice(&digits);
        }
    }
    out.extend_from_slice(content);
    out
}
