//! A Lease as the API server has it, and as the election's machine does.
//!
//! Invariant: what else a Lease has, labels for one, is left as it is.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, Client, Error, api::PostParams, core::ObjectMeta};

use super::machine::{Found, Record, Written};
use crate::kubernetes::failure::{ApiError, Failure, Target, Verb};

/// One Lease.
pub(super) struct LeaseApi {
    api: Api<Lease>,
    name: String,
    target: Target,
    /// The last one seen: what is written is this with another spec.
    last: Option<Lease>,
}

impl LeaseApi {
    pub(super) fn new(client: Client, namespace: &str, name: String) -> Self {
        let target = Target::of::<Lease>(Some(namespace));
        Self { api: Api::namespaced(client, namespace), name, target, last: None }
    }

    pub(super) async fn read(&mut self) -> Result<Found, ApiError> {
        match self.api.get(&self.name).await {
            Ok(lease) => Ok(self.found(lease)),
            Err(error) => match self.error(Verb::Get, error) {
                ApiError { failure: Failure::NotFound, .. } => Ok(Found::Nothing),
                error => Err(error),
            },
        }
    }

    pub(super) async fn write(&mut self, record: &Record, over: Option<String>) -> Result<Written, ApiError> {
        let (verb, came) = match over {
            None => (Verb::Create, self.api.create(&PostParams::default(), &self.lease(record, None)).await),
            Some(version) => {
                let lease = self.lease(record, Some(version));
                (Verb::Update, self.api.replace(&self.name, &PostParams::default(), &lease).await)
            }
        };
        match came {
            Ok(lease) => Ok(Written::Done(self.found(lease))),
            Err(error) => match self.error(verb, error) {
                ApiError { failure: Failure::Conflict, .. } => Ok(Written::Conflict),
                ApiError { failure: Failure::NotFound, .. } => Ok(Written::Conflict),
                error => Err(error),
            },
        }
    }

    /// As it is logged.
    pub(super) fn late(&self, verb: Verb) -> ApiError {
        ApiError { verb, target: self.target.clone(), failure: Failure::TimedOut }
    }

    fn error(&self, verb: Verb, error: Error) -> ApiError {
        let failure = match verb {
            Verb::Create => Failure::of_create(error),
            _ => Failure::of(error, false),
        };
        ApiError { verb, target: self.target.clone(), failure }
    }

    fn found(&mut self, lease: Lease) -> Found {
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let record = record(lease.spec.as_ref());
        self.last = Some(lease);
        Found::Lease { version, record }
    }

    fn lease(&self, record: &Record, version: Option<String>) -> Lease {
        let known = self.last.clone().filter(|known| known.metadata.resource_version == version);
        let mut lease = known.unwrap_or_default();
        if version.is_none() {
            lease.metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        }
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = record.holder.clone();
        spec.lease_duration_seconds = Some(seconds(record.duration));
        spec.acquire_time = record.acquired.map(MicroTime);
        spec.renew_time = record.renewed.map(MicroTime);
        spec.lease_transitions = Some(record.transitions);
        lease
    }
}

/// Never none: that would be read as no time at all.
fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}

fn record(spec: Option<&LeaseSpec>) -> Record {
    let spec = spec.cloned().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Record {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        duration: Duration::from_secs(seconds.unwrap_or_default()),
        acquired: spec.acquire_time.map(|time| time.0),
        renewed: spec.renew_time.map(|time| time.0),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(spec: serde_json::Value) -> Lease {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    #[test]
    fn a_long_duration_is_written_and_a_missing_one_is_none() {
        assert_eq!(seconds(Duration::from_secs(3_000_000_000)), i32::MAX);
        for spec in [json!({}), json!({"leaseDurationSeconds": 0}), json!({"leaseDurationSeconds": -5})] {
            assert_eq!(record(lease(spec).spec.as_ref()).duration, Duration::ZERO);
        }
        assert_eq!(record(None).duration, Duration::ZERO);
    }

    #[test]
    fn an_empty_holder_is_none() {
        for spec in [json!({}), json!({"holderIdentity": null}), json!({"holderIdentity": ""})] {
            assert_eq!(record(lease(spec).spec.as_ref()).holder, None);
        }
        let full = record(
            lease(json!({"holderIdentity": "a", "leaseDurationSeconds": 7, "leaseTransitions": 2,
            "renewTime": "2026-01-02T03:04:05.000006Z"}))
            .spec
            .as_ref(),
        );
        assert_eq!((full.holder.as_deref(), full.duration.as_secs(), full.transitions), (Some("a"), 7, 2));
        assert_eq!(full.renewed.unwrap().as_microsecond() % 1_000_000, 6);
    }
}
