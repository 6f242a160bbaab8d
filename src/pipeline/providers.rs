//! Which providers of a pool may serve a request: those that speak its API, can be sent all of it, and answer.
//!
//! Invariant: whoever is turned away is told of with a reason, the first that there is.

use std::sync::Arc;

use super::{
    Incoming, Pipeline, Subject,
    field::{self, Field, Seat, Who},
    pools::InPool,
};
use crate::{
    policy::eval::Provider,
    types::{ProviderTarget, RemovedReason, RequestKind, provider_label},
};

/// Gives seats to the providers behind what a request asks for.
pub(super) fn seat(pipeline: &Pipeline, pool: &InPool, about: (&Incoming, &Subject), field: &mut Field) {
    for (backend, provider) in pool.providers() {
        let model = Some(provider.upstream.clone());
        match takes(pipeline, provider, about) {
            Ok(target) => {
                let who = Who::Provider(provider.clone(), Arc::new(target));
                field.seats.push(Seat { who, model, backend });
            }
            Err(reason) => field.remove(provider_label(&provider.key.name).into(), model, reason),
        }
    }
}

fn takes(
    pipeline: &Pipeline,
    provider: &Provider,
    (incoming, subject): (&Incoming, &Subject),
) -> Result<ProviderTarget, RemovedReason> {
    let refuse = |refused: bool, reason: RemovedReason| if refused { Err(reason) } else { Ok(()) };
    let speaks = matches!(&incoming.kind, RequestKind::Inference(api) if provider.serves(*api));
    refuse(!speaks, RemovedReason::OtherApi)?;
    // Its model and its path are to be rewritten, which takes a body that was read.
    refuse(subject.parsed.is_none(), RemovedReason::BodyUnseen)?;
    // A subset is one of endpoints, and it has none.
    refuse(incoming.subset.is_some(), RemovedReason::NotInSubset)?;
    let label = provider_label(&provider.key.name);
    refuse(incoming.exclude.contains(&label), RemovedReason::Excluded)?;
    let target = provider.target(&pipeline.secrets).map_err(|_| RemovedReason::NoCredential)?;
    let view = pipeline.rooms.load.providers().view(field::at(provider));
    refuse(!view.takes_requests, RemovedReason::Failing)?;
    Ok(target)
}
