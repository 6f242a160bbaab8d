//! Who may serve a request: workers and providers, each with the name that it knows the model by.
//!
//! Invariant: of a worker or a provider and a model there is one seat at most.

use std::sync::Arc;

use super::wording::Words;
use crate::{
    fleet::{Member, Snapshot},
    load::{AtProvider, Providers},
    policy::eval::Provider,
    route::{Demand, eligible},
    types::{ProviderTarget, Removed, RemovedReason, Target, WorkerId, WorkerTarget},
};

/// One that may serve a request.
#[derive(Clone)]
pub(super) struct Seat {
    pub who: Who,
    /// The model as it knows it; `None`: none is named.
    pub model: Option<Arc<str>>,
    /// Index of its backend among those of the asked model; 0 where it is asked for by the worker's own name.
    pub backend: usize,
}

/// Who has a seat.
#[derive(Clone)]
pub(super) enum Who {
    Worker(Arc<Member>),
    /// With all that it takes to send the request there.
    Provider(Arc<Provider>, Arc<ProviderTarget>),
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

/// Those that may serve a request, and those that may not.
#[derive(Default)]
pub(super) struct Field {
    pub seats: Vec<Seat>,
    pub removed: Vec<Removed>,
}

impl Seat {
    /// As a decision names it.
    pub fn target(&self) -> Target {
        match &self.who {
            Who::Worker(member) => {
                let worker = &member.worker;
                Target::Worker(WorkerTarget {
                    id: worker.id,
                    name: worker.name.clone(),
                    workerset: worker.set.name.clone(),
                    endpoint: worker.endpoint.clone(),
                })
            }
            Who::Provider(_, target) => Target::Provider(target.clone()),
        }
    }

    /// The worker, if it is one.
    pub fn member(&self) -> Option<&Arc<Member>> {
        match &self.who {
            Who::Worker(member) => Some(member),
            Who::Provider(..) => None,
        }
    }

    /// Tells a worker's from the others of its field.
    pub fn key(&self) -> Option<(WorkerId, usize)> {
        self.member().map(|member| (member.worker.id, self.backend))
    }

    /// The request as it is to read there; `None`: it names no model.
    pub fn words(&self) -> Option<Words> {
        let asks_usage = matches!(&self.who, Who::Provider(provider, _) if provider.is_asked_for_usage());
        Some(Words { model: self.model.clone()?, asks_usage })
    }
}

/// How the load of a provider is asked for.
pub fn at(provider: &Provider) -> AtProvider<'_> {
    AtProvider {
        provider: &provider.id,
        model: &provider.upstream,
        expected_ttft_ms: provider.expected_ttft_ms.into(),
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
                    field.add(member, (backing.model.clone(), backing.backend), demand);
                }
            }
        }
        field
    }

    /// Gives a worker a seat if it meets the demand, whose model is the seat's.
    pub fn add(
        &mut self,
        member: &Arc<Member>,
        (model, backend): (Option<Arc<str>>, usize),
        demand: Demand<'_>,
    ) -> Option<RemovedReason> {
        let refused = eligible(member, Demand { model: model.as_deref(), ..demand }).err();
        let seat = Seat { who: Who::Worker(member.clone()), model, backend };
        match refused {
            None => self.seats.push(seat),
            Some(reason) => self.remove(seat.target().label(), seat.model, reason),
        }
        refused
    }

    /// Takes out the providers that take no requests any more: since they were seated another request may have gone
    /// there to see whether they are back.
    pub fn keep_taking(&mut self, providers: &Providers) {
        let takes = |seat: &Seat| match &seat.who {
            Who::Worker(_) => true,
            Who::Provider(provider, _) => providers.view(at(provider)).takes_requests,
        };
        let (stay, go) = std::mem::take(&mut self.seats).into_iter().partition(takes);
        self.seats = stay;
        let go: Vec<Seat> = go;
        go.into_iter().for_each(|seat| {
            self.remove(seat.target().label(), seat.model, RemovedReason::Failing);
        });
    }

    /// How those word the request who word it differently.
    pub fn other_words(&self, asked: Option<&Arc<str>>) -> Vec<Words> {
        let mut others = Vec::new();
        for words in self.seats.iter().filter_map(Seat::words) {
            if words.differ(asked) && !others.contains(&words) {
                others.push(words);
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
    pub fn remove(&mut self, who: Arc<str>, model: Option<Arc<str>>, reason: RemovedReason) {
        self.removed.push(Removed { who, model, reason });
    }
}
