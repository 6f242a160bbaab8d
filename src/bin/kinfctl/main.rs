//! `kinfctl`: looks at engines, requests, workers and decisions from the command line. Data on stdout, errors on stderr.
//!
//! Exit codes: 0 fine, 1 problems found or failed, 2 wrong arguments.

mod admin;
mod calibrate;
mod cases;
mod client;
mod completions;
mod config;
mod crds;
mod events;
mod explain;
mod findings;
mod inputs;
mod man;
mod output;
mod scenario;
mod tokenize;
mod top;
mod validate;
mod workers;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use output::Outcome;

/// Looks at engines, requests, workers and decisions.
#[derive(Parser)]
#[command(
    name = "kinfctl",
    version = kinference::observe::version(),
    after_help = "Exit codes: 0 fine, 1 problems found or failed, 2 wrong arguments."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What a running server has learnt of how long engines take, as TOML to paste.
    Calibrate(calibrate::Args),
    /// Completions of the arguments for a shell.
    Completions(completions::Args),
    /// Is this configuration right, and what is in force?
    Config(config::Args),
    /// Takes a worker of a running server out of new picks; what is known of its cache is kept up.
    Cordon(admin::cordon::Args),
    /// The CustomResourceDefinitions, as YAML.
    Crds(crds::Args),
    /// KV-cache events: does my engine publish, and what?
    Events(events::Args),
    /// Why does a request go where it goes?
    Explain(Box<explain::Args>),
    /// What a running server logs, shown or changed.
    Log(admin::log::Args),
    /// Manual pages.
    Man(man::Args),
    /// Runs test cases of policies: fleet and request in, what becomes of it out.
    Test(cases::Args),
    /// Tokenizes a request as the router would.
    Tokenize(tokenize::Args),
    /// A live table of the workers of a running server; `q` or Ctrl-C ends it.
    Top(top::Args),
    /// Puts a cordoned worker of a running server back.
    Uncordon(admin::cordon::Args),
    /// Are these resources right, by themselves and together?
    Validate(validate::Args),
    /// The workers of a running server: state, load, what is wrong with them.
    Workers(workers::Args),
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a command line reports its errors there")]
async fn main() -> ExitCode {
    match run(Cli::parse().command).await {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Problems) => ExitCode::FAILURE,
        // A reader that goes away (`| head`) is a normal end.
        Err(error) if output::nobody_reads(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Lines stay; what others said in them may hold anything.
            let text = format!("kinfctl: {error:#}");
            text.lines().for_each(|line| eprintln!("{}", output::clean(line)));
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Config(args) => return config::run(args).await,
        Command::Explain(args) => return explain::run(*args).await,
        Command::Test(args) => return cases::run(&args),
        Command::Validate(args) => return validate::run(&args),
        Command::Calibrate(args) => calibrate::run(args).await,
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Cordon(args) => admin::cordon::run(args, true).await,
        Command::Crds(args) => crds::run(&args),
        Command::Events(args) => events::run(args).await,
        Command::Log(args) => admin::log::run(args).await,
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Tokenize(args) => tokenize::run(args).await,
        Command::Top(args) => top::run(args).await,
        Command::Uncordon(args) => admin::cordon::run(args, false).await,
        Command::Workers(args) => workers::run(args).await,
    }?;
    Ok(Outcome::Fine)
}
