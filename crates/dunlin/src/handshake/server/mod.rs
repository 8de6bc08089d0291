//! The server's handshake.
//!
//! ```text
//! start
//!   ExpectClientHello       ClientHello              ──────────►
//! address                                            ◄──────────  HelloVerifyRequest or HelloRetryRequest,
//!                                                                 over datagrams
//!     mark::AwaitFirstUse, AwaitProfile, AwaitPsk (questions)
//!                                                    ◄──────────  HelloRetryRequest
//!   ExpectClientHello       ClientHello              ──────────►
//! early                     (early data*)            ──────────►
//! tls13
//!                                                    ◄──────────  ServerHello
//!                                                    ◄──────────  {EncryptedExtensions}
//!                                                    ◄──────────  {CertificateRequest*}
//!   prove                                            ◄──────────  {Certificate*, CertificateVerify*}
//!                                                    ◄──────────  {Finished}
//! early
//!                                                    ◄──────────  [answers to early data*]
//!   ExpectEndOfEarlyData    (EndOfEarlyData*)        ──────────►
//! tls13
//!   verify::ExpectCertificate        {Certificate*}  ──────────►
//!   verify::ExpectCertificateVerify  {CertificateVerify*} ─────►
//!   ExpectFinished          {Finished}               ──────────►
//!                                                    ◄──────────  [NewSessionTicket*]
//! post::Traffic             [application data]       ◄─────────►  [application data]
//! ```

mod address;
mod arrival;
mod cache;
mod early;
mod hello_retry;
mod mark;
mod rank;
mod renegotiate;
pub(crate) mod start;
pub(super) mod tls12;
mod tls12_choice;
mod tls13;
