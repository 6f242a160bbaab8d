//! Where decisions are told: the latest stay in memory, for the dashboard and for whoever asks why a request went where
//! it did; the log and the traces get them too.
//!
//! Invariant: bounded by number and by the candidates that they hold, whatever the size of the fleet.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::future::OptionFuture;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;

use crate::types::{Ending, Record, brief};

use super::{DecisionLog, Traces};

/// Decisions that are kept.
const MOST: usize = 1000;
/// Candidates that the kept decisions have together: some hundred bytes each.
const MOST_CANDIDATES: usize = 32_768;
/// Ends that are kept, also of decisions that are not any more.
const MOST_ENDS: usize = 4096;

/// A decision that is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Counts decisions from 1, in their order.
    pub seq: u64,
    /// The decision.
    pub record: Arc<Record>,
    /// How the request ended, once it has.
    pub ending: Option<Ending>,
}

/// How far back the kept decisions reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// How many there are.
    pub kept: usize,
    /// When the request of the oldest came.
    pub oldest: Option<SystemTime>,
}

/// An end that is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// Counts ends from 1, in their order.
    pub number: u64,
    /// Of which decision.
    pub seq: u64,
    /// How it ended.
    pub ending: Ending,
}

/// Where decisions are told. By default they are only remembered.
#[derive(Default)]
pub struct Decisions {
    ring: Mutex<Ring>,
    log: Option<DecisionLog>,
    traces: Option<Traces>,
}

/// A decision that was told, whose end is to be told too.
#[derive(Debug, Default)]
pub struct Told {
    seq: u64,
    response: Option<Box<Span>>,
}

#[derive(Debug, Default)]
struct Ring {
    last: u64,
    candidates: usize,
    kept: VecDeque<Kept>,
    last_end: u64,
    ends: VecDeque<Ended>,
}

impl Decisions {
    /// Tells a log and traces of them too.
    pub fn new(log: Option<DecisionLog>, traces: Option<Traces>) -> Self {
        Self { ring: Mutex::default(), log, traces }
    }

    /// Waits until what was decided so far is written and sent wherever it has to be, but no longer than `most`; whether it
    /// is.
    pub async fn flush(&self, most: Duration) -> bool {
        let logged = OptionFuture::from(self.log.as_ref().map(|log| log.flush(most)));
        let traced = OptionFuture::from(self.traces.as_ref().map(|traces| traces.flush(most)));
        let (logged, traced) = tokio::join!(logged, traced);
        logged.unwrap_or(true) && traced.unwrap_or(true)
    }

    /// Tells of a decision.
    pub fn decided(&self, record: Record) -> Told {
        let record = Arc::new(record);
        self.log.iter().for_each(|log| log.decided(&record));
        let response = self.traces.as_ref().and_then(|traces| traces.decided(&record));
        let mut ring = self.ring.lock();
        ring.last += 1;
        let seq = ring.last;
        ring.candidates += record.candidates();
        ring.kept.push_back(Kept { seq, record, ending: None });
        while ring.kept.len() > MOST || (ring.candidates > MOST_CANDIDATES && ring.kept.len() > 1) {
            let gone = ring.kept.pop_front();
            ring.candidates -= gone.map_or(0, |gone| gone.record.candidates());
        }
        Told { seq, response }
    }

    /// Tells how the request of a decision ended.
    pub fn ended(&self, Told { seq, response }: Told, ending: Ending) {
        if let (Some(traces), Some(response)) = (&self.traces, response) {
            traces.ended(response, &ending);
        }
        let mut ring = self.ring.lock();
        ring.last_end += 1;
        let end = Ended { number: ring.last_end, seq, ending };
        ring.ends.push_back(end);
        if ring.ends.len() > MOST_ENDS {
            ring.ends.pop_front();
        }
        let first = ring.kept.front().map_or(u64::MAX, |kept| kept.seq);
        let at = seq.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        if let Some(kept) = at.and_then(|at| ring.kept.get_mut(at)) {
            kept.ending = Some(ending);
        }
    }

    /// The newest `most` after that number, oldest first.
    pub fn after(&self, seq: u64, most: usize) -> Vec<Kept> {
        let ring = self.ring.lock();
        let newer = ring.kept.iter().rev().take_while(|kept| kept.seq > seq).take(most);
        let mut newer: Vec<_> = newer.cloned().collect();
        newer.reverse();
        newer
    }

    /// How far back it reaches.
    pub fn reach(&self) -> Reach {
        let ring = self.ring.lock();
        Reach { kept: ring.kept.len(), oldest: ring.kept.front().map(|kept| kept.record.at) }
    }

    /// The ends after that number that are kept, oldest first.
    pub fn ended_after(&self, number: u64) -> Vec<Ended> {
        let ring = self.ring.lock();
        let mut newer: Vec<_> =
            ring.ends.iter().rev().take_while(|end| end.number > number).copied().collect();
        newer.reverse();
        newer
    }

    /// The latest decisions over requests of that id, newest first.
    pub fn of_request(&self, id: &str) -> Vec<Kept> {
        let (id, ring) = (brief(id), self.ring.lock());
        ring.kept.iter().rev().filter(|kept| *kept.record.request_id == *id).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::types::{ErrorKind, Outcome, Rejection, Stages, WorkerId};

    fn record(id: &str) -> Record {
        Record {
            at: SystemTime::UNIX_EPOCH,
            request_id: id.into(),
            tenant: None,
            tags: Vec::new(),
            pool: None,
            call: "chat_completions",
            model: None,
            traceparent: None,
            stages: Stages::default(),
            took: Duration::ZERO,
            decided: Err(Arc::new(Rejection::new(ErrorKind::NoWorker, "none"))),
        }
    }

    fn ending(outcome: Outcome) -> Ending {
        let (predicted, served_by) = (Duration::ZERO, Some(WorkerId(1)));
        Ending { outcome, ttft: None, predicted, served_by, took: Duration::ZERO, usage: None }
    }

    #[test]
    fn the_latest_are_kept_and_found() {
        let decisions = Decisions::default();
        for n in 0..MOST + 5 {
            decisions.decided(record(&format!("r{}", n % 3)));
        }
        assert_eq!(decisions.after(0, usize::MAX).len(), MOST);
        let last: Vec<_> = decisions.after(1002, 2).iter().map(|kept| kept.seq).collect();
        assert_eq!(last, [1004, 1005]);
        let found: Vec<_> = decisions.of_request("r1").iter().take(2).map(|kept| kept.seq).collect();
        assert_eq!(found, [1004, 1001]);
        assert_eq!(decisions.reach(), Reach { kept: MOST, oldest: Some(SystemTime::UNIX_EPOCH) });
    }

    #[test]
    fn an_end_is_told_of_the_decision_that_it_is_of() {
        let decisions = Decisions::default();
        let (one, other) = (decisions.decided(record("a")), decisions.decided(record("a")));
        let after = other.seq + 1;
        decisions.ended(one, ending(Outcome::Failed));
        decisions.ended(Told::default(), ending(Outcome::Cancelled));
        decisions.ended(Told { seq: after, response: None }, ending(Outcome::Cancelled));
        let ends: Vec<_> = decisions.after(0, 9).iter().map(|kept| kept.ending).collect();
        assert_eq!(ends, [Some(ending(Outcome::Failed)), None]);
        let told: Vec<_> = decisions.ended_after(1).iter().map(|end| (end.number, end.seq)).collect();
        assert_eq!(told, [(2, 0), (3, after)]);
    }

    #[test]
    fn ends_outlive_their_decisions_up_to_a_bound() {
        let decisions = Decisions::default();
        for seq in 0..MOST_ENDS as u64 + 5 {
            decisions.ended(Told { seq, response: None }, ending(Outcome::Completed));
        }
        let told = decisions.ended_after(0);
        assert_eq!((told.len(), told[0].number, told[0].seq), (MOST_ENDS, 6, 5));
    }
}
