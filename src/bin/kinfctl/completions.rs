//! `kinfctl completions`: a script that completes our arguments in a shell.

use crate::output;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Runs the command.
pub fn run(args: &Args, mut cli: clap::Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli, "kinfctl", &mut script);
    output::text(String::from_utf8(script)?.trim_end())
}
