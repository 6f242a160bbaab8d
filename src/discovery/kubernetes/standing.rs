//! How a worker set stands, as the conditions of its InferenceWorkerSet say it. Pure.

use super::{
    plan::Planned,
    spec::{Refusal, SetSpec, Source},
};

/// What was seen of a worker set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many EndpointSlices or pods there are; `None`: not known yet.
    pub listed: Option<usize>,
    /// Engines found.
    pub workers: usize,
    /// Of these, the ones that take requests.
    pub ready: usize,
    /// What was left out, in words.
    pub left_out: Option<String>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

/// All that is said of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// `Accepted`, `ResolvedRefs`, `Ready`.
    pub conditions: [Condition; 3],
    /// Engines found.
    pub workers: usize,
    /// Of these, the ones that take requests.
    pub ready_workers: usize,
}

/// How a resource stands of which that much was seen.
pub fn standing(planned: &Planned, seen: &Seen) -> Standing {
    let conditions = match &planned.in_force {
        Some(spec) => [accepted(planned.refusal.as_ref(), true), resolved(spec, seen), ready(seen)],
        None => {
            let message = "nothing of this resource is in force".to_owned();
            let not =
                |kind| Condition { kind, holds: false, reason: "NotAccepted", message: message.clone() };
            [accepted(planned.refusal.as_ref(), false), not("ResolvedRefs"), not("Ready")]
        }
    };
    Standing { conditions, workers: seen.workers, ready_workers: seen.ready }
}

fn accepted(refusal: Option<&Refusal>, in_force: bool) -> Condition {
    let kind = "Accepted";
    match refusal {
        None => {
            Condition { kind, holds: true, reason: "Accepted", message: "the worker set is in force".into() }
        }
        Some(Refusal { reason, message }) => {
            let meanwhile = if in_force { "; what was accepted before stays in force" } else { "" };
            Condition {
                kind,
                holds: false,
                reason: reason.as_str(),
                message: format!("{message}{meanwhile}"),
            }
        }
    }
}

fn resolved(spec: &SetSpec, seen: &Seen) -> Condition {
    let (holds, reason, mut message) = match (&spec.source, seen.listed) {
        (None, _) => (false, "NoSource", "nothing says where its engines are".into()),
        (Some(source), None) => (false, "Pending", format!("{} are not listed yet", what(source))),
        (Some(source @ Source::Service { .. }), Some(0)) => {
            let message =
                format!("{} do not exist: there is no such Service, or it has no selector", what(source));
            (false, "ServiceNotFound", message)
        }
        (Some(source @ Source::Pods { .. }), Some(0)) => {
            (false, "NoPods", format!("there are none of {}", what(source)))
        }
        (Some(source), Some(_)) => {
            (true, "Resolved", format!("{} name {} engines", what(source), seen.workers))
        }
    };
    if let Some(left_out) = &seen.left_out {
        message = format!("{message}; left out: {left_out}");
    }
    Condition { kind: "ResolvedRefs", holds, reason, message }
}

fn what(source: &Source) -> String {
    match source {
        Source::Service { namespace, name } => {
            format!("EndpointSlices of Service `{name}` in namespace `{namespace}`")
        }
        Source::Pods { namespace, labels } => format!("pods `{labels}` in namespace `{namespace}`"),
    }
}

fn ready(seen: &Seen) -> Condition {
    let message = format!("{} of {} workers take requests", seen.ready, seen.workers);
    let (holds, reason) = if seen.ready > 0 { (true, "WorkersReady") } else { (false, "NoReadyWorkers") };
    Condition { kind: "Ready", holds, reason, message }
}
