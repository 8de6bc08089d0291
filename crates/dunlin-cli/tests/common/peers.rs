//! `dunlin client` and `dunlin server` as processes whose output is read line by line.

#![allow(dead_code, reason = "each test binary has this module and uses its own part of it")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::Value;

use dunlin_tests::place::Place;

/// A limit that no step of a test reaches unless it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const KEY: &str = "000102030405060708090a0b0c0d0e0f";
/// The options of both sides of a connection with certificates.
pub(crate) const SERVER: &str = "--cert pki/server.pem --key pki/server.key --echo";
pub(crate) const CLIENT: &str = "--CAfile pki/root.pem";
pub(crate) const OWN: &str = "--cert pki/client.pem --key pki/client.key";

/// A directory with the certificates of the demonstration.
pub(crate) fn place() -> Place {
    let place = Place::new();
    place.dunlin("pki demo --out pki");
    place
}

/// A process whose output is read line by line.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    /// Types at the terminal that replaces stdin.
    pub(crate) keyboard: Option<File>,
    pub(crate) lines: Receiver<String>,
    pub(crate) stderr: Receiver<String>,
}

/// Returns the lines of `output` as they come.
pub(crate) fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|l| sender.send(l))
    });
    lines
}

impl Running {
    pub(crate) fn new(place: &Place, arguments: &str) -> Self {
        Self::start(&mut place.command(arguments))
    }

    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = lines(child.stderr.take().unwrap());
        Self { stdin: child.stdin.take(), keyboard: None, child, lines: stdout, stderr }
    }

    /// Starts a process with a terminal as stdin.
    pub(crate) fn at_terminal(place: &Place, arguments: &str) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keyboard = openpt(flags).unwrap();
        unlockpt(&keyboard).unwrap();
        let terminal = ioctl_tiocgptpeer(&keyboard, flags).unwrap();
        // The echo is discarded.
        let mut modes = tcgetattr(&terminal).unwrap();
        modes.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&terminal, OptionalActions::Now, &modes).unwrap();
        let mut command = place.command(arguments);
        command.stdin(terminal).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = lines(child.stderr.take().unwrap());
        Self { stdin: None, keyboard: Some(keyboard.into()), child, lines: stdout, stderr }
    }

    /// The next line on stdout, without the server's lines about ended connections.
    pub(crate) fn line(&self) -> String {
        let next = || self.lines.recv_timeout(PATIENCE).expect("another line on stdout");
        std::iter::repeat_with(next).find(|line| !is_end(line)).unwrap()
    }

    /// The next line on stderr, without the server's lines about ended connections.
    pub(crate) fn log(&self) -> String {
        std::iter::repeat_with(|| self.any_log()).find(|line| !is_end(line)).unwrap()
    }

    /// The next line on stderr with `text` in it.
    pub(crate) fn log_with(&self, text: &str) -> String {
        self.log_where(|line| line.contains(text))
    }

    /// The next such line on stderr.
    pub(crate) fn log_where(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        std::iter::repeat_with(|| self.any_log()).find(|line| is_wanted(line)).unwrap()
    }

    fn any_log(&self) -> String {
        self.stderr.recv_timeout(PATIENCE).expect("another line on stderr")
    }

    pub(crate) fn write(&mut self, text: &str) {
        match (&mut self.keyboard, &mut self.stdin) {
            (Some(keyboard), _) => keyboard.write_all(text.as_bytes()).unwrap(),
            (None, stdin) => stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap(),
        }
    }

    /// Closes stdin and waits for the end. Returns the status, the rest of stdout, and stderr without the
    /// lines about ended connections.
    pub(crate) fn end(mut self) -> (i32, String, String) {
        drop(self.stdin.take());
        if self.keyboard.is_some() {
            // Ctrl-D at the beginning of a line.
            self.write("\x04");
        }
        let rest: Vec<_> = self.lines.iter().collect();
        let stderr: Vec<_> = self.stderr.iter().filter(|line| !is_end(line)).collect();
        (self.child.wait().unwrap().code().unwrap(), rest.join("\n"), stderr.join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether the line reports the end of a connection; a server prints one after each.
fn is_end(line: &str) -> bool {
    line.contains(" ended: read ") || line.contains("\"event\":\"ended\"")
}

/// Reads the port from the line of a listening server.
pub(crate) fn port_in(line: &str) -> u16 {
    let port = line.split_once("127.0.0.1:").unwrap().1;
    port.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// A server on a free port.
pub(crate) struct Server {
    pub(crate) process: Running,
    pub(crate) port: u16,
    /// The warnings before the server listens.
    pub(crate) warnings: String,
}

impl Server {
    pub(crate) fn new(place: &Place, arguments: &str) -> Self {
        Self::at(place, 0, arguments)
    }

    /// Starts a server on the port of an earlier one.
    pub(crate) fn at(place: &Place, port: u16, arguments: &str) -> Self {
        let process = Running::new(place, &format!("server --accept {port} {arguments}"));
        // With --echo no data goes to stdout, so JSON events are there.
        let next = || {
            if arguments.contains("--json") && arguments.contains("--echo") {
                process.line()
            } else {
                process.log()
            }
        };
        let mut warnings = String::new();
        let listening = loop {
            match next() {
                line if line.contains("listening") => break line,
                line => warnings += &(line + "\n"),
            }
        };
        Self { port: port_in(&listening), process, warnings }
    }

    /// Runs a client with these options, sends `input`, and returns the client's output.
    pub(crate) fn client(&self, place: &Place, arguments: &str, input: &str) -> Output {
        let mut command = place.command(&format!("client localhost:{} {arguments}", self.port));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A refused client reads no input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Runs a client at whose terminal `input` is typed. It must succeed.
    pub(crate) fn typed(&self, place: &Place, arguments: &str, input: &str) -> (String, String) {
        let arguments = format!("client localhost:{} {arguments}", self.port);
        let mut client = Running::at_terminal(place, &arguments);
        client.write(input);
        let (status, stdout, stderr) = client.end();
        assert_eq!(status, 0, "{arguments}: {stderr}");
        (stdout + "\n", stderr)
    }

    /// Runs a client that must succeed, and returns its output.
    pub(crate) fn echo(&self, place: &Place, arguments: &str, input: &str) -> String {
        let output = self.client(place, arguments, input);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a client that must fail, and returns the messages of both sides.
    pub(crate) fn refused(&self, place: &Place, arguments: &str) -> (String, String) {
        let output = self.client(place, arguments, "");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}: {stderr}");
        (stderr.trim_end().to_owned(), self.process.log_with(" failed: "))
    }
}

pub(crate) fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// Reads one JSON object from each line.
pub(crate) fn events(lines: &str) -> Vec<Value> {
    lines.lines().map(json).collect()
}

/// Returns the kinds of these events.
pub(crate) fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["event"].as_str().unwrap_or_else(|| panic!("no event: {event}")))
        .collect()
}
