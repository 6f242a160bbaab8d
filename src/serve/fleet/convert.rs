//! Workers as the native API shows them.

use crate::{
    config::Topology,
    fleet::{Availability, KvState},
    roster::{Load, WorkerView},
    serve::proto,
    types::RemovedReason,
};

impl From<&WorkerView> for proto::Worker {
    fn from(view: &WorkerView) -> Self {
        let evicted = match &view.kv_events {
            KvState::Evicted(why) => why.clone(),
            _ => String::new(),
        };
        Self {
            worker_id: view.name.to_string(),
            worker_num: view.id.0,
            worker_set: view.workerset.to_string(),
            endpoint: view.endpoint.to_string(),
            models: view.models.iter().map(ToString::to_string).collect(),
            engine: view.engine.clone().unwrap_or_default(),
            kv_state: proto::KvState::from(&view.kv_events).into(),
            evicted_because: evicted,
            asleep: view.asleep,
            terminating: view.availability == Availability::Terminating,
            failing: view.failing,
            load: Some((&view.load).into()),
            gpu_blocks: view.blocks.gpu as u64,
            lower_blocks: view.blocks.lower as u64,
            cordoned: view.cordoned,
            warming: view.warming,
            state: proto::WorkerState::from(view.removed).into(),
            wrong: view.health.why.iter().map(ToString::to_string).collect(),
            topology: (view.topology != Topology::default()).then(|| (&view.topology).into()),
        }
    }
}

impl From<Option<RemovedReason>> for proto::WorkerState {
    fn from(removed: Option<RemovedReason>) -> Self {
        match removed {
            None => Self::Ready,
            Some(RemovedReason::Evicted) => Self::Evicted,
            Some(RemovedReason::NotReady) => Self::NotReady,
            Some(RemovedReason::Terminating) => Self::Terminating,
            Some(RemovedReason::Cordoned) => Self::Cordoned,
            Some(RemovedReason::Asleep) => Self::Asleep,
            Some(RemovedReason::Failing) => Self::Failing,
            // Those are of one request.
            Some(_) => Self::Unspecified,
        }
    }
}

impl From<&KvState> for proto::KvState {
    fn from(state: &KvState) -> Self {
        match state {
            KvState::Unknown => Self::Unknown,
            KvState::Replaying => Self::Replaying,
            KvState::Synced => Self::Synced,
            KvState::LiveOnly => Self::LiveOnly,
            KvState::Disconnected => Self::Disconnected,
            KvState::Evicted(_) => Self::Evicted,
        }
    }
}

impl From<&Load> for proto::Load {
    fn from(load: &Load) -> Self {
        Self {
            in_flight: load.in_flight,
            without_token: load.without_token,
            backlog_ms: load.backlog_ms,
            queue: load.queue,
            running: load.running,
            kv_usage: load.kv_usage,
        }
    }
}

impl From<&Topology> for proto::Topology {
    fn from(topology: &Topology) -> Self {
        let text = |label: &Option<String>| label.clone().unwrap_or_default();
        Self {
            pod_name: text(&topology.pod_name),
            namespace: text(&topology.namespace),
            node_name: text(&topology.node_name),
            node_ip: text(&topology.node_ip),
            pod_ip: text(&topology.pod_ip),
            availability_zone: text(&topology.availability_zone),
            instance_type: text(&topology.instance_type),
        }
    }
}
