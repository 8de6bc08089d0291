//! Dunlin's client, in a process of its own.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::{Answer, ClientConfig};
use dunlin_awslc::tls12::{TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384};
use dunlin_store::MemoryClientCache;

use super::super::blocking::Tls;
use super::super::keys::{certificates_in, trust};
use super::case::Strategy;
use super::keys::credential;
use super::server::profile;
use super::tls::{PATIENCE, close, receive};
use super::unknown;
use crate::Error;
use crate::error::failed;

/// Uploads as `upload.c` does. `words` are the strategy, the server's address and port, and the files of
/// root, certificate and key.
pub(super) fn run(words: &[OsString]) -> Result<(), Error> {
    let [strategy, address, root, certificate, key] = words else { return Err(unknown()) };
    let strategy = strategy.to_str().and_then(Strategy::named).ok_or_else(unknown)?;
    let address: SocketAddr = address.to_str().and_then(|text| text.parse().ok()).ok_or_else(unknown)?;
    let suites = vec![&TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384, &TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256];
    let provider = Arc::new(dunlin_awslc::provider());
    let profile = profile(provider.clone(), &TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384)
        .tls12_cipher_suites(suites)
        .credentials(vec![credential(&provider, certificate, key)?])
        .trust(trust(certificates_in(root)?)?);
    let mut config = ClientConfig::new(profile.build().map_err(failed)?).with_server_name_sent(false);
    if strategy == Strategy::Cached {
        // One entry for each of the server's certificates.
        let store = Arc::new(MemoryClientCache::new(2));
        config = config.with_handshake_cache(CacheMode::Compact, store, DEFAULT_MAX_AGE);
    }
    let config = Arc::new(config);
    for line in io::stdin().lock().lines() {
        let size = line.map_err(failed)?.parse().map_err(|_| unknown())?;
        let told = upload(&config, address, &vec![b'x'; size])?;
        let mut out = io::stdout().lock();
        writeln!(out, "{told}").and_then(|()| out.flush()).map_err(failed)?;
    }
    Ok(())
}

/// Makes one upload; returns the line to print.
fn upload(config: &Arc<ClientConfig>, address: SocketAddr, data: &[u8]) -> Result<String, Error> {
    let start = Instant::now();
    let mut tls = Tls::connect(address, config, PATIENCE)?;
    while tls.connection.negotiated().is_none() {
        tls.flush()?;
        hear(&mut tls, &mut Vec::new())?;
    }
    let length = data.len();
    let request = format!(
        "PUT /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
    );
    tls.say(request.as_bytes())?;
    expect(&mut tls, b"HTTP/1.1 1")?;
    tls.say(data)?;
    expect(&mut tls, b"HTTP/1.1 2")?;
    let us = start.elapsed().as_secs_f64() * 1e6;
    let suite = tls.connection.negotiated().and_then(|negotiated| negotiated.cipher_suite);
    let told = format!("{us:.3} {}", suite.map(|suite| suite.to_string()).unwrap_or_default());
    close(&mut tls)?;
    while receive(&mut tls, &mut false, &mut |_| Answer::Failed, &mut |_| Ok(()))? {}
    Ok(told)
}

fn hear(tls: &mut Tls, heard: &mut Vec<u8>) -> Result<(), Error> {
    let mut sink = |data: &[u8]| {
        heard.extend_from_slice(data);
        Ok(())
    };
    if receive(tls, &mut false, &mut |_| Answer::Failed, &mut sink)? {
        Ok(())
    } else {
        Err(failed("the server closed before it answered"))
    }
}

/// Waits for an answer without a body that begins so.
fn expect(tls: &mut Tls, beginning: &[u8]) -> Result<(), Error> {
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n") {
        // A Finished, or the answer to a renegotiation, can wait here.
        tls.flush()?;
        hear(tls, &mut heard)?;
    }
    if heard.starts_with(beginning) {
        Ok(())
    } else {
        Err(failed(String::from_utf8_lossy(&heard).lines().next().unwrap_or_default()))
    }
}
