//! The metrics of the watches.

use prometheus::{
    Gauge, IntCounterVec, IntGaugeVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tokio::time::Instant;

use super::report::{Board, WatchState};
use crate::{kubernetes::instruments::Errors, observe::Metrics};

/// Why a watch began anew.
#[derive(Clone, Copy, Debug)]
pub(super) enum Restart {
    /// The API server ended it, as it does.
    Ended,
    /// The version it was at is forgotten.
    Expired,
    /// It failed.
    Failed,
}

impl Restart {
    const ALL: [Self; 3] = [Self::Ended, Self::Expired, Self::Failed];

    fn label(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Expired => "expired",
            Self::Failed => "failed",
        }
    }
}

/// Counters that are kept as things happen.
#[derive(Clone)]
pub(super) struct Instruments {
    pub(super) errors: Errors,
    restarts: IntCounterVec,
}

impl Instruments {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            errors: Errors::new(metrics, "kinference_kubernetes_watch_errors_total", "Lists and watches that failed, by verb and kind of failure."),
            restarts: metrics.counters_from_zero(
                "kinference_kubernetes_watch_restarts_total",
                "Watches that began anew: ended by the API server as usual, their version forgotten, or failed.",
                ("cause", &Restart::ALL.map(Restart::label)),
            ),
        }
    }

    pub(super) fn restarted(&self, cause: Restart) {
        self.restarts.with_label_values(&[cause.label()]).inc();
    }
}

/// Gauges that are read off the report when they are asked for.
#[derive(Clone)]
pub(super) struct WatchGauges {
    board: Board,
    states: IntGaugeVec,
    behind: Gauge,
}

impl WatchGauges {
    /// # Errors
    /// None: the names are constants.
    pub(super) fn new(board: Board) -> prometheus::Result<Self> {
        let states = Opts::new("kinference_kubernetes_watches", "Watches of the API server by state.");
        let behind = Opts::new(
            "kinference_kubernetes_watch_behind_seconds",
            "How long the watch that is furthest behind has been so, or has waited for its first list; 0: none is.",
        );
        let states = IntGaugeVec::new(states, &["state"])?;
        Ok(Self { board, states, behind: Gauge::with_opts(behind)? })
    }
}

impl Collector for WatchGauges {
    fn desc(&self) -> Vec<&Desc> {
        let mut all = self.states.desc();
        all.extend(self.behind.desc());
        all
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let report = self.board.report();
        for label in ["waiting", "current", "behind", "forbidden"] {
            let count = report.iter().filter(|watch| watch.state.label() == label).count();
            self.states.with_label_values(&[label]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let since = report.iter().filter_map(|watch| match watch.state {
            WatchState::Waiting { since, .. } | WatchState::Behind { since, .. } => Some(since),
            WatchState::Current | WatchState::Forbidden => None,
        });
        let age = since.min().map_or(0.0, |since| Instant::now().duration_since(since).as_secs_f64());
        self.behind.set(age);
        let mut all = self.states.collect();
        all.extend(self.behind.collect());
        all
    }
}
