//! The one JSON shape of a remembered decision: in the log, of the admin API, of the dashboard and of `kinfctl`.
//!
//! Invariant: what it shows is what the `Record` holds, so nothing of a prompt. `docs/decision-log.md` describes it;
//! times are in the unit that their name ends with.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Serialize, Serializer};

use crate::types::{
    Decision, Ending, Outcome, Record, Rejection, Removed, Ruled, Stages, TraceParent, Usage, WorkerId,
};

use super::Kept;

/// A decision, as one JSON object.
#[derive(Serialize)]
pub struct Shown<'r> {
    /// RFC 3339, UTC, when the request's head was read.
    time: String,
    request_id: &'r str,
    /// 32 hexadecimal digits.
    trace_id: Option<String>,
    tenant: Option<&'r str>,
    tags: &'r [Arc<str>],
    pool: Option<&'r str>,
    call: &'static str,
    model: Option<&'r str>,
    took_us: u64,
    #[serde(serialize_with = "stages")]
    stages: &'r Stages,
    /// What the decision was made without.
    degraded: Vec<&'static str>,
    decision: Option<&'r Decision>,
    rejection: Option<ShownRejection<'r>>,
}

#[derive(Serialize)]
struct ShownRejection<'r> {
    kind: &'static str,
    status: u16,
    message: &'r str,
    ruled: Option<&'r Ruled>,
    removed: &'r [Removed],
}

/// A decision that is kept: its number, and how its request ended.
#[derive(Serialize)]
pub struct ShownKept<'r> {
    seq: u64,
    #[serde(flatten)]
    shown: Shown<'r>,
    ending: Option<ShownEnding>,
}

/// How the request of a decision ended.
#[derive(Serialize)]
pub struct ShownEnding {
    outcome: Outcome,
    ttft_ms: Option<f64>,
    /// `worker_id_num` of who served it: another than was picked, where the proxy fell back.
    served_by: Option<WorkerId>,
    took_ms: f64,
    usage: Option<Usage>,
}

#[derive(Serialize)]
struct ShownStage {
    from_us: u64,
    took_us: u64,
}

impl<'r> From<&'r Record> for Shown<'r> {
    fn from(record: &'r Record) -> Self {
        let rejection = record.decided.as_ref().err().map(|rejection| shown_rejection(rejection));
        Self {
            time: shown_time(record.at),
            request_id: &record.request_id,
            trace_id: record.traceparent.map(|TraceParent { trace_id, .. }| format!("{trace_id:032x}")),
            tenant: record.tenant.as_deref(),
            tags: &record.tags,
            pool: record.pool.as_deref(),
            call: record.call,
            model: record.model.as_deref(),
            took_us: micros(record.took),
            stages: &record.stages,
            degraded: record.degraded().map(|one| one.label()).collect(),
            decision: record.decided.as_deref().ok(),
            rejection,
        }
    }
}

impl<'r> From<&'r Kept> for ShownKept<'r> {
    fn from(kept: &'r Kept) -> Self {
        Self { seq: kept.seq, shown: Shown::from(&*kept.record), ending: kept.ending.map(Into::into) }
    }
}

impl From<Ending> for ShownEnding {
    fn from(ending: Ending) -> Self {
        // What was predicted the decision shows.
        let Ending { outcome, ttft, predicted: _, served_by, took, usage } = ending;
        Self { outcome, ttft_ms: ttft.map(millis), served_by, took_ms: millis(took), usage }
    }
}

/// RFC 3339 in UTC, with milliseconds. Nothing here is from before 1970.
pub fn shown_time(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

fn shown_rejection(rejection: &Rejection) -> ShownRejection<'_> {
    ShownRejection {
        kind: rejection.kind.label(),
        status: rejection.kind.http_status(),
        message: &rejection.message,
        ruled: rejection.ruled.as_deref(),
        removed: &rejection.removed,
    }
}

fn stages<S: Serializer>(stages: &Stages, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(stages.iter().map(|(stage, took)| {
        (stage.label(), ShownStage { from_us: micros(took.from), took_us: micros(took.took) })
    }))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
