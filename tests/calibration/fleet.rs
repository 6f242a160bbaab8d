//! Three simulated engines behind the real load table, prediction and pick, under a virtual clock.
//!
//! A discrete-event loop: arrivals, ends of engine steps, and scrapes every second. Nothing waits in real time.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kinference::{
    config::{PickerConfig, PredictorConfig},
    load::{Claim, LoadSample, LoadTable, Pick, Prefill, Reservation},
    observe::Metrics,
    route::{
        Cost,
        calibrate::{Features, Learner, Observation, coefficients, predict_calibrated, with_coefficients},
        pick, predict, rank,
    },
    types::{BlockKeys, Candidate, Overlap, SequenceHash, Target, WorkerId, WorkerTarget},
};
use rand::{SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use crate::{
    engine::{
        CacheEvent, Engine, EngineConfig,
        hash::{BlockHash, Salts},
        sequence::{Arrival, RequestId, Vocabulary},
        timing::Preset,
    },
    traffic::Request,
};

const BLOCK: usize = 16;
pub const ENGINES: usize = 3;
const SEED: u64 = 1;
const POLL: Duration = Duration::from_secs(1);

/// Which predictions requests are routed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routed {
    Configured,
    Calibrated,
}

/// A request whose first token was seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub observed_ms: f64,
    pub configured_ms: f64,
    pub calibrated_ms: f64,
}

/// An engine, and what its KV events say that it holds.
struct Server {
    engine: Engine,
    held: HashMap<BlockHash, u32>,
    step_ends: Option<Instant>,
}

/// A request that was sent on.
struct Flight {
    at: Instant,
    reservation: Reservation,
    features: Features,
    configured_ms: f64,
    calibrated_ms: f64,
}

/// The engines, and the router before them.
pub struct Fleet {
    servers: Vec<Server>,
    table: Arc<LoadTable>,
    flights: HashMap<RequestId, Flight>,
    configured: PredictorConfig,
    learner: Learner,
    routed: Routed,
    rng: StdRng,
    pub seen: Vec<Seen>,
}

impl Fleet {
    pub fn new(preset: Preset, routed: Routed) -> Self {
        let profile = preset.profile();
        let engine = || {
            let config = EngineConfig {
                block_size: BLOCK,
                num_blocks: (profile.cache_tokens / BLOCK as u64) as u32,
                max_num_seqs: 64,
                max_batched_tokens: 2048,
                timing: profile.timing,
                seed: SEED,
            };
            Engine::new(config, Vocabulary::new(&[900, 901, 902]).unwrap())
        };
        let configured = PredictorConfig::default();
        Self {
            servers: (0..ENGINES)
                .map(|_| Server { engine: engine(), held: HashMap::new(), step_ends: None })
                .collect(),
            table: LoadTable::new(POLL, &Metrics::new()),
            flights: HashMap::new(),
            learner: Learner::new(coefficients(&configured)),
            configured,
            routed,
            rng: StdRng::seed_from_u64(SEED),
            seen: Vec::new(),
        }
    }

    /// Serves all requests; returns when the last one has its first token.
    pub async fn serve(&mut self, requests: Vec<Request>) {
        let start = Instant::now();
        let mut scrape = start;
        let count = requests.len();
        let mut arrivals = (0..).zip(requests).peekable();
        while self.seen.len() < count {
            let arrival = arrivals.peek().map(|(_, request)| start + Duration::from_secs_f64(request.at));
            let step = self.servers.iter().filter_map(|server| server.step_ends).min();
            let next = [Some(scrape), arrival, step].into_iter().flatten().min().unwrap();
            tokio::time::advance(next.saturating_duration_since(Instant::now())).await;
            if step == Some(next) {
                self.finish_steps(next);
            } else if scrape == next {
                self.scrape();
                scrape += POLL;
            } else if let Some((id, request)) = arrivals.next() {
                self.route(RequestId(id), request);
            }
            self.begin_steps(next);
        }
    }

    fn begin_steps(&mut self, now: Instant) {
        for server in self.servers.iter_mut().filter(|server| server.step_ends.is_none()) {
            server.step_ends = server.engine.begin_step().map(|took| now + took);
        }
    }

    fn finish_steps(&mut self, now: Instant) {
        let mut outputs = Vec::new();
        for server in self.servers.iter_mut().filter(|server| server.step_ends == Some(now)) {
            server.step_ends = None;
            let done = server.engine.finish_step();
            done.events.into_iter().for_each(|event| server.hears(event));
            outputs.extend(done.outputs);
        }
        for output in outputs {
            let flight = self.flights.get_mut(&output.id).unwrap();
            if !flight.reservation.had_token() {
                flight.reservation.first_token();
                let (configured_ms, calibrated_ms) = (flight.configured_ms, flight.calibrated_ms);
                let observed_ms = (now - flight.at).as_secs_f64() * 1e3;
                let features = flight.features;
                let observation = Observation { features, configured_ms, calibrated_ms, observed_ms };
                self.learner.observe(&observation);
                self.seen.push(Seen { observed_ms, configured_ms, calibrated_ms });
            }
            if output.finished {
                self.flights.remove(&output.id);
            }
        }
    }

    fn scrape(&mut self) {
        for (server, id) in self.servers.iter().zip(0..) {
            let engine = &server.engine;
            let sample = LoadSample {
                running: engine.running() as f64,
                waiting: engine.waiting() as f64,
                kv_usage: engine.cache_usage(),
            };
            self.table.record_scrape(WorkerId(id), sample);
        }
    }

    fn route(&mut self, id: RequestId, request: Request) {
        let table = self.table.clone();
        let mut load = table.lock();
        let prompt = Prompt::of(&request.prompt);
        let theta = *self.learner.theta();
        let fitted = with_coefficients(&self.configured, &theta);
        let mut candidates: Vec<_> =
            (0..ENGINES).map(|index| self.candidate(index, &prompt, (&load, &fitted))).collect();
        rank(&mut candidates);
        let choice = pick(&PickerConfig::default(), &candidates, None, &mut self.rng).unwrap();
        let chosen = &candidates[choice.chosen];
        let worker = chosen.target.worker().unwrap().id;
        let ahead = load.view(worker).ahead;
        let in_terms = |p: &PredictorConfig| Features::of(&chosen.prediction, p, &ahead);
        let of_router = chosen.prediction.ttft_ms;
        let calibrated_ms = in_terms(&fitted).predict(&theta);
        let configured_ms = match self.routed {
            Routed::Configured => of_router,
            Routed::Calibrated => in_terms(&self.configured).predict(&coefficients(&self.configured)),
        };
        let same = self.routed == Routed::Configured
            || (of_router - calibrated_ms).abs() <= 1e-6 * of_router.max(1.0);
        assert!(same, "{of_router} {calibrated_ms}");
        let claim = Claim {
            work_ms: Some(chosen.prediction.prefill_ms),
            prefill: Prefill::of(chosen.prediction.uncached_blocks(), chosen.prediction.blocks),
            keys: Some(prompt.keys.sequence.clone()),
            streamed: true,
        };
        let flight = Flight {
            at: Instant::now(),
            features: in_terms(&fitted),
            reservation: load.reserve(worker, claim),
            configured_ms,
            calibrated_ms,
        };
        self.flights.insert(id, flight);
        let arrival =
            Arrival { id, prompt: request.prompt, max_tokens: request.answer, salts: Salts::default() };
        self.servers[worker.0 as usize].engine.submit(arrival);
    }

    fn candidate(
        &self,
        index: usize,
        prompt: &Prompt,
        (load, fitted): (&Pick<'_>, &PredictorConfig),
    ) -> Candidate {
        let worker = WorkerId(index as u64);
        let held = &self.servers[index].held;
        let is_held = |hash: &&BlockHash| held.get(hash).is_some_and(|copies| *copies > 0);
        let confirmed = prompt.hashes.iter().take_while(is_held).count() as u32;
        let expected = load.expected(worker, &prompt.keys, confirmed);
        let overlap = Overlap { confirmed, any_tier: confirmed, expected };
        let view = load.view(worker);
        let cost = Cost {
            predictor: &self.configured,
            inflight_tracking: true,
            blocks: prompt.keys.tokens.div_ceil(BLOCK),
            overlap,
            load: &view,
        };
        let prediction = match self.routed {
            Routed::Configured => predict(cost),
            Routed::Calibrated => predict_calibrated(cost, fitted),
        };
        let own_in_flight = view.own_in_flight;
        Candidate { prediction, overlap, own_in_flight, ..Candidate::new(target(index), None) }
    }
}

impl Server {
    fn hears(&mut self, event: CacheEvent) {
        match event {
            CacheEvent::Stored(stored) => {
                stored.hashes.iter().for_each(|hash| *self.held.entry(*hash).or_default() += 1);
            }
            CacheEvent::Removed(hash) => *self.held.entry(hash).or_default() -= 1,
            CacheEvent::Cleared => self.held.clear(),
        }
    }
}

fn target(index: usize) -> Target {
    Target::Worker(WorkerTarget {
        id: WorkerId(index as u64),
        name: format!("w{index}").into(),
        workerset: "set".into(),
        endpoint: format!("10.0.0.{index}:8000").into(),
    })
}

/// A prompt in blocks.
struct Prompt {
    keys: BlockKeys,
    hashes: Vec<BlockHash>,
}

impl Prompt {
    fn of(tokens: &[u32]) -> Self {
        let mut last = BlockHash::root(SEED);
        let mut next = |(i, block): (usize, &[u32])| {
            last = last.next(block, &Salts::default(), i == 0);
            last
        };
        let hashes: Vec<BlockHash> = tokens.chunks_exact(BLOCK).enumerate().map(&mut next).collect();
        let sequence = hashes.iter().map(|hash| SequenceHash(hash.int())).collect();
        let keys = BlockKeys { block_size: BLOCK as u32, tokens: tokens.len(), blocks: [].into(), sequence };
        Self { keys, hashes }
    }
}
