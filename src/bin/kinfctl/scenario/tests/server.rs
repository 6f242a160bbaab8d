//! The server's side: a pipeline over its real rooms, made to look like what was drawn.

use std::{sync::Arc, time::Duration};

use kinference::{
    config::{Profile, TokenizeMode},
    fleet::{Availability, ModelCard, Worker},
    load::{Claim, LoadSample, Reservation},
    pipeline::{Incoming, Placement},
    policy::{compile::Weight, eval::Pool},
    types::{Api, Candidate, Rejection, RequestKind, WorkerId},
};
use serde_json::json;

use super::{
    super::{Fleet, WorkerState, fleet},
    Said, by_name_where_equal,
    random::{BLOCK, Drawn, DrawnWorker, Resources, SETS},
    site::{Site, call, profile, worker, worker_set},
    tenths,
};

/// What it decided.
pub type Placed = Result<Placement, Rejection>;

pub struct Server {
    site: Site,
    profile: Profile,
    /// Workers of the draw.
    workers: Vec<(WorkerId, usize)>,
    held: Vec<Reservation>,
    /// So far given to workers: none is given twice.
    last_id: u64,
}

impl Server {
    pub fn new() -> Self {
        let profile = profile("default", |profile| profile.tokenize_mode = TokenizeMode::Local);
        let site = Site::new(std::slice::from_ref(&profile), |_| {});
        Self { site, profile, workers: Vec::new(), held: Vec::new(), last_id: 0 }
    }

    /// Puts the resources in force; their pool.
    pub fn enforce(&self, resources: &Resources) -> Arc<Pool> {
        let resources: Vec<_> =
            resources.iter().map(|(kind, name, spec)| (*kind, name.as_str(), spec.clone())).collect();
        // What a draw names may not be behind its pool.
        self.site.enforce_all(&resources, Weight::Unresolved).pool("chat").unwrap().clone()
    }

    /// Has the fleet be the drawn one.
    pub async fn populate(&mut self, drawn: &Drawn) {
        self.held.clear();
        for (id, _) in self.workers.drain(..) {
            self.site.load.forget(id);
            self.site.index.remove_worker(id);
        }
        SETS.iter().for_each(|set| drop(self.site.registry.replace_set(set, Vec::new()).unwrap()));
        for set in SETS {
            let of_set = drawn.workers.iter().enumerate().filter(|(_, worker)| worker.set == set);
            let members: Vec<_> = of_set.map(|(n, drawn)| self.worker(n, drawn)).collect();
            self.site.registry.replace_set(set, members).unwrap();
        }
        for (id, n) in self.workers.clone() {
            let worker = &drawn.workers[n];
            let card = |model: &&str| ModelCard {
                id: (*model).into(),
                parent: None,
                max_model_len: None,
                owned_by: String::new(),
            };
            let cards = worker.models.iter().map(card).collect();
            self.site.registry.get(id).unwrap().status.models.store(Some(Arc::new(cards)));
            self.site.store(id.0, 0..worker.cached * BLOCK).await;
            for (work, has_token) in &worker.own {
                let claim = Claim { work_ms: Some(f64::from(*work)), streamed: true, ..Claim::default() };
                let mut held = self.site.load.lock().reserve(id, claim);
                if *has_token {
                    held.first_token();
                }
                self.held.push(held);
            }
        }
        self.scrape(drawn).await;
    }

    /// Tells the loads, the oldest first, with the time between them.
    async fn scrape(&self, drawn: &Drawn) {
        let mut by_age: Vec<_> = self.workers.iter().collect();
        by_age.sort_by_key(|(_, n)| std::cmp::Reverse(drawn.workers[*n].age_ms));
        let mut age = by_age.first().map_or(0, |(_, n)| drawn.workers[*n].age_ms);
        for (id, n) in by_age {
            let worker = &drawn.workers[*n];
            tokio::time::advance(Duration::from_millis(age - worker.age_ms)).await;
            age = worker.age_ms;
            let (waiting, running, hundredths) = worker.load;
            let kv_usage = f64::from(hundredths) / 100.0;
            let sample = LoadSample { running: running.into(), waiting: waiting.into(), kv_usage };
            self.site.load.record_scrape(*id, sample);
        }
        tokio::time::advance(Duration::from_millis(age)).await;
    }

    fn worker(&mut self, n: usize, drawn: &DrawnWorker) -> Worker {
        self.last_id += 1;
        let id = WorkerId(self.last_id);
        self.workers.push((id, n));
        let set = worker_set(drawn.set, &self.profile);
        Worker {
            name: format!("w{n}").into(),
            model_name: "".into(),
            availability: if drawn.ready { Availability::Ready } else { Availability::NotReady },
            ..worker(&set, id.0)
        }
    }

    /// What its rooms say of the fleet, and what it decides.
    pub async fn decide(&self, drawn: &Drawn) -> (Fleet, Placed) {
        let described = self.workers.iter().map(|(id, n)| {
            let worker = &drawn.workers[*n];
            (format!("w{n}"), self.described(*id, worker, drawn.blocks))
        });
        let described = described.collect();
        (described, self.site.pipeline.decide(incoming(drawn)).await)
    }

    fn described(&self, id: WorkerId, drawn: &DrawnWorker, blocks: Option<u32>) -> WorkerState {
        let view = self.site.load.lock().view(id);
        let percent = |blocks: u32| f64::from(drawn.cached) / f64::from(blocks) * 100.0;
        fleet::WorkerState {
            worker_set: Some(drawn.set.to_owned()),
            models: Some(drawn.models.iter().map(|model| (*model).to_owned()).collect()),
            ready: Some(drawn.ready),
            queue: Some(view.queue),
            running: Some(view.running),
            kv_cache_use_percent: Some(view.kv_usage * 100.0),
            cached_percent: blocks.map(percent),
            in_flight: Some(view.own_in_flight),
            without_token: Some(view.own_without_token),
            backlog_ms: Some(view.backlog_ms),
            staleness_ms: view.age_ms,
        }
    }
}

fn incoming(drawn: &Drawn) -> Incoming {
    let asked = &drawn.asked;
    let path = asked.path.as_deref().unwrap();
    let mut body = match drawn.blocks {
        Some(blocks) => json!({"prompt": (0..blocks * BLOCK).collect::<Vec<u32>>()}),
        None => json!({"messages": [{"role": "user", "content": "hi"}]}),
    };
    body["model"] = json!(asked.model);
    if let Some(most) = asked.max_tokens {
        body["max_tokens"] = json!(most);
    }
    Incoming {
        kind: RequestKind::of("POST", path),
        tenant: asked.tenant.as_deref().map(Into::into),
        tags: asked.tags.iter().map(|tag| tag.as_str().into()).collect(),
        pool: Some("chat".into()),
        ..call(Api::Completions, body.to_string())
    }
}

/// The name of a candidate with the model that it is asked for.
pub fn full_name(candidate: &Candidate) -> String {
    format!("{}/{}", candidate.target.label(), candidate.model.as_deref().unwrap_or_default())
}

/// What the server says.
pub fn said(placed: &Placed) -> Said {
    let ruled = match placed {
        Ok(placement) => placement.decision.ruled.as_ref(),
        Err(rejection) => rejection.ruled.as_ref(),
    };
    let rules = ruled.map(|ruled| ruled.rules.iter().map(|rule| rule.name()).collect()).unwrap_or_default();
    let rejection = |rejection: &Rejection| (rejection.kind.http_status(), rejection.message.clone());
    let Ok(placement) = placed else {
        let rejected = placed.as_ref().err().map(rejection);
        return Said { rejected, rules, order: Vec::new(), taken: Default::default() };
    };
    let order = placement.decision.candidates.iter();
    let order = order.map(|one| (full_name(one), tenths(one.prediction.ttft_ms)));
    let taken = placement.decision.taken.iter().map(full_name);
    Said { rejected: None, rules, order: by_name_where_equal(order.collect()), taken: taken.collect() }
}
