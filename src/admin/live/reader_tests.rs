//! What is read of decisions and of their ends.

use std::time::SystemTime;

use super::*;
use crate::{
    observe::Told,
    types::{
        Candidate, Degradation, Ending, ErrorKind, PolicyStatus, Prediction, Removed, RemovedReason,
        RuleSaid, Stages, StepSaid, Target, Usage, WorkerTarget,
    },
};

const SOON: Duration = Duration::from_secs(1);

fn ruled(effect: StepEffect, removed: usize) -> Arc<Ruled> {
    let gone = Removed { who: "w2".into(), model: None, reason: RemovedReason::Policy };
    let steps = vec![StepSaid { text: "keep: {}".into(), effect, removed: vec![gone; removed] }];
    let rule = RuleSaid { policy: "p".into(), rule: "r".into(), steps, ..RuleSaid::default() };
    Arc::new(Ruled { pool: "n/pool".into(), rules: vec![rule], ..Ruled::default() })
}

fn decision() -> Decision {
    let target = WorkerTarget {
        id: WorkerId(7),
        name: "w7".into(),
        workerset: "s".into(),
        endpoint: "10.0.0.1:1".into(),
    };
    let candidate = Candidate {
        prediction: Prediction { blocks: 10.0, cached_blocks: 4.0, ..Prediction::default() },
        degraded: vec![Degradation::NoMetrics],
        ..Candidate::new(Target::Worker(target), None)
    };
    Decision {
        prompt_tokens: Some(160),
        candidates: vec![candidate],
        removed: vec![Removed { who: "w2".into(), model: None, reason: RemovedReason::Asleep }],
        ruled: Some(ruled(StepEffect::Narrowed, 2)),
        ..Decision::default()
    }
}

fn record(tenant: Option<&str>, decided: Result<Decision, Rejection>) -> Record {
    Record {
        at: SystemTime::UNIX_EPOCH,
        request_id: "r".into(),
        tenant: tenant.map(Into::into),
        tags: Vec::new(),
        pool: None,
        call: "completions",
        model: None,
        traceparent: None,
        stages: Stages::default(),
        took: Duration::ZERO,
        decided: decided.map(Arc::new).map_err(Arc::new),
    }
}

fn rejection() -> Rejection {
    let kind = ErrorKind::Policy(PolicyStatus::of(429));
    Rejection { ruled: Some(ruled(StepEffect::WouldEmpty, 0)), ..Rejection::new(kind, "busy") }
}

#[test]
fn decisions_and_rejections_are_summed_by_who_and_by_what() {
    let (decisions, mut reader) = (Decisions::default(), Reader::default());
    decisions.decided(record(Some("acme"), Ok(decision())));
    decisions.decided(record(Some("acme"), Err(rejection())));
    decisions.decided(record(None, Ok(decision())));
    assert_eq!(reader.read(&decisions, SOON), []);
    reader.read(&decisions, SOON);
    let bucket = reader.series.whole();
    assert_eq!((bucket.decisions, bucket.seen, bucket.rejected), (3, 3, 1), "each is read once");
    let (tenants, _) = reader.tenants.sums();
    let acme = TenantSum { requests: 2, rejected: 1, prompt_tokens: 160, blocks: 10.0, cached_blocks: 4.0 };
    assert_eq!((&tenants[&Some("acme".into())], tenants[&None].requests), (&acme, 1));
    let rule = RuleSum { ran: 3, removed: 4, emptied: 1, rejected: 1, ..RuleSum::default() };
    assert_eq!(reader.rules.sums().0[&("n/pool".into(), "p".into(), "r".into())], rule);
    assert_eq!(reader.degraded.sums().0["no_metrics"], 2);
    assert_eq!((reader.removed.sums().0["asleep"], reader.rejections.sums().0["policy"]), (2, 1));
    assert_eq!(reader.workers.sums().0[&WorkerId(7)].picks, 2);
}

#[test]
fn ends_count_for_who_served_even_when_their_decision_is_forgotten() {
    let (decisions, mut reader) = (Decisions::default(), Reader::default());
    let usage = Usage { prompt_tokens: 100, completion_tokens: 5, cached_tokens: Some(80) };
    let ending = Ending {
        outcome: Outcome::Completed,
        ttft: Some(Duration::from_millis(200)),
        predicted: Duration::from_millis(400),
        served_by: Some(WorkerId(3)),
        took: SOON,
        usage: Some(usage),
    };
    decisions.ended(Told::default(), ending);
    let failed = Ending { outcome: Outcome::Failed, ttft: None, usage: None, ..ending };
    decisions.ended(Told::default(), failed);
    assert_eq!(reader.read(&decisions, SOON).len(), 2);
    assert_eq!(reader.read(&decisions, SOON), []);
    let bucket = reader.series.whole();
    assert_eq!((bucket.ended, bucket.failed, bucket.prompt_tokens, bucket.cached_tokens), (2, 1, 100, 80));
    let near = |found: Option<f64>, ms: f64| (found.unwrap() / ms - 1.0).abs() < 0.03;
    assert!(near(bucket.predicted.quantile(1.0), 400.0) && near(bucket.observed.quantile(1.0), 200.0));
    let served = WorkerSum { picks: 0, prompt_tokens: 100, cached_tokens: 80 };
    assert_eq!(reader.workers.sums().0[&WorkerId(3)], served);
}

#[test]
fn what_came_too_fast_is_counted_and_told_as_not_seen() {
    let (decisions, mut reader) = (Decisions::default(), Reader::default());
    for _ in 0..1500 {
        decisions.decided(record(None, Ok(decision())));
    }
    reader.read(&decisions, SOON);
    let bucket = reader.series.whole();
    assert_eq!((bucket.decisions, bucket.seen), (1500, 1000));
    // A quarter of an hour later nothing of it is left.
    reader.read(&decisions, Duration::from_secs(16 * 60));
    assert_eq!((reader.series.whole().decisions, reader.tenants.sums().0.len()), (0, 0));
}
