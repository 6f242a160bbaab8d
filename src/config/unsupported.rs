//! Features that the configuration knows and this version does not have. Whoever builds one deletes its line.

use toml::Value;

use super::{
    Config, ConfigError, TenantLabels,
    kind::Kind,
    metrics::Labels,
    report::{Problem, shown},
};

impl Config {
    /// One error for each feature that is switched on and not built yet.
    pub fn unsupported(&self) -> Vec<ConfigError> {
        let labels = Labels.show(&self.metrics.tenant_labels);
        let mut found = Vec::new();
        let mut check = |on: bool, (path, value, feature): (&str, &Value, &str)| {
            if on {
                let problem = Problem::Unsupported { value: shown(value), feature: feature.into() };
                found.push(ConfigError { file: None, path: path.into(), problem });
            }
        };
        let labelled = self.metrics.tenant_labels != TenantLabels::None;
        check(labelled, ("metrics.tenant_labels", &labels, "tenant labels"));
        found
    }
}
