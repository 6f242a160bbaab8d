//! What one stream subscribes to and has been told: the part that both protocol variants share.
//!
//! Invariant: a resource is due when it is subscribed to and not what was told last; at most [`MAX_NAMES`] names are held.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::view::{Resource, View};

/// The most clusters that one stream may name.
pub const MAX_NAMES: usize = 4096;
/// The name that means all.
pub const ALL: &str = "*";

/// Why a stream is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It asks for another type of resource.
    Type,
    /// It names too many.
    Names,
}

/// What is to be told.
#[derive(Debug, Default)]
pub struct Due<'a> {
    /// These are new or have changed.
    pub found: Vec<(&'a str, &'a Resource)>,
    /// These do not exist.
    pub absent: Vec<String>,
}

/// The subscriptions of a stream.
#[derive(Debug, Default)]
pub struct Wanted {
    all: bool,
    names: BTreeSet<String>,
    /// The version that was told last; `None`: that it does not exist.
    told: BTreeMap<String, Option<Arc<str>>>,
}

impl Wanted {
    /// Subscribes to all that there is.
    pub fn all(&mut self) {
        self.all = true;
    }

    /// Ends that; what is wanted by name stays.
    pub fn not_all(&mut self) {
        self.all = false;
        self.told.retain(|name, _| self.names.contains(name));
    }

    /// Subscribes to one, which is due even if it was told before.
    ///
    /// # Errors
    /// Too many are named.
    pub fn add(&mut self, name: String) -> Result<(), Wrong> {
        self.told.remove(&name);
        self.names.insert(name);
        if self.names.len() > MAX_NAMES { Err(Wrong::Names) } else { Ok(()) }
    }

    /// Ends one subscription.
    pub fn remove(&mut self, name: &str) {
        self.names.remove(name);
        self.told.remove(name);
    }

    /// Makes the subscriptions exactly those; what was told of those that stay stays told.
    ///
    /// # Errors
    /// Too many are named.
    pub fn replace(&mut self, names: Vec<String>) -> Result<(), Wrong> {
        self.names = names.into_iter().collect();
        if self.names.len() > MAX_NAMES {
            return Err(Wrong::Names);
        }
        self.all = self.names.remove(ALL);
        self.told.retain(|name, _| self.all || self.names.contains(name));
        Ok(())
    }

    /// The other side has that version of one already.
    pub fn has(&mut self, name: String, version: &str) {
        if self.all || self.names.contains(&name) {
            self.told.insert(name, Some(version.into()));
        }
    }

    /// What is due, which counts as told from now on.
    pub fn due<'a>(&mut self, view: &'a View) -> Due<'a> {
        let mut due = Due::default();
        for (name, resource) in &view.clusters {
            let wanted = self.all || self.names.contains(name);
            let news = || self.told.get(name).is_none_or(|told| told.as_ref() != Some(&resource.version));
            if wanted && news() {
                self.told.insert(name.clone(), Some(resource.version.clone()));
                due.found.push((name, resource));
            }
        }
        let missing = |name: &&String| !view.clusters.contains_key(*name) && !view.is_pending(name);
        let gone = self.told.iter().filter(|(_, told)| told.is_some()).map(|(name, _)| name);
        let unknown = self.names.iter().filter(|name| !self.told.contains_key(*name));
        due.absent = gone.chain(unknown).filter(missing).cloned().collect();
        for name in &due.absent {
            self.told.insert(name.clone(), None);
        }
        due
    }
}
