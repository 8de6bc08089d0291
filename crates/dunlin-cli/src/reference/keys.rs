//! Keeps docs/configuration-keys.md equal to the keys that the gateway, the tunnel and policies read.
//!
//! The readers themselves say which keys they know: a fault about an unknown key names the allowed ones, and a
//! fault about a value says what the key takes. The test asks for every table in this way.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use dunlin_gateway::{Config, Faults, TunnelConfig, policy};

use super::keep;

const INTRODUCTION: &str = "\
# Keys of configurations

The readers of the configurations make this page (`make reference`): it has every key of every table, in the order in which the program reads
them, and what it takes, in the words of the error for another value. The pages of the [gateway](gateway.md), the [tunnel](tunnel.md) and
[policies](policy.md) explain the keys and their defaults.

A time span is a number with a unit, as in `\"500ms\"`, `\"10s\"`, `\"5m\"`, `\"2h\"` or `\"30d\"`. Where the page says `NAME`, you choose the name.
";

/// A key that no table has, and a value that none takes.
const UNKNOWN: &str = "no_such_key";
const WRONG: &str = "1979-05-27";
/// Stands for a name that the user chooses.
const CHOSEN: &str = "NAME";

type Read = fn(&str) -> Result<(), Faults>;

#[test]
fn the_page_of_keys_is_that_of_the_readers() {
    let gateway: Read = |text| Config::parse("gateway.toml".as_ref(), text).map(drop);
    let tunnel: Read = |text| TunnelConfig::parse("tunnel.toml".as_ref(), text).map(drop);
    let policy: Read = |text| policy::parse("policy.toml", text).map(drop);
    let mut page = INTRODUCTION.to_owned();
    for (title, read) in [("The gateway", gateway), ("The tunnel", tunnel), ("Policies", policy)] {
        let _ = write!(page, "\n## {title}\n");
        Table { read, path: vec![] }.write(&mut page);
    }
    keep("configuration-keys.md", &page);
}

/// A table of a configuration: the names that lead to it, each with whether it is an array of tables.
struct Table {
    read: Read,
    path: Vec<(String, bool)>,
}

impl Table {
    /// Writes the keys of this table, and then the tables below it.
    fn write(&self, page: &mut String) {
        let Some(keys) = self.keys() else { return self.below(CHOSEN, false).write(page) };
        let mut tables = vec![];
        let mut rows = String::new();
        for key in keys {
            let (what, advice) = self.fault(&format!("{key} = {WRONG}"), &key).unwrap_or_default();
            if what.ends_with(" is not a table") {
                tables.push(self.below(&key, false));
            } else if what.ends_with(" is not an array of tables") {
                tables.push(self.below(&key, true));
            } else {
                let value = match what.strip_prefix(WRONG).and_then(|rest| rest.strip_prefix(" is not ")) {
                    Some(kind) if advice.starts_with("write ") => format!("{kind}; {advice}"),
                    Some(kind) => kind.to_owned(),
                    None => advice,
                };
                let _ = writeln!(rows, "| `{key}` | {} |", value.replace('|', "\\|"));
            }
        }
        if !rows.is_empty() {
            if !self.path.is_empty() {
                let _ = write!(page, "\n### `{}`\n", self.headings().last().unwrap());
            }
            let _ = write!(page, "\n| key | value |\n| --- | --- |\n{rows}");
        }
        tables.iter().for_each(|table| table.write(page));
    }

    fn below(&self, key: &str, is_array: bool) -> Self {
        let path = self.path.iter().cloned().chain([(key.to_owned(), is_array)]).collect();
        Self { read: self.read, path }
    }

    /// The lines that begin this table and those around it.
    fn headings(&self) -> Vec<String> {
        let names: Vec<_> = self.path.iter().map(|(name, _)| name.as_str()).collect();
        let heading = |(i, (_, is_array)): (usize, &(String, bool))| {
            let name = names[..=i].join(".");
            if *is_array { format!("[[{name}]]") } else { format!("[{name}]") }
        };
        self.path.iter().enumerate().map(heading).collect()
    }

    /// The keys of the table; `None` if it has tables with names that the user chooses.
    fn keys(&self) -> Option<Vec<String>> {
        let (what, advice) = self.fault(&format!("{UNKNOWN} = {WRONG}"), UNKNOWN).unwrap();
        if what != "unknown key" {
            // The user chooses the names of these tables, or of these keys.
            return (!what.ends_with(" is not a table")).then(|| vec![CHOSEN.to_owned()]);
        }
        let allowed = advice.strip_prefix("allowed here: ").unwrap();
        let keys: Vec<_> =
            allowed.split(", ").flat_map(|part| part.split(" or ")).map(str::to_owned).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{allowed}");
        Some(keys)
    }

    /// The fault about `key` of a file with this line in the table, and its advice.
    fn fault(&self, line: &str, key: &str) -> Option<(String, String)> {
        let text = format!("{}\n{line}\n", self.headings().join("\n"));
        let faults = (self.read)(&text).err()?;
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        let of_key = |fault: &String| {
            let (place, rest) = fault.split_once(": ")?.1.split_once(": ")?;
            let (what, advice) = rest.rsplit_once("; ")?;
            let is_it = place.rsplit('.').next() == Some(key);
            is_it.then(|| (what.to_owned(), advice.to_owned()))
        };
        faults.iter().find_map(of_key)
    }
}
