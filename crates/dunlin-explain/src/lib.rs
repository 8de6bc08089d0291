//! Captures of TLS and DTLS, taken apart to the byte.
//!
//! [`explain`] reads a capture (pcap or pcapng), puts the streams of TCP together again, cuts them and the datagrams of
//! UDP into records, the records into messages and the messages into fields, and with a [`KeyLog`] opens what is
//! protected: everything of TLS 1.3, and of TLS 1.2 the AEAD suites, with DTLS the same. Whose traffic it is does not matter. Every byte of the capture is entered once, under the
//! [`Layer`] that spent it, so the sums are those of the capture.
//!
//! What is damaged, cut off or missing ends the understanding of its stream and not more: [`Explanation::problems`]
//! says where and why.
//!
//! ```
//! # fn main() -> Result<(), dunlin_explain::Error> {
//! // A ServerHello's alert, as a server sends it that does not speak the client's version.
//! let explanation = dunlin_explain::explain_hex("15 0303 0002 0246", None)?;
//! let record = &explanation.flows[0].records[0];
//! assert_eq!((record.header_bytes, record.parts[0].bytes), (5, 2));
//! assert_eq!(record.parts[0].name, "alert fatal protocol_version");
//! # Ok(())
//! # }
//! ```

mod bytes;
mod capture;
mod content;
mod dissect;
mod dtls;
mod flow;
mod keylog;
mod lines;
mod message;
mod model;
pub mod names;
mod packet;
mod session;
mod stream;
mod text;
mod tls;
mod tls12;

pub use bytes::{Bytes, Layer};
pub use keylog::KeyLog;
pub use message::Field;
pub use model::{Carrier, Explanation, Flow, MessageTotal, Packet, Part, Protection, Record};

use capture::Capture;

/// Why there is nothing to explain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are no capture.
    #[error("neither a pcap nor a pcapng file")]
    NotACapture,
    /// The text is not hexadecimal.
    #[error("no hexadecimal digits in pairs")]
    NotHex,
    /// The bytes begin with nothing that is known.
    #[error("neither a record nor a handshake message")]
    NotTls,
    /// The text has no line of a key log.
    #[error("no line of it is one of a key log (RFC 9850)")]
    NotAKeyLog,
}

/// Takes a capture apart. `file` is the content of a pcap or pcapng file; secrets in a pcapng file are used, too.
///
/// # Errors
/// It is no capture. One that is damaged further on is explained up to there.
pub fn explain(file: &[u8], key_log: Option<&KeyLog>) -> Result<Explanation, Error> {
    if !capture::is_capture(file) {
        return Err(Error::NotACapture);
    }
    let capture = Capture::read(file);
    let mut own = KeyLog::default();
    for text in &capture.key_logs {
        own.add(text);
    }
    let logs: Vec<&KeyLog> = key_log.into_iter().chain(Some(&own).filter(|log| !log.is_empty())).collect();
    Ok(dissect::capture(&capture, &logs))
}

/// Takes bytes apart that are given in hexadecimal, with spaces and line ends wherever they please: records of TLS in
/// one direction, or those of a datagram, or a handshake message.
///
/// # Errors
/// They are not hexadecimal, or begin with none of these.
pub fn explain_hex(text: &str, key_log: Option<&KeyLog>) -> Result<Explanation, Error> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    let digits = digits.strip_prefix("0x").unwrap_or(&digits);
    let bytes = base16ct::mixed::decode_vec(digits).map_err(|_| Error::NotHex)?;
    let logs: Vec<&KeyLog> = key_log.into_iter().collect();
    dissect::bytes(&bytes, &logs)
}
