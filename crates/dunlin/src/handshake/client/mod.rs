//! The client's handshake.
//!
//! ```text
//! start                     ClientHello              ──────────►
//! early                     (early data*)            ──────────►
//!   ExpectServerHello                                ◄──────────  HelloRetryRequest
//!                           ClientHello              ──────────►
//!   ExpectServerHello                                ◄──────────  ServerHello
//! tls13
//!   ExpectEncryptedExtensions                        ◄──────────  {EncryptedExtensions}
//!   ExpectCertificateOrRequest                       ◄──────────  {CertificateRequest*}
//!   verify::ExpectCertificate                        ◄──────────  {Certificate*}
//!   verify::ExpectCertificateVerify                  ◄──────────  {CertificateVerify*}
//!   ExpectFinished                                   ◄──────────  {Finished}
//! early                     (EndOfEarlyData*)        ──────────►
//!                           {Certificate*}           ──────────►
//!                           {CertificateVerify*}     ──────────►
//!                           {Finished}               ──────────►
//! post::Traffic             [application data]       ◄─────────►  [application data]
//! ```

mod cache;
mod early;
mod reverify;
pub(crate) mod start;
pub(super) mod tls12;
mod tls13;

pub(crate) use early::EARLY_DATA;
pub(crate) use tls13::{CERTIFICATES, Certificates};
