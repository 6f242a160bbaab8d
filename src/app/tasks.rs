//! The long-lived tasks of the process, by name.

use std::{convert::Infallible, sync::Arc};

use anyhow::Context;
use tokio::task::JoinSet;

use crate::{
    config::{Discovery, WorkerSetConfig},
    discovery::{FleetWriter, StaticFile},
    files,
    fleet::WorkerSet,
    ingest::{kv::KvMetrics, models::ModelsPoller, scrape::Scraper},
    kubernetes::StatusDesk,
    serve::Tls,
};

use super::{App, Task, workers::WorkerTasks};

pub(super) type Tasks = JoinSet<(&'static str, Task)>;

impl App {
    /// Loads every worker set's workers, then watches where they come from.
    ///
    /// # Errors
    /// A workers file that does not load, or an id that two sets use.
    pub(super) async fn spawn_discovery(
        &self,
        desk: Option<StatusDesk>,
        tasks: &mut Tasks,
    ) -> anyhow::Result<()> {
        let writer = FleetWriter::new(self.registry.clone(), &self.metrics);
        self.config.workersets.iter().for_each(|set| self.registry.await_set(&set.name.as_str().into()));
        for set in &self.config.workersets {
            let Discovery::Static { workers_file } = &set.discovery else { continue };
            let set = self.worker_set(set)?;
            let mut file =
                StaticFile::new(set, (workers_file.clone(), self.config.mock_mode), writer.clone());
            file.load_once().await?;
            tasks.spawn(async move { ("discovery", never(files::follow(file).await)) });
        }
        self.spawn_cluster((&writer, desk), tasks)
    }

    /// A worker set of the configuration, as the fleet has it.
    pub(super) fn worker_set(&self, set: &WorkerSetConfig) -> anyhow::Result<Arc<WorkerSet>> {
        let profile = self.profiles.iter().find(|profile| profile.name == set.profile).cloned();
        let profile = profile.with_context(|| format!("worker set `{}` names no profile", set.name))?;
        let (kv_block_size, render_url) = (set.kv_block_size, set.render_url.clone());
        Ok(WorkerSet { name: set.name.as_str().into(), profile, kv_block_size, render_url }.into())
    }

    /// Keeps TLS as its files say; `None`: there is none.
    pub(super) fn spawn_tls(&mut self, tasks: &mut Tasks) -> Option<Tls> {
        let (tls, files) = self.tls.take()?;
        tasks.spawn(async move { ("TLS files", never(files::follow(files).await)) });
        Some(tls)
    }

    /// Keeps what is known of workers fresh.
    pub(super) fn spawn_upkeep(&self, tasks: &mut Tasks) {
        let index = self.index.clone();
        tasks.spawn(async move { ("cache upkeep", never(index.maintain().await)) });
        if self.config.mock_mode {
            return;
        }
        let workers = WorkerTasks {
            registry: self.registry.clone(),
            index: self.index.clone(),
            load: self.load.clone(),
            tokenizers: self.tokenizers.clone(),
            scraper: Scraper::new(
                self.client.clone(),
                self.load.clone(),
                (self.config.metrics_poll, &self.metrics),
            ),
            models: ModelsPoller::new(self.client.clone(), self.config.models_refresh, &self.metrics),
            kv_metrics: KvMetrics::new(&self.metrics),
            replay_timeout: self.config.replay_timeout,
        };
        tasks.spawn(async move { ("workers", workers.run().await) });
    }
}

pub(super) fn never(never: Infallible) -> Task {
    match never {}
}
