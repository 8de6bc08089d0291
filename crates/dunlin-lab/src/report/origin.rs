//! The origin of a report: the time, the machine, and the versions of all programs.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::read;

/// The machine of a run. Times are meaningless without it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// The name of the processor.
    #[serde(deserialize_with = "read::text")]
    pub processor: String,
    /// The number of simultaneous threads.
    pub cores: usize,
    /// The kernel's release.
    #[serde(deserialize_with = "read::text")]
    pub kernel: String,
    /// The distribution's name.
    #[serde(deserialize_with = "read::text")]
    pub system: String,
}

impl Machine {
    /// Describes this machine; unknown fields are empty.
    pub fn this() -> Self {
        let value = |path: &str, key: &str, separator: char| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let values = text.lines().filter_map(|line| line.split_once(separator));
            let found = values
                .filter(|(name, _)| name.trim() == key)
                .map(|(_, value)| value.trim().trim_matches('"'));
            found.map(str::to_owned).next().unwrap_or_default()
        };
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor: value("/proc/cpuinfo", "model name", ':'),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
            system: value("/etc/os-release", "PRETTY_NAME", '='),
        }
    }
}

/// The current time in UTC, to the second.
pub fn now() -> String {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(0).unwrap_or(now).format(&Rfc3339).unwrap_or_default()
}

/// The profile of this build, and the feature that adds rows.
pub(super) const fn build() -> &'static str {
    match (cfg!(debug_assertions), cfg!(feature = "legacy-lab")) {
        (false, false) => "release",
        (false, true) => "release, legacy-lab",
        (true, false) => "debug",
        (true, true) => "debug, legacy-lab",
    }
}

/// The versions of these packages of Debian. Missing packages are left out; so are all on other systems.
pub fn versions(packages: &[&str]) -> BTreeMap<String, String> {
    let version = |package: &&str| {
        let mut query = Command::new("dpkg-query");
        query.args(["--show", "--showformat=${Version}", package]);
        let output = query.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        let version = String::from_utf8(output.stdout).ok().filter(|version| !version.is_empty())?;
        output.status.success().then(|| ((*package).to_owned(), version))
    };
    packages.iter().filter_map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_out_packages_that_are_not_installed() {
        let found = versions(&["dpkg", "no-such-package"]);
        let is_debian = fs::exists("/usr/bin/dpkg-query").unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), if is_debian { vec!["dpkg"] } else { vec![] });
        assert!(found.values().all(|version| version.starts_with(|c: char| c.is_ascii_digit())), "{found:?}");
    }
}
