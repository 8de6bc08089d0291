//! Talks to the paper's public implementation (docs/identity.md, "Messages of their own"), as a client or a
//! server of [`SsiMessages::Links`]. It also makes identities of the kind that this implementation knows.
//!
//! ```text
//! links did --key FILE --node HOST:PORT --from TIME
//!     puts a did:ott with this key on the ledger, and prints it
//! links vc --key FILE --issuer DID --subject DID --from TIME --until TIME
//!     prints a credential that the key has signed
//! links client HOST:PORT [options]
//!     connects, sends a line, and waits for one
//! links server HOST:PORT [options]
//!     serves one client after the other in the same way
//!
//! --cert FILE --cert-key FILE       shows this chain of X.509 certificates
//! --did DID --key FILE [--vc FILE]  shows this DID, or the credential about it; comes before the certificate
//! --CAfile FILE                     accepts certificates under these roots
//! --peer DID                        accepts this DID (several times: these)
//! --issuer METHOD=FILE              accepts credentials by the key of this verification method (several
//!                                   times: these)
//! --node HOST:PORT                  resolves did:ott by this node of the ledger, over HTTP
//! --name NAME                       the name in the server's certificate, localhost unless given
//! --group NUMBER                    only this group (RFC 8446 §4.2.7)
//! --once                            the server ends after one client
//! --optional                        the server also accepts clients that show nothing
//! ```
//!
//! Keys are PEM files, private ones in PKCS #8. Times look like `2026-01-01T00:00:00Z`.

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin::auth::{
    Acceptance, Identifier, PrivateKey, Trust, VerifiableCredential, Verified, Verifiers, X509Trust,
};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::wire::{CertificateType, DidMethod, NamedGroup};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, Event, Now, Profile, Question, ServerAddress, ServerConfig,
    SsiMessages, TlsConnection,
};
use dunlin_identity::encoding::json::{self, Value};
use dunlin_identity::handshake::{DocumentCache, IdentifierVerifier, Refusal, ResolveError};
use dunlin_identity::key::PublicKey;
use dunlin_identity::{Did, TrustList};
use dunlin_identity_interop::ott::{self, OttDid, OttMessage};
use dunlin_identity_interop::{LinksCredential, LinksIssuer, LinksRefusal, LinksVerifier};
use pki_types::pem::PemObject;
use pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};

/// The longest answer of the ledger's node, in bytes.
const MAX_ANSWER: u64 = 32 * 1024;

/// How long the peer and the node may be silent.
const SILENCE: Duration = Duration::from_secs(10);

/// How long a document of a DID counts, in seconds. A `did:ott` never changes.
const DOCUMENT_AGE: i64 = 300;

/// The data that each side sends.
const GREETING: &[u8] = b"hello from Dunlin\n";

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("links: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let program = Program {
        provider: Arc::new(dunlin_rustcrypto::provider(Arc::new(dunlin_rustcrypto::OsRandom))),
        options: Options::read(words)?,
    };
    match command.as_str() {
        "did" => program.create_did(),
        "vc" => program.issue(),
        "client" => program.connect(),
        "server" => program.serve(),
        _ => Err("give a command: did, vc, client or server".into()),
    }
}

/// The address and the options of a command.
struct Options {
    address: Option<String>,
    named: Vec<(String, String)>,
}

impl Options {
    const NAMES: [&str; 16] = [
        "--cert",
        "--cert-key",
        "--did",
        "--key",
        "--vc",
        "--CAfile",
        "--peer",
        "--issuer",
        "--node",
        "--name",
        "--group",
        "--optional",
        "--subject",
        "--from",
        "--until",
        "--once",
    ];

    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut options = Self { address: None, named: Vec::new() };
        while let Some(word) = words.next() {
            if !word.starts_with("--") && options.address.is_none() {
                options.address = Some(word);
                continue;
            }
            if !Self::NAMES.contains(&word.as_str()) {
                return Err(format!("unknown option {word}").into());
            }
            let value = match word.as_str() {
                "--optional" | "--once" => String::new(),
                _ => words.next().ok_or_else(|| format!("{word} needs a value"))?,
            };
            options.named.push((word, value));
        }
        Ok(options)
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.named.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    fn need(&self, name: &str) -> Result<&str, Failure> {
        self.get(name).ok_or_else(|| format!("give {name}").into())
    }

    fn address(&self) -> Result<&str, Failure> {
        self.address.as_deref().ok_or_else(|| "give an address, such as localhost:4433".into())
    }
}

struct Program {
    provider: Arc<CryptoProvider>,
    options: Options,
}

/// The content of a file.
fn file(path: &str) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| format!("{path}: {error}").into())
}

fn now() -> Result<Now, Failure> {
    Ok(Now::from_unix_ms(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?))
}

fn now_s() -> Result<i64, Failure> {
    Ok(i64::try_from(now()?.unix_ms / 1000)?)
}

// Identities.

impl Program {
    fn key(&self, option: &str) -> Result<Arc<dyn SigningKey>, Failure> {
        let path = self.options.need(option)?;
        let key = PrivateKeyDer::from_pem_slice(&file(path)?).map_err(|error| format!("{path}: {error}"))?;
        self.provider.key_loader.load(&key).map_err(|error| format!("{path}: {error}").into())
    }

    /// A new Ed25519 key (RFC 8410 §7).
    fn new_key(&self) -> Result<Arc<dyn SigningKey>, Failure> {
        let mut seed = [0; 32];
        self.provider.random.fill(&mut seed)?;
        let der =
            [b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20", seed.as_slice()].concat();
        Ok(self.provider.key_loader.load(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der)))?)
    }

    /// Puts the document of a new DID on the ledger, and discards the keys that could change it.
    fn create_did(&self) -> Result<(), Failure> {
        let key = PublicKey::from_spki(self.key("--key")?.public_key())?;
        let signer = self.new_key()?;
        let revocation = self.new_key()?;
        let revocation = PublicKey::from_spki(revocation.public_key())?;
        let address = OttMessage::address_of(&PublicKey::from_spki(signer.public_key())?, &revocation)?;
        let document = ott::document(&address, self.options.need("--from")?, &key, &key)?;
        let message = OttMessage::sign(&self.provider, &*signer, &revocation, document.as_bytes())?;
        let hex = |bytes: &[u8]| base16ct::lower::encode_string(bytes);
        let payload = serde_json::json!({
            "payload": { "type": 2, "index": hex(&address), "data": hex(hex(&message.to_bytes()?).as_bytes()) },
        });
        let answer = self.ask_node("POST /api/v1/messages", payload.to_string().as_bytes())?;
        let id = answer.pointer("/data/messageId").and_then(Value::as_str).unwrap_or_default();
        let did: Did = format!("{}:{id}", OttDid { address, message: [0; 32] }.base()).parse()?;
        OttDid::read(&did).map_err(|_| "the node's answer has no message ID")?;
        println!("{did}");
        Ok(())
    }

    fn issue(&self) -> Result<(), Failure> {
        let text = |name| self.options.need(name).map(str::to_owned);
        let issuer = text("--issuer")?;
        let from = text("--from")?;
        let method = match OttDid::read(&issuer.parse()?) {
            Ok(ott) => format!("{}#keys-1", ott.base()),
            Err(error) => return Err(error.into()),
        };
        let credential = LinksCredential {
            id: "http://localhost/credentials/1".to_owned(),
            issuer,
            issuance_date: from.clone(),
            expiration_date: text("--until")?,
            subject: text("--subject")?,
        };
        println!("{}", credential.issue(&self.provider, &*self.key("--key")?, &method, &from)?);
        Ok(())
    }

    /// The credentials of this side, in order of preference.
    fn shown(&self) -> Result<Vec<Credential>, Failure> {
        let mut shown = Vec::new();
        if let Some(did) = self.options.get("--did") {
            let key = PrivateKey::Here(self.key("--key")?);
            shown.push(match self.options.get("--vc") {
                Some(path) => {
                    let text = file(path)?;
                    let credential = VerifiableCredential::new(text.trim_ascii().to_vec(), DidMethod::OTT);
                    Credential::Verifiable { credential, key }
                }
                None => Credential::Identifier { identifier: Identifier::new(did, DidMethod::OTT), key },
            });
        }
        if let Some(path) = self.options.get("--cert") {
            let chain = CertificateDer::pem_slice_iter(&file(path)?).collect::<Result<_, _>>();
            shown.push(Credential::x509(
                chain.map_err(|error| format!("{path}: {error}"))?,
                self.key("--cert-key")?,
            ));
        }
        Ok(shown)
    }
}

// The ledger.

impl Program {
    /// Asks the ledger's node over plain HTTP. The answer proves itself.
    fn ask_node(&self, request: &str, body: &[u8]) -> Result<Value, Failure> {
        let node = self.options.need("--node")?;
        let failed = |error: &dyn Error| format!("{node}: {request}: {error}");
        let exchange = || -> Result<Vec<u8>, std::io::Error> {
            let mut tcp = TcpStream::connect(node)?;
            tcp.set_read_timeout(Some(SILENCE))?;
            let header =
                format!("{request} HTTP/1.0\r\nHost: {node}\r\nContent-Length: {}\r\n\r\n", body.len());
            tcp.write_all(&[header.as_bytes(), body].concat())?;
            let mut answer = Vec::new();
            tcp.take(MAX_ANSWER).read_to_end(&mut answer)?;
            Ok(answer)
        };
        let answer = exchange().map_err(|error| failed(&error))?;
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
        let (header, content) = answer.split_at_checked(end.map_or(0, |end| end + 4)).unwrap_or_default();
        let status = str::from_utf8(header).ok().and_then(|header| header.split(' ').nth(1));
        match status {
            Some("200" | "201") => json::read(content).map_err(|error| failed(&error).into()),
            status => Err(format!("{node}: {request}: status {}", status.unwrap_or("missing")).into()),
        }
    }

    /// Looks the document of a peer's DID up.
    fn look_up(&self, did: &Did, known: &DocumentCache) -> Result<(), Failure> {
        let ott = OttDid::read(did)?;
        let id = base16ct::lower::encode_string(&ott.message);
        let answer = self.ask_node(&format!("GET /api/v1/messages/{id}"), &[])?;
        let data = answer.pointer("/data/payload/data").and_then(Value::as_str);
        let message = OttMessage::read_data(
            &self.provider,
            data.ok_or("the node's answer has no data")?,
            &ott.address,
        )?;
        Ok(known.insert(ott::read_document(message.document(), &ott)?, 0, now_s()?)?)
    }
}

// Trust.

/// Which decentralised identities of peers this side accepts.
struct Accepted {
    known: Arc<DocumentCache>,
    identifiers: Arc<IdentifierVerifier>,
    credentials: Arc<LinksVerifier>,
}

impl Program {
    fn accepted(&self) -> Result<Accepted, Failure> {
        // Without a node, this side resolves no `did:ott`, and says so to its peer.
        let methods = self.options.get("--node").map_or_else(Vec::new, |_| vec![DidMethod::OTT]);
        let known = Arc::new(DocumentCache::new(Arc::clone(&self.provider), methods, DOCUMENT_AGE));
        let peers = self.options.all("--peer").map(str::parse).collect::<Result<Vec<Did>, _>>()?;
        let issuers = self.options.all("--issuer").map(|issuer| {
            let (method, path) = issuer.split_once('=').ok_or("write --issuer METHOD=FILE")?;
            let key = SubjectPublicKeyInfoDer::from_pem_slice(&file(path)?);
            let key = PublicKey::from_spki(&key.map_err(|error| format!("{path}: {error}"))?)?;
            Ok::<_, Failure>(LinksIssuer { method: method.to_owned(), key })
        });
        let issuers = issuers.collect::<Result<_, _>>()?;
        let identifiers = IdentifierVerifier::new(Arc::clone(&self.provider), TrustList::new(peers));
        let credentials = LinksVerifier::new(Arc::clone(&self.provider), issuers);
        Ok(Accepted {
            identifiers: Arc::new(identifiers.with_resolver(known.clone()).asking()),
            credentials: Arc::new(credentials.with_resolver(known.clone()).asking()),
            known,
        })
    }

    fn profile(&self, accepted: &Accepted) -> Result<Profile, Failure> {
        let x509 = match self.options.get("--CAfile") {
            Some(path) => {
                let roots = CertificateDer::pem_slice_iter(&file(path)?).collect::<Result<Vec<_>, _>>();
                Some(X509Trust::anchors(roots.map_err(|error| format!("{path}: {error}"))?)?)
            }
            None => None,
        };
        let mut trust = Verifiers::from(Trust { x509, raw_key: None });
        if self.options.get("--peer").is_some() {
            trust = trust.with(accepted.identifiers.clone());
        }
        if self.options.get("--issuer").is_some() {
            trust = trust.with(accepted.credentials.clone());
        }
        let mut profile = Profile::builder(Arc::clone(&self.provider))
            .trust(trust)
            .credentials(self.shown()?)
            .ssi_messages(SsiMessages::Links);
        if let Some(number) = self.options.get("--group") {
            let group = self.provider.group(NamedGroup(number.parse()?));
            profile = profile.groups(vec![group.ok_or_else(|| format!("there is no group {number} here"))?]);
        }
        Ok(profile.build()?)
    }

    /// The answer to the engine's question about a peer whose document is not at hand.
    fn judge(&self, accepted: &Accepted, question: Question) -> Result<Answer, Failure> {
        let Question::Verify { certificates, certificate_type, algorithms, .. } = question else {
            return Ok(Answer::Failed);
        };
        let now = now_s()?;
        let judge = || -> Result<Box<Verified>, LinksRefusal> {
            match certificate_type {
                CertificateType::DECENTRALISED_IDENTIFIER => {
                    Ok(accepted.identifiers.judge(&certificates, None, now)?)
                }
                _ => accepted.credentials.judge(&certificates, &algorithms, now),
            }
        };
        let mut judged = judge();
        if let Some(did) = judged.as_ref().err().and_then(LinksRefusal::wanted).cloned() {
            judged = match self.look_up(&did, &accepted.known) {
                Ok(()) => judge(),
                Err(error) => Err(Refusal::from(ResolveError::LookUp(did, error.to_string())).into()),
            };
        }
        let judged = judged.map(|peer| Acceptance::within(peer.validity).with_peer(peer));
        Ok(Answer::Verified(judged.map_err(Into::into)))
    }
}

// Connections.

/// A connection and its socket.
struct BlockingTls<'p> {
    program: &'p Program,
    accepted: &'p Accepted,
    connection: TlsConnection,
    tcp: TcpStream,
    /// The peer's bytes that the connection has not taken yet.
    waiting: Vec<u8>,
}

impl BlockingTls<'_> {
    /// Sends the connection's pending output.
    fn send_output(&mut self) -> Result<(), Failure> {
        while !self.connection.transmit().is_empty() {
            let sent = self.tcp.write(self.connection.transmit())?;
            self.connection.transmitted(sent);
        }
        Ok(())
    }

    /// Answers the connection's questions. After an error, the output has the alert for the peer.
    fn progress(&mut self) -> Result<(), Failure> {
        while let Some(event) = self.connection.poll_event() {
            if let Event::Question(id, question) = event {
                let answer = self.program.judge(self.accepted, question)?;
                let answered = self.connection.answer(now()?, id, answer);
                self.send_output()?;
                answered?;
            }
        }
        self.send_output()
    }

    /// Passes the peer's bytes to the connection, and waits for some if there are none.
    fn receive(&mut self) -> Result<(), Failure> {
        if self.waiting.is_empty() {
            let mut buffer = [0; 4096];
            let length = self.tcp.read(&mut buffer)?;
            self.waiting.extend_from_slice(buffer.get(..length).unwrap_or_default());
        }
        let taken = if self.waiting.is_empty() {
            self.connection.receive_end().map(|()| 0)
        } else {
            self.connection.receive(now()?, &self.waiting)
        };
        self.progress()?;
        self.waiting.drain(..taken?);
        Ok(())
    }

    /// Runs the handshake, reports the mode, sends the greeting, and waits for data.
    fn talk(mut self, role: &str) -> Result<(), Failure> {
        self.tcp.set_read_timeout(Some(SILENCE))?;
        self.progress()?;
        while self.connection.is_handshaking() {
            self.receive()?;
        }
        self.report(role);
        self.connection.send(GREETING)?;
        self.send_output()?;
        // A server of TLS 1.3 has accepted its client only when it sends data, so this side waits for some.
        while self.connection.received().is_empty() && !self.connection.peer_has_closed() {
            self.receive()?;
        }
        println!("{role}: received {} bytes", self.connection.received().len());
        self.connection.close();
        self.send_output()
    }

    /// One line for each connection: the mode, the peer, and the handshake's messages. `>` marks the messages
    /// of this side.
    fn report(&self, role: &str) {
        let Some(negotiated) = self.connection.negotiated() else { return };
        let peer = negotiated.peer.as_ref().map_or_else(|| "nobody".to_owned(), ToString::to_string);
        let scheme = negotiated.peer_signature.map_or_else(String::new, |scheme| format!(", {scheme}"));
        let message = |message: &dunlin::MessageSize| {
            let mark = if message.sent { ">" } else { "" };
            let retry = if message.is_retry { "(retry)" } else { "" };
            format!(" {mark}{}{retry}", message.typ)
        };
        let messages: String = self.connection.messages().iter().map(message).collect();
        println!("{role}: links mode, peer {peer}{scheme}:{messages}");
    }
}

impl Program {
    fn connect(&self) -> Result<(), Failure> {
        let accepted = self.accepted()?;
        let config = Arc::new(ClientConfig::new(self.profile(&accepted)?));
        let tcp = TcpStream::connect(self.options.address()?)?;
        let name = self.options.get("--name").unwrap_or("localhost");
        let server = ServerAddress::parse(name, tcp.peer_addr()?.port())?;
        let connection = TlsConnection::client(&config, server, now()?)?;
        BlockingTls { program: self, accepted: &accepted, connection, tcp, waiting: Vec::new() }
            .talk("client")
    }

    fn serve(&self) -> Result<(), Failure> {
        let accepted = self.accepted()?;
        let asks = ["--CAfile", "--peer", "--issuer"].iter().any(|name| self.options.get(name).is_some());
        let auth = match (asks, self.options.get("--optional")) {
            (false, _) => ClientAuth::None,
            (true, Some(_)) => ClientAuth::Optional,
            (true, None) => ClientAuth::Required,
        };
        let config = Arc::new(ServerConfig::new(self.profile(&accepted)?)?.with_client_auth(auth)?);
        let listener = TcpListener::bind(self.options.address()?)?;
        loop {
            let (tcp, client) = listener.accept()?;
            let connection = TlsConnection::server(&config, now()?);
            let served =
                BlockingTls { program: self, accepted: &accepted, connection, tcp, waiting: Vec::new() }
                    .talk("server");
            // One client's failure does not concern the next.
            if let Err(error) = served {
                eprintln!("links: {client}: {error}");
            }
            if self.options.get("--once").is_some() {
                return Ok(());
            }
        }
    }
}
