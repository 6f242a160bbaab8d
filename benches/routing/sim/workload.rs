//! What is sent and when: seeded plans of conversations, in token ids. Pure; times are the engines'.
//!
//! Arrivals are open loop: conversations come as a Poisson process, whatever became of those before. A later turn repeats
//! the conversation so far with its answers, and comes a drawn time after the answer before it.

use std::{ops::Range, path::Path, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};

/// Ids that tokens have.
const VOCABULARY: Range<u32> = 100..50_000;
/// Tokens in one block of the recorded trace.
const TRACE_BLOCK: usize = 512;

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Workload {
    /// Single prompts with nothing in common, of lognormal length.
    Control,
    /// Single prompts, each behind one of a few dozen long system prompts.
    SharedPrefix,
    /// Chats whose every turn repeats what was said before.
    MultiTurn,
    /// Transcripts of tools: many short answers, long results in between.
    Agentic,
    /// A recorded trace: times, lengths and shared blocks.
    Mooncake,
}

/// Sizes of a workload, in tokens where not said otherwise.
#[derive(Clone, Debug, Serialize)]
pub struct Shape {
    /// Conversations in one run.
    pub sessions: usize,
    /// Turns of each.
    pub turns: usize,
    /// System prompts to choose from, and the length of each; 0: none.
    pub prefixes: usize,
    pub prefix_tokens: usize,
    /// Length of the first message, and the sigma of its logarithm.
    pub first_tokens: usize,
    pub sigma: f64,
    /// Length of each later message.
    pub turn_tokens: usize,
    pub output_tokens: u32,
    /// Mean time from an answer to the next message, ms.
    pub think_ms: f64,
    /// Longest prompt.
    pub longest: usize,
}

impl Workload {
    /// The sizes of one run. The published benchmark tells none of its own: these are of the orders that its figures imply,
    /// and the same for all routers.
    pub fn shape(self) -> Shape {
        let one = Shape {
            sessions: 500,
            turns: 1,
            prefixes: 0,
            prefix_tokens: 0,
            first_tokens: 4096,
            sigma: 0.0,
            turn_tokens: 0,
            output_tokens: 128,
            think_ms: 0.0,
            longest: 16_384,
        };
        match self {
            Self::Control => Shape { sigma: 0.6, ..one },
            // Together 320,000 tokens: more than one engine's cache, less than two.
            Self::SharedPrefix => {
                Shape { sessions: 800, prefixes: 40, prefix_tokens: 8000, first_tokens: 256, ..one }
            }
            Self::MultiTurn => Shape {
                sessions: 400,
                turns: 6,
                first_tokens: 1600,
                turn_tokens: 512,
                think_ms: 8000.0,
                ..one
            },
            Self::Agentic => Shape {
                sessions: 120,
                turns: 15,
                prefixes: 4,
                prefix_tokens: 2000,
                first_tokens: 500,
                turn_tokens: 1200,
                output_tokens: 64,
                think_ms: 1500.0,
                longest: 28_000,
                ..one
            },
            Self::Mooncake => Shape { sessions: 600, longest: 30_000, ..one },
        }
    }
}

/// A run of tokens: equal ids are equal tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub id: u64,
    pub tokens: usize,
}

impl Part {
    /// The tokens themselves.
    pub fn ids(self) -> impl Iterator<Item = u32> {
        let mut rng = StdRng::seed_from_u64(self.id);
        (0..self.tokens).map(move |_| rng.random_range(VOCABULARY))
    }
}

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Time after the answer before it.
    pub think: Duration,
    /// What it adds.
    pub parts: Vec<Part>,
    pub output_tokens: u32,
}

/// One conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    pub at: Duration,
    pub turns: Vec<Turn>,
}

/// An exponential variate with this mean.
fn exponential(mean: f64, rng: &mut StdRng) -> f64 {
    -mean * (1.0 - rng.random::<f64>()).ln()
}

/// A lognormal variate with this median.
fn lognormal(median: f64, sigma: f64, rng: &mut StdRng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * rng.random::<f64>()).cos();
    median * (sigma * normal).exp()
}

/// Conversations of that shape that arrive at `rate` per second.
pub fn plan(shape: &Shape, rate: f64, seed: u64) -> Vec<Session> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut at = Duration::ZERO;
    (0..shape.sessions)
        .map(|_| {
            at += Duration::from_secs_f64(exponential(1.0 / rate, &mut rng));
            Session { at, turns: turns(shape, seed, &mut rng) }
        })
        .collect()
}

fn turns(shape: &Shape, seed: u64, rng: &mut StdRng) -> Vec<Turn> {
    let mut parts = Vec::new();
    if shape.prefixes > 0 {
        let id = (seed << 32) + rng.random_range(0..shape.prefixes) as u64;
        parts.push(Part { id, tokens: shape.prefix_tokens });
    }
    let mut length = shape.prefix_tokens * parts.len();
    let mut out = Vec::new();
    for turn in 0..shape.turns {
        let median = if turn == 0 { shape.first_tokens } else { shape.turn_tokens };
        let tokens = (lognormal(median as f64, shape.sigma, rng) as usize).max(1);
        let room = shape.longest.saturating_sub(length);
        parts.push(Part { id: rng.random(), tokens: tokens.min(room) });
        length += tokens + shape.output_tokens as usize;
        let think = if turn == 0 { 0.0 } else { exponential(shape.think_ms, rng) };
        let think = Duration::from_secs_f64(think / 1000.0);
        out.push(Turn { think, parts: std::mem::take(&mut parts), output_tokens: shape.output_tokens });
        if length >= shape.longest {
            break;
        }
    }
    out
}

#[derive(Deserialize)]
struct Traced {
    timestamp: f64,
    input_length: usize,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// The head of a recorded trace, as fast as `rate` requests per second on average. `seed` says where it begins.
///
/// # Errors
/// The file can't be read, or is no such trace.
pub fn traced(path: &Path, shape: &Shape, rate: f64, seed: u64) -> anyhow::Result<Vec<Session>> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.lines().skip(seed as usize % 4 * shape.sessions).take(shape.sessions);
    let rows = lines.map(serde_json::from_str::<Traced>).collect::<Result<Vec<_>, _>>()?;
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { anyhow::bail!("an empty trace") };
    let begun = first.timestamp;
    let scale = rows.len() as f64 / rate / ((last.timestamp - begun) / 1000.0).max(1.0);
    let session = |row: &Traced| {
        let length = row.input_length.min(shape.longest);
        let part = |(at, id): (usize, &u64)| Part {
            id: *id,
            tokens: TRACE_BLOCK.min(length.saturating_sub(at * TRACE_BLOCK)),
        };
        let parts = row.hash_ids.iter().enumerate().map(part).filter(|part| part.tokens > 0).collect();
        let output_tokens = row.output_length.clamp(1, 400);
        Session {
            at: Duration::from_secs_f64((row.timestamp - begun) / 1000.0 * scale),
            turns: vec![Turn { think: Duration::ZERO, parts, output_tokens }],
        }
    };
    Ok(rows.iter().map(session).collect())
}
