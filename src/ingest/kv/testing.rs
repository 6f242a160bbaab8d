//! A member for unit tests of this room.

use std::sync::Arc;

use crate::{
    config::{Profile, Topology},
    fleet::{Availability, KvSource, Member, Worker, WorkerSet},
    types::WorkerId,
};

/// A worker of which nothing is known.
pub fn member() -> Arc<Member> {
    let set = WorkerSet {
        name: "set".into(),
        profile: Arc::new(Profile::default()),
        kv_block_size: 16,
        render_url: None,
    };
    let worker = Worker {
        id: WorkerId(1),
        name: "w".into(),
        set: Arc::new(set),
        model_name: "m".into(),
        kv: KvSource::Unknown,
        metrics_url: None,
        http_url: None,
        endpoint: "127.0.0.1:8000".into(),
        topology: Topology::default(),
        availability: Availability::Ready,
    };
    Arc::new(Member { worker, generation: 1, status: Arc::default() })
}
