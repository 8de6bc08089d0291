//! `dunlin pki`: makes, shows, revokes and verifies keys and certificates.

mod crl;
mod make;
mod show;
mod verify;

use std::io::Write;

use clap::{Args as ClapArgs, Subcommand};
use dunlin_command::error::Error;

const EXAMPLES: &str = "\
Examples:
  dunlin pki demo --out demo                          a whole tree to try things out
  dunlin pki ca --name \"Example root\" --out pki        pki/ca.pem, pki/ca.key
  dunlin pki leaf --issuer pki/ca.pem --issuer-key pki/ca.key --san localhost --server --out pki
  dunlin pki raw-key --key-type ed25519 --out pki      a raw public key
  dunlin pki crl --issuer pki/ca.pem --issuer-key pki/ca.key --revoke pki/leaf.pem
  dunlin pki show pki/leaf.pem
  dunlin pki verify --ca pki/ca.pem pki/leaf.pem --name localhost";

/// Make, show, revoke and verify keys and certificates.
#[derive(ClapArgs)]
#[command(arg_required_else_help = false, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Ca(make::Ca),
    Intermediate(make::Intermediate),
    Leaf(make::Leaf),
    RawKey(make::RawKey),
    Crl(crl::Crl),
    Demo(make::Demo),
    Show(show::Show),
    Verify(verify::Verify),
}

/// Runs `dunlin pki`.
pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    match args.command {
        Command::Ca(args) => make::ca(&args, out),
        Command::Intermediate(args) => make::intermediate(&args, out),
        Command::Leaf(args) => make::leaf(&args, out),
        Command::RawKey(args) => make::raw_key(&args, out),
        Command::Crl(args) => crl::run(&args, out),
        Command::Demo(args) => make::demo(&args, out),
        Command::Show(args) => show::run(&args, out),
        Command::Verify(args) => verify::run(&args, out),
    }
}
