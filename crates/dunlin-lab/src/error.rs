//! The error of the lab: what went wrong, why, and what to do.

use std::fmt::{self, Display};

use nix::errno::Errno;

/// Why something could not be set up, measured or written.
#[derive(Debug)]
pub struct Error {
    what: String,
    why: String,
    advice: String,
}

impl Error {
    /// `what` did not work because of `why`; `advice` says what the user can do.
    pub fn new(what: impl Display, why: impl Display, advice: impl Display) -> Self {
        Self { what: what.to_string(), why: why.to_string(), advice: advice.to_string() }
    }

    /// The kernel refused `what`: mostly because this takes privileges.
    pub(crate) fn refused(what: impl Display, errno: Errno) -> Self {
        match errno {
            Errno::EPERM | Errno::EACCES => Self::new(
                what,
                "needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN",
                "run it with sudo, or an experiment with --way virtual where `dunlin lab list` has it",
            ),
            errno => Self::new(what, errno.desc(), "check that this kernel and container allow it"),
        }
    }

    /// What did not work.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Why not.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// What the user can do about it.
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
