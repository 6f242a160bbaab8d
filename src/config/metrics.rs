//! `[metrics]`: which tenants are told apart in metrics.

use toml::Value;

use super::{keys::Keys, kind::Kind};

/// `[metrics]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Which tenants get their own `tenant` label.
    pub tenant_labels: TenantLabels,
}

/// Which tenants get their own label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TenantLabels {
    /// No tenant.
    #[default]
    None,
    /// Every tenant.
    All,
    /// These; not an empty list, which is `None`.
    Only(Vec<String>),
}

impl MetricsConfig {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        keys.key("tenant_labels", Labels, &mut self.tenant_labels);
    }
}

/// The two words, or a list of tenants.
pub(super) struct Labels;

impl Kind for Labels {
    type Value = TenantLabels;

    fn read(&self, raw: &Value) -> Option<TenantLabels> {
        match raw {
            Value::String(word) if word == "none" => Some(TenantLabels::None),
            Value::String(word) if word == "all" => Some(TenantLabels::All),
            Value::Array(tenants) if tenants.is_empty() => Some(TenantLabels::None),
            Value::Array(tenants) => {
                let name = |tenant: &Value| tenant.as_str().filter(|name| !name.is_empty()).map(Into::into);
                tenants.iter().map(name).collect::<Option<_>>().map(TenantLabels::Only)
            }
            _ => None,
        }
    }

    fn show(&self, value: &TenantLabels) -> Value {
        match value {
            TenantLabels::None => Value::String("none".into()),
            TenantLabels::All => Value::String("all".into()),
            TenantLabels::Only(tenants) => {
                tenants.iter().cloned().map(Value::String).collect::<Vec<_>>().into()
            }
        }
    }

    fn accepted(&self) -> String {
        "\"none\", \"all\" or a list of tenant names".into()
    }
}
