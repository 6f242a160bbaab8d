//! An open-loop load generator for OpenAI-style servers: seeded Poisson arrivals of synthetic conversations, streamed.
//!
//! `load --url http://127.0.0.1:10000 --model m --tokenizer tokenizer.json --workload shared_prefix --rate 1.4`
//! Arrivals never wait for answers, so that a slow server meets a growing queue as it would in life.
//! Times given and reported are the engine's: wall time times `--speedup` (1 for real engines).

#![expect(clippy::print_stderr, reason = "a command-line program: progress goes to stderr")]

mod client;
mod progress;
mod report;
mod stream;
mod text;
mod workload;

use std::{fs::File, io::Write, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use rand::{SeedableRng, rngs::StdRng};
use tokio::{task::JoinSet, time::Instant};

use client::{Client, Message};
use progress::Progress;
use report::{Record, Summary};
use text::Words;
use workload::{Session, Shape, Workload};

#[derive(Parser)]
struct Args {
    /// Server, without a path.
    #[arg(long)]
    url: String,
    /// Model named in each request.
    #[arg(long)]
    model: String,
    /// The model's tokenizer.json: prompts are made of words that are one token each.
    #[arg(long)]
    tokenizer: PathBuf,
    /// What to send.
    #[arg(long)]
    workload: Workload,
    /// Conversations started per second of engine time.
    #[arg(long)]
    rate: f64,
    /// Conversations in all.
    #[arg(long, default_value_t = 200)]
    sessions: usize,
    /// Same seed, same arrivals and prompts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How much faster than life the engines run (vllm-sim's --speedup).
    #[arg(long, default_value_t = 1.0)]
    speedup: f64,
    /// An extra request header, `name: value`; may be repeated.
    #[arg(long = "header")]
    headers: Vec<String>,
    /// Name of this run in the progress line.
    #[arg(long, default_value = "")]
    label: String,
    /// A request that takes longer than this (wall time) has failed.
    #[arg(long, default_value_t = 600)]
    timeout_secs: u64,
    /// Write one JSON line per request here.
    #[arg(long)]
    records: Option<PathBuf>,
    /// Write the summary here as well as to stdout.
    #[arg(long)]
    summary: Option<PathBuf>,
    #[command(flatten)]
    shape: Shape,
}

/// What every conversation's task shares.
struct Run {
    client: Client,
    speedup: f64,
    start: Instant,
    progress: Progress,
}

impl Run {
    /// Plays one conversation from its arrival to its last answer, or to the first failure.
    async fn play(self: Arc<Self>, id: usize, session: Session) -> Vec<Record> {
        let wall = |engine: Duration| engine.div_f64(self.speedup);
        tokio::time::sleep_until(self.start + wall(session.at)).await;
        let mut messages: Vec<Message> =
            session.system.map(|text| Message::system(&text)).into_iter().collect();
        let mut records = Vec::new();
        for (turn, asked) in session.turns.into_iter().enumerate() {
            tokio::time::sleep(wall(asked.think)).await;
            messages.push(Message::user(asked.text));
            self.progress.sent();
            let at = self.start.elapsed();
            let answer = self.client.ask(&messages, asked.output_tokens).await;
            let record = Record::new((id, turn), at, &answer, self.speedup);
            self.progress.done(&record);
            let failed = record.error.is_some();
            records.push(record);
            match answer {
                Ok(answer) if !failed => messages.push(Message::assistant(answer.text)),
                _ => break,
            }
        }
        records
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    anyhow::ensure!(args.rate > 0.0 && args.speedup > 0.0, "--rate and --speedup must be above 0");
    let words = Words::of(&args.tokenizer)?;
    let mut rng = StdRng::seed_from_u64(args.seed);
    let sessions = workload::plan(args.workload, &args.shape, (args.rate, args.sessions), (&words, &mut rng));
    let total = sessions.iter().map(|session| session.turns.len()).sum();
    let client = Client::new(&args.url, &args.model, &args.headers, Duration::from_secs(args.timeout_secs))?;
    let label = format!("{:<13} {}", args.workload.name(), args.label);
    let run = Arc::new(Run {
        client,
        speedup: args.speedup,
        start: Instant::now(),
        progress: Progress::new(label, total),
    });

    let mut tasks = JoinSet::new();
    for (id, session) in sessions.into_iter().enumerate() {
        tasks.spawn(run.clone().play(id, session));
    }
    let mut records = run.progress.show_until(tasks.join_all()).await.concat();
    records.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));

    if let Some(path) = &args.records {
        let mut file = File::create(path).with_context(|| path.display().to_string())?;
        for record in &records {
            writeln!(file, "{}", serde_json::to_string(record)?)?;
        }
    }
    if let Some(error) = records.iter().find_map(|record| record.error.as_ref()) {
        eprintln!("first error: {error}");
    }
    let summary = Summary::of(args.workload.name(), &records, run.start.elapsed().mul_f64(args.speedup));
    let json = serde_json::to_string_pretty(&summary)?;
    writeln!(std::io::stdout(), "{json}")?;
    if let Some(path) = &args.summary {
        std::fs::write(path, json).with_context(|| path.display().to_string())?;
    }
    Ok(if summary.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
