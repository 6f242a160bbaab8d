//! The two views of one rank's blocks, what each counts as held, and the changes recorded in each.
//!
//! Owner: the rank's ledger. Invariant: with several full-attention groups a block is held only if all of them hold
//! it, because an engine can only reuse a prefix whose keys and values it has in every layer.

use super::{BlockCounts, change::Change};

/// What counts as held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Accelerator memory.
    Gpu,
    /// Any storage tier.
    AnyTier,
}

impl View {
    pub(super) const ALL: [Self; 2] = [Self::Gpu, Self::AnyTier];

    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The shelves of one full-attention group, as bits.
#[derive(Debug)]
struct GroupShelves {
    index: Option<u32>,
    gpu: u32,
    any: u32,
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Views {
    groups: Vec<GroupShelves>,
    /// Most engines have no lower tier: the second view is kept only from the first lower block on.
    lower_tiers: bool,
    counts: BlockCounts,
    shown: [usize; 2],
    changes: [Vec<Change>; 2],
}

impl Views {
    /// Makes a group known. Whether it was new: then what is shown must be worked out anew.
    pub(super) fn add_group(&mut self, index: Option<u32>) -> bool {
        let new = self.groups.iter().all(|group| group.index != index);
        if new {
            self.groups.push(GroupShelves { index, gpu: 0, any: 0 });
        }
        new
    }

    /// Makes a shelf of a known group known by its bit. Whether the second view begins with it: then what is
    /// shown must be worked out anew.
    pub(super) fn add_shelf(&mut self, index: Option<u32>, (bit, gpu): (u32, bool)) -> bool {
        if let Some(group) = self.groups.iter_mut().find(|group| group.index == index) {
            group.any |= bit;
            group.gpu |= if gpu { bit } else { 0 };
        }
        let begins = !gpu && !self.lower_tiers;
        self.lower_tiers |= !gpu;
        begins
    }

    pub(super) fn tracks(&self, view: View) -> bool {
        view == View::Gpu || self.lower_tiers
    }

    /// Whether a block on the shelves `held` is held as far as `view` goes.
    pub(super) fn holds(&self, view: View, held: u32) -> bool {
        let on = |group: &GroupShelves| match view {
            View::Gpu => held & group.gpu,
            View::AnyTier => held & group.any,
        };
        held != 0 && self.groups.iter().all(|group| on(group) != 0)
    }

    /// Keeps the counts, when a block's shelves change.
    pub(super) fn count(&mut self, before: u32, after: u32) {
        let gpu: u32 = self.groups.iter().fold(0, |bits, group| bits | group.gpu);
        let step = |count: &mut usize, bits: u32| match (before & bits != 0, after & bits != 0) {
            (false, true) => *count += 1,
            (true, false) => *count -= 1,
            _ => {}
        };
        step(&mut self.counts.gpu, gpu);
        step(&mut self.counts.lower, !gpu);
    }

    pub(super) fn counts(&self) -> BlockCounts {
        self.counts
    }

    /// Blocks that a view shows.
    pub(super) fn shown(&self, view: View) -> usize {
        self.shown[view as usize]
    }

    pub(super) fn record(&mut self, view: View, change: Change) {
        match change {
            Change::Show(_) => self.shown[view as usize] += 1,
            Change::Hide(_) => self.shown[view as usize] -= 1,
        }
        self.changes[view as usize].push(change);
    }

    /// The changes recorded since the last call, in order.
    pub(super) fn take_changes(&mut self, view: View) -> Vec<Change> {
        std::mem::take(&mut self.changes[view as usize])
    }
}
