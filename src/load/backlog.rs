//! The prefill work of our own requests on one worker that have produced no token yet, as a first-come-first-served queue.
//!
//! Only the head is worked on. A streamed head past its estimate counts zero and holds the others up until
//! its first token; a whole (not streamed) head leaves the moment its work is done. Pure; exact nanoseconds.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::{Ahead, Prefill};

/// Which request an entry belongs to.
pub(super) type RequestId = u64;

/// Where an entry stands in its queue: lower is served earlier.
pub(super) type Ticket = u64;

struct Entry {
    request: RequestId,
    work: Duration,
    prefill: Prefill,
    streamed: bool,
}

/// The queue.
#[derive(Default)]
pub(super) struct Backlog {
    entries: BTreeMap<Ticket, Entry>,
    next: Ticket,
    total: Duration,
    /// The same, in the units that work is computed from.
    waiting: Prefill,
    /// When the first entry became the first. `None` exactly when the queue is empty.
    head_since: Option<Instant>,
    /// The first entry came to an empty queue.
    began_idle: bool,
}

impl Backlog {
    /// Appends a request with `work` left to do, which is computed from `prefill`.
    pub(super) fn push(
        &mut self,
        request: RequestId,
        (work, prefill): (Duration, Prefill),
        (streamed, now): (bool, Instant),
    ) -> Ticket {
        let ticket = self.next;
        self.began_idle |= self.entries.is_empty();
        self.next += 1;
        self.entries.insert(ticket, Entry { request, work, prefill, streamed });
        self.total += work;
        self.waiting = self.waiting + prefill;
        self.head_since.get_or_insert(now);
        ticket
    }

    /// Takes an entry out, wherever it stands; the one behind a removed head becomes head `now`.
    pub(super) fn remove(&mut self, ticket: Ticket, now: Instant) {
        let was_head = self.entries.first_key_value().is_some_and(|(first, _)| *first == ticket);
        if let Some(entry) = self.entries.remove(&ticket) {
            self.took_out(&entry);
            if was_head {
                self.began_idle = false;
                self.head_since = (!self.entries.is_empty()).then_some(now);
            }
        }
    }

    /// Lets time pass until `now`: whole heads that are done leave, one after the other.
    pub(super) fn advance(&mut self, now: Instant) -> Vec<RequestId> {
        let mut done = Vec::new();
        while let (Some(since), Some(head)) = (self.head_since, self.entries.first_entry()) {
            let until = since + head.get().work;
            if head.get().streamed || until > now {
                break;
            }
            let entry = head.remove();
            self.began_idle = false;
            self.took_out(&entry);
            done.push(entry.request);
            self.head_since = (!self.entries.is_empty()).then_some(until);
        }
        done
    }

    fn took_out(&mut self, entry: &Entry) {
        self.total -= entry.work;
        // A sum of floats keeps no rest of what has left an empty queue.
        self.waiting =
            if self.entries.is_empty() { Prefill::default() } else { self.waiting - entry.prefill };
    }

    /// What waits `now`, in the units that work is computed from. Call [`Self::advance`] first.
    pub(super) fn ahead(&self, now: Instant) -> Ahead {
        let Some((since, (_, head))) = self.head_since.zip(self.entries.first_key_value()) else {
            return Ahead::default();
        };
        let worked_ms = now.saturating_duration_since(since).as_secs_f64() * 1e3;
        Ahead { waiting: self.waiting, head: head.prefill, worked_ms, began_idle: self.began_idle }
    }

    /// Work left `now`. Call [`Self::advance`] first.
    pub(super) fn left(&self, now: Instant) -> Duration {
        let Some((since, (_, head))) = self.head_since.zip(self.entries.first_key_value()) else {
            return Duration::ZERO;
        };
        self.total - head.work.min(now.saturating_duration_since(since))
    }
}
