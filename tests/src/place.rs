//! A directory in which Dunlin's programs run, and the other programs that read or check their files.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use crate::peer::is_root;

/// A temporary directory in which commands run. It is removed with the value.
pub struct Place(TempDir);

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// A new directory.
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file that only its owner can read.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
        self.set_mode(name, 0o600);
    }

    /// The text of a file.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The permissions of a file.
    pub fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o777
    }

    /// Changes the permissions of a file.
    pub fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The names of all files, sorted.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// `dunlin` with these arguments, separated by blanks and quoted by `'` as in a shell.
    pub fn command(&self, arguments: &str) -> Command {
        self.command_of("dunlin", arguments)
    }

    /// `dunlin-lab` with these arguments.
    pub fn lab_command(&self, arguments: &str) -> Command {
        self.command_of("dunlin-lab", arguments)
    }

    fn command_of(&self, name: &str, arguments: &str) -> Command {
        // A test runner in the background ignores SIGINT, and its children inherit that.
        let mut command = Command::new("/usr/bin/env");
        command.arg("--default-signal=INT,QUIT,HUP,TERM").arg(program(name));
        command.args(words(arguments)).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    /// Runs `dunlin`, which must succeed, and returns its output.
    pub fn dunlin(&self, arguments: &str) -> String {
        self.run("dunlin", arguments)
    }

    /// Runs `dunlin-lab`, which must succeed, and returns its output.
    pub fn lab(&self, arguments: &str) -> String {
        self.run("dunlin-lab", arguments)
    }

    /// Runs the program `dunlin` or `dunlin-lab`, which must succeed, and returns its output.
    pub fn run(&self, name: &str, arguments: &str) -> String {
        succeeded(arguments, self.command_of(name, arguments).output().unwrap())
    }

    /// Runs `dunlin` with `input` on stdin; it must succeed.
    pub fn dunlin_with(&self, arguments: &str, input: &[u8]) -> String {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        succeeded(arguments, child.wait_with_output().unwrap())
    }

    /// Runs `dunlin`, which must fail with this status and one line of explanation, and returns the line.
    pub fn dunlin_fails(&self, arguments: &str, status: i32) -> String {
        self.fails("dunlin", arguments, status)
    }

    /// Runs `dunlin-lab`, which must fail with this status and one line of explanation, and returns the line.
    pub fn lab_fails(&self, arguments: &str, status: i32) -> String {
        self.fails("dunlin-lab", arguments, status)
    }

    fn fails(&self, name: &str, arguments: &str, status: i32) -> String {
        let output = self.command_of(name, arguments).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{name} {arguments}\n{stderr}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "{name} {arguments}");
        let line = stderr.strip_suffix('\n').expect("a line on stderr");
        assert!(line.starts_with(&format!("{name}: ")), "{name} {arguments}\n{stderr}");
        assert!(line.contains(": ") && line.contains("; "), "no reason or no advice: {line}");
        assert!(!line.contains(char::is_control), "not one plain line: {line:?}");
        line.to_owned()
    }

    /// Runs another program, which must succeed, and returns its output.
    pub fn tool(&self, program: &str, arguments: &str) -> String {
        succeeded(arguments, self.run_tool(program, arguments))
    }

    /// Runs another program, which must fail.
    pub fn tool_fails(&self, program: &str, arguments: &str) {
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

/// Whether this process is root, as in CI. Without root the test fails, unless `DUNLIN_WITHOUT_ROOT=1` lets it end
/// early.
pub fn has_root() -> bool {
    const ALLOW: &str = "DUNLIN_WITHOUT_ROOT";
    let has = is_root();
    let is_allowed = std::env::var_os(ALLOW).is_some_and(|value| value == "1");
    assert!(has || is_allowed, "this test makes network namespaces and needs root; {ALLOW}=1 leaves it out");
    has
}

/// The path of the program `dunlin` or `dunlin-lab`. `cargo test --workspace` builds both; `cargo test -p` builds
/// only those of its package, so the other one may be missing, or of an earlier build.
pub fn program(name: &str) -> PathBuf {
    // A test is in the directory `deps` beside the programs.
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join(name);
    assert!(program.exists(), "{}: missing; build it with `cargo build --bin {name}`", program.display());
    program
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
pub fn send_signal(child: &Child, signal: &str) {
    // The shell's own kill: not every machine has the program.
    let kill = format!("kill {signal} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}
