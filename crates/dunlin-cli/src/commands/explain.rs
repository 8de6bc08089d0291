//! `dunlin explain`: a capture taken apart, message by message, with its bytes.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use dunlin_explain::{Error as ExplainError, Explanation, KeyLog};

use crate::error::{Error, printable};
use crate::files;

const EXAMPLES: &str = "\
Examples:
  dunlin explain capture.pcap
  dunlin explain capture.pcapng --keylog keys        with what is encrypted; keys from --keylogfile or SSLKEYLOGFILE
  dunlin explain capture.pcap --json | jq .flows[0].messages
  dunlin explain '15 0303 0002 0228'                 records or a handshake message, in hexadecimal

Frames are those of tcpdump and Wireshark: Ethernet, Linux cooked, loopback or raw IP. What is encrypted is
shown with a key log: all of TLS 1.3 and DTLS 1.3, of 1.2 the AEAD suites. Every byte of the capture is counted once.

Exit status: 0 all understood, 1 not all (what was is shown), 2 wrong use.";

/// Take a capture apart: packets, records, messages and extensions, each with its bytes.
#[derive(ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A pcap or pcapng file, a file of hexadecimal digits, - for stdin, or the digits themselves.
    #[arg(value_name = "FILE|HEX")]
    input: PathBuf,
    /// The secrets of the connections, as browsers and TLS libraries log them (RFC 9850).
    #[arg(long, visible_alias = "keylogfile", value_name = "FILE")]
    keylog: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Explains, and fails with one line if not all was understood.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Error> {
    let key_log = args.keylog.as_deref().map(key_log).transpose()?;
    let (name, explanation) = explain(&args.input, key_log.as_ref())?;
    let mut out = BufWriter::new(out);
    if args.json {
        serde_json::to_writer(&mut out, &explanation).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{explanation}")?;
    }
    out.flush()?;
    match explanation.problems.as_slice() {
        [] => Ok(()),
        [first, others @ ..] => {
            let more = match others.len() {
                0 => String::new(),
                n => format!(", and {n} more of this kind"),
            };
            Err(Error::failed(
                name,
                format!("not all was understood: {first}{more}"),
                "what was is on stdout; give the whole capture, and the key log of its connections",
            ))
        }
    }
}

fn key_log(path: &Path) -> Result<KeyLog, Error> {
    KeyLog::read(&files::read(path)?)
        .map_err(|error| Error::failed(path.display(), error, "give the file that SSLKEYLOGFILE names"))
}

/// The explanation of a file, or of an argument that is none but hexadecimal; with its name.
fn explain(input: &Path, key_log: Option<&KeyLog>) -> Result<(String, Explanation), Error> {
    let text = input.to_string_lossy();
    let is_hex =
        |text: &str| text.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ' ' | ':' | 'x' | '\n'));
    if !input.exists() && text.len() > 1 && is_hex(&text) {
        let explained = dunlin_explain::explain_hex(&text, key_log);
        return match explained {
            Ok(explanation) => Ok(("the hexadecimal argument".into(), explanation)),
            Err(error) => Err(Error::failed(
                shortened(&text),
                error,
                "give a file that is there, or records or a handshake message in hexadecimal",
            )),
        };
    }
    let content = files::read(input)?;
    let explained = match dunlin_explain::explain(&content, key_log) {
        Err(ExplainError::NotACapture) => match std::str::from_utf8(&content) {
            Ok(text) if is_hex(text.trim_ascii()) => dunlin_explain::explain_hex(text, key_log),
            _ => Err(ExplainError::NotACapture),
        },
        explained => explained,
    };
    let name = input.display().to_string();
    match explained {
        Ok(explanation) => Ok((name, explanation)),
        Err(error) => Err(Error::failed(name, error, "give a capture of tcpdump or Wireshark")),
    }
}

/// The beginning of a long argument.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 32;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => printable(text),
    }
}
