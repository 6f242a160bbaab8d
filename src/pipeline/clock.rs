//! What becomes of the time that a decision takes, and what is remembered of it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use crate::types::{Record, Rejection, Stage, Stages, Took, TraceParent};

use super::{Incoming, Placement};

/// The stages of a request.
pub(super) struct Clock {
    began: Instant,
    stages: Stages,
    model: Option<Arc<str>>,
}

impl Clock {
    /// Of a request whose body is there, if it is to be waited for.
    pub fn of(incoming: &Incoming) -> Self {
        let mut clock = Self { began: incoming.began, stages: Stages::default(), model: None };
        clock.passed(Stage::Buffer, incoming.began);
        clock
    }

    /// A part of a stage that began then is over.
    pub fn passed(&mut self, stage: Stage, began: Instant) {
        self.add(stage, began, began.elapsed());
    }

    /// A part of a stage that began then took so long.
    pub fn add(&mut self, stage: Stage, began: Instant, took: Duration) {
        self.stages.add(stage, Took { from: began.saturating_duration_since(self.began), took });
    }

    /// The request asks for that model.
    pub fn asks_for(&mut self, model: Option<Arc<str>>) {
        self.model = model;
    }

    /// Runs a part of a stage.
    pub fn during<T>(&mut self, stage: Stage, run: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let out = run();
        self.passed(stage, began);
        out
    }

    /// What is remembered of the decision.
    pub fn record(self, incoming: &Incoming, decided: &Result<Placement, Rejection>) -> Record {
        let took = self.began.elapsed();
        Record {
            at: SystemTime::now()
                .checked_sub(took)
                .unwrap_or(SystemTime::UNIX_EPOCH)
                .max(SystemTime::UNIX_EPOCH),
            request_id: incoming.request_id.clone(),
            tenant: incoming.tenant.clone(),
            tags: incoming.tags.clone(),
            pool: incoming.pool.clone(),
            call: incoming.kind.label(),
            model: self.model,
            traceparent: incoming.traceparent.as_deref().and_then(TraceParent::parse),
            stages: self.stages,
            took,
            decided: match decided {
                Ok(placement) => Ok(placement.decision.clone()),
                Err(rejection) => Err(Arc::new(rejection.clone())),
            },
        }
        .brief()
    }
}
