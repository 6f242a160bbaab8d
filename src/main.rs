//! The Kinference server: arguments, configuration, then the app. Exit codes: 0 done, 1 failed, 64 bad configuration.

use std::{io, io::IsTerminal, io::Write, path::PathBuf, process::ExitCode};

use clap::Parser;
use kinference::{
    app,
    observe::{DEFAULT_LOG, LogFilter, may_be_logged},
};
use tracing_subscriber::{EnvFilter, filter::filter_fn, fmt, prelude::*, registry};

/// Picks, for every inference request, the engine that will answer it soonest.
#[derive(Parser)]
#[command(version = kinference::observe::version())]
struct Args {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Validate it and the files that it names, print what is in force, and exit.
    #[arg(long)]
    check: bool,
    /// How log lines are written to stderr; which ones is the variable RUST_LOG's to say, and then `kinfctl log`'s.
    #[arg(long, default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
}

/// What shells know as a usage error.
const BAD_CONFIGURATION: u8 = 64;

fn main() -> ExitCode {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        // Bodies are read and prompts tokenized on threads of their own, and a proxy is most often on the same machine:
        // a worker for each core would spend its time waking others (docs/benchmarks.md).
        runtime.worker_threads(std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2));
    }
    match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(serve()),
        Err(error) => {
            // There is no log yet.
            let _ = writeln!(io::stderr(), "can't start threads: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG));
    let (filter, log) = LogFilter::new(filter);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    match args.log_format.as_str() {
        "json" => registry().with(filter).with(filter_fn(may_be_logged)).with(lines.json()).init(),
        _ => registry().with(filter).with(filter_fn(may_be_logged)).with(lines).init(),
    }
    let loaded = app::load(&args.config).await.map_err(|errors| writeln!(io::stderr(), "{errors}"));
    let Ok(config) = loaded else { return ExitCode::from(BAD_CONFIGURATION) };
    let done = match args.check {
        true => io::stdout().write_all(config.effective().as_bytes()).map_err(Into::into),
        false => app::run(config, log).await,
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    tracing::error!(error = format!("{error:#}"), "kinference stops");
    ExitCode::FAILURE
}
