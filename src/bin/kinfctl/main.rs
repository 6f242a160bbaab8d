//! `kinfctl`: looks at engines, requests and decisions from the command line. JSON on stdout, errors on stderr.

mod client;
mod crds;
mod events;
mod output;
mod tokenize;
mod workers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Looks at engines, requests and decisions.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The CustomResourceDefinitions, as YAML.
    Crds(crds::Args),
    /// KV-cache events: does my engine publish, and what?
    Events(events::Args),
    /// Tokenizes a request as the router would.
    Tokenize(tokenize::Args),
    /// The workers of a running server: state, load, what is wrong with them.
    Workers(workers::Args),
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a command line reports its errors there")]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Crds(args) => crds::run(&args),
        Command::Events(args) => events::run(args).await,
        Command::Tokenize(args) => tokenize::run(args).await,
        Command::Workers(args) => workers::run(args).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that goes away (`| head`) is a normal end.
        Err(error) if output::nobody_reads(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kinfctl: {error:#}");
            ExitCode::FAILURE
        }
    }
}
