//! `dunlin completions` and `dunlin man`: files generated from the definitions of the command line.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Command};
use clap_complete::Shell;

use crate::error::Error;
use crate::files;

/// Print a completion script for a shell.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin completions bash > ~/.local/share/bash-completion/completions/dunlin
  dunlin completions zsh > ~/.zfunc/_dunlin            with fpath+=~/.zfunc before compinit
  dunlin completions fish > ~/.config/fish/completions/dunlin.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    /// Runs `dunlin completions`.
    pub(crate) fn run(&self, mut cli: Command, out: &mut dyn Write) -> Result<(), Error> {
        // The generator panics if it cannot write, so it writes to memory.
        let mut script = vec![];
        clap_complete::generate(self.shell, &mut cli, "dunlin", &mut script);
        Ok(out.write_all(&script)?)
    }
}

/// Write the man pages, one for each command.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin man ~/.local/share/man/man1                   then: man dunlin-client
  dunlin man man && man -l man/dunlin-server.1")]
pub(crate) struct Man {
    /// The directory, which is created if it is missing. Pages of an earlier version are replaced.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Man {
    /// Runs `dunlin man`.
    pub(crate) fn run(&self, cli: Command) -> Result<(), Error> {
        files::create_directory(&self.dir)?;
        let mut cli = cli.disable_help_subcommand(true);
        cli.build();
        let written = clap_mangen::generate_to(with_short_synopsis(cli), &self.dir);
        written.map_err(|e| Error::failed(self.dir.display(), e, "give a directory that can be written to"))
    }
}

/// Makes the synopsis of each page the usage line of `--help`. The default lists every option without its
/// value, on a dozen lines.
fn with_short_synopsis(command: Command) -> Command {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    command.override_usage(usage).mut_subcommands(with_short_synopsis)
}
