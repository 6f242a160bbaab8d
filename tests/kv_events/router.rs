//! The router's side: what follows a worker, and what is known of it.
//!
//! Ends are asserted by waiting, with a deadline, for `status.kv` and the blocks held.

use std::{sync::Arc, time::Duration};

use kinference::{
    cache::CacheIndex,
    config::{Profile, Topology},
    fleet::{Availability, KvSource, KvState, Member, Worker, WorkerSet},
    ingest::kv::{self, Follower, KvMetrics},
    observe::Metrics,
    types::WorkerId,
};
use tokio::task::JoinSet;

use crate::engine::{Engine, sockets};

/// Tokens in a block, unless said otherwise.
pub const BLOCK: u32 = 4;
pub const ID: WorkerId = WorkerId(7);
/// Long enough to tell a wrong end from a slow machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// The router's side: a member, its index and the task that follows it.
pub struct Router {
    pub member: Arc<Member>,
    pub index: Arc<CacheIndex>,
    metrics: Metrics,
    pub task: JoinSet<Option<kv::Evicted>>,
}

impl Router {
    pub fn follow(events: Option<&str>, replay: Option<&str>, replay_timeout: Duration) -> Self {
        let kv = KvSource::single(events.map(Into::into), replay.map(Into::into));
        Self::with((kv, BLOCK), None, replay_timeout)
    }

    /// Follows an engine whose ranks are told.
    pub fn of_ranks(engines: &[&Engine]) -> Self {
        Self::with((sockets(engines), BLOCK), None, DEADLINE)
    }

    /// Asks the engine at `http_url` for its ranks.
    pub fn asking(http_url: String, block_size: u32) -> Self {
        Self::with((KvSource::Engine, block_size), Some(http_url), DEADLINE)
    }

    /// Follows whatever is told of an engine.
    pub fn with(
        (kv, block_size): (KvSource, u32),
        http_url: Option<String>,
        replay_timeout: Duration,
    ) -> Self {
        let set = WorkerSet {
            name: "set".into(),
            profile: Arc::new(Profile::default()),
            kv_block_size: block_size,
            render_url: None,
        };
        let worker = Worker {
            id: ID,
            name: "w".into(),
            set: Arc::new(set),
            model_name: "m".into(),
            kv,
            metrics_url: None,
            http_url,
            endpoint: "127.0.0.1:8000".into(),
            topology: Topology::default(),
            availability: Availability::Ready,
        };
        let member = Arc::new(Member { worker, generation: 1, status: Arc::default() });
        let metrics = Metrics::new();
        let index = CacheIndex::new(&metrics);
        let mut task = JoinSet::new();
        let follower = Follower::new(index.clone(), KvMetrics::new(&metrics), replay_timeout).unwrap();
        task.spawn(follower.run(member.clone()));
        Self { member, index, metrics, task }
    }

    pub fn of(engine: &Engine) -> Self {
        Self::follow(Some(&engine.events_at), Some(&engine.replay_at), DEADLINE)
    }

    pub fn is(&self, state: &KvState, blocks: usize) -> bool {
        **self.member.status.kv.load() == *state && self.index.blocks(ID).gpu == blocks
    }

    /// Until the state is reached, whatever the engine has said.
    pub async fn reaches(&self, state: KvState, blocks: usize) {
        let reached = async {
            while !self.is(&state, blocks) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, reached).await.is_err() {
            let now = (self.member.status.kv.load(), self.index.blocks(ID).gpu);
            panic!("waited for {state:?} with {blocks} blocks, but it is {now:?}");
        }
    }

    /// The same, while the engine publishes batches without events: a subscription becomes active at the
    /// engine some time after we know of the connection.
    pub async fn hears(&self, engine: &mut Engine, state: KvState, blocks: usize) {
        let reached = async {
            while !self.is(&state, blocks) {
                engine.publish(vec![]).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, reached).await.is_err() {
            let now = (self.member.status.kv.load(), self.index.blocks(ID).gpu);
            panic!("waited for {state:?} with {blocks} blocks, but it is {now:?}");
        }
    }

    /// Until so many batches were read: more than a replay gave, so that a live one got through.
    pub async fn is_subscribed(&self, engine: &mut Engine, batches: u64) {
        let reached = async {
            while self.counted("kinference_kv_batches_total") < batches {
                engine.publish(vec![]).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, reached).await.unwrap();
    }

    pub fn counted(&self, series: &str) -> u64 {
        let text = self.metrics.render();
        let line = text.lines().find(|line| line.starts_with(series));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }
}
