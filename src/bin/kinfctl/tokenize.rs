//! `kinfctl tokenize`: prints the token ids of a request as the router sees them.

/// Arguments.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the command.
pub async fn run(_: Args) -> anyhow::Result<()> {
    Ok(())
}
