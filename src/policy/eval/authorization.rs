//! What authorizes requests to a provider, where that is a header that we set.

use std::sync::Arc;

use super::super::{
    crd::{CredentialMode, InferenceProviderSpec, ProviderApi},
    secrets::{NoSecret, SecretKey, Secrets},
};
use crate::types::Credential;

/// A header, and the Secret that its value is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// Where the credential is.
    pub secret: SecretKey,
    /// The header, in lower case.
    header: Arc<str>,
    /// The word before the credential.
    scheme: Option<Arc<str>>,
}

impl Authorization {
    /// That of a provider; `None`: it needs none, or the proxy sets it.
    pub(in crate::policy) fn of(provider: &InferenceProviderSpec, namespace: &Arc<str>) -> Option<Self> {
        let credentials = &provider.credentials;
        let secret =
            credentials.secret_ref.as_ref().filter(|_| credentials.mode == CredentialMode::Header)?;
        let (header, scheme) = match provider.api {
            ProviderApi::Anthropic => ("x-api-key", ""),
            ProviderApi::OpenAI | ProviderApi::Bedrock => ("authorization", "Bearer"),
        };
        let scheme = credentials.scheme.as_deref().unwrap_or(scheme);
        Some(Self {
            secret: SecretKey {
                namespace: namespace.clone(),
                name: secret.name.as_str().into(),
                key: secret.key.as_str().into(),
            },
            header: credentials.header.as_deref().unwrap_or(header).into(),
            scheme: (!scheme.is_empty()).then(|| scheme.into()),
        })
    }

    /// The header as it is to be set now.
    ///
    /// # Errors
    /// Why the Secret's value is not known.
    pub fn credential(&self, secrets: &Secrets) -> Result<Credential, NoSecret> {
        let secret = secrets.get(&self.secret)?;
        let value = match &self.scheme {
            Some(scheme) => format!("{scheme} {}", secret.expose()),
            None => secret.expose().to_owned(),
        };
        Ok(Credential { header: self.header.to_string(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{
            crd::{Credentials, SecretReference},
            secrets::Secret,
        },
        *,
    };

    fn set(api: ProviderApi, edit: impl FnOnce(&mut Credentials)) -> Option<Credential> {
        let secret_ref = Some(SecretReference { name: "s".into(), key: "k".into() });
        let mut credentials = Credentials { mode: CredentialMode::Header, secret_ref, ..Default::default() };
        edit(&mut credentials);
        let spec = InferenceProviderSpec { api, credentials, ..Default::default() };
        let authorization = Authorization::of(&spec, &"ns".into())?;
        let secrets = Secrets::default();
        assert_eq!(authorization.credential(&secrets), Err(NoSecret::Unread));
        secrets.replace([(authorization.secret.clone(), Secret::read(b"s3cret\n"))].into());
        authorization.credential(&secrets).ok()
    }

    #[test]
    fn each_api_has_its_header_unless_the_provider_has_another() {
        let header =
            |header: &str, value: &str| Some(Credential { header: header.into(), value: value.into() });
        assert_eq!(set(ProviderApi::OpenAI, |_| {}), header("authorization", "Bearer s3cret"));
        assert_eq!(set(ProviderApi::Bedrock, |_| {}), header("authorization", "Bearer s3cret"));
        assert_eq!(set(ProviderApi::Anthropic, |_| {}), header("x-api-key", "s3cret"));
        let own =
            |one: &mut Credentials| (one.header, one.scheme) = (Some("api-key".into()), Some(String::new()));
        assert_eq!(set(ProviderApi::OpenAI, own), header("api-key", "s3cret"));
        assert_eq!(set(ProviderApi::OpenAI, |one| one.mode = CredentialMode::Proxy), None);
    }
}
