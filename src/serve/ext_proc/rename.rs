//! Gives the model of an answer the name again that the client knows it by, while the answer goes by.
//!
//! Invariant: every other byte stays, and what comes out does not depend on where the body was cut. Nothing is held
//! back, so an answer that breaks off is all there as far as it came.

use bytes::Bytes;

use super::{
    inbound::Media,
    rename::json::ModelNames,
    sse::{Part, SseScanner},
};
use crate::{
    prompt::spliced,
    types::{Api, RequestKind},
};

mod json; // one object

/// Renames one answer, piece by piece. A `model` that is an object or a list is no name and stays.
#[derive(Debug)]
pub struct Renamer {
    names: ModelNames,
    /// Where the objects are; `None`: the body is one.
    events: Option<SseScanner>,
}

impl Renamer {
    /// To that name. `inner`: which object of an event has a `model` of its own. `None` where the media has no names
    /// that we read.
    pub fn new(name: &str, inner: Option<&'static str>, media: Media) -> Option<Self> {
        match media {
            Media::Json => Some(Self { names: ModelNames::new(name, None), events: None }),
            Media::Events => {
                Some(Self { names: ModelNames::new(name, inner), events: Some(SseScanner::default()) })
            }
            Media::Other => None,
        }
    }

    /// What the next piece becomes; the same bytes where no name is in it.
    pub fn step(&mut self, bytes: Bytes) -> Bytes {
        let mut splices = Vec::new();
        let names = &mut self.names;
        match &mut self.events {
            None => names.push(&bytes, 0..bytes.len(), &mut splices),
            Some(events) => events.push(&bytes, &mut |part| match part {
                // The line feed that joins two lines ends a word, and is not among the bytes.
                Part::Line => names.push(b"\n", 0..1, &mut Vec::new()),
                Part::Value(range) => names.push(&bytes, range, &mut splices),
                Part::End => names.restart(),
            }),
        }
        if splices.is_empty() { bytes } else { spliced(&bytes, &splices) }
    }
}

/// Which object of an event is the answer itself, as it is announced and told at its end.
pub const fn inner(kind: &RequestKind) -> Option<&'static str> {
    match kind {
        RequestKind::Inference(Api::Responses) | RequestKind::StoredResponse(_) => Some("response"),
        RequestKind::Inference(Api::Messages) => Some("message"),
        RequestKind::Inference(Api::ChatCompletions | Api::Completions)
        | RequestKind::Models(_)
        | RequestKind::Other => None,
    }
}

#[cfg(test)]
mod tests;
