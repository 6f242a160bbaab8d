//! What can be said of policy files and of credentials in files before they are used: `--check`.
//!
//! Credentials that are not there are warnings: they may come later, and are looked for all the time.

use crate::{
    config::{Config, PolicyConfig},
    policy::{
        Resource,
        compile::DEFAULT_NAMESPACE,
        manifests::{Manifests, Remark, Severity},
    },
};

use super::{
    files::{FileErrors, Given, Parsed},
    secrets,
};

/// Validates the files that the configuration names; tells what hardly does what was meant, and which credentials are not
/// there.
///
/// # Errors
/// Everything that is wrong with them.
pub async fn check(config: &Config) -> Result<Vec<Remark>, FileErrors> {
    if !config.policy.enabled {
        return Ok(Vec::new());
    }
    let given = Given::of(config);
    let Parsed { mut warnings, made, .. } = given.parse(&given.read().await?)?;
    if !config.watches_secrets() {
        warnings.extend(no_directory(&config.policy));
        warnings.extend(unknown_secrets(&config.policy, &made).await);
    }
    Ok(warnings)
}

fn no_directory(config: &PolicyConfig) -> Option<Remark> {
    let dir = config.secrets_dir.as_ref().filter(|dir| !dir.is_dir())?;
    let message = "`policy.secrets_dir` is no directory: no credential of a provider is known";
    Some(Remark::of_file(dir, Severity::Warning, message.to_owned()))
}

async fn unknown_secrets(config: &PolicyConfig, made: &Manifests) -> Vec<Remark> {
    let by_provider = made.policies.secrets();
    let known = secrets::look(config, by_provider.values().cloned().collect()).await;
    let mut remarks = Vec::new();
    for (index, resource) in made.resources.iter().enumerate() {
        let Resource::InferenceProvider(provider) = resource else { continue };
        let namespace = provider.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let named = |name: &str| provider.metadata.name.as_deref() == Some(name);
        let own = by_provider.iter().find(|(key, _)| *key.namespace == *namespace && named(&key.name));
        if let Some((_, secret)) = own
            && let Some(Err(why)) = known.get(secret)
        {
            remarks.push(made.remark(index, &secret.problem(why), Severity::Warning));
        }
    }
    remarks
}
