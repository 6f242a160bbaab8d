//! The load of all workers behind one lock, picks that see it at one instant, and reservations.
//!
//! Invariant: a reservation never waits for a pick. What it reports is queued with its time and settled
//! by the next pick, so that a reservation may be dropped anywhere, even under the lock of a pick.

use std::{cell::OnceCell, collections::HashMap, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use prometheus::IntCounterVec;
use tokio::time::Instant;

use super::{
    Freshness, LoadSample, LoadView, Prefill, Providers, backlog::RequestId, own::Books, own::Scrape,
};
use crate::{
    observe::Metrics,
    types::{BlockKeys, SequenceHash, WorkerId},
};

/// Polls after which missing scrapes are noted.
const POLLS_FRESH: u32 = 2;
/// Polls after which the last scrape is not believed any more.
pub const POLLS_KEPT: u32 = 5;

/// What a request puts on a worker.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// Predicted prefill work in milliseconds; `None` for a load-only pick.
    pub work_ms: Option<f64>,
    /// What that work is computed from.
    pub prefill: Prefill,
    /// Block keys of its prompt, where they are known.
    pub keys: Option<Arc<[SequenceHash]>>,
    /// The answer comes as a stream, so its first token is seen.
    pub streamed: bool,
}

/// The load of all workers.
pub struct LoadTable {
    poll: Duration,
    books: Mutex<State>,
    /// Reports of reservations, not settled yet. Taken after `books` where both are.
    reports: Mutex<Vec<Report>>,
    /// Taken after `books` where both are.
    providers: Arc<Providers>,
    events: IntCounterVec,
}

#[derive(Default)]
struct State {
    workers: HashMap<WorkerId, Books>,
    next: RequestId,
}

struct Report {
    request: RequestId,
    worker: WorkerId,
    at: Instant,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    FirstToken,
    MovedTo(WorkerId),
    Released,
}

impl What {
    const fn label(self) -> &'static str {
        match self {
            Self::FirstToken => "first_token",
            Self::MovedTo(_) => "moved",
            Self::Released => "released",
        }
    }
}

impl LoadTable {
    /// An empty table of workers that are scraped every `poll`.
    pub fn new(poll: Duration, metrics: &Metrics) -> Arc<Self> {
        let events = metrics.counters(
            "kinference_reservations_total",
            "What became of load reserved on workers.",
            &["event"],
        );
        let providers = Providers::new(metrics);
        Arc::new(Self { poll, books: Mutex::default(), reports: Mutex::default(), providers, events })
    }

    /// What is known of providers.
    pub fn providers(&self) -> &Arc<Providers> {
        &self.providers
    }

    /// A scrape of `worker` came in. Numbers out of their sane range are clamped.
    pub fn record_scrape(self: &Arc<Self>, worker: WorkerId, sample: LoadSample) {
        let mut pick = self.lock();
        let now = pick.now;
        pick.state.workers.entry(worker).or_default().record(sample.clamped(), now);
    }

    /// The worker left: its scrape is void. Reservations there count until they are dropped.
    pub fn forget(self: &Arc<Self>, worker: WorkerId) {
        let mut pick = self.lock();
        if let Some(books) = pick.state.workers.get_mut(&worker) {
            books.forget();
            pick.state.tidy(worker);
        }
    }

    /// Everything at this instant, under the lock: drop it soon, and never hold it across an await.
    pub fn lock(self: &Arc<Self>) -> Pick<'_> {
        let mut state = self.books.lock();
        let now = Instant::now();
        for report in std::mem::take(&mut *self.reports.lock()) {
            state.settle(report);
        }
        for books in state.workers.values_mut() {
            books.advance(now);
        }
        Pick { table: self, state, now, worst: OnceCell::new() }
    }

    fn report(&self, (request, worker): (RequestId, WorkerId), what: What) {
        self.events.with_label_values(&[what.label()]).inc();
        self.reports.lock().push(Report { request, worker, at: Instant::now(), what });
    }

    fn freshness(&self, scrape: Option<&Scrape>, now: Instant) -> Freshness {
        let Some(scrape) = scrape else { return Freshness::Never };
        let age = now.saturating_duration_since(scrape.at);
        match age {
            _ if age <= self.poll * POLLS_FRESH => Freshness::Fresh,
            _ if age <= self.poll * POLLS_KEPT => Freshness::Kept,
            _ => Freshness::Stale,
        }
    }
}

impl State {
    fn settle(&mut self, Report { request, worker, at, what }: Report) {
        let Some(books) = self.workers.get_mut(&worker) else { return };
        match what {
            What::FirstToken => books.first_token(request, at),
            What::Released => {
                books.remove(request, at);
            }
            What::MovedTo(to) => {
                if let Some((claim, prefilling)) = books.remove(request, at) {
                    let there = self.workers.entry(to).or_default();
                    if prefilling {
                        there.add(request, claim, at);
                    } else {
                        there.add_decoding(request, claim);
                    }
                }
            }
        }
        self.tidy(worker);
    }

    fn tidy(&mut self, worker: WorkerId) {
        if self.workers.get(&worker).is_some_and(Books::is_blank) {
            self.workers.remove(&worker);
        }
    }
}

/// The load of all workers at one instant. Holds the lock.
pub struct Pick<'a> {
    table: &'a Arc<LoadTable>,
    state: MutexGuard<'a, State>,
    now: Instant,
    worst: OnceCell<LoadSample>,
}

impl Pick<'_> {
    /// The load of one worker; all zero for one that is not known.
    pub fn view(&self, worker: WorkerId) -> LoadView {
        let Some(books) = self.state.workers.get(&worker) else { return LoadView::default() };
        let freshness = self.table.freshness(books.scrape.as_ref(), self.now);
        let (scraped, queue) = match (&books.scrape, freshness) {
            (None, _) => (LoadSample::default(), 0.0),
            // Nothing is taken off for our own: a hung engine must not look better than the worst.
            (Some(scrape), Freshness::Stale) => {
                let assumed = scrape.sample.worst(self.worst_of_fleet());
                (assumed, assumed.waiting)
            }
            (Some(scrape), _) => {
                let others = scrape.sample.waiting - f64::from(scrape.own_without_token);
                let running = books.still_running(scrape.sample);
                (LoadSample { running, ..scrape.sample }, others.max(0.0))
            }
        };
        let age = books.scrape.as_ref().map(|scrape| self.now.saturating_duration_since(scrape.at));
        LoadView {
            freshness,
            age_ms: age.map(|age| age.as_secs_f64() * 1000.0),
            queue,
            own_untracked: books.untracked,
            own_without_token: books.without_token,
            own_in_flight: books.in_flight(),
            backlog_ms: books.backlog_ms(self.now),
            ahead: books.ahead(self.now),
            running: scraped.running + f64::from(books.since_scrape),
            kv_usage: scraped.kv_usage,
        }
    }

    /// Leading blocks that `worker` will hold once the requests that it still prefills are done: never
    /// below `confirmed`. In blocks.
    pub fn expected(&self, worker: WorkerId, keys: &BlockKeys, confirmed: u32) -> u32 {
        let Some(books) = self.state.workers.get(&worker) else { return confirmed };
        u32::try_from(books.common_prefix(&keys.sequence, confirmed as usize)).unwrap_or(u32::MAX)
    }

    /// Puts a request's load on a worker until the reservation is dropped.
    pub fn reserve(&mut self, worker: WorkerId, claim: Claim) -> Reservation {
        self.table.events.with_label_values(&["reserved"]).inc();
        let id = self.state.next;
        self.state.next += 1;
        let now = self.now;
        self.state.workers.entry(worker).or_default().add(id, claim, now);
        Reservation { table: self.table.clone(), id, worker, had_token: false }
    }

    fn worst_of_fleet(&self) -> LoadSample {
        *self.worst.get_or_init(|| {
            let scrapes = self.state.workers.values().filter_map(|books| books.scrape.as_ref());
            scrapes
                .filter(|scrape| self.table.freshness(Some(scrape), self.now) != Freshness::Stale)
                .fold(LoadSample::default(), |worst, scrape| worst.worst(scrape.sample))
        })
    }
}

/// A request's load on a worker. Dropping it releases the load, whatever ended the request.
pub struct Reservation {
    table: Arc<LoadTable>,
    id: RequestId,
    worker: WorkerId,
    had_token: bool,
}

impl Reservation {
    /// Where the load is.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// The first token was seen: the prefill is over. Calls after the first do nothing.
    pub fn first_token(&mut self) {
        if !std::mem::replace(&mut self.had_token, true) {
            self.table.report((self.id, self.worker), What::FirstToken);
        }
    }

    /// Whether the first token was seen.
    pub fn had_token(&self) -> bool {
        self.had_token
    }

    /// Another worker serves the request: the load goes to the end of its queue.
    pub fn move_to(&mut self, worker: WorkerId) {
        if worker != self.worker {
            self.table.report((self.id, self.worker), What::MovedTo(worker));
            self.worker = worker;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.table.report((self.id, self.worker), What::Released);
    }
}
