//! Answers for a while: each with its own time to live, the least recently used first to go.
//!
//! Invariant: at most `most` entries. An entry that is over is never handed out.

use std::sync::Arc;

use lru::LruCache;
use tokio::time::{Duration, Instant};

use super::key::Key;
use crate::kubernetes::Verdict;

/// Remembered answers.
pub struct Memory {
    entries: LruCache<Key, Entry>,
    most: usize,
}

struct Entry {
    verdict: Arc<Verdict>,
    since: Instant,
    ttl: Duration,
}

impl Memory {
    /// For at most that many answers; zero: none.
    pub fn new(most: usize) -> Self {
        // A bounded one would allocate its bound at once.
        Self { entries: LruCache::unbounded(), most }
    }

    /// What is known now.
    pub fn get(&mut self, key: &Key, now: Instant) -> Option<Arc<Verdict>> {
        let entry = self.entries.get(key)?;
        if now.duration_since(entry.since) < entry.ttl {
            return Some(entry.verdict.clone());
        }
        self.entries.pop(key);
        None
    }

    /// Remembers an answer for that long from now; zero: not at all.
    pub fn put(&mut self, key: Key, (verdict, ttl): (Arc<Verdict>, Duration), now: Instant) {
        if ttl.is_zero() {
            self.entries.pop(&key);
            return;
        }
        self.entries.put(key, Entry { verdict, since: now, ttl });
        while self.entries.len() > self.most {
            self.entries.pop_lru();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kubernetes::{Question, Token},
        serve::token_review::key::Keyer,
    };

    const TTL: Duration = Duration::from_secs(10);

    fn key(token: &str) -> Key {
        Keyer::new([0; 32]).key(&Question::new(Token::parse(token.into()).unwrap(), vec![]))
    }

    fn no() -> Arc<Verdict> {
        Arc::new(Verdict::Denied("no".into()))
    }

    #[test]
    fn an_answer_is_over_when_its_time_is() {
        let (mut memory, start) = (Memory::new(9), Instant::now());
        memory.put(key("a"), (no(), TTL), start);
        memory.put(key("b"), (no(), Duration::ZERO), start);
        memory.put(key("c"), (no(), Duration::MAX), start);
        assert!(memory.get(&key("b"), start).is_none());
        assert!(memory.get(&key("a"), start + TTL - Duration::from_millis(1)).is_some());
        assert!(memory.get(&key("a"), start + TTL).is_none());
        assert!(memory.get(&key("c"), start + TTL).is_some());
        assert_eq!(memory.entries.len(), 1, "what is over is dropped once seen");
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let (mut memory, now) = (Memory::new(2), Instant::now());
        memory.put(key("a"), (no(), TTL), now);
        memory.put(key("b"), (no(), TTL), now);
        memory.get(&key("a"), now);
        memory.put(key("c"), (no(), TTL), now);
        let known = ["a", "b", "c"].map(|name| memory.get(&key(name), now).is_some());
        assert_eq!(known, [true, false, true]);
    }

    #[test]
    fn no_room_is_no_memory() {
        let (mut memory, now) = (Memory::new(0), Instant::now());
        memory.put(key("a"), (no(), TTL), now);
        assert!(memory.get(&key("a"), now).is_none());
    }
}
