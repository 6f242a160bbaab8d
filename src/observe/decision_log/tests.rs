//! The log from its near end to its file.

use std::{fs, path::Path, time::SystemTime};

use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::types::{
    Candidate, Decision, Degradation, ErrorKind, Rejection, Stages, Target, WorkerId, WorkerTarget,
};

const WITHIN: Duration = Duration::from_secs(60);

fn decision(degraded: Vec<Degradation>) -> Decision {
    let target =
        WorkerTarget { id: WorkerId(1), name: "w".into(), workerset: "s".into(), endpoint: "a:1".into() };
    let candidate = Candidate::new(Target::Worker(target), None);
    Decision { candidates: vec![candidate], degraded, ..Decision::default() }
}

fn record(id: &str, decided: Result<Decision, Rejection>) -> Arc<Record> {
    Arc::new(Record {
        at: SystemTime::UNIX_EPOCH,
        request_id: id.into(),
        tenant: None,
        tags: Vec::new(),
        pool: None,
        call: "other",
        model: None,
        traceparent: None,
        stages: Stages::default(),
        took: Duration::ZERO,
        decided: decided.map(Arc::new).map_err(Arc::new),
    })
}

fn fine(id: &str) -> Arc<Record> {
    record(id, Ok(decision(Vec::new())))
}

/// A file in a directory that goes with it.
fn file(dir: &TempDir, max_bytes: u64) -> LogTarget {
    LogTarget::File { path: dir.path().join("log"), max_bytes, max_files: 2 }
}

fn ids(path: &Path) -> Vec<String> {
    let id = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["request_id"].as_str().unwrap().to_owned()
    };
    fs::read_to_string(path).unwrap_or_default().lines().map(id).collect()
}

fn counted(metrics: &Metrics, fate: &str) -> u64 {
    let name = format!("kinference_decision_log_lines_total{{result=\"{fate}\"}} ");
    let text = metrics.render();
    text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

/// A log whose writer runs while a test does.
async fn with_log(options: LogOptions, test: impl AsyncFnOnce(&DecisionLog, &Metrics)) {
    let metrics = Metrics::new();
    let (log, writer) = DecisionLog::new(options, &metrics);
    tokio::select! {
        ended = writer.run() => panic!("{ended:?}"),
        () = test(&log, &metrics) => {}
    }
}

#[tokio::test]
async fn a_sample_is_written_and_all_that_did_not_go_well() {
    let dir = tempfile::tempdir().unwrap();
    let options = LogOptions { target: file(&dir, u64::MAX), sample: 0.25 };
    with_log(options, async |log, metrics| {
        let names: Vec<_> = (0..1000).map(|n| format!("r{n}")).collect();
        names.iter().for_each(|id| log.decided(&fine(id)));
        log.decided(&record("rejected", Err(Rejection::new(ErrorKind::NoWorker, "no"))));
        log.decided(&record("degraded", Ok(decision(vec![Degradation::Deadline]))));
        assert!(log.flush(WITHIN).await);
        let written = ids(&dir.path().join("log"));
        let sampled: Vec<_> = names.iter().filter(|id| is_sampled(id, 0.25)).cloned().collect();
        assert_eq!(written[..written.len() - 2], sampled);
        assert_eq!(written[written.len() - 2..], ["rejected", "degraded"]);
        assert!((200..300).contains(&sampled.len()), "{}", sampled.len());
        assert_eq!(counted(metrics, "written"), written.len() as u64);
    })
    .await;
}

#[test]
fn a_larger_sample_has_all_of_a_smaller_one() {
    for id in (0..1000).map(|n| n.to_string()) {
        assert!(is_sampled(&id, 1.0) && !is_sampled(&id, 0.0));
        assert!(!is_sampled(&id, 0.3) || is_sampled(&id, 0.6), "{id}");
    }
}

#[test]
fn what_could_be_written_is_found_out_without_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| LogTarget::File { path: dir.path().join(name), max_bytes: 1, max_files: 1 };
    at("log").probe().unwrap();
    fs::write(dir.path().join("there"), "line\n").unwrap();
    at("there").probe().unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("there")).unwrap(), "line\n");
    fs::create_dir(dir.path().join("folder")).unwrap();
    for bad in ["gone/log", "there/log", "folder"] {
        assert!(at(bad).probe().is_err(), "{bad}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    let device = LogTarget::File { path: "/dev/null".into(), max_bytes: 1, max_files: 1 };
    assert_eq!((device.probe().is_ok(), LogTarget::Stdout.probe().is_ok()), (true, true));
}

#[tokio::test]
async fn full_files_are_put_aside_and_the_oldest_goes() {
    let dir = tempfile::tempdir().unwrap();
    let line = serde_json::to_vec(&super::super::Shown::from(&*fine("r0"))).unwrap().len() as u64 + 1;
    let options = LogOptions { target: file(&dir, 2 * line), sample: 1.0 };
    with_log(options, async |log, _| {
        for n in 0..7 {
            log.decided(&fine(&format!("r{n}")));
            assert!(log.flush(WITHIN).await);
        }
        let of = |name: &str| ids(&dir.path().join(name));
        assert_eq!([of("log"), of("log.1"), of("log.2")], [vec!["r6"], vec!["r4", "r5"], vec!["r2", "r3"]]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    })
    .await;
}

#[tokio::test]
async fn what_can_not_be_written_is_counted_until_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    fs::create_dir(&path).unwrap();
    with_log(LogOptions { target: file(&dir, u64::MAX), sample: 1.0 }, async |log, metrics| {
        log.decided(&fine("lost"));
        assert!(log.flush(WITHIN).await);
        assert_eq!((counted(metrics, "failed"), counted(metrics, "written")), (1, 0));
        fs::remove_dir(&path).unwrap();
        log.decided(&fine("kept"));
        assert!(log.flush(WITHIN).await);
        assert_eq!((ids(&path), counted(metrics, "written")), (vec!["kept".to_owned()], 1));
    })
    .await;
}

#[tokio::test]
async fn a_full_disk_ends_nothing() {
    let target = LogTarget::File { path: "/dev/full".into(), max_bytes: u64::MAX, max_files: 1 };
    with_log(LogOptions { target, sample: 1.0 }, async |log, metrics| {
        for _ in 0..2 {
            log.decided(&fine("lost"));
            assert!(log.flush(WITHIN).await);
        }
        assert_eq!((counted(metrics, "failed"), counted(metrics, "written")), (2, 0));
    })
    .await;
}

#[tokio::test]
async fn a_decision_does_not_wait_for_a_writer_that_is_slow() {
    let metrics = Metrics::new();
    let dir = tempfile::tempdir().unwrap();
    let (log, _slow) = DecisionLog::new(LogOptions { target: file(&dir, u64::MAX), sample: 1.0 }, &metrics);
    let record = fine("r");
    // Each takes two places: its own and its candidate's.
    (0..40_000).for_each(|_| log.decided(&record));
    assert_eq!(counted(&metrics, "dropped"), 40_000 - 65_536 / 2);
}

#[tokio::test]
async fn a_file_that_is_moved_is_followed_by_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("log"), dir.path().join("moved"));
    with_log(LogOptions { target: file(&dir, u64::MAX), sample: 1.0 }, async |log, metrics| {
        for (id, then) in [("before", Some(&moved)), ("after", None)] {
            log.decided(&fine(id));
            assert!(log.flush(WITHIN).await);
            then.into_iter().for_each(|to| fs::rename(&path, to).unwrap());
        }
        assert_eq!([ids(&moved), ids(&path)], [vec!["before".to_owned()], vec!["after".to_owned()]]);
        assert_eq!(counted(metrics, "written"), 2);
    })
    .await;
}

#[tokio::test]
async fn only_a_file_of_its_own_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().join("real");
    fs::write(&real, "").unwrap();
    std::os::unix::fs::symlink(&real, dir.path().join("log")).unwrap();
    with_log(LogOptions { target: file(&dir, 1), sample: 1.0 }, async |log, _| {
        for id in ["one", "other"] {
            log.decided(&fine(id));
            assert!(log.flush(WITHIN).await);
        }
        assert_eq!(ids(&real), ["one", "other"]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    })
    .await;
}
