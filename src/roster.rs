//! The fleet as it is shown to people and programs: every worker with its state, load, blocks and what is wrong with it.
//!
//! One view for the admin endpoint and the native API. Times in milliseconds, shares in 0 to 1.

mod gauges;
mod health;

use std::sync::{Arc, atomic::Ordering};

use serde::Serialize;

use crate::{
    cache::{BlockCounts, CacheIndex},
    config::Topology,
    fleet::{Availability, KvState, Member, Registry, Snapshot},
    load::{LoadTable, LoadView},
    types::{Degradation, RemovedReason, WorkerId},
};

pub use health::{Cordoned, Health, State, Why};

/// Where the view comes from. Cheap to clone.
#[derive(Clone)]
pub struct Roster {
    /// Members and their status.
    pub registry: Arc<Registry>,
    /// Blocks held.
    pub index: Arc<CacheIndex>,
    /// Load.
    pub load: Arc<LoadTable>,
    /// Workers answer without ingest.
    pub mock: bool,
}

/// One worker as it is now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerView {
    /// `worker_id_num`
    pub id: WorkerId,
    /// `worker_id_str`
    pub name: Arc<str>,
    /// Its life: another one once it is another engine, or has left and come back.
    pub generation: u64,
    /// Its worker set.
    pub workerset: Arc<str>,
    /// `ip:port` that picks name.
    pub endpoint: Arc<str>,
    /// Models served now, adapters included.
    pub models: Vec<Arc<str>>,
    /// What its `/v1/models` calls the engine; `None` until it has answered.
    pub engine: Option<String>,
    /// How far its KV events can be trusted.
    pub kv_events: KvState,
    /// It is taken out of new picks, by its description or by hand.
    pub cordoned: bool,
    /// The engine sleeps.
    pub asleep: bool,
    /// Whether discovery says that it takes requests.
    pub availability: Availability,
    /// It keeps failing.
    pub failing: bool,
    /// It has answered nothing yet: while others have, it gets a few requests at a time.
    pub warming: bool,
    /// Why it gets no requests now, whatever they ask for; `None`: it takes some.
    pub removed: Option<RemovedReason>,
    /// How well it is, and what is wrong with it, in words.
    pub health: Health,
    /// Its load.
    pub load: Load,
    /// Blocks held.
    pub blocks: BlockCounts,
    /// What predictions for it lack.
    pub degraded: Vec<&'static str>,
    /// Where it runs.
    pub topology: Topology,
}

/// The load of one worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Our own requests in flight.
    pub in_flight: u32,
    /// Of these, without a first token.
    pub without_token: u32,
    /// Own prefill work that waits, in milliseconds.
    pub backlog_ms: f64,
    /// Requests waiting.
    pub queue: f64,
    /// Requests running.
    pub running: f64,
    /// KV-cache use, 0 to 1.
    pub kv_usage: f64,
}

impl Roster {
    /// Every worker, ordered by id.
    pub fn workers(&self) -> Vec<WorkerView> {
        let (fleet, loads) = self.loads();
        fleet.values().zip(loads).map(|(member, view)| self.worker(member, view)).collect()
    }

    /// The fleet, and the load of each: all at one instant, and no longer under the lock of picks than that takes.
    fn loads(&self) -> (Snapshot, Vec<LoadView>) {
        let fleet = self.registry.snapshot();
        let load = self.load.lock();
        let loads = fleet.keys().map(|id| load.view(*id)).collect();
        drop(load);
        (fleet, loads)
    }

    fn worker(&self, member: &Member, view: LoadView) -> WorkerView {
        let (worker, status) = (&member.worker, &member.status);
        let kv_events = KvState::clone(&status.kv.load());
        let cards = status.models.load();
        let lacks = view.freshness.lacks().into_iter().chain(kv_events.lacks());
        WorkerView {
            id: worker.id,
            name: worker.name.clone(),
            generation: member.generation,
            workerset: worker.set.name.clone(),
            endpoint: worker.endpoint.clone(),
            models: member.model_names(),
            engine: cards.as_ref().and_then(|cards| cards.first().map(|card| card.owned_by.clone())),
            cordoned: member.cordoned(),
            asleep: status.asleep.load(Ordering::Relaxed),
            availability: worker.availability,
            failing: member.failing(),
            warming: member.warming(),
            removed: member.unavailable(),
            health: health::health(member, &view, self.mock),
            degraded: lacks.map(Degradation::label).collect(),
            kv_events,
            load: Load {
                in_flight: view.own_in_flight,
                without_token: view.own_without_token,
                backlog_ms: view.backlog_ms,
                queue: view.queue,
                running: view.running,
                kv_usage: view.kv_usage,
            },
            blocks: self.index.blocks(worker.id),
            topology: worker.topology.clone(),
        }
    }
}
