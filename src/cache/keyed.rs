//! Spreads keys that are hashes already over a table: one multiplication by a number that nobody outside knows.
//!
//! Owner: whoever keeps a table. Invariant: clients and engines choose what is hashed into keys, but can't choose keys that
//! meet in a table.

use std::hash::{BuildHasher, Hasher, RandomState};

/// See the file's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keyed {
    secret: u64,
    factor: u64,
}

impl Default for Keyed {
    fn default() -> Self {
        let random = RandomState::new();
        Self { secret: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }
}

impl Keyed {
    /// A key, spread.
    pub(super) fn spread(self, key: u64) -> u64 {
        let product = u128::from(key ^ self.secret) * u128::from(self.factor);
        (product >> 64) as u64 ^ product as u64
    }
}

impl BuildHasher for Keyed {
    type Hasher = Spreading;

    fn build_hasher(&self) -> Spreading {
        Spreading { keyed: *self, state: 0 }
    }
}

/// Spreads one key.
pub(super) struct Spreading {
    keyed: Keyed,
    state: u64,
}

impl Hasher for Spreading {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.state = self.keyed.spread(self.state ^ key);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}
