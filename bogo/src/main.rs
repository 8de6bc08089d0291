//! The shim between Dunlin and BoringSSL's conformance runner (BoGo). The runner starts one process for each
//! test. The process connects to the runner one or more times, follows its options, and checks what they
//! expect.
//!
//! * [`options`]: the command line, for the first connection, for resumptions and for retries.
//! * [`setup`]: makes profiles and configurations from the options; [`keys`] loads credentials, [`suites`]
//!   chooses cipher suites and groups.
//! * [`compression`]: the runner's algorithms for compressed certificates.
//! * [`answers`]: answers the engine's questions.
//! * [`connection`]: runs one connection over [`transport`]; [`exchange`] exchanges data after the handshake.
//! * [`engine`]: the engine's connection, over a stream or over datagrams.
//! * [`expect`]: compares a finished handshake with the expectations.
//! * [`reasons`]: gives Dunlin's errors the names that the runner knows.

mod answers;
mod compression;
mod connection;
mod engine;
mod exchange;
mod expect;
mod keys;
mod options;
mod reasons;
mod setup;
mod suites;
mod transport;

use std::process::ExitCode;
use std::time::Duration;

use options::Options;
use setup::Shared;

/// The exit status by which the runner counts a test as not implemented.
const UNIMPLEMENTED: u8 = 89;

/// Why the shim fails.
#[derive(Debug)]
enum Failure {
    /// The engine ended the connection.
    Engine(dunlin::Error),
    /// An option asks for an unsupported feature.
    Unimplemented(String),
    /// An expectation failed, or a file or the connection could not be read.
    Unexpected(String),
}

impl From<dunlin::Error> for Failure {
    fn from(e: dunlin::Error) -> Self {
        Self::Engine(e)
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Self::Unexpected(e.to_string())
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into()).collect();
    if arguments.iter().any(|a| a == "-is-handshaker-supported") {
        println!("No");
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Unimplemented(what)) => {
            eprintln!("not implemented: {what}");
            ExitCode::from(UNIMPLEMENTED)
        }
        Err(Failure::Unexpected(what)) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
        Err(Failure::Engine(e)) => {
            eprintln!(":{}: {e}", reasons::name(&e));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let [initial, resume, retry] = Options::parse(arguments)?;
    let mut shared = Shared::new();
    for connection in 0..=initial.resume_count {
        let is_resume = connection > 0;
        let options = if is_resume { &resume } else { &initial };
        if is_resume && !options.server && !shared.sessions.has_one() {
            return Err(Failure::Unexpected("there is no session to offer".into()));
        }
        connection::run(options, &retry, &mut shared, is_resume)?;
        shared.advance(Duration::from_secs(options.resumption_delay_s));
    }
    Ok(())
}
