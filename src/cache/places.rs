//! Which node of the slab a key belongs to, in 4 bytes a slot: the keys themselves are in the slab.
//!
//! Owner: the rank's chain. Invariant: of the slots from a key's own to where it is, none is empty; a quarter of all
//! slots is.

use super::{chain::NodeId, keyed::Keyed};
use crate::types::SequenceHash;

/// Slots of the smallest table.
const FEWEST: usize = 16;

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Places {
    slots: Vec<Option<NodeId>>,
    taken: usize,
    keyed: Keyed,
}

impl Places {
    /// Keys that have a node.
    pub(super) fn len(&self) -> usize {
        self.taken
    }

    /// The node of a key; `key_of` tells that of any node in the table.
    pub(super) fn get(&self, key: SequenceHash, key_of: impl Fn(NodeId) -> SequenceHash) -> Option<NodeId> {
        let slot = self.find(|id| key_of(id) == key, key)?;
        self.slots[slot]
    }

    /// Adds a node whose key has none.
    pub(super) fn insert(&mut self, id: NodeId, key_of: impl Fn(NodeId) -> SequenceHash) {
        if (self.taken + 1) * 4 > self.slots.len() * 3 {
            let slots = vec![None; (self.slots.len() * 2).max(FEWEST)];
            for id in std::mem::replace(&mut self.slots, slots).into_iter().flatten() {
                self.place(id, key_of(id));
            }
        }
        self.place(id, key_of(id));
        self.taken += 1;
    }

    /// Takes a node out, if it is there. What comes after it without a gap moves up where it may.
    pub(super) fn remove(&mut self, id: NodeId, key_of: impl Fn(NodeId) -> SequenceHash) {
        let Some(mut hole) = self.find(|one| one == id, key_of(id)) else { return };
        let mut at = self.after(hole);
        while let Some(next) = self.slots[at] {
            let away = |from: usize| at.wrapping_sub(from) & (self.slots.len() - 1);
            if away(self.own(key_of(next))) >= away(hole) {
                self.slots[hole] = Some(next);
                hole = at;
            }
            at = self.after(at);
        }
        self.slots[hole] = None;
        self.taken -= 1;
    }

    fn place(&mut self, id: NodeId, key: SequenceHash) {
        let mut at = self.own(key);
        while self.slots[at].is_some() {
            at = self.after(at);
        }
        self.slots[at] = Some(id);
    }

    fn find(&self, is: impl Fn(NodeId) -> bool, key: SequenceHash) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.own(key);
        loop {
            if is(self.slots[at]?) {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    /// The slot that a key is put in if it is free. There are slots.
    fn own(&self, key: SequenceHash) -> usize {
        self.keyed.spread(key.0) as usize & (self.slots.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A table holds what a map would, whatever comes and goes; keys here are few, so that they meet often.
        #[test]
        fn a_table_is_a_map(steps in prop::collection::vec((any::<bool>(), 0..60usize), 0..400)) {
            let ids: Vec<NodeId> = (0..60).filter_map(NodeId::at).collect();
            let key_of = |id: NodeId| SequenceHash(id.index() as u64 * 7);
            let (mut places, mut model) = (Places::default(), HashMap::new());
            for (come, n) in steps {
                if come && !model.contains_key(&n) {
                    places.insert(ids[n], key_of);
                    model.insert(n, ids[n]);
                } else if !come {
                    places.remove(ids[n], key_of);
                    model.remove(&n);
                }
                prop_assert_eq!(places.len(), model.len());
                for (n, id) in ids.iter().enumerate() {
                    prop_assert_eq!(places.get(key_of(*id), key_of), model.get(&n).copied());
                }
            }
        }
    }
}
