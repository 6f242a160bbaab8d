//! KV-event ingest over real sockets: engines of PUB and ROUTER sockets on 127.0.0.1, with what goes wrong.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod engine;
mod proxy;
mod ranks;
mod router;
#[cfg(feature = "sim")]
mod sim;
mod single;
mod sources;
