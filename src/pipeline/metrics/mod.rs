//! The pipeline's metrics: what is decided, how it went, how true the predictions were. Seconds.
//!
//! Invariant: labels that others choose go through [`Names`]; nothing is allocated for a request whose labels are known.

mod accuracy;
mod series;

use std::{sync::Arc, time::Duration};

use prometheus::{Histogram, IntCounter, IntCounterVec};

use crate::{
    config::TenantLabels,
    observe::{Metrics, Names},
    types::{Ending, Outcome, Rejection, Stage, Stages, Target},
};

use super::Placement;

use accuracy::Accuracy;
pub(super) use accuracy::Prediction;
use series::{Basis, Book};

const DECISION_BUCKETS: &[f64] =
    &[0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];
/// From a look-up in memory to a body that drips in.
const STAGE_BUCKETS: &[f64] =
    &[0.000_01, 0.000_025, 0.000_1, 0.000_25, 0.001, 0.002_5, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0];

/// Names of each sort that get a label of their own.
const MOST_NAMES: usize = 1000;

/// Whose request it is and what it asks for, as labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Who {
    pub tenant: Arc<str>,
    pub model: Arc<str>,
}

pub(super) struct PipelineMetrics {
    tenants: Names,
    models: Names,
    book: Book,
    accuracy: Accuracy,
    degraded: IntCounterVec,
    replicated: IntCounterVec,
    ruled: IntCounterVec,
    rejections: IntCounterVec,
    moved: IntCounter,
    decision: Histogram,
    stages: [Histogram; Stage::ALL.len()],
}

impl PipelineMetrics {
    pub fn new(m: &Metrics, tenants: &TenantLabels) -> Self {
        let stages = m.histograms(
            "kinference_decision_stage_seconds",
            "Time that decisions took, by stage.",
            (&["stage"], STAGE_BUCKETS),
        );
        Self {
            tenants: match tenants {
                TenantLabels::None => Names::first(0),
                TenantLabels::All => Names::first(MOST_NAMES),
                TenantLabels::Only(names) => Names::only(names.iter().map(String::as_str)),
            },
            models: Names::first(MOST_NAMES),
            book: Book::new(m),
            accuracy: Accuracy::new(m),
            degraded: m.counters(
                "kinference_decisions_degraded_total",
                "Picks made on less than full knowledge, by what was missing.",
                &["model", "workerset", "reason"],
            ),
            replicated: m.counters(
                "kinference_decisions_replicated_total",
                "Picks that spread a hot prefix to another worker.",
                &["model", "workerset"],
            ),
            ruled: m.counters(
                "kinference_pool_decisions_total",
                "Picks made for models of pools, by what ordered the candidates.",
                &["by"],
            ),
            rejections: m.counters(
                "kinference_rejections_total",
                "Requests turned away, by kind of error.",
                &["tenant", "kind"],
            ),
            moved: m
                .counters(
                    "kinference_requests_moved_total",
                    "Requests that the proxy sent elsewhere than picked.",
                    &[],
                )
                .with_label_values::<&str>(&[]),
            decision: m
                .histograms(
                    "kinference_decision_seconds",
                    "From the whole request to its answer.",
                    (&[], DECISION_BUCKETS),
                )
                .with_label_values::<&str>(&[]),
            stages: Stage::ALL.map(|stage| stages.with_label_values(&[stage.label()])),
        }
    }

    /// The labels of a request of that tenant, for a model that somebody serves.
    pub fn who(&self, tenant: Option<&Arc<str>>, model: Option<&Arc<str>>) -> Who {
        Who { tenant: self.tenants.label(tenant), model: self.models.label(model) }
    }

    /// A decision was made for a tenant.
    pub fn decided(
        &self,
        tenant: Option<&Arc<str>>,
        decided: &Result<Placement, Rejection>,
        (took, stages): (Duration, &Stages),
    ) {
        self.decision.observe(took.as_secs_f64());
        for (stage, took) in stages.iter() {
            self.stages[stage as usize].observe(took.took.as_secs_f64());
        }
        match decided {
            Ok(placement) => self.placed(placement),
            Err(rejection) => self.rejected(tenant, rejection),
        }
    }

    fn placed(&self, placement: &Placement) {
        let (Some((who, workerset)), decision) = (placement.account(), &placement.decision) else { return };
        let basis = if decision.prompt_tokens.is_some() { Basis::Prompt } else { Basis::Load };
        self.book.series(who, workerset).decided(basis);
        if let Some(ruled) = &decision.ruled {
            let by = if ruled.decided_by().is_some() { "rule" } else { "prediction" };
            self.ruled.with_label_values(&[by]).inc();
        }
        if decision.replicated {
            self.replicated.with_label_values(&[&*who.model, &**workerset]).inc();
        }
        for lacks in decision.lacks() {
            self.degraded.with_label_values(&[&*who.model, &**workerset, lacks.label()]).inc();
        }
    }

    /// A request of a tenant is turned away.
    pub fn rejected(&self, tenant: Option<&Arc<str>>, rejection: &Rejection) {
        self.rejections.with_label_values(&[&*self.tenants.label(tenant), rejection.kind.label()]).inc();
        if let Some(rule) = rejection.ruled.as_ref().and_then(|ruled| ruled.decided_by()) {
            tracing::debug!(policy = &*rule.policy, rule = &*rule.rule, "a rule turns a request away");
        }
    }

    /// The first token of a streamed answer was seen that long after the decision.
    pub fn first_token(&self, who: &Who, workerset: &Arc<str>, observed: Duration) {
        self.book.series(who, workerset).first_token(observed);
    }

    /// What was predicted for it.
    pub fn predicted(&self, who: &Who, workerset: &Arc<str>, prediction: Prediction) {
        self.accuracy.observe((&who.model, workerset), prediction);
    }

    pub fn moved(&self) {
        self.moved.inc();
    }

    /// A placed request ended, that long after its head was read.
    pub fn ended(&self, who: &Who, workerset: &Arc<str>, (ending, whole): (&Ending, Duration)) {
        let series = self.book.series(who, workerset);
        series.ended(ending);
        if ending.outcome == Outcome::Completed {
            series.completed(ending, whole);
        }
    }
}

/// The label of what serves: the worker set, or the provider.
pub(super) fn workerset(target: &Target) -> Arc<str> {
    match target {
        Target::Worker(worker) => worker.workerset.clone(),
        Target::Provider(_) => target.label(),
    }
}
