//! Names that others choose (tenants, models) as label values, in a bounded number.
//!
//! Invariant: at most so many names get a label of their own, none longer than 256 bytes, whatever is asked for.
//! A name that is known costs a look-up and no allocation.

use std::{collections::HashSet, sync::Arc};

use parking_lot::RwLock;

/// The label of all names that have none of their own.
pub const OTHER: &str = "_other";
/// The label where there is no name.
pub const NONE: &str = "_none";

/// Longest name, in bytes, that gets a label of its own.
const LONGEST: usize = 256;

/// Which names get a label of their own, and those that have one.
pub struct Names {
    /// More are admitted as they come, up to so many in all.
    most: usize,
    own: RwLock<HashSet<Arc<str>>>,
    other: Arc<str>,
    none: Arc<str>,
}

impl Names {
    /// The first `most` that come.
    pub fn first(most: usize) -> Self {
        Self { most, own: RwLock::default(), other: OTHER.into(), none: NONE.into() }
    }

    /// These and no others.
    pub fn only<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let own = names.into_iter().map(Arc::from).collect();
        Self { own: RwLock::new(own), ..Self::first(0) }
    }

    /// The label of a name.
    pub fn label(&self, name: Option<&Arc<str>>) -> Arc<str> {
        let Some(name) = name else { return self.none.clone() };
        if let Some(own) = self.own.read().get(name) {
            return own.clone();
        }
        if name.len() > LONGEST || **name == *NONE || **name == *OTHER {
            return self.other.clone();
        }
        // Once all places are taken, strangers no more wait for each other.
        if self.own.read().len() >= self.most {
            return self.other.clone();
        }
        let mut own = self.own.write();
        if own.len() >= self.most && !own.contains(name) {
            return self.other.clone();
        }
        own.insert(name.clone());
        name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels<'a>(names: &Names, of: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        of.into_iter().map(|name| names.label(Some(&name.into())).to_string()).collect()
    }

    #[test]
    fn the_first_get_their_own_and_keep_it() {
        let names = Names::first(2);
        assert_eq!(labels(&names, ["a", "b", "c", "a", "d", "b"]), ["a", "b", OTHER, "a", OTHER, "b"]);
        assert_eq!(&*names.label(None), NONE);
    }

    #[test]
    fn only_those_listed_get_their_own() {
        let names = Names::only(["gold"]);
        assert_eq!(labels(&names, ["gold", "iron", "gold"]), ["gold", OTHER, "gold"]);
        assert_eq!(labels(&Names::only([]), ["gold"]), [OTHER]);
    }

    #[test]
    fn no_name_is_taken_for_the_lack_of_one_and_none_is_long() {
        let (names, long) = (Names::first(9), "x".repeat(LONGEST + 1));
        assert_eq!(labels(&names, [NONE, OTHER, &*long, &long[1..]]), [OTHER, OTHER, OTHER, &long[1..]]);
    }
}
