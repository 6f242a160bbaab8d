//! Where everything stands that is declared, for whoever shows it: each resource, and the files as a whole.
//!
//! Written by the enforcer and by the files' follower, each its own part; read by all.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};

use super::Standing;

/// Where everything stands. Cheap to clone; all clones show the same.
#[derive(Clone, Default)]
pub struct Notices {
    standings: Arc<ArcSwap<Vec<Standing>>>,
    refused: Arc<ArcSwapOption<String>>,
}

impl Notices {
    /// Where each resource stands, those of files first.
    pub fn standings(&self) -> Arc<Vec<Standing>> {
        self.standings.load_full()
    }

    /// What is wrong with the files as they are now, if that keeps them from being taken over: a line each.
    pub fn refused(&self) -> Option<Arc<String>> {
        self.refused.load_full()
    }

    /// So each resource stands now.
    pub fn stand(&self, standings: Vec<Standing>) {
        self.standings.store(Arc::new(standings));
    }

    /// The files are as they should be.
    pub fn taken_over(&self) {
        self.refused.store(None);
    }

    /// The files can't be used, and why.
    pub fn refuse(&self, why: &str) {
        self.refused.store(Some(Arc::new(why.to_owned())));
    }
}
