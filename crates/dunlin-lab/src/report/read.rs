//! Reads a report from JSON. The file is untrusted input, so every length has a limit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::marker::PhantomData;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Entry, Kind, PAPER, Report, Row, STATISTICS};
use crate::Error;

/// The largest experiment of the lab has some thousand rows, and browsers cannot show many more.
const MAX_ROWS: usize = 10_000;
/// About 20 figures with 4 entries each are usual.
const MAX_ENTRIES: usize = 256;
/// The maximum length of a figure's name, in bytes.
const MAX_NAME: usize = 64;
/// The maximum length of other texts, in bytes: enough for a command with many long paths.
const MAX_TEXT: usize = 4096;
/// Larger than any time, size or count. Sums and ratios of smaller numbers stay exact enough to draw.
const MAX_NUMBER: f64 = 1e15;

impl Report {
    /// Reads the output of `dunlin-lab run … --json`; `name` is the file's name.
    ///
    /// # Errors
    /// The file is not JSON, or not a report. The error names the place.
    pub fn read(name: impl Display, json: &[u8]) -> Result<Self, Error> {
        let failed = |why: String| Error::new(&name, why, "give a file that `dunlin-lab run … --json` wrote");
        let mut reader = serde_json::Deserializer::from_slice(json);
        let report = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            let error = error.inner();
            // Malformed JSON has a line, but no place in the report.
            if error.is_data() && path != "." {
                failed(format!("{path}: {error}"))
            } else {
                failed(error.to_string())
            }
        })?;
        reader.end().map_err(|error| failed(error.to_string()))?;
        Ok(report)
    }
}

/// Text of a bounded length.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    bounded(String::deserialize(deserializer)?, MAX_TEXT)
}

fn bounded<E: serde::de::Error>(text: String, limit: usize) -> Result<String, E> {
    if text.len() > limit {
        return Err(E::custom(format_args!("longer than {limit} bytes")));
    }
    Ok(text)
}

/// A bounded number of names, each with a text.
pub(super) fn texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Deserialize)]
    struct Text(#[serde(deserialize_with = "text")] String);
    let texts = deserializer.deserialize_map(Entries::<Text>("names with texts", PhantomData))?;
    Ok(texts.into_iter().map(|(name, Text(text))| (name, text)).collect())
}

/// A bounded number of distinct names, each with a value; called so in errors.
struct Entries<T>(&'static str, PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
    type Value = Vec<(String, T)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        let mut names = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let name: String = bounded(name, MAX_NAME)?;
            if entries.len() == MAX_ENTRIES {
                return Err(A::Error::custom(format_args!("more than {MAX_ENTRIES} entries")));
            }
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("two values of {name}")));
            }
            entries.push((name, map.next_value()?));
        }
        Ok(entries)
    }
}

/// A bounded number of rows.
pub(super) fn rows<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Row>, D::Error> {
    struct Rows;
    impl<'de> Visitor<'de> for Rows {
        type Value = Vec<Row>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "rows")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<Row>, A::Error> {
            let mut rows = Vec::new();
            while let Some(row) = sequence.next_element()? {
                if rows.len() == MAX_ROWS {
                    return Err(A::Error::custom(format_args!("more than {MAX_ROWS} rows")));
                }
                rows.push(row);
            }
            Ok(rows)
        }
    }
    deserializer.deserialize_seq(Rows)
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries("a row", PhantomData)).map(classified)
    }
}

/// Classifies entries. JSON does not distinguish parameters and figures, but their names do: a figure has a
/// mean.
fn classified(entries: Vec<(String, Scalar)>) -> Row {
    let numbers: BTreeSet<_> =
        entries.iter().filter(|(_, value)| value.0.is_number()).map(|(name, _)| name.clone()).collect();
    let is_figure = |name: &str| {
        numbers.contains(name) && STATISTICS.iter().all(|s| numbers.contains(&format!("{name}{s}")))
    };
    let kind = |name: &str| {
        let base = STATISTICS.iter().find_map(|suffix| name.strip_suffix(suffix));
        if base.is_some_and(is_figure) {
            Kind::Detail
        } else if is_figure(name) || (name.starts_with(PAPER) && numbers.contains(name)) {
            Kind::Figure
        } else {
            Kind::Parameter
        }
    };
    let entries = entries.into_iter().map(|(name, Scalar(value))| Entry { kind: kind(&name), name, value });
    Row(entries.collect())
}

/// A value of a cell.
struct Scalar(Value);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Cell;
        impl Visitor<'_> for Cell {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number, text, true or false")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.into()))
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Scalar, E> {
                number(value.into(), value as f64)
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Scalar, E> {
                number(value.into(), value as f64)
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Scalar, E> {
                number(value.into(), value)
            }

            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Scalar, E> {
                bounded(value.to_owned(), MAX_TEXT).map(|text| Scalar(text.into()))
            }
        }
        deserializer.deserialize_any(Cell)
    }
}

fn number<E: serde::de::Error>(value: Value, size: f64) -> Result<Scalar, E> {
    if size.abs() > MAX_NUMBER {
        return Err(E::custom(format_args!("{value} is beyond all that the lab measures")));
    }
    Ok(Scalar(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report() -> Report {
        let rows = vec![
            Row::new()
                .with("stack", "dunlin")
                .with("tag_bytes", 8)
                .with("busy", true)
                .figure("total_bytes", &[3.0, 4.0])
                .paper("total_bytes", 5.0),
            Row::new().with("stack", "wolfssl").figure("client_us", &[-0.25]),
        ];
        let packages = [("libssl-dev".to_owned(), "3.0.19-1".to_owned())].into();
        Report { packages, ..Report::new("caching", "dunlin-lab run caching".into(), 7, 2, rows) }
    }

    #[test]
    fn reads_reports_as_written() {
        let report = report();
        let json = serde_json::to_vec_pretty(&report).unwrap();
        let read = Report::read("rows.json", &json).unwrap();
        // The kinds are compared, too, because the table depends on them.
        assert_eq!(read.rows, report.rows);
        assert_eq!(serde_json::to_vec_pretty(&read).unwrap(), json);
    }

    #[test]
    fn reads_reports_of_earlier_versions() {
        let mut json = serde_json::to_value(report()).unwrap();
        for name in ["build", "date", "packages"] {
            json.as_object_mut().unwrap().remove(name).unwrap();
        }
        let read = Report::read("rows.json", &serde_json::to_vec(&json).unwrap()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), json);
    }

    /// Returns the error for a report with `value` at `pointer`.
    #[track_caller]
    fn refused(pointer: &str, value: Value) -> String {
        let mut json = serde_json::to_value(report()).unwrap();
        *json.pointer_mut(pointer).unwrap() = value;
        Report::read("rows.json", &serde_json::to_vec(&json).unwrap()).unwrap_err().why().to_owned()
    }

    #[test]
    fn error_names_the_place_of_a_fault() {
        let long = "x".repeat(MAX_TEXT + 1);
        let wrong = [
            (
                "/rows/1/client_us",
                json!([1]),
                "rows[1].client_us: invalid type: sequence, expected a number, text",
            ),
            ("/rows/0/total_bytes", json!(null), "rows[0].total_bytes: invalid type: null"),
            ("/rows/0/total_bytes", json!(1.1e15), "rows[0].total_bytes: 1100000000000000.0 is beyond"),
            ("/rows/0/stack", json!(long), "rows[0].stack: longer than 4096 bytes"),
            ("/rows/0", json!(1), "rows[0]: invalid type: integer `1`, expected a row"),
            ("/rows/0", json!({ "x".repeat(MAX_NAME + 1): 1 }), "rows[0]: longer than 64 bytes"),
            ("/rows", json!({}), "rows: invalid type: map, expected rows"),
            ("/rows", json!(vec![json!({}); MAX_ROWS + 1]), "rows: more than 10000 rows"),
            ("/runs", json!(-1), "runs: invalid value"),
            ("/command", json!(long), "command: longer than"),
            ("/machine", json!({}), "machine: missing field `processor`"),
            ("/date", json!(long), "date: longer than"),
            ("/packages", json!({ "libssl-dev": long }), "packages.libssl-dev: longer than 4096 bytes"),
            ("/packages", json!({ "x".repeat(MAX_NAME + 1): "1" }), "packages: longer than 64 bytes"),
            (
                "/packages",
                json!(["libssl-dev"]),
                "packages: invalid type: sequence, expected names with texts",
            ),
            ("", json!({}), "missing field `experiment`"),
            ("", json!(7), "invalid type: integer `7`"),
        ];
        for (pointer, value, why) in wrong {
            let told = refused(pointer, value);
            assert!(told.starts_with(why), "{told}\ninstead of\n{why}");
        }
        let entries: serde_json::Map<_, _> = (0..=MAX_ENTRIES).map(|i| (i.to_string(), json!(i))).collect();
        assert!(refused("/rows/0", entries.into()).contains("more than 256 entries"));
    }

    #[test]
    fn rejects_malformed_json() {
        let json = serde_json::to_string(&report()).unwrap();
        let twice = json.replacen("\"busy\"", "\"stack\"", 1);
        let wrong = [
            (&json[..json.len() / 2], "EOF while parsing"),
            (&format!("{json} {{"), "trailing characters"),
            ("", "EOF while parsing"),
            (&twice, "rows[0]: two values of stack"),
        ];
        for (text, why) in wrong {
            let error = Report::read("rows.json", text.as_bytes()).unwrap_err();
            assert!(error.what() == "rows.json" && error.why().contains(why), "{error}");
        }
    }
}
