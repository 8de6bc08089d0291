//! Access for dunlin-fuzz to the engine's codecs and record layers, without a handshake. The fuzz targets
//! check the invariants.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::cache::{CachedPeer, CachedServer};
use crate::crypto::{AeadAlgorithm, HashOutput, Tls13CipherSuite};
use crate::error::Error;
use crate::extension::{Context, Extensions, ExtensionsWriter, registry, rules};
use crate::flight::ack;
use crate::flight::reassemble::{Origin, Reassembler, Taken, Terms};
use crate::message::{
    self, Certificate, CertificateRequest, CertificateVerify, ClientHello, CompressedCertificate, Did,
    HEADER_LEN, Message, NewSessionTicket, Reading, ServerHello, SsiRequest, encode, encrypted_extensions,
    key_update, vc,
};
use crate::protocol::{Protocol, Side, TransportKind};
use crate::record::datagram::{Datagram, Discarded};
use crate::record::stream::Stream;
use crate::resume::{ClientSession, Session, SettingsDigest};
use crate::schedule::keys::{RecordForm, TrafficKeys};
use crate::schedule::tls13::TrafficSecret;
use crate::settings::DatagramSettings;
use crate::transport::{Epoch, Incoming, Reads, Transport};
use crate::wire::{AlertDescription, AlertLevel, CertificateType, ExtensionType, HandshakeType};

/// The messages with extensions, as in the registry of extensions.
const CONTEXTS: [Context; 8] = [
    Context::ClientHello,
    Context::ServerHello,
    Context::HelloRetryRequest,
    Context::EncryptedExtensions,
    Context::CertificateRequest,
    Context::Certificate,
    Context::NewSessionTicket,
    Context::SsiRequest,
];

/// The extensions of a ClientHello whose details the engine does not keep.
const LOSSY: [ExtensionType; 2] = [ExtensionType::STATUS_REQUEST, ExtensionType::EC_POINT_FORMATS];

/// A structure that the engine reads from bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// The body of a ClientHello.
    ClientHello(TransportKind),
    /// The body of a ServerHello or HelloRetryRequest.
    ServerHello(TransportKind),
    /// The body of an EncryptedExtensions.
    EncryptedExtensions,
    /// The body of a CertificateRequest.
    CertificateRequest,
    /// The body of a Certificate with a chain.
    Certificate,
    /// The body of a Certificate with a raw public key.
    RawPublicKey,
    /// The body of a CompressedCertificate.
    CompressedCertificate,
    /// The body of a CertificateVerify or DIDVerify.
    CertificateVerify,
    /// The body of an SSIRequest.
    SsiRequest,
    /// The body of a VC.
    Vc,
    /// The body of a DID.
    Did,
    /// The body of a NewSessionTicket.
    NewSessionTicket,
    /// The body of a KeyUpdate.
    KeyUpdate,
    /// The content of an ACK record.
    Ack,
    /// A stored session.
    Session,
    /// A client's stored ticket.
    ClientSession,
    /// The sealed content of a stateless ticket.
    Ticket,
    /// An entry of the handshake cache for one peer.
    CachedPeer,
    /// A client's entry of the handshake cache for one server.
    CachedServer,
    /// Extensions with their lengths, for the message with this index, modulo the number of kinds of message.
    Extensions(u8),
}

/// The result of reading a structure and writing it again.
#[derive(Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The written bytes.
    pub bytes: Vec<u8>,
    /// Whether the written bytes must equal the original. They may differ in fields that the engine does not
    /// keep: legacy fields, and details that it does not use.
    pub is_exact: bool,
}

/// Reads `bytes` without trailing bytes, and writes the value again.
///
/// # Errors
/// `bytes` do not parse.
pub fn rewrite(codec: Codec, bytes: &[u8]) -> Result<Rewritten, Error> {
    let exact = |bytes| Rewritten { bytes, is_exact: true };
    Ok(match codec {
        Codec::ClientHello(transport) => rewrite_client_hello(transport, bytes)?,
        Codec::ServerHello(transport) => rewrite_server_hello(transport, bytes)?,
        Codec::EncryptedExtensions => {
            let extensions = encrypted_extensions::read(bytes)?;
            let extensions = rewrite_extensions(&extensions, Context::EncryptedExtensions)?;
            exact(body(encrypted_extensions::write(&extensions)?))
        }
        Codec::CertificateRequest => {
            let request = CertificateRequest::read(bytes)?;
            let extensions = rewrite_extensions(&request.extensions, Context::CertificateRequest)?;
            let bytes = body(CertificateRequest::write(&extensions)?);
            Rewritten { bytes, is_exact: request.context.is_empty() }
        }
        Codec::Certificate | Codec::RawPublicKey => {
            let typ = match codec {
                Codec::RawPublicKey => CertificateType::RAW_PUBLIC_KEY,
                _ => CertificateType::X509,
            };
            let certificate = Certificate::read(bytes, typ, &[ExtensionType::STATUS_REQUEST], true)?;
            let Certificate { context, entries, staples, is_abbreviated: _ } = &certificate;
            let written = Certificate::write(context, entries.iter().copied(), staples.clone())?;
            // The engine keeps only the first entry's OCSP response.
            Rewritten { bytes: body(written), is_exact: entries.len() < 2 }
        }
        Codec::CompressedCertificate => exact(body(CompressedCertificate::read(bytes)?.write()?)),
        Codec::CertificateVerify => {
            let verify = CertificateVerify::read(HandshakeType::CERTIFICATE_VERIFY, bytes)?;
            let scheme = verify.scheme;
            let signature = verify.signature;
            exact(body(CertificateVerify::write(HandshakeType::CERTIFICATE_VERIFY, scheme, signature)?))
        }
        Codec::SsiRequest => {
            let request = SsiRequest::read(bytes)?;
            exact(body(SsiRequest::write(&rewrite_extensions(&request.extensions, Context::SsiRequest)?)?))
        }
        Codec::Vc => exact(body(vc::write(vc::read(bytes)?)?)),
        Codec::Did => {
            let Did { method, did } = Did::read(bytes)?;
            exact(body(Did::write(method.to_byte().unwrap_or_default(), did)?))
        }
        Codec::NewSessionTicket => {
            let bytes = body(NewSessionTicket::read(bytes)?.write()?);
            Rewritten { bytes, is_exact: false }
        }
        Codec::KeyUpdate => exact(body(key_update::write(key_update::read(bytes)?)?)),
        Codec::Ack => exact(ack::write(&ack::read(bytes)?)?),
        Codec::Session => {
            Rewritten { bytes: Session::from_bytes(bytes)?.to_bytes()?.to_vec(), is_exact: false }
        }
        Codec::ClientSession => {
            Rewritten { bytes: ClientSession::from_bytes(bytes)?.to_bytes()?.to_vec(), is_exact: false }
        }
        Codec::Ticket => {
            let session = Session::from_ticket(bytes, SettingsDigest::new(&[0; 32]))?;
            // The engine makes no ticket with too many names.
            let ticket = session.to_ticket()?.map_or_else(|| bytes.to_vec(), |ticket| ticket.to_vec());
            Rewritten { bytes: ticket, is_exact: false }
        }
        Codec::CachedPeer => {
            Rewritten { bytes: CachedPeer::from_bytes(bytes, &[0; 32])?.to_bytes()?, is_exact: false }
        }
        Codec::CachedServer => {
            let server = CachedServer::from_bytes(bytes, &[0; 32])?;
            Rewritten { bytes: server.to_bytes(&[0; 32])?, is_exact: false }
        }
        Codec::Extensions(place) => {
            let context = CONTEXTS.iter().cycle().nth(place.into()).copied().unwrap_or(Context::ClientHello);
            let extensions = Extensions::parse(bytes, &rules(context))?;
            let mut w = crate::wire::Writer::new();
            rewrite_extensions(&extensions, context)?.write(&mut w);
            let bytes = w.finish()?.split_off(2);
            let is_lossy = context == Context::ClientHello && extensions.types().any(|t| LOSSY.contains(&t));
            Rewritten { bytes, is_exact: !is_lossy }
        }
    })
}

/// The body of a message.
fn body(message: Vec<u8>) -> Vec<u8> {
    message.get(HEADER_LEN..).unwrap_or_default().to_vec()
}

fn rewrite_client_hello(transport: TransportKind, bytes: &[u8]) -> Result<Rewritten, Error> {
    let protocol = Protocol::newest(transport);
    let message = encode(HandshakeType::CLIENT_HELLO, |w| w.put(bytes))?;
    let hello = ClientHello::read(Message::new(HandshakeType::CLIENT_HELLO, message), protocol)?;
    let extensions = rewrite_extensions(&hello.extensions(), Context::ClientHello)?;
    let suites = &hello.cipher_suites;
    let written = ClientHello::write(
        protocol,
        &hello.random,
        hello.session_id(),
        hello.legacy_cookie(),
        suites,
        &extensions,
    )?;
    let is_exact = hello.legacy_version == protocol.legacy_version()
        && hello.compression_methods() == [0]
        && !hello.extensions().types().any(|typ| LOSSY.contains(&typ))
        // RFC 5246 §7.4.1.2: before TLS 1.3, a ClientHello could omit the extensions.
        && hello.extensions().types().next().is_some();
    Ok(Rewritten { bytes: body(written), is_exact })
}

fn rewrite_server_hello(transport: TransportKind, bytes: &[u8]) -> Result<Rewritten, Error> {
    let protocol = Protocol::newest(transport);
    let hello = ServerHello::read(bytes)?;
    let context = if hello.is_retry() { Context::HelloRetryRequest } else { Context::ServerHello };
    let extensions = rewrite_extensions(&hello.extensions, context)?;
    let ServerHello { random, session_id, cipher_suite, .. } = &hello;
    let written = ServerHello::write(protocol, random, session_id, *cipher_suite, &extensions)?;
    let is_exact =
        hello.legacy_version == protocol.legacy_version() && hello.extensions.types().next().is_some();
    Ok(Rewritten { bytes: body(written), is_exact })
}

fn rewrite_extensions(extensions: &Extensions<'_>, context: Context) -> Result<ExtensionsWriter, Error> {
    let mut writer = ExtensionsWriter::default();
    for (typ, body) in extensions.iter() {
        writer.put_raw(typ, &registry::rewrite(typ, context, body)?);
    }
    Ok(writer)
}

/// The type and the whole length, header included, that the first bytes of a message announce. `None` if the
/// header is incomplete.
///
/// # Errors
/// The length exceeds the limit for this type of message.
pub fn announced(bytes: &[u8]) -> Result<Option<(u8, usize)>, Error> {
    Ok(message::announced(bytes)?.map(|(typ, len)| (typ.0, len)))
}

/// A record layer without a handshake.
#[allow(clippy::large_enum_variant, reason = "there is one of a kind")]
pub enum RecordLayer {
    /// TLS
    Stream(Stream),
    /// DTLS
    Datagram(Datagram),
}

/// An item that a record layer delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// A whole message, header included.
    Message(Vec<u8>),
    /// An alert.
    Alert(u8),
    /// An ACK under application keys.
    Acknowledgement,
    /// The peer's address has changed.
    PeerMoved,
}

/// Joins fragments of messages, without a record layer.
#[derive(Default)]
pub struct Fragments(Reassembler);

impl Fragments {
    /// With `forgets`, the first message may have any number from 0 to 4.
    pub fn new(forgets: bool) -> Self {
        let mut fragments = Self::default();
        if forgets {
            fragments.0.forget();
        }
        fragments
    }

    /// Takes the content of a record, which anyone can have sent if it `is_forgeable`. Returns whether there
    /// was room for all of it.
    ///
    /// # Errors
    /// The content does not parse, or contradicts earlier fragments that only the peer can have sent.
    pub fn insert(&mut self, content: &[u8], is_forgeable: bool) -> Result<bool, Error> {
        let origin = if is_forgeable { Origin::Anyone } else { Origin::Peer };
        let terms = Terms { origin, is_present: true, established: None };
        Ok(self.0.insert(content, terms)? == Taken::All)
    }

    /// The next message for which `is_readable` is true, with its number. Both get the header, too.
    pub fn next(&mut self, is_readable: impl Fn(u16, &[u8]) -> bool) -> Option<(u16, Vec<u8>)> {
        let message = self.0.next_message(|message| is_readable(message.number, message.bytes()))?;
        Some((message.number, message.bytes().to_vec()))
    }
}

/// A state that reads every message.
struct Anything;

impl Reads for Anything {
    fn message(&mut self, _: Protocol, _: &Message) -> bool {
        true
    }

    fn reading(&self, _: Protocol, typ: HandshakeType) -> Reading {
        Reading::Body(message::limit(typ))
    }
}

/// The peer's address, which record layers ignore.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl RecordLayer {
    /// A new record layer. `mtu` is the size of the largest datagram, in bytes.
    pub fn new(kind: TransportKind, mtu: usize) -> Self {
        match kind {
            TransportKind::Stream => Self::Stream(Stream::client()),
            TransportKind::Datagram => {
                let settings = DatagramSettings { mtu, ..DatagramSettings::default() };
                Self::Datagram(Datagram::new(Side::Client, &settings, ANYWHERE.into()))
            }
        }
    }

    /// A client's record layer for DTLS, of version 1.2 or 1.3. It receives the connection ID `own` and sends
    /// `peers`; either may be empty.
    pub fn datagram(mtu: usize, is_dtls12: bool, own: Vec<u8>, peers: Vec<u8>) -> Self {
        let mut layer = Self::new(TransportKind::Datagram, mtu);
        if is_dtls12 {
            // Datagrams take every protocol.
            let _ = layer.transport().agree(Protocol::Dtls12);
        }
        layer.transport().use_connection_ids(None, own, peers);
        layer
    }

    /// The number of discarded records and datagrams, over datagrams.
    pub fn discarded(&self) -> Discarded {
        match self {
            Self::Stream(_) => Discarded::default(),
            Self::Datagram(datagram) => datagram.discarded(),
        }
    }

    fn transport(&mut self) -> &mut dyn Transport {
        match self {
            Self::Stream(stream) => stream,
            Self::Datagram(datagram) => datagram,
        }
    }

    /// Queues a whole message, header included.
    ///
    /// # Errors
    /// The record layer returns an error.
    pub fn message(&mut self, message: Vec<u8>) -> Result<(), Error> {
        self.transport().message(message)
    }

    /// Sends the queued messages.
    ///
    /// # Errors
    /// The record layer returns an error.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.transport().end_of_flight()
    }

    /// Sends an alert.
    ///
    /// # Errors
    /// The record layer returns an error.
    pub fn alert(&mut self, description: u8) -> Result<(), Error> {
        self.transport().alert(AlertLevel::FATAL, AlertDescription(description))
    }

    /// Sends data; returns the number of bytes that the layer accepted.
    ///
    /// # Errors
    /// The record layer returns an error.
    pub fn data(&mut self, data: &[u8]) -> Result<usize, Error> {
        match self {
            Self::Stream(stream) => stream.sender().application_data(data),
            Self::Datagram(datagram) => {
                datagram.sender().check_data(data.len())?;
                datagram.sender().application_data(data).map(|()| data.len())
            }
        }
    }

    /// Sets keys derived from an all-zero secret, in DTLS 1.2 zeros, for the handshake or the application,
    /// and for sending or receiving.
    ///
    /// # Errors
    /// The record layer returns an error.
    pub fn keys(
        &mut self,
        suite: &'static Tls13CipherSuite,
        application: bool,
        sending: bool,
    ) -> Result<(), Error> {
        let protocol = self.transport().protocol();
        let keys = if protocol.changes_cipher_spec() {
            let explicit_nonce = suite.aead.algorithm() != AeadAlgorithm::ChaCha20Poly1305;
            TrafficKeys::zeros(suite.aead, RecordForm::Tls12 { explicit_nonce, proves_psk: false })
        } else {
            let secret = HashOutput::new(&[0; 48]);
            TrafficSecret::logged(suite, protocol, secret).keys(protocol)
        };
        let epoch = if application { Epoch::Application } else { Epoch::Handshake };
        if sending {
            self.transport().write_keys(epoch, &keys)
        } else {
            self.transport().read_keys(epoch, &keys)
        }
    }

    /// Whether the caller may set other sending keys now.
    pub fn may_change_keys(&mut self) -> bool {
        !self.transport().key_update_waits()
    }

    /// Limits the content of sent or received records, in bytes.
    pub fn limit(&mut self, content: usize, sending: bool) {
        if sending {
            self.transport().limit_sent_records(content);
        } else {
            self.transport().limit_received_records(content);
        }
    }

    /// Skips early data that does not decrypt.
    pub fn skip_early_data(&mut self) {
        self.transport().skip_early_data();
    }

    /// Marks the handshake as complete.
    pub fn complete(&mut self) {
        self.transport().handshake_complete();
    }

    /// Takes received bytes or a datagram; returns the number of bytes that the layer accepted.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Stream(stream) => {
                let part = bytes.get(..stream.receiver().room()).unwrap_or(bytes);
                stream.receiver().push(part);
                part.len()
            }
            Self::Datagram(datagram) => {
                datagram.receiver().push(ANYWHERE.into(), bytes);
                bytes.len()
            }
        }
    }

    /// The next message or alert; `None` if the layer needs more input.
    ///
    /// # Errors
    /// The record layer returns an error.
    #[allow(clippy::should_implement_trait, reason = "it is the name that the transport has for it")]
    pub fn next(&mut self) -> Result<Option<Carried>, Error> {
        Ok(self.transport().next(&mut Anything)?.map(|incoming| match incoming {
            Incoming::Message(message) => Carried::Message(message.bytes().to_vec()),
            Incoming::Alert(_, description) => Carried::Alert(description.0),
            Incoming::Acknowledgement => Carried::Acknowledgement,
            Incoming::PeerMoved(_) => Carried::PeerMoved,
        }))
    }

    /// The data of the open record (TLS), or of the next one (DTLS).
    pub fn read(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Stream(stream) => {
                let data = stream.received().to_vec();
                stream.receiver().consume(data.len());
                (!data.is_empty()).then_some(data)
            }
            Self::Datagram(datagram) => datagram.receiver().read(),
        }
    }

    /// The next bytes (TLS) or the next datagram (DTLS) to transmit.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Stream(stream) => {
                let bytes = stream.transmit().to_vec();
                stream.sender().transmitted(bytes.len());
                (!bytes.is_empty()).then_some(bytes)
            }
            Self::Datagram(datagram) => datagram.sender().transmit().map(|output| output.datagram),
        }
    }
}
