//! What one listener is told: a snapshot, then the difference of each frame to the one that it was told last. Pure.
//!
//! Invariant: what it was told adds up to the frame, of the workers to those that it may see. A listener that is slow
//! skips frames and is told the difference all the same: nothing queues up for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::value::RawValue;

use super::frame::{Frame, Part, Parts, Row, json};
use crate::{roster::State, types::WorkerId};

/// Longest search, in characters.
const MOST_SEARCH: usize = 100;

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    /// The event's name: `snapshot` or `delta`.
    pub event: &'static str,
    /// A JSON object.
    pub data: String,
}

/// One listener.
#[derive(Debug)]
pub(super) struct Listener {
    /// In lower case; empty: all.
    search: String,
    /// As many workers are shown.
    most: usize,
    begun: bool,
    shown: BTreeMap<WorkerId, Arc<Row>>,
    fleet: String,
    parts: Parts,
    buckets: BTreeMap<u64, Part>,
    seq: u64,
    /// Decisions that it was told and whose end it was not.
    open: BTreeSet<u64>,
}

impl Listener {
    /// One that was told nothing yet, and looks for workers with these words.
    pub fn new(search: &str, most: usize) -> Self {
        Self {
            search: search.chars().take(MOST_SEARCH).collect::<String>().trim().to_lowercase(),
            most,
            begun: false,
            shown: BTreeMap::new(),
            fleet: String::new(),
            parts: Parts::default(),
            buckets: BTreeMap::new(),
            seq: 0,
            open: BTreeSet::new(),
        }
    }

    /// What is new to it in a frame; `None`: nothing.
    pub fn see(&mut self, frame: &Frame) -> Option<Message> {
        let mut object = Object::default();
        self.workers(frame, &mut object);
        for (name, part) in frame.parts.changed(&self.parts) {
            object.raw(name, part);
        }
        self.parts = frame.parts.clone();
        self.series(frame, &mut object);
        self.decisions(frame, &mut object);
        let event = if std::mem::replace(&mut self.begun, true) { "delta" } else { "snapshot" };
        let data = object.done(frame)?;
        Some(Message { event, data })
    }

    fn workers(&mut self, frame: &Frame, object: &mut Object) {
        let matching: Vec<_> = frame.workers.iter().filter(|row| row.words.contains(&self.search)).collect();
        let mut seen = matching.clone();
        // Whom something is wrong with first: they are what one looks for. Then who was set apart on purpose.
        let rank = |row: &Row| if row.set_apart { 1 } else { 2 * row.state as u8 };
        seen.sort_by_key(|row| std::cmp::Reverse(rank(row)));
        seen.truncate(self.most);
        let now: BTreeMap<_, _> = seen.into_iter().map(|row| (row.id, row.clone())).collect();
        let same = |row: &Arc<Row>| self.shown.get(&row.id).is_some_and(|old| Arc::ptr_eq(old, row));
        object.list("workers", now.values().filter(|row| !same(row)).map(|row| &*row.json));
        let removed: Vec<_> = self.shown.keys().filter(|id| !now.contains_key(id)).collect();
        if !removed.is_empty() {
            object.value("removed", &removed);
        }
        let count = |state| frame.workers.iter().filter(|row| row.state == state && !row.set_apart).count();
        let fleet = serde_json::json!({
            "total": frame.workers.len(),
            "matching": matching.len(),
            "shown": now.len(),
            "hidden": matching.len() - now.len(),
            "search": self.search,
            "ok": count(State::Ok),
            "degraded": count(State::Degraded),
            "out": count(State::Out),
            "cordoned": frame.workers.iter().filter(|row| row.set_apart).count(),
        })
        .to_string();
        if fleet != self.fleet {
            object.text("fleet", &fleet);
            self.fleet = fleet;
        }
        self.shown = now;
    }

    fn series(&mut self, frame: &Frame, object: &mut Object) {
        let same = |(n, part): &(&u64, &Part)| self.buckets.get(n).is_some_and(|old| Arc::ptr_eq(old, part));
        object.list("buckets", frame.buckets.iter().filter(|one| !same(one)).map(|(_, part)| &**part));
        self.buckets = frame.buckets.clone();
    }

    fn decisions(&mut self, frame: &Frame, object: &mut Object) {
        let first = frame.decisions.front().map_or(u64::MAX, |entry| entry.seq);
        self.open.retain(|seq| *seq >= first);
        let new = frame.decisions.iter().filter(|entry| entry.seq > self.seq);
        object.list("decisions", new.clone().map(|entry| &*entry.json));
        self.open.extend(new.map(|entry| entry.seq));
        let ended = frame.decisions.iter().filter(|entry| self.open.contains(&entry.seq));
        let ended: Vec<_> = ended.filter_map(|entry| Some((entry.seq, entry.ending.as_ref()?))).collect();
        let shown =
            ended.iter().map(|(seq, ending)| format!("{{\"seq\":{seq},\"ending\":{}}}", ending.get()));
        let shown: Vec<_> = shown.collect();
        if !shown.is_empty() {
            object.text("ended", &format!("[{}]", shown.join(",")));
        }
        for (seq, _) in ended {
            self.open.remove(&seq);
        }
        self.seq = frame.decisions.back().map_or(self.seq, |entry| entry.seq);
    }
}

/// A JSON object that is put together from JSON.
#[derive(Debug, Default)]
struct Object(String);

impl Object {
    fn text(&mut self, name: &str, json: &str) {
        self.0 += &format!(",\"{name}\":{json}");
    }

    fn raw(&mut self, name: &str, json: &RawValue) {
        self.text(name, json.get());
    }

    fn value(&mut self, name: &str, value: &impl serde::Serialize) {
        json(value).iter().for_each(|json| self.raw(name, json));
    }

    /// Nothing, where the list is empty.
    fn list<'j>(&mut self, name: &str, all: impl Iterator<Item = &'j RawValue>) {
        let all: Vec<_> = all.map(RawValue::get).collect();
        if !all.is_empty() {
            self.text(name, &format!("[{}]", all.join(",")));
        }
    }

    /// With the time; `None`: there is nothing in it.
    fn done(self, frame: &Frame) -> Option<String> {
        let (now, bucket) = (frame.now_ms, frame.bucket);
        (!self.0.is_empty()).then(|| format!("{{\"now_ms\":{now},\"bucket\":{bucket}{}}}", self.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{super::frame::Entry, *};

    fn row(id: u64, state: State) -> Arc<Row> {
        let json = json(&json!({"id": id})).unwrap();
        let words = format!("engine-{id} llama");
        Arc::new(Row { id: WorkerId(id), state, set_apart: false, words, json })
    }

    fn entry(seq: u64, ending: Option<&str>) -> Arc<Entry> {
        let ending = ending.map(|ending| json(&ending).unwrap().into());
        Arc::new(Entry { seq, json: json(&json!({"seq": seq})).unwrap(), ending })
    }

    fn told(listener: &mut Listener, frame: &Frame) -> Value {
        listener.see(frame).map_or(Value::Null, |message| serde_json::from_str(&message.data).unwrap())
    }

    #[test]
    fn a_snapshot_comes_first_and_then_only_what_changed() {
        let mut listener = Listener::new("", 9);
        let mut frame = Frame { workers: vec![row(1, State::Ok), row(2, State::Ok)], ..Frame::default() };
        frame.parts.set("tenants", &["a"]);
        let first = listener.see(&frame).unwrap();
        assert_eq!(first.event, "snapshot");
        let all: Value = serde_json::from_str(&first.data).unwrap();
        assert_eq!((&all["workers"], &all["tenants"]), (&json!([{"id": 1}, {"id": 2}]), &json!(["a"])));
        assert!(listener.see(&frame).is_none(), "nothing changed");
        frame.workers = vec![row(2, State::Out), row(3, State::Ok)];
        let delta = told(&mut listener, &frame);
        assert_eq!((&delta["workers"], &delta["removed"]), (&json!([{"id": 2}, {"id": 3}]), &json!([1])));
        assert_eq!((&delta["fleet"]["out"], &delta["tenants"]), (&json!(1), &Value::Null));
    }

    #[test]
    fn the_worst_are_shown_and_the_rest_can_be_searched() {
        let states = [State::Ok, State::Degraded, State::Ok, State::Out];
        let workers: Vec<_> = (1..).zip(states).map(|(id, state)| row(id, state)).collect();
        let frame = Frame { workers, ..Frame::default() };
        let all = told(&mut Listener::new("", 2), &frame);
        assert_eq!((&all["workers"], &all["fleet"]["hidden"]), (&json!([{"id": 2}, {"id": 4}]), &json!(2)));
        let one = told(&mut Listener::new(" ENGINE-3", 2), &frame);
        assert_eq!((&one["workers"], &one["fleet"]["hidden"]), (&json!([{"id": 3}]), &json!(0)));
    }

    #[test]
    fn who_is_set_apart_does_not_count_as_out_and_comes_after_those_in_trouble() {
        let apart = Arc::new(Row { set_apart: true, ..Arc::into_inner(row(2, State::Out)).unwrap() });
        let workers = vec![row(1, State::Ok), apart, row(3, State::Degraded), row(4, State::Out)];
        let frame = Frame { workers, ..Frame::default() };
        let [two, three] = [2, 3].map(|most| told(&mut Listener::new("", most), &frame));
        assert_eq!(two["workers"], json!([{"id": 3}, {"id": 4}]));
        assert_eq!(three["workers"], json!([{"id": 2}, {"id": 3}, {"id": 4}]));
        assert_eq!((&two["fleet"]["out"], &two["fleet"]["cordoned"]), (&json!(1), &json!(1)));
    }

    #[test]
    fn an_end_is_told_once_to_who_was_told_the_decision() {
        let mut listener = Listener::new("", 2);
        let decisions = [entry(4, Some("early")), entry(5, None)].into();
        let mut frame = Frame { decisions, ..Frame::default() };
        let first = told(&mut listener, &frame);
        assert_eq!(first["decisions"], json!([{"seq": 4}, {"seq": 5}]));
        assert_eq!(first["ended"], json!([{"seq": 4, "ending": "early"}]));
        frame.decisions = [entry(5, Some("late")), entry(6, None)].into();
        let delta = told(&mut listener, &frame);
        assert_eq!((&delta["decisions"], &delta["ended"][0]["seq"]), (&json!([{"seq": 6}]), &json!(5)));
        assert_eq!(told(&mut listener, &frame), Value::Null);
    }

    #[test]
    fn of_the_series_changed_buckets_are_told() {
        let (mut listener, mut frame) = (Listener::new("", 2), Frame::default());
        let bucket = |n: u64| Part::from(json(&n).unwrap());
        frame.buckets = [(1, bucket(1)), (2, bucket(2))].into();
        assert_eq!(told(&mut listener, &frame)["buckets"], json!([1, 2]));
        frame.buckets.remove(&1);
        frame.buckets.insert(2, bucket(20));
        assert_eq!(told(&mut listener, &frame)["buckets"], json!([20]));
    }

    /// What a client holds who applies everything that it was told.
    fn apply(held: &mut BTreeMap<u64, Value>, told: &Value) {
        let all = |name: &str| told[name].as_array().cloned().unwrap_or_default();
        all("removed").iter().for_each(|id| assert!(held.remove(&id.as_u64().unwrap()).is_some()));
        all("workers").into_iter().for_each(|worker| {
            held.insert(worker["id"].as_u64().unwrap(), worker);
        });
    }

    proptest! {
        /// Also to a listener that skips frames.
        #[test]
        fn what_is_told_adds_up(
            steps in proptest::collection::vec((proptest::collection::btree_map(0..6u64, 0..3u8, 0..6), any::<bool>()), 1..20),
            most in 1..4usize,
        ) {
            let (mut listener, mut held) = (Listener::new("", most), BTreeMap::new());
            let states = [State::Ok, State::Degraded, State::Out];
            for (workers, looks) in steps {
                let rows = workers.iter().map(|(id, state)| {
                    let json = json(&json!({"id": id, "state": state})).unwrap();
                    let words = String::new();
                    let state = states[usize::from(*state)];
                    Arc::new(Row { id: WorkerId(*id), state, set_apart: false, words, json })
                });
                let frame = Frame { workers: rows.collect(), ..Frame::default() };
                if !looks {
                    continue;
                }
                apply(&mut held, &told(&mut listener, &frame));
                let mut worst: Vec<_> = workers.into_iter().collect();
                worst.sort_by_key(|(id, state)| (std::cmp::Reverse(*state), *id));
                worst.truncate(most);
                let wanted: BTreeMap<_, _> =
                    worst.into_iter().map(|(id, state)| (id, json!({"id": id, "state": state}))).collect();
                prop_assert_eq!(&held, &wanted);
            }
        }
    }
}
