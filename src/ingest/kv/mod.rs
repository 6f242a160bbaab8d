//! KV-cache events: what each worker's cache holds, told by the worker over ZeroMQ.
//!
//! `run` follows one worker: [`sequence`] decides what the numbers of its messages mean, [`decode`] reads them,
//! `subscription` does the I/O and writes the cache index and `status.kv`. Identity is the subscription,
//! never what a message says of itself.

pub mod connection;
mod cursor;
pub mod decode;
mod faults;
mod fields;
mod history;
mod metrics;
pub mod replay;
pub mod sequence;
mod silence;
mod subscription;
mod waiting;
pub mod wire;

use std::{sync::Arc, time::Duration};

use crate::{
    cache::CacheIndex,
    fleet::{KvSource, Member},
    types::Rank,
};

pub use metrics::KvMetrics;
pub use subscription::Evicted;
use subscription::{Subscriber, Subscription};

/// Follows the KV events of one worker, for as long as it is a member: the caller drops it when it leaves.
/// Returns at once for a worker without an event socket (mock mode), which stays `Unknown`, and when the
/// worker had to be evicted, which `status.kv` then says.
pub async fn run(
    member: Arc<Member>,
    index: Arc<CacheIndex>,
    metrics: KvMetrics,
    replay_timeout: Duration,
) -> Option<Evicted> {
    let worker = &member.worker;
    let KvSource::Sockets(sockets) = &worker.kv else { return None };
    let sockets = sockets.first()?;
    let subscription =
        Subscription { events: sockets.events.clone(), replay: sockets.replay.clone(), replay_timeout };
    let writer = index.writer(worker.id, Rank::default(), worker.set.kv_block_size);
    Some(Subscriber::new(subscription, member, (writer, metrics)).run().await)
}
