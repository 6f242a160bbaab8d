//! How every watch of the process is doing, for people, `/readyz` and metrics.
//!
//! Invariant: a watch is on the report from its start until its future is dropped. What goes wrong is logged when it begins
//! and when it changes its kind, not at each try.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::instruments::Instruments;
use crate::kubernetes::{
    failure::{ApiError, Failure, Target},
    instruments::Trouble,
};

/// How one watch is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchReport {
    /// `endpointslices.discovery.k8s.io`
    pub resource: String,
    /// The namespace that is watched; `None`: all of them, or the kind has none.
    pub namespace: Option<Arc<str>>,
    /// How it is doing.
    pub state: WatchState,
}

impl WatchReport {
    /// `endpointslices.discovery.k8s.io in namespace `x``
    pub fn target(&self) -> String {
        let namespace = self.namespace.as_ref().map(|namespace| format!(" in namespace `{namespace}`"));
        format!("{}{}", self.resource, namespace.unwrap_or_default())
    }
}

/// How a watch is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchState {
    /// It has never had a list.
    Waiting {
        /// Since its start.
        since: Instant,
        /// What keeps it, if it has failed.
        why: Option<Arc<str>>,
    },
    /// It follows.
    Current,
    /// It knows what was, not what is.
    Behind {
        /// Since when.
        since: Instant,
        /// What keeps it.
        why: Arc<str>,
    },
    /// Nobody needs it, and it is not allowed.
    Forbidden,
}

impl WatchState {
    /// As a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Current => "current",
            Self::Behind { .. } => "behind",
            Self::Forbidden => "forbidden",
        }
    }

    /// It works.
    fn worked(&self) -> Self {
        Self::Current
    }

    /// It failed, at `now`.
    fn failed(&self, why: Arc<str>, now: Instant) -> Self {
        match self {
            Self::Waiting { since, .. } => Self::Waiting { since: *since, why: Some(why) },
            Self::Current => Self::Behind { since: now, why },
            Self::Forbidden => Self::Waiting { since: now, why: Some(why) },
            Self::Behind { since, .. } => Self::Behind { since: *since, why },
        }
    }
}

/// Every watch of the process.
#[derive(Clone, Default)]
pub(super) struct Board(Arc<Mutex<(u64, BTreeMap<u64, WatchReport>)>>);

impl Board {
    /// In order of their start.
    pub(super) fn report(&self) -> Vec<WatchReport> {
        self.0.lock().1.values().cloned().collect()
    }

    /// A new watch.
    pub(super) fn enter(&self, (target, need): (Target, Need), instruments: Instruments) -> Slot {
        let state = WatchState::Waiting { since: Instant::now(), why: None };
        let report = WatchReport { resource: target.resource(), namespace: target.namespace.clone(), state };
        let mut board = self.0.lock();
        board.0 += 1;
        let number = board.0;
        board.1.insert(number, report);
        let over = format!("the watch of {target} works");
        let trouble = Trouble::new(instruments.errors.clone(), NOTHING_KNOWN, over);
        Slot { board: self.clone(), number, target, need, instruments, trouble }
    }
}

/// Whether the process needs what is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It does.
    Needed,
    /// It does not: where it may not be read, that is as it was wanted.
    Optional,
}

const NOTHING_KNOWN: &str = "a watch fails: nothing is known yet";
const LAST_KNOWN: &str = "a watch fails: the last known objects stay in use";

/// The place of one watch on the report: it is taken off with this.
pub(super) struct Slot {
    board: Board,
    number: u64,
    pub(super) target: Target,
    need: Need,
    pub(super) instruments: Instruments,
    trouble: Trouble,
}

impl Slot {
    /// The watch is up to date.
    pub(super) fn worked(&mut self) {
        self.turn(WatchState::worked);
        self.trouble.note(None);
        self.trouble.rename(LAST_KNOWN);
    }

    /// A failure that is as it was wanted.
    pub(super) fn is_wanted(&self, failure: &Failure) -> bool {
        self.need == Need::Optional && matches!(failure, Failure::Forbidden(_))
    }

    /// It failed and will try again. A forgotten version is routine: it lists anew.
    pub(super) fn failed(&mut self, error: &ApiError) {
        if error.failure == Failure::Expired {
            return self.trouble.routine(error);
        }
        if self.is_wanted(&error.failure) {
            self.turn(|_| WatchState::Forbidden);
            return self.trouble.unneeded(error);
        }
        let why: Arc<str> = error.to_string().into();
        self.turn(|state| state.failed(why.clone(), Instant::now()));
        self.trouble.note(Some(error));
    }

    fn turn(&self, to: impl FnOnce(&WatchState) -> WatchState) {
        if let Some(report) = self.board.0.lock().1.get_mut(&self.number) {
            report.state = to(&report.state);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.board.0.lock().1.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_behind_since_it_first_failed() {
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        let waiting = WatchState::Waiting { since: start, why: None };
        let failed = waiting.failed("a".into(), later);
        assert_eq!(failed, WatchState::Waiting { since: start, why: Some("a".into()) });
        let behind = failed.worked().failed("b".into(), start).failed("c".into(), later);
        assert_eq!(behind, WatchState::Behind { since: start, why: "c".into() });
        assert_eq!(behind.worked(), WatchState::Current);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_allowed_is_wanted_so_only_of_what_nobody_needs() {
        use k8s_openapi::api::core::v1::Node;

        use crate::{kubernetes::failure::Verb, observe::Metrics};

        let (board, instruments) = (Board::default(), Instruments::new(&Metrics::new()));
        let fails = |need, failure: Failure| {
            let target = Target::of::<Node>(None);
            let mut slot = board.enter((target.clone(), need), instruments.clone());
            slot.failed(&ApiError { verb: Verb::List, target, failure });
            board.report()[0].state.label()
        };
        let forbidden = || Failure::Forbidden("403".into());
        assert_eq!(fails(Need::Optional, forbidden()), "forbidden");
        assert_eq!(fails(Need::Optional, Failure::TimedOut), "waiting");
        assert_eq!(fails(Need::Needed, forbidden()), "waiting");
    }
}
