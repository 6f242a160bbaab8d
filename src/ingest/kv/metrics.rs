//! What is counted of KV events on their way in; what became of each the cache room counts.

use prometheus::{IntCounter, IntCounterVec};

use super::decode::SkipReason;
use crate::observe::Metrics;

/// How a replay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// Everything came.
    Completed,
    /// Nobody there, or cut short.
    Failed,
    /// Over its time.
    TimedOut,
}

/// How asking an engine for its event sources went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskOutcome {
    /// It named some.
    Found,
    /// It publishes no events.
    Silent,
    /// It has no such endpoint.
    TooOld,
    /// No answer.
    Failed,
    /// An answer that can't be used.
    Refused,
}

/// The counters of all subscriptions. Cheap to clone.
#[derive(Clone)]
pub struct KvMetrics {
    /// Batches read, live and replayed.
    pub batches: IntCounter,
    /// Messages that are no batch.
    pub undecodable: IntCounter,
    /// Holes in live streams.
    pub gaps: IntCounter,
    /// Engines that began to count anew while we listened.
    pub restarts: IntCounter,
    evictions: IntCounterVec,
    skipped: IntCounterVec,
    replays: IntCounterVec,
    asks: IntCounterVec,
}

impl KvMetrics {
    /// Registers them; once a process.
    pub fn new(metrics: &Metrics) -> Self {
        let one = |name, help| metrics.counters(name, help, &[]).with_label_values::<&str>(&[]);
        let own = Self {
            batches: one("kinference_kv_batches_total", "KV-event batches read."),
            undecodable: one("kinference_kv_undecodable_total", "KV-event messages that could not be read."),
            gaps: one("kinference_kv_gaps_total", "Holes found in the numbers of live KV events."),
            restarts: one("kinference_kv_restarts_total", "Engines seen to number KV events anew."),
            evictions: metrics.counters_from_zero(
                "kinference_kv_evictions_total",
                "Workers evicted for what their KV events say, by reason.",
                ("reason", &["block_size"]),
            ),
            skipped: metrics.counters(
                "kinference_kv_events_skipped_total",
                "KV events not read.",
                &["reason"],
            ),
            replays: metrics.counters_from_zero(
                "kinference_kv_replays_total",
                "KV-event replays.",
                ("outcome", &["completed", "failed", "timed_out"]),
            ),
            asks: metrics.counters_from_zero(
                "kinference_kv_source_asks_total",
                "Engines asked where they publish KV events, by outcome.",
                ("outcome", &["found", "silent", "too_old", "failed", "refused"]),
            ),
        };
        // Shown from the start, at zero.
        for reason in SkipReason::ALL {
            own.skipped.with_label_values(&[reason.label()]);
        }
        own
    }

    /// A worker publishes blocks of another size than its worker set's.
    pub fn evicted_for_block_size(&self) {
        self.evictions.with_label_values(&["block_size"]).inc();
    }

    /// An event could not be read.
    pub fn skipped(&self, reason: SkipReason) {
        self.skipped.with_label_values(&[reason.label()]).inc();
    }

    /// An engine was asked for its event sources.
    pub fn asked(&self, outcome: AskOutcome) {
        let outcome = match outcome {
            AskOutcome::Found => "found",
            AskOutcome::Silent => "silent",
            AskOutcome::TooOld => "too_old",
            AskOutcome::Failed => "failed",
            AskOutcome::Refused => "refused",
        };
        self.asks.with_label_values(&[outcome]).inc();
    }

    /// A replay ended.
    pub fn replay(&self, outcome: ReplayOutcome) {
        let outcome = match outcome {
            ReplayOutcome::Completed => "completed",
            ReplayOutcome::Failed => "failed",
            ReplayOutcome::TimedOut => "timed_out",
        };
        self.replays.with_label_values(&[outcome]).inc();
    }
}
