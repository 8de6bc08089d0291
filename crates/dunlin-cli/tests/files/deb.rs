//! The Debian package: its content, and its complete removal.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::Place;

fn dpkg(place: &Place, arguments: &[&str]) -> Output {
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", place.path("root").display()));
    // Another root has no libraries, and no shell for scripts: they run in this one, with DPKG_ROOT.
    command.args(["--force-not-root", "--force-depends", "--force-script-chrootless"]).args(arguments);
    // dpkg looks for programs of the administrator.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).current_dir(place.path(""));
    let output = command.output().unwrap();
    assert!(output.status.success(), "dpkg {arguments:?}: {output:?}");
    output
}

/// The paths of all files and links below a directory.
fn files(directory: &Path) -> Vec<String> {
    let mut found = vec![];
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path().to_string_lossy().into_owned()),
        }
    }
    found
}

/// Checks that the documents of the package link to files that it has.
fn check_links(documents: &Path) {
    let mut checked = 0;
    for document in files(documents).iter().filter(|file| file.ends_with(".md")) {
        let text = fs::read_to_string(document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            if !link.is_empty() && !link.contains("://") && !link.contains(char::is_whitespace) {
                let target = Path::new(document).parent().unwrap().join(link);
                assert!(target.exists(), "{document}: {link}");
                checked += 1;
            }
        }
    }
    assert!(checked > 50, "{checked}");
}

#[test]
fn debian_package_installs_and_leaves_nothing_behind() {
    let place = Place::new();
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/deb");
    let mut make = Command::new(tool);
    // Compression takes longer than all the rest.
    make.arg(env!("CARGO_BIN_EXE_dunlin")).arg(place.path("out")).env("DUNLIN_DEB_COMPRESSION", "none");
    let output = make.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let package = String::from_utf8(output.stdout).unwrap().trim_end().to_owned();
    assert!(Path::new(&package).exists(), "{package}");
    let listed = place.tool("dpkg-deb", &format!("-c '{package}'"));
    for (mode, path) in [
        ("-rwxr-xr-x root/root", "./usr/bin/dunlin"),
        ("-rw-r--r-- root/root", "./usr/lib/systemd/system/dunlin-gateway.service"),
        ("-rw-r--r-- root/root", "./usr/lib/systemd/system/dunlin-gateway.socket"),
        ("-rw-r--r-- root/root", "./usr/lib/sysusers.d/dunlin.conf"),
        ("-rw-r--r-- root/root", "./usr/share/man/man1/dunlin-gateway.1.gz"),
        ("-rw-r--r-- root/root", "./usr/share/bash-completion/completions/dunlin"),
        ("-rw-r--r-- root/root", "./usr/share/doc/dunlin/docs/samples/mosquitto/gateway.toml"),
        ("drwxr-xr-x root/root", "./etc/dunlin/"),
    ] {
        let is_there = |line: &str| line.starts_with(mode) && line.ends_with(&format!(" {path}"));
        assert!(listed.lines().any(is_there), "{mode} {path}\n{listed}");
    }
    let control = place.tool("dpkg-deb", &format!("-f '{package}'"));
    assert!(control.contains("Package: dunlin\nVersion: 0.1.0~"), "{control}");
    let (_, libc) = control.split_once("Depends: libc6 (>= 2.").unwrap();
    assert!(libc.starts_with(|c: char| c.is_ascii_digit()), "{control}");

    for directory in ["root/var/lib/dpkg/info", "root/var/lib/dpkg/updates"] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    for file in ["root/var/lib/dpkg/status", "root/var/lib/dpkg/available"] {
        place.write(file, "");
    }
    dpkg(&place, &["--install", &package]);
    let installed = Command::new(place.path("root/usr/bin/dunlin")).arg("--version").output().unwrap();
    assert!(String::from_utf8_lossy(&installed.stdout).starts_with("dunlin 0.1.0"), "{installed:?}");
    check_links(&place.path("root/usr/share/doc/dunlin"));
    // The administrator's configuration survives the removal and the purge.
    place.write("root/etc/dunlin/gateway.toml", "");
    // systemd makes these when the service starts.
    fs::create_dir_all(place.path("root/var/lib/private/dunlin")).unwrap();
    place.write("root/var/lib/private/dunlin/clients.key", "secret");
    std::os::unix::fs::symlink("private/dunlin", place.path("root/var/lib/dunlin")).unwrap();
    dpkg(&place, &["--remove", "dunlin"]);
    assert!(place.path("root/var/lib/private/dunlin/clients.key").exists());
    dpkg(&place, &["--purge", "dunlin"]);
    assert!(fs::symlink_metadata(place.path("root/var/lib/dunlin")).is_err());
    assert!(!place.path("root/var/lib/private/dunlin").exists());
    let left: Vec<_> =
        files(&place.path("root")).into_iter().filter(|file| !file.contains("/var/")).collect();
    assert_eq!(left, [place.path("root/etc/dunlin/gateway.toml").to_string_lossy()]);
}
