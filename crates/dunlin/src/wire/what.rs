//! The subjects of errors as codes. Their texts are in `error/table.rs`; a build can omit them.

use super::{ContentType, ExtensionType, HandshakeType};

/// The field, message or rule that an error is about. Each variant has a text and a number
/// ([`crate::error::Code`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// A handshake message.
    Message(HandshakeType),
    /// An extension.
    Extension(ExtensionType),
    /// A record of this type.
    Record(ContentType),
    // Structures that do not parse, and fields with values that are not allowed.
    /// `session`
    Session,
    /// `ticket`
    Ticket,
    /// `entry of the handshake cache`
    CacheEntry,
    /// `frozen association`
    FrozenAssociation,
    /// `DTLSHandshake`
    DtlsHandshake,
    /// `ACK`
    Ack,
    /// `Alert`
    Alert,
    /// `alert level`
    AlertLevel,
    /// `ChangeCipherSpec`
    ChangeCipherSpec,
    /// `record_numbers`
    RecordNumbers,
    /// `extensions`
    ExtensionList,
    /// `ALPN`
    Alpn,
    /// `certificate_list`
    CertificateList,
    /// `verifiable credential`
    VerifiableCredential,
    /// `decentralised identifier`
    Identifier,
    /// `method of decentralised identifiers`
    DidMethod,
    /// `certificate_list: more than one raw public key`
    CertificateListRawKey,
    /// `certificate_request_context`
    CertificateRequestContext,
    /// `legacy_session_id`
    LegacySessionId,
    /// `legacy_session_id_echo`
    LegacySessionIdEcho,
    /// `legacy_version`
    LegacyVersion,
    /// `legacy_cookie`
    LegacyCookie,
    /// `legacy_compression_method`
    LegacyCompressionMethod,
    /// `legacy_compression_methods`
    LegacyCompressionMethods,
    /// `compression_methods`
    CompressionMethods,
    /// `cipher_suites`
    CipherSuites,
    /// `curve_type`
    CurveType,
    /// `request_update`
    RequestUpdate,
    /// `ticket_lifetime`
    TicketLifetime,
    /// `cached_info: a type appears twice`
    CachedInfoTwice,
    /// `certificate type: it must be X.509`
    CertificateTypeX509,
    /// `handshake_cache: a ticket appears twice`
    CacheTicketTwice,
    /// `handshake_cache: a ticket that was not offered`
    CacheTicketNotOffered,
    /// `handshake_cache: a ticket without CertificateRequest`
    CacheTicketWithoutRequest,
    /// `handshake cache: used in a handshake that does not allow it`
    CacheUnused,
    /// `handshake cache: an answer without an offer`
    CacheNotOffered,
    /// `key_share: a group appears twice`
    GroupTwice,
    /// `key_share after the retry`
    KeyShareAfterRetry,
    /// `pre_shared_key: it needs one binder for each identity`
    BinderCount,
    /// `pre_shared_key: its hash is not the cipher suite's`
    OtherHash,
    /// `ServerHello: a PSK without the required key_share`
    PskWithoutKeyShare,
    /// `record_size_limit: not allowed beside max_fragment_length`
    RecordSizeLimitToo,
    /// `cipher_suite: it changed after the retry`
    SuiteAfterRetry,
    /// `ClientHello: it changed after the retry`
    ClientHelloAfterRetry,
    /// `early_data after a retry`
    EarlyDataAfterRetry,
    /// `session_id: it names no session of this suite`
    SessionIdOfNoSession,
    /// `signature scheme: it does not fit the key`
    SchemeOfOtherKey,
    /// `certificate: its key cannot encrypt the premaster secret`
    KeyCannotEncrypt,
    /// `identity: it changed in a renegotiation`
    OtherIdentity,
    /// `server_name: it changed in a renegotiation`
    OtherServerName,

    // Parameters that the peer chose without an offer, or that differ from the session of early data.
    /// `version`
    Version,
    /// `cipher suite`
    CipherSuite,
    /// `group`
    Group,
    /// `signature scheme`
    SignatureScheme,
    /// `application protocol`
    ApplicationProtocol,
    /// `PSK`
    Psk,
    /// `PSK key exchange mode`
    PskMode,
    /// `server certificate type`
    ServerCertificateType,
    /// `client certificate type`
    ClientCertificateType,
    /// `certificate compression algorithm`
    CompressionAlgorithm,
    /// `SHA-256`
    Sha256,

    // Messages and records that this side expects, or that are not allowed at this point.
    /// `application data`
    ApplicationData,
    /// `Certificate or CertificateRequest`
    CertificateOrRequest,
    /// `not a TLS record`
    NotTls,
    /// `a record of zeros`
    Zeros,
    /// `a protected ChangeCipherSpec`
    ProtectedChangeCipherSpec,
    /// `an early ChangeCipherSpec`
    EarlyChangeCipherSpec,
    /// `a record in the middle of a message`
    InsideMessage,
    /// `a message before ChangeCipherSpec`
    BeforeChangeCipherSpec,

    // Messages and records that the peer sends too often.
    /// `warnings`
    Warnings,
    /// `KeyUpdates`
    KeyUpdates,
    /// `tickets`
    Tickets,
    /// `HelloRequests`
    HelloRequests,
    /// `HelloVerifyRequests`
    HelloVerifyRequests,
    /// `renegotiations`
    Renegotiations,
    /// `empty records`
    EmptyRecords,
    /// `ChangeCipherSpec records`
    ChangeCipherSpecs,
    /// `records that do not decrypt`
    UndecryptableRecords,

    // Reasons why no credential suits the peer.
    /// `none has a certificate type that the server accepts`
    NoneOfType,
    /// `none has a key that can decrypt`
    NoneDecrypts,
    /// `the peer did not name an authority of its chain`
    NoneOfAuthority,
    /// `none is configured`
    NoneAtAll,
    /// `none is configured, and the client offered no PSK`
    NoneAndNoPsk,
    /// `the keyUsage of its certificate forbids it`
    NoneOfUsage,
    /// `the peer does not resolve its decentralised identifier`
    NoneOfDidMethod,
    /// `its chain has a SHA-1 signature, which the peer does not accept`
    NoneWithoutSha1,

    // Calls that a connection does not support.
    /// `an exporter without extended master secret`
    ExporterWithoutEms,
    /// `KeyUpdate in TLS 1.2`
    KeyUpdateInTls12,
    /// `renegotiation`
    Renegotiation,
    /// `DTLS 1.2`
    Dtls12,

    // Bugs of the engine.
    /// `no state`
    NoState,
    /// `keys that cannot be updated`
    NoUpdate,
    /// `an impossible renegotiation`
    NoRenegotiation,
    /// `a renegotiation in the first handshake`
    FirstHandshake,
    /// `a refusal without a request`
    RefusalNotAsked,
    /// `a message while an answer is awaited`
    MessageForAnswer,
    /// `a message without header`
    NoHeader,
    /// `no room in a datagram`
    NoRoom,
    /// `a third KeyUpdate`
    ThirdKeyUpdate,
    /// `a record beyond its limit`
    AboveRecordLimit,
    /// `TLS 1.2 is not configured`
    NoTls12,
    /// `TLS 1.2 after a retry`
    Tls12AfterRetry,
    /// `no session`
    NoSession,
    /// `early data without a session`
    NoEarlySession,
    /// `PSK index`
    PskIndex,
    /// `binder`
    Binder,
    /// `binders`
    Binders,
    /// `credential`
    CredentialIndex,
    /// `a key that does not decrypt`
    NoDecryption,
    /// `a premaster secret without content`
    NoPremaster,
    /// `a client without trust took no PSK`
    NoTrust,
    /// `a verified chain is empty`
    EmptyChain,
}

/// The unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Entries of a list.
    Entries,
}
