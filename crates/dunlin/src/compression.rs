//! Certificate compression (RFC 8879): what a program has to bring for it, and what a profile prepares.
//!
//! The engine has no algorithm of its own: dunlin-compress has zlib. Sending and receiving are apart, for a client
//! that only reads a server's chain needs no compressor.

use alloc::vec::Vec;
use core::fmt;

use crate::auth::Credential;
use crate::error::{Error, Misuse, PeerMisbehaved};
use crate::message::{self, CompressedCertificate, HEADER_LEN, MAX_CERTIFICATE};
use crate::wire::{CertificateCompressionAlgorithm, What};

/// Compression or decompression failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionFailed;

/// Compresses our Certificate messages.
pub trait CertificateCompressor: Send + Sync + fmt::Debug {
    /// Which algorithm it is.
    fn algorithm(&self) -> CertificateCompressionAlgorithm;
    /// Compresses `message`. This is called when a profile is built, not in handshakes: it may take its time.
    ///
    /// # Errors
    /// It could not.
    fn compress(&self, message: &[u8]) -> Result<Vec<u8>, CompressionFailed>;
}

/// Decompresses the peer's Certificate messages.
pub trait CertificateDecompressor: Send + Sync + fmt::Debug {
    /// Which algorithm it is.
    fn algorithm(&self) -> CertificateCompressionAlgorithm;
    /// Decompresses the whole of `compressed`, which comes from an unauthenticated peer, so that it fills `message`
    /// exactly. Implementations must not take memory beyond `message` and a constant.
    ///
    /// # Errors
    /// `compressed` is damaged, does not end where its content does, or its content is longer or shorter.
    fn decompress(&self, compressed: &[u8], message: &mut [u8]) -> Result<(), CompressionFailed>;
}

/// The compressed Certificate message of a credential, made once and used for every peer.
#[derive(Clone)]
pub(crate) struct Prepared {
    credential: usize,
    algorithm: CertificateCompressionAlgorithm,
    message: Vec<u8>,
}

/// Compresses the message of every credential with every compressor, where that makes it smaller.
pub(crate) fn prepare(
    credentials: &[Credential],
    compressors: &[&dyn CertificateCompressor],
) -> Result<Vec<Prepared>, Error> {
    let mut all = Vec::new();
    for (index, credential) in credentials.iter().enumerate() {
        for compressor in compressors {
            // RFC 8446 §4.4.2: in the handshake the context is empty, so the message is the same for all peers.
            let plain = message::Certificate::write(&[], credential.entries(), None)?;
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

/// The message for the credential at `index` that suits a peer who reads `theirs`: the first in our order.
pub(crate) fn choose<'p>(
    prepared: &'p [Prepared],
    index: usize,
    theirs: &[CertificateCompressionAlgorithm],
) -> Option<(CertificateCompressionAlgorithm, &'p [u8])> {
    let found = prepared.iter().find(|p| p.credential == index && theirs.contains(&p.algorithm))?;
    Some((found.algorithm, &found.message))
}

/// The body of the Certificate message in a CompressedCertificate.
pub(crate) fn decompress(
    decompressors: &[&dyn CertificateDecompressor],
    message: &CompressedCertificate<'_>,
) -> Result<Vec<u8>, Error> {
    // RFC 8879 §4: an algorithm that was not in the extension: illegal_parameter.
    let algorithm = message.algorithm;
    let decompressor = decompressors.iter().find(|d| d.algorithm() == algorithm);
    let decompressor = decompressor.ok_or(PeerMisbehaved::NotOffered(What::CompressionAlgorithm))?;
    // RFC 8879 §4: the announced length bounds the memory, and what comes out must have it.
    if message.uncompressed_length > MAX_CERTIFICATE {
        return Err(PeerMisbehaved::BadCompression.into());
    }
    let mut body = alloc::vec![0; message.uncompressed_length];
    let done = decompressor.decompress(message.compressed, &mut body);
    done.map_err(|CompressionFailed| PeerMisbehaved::BadCompression)?;
    Ok(body)
}
