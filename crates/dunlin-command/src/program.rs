//! The frame of a program: its arguments, its error, and its exit status.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::argv;
use crate::error::Error;

/// Parses `args` and runs the command. An error becomes a line on stderr and the exit status.
pub fn main<P: Parser>(args: &[OsString], run: impl FnOnce(P) -> Result<(), Error>) -> ExitCode {
    let result = match P::try_parse_from(args) {
        Ok(parsed) => run(parsed),
        Err(error) if error.use_stderr() => Err(match argv::unmet(&error, args, &P::command()) {
            Some((why, advice)) => Error::usage("arguments", why, advice),
            None => Error::from(error),
        }),
        // clap returns --help and --version as errors, too.
        Err(help) => help.print().map_err(Error::from),
    };
    ended(result)
}

/// Reports the error of a command, and returns the exit status.
pub fn ended(result: Result<(), Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.report();
            error.exit_code()
        }
    }
}
