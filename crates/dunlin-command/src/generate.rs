//! The commands `completions` and `man`: files generated from the definitions of the command line.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Command};
use clap_complete::Shell;

use crate::error::Error;
use crate::files;

/// Print a completion script for a shell.
#[derive(ClapArgs)]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    /// Prints the script for the program `cli`.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn run(&self, mut cli: Command, out: &mut dyn Write) -> Result<(), Error> {
        // The generator panics if it cannot write, so it writes to memory.
        let mut script = vec![];
        let name = cli.get_name().to_owned();
        clap_complete::generate(self.shell, &mut cli, &name, &mut script);
        if self.shell == Shell::Bash && name.contains('-') {
            // clap writes such a name in two ways, so its script would not find the options of commands.
            let text = String::from_utf8_lossy(&script);
            script = text.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__")).into_bytes();
        }
        Ok(out.write_all(&script)?)
    }
}

/// Write the man pages, one for each command.
#[derive(ClapArgs)]
pub struct Man {
    /// The directory, which is created if it is missing. Pages of an earlier version are replaced.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Man {
    /// Writes the pages of the program `cli`.
    ///
    /// # Errors
    /// The directory or a page cannot be written.
    pub fn run(&self, cli: Command) -> Result<(), Error> {
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
