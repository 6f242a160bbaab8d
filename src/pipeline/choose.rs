//! Predict, pick and reserve, under one lock: a burst of equal prompts sees each other's reservations.

use tokio::time::Instant;

use crate::{
    config::PickerConfig,
    fleet::Member,
    load::{Claim, LoadView, Pick, Prefill, Providers},
    policy::eval::Provider,
    route::{
        Choice, Cost, Demand, assume_worst, calibrate::predict_calibrated, held_back, pick, predict,
        predict_provider, rank, replica,
    },
    types::{Candidate, Decision, Degradation, ErrorKind, Overlap, Rejection, RemovedReason, Stage},
};

use super::{
    Calibrations, Field, Incoming, Pipeline, Placement, Subject,
    calibration::{About, Lesson},
    clock::Clock,
    field::{self, Seat, Who},
    no_worker,
    placement::Reserved,
    pools::InPool,
    rules::{self, Left},
    tokens::{Held, Prompts},
    wording::Words,
};

/// A request and the pool that it is of.
pub(super) struct Asked<'a> {
    pub incoming: &'a Incoming,
    pub subject: &'a Subject,
    pub pool: Option<&'a InPool>,
}

/// Chooses one of the field for the request, and tells how it words the request.
///
/// # Errors
/// Nobody is left once the prompt's length is known, or a rule turns the request away.
pub(super) fn choose(
    pipeline: &Pipeline,
    asked: &Asked<'_>,
    (mut field, prompts): (Field, &Prompts),
    clock: &mut Clock,
) -> Result<(Placement, Option<Words>), Rejection> {
    settle(pipeline, &mut field, prompts)?;
    let table = &pipeline.rooms.load;
    let about = (asked.incoming, asked.subject, prompts.tokens());
    let match_rules =
        |pool| clock.during(Stage::Policy, || rules::matched(pool, about, (&field.seats, table)));
    let rules = asked.pool.and_then(match_rules);
    let mut load = table.lock();
    let providers = table.providers();
    field.keep_taking(providers);
    let (candidates, others) = clock.during(Stage::Predict, || predicted(pipeline, &field, (&load, prompts)));
    let left = match &rules {
        Some(rules) => clock.during(Stage::Policy, || rules.run(candidates, &others)),
        None => Ok(Left::all(candidates)),
    };
    let Left { mut candidates, taken, ruled } = match left {
        Ok(left) => left,
        Err(rejection) => return Err(rejection.after(field.removed)),
    };
    let picking = Instant::now();
    rank(&mut candidates);
    let picked = pick_one(pipeline, &field, &candidates, prompts).and_then(|(choice, replicated)| {
        let winner = seat_of(&field, &candidates[choice.chosen])?;
        Some((choice, replicated, winner))
    });
    let Some((choice, replicated, winner)) = picked else {
        let nobody = no_worker(rules::removed(&taken).collect());
        return Err(Rejection { ruled, ..nobody }.after(field.removed));
    };
    let chosen = &candidates[choice.chosen];
    let held = prompts.on(winner);
    let lesson = lesson(pipeline, asked.subject, (winner, chosen), (&load, held));
    let reserved = match &winner.who {
        Who::Worker(member) => {
            let claim = claim(asked.subject, chosen, held);
            Reserved::Worker(member.clone(), load.reserve(member.worker.id, claim))
        }
        Who::Provider(provider, _) => Reserved::Provider(providers.reserve(field::at(provider))),
    };
    drop(load);
    clock.passed(Stage::Pick, picking);
    let words = winner.words();
    let counted =
        if winner.member().is_some() { held.map(|held| held.keys.tokens) } else { prompts.tokens() };
    let decision = Decision {
        model: asked.subject.model.clone(),
        prompt_tokens: counted,
        candidates,
        chosen: choice.chosen,
        fallbacks: choice.fallbacks,
        removed: field.removed.into_iter().chain(rules::removed(&taken)).collect(),
        taken,
        ruled,
        degraded: asked.subject.degraded.clone(),
        replicated,
    };
    let mut placement = Placement::new(pipeline, asked.incoming, decision, reserved);
    placement.teaches(lesson);
    Ok((placement, words))
}

/// The candidates of a field, and what else rules look at.
fn predicted(
    pipeline: &Pipeline,
    field: &Field,
    (load, prompts): (&Pick<'_>, &Prompts),
) -> (Vec<Candidate>, Vec<Other>) {
    let providers = pipeline.rooms.load.providers();
    let candidate = |seat: &Seat| match &seat.who {
        Who::Worker(member) => of_worker(&pipeline.calibrations, (seat, member), (load, prompts)),
        Who::Provider(provider, _) => of_provider((seat, provider), providers),
    };
    let (mut candidates, others): (Vec<_>, Vec<_>) = field.seats.iter().map(candidate).unzip();
    assume_worst(&mut candidates);
    (candidates, others)
}

/// The index of a candidate's backend, and the age of its load.
type Other = (usize, Option<f64>);

/// Where a candidate sits.
fn seat_of<'f>(field: &'f Field, candidate: &Candidate) -> Option<&'f Seat> {
    let sits = |seat: &&Seat| match (&seat.who, candidate.target.worker()) {
        (Who::Worker(member), Some(worker)) => member.worker.id == worker.id,
        (Who::Provider(_, target), None) => candidate.target.provider() == Some(target),
        _ => false,
    };
    field.seats.iter().filter(sits).find(|seat| seat.model == candidate.model)
}

/// What the request is to teach of its worker.
fn lesson(
    pipeline: &Pipeline,
    subject: &Subject,
    (winner, chosen): (&Seat, &Candidate),
    (load, held): (&Pick<'_>, Option<&Held>),
) -> Option<Lesson> {
    let worker = &winner.member()?.worker;
    let known = pipeline.calibrations.of(&worker.set)?;
    let about = About {
        token_is_seen: subject.token_is_seen,
        with_prompt: held.is_some(),
        degraded: !subject.degraded.is_empty(),
        load: &load.view(worker.id),
    };
    Some(Lesson::new((&pipeline.calibrations, known), chosen, &about))
}

fn claim(subject: &Subject, chosen: &Candidate, held: Option<&Held>) -> Claim {
    Claim {
        work_ms: held.map(|_| chosen.prediction.prefill_ms),
        prefill: Prefill::of(chosen.prediction.uncached_blocks(), chosen.prediction.blocks),
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
        let Who::Worker(was) = &before.who else {
            field.seats.push(before);
            continue;
        };
        let Some(member) = fleet.get(&was.worker.id).filter(|now| is_same(was, now)) else {
            field.remove(was.worker.name.clone(), before.model, RemovedReason::Gone);
            continue;
        };
        let prompt_tokens = prompts.on(&before).map(|held| held.keys.tokens);
        let demand = Demand { prompt_tokens, ..Demand::default() };
        if field.add(member, (before.model, before.backend), demand) == Some(RemovedReason::PromptTooLong) {
            longest = longest.max(prompt_tokens);
        }
    }
    match longest {
        Some(tokens) if field.seats.is_empty() => {
            let why =
                format!("The prompt has {tokens} tokens, which is more than the model's context holds.");
            let removed = std::mem::take(&mut field.removed);
            Err(Rejection { removed, ..Rejection::new(ErrorKind::BadRequest, why) })
        }
        _ => Ok(()),
    }
}

/// Whether what was found out for a worker still holds of it, should its description have changed.
fn is_same(before: &Member, now: &Member) -> bool {
    let (before, now) = (&before.worker, &now.worker);
    before.endpoint == now.endpoint && before.model_name == now.model_name && before.set.name == now.set.name
}

fn of_provider((seat, provider): (&Seat, &Provider), providers: &Providers) -> (Candidate, Other) {
    let view = providers.view(field::at(provider));
    let candidate = Candidate {
        prediction: predict_provider(view.ttft_ms),
        own_in_flight: view.own_in_flight,
        ..Candidate::new(seat.target(), seat.model.clone())
    };
    (candidate, (seat.backend, None))
}

fn of_worker(
    calibrations: &Calibrations,
    (seat, member): (&Seat, &Member),
    (load, prompts): (&Pick<'_>, &Prompts),
) -> (Candidate, Other) {
    let worker = &member.worker;
    let profile = &worker.set.profile;
    let view = load.view(worker.id);
    let held = prompts.on(seat);
    let mut overlap = held.map_or_else(Overlap::default, |held| held.overlap);
    if let Some(held) = held
        && profile.picker.inflight_tracking
    {
        overlap.expected = load.expected(worker.id, &held.keys, overlap.confirmed);
    }
    let cost = Cost {
        predictor: &profile.predictor,
        inflight_tracking: profile.picker.inflight_tracking,
        blocks: prompts.blocks(held, &worker.set),
        overlap,
        load: &view,
    };
    let prediction = match calibrations.in_force(&worker.set) {
        Some(fitted) => predict_calibrated(cost, &fitted.predictor),
        None => predict(cost),
    };
    let candidate = Candidate {
        target: seat.target(),
        model: seat.model.clone(),
        overlap,
        prediction,
        waiting: rules::waiting(&view),
        own_in_flight: view.own_in_flight,
        level: 0,
        warming: member.warming(),
        degraded: lacks(member, &view, held.is_some()),
    };
    (candidate, (seat.backend, view.age_ms))
}

fn lacks(member: &Member, view: &LoadView, with_prompt: bool) -> Vec<Degradation> {
    let cache = member.status.kv.load().lacks().filter(|_| with_prompt);
    view.freshness.lacks().into_iter().chain(cache).collect()
}

/// Picks with the picker of the best candidate's profile; a provider has none: then with that of the best worker's, if
/// there is one. A hot prefix is spread over those workers only that are as good to the rules as the best, serve its
/// model, and are not held back.
fn pick_one(
    pipeline: &Pipeline,
    field: &Field,
    candidates: &[Candidate],
    prompts: &Prompts,
) -> Option<(Choice, bool)> {
    let mut workers = candidates.iter().filter(|one| one.target.worker().is_some());
    let Some(first) = workers.next() else {
        let choice = pick(&PickerConfig::default(), candidates, None, &mut pipeline.outside.lock());
        return choice.map(|choice| (choice, false));
    };
    let leader = seat_of(field, first)?;
    let member = leader.member()?;
    let profile = &member.worker.set.profile;
    let fitted = pipeline.calibrations.in_force(&member.worker.set);
    let predictor = fitted.as_ref().map_or(&profile.predictor, |fitted| &fitted.predictor);
    let mut state = pipeline.pickers.get(&profile.name)?.lock();
    let leads = candidates[0].target.worker().is_some();
    let replicate = prompts.on(leader).filter(|_| leads).and_then(|held| {
        let window = state.hot.entry(member.model().unwrap_or_default()).or_default();
        let hot = window.observe(&held.keys, profile.picker.replication_threshold_pct);
        let held = held_back(candidates, profile.picker.warmup_in_flight_max);
        let alike = |one: &Candidate| {
            one.level == candidates[0].level && one.model == leader.model && one.target.worker().is_some()
        };
        let all = candidates.iter().enumerate();
        let alike: Vec<_> = all.filter(|(i, one)| alike(one) && !held[*i]).collect();
        let ranked: Vec<_> = alike.iter().map(|(_, one)| *one).collect();
        replica(&profile.picker, predictor, &ranked, hot).map(|at| alike[at].0)
    });
    pick(&profile.picker, candidates, replicate, &mut state.rng).map(|choice| (choice, replicate.is_some()))
}
