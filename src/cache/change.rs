//! What changes in a view of one rank's blocks, as the tree is told.

use crate::types::{BlockHash, SequenceHash};

/// A block as readers of the index look it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) sequence: SequenceHash,
    pub(super) block: BlockHash,
    pub(super) parent: Option<SequenceHash>,
}

/// One change of what a view shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Show(Shown),
    Hide(SequenceHash),
}
