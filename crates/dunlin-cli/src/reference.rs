//! Keeps docs/command-line.md equal to the definitions of the command line, and docs/configuration-keys.md
//! equal to the keys of configurations.
//!
//! With `DUNLIN_WRITE_REFERENCE` in the environment (`make reference` sets it), the tests write the pages.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

#[cfg(feature = "gateway")]
mod keys;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};

const INTRODUCTION: &str = "\
# The command line

The program's own definitions make this page (`make reference`), so it says what `--help` says. `dunlin man DIR` writes the same as man
pages. Options of OpenSSL's programs may begin with one hyphen: `-CAfile`, `-psk_identity`.

Exit status: 0 success, 1 failure, 2 wrong use.
";

/// The option of builds with the feature `legacy-lab`, and the beginnings of the lines with its suites. The
/// page is that of a build without the feature, whichever build runs the test.
const LAB_OPTION: &str = "legacy_lab";
const LAB_SUITES: [&str; 3] = ["  {", "  DHE-DSS-", "  ADH-"];

#[test]
fn the_page_of_the_command_line_is_that_of_the_program() {
    let mut cli = crate::Cli::command().disable_help_subcommand(true);
    cli.build();
    let mut page = INTRODUCTION.to_owned();
    for command in cli.get_subcommands() {
        write_command(&mut page, command);
    }
    keep("command-line.md", &page);
}

/// Compares a page of docs/ with what it should be, or writes it.
fn keep(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("DUNLIN_WRITE_REFERENCE").is_some() {
        fs::write(&path, page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let differs = written.lines().zip(page.lines()).find(|(written, made)| written != made);
    assert!(written == page, "docs/{name} is out of date: run `make reference`; first {differs:?}");
}

/// A section for the command, and one for each of its subcommands.
fn write_command(page: &mut String, command: &Command) {
    let name = command.get_bin_name().unwrap();
    let about = command.get_long_about().or(command.get_about()).unwrap().to_string();
    let usage = command.clone().render_usage().to_string();
    let usage =
        usage.trim_start_matches("Usage:").trim().lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let _ = write!(page, "\n## `{name}`\n\n{}\n\n```text\n{usage}\n```\n", paragraphs(&about));
    let mut headings = vec![];
    for arg in shown(command) {
        if !headings.contains(&heading(arg)) {
            headings.push(heading(arg));
        }
    }
    for title in headings {
        let _ = writeln!(page, "\n**{title}**\n");
        for arg in shown(command).filter(|arg| heading(arg) == title) {
            write_argument(page, arg);
        }
    }
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        let _ = write!(page, "\n```text\n{}\n```\n", after.to_string().trim_end());
    }
    for subcommand in command.get_subcommands() {
        write_command(page, subcommand);
    }
}

/// All arguments but `--help`, which every command has.
fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_shown = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help" && arg.get_id() != LAB_OPTION;
    command.get_arguments().filter(is_shown)
}

fn heading(arg: &Arg) -> &str {
    arg.get_help_heading().unwrap_or(if arg.is_positional() { "Arguments" } else { "Options" })
}

fn write_argument(page: &mut String, arg: &Arg) {
    let help = arg.get_long_help().or(arg.get_help()).unwrap().to_string();
    let short = arg.get_short().filter(|_| arg.get_long().is_some());
    let names = match (short, arg.to_string()) {
        (Some(short), long) => format!("`-{short}`, `{long}`"),
        (None, name) => format!("`{name}`"),
    };
    let is_of_lab = |line: &str| LAB_SUITES.iter().any(|begin| line.starts_with(begin));
    let lines = help.lines().filter(|line| !line.is_empty() && !is_of_lab(line));
    // A backslash breaks a line of Markdown; the next one belongs to the same item of the list.
    let help = lines.map(|line| paragraphs(line.trim())).collect::<Vec<_>>().join("\\\n  ");
    let _ = write!(page, "- {names}: {help}");
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .filter_map(|value| value.to_str())
        .filter(|_| takes_value(arg))
        .collect();
    if !defaults.is_empty() {
        let _ = write!(page, ". Default: `{}`", defaults.join(" "));
    }
    let values: Vec<_> =
        arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if !values.is_empty() && takes_value(arg) {
        let _ = write!(page, ". Values: {}", values.join(", "));
    }
    let aliases: Vec<_> =
        arg.get_visible_aliases().unwrap_or_default().iter().map(|alias| format!("`--{alias}`")).collect();
    if !aliases.is_empty() {
        let _ = write!(page, ". Also: {}", aliases.join(", "));
    }
    page.push('\n');
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// The text of `--help` as Markdown: its signs stand for themselves outside of code, and names of pages become
/// links.
fn paragraphs(text: &str) -> String {
    let mut in_code = false;
    let mut escaped = String::new();
    for sign in text.trim_end().chars() {
        in_code ^= sign == '`';
        if !in_code && matches!(sign, '<' | '*' | '[' | '\\') {
            escaped.push('\\');
        }
        escaped.push(sign);
    }
    let words = escaped.split(' ').map(|word| {
        let path = word.trim_matches(['(', ')', ',', ';', '.', ':']);
        let page = path.strip_prefix("docs/").filter(|page| page.ends_with(".md"));
        page.map_or(word.to_owned(), |page| word.replace(path, &format!("[{path}]({page})")))
    });
    words.collect::<Vec<_>>().join(" ")
}
