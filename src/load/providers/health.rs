//! Whether a provider answers: set aside after failures in a row, tried again by one request after a pause. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::types::Outcome;

/// Failures in a row that set a provider aside.
const FAILURES: u32 = 3;
/// How long it is left alone at first; every failed trial doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// How long at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// What is held of a provider.
#[derive(Debug)]
pub(super) enum Health {
    /// It takes requests.
    Serving { failures: u32 },
    /// It is left alone until then.
    Aside { until: Instant, pause: Duration },
    /// One request is there to see whether it is back.
    OnTrial { pause: Duration },
}

/// What the end of a request says of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Good,
    Bad,
    /// Nothing: the client's doing.
    None,
}

/// What became of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    SetAside,
    Back,
}

impl Default for Health {
    fn default() -> Self {
        Self::Serving { failures: 0 }
    }
}

impl Sign {
    pub(super) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Self::Good,
            Outcome::Failed | Outcome::Refused => Self::Bad,
            Outcome::ClientError | Outcome::Cancelled => Self::None,
        }
    }
}

impl Health {
    /// Whether it may be asked.
    pub(super) fn takes_requests(&self, now: Instant) -> bool {
        match self {
            Self::Serving { .. } => true,
            Self::Aside { until, .. } => now >= *until,
            Self::OnTrial { .. } => false,
        }
    }

    /// A request goes there. Whether it is the trial.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        match self {
            Self::Aside { until, pause } if now >= *until => {
                *self = Self::OnTrial { pause: *pause };
                true
            }
            _ => false,
        }
    }

    /// A request there ended. While it is set aside only the trial counts: the others began before.
    pub(super) fn end(&mut self, trial: bool, sign: Sign, now: Instant) -> Option<Change> {
        match (&mut *self, sign) {
            (Self::Serving { failures }, Sign::Good) => *failures = 0,
            (Self::Serving { failures }, Sign::Bad) => {
                *failures += 1;
                if *failures >= FAILURES {
                    *self = Self::Aside { until: now + FIRST_PAUSE, pause: FIRST_PAUSE };
                    return Some(Change::SetAside);
                }
            }
            (Self::OnTrial { .. }, Sign::Good) if trial => {
                *self = Self::default();
                return Some(Change::Back);
            }
            (Self::OnTrial { pause }, Sign::Bad) if trial => {
                let pause = (*pause * 2).min(LONGEST_PAUSE);
                *self = Self::Aside { until: now + pause, pause };
            }
            (Self::OnTrial { pause }, Sign::None) if trial => {
                *self = Self::Aside { until: now, pause: *pause };
            }
            _ => {}
        }
        None
    }
}
