//! Runs `dunlin`, and the other programs that read or check its files.

#![allow(dead_code, reason = "each test binary has this module and uses its own part of it")]

pub(crate) mod peers;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A temporary directory in which commands run. It is removed with the value.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file that only its owner can read.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
        self.set_mode(name, 0o600);
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o777
    }

    pub(crate) fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The names of all files, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// `dunlin` with these arguments, separated by blanks and quoted by `'` as in a shell.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        // A test runner in the background ignores SIGINT, and its children inherit that.
        let mut command = Command::new("/usr/bin/env");
        command.args(["--default-signal=INT,QUIT,HUP,TERM", env!("CARGO_BIN_EXE_dunlin")]);
        command.args(words(arguments)).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    /// Runs `dunlin`, which must succeed, and returns its output.
    pub(crate) fn dunlin(&self, arguments: &str) -> String {
        succeeded(arguments, self.command(arguments).output().unwrap())
    }

    /// Runs `dunlin` with `input` on stdin; it must succeed.
    pub(crate) fn dunlin_with(&self, arguments: &str, input: &[u8]) -> String {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        succeeded(arguments, child.wait_with_output().unwrap())
    }

    /// Runs `dunlin`, which must fail with this status and one line of explanation, and returns the line.
    pub(crate) fn dunlin_fails(&self, arguments: &str, status: i32) -> String {
        let output = self.command(arguments).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "dunlin {arguments}\n{stderr}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "dunlin {arguments}");
        let line = stderr.strip_suffix('\n').expect("a line on stderr");
        assert!(line.starts_with("dunlin: "), "dunlin {arguments}\n{stderr}");
        assert!(line.contains(": ") && line.contains("; "), "no reason or no advice: {line}");
        assert!(!line.contains(char::is_control), "not one plain line: {line:?}");
        line.to_owned()
    }

    /// Runs another program, which must succeed, and returns its output.
    pub(crate) fn tool(&self, program: &str, arguments: &str) -> String {
        succeeded(arguments, self.run_tool(program, arguments))
    }

    /// Runs another program, which must fail.
    pub(crate) fn tool_fails(&self, program: &str, arguments: &str) {
        let output = self.run_tool(program, arguments);
        assert!(!output.status.success(), "{program} {arguments} succeeded");
    }

    fn run_tool(&self, program: &str, arguments: &str) -> Output {
        let output = Command::new(program).args(words(arguments)).current_dir(self.0.path()).output();
        output.unwrap_or_else(|error| {
            panic!("{program} cannot be run ({error}); the tests need it: `tools/setup test` installs it")
        })
    }
}

fn succeeded(arguments: &str, output: Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}\n{stdout}\n{stderr}");
    stdout
}

fn words(text: &str) -> Vec<String> {
    let mut words = vec![];
    for (index, part) in text.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Sends a signal, `-INT` or `-TERM`.
pub(crate) fn send_signal(child: &std::process::Child, signal: &str) {
    // The shell's own kill: not every machine has the program.
    let kill = format!("kill {signal} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}
