//! Other stacks: a small C program for each library, compiled when needed.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{self, Command, Stdio};

use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::Error;
use crate::net::{Ground, Namespace, Process};

/// The common beginning of all programs.
const COMMON: &str = include_str!("peer.c");

/// The first line of a program that leaves the settings of its library as they are. Other programs make their
/// hellos small.
const AS_SHIPPED: &str = "#define AS_SHIPPED\n";

/// A library and its program.
pub(super) struct Library {
    pub(super) name: &'static str,
    /// Whether its settings stay as they are.
    is_as_shipped: bool,
    /// The source that all its programs have, after [`COMMON`].
    common: &'static str,
    /// The rest of the source.
    source: &'static [&'static str],
    link: &'static [&'static str],
    /// The name of Debian's package.
    package: &'static str,
}

impl Library {
    pub(super) const fn openssl(source: &'static [&'static str], is_as_shipped: bool) -> Self {
        let name = if is_as_shipped { OPENSSL_AS_SHIPPED } else { "openssl" };
        let common = include_str!("openssl.c");
        let link = &["-lssl", "-lcrypto", "-lpthread"];
        Self { name, is_as_shipped, common, source, link, package: "libssl-dev" }
    }

    pub(super) const fn gnutls(source: &'static [&'static str], is_as_shipped: bool) -> Self {
        let name = if is_as_shipped { "gnutls as shipped" } else { "gnutls" };
        let common = include_str!("gnutls.c");
        Self { name, is_as_shipped, common, source, link: &["-lgnutls"], package: "libgnutls28-dev" }
    }

    pub(super) const fn wolfssl(source: &'static [&'static str], is_as_shipped: bool) -> Self {
        let name = if is_as_shipped { "wolfssl as shipped" } else { "wolfssl" };
        Self { name, is_as_shipped, common: "", source, link: &["-lwolfssl"], package: "libwolfssl-dev" }
    }

    pub(super) const fn mbedtls(source: &'static [&'static str]) -> Self {
        let link = &["-lmbedtls", "-lmbedx509", "-lmbedcrypto", "-lm"];
        Self { name: "mbedtls", is_as_shipped: false, common: "", source, link, package: "libmbedtls-dev" }
    }
}

/// The name of OpenSSL with its own settings.
pub(super) const OPENSSL_AS_SHIPPED: &str = "openssl as shipped";

/// A compiled program.
pub(super) struct Foreign {
    pub(super) name: &'static str,
    program: MemoryFile,
}

/// A file that vanishes with this process.
pub(super) struct MemoryFile(File);

impl MemoryFile {
    pub(super) fn new(content: &[u8]) -> Result<Self, Error> {
        let made = || -> io::Result<Self> {
            let mut file = File::from(memfd_create("dunlin-lab", MFdFlags::MFD_CLOEXEC)?);
            file.write_all(content)?;
            Ok(Self(file))
        };
        made().map_err(|error| Error::new("a file in memory", error, "free some memory"))
    }

    /// The path of the file for other processes, valid while this value lives.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", process::id(), self.0.as_raw_fd()))
    }
}

impl Library {
    /// Compiles the program.
    pub(super) fn compile(&self) -> Result<Foreign, Error> {
        self.compile_with::<&str>(&[])
    }

    /// Compiles the program with further options of the compiler.
    pub(super) fn compile_with<S: AsRef<OsStr>>(&self, options: &[S]) -> Result<Foreign, Error> {
        let advice = format!("install what it takes: apt-get install gcc libc6-dev {}", self.package);
        let failed = |why: &dyn Display| Error::new(self.name, why, &advice);
        let directory = tempfile::tempdir().map_err(|error| failed(&error))?;
        let program = directory.path().join(self.name);
        let mut cc = Command::new("cc");
        cc.args(options).args(["-O2", "-x", "c", "-", "-o"]).arg(&program).args(self.link);
        cc.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = cc.spawn().map_err(|error| failed(&format_args!("cc: {error}")))?;
        let first = if self.is_as_shipped { AS_SHIPPED } else { "" };
        let source = [&[first, COMMON, self.common], self.source].concat().concat();
        // A compiler that stops reading early gives the reason on stderr.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(source.as_bytes()));
        let output = child.wait_with_output().map_err(|error| failed(&error))?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            return Err(failed(
                &told.lines().find(|line| line.contains("error")).unwrap_or("does not compile"),
            ));
        }
        let program = fs::read(program).map_err(|error| failed(&error))?;
        Ok(Foreign { name: self.name, program: MemoryFile::new(&program)? })
    }
}

impl Foreign {
    /// Returns a command that runs the program with these arguments.
    pub(super) fn command(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(self.program.path());
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts the program as a server in a namespace, and waits for the port that it prints.
    ///
    /// # Errors
    /// The program does not listen.
    pub(super) fn serve<'a>(
        &self,
        ground: &'a Ground,
        namespace: &Namespace,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<(Process<'a>, String), Error> {
        let mut server = ground.spawn(namespace, &mut self.command(arguments))?;
        let mut port = String::new();
        if let Some(out) = server.child().stdout.as_mut() {
            BufReader::new(out).read_line(&mut port).map_err(|error| self.failed(error))?;
        }
        if port.is_empty() {
            return Err(self.finished(server).err().unwrap_or_else(|| self.failed("it does not listen")));
        }
        Ok((server, port.trim().to_owned()))
    }

    /// Waits for the end of the program. Returns its output, or the reason of its failure.
    pub(super) fn finished(&self, mut process: Process<'_>) -> Result<String, Error> {
        let child = process.child();
        let mut printed = String::new();
        let mut told = String::new();
        let out = child.stdout.as_mut();
        let err = child.stderr.as_mut();
        out.map_or(Ok(0), |out| out.read_to_string(&mut printed)).map_err(|error| self.failed(error))?;
        err.map_or(Ok(0), |err| err.read_to_string(&mut told)).map_err(|error| self.failed(error))?;
        let status = child.wait().map_err(|error| self.failed(error))?;
        if status.success() {
            Ok(printed)
        } else {
            Err(self.failed(told.lines().next().unwrap_or(&status.to_string())))
        }
    }

    pub(super) fn failed(&self, why: impl Display) -> Error {
        Error::new(self.name, why, "check its version; without its library the others are measured")
    }
}

/// Checks that a program is installed.
pub(super) fn is_installed(program: &str, advice: &str) -> Result<(), Error> {
    let failed = |why: &dyn Display| Error::new(program, why, advice);
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = version.map_err(|error| failed(&error))?;
    if status.success() { Ok(()) } else { Err(failed(&status)) }
}
