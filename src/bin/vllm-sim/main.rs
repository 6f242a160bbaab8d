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
mod tokenizer;

use std::{future::Future, io::Write, process::ExitCode, sync::Arc};

use anyhow::{Context, Result};
use axum::serve::ListenerExt;
use clap::Parser;
use tokio::{
    io::AsyncReadExt,
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use args::Args;
use drive::{Driver, Parts};
use engine::{Engine, sequence::Vocabulary};
use http::AppState;
use kv_socket::{Publisher, Replay};
use kv_wire::Wire;
use metrics::EngineMetrics;
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
    let metrics = EngineMetrics::new(&args, &config)?;
    let registry = metrics.registry();
    let sockets = Sockets::bind(&args).await?;
    let wire = Wire { hash: args.hash, block_size: config.block_size };
    let engine = Engine::new(config, vocabulary);
    let parts = Parts { engine, speedup: args.speedup, publisher: sockets.publisher, wire, metrics };
    let (driver, engine) = Driver::new(parts);

    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("bind {}", args.listen))?;
    let address = listener.local_addr()?;
    // Before anyone can know of us: a signal from then on ends us in order.
    let stopped = stop(args.exit_with_stdin)?;
    announce(&address.to_string(), sockets.kv_events.as_deref(), sockets.replay_endpoint.as_deref())?;
    let state = Arc::new(AppState {
        args,
        tokenizer,
        engine,
        registry,
        kv_events: sockets.kv_events,
        replay: sockets.replay_endpoint,
        in_flight: Default::default(),
        requests: Default::default(),
    });
    let listener = listener.tap_io(|stream| {
        // Without it, chunks of one token wait for acknowledgements.
        stream.set_nodelay(true).ok();
    });
    tokio::select! {
        served = axum::serve(listener, http::router(state)) => served.context("serve HTTP"),
        () = driver.run() => Ok(()),
        () = if_some(sockets.replay.map(Replay::run)) => Ok(()),
        () = stopped => Ok(()),
    }
}

/// The KV-event sockets, as far as they are asked for.
#[derive(Default)]
struct Sockets {
    publisher: Option<Publisher>,
    kv_events: Option<String>,
    replay: Option<Replay>,
    replay_endpoint: Option<String>,
}

impl Sockets {
    async fn bind(args: &Args) -> Result<Self> {
        let Some(endpoint) = &args.kv_events else { return Ok(Self::default()) };
        let (publisher, kv_events) = Publisher::bind(endpoint, &args.topic).await?;
        let mut sockets = Self { kv_events: Some(kv_events), ..Self::default() };
        if let Some(endpoint) = &args.replay {
            let (replay, bound) = publisher.bind_replay(endpoint).await?;
            (sockets.replay, sockets.replay_endpoint) = (Some(replay), Some(bound));
        }
        sockets.publisher = Some(publisher);
        Ok(sockets)
    }
}

/// The one line of output that parents wait for.
fn announce(http: &str, kv_events: Option<&str>, replay: Option<&str>) -> Result<()> {
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
