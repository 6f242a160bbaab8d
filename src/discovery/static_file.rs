//! Static discovery: a workers file, read at the start and at every change.
//!
//! The file's directory is watched, because editors replace files and Kubernetes swaps symlinks; a slow poll
//! catches what no watch sees. An edit that can't be used is reported once, and the old fleet stays.

use std::{
    convert::Infallible,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::{
    io::AsyncReadExt,
    sync::Notify,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::FleetWriter;
use crate::{
    config::{ConfigErrors, WorkerEntry, parse_workers},
    fleet::{IdTaken, Worker, WorkerSet},
    types::WorkerId,
};

/// How often the file is read without any sign of a change.
const POLL: Duration = Duration::from_secs(5);
/// A change is read once nothing moved for this long, or at the latest after [`UNQUIET`].
const QUIET: Duration = Duration::from_millis(100);
const UNQUIET: Duration = Duration::from_secs(2);
/// What can't be used may be half written: it is read again after this, before it is reported.
const SETTLE: Duration = Duration::from_millis(300);
/// Largest workers file, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Why a workers file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StaticError {
    /// It can't be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// What it says is wrong: all of it.
    #[error(transparent)]
    Invalid(#[from] ConfigErrors),
    /// An id is not free.
    #[error(transparent)]
    Taken(#[from] IdTaken),
}

/// The workers file of one worker set.
pub struct StaticFile {
    set: Arc<WorkerSet>,
    path: PathBuf,
    mock_mode: bool,
    fleet: FleetWriter,
    /// The text that made the fleet what it is.
    applied: Option<String>,
    /// The error that was reported last, so that it is reported once.
    reported: Option<String>,
}

impl StaticFile {
    /// The workers of `set` come from the file at `path`; in mock mode they need no KV events.
    pub fn new(set: Arc<WorkerSet>, (path, mock_mode): (PathBuf, bool), fleet: FleetWriter) -> Self {
        Self { set, path, mock_mode, fleet, applied: None, reported: None }
    }

    /// Reads the file, unless it is as it was, and makes the fleet what it says.
    ///
    /// # Errors
    /// A file that can't be used; then the fleet stays as it is.
    pub async fn load_once(&mut self) -> Result<(), StaticError> {
        let read = read(&self.path).await;
        let text = read.map_err(|error| StaticError::Read { path: self.path.clone(), error })?;
        if self.applied.as_ref() == Some(&text) {
            return Ok(());
        }
        let parsed = parse_workers(&text, self.mock_mode);
        let (entries, warnings) = parsed.map_err(|errors| errors.in_file(&self.path))?;
        self.fleet.replace(&self.set, entries.into_iter().map(|entry| worker(&self.set, entry)).collect())?;
        for warning in warnings {
            tracing::warn!(file = %self.path.display(), "{warning}");
        }
        self.applied = Some(text);
        Ok(())
    }

    /// Follows the file until the task is dropped.
    pub async fn run(mut self) -> Infallible {
        let changed = Arc::new(Notify::new());
        // Held, because dropping it ends the watch.
        let _watcher = watch(&self.path, changed.clone()).inspect_err(|error| {
            tracing::warn!(file = %self.path.display(), %error, every = ?POLL, "can't be watched: polled only");
        });
        loop {
            self.reload().await;
            if timeout(POLL, changed.notified()).await.is_ok() {
                let latest = Instant::now() + UNQUIET;
                while Instant::now() < latest
                    && timeout_at(latest.min(Instant::now() + QUIET), changed.notified()).await.is_ok()
                {
                }
            }
        }
    }

    /// Loads what is there now; reports what can't be used, once.
    async fn reload(&mut self) {
        let mut error = self.error().await;
        if error.is_some() && error != self.reported {
            sleep(SETTLE).await;
            error = self.error().await;
        }
        if let Some(error) = error.as_ref().filter(|error| self.reported.as_ref() != Some(error)) {
            self.fleet.refused();
            tracing::error!(workerset = %self.set.name, %error, "the workers file can't be used: the fleet stays as it is");
        }
        self.reported = error;
    }

    async fn error(&mut self) -> Option<String> {
        self.load_once().await.err().map(|error| error.to_string())
    }
}

async fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = tokio::fs::File::open(path).await?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).await?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("has more than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// Notifies `changed` at changes in the directory of `path`.
fn watch(path: &Path, changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        // Our own reading is an event too. An error may stand for lost events: look.
        if event.map_or(true, |event| is_change(event.kind)) {
            changed.notify_one();
        }
    })?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    watcher.watch(directory.unwrap_or(Path::new(".")), RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

fn is_change(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

fn worker(set: &Arc<WorkerSet>, entry: WorkerEntry) -> Worker {
    Worker {
        id: WorkerId(entry.worker_id_num),
        name: entry.worker_id_str,
        set: set.clone(),
        model_name: entry.model_name,
        zmq_endpoint: entry.zmq_endpoint,
        replay_endpoint: entry.replay_endpoint,
        metrics_url: entry.metrics_url,
        http_url: entry.http_url,
        endpoint: entry.endpoint,
        topology: entry.topology,
        terminating: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Profile, fleet::Registry, observe::Metrics};

    #[tokio::test(start_paused = true)]
    async fn what_is_half_written_is_read_again_before_it_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("workers.toml");
        let (registry, metrics) = (Arc::new(Registry::default()), Metrics::new());
        let set = WorkerSet {
            name: "set".into(),
            profile: Arc::new(Profile::default()),
            kv_block_size: 16,
            render_url: None,
        };
        let writer = FleetWriter::new(registry, &metrics);
        let mut file = StaticFile::new(Arc::new(set), (path.clone(), false), writer);
        let refusals = || metrics.render().contains("change=\"refused\"} 1\n");
        std::fs::write(&path, "workers = [").unwrap();
        tokio::join!(file.reload(), async {
            sleep(SETTLE / 2).await;
            std::fs::write(&path, "workers = []").unwrap();
        });
        assert!(!refusals() && file.applied.as_deref() == Some("workers = []"));
        // One that stays as it is gets reported, once.
        std::fs::write(&path, "workers = [").unwrap();
        file.reload().await;
        file.reload().await;
        assert!(refusals());
    }
}
