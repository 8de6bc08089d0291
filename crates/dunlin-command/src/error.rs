//! The error that ends a command, in one line: its subject, the reason and the advice.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anstyle::{AnsiColor, Style};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use dunlin::error::Misuse;
use dunlin::wire::AlertDescription;
use serde::{Serialize, Serializer};

use crate::argv;

/// Why a command ends without success.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    what: String,
    why: String,
    advice: String,
    code: Code,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An attempt failed.
    Failed,
    /// The arguments cannot work.
    Usage,
    /// The reader of the output is gone, as in `dunlin … | head`. Nothing is reported.
    Unread,
}

impl Error {
    /// An attempt failed: exit status 1.
    pub fn failed(what: impl Display, why: impl Display, advice: impl Display) -> Self {
        Self::new(Kind::Failed, what, why, advice)
    }

    /// The arguments make no sense: exit status 2.
    pub fn usage(what: impl Display, why: impl Display, advice: impl Display) -> Self {
        Self::new(Kind::Usage, what, why, advice)
    }

    /// A key or certificate in the file `path` is not usable.
    pub fn in_file(path: &Path, error: &dunlin_pki::Error) -> Self {
        Self::failed(path.display(), error, error.advice())
    }

    fn new(kind: Kind, what: impl Display, why: impl Display, advice: impl Display) -> Self {
        let code = if kind == Kind::Usage { Code::USAGE } else { Code::FAILED };
        Self { kind, what: what.to_string(), why: why.to_string(), advice: advice.to_string(), code }
    }

    /// Returns the error with another code.
    pub fn with_code(self, code: Code) -> Self {
        Self { code, ..self }
    }

    /// Writes the line to stderr, with its first word in colour on a terminal.
    pub fn report(&self) {
        if self.kind == Kind::Unread {
            return;
        }
        let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        anstream::eprintln!("{style}{}:{style:#} {self}", program());
    }

    /// The subject of the error, the reason, and the advice.
    pub fn parts(&self) -> [&str; 3] {
        [&self.what, &self.why, &self.advice]
    }

    /// The code for scripts.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// 1 or 2.
    pub fn exit_code(&self) -> ExitCode {
        match self.kind {
            Kind::Failed | Kind::Unread => ExitCode::FAILURE,
            Kind::Usage => ExitCode::from(2),
        }
    }
}

/// A key or certificate that cannot be made as requested.
impl From<dunlin_pki::Error> for Error {
    fn from(error: dunlin_pki::Error) -> Self {
        match error {
            dunlin_pki::Error::Crypto => Self::failed("key or certificate", &error, error.advice()),
            _ => Self::usage("the certificate", &error, error.advice()),
        }
    }
}

/// Output that cannot be written. Errors of files name their file themselves.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => {
                Self::new(Kind::Unread, "output", error, "the reader of stdout has closed it")
            }
            _ => Self::failed("output", error, "check the destination of stdout"),
        }
    }
}

/// Arguments that clap refuses. Its several lines become one.
impl From<clap::Error> for Error {
    fn from(error: clap::Error) -> Self {
        if error.kind() == ErrorKind::UnknownArgument
            && let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
        {
            let args: Vec<_> = std::env::args_os().collect();
            let before = args.windows(2).find(|pair| pair.last().is_some_and(|last| *last == **argument));
            let before = before.and_then(|pair| pair.first()?.to_str());
            if let Some((why, advice)) = argv::not_taken(argument, before) {
                return Self::usage("arguments", why, advice);
            }
        }
        let text = argv::as_typed(without_password(&error.render().to_string()), std::env::args_os());
        let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
        let mut told = vec![];
        let mut tips = vec![];
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with("For more information")) {
            match line.strip_prefix("tip: ") {
                // An option is never meant as a value.
                Some(tip) if tip.contains("use '-- ") => {}
                // A typing error must not lead to a connection without verification.
                Some(tip) if tip.contains("--insecure") => {}
                Some(tip) => tips.push(tip),
                None => told.push(line),
            }
        }
        let told = told.join(" ");
        let why = told.strip_prefix("error: ").unwrap_or(&told);
        let advice = if tips.is_empty() { "add --help to see the usage".into() } else { tips.join(", ") };
        Self::usage("arguments", why.trim_end_matches('.'), advice)
    }
}

/// The class of a failure, for scripts (docs/json.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Code {
    code: &'static str,
    /// The fatal alert that the peer sent, if it sent one.
    #[serde(serialize_with = "alert_name")]
    alert: Option<AlertDescription>,
}

impl Code {
    /// The arguments contradict each other, or have no meaning.
    pub const USAGE: Self = Self::new("usage");
    /// Something other than TLS failed: TCP, a file, stdin, stdout.
    pub const FAILED: Self = Self::new("failed");
    /// The peer took too long.
    pub const TIMEOUT: Self = Self::new("timeout");
    /// The server did not take all of the early data.
    pub const EARLY_DATA: Self = Self::new("early_data");
    /// The peer closed before it had read all input.
    pub const UNSENT: Self = Self::new("unsent");
    /// The peer speaks TLS, but its authentication failed.
    pub const AUTHENTICATION: Self = Self::new("authentication");

    const fn new(code: &'static str) -> Self {
        Self { code, alert: None }
    }

    /// Returns the class of a TLS error.
    pub const fn of_tls(error: &dunlin::Error) -> Self {
        use dunlin::Error as E;
        match error {
            E::AlertReceived(alert) => Self { code: "alert", alert: Some(*alert) },
            E::Authentication(_) => Self::AUTHENTICATION,
            E::PeerIncompatible(_) => Self::new("incompatible"),
            E::PeerMisbehaved(_) | E::Malformed(_) => Self::new("protocol"),
            E::Truncated => Self::new("truncated"),
            E::TimedOut => Self::TIMEOUT,
            _ => Self::new("internal"),
        }
    }

    /// Whether this side has judged the peer itself, rather than that the peer or the network ended the
    /// connection.
    pub fn is_found_here(self) -> bool {
        ["authentication", "incompatible", "protocol", "internal"].contains(&self.code)
    }

    /// Returns the class of a read or write error.
    pub fn of_stream(error: &io::Error) -> Self {
        match error.get_ref().and_then(|e| e.downcast_ref()) {
            Some(e) => Self::of_tls(e),
            None if error.kind() == io::ErrorKind::TimedOut => Self::TIMEOUT,
            None => Self::FAILED,
        }
    }
}

fn alert_name<S: Serializer>(alert: &Option<AlertDescription>, serializer: S) -> Result<S::Ok, S::Error> {
    alert.map(|alert| alert.to_string()).serialize(serializer)
}

/// A failure in words.
pub struct Explanation {
    /// The failure and its reason.
    pub why: String,
    /// The advice for the user of this side.
    pub advice: String,
    /// The class of the failure.
    pub code: Code,
}

impl Explanation {
    /// A failure of the class `failed`.
    pub fn new(why: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { why: why.into(), advice: advice.into(), code: Code::FAILED }
    }
}

/// Turns an error of the library about contradictory options into an error of the command.
pub fn misuse(error: &dunlin::Error) -> Error {
    Error::usage("options", reason(error), "add --help to see their meaning")
}

/// Returns the library's words for an invalid value.
pub fn reason(error: &dunlin::Error) -> String {
    match error {
        dunlin::Error::Misuse(Misuse::Config(why)) => why.clone(),
        error => error.to_string(),
    }
}

/// The name of the running program, with which its lines on stderr begin.
fn program() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or("dunlin".as_ref());
    printable(&name.to_string_lossy())
}

/// Prints a warning to stderr.
pub fn warn(text: &str) {
    anstream::eprintln!("{}: warning: {}", program(), printable(text));
}

/// Prints a warning about a file, unless this process has printed the same one before: a server reads its
/// files again and again.
pub fn warn_once(text: String) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if !told.contains(&text) {
        warn(&text);
        told.insert(text);
    }
}

/// Returns `text`, which may repeat an argument, without the password of a URL.
fn without_password(text: &str) -> String {
    let url = text.split_once("://").and_then(|(kind, rest)| Some((kind, rest.rsplit_once('@')?.1)));
    url.map_or_else(|| text.to_owned(), |(kind, host)| format!("{kind}://…@{host}"))
}

/// Escapes the control characters of `text`, so that a name from a file can neither break the line nor
/// command the terminal.
pub fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// Returns `n` and `name`, in the plural unless `n` is 1.
pub fn count(n: impl Display + PartialEq + From<u8>, name: &str) -> String {
    format!("{n} {name}{}", if n == 1.into() { "" } else { "s" })
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, why, advice, .. } = self;
        f.write_str(&printable(&format!("{what}: {why}; {advice}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line() {
        let error = Error::failed("a\nb", "\x1b[31mred", "go\r\non");
        assert_eq!(error.to_string(), "a\\nb: \\u{1b}[31mred; go\\r\\non");
    }

    #[test]
    fn removes_passwords() {
        let told = without_password("invalid value 'redis://:a@b:c@host:1/0' for '[SERVER]'");
        assert_eq!(told, "invalid value 'redis://…@host:1/0' for '[SERVER]'");
        for plain in ["invalid value 'a@b'", "invalid value 'coap://host'"] {
            assert_eq!(without_password(plain), plain);
        }
    }

    #[test]
    fn broken_pipe_is_not_reported() {
        assert_eq!(Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).kind, Kind::Unread);
        assert_eq!(Error::from(io::Error::from(io::ErrorKind::StorageFull)).kind, Kind::Failed);
    }
}
