//! The configurations of both of Dunlin's sides, and what their handshakes must be.

use std::sync::Arc;

use dunlin::auth::RawKeyTrust;
use dunlin::cache::DEFAULT_MAX_AGE;
use dunlin::crypto::Tls12CipherSuite;
use dunlin::resume::Tickets;
use dunlin::wire::SignatureScheme;
use dunlin::{ClientAuth, ClientConfig, Negotiated, Profile, ServerConfig, Side, Trust};
use dunlin_awslc::tls12::{
    TLS12_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
};
use dunlin_pki::KeyType;
use dunlin_store::{MemoryClientCache, MemoryClientSessions, MemoryServerCache, MemoryServerSessions};

use super::super::keys::{self, credential, trust};
use super::case::{CONNECTIONS, Case, Credential, End, Handshake, Mode, Protocol};
use crate::Error;
use crate::error::failed;

pub(super) fn client(case: &Case<'_>) -> Result<ClientConfig, Error> {
    let mut config =
        ClientConfig::new(profile(case, &case.keys.client, &case.keys.server)?).with_server_name_sent(false);
    if let Mode::Resumption | Mode::ResumptionWithCache(_) = case.mode {
        config = config.with_sessions(Arc::new(MemoryClientSessions::new(1, 1)));
    }
    if let Mode::Cache(mode) | Mode::ResumptionWithCache(mode) = case.mode {
        config = config.with_handshake_cache(mode, Arc::new(MemoryClientCache::new(1)), DEFAULT_MAX_AGE);
    }
    Ok(config)
}

pub(super) fn server(case: &Case<'_>) -> Result<ServerConfig, Error> {
    let config = ServerConfig::new(profile(case, &case.keys.server, &case.keys.client)?).map_err(failed)?;
    let mut config = config.with_client_auth(ClientAuth::Required).map_err(failed)?;
    if let Mode::Resumption | Mode::ResumptionWithCache(_) = case.mode {
        let sessions = Arc::new(MemoryServerSessions::new(CONNECTIONS.len()));
        config = config.with_tickets(Tickets::stateful(sessions));
    }
    if let Mode::Cache(mode) | Mode::ResumptionWithCache(mode) = case.mode {
        let store = Arc::new(MemoryServerCache::new(1));
        config = config.with_handshake_cache(mode, store, DEFAULT_MAX_AGE).map_err(failed)?;
    }
    Ok(config)
}

fn profile(case: &Case<'_>, own: &End, peer: &End) -> Result<Profile, Error> {
    let provider = Arc::new(dunlin_awslc::provider());
    let (credential, trust) = match case.keys.credential {
        Credential::X509(_) | Credential::Mixed { .. } => {
            (credential(&provider, &own.identity)?, trust([peer.root.clone()])?)
        }
        Credential::RawKey(_) => {
            let raw_key = RawKeyTrust::Keys(vec![peer.identity.key.public_key().clone()]);
            let key = own.identity.key.signing_key(&provider)?;
            (dunlin::Credential::raw_key(key), Trust { x509: None, raw_key: Some(raw_key) })
        }
    };
    let profile = Profile::builder(provider).compatibility_mode(false).groups(vec![dunlin_awslc::SECP256R1]);
    let profile = match case.protocol {
        Protocol::Tls13 | Protocol::Dtls13 => {
            profile.cipher_suites(vec![&dunlin_awslc::TLS13_AES_256_GCM_SHA384])
        }
        Protocol::Tls12 | Protocol::Dtls12 => {
            profile.cipher_suites(vec![]).tls12_cipher_suites(vec![suite(case.keys.credential)])
        }
    };
    let profile = profile.signature_schemes(schemes(case)).credentials(vec![credential]).trust(trust);
    profile.build().map_err(failed)
}

/// The TLS 1.2 suite for these keys.
const fn suite(credential: Credential) -> &'static Tls12CipherSuite {
    match credential.key_type(Side::Server) {
        KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => &TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        // RFC 8422 §5.10: Ed25519 has no suites of its own.
        _ => &TLS12_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    }
}

/// The signature schemes of handshakes and certificates. If the sides' keys differ, both are RSA keys.
fn schemes(case: &Case<'_>) -> Vec<SignatureScheme> {
    match case.keys.credential.key_type(Side::Server) {
        KeyType::Rsa2048 | KeyType::Rsa4096 if case.protocol.is_version_12() => {
            vec![SignatureScheme::RSA_PKCS1_SHA256]
        }
        key_type => keys::schemes(key_type),
    }
}

/// Checks the kind of the handshake on this side.
pub(super) fn expect(side: Side, negotiated: Option<&Negotiated>, wanted: Handshake) -> Result<(), Error> {
    let seen = negotiated.map(|all| {
        let own = all.is_own_cached();
        let peer = all.is_peer_cached();
        match side {
            Side::Client => [all.is_resumed(), peer, own],
            Side::Server => [all.is_resumed(), own, peer],
        }
    });
    if seen == Some(wanted.parts()) {
        Ok(())
    } else {
        Err(failed(format_args!("a handshake is not {wanted:?}, as it should be")))
    }
}
