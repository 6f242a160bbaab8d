//! Who a request can go to: a worker of the fleet, or a provider outside of it.
//!
//! Invariant: a worker is told from another by its id, a provider by its namespace and name; workers come first.

use std::{fmt, sync::Arc};

use super::WorkerId;

/// Who a request can go to.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A worker.
    Worker(WorkerTarget),
    /// A provider.
    Provider(Arc<ProviderTarget>),
}

/// A worker, as picks name it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct WorkerTarget {
    /// `worker_id_num`
    pub id: WorkerId,
    /// `worker_id_str`
    pub name: Arc<str>,
    /// The worker set's name.
    pub workerset: Arc<str>,
    /// `ip:port` for the proxy.
    pub endpoint: Arc<str>,
}

/// A provider, and all that a proxy has to be told to send a request there.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ProviderTarget {
    /// The InferenceProvider's namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The host, with its port unless that is 443.
    pub authority: Arc<str>,
    /// Put before the request's path.
    pub path_prefix: Option<Arc<str>>,
    /// What authorizes the request, where we set it. Never shown.
    #[serde(skip)]
    pub credential: Option<Arc<Credential>>,
}

/// A header that authorizes requests. Its value is in no log and no dump.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// The header, in lower case.
    pub header: String,
    /// All of its value.
    pub value: String,
}

impl ProviderTarget {
    /// The path of a request there, with its query: under the prefix. `None`: it is no path (`*`), and stays as it is.
    pub fn path(&self, asked: &str) -> Option<String> {
        let prefix = self.path_prefix.as_deref().unwrap_or_default().trim_end_matches('/');
        let is_path = asked.starts_with('/') && !asked.contains(char::is_control);
        is_path.then(|| format!("{prefix}{asked}"))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("header", &self.header).finish_non_exhaustive()
    }
}

/// What tells targets apart, in the order in which equal ones are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetKey<'a> {
    /// A worker's id.
    Worker(WorkerId),
    /// A provider's namespace and name.
    Provider(&'a str, &'a str),
}

impl Target {
    /// Tells it from others.
    pub fn key(&self) -> TargetKey<'_> {
        match self {
            Self::Worker(worker) => TargetKey::Worker(worker.id),
            Self::Provider(provider) => TargetKey::Provider(&provider.namespace, &provider.name),
        }
    }

    /// The worker, if it is one.
    pub const fn worker(&self) -> Option<&WorkerTarget> {
        match self {
            Self::Worker(worker) => Some(worker),
            Self::Provider(_) => None,
        }
    }

    /// The provider, if it is one.
    pub const fn provider(&self) -> Option<&Arc<ProviderTarget>> {
        match self {
            Self::Worker(_) => None,
            Self::Provider(provider) => Some(provider),
        }
    }

    /// As answers and logs name it: `worker_id_str`, or `provider/<name>`.
    pub fn label(&self) -> Arc<str> {
        match self {
            Self::Worker(worker) => worker.name.clone(),
            Self::Provider(provider) => provider_label(&provider.name).into(),
        }
    }

    /// What serves with it: the worker set, or the provider, as routes name it.
    pub fn backend(&self) -> String {
        match self {
            Self::Worker(worker) => format!("workerset/{}", worker.workerset),
            Self::Provider(provider) => provider_label(&provider.name),
        }
    }
}

/// `provider/<name>`: how answers, logs and routes name a provider.
pub fn provider_label(name: &str) -> String {
    format!("provider/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cloud(path_prefix: Option<&str>) -> ProviderTarget {
        let credential = Credential { header: "authorization".into(), value: "Bearer s3cret".into() };
        ProviderTarget {
            namespace: "ns".into(),
            name: "cloud".into(),
            authority: "api.example.com".into(),
            path_prefix: path_prefix.map(Arc::from),
            credential: Some(Arc::new(credential)),
        }
    }

    #[test]
    fn paths_are_under_the_prefix_with_their_query() {
        let table = [
            (None, "/v1/messages?beta=true", Some("/v1/messages?beta=true")),
            (Some("/openai"), "/v1/chat/completions?x=/y", Some("/openai/v1/chat/completions?x=/y")),
            (Some("/openai/"), "/v1/chat/completions/", Some("/openai/v1/chat/completions/")),
            (Some("/"), "/v1", Some("/v1")),
            (Some("/openai"), "*", None),
            (Some("/openai"), "http://elsewhere/v1", None),
            (None, "", None),
            (None, "/v1?a=\r\nx-evil: 1", None),
        ];
        for (prefix, asked, want) in table {
            assert_eq!(cloud(prefix).path(asked).as_deref(), want, "{prefix:?} {asked}");
        }
    }

    #[test]
    fn a_credential_is_never_shown() {
        let provider = Target::Provider(Arc::new(cloud(None)));
        assert!(!format!("{provider:?}").contains("s3cret"));
        assert!(!serde_json::to_string(&provider).unwrap().contains("s3cret"));
        assert_eq!((&*provider.label(), &*provider.backend()), ("provider/cloud", "provider/cloud"));
        assert!(TargetKey::Worker(WorkerId(9)) < provider.key());
    }
}
