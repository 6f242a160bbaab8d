//! Numbers and names for engines that bring neither. Pure.
//!
//! Invariant: a number is a hash of the engine's key unless that is taken, so every replica gives the same; and whoever
//! has a number and a name keeps both for as long as it is there.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::types::WorkerId;

/// The largest number.
const MOST: u64 = i64::MAX as u64;
/// So many hashes of a key are tried before the numbers beside them.
const ATTEMPTS: u64 = 16;

/// Who an engine is in the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub id: WorkerId,
    /// Its name.
    pub name: Arc<str>,
}

/// What an engine brings.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// Unlike any other's of its worker set, and the same for ever.
    pub key: &'a str,
    /// What it should be called.
    pub name: &'a str,
    /// What tells it from others of that name.
    pub namespace: Option<&'a str>,
}

/// Numbers and names that are not free.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    ids: HashSet<WorkerId>,
    names: HashSet<Arc<str>>,
}

impl Taken {
    /// Takes them.
    pub fn take(&mut self, id: WorkerId, name: Arc<str>) {
        self.ids.insert(id);
        self.names.insert(name);
    }

    /// Whether nobody has either.
    pub fn is_free(&self, identity: &Identity) -> bool {
        !self.ids.contains(&identity.id) && !self.names.contains(&identity.name)
    }
}

/// How a key becomes a number, at the nth attempt. Fits what a workers file may say: 63 bits.
pub type Hash = fn(&str, u64) -> u64;

/// The hash that is used.
pub fn hash(key: &str, attempt: u64) -> u64 {
    xxh3_64_with_seed(key.as_bytes(), attempt) >> 1
}

/// Gives every claim an identity, by key: what it had `before` where that is still free, else a new one.
pub fn identify(
    claims: &[Claim<'_>],
    before: &BTreeMap<String, Identity>,
    mut taken: Taken,
    hash: Hash,
) -> BTreeMap<String, Identity> {
    let mut given = BTreeMap::new();
    for claim in claims {
        let known = before.get(claim.key).filter(|known| taken.is_free(known));
        if let Some(known) = known {
            taken.take(known.id, known.name.clone());
            given.insert(claim.key.to_owned(), known.clone());
        }
    }
    // In the order of their keys: that in which they were told is chance.
    let left = claims.iter().filter(|claim| !given.contains_key(claim.key));
    let new: BTreeMap<&str, &Claim<'_>> = left.map(|claim| (claim.key, claim)).collect();
    for claim in new.into_values() {
        let id = free_id(claim.key, &taken.ids, hash);
        let name = free_name(claim, id, &taken.names);
        taken.take(id, name.clone());
        given.insert(claim.key.to_owned(), Identity { id, name });
    }
    given
}

fn free_id(key: &str, taken: &HashSet<WorkerId>, hash: Hash) -> WorkerId {
    let mut attempt = 0;
    loop {
        let probe = attempt / ATTEMPTS;
        let id = WorkerId(hash(key, attempt).wrapping_add(probe) & MOST);
        if !taken.contains(&id) {
            return id;
        }
        attempt += 1;
    }
}

fn free_name(claim: &Claim<'_>, id: WorkerId, taken: &HashSet<Arc<str>>) -> Arc<str> {
    let plain = claim.name.to_owned();
    let qualified = claim.namespace.map(|namespace| format!("{namespace}/{plain}"));
    let base = qualified.clone().unwrap_or_else(|| plain.clone());
    let numbered = (0u64..).map(|n| match n {
        0 => format!("{base}#{id}"),
        n => format!("{base}#{id}.{n}"),
    });
    let mut candidates = std::iter::once(plain).chain(qualified).chain(numbered);
    candidates.find(|name| !taken.contains(name.as_str())).unwrap_or_default().into()
}

#[cfg(test)]
mod tests;
