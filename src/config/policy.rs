//! `[policy]`: whether routing policies decide, and where they come from.

use std::path::{Path, PathBuf};

use toml::Value;

use super::{
    Config,
    keys::Keys,
    kind::{Bool, FilePath, Kind, text},
};

/// `[policy]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Obey policies, and the InferencePool that a request names.
    pub enabled: bool,
    /// Namespace to watch; unset: all.
    pub namespace: Option<String>,
    /// Files of resources; the last part of a path may be a pattern. None: resources are watched in a cluster.
    pub files: Vec<PathBuf>,
    /// Where the credentials of providers are: `<secret>/<key>`. Unset: in Secrets of the cluster.
    pub secrets_dir: Option<PathBuf>,
    /// What bodies may say of their requests.
    pub body_metadata: BodyMetadata,
}

/// What the `metadata` of a request's body is believed, where nobody who is trusted says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyMetadata {
    /// Its tags.
    pub tags: bool,
    /// Whose request it is.
    pub tenant: bool,
    /// The InferencePool that it is for.
    pub pool: bool,
}

/// Some of the three words.
struct Believed;

impl Kind for Believed {
    type Value = BodyMetadata;

    fn read(&self, raw: &Value) -> Option<BodyMetadata> {
        let mut all = BodyMetadata::default();
        for word in raw.as_array()? {
            match word.as_str()? {
                "tags" => all.tags = true,
                "tenant" => all.tenant = true,
                "pool" => all.pool = true,
                _ => return None,
            }
        }
        Some(all)
    }

    fn show(&self, value: &BodyMetadata) -> Value {
        let all = [("tags", value.tags), ("tenant", value.tenant), ("pool", value.pool)];
        Value::Array(all.into_iter().filter(|(_, on)| *on).map(|(word, _)| word.into()).collect())
    }

    fn accepted(&self) -> String {
        "a list of `\"tags\"`, `\"tenant\"` and `\"pool\"`".into()
    }
}

/// Paths.
struct FilePaths;

impl Kind for FilePaths {
    type Value = Vec<PathBuf>;

    fn read(&self, raw: &Value) -> Option<Vec<PathBuf>> {
        raw.as_array()?.iter().map(|path| FilePath.read(path)).collect()
    }

    fn show(&self, value: &Vec<PathBuf>) -> Value {
        Value::Array(value.iter().map(|path| FilePath.show(path)).collect())
    }

    fn accepted(&self) -> String {
        "a list of paths, such as `[\"policies/*.yaml\"]`".into()
    }
}

impl PolicyConfig {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        keys.key("enabled", Bool, &mut self.enabled);
        keys.optional("namespace", text(), &mut self.namespace);
        keys.key("files", FilePaths, &mut self.files);
        keys.key("body_metadata", Believed, &mut self.body_metadata);
        keys.optional("secrets_dir", FilePath, &mut self.secrets_dir);
        let idle = [
            ("files", !self.files.is_empty()),
            ("body_metadata", self.body_metadata != BodyMetadata::default()),
            ("secrets_dir", self.secrets_dir.is_some()),
        ];
        let idle: Vec<_> =
            idle.iter().filter(|(_, set)| *set && !self.enabled).map(|(key, _)| *key).collect();
        if !idle.is_empty() {
            keys.idle(&idle, "without `enabled = true`");
        }
    }

    pub(super) fn resolve(&mut self, dir: &Path) {
        let paths = self.files.iter_mut().chain(&mut self.secrets_dir);
        paths.for_each(|path| *path = dir.join(&*path));
    }
}

impl Config {
    /// Whether policies are watched in a cluster. Beside files they are where worker sets are too.
    pub fn watches_policies(&self) -> bool {
        self.policy.enabled && (self.policy.files.is_empty() || self.kubernetes.enabled)
    }

    /// Whether the credentials of providers are watched in a cluster, rather than read from files.
    pub fn watches_secrets(&self) -> bool {
        self.watches_policies() && self.policy.secrets_dir.is_none()
    }
}
