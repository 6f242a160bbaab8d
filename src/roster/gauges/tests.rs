//! What of the fleet is shown, and that it goes with the worker. One test measures, and is run by hand.

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::{
    cache::CacheIndex,
    config::{Profile, Topology},
    fleet::{Availability, KvSource, KvState, Registry, Worker, WorkerSet},
    load::{Claim, LoadSample, LoadTable},
    types::{EngineHash, KvEvent, Outcome, Rank, StoredBlocks, WorkerId},
};

fn worker(id: u64, availability: Availability) -> Worker {
    let profile = Arc::new(Profile::default());
    let set = WorkerSet { name: "s".into(), profile, kv_block_size: 16, render_url: None };
    Worker {
        id: WorkerId(id),
        name: format!("w{id}").into(),
        set: Arc::new(set),
        model_name: "m".into(),
        kv: KvSource::Unknown,
        metrics_url: None,
        http_url: None,
        endpoint: format!("10.0.0.{id}:8000").into(),
        topology: Topology::default(),
        availability,
    }
}

/// A fleet of those workers, and what shows it.
fn fleet(workers: Vec<Worker>) -> (Roster, Metrics) {
    let metrics = Metrics::new();
    let registry = Arc::<Registry>::default();
    registry.replace_set("s", workers).unwrap();
    let load = LoadTable::new(Duration::from_secs(1), &metrics);
    let roster = Roster { registry, index: CacheIndex::new(&metrics), load, mock: false };
    roster.clone().register(&metrics);
    (roster, metrics)
}

fn shows(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.render();
    for line in lines {
        assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_of_a_scrape_are_shown() {
    let (roster, metrics) = fleet(vec![worker(1, Availability::Ready)]);
    let one = r#"{worker="w1",workerset="s"}"#;
    assert!(!metrics.render().contains("kinference_worker_scrape_age_seconds{"), "never scraped");
    let sample = LoadSample { running: 3.0, waiting: 7.0, kv_usage: 0.25 };
    roster.load.record_scrape(WorkerId(1), sample);
    tokio::time::advance(Duration::from_millis(1500)).await;
    let claim = Claim { work_ms: Some(400.0), ..Claim::default() };
    let reserved = roster.load.lock().reserve(WorkerId(1), claim);
    let stored = StoredBlocks {
        hashes: vec![EngineHash::Int(1)],
        tokens: (0..16).collect(),
        block_size: 16,
        ..StoredBlocks::default()
    };
    roster.index.writer(WorkerId(1), Rank(0), 16).apply(&KvEvent::Stored(stored));
    let status = roster.registry.get(WorkerId(1)).unwrap().status.clone();
    status.count(Outcome::Failed);
    shows(
        &metrics,
        &[
            &format!("kinference_worker_queued_requests{one} 7"),
            &format!("kinference_worker_running_requests{one} 4"),
            &format!("kinference_worker_kv_usage_ratio{one} 0.25"),
            &format!("kinference_worker_scrape_age_seconds{one} 1.5"),
            &format!("kinference_worker_in_flight_requests{one} 1"),
            &format!("kinference_worker_prefilling_requests{one} 1"),
            &format!("kinference_worker_backlog_seconds{one} 0.4"),
            r#"kinference_worker_kv_blocks{tier="gpu",worker="w1",workerset="s"} 1"#,
            r#"kinference_worker_requests_total{outcome="failed",worker="w1",workerset="s"} 1"#,
            r#"kinference_worker_requests_total{outcome="completed",worker="w1",workerset="s"} 0"#,
        ],
    );
    // What was shown once is not added to.
    shows(&metrics, &[r#"kinference_worker_requests_total{outcome="failed",worker="w1",workerset="s"} 1"#]);
    drop(reserved);
    shows(&metrics, &[&format!("kinference_worker_in_flight_requests{one} 0")]);
}

#[tokio::test]
async fn who_takes_requests_is_told_and_who_left_is_not_there() {
    let (roster, metrics) =
        fleet(vec![worker(1, Availability::Terminating), worker(2, Availability::NotReady)]);
    roster.registry.get(WorkerId(2)).unwrap().status.kv.store(Arc::new(KvState::Synced));
    shows(
        &metrics,
        &[
            r#"kinference_workers{state="ready",workerset="s"} 0"#,
            r#"kinference_workers{state="terminating",workerset="s"} 1"#,
            r#"kinference_workers{state="not_ready",workerset="s"} 1"#,
            r#"kinference_workers_kv_events{state="synced",workerset="s"} 1"#,
            r#"kinference_workers_kv_events{state="unknown",workerset="s"} 1"#,
            r#"kinference_worker_ready{worker="w2",workerset="s"} 0"#,
        ],
    );
    roster.registry.replace_set("s", vec![worker(2, Availability::Ready)]).unwrap();
    shows(
        &metrics,
        &[
            r#"kinference_workers{state="ready",workerset="s"} 1"#,
            r#"kinference_worker_ready{worker="w2",workerset="s"} 1"#,
        ],
    );
    let text = metrics.render();
    assert!(!text.contains("w1") && !text.contains("terminating"), "{text}");
}

#[tokio::test]
async fn a_set_without_workers_has_none_that_is_ready() {
    let (roster, metrics) = fleet(vec![]);
    roster.registry.await_set(&"later".into());
    let none = |set| format!(r#"kinference_workers{{state="ready",workerset="{set}"}} 0"#);
    shows(&metrics, &[&none("s"), &none("later")]);
    roster.registry.remove_set("s");
    assert!(!metrics.render().contains(r#"workerset="s""#));
}

#[tokio::test]
#[ignore = "measures; run it by hand, on a release build"]
#[expect(clippy::print_stderr, reason = "what it measured")]
async fn a_large_fleet_is_rendered_in_a_moment() {
    const TIMES: u32 = 50;
    let (_roster, metrics) = fleet((1..=256).map(|id| worker(id, Availability::Ready)).collect());
    let text = metrics.render();
    let began = Instant::now();
    (0..TIMES).for_each(|_| drop(metrics.render()));
    eprintln!("{:?} each, {} lines", began.elapsed() / TIMES, text.lines().count());
}
