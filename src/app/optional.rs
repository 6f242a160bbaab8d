//! Services that are served only when configured.

use anyhow::Context;

use crate::{
    config::Config,
    kubernetes,
    observe::Metrics,
    serve::{rate_limiter::RateLimits, token_review::TokenReviews},
};

/// Each that is enabled.
#[derive(Default)]
pub(super) struct Optional {
    pub token_reviews: Option<TokenReviews>,
    pub rate_limits: Option<RateLimits>,
}

impl Optional {
    /// # Errors
    /// Token review is enabled and there are no Kubernetes credentials.
    pub(super) async fn build(config: &Config, metrics: &Metrics) -> anyhow::Result<Self> {
        let token_reviews = match config.token_review.enabled {
            true => {
                let client = kubernetes::connect().await.context("`token_review.enabled` is true")?;
                Some(TokenReviews::new(client, config.token_review.clone(), metrics))
            }
            false => None,
        };
        let rate_limits = config.rate_limit.enabled.then(|| RateLimits::new(metrics));
        Ok(Self { token_reviews, rate_limits })
    }
}
