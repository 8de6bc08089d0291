//! The completions and man pages that Dunlin's programs write from the definitions of their command lines.

use crate::place::Place;

/// The long options that `PROGRAM COMMAND --help` lists.
fn options(place: &Place, name: &str, command: &str) -> Vec<String> {
    let help = place.run(name, &format!("{command} --help"));
    let words =
        help.lines().filter_map(|line| line.trim_start().strip_prefix("--").or(line.split(", --").nth(1)));
    let names = words.map(|words| words.split([' ', '[', ',', '<']).next().unwrap().to_owned());
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    assert!(!names.is_empty(), "{help}");
    names
}

/// Asserts that bash completes all options of these commands.
pub fn assert_completes(name: &str, commands: &[&str]) {
    let place = Place::new();
    place.write("completions.bash", place.run(name, "completions bash"));
    // clap names the function so.
    let function = name.replace('-', "__");
    let complete = |words: &str| {
        let script = format!(
            "source completions.bash; COMP_WORDS=({words} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             COMP_WORDS[COMP_CWORD]=--; _{function} {name} -- ''; echo \"${{COMPREPLY[@]}}\""
        );
        place.tool("bash", &format!("-c '{}'", script.replace("''", "\"\"")))
    };
    for command in commands {
        let replies = complete(&format!("{name} {command}"));
        for option in options(&place, name, command) {
            assert!(
                replies.split_whitespace().any(|reply| reply == format!("--{option}")),
                "--{option}: {replies}"
            );
        }
    }
}

/// Asserts that there is a man page with all options for each of these commands, and returns the directory with the
/// pages in `man1`.
pub fn assert_has_pages(name: &str, commands: &[&str]) -> Place {
    let place = Place::new();
    place.run(name, "man man1");
    for command in commands {
        // roff escapes hyphens.
        let page = place.read(&format!("man1/{name}-{}.1", command.replace(' ', "-"))).replace("\\-", "-");
        assert!(page.contains(&format!(".TH {name}-")) && page.contains(".SH SYNOPSIS"), "{page}");
        for option in options(&place, name, command) {
            assert!(page.contains(&format!("--{option}")), "{command} --{option}");
        }
    }
    assert!(!place.path(&format!("man1/{name}-help.1")).exists());
    place
}
