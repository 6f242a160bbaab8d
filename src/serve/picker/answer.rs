//! A decision as a PickResponse.

use std::sync::Arc;

use super::ruled;
use crate::{
    pipeline::Rewrite,
    prompt::spliced_len,
    serve::{
        ext_proc::names,
        outward::Outward,
        proto::{
            BodyMutation, Candidate, Header, PickResponse, PickedProvider, Prediction, Splice, Splices,
            body_mutation::Change,
        },
    },
    types::{self, Decision, Degradation},
};

/// What of a request an answer depends on, beside the decision.
#[derive(Clone, Copy, Default)]
pub struct Asked<'a> {
    /// Its path with its query, where that is known.
    pub path: Option<&'a str>,
    /// Bytes of its body as it came.
    pub body_len: usize,
}

/// The answer, without its id.
pub fn answer(decision: &Decision, rewrite: Option<Rewrite>, asked: Asked<'_>) -> PickResponse {
    let primary = decision.primary();
    let outward = Outward::of(decision, asked.path);
    let mut set_headers = destined(decision, outward.as_ref());
    let mut endpoints = decision.workers().map(|worker| worker.endpoint.to_string());
    let left_behind = outward.iter().flat_map(|_| names::LEFT_BEHIND);
    let mut remove_headers: Vec<_> = names::OWNED.into_iter().chain(left_behind).map(str::to_owned).collect();
    if let Some(rewrite) = &rewrite {
        let len = match rewrite {
            Rewrite::Splices(splices) => spliced_len(asked.body_len, splices),
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
        degradations: words(decision.lacks()),
        prompt_tokens: decision.prompt_tokens.map(|tokens| tokens as u64),
        replicated: decision.replicated,
        candidates: Vec::new(),
        removed: Vec::new(),
        model: name(&primary.model),
        ruled: decision.ruled.as_deref().map(|all| ruled::told(all, false)),
        taken: Vec::new(),
        provider: outward.map(provider),
    }
}

/// Headers that say where the request goes, and have it get there.
fn destined(decision: &Decision, outward: Option<&Outward>) -> Vec<Header> {
    let destination = decision.destinations().map(|to| header(names::DESTINATION, to));
    let backend = header(names::BACKEND, decision.primary().target.backend());
    let outward = outward.into_iter().flat_map(Outward::headers);
    let outward = outward.map(|(name, value)| header(name, value.to_owned()));
    destination.into_iter().chain([backend]).chain(outward).collect()
}

fn provider(Outward { provider, path }: Outward) -> PickedProvider {
    PickedProvider {
        name: provider.name.to_string(),
        authority: provider.authority.to_string(),
        path_prefix: provider.path_prefix.as_deref().unwrap_or_default().to_owned(),
        path: path.unwrap_or_default(),
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

fn words(degraded: impl Iterator<Item = Degradation>) -> Vec<String> {
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
        degradations: words(candidate.degraded.iter().copied()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Credential, ProviderTarget, Target};

    fn decision(path_prefix: Option<&str>) -> Decision {
        let credential = Credential { header: "x-api-key".into(), value: "s3cret".into() };
        let target = ProviderTarget {
            namespace: "ns".into(),
            name: "cloud".into(),
            authority: "api.example.com".into(),
            path_prefix: path_prefix.map(Arc::from),
            credential: Some(Arc::new(credential)),
        };
        let candidate = types::Candidate::new(Target::Provider(Arc::new(target)), Some("large".into()));
        Decision { model: Some("public".into()), candidates: vec![candidate], ..Decision::default() }
    }

    #[test]
    fn a_provider_is_told_with_all_that_gets_a_request_there() {
        let asked = Asked { path: Some("/v1/messages?beta=true"), body_len: 0 };
        let mut told = answer(&decision(Some("/anthropic")), None, asked);
        explain(&mut told, &decision(None));
        assert_eq!((&*told.endpoint, &*told.worker_set, &*told.worker_id), ("", "", "provider/cloud"));
        let want = [
            ("x-kinference-backend", "provider/cloud"),
            (":authority", "api.example.com"),
            (":path", "/anthropic/v1/messages?beta=true"),
            ("x-api-key", "s3cret"),
        ];
        assert_eq!(told.set_headers, want.map(|(name, value)| header(name, value.to_owned())));
        for name in names::LEFT_BEHIND {
            assert!(told.remove_headers.iter().any(|removed| removed == name), "{name} is let out");
        }
        let candidate = &told.candidates[0];
        assert_eq!((&*candidate.worker_id, &*candidate.endpoint), ("provider/cloud", ""));
        let provider = PickedProvider {
            name: "cloud".into(),
            authority: "api.example.com".into(),
            path_prefix: "/anthropic".into(),
            path: "/anthropic/v1/messages?beta=true".into(),
        };
        assert_eq!(told.provider, Some(provider));
    }

    #[test]
    fn without_a_head_the_path_is_the_callers_to_make() {
        let told = answer(&decision(Some("/openai")), None, Asked::default());
        assert!(told.set_headers.iter().all(|header| header.name != names::PATH), "{told:?}");
        let provider = told.provider.unwrap();
        assert_eq!((&*provider.path_prefix, &*provider.path), ("/openai", ""));
    }
}
