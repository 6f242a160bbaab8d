//! What is counted by tenant, model and worker set, each combination looked up once. Seconds and tokens.
//!
//! Invariant: at most so many combinations are told apart; what comes later counts under `_other`. None is ever dropped,
//! so counts go on whatever policies come and go.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::RwLock;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::Who;
use crate::{
    observe::{Metrics, OTHER},
    types::{Ending, Outcome},
};

pub(super) const TTFT_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    120.0,
];
const INTER_TOKEN_BUCKETS: &[f64] =
    &[0.001, 0.002_5, 0.005, 0.007_5, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5];
const E2E_BUCKETS: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Combinations that are told apart.
const MOST: usize = 2000;
/// More than any request has: what an engine claims beyond it is cut off, or counters would wrap.
const MOST_TOKENS: u64 = 100_000_000;

/// What a pick is made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// The prompt's tokens.
    Prompt,
    /// Load alone.
    Load,
}

/// The series of one combination.
pub(super) struct Series {
    /// By [`Basis`].
    decisions: [IntCounter; 2],
    /// By [`Outcome`].
    requests: [IntCounter; Outcome::ENDS.len()],
    cached_prompt: IntCounter,
    uncached_prompt: IntCounter,
    output: IntCounter,
    ttft: Histogram,
    inter_token: Histogram,
    e2e: Histogram,
}

impl Series {
    pub fn decided(&self, basis: Basis) {
        self.decisions[basis as usize].inc();
    }

    pub fn first_token(&self, observed: Duration) {
        self.ttft.observe(observed.as_secs_f64());
    }

    /// A request ended, well or not.
    pub fn ended(&self, ending: &Ending) {
        self.requests.get(ending.outcome as usize).into_iter().for_each(IntCounter::inc);
        let Some(usage) = ending.usage else { return };
        let cached = usage.cached_tokens.unwrap_or(0).min(MOST_TOKENS);
        self.cached_prompt.inc_by(cached);
        self.uncached_prompt.inc_by(usage.prompt_tokens.min(MOST_TOKENS).saturating_sub(cached));
        self.output.inc_by(usage.completion_tokens.min(MOST_TOKENS));
    }

    /// Its answer was whole, that long after its head was read.
    pub fn completed(&self, ending: &Ending, whole: Duration) {
        self.e2e.observe(whole.as_secs_f64());
        if let Some(each) = inter_token(ending) {
            self.inter_token.observe(each);
        }
    }
}

/// Seconds for each token after the first, of a streamed answer whose tokens were counted.
fn inter_token(ending: &Ending) -> Option<f64> {
    let further = ending.usage?.completion_tokens.checked_sub(1).filter(|further| *further > 0)?;
    let after_first = ending.took.saturating_sub(ending.ttft?);
    #[expect(clippy::cast_precision_loss, reason = "no answer has 2^53 tokens")]
    let each = after_first.as_secs_f64() / further as f64;
    Some(each)
}

/// Tenant, model, worker set.
type Key = (Arc<str>, Arc<str>, Arc<str>);

/// All series.
pub(super) struct Book {
    known: RwLock<HashMap<Key, Arc<Series>>>,
    other: Arc<str>,
    decisions: IntCounterVec,
    requests: IntCounterVec,
    tokens: IntCounterVec,
    ttft: HistogramVec,
    inter_token: HistogramVec,
    e2e: HistogramVec,
}

impl Book {
    pub fn new(m: &Metrics) -> Self {
        const WHOSE: &[&str] = &["tenant", "model", "workerset"];
        let counters = |name, help, label| m.counters(name, help, &[WHOSE, &[label]].concat());
        let histograms = |name, help, buckets| m.histograms(name, help, (WHOSE, buckets));
        Self {
            known: RwLock::default(),
            other: OTHER.into(),
            decisions: counters(
                "kinference_decisions_total",
                "Picks made, by what they were made on.",
                "basis",
            ),
            requests: counters("kinference_requests_total", "Placed requests that ended, by how.", "outcome"),
            tokens: counters("kinference_tokens_total", "Tokens that engines reported, by kind.", "kind"),
            ttft: histograms(
                "kinference_ttft_seconds",
                "Time from the decision to the first token of streamed answers.",
                TTFT_BUCKETS,
            ),
            inter_token: histograms(
                "kinference_inter_token_seconds",
                "Time per token after the first, of streamed answers.",
                INTER_TOKEN_BUCKETS,
            ),
            e2e: histograms(
                "kinference_e2e_seconds",
                "Time from the head of a request to the end of its answer.",
                E2E_BUCKETS,
            ),
        }
    }

    /// The series of that combination, or of `_other` once there are too many.
    pub fn series(&self, who: &Who, workerset: &Arc<str>) -> Arc<Series> {
        let key = (who.tenant.clone(), who.model.clone(), workerset.clone());
        if let Some(series) = self.known.read().get(&key) {
            return series.clone();
        }
        let mut known = self.known.write();
        let key = if known.len() < MOST || known.contains_key(&key) {
            key
        } else {
            (self.other.clone(), self.other.clone(), workerset.clone())
        };
        let make = |(tenant, model, workerset): &Key| Arc::new(self.make([tenant, model, workerset]));
        known.entry(key).or_insert_with_key(make).clone()
    }

    fn make(&self, whose: [&str; 3]) -> Series {
        let [tenant, model, workerset] = whose;
        let of = |family: &IntCounterVec, label| family.with_label_values(&[tenant, model, workerset, label]);
        Series {
            decisions: ["prompt", "load"].map(|basis| of(&self.decisions, basis)),
            requests: Outcome::ENDS.map(|outcome| of(&self.requests, outcome.label())),
            cached_prompt: of(&self.tokens, "cached_prompt"),
            uncached_prompt: of(&self.tokens, "uncached_prompt"),
            output: of(&self.tokens, "output"),
            ttft: self.ttft.with_label_values(&whose),
            inter_token: self.inter_token.with_label_values(&whose),
            e2e: self.e2e.with_label_values(&whose),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Usage;

    fn ending(tokens: u64, ttft_ms: Option<u64>) -> Ending {
        Ending {
            outcome: Outcome::Completed,
            ttft: ttft_ms.map(Duration::from_millis),
            predicted: Duration::ZERO,
            served_by: None,
            took: Duration::from_millis(1200),
            usage: Some(Usage { completion_tokens: tokens, ..Usage::default() }),
        }
    }

    #[test]
    fn tokens_after_the_first_share_the_time_after_it() {
        assert_eq!(inter_token(&ending(11, Some(200))), Some(0.1));
        assert_eq!(inter_token(&ending(11, Some(1300))), Some(0.0));
        for none in [ending(1, Some(200)), ending(0, Some(200)), ending(11, None)] {
            assert_eq!(inter_token(&none), None);
        }
    }

    #[test]
    fn combinations_are_bounded_and_those_that_are_known_stay() {
        let metrics = Metrics::new();
        let book = Book::new(&metrics);
        let set: Arc<str> = "s".into();
        let who = |n: usize| Who { tenant: n.to_string().into(), model: "m".into() };
        for n in (0..MOST + 500).chain(0..10) {
            book.series(&who(n), &set).decided(Basis::Load);
        }
        let text = metrics.render();
        let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(lines("kinference_ttft_seconds_count{"), MOST + 1);
        for (tenant, model, count) in [("3", "m", 2), ("20", "m", 1), (OTHER, OTHER, 500)] {
            let line = format!(
                "kinference_decisions_total{{basis=\"load\",model=\"{model}\",tenant=\"{tenant}\",workerset=\"s\"}} {count}\n"
            );
            assert!(text.contains(&line), "{line}");
        }
    }
}
