//! What is running: the build, the process as the kernel sees it, the runtime that its tasks are run by. Seconds.

use std::sync::LazyLock;

use parking_lot::Mutex;
use prometheus::{
    Counter, IntGauge, Opts,
    core::{Collector, Desc},
    process_collector::ProcessCollector,
    proto::MetricFamily,
};
use tokio::runtime::RuntimeMetrics;

use super::Metrics;

const RELEASE: &str = env!("CARGO_PKG_VERSION");
/// What it was built from, where whoever built it said so.
const COMMIT: Option<&str> = option_env!("KINFERENCE_COMMIT");
const FEATURES: &str = if cfg!(feature = "sim") { "sim" } else { "none" };

/// What `--version` says of every program.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| match COMMIT {
        Some(commit) => format!("{RELEASE} ({commit})"),
        None => RELEASE.to_owned(),
    });
    &VERSION
}

/// Registers them, of the runtime that is given. Once a process.
pub fn register(metrics: &Metrics, runtime: RuntimeMetrics) {
    let labels = &["version", "commit", "features"];
    let build = metrics.gauges("kinference_build_info", "Always 1: the build that runs.", labels);
    build.with_label_values(&[RELEASE, COMMIT.unwrap_or("unknown"), FEATURES]).set(1);
    metrics.add(ProcessCollector::for_self());
    match Runtime::new(runtime) {
        Ok(collector) => metrics.add(collector),
        Err(error) => tracing::error!(%error, "the metrics of the runtime are not shown"),
    }
}

/// Read off the runtime when they are asked for.
struct Runtime {
    runtime: RuntimeMetrics,
    workers: IntGauge,
    tasks: IntGauge,
    queued: IntGauge,
    busy: Counter,
    /// One scrape at a time: two would both add what is new.
    scrape: Mutex<()>,
}

impl Runtime {
    /// # Errors
    /// None: the names are constants.
    fn new(runtime: RuntimeMetrics) -> prometheus::Result<Self> {
        let gauge = |name, help| IntGauge::with_opts(Opts::new(name, help));
        Ok(Self {
            runtime,
            workers: gauge("kinference_runtime_workers", "Threads that run tasks.")?,
            tasks: gauge("kinference_runtime_tasks", "Tasks that are alive.")?,
            queued: gauge("kinference_runtime_queued_tasks", "Tasks that wait for any thread.")?,
            busy: Counter::with_opts(Opts::new(
                "kinference_runtime_busy_seconds_total",
                "Time that threads ran tasks, all together.",
            ))?,
            scrape: Mutex::default(),
        })
    }
}

impl Collector for Runtime {
    fn desc(&self) -> Vec<&Desc> {
        let gauges = [&self.workers, &self.tasks, &self.queued];
        gauges.into_iter().flat_map(Collector::desc).chain(self.busy.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _one = self.scrape.lock();
        let workers = self.runtime.num_workers();
        for (gauge, count) in [
            (&self.workers, workers),
            (&self.tasks, self.runtime.num_alive_tasks()),
            (&self.queued, self.runtime.global_queue_depth()),
        ] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let busy = (0..workers).map(|worker| self.runtime.worker_total_busy_duration(worker).as_secs_f64());
        self.busy.inc_by((busy.sum::<f64>() - self.busy.get()).max(0.0));
        let gauges = [&self.workers, &self.tasks, &self.queued];
        gauges.into_iter().flat_map(Collector::collect).chain(self.busy.collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_process_shows_itself() {
        let metrics = Metrics::new();
        register(&metrics, tokio::runtime::Handle::current().metrics());
        let text = metrics.render();
        for line in [
            &*format!("kinference_build_info{{commit=\"{}\",features=", COMMIT.unwrap_or("unknown")),
            "kinference_runtime_workers 1\n",
            "# TYPE kinference_runtime_busy_seconds_total counter\n",
            "# TYPE process_cpu_seconds_total counter\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(version().starts_with(RELEASE));
    }
}
