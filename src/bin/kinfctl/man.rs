//! `kinfctl man`: manual pages in roff, made from the same words as `--help`.

use std::{fs, path::PathBuf};

use anyhow::Context;
use clap_mangen::Man;

use crate::output;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The page of this subcommand, such as `workers` or `events tail`. Default: of `kinfctl` itself.
    #[arg(conflicts_with = "dir")]
    command: Vec<String>,
    /// Write all pages into this directory, which is made if need be, instead of printing one.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args, mut cli: clap::Command) -> anyhow::Result<()> {
    cli.build();
    if let Some(dir) = &args.dir {
        let written = fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(cli, dir));
        return written.with_context(|| dir.display().to_string());
    }
    let mut page = &cli;
    for name in &args.command {
        page = page.find_subcommand(name).with_context(|| format!("{name}: no subcommand"))?;
    }
    let mut roff = Vec::new();
    Man::new(page.clone()).title(page.get_display_name().unwrap_or("kinfctl")).render(&mut roff)?;
    output::text(String::from_utf8(roff)?.trim_end())
}
