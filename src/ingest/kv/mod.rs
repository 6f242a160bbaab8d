//! KV-cache events: decoding, the sequence machine, subscriptions, replay.

mod cursor;
pub mod decode;
mod fields;
mod history;
pub mod sequence;
mod waiting;
