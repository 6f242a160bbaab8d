//! Finds credentials and makes a client of them. Nothing is asked of the API server yet: it may come up later.

use std::error::Error;

use kube::{Client, Config};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum NoCredentials {
    /// Neither place has any.
    #[error(
        "no Kubernetes credentials (a kubeconfig in KUBECONFIG or ~/.kube/config, or a pod's service account): {0}"
    )]
    Nowhere(String),
    /// What was found is no use.
    #[error("the Kubernetes credentials can't be used: {0}")]
    Unusable(String),
}

/// A client of the cluster that `KUBECONFIG` or `~/.kube/config` names, else of the one that we run in.
///
/// # Errors
/// There are no credentials, or they are malformed.
pub async fn connect() -> Result<Client, NoCredentials> {
    let config = Config::infer().await.map_err(|error| NoCredentials::Nowhere(error.to_string()))?;
    Client::try_from(config).map_err(|error| NoCredentials::Unusable(chain(&error)))
}

/// An error and its causes, each said once.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
