//! An admin listener over a fleet that the test makes up. Its log goes nowhere, but has a filter.

use std::{sync::Arc, time::Duration};

use kinference::{
    admin::{self, Admin, CHANGE_HEADER, Dashboard},
    cache::CacheIndex,
    config::{Profile, Topology},
    fleet::{Availability, KvSource, KvState, Member, Registry, Worker, WorkerSet},
    load::LoadTable,
    observe::{LogFilter, Metrics},
    pipeline::Calibrations,
    roster::Roster,
    types::WorkerId,
};
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinSet};
use tracing_subscriber::{EnvFilter, Registry as Subscriber, reload};

pub struct Site {
    pub registry: Arc<Registry>,
    /// `ip:port`
    pub address: String,
    _log: reload::Layer<EnvFilter, Subscriber>,
    _serving: JoinSet<()>,
}

pub fn worker(id: u64, name: &str) -> Worker {
    let profile = Arc::new(Profile::default());
    let set = WorkerSet { name: "s".into(), profile, kv_block_size: 16, render_url: None };
    Worker {
        id: WorkerId(id),
        name: name.into(),
        set: Arc::new(set),
        model_name: "m".into(),
        kv: KvSource::Unknown,
        metrics_url: None,
        http_url: None,
        endpoint: format!("10.0.0.{id}:8000").into(),
        topology: Topology::default(),
        availability: Availability::Ready,
    }
}

impl Site {
    pub async fn start(workers: Vec<Worker>) -> Self {
        let (metrics, registry) = (Metrics::new(), Arc::<Registry>::default());
        let (layer, log) = LogFilter::new(EnvFilter::new("info"));
        let roster = Roster {
            registry: registry.clone(),
            index: CacheIndex::new(&metrics),
            load: LoadTable::new(Duration::from_secs(1), &metrics),
            mock: false,
        };
        let admin = Admin {
            calibrations: Calibrations::new(&metrics),
            roster,
            metrics,
            draining: Arc::default(),
            policies_known: Arc::new(true.into()),
            reaches_providers: Arc::default(),
            decisions: Arc::default(),
            watches: None,
            log,
            dashboard: Dashboard::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            admin::run(listener, Arc::new(admin)).await.map(|never| match never {}).unwrap()
        });
        let site = Self { registry, address, _log: layer, _serving: serving };
        site.replace(workers);
        site
    }

    /// Makes these the workers, all in sync.
    pub fn replace(&self, workers: Vec<Worker>) {
        self.registry.replace_set("s", workers).unwrap();
        for member in self.registry.snapshot().values() {
            member.status.kv.store(Arc::new(KvState::Synced));
        }
    }

    pub fn member(&self, id: u64) -> Arc<Member> {
        self.registry.get(WorkerId(id)).unwrap()
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let client = Client::builder().no_proxy().build().unwrap();
        client.request(method, format!("http://{}{path}", self.address))
    }

    /// As somebody who may.
    pub async fn change(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let request = self.request(method, path).header(CHANGE_HEADER, "1");
        answer(match body {
            Some(body) => request.json(&body),
            None => request,
        })
        .await
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        answer(self.request(Method::GET, path)).await
    }
}

pub async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let answer = request.send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}
