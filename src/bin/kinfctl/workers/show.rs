//! Workers as people and programs see them: the cells of a table, and an object with the names of the API.

use kinference::serve::proto::{KvState, Load, Topology, Worker, WorkerState};
use serde_json::{Value, json};

use crate::output::{Cell, Column, Shape, Tone};

/// How workers are shown.
pub const WORKERS: Shape<Worker> = Shape {
    columns: &[
        Column::left("WORKER"),
        Column::left("SET"),
        Column::left("ENDPOINT"),
        Column::left("STATE"),
        Column::left("KV EVENTS"),
        Column::right("IN FLIGHT"),
        Column::right("QUEUE"),
        Column::right("RUNNING"),
        Column::right("KV USE"),
        Column::left("WHY"),
    ],
    row,
    object,
};

/// The columns of changes, as they come.
pub const CHANGES: &[Column] = &[
    Column::left("CHANGE").least(7),
    Column::left("WORKER").least(16),
    Column::left("SET").least(12),
    Column::left("ENDPOINT").least(21),
    Column::left("STATE").least(11),
    Column::left("KV EVENTS").least(12),
    Column::right("IN FLIGHT"),
    Column::right("QUEUE"),
    Column::right("RUNNING"),
    Column::right("KV USE"),
    Column::left("WHY"),
];

fn row(worker: &Worker) -> Vec<Cell> {
    let load = worker.load.unwrap_or_default();
    let (events, tone) = kv_events(worker);
    vec![
        worker.worker_id.clone().into(),
        worker.worker_set.clone().into(),
        worker.endpoint.clone().into(),
        state(worker),
        Cell::toned(events, tone),
        load.in_flight.into(),
        load.queue.into(),
        load.running.into(),
        kv_use(&load),
        why(worker).into(),
    ]
}

/// Whether it takes requests.
pub fn is_up(worker: &Worker) -> bool {
    worker.state() == WorkerState::Ready
}

/// Whether it takes requests, and if not, why.
pub fn state(worker: &Worker) -> Cell {
    let tone = match worker.state() {
        WorkerState::Ready if worker.warming => return Cell::toned("warming", Tone::Warning),
        WorkerState::Ready => return Cell::toned("up", Tone::Good),
        WorkerState::Evicted | WorkerState::NotReady | WorkerState::Failing => Tone::Bad,
        WorkerState::Terminating | WorkerState::Cordoned | WorkerState::Asleep => Tone::Warning,
        WorkerState::Unspecified => Tone::Faint,
    };
    Cell::toned(state_name(worker), tone)
}

/// What is wrong with it, in words.
pub fn why(worker: &Worker) -> String {
    worker.wrong.join("; ")
}

/// `ready`, `not_ready`, ...
fn state_name(worker: &Worker) -> String {
    worker.state().as_str_name().trim_start_matches("WORKER_STATE_").to_lowercase()
}

/// Use of the KV cache, in percent.
pub fn kv_use(load: &Load) -> Cell {
    let tone = if load.kv_usage > 0.95 { Tone::Warning } else { Tone::Plain };
    Cell::toned(format!("{:.0}%", load.kv_usage * 100.0), tone)
}

/// `synced`, `live_only`, ...
fn kv_events(worker: &Worker) -> (String, Tone) {
    let state = KvState::try_from(worker.kv_state).unwrap_or_default();
    let tone = match state {
        KvState::Synced => Tone::Good,
        KvState::Evicted | KvState::Disconnected => Tone::Bad,
        KvState::Replaying | KvState::LiveOnly => Tone::Warning,
        KvState::Unknown | KvState::Unspecified => Tone::Faint,
    };
    (state.as_str_name().trim_start_matches("KV_STATE_").to_lowercase(), tone)
}

/// A worker with the names of the API; what is not known is left out.
fn object(worker: &Worker) -> Value {
    let mut out = json!({
        "worker_id": worker.worker_id,
        "worker_num": worker.worker_num,
        "worker_set": worker.worker_set,
        "endpoint": worker.endpoint,
        "models": worker.models,
        "engine": worker.engine,
        "state": state_name(worker),
        "wrong": worker.wrong,
        "kv_state": kv_events(worker).0,
        "evicted_because": worker.evicted_because,
        "cordoned": worker.cordoned,
        "asleep": worker.asleep,
        "terminating": worker.terminating,
        "failing": worker.failing,
        "warming": worker.warming,
        "load": worker.load.as_ref().map(load),
        "gpu_blocks": worker.gpu_blocks,
        "lower_blocks": worker.lower_blocks,
        "topology": worker.topology.as_ref().map(topology),
    });
    drop_unknown(&mut out);
    out
}

fn load(load: &Load) -> Value {
    json!({
        "in_flight": load.in_flight,
        "without_token": load.without_token,
        "backlog_ms": load.backlog_ms,
        "queue": load.queue,
        "running": load.running,
        "kv_usage": load.kv_usage,
    })
}

fn topology(place: &Topology) -> Value {
    let mut out = json!({
        "pod_name": place.pod_name,
        "namespace": place.namespace,
        "node_name": place.node_name,
        "node_ip": place.node_ip,
        "pod_ip": place.pod_ip,
        "availability_zone": place.availability_zone,
        "instance_type": place.instance_type,
    });
    drop_unknown(&mut out);
    out
}

fn drop_unknown(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null() && value != "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_documented() {
        let doc = include_str!("../../../../docs/kinfctl.md");
        let row = doc.lines().find(|line| line.starts_with("| STATE |")).unwrap();
        let states = (0..).map_while(|number| WorkerState::try_from(number).ok());
        let warming = Worker { state: WorkerState::Ready.into(), warming: true, ..Worker::default() };
        let all = states.map(|state| Worker { state: state.into(), ..Worker::default() });
        for worker in all.chain([warming]) {
            let shown = crate::output::Line(vec![state(&worker)]).painted(false);
            assert!(row.contains(&format!("`{shown}`")), "{shown} is not in {row}");
        }
    }
}
