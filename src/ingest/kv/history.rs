//! Which batches of a stream have been applied last, by sequence number and digest.
//!
//! Owner: the sequence machine. It tells a live message that a replay already covered (same bytes) from one
//! of a restarted engine (same number, other bytes: a payload begins with its time). Invariant: contiguous.

use std::collections::VecDeque;

/// Digests kept: more than an engine replays (vLLM: 10,000 batches).
const KEPT: usize = 16_384;

/// The tail of what was applied.
#[derive(Clone, Debug, Default)]
pub struct History {
    last: Option<u64>,
    digests: VecDeque<u64>,
}

impl History {
    /// The digest of a payload.
    pub fn digest(payload: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64(payload)
    }

    /// The last sequence number applied.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// What follows the last one; 0 when nothing was applied.
    pub fn next(&self) -> u64 {
        self.last.map_or(0, |last| last.saturating_add(1))
    }

    /// `seq` was applied from a replay.
    pub fn replayed(&mut self, seq: u64, payload: &[u8]) {
        if self.last.is_some() && seq != self.next() {
            self.digests.clear();
        }
        if self.digests.len() == KEPT {
            self.digests.pop_front();
        }
        self.digests.push_back(Self::digest(payload));
        self.last = Some(seq);
    }

    /// `seq` was applied live: the live stream is ahead of every replay, so that only the last one matters.
    pub fn live(&mut self, seq: u64, payload: &[u8]) {
        if self.digests.len() > 1 {
            self.digests = VecDeque::with_capacity(1);
        }
        self.digests.clear();
        self.digests.push_back(Self::digest(payload));
        self.last = Some(seq);
    }

    /// The digest of the last batch.
    pub fn anchor(&self) -> Option<u64> {
        self.digests.back().copied()
    }

    /// Whether `seq` was applied with this payload.
    pub fn holds(&self, seq: u64, payload: &[u8]) -> bool {
        let back = self.last.and_then(|last| last.checked_sub(seq)).and_then(|n| usize::try_from(n).ok());
        let index = back.and_then(|back| self.digests.len().checked_sub(back + 1));
        index.and_then(|index| self.digests.get(index)).is_some_and(|held| *held == Self::digest(payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_bytes_at_the_same_number_are_held() {
        let mut history = History::default();
        for seq in 7..10 {
            history.replayed(seq, &[seq.to_le_bytes()[0]]);
        }
        assert!(history.holds(7, &[7]) && history.holds(9, &[9]));
        assert!(!history.holds(8, &[7]) && !history.holds(6, &[6]) && !history.holds(10, &[10]));
        history.live(10, &[10]);
        assert!(history.holds(10, &[10]) && !history.holds(9, &[9]));
        assert_eq!(history.next(), 11);
    }

    #[test]
    fn memory_is_bounded() {
        let mut history = History::default();
        for seq in 0..KEPT as u64 + 5 {
            history.replayed(seq, b"x");
        }
        assert_eq!(history.digests.len(), KEPT);
        assert!(!history.holds(4, b"x") && history.holds(5, b"x"));
    }
}
