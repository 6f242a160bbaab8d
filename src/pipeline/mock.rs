//! Mock mode: the same request gets the same worker, with nothing known of any engine.

use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::{
    fleet::Member,
    load::Claim,
    types::{Candidate, Decision, Overlap, Prediction},
};

use super::{Field, Incoming, IncomingBody, Pipeline, Placement, Subject};

/// Chooses by a hash of the request over the workers in the order of their ids.
pub(super) fn choose(
    pipeline: &Pipeline,
    incoming: &Incoming,
    subject: &Subject,
    field: &Field,
) -> Option<Placement> {
    let mut hash = Xxh3::new();
    if let IncomingBody::Full(body) = &incoming.body {
        hash.update(body);
    }
    let chosen = usize::try_from(hash.digest() % u64::try_from(field.members.len()).ok()?).ok()?;
    let winner = field.members.get(chosen)?.clone();
    let claim = Claim { work_ms: None, keys: None, streamed: subject.token_is_seen };
    let reservation = pipeline.rooms.load.lock().reserve(winner.worker.id, claim);
    let decision = Decision {
        model: subject.model.clone(),
        prompt_tokens: None,
        candidates: field.members.iter().map(candidate).collect(),
        chosen,
        fallbacks: (0..field.members.len()).filter(|i| *i != chosen).collect(),
        removed: field.removed.clone(),
        degraded: subject.degraded.clone(),
        replicated: false,
    };
    Some(Placement::new(pipeline, decision, (winner, reservation)))
}

fn candidate(member: &Arc<Member>) -> Candidate {
    Candidate {
        id: member.worker.id,
        worker: member.worker.name.clone(),
        workerset: member.worker.set.name.clone(),
        endpoint: member.worker.endpoint.clone(),
        overlap: Overlap::default(),
        prediction: Prediction::default(),
        own_in_flight: 0,
        degraded: Vec::new(),
    }
}
