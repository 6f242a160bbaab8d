//! Who may serve a request: workers, each with the name that it knows the model by.
//!
//! Invariant: of a worker and a model there is one seat at most.

use std::sync::Arc;

use crate::{
    fleet::{Member, Snapshot},
    route::{Demand, eligible},
    types::{Removed, RemovedReason, Target, WorkerId, WorkerTarget},
};

/// A worker that may serve a request.
#[derive(Clone)]
pub(super) struct Seat {
    pub member: Arc<Member>,
    /// The model as the worker knows it; `None`: none is named.
    pub model: Option<Arc<str>>,
    /// Index of its backend among those of the asked model; 0 where it is asked for by the worker's own name.
    pub backend: usize,
}

/// Some of the fleet, as what serves a request.
pub(super) struct Backing {
    /// Only workers of this set; `None`: all.
    pub set: Option<Arc<str>>,
    /// The model as they know it.
    pub model: Option<Arc<str>>,
    /// See [`Seat::backend`].
    pub backend: usize,
}

/// The workers that may serve a request, and those that may not.
#[derive(Default)]
pub(super) struct Field {
    pub seats: Vec<Seat>,
    pub removed: Vec<Removed>,
}

impl Seat {
    /// As a decision names it.
    pub fn target(&self) -> Target {
        let worker = &self.member.worker;
        Target::Worker(WorkerTarget {
            id: worker.id,
            name: worker.name.clone(),
            workerset: worker.set.name.clone(),
            endpoint: worker.endpoint.clone(),
        })
    }

    /// Tells it from the others of its field.
    pub fn key(&self) -> (WorkerId, usize) {
        (self.member.worker.id, self.backend)
    }
}

impl Backing {
    /// Whoever serves the model by the name that it is asked for.
    pub fn anyone(model: Option<Arc<str>>) -> Self {
        Self { set: None, model, backend: 0 }
    }

    fn has(&self, member: &Member) -> bool {
        self.set.as_deref().is_none_or(|set| set == &*member.worker.set.name)
    }
}

impl Field {
    /// Those of the backings that meet the demand, whose model is the backing's.
    pub fn of(fleet: &Snapshot, backings: &[Backing], demand: Demand<'_>) -> Self {
        let mut field = Self::default();
        for member in fleet.values() {
            let first = field.seats.len();
            for backing in backings.iter().filter(|backing| backing.has(member)) {
                let taken = field.seats[first..].iter().any(|seat| seat.model == backing.model);
                if !taken {
                    let Backing { model, backend, .. } = backing;
                    field.add(
                        Seat { member: member.clone(), model: model.clone(), backend: *backend },
                        demand,
                    );
                }
            }
        }
        field
    }

    /// Gives it a seat if it meets the demand, whose model is the seat's.
    pub fn add(&mut self, seat: Seat, demand: Demand<'_>) -> Option<RemovedReason> {
        match eligible(&seat.member, Demand { model: seat.model.as_deref(), ..demand }) {
            Ok(()) => self.seats.push(seat),
            Err(reason) => {
                self.remove(&seat, reason);
                return Some(reason);
            }
        }
        None
    }

    /// What the model is called by those who do not call it that.
    pub fn other_models(&self, asked: Option<&Arc<str>>) -> Vec<Arc<str>> {
        let mut others = Vec::new();
        for model in self.seats.iter().filter_map(|seat| seat.model.as_ref()) {
            if Some(model) != asked && !others.contains(model) {
                others.push(model.clone());
            }
        }
        others
    }

    /// There are workers, and none of them serves the model.
    pub fn is_of_other_models(&self) -> bool {
        let other = |removed: &Removed| removed.reason == RemovedReason::OtherModel;
        self.seats.is_empty() && !self.removed.is_empty() && self.removed.iter().all(other)
    }

    /// Notes one that may not.
    pub fn remove(&mut self, seat: &Seat, reason: RemovedReason) {
        self.removed.push(Removed {
            who: seat.member.worker.name.clone(),
            model: seat.model.clone(),
            reason,
        });
    }
}
