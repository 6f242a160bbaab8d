//! `[tokenize]`: what all profiles share when they turn prompts into tokens.

use std::path::PathBuf;

use super::{
    keys::Keys,
    kind::{Bool, FilePath, count},
};

/// `[tokenize]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizeConfig {
    /// Idle HTTP connections kept per engine.
    pub pool_max_idle_per_host: Option<usize>,
    /// `{mount_dir}/{model}/tokenizer.json`; unset: from the Hub.
    pub mount_dir: Option<PathBuf>,
    /// Load each model's tokenizer when a worker registers.
    pub warmup: bool,
}

impl Default for TokenizeConfig {
    fn default() -> Self {
        Self { pool_max_idle_per_host: None, mount_dir: None, warmup: true }
    }
}

impl TokenizeConfig {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        keys.optional("pool_max_idle_per_host", count(0), &mut self.pool_max_idle_per_host);
        keys.section("local", |keys| {
            keys.optional("mount_dir", FilePath, &mut self.mount_dir);
            keys.key("warmup", Bool, &mut self.warmup);
        });
    }
}
