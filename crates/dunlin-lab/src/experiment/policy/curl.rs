//! curl, in processes of its own: a client that was not written for this experiment.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::process::{Command, Stdio};

use super::super::keys::{CLIENT_NAME, SERVER_NAME};
use super::case::Strategy;
use super::unknown;
use crate::Error;
use crate::error::failed;

pub(super) const PROGRAM: &str = "curl";
pub(super) const ADVICE: &str = "install it to have it measured: apt-get install curl";
/// Stands in curl's lines for the suite, which curl does not tell.
pub(super) const NO_SUITE: &str = "-";

/// Uploads as `upload.c` does, each time by a new curl. `words` are the strategy, the server's address and
/// port, and the files of roots, certificate and key.
pub(super) fn run(words: &[OsString]) -> Result<(), Error> {
    let [strategy, address, port, roots, certificate, key] = words else { return Err(unknown()) };
    let [address, port] = [address, port].map(|word| word.to_str().ok_or_else(unknown));
    let address = address?;
    let port = port?;
    let strategy = strategy.to_str().and_then(Strategy::named).ok_or_else(unknown)?;
    let name = SERVER_NAME;
    let url = if strategy.is_redirection() {
        format!("http://{name}:{port}/upload?client={CLIENT_NAME}")
    } else {
        format!("https://{name}:{port}/upload")
    };
    let file = tempfile::NamedTempFile::new().map_err(failed)?;
    for line in io::stdin().lock().lines() {
        let size = line.map_err(failed)?.parse().map_err(|_| unknown())?;
        std::fs::write(file.path(), vec![b'x'; size]).map_err(failed)?;
        let mut curl = Command::new(PROGRAM);
        curl.args(["--disable", "--silent", "--show-error", "--fail", "--location", "--tls-max", "1.2"]);
        // Without this header, curl waits for the server's consent to uploads of more than 1 MB only.
        curl.args(["--header", "Expect: 100-continue", "--expect100-timeout", "30"]);
        curl.args(["--connect-to", &format!("{name}::{address}:"), "--output", "/dev/null"]);
        curl.args(["--write-out", "%{time_total}"]).arg("--cacert").arg(roots);
        curl.arg("--cert")
            .arg(certificate)
            .arg("--key")
            .arg(key)
            .arg("--upload-file")
            .arg(file.path())
            .arg(&url);
        let output =
            curl.stdin(Stdio::null()).output().map_err(|error| Error::new(PROGRAM, error, ADVICE))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(Error::new(PROGRAM, why.lines().next().unwrap_or("it failed"), "run it again"));
        }
        let seconds: f64 = String::from_utf8_lossy(&output.stdout).parse().map_err(failed)?;
        let mut out = io::stdout().lock();
        writeln!(out, "{:.0} {NO_SUITE}", seconds * 1e6).and_then(|()| out.flush()).map_err(failed)?;
    }
    Ok(())
}
