//! The pipeline's metrics.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec};

use crate::{
    observe::Metrics,
    types::{Degradation, Outcome, Rejection, Usage},
};

use super::Placement;

const TTFT_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    120.0,
];
const DECISION_BUCKETS: &[f64] =
    &[0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

/// More than any request has: what an engine claims beyond it is cut off, or counters would wrap.
const MOST_TOKENS: u64 = 100_000_000;

pub(super) struct PipelineMetrics {
    decisions: IntCounterVec,
    degraded: IntCounterVec,
    ruled: IntCounterVec,
    rejections: IntCounterVec,
    requests: IntCounterVec,
    tokens: IntCounterVec,
    moved: IntCounterVec,
    decision: HistogramVec,
    ttft: HistogramVec,
}

impl PipelineMetrics {
    pub(super) fn new(m: &Metrics) -> Self {
        Self {
            decisions: m.counters(
                "kinference_decisions_total",
                "Picks made, by what they were made on.",
                &["basis"],
            ),
            degraded: m.counters(
                "kinference_decisions_degraded_total",
                "Picks made on less than full knowledge, by what was missing.",
                &["reason"],
            ),
            ruled: m.counters(
                "kinference_pool_decisions_total",
                "Picks made for models of pools, by what ordered the candidates.",
                &["by"],
            ),
            rejections: m.counters(
                "kinference_rejections_total",
                "Requests turned away, by kind of error.",
                &["kind"],
            ),
            requests: m.counters(
                "kinference_requests_total",
                "Placed requests that ended, by how.",
                &["outcome"],
            ),
            tokens: m.counters(
                "kinference_tokens_total",
                "Tokens that engines reported, by kind.",
                &["kind"],
            ),
            moved: m.counters(
                "kinference_requests_moved_total",
                "Requests that the proxy sent elsewhere than picked.",
                &[],
            ),
            decision: m.histograms(
                "kinference_decision_seconds",
                "From the whole request to its answer.",
                (&[], DECISION_BUCKETS),
            ),
            ttft: m.histograms(
                "kinference_ttft_seconds",
                "Time to first token of streamed answers.",
                (&["source"], TTFT_BUCKETS),
            ),
        }
    }

    pub(super) fn decided(&self, decided: &Result<Placement, Rejection>, took: Duration) {
        self.decision.with_label_values::<&str>(&[]).observe(took.as_secs_f64());
        match decided {
            Ok(placement) => {
                let decision = &placement.decision;
                let basis = if decision.prompt_tokens.is_some() { "prompt" } else { "load" };
                self.decisions.with_label_values(&[basis]).inc();
                let lacks = decision.degraded.iter().chain(&decision.primary().degraded);
                if let Some(ruled) = &decision.ruled {
                    let by = if ruled.decided_by().is_some() { "rule" } else { "prediction" };
                    self.ruled.with_label_values(&[by]).inc();
                }
                lacks.for_each(|why: &Degradation| self.degraded.with_label_values(&[why.label()]).inc());
            }
            Err(rejection) => self.rejected(rejection),
        }
    }

    pub(super) fn rejected(&self, rejection: &Rejection) {
        self.rejections.with_label_values(&[rejection.kind.label()]).inc();
        if let Some(rule) = rejection.ruled.as_ref().and_then(|ruled| ruled.decided_by()) {
            tracing::debug!(policy = &*rule.policy, rule = &*rule.rule, "a rule turns a request away");
        }
    }

    pub(super) fn ttft(&self, predicted_secs: f64, observed: Duration) {
        self.ttft.with_label_values(&["predicted"]).observe(predicted_secs);
        self.ttft.with_label_values(&["observed"]).observe(observed.as_secs_f64());
    }

    pub(super) fn moved(&self) {
        self.moved.with_label_values::<&str>(&[]).inc();
    }

    pub(super) fn ended(&self, outcome: Outcome, usage: Option<Usage>) {
        self.requests.with_label_values(&[outcome.label()]).inc();
        let Some(usage) = usage else { return };
        let cached = usage.cached_tokens.unwrap_or(0).min(MOST_TOKENS);
        let uncached = usage.prompt_tokens.min(MOST_TOKENS).saturating_sub(cached);
        self.tokens.with_label_values(&["cached_prompt"]).inc_by(cached);
        self.tokens.with_label_values(&["uncached_prompt"]).inc_by(uncached);
        self.tokens.with_label_values(&["output"]).inc_by(usage.completion_tokens.min(MOST_TOKENS));
    }
}
