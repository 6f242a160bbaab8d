//! `kinfctl`: looks at engines, requests and decisions from the command line. JSON on stdout, errors on stderr.

mod events;
mod tokenize;

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
    /// KV-cache events: does my engine publish, and what?
    Events(events::Args),
    /// Tokenizes a request as the router would.
    Tokenize(tokenize::Args),
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a command line reports its errors there")]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Events(args) => events::run(args).await,
        Command::Tokenize(args) => tokenize::run(args).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kinfctl: {error:#}");
            ExitCode::FAILURE
        }
    }
}
