//! Kinference in the simulation: the real pipeline over its real rooms, under tokio's paused clock.
//!
//! Owner of the rooms. Replicas share what engines tell everybody (KV events, scrapes) and know only their own requests
//! in flight. Prompts come as token ids: the tokenizer is not part of this.

use std::{collections::HashMap, path::Path, sync::Arc};

use anyhow::Context;
use bytes::Bytes;
use kinference::{
    cache::{CacheIndex, CacheWriter},
    config::{Config, Topology},
    fleet::{Availability, KvSource, Registry, Worker, WorkerSet},
    load::{LoadSample, LoadTable},
    observe::{Decisions, Metrics},
    pipeline::{Incoming, IncomingBody, Pipeline, Placement, Rooms},
    prompt::{Tokenizers, http_client},
    types::{Api, EngineHash, KvEvent, Outcome, Rank, RequestKind, StoredBlocks, Tier, Usage, WorkerId},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use crate::{
    arms::{Name, Seen, Setting},
    engine::{CacheEvent, hash::BlockHash},
};

const BLOCK: u32 = 16;
const MODEL: &str = "m";

/// See the file's head.
pub struct Replicas {
    replicas: Vec<(Arc<LoadTable>, Pipeline)>,
    index: Arc<CacheIndex>,
    writers: Vec<CacheWriter>,
    placed: HashMap<u64, Placement>,
    rng: StdRng,
    sees_prompts: bool,
    dirty: bool,
}

/// The configuration of an arm.
fn config(name: Name, setting: Setting) -> anyhow::Result<Config> {
    let predictor = match name {
        Name::KinferenceFitted => {
            let timing = setting.preset.profile().timing;
            format!(
                "[profile.predictor]\nbase_ms = {}\nattention_uncached_block_ms = {}\n\
                 attention_uncached_per_every_block_ms = {}\nq_running_penalty_peak_ms = 0.0\n\
                 calibration = \"off\"\n",
                timing.step_ms, timing.prefill_ms, timing.attention_ms
            )
        }
        Name::KinferenceCalibrated => "[profile.predictor]\ncalibration = \"on\"\n".to_owned(),
        _ => "[profile.predictor]\ncalibration = \"off\"\n".to_owned(),
    };
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[[profile]]\nname = \"p\"\n{predictor}[profile.picker]\nseed = {}\n\
         [[workerset]]\nname = \"s\"\nprofile = \"p\"\nkv_block_size = {BLOCK}\n[workerset.discovery]\n\
         workers_file = \"none.toml\"\n",
        setting.seed
    );
    Ok(Config::parse(&text, Path::new("/")).context(text)?.0)
}

fn worker(set: &Arc<WorkerSet>, engine: usize) -> Worker {
    Worker {
        id: id(engine),
        name: format!("w{engine}").into(),
        set: set.clone(),
        model_name: MODEL.into(),
        kv: KvSource::Unknown,
        metrics_url: None,
        http_url: None,
        endpoint: format!("10.0.{}.{}:8000", engine / 250, engine % 250).into(),
        topology: Topology::default(),
        availability: Availability::Ready,
    }
}

fn id(engine: usize) -> WorkerId {
    WorkerId(engine as u64 + 1)
}

impl Replicas {
    pub fn new(name: Name, setting: Setting) -> anyhow::Result<Self> {
        let config = config(name, setting)?;
        let metrics = Metrics::new();
        let (registry, index) = (Arc::<Registry>::default(), CacheIndex::new(&metrics));
        let profile = Arc::new(config.profiles[0].clone());
        let set = Arc::new(WorkerSet { name: "s".into(), profile, kv_block_size: BLOCK, render_url: None });
        let workers = (0..setting.engines).map(|engine| worker(&set, engine)).collect();
        registry.replace_set("s", workers).context("the workers")?;
        let replica = || {
            let metrics = Metrics::new();
            let load = LoadTable::new(config.metrics_poll, &metrics);
            let client = http_client(&config.tokenize)?;
            let rooms = Rooms {
                registry: registry.clone(),
                index: index.clone(),
                load: load.clone(),
                tokenizers: Tokenizers::new(config.tokenize.clone(), client, &metrics),
                decisions: Arc::<Decisions>::default(),
            };
            anyhow::Ok((load, Pipeline::new(&config, rooms, &metrics)))
        };
        Ok(Self {
            replicas: (0..setting.replicas).map(|_| replica()).collect::<Result<_, _>>()?,
            writers: (0..setting.engines).map(|engine| index.writer(id(engine), Rank(0), BLOCK)).collect(),
            index,
            placed: HashMap::new(),
            rng: StdRng::seed_from_u64(setting.seed),
            sees_prompts: name != Name::LoadOnly,
            dirty: false,
        })
    }

    pub async fn choose(&mut self, request: u64, prompt: &[u32]) -> usize {
        if std::mem::take(&mut self.dirty) {
            // Polled, not awaited: the paused clock would run on while nothing else is to be done.
            let mut settled = std::pin::pin!(self.index.settled());
            while futures::poll!(&mut settled).is_pending() {
                tokio::task::yield_now().await;
            }
        }
        let at = self.rng.random_range(0..self.replicas.len());
        let decided = self.replicas[at].1.decide(self.incoming(prompt)).await;
        let Ok(placement) = decided else { unreachable!("all engines serve the model") };
        let Some(target) = placement.decision.primary().target.worker() else { unreachable!("no providers") };
        let engine = target.id.0 as usize - 1;
        self.placed.insert(request, placement);
        engine
    }

    fn incoming(&self, prompt: &[u32]) -> Incoming {
        let (kind, body) = if self.sees_prompts {
            let body = serde_json::json!({"model": MODEL, "prompt": prompt, "stream": true});
            (RequestKind::Inference(Api::Completions), IncomingBody::Full(Bytes::from(body.to_string())))
        } else {
            (RequestKind::Other, IncomingBody::Empty)
        };
        Incoming {
            request_id: "r".into(),
            kind,
            content_type: Some("application/json".into()),
            content_encoding: None,
            tenant: None,
            tags: Vec::new(),
            pool: None,
            subset: None,
            exclude: Vec::new(),
            model: None,
            sees_response: true,
            began: Instant::now(),
            traceparent: None,
            body,
        }
    }

    /// Own requests in flight, of all replicas.
    #[cfg(test)]
    pub fn in_flight(&self) -> u32 {
        let of = |load: &Arc<LoadTable>| {
            (0..self.writers.len()).map(|engine| load.lock().view(id(engine)).own_in_flight).sum::<u32>()
        };
        self.replicas.iter().map(|(load, _)| of(load)).sum()
    }

    pub fn first_token(&mut self, request: u64) {
        if let Some(placement) = self.placed.get_mut(&request) {
            placement.first_token();
        }
    }

    pub fn finished(&mut self, request: u64) {
        if let Some(placement) = self.placed.remove(&request) {
            placement.finish(Outcome::Completed, None::<Usage>);
        }
    }

    pub fn told(&mut self, engine: usize, events: Vec<CacheEvent>) {
        self.dirty = true;
        for event in events {
            self.writers[engine].apply(&event_of(event));
        }
    }

    /// Engines begin anew, with empty caches.
    pub fn restarted(&mut self) {
        self.dirty = true;
        self.writers.iter_mut().for_each(CacheWriter::clear);
    }

    pub fn scraped(&mut self, engine: usize, Seen { running, waiting, kv_usage }: Seen) {
        for (load, _) in &self.replicas {
            load.record_scrape(id(engine), LoadSample { running, waiting, kv_usage });
        }
    }
}

fn event_of(event: CacheEvent) -> KvEvent {
    let handle = |hash: BlockHash| EngineHash::Int(hash.int());
    match event {
        CacheEvent::Stored(stored) => KvEvent::Stored(StoredBlocks {
            hashes: stored.hashes.into_iter().map(handle).collect(),
            parent: stored.parent.map(handle),
            tokens: stored.tokens,
            block_size: BLOCK,
            ..StoredBlocks::default()
        }),
        CacheEvent::Removed(hash) => {
            KvEvent::Removed { hashes: vec![handle(hash)], tier: Tier::Gpu, group: None }
        }
        CacheEvent::Cleared => KvEvent::Cleared,
    }
}
