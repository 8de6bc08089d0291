//! The results of an experiment: as a table, as JSON to write and read, and as a page with plots ([`page`]).

mod compare;
mod html;
mod names;
mod origin;
mod plot;
mod read;
mod table;
mod view;

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

pub use html::{About, page};
pub use origin::{Machine, now, versions};

/// An experiment's rows, and the data to repeat it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// The name of the experiment.
    #[serde(deserialize_with = "read::text")]
    pub experiment: String,
    /// Dunlin's version.
    #[serde(deserialize_with = "read::text")]
    pub version: String,
    /// Dunlin's build: its profile, and the feature that adds rows.
    #[serde(default, deserialize_with = "read::text", skip_serializing_if = "String::is_empty")]
    pub build: String,
    /// The start of the run in UTC (RFC 3339).
    #[serde(default, deserialize_with = "read::text", skip_serializing_if = "String::is_empty")]
    pub date: String,
    /// The machine of the run.
    pub machine: Machine,
    /// The versions of the measured programs and libraries, by the name of Debian's package.
    #[serde(default, deserialize_with = "read::texts", skip_serializing_if = "BTreeMap::is_empty")]
    pub packages: BTreeMap<String, String>,
    /// The command that repeats the run, with all its arguments.
    #[serde(deserialize_with = "read::text")]
    pub command: String,
    /// The seed of all random choices.
    pub seed: u64,
    /// The number of measurements of each row.
    pub runs: u32,
    /// Why the run ended before all rows were measured; empty for a complete one.
    #[serde(default, deserialize_with = "read::text", skip_serializing_if = "String::is_empty")]
    pub incomplete: String,
    /// The results.
    #[serde(deserialize_with = "read::rows")]
    pub rows: Vec<Row>,
}

impl Report {
    /// Makes a report of an experiment that starts now on this machine, without other programs.
    pub fn new(experiment: &str, command: String, seed: u64, runs: u32, rows: Vec<Row>) -> Self {
        Self {
            experiment: experiment.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: origin::build().to_owned(),
            date: now(),
            machine: Machine::this(),
            packages: BTreeMap::new(),
            command,
            seed,
            runs,
            incomplete: String::new(),
            rows,
        }
    }

    /// The runs behind the figures.
    fn basis(&self) -> String {
        let quick = if self.command.split_whitespace().any(|word| word == "--quick") { "quick " } else { "" };
        match self.runs {
            0 | 1 => format!("one {quick}run"),
            runs => format!("medians of {runs} {quick}runs"),
        }
    }
}

/// The prefix of a paper's figure.
const PAPER: &str = "paper_";
/// The suffixes of a figure's mean, least and greatest value.
const STATISTICS: [&str; 3] = ["_mean", "_min", "_max"];

/// The parameters and figures of one case, in their order. Names include units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row(Vec<Entry>);

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    name: String,
    value: Value,
    kind: Kind,
}

/// The role of an entry in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A column that distinguishes rows.
    Parameter,
    /// A column with a figure: the median, or the paper's value.
    Figure,
    /// Only for scripts.
    Detail,
}

impl Row {
    /// Makes an empty row.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(self, name: &str, value: impl Into<Value>) -> Self {
        self.entry(name.to_owned(), value.into(), Kind::Parameter)
    }

    /// Adds a parameter that not all rows have.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds the measurements of `name`, which ends in its unit: the median under that name, and mean, least
    /// and greatest value with suffixes. Adds nothing without measurements.
    #[must_use]
    pub fn figure(self, name: &str, measured: &[f64]) -> Self {
        let mut sorted = measured.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else { return self };
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        let details = STATISTICS.into_iter().zip([mean, *min, *max]);
        let row = self.entry(name.to_owned(), number(median(&sorted)), Kind::Figure);
        details.fold(row, |row, (suffix, value)| {
            row.entry(format!("{name}{suffix}"), number(value), Kind::Detail)
        })
    }

    /// Adds the paper's value of the figure `name`, if it has one.
    #[must_use]
    pub fn paper(self, name: &str, value: impl Into<Option<f64>>) -> Self {
        match value.into() {
            Some(value) => self.entry(format!("{PAPER}{name}"), number(value), Kind::Figure),
            None => self,
        }
    }

    /// Returns the value of a parameter or figure.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|entry| entry.name == name).map(|entry| &entry.value)
    }

    /// Returns whether it has this parameter or figure.
    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns whether a parameter has this value in the table.
    fn is(&self, name: &str, value: &str) -> bool {
        self.get(name).is_some_and(|of| shown(of) == value)
    }

    /// Returns the value of a figure.
    fn number(&self, name: &str) -> Option<f64> {
        self.get(name).and_then(Value::as_f64)
    }

    /// Returns the parameters and their values.
    fn parameters(&self) -> impl Iterator<Item = (&str, &Value)> {
        let parameters = self.0.iter().filter(|entry| entry.kind == Kind::Parameter);
        parameters.map(|entry| (entry.name.as_str(), &entry.value))
    }

    fn entry(mut self, name: String, value: Value, kind: Kind) -> Self {
        self.0.push(Entry { name, value, kind });
        self
    }
}

/// The median of measurements; zero without any.
pub(crate) fn median_of(measured: &[f64]) -> f64 {
    let mut sorted = measured.to_vec();
    sorted.sort_by(f64::total_cmp);
    median(&sorted)
}

/// The middle value of `sorted`, or the mean of the two middle ones.
fn median(sorted: &[f64]) -> f64 {
    let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { at(half) } else { f64::midpoint(at(half.saturating_sub(1)), at(half)) }
}

/// Shows whole numbers, such as bytes and packets, without decimals.
fn number(value: f64) -> Value {
    /// Below this limit an `f64` represents every whole number.
    const EXACT: f64 = (1_u64 << 53) as f64;
    if value.fract() == 0.0 && value.abs() < EXACT { Value::from(value as i64) } else { Value::from(value) }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for Entry { name, value, .. } in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table::write(&self.rows, f)
    }
}

/// The names of all columns: parameters first, otherwise in the order of the rows.
fn columns<'a>(rows: impl IntoIterator<Item = &'a Row, IntoIter: Clone>) -> Vec<(&'a str, Kind)> {
    let rows = rows.into_iter();
    let mut columns: Vec<(&str, Kind)> = Vec::new();
    for kind in [Kind::Parameter, Kind::Figure] {
        for entry in rows.clone().flat_map(|row| &row.0).filter(|entry| entry.kind == kind) {
            if !columns.iter().any(|(name, _)| *name == entry.name) {
                columns.push((&entry.name, kind));
            }
        }
    }
    columns
}

/// The parameters that all rows share, if there are several rows.
fn common<'a>(rows: impl IntoIterator<Item = &'a Row, IntoIter: Clone>) -> Vec<(&'a str, &'a Value)> {
    let mut others = rows.into_iter();
    let (Some(first), Some(_)) = (others.next(), others.clone().next()) else { return Vec::new() };
    first
        .parameters()
        .filter(|(name, value)| others.clone().all(|row| row.get(name) == Some(*value)))
        .collect()
}

/// Formats a value of the table with three decimals unless it is whole. For milliseconds that is a
/// microsecond.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("{:.3}", number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}

/// Formats a value of the page without trailing zeros, since decimal points need not be aligned there.
fn concise(value: &Value) -> String {
    let text = shown(value);
    if value.is_f64() { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(rows: Vec<Row>) -> Report {
        Report::new("caching", "dunlin-lab run caching".into(), 7, 3, rows)
    }

    #[test]
    fn json_contains_all_rows() {
        let row = Row::new()
            .with("stack", "dunlin")
            .with("mtu", 127)
            .figure("total_bytes", &[2200.0, 2100.0, 2100.0])
            .paper("total_bytes", 2726.0)
            .figure("client_us", &[1.5, 2.25]);
        let json = serde_json::to_value(report(vec![row])).unwrap();
        assert_eq!(json["experiment"], "caching");
        assert_eq!(
            (&json["command"], &json["seed"], &json["runs"]),
            (&json!("dunlin-lab run caching"), &json!(7), &json!(3))
        );
        assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
        assert!(json["machine"]["cores"].as_u64() > Some(0));
        assert!(json["date"].as_str().unwrap().ends_with('Z'), "{json}");
        let build = json["build"].as_str().unwrap();
        assert_eq!(build.contains("legacy-lab"), cfg!(feature = "legacy-lab"), "{build}");
        assert_eq!(build.starts_with("debug"), cfg!(debug_assertions), "{build}");
        let expected = json!({
            "stack": "dunlin", "mtu": 127,
            "total_bytes": 2100, "total_bytes_mean": 6400.0 / 3.0, "total_bytes_min": 2100, "total_bytes_max": 2200,
            "paper_total_bytes": 2726,
            "client_us": 1.875, "client_us_mean": 1.875, "client_us_min": 1.5, "client_us_max": 2.25,
        });
        assert_eq!(json["rows"], json!([expected]));
    }

    #[test]
    fn table_has_parameters_to_the_left() {
        let rows = vec![
            Row::new().with("stack", "dunlin").figure("total_bytes", &[4.0]).with("mtu", 1500),
            Row::new().with("stack", "wolfssl").with("mtu", 127).figure("client_us", &[0.5]),
        ];
        let expected = "\
stack    mtu   total_bytes  client_us
dunlin   1500            4
wolfssl  127                    0.500
";
        assert_eq!(report(rows).to_string(), expected);
    }

    #[test]
    fn shows_nothing_without_measurements() {
        assert_eq!(Row::new().figure("client_us", &[]), Row::new());
    }
}
