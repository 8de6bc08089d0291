//! Tests in a network namespace of their own, with its nftables.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

const INSIDE: &str = "DUNLIN_TEST_NFT_INSIDE";

/// Runs a program, and returns what it prints.
fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; `tools/setup test` installs it"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn nft(args: &[&str]) -> String {
    run("nft", args)
}

/// Makes sets for the blacklist, with this prefix.
pub(crate) fn make_sets(prefix: &str) {
    nft(&["add table inet dunlin"]);
    for (suffix, kind) in [("4", "ipv4_addr"), ("6", "ipv6_addr")] {
        nft(&[&format!("add set inet dunlin {prefix}{suffix} {{ type {kind}; flags interval, timeout; }}")]);
    }
}

/// Whether this process is in the namespace, where loopback works. If it is not, a child runs the same test
/// again there.
pub(crate) fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        run("ip", &["link", "set", "lo", "up"]);
        return true;
    }
    let mut command = Command::new("unshare");
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg("--net").arg(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env(INSIDE, "1");
    // Debian has nft where only root looks for programs.
    let path = std::env::var("PATH").unwrap_or_default();
    let output = command.env("PATH", format!("{path}:/usr/sbin:/sbin")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    false
}
