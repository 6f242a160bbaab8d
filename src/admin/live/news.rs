//! What happened to workers, the latest first to be forgotten last: joined, left, worse, better, followed anew. Pure.
//!
//! Invariant: bounded. Ages and counts in the reasons are no news; another reason is.

use std::{
    collections::{BTreeMap, VecDeque},
    mem::{Discriminant, discriminant},
    sync::Arc,
};

use serde::Serialize;

use crate::{
    roster::{State, Why, WorkerView},
    types::WorkerId,
};

/// News that are kept.
const MOST: usize = 50;

/// One of the news.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct New {
    /// When it was noticed: milliseconds since the epoch.
    pub at_ms: u64,
    /// Which worker.
    pub worker: Arc<str>,
    /// How well it is since; `None`: it left.
    pub state: Option<State>,
    /// What happened, in words.
    pub what: String,
}

/// A worker as it was last.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    name: Arc<str>,
    generation: u64,
    state: State,
    why: Vec<Discriminant<Why>>,
    begun: u32,
}

/// The news.
#[derive(Debug, Default)]
pub(super) struct News {
    known: Option<BTreeMap<WorkerId, Known>>,
    kept: VecDeque<New>,
}

impl News {
    /// Looks at the workers, each with how often its events have begun to be followed. The first look is no news.
    pub fn look(&mut self, workers: &[(&WorkerView, u32)], at_ms: u64) {
        let now: BTreeMap<_, _> =
            workers.iter().map(|(view, begun)| (view.id, known(view, *begun))).collect();
        let left: Vec<_> = self.known.iter().flatten().filter(|(id, _)| !now.contains_key(id)).collect();
        let left: Vec<_> = left.into_iter().map(|(_, left)| left.name.clone()).collect();
        let Some(before) = self.known.replace(now) else { return };
        for worker in left {
            self.add(New { at_ms, worker, state: None, what: "left the fleet".into() });
        }
        for (view, begun) in workers {
            let was = before.get(&view.id).filter(|was| was.generation == view.generation);
            if let Some(what) = what(was, (view, *begun)) {
                self.add(New { at_ms, worker: view.name.clone(), state: Some(view.health.state), what });
            }
        }
    }

    /// Those that are kept, the latest first.
    pub fn latest(&self) -> impl Iterator<Item = &New> {
        self.kept.iter().rev()
    }

    fn add(&mut self, new: New) {
        self.kept.push_back(new);
        if self.kept.len() > MOST {
            self.kept.pop_front();
        }
    }
}

fn known(view: &WorkerView, begun: u32) -> Known {
    Known {
        name: view.name.clone(),
        generation: view.generation,
        state: view.health.state,
        why: view.health.why.iter().map(discriminant).collect(),
        begun,
    }
}

/// What is new with a worker, in words; of the reasons for an old state, those that are new.
fn what(was: Option<&Known>, (view, begun): (&WorkerView, u32)) -> Option<String> {
    let all: Vec<_> = view.health.why.iter().collect();
    let Some(was) = was else { return Some(said("joined the fleet", &all)) };
    let new: Vec<_> = all.iter().copied().filter(|why| !was.why.contains(&discriminant(*why))).collect();
    let state = match view.health.state {
        now if now == was.state => (!new.is_empty()).then(|| said("has another trouble", &new)),
        State::Ok if was.begun == 0 => Some("is well".into()),
        State::Ok => Some("is well again".into()),
        State::Degraded => Some(said("is degraded", &all)),
        State::Out => Some(said("gets no requests", &all)),
    };
    let events = (was.begun != begun).then_some(match was.begun {
        0 => "its KV events are followed",
        _ => "its KV events were lost and are followed anew",
    });
    let said = [state.as_deref(), events].into_iter().flatten().collect::<Vec<_>>().join("; ");
    (!said.is_empty()).then_some(said)
}

fn said(words: &str, why: &[&Why]) -> String {
    let why: Vec<_> = why.iter().map(ToString::to_string).collect();
    if why.is_empty() { words.into() } else { format!("{words}: {}", why.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cache::BlockCounts,
        config::Topology,
        fleet::{Availability, KvState},
        roster::{Health, Load},
        types::RemovedReason,
    };

    fn worker(generation: u64, state: State, why: Vec<Why>) -> WorkerView {
        let (in_flight, without_token, backlog_ms, queue, running, kv_usage) = (0, 0, 0.0, 0.0, 0.0, 0.0);
        WorkerView {
            id: WorkerId(1),
            name: "w1".into(),
            generation,
            workerset: "s".into(),
            endpoint: "10.0.0.1:1".into(),
            models: Vec::new(),
            engine: None,
            kv_events: KvState::Synced,
            asleep: false,
            availability: Availability::Ready,
            failing: false,
            cordoned: false,
            warming: false,
            removed: None,
            health: Health { state, why },
            load: Load { in_flight, without_token, backlog_ms, queue, running, kv_usage },
            blocks: BlockCounts::default(),
            degraded: Vec::new(),
            topology: Topology::default(),
        }
    }

    fn told(looks: &[Option<(WorkerView, u32)>]) -> Vec<String> {
        let mut news = News::default();
        news.look(&[], 0);
        for (at, look) in looks.iter().enumerate() {
            news.look(&look.iter().map(|(view, begun)| (view, *begun)).collect::<Vec<_>>(), at as u64);
        }
        let mut all: Vec<_> = news.latest().map(|new| new.what.clone()).collect();
        all.reverse();
        all
    }

    #[test]
    fn what_happens_to_a_worker_is_told_once() {
        let ok = || worker(1, State::Ok, vec![]);
        let old = |secs| worker(1, State::Degraded, vec![Why::LoadOld(secs, false)]);
        let both = worker(1, State::Degraded, vec![Why::Failures(1), Why::LoadOld(4, false)]);
        let out = worker(1, State::Out, vec![Why::Removed(RemovedReason::Asleep)]);
        let looks = [
            (ok(), 0),
            (ok(), 1),
            (old(2), 1),
            (old(3), 1),
            (both, 1),
            (old(5), 1),
            (out, 1),
            (ok(), 1),
            (ok(), 2),
        ];
        let looks: Vec<_> = looks.into_iter().map(Some).chain([None]).collect();
        let expected = [
            "joined the fleet",
            "its KV events are followed",
            "is degraded: its load was last known 2 s ago",
            "has another trouble: 1 failure in a row",
            "gets no requests: the engine sleeps",
            "is well again",
            "its KV events were lost and are followed anew",
            "left the fleet",
        ];
        assert_eq!(told(&looks), expected);
    }

    #[test]
    fn another_life_is_told_and_the_first_look_is_not() {
        let looks = [(worker(1, State::Ok, vec![]), 0), (worker(2, State::Ok, vec![]), 0)];
        assert_eq!(told(&looks.map(Some)), ["joined the fleet", "joined the fleet"]);
        let mut news = News::default();
        news.look(&[(&worker(1, State::Ok, vec![]), 1)], 0);
        assert_eq!(news.latest().count(), 0);
    }

    #[test]
    fn only_the_latest_are_kept() {
        let mut news = News::default();
        for at in 0..200 {
            let ours = worker(1, State::Ok, vec![]);
            let look = Some((&ours, 0)).filter(|_| at % 2 == 1);
            news.look(&look.into_iter().collect::<Vec<_>>(), at);
        }
        assert_eq!((news.latest().count(), news.latest().next().unwrap().at_ms), (MOST, 199));
    }
}
