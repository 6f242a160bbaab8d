//! What one rank of one worker holds: events in, changes of its views out. Pure; no locks, no clock.
//!
//! Owner: the rank's desk. Invariant: parents resolve by the rank's own handles, keys come from tokens and salts
//! alone. Every store counts as a copy: see the room's head on re-announced blocks. Block sizes in tokens.

use super::{
    Applied, BlockCounts, NoCreditReason,
    chain::{Chain, NodeId},
    change::Change,
    keys,
    salts::Salts,
    shelf::{Handle, Moved, Shelf},
    views::{View, Views},
};
use crate::types::{EngineHash, Group, KvEvent, StoredBlocks, Tier};

/// One bit of a node's mask for each shelf.
const MAX_SHELVES: usize = u32::BITS as usize;

/// See the file's head.
#[derive(Debug)]
pub(super) struct Ledger {
    block_size: u32,
    chain: Chain,
    shelves: Vec<Shelf>,
    /// Groups seen, and whether each gives credit; the first word on a group holds.
    groups: Vec<(Option<u32>, bool)>,
    views: Views,
}

impl Ledger {
    pub(super) fn new(block_size: u32) -> Self {
        Self {
            block_size,
            chain: Chain::default(),
            shelves: Vec::new(),
            groups: Vec::new(),
            views: Views::default(),
        }
    }

    /// Applies one event. After [`Applied::Cleared`] nothing is shown; that is recorded as no change.
    pub(super) fn apply(&mut self, event: &KvEvent) -> Applied {
        match event {
            KvEvent::Stored(stored) => self.store(stored),
            KvEvent::Removed { hashes, tier, group } => self.remove(hashes, tier, *group),
            KvEvent::Cleared => {
                *self = Self::new(self.block_size);
                Applied::Cleared
            }
        }
    }

    /// The changes of a view since the last call.
    pub(super) fn take_changes(&mut self, view: View) -> Vec<Change> {
        self.views.take_changes(view)
    }

    /// Everything that a view shows.
    pub(super) fn dump(&self, view: View) -> Vec<Change> {
        self.chain.dump(view)
    }

    /// Blocks that a view shows.
    pub(super) fn shown(&self, view: View) -> usize {
        self.views.shown(view)
    }

    pub(super) fn counts(&self) -> BlockCounts {
        self.views.counts()
    }

    fn store(&mut self, stored: &StoredBlocks) -> Applied {
        if stored.tokens.is_empty() {
            return self.store_known(stored);
        }
        let credit = self.gives_credit(&stored.group);
        if credit && stored.block_size != self.block_size {
            return Applied::BlockSize { published: stored.block_size };
        }
        let parent = match &stored.parent {
            None => Ok(None),
            // A group without credit links nothing, so its parents need not be known.
            Some(_) if !credit => Err(NoCreditReason::Group),
            Some(parent) => match self.find(Handle::from(parent), stored.group.index) {
                None => return Applied::ParentUnknown,
                Some((_, node)) => node.map(Some).ok_or(NoCreditReason::Parent),
            },
        };
        let named = stored.lora_name.is_some() || stored.lora_id.unwrap_or(0) == 0;
        let whole = stored.tokens.len() == stored.hashes.len() * self.block_size as usize;
        let start = match parent {
            _ if !credit => Err(NoCreditReason::Group),
            _ if !whole => Err(NoCreditReason::Tokens),
            _ if !named => Err(NoCreditReason::UnnamedLora),
            parent => parent,
        };
        self.store_run(stored, start)
    }

    /// Stores blocks of known tokens after `place`, as far as their salts are known; the rest without credit.
    fn store_run(
        &mut self,
        stored: &StoredBlocks,
        mut place: Result<Option<NodeId>, NoCreditReason>,
    ) -> Applied {
        let Some(shelf) = self.shelf(stored.group.index, &stored.tier) else {
            return Applied::NoCredit(NoCreditReason::TooManyTiers);
        };
        let lora = stored.lora_name.as_deref();
        let contents = match place {
            Ok(_) => keys::contents(&stored.tokens, self.block_size, lora),
            Err(_) => Vec::new(),
        };
        let mut new = 0;
        for (i, hash) in stored.hashes.iter().enumerate() {
            let first = i == 0 && stored.parent.is_none();
            let node = place.and_then(|parent| {
                let block = key(stored, i, first)?.fold(contents[i]);
                self.chain.ensure(parent, block).ok_or(NoCreditReason::Full)
            });
            new += usize::from(self.put(shelf, Handle::from(hash), node.ok()));
            place = node.map(Some);
        }
        match place {
            Ok(_) => Applied::Stored { new },
            Err(reason) => Applied::NoCredit(reason),
        }
    }

    /// Stores a copy of blocks that carry no tokens: offloading connectors name blocks that the engine announced
    /// before by their handles alone. They go with the group that knows them.
    fn store_known(&mut self, stored: &StoredBlocks) -> Applied {
        let (mut new, mut known) = (0, stored.hashes.is_empty());
        for hash in &stored.hashes {
            let handle = Handle::from(hash);
            let Some((group, node)) = self.find(handle, stored.group.index) else { continue };
            let Some(shelf) = self.shelf(group, &stored.tier) else { continue };
            known = true;
            new += usize::from(self.put(shelf, handle, node));
        }
        if known { Applied::Stored { new } } else { Applied::ParentUnknown }
    }

    fn remove(&mut self, hashes: &[EngineHash], tier: &Tier, group: Option<u32>) -> Applied {
        let mut gone = 0;
        for hash in hashes {
            let handle = Handle::from(hash);
            let on = |shelf: &Shelf| shelf.tier == *tier && shelf.get(handle).is_some();
            // An event that names no group means whichever one has the block.
            let exact = self.shelves.iter().position(|shelf| on(shelf) && shelf.group == group);
            let any = || self.shelves.iter().position(|shelf| on(shelf) && group.is_none());
            let Some(shelf) = exact.or_else(any) else { continue };
            if let Some((Moved::Whole, node)) = self.shelves[shelf].take(handle) {
                gone += 1;
                self.release(shelf, node);
            }
        }
        self.forget_loose();
        Applied::Removed { gone }
    }

    /// Puts one copy on a shelf. Whether it is the first.
    fn put(&mut self, shelf: usize, handle: Handle, node: Option<NodeId>) -> bool {
        let moved = self.shelves[shelf].put(handle, node);
        if moved == Moved::Copy {
            return false;
        }
        if let Some(node) = node {
            let held = self.chain.held(node);
            if held & bit(shelf) == 0 {
                self.chain.set_held(node, held | bit(shelf), &mut self.views);
            } else {
                self.shelves[shelf].add_alias(node);
            }
        }
        if let Moved::Renamed(before) = moved {
            // Only now: the block that it meant may be all that keeps the new one's place.
            self.release(shelf, before);
        }
        true
    }

    /// One handle less on the shelf means the node.
    fn release(&mut self, shelf: usize, node: Option<NodeId>) {
        if let Some(node) = node
            && !self.shelves[shelf].remove_alias(node)
        {
            self.chain.set_held(node, self.chain.held(node) & !bit(shelf), &mut self.views);
        }
    }

    /// Forgets blocks that nothing known leads to, when they are so many that they would fill memory.
    fn forget_loose(&mut self) {
        if !self.chain.overgrown() {
            return;
        }
        for shelf in 0..self.shelves.len() {
            let gone = self.shelves[shelf].sweep(|node| self.chain.is_shown(node));
            for (_, node) in gone {
                self.release(shelf, Some(node));
            }
        }
    }

    /// What a handle means on any tier, and the group that knows it: of those that give credit, `group` first.
    /// Other groups may use the same handles for blocks without keys.
    fn find(&self, handle: Handle, group: Option<u32>) -> Option<(Option<u32>, Option<NodeId>)> {
        let known = |shelf: &Shelf| shelf.get(handle).map(|node| (shelf.group, node));
        let credited = || self.shelves.iter().filter(|shelf| self.groups.contains(&(shelf.group, true)));
        let own = credited().filter(|shelf| shelf.group == group).find_map(known);
        own.or_else(|| credited().find_map(known))
    }

    /// Whether blocks of the group give credit. A group first heard of holds nothing yet.
    fn gives_credit(&mut self, group: &Group) -> bool {
        if let Some((_, credit)) = self.groups.iter().find(|(index, _)| *index == group.index) {
            return *credit;
        }
        let credit = group.is_full_attention();
        self.groups.push((group.index, credit));
        if credit && self.views.add_group(group.index) {
            self.chain.refresh_all(&mut self.views);
        }
        credit
    }

    fn shelf(&mut self, group: Option<u32>, tier: &Tier) -> Option<usize> {
        if let Some(at) = self.shelves.iter().position(|shelf| shelf.group == group && shelf.tier == *tier) {
            return Some(at);
        }
        let at = self.shelves.len();
        if at == MAX_SHELVES {
            return None;
        }
        self.shelves.push(Shelf::new(group, tier.clone()));
        if self.views.add_shelf(group, (bit(at), *tier == Tier::Gpu)) {
            self.chain.refresh_all(&mut self.views);
        }
        Some(at)
    }
}

const fn bit(shelf: usize) -> u32 {
    1 << shelf
}

/// The salts of block `i` of an event. A list that is there but too short says nothing of the rest.
fn key(stored: &StoredBlocks, i: usize, first: bool) -> Result<Salts<'_>, NoCreditReason> {
    let keys = match stored.extra_keys.get(i) {
        Some(keys) => keys.as_slice(),
        None if stored.extra_keys.is_empty() => &[],
        None => return Err(NoCreditReason::UnknownSalt),
    };
    Salts::of_event(keys, stored.lora_name.as_deref(), first)
}
