//! What a screen shows.

use kinference::serve::proto::{Load, Snapshot, Worker, WorkerState, watch_workers_response::Update};

use super::{super::fleet::Told, *};

fn worker(num: u64) -> Worker {
    let load = Load {
        in_flight: 3,
        queue: 2.0,
        running: 12.0,
        kv_usage: 0.67,
        backlog_ms: 812.4,
        ..Load::default()
    };
    Worker {
        worker_id: format!("vllm-llama-70b-{num}"),
        worker_num: num,
        models: vec!["meta-llama/Llama-3.3-70B-Instruct".into(), "adapter".into()],
        gpu_blocks: 12_345,
        state: WorkerState::Ready.into(),
        load: Some(load),
        ..Worker::default()
    }
}

fn told(update: Update) -> Told {
    Told::Update(update.into())
}

fn fleet(count: u64) -> Fleet {
    let mut fleet = Fleet::new("127.0.0.1:9002".into());
    fleet.told(told(Update::Snapshot(Snapshot { workers: (1..=count).map(worker).collect() })));
    fleet
}

const SCREEN: Size = Size { width: 80, height: 24 };

#[test]
fn a_screen_of_80_columns_shows_it_all() {
    let mut fleet = fleet(2);
    let wrong = vec!["evicted: block_size 32".to_owned(), "1 failure in a row".to_owned()];
    let gone = Worker { state: WorkerState::Evicted.into(), wrong, ..worker(2) };
    fleet.told(told(Update::Changed(gone)));
    let wanted = [
        "127.0.0.1:9002  1 of 2 up, queue 4, running 24, in flight 6   q quits",
        "",
        "WORKER          STATE    MODELS          QUEUE  RUN  KV USE  FLIGHT  WORK MS  BLOCKS",
    ];
    let lines = lines(&fleet, SCREEN, false);
    assert_eq!(lines[..2], wanted[..2]);
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    assert_eq!(
        lines[2].split_whitespace().collect::<Vec<_>>(),
        wanted[2].split_whitespace().collect::<Vec<_>>()
    );
    assert!(lines[3].contains("  up ") && lines[4].contains("  evicted "), "{lines:#?}");
    assert!(lines[3].ends_with(" 2   12     67%       3      812   12345"), "{lines:#?}");
    assert_eq!(lines[5], "vllm-llama-70b-2: evicted: block_size 32; 1 failure in a row");
}

#[test]
fn no_screen_is_overrun() {
    for height in 0..30 {
        let lines = lines(&fleet(40), Size { width: 80, height }, false);
        assert!(lines.len() <= height, "{height}: {lines:#?}");
    }
    let lines = lines(&fleet(40), SCREEN, false);
    assert_eq!((lines.len(), lines[23].as_str()), (24, "... and 20 more"));
}

#[test]
fn what_may_be_old_says_so_and_stays() {
    let mut fleet = fleet(1);
    fleet.told(Told::Lost("can't\nconnect".into()));
    let said = lines(&fleet, SCREEN, false);
    assert_eq!((said[1].as_str(), said.len()), ("Not up to date: can't connect", 4));
    fleet.told(told(Update::Removed("vllm-llama-70b-1".into())));
    let said = lines(&fleet, SCREEN, false);
    assert_eq!((said[1].as_str(), said.len()), ("", 3));
}
