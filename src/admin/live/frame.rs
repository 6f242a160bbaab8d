//! Everything that the page shows, at one instant: made once, told to all listeners.
//!
//! Invariant: a part that did not change since the frame before is the same `Arc`; by that alone listeners know.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use crate::{roster::State, types::WorkerId};

/// A part of a frame, as JSON.
pub(super) type Part = Arc<RawValue>;

/// One worker.
#[derive(Debug)]
pub(super) struct Row {
    pub id: WorkerId,
    pub state: State,
    /// It is out because somebody wants it so.
    pub set_apart: bool,
    /// What a search looks in, in lower case.
    pub words: String,
    pub json: Box<RawValue>,
}

/// One decision of the stream.
#[derive(Debug)]
pub(super) struct Entry {
    pub seq: u64,
    /// The decision as it was made, without its end.
    pub json: Box<RawValue>,
    /// How its request ended, once it has.
    pub ending: Option<Part>,
}

/// The parts that are told whole when they change, by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts(BTreeMap<&'static str, Part>);

impl Parts {
    /// Takes over what a part is now.
    pub fn set(&mut self, name: &'static str, now: &impl Serialize) {
        if let Some(now) = json(now)
            && self.0.get(name).is_none_or(|part| part.get() != now.get())
        {
            self.0.insert(name, now.into());
        }
    }

    /// Those that are others than in `before`.
    pub fn changed<'p>(&'p self, before: &'p Self) -> impl Iterator<Item = (&'static str, &'p Part)> {
        let same = |name: &str, part: &Part| before.0.get(name).is_some_and(|old| Arc::ptr_eq(old, part));
        self.0.iter().filter(move |(name, part)| !same(name, part)).map(|(name, part)| (*name, part))
    }
}

/// Everything at one instant. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    /// When it was made; `None`: none was.
    pub made: Option<Instant>,
    /// The same in milliseconds since the epoch.
    pub now_ms: u64,
    /// The number of the present bucket.
    pub bucket: u64,
    /// Ordered by id.
    pub workers: Vec<Arc<Row>>,
    pub parts: Parts,
    /// Of the series, by number.
    pub buckets: BTreeMap<u64, Part>,
    /// The latest of the stream, the oldest first.
    pub decisions: VecDeque<Arc<Entry>>,
}

/// As JSON; `None` never happens: everything that is shown can be.
pub(super) fn json(value: &impl Serialize) -> Option<Box<RawValue>> {
    to_raw_value(value)
        .inspect_err(|error| tracing::error!(%error, "the dashboard's data do not encode"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_stays_is_not_told_again() {
        let mut parts = Parts::default();
        parts.set("a", &1);
        parts.set("b", &2);
        let before = parts.clone();
        parts.set("a", &1);
        parts.set("b", &3);
        let changed: Vec<_> = parts.changed(&before).map(|(name, part)| (name, part.get())).collect();
        assert_eq!(changed, [("b", "3")]);
        assert_eq!(parts.changed(&Parts::default()).count(), 2);
    }
}
