//! When instants were, by the clock on the wall. Milliseconds since the epoch.
//!
//! Invariant: of one instant it says the same every time, so that what is shown of it does not flicker.

use tokio::time::Instant;

use super::now_ms;

/// An instant, and what time it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    began: Instant,
    began_ms: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { began: Instant::now(), began_ms: now_ms() }
    }
}

impl Clock {
    /// When that was, or will be.
    pub fn ms(self, at: Instant) -> u64 {
        let since = |from: Instant, to: Instant| to.saturating_duration_since(from).as_millis() as u64;
        (self.began_ms + since(self.began, at)).saturating_sub(since(at, self.began))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_and_what_will_be_is_told_by_the_clock_on_the_wall() {
        let clock = Clock { began: Instant::now() + Duration::from_secs(60), began_ms: 100_000 };
        let at = |secs: u64| clock.ms(clock.began - Duration::from_secs(60) + Duration::from_secs(secs));
        assert_eq!([at(30), at(60), at(75)], [70_000, 100_000, 115_000]);
    }
}
