//! The traces of RFC 8448, replayed by connections of the engine.
//!
//! Each side is a whole connection. It gets the trace's randomness, messages and signature, and must compute
//! and seal the trace's values. The engine encodes Hellos, EncryptedExtensions and tickets differently from
//! the trace. For these, the trace's messages replace its own in the transcript and in a copy of the records
//! (`tap.rs`). Nothing else changes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use dunlin::auth::{PrivateKey, X509Trust};
use dunlin::crypto::CryptoProvider;
use dunlin::pki_types::{CertificateDer, ServerName};
use dunlin::resume::{SealTickets, Tickets};
use dunlin::wire::{NamedGroup, SignatureScheme};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, EarlyDataOutcome, EarlyDataProtocols, Event, Now, Profile,
    ProfileBuilder, Question, ServerAddress, ServerConfig, SingleUse, TlsConnection, Trust,
};
use dunlin_store::{MemoryClientSessions, MemoryUseOnce};
use dunlin_tests::{NOW, providers};
use sha2::{Digest, Sha256};
use tap::Tap;
use zeroize::Zeroizing;

mod tap;

/// `ChangeCipherSpec` of the compatibility mode.
const CHANGE_CIPHER_SPEC: &[u8] = &[0x14, 3, 3, 0, 1, 1];

/// The values of a trace by their names.
struct Trace(HashMap<String, Vec<u8>>);

impl Trace {
    fn load(name: &str) -> Self {
        let path = format!("{}/data/rfc8448/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let mut values: HashMap<String, Vec<u8>> = HashMap::new();
        let mut name = "";
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            match line.strip_prefix("    ") {
                None => name = line,
                Some(hex) => {
                    let bytes =
                        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap());
                    values.entry(name.to_owned()).or_default().extend(bytes);
                }
            }
        }
        Self(values)
    }

    fn find(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    fn get(&self, name: &str) -> &[u8] {
        self.find(name).unwrap_or_else(|| panic!("no {name} in the trace"))
    }

    /// Returns the values that this trace has among `names`.
    fn some(&self, names: &[&str]) -> Vec<&[u8]> {
        names.iter().filter_map(|n| self.find(n)).collect()
    }

    /// A message in its own record.
    fn record(&self, name: &str) -> Vec<u8> {
        let message = self.get(name);
        [&[0x16, 3, 3], &(message.len() as u16).to_be_bytes()[..], message].concat()
    }

    /// A flight as it was sent, after a ChangeCipherSpec if the trace has one.
    fn flight(&self, name: &str) -> Vec<u8> {
        let first = if self.is_compatible() { CHANGE_CIPHER_SPEC } else { &[] };
        [first, self.get(name)].concat()
    }

    fn is_compatible(&self) -> bool {
        self.find("client session id").is_some()
    }

    /// Checks that the connection has computed, or used as a key, every secret and hash of the trace whose
    /// name passes `of_interest`.
    fn assert_schedule(&self, tap: &Tap, of_interest: impl Fn(&str) -> bool) {
        // Without a PSK, the secret derived from the early secret is a constant, which the connection must
        // have used.
        let is_constant = |n: &str| n == "secret early" && self.find("secret res binder").is_none();
        let is_step = |n: &str| n.starts_with("secret ") || n.starts_with("hash ");
        let wanted = |n: &str| is_step(n) && of_interest(n) && !is_constant(n);
        let missing = self.0.iter().filter(|(n, v)| wanted(n) && !tap.has_seen(v)).map(|(n, _)| n);
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&String>::new(), "not computed");
    }
}

fn credential(trace: &Trace, side: &str, scheme: SignatureScheme) -> Credential {
    let chain = vec![CertificateDer::from(trace.get(&format!("{side} certificate")).to_vec())];
    Credential::X509 { chain, key: PrivateKey::Elsewhere { schemes: vec![scheme], label: side.into() } }
}

fn profile(provider: Arc<CryptoProvider>) -> ProfileBuilder {
    // The certificates have no names and no chain.
    let trust = Trust { x509: Some(X509Trust::DangerAnyone), raw_key: None };
    Profile::builder(provider).trust(trust).record_size_limit(Some(0x4001)).danger_skip_provider_check()
}

/// Returns the bytes that a side has to send.
fn sent(connection: &mut TlsConnection) -> Vec<u8> {
    let bytes = connection.transmit().to_vec();
    connection.transmitted(bytes.len());
    bytes
}

fn receive(connection: &mut TlsConnection, bytes: &[u8]) {
    assert_eq!(connection.receive(NOW, bytes), Ok(bytes.len()));
}

/// Answers the question for a signature with the trace's, and returns the content to be signed.
fn sign(connection: &mut TlsConnection, signature: &[u8]) -> Vec<u8> {
    let Some(Event::Question(id, Question::Sign { message, .. })) = connection.poll_event() else {
        panic!("nothing to sign")
    };
    connection.answer(NOW, id, Answer::Signature(signature.to_vec())).unwrap();
    message
}

/// Returns the connected client of a trace. It has checked the server's signature and Finished.
fn client(
    trace: &Trace,
    provider: &CryptoProvider,
    sessions: &Arc<MemoryClientSessions>,
) -> (TlsConnection, &'static Tap) {
    let replay = trace.some(&["client hello", "second client hello"]);
    let random = ["client random", "client session id", "client private key", "client second private key"];
    let (provider, tap) = Tap::new(provider, &replay, &[], &trace.some(&random));
    let mut builder = profile(provider).compatibility_mode(trace.is_compatible());
    if trace.find("client certificate").is_some() {
        builder =
            builder.credentials(vec![credential(trace, "client", SignatureScheme::RSA_PSS_RSAE_SHA256)]);
    }
    let config = ClientConfig::new(builder.build().unwrap()).with_sessions(sessions.clone());
    let mut connection = TlsConnection::client(&Arc::new(config), server_address(), NOW).unwrap();
    sent(&mut connection);
    if trace.find("hello retry request").is_some() {
        receive(&mut connection, &trace.record("hello retry request"));
        sent(&mut connection);
    }
    let flight = [trace.record("server hello"), trace.flight("record server flight")].concat();
    receive(&mut connection, &flight);
    if let Some(signature) = trace.find("client signature") {
        sign(&mut connection, signature);
    }
    assert_eq!(sent(&mut connection), trace.flight("record client flight"));
    assert_eq!(tap.left(), 0);
    (connection, tap)
}

fn server_address() -> ServerAddress {
    ServerAddress::new(ServerName::try_from("server").unwrap(), 4433)
}

/// The signature scheme of the trace's server.
fn server_scheme(trace: &Trace) -> SignatureScheme {
    // An ECDSA signature is a SEQUENCE; 1024-bit RSA signatures have exactly 128 bytes.
    match trace.get("server signature").len() {
        128 => SignatureScheme::RSA_PSS_RSAE_SHA256,
        _ => SignatureScheme::ECDSA_SECP256R1_SHA256,
    }
}

/// A server configuration for a trace that replays the server's messages.
fn server_config(
    certified: &Trace,
    trace: &Trace,
    provider: &CryptoProvider,
    group: NamedGroup,
    replay: &[&str],
) -> (ServerConfig, &'static Tap) {
    // The first random value is for a key that these servers do not use, the last two are for a ticket.
    let age_add = trace.find("new session ticket").map_or(&[0; 4][..], |ticket| &ticket[8..12]);
    let random =
        [&[0; 32][..], trace.get("server private key"), trace.get("server random"), age_add, &[0; 16]];
    let (provider, tap) =
        Tap::new(provider, &trace.some(replay), &trace.some(&["new session ticket"]), &random);
    let group = provider.group(group).unwrap();
    let credential = credential(certified, "server", server_scheme(certified));
    let builder = profile(provider).groups(vec![group]).credentials(vec![credential]);
    (ServerConfig::new(builder.build().unwrap()).unwrap(), tap)
}

/// Returns the connected server of a trace without a retry. It has checked the client's Finished, and its
/// signature if the trace has one.
fn server(trace: &Trace, provider: &CryptoProvider, vault: &Arc<Vault>) -> (TlsConnection, &'static Tap) {
    let replay = ["server hello", "encrypted extensions", "certificate request"];
    let (mut config, tap) = server_config(trace, trace, provider, NamedGroup::X25519, &replay);
    if trace.find("certificate request").is_some() {
        config = config.with_client_auth(ClientAuth::Required).unwrap();
    }
    if trace.find("record ticket").is_some() {
        config = with_early_data(config.with_tickets(Tickets::stateless(vault.clone())));
    }
    let mut connection = TlsConnection::server(&Arc::new(config), NOW);
    receive(&mut connection, &trace.record("client hello"));
    let content = sign(&mut connection, trace.get("server signature"));
    assert_eq!(content, server_signature_content(trace));
    sent(&mut connection);
    assert!(tap.has_sealed(trace.get("record server flight")));
    receive(&mut connection, &trace.flight("record client flight"));
    assert!(connection.negotiated().is_some());
    assert_eq!(tap.left(), 0);
    sent(&mut connection);
    assert!(trace.find("record ticket").is_none_or(|ticket| tap.has_sealed(ticket)));
    (connection, tap)
}

/// The signed content of RFC 8446 §4.4.3, computed from the trace's messages.
fn server_signature_content(trace: &Trace) -> Vec<u8> {
    let certificate = trace.get("server certificate");
    let len = |n: usize| (n as u32).to_be_bytes()[1..].to_vec();
    let n = certificate.len();
    let certificate = [&[11], &len(n + 9)[..], &[0], &len(n + 5), &len(n), certificate, &[0, 0]].concat();
    let names = ["client hello", "server hello", "encrypted extensions", "certificate request"];
    let hash = Sha256::digest([trace.some(&names).concat(), certificate].concat());
    [&[0x20; 64][..], b"TLS 1.3, server CertificateVerify", &[0], &hash].concat()
}

/// Both sides send the data of the trace, each in the trace's record.
fn exchange(trace: &Trace, client: &mut TlsConnection, server: &mut TlsConnection) {
    let data = trace.get("data");
    for (connection, own, peer) in [(client, "client", "server"), (server, "server", "client")] {
        assert_eq!(connection.send(data), Ok(data.len()));
        assert_eq!(sent(connection), trace.get(&format!("record {own} data")));
        receive(connection, trace.get(&format!("record {peer} data")));
        assert_eq!(connection.received(), data);
        connection.consume(NOW, data.len()).unwrap();
    }
}

/// Both sides close, each with the trace's record.
fn close(trace: &Trace, mut client: TlsConnection, mut server: TlsConnection) {
    for (connection, own, peer) in [(&mut client, "client", "server"), (&mut server, "server", "client")] {
        connection.close();
        assert_eq!(sent(connection), trace.get(&format!("record {own} close_notify")), "{own}");
        receive(connection, trace.get(&format!("record {peer} close_notify")));
        assert!(std::iter::from_fn(|| connection.poll_event()).any(|e| matches!(e, Event::PeerClosed)));
    }
}

fn client_sessions() -> Arc<MemoryClientSessions> {
    Arc::new(MemoryClientSessions::new(1, 1))
}

#[test]
fn simple_1rtt_handshake() {
    let trace = Trace::load("simple_1rtt");
    for provider in providers() {
        let (mut client, client_tap) = client(&trace, &provider, &client_sessions());
        let (mut server, server_tap) = server(&trace, &provider, &Arc::new(vault()));
        receive(&mut client, trace.get("record ticket"));
        trace.assert_schedule(client_tap, |_| true);
        // The nonce of the engine's ticket is shorter than the trace's.
        trace.assert_schedule(server_tap, |n| n != "secret resumption");
        exchange(&trace, &mut client, &mut server);
        close(&trace, client, server);
    }
}

/// Stores a server's last session under the trace's ticket.
#[derive(Debug, Default)]
struct Vault {
    session: Mutex<Vec<u8>>,
    bound: Mutex<Vec<u8>>,
    ticket: Vec<u8>,
    single_use: Option<SingleUse>,
}

impl Vault {
    /// Replaces the session's PSK by the trace's; it is the only value of the session from the key schedule.
    fn set_psk(&self, tap: &Tap, psk: &[u8]) {
        let mut session = self.session.lock().unwrap();
        let at = session.windows(psk.len()).position(|w| tap.has_seen(w)).unwrap();
        session[at..at + psk.len()].copy_from_slice(psk);
    }
}

impl SealTickets for Vault {
    fn seal(&self, _: Now, aad: &[u8], plaintext: &[u8]) -> Option<Vec<u8>> {
        *self.session.lock().unwrap() = plaintext.to_vec();
        *self.bound.lock().unwrap() = aad.to_vec();
        Some(b"a ticket".to_vec())
    }

    fn open(&self, _: Now, _: &[u8], ticket: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        (ticket == self.ticket).then(|| Zeroizing::new(self.session.lock().unwrap().clone()))
    }

    fn open_any(&self, now: Now, ticket: &[u8]) -> Option<(Vec<u8>, Zeroizing<Vec<u8>>)> {
        let aad = self.bound.lock().unwrap().clone();
        self.open(now, &aad, ticket).map(|session| (aad, session))
    }

    fn single_use(&self) -> Option<&SingleUse> {
        self.single_use.as_ref()
    }
}

#[test]
fn resumed_0rtt_handshake() {
    let first = Trace::load("simple_1rtt");
    let trace = Trace::load("resumed_0rtt");
    for provider in providers() {
        let mut client = resumed_0rtt_client(&first, &trace, &provider);
        let mut server = resumed_0rtt_server(&first, &trace, &provider);
        exchange(&trace, &mut client, &mut server);
        close(&trace, client, server);
    }
}

/// The time of the second connection.
const LATER: Now = Now::from_unix_ms(NOW.unix_ms + 6);

fn resumed_0rtt_client(first: &Trace, trace: &Trace, provider: &CryptoProvider) -> TlsConnection {
    let sessions = client_sessions();
    let (mut connection, _) = client(first, provider, &sessions);
    receive(&mut connection, first.get("record ticket"));

    let random = trace.some(&["client random", "client private key"]);
    // The connection hashes it for the early secrets and for the transcript.
    let hello = [trace.get("client hello"); 2];
    let (provider, tap) = Tap::new(provider, &hello, &[], &random);
    let config = profile(provider).compatibility_mode(false).build().unwrap();
    let config = ClientConfig::new(config).with_sessions(sessions);
    let config = Arc::new(config.with_early_data(EarlyDataProtocols::unnamed()));
    let mut connection = TlsConnection::client(&config, server_address(), LATER).unwrap();
    let hello = sent(&mut connection);
    // The identity, its obfuscated age as in the trace, and the binder.
    let psk = [first.get("ticket"), &[0xfa, 0xd6, 0xaa, 0xcb], &[0, 0x21, 0x20], trace.get("secret binder")];
    assert!(hello.ends_with(&psk.concat()));
    let mut early = connection.early_data().unwrap();
    assert_eq!(early.room(), Some(1024));
    early.send(trace.get("early data")).unwrap();
    assert_eq!(sent(&mut connection), trace.get("record early data"));
    receive(&mut connection, &[&trace.record("server hello"), trace.get("record server flight")].concat());
    // EndOfEarlyData and Finished.
    assert_eq!(sent(&mut connection), trace.get("record client flight"));
    assert_eq!(connection.negotiated().unwrap().early_data, EarlyDataOutcome::Accepted);
    assert_eq!(tap.left(), 0);
    trace.assert_schedule(tap, |_| true);
    connection
}

fn resumed_0rtt_server(first: &Trace, trace: &Trace, provider: &CryptoProvider) -> TlsConnection {
    let vault = Arc::new(Vault { ticket: first.get("ticket").to_vec(), ..vault() });
    let (_, tap) = server(first, provider, &vault);
    vault.set_psk(tap, first.get("secret resumption"));
    let replay = ["server hello", "encrypted extensions"];
    let (config, tap) = server_config(first, trace, provider, NamedGroup::X25519, &replay);
    let config = with_early_data(config.with_tickets(Tickets::stateless(vault).count(0)));
    let mut connection = TlsConnection::server(&Arc::new(config), LATER);
    let flight = [&trace.record("client hello"), trace.get("record early data")].concat();
    assert_eq!(connection.receive(LATER, &flight), Ok(flight.len()));
    assert!(tap.has_sealed(trace.get("record server flight")));
    sent(&mut connection);
    let mut early = connection.early_data().unwrap();
    assert_eq!(early.received(), trace.get("early data"));
    early.consume(LATER, 6).unwrap();
    receive(&mut connection, trace.get("record client flight"));
    assert_eq!(connection.negotiated().unwrap().ticket_age_skew_ms, Some(0));
    assert_eq!(tap.left(), 0);
    trace.assert_schedule(tap, |_| true);
    connection
}

/// Keys with a register, which allow early data.
fn vault() -> Vault {
    let register = Arc::new(MemoryUseOnce::with_new_keys(1));
    Vault { single_use: Some(SingleUse::Register(register)), ..Vault::default() }
}

fn with_early_data(config: ServerConfig) -> ServerConfig {
    config.with_early_data(EarlyDataProtocols::unnamed(), 1024).unwrap()
}

#[test]
fn hello_retry_request() {
    let trace = Trace::load("hello_retry_request");
    for provider in providers() {
        let (client, tap) = client(&trace, &provider, &client_sessions());
        assert!(client.negotiated().unwrap().retried);
        trace.assert_schedule(tap, |_| true);

        let replay = ["hello retry request", "second client hello", "server hello", "encrypted extensions"];
        let (config, tap) = server_config(&trace, &trace, &provider, NamedGroup::SECP256R1, &replay);
        let mut server = TlsConnection::server(&Arc::new(config), NOW);
        receive(&mut server, &trace.record("client hello"));
        receive(&mut server, &without_cookie(&trace));
        sign(&mut server, trace.get("server signature"));
        assert!(tap.has_sealed(trace.get("record server flight")));
        receive(&mut server, trace.get("record client flight"));
        assert!(server.negotiated().unwrap().retried);
        assert_eq!(tap.left(), 0);
        trace.assert_schedule(tap, |n| n != "secret res master");
        sent(&mut server);
        close(&trace, client, server);
    }
}

/// The second ClientHello in its record, without the other server's cookie, which this server would refuse.
fn without_cookie(trace: &Trace) -> Vec<u8> {
    let hello = trace.get("second client hello");
    let at = hello.windows(6).position(|w| w == [0, 0x2c, 0, 0x74, 0, 0x72]).unwrap();
    let end = at + 4 + 0x74;
    let mut hello = [&hello[..at], &hello[end..]].concat();
    // Before the extensions: header, version, random, no session ID, three suites, one compression method.
    let extensions = 4 + 2 + 32 + 1 + 2 + 6 + 2;
    for (at, start) in [(2, 4), (extensions, extensions + 2)] {
        let len = ((hello.len() - start) as u16).to_be_bytes();
        hello[at..at + 2].copy_from_slice(&len);
    }
    [&[0x16, 3, 3], &(hello.len() as u16).to_be_bytes()[..], &hello].concat()
}

#[test]
fn client_authentication_and_compatibility_mode() {
    for name in ["client_authentication", "compatibility_mode"] {
        let trace = Trace::load(name);
        for provider in providers() {
            let (client, client_tap) = client(&trace, &provider, &client_sessions());
            let (server, server_tap) = server(&trace, &provider, &Arc::new(vault()));
            trace.assert_schedule(client_tap, |_| true);
            // A server without tickets does not compute the resumption secret.
            trace.assert_schedule(server_tap, |n| n != "secret res master");
            close(&trace, client, server);
        }
    }
}
