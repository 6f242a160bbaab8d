//! What is sent and when: a seeded plan of conversations. Pure; times are the engine's.

use std::{sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use rand::{Rng, rngs::StdRng};

use crate::text::Words;

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Workload {
    /// Single prompts with nothing in common, of lognormal length.
    Control,
    /// Single prompts, each behind one of a few long system prompts.
    SharedPrefix,
    /// Conversations whose every turn repeats what was said before.
    MultiTurn,
}

impl Workload {
    /// As given and reported.
    pub fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::SharedPrefix => "shared_prefix",
            Self::MultiTurn => "multi_turn",
        }
    }
}

/// Sizes, in tokens where not said otherwise.
#[derive(Args, Clone, Debug)]
pub struct Shape {
    /// Length of each answer.
    #[arg(long, default_value_t = 128)]
    pub output_tokens: u32,
    /// control: median length of a prompt.
    #[arg(long, default_value_t = 4096)]
    pub prompt_tokens: usize,
    /// control: longest prompt.
    #[arg(long, default_value_t = 16_384)]
    pub prompt_tokens_max: usize,
    /// shared_prefix: how many system prompts there are.
    #[arg(long, default_value_t = 30)]
    pub prefixes: usize,
    /// shared_prefix: length of each.
    #[arg(long, default_value_t = 8000)]
    pub prefix_tokens: usize,
    /// shared_prefix: length of what follows it.
    #[arg(long, default_value_t = 256)]
    pub suffix_tokens: usize,
    /// multi_turn: turns of a conversation.
    #[arg(long, default_value_t = 6)]
    pub turns: usize,
    /// multi_turn: length of the first turn.
    #[arg(long, default_value_t = 1600)]
    pub first_tokens: usize,
    /// multi_turn: length of each further turn, the answer before it not counted.
    #[arg(long, default_value_t = 512)]
    pub turn_tokens: usize,
    /// multi_turn: mean time between an answer and the next turn, in ms.
    #[arg(long, default_value_t = 8000.0)]
    pub think_ms: f64,
}

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Time after the previous answer (or the arrival).
    pub think: Duration,
    /// The user's message.
    pub text: String,
    /// Tokens to generate.
    pub output_tokens: u32,
}

/// One conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// When it arrives.
    pub at: Duration,
    /// The system message.
    pub system: Option<Arc<str>>,
    /// In order; each carries everything before it.
    pub turns: Vec<Turn>,
}

/// An exponential variate with this mean.
fn exponential(mean: f64, rng: &mut StdRng) -> f64 {
    -mean * (1.0 - rng.random::<f64>()).ln()
}

/// A lognormal variate with this median and sigma 0.6, the spread of chat prompts in the routing study.
fn lognormal(median: f64, rng: &mut StdRng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * rng.random::<f64>()).cos();
    median * (0.6 * normal).exp()
}

/// `count` conversations that arrive as a Poisson process of `rate` per second.
pub fn plan(
    workload: Workload,
    shape: &Shape,
    (rate, count): (f64, usize),
    (words, rng): (&Words, &mut StdRng),
) -> Vec<Session> {
    let systems: Vec<Arc<str>> = match workload {
        Workload::SharedPrefix => {
            (0..shape.prefixes.max(1)).map(|_| words.text(shape.prefix_tokens, rng).into()).collect()
        }
        Workload::Control | Workload::MultiTurn => Vec::new(),
    };
    let turn = |think_ms: f64, text| Turn {
        think: Duration::from_secs_f64(think_ms / 1000.0),
        text,
        output_tokens: shape.output_tokens,
    };
    let mut at = Duration::ZERO;
    let mut sessions = Vec::with_capacity(count);
    for _ in 0..count {
        at += Duration::from_secs_f64(exponential(1.0 / rate, rng));
        let session = match workload {
            Workload::Control => {
                let tokens = lognormal(shape.prompt_tokens as f64, rng) as usize;
                let text = words.text(tokens.clamp(1, shape.prompt_tokens_max), rng);
                Session { at, system: None, turns: vec![turn(0.0, text)] }
            }
            Workload::SharedPrefix => {
                let system = systems[rng.random_range(0..systems.len())].clone();
                let text = words.text(shape.suffix_tokens, rng);
                Session { at, system: Some(system), turns: vec![turn(0.0, text)] }
            }
            Workload::MultiTurn => {
                let first = turn(0.0, words.text(shape.first_tokens, rng));
                let next = (1..shape.turns)
                    .map(|_| turn(exponential(shape.think_ms, rng), words.text(shape.turn_tokens, rng)));
                Session { at, system: None, turns: std::iter::once(first).chain(next).collect() }
            }
        };
        sessions.push(session);
    }
    sessions
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, path::Path};

    use clap::{Command, FromArgMatches};
    use rand::SeedableRng;

    use super::*;

    fn planned(workload: Workload, seed: u64) -> Vec<Session> {
        let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer/tokenizer.json");
        let args = ["load", "--prefixes", "3", "--prefix-tokens", "20", "--prompt-tokens", "40"];
        let shape =
            Shape::from_arg_matches(&Shape::augment_args(Command::new("load")).get_matches_from(args))
                .unwrap();
        let words = Words::of(&tokenizer).unwrap();
        plan(workload, &shape, (2.0, 400), (&words, &mut StdRng::seed_from_u64(seed)))
    }

    #[test]
    fn a_seed_is_a_plan() {
        for workload in [Workload::Control, Workload::SharedPrefix, Workload::MultiTurn] {
            assert_eq!(planned(workload, 5), planned(workload, 5));
            assert_ne!(planned(workload, 5), planned(workload, 6));
        }
    }

    #[test]
    fn arrivals_have_the_rate_asked_for() {
        let last = planned(Workload::Control, 1).last().unwrap().at.as_secs_f64();
        assert!((150.0..250.0).contains(&last), "400 at 2/s took {last} s");
    }

    #[test]
    fn control_shares_nothing_and_shared_prefix_shares_three() {
        let control = planned(Workload::Control, 1);
        let heads: HashSet<_> =
            control.iter().map(|s| s.turns[0].text.chars().take(30).collect::<String>()).collect();
        assert!(heads.len() > 395, "{}", heads.len());
        let shared = planned(Workload::SharedPrefix, 1);
        let systems: HashSet<_> = shared.iter().map(|s| s.system.clone().unwrap()).collect();
        assert_eq!(systems.len(), 3);
    }

    #[test]
    fn a_conversation_has_its_turns() {
        let session = &planned(Workload::MultiTurn, 1)[0];
        assert_eq!(session.turns.len(), 6);
        assert_eq!(session.turns[0].think, Duration::ZERO);
        assert!(session.turns[1..].iter().all(|turn| turn.think > Duration::ZERO));
    }
}
