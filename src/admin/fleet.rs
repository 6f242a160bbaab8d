//! `/api/fleet`: every worker with its state, load, blocks and what is wrong with it. JSON.

use std::sync::{Arc, atomic::Ordering};

use serde::Serialize;

use crate::{
    cache::BlockCounts,
    config::Topology,
    fleet::{KvState, Member},
    load::LoadView,
    types::{Degradation, WorkerId},
};

use super::Admin;

/// The whole fleet.
#[derive(Debug, Serialize)]
pub struct FleetView {
    workers: Vec<WorkerView>,
}

#[derive(Debug, Serialize)]
struct WorkerView {
    id: WorkerId,
    name: Arc<str>,
    workerset: Arc<str>,
    endpoint: Arc<str>,
    models: Vec<Arc<str>>,
    engine: Option<String>,
    kv_events: KvState,
    asleep: bool,
    terminating: bool,
    failing: bool,
    load: Load,
    blocks: BlockCounts,
    degraded: Vec<&'static str>,
    topology: Topology,
}

#[derive(Debug, Serialize)]
struct Load {
    in_flight: u32,
    without_token: u32,
    backlog_ms: f64,
    queue: f64,
    running: f64,
    kv_usage: f64,
}

pub(super) fn snapshot(admin: &Admin) -> FleetView {
    let fleet = admin.registry.snapshot();
    // All at one instant, and no longer under the lock of picks than that takes.
    let loads: Vec<LoadView> = {
        let load = admin.load.lock();
        fleet.keys().map(|id| load.view(*id)).collect()
    };
    let workers = fleet.values().zip(loads).map(|(member, view)| worker(admin, member, view));
    FleetView { workers: workers.collect() }
}

fn worker(admin: &Admin, member: &Member, view: LoadView) -> WorkerView {
    let (worker, status) = (&member.worker, &member.status);
    let kv_events = KvState::clone(&status.kv.load());
    let engine = status.models.load().as_ref().and_then(|cards| cards.first().map(|c| c.owned_by.clone()));
    WorkerView {
        id: worker.id,
        name: worker.name.clone(),
        workerset: worker.set.name.clone(),
        endpoint: worker.endpoint.clone(),
        models: member.model_names(),
        engine,
        asleep: status.asleep.load(Ordering::Relaxed),
        terminating: worker.terminating,
        failing: member.failing(),
        degraded: view
            .freshness
            .lacks()
            .into_iter()
            .chain(kv_events.lacks())
            .map(Degradation::label)
            .collect(),
        kv_events,
        load: Load {
            in_flight: view.own_in_flight,
            without_token: view.own_without_token,
            backlog_ms: view.backlog_ms,
            queue: view.queue,
            running: view.running,
            kv_usage: view.kv_usage,
        },
        blocks: admin.index.blocks(worker.id),
        topology: worker.topology.clone(),
    }
}
