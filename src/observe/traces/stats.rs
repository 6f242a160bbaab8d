//! Counts what became of spans.

use prometheus::IntCounterVec;

use super::super::Metrics;

/// What became of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The receiver has it.
    Exported,
    /// Too many waited.
    Dropped,
    /// The receiver was not reached, or did not take it.
    Failed,
}

impl Fate {
    const ALL: [Self; 3] = [Self::Exported, Self::Dropped, Self::Failed];

    const fn label(self) -> &'static str {
        match self {
            Self::Exported => "exported",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }
}

#[derive(Clone)]
pub(super) struct TraceMetrics {
    spans: IntCounterVec,
}

impl TraceMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        let help = "Spans, by what became of them: `dropped` because too many waited.";
        let spans = metrics.counters_from_zero(
            "kinference_traces_spans_total",
            help,
            ("result", &Fate::ALL.map(Fate::label)),
        );
        Self { spans }
    }

    pub fn count(&self, fate: Fate, spans: u64) {
        self.spans.with_label_values(&[fate.label()]).inc_by(spans);
    }
}
