//! The books of one worker: our own requests there, and its last scrape. Pure: time is passed in.
//!
//! Invariant: the counters are what the requests in `requests` add up to. Work in nanoseconds.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Ahead, Claim, LoadSample,
    backlog::{Backlog, RequestId, Ticket},
};
use crate::types::SequenceHash;

/// No prefill takes longer; a larger (or infinite) prediction counts as this.
const MAX_WORK: Duration = Duration::from_secs(3600);

/// How far a request is.
enum Stage {
    /// No token yet; its place in the backlog where its work is known.
    Prefill(Option<Ticket>),
    /// It has produced a token, or its predicted prefill is over.
    Decode,
}

struct Request {
    stage: Stage,
    /// The worker's scrapes when it came: tells whether the last scrape can have seen it.
    scrapes: u64,
    claim: Claim,
}

/// The last scrape of a worker.
#[derive(Clone, Copy)]
pub(super) struct Scrape {
    pub(super) sample: LoadSample,
    pub(super) at: Instant,
    /// Own requests without a token at that moment.
    pub(super) own_without_token: u32,
}

/// The books.
#[derive(Default)]
pub(super) struct Books {
    requests: HashMap<RequestId, Request>,
    /// Block keys of the requests without a token.
    prefixes: BTreeMap<RequestId, Arc<[SequenceHash]>>,
    backlog: Backlog,
    scrapes: u64,
    pub(super) scrape: Option<Scrape>,
    pub(super) without_token: u32,
    pub(super) untracked: u32,
    /// In flight, and dispatched after the last scrape.
    pub(super) since_scrape: u32,
    /// Dispatched before the last scrape, and ended after it.
    ended_since: u32,
}

impl Books {
    /// Own requests that have not ended.
    pub(super) fn in_flight(&self) -> u32 {
        u32::try_from(self.requests.len()).unwrap_or(u32::MAX)
    }

    /// Nothing is known of the worker: the books can be thrown away.
    pub(super) fn is_blank(&self) -> bool {
        self.requests.is_empty() && self.scrape.is_none()
    }

    /// A new request was dispatched to the worker.
    pub(super) fn add(&mut self, id: RequestId, claim: Claim, now: Instant) {
        self.advance(now);
        let ticket =
            claim.work_ms.map(|ms| self.backlog.push(id, (work(ms), claim.prefill), (claim.streamed, now)));
        self.untracked += u32::from(ticket.is_none());
        self.without_token += 1;
        if let Some(keys) = &claim.keys {
            self.prefixes.insert(id, keys.clone());
        }
        self.insert(id, Request { stage: Stage::Prefill(ticket), scrapes: self.scrapes, claim });
    }

    /// A request whose prefill is over moved here.
    pub(super) fn add_decoding(&mut self, id: RequestId, claim: Claim) {
        self.insert(id, Request { stage: Stage::Decode, scrapes: self.scrapes, claim });
    }

    fn insert(&mut self, id: RequestId, request: Request) {
        self.requests.insert(id, request);
        self.since_scrape += 1;
    }

    /// A request ended, or moved away: what it claimed, and whether it had produced no token yet.
    pub(super) fn remove(&mut self, id: RequestId, now: Instant) -> Option<(Claim, bool)> {
        self.advance(now);
        let prefilling = self.end_prefill(id, now);
        let request = self.requests.remove(&id)?;
        if request.scrapes == self.scrapes {
            self.since_scrape -= 1;
        } else {
            self.ended_since += 1;
        }
        Some((request.claim, prefilling))
    }

    /// A request produced its first token.
    pub(super) fn first_token(&mut self, id: RequestId, now: Instant) {
        self.advance(now);
        self.end_prefill(id, now);
    }

    /// Takes a request out of everything that counts those without a token; `false` if it was out already.
    fn end_prefill(&mut self, id: RequestId, now: Instant) -> bool {
        let Some(request) = self.requests.get_mut(&id) else { return false };
        let Stage::Prefill(ticket) = std::mem::replace(&mut request.stage, Stage::Decode) else {
            return false;
        };
        match ticket {
            Some(ticket) => self.backlog.remove(ticket, now),
            None => self.untracked -= 1,
        }
        self.without_token -= 1;
        self.prefixes.remove(&id);
        true
    }

    /// Lets time pass: whole requests whose predicted prefill is over count as having their token.
    pub(super) fn advance(&mut self, now: Instant) {
        for id in self.backlog.advance(now) {
            self.end_prefill(id, now);
        }
    }

    /// A scrape came in.
    pub(super) fn record(&mut self, sample: LoadSample, now: Instant) {
        self.advance(now);
        self.scrapes += 1;
        (self.since_scrape, self.ended_since) = (0, 0);
        self.scrape = Some(Scrape { sample, at: now, own_without_token: self.without_token });
    }

    /// The worker left: what it scraped is void. Requests there stay on the books until they end.
    pub(super) fn forget(&mut self) {
        self.scrape = None;
        for request in self.requests.values_mut() {
            request.scrapes = self.scrapes;
        }
        (self.since_scrape, self.ended_since) = (self.in_flight(), 0);
    }

    /// What the last scrape saw running and may still run: own requests that ended since are taken off, as far
    /// as they can't have been among those that waited.
    pub(super) fn still_running(&self, sample: LoadSample) -> f64 {
        let ran = (f64::from(self.ended_since) - sample.waiting).max(0.0);
        (sample.running - ran).max(0.0)
    }

    /// Prefill work left, in milliseconds.
    pub(super) fn backlog_ms(&self, now: Instant) -> f64 {
        // Whole nanoseconds stay far below 2^53 for any sum that means something.
        self.backlog.left(now).as_nanos() as f64 / 1e6
    }

    /// The same, in the units that work is computed from.
    pub(super) fn ahead(&self, now: Instant) -> Ahead {
        self.backlog.ahead(now)
    }

    /// The most leading blocks that `keys` shares with a request that still prefills; never below `least`. In blocks.
    pub(super) fn common_prefix(&self, keys: &[SequenceHash], least: usize) -> usize {
        self.prefixes.values().fold(least, |most, held| common(held, keys, most))
    }
}

/// Leading keys that both have, or `least` if those are fewer. Keys are cumulative: once two differ, all later ones do.
fn common(a: &[SequenceHash], b: &[SequenceHash], least: usize) -> usize {
    let shorter = a.len().min(b.len());
    // Most have no more in common than is known already: one look tells.
    if least >= shorter || a[least] != b[least] {
        return least;
    }
    let (mut same, mut differ) = (least + 1, shorter + 1);
    // Invariant: the first `same` keys are equal, and the first `differ` are not.
    while differ - same > 1 {
        let middle = same.midpoint(differ);
        if a[middle - 1] == b[middle - 1] { same = middle } else { differ = middle }
    }
    same
}

/// Work from milliseconds; NaN and negatives are no work.
fn work(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.max(0.0) / 1e3).unwrap_or(MAX_WORK).min(MAX_WORK)
}
