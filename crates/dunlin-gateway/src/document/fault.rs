//! Faults of a file, and their places.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A key of a file, and its place there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, or the row of a database.
    pub file: Arc<Path>,
    /// The line, from 1 on; 0 in a row without lines.
    pub line: usize,
    /// The key with the tables around it, as in `listener[0].listen`. Arrays count from 0.
    pub key: String,
}

impl Place {
    /// A fault at this place.
    pub fn fault(&self, what: impl Into<String>, advice: impl Into<String>) -> Fault {
        Fault { place: Some(self.clone()), what: what.into(), advice: advice.into() }
    }

    /// Whether a fault may hide a part of this table from the reader. The key of the part begins with `part`;
    /// the empty one is the whole table. A fault of the syntax hides all tables of its file.
    pub(crate) fn is_hidden_by(&self, fault: &Fault, part: &str) -> bool {
        let hides = |at: &Self| {
            let rest = at.key.strip_prefix(&*self.key);
            at.file == self.file && (at.key.is_empty() || rest.is_some_and(|rest| rest.starts_with(part)))
        };
        fault.place.as_ref().is_some_and(hides)
    }

    /// File and line, without the key.
    pub fn line(&self) -> impl fmt::Display {
        let file = self.file.display();
        if self.line == 0 { file.to_string() } else { format!("{file}:{}", self.line) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.line())?;
        match &*self.key {
            "" => Ok(()),
            key => write!(f, ": {key}"),
        }
    }
}

/// One fault of a configuration or policy. The text is one line: file, line, key, the fault, and the allowed
/// values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The place of the fault; `None` if no line of a file is at fault.
    pub place: Option<Place>,
    /// The description of the fault.
    pub what: String,
    /// The allowed values, or the remedy.
    pub advice: String,
}

impl Fault {
    /// A fault outside the lines of a file.
    pub fn elsewhere(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { place: None, what: what.into(), advice: advice.into() }
    }

    /// A fault of a whole file.
    pub(crate) fn of_file(path: &Path, what: impl fmt::Display, advice: impl Into<String>) -> Self {
        Self::elsewhere(format!("{}: {what}", path.display()), advice)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
        // A text from a file must not break the line or command the terminal.
        let line = format!("{place}{}; {}", self.what, self.advice);
        line.chars().try_for_each(|c| {
            if c.is_control() { write!(f, "{}", c.escape_default()) } else { write!(f, "{c}") }
        })
    }
}

/// All faults of a configuration or policy, in the order of their places; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// The faults, unless there are none.
    ///
    /// # Errors
    /// All of them.
    pub(crate) fn none_in(faults: Vec<Fault>) -> Result<(), Self> {
        if faults.is_empty() { Ok(()) } else { Err(Self::sorted(faults)) }
    }

    /// The faults, in the order of their places.
    pub(crate) fn sorted(mut faults: Vec<Fault>) -> Self {
        let order = |fault: &Fault| fault.place.as_ref().map(|place| (place.file.clone(), place.line));
        faults.sort_by_key(order);
        faults.dedup();
        // The parser's substitute for a value that it cannot read is no second fault.
        faults.dedup_by(|later, first| match (&later.place, &first.place) {
            (Some(later), Some(first)) => {
                let is_same_line = first.line > 0 && (&later.file, later.line) == (&first.file, first.line);
                is_same_line && first.key.is_empty() && !later.key.is_empty()
            }
            _ => false,
        });
        Self(faults)
    }

    /// The faults in order.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }

    /// One fault by itself.
    pub fn one(fault: Fault) -> Self {
        Self(vec![fault])
    }
}

/// A line for each fault.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Faults {}

/// A value and the place that set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<T> {
    /// The value.
    pub value: T,
    /// The place that set it.
    pub place: Place,
}

impl<T> Field<T> {
    /// The field with another value.
    pub(crate) fn map<U>(self, of: impl FnOnce(T) -> U) -> Field<U> {
        Field { value: of(self.value), place: self.place }
    }
}

/// A file that a configuration names, relative to the configuration's directory.
pub type FileField = Field<PathBuf>;
