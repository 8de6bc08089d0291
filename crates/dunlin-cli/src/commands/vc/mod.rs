//! `dunlin vc`: issues, shows, verifies and revokes verifiable credentials.

mod check;
mod issue;
pub(super) mod reissue;
mod status;

use std::io::Write;

use clap::{Args as ClapArgs, Subcommand};
use dunlin_command::error::Error;
use dunlin_identity::credential::Seconds;
use dunlin_store::psk::time::format_time;

const EXAMPLES: &str = "\
Examples:
  dunlin vc issue --issuer operator --subject did:key:z6Mk… --claim role=sensor --out device.vc
  dunlin vc issue --issuer operator --subject did:key:z6Mk… --status-list status.vc \\
    --status-url https://operator.example/status/1 --out device.vc
  dunlin vc show device.vc
  dunlin vc verify device.vc --vc-issuers trusted --vc-status status.vc
  dunlin vc revoke device.vc --issuer operator --status-list status.vc

An issuer or holder is a DID that `dunlin did create` has made. `dunlin client` and `dunlin server` show credentials with --did
and --vc, and verify those of peers with --vc-issuers.";

/// Issue, show, verify and revoke verifiable credentials.
#[derive(ClapArgs)]
#[command(arg_required_else_help = false, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Issue(issue::Issue),
    Verify(check::Verify),
    Show(check::Show),
    Revoke(status::Revoke),
}

/// Runs `dunlin vc`.
pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    match args.command {
        Command::Issue(args) => issue::run(&args, out),
        Command::Verify(args) => check::verify(&args, out),
        Command::Show(args) => check::show(&args, out),
        Command::Revoke(args) => status::revoke(&args, out),
    }
}

/// A time in text.
fn time_text(seconds: Seconds) -> String {
    u64::try_from(seconds).ok().and_then(format_time).unwrap_or_else(|| seconds.to_string())
}
