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

/// Where a pod finds the namespace of its service account.
const SERVICE_ACCOUNT_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The namespace that we are at home in: `POD_NAMESPACE`, else the service account's, else that of the kubeconfig's
/// context, else `default`.
pub fn own_namespace(client: &Client) -> String {
    let told = std::env::var("POD_NAMESPACE").ok();
    let mounted = std::fs::read_to_string(SERVICE_ACCOUNT_NAMESPACE).ok();
    first_namespace([told, mounted], client.default_namespace())
}

fn first_namespace(found: [Option<String>; 2], otherwise: &str) -> String {
    let said = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    found.into_iter().flatten().find_map(said).unwrap_or_else(|| otherwise.to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_namespace_that_is_said_is_ours() {
        let first = |told: Option<&str>, mounted: Option<&str>| {
            first_namespace([told.map(Into::into), mounted.map(Into::into)], "default")
        };
        assert_eq!(first(Some("a"), Some("b\n")), "a");
        assert_eq!(first(Some(" "), Some("b\n")), "b");
        assert_eq!(first(None, None), "default");
    }
}
