//! Real peers: command-line programs of other stacks as server or client, and the engine on a blocking
//! transport.
//!
//! A foreign server lives in its own network namespace, which ends with it. It can use a fixed port there,
//! and no other process reaches it. A foreign client connects on loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use dunlin::{Answer, Error, Event, Now, Question, TlsConnection};
use tempfile::TempDir;

/// A test fails if a peer is silent for this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// The wall clock.
pub fn now() -> Now {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("clock");
    Now::from_unix_ms(since.as_millis() as u64)
}

/// Temporary files for a peer.
pub struct Files(TempDir);

impl Default for Files {
    fn default() -> Self {
        Self(tempfile::tempdir().expect("temporary directory"))
    }
}

impl Files {
    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.path().join(name), content).expect("file");
        self.path(name)
    }

    /// Returns a path in the directory.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("path").to_owned()
    }
}

/// Whether this process can make network namespaces directly. Otherwise it needs a user namespace, too.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

fn reader(mut from: impl Read + Send + 'static) -> (Receiver<Vec<u8>>, JoinHandle<()>) {
    let (to, received) = channel();
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            if to.send(buffer[..n].to_vec()).is_err() {
                break;
            }
        }
    });
    (received, thread)
}

/// A program that must be installed. If it is missing, the test fails and names the remedy.
fn program(name: &str) -> Command {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| Path::new(&dir).join(name).exists()));
    assert!(found, "the program {name} is missing: `tools/setup test` installs what the tests talk to");
    Command::new(name)
}

/// Builds the Go program in `tests/peers/NAME` and returns its path, which is `target`.
pub fn build_go(name: &str, target: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut build = Command::new(tests.join("../tools/go"));
    build.arg("build").arg("-C").arg(tests.join("peers").join(name)).args(["-o", target, "."]);
    let output = build.output().expect("tools/go");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.to_owned()
}

/// Builds the C program `program` in `tests/peers/NAME`, with the library whose source code its Cargo.toml
/// names, below the directory `target`. Returns its path.
pub fn build_c(name: &str, program: &str, target: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = format!("{target}/{name}/{program}");
    let mut build = Command::new("make");
    build.args(["-s", "-j2", "-C"]).arg(tests.join("peers").join(name)).arg(format!("OUT={target}/{name}"));
    // The tests may run below another make.
    let output = build.arg(&path).env_remove("MAKEFLAGS").output().expect("make");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    path
}

/// Compiles the Java program in `tests/peers/NAME` into the folder `target`. Returns its class path, to which
/// `tools/setup` has brought the libraries.
pub fn build_java(name: &str, target: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let libraries = tests.join("../target/peers").join(name).join("*");
    let libraries = libraries.to_str().expect("path");
    let mut build = program("javac");
    build.args(["-cp", libraries, "-d", target]).arg(tests.join("peers").join(name).join("Peer.java"));
    let output = build.output().expect("javac");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    format!("{target}:{libraries}")
}

/// A program and its standard streams.
pub struct Process {
    child: Child,
    /// Its standard input.
    pub stdin: Option<ChildStdin>,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
    seen: Vec<u8>,
}

impl Process {
    fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let stdin = child.stdin.take();
        let (stdout, _) = reader(child.stdout.take().expect("stdout"));
        let (stderr, _) = reader(child.stderr.take().expect("stderr"));
        Self { child, stdin, stdout, stderr, seen: Vec::new() }
    }

    /// Starts a client program.
    pub fn client(name: &str, args: &[&str]) -> Self {
        let mut command = program(name);
        command.args(args);
        Self::spawn(command)
    }

    /// Reads the output until `done` accepts it.
    pub fn output_until(&mut self, what: &str, done: impl Fn(&[u8]) -> bool) -> &[u8] {
        while !done(&self.seen) {
            match self.stdout.recv_timeout(PATIENCE) {
                Ok(bytes) => self.seen.extend(bytes),
                Err(_) => panic!(
                    "no {what} in what the peer printed: {} … {}",
                    String::from_utf8_lossy(&self.seen),
                    self.errors()
                ),
            }
        }
        &self.seen
    }

    /// Returns the output on stderr so far.
    pub fn errors(&self) -> String {
        let bytes: Vec<u8> = self.stderr.try_iter().flatten().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes to stdin without waiting for the peer to read.
    pub fn feed(&mut self, data: Vec<u8>) {
        let mut stdin = self.stdin.take().expect("stdin");
        std::thread::spawn(move || {
            let _ = stdin.write_all(&data);
            let _ = stdin.flush();
            // Keep stdin open: some peers end at the end of their input.
            std::thread::park();
        });
    }

    /// Types a line.
    pub fn type_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin");
        // Write it in one piece: some peers recognise commands only at the beginning of a read.
        stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush()).expect("the peer reads");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A foreign server in its own network namespace, on port 4433.
pub struct Server {
    /// The program.
    pub process: Process,
    _files: Files,
}

impl Server {
    /// Starts `name` with `args`. `files` live as long as the server.
    pub fn start(files: Files, name: &str, args: &[&str]) -> Self {
        drop(program(name));
        let mut command = program("unshare");
        if !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        // The shell becomes the server, so that the namespace ends with it.
        command
            .args(["--net", "sh", "-c", "PATH=$PATH:/sbin ip link set lo up && exec \"$0\" \"$@\"", name])
            .args(args);
        let process = Process::spawn(command);
        // Wait for `unshare`: until then the process is in the namespace of the test, which nsenter must not
        // enter.
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).expect("namespace");
        let own = of("self");
        let id = process.child.id().to_string();
        let end = Instant::now() + PATIENCE;
        while of(&id) == own && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { process, _files: files }
    }

    /// The command that runs its arguments in the server's namespace.
    pub(crate) fn enter(&self) -> Command {
        let mut command = program("nsenter");
        command.args(["--target", &self.process.child.id().to_string(), "--net"]);
        if !is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command
    }

    /// Waits until the server has its UDP socket: the first datagram must not be refused.
    pub(crate) fn wait_for_udp(&self) {
        let end = Instant::now() + PATIENCE;
        let id = self.process.child.id();
        // The local port 4433 in hexadecimal.
        let listens = |table: &str| {
            let sockets = std::fs::read_to_string(format!("/proc/{id}/net/{table}")).unwrap_or_default();
            sockets.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(":1151")))
        };
        while !listens("udp") && !listens("udp6") {
            assert!(Instant::now() < end, "the peer does not listen: {}", self.process.errors());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Connects to the server from inside its namespace, over a pair of pipes.
    pub fn connect(&self) -> Relay {
        let mut command = self.enter();
        // The server needs a moment before it listens.
        let script = "for i in $(seq 200); do
            if exec 3<>/dev/tcp/127.0.0.1/4433; then ok=1; break; fi; sleep 0.05
        done 2>/dev/null
        [ \"$ok\" ] || exit 1
        cat <&0 >&3 & cat <&3; kill $!";
        command.args(["bash", "-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("nsenter");
        let stdin = child.stdin.take().expect("stdin");
        let stdout = child.stdout.take().expect("stdout");
        Relay { child, stdin, stdout }
    }
}

/// A byte stream to a foreign server.
pub struct Relay {
    child: Child,
    stdin: ChildStdin,
    stdout: std::process::ChildStdout,
}

/// Our engine on a blocking transport.
pub struct Link {
    /// The connection.
    pub connection: TlsConnection,
    output: Box<dyn Write>,
    input: Receiver<Vec<u8>>,
    /// Received data that the test has not read.
    waiting: Vec<u8>,
    /// The events so far.
    pub events: Vec<Event>,
    relay: Option<Child>,
    socket: Option<TcpStream>,
}

impl Link {
    /// Connects as the client of a foreign server.
    pub fn to_server(connection: TlsConnection, server: &Server) -> Self {
        let Relay { child, stdin, stdout } = server.connect();
        let (input, _) = reader(stdout);
        Self {
            connection,
            output: Box::new(stdin),
            input,
            waiting: Vec::new(),
            events: Vec::new(),
            relay: Some(child),
            socket: None,
        }
    }

    /// Accepts a foreign client.
    pub fn accept(connection: TlsConnection, listener: &TcpListener) -> Self {
        let socket = accept(listener);
        let (input, _) = reader(socket.try_clone().expect("socket"));
        Self {
            connection,
            output: Box::new(socket.try_clone().expect("socket")),
            input,
            waiting: Vec::new(),
            events: Vec::new(),
            relay: None,
            socket: Some(socket),
        }
    }

    fn flush(&mut self) {
        let n = self.connection.transmit().len();
        // A read reports a closed peer, so ignore the failed write.
        let _ = self.output.write_all(self.connection.transmit()).and_then(|()| self.output.flush());
        self.connection.transmitted(n);
    }

    /// Sends pending output and receives the next bytes.
    fn step(&mut self) -> Result<(), Error> {
        self.flush();
        if self.waiting.is_empty() {
            match self.input.recv_timeout(PATIENCE) {
                Ok(bytes) => self.waiting = bytes,
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return self.connection.receive_end(),
                Err(_) => panic!("the peer says nothing"),
            }
        }
        let result = self.connection.receive(now(), &self.waiting);
        self.flush();
        self.waiting.drain(..result?);
        self.events.extend(std::iter::from_fn(|| self.connection.poll_event()));
        Ok(())
    }

    /// Completes the handshake.
    pub fn handshake(&mut self) -> Result<(), Error> {
        while self.connection.is_handshaking() {
            self.step()?;
        }
        self.flush();
        Ok(())
    }

    /// Completes the handshake, and answers its questions.
    pub fn handshake_with(&mut self, mut answer: impl FnMut(Question) -> Answer) -> Result<(), Error> {
        while self.connection.is_handshaking() {
            self.step()?;
            let is_question = |event: &Event| matches!(event, Event::Question(..));
            while let Some(at) = self.events.iter().position(is_question) {
                if let Event::Question(id, question) = self.events.remove(at) {
                    let answered = self.connection.answer(now(), id, answer(question));
                    self.flush();
                    answered?;
                    self.events.extend(std::iter::from_fn(|| self.connection.poll_event()));
                }
            }
        }
        self.flush();
        Ok(())
    }

    /// Waits for an event.
    pub fn wait_for(&mut self, is_it: impl Fn(&Event) -> bool) -> Result<(), Error> {
        while !self.events.iter().any(&is_it) {
            self.step()?;
        }
        Ok(())
    }

    /// Sends all of `data`.
    pub fn send(&mut self, data: &[u8]) -> Result<(), Error> {
        let mut sent = 0;
        while sent < data.len() {
            sent += self.connection.send(&data[sent..])?;
            self.flush();
        }
        Ok(())
    }

    /// Receives `len` bytes of early data.
    pub fn receive_early(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        let mut received = Vec::new();
        while received.len() < len {
            match self.connection.early_data() {
                Some(mut early) if !early.received().is_empty() => {
                    received.extend_from_slice(early.received());
                    early.consume(now(), usize::MAX)?;
                }
                _ => self.step()?,
            }
        }
        Ok(received)
    }

    /// Receives `len` bytes.
    pub fn receive(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        let mut received = Vec::new();
        while received.len() < len {
            if self.connection.received().is_empty() {
                self.step()?;
            }
            received.extend_from_slice(self.connection.received());
            self.connection.consume(now(), self.connection.received().len())?;
        }
        Ok(received)
    }

    /// Closes the sending direction.
    pub fn close(&mut self) {
        self.connection.close();
        self.flush();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        if let Some(child) = &mut self.relay {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Accepts a connection. Panics if none comes, because the peer may have ended before.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("listener");
    let end = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false).expect("socket");
                return socket;
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => panic!("the peer does not connect: {e}"),
        }
    }
}

/// Returns a listener on loopback and its port.
pub fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("address").port().to_string();
    (listener, port)
}

/// Returns text of this length in lines, because some peers work line by line.
pub fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| if i % 64 == 63 { b'\n' } else { b'a' + (i / 64 % 26) as u8 }).collect()
}
