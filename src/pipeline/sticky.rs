//! Which worker made which stored response. Bounded: the longest unused are forgotten.

use std::{num::NonZeroUsize, sync::Arc};

use lru::LruCache;
use parking_lot::Mutex;

use crate::types::WorkerId;

/// Responses remembered.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();

/// The map.
pub(super) struct StickyMap(Mutex<LruCache<Arc<str>, WorkerId>>);

impl Default for StickyMap {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(CAPACITY)))
    }
}

impl StickyMap {
    /// The maker of a response.
    pub(super) fn get(&self, id: &str) -> Option<WorkerId> {
        self.0.lock().get(id).copied()
    }

    /// Remembers it.
    pub(super) fn put(&self, id: &str, worker: WorkerId) {
        self.0.lock().put(id.into(), worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_at_the_bound() {
        let map = StickyMap::default();
        for i in 0..=CAPACITY.get() as u64 {
            map.put(&format!("resp_{i}"), WorkerId(i));
        }
        assert_eq!(map.get("resp_0"), None);
        assert_eq!(map.get("resp_1"), Some(WorkerId(1)));
    }
}
