//! A worker in the fleet: its description, its generation, its live status.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use super::{Availability, MISSED_POLLS_TO_FAIL, ModelCard, Status, Worker};
use crate::types::RemovedReason;

/// A worker from the moment it was discovered until it leaves or becomes another engine. What else is said of it may
/// change meanwhile: then there is a new `Member` with the same generation and the same status.
#[derive(Debug)]
pub struct Member {
    /// What discovery said.
    pub worker: Worker,
    /// Never used twice in a process: fences everything that belongs to an earlier life.
    pub generation: u64,
    /// What is known of it now.
    pub status: Arc<Status>,
}

/// How a worker serves a model: what routing needs of its card, cheap enough to be asked for on every pick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// The model's name, if it is a LoRA adapter.
    pub adapter: Option<Arc<str>>,
    /// Longest prompt plus output in tokens, where the worker says.
    pub max_model_len: Option<usize>,
}

impl From<&ModelCard> for Served {
    fn from(card: &ModelCard) -> Self {
        let adapter = card.parent.is_some().then(|| card.id.clone());
        Self { adapter, max_model_len: card.max_model_len }
    }
}

impl Member {
    /// The base model: the configured one, else the first that the worker says it serves.
    pub fn model(&self) -> Option<Arc<str>> {
        if !self.worker.model_name.is_empty() {
            return Some(self.worker.model_name.clone());
        }
        let cards = self.status.models.load();
        cards.as_ref()?.iter().find(|card| card.parent.is_none()).map(|card| card.id.clone())
    }

    /// How the worker serves `model`, if it does: from `/v1/models`, until it has answered from the
    /// configured model name.
    pub fn serves(&self, model: &str) -> Option<Served> {
        match self.status.models.load().as_ref() {
            Some(cards) => cards.iter().find(|card| &*card.id == model).map(Served::from),
            None => self.model().is_some_and(|own| &*own == model).then(Served::default),
        }
    }

    /// The worker keeps failing: 3 responses in a row, or every poll that it is configured for, for 5 rounds.
    pub fn failing(&self) -> bool {
        let missed = |polls: &AtomicU32| polls.load(Ordering::Relaxed) >= MISSED_POLLS_TO_FAIL;
        let scrapes = self.worker.metrics_url.as_ref().map(|_| missed(&self.status.missed_scrapes));
        let models = self.worker.http_url.as_ref().map(|_| missed(&self.status.missed_models));
        let polled = scrapes.is_some() || models.is_some();
        self.status.needs_probe() || (polled && scrapes.unwrap_or(true) && models.unwrap_or(true))
    }

    /// It was taken out of new picks: by its description, or by hand.
    pub fn cordoned(&self) -> bool {
        self.worker.availability == Availability::Cordoned || self.status.cordoned.load(Ordering::Relaxed)
    }

    /// It has answered nothing yet, and its profile bounds what such a worker gets.
    pub fn warming(&self) -> bool {
        let bounded = self.worker.set.profile.picker.warmup_in_flight_max > 0;
        bounded && !self.status.answered.load(Ordering::Relaxed)
    }

    /// Why it gets no requests now, whatever they ask for.
    pub fn unavailable(&self) -> Option<RemovedReason> {
        if self.status.is_evicted() {
            return Some(RemovedReason::Evicted);
        }
        match self.worker.availability {
            Availability::NotReady => Some(RemovedReason::NotReady),
            Availability::Terminating => Some(RemovedReason::Terminating),
            _ if self.cordoned() => Some(RemovedReason::Cordoned),
            _ if self.status.asleep.load(Ordering::Relaxed) => Some(RemovedReason::Asleep),
            _ => self.failing().then_some(RemovedReason::Failing),
        }
    }

    /// The names of all models served now.
    pub fn model_names(&self) -> Vec<Arc<str>> {
        match self.status.models.load().as_ref() {
            Some(cards) => cards.iter().map(|card| card.id.clone()).collect(),
            None => self.model().into_iter().collect(),
        }
    }
}
