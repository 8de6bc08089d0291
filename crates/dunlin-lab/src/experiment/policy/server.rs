//! Dunlin's server, in a process of its own. It knows as much of HTTP as an upload needs.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use dunlin::auth::X509Trust;
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::Tls12CipherSuite;
use dunlin::resume::Tickets;
use dunlin::wire::SignatureScheme;
use dunlin::{
    Answer, ClientAuth, Credential, Profile, Question, ServerConfig, ServerProfiles, TlsConnection, Trust,
};
use dunlin_awslc::tls12::{TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384};
use dunlin_store::{MemoryServerCache, RotatingTickets};

use super::case::Strategy;
use super::count::signatures;
use super::tls::{Tls, failed};
use super::{keys, unknown};
use crate::Error;

/// The names of the profiles, and their ranks.
const HIGH: &str = "high";
const LOW: &str = "low";
const RANKS: [i32; 2] = [2, 1];

/// The server's answers.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
const CREATED: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// The end of a request's header, and the longest header.
const END: &[u8] = b"\r\n\r\n";
const MAX_HEADER: usize = 4096;
/// The name of the uploaded file.
const UPLOAD: &str = "upload";

/// Serves uploads until the process is killed. `words` are the strategy, the address, the file of the root, certificate and key of the
/// highest and the lowest scheme, and the directory of the upload. Prints its port, then a line for each upload: microseconds from
/// accept to the last byte written, number of signatures, profile, and kind of handshake.
pub(super) fn run(words: &[OsString]) -> Result<(), Error> {
    let [strategy, address, root, high_certificate, high_key, low_certificate, low_key, directory] = words
    else {
        return Err(unknown());
    };
    let strategy = strategy.to_str().and_then(Strategy::named).ok_or_else(unknown)?;
    let address: Ipv4Addr = address.to_str().and_then(|text| text.parse().ok()).ok_or_else(unknown)?;
    let provider = Arc::new(dunlin_awslc::provider());
    let high = keys::credential(&provider, high_certificate, high_key)?;
    let low = keys::credential(&provider, low_certificate, low_key)?;
    let roots = keys::certificates(root)?;
    let mut policy = Policy::new(strategy, X509Trust::anchors(roots).map_err(failed)?, high, low)?;
    let listener = TcpListener::bind((address, 0)).map_err(failed)?;
    tell(&listener.local_addr().map_err(failed)?.port().to_string())?;
    loop {
        let line = serve(&listener, &mut policy, Path::new(directory))?;
        tell(&line)?;
    }
}

fn tell(line: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(failed)
}

/// The choice of a scheme for each client.
struct Policy {
    strategy: Strategy,
    server: Arc<ServerConfig>,
    /// `None` if all clients get the same scheme.
    profiles: Option<ServerProfiles>,
    /// The addresses of clients that have proven that they may have the lowest scheme.
    addresses: HashSet<IpAddr>,
}

impl Policy {
    fn new(strategy: Strategy, trust: X509Trust, high: Credential, low: Credential) -> Result<Self, Error> {
        let shared = Shared::new(strategy, trust)?;
        let of_high = || shared.server(HIGH, high, &TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384);
        let of_low = || shared.server(LOW, low, &TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256);
        let addresses = HashSet::new();
        Ok(match strategy {
            Strategy::None => Self { strategy, server: Arc::new(of_high()?), profiles: None, addresses },
            Strategy::Lowest => Self { strategy, server: Arc::new(of_low()?), profiles: None, addresses },
            _ => {
                let [_, floor] = RANKS;
                let profiles = ServerProfiles::new(of_high()?, vec![of_low()?], floor).map_err(failed)?;
                Self { strategy, server: Arc::clone(profiles.server()), profiles: Some(profiles), addresses }
            }
        })
    }

    /// The answer about the client at this address. `needed` becomes the profile of the client's identity.
    fn answer(&mut self, question: &Question, from: IpAddr, needed: &mut Option<&'static str>) -> Answer {
        let Some(profiles) = &self.profiles else { return Answer::Failed };
        match question {
            Question::ChooseProfile(hello) => {
                let is_known = match self.strategy {
                    Strategy::Address => self.addresses.contains(&from),
                    Strategy::Renegotiation => false,
                    _ => profiles.recognize(dunlin_tokio::now(), hello).is_some(),
                };
                Answer::Profile(profiles.get(if is_known { LOW } else { HIGH }).cloned())
            }
            Question::ProfileOf(client) => {
                if client.is_proven {
                    *needed = Some(LOW);
                    self.addresses.insert(from);
                }
                Answer::Profile(profiles.get(LOW).cloned())
            }
            _ => Answer::Failed,
        }
    }
}

/// The settings that all profiles of a server share.
struct Shared {
    trust: X509Trust,
    tickets: Option<Tickets>,
    cache: Option<Arc<MemoryServerCache>>,
}

impl Shared {
    fn new(strategy: Strategy, trust: X509Trust) -> Result<Self, Error> {
        let tickets = || {
            let keys = RotatingTickets::new(Arc::new(dunlin_awslc::provider())).map_err(failed)?;
            Ok::<_, Error>(Tickets::stateless(Arc::new(keys)))
        };
        Ok(Self {
            trust,
            tickets: (strategy == Strategy::Ticket).then(tickets).transpose()?,
            cache: (strategy == Strategy::Cached).then(|| Arc::new(MemoryServerCache::new(1))),
        })
    }

    fn server(
        &self,
        name: &str,
        credential: Credential,
        suite: &'static Tls12CipherSuite,
    ) -> Result<ServerConfig, Error> {
        let [high, low] = RANKS;
        let profile = profile(suite)
            .name(name)
            .rank(if name == HIGH { high } else { low })
            .credentials(vec![credential])
            .trust(Trust { x509: Some(self.trust.clone()), raw_key: None });
        let server = ServerConfig::new(profile.build().map_err(failed)?).map_err(failed)?;
        let server =
            server.with_client_auth(ClientAuth::Required).map_err(failed)?.with_certificate_change(true);
        let server = match &self.tickets {
            Some(tickets) => server.with_tickets(tickets.clone()),
            None => server,
        };
        match &self.cache {
            Some(cache) => server
                .with_handshake_cache(CacheMode::Compact, cache.clone(), DEFAULT_MAX_AGE)
                .map_err(failed),
            None => Ok(server),
        }
    }
}

/// A profile of both sides: TLS 1.2 with one suite, group and signature scheme.
pub(super) fn profile(suite: &'static Tls12CipherSuite) -> dunlin::ProfileBuilder {
    Profile::builder(Arc::new(dunlin_awslc::provider()))
        .cipher_suites(vec![])
        .tls12_cipher_suites(vec![suite])
        .groups(vec![dunlin_awslc::X25519])
        .signature_schemes(vec![SignatureScheme::RSA_PKCS1_SHA256])
}

/// What has come of a request.
#[derive(Default)]
struct Request {
    header: Vec<u8>,
    /// The length of the body, once the header is complete.
    length: Option<usize>,
    received: usize,
}

impl Request {
    /// Takes data; returns the part of it that belongs to the body.
    fn take<'a>(&mut self, data: &'a [u8]) -> Result<&'a [u8], Error> {
        if self.length.is_some() {
            self.received += data.len();
            return Ok(data);
        }
        self.header.extend_from_slice(data);
        let Some(end) = self.header.windows(END.len()).position(|window| window == END) else {
            return match self.header.len() > MAX_HEADER {
                true => Err(failed("the request's header is too long")),
                false => Ok(&[]),
            };
        };
        let header = String::from_utf8_lossy(self.header.get(..end).unwrap_or_default());
        let length = header.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        self.length = Some(length.ok_or_else(|| failed("the request has no length"))?);
        let body = data.get(data.len() - (self.header.len() - end - END.len())..).unwrap_or_default();
        self.received = body.len();
        Ok(body)
    }
}

/// Serves one upload; returns the line to print.
fn serve(listener: &TcpListener, policy: &mut Policy, directory: &Path) -> Result<String, Error> {
    let (tcp, from) = listener.accept().map_err(failed)?;
    let start = Instant::now();
    let mut tls = Tls::new(tcp, TlsConnection::server(&policy.server, dunlin_tokio::now()))?;
    let (mut request, mut needed, mut has_consented) = (Request::default(), None, false);
    let mut file = None;
    loop {
        tls.flush()?;
        if let Some(length) = request.length {
            // The body is to come under the client's own scheme.
            if !has_consented && !is_changing(&tls, needed) {
                file = Some(File::create(directory.join(UPLOAD)).map_err(failed)?);
                tls.say(CONTINUE)?;
                has_consented = true;
            }
            if request.received >= length {
                break;
            }
        }
        let mut answer = |question: &Question| policy.answer(question, from.ip(), &mut needed);
        let mut sink = |data: &[u8]| {
            let body = request.take(data)?;
            match &mut file {
                Some(file) => file.write_all(body).map_err(failed),
                None if body.is_empty() => Ok(()),
                None => Err(failed("the client did not wait for the server's consent")),
            }
        };
        if !tls.receive(&mut answer, &mut sink)? {
            return Err(failed("the client closed before its upload was complete"));
        }
    }
    drop(file);
    tls.say(CREATED)?;
    let us = start.elapsed().as_secs_f64() * 1e6;
    let Some(negotiated) = tls.connection.negotiated() else { return Err(failed("no handshake")) };
    let kind = match (negotiated.is_resumed(), negotiated.is_own_cached() && negotiated.is_peer_cached()) {
        (true, _) => "resumed",
        (_, true) => "cached",
        _ => "full",
    };
    let line = format!("{us:.3} {} {} {kind}", signatures(), negotiated.profile);
    while !tls.connection.peer_has_closed() && tls.receive(&mut |_| Answer::Failed, &mut |_| Ok(()))? {}
    tls.close()?;
    // The next upload must not pay for emptying this file.
    fs::remove_file(directory.join(UPLOAD)).map_err(failed)?;
    Ok(line)
}

/// Whether the client is about to renegotiate to the profile `needed`.
fn is_changing(tls: &Tls, needed: Option<&str>) -> bool {
    let in_use = tls.connection.negotiated().map(|negotiated| negotiated.profile.as_str());
    needed.is_some() && in_use != needed && !tls.is_refused
}
