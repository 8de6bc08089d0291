//! Tests `dunlin completions` and `dunlin man`: their output is complete, and shells accept it.

use dunlin_tests::generated::{assert_completes, assert_has_pages};
use dunlin_tests::place::Place;

#[test]
fn bash_completes_commands_and_options() {
    assert_completes("dunlin", &["client", "server"]);
}

#[test]
fn writes_a_script_for_every_shell() {
    let place = Place::new();
    for (shell, begins) in
        [("bash", "_dunlin()"), ("zsh", "#compdef dunlin"), ("fish", "# Print an"), ("elvish", "")]
    {
        let script = place.dunlin(&format!("completions {shell}"));
        assert!(script.starts_with(begins), "{shell}: {}", script.lines().next().unwrap_or_default());
        for option in ["CAfile", "cache-store", "early-data"] {
            assert!(script.contains(option), "{shell}: {option}");
        }
    }
    let line = place.dunlin_fails("completions tcsh", 2);
    assert!(line.contains("bash") && line.contains("zsh"), "{line}");
}

#[test]
fn writes_a_man_page_for_each_command() {
    let commands = ["client", "server", "explain", "pki leaf", "psk new", "completions", "man"];
    let place = assert_has_pages("dunlin", &commands);
    let read = |name: &str| place.read(&format!("man1/{name}.1"));
    assert!(read("dunlin-client").contains("Exit status"));
    // The synopsis is the usage line of --help.
    for (page, usage) in [
        ("dunlin-client", "\\fBdunlin client\\fR [OPTIONS] [HOST:PORT]"),
        ("dunlin-psk-rotate", "\\fBdunlin psk rotate\\fR [OPTIONS] <FILE> <DEVICE>"),
        ("dunlin-pki", "\\fBdunlin pki\\fR <COMMAND>"),
        ("dunlin", "\\fBdunlin\\fR <COMMAND>"),
    ] {
        let page = read(page).replace("\\-", "-");
        let synopsis = page.split_once(".SH SYNOPSIS\n").unwrap().1.lines().next().unwrap();
        assert_eq!(synopsis, usage);
    }
    // Writes the pages again over an earlier version.
    place.dunlin("man man1");
    place.write("file", "");
    let line = place.dunlin_fails("man file", 1);
    assert!(line.contains("file: not a directory"), "{line}");
}

/// The commands of `dunlin-lab` were here.
#[test]
fn says_where_the_lab_is() {
    let place = Place::new();
    for (arguments, now) in [
        ("up", "dunlin-lab up"),
        ("up --rounds 1", "dunlin-lab up"),
        ("lab", "dunlin-lab"),
        ("lab run caching --help", "dunlin-lab"),
    ] {
        let line = place.dunlin_fails(arguments, 2);
        assert!(line.contains(&format!("is now `{now}`; it is in the package dunlin-lab")), "{line}");
    }
    for silent in ["--help", "completions bash"] {
        let told = place.dunlin(silent);
        assert!(!told.lines().any(|line| ["lab", "up"].contains(&line.trim())), "{told}");
        assert!(!told.contains("dunlin-lab") && !told.contains("dunlin__lab"), "{told}");
    }
}
