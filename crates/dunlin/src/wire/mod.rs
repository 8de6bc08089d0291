//! The codec: a reader, a writer and the numbers of the protocol. It keeps no state.

pub(crate) mod enums;
mod malformed;
pub(crate) mod reader;
mod what;
pub(crate) mod writer;

pub use enums::{
    AlertDescription, AlertLevel, CertificateCompressionAlgorithm, CertificateType, CipherSuite, ContentType,
    DidMethod, ExtensionType, HandshakeType, KeyUpdateRequest, NamedGroup, ProtocolVersion,
    PskKeyExchangeMode, SignatureScheme,
};
pub(crate) use malformed::FieldTooLong;
pub use malformed::Malformed;
pub(crate) use reader::Reader;
pub use what::{Field, Unit};
pub(crate) use writer::Writer;

/// The largest content of a record, in bytes (RFC 8446 §5.1).
pub(crate) const MAX_PLAINTEXT: usize = 1 << 14;
/// The largest protected record: content, its type and the tag, with room for padding (RFC 8446 §5.2).
pub(crate) const MAX_CIPHERTEXT: usize = MAX_PLAINTEXT + 256;
