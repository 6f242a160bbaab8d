//! Top-level keys, and the whole of the configuration.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use super::{
    DecisionLogConfig, ExtProcConfig, KubernetesConfig, LeaderElectionConfig, MetricsConfig, PolicyConfig,
    Profile, RateLimitConfig, TlsConfig, TokenReviewConfig, TokenizeConfig, TracesConfig, WorkerSetConfig,
    address::Bind,
    keys::Keys,
    kind::{Bool, Kib, MILLIS, SECS, count},
};

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
    /// `[tls]`
    pub tls: TlsConfig,
    /// `[ext_proc]`
    pub ext_proc: ExtProcConfig,
    /// `[metrics]`
    pub metrics: MetricsConfig,
    /// `[decision_log]`
    pub decision_log: DecisionLogConfig,
    /// `[traces]`
    pub traces: TracesConfig,
    /// `[policy]`
    pub policy: PolicyConfig,
    /// `[kubernetes]`
    pub kubernetes: KubernetesConfig,
    /// `[token_review]`
    pub token_review: TokenReviewConfig,
    /// `[rate_limit]`
    pub rate_limit: RateLimitConfig,
    /// `[leader_election]`
    pub leader_election: LeaderElectionConfig,
}

impl Config {
    /// The defaults, with a placeholder for `listen`, which has none.
    pub(super) fn blank() -> Self {
        Self {
            listen: (Ipv4Addr::UNSPECIFIED, 0).into(),
            admin_listen: None,
            mock_mode: false,
            dashboard_max_workers: 16,
            metrics_poll: Duration::from_millis(1000),
            models_refresh: Duration::from_secs(30),
            replay_timeout: Duration::from_secs(60),
            observation_ttl: Duration::from_secs(600),
            body: BodyLimits::default(),
            profiles: Vec::new(),
            workersets: Vec::new(),
            tokenize: TokenizeConfig::default(),
            tls: TlsConfig::default(),
            ext_proc: ExtProcConfig::default(),
            metrics: MetricsConfig::default(),
            decision_log: DecisionLogConfig::default(),
            traces: TracesConfig::default(),
            policy: PolicyConfig::default(),
            kubernetes: KubernetesConfig::default(),
            token_review: TokenReviewConfig::default(),
            rate_limit: RateLimitConfig::default(),
            leader_election: LeaderElectionConfig::default(),
        }
    }

    pub(super) fn keys<K: Keys>(&mut self, keys: &mut K) {
        keys.required("listen", Bind, &mut self.listen);
        keys.optional("admin_listen", Bind, &mut self.admin_listen);
        keys.key("mock_mode", Bool, &mut self.mock_mode);
        keys.key("dashboard_max_workers", count(0), &mut self.dashboard_max_workers);
        keys.key("metrics_poll_ms", MILLIS, &mut self.metrics_poll);
        keys.key("models_refresh_secs", SECS, &mut self.models_refresh);
        keys.key("replay_timeout_ms", MILLIS, &mut self.replay_timeout);
        keys.key("observation_ttl_secs", SECS, &mut self.observation_ttl);
        self.body.keys(keys);
        keys.section("tls", |keys| self.tls.keys(keys));
        keys.section("ext_proc", |keys| self.ext_proc.keys(keys));
        keys.section("tokenize", |keys| self.tokenize.keys(keys));
        keys.section("metrics", |keys| self.metrics.keys(keys));
        keys.section("decision_log", |keys| self.decision_log.keys(keys));
        keys.section("traces", |keys| self.traces.keys(keys));
        keys.section("policy", |keys| self.policy.keys(keys));
        keys.section("kubernetes", |keys| self.kubernetes.keys(keys));
        keys.section("token_review", |keys| self.token_review.keys(keys));
        keys.section("rate_limit", |keys| self.rate_limit.keys(keys));
        keys.section("leader_election", |keys| self.leader_election.keys(keys));
        keys.array("profile", (&mut self.profiles, Profile::default), Profile::keys);
        keys.array("workerset", (&mut self.workersets, WorkerSetConfig::blank), WorkerSetConfig::keys);
    }
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

impl BodyLimits {
    fn keys(&mut self, keys: &mut impl Keys) {
        keys.key("body_max_total_kb", Kib, &mut self.total_bytes);
        keys.key("body_max_request_kb", Kib, &mut self.request_bytes);
        keys.key("body_ttl_secs", SECS, &mut self.ttl);
        keys.key("body_idle_timeout_secs", SECS, &mut self.idle_timeout);
    }
}
