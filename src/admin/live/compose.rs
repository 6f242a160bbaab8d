//! Makes frames: looks at the fleet, the decisions and the policies, and puts what changed into the frame before.
//!
//! Owner: the ticker.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::{
    clock::Clock,
    frame::{Entry, Frame, Row, json as encoded},
    news::News,
    now_ms, policies, providers,
    reader::{Reader, TenantSum, WorkerSum, bucket},
    recent::{Recent, Sum},
    series::{BUCKETS, WIDTH},
};
use crate::{
    admin::Admin,
    observe::{Ended, Kept, ShownEnding, ShownKept},
    roster::WorkerView,
    types::Degradation,
};

/// Decisions of the stream: at once for who joins, and new ones of a tick; the newest are taken.
const MOST_DECISIONS: usize = 100;
const MOST_NEW: usize = 25;
/// Candidates that those of a tick may have together, unless it is one.
const MOST_CANDIDATES: usize = 2000;
/// Tenants that are named.
const MOST_TENANTS: usize = 20;

/// What was read, and the frame before.
#[derive(Default)]
pub(super) struct Composer {
    reader: Reader,
    news: News,
    workers: Vec<WorkerView>,
    clock: Clock,
    frame: Frame,
}

/// A worker, as it is shown.
#[derive(Serialize)]
struct ShownWorker<'w> {
    #[serde(flatten)]
    view: &'w WorkerView,
    /// It is out because somebody wants it so.
    set_apart: bool,
    kv_block_size: Option<u32>,
    /// The last live batch of KV events: when it came, and how late.
    events_at_ms: Option<u64>,
    events_lag_ms: Option<f64>,
    /// Picks of the last 15 minutes.
    picks: u64,
    /// Of the prompt tokens that it served in them, the share that it said were cached.
    hit_share: Option<f64>,
}

/// A tenant, as it is shown.
#[derive(Serialize)]
struct ShownTenant {
    /// `None`: requests of no known tenant.
    tenant: Option<Arc<str>>,
    #[serde(flatten)]
    sum: TenantSum,
}

impl Composer {
    /// Looks at what is new, `since` the start.
    pub fn read(&mut self, admin: &Admin, since: Duration) {
        let ends = self.reader.read(&admin.decisions, since);
        self.end(&ends);
        self.workers = admin.roster.workers();
        let fleet = admin.roster.registry.snapshot();
        let begun = |view: &WorkerView| {
            fleet.get(&view.id).map_or(0, |member| member.status.kv_begun.load(Ordering::Relaxed))
        };
        let look: Vec<_> = self.workers.iter().map(|view| (view, begun(view))).collect();
        self.news.look(&look, now_ms());
    }

    /// Nobody listens: the frame is not kept.
    pub fn rest(&mut self) {
        self.frame = Frame::default();
    }

    /// The frame of now, after what was read.
    pub fn frame(&mut self, admin: &Admin, since: Duration) -> Frame {
        self.frame.made = Some(Instant::now());
        self.frame.now_ms = now_ms();
        self.frame.bucket = bucket(since);
        self.rows(admin);
        self.parts(admin);
        self.series();
        self.stream(admin);
        self.frame.clone()
    }

    fn rows(&mut self, admin: &Admin) {
        let (served, _) = self.reader.workers.sums();
        let before: HashMap<_, _> = self.frame.workers.drain(..).map(|row| (row.id, row)).collect();
        let fleet = admin.roster.registry.snapshot();
        for view in &self.workers {
            let member = fleet.get(&view.id);
            let heard = member.and_then(|member| member.status.kv_heard.load_full());
            let sum = served.get(&view.id);
            let shown = ShownWorker {
                view,
                set_apart: view.health.set_apart(),
                kv_block_size: member.map(|member| member.worker.set.kv_block_size),
                events_at_ms: heard.as_ref().map(|heard| heard.at_ms),
                events_lag_ms: heard.map(|heard| heard.lag_ms.round()),
                picks: sum.map_or(0, |sum| sum.picks),
                hit_share: sum.and_then(WorkerSum::hit_share),
            };
            let Some(json) = encoded(&shown) else { continue };
            let same = before.get(&view.id).filter(|row| row.json.get() == json.get());
            self.frame.workers.push(same.cloned().unwrap_or_else(|| {
                let (state, set_apart) = (view.health.state, view.health.set_apart());
                Arc::new(Row { id: view.id, state, set_apart, words: words(view), json })
            }));
        }
    }

    fn parts(&mut self, admin: &Admin) {
        let parts = &mut self.frame.parts;
        parts.set(
            "server",
            &json!({
                "version": env!("CARGO_PKG_VERSION"),
                "replica": admin.dashboard.replica,
                "mock_mode": admin.roster.mock,
                "bucket_secs": WIDTH.as_secs(),
                "buckets": BUCKETS,
            }),
        );
        parts.set("readiness", &admin.answer());
        parts.set("news", &self.news.latest().collect::<Vec<_>>());
        parts.set("totals", &self.reader.series.whole().shown());
        parts.set("tenants", &tenants(&self.reader.tenants));
        let policies = admin.dashboard.policies.load_full();
        let (did, _) = self.reader.rules.sums();
        parts.set("policies", &policies::Shown::of(policies.as_deref(), &admin.dashboard.notices, did));
        let known = (&**admin.roster.load.providers(), &admin.dashboard.notices);
        parts.set("providers", &providers::Shown::of(policies.as_deref(), known, self.clock));
        let lacks = |(label, decisions): (&'static str, u64)| {
            let known = Degradation::ALL.into_iter().find(|one| one.label() == label);
            json!({"what": label, "words": known.map(Degradation::words), "decisions": decisions})
        };
        let named = |(name, count): (&'static str, u64)| json!({"what": name, "count": count});
        parts.set(
            "degradations",
            &json!({
                "lacks": most_first(&self.reader.degraded).map(lacks).collect::<Vec<_>>(),
                "removed": most_first(&self.reader.removed).map(named).collect::<Vec<_>>(),
                "rejections": most_first(&self.reader.rejections).map(named).collect::<Vec<_>>(),
            }),
        );
    }

    fn series(&mut self) {
        let before = std::mem::take(&mut self.frame.buckets);
        let shown = self.reader.series.buckets().filter_map(|one| Some((one.n, encoded(&one.shown())?)));
        let kept = |(n, json): (u64, Box<serde_json::value::RawValue>)| {
            let same = before.get(&n).filter(|part| part.get() == json.get());
            (n, same.cloned().unwrap_or_else(|| json.into()))
        };
        self.frame.buckets = shown.map(kept).collect::<BTreeMap<_, _>>();
    }

    fn stream(&mut self, admin: &Admin) {
        let last = self.frame.decisions.back().map(|entry| entry.seq);
        let most = if last.is_some() { MOST_NEW } else { MOST_DECISIONS };
        let mut candidates = 0;
        let new = admin.decisions.after(last.unwrap_or(0), most);
        let newest = new.iter().rev().enumerate().take_while(|(at, kept)| {
            candidates += kept.record.decided.as_ref().map_or(0, |decision| decision.candidates.len());
            *at == 0 || candidates <= MOST_CANDIDATES
        });
        let fits = newest.count();
        self.frame.decisions.extend(new[new.len() - fits..].iter().filter_map(entry));
        let too_many = self.frame.decisions.len().saturating_sub(MOST_DECISIONS);
        self.frame.decisions.drain(..too_many);
    }

    /// Tells of the decisions of the stream how they ended.
    fn end(&mut self, ends: &[Ended]) {
        for ended in ends {
            let found = self.frame.decisions.binary_search_by_key(&ended.seq, |entry| entry.seq);
            let Ok(at) = found else { continue };
            let Some(ending) = encoded(&ShownEnding::from(ended.ending)) else { continue };
            let entry = &self.frame.decisions[at];
            let entry = Entry { seq: entry.seq, json: entry.json.clone(), ending: Some(ending.into()) };
            self.frame.decisions[at] = Arc::new(entry);
        }
    }
}

fn entry(kept: &Kept) -> Option<Arc<Entry>> {
    let (seq, record) = (kept.seq, kept.record.clone());
    let json = encoded(&ShownKept::from(&Kept { seq, record, ending: None }))?;
    let ending = kept.ending.and_then(|ending| encoded(&ShownEnding::from(ending)));
    Some(Arc::new(Entry { seq, json, ending: ending.map(Into::into) }))
}

/// What a search for a worker looks in.
fn words(view: &WorkerView) -> String {
    let topology = &view.topology;
    let places = [&topology.pod_name, &topology.node_name, &topology.availability_zone];
    let mut words = vec![view.name.to_string(), view.workerset.to_string(), view.endpoint.to_string()];
    words.extend(view.models.iter().map(ToString::to_string));
    words.extend(places.into_iter().flatten().cloned());
    words.join(" ").to_lowercase()
}

fn tenants(recent: &Recent<Option<Arc<str>>, TenantSum>) -> serde_json::Value {
    let (by_key, mut others) = recent.sums();
    let mut all: Vec<_> = by_key.into_iter().map(|(tenant, sum)| ShownTenant { tenant, sum }).collect();
    all.sort_by(|a, b| b.sum.requests.cmp(&a.sum.requests).then_with(|| a.tenant.cmp(&b.tenant)));
    let rest = all.split_off(all.len().min(MOST_TENANTS));
    rest.iter().for_each(|one| others.add(&one.sum));
    json!({"top": all, "others": others, "unnamed": rest.len()})
}

fn most_first(recent: &Recent<&'static str, u64>) -> impl Iterator<Item = (&'static str, u64)> {
    let (by_key, _) = recent.sums();
    let mut all: Vec<_> = by_key.into_iter().collect();
    all.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    all.into_iter()
}

/// The share of a worker's prompt tokens that were cached.
impl WorkerSum {
    fn hit_share(&self) -> Option<f64> {
        (self.prompt_tokens > 0).then(|| self.cached_tokens as f64 / self.prompt_tokens as f64)
    }
}
