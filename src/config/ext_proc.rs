//! `[ext_proc]` (own addition): what the Envoy front door trusts, how long it waits, what it explains.

use std::time::Duration;

use super::{
    address::header,
    keys::Keys,
    kind::{Bool, MILLIS},
};

/// Settings of the ext_proc front door.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    }
}
