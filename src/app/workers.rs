//! The tasks of each worker: KV events, scrapes, models. They begin when it joins and end when it leaves.

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use anyhow::{Context, anyhow};
use tokio::task::{AbortHandle, JoinSet};

use crate::{
    cache::CacheIndex,
    fleet::{FleetEvent, Member, Registry, Snapshot, diff},
    ingest::{
        kv::{self, KvMetrics},
        models::ModelsPoller,
        scrape::Scraper,
    },
    load::LoadTable,
    prompt::Tokenizers,
};

/// What the tasks of a worker need.
pub(super) struct WorkerTasks {
    pub registry: Arc<Registry>,
    pub index: Arc<CacheIndex>,
    pub load: Arc<LoadTable>,
    pub tokenizers: Arc<Tokenizers>,
    pub kv_metrics: KvMetrics,
    pub scraper: Scraper,
    pub models: ModelsPoller,
    pub replay_timeout: Duration,
    pub warmup: bool,
}

impl WorkerTasks {
    /// Follows the registry for ever.
    ///
    /// # Errors
    /// A worker's task panicked.
    pub(super) async fn run(self) -> anyhow::Result<Infallible> {
        let mut changes = self.registry.watch();
        let mut known = Snapshot::default();
        let mut tasks = JoinSet::new();
        let mut handles: HashMap<u64, Vec<AbortHandle>> = HashMap::new();
        loop {
            let now = self.registry.snapshot();
            for event in diff(&known, &now) {
                match event {
                    FleetEvent::Removed(member) => self.stop(&member, handles.remove(&member.generation)),
                    FleetEvent::Added(member) => {
                        handles.insert(member.generation, self.start(&member, &mut tasks));
                    }
                }
            }
            known = now;
            tokio::select! {
                changed = changes.changed() => changed.context("the registry is gone")?,
                Some(ended) = tasks.join_next() => match ended {
                    Err(error) if error.is_panic() => return Err(anyhow!(error).context("a worker's task panicked")),
                    // Cancelled with its worker, or nothing to do for it (no endpoint, evicted).
                    _ => {}
                },
            }
        }
    }

    fn start(&self, member: &Arc<Member>, tasks: &mut JoinSet<()>) -> Vec<AbortHandle> {
        let worker = &member.worker;
        tracing::info!(worker = %worker.name, endpoint = %worker.endpoint, set = %worker.set.name, "worker joined");
        let kv = kv::run(member.clone(), self.index.clone(), self.kv_metrics.clone(), self.replay_timeout);
        let (scraper, models) = (self.scraper.clone(), self.models.clone());
        let (scraped, polled) = (member.clone(), member.clone());
        let mut handles = vec![
            tasks.spawn(async move {
                kv.await;
            }),
            tasks.spawn(async move {
                scraper.run(scraped).await;
            }),
            tasks.spawn(async move {
                models.run(polled).await;
            }),
        ];
        if self.warmup {
            let (tokenizers, model) = (self.tokenizers.clone(), worker.model_name.clone());
            handles.push(tasks.spawn(async move { tokenizers.warm(&model).await }));
        }
        handles
    }

    fn stop(&self, member: &Member, handles: Option<Vec<AbortHandle>>) {
        tracing::info!(worker = %member.worker.name, "worker left");
        handles.into_iter().flatten().for_each(|handle| handle.abort());
        self.index.remove_worker(member.worker.id);
        self.load.forget(member.worker.id);
    }
}
