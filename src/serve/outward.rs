//! What a request's headers have to become before it leaves for a provider, the same at every front door.
//!
//! Invariant: no header by which a client proves who it is goes out; our own credential is shown by no `Debug`.

use std::sync::Arc;

use super::ext_proc::names;
use crate::types::{Decision, ProviderTarget};

/// A request that goes to a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct Outward {
    /// Where to.
    pub provider: Arc<ProviderTarget>,
    /// Its path there, with its query, where it is known.
    pub path: Option<String>,
}

impl Outward {
    /// `None`: a worker is picked. `asked`: the request's own path.
    pub fn of(decision: &Decision, asked: Option<&str>) -> Option<Self> {
        let provider = decision.primary().target.provider()?.clone();
        let path = asked.and_then(|asked| provider.path(asked));
        Some(Self { provider, path })
    }

    /// Headers to set once [`names::LEFT_BEHIND`] are removed. The last may be the credential.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let Self { provider, path } = self;
        let path = path.iter().map(|path| (names::PATH, path.as_str()));
        let credential = provider.credential.iter().map(|own| (own.header.as_str(), own.value.as_str()));
        [(names::AUTHORITY, &*provider.authority)].into_iter().chain(path).chain(credential)
    }
}
