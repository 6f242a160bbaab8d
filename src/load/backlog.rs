//! The prefill work of our own requests on one worker that have produced no token yet, as a first-come-first-served queue.
//!
//! Only the head is worked on. A streamed head past its estimate counts zero and holds the others up until
//! its first token; a whole (not streamed) head leaves the moment its work is done. Pure; exact nanoseconds.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

/// Which request an entry belongs to.
pub(super) type RequestId = u64;

/// Where an entry stands in its queue: lower is served earlier.
pub(super) type Ticket = u64;

struct Entry {
    request: RequestId,
    work: Duration,
    streamed: bool,
}

/// The queue.
#[derive(Default)]
pub(super) struct Backlog {
    entries: BTreeMap<Ticket, Entry>,
    next: Ticket,
    total: Duration,
    /// When the first entry became the first. `None` exactly when the queue is empty.
    head_since: Option<Instant>,
}

impl Backlog {
    /// Appends a request with `work` left to do.
    pub(super) fn push(
        &mut self,
        request: RequestId,
        work: Duration,
        (streamed, now): (bool, Instant),
    ) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.entries.insert(ticket, Entry { request, work, streamed });
        self.total += work;
        self.head_since.get_or_insert(now);
        ticket
    }

    /// Takes an entry out, wherever it stands; the one behind a removed head becomes head `now`.
    pub(super) fn remove(&mut self, ticket: Ticket, now: Instant) {
        let was_head = self.entries.first_key_value().is_some_and(|(first, _)| *first == ticket);
        if let Some(entry) = self.entries.remove(&ticket) {
            self.total -= entry.work;
            if was_head {
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
            self.total -= entry.work;
            done.push(entry.request);
            self.head_since = (!self.entries.is_empty()).then_some(until);
        }
        done
    }

    /// Work left `now`. Call [`Self::advance`] first.
    pub(super) fn left(&self, now: Instant) -> Duration {
        let Some((since, (_, head))) = self.head_since.zip(self.entries.first_key_value()) else {
            return Duration::ZERO;
        };
        self.total - head.work.min(now.saturating_duration_since(since))
    }
}
