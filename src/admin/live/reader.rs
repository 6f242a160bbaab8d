//! Reads every decision once and sums up what the page shows of the last 15 minutes. Pure: time is passed in.
//!
//! Owner: the ticker. Invariant: bounded, whatever clients send. Decisions that left the ring before they were read are
//! counted as decisions, and told as not seen.

use std::{sync::Arc, time::Duration};

use super::{
    recent::{Recent, Sum},
    series::{Bucket, Series, WIDTH},
};
use crate::{
    observe::{Decisions, Ended},
    types::{Decision, Outcome, Record, Rejection, Ruled, StepEffect, WorkerId},
};

/// What a tenant asked for.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub(super) struct TenantSum {
    pub requests: u64,
    pub rejected: u64,
    pub prompt_tokens: u64,
    /// Blocks of its prompts, and of these, cached where they went.
    pub blocks: f64,
    pub cached_blocks: f64,
}

impl Sum for TenantSum {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.rejected += other.rejected;
        self.prompt_tokens += other.prompt_tokens;
        self.blocks += other.blocks;
        self.cached_blocks += other.cached_blocks;
    }
}

/// What a worker served: picks, and prompt tokens of which it said how many were cached.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WorkerSum {
    pub picks: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
}

impl Sum for WorkerSum {
    fn add(&mut self, other: &Self) {
        self.picks += other.picks;
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
    }
}

/// What a rule did.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub(super) struct RuleSum {
    /// Requests that it was run for.
    pub ran: u64,
    /// Candidates that it took away.
    pub removed: u64,
    /// Steps that would have left nobody.
    pub emptied: u64,
    /// Requests that it passed on.
    pub passed_on: u64,
    /// Requests that it turned away.
    pub rejected: u64,
    /// Requests of which it could not be told whether it is for them.
    pub unknown: u64,
}

impl Sum for RuleSum {
    fn add(&mut self, other: &Self) {
        self.ran += other.ran;
        self.removed += other.removed;
        self.emptied += other.emptied;
        self.passed_on += other.passed_on;
        self.rejected += other.rejected;
        self.unknown += other.unknown;
    }
}

/// A rule: its pool, its policy, its name.
pub(super) type RuleKey = (Arc<str>, Arc<str>, Arc<str>);

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Reader {
    seq: u64,
    end: u64,
    pub series: Series,
    pub tenants: Recent<Option<Arc<str>>, TenantSum>,
    pub workers: Recent<WorkerId, WorkerSum>,
    pub rules: Recent<RuleKey, RuleSum>,
    /// Decisions by what they lack.
    pub degraded: Recent<&'static str, u64>,
    /// Candidates by why they were none.
    pub removed: Recent<&'static str, u64>,
    /// Rejections by their kind.
    pub rejections: Recent<&'static str, u64>,
}

impl Reader {
    /// Reads what is new, `since` the start; the ends among it.
    pub fn read(&mut self, decisions: &Decisions, since: Duration) -> Vec<Ended> {
        let n = bucket(since);
        self.turn(n, since.as_secs() / 60);
        let new = decisions.after(self.seq, usize::MAX);
        if let Some(last) = new.last() {
            let bucket = self.series.at(n);
            bucket.decisions += last.seq - self.seq;
            bucket.seen += new.len() as u64;
            self.seq = last.seq;
        }
        for kept in &new {
            self.decided(&kept.record, n);
        }
        let ends = decisions.ended_after(self.end);
        self.end = ends.last().map_or(self.end, |last| last.number);
        ends.iter().for_each(|ended| self.ended(ended, n));
        ends
    }

    fn turn(&mut self, n: u64, minute: u64) {
        self.series.turn(n);
        self.tenants.turn(minute);
        self.workers.turn(minute);
        self.rules.turn(minute);
        self.degraded.turn(minute);
        self.removed.turn(minute);
        self.rejections.turn(minute);
    }

    fn decided(&mut self, record: &Record, n: u64) {
        let sum = self.tenants.at(&record.tenant);
        sum.requests += 1;
        match &record.decided {
            Ok(decision) => {
                let prediction = &decision.primary().prediction;
                sum.prompt_tokens += decision.prompt_tokens.unwrap_or(0) as u64;
                sum.blocks += prediction.blocks;
                sum.cached_blocks += prediction.cached_blocks;
                self.placed(decision);
            }
            Err(rejection) => {
                sum.rejected += 1;
                self.series.at(n).rejected += 1;
                self.rejected(rejection);
            }
        }
    }

    fn placed(&mut self, decision: &Decision) {
        let primary = decision.primary();
        if let Some(worker) = primary.target.worker() {
            self.workers.at(&worker.id).picks += 1;
        }
        for lack in decision.lacks() {
            *self.degraded.at(&lack.label()) += 1;
        }
        for removed in &decision.removed {
            *self.removed.at(&removed.reason.label()) += 1;
        }
        if let Some(ruled) = &decision.ruled {
            self.ruled(ruled, false);
        }
    }

    fn rejected(&mut self, rejection: &Rejection) {
        *self.rejections.at(&rejection.kind.label()) += 1;
        if let Some(ruled) = &rejection.ruled {
            self.ruled(ruled, true);
        }
    }

    fn ruled(&mut self, ruled: &Ruled, rejected: bool) {
        let key = |policy: &Arc<str>, rule: &Arc<str>| (ruled.pool.clone(), policy.clone(), rule.clone());
        for (index, said) in ruled.rules.iter().enumerate() {
            let sum = self.rules.at(&key(&said.policy, &said.rule));
            sum.ran += 1;
            sum.passed_on += u64::from(said.passed_on);
            sum.rejected += u64::from(rejected && index + 1 == ruled.rules.len());
            for step in &said.steps {
                sum.removed += step.removed.len() as u64;
                sum.emptied += u64::from(step.effect == StepEffect::WouldEmpty);
            }
        }
        for unknown in &ruled.unknown {
            self.rules.at(&key(&unknown.policy, &unknown.rule)).unknown += 1;
        }
    }

    fn ended(&mut self, ended: &Ended, n: u64) {
        let ending = &ended.ending;
        let bucket: &mut Bucket = self.series.at(n);
        bucket.ended += 1;
        bucket.failed += u64::from(ending.outcome == Outcome::Failed);
        if let Some(observed) = ending.ttft {
            bucket.predicted.add(ending.predicted.as_secs_f64() * 1e3);
            bucket.observed.add(observed.as_secs_f64() * 1e3);
        }
        let Some((usage, cached)) = ending.usage.and_then(|usage| Some((usage, usage.cached_tokens?))) else {
            return;
        };
        bucket.prompt_tokens += usage.prompt_tokens;
        bucket.cached_tokens += cached;
        let Some(served_by) = &ending.served_by else { return };
        let worker = self.workers.at(served_by);
        worker.prompt_tokens += usage.prompt_tokens;
        worker.cached_tokens += cached;
    }
}

/// The number of the bucket at that time since the start.
pub(super) fn bucket(since: Duration) -> u64 {
    since.as_secs() / WIDTH.as_secs()
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
