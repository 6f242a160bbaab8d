//! The blocks that one rank's cache holds, as chains from the first block of a sequence, in our own keys.
//!
//! Owner: the rank's ledger. Invariant: a block is *shown* in a view exactly when the view's tiers hold it and every
//! block before it; the changes of what is shown are recorded in order, parents shown before and hidden after
//! their children, so that whoever mirrors them only ever sees whole prefixes.

use std::num::NonZeroU32;

use super::{
    change::{Change, Shown},
    keys,
    places::Places,
    views::{View, Views},
};
use crate::types::{BlockHash, SequenceHash};

/// A place in the slab of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeId(NonZeroU32);

impl NodeId {
    pub(super) fn at(index: usize) -> Option<Self> {
        u32::try_from(index + 1).ok().and_then(NonZeroU32::new).map(Self)
    }

    pub(super) const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

#[derive(Debug)]
struct Node {
    sequence: SequenceHash,
    block: BlockHash,
    /// One bit for each shelf that holds it. None set: it only links blocks after it to those before.
    held: u32,
    parent: Option<NodeId>,
    first_child: Option<NodeId>,
    next: Option<NodeId>,
    previous: Option<NodeId>,
    /// One bit for each view that shows it.
    shown: u8,
}

/// See the file's head. Memory: what the rank holds, plus links to it.
#[derive(Debug, Default)]
pub(super) struct Chain {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    by_sequence: Places,
    /// Blocks held by no shelf, that later ones hang on.
    links: usize,
}

impl Chain {
    /// The node of a block after `parent`; made if it is not there. `None` when the slab is full (2^32 blocks).
    pub(super) fn ensure(&mut self, parent: Option<NodeId>, block: BlockHash) -> Option<NodeId> {
        let sequence = keys::next(parent.map(|p| self.nodes[p.index()].sequence), block);
        let known = self.by_sequence.get(sequence, |id| self.nodes[id.index()].sequence);
        if known.is_some() {
            return known;
        }
        let next = parent.and_then(|p| self.nodes[p.index()].first_child);
        let (held, first_child, previous, shown) = (0, None, None, 0);
        let node = Node { sequence, block, held, parent, first_child, next, previous, shown };
        let id = match self.free.pop() {
            Some(id) => {
                self.nodes[id.index()] = node;
                id
            }
            None => {
                let id = NodeId::at(self.nodes.len())?;
                self.nodes.push(node);
                id
            }
        };
        if let Some(next) = next {
            self.nodes[next.index()].previous = Some(id);
        }
        if let Some(parent) = parent {
            self.nodes[parent.index()].first_child = Some(id);
        }
        self.by_sequence.insert(id, |id| self.nodes[id.index()].sequence);
        self.links += 1;
        Some(id)
    }

    /// The bits of the shelves that hold a node.
    pub(super) fn held(&self, id: NodeId) -> u32 {
        self.nodes[id.index()].held
    }

    /// Sets the shelves that hold a node, and takes it and links that hang on nothing away when none does.
    pub(super) fn set_held(&mut self, id: NodeId, held: u32, views: &mut Views) {
        let node = &mut self.nodes[id.index()];
        let before = std::mem::replace(&mut node.held, held);
        match (before == 0, held == 0) {
            (true, false) => self.links -= 1,
            (false, true) => self.links += 1,
            _ => {}
        }
        views.count(before, held);
        self.refresh(id, views);
        self.drop_links(id);
    }

    /// Works out anew what every view shows, after a change of the views themselves.
    pub(super) fn refresh_all(&mut self, views: &mut Views) {
        for index in 0..self.nodes.len() {
            let Some(id) = NodeId::at(index) else { return };
            if self.nodes[index].parent.is_none() {
                self.refresh(id, views);
            }
        }
    }

    /// Every block that `view` shows, parents before children.
    pub(super) fn dump(&self, view: View) -> Vec<Change> {
        let mut out = Vec::new();
        let roots =
            self.nodes.iter().enumerate().filter(|(_, n)| n.parent.is_none() && n.shown & view.bit() != 0);
        for root in roots.filter_map(|(index, _)| NodeId::at(index)) {
            for id in self.below(root, |node| node.shown & view.bit() != 0) {
                out.push(Change::Show(self.shown(id)));
            }
        }
        out
    }

    /// Blocks that hang on nothing known are many more than the known ones: an engine that evicts heads first
    /// and never comes back to them would make the links grow without bound.
    pub(super) fn overgrown(&self) -> bool {
        const SLACK: usize = 1024;
        self.links > self.by_sequence.len() / 2 + SLACK
    }

    /// Whether any view shows the node.
    pub(super) fn is_shown(&self, id: NodeId) -> bool {
        self.nodes[id.index()].shown != 0
    }

    fn refresh(&mut self, id: NodeId, views: &mut Views) {
        for view in View::ALL {
            let node = &self.nodes[id.index()];
            let rooted = node.parent.is_none_or(|p| self.nodes[p.index()].shown & view.bit() != 0);
            let now = rooted && views.tracks(view) && views.holds(view, node.held);
            if now == (node.shown & view.bit() != 0) {
                continue;
            }
            if now {
                for id in self.below(id, |node| views.holds(view, node.held)) {
                    self.nodes[id.index()].shown |= view.bit();
                    views.record(view, Change::Show(self.shown(id)));
                }
            } else {
                for id in self.below(id, |node| node.shown & view.bit() != 0).into_iter().rev() {
                    self.nodes[id.index()].shown &= !view.bit();
                    views.record(view, Change::Hide(self.nodes[id.index()].sequence));
                }
            }
        }
    }

    /// `top` and what follows it without a break that `keep` refuses; parents first. `top` itself is always in.
    fn below(&self, top: NodeId, keep: impl Fn(&Node) -> bool) -> Vec<NodeId> {
        let (mut out, mut stack) = (Vec::new(), vec![top]);
        while let Some(id) = stack.pop() {
            out.push(id);
            let mut child = self.nodes[id.index()].first_child;
            while let Some(id) = child {
                let node = &self.nodes[id.index()];
                if keep(node) {
                    stack.push(id);
                }
                child = node.next;
            }
        }
        out
    }

    fn shown(&self, id: NodeId) -> Shown {
        let node = &self.nodes[id.index()];
        let parent = node.parent.map(|p| self.nodes[p.index()].sequence);
        Shown { sequence: node.sequence, block: node.block, parent }
    }

    /// Frees the node and those before it, as far as no shelf holds them and nothing hangs on them.
    fn drop_links(&mut self, id: NodeId) {
        let mut at = Some(id);
        while let Some(id) = at {
            let node = &mut self.nodes[id.index()];
            if node.held != 0 || node.first_child.is_some() {
                return;
            }
            let (parent, next, previous) = (node.parent.take(), node.next.take(), node.previous.take());
            self.by_sequence.remove(id, |id| self.nodes[id.index()].sequence);
            self.free.push(id);
            self.links -= 1;
            if let Some(next) = next {
                self.nodes[next.index()].previous = previous;
            }
            match (previous, parent) {
                (Some(previous), _) => self.nodes[previous.index()].next = next,
                (None, Some(parent)) => self.nodes[parent.index()].first_child = next,
                (None, None) => {}
            }
            at = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_only_ever_leave_whole_prefixes() {
        let (mut chain, mut views) = (Chain::default(), Views::default());
        views.add_group(None);
        views.add_shelf(None, (1, true));
        let mut parent = None;
        let ids: Vec<NodeId> = (0..4)
            .filter_map(|i| {
                parent = chain.ensure(parent, BlockHash(i));
                parent
            })
            .collect();
        // From the tail on: nothing is shown before its head is.
        for id in ids.iter().rev() {
            assert!(views.take_changes(View::Gpu).is_empty());
            chain.set_held(*id, 1, &mut views);
        }
        let shown: Vec<u64> = views
            .take_changes(View::Gpu)
            .into_iter()
            .filter_map(|change| match change {
                Change::Show(shown) => Some(shown.block.0),
                Change::Hide(_) => None,
            })
            .collect();
        assert_eq!(shown, [0, 1, 2, 3]);
        let all = chain.dump(View::Gpu);
        chain.set_held(ids[1], 0, &mut views);
        let tail_first: Vec<Change> = all[1..]
            .iter()
            .rev()
            .filter_map(|change| match change {
                Change::Show(shown) => Some(Change::Hide(shown.sequence)),
                Change::Hide(_) => None,
            })
            .collect();
        assert_eq!(views.take_changes(View::Gpu), tail_first);
    }

    #[test]
    fn what_nothing_holds_or_hangs_on_is_freed() {
        let (mut chain, mut views) = (Chain::default(), Views::default());
        for round in 0..3 {
            let head = chain.ensure(None, BlockHash(round)).unwrap();
            let tails = [1, 2, 3].map(|i| chain.ensure(Some(head), BlockHash(i)).unwrap());
            for id in [head].iter().chain(&tails) {
                chain.set_held(*id, 1, &mut views);
            }
            for id in [head, tails[1], tails[0], tails[2]] {
                chain.set_held(id, 0, &mut views);
            }
            assert_eq!(
                (chain.by_sequence.len(), chain.links, chain.nodes.len()),
                (0, 0, 4),
                "slots are used again"
            );
        }
    }
}
