//! A pipeline and the rooms under it, workers made of numbers, requests made of token ids.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use kinference::{
    cache::CacheIndex,
    config::{Config, Profile, Topology},
    fleet::{Availability, FAILURES_TO_FAIL, KvSource, Member, Registry, Worker, WorkerSet},
    load::LoadTable,
    observe::{Decisions, Metrics},
    pipeline::{Incoming, IncomingBody, Pipeline, Placement, Rooms},
    policy::{
        self,
        compile::{Policies, Weight},
    },
    prompt::{Tokenizers, http_client},
    types::{
        Api, Candidate, Decision, ErrorKind, KvEvent, Rank, Rejection, RequestKind, StoredBlocks, WorkerId,
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Tokens in a block.
pub const BLOCK: u32 = 16;
/// The model that workers serve unless a test says otherwise: the directory of the tokenizer among the fixtures.
pub const MODEL: &str = "tokenizer";

const MINIMAL: &str = r#"
listen = "127.0.0.1:0"
[[profile]]
name = "p"
[[workerset]]
name = "s"
profile = "p"
kv_block_size = 16
[workerset.discovery]
workers_file = "none.toml"
"#;

pub struct Site {
    pub registry: Arc<Registry>,
    pub index: Arc<CacheIndex>,
    pub load: Arc<LoadTable>,
    pub metrics: Metrics,
    pub decisions: Arc<Decisions>,
    pub pipeline: Arc<Pipeline>,
}

/// The default profile, seeded.
pub fn profile(name: &str, edit: impl FnOnce(&mut Profile)) -> Profile {
    let mut profile = Profile { name: name.into(), ..Profile::default() };
    profile.picker.seed = Some(7);
    edit(&mut profile);
    profile
}

pub fn worker_set(name: &str, profile: &Profile) -> Arc<WorkerSet> {
    let profile = Arc::new(profile.clone());
    Arc::new(WorkerSet { name: name.into(), profile, kv_block_size: BLOCK, render_url: None })
}

pub fn worker(set: &Arc<WorkerSet>, id: u64) -> Worker {
    Worker {
        id: WorkerId(id),
        name: format!("w{id}").into(),
        set: set.clone(),
        model_name: MODEL.into(),
        kv: KvSource::Unknown,
        metrics_url: None,
        http_url: None,
        endpoint: format!("10.0.0.{id}:8000").into(),
        topology: Topology::default(),
        availability: Availability::Ready,
    }
}

impl Site {
    /// Without workers; `edit` changes the configuration.
    pub fn new(profiles: &[Profile], edit: impl FnOnce(&mut Config)) -> Self {
        Self::telling(profiles, Arc::default(), edit)
    }

    /// The same, whose decisions are told there.
    pub fn telling(profiles: &[Profile], decisions: Arc<Decisions>, edit: impl FnOnce(&mut Config)) -> Self {
        let (mut config, _) = Config::parse(MINIMAL, Path::new("/")).unwrap();
        config.profiles = profiles.to_vec();
        config.tokenize.mount_dir = Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"));
        edit(&mut config);
        let metrics = Metrics::new();
        let client = http_client(&config.tokenize).unwrap();
        let (registry, index) = (Arc::<Registry>::default(), CacheIndex::new(&metrics));
        let load = LoadTable::new(config.metrics_poll, &metrics);
        let rooms = Rooms {
            registry: registry.clone(),
            index: index.clone(),
            load: load.clone(),
            tokenizers: Tokenizers::new(config.tokenize.clone(), client, &metrics),
            decisions: decisions.clone(),
        };
        let pipeline = Arc::new(Pipeline::new(&config, rooms, &metrics));
        Self { registry, index, load, metrics, decisions, pipeline }
    }

    /// With workers `1..=n` of one set.
    pub fn of(profile: &Profile, n: u64) -> Self {
        let site = Self::new(std::slice::from_ref(profile), |_| {});
        let set = worker_set("s", profile);
        site.registry.replace_set("s", (1..=n).map(|id| worker(&set, id)).collect()).unwrap();
        site
    }

    /// Puts these resources in force: each a kind, a name and a spec.
    pub fn enforce(&self, resources: &[(&str, &str, Value)]) {
        self.enforce_all(resources, Weight::Suspicious);
    }

    /// The same, of which nothing is worse than that.
    pub fn enforce_all(&self, resources: &[(&str, &str, Value)], worst: Weight) -> Arc<Policies> {
        let read = |(kind, name, spec): &(&str, &str, Value)| {
            policy::read(json!({
                "apiVersion": format!("{}/{}", policy::crd::GROUP, policy::crd::VERSION),
                "kind": kind, "metadata": {"name": name, "namespace": "ns"}, "spec": spec,
            }))
            .unwrap()
        };
        let resources: Vec<_> = resources.iter().map(read).collect();
        let (policies, findings) = policy::compile::compile(&resources, None);
        assert!(findings.iter().all(|one| one.weight <= worst), "{findings:?}");
        let policies = Arc::new(policies);
        self.pipeline.policies().store(Some(policies.clone()));
        policies
    }

    pub fn member(&self, id: u64) -> Arc<Member> {
        self.registry.get(WorkerId(id)).unwrap()
    }

    /// Has a worker's responses fail until it counts as failing.
    pub fn fail(&self, id: u64) {
        self.member(id).status.failures.store(FAILURES_TO_FAIL, Ordering::Relaxed);
    }

    /// The worker says that it holds the blocks of these tokens.
    pub async fn store(&self, id: u64, tokens: std::ops::Range<u32>) {
        let blocks = tokens.len() as u32 / BLOCK;
        let stored = StoredBlocks {
            hashes: (0..blocks)
                .map(|i| kinference::types::EngineHash::Int(u64::from(tokens.start + i)))
                .collect(),
            tokens: tokens.collect(),
            block_size: BLOCK,
            ..StoredBlocks::default()
        };
        self.index.writer(WorkerId(id), Rank(0), BLOCK).apply(&KvEvent::Stored(stored));
        // Polled, not awaited: where time is paused, it would run on while the runtime has nothing to do.
        let mut settled = std::pin::pin!(self.index.settled());
        while futures::poll!(&mut settled).is_pending() {
            tokio::task::yield_now().await;
        }
    }

    pub async fn place(&self, incoming: Incoming) -> Placement {
        self.pipeline.decide(incoming).await.ok().unwrap()
    }

    pub async fn decide(&self, incoming: Incoming) -> Arc<Decision> {
        self.place(incoming).await.decision.clone()
    }

    pub async fn refusal(&self, incoming: Incoming) -> Rejection {
        self.pipeline.decide(incoming).await.err().unwrap()
    }

    pub async fn refused(&self, incoming: Incoming) -> ErrorKind {
        self.refusal(incoming).await.kind
    }

    /// Own requests in flight on a worker.
    pub fn in_flight(&self, id: u64) -> u32 {
        self.load.lock().view(WorkerId(id)).own_in_flight
    }
}

/// A call of an inference API.
pub fn call(api: Api, body: impl Into<Bytes>) -> Incoming {
    Incoming {
        request_id: "r".into(),
        kind: RequestKind::Inference(api),
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
        body: IncomingBody::Full(body.into()),
    }
}

/// A request whose prompt is these tokens.
pub fn prompt(tokens: impl IntoIterator<Item = u32>) -> Incoming {
    let tokens: Vec<u32> = tokens.into_iter().collect();
    call(Api::Completions, json!({"model": MODEL, "prompt": tokens, "stream": true}).to_string())
}

/// A conversation, which takes a tokenizer.
pub fn chat() -> Incoming {
    call(Api::ChatCompletions, chat_body().to_string())
}

pub fn chat_body() -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "Which worker has seen this before? ".repeat(20)}]})
}

/// A call of no inference API, without a body.
pub fn other() -> Incoming {
    Incoming { kind: RequestKind::Other, content_type: None, body: IncomingBody::Empty, ..chat() }
}

/// The name of the picked worker.
pub fn picked(decision: &Arc<Decision>) -> u64 {
    worker_of(decision.primary())
}

/// The id of the worker that a candidate is.
pub fn worker_of(candidate: &Candidate) -> u64 {
    candidate.target.worker().unwrap().id.0
}
