//! A decision as the admin API tells it, read and told to people. Pure.
//!
//! Its shape is described in `docs/decision-log.md`; what is not needed here is not read.

use std::collections::BTreeMap;

use kinference::types::{Prediction, RemovedReason};
use serde::Deserialize;
use serde_json::Value;

use crate::output::{Tone, clean};

use super::candidates::{Row, table};

/// A decision.
#[derive(Deserialize)]
pub struct Story {
    time: String,
    request_id: String,
    tenant: Option<String>,
    tags: Vec<String>,
    pool: Option<String>,
    call: String,
    model: Option<String>,
    took_us: f64,
    stages: serde_json::Map<String, Value>,
    degraded: Vec<String>,
    decision: Option<Decision>,
    rejection: Option<Rejection>,
    ending: Option<Ending>,
}

#[derive(Deserialize)]
struct Decision {
    prompt_tokens: Option<u64>,
    candidates: Vec<Candidate>,
    chosen: usize,
    fallbacks: Vec<usize>,
    removed: Vec<Removed>,
    taken: Vec<Candidate>,
    ruled: Option<Ruled>,
    replicated: bool,
}

#[derive(Deserialize)]
struct Candidate {
    worker: Option<Named>,
    provider: Option<Named>,
    model: Option<String>,
    prediction: Prediction,
    degraded: Vec<String>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize, PartialEq)]
struct Removed {
    who: String,
    model: Option<String>,
    reason: String,
}

#[derive(Deserialize)]
struct Rejection {
    kind: String,
    status: u16,
    message: String,
    ruled: Option<Ruled>,
    /// Servers of before did not tell.
    #[serde(default)]
    removed: Vec<Removed>,
}

#[derive(Deserialize)]
struct Ruled {
    rules: Vec<Rule>,
    unknown: Vec<Unknown>,
}

#[derive(Deserialize)]
struct Rule {
    policy: String,
    rule: String,
    steps: Vec<Step>,
    passed_on: bool,
}

#[derive(Deserialize)]
struct Unknown {
    policy: String,
    rule: String,
    why: String,
}

#[derive(Deserialize)]
struct Step {
    /// Servers of before did not tell.
    #[serde(default)]
    text: String,
    effect: Effect,
    removed: Vec<Removed>,
}

/// A word, or a word and a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Effect {
    Word(String),
    Number(BTreeMap<String, f64>),
}

#[derive(Deserialize)]
struct Ending {
    outcome: String,
    ttft_ms: Option<f64>,
    took_ms: f64,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    cached_tokens: Option<u64>,
}

/// The reason of those whom a rule took away: the rule's steps tell of them.
const BY_RULE: &str = RemovedReason::Policy.label();

/// For people.
pub fn lines(story: &Story, colours: bool) -> Vec<String> {
    let mut out = vec![
        format!("request {} at {}", story.request_id, story.time),
        format!("request: {}", request(story)),
        format!("took {} ms: {}", millis(story.took_us), stages(story)),
    ];
    if !story.degraded.is_empty() {
        out.push(format!("decided without all knowledge: {}", story.degraded.join(", ")));
    }
    let decision = story.decision.as_ref();
    let rejected = story.rejection.as_ref().and_then(|rejection| rejection.ruled.as_ref());
    let ruled = decision.and_then(|decision| decision.ruled.as_ref()).or(rejected);
    out.extend(ruled.map(rules).unwrap_or_default());
    if decision.is_some() && ruled.is_some_and(|ruled| ruled.rules.is_empty()) {
        out.push("no rule matches: by predicted time to first token".to_owned());
    }
    // Painted lines are clean already.
    let mut out: Vec<_> = out.iter().map(|line| clean(line)).collect();
    if let Some(decision) = decision {
        out.extend(table(&rows(decision)).iter().map(|line| line.painted(colours)));
    }
    out.extend(end(story).iter().map(|line| clean(line)));
    out
}

fn request(story: &Story) -> String {
    let mut parts = vec![story.call.clone()];
    parts.extend(story.model.as_ref().map(|model| format!("model {model}")));
    parts.extend(story.pool.as_ref().map(|pool| format!("pool {pool}")));
    parts.extend(story.tenant.as_ref().map(|tenant| format!("tenant {tenant}")));
    if !story.tags.is_empty() {
        parts.push(format!("tags {}", story.tags.join(" ")));
    }
    let tokens = story.decision.as_ref().and_then(|decision| decision.prompt_tokens);
    parts.extend(tokens.map(|tokens| format!("{tokens} tokens")));
    parts.join(", ")
}

fn stages(story: &Story) -> String {
    let took = |took: &Value| took["took_us"].as_f64().unwrap_or_default();
    let all = story.stages.iter().map(|(stage, times)| format!("{stage} {}", millis(took(times))));
    all.collect::<Vec<_>>().join(", ")
}

fn millis(micros: f64) -> String {
    format!("{:.1}", micros / 1000.0)
}

fn rules(ruled: &Ruled) -> Vec<String> {
    let unknown = ruled.unknown.iter().map(|Unknown { policy, rule, why }| {
        format!("rule `{rule}` of {policy} can't be told to match: {why}")
    });
    let mut out: Vec<_> = unknown.collect();
    for Rule { policy, rule, steps, passed_on } in &ruled.rules {
        out.push(format!("rule `{rule}` of {policy}:"));
        out.extend(steps.iter().enumerate().map(|(n, step)| format!("  {}. {}", n + 1, told(step))));
        out.extend(passed_on.then(|| "  passes the request on".to_owned()));
    }
    out
}

fn told(step: &Step) -> String {
    if step.text.is_empty() { effect(step) } else { format!("{}: {}", step.text, effect(step)) }
}

fn effect(Step { effect, removed, .. }: &Step) -> String {
    let names: Vec<_> = removed.iter().map(|one| one.who.as_str()).collect();
    match effect {
        Effect::Word(word) => match word.as_str() {
            "narrowed" if names.is_empty() => "takes none away".to_owned(),
            "narrowed" => format!("takes {} away", names.join(", ")),
            "would_empty" => "leaves none".to_owned(),
            "none_preferred" => "none is preferred, all stay".to_owned(),
            "ordered" => "orders them".to_owned(),
            other => other.to_owned(),
        },
        Effect::Number(said) => {
            let said = said.iter().map(|(word, number)| match word.as_str() {
                "others_faster" => format!("another is faster by {number:.0} ms, all stay"),
                other => format!("{other} {number}"),
            });
            said.collect::<Vec<_>>().join(", ")
        }
    }
}

fn rows(decision: &Decision) -> Vec<Row> {
    let left = decision.candidates.iter().enumerate().map(|(index, one)| {
        let fallback = decision.fallbacks.iter().position(|fallback| *fallback == index);
        let fate = match fallback {
            _ if index == decision.chosen && decision.replicated => {
                ("picked, to spread a hot prefix".to_owned(), Tone::Good)
            }
            _ if index == decision.chosen => ("picked".to_owned(), Tone::Good),
            Some(place) => (format!("left, fallback {}", place + 1), Tone::Plain),
            None => (format!("left, number {}", index + 1), Tone::Plain),
        };
        row(one, fate)
    });
    let taken = decision.taken.iter().map(|one| row(one, (taken_by(decision, one), Tone::Faint)));
    left.chain(taken).collect()
}

fn row(one: &Candidate, (mut said, tone): (String, Tone)) -> Row {
    if !one.degraded.is_empty() {
        said += &format!(" ({})", one.degraded.join(", "));
    }
    Row {
        name: one.name(),
        model: one.model.clone().unwrap_or_default(),
        prediction: one.prediction.clone(),
        fate: (said, tone),
    }
}

impl Candidate {
    /// As what was taken away is listed: see `Target::label`.
    fn name(&self) -> String {
        match (&self.worker, &self.provider) {
            (Some(worker), _) => worker.name.clone(),
            (None, Some(provider)) => format!("provider/{}", provider.name),
            (None, None) => String::new(),
        }
    }
}

fn taken_by(decision: &Decision, one: &Candidate) -> String {
    let name = one.name();
    let is_it = |removed: &Removed| removed.who == name && removed.model == one.model;
    let rules = decision.ruled.iter().flat_map(|ruled| &ruled.rules);
    let mut steps =
        rules.flat_map(|rule| rule.steps.iter().enumerate().map(move |(n, step)| (rule, n, step)));
    match steps.find(|(_, _, step)| step.removed.iter().any(is_it)) {
        Some((rule, n, _)) => format!("taken away by step {} of `{}`", n + 1, rule.rule),
        None => "taken away".to_owned(),
    }
}

fn end(story: &Story) -> Vec<String> {
    let mut out = Vec::new();
    let decided = story.decision.iter().flat_map(|decision| &decision.removed);
    let rejected = story.rejection.iter().flat_map(|rejection| &rejection.removed);
    let others = decided.chain(rejected).filter(|one| one.reason != BY_RULE);
    let others: Vec<_> = others.map(|one| format!("{} ({})", one.who, one.reason)).collect();
    if !others.is_empty() {
        out.push(format!("no candidates: {}", others.join(", ")));
    }
    if let Some(decision) = &story.decision {
        let chosen = decision.candidates.get(decision.chosen).map(Candidate::name).unwrap_or_default();
        out.push(format!("goes to {chosen}"));
    }
    if let Some(Rejection { kind, status, message, .. }) = &story.rejection {
        out.push(format!("is rejected with {status} ({kind}): {message}"));
    }
    match &story.ending {
        Some(ending) => out.push(ended(ending)),
        None if story.decision.is_some() => out.push("has not ended".to_owned()),
        None => {}
    }
    out
}

fn ended(Ending { outcome, ttft_ms, took_ms, usage }: &Ending) -> String {
    let mut parts = vec![format!("{outcome} after {took_ms:.0} ms")];
    parts.extend(ttft_ms.map(|ttft| format!("first token after {ttft:.0} ms")));
    if let Some(Usage { prompt_tokens, completion_tokens, cached_tokens }) = usage {
        let cached = cached_tokens.map(|cached| format!(" ({cached} of them cached)")).unwrap_or_default();
        parts.push(format!("{prompt_tokens} tokens in{cached}, {completion_tokens} out"));
    }
    parts.join(", ")
}
