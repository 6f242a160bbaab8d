//! `[rate_limit]`: whether the rate limiter service is served.

use super::{keys::Keys, kind::Bool};

/// `[rate_limit]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitConfig {
    /// Serve `RateLimiter` on the gRPC listener.
    pub enabled: bool,
}

impl RateLimitConfig {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        keys.key("enabled", Bool, &mut self.enabled);
    }
}
