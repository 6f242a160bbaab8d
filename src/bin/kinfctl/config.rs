//! `kinfctl config`: checks a configuration file and the files that it names, as the server does when it starts.

use std::path::{Path, PathBuf};

use kinference::{
    app,
    config::{Config, ConfigError, ConfigErrors, Discovery, Problem, load_workers},
    enforce,
    serve::tls,
};

use crate::{
    findings::{self, Finding, Report, Severity},
    output::{self, Outcome},
    validate::finding,
};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Checks a configuration, its workers files, policy files and certificates: all problems at once, each with its key or line.
    Check {
        /// The configuration file, TOML.
        file: PathBuf,
        /// Print the configuration that is in force, every key with its value, as TOML; findings go to stderr then.
        #[arg(long, conflicts_with = "output")]
        print: bool,
        #[command(flatten)]
        report: Report,
    },
}

/// Runs the command.
pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let Command::Check { file, print, report } = args.command;
    let (config, found) = check(&file).await;
    if !print {
        return report.print(&found, &file.display().to_string());
    }
    let outcome = findings::print_aside(&found)?;
    match config {
        Some(config) => output::text(config.effective().trim_end()).map(|()| outcome),
        None => Ok(outcome),
    }
}

/// The configuration, if it can be read, and all that there is to say of it.
async fn check(file: &Path) -> (Option<Config>, Vec<Finding>) {
    let (config, warnings) = match Config::load(file) {
        Ok(loaded) => loaded,
        Err(errors) => return (None, wrong(&errors, &[file])),
    };
    let named = config.workersets.iter().filter_map(|set| match &set.discovery {
        Discovery::Static { workers_file } => Some(workers_file.as_path()),
        _ => None,
    });
    let files: Vec<_> = [file].into_iter().chain(named).collect();
    let mut found: Vec<_> = warnings.iter().map(|warning| of_warning(warning, &files)).collect();
    match load_workers(&config) {
        Ok((_, warnings)) => found.extend(warnings.iter().map(|warning| of_warning(warning, &files))),
        Err(errors) => found.extend(wrong(&errors, &files)),
    }
    match enforce::check(&config).await {
        Ok(warnings) => found.extend(warnings.iter().map(finding)),
        Err(errors) => found.extend(errors.remarks().iter().map(finding)),
    }
    let log = app::unwritable_log(&config);
    found.extend(log.map(|message| Finding { message, ..blank(Severity::Warning, Some(file)) }));
    if let Err(errors) = tls::check(&config.tls).await {
        let message = errors.to_string();
        found.push(Finding { message, ..blank(Severity::Error, Some(file)) });
    }
    drop(files);
    (Some(config), found)
}

fn wrong(errors: &ConfigErrors, files: &[&Path]) -> Vec<Finding> {
    let warnings = errors.warnings().iter().map(|warning| of_warning(warning, files));
    errors.errors().iter().map(of_error).chain(warnings).collect()
}

fn of_error(error: &ConfigError) -> Finding {
    let (place, message) = match &error.problem {
        Problem::Syntax { line, column, message } => (Some((*line, *column)), message.clone()),
        problem => (None, problem.to_string()),
    };
    let path = error.path.clone();
    Finding { place, path, message, ..blank(Severity::Error, error.file.as_deref()) }
}

/// A warning begins with its file.
fn of_warning(warning: &str, files: &[&Path]) -> Finding {
    let after = |file: &&&Path| warning.strip_prefix(&format!("{}: ", file.display()));
    match files.iter().find_map(|file| Some((file, after(&file)?))) {
        Some((file, rest)) => Finding { message: rest.to_owned(), ..blank(Severity::Warning, Some(file)) },
        None => Finding { message: warning.to_owned(), ..blank(Severity::Warning, None) },
    }
}

fn blank(severity: Severity, file: Option<&Path>) -> Finding {
    let file = file.map(|file| file.display().to_string());
    Finding { severity, file, place: None, path: String::new(), message: String::new() }
}
