//! What engines tell us.

mod fetch; // one HTTP GET under a time and a size limit
pub mod kv; // KV-cache events
mod missed; // polls that fail in a row
pub mod models; // `/v1/models`
pub mod scrape; // `/metrics`
