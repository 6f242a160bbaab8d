//! What the TokenReview service counts.

use prometheus::{Histogram, IntCounter};

use crate::observe::Metrics;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The token is valid.
    Authenticated,
    /// It is not.
    Denied,
    /// The call makes no sense.
    BadRequest,
    /// There was no answer in time.
    TimedOut,
    /// The API server is not reached, or refuses us.
    Unavailable,
}

impl Ended {
    const ALL: [Self; 5] =
        [Self::Authenticated, Self::Denied, Self::BadRequest, Self::TimedOut, Self::Unavailable];

    const fn label(self) -> &'static str {
        match self {
            Self::Authenticated => "authenticated",
            Self::Denied => "denied",
            Self::BadRequest => "bad_request",
            Self::TimedOut => "timeout",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Where an answer is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It was remembered.
    Hit,
    /// Somebody was asking the same already.
    Joined,
    /// The API server had to be asked.
    Miss,
}

impl Lookup {
    const ALL: [Self; 3] = [Self::Hit, Self::Joined, Self::Miss];

    const fn label(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Joined => "joined",
            Self::Miss => "miss",
        }
    }
}

const BUCKETS: &[f64] = &[0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The counters, each label's looked up once.
pub struct Stats {
    ends: [IntCounter; Ended::ALL.len()],
    lookups: [IntCounter; Lookup::ALL.len()],
    /// Round trips to the API server that came to an end, good or bad.
    pub round_trips: Histogram,
}

impl Stats {
    /// Registers them.
    pub fn new(metrics: &Metrics) -> Self {
        let ends =
            metrics.counters("kinference_token_reviews_total", "Token reviews by result.", &["result"]);
        let lookups = metrics.counters(
            "kinference_token_review_lookups_total",
            "Where answers to token reviews were found.",
            &["found"],
        );
        let round_trips = metrics.histograms(
            "kinference_token_review_api_seconds",
            "Token reviews by the API server: from the question to its answer or failure.",
            (&[], BUCKETS),
        );
        Self {
            ends: Ended::ALL.map(|end| ends.with_label_values(&[end.label()])),
            lookups: Lookup::ALL.map(|lookup| lookups.with_label_values(&[lookup.label()])),
            round_trips: round_trips.with_label_values::<&str>(&[]),
        }
    }

    /// A call ended.
    pub fn ended(&self, end: Ended) {
        self.ends[end as usize].inc();
    }

    /// An answer was looked for.
    pub fn looked_up(&self, lookup: Lookup) {
        self.lookups[lookup as usize].inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_sit_where_they_are_counted() {
        assert!(Ended::ALL.iter().enumerate().all(|(i, end)| *end as usize == i));
        assert!(Lookup::ALL.iter().enumerate().all(|(i, lookup)| *lookup as usize == i));
    }
}
