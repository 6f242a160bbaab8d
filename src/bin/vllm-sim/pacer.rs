//! Simulated step durations on the wall clock.
//!
//! The runtime's timers are a millisecond coarse, and a step under a speedup may be shorter. So each step is due from when the
//! last one was due, not from when it was noticed: late wake-ups don't add up, and the average speed is right.

use std::time::Duration;

use tokio::time::Instant;

/// Lag beyond this is not made up for: an overloaded machine slows the engine down instead of bursting later.
const MAX_LAG: Duration = Duration::from_millis(100);

/// When steps are due.
#[derive(Debug)]
pub struct Pacer {
    due: Instant,
    speedup: f64,
    lost: Duration,
}

impl Pacer {
    /// A pacer of an idle engine.
    pub fn new(now: Instant, speedup: f64) -> Self {
        Self { due: now, speedup, lost: Duration::ZERO }
    }

    /// The engine was idle until now.
    pub fn restart(&mut self, now: Instant) {
        self.due = now;
    }

    /// When a step of `duration` that begins where the last one ended is due.
    pub fn next(&mut self, now: Instant, duration: Duration) -> Instant {
        if let Some(lag) = now.checked_duration_since(self.due + MAX_LAG) {
            self.lost += lag;
            self.due += lag;
        }
        self.due += duration.div_f64(self.speedup);
        self.due
    }

    /// Wall time by which the engine ran slower than it should have.
    pub fn lost(&self) -> Duration {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn coarse_wakeups_do_not_add_up() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start, 20.0);
        for _ in 0..1000 {
            tokio::time::sleep_until(pacer.next(Instant::now(), 18 * MS)).await;
        }
        let error = start.elapsed().abs_diff(900 * MS);
        assert!(error <= MS, "{error:?}");
        assert_eq!(pacer.lost(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_is_made_up_for_only_in_part() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start, 1.0);
        let due = pacer.next(start + Duration::from_secs(5), 10 * MS);
        assert_eq!(due, start + Duration::from_millis(4910));
        assert_eq!(pacer.lost(), Duration::from_millis(4900));
    }
}
