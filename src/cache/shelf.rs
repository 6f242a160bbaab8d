//! One shelf: the blocks of one KV-cache group on one storage tier, by the engine's handles, with copies counted.
//!
//! Owner: the rank's ledger. Invariant: a block is on the shelf while the engine has stored it more often than it has
//! removed it there.

use std::collections::{HashMap, hash_map::Entry};

use xxhash_rust::xxh3::xxh3_64;

use super::{chain::NodeId, keyed::Keyed};
use crate::types::{EngineHash, Tier};

/// An engine's handle in as many bytes as vLLM's default has. Long ones are hashed: they are compared, never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Handle(u64);

impl From<&EngineHash> for Handle {
    fn from(hash: &EngineHash) -> Self {
        match hash {
            EngineHash::Int(int) => Self(*int),
            EngineHash::Bytes(bytes) => Self(xxh3_64(bytes)),
        }
    }
}

/// What a handle means, and how often it is stored.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// `None`: the block earns no credit, nor do those after it.
    node: Option<NodeId>,
    copies: u32,
}

/// What became of a copy that was put or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// Other copies were there, or still are.
    Copy,
    /// The first copy came, or the last one went.
    Whole,
    /// The handle now means another block; it meant the one given.
    Renamed(Option<NodeId>),
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) group: Option<u32>,
    pub(super) tier: Tier,
    handles: HashMap<Handle, Held, Keyed>,
    /// Handles beyond the first that mean the same block.
    aliases: HashMap<NodeId, u32>,
}

impl Shelf {
    pub(super) fn new(group: Option<u32>, tier: Tier) -> Self {
        Self { group, tier, handles: HashMap::default(), aliases: HashMap::new() }
    }

    /// What a handle means here, if it is here.
    pub(super) fn get(&self, handle: Handle) -> Option<Option<NodeId>> {
        self.handles.get(&handle).map(|held| held.node)
    }

    /// Puts one copy.
    pub(super) fn put(&mut self, handle: Handle, node: Option<NodeId>) -> Moved {
        match self.handles.entry(handle) {
            Entry::Vacant(entry) => {
                entry.insert(Held { node, copies: 1 });
                Moved::Whole
            }
            Entry::Occupied(mut entry) if entry.get().node == node => {
                let held = entry.get_mut();
                held.copies = held.copies.saturating_add(1);
                Moved::Copy
            }
            Entry::Occupied(mut entry) => Moved::Renamed(entry.insert(Held { node, copies: 1 }).node),
        }
    }

    /// Takes one copy away; with what the handle means. `None` if it is not here.
    pub(super) fn take(&mut self, handle: Handle) -> Option<(Moved, Option<NodeId>)> {
        let Entry::Occupied(mut entry) = self.handles.entry(handle) else { return None };
        let node = entry.get().node;
        if entry.get().copies > 1 {
            entry.get_mut().copies -= 1;
            return Some((Moved::Copy, node));
        }
        entry.remove();
        Some((Moved::Whole, node))
    }

    /// Notes that one more handle means a block that is already on this shelf.
    pub(super) fn add_alias(&mut self, node: NodeId) {
        *self.aliases.entry(node).or_default() += 1;
    }

    /// Notes that one handle less means the block. Whether others still do.
    pub(super) fn remove_alias(&mut self, node: NodeId) -> bool {
        let Entry::Occupied(mut entry) = self.aliases.entry(node) else { return false };
        if *entry.get() > 1 {
            *entry.get_mut() -= 1;
        } else {
            entry.remove();
        }
        true
    }

    /// Forgets the handles whose block `keep` refuses, and hands those back.
    pub(super) fn sweep(&mut self, keep: impl Fn(NodeId) -> bool) -> Vec<(Handle, NodeId)> {
        let gone: Vec<(Handle, NodeId)> = self
            .handles
            .iter()
            .filter_map(|(handle, held)| held.node.filter(|node| !keep(*node)).map(|node| (*handle, node)))
            .collect();
        for (handle, _) in &gone {
            self.handles.remove(handle);
        }
        gone
    }
}
