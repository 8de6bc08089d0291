//! The configuration of a device that authenticates by an X.509 certificate.

use alloc::sync::Arc;
use alloc::vec;

use dunlin::auth::X509Trust;
use dunlin::crypto::{CryptoProvider, SecureRandom};
use dunlin::error::Misuse;
use dunlin::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use dunlin::wire::SignatureScheme;
use dunlin::{ClientConfig, Credential, Error, Profile, Trust};
use dunlin_rustcrypto::{P256_KEY_LOADER, P256_SIGNATURES, SECP256R1, SHA256, TLS13_AES_128_CCM_SHA256};

use crate::parameters::Parameters;

/// Device and server authenticate each other by certificates with P-256 keys, under one authority. The
/// parameters are the device's certificate, its private key (PKCS#8) and the authority's certificate, all in
/// DER.
///
/// # Errors
/// The parameters do not parse, or the key does not belong to the certificate.
pub fn configure(parameters: &mut Parameters, random: Arc<dyn SecureRandom>) -> Result<ClientConfig, Error> {
    let provider = CryptoProvider {
        name: dunlin_rustcrypto::NAME,
        cipher_suites: vec![&TLS13_AES_128_CCM_SHA256],
        groups: vec![SECP256R1],
        sha256: SHA256,
        signatures: P256_SIGNATURES,
        random,
        key_loader: P256_KEY_LOADER,
    };
    let certificate = CertificateDer::from(parameters.bytes());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(parameters.bytes()));
    let key = provider.key_loader.load(&key).map_err(|_| Misuse::Config("the key".into()))?;
    let anchor = CertificateDer::from(parameters.bytes());
    let trust = Trust { x509: Some(X509Trust::anchors([anchor])?), raw_key: None };
    let scheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
    let profile = Profile::lean(Arc::new(provider), &TLS13_AES_128_CCM_SHA256, SECP256R1, scheme)
        .credentials(vec![Credential::x509(vec![certificate], key)])
        .trust(trust)
        .build()?;
    Ok(ClientConfig::new(profile))
}
