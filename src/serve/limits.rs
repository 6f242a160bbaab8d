//! What one connection and one message may cost, set on purpose; `docs/grpc.md` says so to callers.

use std::time::Duration;

use crate::config::BodyLimits;

/// Open streams of a connection: a proxy keeps one open for as long as a request lives.
pub(super) const STREAMS: u32 = 65_536;
/// Streams that were reset before they were handled. Clients that go away reset streams in bursts, at worst all that
/// are open; a proxy's connection must survive that.
pub(super) const RESETS: usize = STREAMS as usize;
/// Bytes in flight: bodies of many streams share a connection.
pub(super) const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// Bytes in flight of one stream.
pub(super) const STREAM_WINDOW: u32 = 1024 * 1024;
/// HTTP/2 headers of one call, in bytes. Headers of proxied requests are in messages.
pub(super) const HEADERS: u32 = 16 * 1024;
/// A connection is pinged when it was silent for this long, and closed when no answer comes in time.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(30);
pub(super) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a message that may hold a whole body: one that is somewhat too large must still be read to be turned
/// away properly. Other messages have gRPC's usual limit, 4 MiB.
pub(super) fn body_message(limits: &BodyLimits) -> usize {
    const LEAST: usize = 16 * 1024 * 1024;
    limits.request_bytes.saturating_mul(2).max(LEAST)
}
