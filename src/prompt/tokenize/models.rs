//! Tokenizers by model: where they come from, one load per model at a time, and the threads they run on.
//!
//! A load runs in a task of its own: a request that gives up waiting does not start it over. A load that
//! failed is tried again after a while, not by every request.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, watch},
    task::{JoinSet, spawn_blocking},
    time::Instant,
};

use super::{LocalModel, TokenizeError};
use crate::{config::TokenizeConfig, prompt::request::ParsedRequest, types::PromptTokens};

/// The longest that a load may take, a slow download included.
const LOAD_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a failed load stands.
const RETRY_AFTER: Duration = Duration::from_secs(30);

type Load = Result<Arc<LocalModel>, (Arc<str>, Instant)>;

pub(super) struct Models {
    config: TokenizeConfig,
    loads: Mutex<HashMap<Arc<str>, watch::Receiver<Option<Load>>>>,
    tasks: Mutex<JoinSet<()>>,
    /// As many as there are cores: more would only wait for each other, each with its tree of the body.
    threads: Arc<Semaphore>,
}

impl Models {
    pub(super) fn new(config: TokenizeConfig) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            config,
            loads: Mutex::default(),
            tasks: Mutex::default(),
            threads: Arc::new(Semaphore::new(cores)),
        }
    }

    pub(super) fn warmup(&self) -> bool {
        self.config.warmup
    }

    /// The tokenizer of a model, loaded if need be.
    pub(super) async fn get(&self, model: &Arc<str>) -> Result<Arc<LocalModel>, TokenizeError> {
        let failed = |reason| TokenizeError::NoTokenizer { model: Arc::clone(model), reason };
        let mut load = self.load(model);
        let loaded = load.wait_for(Option::is_some).await.map(|load| load.clone());
        match loaded {
            Ok(Some(Ok(model))) => Ok(model),
            Ok(Some(Err((reason, _)))) => Err(failed(reason)),
            Ok(None) | Err(_) => Err(failed("its load was cut short".into())),
        }
    }

    /// The load of a model: the one that is running or stands, else a new one.
    fn load(&self, model: &Arc<str>) -> watch::Receiver<Option<Load>> {
        let mut loads = self.loads.lock();
        if let Some(load) = loads.get(model).filter(|load| stands(load)) {
            return load.clone();
        }
        let (done, load) = watch::channel(None);
        loads.insert(Arc::clone(model), load.clone());
        let (model, mount_dir) = (Arc::clone(model), self.config.mount_dir.clone());
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let loaded = tokio::time::timeout(LOAD_TIMEOUT, open(&model, mount_dir.as_deref())).await;
            let loaded = loaded.unwrap_or_else(|_| Err("it takes too long".to_owned()));
            let loaded = loaded.map(Arc::new).map_err(|reason| (Arc::from(reason), Instant::now()));
            match &loaded {
                Ok(_) => tracing::info!(model = &*model, "tokenizer loaded"),
                Err((reason, _)) => tracing::warn!(model = &*model, %reason, "tokenizer not loaded"),
            }
            done.send_replace(Some(loaded));
        });
        load
    }

    /// Tokenizes off the async threads.
    pub(super) async fn run(
        &self,
        model: Arc<LocalModel>,
        request: ParsedRequest,
    ) -> Result<PromptTokens, TokenizeError> {
        let broken = |what: String| TokenizeError::Unsupported(format!("the tokenizer broke off: {what}"));
        let permit =
            Arc::clone(&self.threads).acquire_owned().await.map_err(|error| broken(error.to_string()))?;
        let work = spawn_blocking(move || {
            let _permit = permit;
            model.tokenize(&request)
        });
        work.await.map_err(|error| broken(error.to_string()))?
    }
}

/// Whether a load is running, has succeeded, or failed not long ago.
fn stands(load: &watch::Receiver<Option<Load>>) -> bool {
    match &*load.borrow() {
        Some(Ok(_)) => true,
        Some(Err((_, at))) => at.elapsed() < RETRY_AFTER,
        None => load.has_changed().is_ok(),
    }
}

async fn open(model: &str, mount_dir: Option<&Path>) -> Result<LocalModel, String> {
    // Model names come from engines: they must not lead out of the directory.
    if model.is_empty() || !Path::new(model).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err("its name is no relative path".to_owned());
    }
    let dir = match mount_dir {
        Some(mount) => mount.join(model),
        None => from_hub(model).await?,
    };
    spawn_blocking(move || LocalModel::open(&dir)).await.map_err(|error| error.to_string())?
}

/// The directory of a model's tokenizer files from the Hub: fetched, else as an earlier fetch left them.
async fn from_hub(model: &str) -> Result<PathBuf, String> {
    let cached = || hf_hub::Cache::from_env().model(model.to_owned()).get("tokenizer.json");
    let cached = || cached().and_then(|file| file.parent().map(Path::to_owned));
    if offline(std::env::var("HF_HUB_OFFLINE").ok().as_deref()) {
        return cached().ok_or_else(|| "HF_HUB_OFFLINE is set and it is not in the cache".to_owned());
    }
    match llm_tokenizer::hub::download_tokenizer_from_hf(model).await {
        Ok(dir) => Ok(dir),
        Err(error) => cached().ok_or_else(|| error.to_string()),
    }
}

/// As the Hub's own client reads the variable.
fn offline(value: Option<&str>) -> bool {
    value.is_some_and(|value| matches!(value.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offline_is_read_as_the_hub_reads_it() {
        for (value, want) in
            [(None, false), (Some("0"), false), (Some(""), false), (Some("1"), true), (Some("true"), true)]
        {
            assert_eq!(offline(value), want);
        }
    }

    #[tokio::test]
    async fn names_stay_inside_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["", "/etc", "../x", "a/../b"] {
            assert!(open(name, Some(dir.path())).await.is_err_and(|why| why.contains("name")), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_load_stands_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let models =
            Models::new(TokenizeConfig { mount_dir: Some(dir.path().into()), ..TokenizeConfig::default() });
        let name: Arc<str> = "org/tiny".into();
        assert!(models.get(&name).await.is_err());
        let home = dir.path().join("org/tiny");
        std::fs::create_dir_all(&home).unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer");
        for file in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"] {
            std::fs::copy(fixtures.join(file), home.join(file)).unwrap();
        }
        assert!(models.get(&name).await.is_err(), "not tried again at once");
        tokio::time::advance(RETRY_AFTER).await;
        let (one, two) = tokio::join!(models.get(&name), models.get(&name));
        assert!(Arc::ptr_eq(&one.unwrap(), &two.unwrap()), "loaded once");
    }
}
