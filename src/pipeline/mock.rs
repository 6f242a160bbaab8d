//! Mock mode: the same request gets the same worker, with nothing known of any engine.

use xxhash_rust::xxh3::Xxh3;

use crate::{
    load::Claim,
    types::{Candidate, Decision},
};

use super::{
    Field, Incoming, IncomingBody, Pipeline, Placement, Subject, field::Seat, placement::Reserved,
    wording::Words,
};

/// Chooses by a hash of the request over the workers in the order of their ids.
pub(super) fn choose(
    pipeline: &Pipeline,
    incoming: &Incoming,
    subject: &Subject,
    field: &Field,
) -> Option<(Placement, Option<Words>)> {
    let mut hash = Xxh3::new();
    if let IncomingBody::Full(body) = &incoming.body {
        hash.update(body);
    }
    let chosen = usize::try_from(hash.digest() % u64::try_from(field.seats.len()).ok()?).ok()?;
    let seat = field.seats.get(chosen)?;
    let winner = seat.member()?.clone();
    let claim = Claim { streamed: subject.token_is_seen, ..Claim::default() };
    let reservation = pipeline.rooms.load.lock().reserve(winner.worker.id, claim);
    let decision = Decision {
        model: subject.model.clone(),
        candidates: field.seats.iter().map(candidate).collect(),
        chosen,
        fallbacks: fallbacks(field, chosen),
        removed: field.removed.clone(),
        degraded: subject.degraded.clone(),
        ..Decision::default()
    };
    let reserved = Reserved::Worker(winner, reservation);
    Some((Placement::new(pipeline, incoming, decision, reserved), seat.words()))
}

/// Whoever else would take the same request.
fn fallbacks(field: &Field, chosen: usize) -> Vec<usize> {
    let model = &field.seats[chosen].model;
    let others = field.seats.iter().enumerate().filter(|(i, seat)| *i != chosen && seat.model == *model);
    others.map(|(i, _)| i).collect()
}

fn candidate(seat: &Seat) -> Candidate {
    Candidate::new(seat.target(), seat.model.clone())
}
