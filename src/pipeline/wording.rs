//! A request's body in the words of each model that may serve it: the same but for the model's name.
//!
//! Invariant: what a wording says of a body holds of it as it came. Worded once a model, a large body off the async
//! threads.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;

use super::{Rewrite, subject::off_thread};
use crate::prompt::{Splice, name_model, spliced};

/// A body that names a model, as it came but for its content encoding.
#[derive(Clone, Debug, Default)]
pub(super) struct Original {
    pub body: Bytes,
    /// It came encoded.
    pub encoded: bool,
}

/// What makes the body name each of some models.
#[derive(Default)]
pub(super) struct Wordings {
    original: Original,
    by_model: HashMap<Arc<str>, Vec<Splice>>,
}

impl Wordings {
    /// For those models.
    pub async fn of(original: &Original, models: Vec<Arc<str>>) -> Self {
        if models.is_empty() {
            return Self::default();
        }
        let word = move |body: &Bytes| {
            let splices = |model: &Arc<str>| name_model(body, model).unwrap_or_default();
            models.iter().map(|model| (model.clone(), splices(model))).collect()
        };
        let by_model = off_thread(original.body.clone(), word).await.unwrap_or_default();
        Self { original: original.clone(), by_model }
    }

    /// The decoded body in that model's words, where it was worded for it.
    pub fn body(&self, model: &str) -> Option<Bytes> {
        let splices = self.by_model.get(model)?;
        let body = &self.original.body;
        Some(if splices.is_empty() { body.clone() } else { spliced(body, splices) })
    }

    /// How the body as it came has to change for that model, if at all.
    pub fn rewrite(&self, model: &str) -> Option<Rewrite> {
        let splices = self.by_model.get(model).filter(|splices| !splices.is_empty())?;
        Some(if self.original.encoded {
            Rewrite::Whole(spliced(&self.original.body, splices))
        } else {
            Rewrite::Splices(splices.clone())
        })
    }

    /// Bytes that a copy of the body takes up which goes on in its place; 0: none may.
    pub fn whole_bytes(&self) -> usize {
        let copies = self.original.encoded && self.by_model.values().any(|splices| !splices.is_empty());
        if copies { self.original.body.len() } else { 0 }
    }
}
