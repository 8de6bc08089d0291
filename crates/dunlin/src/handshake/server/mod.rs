//! The server's handshake.
//!
//! ```text
//! start
//!   ExpectClientHello       ClientHello              ──────────►
//!     AwaitProfile, AwaitPsk (questions)
//!                                                    ◄──────────  HelloRetryRequest
//!   ExpectClientHello       ClientHello              ──────────►
//! tls13
//!                                                    ◄──────────  ServerHello
//!                                                    ◄──────────  {EncryptedExtensions}
//!                                                    ◄──────────  {CertificateRequest*}
//!   prove                                            ◄──────────  {Certificate*, CertificateVerify*}
//!                                                    ◄──────────  {Finished}
//!   verify::ExpectCertificate        {Certificate*}  ──────────►
//!   verify::ExpectCertificateVerify  {CertificateVerify*} ─────►
//!   ExpectFinished          {Finished}               ──────────►
//!                                                    ◄──────────  [NewSessionTicket*]
//! post::Traffic             [application data]       ◄─────────►  [application data]
//! ```

pub(crate) mod start;
mod tls13;
