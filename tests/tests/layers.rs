//! `tools/layers` detects imports that break the layers of the crates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs the check on a copy of the engine in which `file` begins with `line`. Returns whether it passes, and
/// its output.
fn check(file: &str, line: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    copy(&root().join("crates/dunlin/src"), folder.path());
    let changed = folder.path().join(file);
    let text = fs::read_to_string(&changed).unwrap();
    fs::write(&changed, format!("{line}\n{text}")).unwrap();
    let output = Command::new(root().join("tools/layers")).arg(folder.path()).output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn passes_the_unchanged_crates() {
    let output = Command::new(root().join("tools/layers")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (passes, why) = check("lib.rs", "");
    assert!(passes, "{why}");
}

#[test]
fn fails_on_imports_within_a_folder() {
    let (passes, why) = check("handshake/negotiate/mod.rs", "use crate::handshake::client::start;");
    assert!(!passes);
    assert!(why.contains("negotiate (row "), "{why}");
    let (passes, why) = check("extension/alpn.rs", "use super::registry::Rules;");
    assert!(!passes);
    assert!(why.contains("crate::extension import each other in a circle: alpn registry"), "{why}");
}

#[test]
fn fails_on_an_import_upward() {
    let (passes, why) = check("wire/mod.rs", "use crate::{error::Error, handshake::{Cx, State}};");
    assert!(!passes);
    assert!(why.contains("wire (row 0) imports handshake (row 5)"), "{why}");
}

#[test]
fn fails_on_a_circle_within_a_row() {
    let (passes, why) = check("early.rs", "use crate::cache::CacheMode;");
    assert!(passes, "{why}");
    let (passes, why) = check("auth/psk.rs", "use crate::resume::Session;");
    assert!(!passes);
    assert!(why.contains("circle: auth resume"), "{why}");
}

#[test]
fn finds_the_module_of_a_name_of_the_root() {
    let (passes, why) = check("wire/mod.rs", "use crate::Error;");
    assert!(!passes);
    assert!(why.contains("wire (row 0) imports error (row 1)"), "{why}");
}
