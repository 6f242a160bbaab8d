//! `[ext_proc]` (own addition): what the Envoy front door trusts, how long it waits, what it explains.

use std::time::Duration;

use super::{
    address::header,
    keys::Keys,
    kind::{Bool, Choice, FRACTION, MILLIS},
};

/// How much of responses is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Observe {
    /// All of each.
    #[default]
    Full,
    /// All of some, of the others their headers.
    Sampled,
    /// Their headers.
    Headers,
}

const OBSERVE: Choice<Observe> =
    Choice(&[("full", Observe::Full), ("sampled", Observe::Sampled), ("headers", Observe::Headers)]);

/// Settings of the ext_proc front door.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtProcConfig {
    /// Read tenant, tags and pool from request headers (the gateway must strip clients' copies).
    pub trust_headers: bool,
    /// Header with the tenant.
    pub tenant_header: String,
    /// Header with comma-separated tags.
    pub tags_header: String,
    /// Header with the InferencePool.
    pub pool_header: String,
    /// Budget from the end of the body to the answer; past it the pick is made on load alone.
    pub deadline: Duration,
    /// Explain the decision in response headers.
    pub explain_headers: bool,
    /// How much of responses is watched.
    pub observe: Observe,
    /// Which share is watched whole where that is `Sampled`.
    pub observe_sample: f64,
}

impl Default for ExtProcConfig {
    fn default() -> Self {
        Self {
            trust_headers: false,
            tenant_header: "x-kinference-tenant".into(),
            tags_header: "x-kinference-tags".into(),
            pool_header: "x-kinference-pool".into(),
            deadline: Duration::from_millis(1000),
            explain_headers: false,
            observe: Observe::default(),
            observe_sample: 0.1,
        }
    }
}

impl ExtProcConfig {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        keys.key("trust_headers", Bool, &mut self.trust_headers);
        keys.key("tenant_header", header(), &mut self.tenant_header);
        keys.key("tags_header", header(), &mut self.tags_header);
        keys.key("pool_header", header(), &mut self.pool_header);
        keys.key("deadline_ms", MILLIS, &mut self.deadline);
        keys.key("explain_headers", Bool, &mut self.explain_headers);
        keys.key("observe", OBSERVE, &mut self.observe);
        keys.key("observe_sample", FRACTION, &mut self.observe_sample);
    }
}
