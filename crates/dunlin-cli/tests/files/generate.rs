//! Tests `dunlin completions` and `dunlin man`: their output is complete, and shells accept it.

use crate::common::Place;

/// The long options that `dunlin COMMAND --help` lists.
fn options(place: &Place, command: &str) -> Vec<String> {
    let help = place.dunlin(&format!("{command} --help"));
    let words =
        help.lines().filter_map(|line| line.trim_start().strip_prefix("--").or(line.split(", --").nth(1)));
    let names = words.map(|words| words.split([' ', '[', ',', '<']).next().unwrap().to_owned());
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    assert!(!names.is_empty(), "{help}");
    names
}

#[test]
fn bash_completes_commands_and_options() {
    let place = Place::new();
    place.write("dunlin.bash", place.dunlin("completions bash"));
    let complete = |words: &str| {
        let script = format!(
            "source dunlin.bash; COMP_WORDS=({words} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             COMP_WORDS[COMP_CWORD]=--; _dunlin dunlin -- ''; echo \"${{COMPREPLY[@]}}\""
        );
        place.tool("bash", &format!("-c '{}'", script.replace("''", "\"\"")))
    };
    for command in ["client", "server", "up"] {
        let replies = complete(&format!("dunlin {command}"));
        for option in options(&place, command) {
            assert!(
                replies.split_whitespace().any(|reply| reply == format!("--{option}")),
                "--{option}: {replies}"
            );
        }
    }
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
    let place = Place::new();
    place.dunlin("man pages/man1");
    let read = |name: &str| place.read(&format!("pages/man1/{name}.1"));
    for command in
        ["client", "server", "up", "explain", "pki-leaf", "psk-new", "lab-run", "completions", "man"]
    {
        let page = read(&format!("dunlin-{command}"));
        // roff escapes hyphens.
        let page = page.replace("\\-", "-");
        assert!(page.contains(".TH dunlin-") && page.contains(".SH SYNOPSIS"), "{page}");
        for option in options(&place, &command.replace('-', " ")) {
            assert!(page.contains(&format!("--{option}")), "{command} --{option}");
        }
    }
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
    assert!(!place.path("pages/man1/dunlin-help.1").exists());
    // Writes the pages again over an earlier version.
    place.dunlin("man pages/man1");
    place.write("file", "");
    let line = place.dunlin_fails("man file", 1);
    assert!(line.contains("file: not a directory"), "{line}");
}
