//! Reads tables of TOML key by key, and collects every fault.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::faults::{Fault, Place};

/// A text of TOML, with the faults found in it so far.
pub(super) struct Text<'a> {
    file: Arc<str>,
    text: &'a str,
    faults: &'a RefCell<Vec<Fault>>,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) place: Place,
    pub(super) key: String,
}

impl<T> At<T> {
    pub(super) fn fault(&self, what: impl Display) -> Fault {
        Fault { place: self.place.clone(), key: self.key.clone(), what: what.to_string() }
    }

    pub(super) fn map<U>(self, of: impl FnOnce(T) -> U) -> At<U> {
        At { value: of(self.value), place: self.place, key: self.key }
    }
}

/// A table whose keys are known.
pub(super) struct Section<'t, 'a> {
    text: &'t Text<'a>,
    table: &'t DeTable<'a>,
    /// Its key, with the tables around it.
    path: String,
    place: Place,
}

impl<'a> Text<'a> {
    /// Parses a text. Faults of the syntax end it.
    pub(super) fn parse(
        file: Arc<str>,
        text: &'a str,
        faults: &'a RefCell<Vec<Fault>>,
    ) -> (Self, Option<Spanned<DeTable<'a>>>) {
        let this = Self { file, text, faults };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let line = error.span().map_or(1, |span| this.line(span.start));
            let message = error.message().lines().next().unwrap_or_default();
            let place = Place { file: Arc::clone(&this.file), line };
            this.tell(Fault { place, key: String::new(), what: message.to_owned() });
        }
        (this, errors.is_empty().then_some(table))
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }

    fn place<T>(&self, value: &Spanned<T>) -> Place {
        Place { file: Arc::clone(&self.file), line: self.line(value.span().start) }
    }

    fn tell(&self, fault: Fault) {
        self.faults.borrow_mut().push(fault);
    }

    /// The table of the whole text.
    pub(super) fn root<'t>(&'t self, table: &'t Spanned<DeTable<'a>>) -> Section<'t, 'a> {
        let place = Place { file: Arc::clone(&self.file), line: 1 };
        Section { text: self, table: table.get_ref(), path: String::new(), place }
    }
}

impl<'t, 'a> Section<'t, 'a> {
    /// The same table under this name, if it has none.
    pub(super) fn named(mut self, name: &str) -> Self {
        if self.path.is_empty() {
            name.clone_into(&mut self.path);
        }
        self
    }

    /// Where the table begins.
    pub(super) fn here(&self) -> At<()> {
        At { value: (), place: self.place.clone(), key: self.path.clone() }
    }

    /// Reports every key that is not among `known`. `also` accepts further ones.
    pub(super) fn expect(&self, known: &[&str], also: impl Fn(&str) -> bool) {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) && !also(name) {
                let place = self.text.place(key);
                let what = format!("unknown key; use {}", known.join(", "));
                self.text.tell(Fault { place, key: self.path_of(name), what });
            }
        }
    }

    pub(super) fn tell(&self, fault: Fault) {
        self.text.tell(fault);
    }

    fn path_of(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// Its keys, in alphabetical order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.table.keys().map(|key| key.get_ref().as_ref())
    }

    fn value(&self, key: &str) -> Option<At<&'t DeValue<'a>>> {
        let (name, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        // A table's own span may begin at its header or behind it; its name is always at the right line.
        let place = if value.get_ref().is_table() { self.text.place(name) } else { self.text.place(value) };
        Some(At { value: value.get_ref(), place, key: self.path_of(key) })
    }

    /// The value of a key if `of` accepts it; `expected` says what is allowed.
    fn get<T>(
        &self,
        key: &str,
        expected: impl Display,
        of: impl FnOnce(&'t DeValue<'a>) -> Option<T>,
    ) -> Option<At<T>> {
        let found = self.value(key)?;
        match of(found.value) {
            Some(value) => Some(At { value, place: found.place, key: found.key }),
            None => {
                self.tell(found.fault(format!("{}; {expected}", shown(found.value))));
                None
            }
        }
    }

    pub(super) fn string(&self, key: &str) -> Option<At<String>> {
        self.get(key, "give a text in quotes", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn boolean(&self, key: &str) -> Option<At<bool>> {
        self.get(key, "give true or false", DeValue::as_bool)
    }

    pub(super) fn integer(&self, key: &str, range: RangeInclusive<i64>) -> Option<At<i64>> {
        let expected = format!("give an integer from {} to {}", range.start(), range.end());
        self.get(key, expected, |value| integer(value).filter(|number| range.contains(number)))
    }

    /// One of these words.
    pub(super) fn choice<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Option<At<T>> {
        let expected = format!("use {}", words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", "));
        self.get(key, expected, |value| {
            let text = value.as_str()?;
            words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
        })
    }

    /// A duration in seconds: a number of seconds, or `90s`, `15m`, `12h`, `30d`.
    pub(super) fn duration(&self, key: &str) -> Option<At<u32>> {
        let expected =
            "give seconds, or a text such as \"90s\", \"15m\", \"12h\" or \"30d\", at most 136 years";
        self.get(key, expected, |value| match value.as_str() {
            Some(text) => duration(text),
            None => integer(value).and_then(|seconds| seconds.try_into().ok()),
        })
    }

    /// A text, or a list of texts that is not empty.
    pub(super) fn strings(&self, key: &str) -> Vec<At<String>> {
        let expected = "give a text or a list of texts";
        let found = self.get(key, expected, |value| match (value.as_str(), value.as_array()) {
            (Some(text), _) => Some(vec![text.to_owned()]),
            (_, Some(array)) if !array.is_empty() => {
                array.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect()
            }
            _ => None,
        });
        let places = self.table.iter().find(|(name, _)| name.get_ref() == key);
        let places = places.and_then(|(_, value)| value.get_ref().as_array());
        let Some(found) = found else { return Vec::new() };
        let At { value, place, key } = found;
        let of = |(i, value)| {
            let item = places.and_then(|array| array.get(i)).map(|item| self.text.place(item));
            At { value, place: item.unwrap_or_else(|| place.clone()), key: key.clone() }
        };
        value.into_iter().enumerate().map(of).collect()
    }

    /// A list of names, each one of `known`.
    pub(super) fn names<T: Copy + Display + PartialEq>(
        &self,
        key: &str,
        known: &[T],
        of: impl Fn(&str) -> Option<T>,
    ) -> Vec<At<T>> {
        let mut names: Vec<At<T>> = Vec::new();
        for item in self.strings(key) {
            match of(&item.value).filter(|name| known.contains(name)) {
                Some(name) if names.iter().any(|other| other.value == name) => {
                    self.tell(item.fault(format!("{name} twice; remove one of the two")));
                }
                Some(name) => names.push(item.map(|_| name)),
                None => {
                    let known = known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                    self.tell(item.fault(format!("unknown name {:?}; use {known}", item.value)));
                }
            }
        }
        names
    }

    /// A table.
    pub(super) fn section(&self, key: &str) -> Option<Section<'t, 'a>> {
        let found =
            self.get(key, format_args!("give a table, [{}]", self.path_of(key)), DeValue::as_table)?;
        Some(Section { text: self.text, table: found.value, path: found.key, place: found.place })
    }

    /// The tables inside a table, by name.
    pub(super) fn sections(&self, key: &str) -> Vec<(String, Section<'t, 'a>)> {
        let Some(outer) = self.section(key) else { return Vec::new() };
        let names: Vec<String> = outer.keys().map(str::to_owned).collect();
        names.into_iter().filter_map(|name| Some((name.clone(), outer.section(&name)?))).collect()
    }

    /// A list of tables.
    pub(super) fn list(&self, key: &str) -> Vec<Section<'t, 'a>> {
        let expected = format!("give tables, each under [[{}]]", self.path_of(key));
        let Some(found) = self.get(key, expected, DeValue::as_array) else { return Vec::new() };
        let mut sections = Vec::new();
        for (i, item) in found.value.iter().enumerate() {
            let path = format!("{}[{i}]", found.key);
            let place = self.text.place(item);
            match item.get_ref().as_table() {
                Some(table) => sections.push(Section { text: self.text, table, path, place }),
                None => self.tell(Fault { place, key: path, what: "not a table; give [[table]]s".into() }),
            }
        }
        sections
    }
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Reads `90s`, `15m`, `12h` or `30d`, in seconds.
fn duration(text: &str) -> Option<u32> {
    let unit = text.chars().last()?;
    let seconds: u32 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86400,
        _ => return None,
    };
    text.strip_suffix(unit)?.parse::<u32>().ok()?.checked_mul(seconds)
}

/// A value in an error, shortened.
fn shown(value: &DeValue<'_>) -> String {
    const SHOWN: usize = 40;
    match (value.as_str(), value.as_integer(), value.as_bool()) {
        (Some(text), ..) if text.chars().count() <= SHOWN => format!("wrong value {text:?}"),
        (_, Some(number), _) => format!("wrong value {number}"),
        (_, _, Some(boolean)) => format!("wrong value {boolean}"),
        _ => format!("wrong value, a {}", value.type_str()),
    }
}
