//! Other stacks: a small C program over each library, compiled when it is needed.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{self, Command, Stdio};

use dunlin_pki::{Identity, certificates_to_pem};
use nix::sys::memfd::{MFdFlags, memfd_create};
use pki_types::CertificateDer;

use super::{Case, Mode, Stack};
use crate::Error;
use crate::net::{Ground, Namespace, Pair, Process};

/// What all programs begin with.
const COMMON: &str = include_str!("peer.c");

/// A library, and the program over it.
pub(super) struct Library {
    name: &'static str,
    source: &'static str,
    link: &'static [&'static str],
    /// What Debian calls it.
    package: &'static str,
}

/// The libraries that are compared.
pub(super) const LIBRARIES: [Library; 2] = [
    Library {
        name: "openssl",
        source: include_str!("openssl.c"),
        link: &["-lssl", "-lcrypto"],
        package: "libssl-dev",
    },
    Library {
        name: "wolfssl",
        source: include_str!("wolfssl.c"),
        link: &["-lwolfssl"],
        package: "libwolfssl-dev",
    },
];

/// A compiled program.
pub(super) struct Foreign {
    name: &'static str,
    program: MemoryFile,
}

/// A file that vanishes with this process.
struct MemoryFile(File);

impl MemoryFile {
    fn new(content: &[u8]) -> io::Result<Self> {
        let mut file = File::from(memfd_create("dunlin-lab", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(content)?;
        Ok(Self(file))
    }

    /// Where other processes find it while this value lives.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", process::id(), self.0.as_raw_fd()))
    }
}

/// What one side presents, and what it trusts, in files.
struct Keys([MemoryFile; 3]);

impl Keys {
    fn new(case: &Case<'_>, identity: &Identity) -> Result<Self, Error> {
        let failed = |error: &dyn Display| Error::new("keys of the lab", error, "free some memory");
        let pem = |chain: &[CertificateDer<'_>]| certificates_to_pem(chain).map_err(|error| failed(&error));
        let (root, chain) = (pem(case.tree.root.chain())?, pem(&identity.chain)?);
        let key = identity.key.to_pem().map_err(|error| failed(&error))?;
        let file = |content: &str| MemoryFile::new(content.as_bytes()).map_err(|error| failed(&error));
        Ok(Self([file(&root)?, file(&chain)?, file(&key)?]))
    }
}

impl Library {
    /// Compiles the program.
    ///
    /// # Errors
    /// Without a compiler or the library.
    pub(super) fn compile(&self) -> Result<Foreign, Error> {
        let advice = format!("install what it takes: apt-get install gcc libc6-dev {}", self.package);
        let failed = |why: &dyn Display| Error::new(self.name, why, &advice);
        let directory = tempfile::tempdir().map_err(|error| failed(&error))?;
        let program = directory.path().join(self.name);
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-x", "c", "-", "-o"]).arg(&program).args(self.link);
        cc.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = cc.spawn().map_err(|error| failed(&format_args!("cc: {error}")))?;
        // A compiler that does not read all of it says why.
        let _ =
            child.stdin.take().map(|mut stdin| stdin.write_all([COMMON, self.source].concat().as_bytes()));
        let output = child.wait_with_output().map_err(|error| failed(&error))?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            return Err(failed(
                &told.lines().find(|line| line.contains("error")).unwrap_or("does not compile"),
            ));
        }
        let program = fs::read(program).and_then(|content| MemoryFile::new(&content));
        Ok(Foreign { name: self.name, program: program.map_err(|error| failed(&error))? })
    }
}

impl Foreign {
    fn start<'a>(
        &self,
        ground: &'a Ground,
        namespace: &Namespace,
        words: [&str; 2],
        Keys(files): &Keys,
        to: &[String],
    ) -> Result<Process<'a>, Error> {
        let mut command = Command::new(self.program.path());
        command.args(words).args(files.iter().map(MemoryFile::path)).args(to);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        ground.spawn(namespace, &mut command)
    }

    /// Waits for the end; what it printed. If it failed, its reason.
    fn finished(&self, mut process: Process<'_>) -> Result<String, Error> {
        let child = process.child();
        let (mut printed, mut told) = (String::new(), String::new());
        let (out, err) = (child.stdout.as_mut(), child.stderr.as_mut());
        out.map_or(Ok(0), |out| out.read_to_string(&mut printed)).map_err(|error| self.failed(error))?;
        err.map_or(Ok(0), |err| err.read_to_string(&mut told)).map_err(|error| self.failed(error))?;
        let status = child.wait().map_err(|error| self.failed(error))?;
        match status.success() {
            true => Ok(printed),
            false => Err(self.failed(told.lines().next().unwrap_or(&status.to_string()))),
        }
    }

    fn failed(&self, why: impl Display) -> Error {
        Error::new(self.name, why, "check its version; without its library the others are measured")
    }
}

impl Stack for Foreign {
    fn name(&self) -> &'static str {
        self.name
    }

    fn connect(&self, ground: &Ground, pair: &Pair, case: &Case<'_>) -> Result<(), Error> {
        let mode = case.mode.name();
        let keys = [Keys::new(case, &case.tree.server)?, Keys::new(case, &case.tree.client)?];
        let mut server = self.start(ground, &pair.server, ["server", mode], &keys[0], &[])?;
        let mut port = String::new();
        if let Some(out) = server.child().stdout.as_mut() {
            BufReader::new(out).read_line(&mut port).map_err(|error| self.failed(error))?;
        }
        if port.is_empty() {
            return self.finished(server).and(Err(self.failed("the server does not listen")));
        }
        let to = [Pair::SERVER.to_string(), port.trim().to_owned()];
        let client = self.start(ground, &pair.client, ["client", mode], &keys[1], &to)?;
        let printed = self.finished(client)?;
        self.finished(server)?;
        let expected = match case.mode {
            Mode::Vanilla => ["full", "full"],
            Mode::Resumption => ["full", "resumed"],
        };
        let seen: Vec<_> = printed.lines().collect();
        if seen != expected {
            return Err(self.failed(format_args!(
                "{} connections instead of {}",
                seen.join(", "),
                expected.join(", ")
            )));
        }
        Ok(())
    }
}
