//! A decision as a PickResponse.

use std::sync::Arc;

use super::ruled;
use crate::{
    pipeline::Rewrite,
    prompt::spliced_len,
    serve::{
        ext_proc::names,
        proto::{
            BodyMutation, Candidate, Header, PickResponse, Prediction, Splice, Splices, body_mutation::Change,
        },
    },
    types::{self, Decision, Degradation},
};

/// The answer, without its id. `body_len`: bytes of the body as it came.
pub fn answer(decision: &Decision, rewrite: Option<Rewrite>, body_len: usize) -> PickResponse {
    let primary = decision.primary();
    let destination = decision.destinations().map(|to| header(names::DESTINATION, to));
    let backend = header(names::BACKEND, primary.target.backend());
    let mut set_headers: Vec<_> = destination.into_iter().chain([backend]).collect();
    let mut endpoints = decision.workers().map(|worker| worker.endpoint.to_string());
    let mut remove_headers: Vec<String> = names::OWNED.map(str::to_owned).to_vec();
    if let Some(rewrite) = &rewrite {
        let len = match rewrite {
            Rewrite::Splices(splices) => spliced_len(body_len, splices),
            Rewrite::Whole(body) => {
                remove_headers.push(names::CONTENT_ENCODING.to_owned());
                body.len()
            }
        };
        set_headers.push(header(names::CONTENT_LENGTH, len.to_string()));
    }
    PickResponse {
        pick_id: String::new(),
        endpoint: endpoints.next().unwrap_or_default(),
        fallbacks: endpoints.collect(),
        worker_id: primary.target.label().to_string(),
        worker_set: primary.target.worker().map(|w| w.workerset.to_string()).unwrap_or_default(),
        body_mutation: rewrite.map(mutation),
        set_headers,
        remove_headers,
        prediction: Some(prediction(&primary.prediction)),
        degradations: words(decision.degraded.iter().chain(&primary.degraded)),
        prompt_tokens: decision.prompt_tokens.map(|tokens| tokens as u64),
        replicated: decision.replicated,
        candidates: Vec::new(),
        removed: Vec::new(),
        model: name(&primary.model),
        ruled: decision.ruled.as_deref().map(|all| ruled::told(all, false)),
        taken: Vec::new(),
    }
}

/// Adds everybody who was considered.
pub fn explain(response: &mut PickResponse, decision: &Decision) {
    response.candidates = decision.candidates.iter().map(candidate).collect();
    response.taken = decision.taken.iter().map(candidate).collect();
    response.removed = decision.removed.iter().map(ruled::removed).collect();
    response.ruled = decision.ruled.as_deref().map(|all| ruled::told(all, true));
}

/// Absent where there is none.
fn name(name: &Option<Arc<str>>) -> String {
    name.as_deref().unwrap_or_default().to_owned()
}

fn header(name: &str, value: String) -> Header {
    Header { name: name.to_owned(), value }
}

fn words<'a>(degraded: impl Iterator<Item = &'a Degradation>) -> Vec<String> {
    degraded.map(|why| why.label().to_owned()).collect()
}

fn mutation(rewrite: Rewrite) -> BodyMutation {
    let change = match rewrite {
        Rewrite::Whole(body) => Change::Body(body.into()),
        Rewrite::Splices(splices) => {
            let splices = splices.into_iter().map(|splice| Splice {
                start: splice.range.start as u64,
                end: splice.range.end as u64,
                replacement: splice.replacement.into(),
            });
            Change::Splices(Splices { splices: splices.collect() })
        }
    };
    BodyMutation { change: Some(change) }
}

fn candidate(candidate: &types::Candidate) -> Candidate {
    let worker = candidate.target.worker();
    Candidate {
        worker_id: candidate.target.label().to_string(),
        worker_set: worker.map(|w| w.workerset.to_string()).unwrap_or_default(),
        endpoint: worker.map(|w| w.endpoint.to_string()).unwrap_or_default(),
        prediction: Some(prediction(&candidate.prediction)),
        own_in_flight: candidate.own_in_flight,
        degradations: words(candidate.degraded.iter()),
        model: name(&candidate.model),
        level: candidate.level,
        warming: candidate.warming,
        waiting: candidate.waiting,
    }
}

fn prediction(terms: &types::Prediction) -> Prediction {
    Prediction {
        ttft_ms: terms.ttft_ms,
        base_ms: terms.base_ms,
        forward_pass_ms: terms.forward_pass_ms,
        backlog_ms: terms.backlog_ms,
        queue_ms: terms.queue_ms,
        prefill_ms: terms.prefill_ms,
        running_ms: terms.running_ms,
        cache_pressure_ms: terms.cache_pressure_ms,
        saturated_cold_ms: terms.saturated_cold_ms,
        blocks: terms.blocks,
        cached_blocks: terms.cached_blocks,
        queue: terms.queue,
        running: terms.running,
        kv_usage: terms.kv_usage,
        assumed_ms: terms.assumed_ms,
        provider_ms: terms.provider_ms,
    }
}
