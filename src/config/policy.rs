//! `[policy]`: whether routing policies are watched and obeyed.

use super::{
    keys::Keys,
    kind::{Bool, text},
};

/// `[policy]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Watch the policy CRDs and honour the InferencePool that a request names.
    pub enabled: bool,
    /// Namespace to watch; unset: all.
    pub namespace: Option<String>,
}

impl PolicyConfig {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        keys.key("enabled", Bool, &mut self.enabled);
        keys.optional("namespace", text(), &mut self.namespace);
    }
}
