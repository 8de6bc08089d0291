//! Certificate compression (RFC 8879).
//!
//! The feature `compression` adds zlib and the methods of [`crate::ProfileBuilder`] that use it; without it a
//! program links none of this. Compression and decompression have separate traits, because a client that only
//! receives a server's chain needs no compressor.
//!
//! ```
//! # #[cfg(feature = "compression")]
//! # fn build(provider: std::sync::Arc<dunlin::CryptoProvider>) -> Result<dunlin::Profile, dunlin::Error> {
//! use dunlin::compression::{ZLIB_COMPRESSOR, ZLIB_DECOMPRESSOR};
//!
//! dunlin::Profile::builder(provider)
//!     .certificate_compressors(vec![ZLIB_COMPRESSOR])
//!     .certificate_decompressors(vec![ZLIB_DECOMPRESSOR])
//!     .build()
//! # }
//! ```

use alloc::vec::Vec;
use core::fmt;

use crate::auth::Credential;
use crate::error::{Error, Misuse, PeerMisbehaved};
use crate::message::{self, CompressedCertificate, HEADER_LEN, MAX_CERTIFICATE};
use crate::wire::{CertificateCompressionAlgorithm, CertificateType, Field};

#[cfg(feature = "compression")]
mod zlib;

#[cfg(feature = "compression")]
pub use zlib::{ZLIB_COMPRESSOR, ZLIB_DECOMPRESSOR};

/// Whether the program has the feature. Code behind it is not linked without it.
pub(crate) const IS_BUILT: bool = cfg!(feature = "compression");

/// Compression or decompression failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionFailed;

/// Compresses this side's Certificate messages.
pub trait CertificateCompressor: Send + Sync + fmt::Debug {
    /// Which algorithm it is.
    fn algorithm(&self) -> CertificateCompressionAlgorithm;
    /// Compresses `message`. The engine calls it when it builds a profile, never in a handshake, so it may be
    /// slow.
    ///
    /// # Errors
    /// The compression failed.
    fn compress(&self, message: &[u8]) -> Result<Vec<u8>, CompressionFailed>;
}

/// Decompresses the peer's Certificate messages.
pub trait CertificateDecompressor: Send + Sync + fmt::Debug {
    /// Which algorithm it is.
    fn algorithm(&self) -> CertificateCompressionAlgorithm;
    /// Decompresses `compressed`, which comes from an unauthenticated peer, into `message`, which it must
    /// fill exactly. Implementations must not use more memory than `message` and a constant amount.
    ///
    /// # Errors
    /// `compressed` is damaged or has trailing bytes, or its content is longer or shorter than `message`.
    fn decompress(&self, compressed: &[u8], message: &mut [u8]) -> Result<(), CompressionFailed>;
}

/// The compressed Certificate message of a credential, made once for all peers.
#[derive(Clone)]
pub(crate) struct Prepared {
    credential: usize,
    algorithm: CertificateCompressionAlgorithm,
    message: Vec<u8>,
}

/// Compresses the Certificate of every credential with every compressor, and keeps the results that are
/// smaller.
pub(crate) fn prepare(
    credentials: &[Credential],
    compressors: &[&dyn CertificateCompressor],
) -> Result<Vec<Prepared>, Error> {
    let mut all = Vec::new();
    if !IS_BUILT {
        return Ok(all);
    }
    // No Certificate message carries a bare identifier.
    let is_bare = |c: &Credential| c.certificate_type() == CertificateType::DECENTRALISED_IDENTIFIER;
    for (index, credential) in credentials.iter().enumerate().filter(|(_, credential)| !is_bare(credential)) {
        for compressor in compressors {
            // RFC 8446 §4.4.2: the context is empty in the handshake, so the message is the same for all
            // peers.
            let plain = message::Certificate::write(&[], credential.entries(), message::Staples::default())?;
            let algorithm = compressor.algorithm();
            let body = plain.get(HEADER_LEN..).unwrap_or_default();
            let compressed = compressor.compress(body).map_err(|CompressionFailed| {
                Misuse::Config(alloc::format!("{algorithm} cannot compress the certificates"))
            })?;
            let message =
                CompressedCertificate { algorithm, uncompressed_length: body.len(), compressed: &compressed };
            let message = message.write()?;
            if message.len() < plain.len() {
                all.push(Prepared { credential: index, algorithm, message });
            }
        }
    }
    Ok(all)
}

/// The first prepared message for the credential at `index` whose algorithm is in `theirs`.
pub(crate) fn choose<'p>(
    prepared: &'p [Prepared],
    index: usize,
    theirs: &[CertificateCompressionAlgorithm],
) -> Option<(CertificateCompressionAlgorithm, &'p [u8])> {
    if !IS_BUILT {
        return None;
    }
    let found = prepared.iter().find(|p| p.credential == index && theirs.contains(&p.algorithm))?;
    Some((found.algorithm, &found.message))
}

/// Decompresses the body of the Certificate in a CompressedCertificate.
pub(crate) fn decompress(
    decompressors: &[&dyn CertificateDecompressor],
    message: &CompressedCertificate<'_>,
) -> Result<Vec<u8>, Error> {
    // RFC 8879 §4: an algorithm that this side did not offer is illegal_parameter.
    let algorithm = message.algorithm;
    let decompressor = decompressors.iter().find(|d| d.algorithm() == algorithm);
    let decompressor = decompressor.ok_or(PeerMisbehaved::NotOffered(Field::CompressionAlgorithm))?;
    // RFC 8879 §4: the announced length limits the memory, and the decompressed message must have exactly
    // that length.
    if message.uncompressed_length > MAX_CERTIFICATE {
        return Err(PeerMisbehaved::BadCompression.into());
    }
    let mut body = alloc::vec![0; message.uncompressed_length];
    let done = decompressor.decompress(message.compressed, &mut body);
    done.map_err(|CompressionFailed| PeerMisbehaved::BadCompression)?;
    Ok(body)
}
