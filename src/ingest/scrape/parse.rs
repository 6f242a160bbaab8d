//! The few numbers that matter out of an engine's Prometheus text.
//!
//! Pure and tolerant: a line that makes no sense costs itself only. Series with a `model_name` label count
//! if it is the worker's; series of several `engine`s (data-parallel ranks) are summed, cache use is averaged.

use crate::load::LoadSample;

const RUNNING: &str = "vllm:num_requests_running";
const WAITING: &str = "vllm:num_requests_waiting";
const KV_USAGE: &str = "vllm:kv_cache_usage_perc";
const SLEEP: &str = "vllm:engine_sleep_state";
const PROMPT_TOKENS: &str = "vllm:prompt_tokens_total";
const GENERATED_TOKENS: &str = "vllm:generation_tokens_total";
const CACHED_TOKENS: &str = "vllm:prefix_cache_hits_total";
const FINISHED: &str = "vllm:request_success_total";

/// What one scrape says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scraped {
    /// Its load.
    pub load: LoadSample,
    /// Whether the engine sleeps, where it says so; one sleeping rank is enough.
    pub asleep: Option<bool>,
    /// Tokens computed since the engine's start: prefilled or generated, not those found in its cache.
    pub computed: f64,
    /// Requests finished since the engine's start, and those that it has.
    pub requests: f64,
}

/// One sample line.
#[derive(Debug, PartialEq)]
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

impl Sample<'_> {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
    }
}

/// Reads Prometheus text for the worker that serves `model`, or of whatever model there is. `None` without a number of running or waiting
/// requests: then the load is not known.
pub fn parse(text: &str, model: Option<&str>) -> Option<Scraped> {
    let mut load = LoadSample::default();
    let (mut usage_sum, mut usage_count) = (0.0, 0.0);
    let (mut asleep, mut computed, mut finished, mut known) = (None, 0.0, 0.0, false);
    let wanted =
        [RUNNING, WAITING, KV_USAGE, SLEEP, PROMPT_TOKENS, GENERATED_TOKENS, CACHED_TOKENS, FINISHED];
    let samples = text.lines().filter_map(|line| {
        // Most lines are histogram buckets: look at the name before anything is taken apart.
        wanted.contains(&name_of(line)).then(|| sample(line)).flatten()
    });
    let is_of_another = |sample: &Sample<'_>| {
        let names = model.zip(sample.label("model_name"));
        names.is_some_and(|(model, name)| name != model)
    };
    for sample in samples {
        if sample.value.is_nan() || is_of_another(&sample) {
            continue;
        }
        match sample.name {
            RUNNING | WAITING => {
                known = true;
                let sum = if sample.name == RUNNING { &mut load.running } else { &mut load.waiting };
                *sum += sample.value.max(0.0);
            }
            KV_USAGE => {
                usage_sum += sample.value.clamp(0.0, 1.0);
                usage_count += 1.0;
            }
            SLEEP if sample.label("sleep_state") == Some("awake") => {
                asleep = Some(asleep.unwrap_or(false) || sample.value == 0.0);
            }
            PROMPT_TOKENS | GENERATED_TOKENS => computed += sample.value,
            CACHED_TOKENS => computed -= sample.value,
            FINISHED => finished += sample.value,
            _ => {}
        }
    }
    if usage_count > 0.0 {
        load.kv_usage = usage_sum / usage_count;
    }
    let requests = finished + load.running + load.waiting;
    known.then_some(Scraped { load, asleep, computed, requests })
}

fn name_of(line: &str) -> &str {
    let line = line.trim_start();
    &line[..line.find(|c: char| c == '{' || c.is_whitespace()).unwrap_or(line.len())]
}

/// `name{label="value",...} value [timestamp]`
fn sample(line: &str) -> Option<Sample<'_>> {
    let name = name_of(line);
    let rest = line.trim_start()[name.len()..].trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// The labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (key, after) = rest.split_once('=')?;
        let (value, after) = quoted(after.trim_start().strip_prefix('"')?)?;
        labels.push((key.trim(), value));
        rest = after;
    }
}

/// A label's value up to the closing quote, escapes undone, and what follows.
fn quoted(rest: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &rest[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests;
