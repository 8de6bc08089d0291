//! `dunlin explain`: dissects a capture message by message, and counts its bytes.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use dunlin_command::error::{Error, printable};
use dunlin_command::files;
use dunlin_explain::{Error as ExplainError, Explanation, KeyLog};

const EXAMPLES: &str = "\
Examples:
  dunlin explain capture.pcap
  dunlin explain capture.pcapng --keylog keys        decrypted; the keys come from --keylogfile or SSLKEYLOGFILE
  dunlin explain capture.pcap --json | jq .flows[0].messages
  dunlin explain '15 0303 0002 0228'                 records or a handshake message, in hexadecimal

Reads captures of tcpdump and Wireshark with Ethernet, Linux cooked, loopback or raw IP frames, also inside VLAN,
PPPoE, MPLS and VXLAN. A key log
decrypts all of TLS 1.3 and DTLS 1.3, and the AEAD suites of TLS 1.2 and DTLS 1.2. Each byte of the capture
counts once.

Exit status: 0 success, 1 some of it could not be read (the rest is printed), 2 wrong use.";

/// Dissect a capture: packets, records, messages and extensions, each with its bytes.
#[derive(ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A pcap or pcapng file, a file of hexadecimal digits, - for stdin, or the digits themselves.
    #[arg(value_name = "FILE|HEX")]
    input: PathBuf,
    /// The key log of the connections, which browsers and TLS libraries can write (RFC 9850).
    #[arg(long, visible_alias = "keylogfile", value_name = "FILE")]
    keylog: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `dunlin explain`. It fails with one line if there was a problem.
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
                1 => ", and 1 more problem".to_owned(),
                n => format!(", and {n} more problems"),
            };
            let advice = if explanation.flows.iter().any(|flow| flow.protocol.is_some()) {
                "the output so far is on stdout; give the whole capture and the key log of its connections"
            } else {
                "give a whole capture of the connections themselves, outside of tunnels that are not read"
            };
            Err(Error::failed(name, format!("not all of it could be read: {first}{more}"), advice))
        }
    }
}

fn key_log(path: &Path) -> Result<KeyLog, Error> {
    KeyLog::read(&files::read(path)?).map_err(|error| {
        Error::failed(path.display(), error, "give the file named by SSLKEYLOGFILE or --keylogfile")
    })
}

/// Explains the file `input`, or the argument itself if it is hexadecimal and no such file exists. Returns a
/// name for errors, too.
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
                "give an existing file, or records or a handshake message in hexadecimal",
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
        Err(error) => {
            Err(Error::failed(name, error, "give a capture by tcpdump or Wireshark, or hexadecimal digits"))
        }
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
