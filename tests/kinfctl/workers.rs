//! `kinfctl workers` and `kinfctl top` against a server of which all is known.

use std::pin::Pin;

use kinference::serve::proto::{
    KvState, ListWorkersRequest, ListWorkersResponse, Load, Snapshot, WatchWorkersRequest,
    WatchWorkersResponse, Worker, WorkerState,
    fleet_server::{Fleet, FleetServer},
    watch_workers_response::Update,
};
use tokio::{io::AsyncWriteExt, net::TcpListener, task::spawn_blocking};
use tokio_stream::{Stream, StreamExt, wrappers::TcpListenerStream};
use tonic::{
    Request, Response, Status,
    transport::{Error, Server},
};

use super::{
    run::{Ran, Snapshots, kinfctl, snapshot},
    site::Site,
};

struct Canned;

fn worker(num: u64, kv_state: KvState) -> Worker {
    let busy = f64::from(u32::try_from(num).unwrap());
    let load = Load {
        in_flight: u32::try_from(num).unwrap(),
        without_token: 1,
        backlog_ms: busy * 100.5,
        queue: busy - 1.0,
        running: busy * 4.0,
        kv_usage: 0.31 * busy,
    };
    Worker {
        worker_id: format!("vllm-{num}"),
        worker_num: num,
        worker_set: "llama".into(),
        endpoint: format!("10.0.0.{num}:8000"),
        models: vec!["meta-llama/Llama-3.3-70B-Instruct".into()],
        kv_state: kv_state.into(),
        load: Some(load),
        gpu_blocks: num * 1000,
        state: WorkerState::Ready.into(),
        ..Worker::default()
    }
}

fn out(state: WorkerState, wrong: &str, worker: Worker) -> Worker {
    Worker { state: state.into(), wrong: vec![wrong.into()], ..worker }
}

fn workers() -> Vec<Worker> {
    let evicted = Worker { evicted_because: "blocks of 32 tokens".into(), ..worker(3, KvState::Evicted) };
    let evicted = out(WorkerState::Evicted, "evicted: blocks of 32 tokens", evicted);
    vec![worker(1, KvState::Synced), Worker { warming: true, ..worker(2, KvState::LiveOnly) }, evicted]
}

#[tonic::async_trait]
impl Fleet for Canned {
    type WatchWorkersStream = Pin<Box<dyn Stream<Item = Result<WatchWorkersResponse, Status>> + Send>>;

    async fn list_workers(
        &self,
        request: Request<ListWorkersRequest>,
    ) -> Result<Response<ListWorkersResponse>, Status> {
        let all = ["", "llama"].contains(&request.get_ref().worker_set.as_str());
        Ok(Response::new(ListWorkersResponse { workers: if all { workers() } else { Vec::new() } }))
    }

    async fn watch_workers(
        &self,
        request: Request<WatchWorkersRequest>,
    ) -> Result<Response<Self::WatchWorkersStream>, Status> {
        let updates = [
            Update::Snapshot(Snapshot { workers: workers() }),
            Update::Changed(out(WorkerState::Asleep, "the engine sleeps", worker(2, KvState::Synced))),
            Update::Changed(out(WorkerState::NotReady, "not ready", worker(2, KvState::Synced))),
            Update::Removed("vllm-1".into()),
        ];
        let updates = updates.map(|update| Ok(WatchWorkersResponse { update: Some(update) }));
        // For a set of that name the stream ends, else it only falls silent.
        let ends = request.get_ref().worker_set == "ends";
        let told = tokio_stream::iter(if ends { updates.to_vec() } else { updates[..1].to_vec() });
        let silence = tokio_stream::pending();
        Ok(Response::new(if ends { Box::pin(told) } else { Box::pin(told.chain(silence)) }))
    }
}

/// The server: its address, and what runs it.
pub async fn server() -> (String, impl Future<Output = Result<(), Error>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let service = FleetServer::new(Canned);
    (address, Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)))
}

/// Runs it against the server.
async fn against_server(runs: impl FnOnce(&dyn Fn(&[&str]) -> Ran) + Send + 'static) {
    let (address, serving) = server().await;
    let run = move || {
        runs(&|args: &[&str]| {
            let mut ran = kinfctl(&[args, &["--server", &address]].concat());
            ran.out = ran.out.replace(&address, "ADDRESS");
            ran
        });
    };
    tokio::select! {
        served = serving => served.unwrap(),
        ran = spawn_blocking(run) => ran.unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_shown_in_three_ways() {
    against_server(|run| {
        let mut snapshots = Snapshots::default();
        for format in ["table", "json", "yaml"] {
            snapshots.hold(&format!("workers/{format}.txt"), &run(&["workers", "-o", format]).whole());
            let watched = run(&["workers", "--watch", "--worker-set", "ends", "-o", format]);
            snapshots.hold(&format!("workers/watch-{format}.txt"), &watched.whole());
        }
        // What no terminal reads is for programs, as it always was.
        assert_eq!(run(&["workers"]).out, run(&["workers", "-o", "json"]).out);
        snapshots.done();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn top_prints_a_table_where_there_is_no_terminal() {
    against_server(|run| {
        let once = run(&["top", "--once"]);
        assert_eq!(once.code, 0, "{once:?}");
        snapshot("workers/top.txt", &once.out);
        // Again and again, until there is nothing to look at any more.
        let ended = run(&["top", "--interval", "0.1", "--worker-set", "ends"]);
        assert_eq!((ended.code, ended.err.as_str()), (1, "kinfctl: the server ended the watch\n"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_explained_over_the_workers_of_a_server() {
    against_server(|run| {
        let request = ["--policies", "files/llama.yaml", "--pool", "llama", "--model", "standard"];
        let explain = |more: &[&str]| run(&[&["explain"], &request[..], more].concat());
        let first = explain(&["--prompt-tokens", "1000"]);
        snapshot("policies/explain-live.txt", &first.whole());
        let second = explain(&["--tag", "batch", "--tenant", "acme"]);
        assert!(
            second.out.contains("rule `batch` of llama:") && second.out.contains("goes to cloud"),
            "{second:?}"
        );
        let unknown =
            run(&["explain", "--policies", "files/llama.yaml", "--pool", "lama", "--model", "standard"]);
        assert_eq!(
            (unknown.code, unknown.out.as_str()),
            (1, "error: `pool` is \"lama\": no InferencePool or GatewayBackend has that name\n")
        );
    })
    .await;
    assert_eq!(kinfctl(&["explain", "--model", "m"]).code, 2);
    assert_eq!(kinfctl(&["explain"]).code, 2);
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    // A port that nobody can listen on.
    for command in ["workers", "top"] {
        let ran = kinfctl(&[command, "--server", "127.0.0.1:0"]);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(ran.err.starts_with("kinfctl: can't connect to 127.0.0.1:0"), "{}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_listener_taken_for_the_other_is_told_of() {
    let site = Site::start(vec![]).await;
    let admin = site.address.trim_start_matches("http://").to_owned();
    against_server(move |run| {
        for asked in [&["workers"][..], &["top", "--once"]] {
            let ran = kinfctl(&[asked, &["--server", &admin]].concat());
            let want = format!("kinfctl: {admin} answers, but not in gRPC (");
            assert!(ran.code == 1 && ran.err.starts_with(&want), "{ran:?}");
            assert!(ran.err.ends_with("Is this its admin listener?\n"), "{ran:?}");
        }
        assert_eq!(run(&["workers"]).code, 0);
    })
    .await;
    let (address, serving) = server().await;
    let told = spawn_blocking(move || {
        let past = kinfctl(&["explain", "--request-id", "r", "--admin", &format!("http://{address}")]);
        [kinfctl(&["log", "--admin", &address]), past].map(|ran| (ran, address.clone()))
    });
    let told = tokio::select! {
        served = serving => panic!("{served:?}"),
        told = told => told.unwrap(),
    };
    for (ran, address) in told {
        assert!(ran.code == 1 && ran.err.lines().count() == 1, "{ran:?}");
        let said = ran.err.contains(&address) && ran.err.contains("answers, but not in HTTP. Is this where");
        assert!(said, "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_speaks_http_alone_is_no_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = async {
        loop {
            let (mut caller, _) = listener.accept().await.unwrap();
            let _ = caller.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
        }
    };
    let asked = address.clone();
    let ran = tokio::select! {
        () = serve => unreachable!(),
        ran = spawn_blocking(move || kinfctl(&["workers", "--server", &asked])) => ran.unwrap(),
    };
    assert!(ran.code == 1 && ran.err.lines().count() == 1, "{ran:?}");
    assert!(ran.err.contains(&address) && ran.err.contains("gRPC"), "{ran:?}");
}

#[test]
fn formats_hold_for_other_records_too() {
    let mut snapshots = Snapshots::default();
    for format in ["table", "json", "yaml"] {
        let decoded = kinfctl(&[
            "events",
            "decode",
            "-o",
            format,
            "../fixtures/kv-events-by-version/0.32.0-int.msgpack",
        ]);
        snapshots.hold(&format!("events/{format}.txt"), &decoded.whole());
    }
    snapshots.done();
}
