//! What engines tell us.

pub mod kv; // KV-cache events
pub mod models; // `/v1/models`
pub mod scrape; // `/metrics`
