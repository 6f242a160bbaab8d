//! KV-cache events: what each worker's cache holds, told by the worker over ZeroMQ.
//!
//! A `Follower` follows one worker, by one subscription for each data-parallel rank: [`sequence`] decides what the
//! numbers of its messages mean, [`decode`] reads them, `subscription` does the I/O and writes the cache index,
//! `board` writes `status.kv`. Identity is the subscription, never what a message says of itself.

mod asker;
mod board;
pub mod connection;
mod cursor;
pub mod decode;
mod faults;
mod fields;
mod history;
mod metrics;
mod ranks;
pub mod replay;
pub mod sequence;
mod silence;
pub mod sources;
mod subscription;
#[cfg(test)]
mod testing;
mod waiting;
pub mod wire;

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    cache::CacheIndex,
    fleet::{KvSource, Member},
};

use asker::Asker;
use board::Board;
pub use metrics::KvMetrics;
use ranks::Ranks;
pub use subscription::Evicted;

/// What following any worker takes. Cheap to clone.
#[derive(Clone)]
pub struct Follower {
    index: Arc<CacheIndex>,
    metrics: KvMetrics,
    client: reqwest::Client,
    replay_timeout: Duration,
}

impl Follower {
    /// Writes into `index`. A replay may take `replay_timeout`.
    ///
    /// # Errors
    /// No HTTP client can be made.
    pub fn new(
        index: Arc<CacheIndex>,
        metrics: KvMetrics,
        replay_timeout: Duration,
    ) -> reqwest::Result<Self> {
        Ok(Self { index, metrics, client: asker::http_client()?, replay_timeout })
    }

    /// Follows the KV events of one worker, for as long as it is a member: the caller drops it when it leaves.
    /// Returns at once for a worker without an event socket (mock mode), which stays `Unknown`, and when the
    /// worker had to be evicted, which `status.kv` then says.
    pub async fn run(self, member: Arc<Member>) -> Option<Evicted> {
        let board = Arc::new(Board::new(member.clone()));
        let ranks = Ranks::new(self.clone(), member.clone(), board.clone());
        let evicted = match &member.worker.kv {
            KvSource::Unknown => return None,
            KvSource::Sockets(sockets) if sockets.is_empty() => return None,
            KvSource::Sockets(sockets) => {
                let (_unchanging, wanted) = watch::channel(sockets.clone());
                ranks.run(wanted).await
            }
            KvSource::Engine => {
                let (tell, wanted) = watch::channel(vec![]);
                let asker = Asker::new(
                    (self.client.clone(), self.metrics.clone()),
                    (member.clone(), board.clone()),
                    tell,
                )?;
                tokio::select! {
                    evicted = ranks.run(wanted) => evicted,
                    never = asker.run() => match never {},
                }
            }
        };
        self.evict(&member, &board, &evicted);
        Some(evicted)
    }

    /// One rank is enough: requests reach any of them.
    fn evict(&self, member: &Member, board: &Board, evicted: &Evicted) {
        self.index.remove_worker(member.worker.id);
        self.metrics.evicted_for_block_size();
        let worker = &member.worker.name;
        tracing::error!(%worker, reason = evicted.0, "EVICTED: no traffic for it until it is discovered anew");
        board.evict(&evicted.0);
    }
}
