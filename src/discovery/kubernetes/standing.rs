//! How a worker set stands, as the conditions of its InferenceWorkerSet say it. Pure.

use super::{
    plan::Planned,
    serving::Serving,
    spec::{Refusal, SetSpec, Source},
};
use crate::kubernetes::status::{Verdict, Wanted};

/// What was seen of a worker set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many EndpointSlices or pods there are; `None`: not known yet.
    pub listed: Option<usize>,
    /// What was left out, in words.
    pub left_out: Option<String>,
    /// Ports that were asked for and are not there, in words.
    pub missing_ports: Option<String>,
}

/// What the status of a resource is to say of which that much was seen, and whose workers are so.
pub fn standing(planned: &Planned, seen: &Seen, serving: &Serving) -> Wanted {
    let in_force = planned.in_force.as_ref();
    let accepted = accepted(planned.refusal.as_ref(), in_force.is_some());
    let conditions = match in_force {
        Some(spec) => vec![accepted, resolved(spec, seen, serving.workers), ready(serving)],
        None => vec![accepted, not_accepted("ResolvedRefs"), not_accepted("Ready")],
    };
    let counts = [("workers", serving.workers), ("readyWorkers", serving.ready)];
    Wanted {
        conditions,
        fields: counts.into_iter().map(|(name, count)| (name.into(), count.into())).collect(),
    }
}

fn not_accepted(kind: &'static str) -> Verdict {
    let message = "nothing of this resource is in force".to_owned();
    Verdict { kind, holds: false, reason: "NotAccepted", message }
}

fn accepted(refusal: Option<&Refusal>, in_force: bool) -> Verdict {
    let kind = "Accepted";
    match refusal {
        None => {
            Verdict { kind, holds: true, reason: "Accepted", message: "the worker set is in force".into() }
        }
        Some(Refusal { reason, message }) => {
            let meanwhile = if in_force { "; what was accepted before stays in force" } else { "" };
            Verdict { kind, holds: false, reason: reason.as_str(), message: format!("{message}{meanwhile}") }
        }
    }
}

fn resolved(spec: &SetSpec, seen: &Seen, workers: usize) -> Verdict {
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
            (true, "Resolved", format!("engines found by {}: {workers}", what(source)))
        }
    };
    if let Some(missing) = &seen.missing_ports {
        message = format!("{message}; {missing}");
    }
    if let Some(left_out) = &seen.left_out {
        message = format!("{message}; left out: {left_out}");
    }
    Verdict { kind: "ResolvedRefs", holds, reason, message }
}

/// A source, in words.
pub(super) fn what(source: &Source) -> String {
    match source {
        Source::Service { namespace, name } => {
            format!("EndpointSlices of Service `{name}` in namespace `{namespace}`")
        }
        Source::Pods { namespace, labels } => format!("pods `{labels}` in namespace `{namespace}`"),
    }
}

fn ready(serving: &Serving) -> Verdict {
    let (holds, reason) = if serving.ready > 0 { (true, "WorkersReady") } else { (false, "NoReadyWorkers") };
    Verdict { kind: "Ready", holds, reason, message: serving.tell() }
}
