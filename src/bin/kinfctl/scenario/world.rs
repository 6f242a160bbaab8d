//! What stays the same over the cases of a test: the resources, the pool, and how predictions are made.

use std::{path::Path, sync::Arc};

use kinference::{
    config::{Config, Profile},
    load::POLLS_KEPT,
    policy::{eval::Pool, manifests},
};

use super::test_file::{Setting, beside};
use crate::{
    findings::{Finding, Severity},
    inputs, validate,
};

/// Milliseconds between two looks at a worker's load, where no configuration says.
const POLL_MS: f64 = 1000.0;
/// Tokens in a block, where no configuration says.
const BLOCK_TOKENS: u32 = 16;

/// It.
#[derive(Debug)]
pub struct World {
    /// The pool.
    pub pool: Arc<Pool>,
    config: Option<Config>,
    standard: Profile,
}

impl World {
    /// What a test file names, seen from it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn of(test_file: &str, setting: &Setting) -> Result<Self, Vec<Finding>> {
        let given: Vec<_> = setting.policies.iter().map(|name| beside(test_file, name)).collect();
        let (sources, mut found) =
            inputs::read(&given, |name| inputs::is_yaml(name) && !inputs::is_test(name));
        let files = sources.iter().map(|source| (source.name.as_str(), source.text.as_str()));
        let made = manifests::read(files, None);
        found.extend(made.remarks.iter().map(validate::finding));
        let wrong = |message: String| Finding {
            severity: Severity::Error,
            file: Some(test_file).filter(|name| !name.is_empty()).map(str::to_owned),
            place: None,
            path: String::new(),
            message,
        };
        let config =
            setting.configuration.as_deref().map(|name| Config::load(Path::new(&beside(test_file, name))));
        let config = config.transpose().map(|loaded| loaded.map(|(config, _)| config));
        let config = config.map_err(|errors| found.push(wrong(errors.to_string()))).ok().flatten();
        let pool = made.policies.pool(&setting.pool).cloned();
        let pool = pool.map_err(|why| found.push(wrong(format!("`pool` is {:?}: {why}", setting.pool))));
        match pool {
            Ok(pool) if found.iter().all(|one| one.severity != Severity::Error) => {
                Ok(Self { pool, config, standard: Profile::default() })
            }
            _ => Err(found),
        }
    }

    /// Of a pool alone.
    #[cfg(test)]
    pub fn bare(pool: Arc<Pool>) -> Self {
        Self { pool, config: None, standard: Profile::default() }
    }

    /// The profile of a worker set, and how many tokens its blocks have.
    pub fn profile(&self, worker_set: &str) -> (&Profile, u32) {
        let found = self.config.as_ref().and_then(|config| {
            let set = config.workersets.iter().find(|set| set.name == worker_set)?;
            let profile = config.profiles.iter().find(|profile| profile.name == set.profile)?;
            Some((profile, set.kv_block_size))
        });
        found.unwrap_or((&self.standard, BLOCK_TOKENS))
    }

    /// Milliseconds after which a load counts as old.
    pub fn stale_after_ms(&self) -> f64 {
        let poll = self.config.as_ref().map_or(POLL_MS, |config| config.metrics_poll.as_secs_f64() * 1e3);
        poll * f64::from(POLLS_KEPT)
    }
}
