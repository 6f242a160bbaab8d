//! A worker in the fleet: its description, its generation, its live status.

use super::{ModelCard, Status, Worker};
use std::sync::Arc;

/// A worker from the moment it was discovered until it leaves or its description changes.
#[derive(Debug)]
pub struct Member {
    /// What discovery said.
    pub worker: Worker,
    /// Never used twice in a process: fences everything that belongs to an earlier life.
    pub generation: u64,
    /// What is known of it now.
    pub status: Status,
}

impl Member {
    /// The card under which the worker serves `model`: from `/v1/models`, until it has answered from
    /// the configured model name.
    pub fn serves(&self, model: &str) -> Option<ModelCard> {
        match self.status.models.load().as_ref() {
            Some(cards) => cards.iter().find(|card| &*card.id == model).cloned(),
            None => (&*self.worker.model_name == model).then(|| ModelCard {
                id: self.worker.model_name.clone(),
                parent: None,
                max_model_len: None,
                owned_by: String::new(),
            }),
        }
    }

    /// The names of all models served now.
    pub fn model_names(&self) -> Vec<Arc<str>> {
        match self.status.models.load().as_ref() {
            Some(cards) => cards.iter().map(|card| card.id.clone()).collect(),
            None => vec![self.worker.model_name.clone()],
        }
    }
}
