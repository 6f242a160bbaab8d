//! Credentials of providers in files: `<dir>/<secret>/<key>`, as Kubernetes mounts a Secret, or a person writes it.
//!
//! Invariant: the directory stands for the Secrets of one namespace, so that no provider of another one can name them. What
//! can't be used is read once more before that is believed: it may be half written.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::{
    config::PolicyConfig,
    files::{self, FromFiles},
    policy::{Known, NoSecret, Secret, SecretKey, Secrets, compile::DEFAULT_NAMESPACE},
};

/// Largest file, in bytes.
const MAX_BYTES: u64 = 64 << 10;
/// What was usable and is not is looked at again after this.
const SETTLE: Duration = Duration::from_millis(300);
/// What of a file's mode is everybody's.
const EVERYBODY: u32 = 0o007;

/// Keeps `secrets` as the files in `secrets_dir` have them, for ever. Without one none can be read.
pub async fn follow_secrets(config: PolicyConfig, secrets: Secrets) -> Infallible {
    let mut wanted = secrets.wanted();
    let mut files = SecretFiles::of(&config, secrets);
    loop {
        files.wanted = wanted.borrow_and_update().clone();
        // Other directories are to be watched then.
        tokio::select! {
            never = files::follow(files.clone()) => match never {},
            Ok(()) = wanted.changed() => {}
        }
    }
}

/// What the files have for these keys now.
pub(super) async fn look(config: &PolicyConfig, wanted: BTreeSet<SecretKey>) -> Known {
    let files = SecretFiles::of(config, Secrets::default());
    SecretFiles { wanted: Arc::new(wanted), ..files }.find_all().await
}

#[derive(Clone)]
struct SecretFiles {
    dir: Option<PathBuf>,
    namespace: Arc<str>,
    wanted: Arc<BTreeSet<SecretKey>>,
    secrets: Secrets,
    /// Files that everybody may read, told of already.
    open: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl SecretFiles {
    /// Those of the configuration; none is wanted yet.
    fn of(config: &PolicyConfig, secrets: Secrets) -> Self {
        Self {
            dir: config.secrets_dir.clone(),
            namespace: config.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE).into(),
            wanted: Arc::default(),
            secrets,
            open: Arc::default(),
        }
    }

    /// Where a key is, if it can be anywhere.
    fn path(&self, key: &SecretKey) -> Result<PathBuf, NoSecret> {
        let unreadable = |why: String| NoSecret::Unreadable(why.into());
        let dir = self.dir.as_ref().ok_or_else(|| {
            unreadable("policies are not those of a cluster, and `policy.secrets_dir` is not set".to_owned())
        })?;
        if key.namespace != self.namespace {
            let own = &self.namespace;
            return Err(unreadable(format!(
                "`policy.secrets_dir` has the Secrets of namespace `{own}` alone"
            )));
        }
        Ok(dir.join(&*key.name).join(&*key.key))
    }

    async fn find(&self, key: &SecretKey) -> Result<Secret, NoSecret> {
        let path = self.path(key)?;
        let content = match files::read(&path, MAX_BYTES).await {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NoSecret::Absent),
            Err(error) => return Err(NoSecret::Unreadable(error.to_string().into())),
        };
        self.warn_if_open(&path).await;
        Secret::read(&content)
    }

    async fn find_all(&self) -> Known {
        let found = self.wanted.iter().map(async |key| (key.clone(), self.find(key).await));
        join_all(found).await.into_iter().collect()
    }

    /// Whether one that could be used can't be any more.
    fn is_worse(&self, known: &Known) -> bool {
        known.iter().any(|(key, found)| found.is_err() && self.secrets.get(key).is_ok())
    }

    async fn warn_if_open(&self, path: &Path) {
        let Ok(about) = tokio::fs::metadata(path).await else { return };
        let mode = about.permissions().mode();
        if mode & EVERYBODY != 0 && self.open.lock().insert(path.to_owned()) {
            let mode = format!("{:o}", mode & 0o7777);
            tracing::warn!(path = %path.display(), mode, "everybody on this machine may read a credential");
        }
    }
}

impl FromFiles for SecretFiles {
    fn files(&self) -> Vec<PathBuf> {
        // One directory that is not there would keep all from being watched; that it comes is seen in the one above.
        let there = |path: &PathBuf| path.parent().is_some_and(Path::is_dir);
        let found = self.wanted.iter().filter_map(|key| self.path(key).ok()).filter(there);
        let above = self.dir.iter().map(|dir| dir.join("any")).filter(there);
        above.chain(found).collect()
    }

    async fn load(&mut self) -> Result<(), String> {
        let mut known = self.find_all().await;
        if self.is_worse(&known) {
            sleep(SETTLE).await;
            known = self.find_all().await;
        }
        self.secrets.replace(known);
        Ok(())
    }

    /// Never: what is wrong with a file is wrong with its key alone, which says so where it is wanted.
    fn refused(&self, _: &str) {}
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    struct Site {
        dir: tempfile::TempDir,
        secrets: Secrets,
        files: SecretFiles,
    }

    fn key(namespace: &str, key: &str) -> SecretKey {
        SecretKey { namespace: namespace.into(), name: "cloud".into(), key: key.into() }
    }

    impl Site {
        fn new(keys: impl IntoIterator<Item = SecretKey>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("cloud")).unwrap();
            let secrets = Secrets::default();
            let files = SecretFiles {
                dir: Some(dir.path().to_owned()),
                namespace: "default".into(),
                wanted: Arc::new(keys.into_iter().collect()),
                secrets: secrets.clone(),
                open: Arc::default(),
            };
            Self { dir, secrets, files }
        }

        fn write(&self, key: &str, content: &str) {
            let path = self.dir.path().join("cloud").join(key);
            fs::write(&path, content).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }

        fn said(&self, key: &SecretKey) -> String {
            match self.secrets.get(key) {
                Ok(secret) => secret.expose().to_owned(),
                Err(why) => why.to_string(),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_key_is_a_file_of_one_namespace() {
        let [token, gone, large, other] =
            [key("default", "token"), key("default", "gone"), key("default", "large"), key("other", "token")];
        let mut site = Site::new([&token, &gone, &large, &other].map(Clone::clone));
        site.write("token", "sk-1\n");
        site.write("large", &"x".repeat(MAX_BYTES as usize + 1));
        site.files.load().await.unwrap();
        assert_eq!(site.said(&token), "sk-1");
        assert_eq!(site.said(&gone), "does not exist");
        assert!(site.said(&large).starts_with("can't be read: has more than 65536 bytes"));
        assert!(site.said(&other).contains("of namespace `default` alone"), "{}", site.said(&other));
        site.files.dir = None;
        site.files.load().await.unwrap();
        assert!(site.said(&token).contains("`policy.secrets_dir` is not set"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_just_being_replaced_is_not_missed() {
        let token = key("default", "token");
        let mut site = Site::new([token.clone()]);
        site.write("token", "sk-1");
        site.files.load().await.unwrap();
        let path = site.dir.path().join("cloud/token");
        fs::remove_file(&path).unwrap();
        let mut files = site.files.clone();
        let (loaded, ()) = tokio::join!(files.load(), async {
            sleep(SETTLE / 2).await;
            assert_eq!(site.said(&token), "sk-1", "what was known stays meanwhile");
            site.write("token", "sk-2");
        });
        loaded.unwrap();
        assert_eq!(site.said(&token), "sk-2");
        fs::remove_file(&path).unwrap();
        site.files.load().await.unwrap();
        assert_eq!(site.said(&token), "does not exist");
    }

    #[tokio::test]
    async fn a_file_that_everybody_may_read_is_told_of_once() {
        let token = key("default", "token");
        let mut site = Site::new([token]);
        site.write("token", "sk-1");
        site.files.load().await.unwrap();
        assert!(site.files.open.lock().is_empty());
        let path = site.dir.path().join("cloud/token");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        site.files.load().await.unwrap();
        assert_eq!(*site.files.open.lock(), [path].into());
    }

    #[tokio::test]
    async fn what_is_wanted_later_and_changed_is_followed() {
        let site = Site::new([]);
        let (token, later) = (key("default", "token"), key("default", "later"));
        site.write("token", "sk-1");
        site.secrets.want([token.clone()].into());
        let config =
            PolicyConfig { secrets_dir: Some(site.dir.path().to_owned()), ..PolicyConfig::default() };
        let mut changes = site.secrets.changes();
        let mut until = async |key: &SecretKey, want: &str| {
            while site.said(key) != want {
                changes.changed().await.unwrap();
            }
        };
        tokio::select! {
            never = follow_secrets(config, site.secrets.clone()) => match never {},
            () = async {
                until(&token, "sk-1").await;
                site.write("token", "sk-2");
                until(&token, "sk-2").await;
                site.write("later", "sk-3");
                site.secrets.want([token.clone(), later.clone()].into());
                until(&later, "sk-3").await;
            } => {}
        }
    }
}
