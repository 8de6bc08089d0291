//! The error that ends a command: one line, what went wrong, why, and what to do.

use std::fmt::{self, Display};
use std::io;
use std::path::Path;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use dunlin::error::Misuse;
use dunlin::wire::AlertDescription;
use serde::{Serialize, Serializer};

use crate::argv;

/// Why a command ends without success.
#[derive(Debug)]
pub(crate) struct Error {
    kind: Kind,
    what: String,
    why: String,
    advice: String,
    code: Code,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It was tried and did not work.
    Failed,
    /// It was asked for in a way that cannot work.
    Usage,
    /// Nobody reads the output any more, as in `dunlin … | head`: not worth a word.
    Unread,
}

impl Error {
    /// Something was tried and did not work: exit status 1.
    pub(crate) fn failed(what: impl Display, why: impl Display, advice: impl Display) -> Self {
        Self::new(Kind::Failed, what, why, advice)
    }

    /// Something was asked for that makes no sense: exit status 2.
    pub(crate) fn usage(what: impl Display, why: impl Display, advice: impl Display) -> Self {
        Self::new(Kind::Usage, what, why, advice)
    }

    /// A key or certificate from the file `path` is not good enough.
    pub(crate) fn in_file(path: &Path, error: &dunlin_pki::Error) -> Self {
        Self::failed(path.display(), error, error.advice())
    }

    fn new(kind: Kind, what: impl Display, why: impl Display, advice: impl Display) -> Self {
        let code = if kind == Kind::Usage { Code::USAGE } else { Code::FAILED };
        Self { kind, what: what.to_string(), why: why.to_string(), advice: advice.to_string(), code }
    }

    /// The same error with another code.
    pub(crate) fn with_code(self, code: Code) -> Self {
        Self { code, ..self }
    }

    /// Writes the line to stderr, its first word in colour on a terminal.
    pub(crate) fn report(&self) {
        if self.kind == Kind::Unread {
            return;
        }
        let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        anstream::eprintln!("{style}dunlin:{style:#} {self}");
    }

    /// What failed, why, and what to do.
    pub(crate) fn parts(&self) -> [&str; 3] {
        [&self.what, &self.why, &self.advice]
    }

    /// The code for scripts.
    pub(crate) const fn code(&self) -> Code {
        self.code
    }

    /// 1 or 2.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self.kind {
            Kind::Failed | Kind::Unread => ExitCode::FAILURE,
            Kind::Usage => ExitCode::from(2),
        }
    }
}

/// A key or certificate that cannot be made as wished.
impl From<dunlin_pki::Error> for Error {
    fn from(error: dunlin_pki::Error) -> Self {
        match error {
            dunlin_pki::Error::Crypto => Self::failed("key or certificate", &error, error.advice()),
            _ => Self::usage("the certificate", &error, error.advice()),
        }
    }
}

/// Output that cannot be written; whatever touches files names the file itself.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(Kind::Unread, "output", error, "nobody reads it"),
            _ => Self::failed("output", error, "check where it goes"),
        }
    }
}

/// Arguments that clap refuses; its several lines become one.
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
        let (mut told, mut tips) = (vec![], vec![]);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with("For more information")) {
            match line.strip_prefix("tip: ") {
                // Nobody means an option as a value.
                Some(tip) if tip.contains("use '-- ") => {}
                Some(tip) => tips.push(tip),
                None => told.push(line),
            }
        }
        let told = told.join(" ");
        let why = told.strip_prefix("error: ").unwrap_or(&told);
        let advice =
            if tips.is_empty() { "add --help to see how it is used".into() } else { tips.join(", ") };
        Self::usage("arguments", why.trim_end_matches('.'), advice)
    }
}

/// The class of a failure, for scripts (docs/json.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Code {
    code: &'static str,
    /// The fatal alert that the peer sent, if it sent one.
    #[serde(serialize_with = "alert_name")]
    alert: Option<AlertDescription>,
}

impl Code {
    /// The arguments contradict each other, or mean nothing.
    pub(crate) const USAGE: Self = Self::new("usage");
    /// Something other than TLS failed: TCP, a file, stdin, stdout.
    pub(crate) const FAILED: Self = Self::new("failed");
    /// The peer took too long.
    pub(crate) const TIMEOUT: Self = Self::new("timeout");
    /// The server did not take all of the early data.
    pub(crate) const EARLY_DATA: Self = Self::new("early_data");
    /// The peer closed before it had read all input.
    pub(crate) const UNSENT: Self = Self::new("unsent");
    /// The peer speaks TLS, but is not whom it should be.
    pub(crate) const AUTHENTICATION: Self = Self::new("authentication");

    const fn new(code: &'static str) -> Self {
        Self { code, alert: None }
    }

    /// The class of an error of the protocol.
    pub(crate) const fn of_tls(error: &dunlin::Error) -> Self {
        use dunlin::Error as E;
        match error {
            E::AlertReceived(alert) => Self { code: "alert", alert: Some(*alert) },
            E::Authentication(_) => Self::AUTHENTICATION,
            E::PeerIncompatible(_) => Self::new("incompatible"),
            E::PeerMisbehaved(_) | E::Malformed(_) => Self::new("protocol"),
            E::Truncated => Self::new("truncated"),
            _ => Self::new("internal"),
        }
    }

    /// The class of an error of reading or writing.
    pub(crate) fn of_stream(error: &io::Error) -> Self {
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
pub(crate) struct Explanation {
    /// What happened.
    pub(crate) why: String,
    /// What the user of this side can do.
    pub(crate) advice: String,
    /// Its class.
    pub(crate) code: Code,
}

impl Explanation {
    pub(crate) fn new(why: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { why: why.into(), advice: advice.into(), code: Code::FAILED }
    }
}

/// Options that contradict each other, in the library's words.
pub(crate) fn misuse(error: &dunlin::Error) -> Error {
    Error::usage("options", reason(error), "add --help to see what they mean")
}

/// The library's words for what is wrong with a value.
pub(crate) fn reason(error: &dunlin::Error) -> String {
    match error {
        dunlin::Error::Misuse(Misuse::Config(why)) => why.clone(),
        error => error.to_string(),
    }
}

/// Says on stderr what goes on, but not as somebody may expect it.
pub(crate) fn warn(text: &str) {
    anstream::eprintln!("dunlin: warning: {}", printable(text));
}

/// `text`, which may repeat an argument, without the password of a URL in it.
fn without_password(text: &str) -> String {
    let url = text.split_once("://").and_then(|(kind, rest)| Some((kind, rest.rsplit_once('@')?.1)));
    url.map_or_else(|| text.to_owned(), |(kind, host)| format!("{kind}://…@{host}"))
}

/// `text` with control characters shown as escapes, so that a name from a file can neither break the line nor
/// command the terminal.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// `n` of what is called `name` if it is one.
pub(crate) fn count(n: impl Display + PartialEq + From<u8>, name: &str) -> String {
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
    fn a_password_is_not_repeated() {
        let told = without_password("invalid value 'redis://:a@b:c@host:1/0' for '[SERVER]'");
        assert_eq!(told, "invalid value 'redis://…@host:1/0' for '[SERVER]'");
        for plain in ["invalid value 'a@b'", "invalid value 'coap://host'"] {
            assert_eq!(without_password(plain), plain);
        }
    }

    #[test]
    fn a_broken_pipe_is_no_news() {
        assert_eq!(Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).kind, Kind::Unread);
        assert_eq!(Error::from(io::Error::from(io::ErrorKind::StorageFull)).kind, Kind::Failed);
    }
}
