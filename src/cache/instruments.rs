//! What the room counts: events by what became of them, and how long lookups take (seconds).
//!
//! Owner: the cache index. Invariant: labels come from enums.

use prometheus::{Histogram, IntCounter, IntCounterVec};

use super::Applied;
use crate::observe::Metrics;

pub(super) struct Instruments {
    events: IntCounterVec,
    no_credit: IntCounterVec,
    pub(super) lookup: Histogram,
    pub(super) rebuilds: IntCounter,
    pub(super) broken: IntCounter,
}

impl Instruments {
    pub(super) fn new(metrics: &Metrics) -> Self {
        const BUCKETS: &[f64] = &[1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2];
        let events = "kinference_cache_events_total";
        let no_credit = "kinference_cache_no_credit_total";
        let lookup = "kinference_cache_lookup_seconds";
        let rebuilds =
            metrics.counters("kinference_cache_rebuilds_total", "Rebuilds of the cache index.", &[]);
        let broken = metrics.counters(
            "kinference_cache_lost_total",
            "Times that the cache index lost its writing thread and was built anew.",
            &[],
        );
        let none: &[&str] = &[];
        Self {
            events: metrics.counters(events, "KV events, by what became of them.", &["result"]),
            no_credit: metrics.counters(no_credit, "KV events without full credit, by reason.", &["reason"]),
            lookup: metrics
                .histograms(lookup, "Time to look a prompt up in the cache index.", (&[], BUCKETS))
                .with_label_values(none),
            rebuilds: rebuilds.with_label_values(none),
            broken: broken.with_label_values(none),
        }
    }

    pub(super) fn applied(&self, applied: Applied) {
        self.events.with_label_values(&[applied.label()]).inc();
        if let Applied::NoCredit(reason) = applied {
            self.no_credit.with_label_values(&[reason.label()]).inc();
        }
    }
}
