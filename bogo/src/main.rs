//! Dunlin as BoringSSL's conformance runner (BoGo) wants it: one process for each test, which connects to the runner
//! once or several times, does what its options say, and checks what they expect.
//!
//! * [`options`]: the options of the command line, for the first connection, for resumptions and for retries.
//! * [`setup`]: profiles and configurations from the options; [`keys`] are the credentials in them, [`suites`] their cipher
//!   suites and groups.
//! * [`answers`]: what a handshake asks.
//! * [`connection`]: one connection over [`transport`]; [`exchange`] is what follows the handshake.
//! * [`expect`]: what the options expect of a finished handshake.
//! * [`reasons`]: our errors under the names that the runner knows.

mod answers;
mod connection;
mod exchange;
mod expect;
mod keys;
mod options;
mod reasons;
mod setup;
mod suites;
mod transport;

use std::process::ExitCode;

use options::Options;
use setup::Shared;

/// The runner counts the test as not implemented.
const UNIMPLEMENTED: u8 = 89;

/// Why the shim does not end with success.
#[derive(Debug)]
enum Failure {
    /// The engine ended the connection.
    Engine(dunlin::Error),
    /// The engine cannot do what an option asks for.
    Unimplemented(String),
    /// Something was not as an option expects, or could not be read.
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
        shared.advance(options.resumption_delay_s);
    }
    Ok(())
}
