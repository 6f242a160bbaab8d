//! `[kubernetes]`: worker sets from InferenceWorkerSet resources, instead of or beside `[[workerset]]`.

use super::{
    PortDefaults,
    keys::Keys,
    kind::Bool,
    selector::{label_selector, object_name},
};

/// `[kubernetes]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// Watch InferenceWorkerSet resources.
    pub enabled: bool,
    /// Namespace to watch; unset: all.
    pub namespace: Option<String>,
    /// Label selector of the resources that are honoured; unset: all of them.
    pub selector: Option<String>,
    /// `[kubernetes.discovery_defaults]`: ports of every derived set that names none.
    pub discovery_defaults: PortDefaults,
}

impl KubernetesConfig {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        keys.key("enabled", Bool, &mut self.enabled);
        keys.optional("namespace", object_name(), &mut self.namespace);
        keys.optional("selector", label_selector(), &mut self.selector);
        keys.section("discovery_defaults", |keys| self.discovery_defaults.keys(keys));
    }
}
