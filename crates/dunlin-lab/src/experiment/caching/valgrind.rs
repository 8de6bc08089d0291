//! Runs parts of this program under valgrind in separate processes, whose counts no other program disturbs.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, Stdio};

use super::super::valgrind::{PROGRAM, failed};
use super::case::Case;
use super::foreign::Files;
use crate::Error;

/// A prepared task with options of valgrind.
struct Task {
    command: Command,
    /// Files that vanish with this value.
    _files: [Files; 2],
}

impl Task {
    fn new(options: impl IntoIterator<Item = OsString>, name: &str, case: &Case<'_>) -> Result<Self, Error> {
        let client = &case.keys.client;
        let server = &case.keys.server;
        let files = [Files::new(client, server)?, Files::new(server, client)?];
        let mut command = Command::new(PROGRAM);
        command.args(options).arg(std::env::current_exe().map_err(failed)?);
        command.args(["measured", name]).args(case.words()).args(files.iter().flat_map(Files::paths));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(Self { command, _files: files })
    }
}

/// Runs a task with these options of valgrind. Returns valgrind's output.
pub(super) fn told(
    options: impl IntoIterator<Item = OsString>,
    task: &str,
    case: &Case<'_>,
) -> Result<String, Error> {
    let mut task = Task::new(options, task, case)?;
    ended(task.command.spawn().map_err(failed)?)
}

/// Runs a client's and a server's task, connected by standard input and output. Returns valgrind's output for
/// each.
pub(super) fn told_by_both<I: IntoIterator<Item = OsString>>(
    options: impl Fn() -> I,
    [client, server]: &[String; 2],
    case: &Case<'_>,
) -> Result<[String; 2], Error> {
    let (from_client, to_server) = io::pipe().map_err(failed)?;
    let (from_server, to_client) = io::pipe().map_err(failed)?;
    let mut client = Task::new(options(), client, case)?;
    let mut server = Task::new(options(), server, case)?;
    let ours = client.command.stdin(from_server).stdout(to_server).spawn().map_err(failed)?;
    let theirs = server.command.stdin(from_client).stdout(to_client).spawn().map_err(failed)?;
    // Close this process's ends, so that a failing side ends the other one.
    for task in [&mut client, &mut server] {
        task.command.stdin(Stdio::null()).stdout(Stdio::null());
    }
    let ours = ended(ours);
    let theirs = ended(theirs);
    Ok([ours?, theirs?])
}

/// Returns valgrind's output at the end of a process.
fn ended(child: Child) -> Result<String, Error> {
    let output = child.wait_with_output().map_err(failed)?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(told)
    } else {
        Err(failed(told.lines().last().unwrap_or("it failed and does not say why")))
    }
}
