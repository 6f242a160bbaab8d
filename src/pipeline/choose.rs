//! Predict, pick and reserve, under one lock: a burst of equal prompts sees each other's reservations.

use std::sync::Arc;

use crate::{
    fleet::Member,
    load::{Claim, LoadView, Pick},
    route::{Choice, Cost, Demand, assume_worst, eligible, pick, predict, rank, replica},
    types::{Candidate, Decision, Degradation, ErrorKind, Rejection, RemovedReason},
};

use super::{Field, Pipeline, Placement, Subject, no_worker, tokens::Prompts};

/// Chooses a worker of the field for the subject.
///
/// # Errors
/// Nobody is left once the prompt's length is known.
pub(super) fn choose(
    pipeline: &Pipeline,
    subject: &Subject,
    mut field: Field,
    prompts: &Prompts,
) -> Result<Placement, Rejection> {
    too_long(subject, &mut field, prompts)?;
    let mut load = pipeline.rooms.load.lock();
    let mut candidates: Vec<Candidate> =
        field.members.iter().map(|m| candidate(m, &load, (subject, prompts))).collect();
    assume_worst(&mut candidates);
    rank(&mut candidates);
    let best = candidates.first().ok_or_else(no_worker)?;
    let by_id = |id| field.members.iter().find(|m| m.worker.id == id);
    let leader = by_id(best.id).ok_or_else(no_worker)?;
    let (choice, replicated) =
        pick_one(pipeline, leader, &candidates, (subject, prompts)).ok_or_else(no_worker)?;
    let winner = by_id(candidates[choice.chosen].id).ok_or_else(no_worker)?.clone();
    let held = prompts.on(&winner, subject.model.as_deref());
    let claim = Claim {
        work_ms: held.map(|_| candidates[choice.chosen].prediction.prefill_ms),
        keys: held.map(|held| held.keys.sequence.clone()),
        streamed: subject.stream,
    };
    let reservation = load.reserve(winner.worker.id, claim);
    drop(load);
    let decision = Decision {
        model: subject.model.clone(),
        prompt_tokens: held.map(|held| held.keys.tokens),
        candidates,
        chosen: choice.chosen,
        fallbacks: choice.fallbacks,
        removed: field.removed,
        degraded: subject.degraded.clone(),
        replicated,
    };
    Ok(Placement::new(pipeline, decision, (winner, reservation)))
}

/// Takes out workers that the prompt does not fit, now that its length is known.
fn too_long(subject: &Subject, field: &mut Field, prompts: &Prompts) -> Result<(), Rejection> {
    let model = subject.model.as_deref();
    let mut longest = None;
    let members = std::mem::take(&mut field.members);
    for member in members {
        let prompt_tokens = prompts.on(&member, model).map(|held| held.keys.tokens);
        match eligible(&member, Demand { model, prompt_tokens, subset: None }) {
            Ok(()) => field.members.push(member),
            Err(reason) => {
                if reason == RemovedReason::PromptTooLong {
                    longest = longest.max(prompt_tokens);
                }
                field.remove(&member, reason);
            }
        }
    }
    match longest {
        Some(tokens) if field.members.is_empty() => Err(Rejection::new(
            ErrorKind::BadRequest,
            format!("The prompt has {tokens} tokens, which is more than the model's context holds."),
        )),
        _ => Ok(()),
    }
}

fn candidate(member: &Arc<Member>, load: &Pick<'_>, (subject, prompts): (&Subject, &Prompts)) -> Candidate {
    let worker = &member.worker;
    let profile = &worker.set.profile;
    let view = load.view(worker.id);
    let held = prompts.on(member, subject.model.as_deref());
    let mut overlap = held.and_then(|held| held.overlap.get(&worker.id).copied()).unwrap_or_default();
    if let Some(held) = held
        && profile.picker.inflight_tracking
    {
        overlap.expected = load.expected(worker.id, &held.keys, overlap.confirmed);
    }
    let prediction = predict(Cost {
        predictor: &profile.predictor,
        inflight_tracking: profile.picker.inflight_tracking,
        blocks: held.map_or(0, |held| held.keys.total_blocks()),
        overlap,
        load: &view,
    });
    Candidate {
        id: worker.id,
        worker: worker.name.clone(),
        workerset: worker.set.name.clone(),
        endpoint: worker.endpoint.clone(),
        overlap,
        prediction,
        own_in_flight: view.own_in_flight,
        degraded: lacks(member, &view, held.is_some()),
    }
}

fn lacks(member: &Member, view: &LoadView, with_prompt: bool) -> Vec<Degradation> {
    let cache = member.status.kv.load().lacks().filter(|_| with_prompt);
    view.freshness.lacks().into_iter().chain(cache).collect()
}

/// Picks with the picker of the best candidate's profile.
fn pick_one(
    pipeline: &Pipeline,
    leader: &Member,
    candidates: &[Candidate],
    (subject, prompts): (&Subject, &Prompts),
) -> Option<(Choice, bool)> {
    let profile = &leader.worker.set.profile;
    let mut state = pipeline.pickers.get(&profile.name)?.lock();
    let replicate = prompts.on(leader, subject.model.as_deref()).and_then(|held| {
        let window = state.hot.entry(leader.worker.model_name.clone()).or_default();
        let hot = window.observe(&held.keys, profile.picker.replication_threshold_pct);
        replica(&profile.picker, &profile.predictor, candidates, hot)
    });
    pick(&profile.picker, candidates, replicate, &mut state.rng).map(|choice| (choice, replicate.is_some()))
}
