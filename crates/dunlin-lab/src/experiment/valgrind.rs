//! Instructions by valgrind's callgrind.
//!
//! Valgrind's processor has AES-NI and AVX2, but no SHA extensions and no AVX-512, so counts compare only with
//! counts.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::Error;

pub(super) const PROGRAM: &str = "valgrind";
pub(super) const ADVICE: &str = "install it to have instructions and heap counted: apt-get install valgrind";

pub(super) fn failed(why: impl Display) -> Error {
    Error::new(PROGRAM, why, ADVICE)
}

/// The file to which callgrind writes its counts.
pub(super) struct Counts(TempDir);

impl Counts {
    pub(super) fn new() -> Result<Self, Error> {
        tempfile::tempdir().map(Self).map_err(failed)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("counts")
    }

    /// The options that count in functions of these patterns.
    pub(super) fn options(&self, functions: impl IntoIterator<Item = String>) -> Vec<OsString> {
        let mut file = OsString::from("--callgrind-out-file=");
        file.push(self.path());
        let options = ["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"].map(OsString::from);
        let toggles = functions.into_iter().map(|name| format!("--toggle-collect={name}").into());
        options.into_iter().chain([file]).chain(toggles).collect()
    }

    /// The instructions of a function, and of all that it has called.
    pub(super) fn of(&self, function: &str) -> Result<f64, Error> {
        match inclusive(&fs::read_to_string(self.path()).map_err(failed)?, function) {
            0 => Err(failed(format_args!("it has not seen {function}: was this program stripped?"))),
            sum => Ok(sum as f64),
        }
    }
}

/// The inclusive cost of a function: its own, and that of all its calls. Callgrind's format has a block for
/// each function, with a line for its own cost at each place, and one for the cost of each of its calls.
fn inclusive(counts: &str, function: &str) -> u64 {
    let mut inside = false;
    let mut sum = 0;
    for line in counts.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            inside = name.contains(function);
        } else if inside && line.starts_with(|first: char| first.is_ascii_digit()) {
            sum += line.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok()).unwrap_or_default();
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_include_called_functions() {
        let counts = "events: Ir\n\nfn=main\n5 9\ncfn=a::work_of_the_client\ncalls=1 7\n6 100\n\n\
                      fn=a::work_of_the_client\n7 3\nfi=other.rs\n8 2\ncfn=b\ncalls=2 9\n8 95\n\nfn=b\n9 95\n\ntotals: 109\n";
        assert_eq!(inclusive(counts, "work_of_the_client"), 100);
        assert_eq!(inclusive(counts, "work_of_the_server"), 0);
    }
}
