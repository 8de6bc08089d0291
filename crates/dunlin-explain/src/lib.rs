//! Dissects captures of TLS and DTLS, and accounts for every byte.
//!
//! [`explain`] reads a capture (pcap or pcapng) of any TLS stack. It reassembles TCP streams, and cuts them
//! and the UDP datagrams into records, the records into messages and the messages into fields. With a
//! [`KeyLog`] it decrypts protected records: all of TLS 1.3 and DTLS 1.3, and the AEAD suites of TLS 1.2 and
//! DTLS 1.2. Each byte of the capture counts once, under its [`Layer`], so the sums equal the sizes in the
//! capture.
//!
//! Damaged, truncated or missing bytes affect only their own stream: [`Explanation::problems`] says where it
//! stopped and why.
//!
//! ```
//! # fn main() -> Result<(), dunlin_explain::Error> {
//! // The alert of a server that does not support the client's version.
//! let explanation = dunlin_explain::explain_hex("15 0303 0002 0246", None)?;
//! let record = &explanation.flows[0].records[0];
//! assert_eq!((record.header_bytes, record.parts[0].bytes), (5, 2));
//! assert_eq!(record.parts[0].name, "alert fatal protocol_version");
//! # Ok(())
//! # }
//! ```
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules                 what they contain
//! 8    hello                 | the first flights of a capture
//! 7    dissect               | whole captures, flow by flow
//! 6    paths text            | associations over several paths; the report as text
//! 5    flow                  | TCP streams and UDP datagrams
//! 4    dtls tls              | records of one direction
//! 3    lines session         | runs of equal records; keys and state of a connection
//! 2    content               | messages in records
//! 1    model                 | the result
//! 0    bytes capture keylog message names packet stream tls12 | formats, and sums of bytes
//! ```
//! <!-- end of layers -->

mod bytes;
mod capture;
mod content;
mod dissect;
mod dtls;
mod flow;
mod hello;
mod keylog;
mod lines;
mod message;
mod model;
pub mod names;
mod packet;
mod paths;
mod session;
mod stream;
mod text;
mod tls;
mod tls12;

pub use bytes::{Bytes, Layer};
pub use hello::{FirstFlight, first_flights};
pub use keylog::KeyLog;
pub use message::Field;
pub use model::{Carrier, Explanation, Flow, FlowPath, MessageTotal, Packet, Part, Protection, Record};

use capture::Capture;

/// Why the input cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not a capture.
    #[error("neither a pcap nor a pcapng file")]
    NotACapture,
    /// The text is not hexadecimal.
    #[error("not hexadecimal digits in pairs")]
    NotHex,
    /// The bytes begin with neither a record nor a handshake message.
    #[error("neither a record nor a handshake message")]
    NotTls,
    /// No line of the text has the form of a key log.
    #[error("no line has the form of a key log (RFC 9850)")]
    NotAKeyLog,
}

/// Dissects a capture. `file` is the content of a pcap or pcapng file. Secrets inside a pcapng file are used
/// in addition to `key_log`.
///
/// # Errors
/// [`Error::NotACapture`]. A capture with damage further on is explained up to the damage.
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

/// Dissects bytes given in hexadecimal: TLS records of one direction, the records of one datagram, or one
/// handshake message. White space and colons are ignored.
///
/// # Errors
/// [`Error::NotHex`]; [`Error::NotTls`] if the bytes begin with none of these.
pub fn explain_hex(text: &str, key_log: Option<&KeyLog>) -> Result<Explanation, Error> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    let digits = digits.strip_prefix("0x").unwrap_or(&digits);
    let bytes = base16ct::mixed::decode_vec(digits).map_err(|_| Error::NotHex)?;
    let logs: Vec<&KeyLog> = key_log.into_iter().collect();
    dissect::bytes(&bytes, &logs)
}
