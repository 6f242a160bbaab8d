//! The routing benchmark's client in real time: plays a workload, open loop, against one router; a JSON line per request.
//! Conversations arrive whatever becomes of the others; a later turn is sent a while after the answer before it.
//! Prompts go as text, so that every router sees what users send. Times given and written are the engines': wall
//! time times `--speedup`.

mod client;
mod record;
mod select;
#[path = "../../../examples/load/stream.rs"]
mod stream;
#[path = "../../../examples/load/text.rs"]
mod text;
#[path = "../../../examples/load/workload.rs"]
mod workload;

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use llm_tokenizer::Tokenizer;
use rand::{SeedableRng, rngs::StdRng};
use tokio::{task::JoinSet, time::Instant};

use client::{Ask, Client};
use record::Record;
use text::Words;
use workload::{Session, Shape, Workload};

#[derive(Parser)]
struct Args {
    /// The router, without a path.
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
    #[arg(long)]
    sessions: usize,
    /// Same seed, same arrivals and prompts.
    #[arg(long)]
    seed: u64,
    /// How much faster than life the engines run (vllm-sim's --speedup).
    #[arg(long)]
    speedup: f64,
    /// The URL is a selection service: it names the engine, this client sends there.
    #[arg(long)]
    select: bool,
    /// A request that takes longer than this (wall time) has failed.
    #[arg(long, default_value_t = 120)]
    timeout_secs: u64,
    /// One JSON line per request goes here.
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    shape: Shape,
}

/// What every conversation's task shares.
struct Run {
    client: Client,
    /// To count tokens with, for a selection service alone.
    tokenizer: Option<Tokenizer>,
    speedup: f64,
    start: Instant,
}

impl Run {
    /// Plays one conversation from its arrival to its last answer, or to the first failure.
    async fn play(self: Arc<Self>, id: usize, session: Session) -> Result<Vec<Record>> {
        tokio::time::sleep_until(self.start + session.at.div_f64(self.speedup)).await;
        let mut prompt = session.system.map(|text| text.to_string()).unwrap_or_default();
        let mut records = Vec::new();
        for (turn, asked) in session.turns.into_iter().enumerate() {
            tokio::time::sleep(asked.think.div_f64(self.speedup)).await;
            prompt = format!("{prompt} {}", asked.text).trim_start().to_owned();
            let tokens = self.tokens(&prompt)?;
            let at = self.start.elapsed();
            let ask = Ask { prompt: &prompt, tokens: &tokens, output_tokens: asked.output_tokens };
            let answer = self.client.ask(&ask).await;
            records.push(Record::new((id, turn), at, &answer, self.speedup));
            let Ok(answer) = answer else { break };
            prompt += &answer.text;
        }
        Ok(records)
    }

    /// The prompt as the engine sees it, where the router can't see that for itself.
    fn tokens(&self, prompt: &str) -> Result<Vec<u32>> {
        let Some(tokenizer) = &self.tokenizer else { return Ok(Vec::new()) };
        let encoding = tokenizer.encode(prompt, true).map_err(|error| anyhow!("{error}"))?;
        Ok(encoding.token_ids().to_vec())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.rate > 0.0 && args.speedup > 0.0, "--rate and --speedup must be above 0");
    ensure!(args.sessions > 0, "{}: --sessions must be above 0", args.workload.name());
    let words = Words::of(&args.tokenizer)?;
    let mut rng = StdRng::seed_from_u64(args.seed);
    let sessions = workload::plan(args.workload, &args.shape, (args.rate, args.sessions), (&words, &mut rng));
    let timeout = Duration::from_secs(args.timeout_secs);
    let tokenizer = if args.select {
        let path = args.tokenizer.to_string_lossy();
        Some(Tokenizer::from_file(&path).map_err(|error| anyhow!("{path}: {error}"))?)
    } else {
        None
    };
    let run = Arc::new(Run {
        client: Client::new(&args.url, &args.model, args.select, timeout)?,
        tokenizer,
        speedup: args.speedup,
        start: Instant::now(),
    });
    let mut tasks = JoinSet::new();
    for (id, session) in sessions.into_iter().enumerate() {
        tasks.spawn(run.clone().play(id, session));
    }
    let played: Result<Vec<_>> = tasks.join_all().await.into_iter().collect();
    let mut records = played?.concat();
    records.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));

    let file = File::create(&args.out).with_context(|| args.out.display().to_string())?;
    let mut file = BufWriter::new(file);
    for record in &records {
        writeln!(file, "{}", serde_json::to_string(record)?)?;
    }
    Ok(file.flush()?)
}
