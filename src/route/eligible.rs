//! Which workers may serve a request at all. The same for every kind of pick.

use crate::{fleet::Member, types::RemovedReason};

/// What a request demands of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand<'a> {
    /// The model that it names.
    pub model: Option<&'a str>,
    /// Only these `ip:port`.
    pub subset: Option<&'a [String]>,
    /// None of these `ip:port`.
    pub exclude: &'a [String],
    /// Tokens of the prompt, where known.
    pub prompt_tokens: Option<usize>,
}

/// Whether the worker may serve the request.
///
/// # Errors
/// The first reason why not.
pub fn eligible(member: &Member, demand: Demand<'_>) -> Result<(), RemovedReason> {
    let served = demand.model.map(|model| member.serves(model));
    if matches!(served, Some(None)) {
        return Err(RemovedReason::OtherModel);
    }
    if demand.subset.is_some_and(|subset| !subset.iter().any(|e| **e == *member.worker.endpoint)) {
        return Err(RemovedReason::NotInSubset);
    }
    if demand.exclude.iter().any(|e| **e == *member.worker.endpoint) {
        return Err(RemovedReason::Excluded);
    }
    if let Some(reason) = member.unavailable() {
        return Err(reason);
    }
    let longest = served.flatten().and_then(|served| served.max_model_len);
    // The engine needs room for one token of output.
    if demand.prompt_tokens.zip(longest).is_some_and(|(tokens, longest)| tokens >= longest) {
        return Err(RemovedReason::PromptTooLong);
    }
    Ok(())
}
