//! `kinfctl crds`: prints the CustomResourceDefinitions as YAML, or writes them into files.

use std::path::PathBuf;

use anyhow::Context;
use kinference::policy::crd;

use crate::output;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Only the definition of this kind, such as `InferencePool`.
    #[arg(long, conflicts_with = "dir")]
    kind: Option<String>,
    /// Write each into a file of its own in this directory, instead of printing them.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.dir {
        Some(dir) => crd::write_yaml(dir).with_context(|| dir.display().to_string()),
        None => output::text(crd::yaml(args.kind.as_deref())?.trim_end()),
    }
}
