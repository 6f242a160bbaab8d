//! Static discovery: a workers file, read at the start and at every change.
//!
//! An edit that can't be used is reported once, and the old fleet stays.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::FleetWriter;
use crate::{
    config::{ConfigErrors, WorkerEntry, parse_workers},
    files::{self, FromFiles},
    fleet::{Availability, IdTaken, KvSource, Worker, WorkerSet},
    types::WorkerId,
};

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
}

impl StaticFile {
    /// The workers of `set` come from the file at `path`; in mock mode they need no KV events.
    pub fn new(set: Arc<WorkerSet>, (path, mock_mode): (PathBuf, bool), fleet: FleetWriter) -> Self {
        Self { set, path, mock_mode, fleet, applied: None }
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
        self.fleet.file_read(true);
        Ok(())
    }
}

impl FromFiles for StaticFile {
    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    async fn load(&mut self) -> Result<(), String> {
        self.load_once().await.map_err(|error| error.to_string())
    }

    fn refused(&self, why: &str) {
        self.fleet.refused();
        self.fleet.file_read(false);
        tracing::error!(workerset = %self.set.name, error = why, "the workers file can't be used: the fleet stays as it is");
    }
}

async fn read(path: &Path) -> io::Result<String> {
    let content = files::read(path, MAX_BYTES).await?;
    String::from_utf8(content).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

fn worker(set: &Arc<WorkerSet>, entry: WorkerEntry) -> Worker {
    Worker {
        id: WorkerId(entry.worker_id_num),
        name: entry.worker_id_str,
        set: set.clone(),
        model_name: entry.model_name,
        kv: KvSource::single(entry.zmq_endpoint, entry.replay_endpoint),
        metrics_url: entry.metrics_url,
        http_url: entry.http_url,
        endpoint: entry.endpoint,
        topology: entry.topology,
        availability: if entry.cordoned { Availability::Cordoned } else { Availability::Ready },
    }
}
