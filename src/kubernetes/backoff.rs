//! How long to wait before asking again: doubling, bounded, and with jitter, so that replicas don't ask in step.

use std::time::Duration;

use rand::{Rng, rngs::StdRng};

/// Bounds of the waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first wait.
    pub least: Duration,
    /// The longest.
    pub most: Duration,
}

/// Waits, from the shortest.
#[derive(Debug)]
pub(super) struct Backoff {
    bounds: Bounds,
    next: Duration,
    rng: StdRng,
}

impl Backoff {
    pub(super) fn new(bounds: Bounds, rng: StdRng) -> Self {
        Self { bounds, next: bounds.least, rng }
    }

    /// The next wait: between half of it and all.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.next.mul_f64(self.rng.random_range(0.5..=1.0));
        self.next = (self.next * 2).min(self.bounds.most);
        pause
    }

    /// It works again.
    pub(super) fn reset(&mut self) {
        self.next = self.bounds.least;
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn waits_double_within_bounds_and_start_over() {
        let bounds = Bounds { least: Duration::from_millis(200), most: Duration::from_secs(10) };
        let mut backoff = Backoff::new(bounds, StdRng::seed_from_u64(1));
        for full in [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
            let full = Duration::from_millis(full);
            let pause = backoff.pause();
            assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.pause() <= bounds.least);
    }
}
