//! What happened in the last 15 minutes, in buckets of 10 seconds. Times in milliseconds.
//!
//! Invariant: at most `BUCKETS` buckets of fixed size. Predictions and observations of a bucket are of the same requests.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;

use super::histogram::Histogram;

/// The width of a bucket.
pub(super) const WIDTH: Duration = Duration::from_secs(10);
/// Buckets of 15 minutes.
pub(super) const BUCKETS: u64 = 90;

/// What happened in one bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bucket {
    /// Its number: since the start, in widths.
    pub n: u64,
    /// Decisions.
    pub decisions: u64,
    /// Of these, looked at: all but those that came too fast.
    pub seen: u64,
    /// Of those looked at, turned away.
    pub rejected: u64,
    /// Requests that ended, and of these, with a failure of the engine.
    pub ended: u64,
    /// See `ended`.
    pub failed: u64,
    /// Predictions.
    pub predicted: Histogram,
    /// Observations.
    pub observed: Histogram,
    /// Prompt tokens of which the engine said how many it had cached.
    pub prompt_tokens: u64,
    /// Of these, cached.
    pub cached_tokens: u64,
}

/// A bucket, as it is shown.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Shown {
    n: u64,
    decisions: u64,
    seen: u64,
    rejected: u64,
    ended: u64,
    failed: u64,
    /// p50 and p95.
    predicted_ms: Option<[f64; 2]>,
    observed_ms: Option<[f64; 2]>,
    prompt_tokens: u64,
    cached_tokens: u64,
}

impl Bucket {
    /// As it is shown.
    pub fn shown(&self) -> Shown {
        let both = |of: &Histogram| Some([tenths(of.quantile(0.5)?), tenths(of.quantile(0.95)?)]);
        Shown {
            n: self.n,
            decisions: self.decisions,
            seen: self.seen,
            rejected: self.rejected,
            ended: self.ended,
            failed: self.failed,
            predicted_ms: both(&self.predicted),
            observed_ms: both(&self.observed),
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
        }
    }

    fn merge(&mut self, other: &Self) {
        self.decisions += other.decisions;
        self.seen += other.seen;
        self.rejected += other.rejected;
        self.ended += other.ended;
        self.failed += other.failed;
        self.predicted.merge(&other.predicted);
        self.observed.merge(&other.observed);
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
    }
}

fn tenths(ms: f64) -> f64 {
    (ms * 10.0).round() / 10.0
}

/// The buckets of the last 15 minutes, those without anything left out.
#[derive(Debug, Default)]
pub(super) struct Series {
    buckets: VecDeque<Bucket>,
}

impl Series {
    /// The bucket of that number, which is the present one.
    pub fn at(&mut self, n: u64) -> &mut Bucket {
        self.turn(n);
        if self.buckets.back().is_none_or(|last| last.n != n) {
            self.buckets.push_back(Bucket { n, ..Bucket::default() });
        }
        // There is one: it was pushed if there was none.
        let last = self.buckets.len() - 1;
        &mut self.buckets[last]
    }

    /// Forgets what is too old once the present bucket is `n`.
    pub fn turn(&mut self, n: u64) {
        while self.buckets.front().is_some_and(|first| first.n + BUCKETS <= n) {
            self.buckets.pop_front();
        }
    }

    /// Those that there are, the oldest first.
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets.iter()
    }

    /// All of them together.
    pub fn whole(&self) -> Bucket {
        let mut whole = Bucket::default();
        self.buckets.iter().for_each(|bucket| whole.merge(bucket));
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_of_the_last_15_minutes() {
        let mut series = Series::default();
        for n in [0, 1, 89, 90, 90] {
            series.at(n).decisions += 1;
        }
        let kept: Vec<_> = series.buckets().map(|bucket| (bucket.n, bucket.decisions)).collect();
        assert_eq!(kept, [(1, 1), (89, 1), (90, 2)]);
        assert_eq!(series.whole().decisions, 4);
        series.turn(500);
        assert_eq!(series.buckets().count(), 0);
    }

    #[test]
    fn a_bucket_shows_quantiles_of_what_it_has() {
        let mut bucket = Bucket::default();
        assert_eq!(bucket.shown().predicted_ms, None);
        (1..=100).for_each(|ms| bucket.observed.add(f64::from(ms)));
        let [p50, p95] = bucket.shown().observed_ms.unwrap();
        assert!((p50 - 50.0).abs() < 2.0 && (p95 - 95.0).abs() < 3.0, "{p50} {p95}");
    }
}
