//! Why the API server did not do what we asked: one type for all that asks it.
//!
//! Invariant: an error names the verb and the resource, as a Role does, so that whoever reads a refusal knows what to grant.

use std::{borrow::Cow, fmt, sync::Arc};

use kube::{Error, Resource, core::Status};

use super::client::chain;

/// The group of the kinds that are ours to install.
const OUR_GROUP: &str = "kinference.buoyant.io";

/// What was asked, in RBAC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// One object.
    Get,
    /// All of them.
    List,
    /// Their changes.
    Watch,
    /// A new one.
    Create,
    /// One replaced.
    Update,
    /// One changed.
    Patch,
}

impl Verb {
    /// As RBAC has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
        }
    }
}

/// Of what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    plural: Cow<'static, str>,
    group: Cow<'static, str>,
    subresource: Option<&'static str>,
    /// `None`: of all namespaces, or of a kind that has none.
    pub namespace: Option<Arc<str>>,
}

impl Target {
    /// All objects of a kind, or those of one namespace.
    pub fn of<K: Resource<DynamicType = ()>>(namespace: Option<&str>) -> Self {
        let namespace = namespace.map(Into::into);
        Self { plural: K::plural(&()), group: K::group(&()), subresource: None, namespace }
    }

    /// Their status.
    pub fn status(mut self) -> Self {
        self.subresource = Some("status");
        self
    }

    /// `endpointslices.discovery.k8s.io`
    pub fn resource(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        let slash = if self.subresource.is_some() { "/" } else { "" };
        format!("{}{dot}{}{slash}{}", self.plural, self.group, self.subresource.unwrap_or_default())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource())?;
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace `{namespace}`"),
            None => Ok(()),
        }
    }
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ApiError {
    /// What was asked.
    pub verb: Verb,
    /// Of what.
    pub target: Target,
    /// What became of it.
    pub failure: Failure,
}

/// How a request fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// 401: our credentials are not known.
    Unauthenticated(String),
    /// 403: they don't allow it.
    Forbidden(String),
    /// 404 for a whole kind: the API server does not serve it.
    NotServed,
    /// 404 for an object: it is gone.
    NotFound,
    /// 404 for an object that is to be made: its namespace is not there.
    NoNamespace(String),
    /// 409: somebody else has changed the object.
    Conflict,
    /// 410: the version asked for is forgotten.
    Expired,
    /// It refuses what was asked in another way (4xx).
    Invalid(String),
    /// It fails, or has too much to do (5xx, 429).
    Failed(String),
    /// It does not answer in time.
    TimedOut,
    /// It can't be reached.
    Unreachable(String),
    /// Its answer is not what was asked for.
    Unreadable(String),
    /// There is no way to ask for it.
    Unaskable(String),
}

impl Failure {
    /// What a client error comes to; `whole_kind`: the request names no object.
    pub fn of(error: Error, whole_kind: bool) -> Self {
        match error {
            Error::Api(status) => Self::of_status(&status, whole_kind),
            Error::SerdeError(error) => Self::Unreadable(error.to_string()),
            Error::FromUtf8(error) => Self::Unreadable(error.to_string()),
            Error::BuildRequest(error) => Self::Unaskable(chain(&error)),
            error => Self::Unreachable(chain(&error)),
        }
    }

    /// What a client error comes to where an object was to be made.
    pub fn of_create(error: Error) -> Self {
        match error {
            Error::Api(status) if status.code == 404 => Self::NoNamespace(format!("404 {}", status.message)),
            error => Self::of(error, false),
        }
    }

    /// What an answer that is an error comes to.
    pub fn of_status(status: &Status, whole_kind: bool) -> Self {
        let text = || format!("{} {}", status.code, status.message);
        match status.code {
            401 => Self::Unauthenticated(text()),
            403 => Self::Forbidden(text()),
            404 if whole_kind => Self::NotServed,
            404 => Self::NotFound,
            409 => Self::Conflict,
            410 => Self::Expired,
            429 => Self::Failed(text()),
            400..500 => Self::Invalid(text()),
            _ => Self::Failed(text()),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, target) = (self.verb.as_str(), &self.target);
        match &self.failure {
            Failure::Unauthenticated(why) => {
                write!(f, "the API server does not know our credentials (`{verb}` on {target}): {why}")
            }
            Failure::Forbidden(why) => {
                let all = if target.namespace.is_none() { " in all namespaces" } else { "" };
                write!(f, "the API server refuses us: Kinference needs `{verb}` on {target}{all}: {why}")
            }
            // Groups of Kubernetes itself have no dot or end like this; all others are of CRDs.
            Failure::NotServed if target.group.contains('.') && !target.group.ends_with(".k8s.io") => {
                write!(f, "the CRD {} is not installed", target.resource())?;
                if target.group == OUR_GROUP {
                    f.write_str(": install the chart kinference-crds, or what `kinfctl crds` prints")
                } else {
                    Ok(())
                }
            }
            Failure::NotServed => write!(f, "the API server does not serve {}", target.resource()),
            Failure::NotFound => write!(f, "`{verb}` on {target}: no such object"),
            Failure::NoNamespace(why) => write!(f, "`{verb}` on {target}: the namespace is missing: {why}"),
            Failure::Conflict => write!(f, "`{verb}` on {target}: somebody else has changed it"),
            Failure::Expired => write!(f, "`{verb}` on {target}: the version asked for is forgotten"),
            Failure::Invalid(why) => write!(f, "the API server rejects `{verb}` on {target}: {why}"),
            Failure::Failed(why) => write!(f, "the API server fails `{verb}` on {target}: {why}"),
            Failure::TimedOut => write!(f, "the API server does not answer `{verb}` on {target} in time"),
            Failure::Unreachable(why) => {
                write!(f, "the API server can't be reached (`{verb}` on {target}): {why}")
            }
            Failure::Unreadable(why) => write!(f, "the answer to `{verb}` on {target} can't be read: {why}"),
            Failure::Unaskable(why) => write!(f, "the request `{verb}` on {target} can't be made: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{core::v1::Pod, discovery::v1::EndpointSlice};

    use super::*;
    use crate::policy::crd::InferenceWorkerSet;

    fn said(target: Target, code: u16) -> String {
        let status = Status::failure("no", "why").with_code(code).boxed();
        let failure = Failure::of(Error::Api(status), true);
        ApiError { verb: Verb::List, target, failure }.to_string()
    }

    #[test]
    fn a_refusal_names_what_to_grant() {
        assert_eq!(
            said(Target::of::<EndpointSlice>(Some("x")), 403),
            "the API server refuses us: Kinference needs `list` on endpointslices.discovery.k8s.io in namespace `x`: 403 no"
        );
        assert!(said(Target::of::<Pod>(None), 403).contains("needs `list` on pods in all namespaces"));
        assert!(
            said(Target::of::<Pod>(None), 401).contains("does not know our credentials (`list` on pods)")
        );
        let status = Target::of::<InferenceWorkerSet>(Some("x")).status();
        assert!(
            said(status, 403).contains("on inferenceworkersets.kinference.buoyant.io/status in namespace")
        );
    }

    #[test]
    fn what_never_reached_the_api_server_says_so() {
        let bad = kube::core::request::Error::Validation("why".into());
        let failure = Failure::of(Error::BuildRequest(bad), false);
        let said = ApiError { verb: Verb::List, target: Target::of::<Pod>(None), failure }.to_string();
        assert!(
            said.starts_with("the request `list` on pods can't be made: ") && said.ends_with("why"),
            "{said}"
        );
    }

    #[test]
    fn a_namespace_that_is_missing_is_told_by_the_api_server() {
        let status = Status::failure("namespaces \"x\" not found", "NotFound").with_code(404).boxed();
        let failure = Failure::of_create(Error::Api(status));
        let said = ApiError { verb: Verb::Create, target: Target::of::<Pod>(Some("x")), failure }.to_string();
        assert_eq!(
            said,
            "`create` on pods in namespace `x`: the namespace is missing: 404 namespaces \"x\" not found"
        );
    }

    #[test]
    fn a_kind_that_is_not_there_is_told_from_an_object() {
        assert_eq!(
            said(Target::of::<InferenceWorkerSet>(None), 404),
            "the CRD inferenceworkersets.kinference.buoyant.io is not installed: install the chart kinference-crds, or what \
             `kinfctl crds` prints"
        );
        let slices = said(Target::of::<EndpointSlice>(None), 404);
        assert_eq!(slices, "the API server does not serve endpointslices.discovery.k8s.io");
        let status = Status::failure("no", "why").with_code(404);
        assert_eq!(Failure::of_status(&status, false), Failure::NotFound);
    }
}
