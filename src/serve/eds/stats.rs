//! What is counted of endpoint discovery, by protocol variant.

use prometheus::{IntCounterVec, IntGaugeVec};

use crate::observe::Metrics;

/// The metrics.
#[derive(Clone)]
pub struct Stats {
    streams: IntGaugeVec,
    responses: IntCounterVec,
    refused: IntCounterVec,
}

/// One open stream, counted until it is dropped.
pub struct Open {
    variant: &'static str,
    stats: Stats,
}

impl Stats {
    /// Registers them.
    pub fn new(metrics: &Metrics) -> Self {
        let variant = &["variant"];
        Self {
            streams: metrics.gauges(
                "kinference_eds_open_streams",
                "Open endpoint discovery streams.",
                variant,
            ),
            responses: metrics.counters(
                "kinference_eds_responses_total",
                "Endpoint assignments sent to proxies.",
                variant,
            ),
            refused: metrics.counters(
                "kinference_eds_refused_total",
                "Endpoint assignments that a proxy refused.",
                variant,
            ),
        }
    }

    /// A stream begins.
    pub fn open(&self, variant: &'static str) -> Open {
        self.streams.with_label_values(&[variant]).inc();
        Open { variant, stats: self.clone() }
    }
}

impl Open {
    /// A response goes out.
    pub fn sent(&self) {
        self.stats.responses.with_label_values(&[self.variant]).inc();
    }

    /// The last response was refused.
    pub fn refused(&self) {
        self.stats.refused.with_label_values(&[self.variant]).inc();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.stats.streams.with_label_values(&[self.variant]).dec();
    }
}
