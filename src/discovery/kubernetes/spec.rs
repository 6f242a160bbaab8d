//! What a worker set asks for, whoever asks: a `[[workerset]]` of the configuration or an InferenceWorkerSet. Pure.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;

use super::{
    engines::{Engines, Kv, Ports},
    slices::shown,
};
use crate::{
    config::{PortDefaults, Profile},
    fleet::WorkerSet,
    policy::{
        crd::{InferenceWorkerSet, InferenceWorkerSetSpec, KvEventSource},
        in_one_line, validate,
    },
};

/// Longest label selector that is asked for, in bytes: it goes into a URL.
const MAX_SELECTOR: usize = 4096;

/// A worker set whose engines are found.
#[derive(Clone, Debug, PartialEq)]
pub struct SetSpec {
    /// The set.
    pub set: Arc<WorkerSet>,
    /// Where its engines are; `None`: nowhere, there are none.
    pub source: Option<Source>,
    /// How they are reached.
    pub engines: Engines,
}

/// Where engines are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The endpoints of a Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Pods.
    Pods {
        /// Their namespace.
        namespace: String,
        /// A label selector.
        labels: String,
    },
}

/// Why a resource is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In one word.
    pub reason: Reason,
    /// What is wrong, and what would do.
    pub message: String,
}

/// In one word, why a resource is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Another worker set has its name.
    NameConflict,
    /// There is no such profile.
    UnknownProfile,
    /// It contradicts itself.
    Invalid,
}

impl Reason {
    /// As conditions have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NameConflict => "NameConflict",
            Self::UnknownProfile => "UnknownProfile",
            Self::Invalid => "Invalid",
        }
    }
}

/// What the configuration has for resources.
#[derive(Clone, Debug)]
pub struct Configured {
    /// The profiles that they may name.
    pub profiles: Vec<Arc<Profile>>,
    /// Ports that nothing else says.
    pub defaults: PortDefaults,
    /// The names of the `[[workerset]]`s.
    pub workersets: Vec<String>,
}

/// What a resource asks for.
///
/// # Errors
/// Everything that is wrong with it; an unknown profile alone, because that may well be right tomorrow.
pub fn spec_of(resource: &InferenceWorkerSet, configured: &Configured) -> Result<SetSpec, Refusal> {
    let (spec, metadata) = (&resource.spec, &resource.metadata);
    let namespace = metadata.namespace.clone().unwrap_or_default();
    let problems = validate(resource);
    if !problems.is_empty() {
        return Err(Refusal { reason: Reason::Invalid, message: in_one_line(&problems) });
    }
    let source = source(spec, namespace).map_err(|message| Refusal { reason: Reason::Invalid, message })?;
    let Some(profile) = configured.profiles.iter().find(|profile| profile.name == spec.profile) else {
        let known: Vec<_> = configured.profiles.iter().map(|p| format!("`{}`", p.name)).collect();
        let message = format!(
            "spec.profile is `{}`, but must be the name of a profile in Kinference's configuration; defined: {}",
            shown(&spec.profile),
            if known.is_empty() { "none".into() } else { known.join(", ") }
        );
        return Err(Refusal { reason: Reason::UnknownProfile, message });
    };
    let set = WorkerSet {
        name: metadata.name.clone().unwrap_or_default().into(),
        profile: profile.clone(),
        kv_block_size: spec.kv_block_size,
        render_url: spec.render_url.clone(),
    };
    let kv = match spec.kv_events.source {
        KvEventSource::Ports => Kv::Ports { ranks: spec.kv_events.ranks.max(1) },
        KvEventSource::Engine => Kv::Engine,
    };
    let engines = Engines {
        model_name: spec.model_name.clone(),
        ports: Ports::Named(spec.ports.clone()),
        defaults: configured.defaults,
        kv,
    };
    Ok(SetSpec { set: set.into(), source: Some(source), engines })
}

fn source(spec: &InferenceWorkerSetSpec, namespace: String) -> Result<Source, String> {
    match (&spec.service, &spec.selector) {
        (Some(service), None) => Ok(Source::Service { namespace, name: service.name.clone() }),
        (None, Some(selector)) => Ok(Source::Pods { namespace, labels: labels(selector)? }),
        _ => Err("exactly one of spec.service and spec.selector must be set".into()),
    }
}

fn labels(selector: &LabelSelector) -> Result<String, String> {
    let read = Selector::try_from(selector.clone()).map_err(|error| format!("spec.selector: {error}"))?;
    let text = read.to_string();
    if text.len() > MAX_SELECTOR {
        return Err(format!(
            "spec.selector is {} characters as it is asked for, but must be at most {MAX_SELECTOR}",
            text.len()
        ));
    }
    Ok(text)
}
