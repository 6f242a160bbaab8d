//! What is measured of policies.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{IntCounterVec, IntGaugeVec};

use crate::{
    observe::Metrics,
    policy::{Standing, crd},
};

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is in force.
    Applied,
    /// It is unsound: what was in force stays.
    Refused,
}

impl Change {
    fn label(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Refused => "refused",
        }
    }
}

/// Where a resource stands, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    InForce,
    /// In force, and what it names does not exist.
    Unresolved,
    /// As it is, it is not in force.
    Rejected,
}

impl Stand {
    const ALL: [Self; 3] = [Self::InForce, Self::Unresolved, Self::Rejected];

    fn of(standing: &Standing) -> Self {
        match (standing.rejected.is_empty(), standing.unresolved.is_empty()) {
            (true, true) => Self::InForce,
            (true, false) => Self::Unresolved,
            (false, _) => Self::Rejected,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::InForce => "in_force",
            Self::Unresolved => "unresolved",
            Self::Rejected => "rejected",
        }
    }
}

/// The metrics. Cheap to clone.
#[derive(Clone)]
pub(super) struct Instruments {
    resources: IntGaugeVec,
    changes: IntCounterVec,
    changed: IntGaugeVec,
}

impl Instruments {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            resources: metrics.gauges(
                "kinference_policy_resources",
                "Resources of policies, by kind and by where they stand.",
                &["kind", "standing"],
            ),
            changes: metrics.counters_from_zero(
                "kinference_policy_changes_total",
                "Changes of policies, by what became of them.",
                ("outcome", &[Change::Applied, Change::Refused].map(Change::label)),
            ),
            changed: metrics.gauges(
                "kinference_policy_last_change_timestamp_seconds",
                "When the policies in force changed, in seconds since 1970.",
                &[],
            ),
        }
    }

    pub(super) fn count(&self, change: Change) {
        self.changes.with_label_values(&[change.label()]).inc();
    }

    /// Others are in force from now on.
    pub(super) fn applied(&self) {
        self.count(Change::Applied);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.changed.with_label_values(&[] as &[&str]).set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    }

    /// Where resources stand.
    pub(super) fn stand(&self, standings: &[Standing]) {
        for kind in crd::kinds().into_iter().filter(|kind| *kind != "InferenceWorkerSet") {
            for stand in Stand::ALL {
                let count =
                    standings.iter().filter(|one| one.kind == kind && Stand::of(one) == stand).count();
                let gauge = self.resources.with_label_values(&[kind, stand.label()]);
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }
}
