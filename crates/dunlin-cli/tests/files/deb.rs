//! The Debian packages: their content, and their complete removal.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use dunlin_tests::place::{Place, program};

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
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path().to_string_lossy().into_owned());
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

/// Makes the package of a program, and returns its path.
fn package(place: &Place, name: &str) -> String {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/deb");
    let mut make = Command::new(tool);
    // Compression takes longer than all the rest.
    make.arg(program(name)).arg(place.path("out")).env("DUNLIN_DEB_COMPRESSION", "none");
    let output = make.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let package = String::from_utf8(output.stdout).unwrap().trim_end().to_owned();
    assert!(Path::new(&package).exists(), "{package}");
    package
}

/// Checks that the package has these files, with these modes.
fn check_files(place: &Place, package: &str, wanted: &[(&str, &str)]) {
    let listed = place.tool("dpkg-deb", &format!("-c '{package}'"));
    for (mode, path) in wanted {
        let is_there = |line: &str| line.starts_with(mode) && line.ends_with(&format!(" {path}"));
        assert!(listed.lines().any(is_there), "{mode} {path}\n{listed}");
    }
}

/// The other package has a program of its own, and needs the first one.
fn check_lab(place: &Place) -> String {
    let package = package(place, "dunlin-lab");
    let wanted = [
        ("-rwxr-xr-x root/root", "./usr/bin/dunlin-lab"),
        ("-rw-r--r-- root/root", "./usr/share/man/man1/dunlin-lab-run.1.gz"),
        ("-rw-r--r-- root/root", "./usr/share/bash-completion/completions/dunlin-lab"),
    ];
    check_files(place, &package, &wanted);
    let control = place.tool("dpkg-deb", &format!("-f '{package}'"));
    assert!(control.contains("Depends: dunlin (= 0.1.0~") && control.contains(", libc6 (>= 2."), "{control}");
    package
}

#[test]
fn debian_package_installs_and_leaves_nothing_behind() {
    let place = Place::new();
    let package = package(&place, "dunlin");
    let wanted = [
        ("-rwxr-xr-x root/root", "./usr/bin/dunlin"),
        ("-rw-r--r-- root/root", "./usr/lib/systemd/system/dunlin-gateway.service"),
        ("-rw-r--r-- root/root", "./usr/lib/systemd/system/dunlin-gateway.socket"),
        ("-rw-r--r-- root/root", "./usr/lib/sysusers.d/dunlin.conf"),
        ("-rw-r--r-- root/root", "./usr/share/man/man1/dunlin-gateway.1.gz"),
        ("-rw-r--r-- root/root", "./usr/share/bash-completion/completions/dunlin"),
        ("-rw-r--r-- root/root", "./usr/share/doc/dunlin/docs/samples/mosquitto/gateway.toml"),
        ("drwxr-xr-x root/root", "./etc/dunlin/"),
    ];
    check_files(&place, &package, &wanted);
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
    dpkg(&place, &["--install", &package, &check_lab(&place)]);
    for name in ["dunlin", "dunlin-lab"] {
        let installed =
            Command::new(place.path("root/usr/bin").join(name)).arg("--version").output().unwrap();
        let version = String::from_utf8_lossy(&installed.stdout);
        assert!(version.starts_with(&format!("{name} 0.1.0")), "{installed:?}");
    }
    check_links(&place.path("root/usr/share/doc/dunlin"));
    // The administrator's configuration survives the removal and the purge.
    place.write("root/etc/dunlin/gateway.toml", "");
    // systemd makes these when the service starts.
    fs::create_dir_all(place.path("root/var/lib/private/dunlin")).unwrap();
    place.write("root/var/lib/private/dunlin/clients.key", "secret");
    std::os::unix::fs::symlink("private/dunlin", place.path("root/var/lib/dunlin")).unwrap();
    dpkg(&place, &["--remove", "dunlin-lab", "dunlin"]);
    assert!(place.path("root/var/lib/private/dunlin/clients.key").exists());
    dpkg(&place, &["--purge", "dunlin-lab", "dunlin"]);
    assert!(fs::symlink_metadata(place.path("root/var/lib/dunlin")).is_err());
    assert!(!place.path("root/var/lib/private/dunlin").exists());
    let left: Vec<_> =
        files(&place.path("root")).into_iter().filter(|file| !file.contains("/var/")).collect();
    assert_eq!(left, [place.path("root/etc/dunlin/gateway.toml").to_string_lossy()]);
}
