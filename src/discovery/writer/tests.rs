//! Listed and found workers in one fleet.

use super::*;
use crate::{
    config::{Profile, Topology},
    fleet::{Availability, KvSource},
    types::WorkerId,
};

fn set(name: &str) -> Arc<WorkerSet> {
    let profile = Arc::new(Profile::default());
    Arc::new(WorkerSet { name: name.into(), profile, kv_block_size: 16, render_url: None })
}

fn found(key: &str, name: &str) -> Found {
    Found {
        key: key.into(),
        name: name.into(),
        model_name: "m".into(),
        kv: KvSource::Unknown,
        metrics_url: "http://10.0.0.1:8000/metrics".into(),
        http_url: "http://10.0.0.1:8000".into(),
        endpoint: "10.0.0.1:8000".into(),
        topology: Topology { namespace: Some("ns".into()), ..Topology::default() },
        availability: Availability::Ready,
    }
}

fn listed(set: &Arc<WorkerSet>, id: u64, name: &str) -> Worker {
    found("", "").worker(set, &Identity { id: WorkerId(id), name: name.into() })
}

struct Site {
    registry: Arc<Registry>,
    writer: FleetWriter,
}

impl Site {
    fn new() -> Self {
        let registry = Arc::new(Registry::default());
        let writer = FleetWriter::new(registry.clone(), &Metrics::new());
        Self { registry, writer }
    }

    /// set/name, by set.
    fn shown(&self) -> Vec<String> {
        let snapshot = self.registry.snapshot();
        let mut all: Vec<_> =
            snapshot.values().map(|m| format!("{}/{}", m.worker.set.name, m.worker.name)).collect();
        all.sort();
        all
    }

    fn generation(&self, name: &str) -> u64 {
        let snapshot = self.registry.snapshot();
        snapshot.values().find(|m| &*m.worker.name == name).unwrap().generation
    }
}

#[test]
fn one_pod_in_two_sets_is_a_worker_of_each() {
    let site = Site::new();
    site.writer.place(&set("a"), vec![found("uid:8000", "p"), found("uid:8000", "p")]);
    site.writer.place(&set("b"), vec![found("uid:8000", "p")]);
    assert_eq!(site.shown(), ["a/p", "b/ns/p"]);
    let first = site.generation("p");
    site.writer.place(&set("a"), vec![found("uid:8000", "p"), found("other:8000", "q")]);
    assert_eq!(site.generation("p"), first);
    site.writer.remove("a");
    assert_eq!(site.shown(), ["b/ns/p"]);
    // Who has a name keeps it, though a shorter one is free.
    site.writer.place(&set("b"), vec![found("uid:8000", "p")]);
    assert_eq!(site.shown(), ["b/ns/p"]);
}

#[test]
fn found_engines_make_way_for_listed_workers() {
    let site = Site::new();
    site.writer.place(&set("found"), vec![found("u1", "p"), found("u2", "q")]);
    let id_of_q = site.registry.snapshot().values().find(|m| &*m.worker.name == "q").unwrap().worker.id;
    site.writer.place(&set("untouched"), vec![found("u3", "r")]);
    let untouched = site.generation("r");
    let own = set("listed");
    let workers = vec![listed(&own, 1, "p"), listed(&own, id_of_q.0, "s")];
    site.writer.replace(&own, workers.clone()).unwrap();
    assert_eq!(site.shown(), ["found/ns/p", "found/q", "listed/p", "listed/s", "untouched/r"]);
    assert_eq!(site.generation("r"), untouched);
    assert_eq!(site.registry.get(id_of_q).unwrap().worker.name, "s".into());
    // Of two that list the same, the first has it.
    let other = set("other");
    let error = site.writer.replace(&other, vec![listed(&other, 1, "t")]).unwrap_err();
    assert_eq!(error.taken_by, "listed");
}
