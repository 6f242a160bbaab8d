//! What the decision log costs: throughput with a line for each decision, as a share of that without a log.
//!
//! Only the pipeline runs, over a chat of some 200 tokens tokenized in the process: no engine, no proxy, no network, so
//! that the share is the worst there is. Both are measured in turn, and a run ends when its last line is in the file. The
//! share is that of decisions in a second of CPU time, which is what throughput comes to where all cores are busy; the
//! clock on the wall tells as much only where nothing else runs.

#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::{
    env, fs,
    io::{self, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kinference::observe::{DecisionLog, Decisions, LogOptions, LogTarget, Metrics};
use tokio::{runtime::Runtime, task::JoinSet, time::Instant};

#[path = "../tests/pipeline/site.rs"]
#[expect(dead_code, reason = "it serves the tests of the pipeline")]
mod site;

use site::{Site, chat, profile, worker, worker_set};

/// Requests that are decided at once.
const AT_ONCE: usize = 32;
/// Decisions of a measurement.
const DECISIONS: u64 = 10_000;
/// How long the last lines may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pairs of them, after one that warms up.
const PAIRS: usize = 7;
/// Workers, all of which are candidates.
const FLEETS: [u64; 3] = [4, 16, 64];

/// What a measurement came to.
struct Measured {
    /// Decisions a second on the wall's clock.
    rate: f64,
    /// CPU time of a decision, microseconds.
    cpu_us: f64,
    /// Lines that were not written.
    lost: u64,
}

/// CPU time of the process so far, in seconds: fields 14 and 15 of its `stat`, in hundredths.
fn cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

async fn measure(workers: u64, file: Option<&Path>) -> Measured {
    let (metrics, mut writing) = (Metrics::new(), JoinSet::new());
    let log = file.map(|path| {
        let target = LogTarget::File { path: path.into(), max_bytes: 100_000_000, max_files: 2 };
        let (log, writer) = DecisionLog::new(LogOptions { target, sample: 1.0 }, &metrics);
        // Its thread ends with the log.
        writing.spawn(async move { drop(writer.run().await) });
        log
    });
    let decisions = Arc::new(Decisions::new(log, None));
    let profile = profile("p", |_| {});
    let site = Site::telling(std::slice::from_ref(&profile), decisions.clone(), |_| {});
    let set = worker_set("s", &profile);
    site.registry.replace_set("s", (1..=workers).map(|id| worker(&set, id)).collect()).unwrap();
    let (count, began, cpu_before) = (Arc::new(AtomicU64::new(0)), Instant::now(), cpu());
    let mut asking = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (pipeline, count) = (site.pipeline.clone(), count.clone());
        asking.spawn(async move {
            while count.fetch_add(1, Ordering::Relaxed) < DECISIONS {
                drop(pipeline.decide(chat()).await);
                tokio::task::yield_now().await;
            }
        });
    }
    asking.join_all().await;
    assert!(decisions.flush(PATIENCE).await, "the log is written");
    let (took, cpu_took) = (began.elapsed().as_secs_f64(), cpu() - cpu_before);
    let written = metrics.render().lines().find_map(|line| {
        line.strip_prefix("kinference_decision_log_lines_total{result=\"written\"} ")?.parse::<u64>().ok()
    });
    let lost = if file.is_some() { DECISIONS - written.unwrap_or_default() } else { 0 };
    Measured { rate: DECISIONS as f64 / took, cpu_us: cpu_took * 1e6 / DECISIONS as f64, lost }
}

fn main() -> io::Result<()> {
    // Test runners start every target too, and ask for its tests: there are none.
    if !env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("decisions.jsonl");
    for workers in FLEETS {
        let (mut shares, mut on_the_wall, mut costs, mut lost) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for pair in 0..=PAIRS {
            let runtime = Runtime::new()?;
            let run = |file| runtime.block_on(measure(workers, file));
            // Who is first changes, for what drifts.
            let (without, with) = if pair % 2 == 0 {
                let without = run(None);
                (without, run(Some(&*file)))
            } else {
                let with = run(Some(&*file));
                (run(None), with)
            };
            // The first pair warms up.
            if pair > 0 {
                shares.push(without.cpu_us / with.cpu_us * 100.0);
                on_the_wall.push(with.rate / without.rate * 100.0);
                costs.push(without.cpu_us);
                lost += with.lost;
            }
        }
        [&mut shares, &mut on_the_wall, &mut costs].into_iter().for_each(|all| all.sort_by(f64::total_cmp));
        let spread =
            |all: &[f64]| format!("{:.1}% ({:.1}% to {:.1}%)", all[PAIRS / 2], all[0], all[PAIRS - 1]);
        writeln!(
            io::stdout(),
            "{workers} candidates, {:.0} us of CPU a decision: a line for each leaves {} of the throughput, \
             on the wall {}; {lost} lines lost",
            costs[PAIRS / 2],
            spread(&shares),
            spread(&on_the_wall),
        )?;
    }
    Ok(())
}
