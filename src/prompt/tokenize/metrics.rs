//! Metrics of tokenization: how often, how long, by what means, and whether comparisons agree. Seconds.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec};

use super::TokenizeError;
use crate::observe::Metrics;

/// What made the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// The engine's render endpoint.
    Render,
    /// The engine's `/tokenize`.
    Tokenize,
    /// This process.
    Local,
    /// The request brought them, or can't have any.
    Given,
}

impl Means {
    const fn label(self) -> &'static str {
        match self {
            Self::Render => "render",
            Self::Tokenize => "tokenize",
            Self::Local => "local",
            Self::Given => "given",
        }
    }
}

/// How a comparison ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// The same ids.
    Equal,
    /// Other ids.
    Different,
    /// The engine gave none.
    Failed,
    /// Too many were running.
    Skipped,
}

impl Comparison {
    const ALL: [Self; 4] = [Self::Equal, Self::Different, Self::Failed, Self::Skipped];

    const fn label(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Different => "different",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

pub(super) struct TokenizeMetrics {
    total: IntCounterVec,
    seconds: HistogramVec,
    comparisons: IntCounterVec,
}

impl TokenizeMetrics {
    pub(super) fn new(metrics: &Metrics) -> Self {
        const BUCKETS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];
        Self {
            total: metrics.counters(
                "kinference_tokenize_total",
                "Prompts tokenized, by what made the tokens and how it ended.",
                &["means", "outcome"],
            ),
            seconds: metrics.histograms(
                "kinference_tokenize_seconds",
                "Time to tokenize one prompt, by what made the tokens.",
                (&["means"], &BUCKETS),
            ),
            comparisons: metrics.counters_from_zero(
                "kinference_tokenize_comparisons_total",
                "Local token ids checked against the engine's, by how the check ended.",
                ("outcome", &Comparison::ALL.map(Comparison::label)),
            ),
        }
    }

    pub(super) fn record(&self, means: Means, took: Duration, error: Option<&TokenizeError>) {
        let outcome = error.map_or("ok", TokenizeError::label);
        self.total.with_label_values(&[means.label(), outcome]).inc();
        self.seconds.with_label_values(&[means.label()]).observe(took.as_secs_f64());
    }

    pub(super) fn compared(&self, outcome: Comparison) {
        self.comparisons.with_label_values(&[outcome.label()]).inc();
    }
}
