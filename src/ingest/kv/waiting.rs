//! Live messages that wait while a replay runs: bounded in number and bytes, oldest dropped first.
//!
//! Owner: the sequence machine. A dropped message needs no note: the hole that it leaves before those kept
//! is found, and replayed, when they are applied.

use std::collections::VecDeque;

use bytes::Bytes;

/// At most so many messages: as many as an engine keeps for replay. Few in unit tests, so that random
/// histories overrun it.
pub const MAX_MESSAGES: usize = if cfg!(test) { 6 } else { 10_000 };
/// At most so many bytes of payload, but always one message.
pub const MAX_BYTES: usize = 64 << 20;

/// Messages in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    messages: VecDeque<(u64, Bytes)>,
    bytes: usize,
}

impl Waiting {
    /// With one message.
    pub fn one(seq: u64, payload: Bytes) -> Self {
        let mut waiting = Self::default();
        waiting.push(seq, payload);
        waiting
    }

    /// Adds the newest.
    pub fn push(&mut self, seq: u64, payload: Bytes) {
        self.bytes += payload.len();
        self.messages.push_back((seq, payload));
        while self.messages.len() > MAX_MESSAGES || (self.bytes > MAX_BYTES && self.messages.len() > 1) {
            self.pop();
        }
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<(u64, Bytes)> {
        let (seq, payload) = self.messages.pop_front()?;
        self.bytes -= payload.len();
        Some((seq, payload))
    }

    /// The sequence number of the oldest.
    pub fn first(&self) -> Option<u64> {
        self.messages.front().map(|(seq, _)| *seq)
    }

    /// Whether any message is at `seq` or beyond.
    pub fn reaches(&self, seq: u64) -> bool {
        self.messages.back().is_some_and(|(last, _)| *last >= seq)
    }

    /// The longest run without a hole that ends with the newest message.
    pub fn unbroken_tail(self) -> VecDeque<(u64, Bytes)> {
        let mut tail = self.messages;
        let breaks = |i: &usize| tail[*i - 1].0.checked_add(1) != Some(tail[*i].0);
        let start = (1..tail.len()).rev().find(breaks).unwrap_or(0);
        tail.drain(..start);
        tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_leave_first() {
        let mut waiting = Waiting::default();
        for seq in 0..MAX_MESSAGES as u64 + 3 {
            waiting.push(seq, Bytes::from_static(b"x"));
        }
        assert_eq!((waiting.messages.len(), waiting.first()), (MAX_MESSAGES, Some(3)));
        waiting.push(99_999, Bytes::from(vec![0; MAX_BYTES + 1]));
        assert_eq!((waiting.messages.len(), waiting.first()), (1, Some(99_999)));
    }

    #[test]
    fn the_tail_begins_after_the_last_hole() {
        let mut waiting = Waiting::default();
        for seq in [1, 2, 5, 9, 10] {
            waiting.push(seq, Bytes::new());
        }
        let tail: Vec<u64> = waiting.unbroken_tail().into_iter().map(|(seq, _)| seq).collect();
        assert_eq!(tail, [9, 10]);
    }
}
