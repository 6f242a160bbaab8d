//! What is measured of providers. Labels are names of resources, and go with them.

use std::{sync::Arc, time::Duration};

use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};

use super::health::Change;
use crate::{observe::Metrics, types::Outcome};

/// Seconds. Behind a provider are a network and somebody else's queue: nothing is there in 5 ms.
const TTFT_BUCKETS: &[f64] =
    &[0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 120.0];

pub(super) struct Instruments {
    in_flight: IntGaugeVec,
    set_aside: IntGaugeVec,
    calls: IntCounterVec,
    ttft: HistogramVec,
}

impl Instruments {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            in_flight: metrics.gauges(
                "kinference_provider_in_flight_requests",
                "Own requests at a provider that have not ended.",
                &["provider"],
            ),
            set_aside: metrics.gauges(
                "kinference_provider_set_aside",
                "1: the provider failed and gets no requests but one now and then, to see whether it is back.",
                &["provider"],
            ),
            calls: metrics.counters(
                "kinference_provider_calls_total",
                "Requests sent to a provider that ended, by how; refused: 401, 403 or 429.",
                &["provider", "outcome"],
            ),
            ttft: metrics.histograms(
                "kinference_provider_ttft_seconds",
                "Observed time to first token of streamed answers of a provider.",
                (&["provider"], TTFT_BUCKETS),
            ),
        }
    }

    /// A policy names it: what is counted of it begins at zero.
    pub(super) fn begin(&self, provider: &Arc<str>) {
        self.in_flight.with_label_values(&[provider]);
        self.set_aside.with_label_values(&[provider]);
        Outcome::ALL
            .iter()
            .for_each(|outcome| drop(self.calls.with_label_values(&[provider, outcome.label()])));
    }

    pub(super) fn in_flight(&self, provider: &Arc<str>, count: u32) {
        self.in_flight.with_label_values(&[provider]).set(count.into());
    }

    pub(super) fn ttft(&self, provider: &Arc<str>, after: Duration) {
        self.ttft.with_label_values(&[provider]).observe(after.as_secs_f64());
    }

    pub(super) fn ended(&self, provider: &Arc<str>, outcome: Outcome) {
        self.calls.with_label_values(&[provider, outcome.label()]).inc();
    }

    pub(super) fn changed(&self, provider: &Arc<str>, change: Change) {
        self.set_aside.with_label_values(&[provider]).set((change == Change::SetAside).into());
        match change {
            Change::SetAside => {
                tracing::warn!(
                    provider = &**provider,
                    "provider keeps failing: one request now and then tries it"
                );
            }
            Change::Back => tracing::info!(provider = &**provider, "provider answers again"),
        }
    }

    /// The provider is no resource any more. That a label was never there is fine.
    pub(super) fn forget(&self, provider: &Arc<str>) {
        self.in_flight.remove_label_values(&[provider]).ok();
        self.set_aside.remove_label_values(&[provider]).ok();
        self.ttft.remove_label_values(&[provider]).ok();
        for outcome in Outcome::ALL {
            self.calls.remove_label_values(&[provider, outcome.label()]).ok();
        }
    }
}
