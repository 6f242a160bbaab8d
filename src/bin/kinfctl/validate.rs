//! `kinfctl validate`: resources in files, each by itself and how they fit together, without a cluster.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::Context;
use kinference::{
    config::Config,
    policy::manifests::{self, Remark},
};

use crate::{
    findings::{Finding, Report, Severity},
    inputs,
    output::Outcome,
};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Files, directories (all `.yaml` and `.yml` under them), patterns such as `'policies/*.yaml'`, or `-` for
    /// standard input. They are taken together: a policy and its pool may be in different files.
    #[arg(required = true)]
    files: Vec<String>,
    /// A worker set that exists, besides the InferenceWorkerSets in the files. May be given several times. Default: none;
    /// without it, `--config` and an InferenceWorkerSet, names of worker sets are not checked.
    #[arg(long, value_name = "NAME")]
    worker_set: Vec<String>,
    /// A configuration file, TOML, whose worker sets exist. Default: none.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Warnings are problems too: the exit code is 1.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    report: Report,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let (sources, mut found) = inputs::read(&args.files, inputs::is_yaml);
    let files = sources.iter().map(|source| (source.name.as_str(), source.text.as_str()));
    let made = manifests::read(files, worker_sets(args)?.as_ref());
    found.extend(made.remarks.iter().map(finding));
    let (files, resources) = (sources.len(), made.resources.len());
    let what = format!("{} in {}", counted(resources, "resource"), counted(files, "file"));
    let outcome = args.report.print(&found, &what)?;
    Ok(if args.strict && !found.is_empty() { Outcome::Problems } else { outcome })
}

/// `None`: nobody said.
fn worker_sets(args: &Args) -> anyhow::Result<Option<BTreeSet<String>>> {
    let mut known: BTreeSet<_> = args.worker_set.iter().cloned().collect();
    if let Some(file) = &args.config {
        let (config, _) = Config::load(file).context("--config")?;
        known.extend(config.workersets.into_iter().map(|set| set.name));
    } else if known.is_empty() {
        return Ok(None);
    }
    Ok(Some(known))
}

/// What was remarked.
pub fn finding(remark: &Remark) -> Finding {
    let severity = match remark.severity {
        manifests::Severity::Error => Severity::Error,
        manifests::Severity::Warning => Severity::Warning,
    };
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Finding {
        severity,
        file: Some(remark.file.to_string()),
        place: remark.at.map(|at| (number(at.line), number(at.column))),
        path: String::new(),
        message: remark.message.clone(),
    }
}

/// `1 file`, `2 files`.
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
