//! Where engines run, as the API server has it: one place a pod, before ports are chosen.
//!
//! Invariant: each pod is in a list once, whatever slices it is in; all places of a list are of one address family.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::IpAddr,
    sync::Arc,
};

use crate::{config::Topology, fleet::Availability};

/// The most places of one worker set: each costs connections and memory.
pub const MAX_PLACES: usize = 1024;
/// As many of what was refused are named.
const NAMED: usize = 5;

/// A pod, or an address that somebody listed by hand.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Who it is: the pod's uid, else where it is listed.
    pub key: Arc<str>,
    /// What it is called.
    pub name: String,
    /// Where it is reached.
    pub address: IpAddr,
    /// Whether it takes requests.
    pub availability: Availability,
    /// Its TCP ports that have names.
    pub ports: BTreeMap<String, u16>,
    /// Where it runs, as far as it says itself.
    pub topology: Topology,
}

/// The places of a worker set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Places {
    /// By key.
    pub found: Vec<Place>,
    /// What is wrong with those that were left out: some of them, and how many there are.
    pub refused: Refused,
}

/// What was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// How often each.
    named: Vec<(String, usize)>,
    more: usize,
}

impl Refused {
    /// One more.
    pub fn add(&mut self, what: impl FnOnce() -> String) {
        let what = what();
        if let Some((_, times)) = self.named.iter_mut().find(|(named, _)| *named == what) {
            *times += 1;
        } else if self.named.len() < NAMED {
            self.named.push((what, 1));
        } else {
            self.more += 1;
        }
    }

    /// In words; `None` for nothing.
    pub fn tell(&self) -> Option<String> {
        let one = |(what, times): &(String, usize)| match times {
            1 => what.clone(),
            times => format!("{what} ({times} times)"),
        };
        let named = self.named.iter().map(one).collect::<Vec<_>>().join("; ");
        let more = if self.more == 0 { String::new() } else { format!(" and {} more", self.more) };
        (!named.is_empty()).then(|| named + &more)
    }
}

/// Gathers places one by one.
#[derive(Debug, Default)]
pub struct Gathering {
    by_key: BTreeMap<(bool, Arc<str>), Place>,
    refused: Refused,
}

impl Gathering {
    /// One that was listed. A pod that is listed twice is one place.
    pub fn add(&mut self, place: Place) {
        match self.by_key.entry((place.address.is_ipv6(), place.key.clone())) {
            Entry::Vacant(free) => {
                free.insert(place);
            }
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.availability = of_both(known.availability, place.availability);
                known.ports.extend(place.ports);
            }
        }
    }

    /// One that can't be used.
    pub fn refuse(&mut self, what: impl FnOnce() -> String) {
        self.refused.add(what);
    }

    /// All of them, by their IPv4 addresses where any has one: of the two addresses of a pod the first to be told
    /// must not decide.
    pub fn done(self) -> Places {
        let Self { by_key, mut refused } = self;
        let v6 = !by_key.keys().any(|(v6, _)| !*v6);
        let has_both = |key: &Arc<str>| by_key.contains_key(&(false, key.clone()));
        for ((_, key), place) in by_key.iter().filter(|((is_v6, _), _)| *is_v6 && !v6) {
            if !has_both(key) {
                refused.add(|| format!("{}: no IPv4 address, which others have", place.name));
            }
        }
        let of_family = by_key.into_iter().filter(|((is_v6, _), _)| *is_v6 == v6);
        let mut found: Vec<Place> = of_family.map(|(_, place)| place).collect();
        for place in found.drain(found.len().min(MAX_PLACES)..) {
            refused.add(|| format!("{}: a worker set has at most {MAX_PLACES} places", place.name));
        }
        Places { found, refused }
    }
}

/// What holds of a pod that is listed twice, as it may be while slices are rearranged: one that is shutting down never
/// comes back, and of the others the newer is not known.
fn of_both(a: Availability, b: Availability) -> Availability {
    use Availability::{Cordoned, NotReady, Ready, Terminating};
    match (a, b) {
        (Terminating, _) | (_, Terminating) => Terminating,
        (Cordoned, _) | (_, Cordoned) => Cordoned,
        (Ready, _) | (_, Ready) => Ready,
        (NotReady, NotReady) => NotReady,
    }
}
