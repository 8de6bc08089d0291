//! Tables of TOML.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::{Fault, Field, FileField, Place, Source};

/// The maximum number of characters of a value that an error repeats.
const MAX_SHOWN: usize = 40;

/// A kind of value, in words.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// With an article.
    pub(crate) name: &'static str,
    /// The allowed values, as an imperative clause.
    pub(crate) allowed: &'static str,
}

const TEXT: Kind = Kind { name: "a text", allowed: "write it in quotation marks" };
pub(crate) const SWITCH: Kind = Kind { name: "a switch", allowed: "write true or false" };
const DURATION: Kind = Kind {
    name: "a time span of at least a millisecond",
    allowed: "write a number with a unit, as in \"500ms\", \"10s\", \"5m\", \"2h\" or \"30d\"",
};
const SECONDS: Kind = Kind {
    name: "a time span of at most 136 years",
    allowed: "write a number of seconds, or a number with a unit, as in \"90s\", \"15m\", \"12h\" or \"30d\"",
};
const FILE: Kind = Kind { name: "a file name", allowed: "write it in quotation marks" };
const TABLE: Kind =
    Kind { name: "a table", allowed: "write its keys below a line with its name in brackets" };
const TABLES: Kind =
    Kind { name: "an array of tables", allowed: "write each below a line with its name in double brackets" };

/// The longest time span in a configuration. A longer one is probably a mistake in the unit.
const MAX_DURATION: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// A table. Keys that it is not asked for are faults.
pub(crate) struct Section<'a> {
    source: &'a Source,
    table: &'a DeTable<'a>,
    place: Place,
    known: Vec<&'a str>,
    faults: &'a RefCell<Vec<Fault>>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(crate) fn top(source: &'a Source, table: &'a DeTable<'a>, faults: &'a RefCell<Vec<Fault>>) -> Self {
        let place = Place { file: source.path.clone(), line: 1, key: String::new() };
        Self { source, table, place, known: vec![], faults }
    }

    /// The same table under this name, if it has none.
    pub(crate) fn named(mut self, name: &str) -> Self {
        if self.place.key.is_empty() {
            name.clone_into(&mut self.place.key);
        }
        self
    }

    /// The place of the table itself.
    pub(crate) const fn place(&self) -> &Place {
        &self.place
    }

    /// The place of this key, or the table's place if it lacks the key.
    pub(crate) fn place_of(&self, key: &str) -> Place {
        let found = self.table.iter().find(|(name, _)| name.get_ref() == key);
        found.map_or_else(|| self.place.clone(), |(name, _)| self.child(key, name.span().start))
    }

    /// Adds a fault.
    pub(crate) fn fault(&self, fault: Fault) {
        self.faults.borrow_mut().push(fault);
    }

    fn child(&self, key: &str, offset: usize) -> Place {
        let key = match &*self.place.key {
            "" => key.to_owned(),
            table => format!("{table}.{key}"),
        };
        Place { file: self.source.path.clone(), line: self.source.line(offset), key }
    }

    /// Returns the value of `key`, and its place.
    fn get(&mut self, key: &'a str) -> Option<(&'a DeValue<'a>, Place)> {
        self.known.push(key);
        let (name, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some((value.get_ref(), self.child(key, name.span().start)))
    }

    /// Reads a value. `parse` returns `None` if it is not of this kind.
    pub(crate) fn read<T>(
        &mut self,
        key: &'a str,
        kind: Kind,
        parse: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Option<Field<T>> {
        let (value, place) = self.get(key)?;
        match parse(value) {
            Some(value) => Some(Field { value, place }),
            None => {
                self.fault(place.fault(format!("{} is not {}", shown(value), kind.name), kind.allowed));
                None
            }
        }
    }

    /// Its keys, in alphabetical order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let table: &'a DeTable<'a> = self.table;
        table.keys().map(|key| &**key.get_ref())
    }

    /// Whether the file contains a value for `key`, valid or not.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.iter().any(|(name, _)| name.get_ref() == key)
    }

    /// The number of values, valid or not, that the file contains for `key`: the length of an array,
    /// otherwise one.
    pub(crate) fn length(&self, key: &str) -> usize {
        let value =
            self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value.get_ref());
        value.map_or(0, |value| value.as_array().map_or(1, |array| array.len()))
    }

    /// Demands a value that the file does not contain.
    pub(crate) fn missing(&self, key: &str, advice: &str) {
        let what = format!("{key} is missing");
        self.fault(self.place.fault(what, advice));
    }

    pub(crate) fn text(&mut self, key: &'a str) -> Option<Field<String>> {
        let parse = |value: &DeValue<'_>| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        self.read(key, TEXT, parse)
    }

    pub(crate) fn switch(&mut self, key: &'a str) -> Option<bool> {
        self.read(key, SWITCH, DeValue::as_bool).map(|field| field.value)
    }

    /// Reads a number between these two, inclusive. `kind` names the bounds.
    pub(crate) fn number(&mut self, key: &'a str, kind: Kind, min: u64, max: u64) -> Option<u64> {
        let parse = |value: &DeValue<'_>| {
            integer(value)?.try_into().ok().filter(|number| (min..=max).contains(number))
        };
        self.read(key, kind, parse).map(|field| field.value)
    }

    /// Reads an integer within this range, which `kind` names.
    pub(crate) fn integer(
        &mut self,
        key: &'a str,
        kind: Kind,
        range: RangeInclusive<i64>,
    ) -> Option<Field<i64>> {
        self.read(key, kind, |value| integer(value).filter(|number| range.contains(number)))
    }

    pub(crate) fn duration(&mut self, key: &'a str) -> Option<Duration> {
        self.read(key, DURATION, |value| duration(value.as_str()?)).map(|field| field.value)
    }

    /// Reads a time span in seconds: a number of seconds, or a text with a unit.
    pub(crate) fn seconds(&mut self, key: &'a str) -> Option<Field<u32>> {
        self.read(key, SECONDS, |value| match value.as_str() {
            Some(text) => seconds(text),
            None => integer(value)?.try_into().ok(),
        })
    }

    /// Reads a file name, relative to the directory of the configuration.
    pub(crate) fn file(&mut self, key: &'a str) -> Option<FileField> {
        let source = self.source;
        self.read(key, FILE, |value| {
            value.as_str().filter(|path| !path.is_empty()).map(|path| source.resolve(path))
        })
    }

    /// The path, relative to the directory of the configuration.
    pub(crate) fn resolve(&self, path: &str) -> PathBuf {
        self.source.resolve(path)
    }

    /// Reads one file name, or an array of them.
    pub(crate) fn files(&mut self, key: &'a str) -> Vec<FileField> {
        let source = self.source;
        let parse = |value: &DeValue<'_>| value.as_str().filter(|p| !p.is_empty()).map(|p| source.resolve(p));
        self.list(key, FILE, parse).unwrap_or_default()
    }

    /// Reads one value, or an array of them.
    pub(crate) fn list<T>(
        &mut self,
        key: &'a str,
        kind: Kind,
        parse: impl Fn(&'a DeValue<'a>) -> Option<T>,
    ) -> Option<Vec<Field<T>>> {
        let (value, place) = self.get(key)?;
        let Some(values) = value.as_array() else {
            return match parse(value) {
                Some(value) => Some(vec![Field { value, place }]),
                None => {
                    self.fault(place.fault(format!("{} is not {}", shown(value), kind.name), kind.allowed));
                    None
                }
            };
        };
        let mut list = vec![];
        for (i, value) in values.iter().enumerate() {
            let place = Place {
                line: self.source.line(value.span().start),
                key: format!("{}[{i}]", place.key),
                ..place.clone()
            };
            match parse(value.get_ref()) {
                Some(value) => list.push(Field { value, place }),
                None => {
                    let what = format!("{} is not {}", shown(value.get_ref()), kind.name);
                    self.fault(place.fault(what, kind.allowed));
                }
            }
        }
        Some(list)
    }

    /// Reads one text, or an array of them, which must not be empty.
    pub(crate) fn texts(&mut self, key: &'a str) -> Vec<Field<String>> {
        let texts = self.list(key, TEXT, |value| value.as_str().map(str::to_owned));
        if let Some((_, value)) = self.table.iter().find(|(name, _)| name.get_ref() == key)
            && value.get_ref().as_array().is_some_and(|array| array.is_empty())
        {
            let place = self.child(key, value.span().start);
            self.fault(place.fault("the array is empty", "write a text, or leave the key out"));
        }
        texts.unwrap_or_default()
    }

    /// Reads one name, or an array of names, each once and among `known`.
    pub(crate) fn names<T: Copy + Display + PartialEq>(
        &mut self,
        key: &'a str,
        known: &[T],
        of: impl Fn(&str) -> Option<T>,
    ) -> Vec<Field<T>> {
        let mut names: Vec<Field<T>> = Vec::new();
        for text in self.texts(key) {
            match of(&text.value).filter(|name| known.contains(name)) {
                Some(name) if names.iter().any(|other| other.value == name) => {
                    self.fault(text.place.fault(format!("{name} twice"), "remove one of the two"));
                }
                Some(name) => names.push(text.map(|_| name)),
                None => {
                    let known = known.iter().map(ToString::to_string).collect::<Vec<_>>();
                    let what = format!("unknown name {:?}", text.value);
                    self.fault(text.place.fault(what, format!("write {}", or(&known))));
                }
            }
        }
        names
    }

    /// Reads one of these words.
    pub(crate) fn one_of<T: Copy>(&mut self, key: &'a str, words: &[(&str, T)]) -> Option<T> {
        self.word(key, words).map(|field| field.value)
    }

    /// Reads one of these words.
    pub(crate) fn word<T: Copy>(&mut self, key: &'a str, words: &[(&str, T)]) -> Option<Field<T>> {
        let (value, place) = self.get(key)?;
        let word = value.as_str().and_then(|text| words.iter().find(|(word, _)| *word == text));
        if word.is_none() {
            let allowed: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            self.fault(place.fault(
                format!("{} is none of the allowed words", shown(value)),
                format!("write {}", or(&allowed)),
            ));
        }
        word.map(|(_, value)| Field { value: *value, place })
    }

    /// The table under this key.
    pub(crate) fn table(&mut self, key: &'a str) -> Option<Section<'a>> {
        let (value, place) = self.get(key)?;
        let Some(table) = value.as_table() else {
            self.fault(place.fault(format!("{} is not {}", shown(value), TABLE.name), TABLE.allowed));
            return None;
        };
        Some(Section { source: self.source, table, place, known: vec![], faults: self.faults })
    }

    /// The tables of the array under this key.
    pub(crate) fn tables(&mut self, key: &'a str) -> Vec<Section<'a>> {
        let Some((value, place)) = self.get(key) else { return vec![] };
        let tables: Option<Vec<_>> = value
            .as_array()
            .map(|array| {
                let table = |(i, value): (usize, &'a toml::Spanned<DeValue<'a>>)| {
                    let line = self.source.line(value.span().start);
                    let place = Place { line, key: format!("{}[{i}]", place.key), ..place.clone() };
                    value.get_ref().as_table().map(|table| (table, place))
                };
                array.iter().enumerate().map(table).collect()
            })
            .unwrap_or_default();
        let Some(tables) = tables else {
            self.fault(place.fault(format!("{} is not {}", shown(value), TABLES.name), TABLES.allowed));
            return vec![];
        };
        let section = |(table, place)| Section {
            source: self.source,
            table,
            place,
            known: vec![],
            faults: self.faults,
        };
        tables.into_iter().map(section).collect()
    }

    /// Reports the keys that were not asked for.
    pub(crate) fn end(self) {
        for (name, _) in self.table.iter() {
            let key: &str = name.get_ref();
            if self.known.contains(&key) {
                continue;
            }
            let place = self.child(key, name.span().start);
            let allowed = or(&self.known.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
            self.fault(place.fault("unknown key", format!("allowed here: {allowed}")));
        }
    }
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// The words, separated by commas and "or".
fn or(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// The value as an error repeats it.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() > MAX_SHOWN => {
            format!("\"{}…\"", text.chars().take(MAX_SHOWN).collect::<String>())
        }
        DeValue::String(text) => format!("\"{text}\""),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(switch) => switch.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Reads a time span with its unit.
fn duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(end)?;
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 24 * 3600 * 1000,
        _ => return None,
    };
    let span = Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(milliseconds)?);
    (Duration::from_millis(1)..=MAX_DURATION).contains(&span).then_some(span)
}

/// Reads `90s`, `15m`, `12h` or `30d`, in seconds.
fn seconds(text: &str) -> Option<u32> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds: u32 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return None,
    };
    number.parse::<u32>().ok()?.checked_mul(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_seconds_with_a_unit() {
        for (text, expected) in [("0s", 0), ("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000)] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for text in ["", "s", "1", "1w", "1 s", "-1s", "500ms", "49711d", "1ä"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn reads_time_spans_with_a_unit() {
        for (text, milliseconds) in
            [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(duration(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "10", "s", "10 s", "-1s", "0s", "1w", "99999999999999999999s", "4000d"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
