//! Whether a provider answers: set aside after failures in a row, tried again by one request after a pause. Pure.

use std::{fmt, time::Duration};

use tokio::time::Instant;

use crate::types::Outcome;

/// Failures in a row that set a provider aside.
pub const FAILURES: u32 = 3;
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
    Aside { until: Instant, aside: Aside },
    /// One request is there to see whether it is back.
    OnTrial { aside: Aside },
}

/// What is held of a provider as long as it is set aside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aside {
    since: Instant,
    /// The last one.
    fault: Fault,
    pause: Duration,
}

/// A provider that is set aside, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Since when: the first of the trials that failed came later.
    pub since: Instant,
    /// How the last request ended that was sent there to be answered.
    pub fault: Fault,
    /// From then on one request may try it; `None`: one is there.
    pub tried_from: Option<Instant>,
}

/// What a provider did to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 5xx, a connection error, or a timeout.
    Failed,
    /// 401, 403, 429 or a redirection.
    Refused,
    /// Nothing, until the client gave up.
    Silent,
}

/// What the end of a request says of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Good,
    Bad(Fault),
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
            Outcome::Failed => Self::Bad(Fault::Failed),
            Outcome::Refused => Self::Bad(Fault::Refused),
            Outcome::ClientError | Outcome::Cancelled => Self::None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed: 5xx, no connection, or a timeout",
            Self::Refused => "was refused: 401, 403, 429, or a redirection",
            Self::Silent => "was not answered until its client gave up",
        })
    }
}

impl Aside {
    fn shown(self, tried_from: Option<Instant>) -> SetAside {
        SetAside { since: self.since, fault: self.fault, tried_from }
    }
}

impl Health {
    /// Since when and why it is set aside, if it is.
    pub(super) fn set_aside(&self) -> Option<SetAside> {
        match self {
            Self::Serving { .. } => None,
            Self::Aside { until, aside } => Some(aside.shown(Some(*until))),
            Self::OnTrial { aside } => Some(aside.shown(None)),
        }
    }

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
            Self::Aside { until, aside } if now >= *until => {
                *self = Self::OnTrial { aside: *aside };
                true
            }
            _ => false,
        }
    }

    /// A request there ended. While it is set aside only the trial counts: the others began before.
    pub(super) fn end(&mut self, trial: bool, sign: Sign, now: Instant) -> Option<Change> {
        match (&mut *self, sign) {
            (Self::Serving { failures }, Sign::Good) => *failures = 0,
            (Self::Serving { failures }, Sign::Bad(fault)) => {
                *failures += 1;
                if *failures >= FAILURES {
                    let aside = Aside { since: now, fault, pause: FIRST_PAUSE };
                    *self = Self::Aside { until: now + FIRST_PAUSE, aside };
                    return Some(Change::SetAside);
                }
            }
            (Self::OnTrial { .. }, Sign::Good) if trial => {
                *self = Self::default();
                return Some(Change::Back);
            }
            (Self::OnTrial { aside }, Sign::Bad(fault)) if trial => {
                let pause = (aside.pause * 2).min(LONGEST_PAUSE);
                *self = Self::Aside { until: now + pause, aside: Aside { fault, pause, ..*aside } };
            }
            (Self::OnTrial { aside }, Sign::None) if trial => {
                *self = Self::Aside { until: now, aside: *aside };
            }
            _ => {}
        }
        None
    }
}
