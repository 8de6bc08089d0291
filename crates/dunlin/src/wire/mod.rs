//! The codec: readers, writers and the numbers of the protocol. It knows no state.

pub(crate) mod enums;
pub(crate) mod reader;
pub(crate) mod writer;

pub use enums::{
    AlertDescription, AlertLevel, CertificateCompressionAlgorithm, CertificateType, CipherSuite, ContentType,
    ExtensionType, HandshakeType, KeyUpdateRequest, NamedGroup, ProtocolVersion, PskKeyExchangeMode,
    SignatureScheme,
};
pub(crate) use reader::Reader;
pub(crate) use writer::Writer;
