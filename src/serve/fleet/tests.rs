//! A watcher that applies what it is told holds the fleet, however slow it is.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};

use super::{
    super::proto::{Worker, WorkerState, watch_workers_response::Update},
    *,
};
use crate::{
    cache::BlockCounts,
    config::Topology,
    fleet::{Availability, KvState},
    roster::{Health, Load, State},
    types::{RemovedReason, WorkerId},
};

/// Worker `id` of set `a` or `b`, with something that changes.
fn worker(id: u64, set: &str, running: u8) -> WorkerView {
    let load = Load {
        in_flight: 0,
        without_token: 0,
        backlog_ms: 0.0,
        queue: 0.0,
        running: f64::from(running),
        kv_usage: 0.0,
    };
    WorkerView {
        id: WorkerId(id),
        name: format!("w{id}").into(),
        generation: 1,
        workerset: set.into(),
        endpoint: "10.0.0.1:8000".into(),
        models: vec!["m".into()],
        engine: None,
        kv_events: KvState::Evicted("why".into()),
        cordoned: false,
        asleep: false,
        availability: Availability::Ready,
        failing: false,
        warming: false,
        removed: None,
        health: Health { state: State::Ok, why: Vec::new() },
        load,
        blocks: BlockCounts::default(),
        degraded: Vec::new(),
        topology: Topology::default(),
    }
}

fn told(version: u64, workers: &[WorkerView]) -> Told<Vec<WorkerView>> {
    Told { version, value: Arc::new(workers.to_vec()) }
}

/// Takes all that is pending; the number of snapshots among it.
fn drain(watch: &mut Watch, held: &mut BTreeMap<String, Worker>) -> usize {
    let mut snapshots = 0;
    while let Some(message) = watch.next() {
        match message.update.unwrap() {
            Update::Snapshot(all) => {
                snapshots += 1;
                *held = all.workers.into_iter().map(|w| (w.worker_id.clone(), w)).collect();
            }
            Update::Changed(worker) => {
                held.insert(worker.worker_id.clone(), worker);
            }
            Update::Removed(name) => assert!(held.remove(&name).is_some(), "{name} was not there"),
        }
    }
    snapshots
}

fn fleet() -> impl Strategy<Value = Vec<WorkerView>> {
    vec(prop_oneof![Just(None), (any::<bool>(), 0..3u8).prop_map(Some)], 5).prop_map(|slots| {
        let present = slots.into_iter().enumerate().filter_map(|(id, slot)| Some((id as u64, slot?)));
        present.map(|(id, (a, running))| worker(id, if a { "a" } else { "b" }, running)).collect()
    })
}

proptest! {
    #[test]
    fn what_is_told_adds_up(looks in vec((fleet(), any::<bool>()), 1..12), set in "a?") {
        let mut watch = Watch::new(Scope::of(set.clone()));
        let mut held = BTreeMap::new();
        let (mut missed, mut first) = (false, true);
        for (version, (workers, slow)) in looks.iter().enumerate() {
            if *slow && !first {
                missed = true;
                continue;
            }
            watch.see(&told(version as u64, workers));
            let snapshots = drain(&mut watch, &mut held);
            prop_assert_eq!(snapshots, usize::from(first || missed));
            (first, missed) = (false, false);
            let scope = Scope::of(set.clone());
            let wanted: Vec<Worker> = workers.iter().filter(|w| scope.has(w)).map(Into::into).collect();
            prop_assert_eq!(held.values().cloned().collect::<Vec<_>>(), wanted);
        }
    }
}

#[test]
fn what_did_not_change_is_not_told() {
    let mut watch = Watch::new(Scope::of(String::new()));
    let first = told(1, &[worker(1, "a", 0), worker(2, "b", 0)]);
    assert!(watch.see(&first));
    assert_eq!(drain(&mut watch, &mut BTreeMap::new()), 1);
    assert!(!watch.see(&first) && watch.next().is_none());
    watch.see(&told(2, &[worker(1, "a", 0), worker(2, "b", 1)]));
    let Some(Update::Changed(changed)) = watch.next().and_then(|m| m.update) else { panic!() };
    assert_eq!((changed.worker_id.as_str(), changed.evicted_because.as_str()), ("w2", "why"));
    assert!(watch.next().is_none());
}

#[test]
fn a_state_is_called_as_in_the_metrics() {
    use RemovedReason::{Asleep, Cordoned, Evicted, Failing, NotReady, OtherModel, Terminating};
    for reason in [Evicted, NotReady, Terminating, Cordoned, Asleep, Failing] {
        let name = WorkerState::from(Some(reason)).as_str_name().to_lowercase();
        assert_eq!(name, format!("worker_state_{}", reason.label()));
    }
    assert_eq!(WorkerState::from(None), WorkerState::Ready);
    assert_eq!(WorkerState::from(Some(OtherModel)), WorkerState::Unspecified, "that is of one request");
}
