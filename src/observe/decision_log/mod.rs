//! The decision log: one JSON line a decision, of a sample of requests and of whatever did not go as it should.
//!
//! Owner: the writer's own thread, so that a slow disk holds up no request. Invariant: a decision never waits for it,
//! and nothing that is wrong with it ends the server.

mod file;
mod writer;

use std::{path::PathBuf, sync::Arc, time::Duration};

use prometheus::IntCounterVec;
use xxhash_rust::xxh3::xxh3_64;

use crate::types::Record;

use super::{
    Metrics,
    queue::{Queue, queue},
};

pub use writer::{LogStopped, LogWriter};

/// What is logged, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct LogOptions {
    /// Where.
    pub target: LogTarget,
    /// Share of requests, 0 to 1.
    pub sample: f64,
}

/// Where lines are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file and those that it was before.
    File {
        /// The file.
        path: PathBuf,
        /// Bytes from which it is full.
        max_bytes: u64,
        /// Full files that are kept.
        max_files: u32,
    },
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Written,
    /// The queue was full.
    Dropped,
    /// The file or the pipe did not take it.
    Failed,
}

#[derive(Clone)]
struct LogMetrics {
    lines: IntCounterVec,
}

/// The near end of the log. Cheap to clone.
#[derive(Clone)]
pub struct DecisionLog {
    sample: f64,
    queue: Queue<Arc<Record>>,
    metrics: LogMetrics,
}

impl DecisionLog {
    /// A log, and what writes it: to be run.
    pub fn new(options: LogOptions, metrics: &Metrics) -> (Self, LogWriter) {
        let metrics = LogMetrics::new(metrics);
        let (queue, waiting) = queue();
        let writer = LogWriter::new(options.target, waiting, metrics.clone());
        (Self { sample: options.sample, queue, metrics }, writer)
    }

    /// Has a decision written down, if it is one to be.
    pub(super) fn decided(&self, record: &Arc<Record>) {
        if self.wants(record) && !self.queue.put(record.clone(), record.candidates()) {
            self.metrics.count(Fate::Dropped, 1);
        }
    }

    /// Waits until what was decided so far is written, but no longer than `most`; whether it is.
    pub(super) async fn flush(&self, most: Duration) -> bool {
        self.queue.flush(most).await
    }

    fn wants(&self, record: &Record) -> bool {
        record.decided.is_err()
            || record.degraded().next().is_some()
            || is_sampled(&record.request_id, self.sample)
    }
}

/// Whether the request of that id is in the sample. A larger sample has all of a smaller one.
fn is_sampled(id: &str, sample: f64) -> bool {
    // As many bits as a float holds exactly.
    const BITS: u32 = f64::MANTISSA_DIGITS;
    let place = (xxh3_64(id.as_bytes()) >> (u64::BITS - BITS)) as f64 / (1_u64 << BITS) as f64;
    place < sample
}

impl Fate {
    const fn label(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }
}

impl LogMetrics {
    fn new(metrics: &Metrics) -> Self {
        let help = "Lines of the decision log, by what became of them: `dropped` because too many waited.";
        let lines = metrics.counters_from_zero(
            "kinference_decision_log_lines_total",
            help,
            ("result", &[Fate::Written, Fate::Dropped, Fate::Failed].map(Fate::label)),
        );
        Self { lines }
    }

    fn count(&self, fate: Fate, lines: u64) {
        self.lines.with_label_values(&[fate.label()]).inc_by(lines);
    }
}

#[cfg(test)]
mod tests;
