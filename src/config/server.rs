//! Top-level keys, and the whole of the configuration.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{ExtProcConfig, Profile, WorkerSetConfig};

/// The validated configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// gRPC bind address.
    pub listen: SocketAddr,
    /// HTTP bind address of dashboard, metrics and readiness; unset: all off.
    pub admin_listen: Option<SocketAddr>,
    /// Answer deterministically without ingest, scraping or tokenization.
    pub mock_mode: bool,
    /// How many workers the live dashboard shows.
    pub dashboard_max_workers: u32,
    /// How often each worker's `/metrics` is scraped.
    pub metrics_poll: Duration,
    /// How often each worker's `/v1/models` is polled.
    pub models_refresh: Duration,
    /// Budget of one KV-event replay.
    pub replay_timeout: Duration,
    /// How long bookkeeping of a request waits for feedback.
    pub observation_ttl: Duration,
    /// Caps of buffered request bodies.
    pub body: BodyLimits,
    /// `[[profile]]`
    pub profiles: Vec<Profile>,
    /// `[[workerset]]`
    pub workersets: Vec<WorkerSetConfig>,
    /// `[tokenize]`
    pub tokenize: TokenizeConfig,
    /// `[ext_proc]`
    pub ext_proc: ExtProcConfig,
}

/// Caps of buffered request bodies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// `body_max_total_kb`
    pub total_bytes: usize,
    /// `body_max_request_kb`
    pub request_bytes: usize,
    /// `body_ttl_secs`
    pub ttl: Duration,
    /// `body_idle_timeout_secs`
    pub idle_timeout: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            total_bytes: 262_144 * 1024,
            request_bytes: 8192 * 1024,
            ttl: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// `[tokenize]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizeConfig {
    /// Idle HTTP connections kept per engine.
    pub pool_max_idle_per_host: Option<usize>,
    /// `{mount_dir}/{model}/tokenizer.json`; unset: from the Hub.
    pub mount_dir: Option<PathBuf>,
    /// Load each model's tokenizer when a worker registers.
    pub warmup: bool,
}

impl Default for TokenizeConfig {
    fn default() -> Self {
        Self { pool_max_idle_per_host: None, mount_dir: None, warmup: true }
    }
}
