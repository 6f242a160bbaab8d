//! Predict, pick and reserve, under one lock: a burst of equal prompts sees each other's reservations.

use tokio::time::Instant;

use crate::{
    fleet::Member,
    load::{Claim, LoadView, Pick},
    route::{Choice, Cost, Demand, assume_worst, held_back, pick, predict, rank, replica},
    types::{Candidate, Decision, Degradation, ErrorKind, Rejection, RemovedReason, Stage},
};

use super::{
    Field, Incoming, Pipeline, Placement, Subject,
    clock::Clock,
    field::Seat,
    no_worker,
    pools::InPool,
    rules::{self, Left},
    tokens::{Held, Prompts},
};

/// A request and the pool that it is of.
pub(super) struct Asked<'a> {
    pub incoming: &'a Incoming,
    pub subject: &'a Subject,
    pub pool: Option<&'a InPool>,
}

/// Chooses a worker of the field for the request.
///
/// # Errors
/// Nobody is left once the prompt's length is known, or a rule turns the request away.
pub(super) fn choose(
    pipeline: &Pipeline,
    asked: &Asked<'_>,
    (mut field, prompts): (Field, &Prompts),
    clock: &mut Clock,
) -> Result<Placement, Rejection> {
    settle(pipeline, &mut field, prompts)?;
    let table = &pipeline.rooms.load;
    let about = (asked.incoming, asked.subject, prompts.tokens());
    let match_rules =
        |pool| clock.during(Stage::Policy, || rules::matched(pool, about, (&field.seats, table)));
    let rules = asked.pool.and_then(match_rules);
    let mut load = table.lock();
    let (candidates, others) = clock.during(Stage::Predict, || predicted(&field, (&load, prompts)));
    let Left { mut candidates, taken, ruled } = match &rules {
        Some(rules) => clock.during(Stage::Policy, || rules.run(candidates, &others))?,
        None => Left::all(candidates),
    };
    let picking = Instant::now();
    rank(&mut candidates);
    let best = candidates.first().ok_or_else(no_worker)?;
    let leader = seat_of(&field, best).ok_or_else(no_worker)?;
    let (choice, replicated) = pick_one(pipeline, leader, &candidates, prompts).ok_or_else(no_worker)?;
    let chosen = &candidates[choice.chosen];
    let winner = seat_of(&field, chosen).ok_or_else(no_worker)?;
    let held = prompts.on(winner);
    let reservation = load.reserve(winner.member.worker.id, claim(asked.subject, chosen, held));
    drop(load);
    clock.passed(Stage::Pick, picking);
    let winner = winner.member.clone();
    let decision = Decision {
        model: asked.subject.model.clone(),
        prompt_tokens: held.map(|held| held.keys.tokens),
        candidates,
        chosen: choice.chosen,
        fallbacks: choice.fallbacks,
        removed: field.removed.into_iter().chain(rules::removed(&taken)).collect(),
        taken,
        ruled,
        degraded: asked.subject.degraded.clone(),
        replicated,
    };
    Ok(Placement::new(pipeline, decision, (winner, reservation)))
}

/// The candidates of a field, and what else rules look at.
fn predicted(field: &Field, (load, prompts): (&Pick<'_>, &Prompts)) -> (Vec<Candidate>, Vec<Other>) {
    let (mut candidates, others): (Vec<_>, Vec<_>) =
        field.seats.iter().map(|seat| candidate(seat, load, prompts)).unzip();
    assume_worst(&mut candidates);
    (candidates, others)
}

/// The index of a candidate's backend, and the age of its load.
type Other = (usize, Option<f64>);

/// Where a candidate sits.
fn seat_of<'f>(field: &'f Field, candidate: &Candidate) -> Option<&'f Seat> {
    let id = candidate.target.worker()?.id;
    field.seats.iter().find(|seat| seat.member.worker.id == id && seat.model == candidate.model)
}

fn claim(subject: &Subject, chosen: &Candidate, held: Option<&Held>) -> Claim {
    Claim {
        work_ms: held.map(|_| chosen.prediction.prefill_ms),
        keys: held.map(|held| held.keys.sequence.clone()),
        streamed: subject.token_is_seen,
    }
}

/// Takes out workers that the prompt does not fit, now that its length is known, and those that are not
/// eligible any more: tokenizing takes time, and the fleet goes on changing.
fn settle(pipeline: &Pipeline, field: &mut Field, prompts: &Prompts) -> Result<(), Rejection> {
    let fleet = pipeline.rooms.registry.snapshot();
    let mut longest = None;
    for before in std::mem::take(&mut field.seats) {
        let worker = &before.member.worker;
        let Some(member) = fleet.get(&worker.id).filter(|now| is_same(&before.member, now)) else {
            field.remove(&before, RemovedReason::Gone);
            continue;
        };
        let prompt_tokens = prompts.on(&before).map(|held| held.keys.tokens);
        let seat = Seat { member: member.clone(), ..before };
        if field.add(seat, Demand { prompt_tokens, ..Demand::default() })
            == Some(RemovedReason::PromptTooLong)
        {
            longest = longest.max(prompt_tokens);
        }
    }
    match longest {
        Some(tokens) if field.seats.is_empty() => Err(Rejection::new(
            ErrorKind::BadRequest,
            format!("The prompt has {tokens} tokens, which is more than the model's context holds."),
        )),
        _ => Ok(()),
    }
}

/// Whether what was found out for a worker still holds of it, should its description have changed.
fn is_same(before: &Member, now: &Member) -> bool {
    let (before, now) = (&before.worker, &now.worker);
    before.endpoint == now.endpoint && before.model_name == now.model_name && before.set.name == now.set.name
}

fn candidate(seat: &Seat, load: &Pick<'_>, prompts: &Prompts) -> (Candidate, Other) {
    let worker = &seat.member.worker;
    let profile = &worker.set.profile;
    let view = load.view(worker.id);
    let held = prompts.on(seat);
    let mut overlap = held.and_then(|held| held.overlap.get(&worker.id).copied()).unwrap_or_default();
    if let Some(held) = held
        && profile.picker.inflight_tracking
    {
        overlap.expected = load.expected(worker.id, &held.keys, overlap.confirmed);
    }
    let prediction = predict(Cost {
        predictor: &profile.predictor,
        inflight_tracking: profile.picker.inflight_tracking,
        blocks: prompts.blocks_on(seat),
        overlap,
        load: &view,
    });
    let candidate = Candidate {
        target: seat.target(),
        model: seat.model.clone(),
        overlap,
        prediction,
        waiting: rules::waiting(&view),
        own_in_flight: view.own_in_flight,
        level: 0,
        warming: seat.member.warming(),
        degraded: lacks(&seat.member, &view, held.is_some()),
    };
    (candidate, (seat.backend, view.age_ms))
}

fn lacks(member: &Member, view: &LoadView, with_prompt: bool) -> Vec<Degradation> {
    let cache = member.status.kv.load().lacks().filter(|_| with_prompt);
    view.freshness.lacks().into_iter().chain(cache).collect()
}

/// Picks with the picker of the best candidate's profile. A hot prefix is spread over those only that are as good to
/// the rules as the best, serve its model, and are not held back.
fn pick_one(
    pipeline: &Pipeline,
    leader: &Seat,
    candidates: &[Candidate],
    prompts: &Prompts,
) -> Option<(Choice, bool)> {
    let worker = &leader.member.worker;
    let profile = &worker.set.profile;
    let mut state = pipeline.pickers.get(&profile.name)?.lock();
    let replicate = prompts.on(leader).and_then(|held| {
        let window = state.hot.entry(leader.member.model().unwrap_or_default()).or_default();
        let hot = window.observe(&held.keys, profile.picker.replication_threshold_pct);
        let held = held_back(candidates, profile.picker.warmup_in_flight_max);
        let alike = |one: &Candidate| one.level == candidates[0].level && one.model == leader.model;
        let all = candidates.iter().enumerate();
        let alike: Vec<_> = all.filter(|(i, one)| alike(one) && !held[*i]).collect();
        let ranked: Vec<_> = alike.iter().map(|(_, one)| *one).collect();
        replica(&profile.picker, &profile.predictor, &ranked, hot).map(|at| alike[at].0)
    });
    pick(&profile.picker, candidates, replicate, &mut state.rng).map(|choice| (choice, replicate.is_some()))
}
