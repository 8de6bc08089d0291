//! Other stacks: a small C program over each library, compiled when it is needed.

use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dunlin_pki::{Identity, certificates_to_pem};

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
    /// Where processes of the ground find it.
    program: PathBuf,
}

impl Library {
    /// Compiles the program into the directory of the ground.
    ///
    /// # Errors
    /// Without a compiler or the library.
    pub(super) fn compile(&self, ground: &Ground) -> Result<Foreign, Error> {
        let advice = format!("install what it takes: apt-get install gcc libc6-dev {}", self.package);
        let failed = |why: &dyn Display| Error::new(self.name, why, &advice);
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-x", "c", "-", "-o"]).arg(ground.directory().join(self.name)).args(self.link);
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
        Ok(Foreign { name: self.name, program: Path::new(Ground::DIRECTORY).join(self.name) })
    }
}

impl Foreign {
    fn start<'a>(
        &self,
        ground: &'a Ground,
        namespace: &Namespace,
        role: &str,
        case: &Case<'_>,
        to: &[String],
    ) -> Result<Process<'a>, Error> {
        let directory = Path::new(Ground::DIRECTORY).join(case.credential.name());
        let mut command = Command::new(&self.program);
        command.arg(role).arg(directory).arg(case.mode.name()).args(to);
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
        write_keys(&ground.directory().join(case.credential.name()), case)?;
        let mut server = self.start(ground, &pair.server, "server", case, &[])?;
        let mut port = String::new();
        if let Some(out) = server.child().stdout.as_mut() {
            BufReader::new(out).read_line(&mut port).map_err(|error| self.failed(error))?;
        }
        if port.is_empty() {
            return self.finished(server).and(Err(self.failed("the server does not listen")));
        }
        let to = [Pair::SERVER.to_string(), port.trim().to_owned()];
        let client = self.start(ground, &pair.client, "client", case, &to)?;
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

/// Writes the keys and certificates that the programs read, once for each kind.
fn write_keys(directory: &Path, case: &Case<'_>) -> Result<(), Error> {
    if directory.exists() {
        return Ok(());
    }
    let failed = |error: &dyn Display| Error::new("keys of the lab", error, "free some memory");
    fs::create_dir(directory).map_err(|error| failed(&error))?;
    let write =
        |name: &str, content: &str| fs::write(directory.join(name), content).map_err(|error| failed(&error));
    let root = certificates_to_pem(case.tree.root.chain()).map_err(|error| failed(&error))?;
    write("root.pem", &root)?;
    for (role, Identity { chain, key, .. }) in [("server", &case.tree.server), ("client", &case.tree.client)]
    {
        write(&format!("{role}.pem"), &certificates_to_pem(chain).map_err(|error| failed(&error))?)?;
        write(&format!("{role}.key"), &key.to_pem().map_err(|error| failed(&error))?)?;
    }
    Ok(())
}
