//! `vllm-sim`: an engine stand-in that speaks vLLM's HTTP, metrics and KV-event protocols.
//!
//! Prints one JSON line with the bound addresses, then serves until SIGTERM, SIGINT or (if asked) the end of stdin.

mod args;
mod drive;
mod engine;
mod handle;
mod http;
mod kv_socket;
mod kv_wire;
mod metrics;
mod pacer;
mod ranks;
mod tokenizer;

use std::{future::Future, io::Write, process::ExitCode, sync::Arc};

use anyhow::{Context, Result};
use axum::serve::ListenerExt;
use clap::Parser;
use futures::{StreamExt, stream::FuturesUnordered};
use tokio::{
    io::AsyncReadExt,
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use args::Args;
use engine::sequence::Vocabulary;
use http::AppState;
use metrics::Shared;
use ranks::{Rank, Work};
use tokenizer::Tokenizer;

fn main() -> ExitCode {
    let Err(error) = run(Args::parse()) else { return ExitCode::SUCCESS };
    // Nothing is left to do should stderr be closed too.
    let _ = writeln!(std::io::stderr(), "vllm-sim: {error:#}");
    ExitCode::FAILURE
}

fn run(args: Args) -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter()).init();
    // One thread is all that a stand-in may cost; tokenization has its own.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(3).build()?;
    let served = runtime.block_on(serve(args));
    // A read of stdin can't be cancelled: don't wait for it.
    runtime.shutdown_background();
    served
}

fn filter() -> tracing_subscriber::EnvFilter {
    tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into())
}

async fn serve(args: Args) -> Result<()> {
    let config = args.engine()?;
    let tokenizer = Tokenizer::load(&args.model_dir).context("load the tokenizer of --model-dir")?;
    let vocabulary = Vocabulary::new(&tokenizer.answer_ids()).context("an empty vocabulary")?;
    let shared = Shared::new(&args)?;
    let (ranks, work) = ranks::build(&args, (&config, &vocabulary), &shared).await?;
    let mut work: FuturesUnordered<_> = work.into_iter().map(Work::run).collect();

    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("bind {}", args.listen))?;
    let address = listener.local_addr()?;
    // Before anyone can know of us: a signal from then on ends us in order.
    let stopped = stop(args.exit_with_stdin)?;
    announce(&address.to_string(), &ranks.all()[0])?;
    let state = Arc::new(AppState {
        args,
        tokenizer,
        ranks,
        registry: shared.registry(),
        in_flight: Default::default(),
        requests: Default::default(),
    });
    let listener = listener.tap_io(|stream| {
        // Without it, chunks of one token wait for acknowledgements.
        stream.set_nodelay(true).ok();
    });
    tokio::select! {
        served = axum::serve(listener, http::router(state)) => served.context("serve HTTP"),
        _ = work.next() => Ok(()),
        () = stopped => Ok(()),
    }
}

/// The one line of output that parents wait for: the sockets are those of rank 0.
fn announce(http: &str, Rank { kv_events, replay, .. }: &Rank) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let line = serde_json::json!({"http": http, "kv_events": kv_events, "replay": replay});
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("write to stdout")
}

async fn if_some<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Listens for what ends the process; the future is ready when it came.
fn stop(exit_with_stdin: bool) -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = if_some(exit_with_stdin.then(stdin_ends)) => {}
        }
    })
}

async fn stdin_ends() {
    let mut stdin = tokio::io::stdin();
    let mut buffer = [0; 256];
    while stdin.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}
