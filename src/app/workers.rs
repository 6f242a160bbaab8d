//! The tasks of each worker: KV events, scrapes, models. They begin when it joins and end when it leaves.

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use anyhow::{Context, anyhow};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::{
    cache::CacheIndex,
    config::TokenizeMode,
    fleet::{Availability, FleetEvent, Member, Registry, Snapshot, diff},
    ingest::{
        kv::{Follower, KvMetrics},
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
}

impl WorkerTasks {
    /// Follows the registry for ever.
    ///
    /// # Errors
    /// A worker's task panicked.
    pub(super) async fn run(self) -> anyhow::Result<Infallible> {
        let follower = Follower::new(self.index.clone(), self.kv_metrics.clone(), self.replay_timeout)
            .context("the HTTP client of KV events")?;
        let mut changes = self.registry.watch();
        let mut known = Snapshot::default();
        let mut tasks = JoinSet::new();
        let mut handles: HashMap<u64, Vec<AbortHandle>> = HashMap::new();
        loop {
            let now = self.registry.snapshot();
            for event in diff(&known, &now) {
                match event {
                    FleetEvent::Removed(member) => {
                        let own = handles.remove(&member.generation).unwrap_or_default();
                        self.stop(&member, &own, &mut tasks).await?;
                    }
                    FleetEvent::Added(member) => {
                        handles.insert(member.generation, self.start(&member, (&mut tasks, &follower)));
                    }
                }
            }
            for (worker, told) in told_anew(&known, &now) {
                tracing::info!(%worker, "{told}");
            }
            known = now;
            tokio::select! {
                changed = changes.changed() => changed.context("the registry is gone")?,
                Some(ended) = tasks.join_next() => unless_panicked(ended)?,
            }
        }
    }

    fn start(
        &self,
        member: &Arc<Member>,
        (tasks, follower): (&mut JoinSet<()>, &Follower),
    ) -> Vec<AbortHandle> {
        let worker = &member.worker;
        tracing::info!(worker = %worker.name, endpoint = %worker.endpoint, set = %worker.set.name, availability = ?worker.availability, "worker joined");
        let kv = follower.clone().run(member.clone());
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
        if worker.set.profile.tokenize_mode != TokenizeMode::Render && !worker.model_name.is_empty() {
            let (tokenizers, model) = (self.tokenizers.clone(), worker.model_name.clone());
            handles.push(tasks.spawn(async move { tokenizers.warm(&model).await }));
        }
        handles
    }

    /// Ends a worker's tasks, then forgets what they wrote. An aborted task runs on to its next await: only when
    /// all have ended can none write under an id that may belong to the next worker by then.
    async fn stop(
        &self,
        member: &Member,
        own: &[AbortHandle],
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<()> {
        tracing::info!(worker = %member.worker.name, "worker left");
        own.iter().for_each(AbortHandle::abort);
        while !own.iter().all(AbortHandle::is_finished) {
            let Some(ended) = tasks.join_next().await else { break };
            unless_panicked(ended)?;
        }
        self.index.remove_worker(member.worker.id);
        self.load.forget(member.worker.id);
        Ok(())
    }
}

/// What discovery says anew of workers that stay, in words.
fn told_anew(known: &Snapshot, now: &Snapshot) -> Vec<(Arc<str>, &'static str)> {
    let anew = now.values().filter(|member| {
        let before = known.get(&member.worker.id).filter(|before| before.generation == member.generation);
        before.is_some_and(|before| before.worker.availability != member.worker.availability)
    });
    let told = |member: &Arc<Member>| match member.worker.availability {
        Availability::Ready if member.cordoned() => "ready, and still cordoned by hand: no new requests",
        Availability::Ready => "ready: it takes requests",
        Availability::NotReady => "not ready: no new requests, what it caches is known on",
        Availability::Cordoned => "cordoned by its workers file: no new requests, what it caches is known on",
        Availability::Terminating => "terminating: no new requests",
    };
    anew.map(|member| (member.worker.name.clone(), told(member))).collect()
}

/// A task that was cancelled with its worker, or had nothing to do for it (no endpoint, evicted), is fine.
fn unless_panicked(ended: Result<(), JoinError>) -> anyhow::Result<()> {
    match ended {
        Err(error) if error.is_panic() => Err(anyhow!(error).context("a worker's task panicked")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Profile, TokenizeConfig, Topology},
        fleet::{KvSource, Worker, WorkerSet},
        load::{Freshness, LoadSample},
        observe::Metrics,
        prompt::http_client,
        types::{Rank, WorkerId},
    };

    fn worker() -> Worker {
        let set = WorkerSet {
            name: "s".into(),
            profile: Arc::new(Profile::default()),
            kv_block_size: 16,
            render_url: None,
        };
        Worker {
            id: WorkerId(1),
            name: "w1".into(),
            set: Arc::new(set),
            model_name: "m".into(),
            kv: KvSource::Unknown,
            metrics_url: None,
            http_url: None,
            endpoint: "10.0.0.1:8000".into(),
            topology: Topology::default(),
            availability: Availability::Ready,
        }
    }

    #[test]
    fn what_is_said_anew_of_a_worker_is_told_once() {
        let registry = Registry::default();
        let replace = |availability| {
            let known = registry.snapshot();
            registry.replace_set("s", vec![Worker { availability, ..worker() }]).unwrap();
            told_anew(&known, &registry.snapshot()).into_iter().map(|(_, told)| told).collect::<Vec<_>>()
        };
        assert_eq!(replace(Availability::NotReady), [""; 0], "that it joined is told elsewhere");
        assert_eq!(replace(Availability::Ready), ["ready: it takes requests"]);
        assert_eq!(replace(Availability::Ready), [""; 0]);
        assert!(replace(Availability::Cordoned)[0].starts_with("cordoned by its workers file"));
        registry.get(WorkerId(1)).unwrap().status.cordoned.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(replace(Availability::Ready)[0].contains("still cordoned by hand"));
        assert_eq!(replace(Availability::Terminating), ["terminating: no new requests"]);
    }

    #[tokio::test]
    async fn a_worker_that_left_has_no_task_and_no_trace() {
        let metrics = Metrics::new();
        let config = TokenizeConfig::default();
        let client = http_client(&config).unwrap();
        let (poll, load) = (Duration::from_secs(1), LoadTable::new(Duration::from_secs(1), &metrics));
        let workers = WorkerTasks {
            registry: Arc::default(),
            index: CacheIndex::new(&metrics),
            tokenizers: Tokenizers::new(config, client.clone(), &metrics),
            kv_metrics: KvMetrics::new(&metrics),
            scraper: Scraper::new(client.clone(), load.clone(), (poll, &metrics)),
            models: ModelsPoller::new(client, poll, &metrics),
            replay_timeout: poll,
            load,
        };
        workers.registry.replace_set("s", vec![worker()]).unwrap();
        let member = workers.registry.get(WorkerId(1)).unwrap();
        let mut tasks = JoinSet::new();
        let follower = Follower::new(workers.index.clone(), workers.kv_metrics.clone(), poll).unwrap();
        let own = workers.start(&member, (&mut tasks, &follower));
        let _writer = workers.index.writer(WorkerId(1), Rank(0), 16);
        workers.load.record_scrape(WorkerId(1), LoadSample::default());
        assert!(own.iter().any(|handle| !handle.is_finished()));
        workers.stop(&member, &own, &mut tasks).await.unwrap();
        assert!(own.iter().all(AbortHandle::is_finished));
        assert_eq!(workers.load.lock().view(WorkerId(1)).freshness, Freshness::Never);
    }
}
