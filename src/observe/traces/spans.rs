//! A decision as spans. Pure.
//!
//! Names are those of OpenTelemetry's semantic conventions for generative AI where there is one, else `kinference.*`.
//! `docs/traces.md` lists them. Times in nanoseconds since 1970.

use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, ArrayValue, KeyValue, any_value::Value},
    trace::v1::{
        Span, Status,
        span::{Event, SpanKind},
        status::StatusCode,
    },
};

use crate::types::{Api, Candidate, Decision, Ending, Outcome, Record, Rejection};

/// A decision's place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub trace_id: u128,
    /// Of the caller's span, if there is one.
    pub parent_id: Option<u64>,
    /// Of the decision's own.
    pub span_id: u64,
}

/// The name of a decision's span.
const DECIDE: &str = "kinference.decide";
/// The name of a response's span where the conventions have none.
const RESPOND: &str = "kinference.response";
/// The event of the first token.
const FIRST_TOKEN: &str = "kinference.first_token";
/// Flags of a span: sampled; what follows is known: its parent is in another process.
const SAMPLED: u32 = 0x001;
const PARENT_KNOWN: u32 = 0x100;
const PARENT_REMOTE: u32 = 0x200;

/// The spans of a decision: its own, then those of its stages, with ids that `next_id` makes.
pub(super) fn spans(record: &Record, place: &Place, mut next_id: impl FnMut() -> u64) -> Vec<Span> {
    let (begin, end) = (nanos(record.at), nanos(record.at + record.took));
    let remote = if place.parent_id.is_some() { PARENT_REMOTE } else { 0 };
    let (mut attributes, status) = match &record.decided {
        Ok(decision) => (decided(decision), None),
        Err(rejection) => (rejected(rejection), Some(failed(&rejection.message))),
    };
    attributes.extend(asked(record));
    let own = Span {
        flags: SAMPLED | PARENT_KNOWN | remote,
        parent_span_id: place.parent_id.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default(),
        attributes,
        status,
        ..span(place, (DECIDE.into(), SpanKind::Internal), (place.span_id, begin, end))
    };
    let stages = record.stages.iter().map(|(stage, took)| {
        // Parts of a stage that came later count as if they had followed the first.
        let at = |since: Duration| nanos(record.at + since).min(end);
        let times = (next_id(), at(took.from), at(took.from + took.took));
        child(place, span(place, (stage.label().into(), SpanKind::Internal), times))
    });
    let stages: Vec<_> = stages.collect();
    [own].into_iter().chain(stages).collect()
}

/// The span of the response to a decision, until it has ended; `None`: there will be none.
pub(super) fn response(record: &Record, place: &Place, id: u64) -> Option<Box<Span>> {
    let decision = record.decided.as_ref().ok()?;
    let begin = nanos(record.at + record.took);
    let name = match (operation(record), &record.model) {
        (Some(operation), Some(model)) => format!("{operation} {model}"),
        (Some(operation), None) => operation.to_owned(),
        (None, _) => RESPOND.to_owned(),
    };
    let primary = decision.primary();
    let mut attributes: Vec<_> = asked_model(record).chain(serves(primary)).collect();
    attributes.extend(primary.model.as_ref().map(|model| text("gen_ai.response.model", model)));
    // What workers are is known; what a provider is, its name may tell.
    attributes.extend(primary.target.worker().map(|_| text("gen_ai.provider.name", "vllm")));
    let span = span(place, (name, SpanKind::Client), (id, begin, begin));
    Some(Box::new(child(place, Span { attributes, ..span })))
}

/// Ends the span of a response.
pub(super) fn end(span: &mut Span, Ending { outcome, ttft, took, usage, .. }: &Ending) {
    let begin = span.start_time_unix_nano;
    span.end_time_unix_nano = begin + length(*took);
    span.events.extend(ttft.map(|ttft| Event {
        time_unix_nano: begin + length(ttft),
        name: FIRST_TOKEN.into(),
        ..Event::default()
    }));
    span.attributes.push(text("kinference.outcome", outcome.label()));
    if matches!(outcome, Outcome::Failed | Outcome::ClientError) {
        span.attributes.push(text("error.type", outcome.label()));
        span.status = Some(failed(""));
    }
    let Some(usage) = usage else { return };
    span.attributes.push(count("gen_ai.usage.input_tokens", usage.prompt_tokens));
    span.attributes.push(count("gen_ai.usage.output_tokens", usage.completion_tokens));
    let cached = usage.cached_tokens.map(|cached| count("gen_ai.usage.cache_read.input_tokens", cached));
    span.attributes.extend(cached);
}

fn span(place: &Place, (name, kind): (String, SpanKind), (id, begin, end): (u64, u64, u64)) -> Span {
    Span {
        trace_id: place.trace_id.to_be_bytes().to_vec(),
        span_id: id.to_be_bytes().to_vec(),
        name,
        kind: kind.into(),
        start_time_unix_nano: begin,
        end_time_unix_nano: end,
        ..Span::default()
    }
}

fn child(place: &Place, span: Span) -> Span {
    let parent_span_id = place.span_id.to_be_bytes().to_vec();
    Span { parent_span_id, flags: SAMPLED | PARENT_KNOWN, ..span }
}

/// What the conventions call it.
fn operation(record: &Record) -> Option<&'static str> {
    let api = Api::ALL.into_iter().find(|api| api.label() == record.call)?;
    Some(match api {
        Api::ChatCompletions | Api::Responses | Api::Messages => "chat",
        Api::Completions => "text_completion",
    })
}

fn asked_model(record: &Record) -> impl Iterator<Item = KeyValue> {
    let operation = operation(record).map(|operation| text("gen_ai.operation.name", operation));
    let model = record.model.as_ref().map(|model| text("gen_ai.request.model", model));
    operation.into_iter().chain(model)
}

/// Who asked for what.
fn asked(record: &Record) -> Vec<KeyValue> {
    let mut out: Vec<_> = asked_model(record).collect();
    out.push(text("kinference.request_id", &record.request_id));
    out.push(text("kinference.call", record.call));
    out.extend(record.tenant.as_ref().map(|tenant| text("kinference.tenant", tenant)));
    out.extend(record.pool.as_ref().map(|pool| text("kinference.pool", pool)));
    out.extend(texts("kinference.tags", record.tags.iter().map(|tag| &**tag)));
    out.extend(texts("kinference.degraded", record.degraded().map(|one| one.label())));
    out
}

fn decided(decision: &Decision) -> Vec<KeyValue> {
    let primary = decision.primary();
    let prediction = &primary.prediction;
    let mut out: Vec<_> = serves(primary).collect();
    out.push(number("kinference.predicted_ttft_ms", prediction.ttft_ms));
    out.push(number("kinference.blocks", prediction.blocks));
    out.push(number("kinference.cached_blocks", prediction.cached_blocks));
    out.push(count("kinference.candidates", decision.candidates.len() as u64));
    out.push(pair("kinference.replicated", Value::BoolValue(decision.replicated)));
    out.extend(decision.prompt_tokens.map(|tokens| count("kinference.prompt_tokens", tokens as u64)));
    let rule = decision.ruled.as_ref().and_then(|ruled| ruled.decided_by());
    out.extend(rule.map(|rule| text("kinference.rule", &rule.name())));
    out
}

fn rejected(rejection: &Rejection) -> Vec<KeyValue> {
    let rule = rejection.ruled.as_ref().and_then(|ruled| ruled.decided_by());
    let mut out = vec![
        text("error.type", rejection.kind.label()),
        count("http.response.status_code", rejection.kind.http_status().into()),
    ];
    out.extend(rule.map(|rule| text("kinference.rule", &rule.name())));
    out
}

/// Who a candidate is, and where.
fn serves(candidate: &Candidate) -> impl Iterator<Item = KeyValue> {
    let target = &candidate.target;
    let authority = match (target.worker(), target.provider()) {
        (Some(worker), _) => &*worker.endpoint,
        (None, Some(provider)) => &*provider.authority,
        (None, None) => "",
    };
    // IPv6 addresses are in brackets, and host names have no colon.
    let (host, port) =
        match authority.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?))) {
            Some((host, port)) => (host, port),
            None => (authority, 443_u16),
        };
    let host = host.trim_matches(['[', ']']);
    [
        text("kinference.worker", &target.label()),
        text("kinference.backend", &target.backend()),
        text("server.address", host),
        count("server.port", port.into()),
    ]
    .into_iter()
}

fn failed(why: &str) -> Status {
    Status { message: why.to_owned(), code: StatusCode::Error.into() }
}

fn pair(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

pub(super) fn text(key: &str, value: &str) -> KeyValue {
    pair(key, Value::StringValue(value.to_owned()))
}

/// Nothing for none.
fn texts<'a>(key: &str, values: impl Iterator<Item = &'a str>) -> Option<KeyValue> {
    let each = |value: &str| AnyValue { value: Some(Value::StringValue(value.to_owned())) };
    let values: Vec<_> = values.map(each).collect();
    (!values.is_empty()).then(|| pair(key, Value::ArrayValue(ArrayValue { values })))
}

fn number(key: &str, value: f64) -> KeyValue {
    pair(key, Value::DoubleValue(value))
}

fn count(key: &str, value: u64) -> KeyValue {
    pair(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn nanos(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, length)
}

fn length(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
