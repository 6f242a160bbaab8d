//! When a worker whose responses kept failing is probed: at once at first, ever later if it fails again.
//!
//! Its metrics and health may look fine while it fails what it serves; without the growing pause such a
//! worker would be handed clients' requests again at every poll. Pure; time in polls.

/// Longest pause before a probe, in polls.
const MAX_PAUSE: u32 = 32;
/// Polls in a row without failing after which an earlier failing is forgotten.
const FORGET: u32 = 60;

/// The state of one worker.
#[derive(Debug, Default)]
pub(super) struct Probation {
    /// Polls to wait before the next probe when the worker fails next.
    pause: u32,
    /// Polls waited since it began to fail.
    waited: u32,
    /// Polls in a row that it did not fail.
    well: u32,
}

impl Probation {
    /// A poll went by with the worker failing or not; whether to probe it now.
    pub(super) fn tick(&mut self, failing: bool) -> bool {
        if !failing {
            self.waited = 0;
            self.well = self.well.saturating_add(1);
            if self.well >= FORGET {
                self.pause = 0;
            }
            return false;
        }
        self.well = 0;
        self.waited = self.waited.saturating_add(1);
        self.waited > self.pause
    }

    /// The probe went well and the worker gets traffic again: should it fail soon, the pause is longer.
    pub(super) fn released(&mut self) {
        self.waited = 0;
        self.pause = (self.pause * 2).clamp(1, MAX_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls until a failing worker is probed.
    fn polls(probation: &mut Probation) -> u32 {
        (1..).find(|_| probation.tick(true)).unwrap()
    }

    #[test]
    fn pauses_grow_and_are_forgotten() {
        let mut probation = Probation::default();
        for want in [1, 2, 3, 5, 9, 17, 33, 33] {
            assert_eq!(polls(&mut probation), want);
            // A probe that fails is tried again at the next poll.
            assert!(probation.tick(true));
            probation.released();
            assert!(!probation.tick(false));
        }
        for _ in 0..FORGET {
            assert!(!probation.tick(false));
        }
        assert_eq!(polls(&mut probation), 1);
    }
}
