//! Dunlin's server, in a process of its own. It knows as much of HTTP as an upload needs.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::{CryptoProvider, Tls12CipherSuite, Tls13CipherSuite};
use dunlin::resume::Tickets;
use dunlin::wire::SignatureScheme;
use dunlin::{
    Answer, ClientAuth, ClientHelloInfo, Credential, Profile, PskSource, Question, ServerConfig,
    ServerProfiles, TlsConnection, Trust,
};
use dunlin_awslc::tls12::{
    TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    TLS12_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
};
use dunlin_awslc::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384};
use dunlin_store::{MemoryServerCache, RotatingTickets};

use super::super::blocking::Tls;
use super::super::keys::{CLIENT_NAME, SERVER_NAME, certificates_in, psk, trust};
use super::super::watch::spent;
use super::case::{LowKey, Strategy};
use super::keys::credential;
use super::tls::{PATIENCE, close, receive};
use super::{WARM_UP, unknown};
use crate::Error;
use crate::error::failed;

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
/// The pre-shared key.
const PSK: [u8; 32] = [7; 32];

/// Serves uploads until the process is killed, or as many as `words` say last if that is not zero. The others
/// are the strategy, the address, the file of the root, certificate and key of the highest and the lowest
/// scheme, the kind of the latter key, and the directory of the upload. Prints its ports for HTTPS and for
/// plain HTTP, then a line for each upload: microseconds from accept to the last byte written, number of
/// signatures, suite, and kind of handshake.
pub(super) fn run(words: &[OsString]) -> Result<(), Error> {
    let [strategy, address, root, high, high_key, low, low_key, kind, directory, uploads] = words else {
        return Err(unknown());
    };
    let strategy = strategy.to_str().and_then(Strategy::named).ok_or_else(unknown)?;
    let address: Ipv4Addr = address.to_str().and_then(|text| text.parse().ok()).ok_or_else(unknown)?;
    let is_short = kind == LowKey::Rsa1024.name();
    let provider = Arc::new(provider(is_short));
    let high = credential(&provider, high, high_key)?;
    let low = credential(&provider, low, low_key)?;
    let trust = trust(certificates_in(root)?)?;
    let mut policy = Policy::new(&Shared::new(strategy, provider, trust, is_short)?, high, low)?;
    let listen = || TcpListener::bind((address, 0)).map_err(failed);
    let port = |listener: &TcpListener| Ok::<_, Error>(listener.local_addr().map_err(failed)?.port());
    let listeners = Listeners { https: listen()?, http: listen()? };
    let ports = [port(&listeners.https)?, port(&listeners.http)?];
    tell(&ports.map(|port| port.to_string()).join(" "))?;
    let uploads: usize = uploads.to_str().and_then(|text| text.parse().ok()).ok_or_else(unknown)?;
    let serve_one = || serve(&listeners, &mut policy, Path::new(directory));
    serve_all(uploads, serve_one)
}

/// Serves `uploads`, or without end if that is zero. Uploads after the first ones are served in functions of
/// their own.
fn serve_all(uploads: usize, mut serve: impl FnMut() -> Result<String, Error>) -> Result<(), Error> {
    for number in 0.. {
        if uploads > 0 && number == uploads {
            break;
        }
        let counted = number.checked_sub(WARM_UP).and_then(|at| COUNTED.get(at));
        tell(&match counted {
            Some((_, counted)) => counted(&mut serve)?,
            None => serve()?,
        })?;
    }
    Ok(())
}

/// Defines functions that do nothing but call another one, and the list of them with their names.
macro_rules! counted {
    ($($name:ident)*) => {
        $(#[inline(never)]
        fn $name(serve: Serve<'_>) -> Result<String, Error> {
            let line = serve();
            // Not a tail call, which would leave this function before the work is done; and not the code of
            // the others.
            black_box(stringify!($name));
            line
        })*

        /// The functions in which callgrind counts the first uploads after the warm-up, one for each size,
        /// and their names.
        pub(super) const COUNTED: &[Counted] = &[$((stringify!($name), $name)),*];
    };
}

type Serve<'a> = &'a mut dyn FnMut() -> Result<String, Error>;
type Counted = (&'static str, fn(Serve<'_>) -> Result<String, Error>);

counted!(counted_upload_1 counted_upload_2 counted_upload_3 counted_upload_4);

/// The cryptography of a server. The provider of the laboratory alone signs with short keys.
fn provider(is_short: bool) -> CryptoProvider {
    match is_short {
        #[cfg(feature = "legacy-lab")]
        true => dunlin_legacy::lab::provider(),
        _ => dunlin_awslc::provider(),
    }
}

/// The sockets of a server.
struct Listeners {
    https: TcpListener,
    http: TcpListener,
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
    /// The address of a client that was redirected and has not come yet. In the gateway, a one-time name or a
    /// port stands for it.
    redirected: Option<IpAddr>,
}

impl Policy {
    fn new(shared: &Shared, high: Credential, low: Credential) -> Result<Self, Error> {
        let strategy = shared.strategy;
        let of_high = || match strategy {
            Strategy::RenegotiationLowest => shared.server(HIGH, low.clone()),
            _ => shared.server(HIGH, high.clone()),
        };
        let of_low = || match strategy {
            Strategy::RenegotiationHighest | Strategy::ChaCha20 => shared.server(LOW, high.clone()),
            _ => shared.server(LOW, low.clone()),
        };
        let (server, profiles) = match strategy {
            Strategy::None => (Arc::new(of_high()?), None),
            Strategy::Lowest => (Arc::new(of_low()?), None),
            _ => {
                let [_, floor] = RANKS;
                let profiles = ServerProfiles::new(of_high()?, vec![of_low()?], floor).map_err(failed)?;
                (Arc::clone(profiles.server()), Some(profiles))
            }
        };
        Ok(Self { strategy, server, profiles, addresses: HashSet::new(), redirected: None })
    }

    /// The answer about the client at this address. `needed` becomes the profile of the client's identity.
    fn answer(&mut self, question: &Question, from: IpAddr, needed: &mut Option<&'static str>) -> Answer {
        let is_low = match question {
            Question::ChooseProfile(hello) => self.seems_low(hello, from),
            Question::ProfileOf(client) => {
                if client.is_proven {
                    *needed = Some(LOW);
                    self.addresses.insert(from);
                }
                true
            }
            _ => return Answer::Failed,
        };
        let Some(profiles) = &self.profiles else { return Answer::Failed };
        Answer::Profile(profiles.get(if is_low { LOW } else { HIGH }).cloned())
    }

    /// Whether the lowest scheme is for the client that seems to have sent this ClientHello.
    fn seems_low(&mut self, hello: &ClientHelloInfo, from: IpAddr) -> bool {
        match self.strategy {
            Strategy::Address => self.addresses.contains(&from),
            strategy if strategy.is_renegotiation() => false,
            Strategy::Redirection | Strategy::RedirectionUnauthenticated => {
                self.redirected.take() == Some(from)
            }
            // A client that lists ChaCha20 first has no instructions for AES.
            Strategy::ChaCha20 => {
                hello.cipher_suites.first() == Some(&TLS12_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256.id)
            }
            _ => self
                .profiles
                .as_ref()
                .is_some_and(|profiles| profiles.recognize(dunlin_tokio::now(), hello).is_some()),
        }
    }
}

/// The settings that all profiles of a server share.
struct Shared {
    strategy: Strategy,
    provider: Arc<CryptoProvider>,
    trust: Trust,
    is_short: bool,
    tickets: Option<Tickets>,
    cache: Option<Arc<MemoryServerCache>>,
    keys: Option<PskSource>,
}

impl Shared {
    fn new(
        strategy: Strategy,
        provider: Arc<CryptoProvider>,
        trust: Trust,
        is_short: bool,
    ) -> Result<Self, Error> {
        let tickets = || {
            let keys = RotatingTickets::new(Arc::new(dunlin_awslc::provider())).map_err(failed)?;
            Ok::<_, Error>(Tickets::stateless(Arc::new(keys)))
        };
        let keys = || Ok::<_, Error>(psk(CLIENT_NAME, &PSK)?.1);
        Ok(Self {
            strategy,
            provider,
            trust,
            is_short,
            tickets: (strategy == Strategy::Ticket).then(tickets).transpose()?,
            cache: (strategy == Strategy::Cached).then(|| Arc::new(MemoryServerCache::new(1))),
            keys: (strategy == Strategy::Psk).then(keys).transpose()?,
        })
    }

    fn server(&self, name: &str, credential: Credential) -> Result<ServerConfig, Error> {
        let [high, low] = RANKS;
        let is_high = name == HIGH;
        let is_unauthenticated = self.strategy == Strategy::RedirectionUnauthenticated;
        let profile = self
            .profile(is_high)
            .name(name)
            // The engine lowers the rank of no client without a certificate, so the paper's variant calls
            // both schemes equal.
            .rank(if is_high || is_unauthenticated { high } else { low })
            .credentials(vec![credential])
            .trust(self.trust.clone());
        let server = ServerConfig::new(profile.build().map_err(failed)?).map_err(failed)?;
        let asked = if is_unauthenticated { ClientAuth::None } else { ClientAuth::Required };
        let mut server = server.with_client_auth(asked).map_err(failed)?.with_certificate_change(true);
        if let Some(tickets) = &self.tickets {
            server = server.with_tickets(tickets.clone());
        }
        if let Some(keys) = &self.keys {
            server = server.with_psks(keys.clone());
        }
        if let Some(cache) = self.cache.clone() {
            let cached = server.with_handshake_cache(CacheMode::Compact, cache, DEFAULT_MAX_AGE);
            server = cached.map_err(failed)?;
        }
        Ok(server)
    }

    /// The versions and algorithms of a scheme.
    fn profile(&self, is_high: bool) -> dunlin::ProfileBuilder {
        let provider = self.provider.clone();
        let suite = match (self.strategy, is_high) {
            (Strategy::Psk, true) => return profile13(provider, &TLS13_AES_256_GCM_SHA384),
            (Strategy::Psk, false) => return profile13(provider, &TLS13_AES_128_GCM_SHA256),
            (Strategy::ChaCha20, false) => &TLS12_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
            (Strategy::RenegotiationLowest, _) => &TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            (Strategy::RenegotiationHighest, _) | (_, true) => &TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            _ => &TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        };
        let profile = profile(provider, suite);
        #[cfg(feature = "legacy-lab")]
        let profile = if self.is_short { profile.danger_legacy_lab() } else { profile };
        #[cfg(not(feature = "legacy-lab"))]
        debug_assert!(!self.is_short, "the cases have no short keys");
        profile
    }
}

/// A profile of both sides: TLS 1.2 with one suite, group and signature scheme.
pub(super) fn profile(
    provider: Arc<CryptoProvider>,
    suite: &'static Tls12CipherSuite,
) -> dunlin::ProfileBuilder {
    Profile::builder(provider)
        .cipher_suites(vec![])
        .tls12_cipher_suites(vec![suite])
        .groups(vec![dunlin_awslc::X25519])
        .signature_schemes(vec![SignatureScheme::RSA_PKCS1_SHA256])
}

/// The same for TLS 1.3, which signs by PSS (RFC 8446 §4.2.3).
fn profile13(provider: Arc<CryptoProvider>, suite: &'static Tls13CipherSuite) -> dunlin::ProfileBuilder {
    Profile::builder(provider)
        .cipher_suites(vec![suite])
        .groups(vec![dunlin_awslc::X25519])
        .signature_schemes(vec![SignatureScheme::RSA_PSS_RSAE_SHA256])
}

/// The part of a request that has arrived.
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
            return if self.header.len() > MAX_HEADER {
                Err(failed("the request's header is too long"))
            } else {
                Ok(&[])
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

/// Answers a request over plain HTTP with the port for HTTPS. Returns the microseconds from the request's
/// arrival on, as Apache counts.
fn redirect(listeners: &Listeners, policy: &mut Policy) -> Result<f64, Error> {
    let (mut tcp, from) = listeners.http.accept().map_err(failed)?;
    let mut header = Vec::new();
    let mut buffer = [0; MAX_HEADER];
    let mut start = None;
    while !header.ends_with(END) {
        let len = tcp.read(&mut buffer).map_err(failed)?;
        start.get_or_insert_with(Instant::now);
        if len == 0 || header.len() > MAX_HEADER {
            return Err(failed("the request for a redirection has no end"));
        }
        header.extend_from_slice(buffer.get(..len).unwrap_or_default());
    }
    let header = String::from_utf8_lossy(&header);
    let target = header.split(' ').nth(1).and_then(|target| target.split_once("?client="));
    let Some((path, CLIENT_NAME)) = target else { return Err(failed("the request names another client")) };
    policy.redirected = Some(from.ip());
    let port = listeners.https.local_addr().map_err(failed)?.port();
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: https://{}:{port}{path}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        SERVER_NAME
    );
    tcp.write_all(answer.as_bytes()).map_err(failed)?;
    Ok(start.map_or(0.0, |start: Instant| start.elapsed().as_secs_f64() * 1e6))
}

/// Serves one upload; returns the line to print.
fn serve(listeners: &Listeners, policy: &mut Policy, directory: &Path) -> Result<String, Error> {
    let redirect_us = if policy.strategy.is_redirection() { redirect(listeners, policy)? } else { 0.0 };
    let (tcp, from) = listeners.https.accept().map_err(failed)?;
    let start = Instant::now();
    let mut tls = Tls::new(tcp, TlsConnection::server(&policy.server, dunlin_tokio::now()), PATIENCE)?;
    let mut request = Request::default();
    let mut needed = None;
    let mut has_consented = false;
    let mut is_refused = false;
    let mut file = None;
    loop {
        tls.flush()?;
        if let Some(length) = request.length {
            // The body is to come under the client's own scheme.
            if !has_consented && (is_refused || !is_changing(&tls, needed)) {
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
        if !receive(&mut tls, &mut is_refused, &mut answer, &mut sink)? {
            return Err(failed("the client closed before its upload was complete"));
        }
    }
    drop(file);
    tls.say(CREATED)?;
    let us = redirect_us + start.elapsed().as_secs_f64() * 1e6;
    let Some(negotiated) = tls.connection.negotiated() else { return Err(failed("no handshake")) };
    let kind = match (negotiated.is_resumed(), negotiated.is_own_cached() && negotiated.is_peer_cached()) {
        (true, _) => "resumed",
        (_, true) => "cached",
        _ => "full",
    };
    let suite = negotiated.cipher_suite.map(|suite| suite.to_string()).unwrap_or_default();
    let line = format!("{us:.3} {} {suite} {kind}", spent().signed);
    while !tls.connection.peer_has_closed()
        && receive(&mut tls, &mut is_refused, &mut |_| Answer::Failed, &mut |_| Ok(()))?
    {}
    close(&mut tls)?;
    // The next upload must not pay for emptying this file.
    fs::remove_file(directory.join(UPLOAD)).map_err(failed)?;
    Ok(line)
}

/// Whether the client is about to renegotiate to the profile `needed`.
fn is_changing(tls: &Tls, needed: Option<&str>) -> bool {
    let in_use = tls.connection.negotiated().map(|negotiated| negotiated.profile.as_str());
    needed.is_some() && in_use != needed
}
