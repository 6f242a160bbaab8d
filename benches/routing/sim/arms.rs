//! The routers that are compared. Each is told what it would be told in life, and nothing more; the oracle alone looks
//! into the engines.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::Serialize;

use crate::{
    engine::{
        CacheEvent, Engine,
        hash::Salts,
        sequence::{Arrival, RequestId},
        timing::Preset,
    },
    router::Replicas,
    world::Slot,
};

/// What a scrape of an engine sees.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub running: f64,
    pub waiting: f64,
    pub kv_usage: f64,
}

impl Seen {
    pub fn of(engine: &Engine) -> Self {
        Self {
            running: engine.running() as f64,
            waiting: engine.waiting() as f64,
            kv_usage: engine.cache_usage(),
        }
    }
}

/// A router by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Name {
    /// Any engine, for each request (kube-proxy, with a connection a request).
    Random,
    /// One after the other.
    RoundRobin,
    /// Envoy's: of two at random the one with fewer active requests.
    LeastRequest,
    /// Kinference blind to prompts: load alone.
    LoadOnly,
    /// Kinference with documented defaults.
    Kinference,
    /// Kinference that has calibrated itself, starting from documented defaults, on one run of other requests before.
    KinferenceCalibrated,
    /// Kinference whose coefficients are the engine's.
    KinferenceFitted,
    /// Tries each request on a copy of every engine, and takes the one whose first token comes first.
    Oracle,
}

/// A router at work.
pub enum Arm {
    Random(StdRng),
    RoundRobin(usize),
    LeastRequest { active: Vec<u32>, rng: StdRng },
    Kinference(Box<Replicas>),
    Oracle(StdRng),
}

/// What an arm is made for.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub preset: Preset,
    pub engines: usize,
    pub replicas: usize,
    pub seed: u64,
}

impl Arm {
    pub fn new(name: Name, setting: Setting) -> anyhow::Result<Self> {
        let rng = StdRng::seed_from_u64(setting.seed);
        Ok(match name {
            Name::Random => Self::Random(rng),
            Name::RoundRobin => Self::RoundRobin(0),
            Name::LeastRequest => Self::LeastRequest { active: vec![0; setting.engines], rng },
            Name::Oracle => Self::Oracle(rng),
            Name::LoadOnly | Name::Kinference | Name::KinferenceCalibrated | Name::KinferenceFitted => {
                Self::Kinference(Box::new(Replicas::new(name, setting)?))
            }
        })
    }

    /// The engines begin anew, with empty caches.
    pub fn restarted(&mut self) {
        if let Self::Kinference(replicas) = self {
            replicas.restarted();
        }
    }

    /// Lets time pass.
    pub async fn advance(&mut self, by: Duration) {
        if let Self::Kinference(_) = self {
            tokio::time::advance(by).await;
        }
    }

    /// The engine for a request.
    pub async fn choose(&mut self, id: u64, prompt: &[u32], (slots, now): (&[Slot], Duration)) -> usize {
        match self {
            Self::Random(rng) => rng.random_range(0..slots.len()),
            Self::RoundRobin(next) => {
                *next += 1;
                (*next - 1) % slots.len()
            }
            Self::LeastRequest { active, rng } => {
                let two = [rng.random_range(0..slots.len()), rng.random_range(0..slots.len())];
                let [one, other] = two;
                let chosen = if active[other] < active[one] { other } else { one };
                active[chosen] += 1;
                chosen
            }
            Self::Kinference(replicas) => replicas.choose(id, prompt).await,
            Self::Oracle(rng) => {
                let first = |slot: &Slot| (first_token(slot.clone(), prompt, now), slot.engine.running());
                let outlook: Vec<_> = slots.iter().map(first).collect();
                let least = outlook.iter().min().copied();
                let best: Vec<_> = (0..slots.len()).filter(|at| Some(outlook[*at]) == least).collect();
                best[rng.random_range(0..best.len())]
            }
        }
    }

    pub fn first_token(&mut self, id: u64) {
        if let Self::Kinference(replicas) = self {
            replicas.first_token(id);
        }
    }

    pub fn finished(&mut self, id: u64, engine: usize) {
        match self {
            Self::LeastRequest { active, .. } => active[engine] -= 1,
            Self::Kinference(replicas) => replicas.finished(id),
            _ => {}
        }
    }

    /// KV events of an engine came in.
    pub fn told(&mut self, engine: usize, events: Vec<CacheEvent>) {
        if let Self::Kinference(replicas) = self {
            replicas.told(engine, events);
        }
    }

    pub fn scraped(&mut self, engine: usize, seen: Seen) {
        if let Self::Kinference(replicas) = self {
            replicas.scraped(engine, seen);
        }
    }
}

/// When the first token of this prompt would come, if nothing else did.
fn first_token(Slot { mut engine, until }: Slot, prompt: &[u32], now: Duration) -> Duration {
    const ID: RequestId = RequestId(u64::MAX);
    engine.submit(Arrival { id: ID, prompt: prompt.to_vec(), max_tokens: 2, salts: Salts::default() });
    let mut at = now;
    if let Some(until) = until {
        engine.finish_step();
        at = until;
    }
    while let Some(took) = engine.begin_step() {
        at += took;
        if engine.finish_step().outputs.iter().any(|output| output.id == ID) {
            break;
        }
    }
    at
}
