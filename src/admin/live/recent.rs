//! Sums by key over the last 15 minutes, in slots of a minute.
//!
//! Invariant: at most `MOST_KEYS` keys a slot, whatever clients send; what comes beyond is summed without a name.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

/// Minutes that are kept, the present one included.
const MINUTES: usize = 15;
/// Keys of a minute.
const MOST_KEYS: usize = 1000;

/// What can be summed.
pub(super) trait Sum: Default {
    /// Adds another.
    fn add(&mut self, other: &Self);
}

impl Sum for u64 {
    fn add(&mut self, other: &Self) {
        *self += other;
    }
}

#[derive(Debug)]
struct Slot<K, V> {
    minute: u64,
    by_key: HashMap<K, V>,
    others: V,
}

/// Sums by key.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    minute: u64,
    slots: VecDeque<Slot<K, V>>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { minute: 0, slots: VecDeque::new() }
    }
}

impl<K: Hash + Eq + Clone, V: Sum> Recent<K, V> {
    /// It is that minute now.
    pub fn turn(&mut self, minute: u64) {
        self.minute = minute;
        while self.slots.front().is_some_and(|slot| slot.minute + MINUTES as u64 <= minute) {
            self.slots.pop_front();
        }
    }

    /// The sum of this minute under a key.
    pub fn at(&mut self, key: &K) -> &mut V {
        let minute = self.minute;
        if self.slots.back().is_none_or(|slot| slot.minute != minute) {
            self.slots.push_back(Slot { minute, by_key: HashMap::new(), others: V::default() });
        }
        // There is one: it was pushed if there was none.
        let last = self.slots.len() - 1;
        let slot = &mut self.slots[last];
        if slot.by_key.len() >= MOST_KEYS && !slot.by_key.contains_key(key) {
            return &mut slot.others;
        }
        slot.by_key.entry(key.clone()).or_default()
    }

    /// All minutes together: by key, and without a name.
    pub fn sums(&self) -> (HashMap<K, V>, V) {
        let (mut by_key, mut others) = (HashMap::<K, V>::new(), V::default());
        for slot in &self.slots {
            slot.by_key.iter().for_each(|(key, sum)| by_key.entry(key.clone()).or_default().add(sum));
            others.add(&slot.others);
        }
        (by_key, others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_15_minutes_is_forgotten() {
        let mut recent = Recent::<&str, u64>::default();
        for minute in 0..20 {
            recent.turn(minute);
            *recent.at(&"a") += 1;
        }
        assert_eq!(recent.sums(), (HashMap::from([("a", 15)]), 0));
        recent.turn(40);
        assert_eq!(recent.sums(), (HashMap::new(), 0));
    }

    #[test]
    fn keys_are_bounded_and_nothing_is_lost() {
        let mut recent = Recent::<usize, u64>::default();
        (0..MOST_KEYS + 7).for_each(|key| *recent.at(&key) += 1);
        *recent.at(&0) += 1;
        let (by_key, others) = recent.sums();
        assert_eq!((by_key.len(), by_key[&0], others), (MOST_KEYS, 2, 7));
    }
}
