//! A request's body in the words of each who may serve it: the same but for the model's name and, where a provider tells the
//! usage of a streamed answer only on demand, `stream_options`.
//!
//! Invariant: what a wording says of a body holds of it as it came. Worded once each, a large body off the async threads.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;

use super::{Rewrite, off_thread::off_thread};
use crate::prompt::{Splice, ask_usage, joined, name_model, spliced};

/// A body that names a model, as it came but for its content encoding.
#[derive(Clone, Debug, Default)]
pub(super) struct Original {
    pub body: Bytes,
    /// It came encoded.
    pub encoded: bool,
}

/// How a request is worded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Words {
    /// What the model is called.
    pub model: Arc<str>,
    /// A streamed answer is asked for its usage.
    pub asks_usage: bool,
}

/// What makes a body say each of some words.
#[derive(Default)]
pub(super) struct Wordings {
    original: Original,
    by_words: HashMap<Words, Vec<Splice>>,
}

impl Words {
    /// A worker's.
    pub fn of(model: &Arc<str>) -> Self {
        Self { model: model.clone(), asks_usage: false }
    }

    /// Whether a body that names that model may have to change for them.
    pub fn differ(&self, asked: Option<&Arc<str>>) -> bool {
        self.asks_usage || Some(&self.model) != asked
    }

    fn splices(&self, body: &Bytes) -> Vec<Splice> {
        let named = name_model(body, &self.model).unwrap_or_default();
        let asks = if self.asks_usage { ask_usage(body).unwrap_or_default() } else { Vec::new() };
        joined(named, asks)
    }
}

impl Wordings {
    /// In those words.
    pub async fn of(original: &Original, words: Vec<Words>) -> Self {
        if words.is_empty() {
            return Self::default();
        }
        let word = move |body: &Bytes| {
            let splices = |words: &Words| (words.clone(), words.splices(body));
            words.iter().map(splices).collect()
        };
        let by_words = off_thread(original.body.clone(), word).await.unwrap_or_default();
        Self { original: original.clone(), by_words }
    }

    /// The decoded body in those words, where it was worded so.
    pub fn body(&self, words: &Words) -> Option<Bytes> {
        let splices = self.by_words.get(words)?;
        let body = &self.original.body;
        Some(if splices.is_empty() { body.clone() } else { spliced(body, splices) })
    }

    /// How the body as it came has to change for them, if at all.
    pub fn rewrite(&self, words: &Words) -> Option<Rewrite> {
        let splices = self.by_words.get(words).filter(|splices| !splices.is_empty())?;
        Some(if self.original.encoded {
            Rewrite::Whole(spliced(&self.original.body, splices))
        } else {
            Rewrite::Splices(splices.clone())
        })
    }

    /// Bytes that a copy of the body takes up which goes on in its place; 0: none may.
    pub fn whole_bytes(&self) -> usize {
        let copies = self.original.encoded && self.by_words.values().any(|splices| !splices.is_empty());
        if copies { self.original.body.len() } else { 0 }
    }
}
