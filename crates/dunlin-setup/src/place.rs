//! Where values come from, and their faults.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The place that sets a value: a key of a file, or an option of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, or the row of a database; empty for an option.
    pub file: Arc<Path>,
    /// The line, from 1 on; 0 in a row without lines, and for an option.
    pub line: usize,
    /// The key with the tables around it, as in `listener[0].listen`. Arrays count from 0. An option has the
    /// key that sets the same value in a file.
    pub key: String,
}

impl Place {
    /// The option of a command line that sets the value of this key.
    pub fn option(key: &str) -> Self {
        Self { file: Path::new("").into(), line: 0, key: key.to_owned() }
    }

    /// Whether this is an option of a command line.
    pub fn is_option(&self) -> bool {
        self.file.as_os_str().is_empty()
    }

    /// The name of another setting, as the user of this place writes it: the key `key` of the same table, or
    /// its option.
    pub fn word(&self, key: &str) -> String {
        if self.is_option() { option(key) } else { key.to_owned() }
    }

    /// A fault at this place.
    pub fn fault(&self, what: impl Into<String>, advice: impl Into<String>) -> Fault {
        Fault { place: Some(self.clone()), file: None, what: what.into(), advice: advice.into() }
    }

    /// Whether a fault may hide a part of this table from the reader. The key of the part begins with `part`;
    /// the empty one is the whole table. A fault of the syntax hides all tables of its file.
    pub fn is_hidden_by(&self, fault: &Fault, part: &str) -> bool {
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

/// The option that sets the value of a key: the key `registry.outage_age` has `--registry-outage-age`. Options
/// are for one listener, one certificate and one server, so these tables do not count. An option has the name
/// of its table if the key says no more.
fn option(key: &str) -> String {
    let words =
        key.split('.').filter(|word| !word.starts_with("listener[") && !word.starts_with("certificate["));
    let words = words.filter(|word| *word != "server").map(|word| word.split('[').next().unwrap_or(word));
    let words: Vec<_> = words.map(|word| word.replace('_', "-")).collect();
    match words.as_slice() {
        [] => "options".to_owned(),
        [table, key] if key == "url" => format!("--{table}"),
        words => format!("--{}", words.join("-")),
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_option() {
            return f.write_str(&option(&self.key));
        }
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
    /// The place of the fault; `None` if no line of a file and no option is at fault.
    pub place: Option<Place>,
    /// The file that the place names, if the fault is in its content.
    pub file: Option<PathBuf>,
    /// The description of the fault.
    pub what: String,
    /// The allowed values, or the remedy.
    pub advice: String,
}

impl Fault {
    /// A fault outside the lines of a file.
    pub fn elsewhere(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { place: None, file: None, what: what.into(), advice: advice.into() }
    }

    /// A fault of a whole file.
    pub fn of_file(path: &Path, what: impl fmt::Display, advice: impl Into<String>) -> Self {
        Self { file: Some(path.to_owned()), ..Self::elsewhere(what.to_string(), advice) }
    }

    /// The description, after the file whose content is at fault.
    pub fn description(&self) -> String {
        let file = self.file.as_ref().map(|file| format!("{}: ", file.display())).unwrap_or_default();
        format!("{file}{}", self.what)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
        // A text from a file must not break the line or command the terminal.
        let line = format!("{place}{}; {}", self.description(), self.advice);
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
    pub fn none_in(faults: Vec<Fault>) -> Result<(), Self> {
        if faults.is_empty() { Ok(()) } else { Err(Self::sorted(faults)) }
    }

    /// The faults, in the order of their places.
    pub fn sorted(mut faults: Vec<Fault>) -> Self {
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
    /// The value of an option: that of `key` in a file.
    pub fn option(key: &str, value: T) -> Self {
        Self { value, place: Place::option(key) }
    }

    /// The field with another value.
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Field<U> {
        Field { value: of(self.value), place: self.place }
    }
}

/// A file that a setting names. In a configuration it is relative to the configuration's directory.
pub type FileField = Field<PathBuf>;

impl FileField {
    /// The file of this name in a directory.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> Self {
        Self { value: self.value.join(name), place: self.place.clone() }
    }
}

/// The files of an option, which may be repeated: those of `key` in a file.
pub fn options<'a>(
    key: &str,
    files: impl IntoIterator<Item = &'a PathBuf>,
) -> impl Iterator<Item = FileField> {
    files.into_iter().map(|file| Field::option(key, file.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_has_the_words_of_its_key() {
        for (key, word) in [
            ("vc_issuers", "--vc-issuers"),
            ("listener[0].server.ca[1]", "--ca"),
            ("listener[0].certificate[0].chain", "--chain"),
            ("listener[0].psk.file", "--psk-file"),
            ("listener[0].server.registry.url", "--registry"),
            ("registry.outage_age", "--registry-outage-age"),
            ("listener[0]", "options"),
        ] {
            assert_eq!(Place::option(key).to_string(), word, "{key}");
        }
        let line = Place { file: Path::new("a.toml").into(), line: 7, key: "x.vc".to_owned() };
        let [of_line, of_option] = [line, Place::option("vc")].map(|place| place.word("did_documents"));
        assert_eq!([of_line, of_option], ["did_documents", "--did-documents"]);
    }
}
