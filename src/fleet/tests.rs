//! The registry: ids, generations, changes; and what a member's status makes of what happened to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use proptest::prelude::*;

use super::*;
use crate::{
    config::{Profile, Topology},
    types::{RemovedReason, WorkerId},
};

pub(super) fn set(name: &str) -> Arc<WorkerSet> {
    let profile = Arc::new(Profile::default());
    Arc::new(WorkerSet { name: name.into(), profile, kv_block_size: 16, render_url: None })
}

/// A worker whose name follows from its id; `port` is what may change about it.
pub(super) fn worker(set: &Arc<WorkerSet>, id: u64, port: u16) -> Worker {
    Worker {
        id: WorkerId(id),
        name: format!("w{id}").into(),
        set: set.clone(),
        model_name: "m".into(),
        kv: KvSource::Unknown,
        metrics_url: None,
        http_url: None,
        endpoint: format!("10.0.0.1:{port}").into(),
        topology: Topology::default(),
        availability: Availability::Ready,
    }
}

/// `+id` and `-id` in order.
fn shown(events: &[FleetEvent]) -> Vec<String> {
    let show = |event: &FleetEvent| match event {
        FleetEvent::Added(m) => format!("+{}", m.worker.id),
        FleetEvent::Removed(m) => format!("-{}", m.worker.id),
    };
    events.iter().map(show).collect()
}

#[test]
fn a_set_is_replaced_without_touching_what_is_equal() {
    let (registry, a) = (Registry::default(), set("a"));
    let replace = |workers| shown(&registry.replace_set("a", workers).unwrap());
    assert_eq!(replace(vec![worker(&a, 2, 1), worker(&a, 1, 1)]), ["+1", "+2"]);
    let first = registry.get(WorkerId(1)).unwrap();
    assert_eq!(replace(vec![worker(&a, 1, 1), worker(&a, 3, 1), worker(&a, 2, 9)]), ["-2", "+2", "+3"]);
    assert!(Arc::ptr_eq(&first, &registry.get(WorkerId(1)).unwrap()));
    assert_eq!(&*registry.get(WorkerId(2)).unwrap().worker.endpoint, "10.0.0.1:9");
    // An equal set that was made anew changes nothing.
    let again = set("a");
    let same = vec![worker(&again, 1, 1), worker(&again, 2, 9), worker(&again, 3, 1)];
    assert_eq!(replace(same), [""; 0]);
    assert_eq!(replace(vec![]), ["-1", "-2", "-3"]);
    // Who comes back is somebody new.
    replace(vec![worker(&a, 1, 1)]);
    assert!(registry.get(WorkerId(1)).unwrap().generation > first.generation);
}

#[test]
fn what_does_not_make_another_engine_changes_in_place() {
    let (registry, a) = (Registry::default(), set("a"));
    registry.replace_set("a", vec![worker(&a, 1, 1), worker(&a, 2, 1)]).unwrap();
    let before = registry.get(WorkerId(1)).unwrap();
    let untouched = registry.get(WorkerId(2)).unwrap();
    before.status.kv.store(Arc::new(KvState::Synced));
    let mut watcher = registry.watch();
    let rendered = WorkerSet { render_url: Some("http://r".into()), ..WorkerSet::clone(&a) };
    let zone = Topology { availability_zone: Some("z".into()), ..Topology::default() };
    let changes = [
        Worker { availability: Availability::NotReady, ..worker(&a, 1, 1) },
        Worker { availability: Availability::Cordoned, ..worker(&a, 1, 1) },
        Worker { topology: zone, ..worker(&a, 1, 1) },
        worker(&Arc::new(rendered), 1, 1),
    ];
    for changed in changes {
        let events = registry.replace_set("a", vec![changed.clone(), worker(&a, 2, 1)]).unwrap();
        assert_eq!(shown(&events), [""; 0]);
        assert!(watcher.has_changed().unwrap(), "{changed:?}");
        watcher.mark_unchanged();
        let now = registry.get(WorkerId(1)).unwrap();
        assert_eq!((now.generation, &now.worker), (before.generation, &changed));
        assert!(Arc::ptr_eq(&now.status, &before.status));
        assert!(Arc::ptr_eq(&registry.get(WorkerId(2)).unwrap(), &untouched));
    }
    let others = [
        Worker { model_name: "x".into(), ..worker(&a, 1, 1) },
        Worker { kv: KvSource::Engine, ..worker(&a, 1, 1) },
        Worker { http_url: Some("http://a".into()), ..worker(&a, 1, 1) },
        Worker { metrics_url: Some("http://a".into()), ..worker(&a, 1, 1) },
        Worker { name: "x".into(), ..worker(&a, 1, 1) },
        worker(&a, 1, 2),
        worker(&Arc::new(WorkerSet { kv_block_size: 32, ..WorkerSet::clone(&a) }), 1, 2),
    ];
    for other in others {
        let events = registry.replace_set("a", vec![other, worker(&a, 2, 1)]).unwrap();
        assert_eq!(shown(&events), ["-1", "+1"]);
    }
}

#[test]
fn a_set_is_awaited_until_it_is_told_and_gone_once_it_is_removed() {
    let (registry, a) = (Registry::default(), set("a"));
    registry.await_more(true);
    registry.await_set(&a.name);
    let awaited = registry.described();
    assert!(awaited.more && awaited.sets.is_empty() && awaited.awaited.contains("a"));
    let mut watcher = registry.watch();
    registry.replace_set("a", vec![]).unwrap();
    assert!(watcher.has_changed().unwrap(), "told as empty");
    registry.await_set(&a.name);
    registry.await_more(false);
    let told = registry.described();
    assert!(!told.more && told.sets.contains("a") && told.awaited.is_empty());
    registry.replace_set("a", vec![worker(&a, 1, 1)]).unwrap();
    watcher.mark_unchanged();
    assert_eq!(shown(&registry.remove_set("a")), ["-1"]);
    assert!(watcher.has_changed().unwrap());
    assert_eq!(registry.described(), Described::default());
    watcher.mark_unchanged();
    assert!(registry.remove_set("a").is_empty() && !watcher.has_changed().unwrap());
}

#[test]
fn a_model_that_is_not_configured_is_learned() {
    let unnamed = Worker { model_name: "".into(), ..worker(&set("a"), 1, 1) };
    let member = Member { worker: unnamed, generation: 1, status: Arc::default() };
    assert!(member.model().is_none() && member.model_names().is_empty() && member.serves("").is_none());
    let card = |id: &str, parent: Option<&str>| ModelCard {
        id: id.into(),
        parent: parent.map(Arc::from),
        max_model_len: None,
        owned_by: "vllm".into(),
    };
    member.status.models.store(Some(Arc::new(vec![card("lora", Some("m")), card("m", None)])));
    assert_eq!(member.model().as_deref(), Some("m"));
}

#[test]
fn watchers_wake_at_changes_only() {
    let (registry, a) = (Registry::default(), set("a"));
    let mut watcher = registry.watch();
    registry.replace_set("a", vec![worker(&a, 1, 1)]).unwrap();
    assert!(watcher.has_changed().unwrap());
    watcher.mark_unchanged();
    registry.replace_set("a", vec![worker(&a, 1, 1)]).unwrap();
    assert!(!watcher.has_changed().unwrap());
}

#[test]
fn an_id_or_a_name_of_another_set_is_refused_whole() {
    let (registry, a, b) = (Registry::default(), set("a"), set("b"));
    registry.replace_set("a", vec![worker(&a, 1, 1)]).unwrap();
    let same_name = Worker { id: WorkerId(5), ..worker(&b, 1, 2) };
    for taken in [worker(&b, 1, 2), same_name] {
        let what = format!("`w1` ({})", taken.id);
        let refused = registry.replace_set("b", vec![worker(&b, 2, 1), taken]).unwrap_err();
        assert_eq!(refused, IdTaken { set: "b".into(), what, taken_by: "a".into() });
        assert_eq!(registry.snapshot().len(), 1);
    }
    let twice = registry.replace_set("b", vec![worker(&b, 2, 1), worker(&b, 2, 2)]).unwrap_err();
    assert_eq!(twice.taken_by, "b");
}

#[test]
fn failing_needs_responses_in_a_row_or_all_polls() {
    let url = || Some("http://10.0.0.1:1".to_owned());
    let member = |metrics_url, http_url| Member {
        worker: Worker { metrics_url, http_url, ..worker(&set("a"), 1, 1) },
        generation: 1,
        status: Arc::default(),
    };
    let both = member(url(), url());
    let status = &both.status;
    assert_eq!(
        [true, true, false, true, true, true, true].map(|failed| status.record(failed)),
        [None, None, None, None, None, Some(Turn::BeganToFail), None]
    );
    assert!(both.failing() && status.needs_probe());
    assert_eq!([false, false].map(|failed| status.record(failed)), [Some(Turn::Recovered), None]);
    assert!(!both.failing() && !status.probed());
    status.missed_scrapes.store(MISSED_POLLS_TO_FAIL, Ordering::Relaxed);
    assert!(!both.failing());
    status.missed_models.store(MISSED_POLLS_TO_FAIL, Ordering::Relaxed);
    assert!(both.failing() && !status.needs_probe());

    // One that has a single URL fails by that alone; one that is polled nowhere, by its responses alone.
    let alone = member(url(), None);
    alone.status.missed_scrapes.store(MISSED_POLLS_TO_FAIL, Ordering::Relaxed);
    assert!(alone.failing());
    assert!(!member(None, None).failing());
}

#[test]
fn a_member_serves_its_configured_model_until_it_says_otherwise() {
    let member = Member { worker: worker(&set("a"), 1, 1), generation: 1, status: Arc::default() };
    assert!(member.serves("m").is_some() && member.serves("x").is_none());
    assert_eq!(member.model_names(), ["m".into()]);
    let card = |id: &str, parent: Option<&str>| ModelCard {
        id: id.into(),
        parent: parent.map(Arc::from),
        max_model_len: Some(8),
        owned_by: "vllm".into(),
    };
    member.status.models.store(Some(Arc::new(vec![card("x", None), card("lora", Some("x"))])));
    let served =
        |adapter: Option<&str>| Some(Served { adapter: adapter.map(Arc::from), max_model_len: Some(8) });
    assert_eq!((member.serves("x"), member.serves("m")), (served(None), None));
    assert_eq!(member.serves("lora"), served(Some("lora")));
    member.status.kv.store(Arc::new(KvState::Evicted("why".into())));
    assert!(member.status.is_evicted());
}

/// What a watcher holds who applies every change to what it had.
fn apply(held: &mut BTreeMap<WorkerId, u64>, events: &[FleetEvent]) {
    for event in events {
        match event {
            FleetEvent::Added(m) => assert_eq!(held.insert(m.worker.id, m.generation), None),
            FleetEvent::Removed(m) => assert_eq!(held.remove(&m.worker.id), Some(m.generation)),
        }
    }
}

proptest! {
    #[test]
    fn changes_add_up_to_the_snapshot(
        steps in proptest::collection::vec((0..3usize, proptest::collection::btree_map(0..8u64, 0..2u16, 0..5)), 1..30)
    ) {
        let registry = Registry::default();
        let sets = ["a", "b", "c"].map(set);
        let (mut held, mut lagging) = (BTreeMap::new(), registry.snapshot());
        let mut generations = BTreeSet::new();
        for (step, (at, workers)) in steps.into_iter().enumerate() {
            let own = &sets[at];
            let before = registry.snapshot();
            let of_others = |id: &u64| before.get(&WorkerId(*id)).is_some_and(|m| m.worker.set.name != own.name);
            let clash = workers.keys().any(of_others);
            let described = workers.iter().map(|(id, port)| worker(own, *id, *port)).collect();
            match registry.replace_set(&own.name, described) {
                Ok(events) => {
                    prop_assert!(!clash);
                    apply(&mut held, &events);
                    for event in &events {
                        if let FleetEvent::Added(m) = event {
                            prop_assert!(generations.insert(m.generation), "a generation twice");
                        }
                    }
                }
                Err(_) => prop_assert!(clash && Arc::ptr_eq(&before, &registry.snapshot())),
            }
            let now = registry.snapshot();
            let of_set: BTreeMap<_, _> = now.values().filter(|m| m.worker.set.name == own.name)
                .map(|m| (m.worker.id.0, &*m.worker.endpoint)).collect();
            prop_assert!(clash || of_set.keys().eq(workers.keys()));
            prop_assert_eq!(&held, &now.iter().map(|(id, m)| (*id, m.generation)).collect::<BTreeMap<_, _>>());
            // One that looks every third step only sees the same, with fewer changes.
            if step % 3 == 0 {
                let mut caught_up = lagging.iter().map(|(id, m)| (*id, m.generation)).collect();
                apply(&mut caught_up, &diff(&lagging, &now));
                prop_assert_eq!(&caught_up, &held);
                lagging = now;
            }
        }
    }
}

#[test]
fn a_worker_is_unavailable_for_the_first_reason_that_holds() {
    let registry = Registry::default();
    let unavailable = |availability| {
        let ours = Worker { availability, ..worker(&set("s"), 1, 1) };
        registry.replace_set("s", vec![ours]).unwrap();
        registry.get(WorkerId(1)).unwrap().unavailable()
    };
    assert_eq!(unavailable(Availability::NotReady), Some(RemovedReason::NotReady));
    assert_eq!(unavailable(Availability::Terminating), Some(RemovedReason::Terminating));
    assert_eq!(unavailable(Availability::Ready), None);
    let status = registry.get(WorkerId(1)).unwrap().status.clone();
    for _ in 0..FAILURES_TO_FAIL {
        status.record(true);
    }
    assert_eq!(unavailable(Availability::Ready), Some(RemovedReason::Failing));
    status.asleep.store(true, Ordering::Relaxed);
    assert_eq!(unavailable(Availability::Ready), Some(RemovedReason::Asleep));
    assert_eq!(unavailable(Availability::Cordoned), Some(RemovedReason::Cordoned));
    status.cordoned.store(true, Ordering::Relaxed);
    assert_eq!(unavailable(Availability::Ready), Some(RemovedReason::Cordoned));
    assert_eq!(unavailable(Availability::Terminating), Some(RemovedReason::Terminating));
    status.kv.store(Arc::new(KvState::Evicted("why".into())));
    assert_eq!(unavailable(Availability::NotReady), Some(RemovedReason::Evicted));
}

#[test]
fn a_cordon_by_hand_lasts_as_long_as_the_worker() {
    let (registry, a) = (Registry::default(), set("a"));
    let replace = |workers| registry.replace_set("a", workers).map(drop).unwrap();
    let cordoned = || registry.get(WorkerId(1)).unwrap().cordoned();
    replace(vec![worker(&a, 1, 1)]);
    registry.get(WorkerId(1)).unwrap().status.cordoned.store(true, Ordering::Relaxed);
    replace(vec![Worker { availability: Availability::NotReady, ..worker(&a, 1, 1) }]);
    assert!(cordoned(), "described anew");
    replace(vec![]);
    replace(vec![worker(&a, 1, 1)]);
    assert!(!cordoned(), "left and came back");
}

#[test]
fn who_is_cordoned_makes_nobody_ready() {
    let (registry, a) = (Registry::default(), set("a"));
    registry.replace_set("a", vec![worker(&a, 1, 1), worker(&a, 2, 1)]).unwrap();
    let [one, two] = [1, 2].map(|id| registry.get(WorkerId(id)).unwrap());
    let ready = |mock| readiness(&registry, Besides { mock, ..Besides::default() });
    one.status.kv.store(Arc::new(KvState::Synced));
    one.status.cordoned.store(true, Ordering::Relaxed);
    let reasons = ["w1: cordoned", "w2: no KV events yet"].map(String::from);
    assert_eq!(ready(false), Readiness { ready: false, reasons: reasons.into() });
    two.status.kv.store(Arc::new(KvState::LiveOnly));
    assert_eq!(ready(false), Readiness { ready: true, reasons: vec!["w1: cordoned".into()] });
    assert!(ready(true).ready);
    two.status.cordoned.store(true, Ordering::Relaxed);
    let reasons = ["w1: cordoned", "w2: cordoned"].map(String::from);
    assert_eq!(
        [ready(false), ready(true)],
        [(); 2].map(|()| Readiness { ready: false, reasons: reasons.to_vec() })
    );
}
