//! Faults of a policy: all of them at once, each with its place.

use std::fmt;
use std::sync::Arc;

/// Where a setting stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, or the row of a database.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A fault of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where it is.
    pub place: Place,
    /// The key, with the tables around it, such as `rule[0].profile`. Arrays count from 0. Empty for a fault of the syntax.
    pub key: String,
    /// What is wrong and what is allowed, in one line.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = match self.key.as_str() {
            "" => format!("{}: {}", self.place, self.what),
            key => format!("{}: {key}: {}", self.place, self.what),
        };
        // A text from a file must not break the line or command the terminal.
        line.chars().try_for_each(|c| match c.is_control() {
            true => write!(f, "{}", c.escape_default()),
            false => write!(f, "{c}"),
        })
    }
}

/// Why a policy cannot be used: every fault of it, in the order of the lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// A fault that concerns the whole file.
    pub fn of_file(file: &str, what: impl fmt::Display) -> Self {
        let place = Place { file: file.into(), line: 1 };
        Self(vec![Fault { place, key: String::new(), what: what.to_string() }])
    }
}
