//! The series of `/metrics` that vLLM has and a router reads, under vLLM's names.
//!
//! Labels `engine` (the data-parallel rank) and `model_name` (the base model). Latencies are wall seconds, as a client sees them, so
//! a speedup shows in them.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use prometheus::{
    Counter, Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry,
    TextEncoder,
};

use crate::{
    args::Args,
    engine::{CacheCounters, Engine, EngineConfig},
};

const TTFT_BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
const INTER_TOKEN_BUCKETS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const E2E_BUCKETS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];
const FINISHED_REASONS: [&str; 5] = ["stop", "length", "abort", "error", "repetition"];

/// Registers series that carry the common labels.
struct Maker<'a> {
    registry: &'a Registry,
    labels: HashMap<String, String>,
}

impl Maker<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(format!("vllm:{name}"), help).const_labels(self.labels.clone())
    }

    fn add<C: prometheus::core::Collector + Clone + 'static>(
        &self,
        made: prometheus::Result<C>,
    ) -> prometheus::Result<C> {
        let made = made?;
        self.registry.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<Gauge> {
        self.add(Gauge::with_opts(self.opts(name, help)))
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.add(IntCounter::with_opts(self.opts(name, help)))
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> prometheus::Result<Histogram> {
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(buckets.to_vec());
        self.add(Histogram::with_opts(opts))
    }
}

/// What the ranks of an engine have in common.
pub struct Shared {
    registry: Registry,
    behind: Counter,
    lora: Option<GaugeVec>,
}

impl Shared {
    /// The series without a rank, at zero.
    ///
    /// # Errors
    /// If a series is registered twice.
    pub fn new(args: &Args) -> Result<Self> {
        let registry = Registry::new();
        let lora = (!args.lora.is_empty()).then(|| lora(&registry)).transpose()?;
        Ok(Self { behind: behind(&registry)?, lora, registry })
    }

    /// The registry, for whoever renders it.
    pub fn registry(&self) -> Registry {
        self.registry.clone()
    }
}

/// What the driver of one rank records.
pub struct EngineMetrics {
    running: Gauge,
    waiting: Gauge,
    usage: Gauge,
    queries: IntCounter,
    hits: IntCounter,
    ttft: Histogram,
    inter_token: Histogram,
    e2e: Histogram,
    generated: IntCounter,
    success: IntCounterVec,
    behind: Counter,
    lost: Duration,
    lora: Option<GaugeVec>,
    max_lora: String,
    seen: CacheCounters,
}

impl EngineMetrics {
    /// All series of a rank, at zero.
    ///
    /// # Errors
    /// If a series is registered twice.
    pub fn new(args: &Args, config: &EngineConfig, (shared, rank): (&Shared, u16)) -> Result<Self> {
        let engine = rank.to_string();
        let labels = [("engine", &engine), ("model_name", &args.model)];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let make = Maker { registry: &shared.registry, labels };
        constants(&make, args, (config, &engine))?;
        let success = make.add(IntCounterVec::new(
            make.opts("request_success_total", "Count of successfully processed requests."),
            &["finished_reason"],
        ))?;
        FINISHED_REASONS.iter().for_each(|reason| success.with_label_values(&[reason]).inc_by(0));
        Ok(Self {
            running: make.gauge("num_requests_running", "Number of requests in model execution batches.")?,
            waiting: make.gauge("num_requests_waiting", "Number of requests waiting to be processed.")?,
            usage: make.gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")?,
            queries: make.counter("prefix_cache_queries_total", "Prefix cache queries, in tokens.")?,
            hits: make.counter("prefix_cache_hits_total", "Prefix cache hits, in tokens.")?,
            ttft: make.histogram("time_to_first_token_seconds", "Time to first token.", TTFT_BUCKETS)?,
            inter_token: make.histogram(
                "inter_token_latency_seconds",
                "Inter-token latency.",
                INTER_TOKEN_BUCKETS,
            )?,
            e2e: make.histogram("e2e_request_latency_seconds", "Request latency.", E2E_BUCKETS)?,
            generated: make.counter("generation_tokens_total", "Number of generation tokens processed.")?,
            success,
            behind: shared.behind.clone(),
            lost: Duration::ZERO,
            lora: shared.lora.clone(),
            max_lora: args.lora.len().to_string(),
            seen: CacheCounters::default(),
        })
    }

    /// The engine's state at the start of a step, and the wall time it has lost so far.
    pub fn observe(&mut self, engine: &Engine, lost: Duration) {
        self.running.set(engine.running() as f64);
        self.waiting(engine);
        self.usage.set(engine.cache_usage());
        let now = engine.counters();
        self.queries.inc_by(now.queries - self.seen.queries);
        self.hits.inc_by(now.hits - self.seen.hits);
        self.seen = now;
        self.behind.inc_by(lost.saturating_sub(self.lost).as_secs_f64());
        self.lost = lost;
        if let Some(lora) = &self.lora {
            let (running, waiting) = engine.lora_names();
            let labels = [self.max_lora.as_str(), &running.join(","), &waiting.join(",")];
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            lora.with_label_values(&labels).set(now.as_secs_f64());
        }
    }

    /// The queue, between steps.
    pub fn waiting(&self, engine: &Engine) {
        self.waiting.set(engine.waiting() as f64);
    }

    /// A request's first token.
    pub fn first_token(&self, after: Duration) {
        self.ttft.observe(after.as_secs_f64());
        self.generated.inc();
    }

    /// Any other token.
    pub fn next_token(&self, after: Duration) {
        self.inter_token.observe(after.as_secs_f64());
        self.generated.inc();
    }

    /// A request that got all of its tokens.
    pub fn finished(&self, after: Duration) {
        self.e2e.observe(after.as_secs_f64());
        self.success.with_label_values(&["length"]).inc();
    }

    /// A request whose client went away.
    pub fn aborted(&self) {
        self.success.with_label_values(&["abort"]).inc();
    }
}

/// Series that never change here.
fn constants(
    make: &Maker<'_>,
    args: &Args,
    (config, engine): (&EngineConfig, &str),
) -> prometheus::Result<()> {
    make.counter("num_preemptions_total", "Cumulative number of preemption from the engine.")?;
    let sleep =
        make.add(GaugeVec::new(make.opts("engine_sleep_state", "Engine sleep state."), &["sleep_state"]))?;
    for (state, value) in [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)] {
        sleep.with_label_values(&[state]).set(value);
    }
    let (block_size, num_blocks) = (args.block_size.to_string(), config.num_blocks.to_string());
    let tokens = (config.block_size as u64 * u64::from(config.num_blocks)).to_string();
    let info = Opts::new("vllm:cache_config_info", "Information of the LLMEngine CacheConfig")
        .const_label("engine", engine)
        .const_label("block_size", block_size)
        .const_label("num_gpu_blocks", num_blocks)
        .const_label("kv_cache_size_tokens", tokens)
        .const_label("enable_prefix_caching", "True")
        .const_label("cache_dtype", "auto");
    make.add(Gauge::with_opts(info))?.set(1.0);
    Ok(())
}

fn lora(registry: &Registry) -> prometheus::Result<GaugeVec> {
    let opts = Opts::new("vllm:lora_requests_info", "Running stats on lora requests.");
    let labels = ["max_lora", "running_lora_adapters", "waiting_lora_adapters"];
    Maker { registry, labels: HashMap::new() }.add(GaugeVec::new(opts, &labels))
}

fn behind(registry: &Registry) -> prometheus::Result<Counter> {
    let opts = Opts::new(
        "vllm_sim_behind_seconds_total",
        "Wall time by which the stand-in ran slower than it should have.",
    );
    Maker { registry, labels: HashMap::new() }.add(Counter::with_opts(opts))
}

/// The text of `/metrics`.
///
/// # Errors
/// If a series can't be encoded.
pub fn render(registry: &Registry) -> prometheus::Result<Vec<u8>> {
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text)?;
    Ok(text)
}
