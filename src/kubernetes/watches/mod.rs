//! Watched kinds: every object of a kind, kept as last known through outages, relists and restarts of the API server.
//!
//! Invariant: readers never see a list half taken in, nor a change where there is none.

mod follow;
mod instruments;
mod report;
mod store;
mod watched;

use std::{convert::Infallible, time::Duration};

use kube::Api;
use rand::{SeedableRng, rngs::StdRng};
use tokio::sync::watch;

pub use report::{WatchReport, WatchState};
pub use store::Watchable;
pub use watched::Watched;

use self::{
    follow::Follow,
    instruments::{Instruments, WatchGauges},
    report::{Board, Need},
};
use super::{
    backoff::{Backoff, Bounds},
    failure::Target,
};
use crate::observe::Metrics;

/// Which objects of a kind are watched. Default: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Label selector.
    pub labels: Option<String>,
    /// Field selector.
    pub fields: Option<String>,
}

/// How patient watches are.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long the API server is asked to keep one watch open. A server that has gone silent is noticed after this and
    /// `answer`.
    pub watch: Duration,
    /// How long it may take to answer.
    pub answer: Duration,
    /// How often it is asked whether it has got as far as we have, while all seems well.
    pub check: Duration,
    /// The waits between tries.
    pub retry: Bounds,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            watch: Duration::from_secs(30),
            answer: Duration::from_secs(10),
            check: Duration::from_secs(300),
            retry: Bounds { least: Duration::from_millis(200), most: Duration::from_secs(10) },
        }
    }
}

/// Every watch of the process. Cheap to clone.
#[derive(Clone)]
pub struct Watches {
    board: Board,
    pace: Pace,
    instruments: Instruments,
}

impl Watches {
    /// None yet.
    pub fn new(metrics: &Metrics) -> Self {
        Self::with_pace(Pace::default(), metrics)
    }

    /// With other times than the usual ones.
    pub fn with_pace(pace: Pace, metrics: &Metrics) -> Self {
        let board = Board::default();
        match WatchGauges::new(board.clone()) {
            Ok(gauges) => drop(metrics.register(gauges)),
            Err(error) => tracing::error!(%error, "the gauges of the watches"),
        }
        Self { board, pace, instruments: Instruments::new(metrics) }
    }

    /// Watches a kind: what is known of it, and what keeps that fresh for as long as it runs. Dropping the future ends the
    /// watch and takes it off the report; what was known stays readable.
    pub fn start<K: Watchable>(
        &self,
        api: Api<K>,
        selector: Selector,
    ) -> (Watched<K>, impl Future<Output = Infallible> + Send + use<K>) {
        self.enter(api, selector, Need::Needed)
    }

    /// The same of a kind that nobody needs: where the API server does not allow it, that is no failure.
    pub fn start_optional<K: Watchable>(
        &self,
        api: Api<K>,
    ) -> (Watched<K>, impl Future<Output = Infallible> + Send + use<K>) {
        self.enter(api, Selector::default(), Need::Optional)
    }

    fn enter<K: Watchable>(
        &self,
        api: Api<K>,
        selector: Selector,
        need: Need,
    ) -> (Watched<K>, impl Future<Output = Infallible> + Send + use<K>) {
        let (publish, watched) = watch::channel(watched::Shelf::default());
        let target = Target::of::<K>(api.namespace());
        let slot = self.board.enter((target, need), self.instruments.clone());
        let backoff = Backoff::new(self.pace.retry, StdRng::from_os_rng());
        let follow = Follow::new((api, selector), self.pace, (publish, slot, backoff));
        (Watched(watched), follow.run())
    }

    /// How each is doing, in the order of their start.
    pub fn report(&self) -> Vec<WatchReport> {
        self.board.report()
    }
}
