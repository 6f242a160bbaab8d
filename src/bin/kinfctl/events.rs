//! `kinfctl events`: tail an engine's KV events, or decode recorded ones.

/// Arguments.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the command.
pub async fn run(_: Args) -> anyhow::Result<()> {
    Ok(())
}
