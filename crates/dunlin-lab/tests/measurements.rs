//! The pages of measurements say what the files in docs/measurements say.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The programs that make the tables and check the claims of a page.
const PAGES: [&str; 7] = ["caching", "gateway", "handover", "identity", "key-exchange", "policy", "race"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn check(root: &Path, page: &str) -> Output {
    Command::new("python3").arg(root.join(format!("tools/{page}-tables"))).output().expect("python3")
}

#[test]
fn tables_and_claims_are_those_of_the_measurements() {
    for page in PAGES {
        let output = check(&root(), page);
        assert!(
            output.status.success(),
            "{page}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Another figure in the file makes the table wrong, and the sentence that rests on it.
#[test]
fn a_changed_figure_is_found() {
    let copy = tempfile::tempdir().unwrap();
    for folder in ["tools", "docs", "docs/measurements"] {
        fs::create_dir_all(copy.path().join(folder)).unwrap();
    }
    for file in ["tools/measured.py", "tools/key-exchange-tables", "docs/key-exchange.md"] {
        fs::copy(root().join(file), copy.path().join(file)).unwrap();
    }
    let file = "docs/measurements/key-exchange.json";
    let json = fs::read_to_string(root().join(file)).unwrap();
    let smallest = r#""mechanism": "psk", "authentication": "mutual", "cipher": "AES_128_CCM_8", "way": "real", "handshake_bytes": 232"#;
    assert!(json.contains(smallest));
    fs::write(copy.path().join(file), json.replace(smallest, &smallest.replace("232", "600"))).unwrap();
    let output = check(copy.path(), "key-exchange");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success());
    for problem in [
        "the table bytes is not that of the measurements",
        "the measurements do not say: Every cell is below the paper's Table I",
    ] {
        assert!(said.contains(problem), "{problem}: {said}");
    }
}

/// A comparison that no claim covers is found, too.
#[test]
fn an_unfounded_sentence_is_found() {
    let copy = tempfile::tempdir().unwrap();
    for folder in ["tools", "docs/measurements"] {
        fs::create_dir_all(copy.path().join(folder)).unwrap();
    }
    let json = "docs/measurements/key-exchange.json";
    for file in ["tools/measured.py", "tools/key-exchange-tables", json] {
        fs::copy(root().join(file), copy.path().join(file)).unwrap();
    }
    let page = fs::read_to_string(root().join("docs/key-exchange.md")).unwrap();
    let sentence = "Our handshakes are smaller than all others.";
    fs::write(copy.path().join("docs/key-exchange.md"), format!("{page}\n{sentence}\n")).unwrap();
    let said = check(copy.path(), "key-exchange").stdout;
    assert!(String::from_utf8_lossy(&said).contains(&format!("no claim for: {sentence}")));
}
