//! The error of the lab: the failed operation, the reason, and advice.

use std::fmt::{self, Display};

use dunlin_command::error::Error as CommandError;
use nix::errno::Errno;

/// The reason why something could not be set up, measured or written.
#[derive(Debug)]
pub struct Error {
    what: String,
    why: String,
    advice: String,
}

impl Error {
    /// `what` failed because of `why`; `advice` tells the user what to do.
    pub fn new(what: impl Display, why: impl Display, advice: impl Display) -> Self {
        Self { what: what.to_string(), why: why.to_string(), advice: advice.to_string() }
    }

    /// The kernel refused `what`, usually for lack of privileges.
    pub(crate) fn refused(what: impl Display, errno: Errno) -> Self {
        match errno {
            Errno::EPERM | Errno::EACCES => Self::new(
                what,
                "needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN",
                "run it with sudo, or an experiment with --way virtual where `dunlin-lab list` has it",
            ),
            errno => Self::new(what, errno.desc(), "check that this kernel and container allow it"),
        }
    }

    /// The operation that failed.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Why it failed.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Advice to the user.
    pub fn advice(&self) -> &str {
        &self.advice
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.why, self.advice)
    }
}

impl std::error::Error for Error {}

/// Dunlin has refused what it should do.
pub(crate) fn failed(why: impl Display) -> Error {
    Error::new("dunlin", why, "run it again; if it stays, this is a fault in dunlin")
}

/// A socket has failed.
pub(crate) fn socket_failed(why: impl Display) -> Error {
    Error::new("a socket of the lab", why, "run it again on an idle machine")
}

impl From<dunlin_pki::Error> for Error {
    fn from(error: dunlin_pki::Error) -> Self {
        Self::new("certificates", &error, error.advice())
    }
}

impl From<Error> for CommandError {
    fn from(Error { what, why, advice }: Error) -> Self {
        Self::failed(what, why, advice)
    }
}
