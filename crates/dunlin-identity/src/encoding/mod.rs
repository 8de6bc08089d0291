//! The encodings of what strangers send, read strictly and within bounds, and written in one canonical form.

#[cfg(feature = "std")]
pub mod cbor;
#[cfg(feature = "std")]
pub mod gzip;
pub mod json;
pub mod protobuf;
