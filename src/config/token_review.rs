//! `[token_review]`: checking Kubernetes bearer tokens for callers that can't reach the API server.

use std::time::Duration;

use super::{
    keys::Keys,
    kind::{Bool, MILLIS, SECS_OR_ZERO, count},
};

/// `[token_review]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenReviewConfig {
    /// Serve `TokenReview` on the gRPC listener.
    pub enabled: bool,
    /// Budget of one round trip to the API server.
    pub default_deadline: Duration,
    /// How long a yes is remembered; zero: not at all.
    pub positive_ttl: Duration,
    /// How long a no is remembered; zero: not at all.
    pub negative_ttl: Duration,
    /// Answers remembered at most.
    pub max_cache_entries: usize,
}

impl Default for TokenReviewConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            default_deadline: Duration::from_millis(2000),
            positive_ttl: Duration::from_secs(60),
            negative_ttl: Duration::from_secs(10),
            max_cache_entries: 4096,
        }
    }
}

impl TokenReviewConfig {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        keys.key("enabled", Bool, &mut self.enabled);
        keys.key("default_deadline_ms", MILLIS, &mut self.default_deadline);
        keys.key("positive_ttl_secs", SECS_OR_ZERO, &mut self.positive_ttl);
        keys.key("negative_ttl_secs", SECS_OR_ZERO, &mut self.negative_ttl);
        keys.key("max_cache_entries", count(0), &mut self.max_cache_entries);
    }
}
