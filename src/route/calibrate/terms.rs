//! The terms of the prediction formula that calibration fits, and what a prediction is in them.
//!
//! Invariant: a prediction is `theta . x - drained_ms`, with `theta` the coefficients in the order of [`Term`].
//! Units: coefficients in milliseconds for each unit of their term.

use crate::{
    config::PredictorConfig,
    load::{Ahead, LoadView, Prefill},
    route::{
        predict::{Cost, predict, running_share},
        prefill_work_ms,
    },
    types::Prediction,
};

/// How many terms there are.
pub const TERMS: usize = 8;

/// One number a term.
pub type Vector = [f64; TERMS];

/// A term of the formula: the key that its coefficient has in `[profile.predictor]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// The constant part.
    Base,
    /// The worker runs anything.
    ForwardPass,
    /// Uncached blocks, of this prompt and of those ahead.
    UncachedBlock,
    /// Uncached blocks times blocks of their prompt, of this prompt and of those ahead.
    PerEveryBlock,
    /// Requests waiting ahead whose work is not known.
    Queue,
    /// Height of the penalty for running requests, 0..=1.
    Running,
    /// How far the KV cache is over the threshold, 0..=1.
    CachePressure,
    /// Requests waiting ahead where the cache is over the threshold and the prompt cold.
    SaturatedCold,
}

impl Term {
    /// All of them, in the order of a [`Vector`].
    pub const ALL: [Self; TERMS] = [
        Self::Base,
        Self::ForwardPass,
        Self::UncachedBlock,
        Self::PerEveryBlock,
        Self::Queue,
        Self::Running,
        Self::CachePressure,
        Self::SaturatedCold,
    ];

    /// The key of its coefficient.
    pub fn key(self) -> &'static str {
        match self {
            Self::Base => "base_ms",
            Self::ForwardPass => "forward_pass_ms",
            Self::UncachedBlock => "attention_uncached_block_ms",
            Self::PerEveryBlock => "attention_uncached_per_every_block_ms",
            Self::Queue => "queue_ms_per_entry",
            Self::Running => "q_running_penalty_peak_ms",
            Self::CachePressure => "cache_pressure_penalty_ms",
            Self::SaturatedCold => "saturated_cold_ms_per_entry",
        }
    }

    /// Units of the term in a request that shows it: what makes a coefficient large or small.
    fn typical(self) -> f64 {
        match self {
            Self::Base | Self::ForwardPass | Self::Queue | Self::Running => 1.0,
            Self::CachePressure | Self::SaturatedCold => 1.0,
            Self::UncachedBlock => 100.0,
            Self::PerEveryBlock => 10_000.0,
        }
    }

    /// The largest coefficient that is believed: ten minutes of a typical request.
    pub fn most(self) -> f64 {
        MOST_MS / self.typical()
    }

    /// How far the coefficient may well be from the configured one: as large as it is, and never certain.
    pub fn spread(self, configured: f64) -> f64 {
        configured.clamp(LEAST_SPREAD_MS / self.typical(), self.most())
    }
}

const MOST_MS: f64 = 600_000.0;
const LEAST_SPREAD_MS: f64 = 50.0;

/// The coefficients of a configuration, as far as they are fitted; those out of range are cut off.
pub fn coefficients(p: &PredictorConfig) -> Vector {
    let of = |term: Term| match term {
        Term::Base => p.base_ms,
        Term::ForwardPass => p.forward_pass_ms,
        Term::UncachedBlock => p.attention_uncached_block_ms,
        Term::PerEveryBlock => p.attention_uncached_per_every_block_ms,
        Term::Queue => p.queue_ms_per_entry,
        Term::Running => p.q_running_penalty_peak_ms,
        Term::CachePressure => p.cache_pressure_penalty_ms,
        Term::SaturatedCold => p.saturated_cold_ms_per_entry,
    };
    // `max` takes the other operand of a NaN.
    Term::ALL.map(|term| of(term).max(0.0).min(term.most()))
}

/// The configuration with other coefficients.
pub fn with_coefficients(configured: &PredictorConfig, theta: &Vector) -> PredictorConfig {
    let [base_ms, forward_pass_ms, block, per_every_block, queue, running, pressure, cold] = *theta;
    PredictorConfig {
        base_ms,
        forward_pass_ms,
        attention_uncached_block_ms: block,
        attention_uncached_per_every_block_ms: per_every_block,
        queue_ms_per_entry: queue,
        q_running_penalty_peak_ms: running,
        cache_pressure_penalty_ms: pressure,
        saturated_cold_ms_per_entry: cold,
        ..configured.clone()
    }
}

/// A prediction as a linear function of the coefficients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Features {
    /// Units of each term.
    pub x: Vector,
    /// What the head of the queue has already been worked on: time, whatever the coefficients.
    pub drained_ms: f64,
}

impl Features {
    /// Of a prediction for a worker on which `ahead` waited. How much of that is done by now is judged with the
    /// coefficients of `p`.
    pub fn of(prediction: &Prediction, p: &PredictorConfig, ahead: &Ahead) -> Self {
        let saturated = prediction.kv_usage > p.cache_pressure_saturated_threshold;
        let when = |on: bool, units: f64| if on { units } else { 0.0 };
        let (waits, drained_ms) = left(p, ahead);
        let threshold = p.cache_pressure_saturated_threshold;
        let uncached = prediction.uncached_blocks();
        let x = [
            1.0,
            when(prediction.running > 0.0, 1.0),
            uncached + p.backlog_weight * waits.uncached,
            uncached * prediction.blocks + p.backlog_weight * waits.products,
            prediction.queue,
            running_share(p, prediction.running),
            when(saturated, (prediction.kv_usage - threshold) / (1.0 - threshold)),
            when(saturated && prediction.cached_blocks == 0.0, prediction.queue),
        ];
        Self { x, drained_ms: p.backlog_weight * drained_ms }
    }

    /// What these coefficients predict, milliseconds.
    pub fn predict(&self, theta: &Vector) -> f64 {
        (dot(&self.x, theta) - self.drained_ms).max(0.0)
    }
}

/// What waits, and how much of it is done: nothing waits once all is done.
///
/// An engine prefills several prompts in a step, so time that the head has had beyond its own work has gone into those
/// behind it, but for a head that may hang. One that came to an idle engine waited for the step that ran.
fn left(p: &PredictorConfig, ahead: &Ahead) -> (Prefill, f64) {
    let waited_ms = if ahead.began_idle { SHARE_WAITED * p.base_ms } else { 0.0 };
    let worked_ms = (ahead.worked_ms - waited_ms).max(0.0).min(HEADS * prefill_work_ms(p, ahead.head));
    let over = worked_ms >= prefill_work_ms(p, ahead.waiting);
    if over { (Prefill::default(), 0.0) } else { (ahead.waiting, worked_ms) }
}

/// Of the constant part, what passes before the engine begins.
const SHARE_WAITED: f64 = 0.7;
/// A head and those behind it are worked on for so many times its own work at most.
const HEADS: f64 = 3.0;

/// The prediction with fitted coefficients: what waits ahead is counted with them too, whatever it was claimed with.
pub fn predict_calibrated(cost: Cost<'_>, fitted: &PredictorConfig) -> Prediction {
    let (waits, drained_ms) = left(fitted, &cost.load.ahead);
    let load = LoadView { backlog_ms: prefill_work_ms(fitted, waits) - drained_ms, ..*cost.load };
    Prediction { calibrated: true, ..predict(Cost { predictor: fitted, load: &load, ..cost }) }
}

pub(super) fn dot(a: &Vector, b: &Vector) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
