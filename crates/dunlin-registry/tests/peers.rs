//! Other implementations read the log: Go's sumdb/tlog, and Tessera's fsck (tests/peers/tlog).

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;
mod site;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use common::RegistryDirectory;
use dunlin_registry::Registry;
use dunlin_registry::copy::export;
use dunlin_registry::server::Limits;
use site::Site;

/// The path of the program, which is built once.
fn program() -> &'static str {
    static PROGRAM: OnceLock<&str> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let program = concat!(env!("CARGO_TARGET_TMPDIR"), "/tlog");
        let mut build = Command::new(root.join("tools/go"));
        build.arg("build").arg("-C").arg(root.join("tests/peers/tlog")).args(["-o", program, "."]);
        let built = build.output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program
    })
}

/// Checks the log at a URL.
fn checked(registry: &Registry, url: &str, more: &[&str]) -> Output {
    let [log, witness] = registry.keys().each_ref().map(ToString::to_string);
    let arguments = ["-log", url, "-key", &log, "-witness", &witness];
    Command::new(program()).args(arguments).args(more).output().unwrap()
}

#[test]
fn go_and_tessera_accept_the_exported_log_and_notice_a_changed_byte() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let directory = place.path("export");
    let url = format!("file://{}", directory.display());
    // One more than a full tile, and several partial tiles.
    for dids in [0..1, 1..256, 256..600] {
        place.submit(&registry, dids.map(|number| place.holder(number).next()).collect());
        let size = registry.snapshot().size();
        export(&place.path("registry"), &directory).unwrap();
        let output = checked(&registry, &url, &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stdout, format!("{size} entries\n").as_bytes());
    }
    let bundle = format!("tile/entries/002.p/{}", registry.snapshot().size() - 512);
    for file in ["tile/0/001", "tile/1/000.p/2", bundle.as_str(), "checkpoint"] {
        let path = directory.join(file);
        let original = std::fs::read(&path).unwrap();
        let mut changed = original.clone();
        changed[40] ^= 1;
        std::fs::write(&path, changed).unwrap();
        assert!(!checked(&registry, &url, &[]).status.success(), "{file}");
        std::fs::write(&path, original).unwrap();
    }
}

#[tokio::test]
async fn go_and_tessera_accept_the_log_over_https() {
    let site = Site::new(Limits::default()).await;
    site.place.submit(&site.registry, (0..300).map(|number| site.place.holder(number).next()).collect());
    let roots = site.place.path("roots.pem");
    std::fs::write(&roots, &site.roots).unwrap();
    let url = format!("https://localhost:{}", site.address.port());
    let registry = std::sync::Arc::clone(&site.registry);
    let checked =
        tokio::task::spawn_blocking(move || checked(&registry, &url, &["-roots", roots.to_str().unwrap()]));
    let output = checked.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, format!("{} entries\n", site.registry.snapshot().size()).as_bytes());
}
