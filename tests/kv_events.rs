//! KV-event ingest over real sockets: an engine of PUB and ROUTER sockets on 127.0.0.1, with what goes wrong.
//!
//! Ends are asserted by waiting, with a deadline, for `status.kv` and the blocks held.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use kinference::{
    cache::CacheIndex,
    config::{Profile, Topology},
    fleet::{Availability, KvSource, KvState, Member, Status, Worker, WorkerSet},
    ingest::kv::{self, Follower, KvMetrics},
    observe::Metrics,
    types::WorkerId,
};
use parking_lot::Mutex;
use rmpv::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

const BLOCK: u32 = 4;
const ID: WorkerId = WorkerId(7);
/// Long enough to tell a wrong end from a slow machine.
const DEADLINE: Duration = Duration::from_secs(20);

fn store(hash: u64, block_size: u32) -> Value {
    let tokens = (0..u64::from(block_size)).map(|i| Value::from(hash * 100 + i)).collect();
    Value::Map(vec![
        ("type".into(), "BlockStored".into()),
        ("block_hashes".into(), Value::Array(vec![hash.into()])),
        ("parent_block_hash".into(), Value::Nil),
        ("token_ids".into(), Value::Array(tokens)),
        ("block_size".into(), block_size.into()),
        ("medium".into(), "GPU".into()),
    ])
}

fn remove(hash: u64) -> Value {
    Value::Array(vec!["BlockRemoved".into(), Value::Array(vec![hash.into()]), "GPU".into()])
}

/// How the replay socket behaves.
#[derive(Clone, Copy, PartialEq)]
enum Replays {
    /// With a topic frame, as from vLLM 0.26 on.
    WithTopic,
    /// Without, as before.
    Bare,
    /// Takes the question and never answers.
    Never,
}

struct Engine {
    events: PubSocket,
    log: Arc<Mutex<Vec<Bytes>>>,
    published: u8,
    events_at: String,
    replay_at: String,
    replays: JoinSet<()>,
}

impl Engine {
    async fn start(replays: Replays) -> Self {
        Self::start_at("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", replays).await
    }

    async fn start_at(events_at: &str, replay_at: &str, behaviour: Replays) -> Self {
        let mut events = PubSocket::new();
        let events_at = events.bind(events_at).await.unwrap().to_string();
        let mut router = RouterSocket::new();
        let replay_at = router.bind(replay_at).await.unwrap().to_string();
        let log = Arc::new(Mutex::new(vec![]));
        let mut replays = JoinSet::new();
        replays.spawn(serve_replays(router, log.clone(), behaviour));
        Self { events, log, published: 0, events_at, replay_at, replays }
    }

    /// Publishes a batch that no subscriber gets.
    fn lose(&mut self, events: Vec<Value>) -> (u64, Bytes) {
        self.published = self.published.wrapping_add(1);
        let batch = [Value::F64(self.published.into()), Value::Array(events), Value::from(0)];
        let mut payload = vec![];
        rmpv::encode::write_value(&mut payload, &Value::Array(batch.into())).unwrap();
        let payload = Bytes::from(payload);
        let mut log = self.log.lock();
        log.push(payload.clone());
        (log.len() as u64 - 1, payload)
    }

    async fn publish(&mut self, events: Vec<Value>) {
        let (seq, payload) = self.lose(events);
        self.send(vec![Bytes::from_static(b"kv-events"), seq.to_be_bytes().to_vec().into(), payload]).await;
    }

    async fn send(&mut self, frames: Vec<Bytes>) {
        self.events.send(ZmqMessage::try_from(frames).unwrap()).await.unwrap();
    }

    /// Numbers anew on the same sockets, all blocks gone.
    fn forget(&mut self) {
        self.log.lock().clear();
    }

    async fn stop(mut self) -> (String, String) {
        self.replays.shutdown().await;
        self.events.close().await;
        (self.events_at, self.replay_at)
    }
}

async fn serve_replays(mut router: RouterSocket, log: Arc<Mutex<Vec<Bytes>>>, behaviour: Replays) {
    while let Ok(request) = router.recv().await {
        let frames = request.into_vec();
        let [peer, empty, from] = &frames[..] else { panic!("{frames:?}") };
        assert!(empty.is_empty());
        let from = u64::from_be_bytes(from[..].try_into().unwrap());
        if behaviour == Replays::Never {
            continue;
        }
        let mut answers: Vec<(Bytes, Bytes)> = (0u64..)
            .zip(log.lock().iter().cloned())
            .filter(|(seq, _)| *seq >= from)
            .map(|(seq, payload)| (seq.to_be_bytes().to_vec().into(), payload))
            .collect();
        answers.push((Bytes::from_static(&[0xff; 8]), Bytes::new()));
        for (seq, payload) in answers {
            let topic = (behaviour == Replays::WithTopic).then(|| Bytes::from_static(b"kv-events"));
            let head = [peer.clone(), Bytes::new()].into_iter().chain(topic);
            let answer: Vec<Bytes> = head.chain([seq, payload]).collect();
            router.send(ZmqMessage::try_from(answer).unwrap()).await.unwrap();
        }
    }
}

/// The router's side: a member, its index and the task that follows it.
struct Router {
    member: Arc<Member>,
    index: Arc<CacheIndex>,
    metrics: Metrics,
    task: JoinSet<Option<kv::Evicted>>,
}

impl Router {
    fn follow(events: Option<&str>, replay: Option<&str>, replay_timeout: Duration) -> Self {
        let set = WorkerSet {
            name: "set".into(),
            profile: Arc::new(Profile::default()),
            kv_block_size: BLOCK,
            render_url: None,
        };
        let worker = Worker {
            id: ID,
            name: "w".into(),
            set: Arc::new(set),
            model_name: "m".into(),
            kv: KvSource::single(events.map(Into::into), replay.map(Into::into)),
            metrics_url: None,
            http_url: None,
            endpoint: "127.0.0.1:8000".into(),
            topology: Topology::default(),
            availability: Availability::Ready,
        };
        let member = Arc::new(Member { worker, generation: 1, status: Status::default() });
        let metrics = Metrics::new();
        let index = CacheIndex::new(&metrics);
        let mut task = JoinSet::new();
        let follower = Follower::new(index.clone(), KvMetrics::new(&metrics), replay_timeout).unwrap();
        task.spawn(follower.run(member.clone()));
        Self { member, index, metrics, task }
    }

    fn of(engine: &Engine) -> Self {
        Self::follow(Some(&engine.events_at), Some(&engine.replay_at), DEADLINE)
    }

    fn is(&self, state: &KvState, blocks: usize) -> bool {
        **self.member.status.kv.load() == *state && self.index.blocks(ID).gpu == blocks
    }

    /// Until the state is reached, whatever the engine has said.
    async fn reaches(&self, state: KvState, blocks: usize) {
        let reached = async {
            while !self.is(&state, blocks) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, reached).await.is_err() {
            let now = (self.member.status.kv.load(), self.index.blocks(ID).gpu);
            panic!("waited for {state:?} with {blocks} blocks, but it is {now:?}");
        }
    }

    /// The same, while the engine publishes batches without events: a subscription becomes active at the
    /// engine some time after we know of the connection.
    async fn hears(&self, engine: &mut Engine, state: KvState, blocks: usize) {
        let reached = async {
            while !self.is(&state, blocks) {
                engine.publish(vec![]).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, reached).await.is_err() {
            let now = (self.member.status.kv.load(), self.index.blocks(ID).gpu);
            panic!("waited for {state:?} with {blocks} blocks, but it is {now:?}");
        }
    }

    /// Until so many batches were read: more than a replay gave, so that a live one got through.
    async fn is_subscribed(&self, engine: &mut Engine, batches: u64) {
        let reached = async {
            while self.counted("kinference_kv_batches_total") < batches {
                engine.publish(vec![]).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, reached).await.unwrap();
    }

    fn counted(&self, series: &str) -> u64 {
        let text = self.metrics.render();
        let line = text.lines().find(|line| line.starts_with(series));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }
}

async fn learns_what_came_before_and_what_comes(replays: Replays) {
    let mut engine = Engine::start(replays).await;
    engine.lose(vec![store(1, BLOCK), store(2, BLOCK)]);
    engine.lose(vec![store(3, BLOCK), remove(1)]);
    let router = Router::of(&engine);
    router.reaches(KvState::Synced, 2).await;
    engine.publish(vec![store(4, BLOCK)]).await;
    router.hears(&mut engine, KvState::Synced, 3).await;
    engine.publish(vec![remove(2), remove(3)]).await;
    router.reaches(KvState::Synced, 1).await;
}

#[tokio::test]
async fn a_replay_with_topics() {
    learns_what_came_before_and_what_comes(Replays::WithTopic).await;
}

#[tokio::test]
async fn a_replay_without_topics() {
    learns_what_came_before_and_what_comes(Replays::Bare).await;
}

#[tokio::test]
async fn an_idle_engine_is_synced() {
    let engine = Engine::start(Replays::WithTopic).await;
    Router::of(&engine).reaches(KvState::Synced, 0).await;
}

#[tokio::test]
async fn a_gap_is_replayed() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK)]);
    let router = Router::of(&engine);
    router.reaches(KvState::Synced, 1).await;
    router.is_subscribed(&mut engine, 2).await;
    let gaps = router.counted("kinference_kv_gaps_total");
    engine.lose(vec![remove(1)]);
    engine.lose(vec![store(2, BLOCK), store(3, BLOCK)]);
    engine.publish(vec![store(4, BLOCK)]).await;
    router.reaches(KvState::Synced, 3).await;
    assert!(router.counted("kinference_kv_gaps_total") > gaps);
    assert_eq!(router.counted("kinference_kv_restarts_total"), 0);
}

#[tokio::test]
async fn an_engine_that_numbers_anew_is_learned_anew() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK), store(2, BLOCK)]);
    let router = Router::of(&engine);
    router.reaches(KvState::Synced, 2).await;
    router.is_subscribed(&mut engine, 3).await;
    engine.forget();
    engine.publish(vec![store(9, BLOCK)]).await;
    router.reaches(KvState::Synced, 1).await;
    assert_eq!(router.counted("kinference_kv_restarts_total"), 1);
}

#[tokio::test]
async fn a_lost_connection_is_dialled_anew() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK), store(2, BLOCK)]);
    let router = Router::of(&engine);
    router.reaches(KvState::Synced, 2).await;
    let (events_at, replay_at) = engine.stop().await;
    router.reaches(KvState::Disconnected, 0).await;
    let mut engine = Engine::start_at(&events_at, &replay_at, Replays::WithTopic).await;
    engine.lose(vec![store(5, BLOCK)]);
    router.reaches(KvState::Synced, 1).await;
    engine.publish(vec![store(6, BLOCK)]).await;
    router.hears(&mut engine, KvState::Synced, 2).await;
}

#[tokio::test]
async fn an_engine_that_comes_later_is_found() {
    let (events_at, replay_at) = Engine::start(Replays::WithTopic).await.stop().await;
    let router = Router::follow(Some(&events_at), Some(&replay_at), DEADLINE);
    router.reaches(KvState::Disconnected, 0).await;
    let _engine = Engine::start_at(&events_at, &replay_at, Replays::WithTopic).await;
    router.reaches(KvState::Synced, 0).await;
}

#[tokio::test]
async fn a_replay_that_never_ends_is_given_up() {
    let mut engine = Engine::start(Replays::Never).await;
    engine.lose(vec![store(1, BLOCK)]);
    let soon = Duration::from_millis(200);
    let router = Router::follow(Some(&engine.events_at), Some(&engine.replay_at), soon);
    router.reaches(KvState::LiveOnly, 0).await;
    assert_eq!(router.counted("kinference_kv_replays_total{outcome=\"timed_out\"}"), 1);
    router.is_subscribed(&mut engine, 1).await;
    engine.publish(vec![store(2, BLOCK)]).await;
    router.reaches(KvState::LiveOnly, 1).await;
}

#[tokio::test]
async fn a_dead_replay_socket_leaves_live_events() {
    let engine = Engine::start(Replays::WithTopic).await;
    let (_, nobody) = Engine::start(Replays::WithTopic).await.stop().await;
    let router = Router::follow(Some(&engine.events_at), Some(&nobody), DEADLINE);
    router.reaches(KvState::LiveOnly, 0).await;
    assert_eq!(router.counted("kinference_kv_replays_total{outcome=\"failed\"}"), 1);
}

#[tokio::test]
async fn without_a_replay_socket_only_live_events_count() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK)]);
    let router = Router::follow(Some(&engine.events_at), None, DEADLINE);
    router.reaches(KvState::LiveOnly, 0).await;
    router.is_subscribed(&mut engine, 1).await;
    engine.publish(vec![store(2, BLOCK), store(3, BLOCK)]).await;
    router.reaches(KvState::LiveOnly, 2).await;
    engine.lose(vec![remove(2)]);
    engine.publish(vec![store(4, BLOCK)]).await;
    router.reaches(KvState::LiveOnly, 1).await;
}

#[tokio::test]
async fn garbage_is_counted_and_skipped() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    let router = Router::of(&engine);
    router.reaches(KvState::Synced, 0).await;
    router.is_subscribed(&mut engine, 1).await;
    engine.send(vec![Bytes::from_static(b"one frame")]).await;
    let seq = engine.log.lock().len() as u64;
    let broken = Bytes::from_static(b"\x93\xc1");
    engine.log.lock().push(broken.clone());
    engine.send(vec![Bytes::new(), seq.to_be_bytes().to_vec().into(), broken]).await;
    let unknown = Value::Array(vec!["BlockMoved".into(), Value::Nil]);
    engine.publish(vec![unknown, store(1, BLOCK)]).await;
    router.reaches(KvState::Synced, 1).await;
    assert_eq!(router.counted("kinference_kv_undecodable_total"), 2);
    assert_eq!(router.counted("kinference_kv_events_skipped_total{reason=\"unknown_type\"}"), 1);
    assert_eq!(router.counted("kinference_kv_gaps_total"), 0);
}

#[tokio::test]
async fn another_block_size_evicts() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK), store(2, BLOCK * 2), store(3, BLOCK)]);
    let mut router = Router::of(&engine);
    let evicted = tokio::time::timeout(DEADLINE, router.task.join_next()).await.unwrap().unwrap().unwrap();
    let words = evicted.unwrap().0;
    assert!(words.contains("8 tokens") && words.contains("is 4"), "{words}");
    assert!(router.is(&KvState::Evicted(words.clone()), 0));
    assert!(router.member.status.is_evicted());
    assert_eq!(router.counted("kinference_kv_evictions_total"), 1);
}

#[tokio::test]
async fn a_worker_without_an_event_socket_stays_unknown() {
    let mut router = Router::follow(None, None, DEADLINE);
    assert_eq!(router.task.join_next().await.unwrap().unwrap(), None);
    assert!(router.is(&KvState::Unknown, 0));
}

/// Forwards connections to `to` until told to hold still: then those made before carry nothing and stay open.
async fn forward(listener: TcpListener, to: String, holding: watch::Receiver<bool>) {
    let mut open = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        let (to, mut holding) = (to.clone(), holding.clone());
        holding.mark_unchanged();
        open.spawn(async move {
            let mut far = TcpStream::connect(to).await.unwrap();
            tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => {}
                _ = holding.changed() => std::future::pending().await,
            }
        });
    }
}

#[tokio::test]
async fn a_connection_that_died_in_silence_is_found_out() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK)]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = format!("tcp://{}", listener.local_addr().unwrap());
    let (hold, holding) = watch::channel(false);
    let mut proxy = JoinSet::new();
    proxy.spawn(forward(listener, engine.events_at.trim_start_matches("tcp://").into(), holding));
    let router = Router::follow(Some(&near), Some(&engine.replay_at), DEADLINE);
    router.reaches(KvState::Synced, 1).await;
    router.is_subscribed(&mut engine, 2).await;
    hold.send(true).unwrap();
    engine.publish(vec![remove(1), store(2, BLOCK), store(3, BLOCK)]).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    let found = async {
        while !router.is(&KvState::Synced, 2) {
            router.member.status.kv_expected.notify_one();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, found).await.unwrap();
    assert_eq!(router.counted("kinference_kv_restarts_total"), 0);
}

#[tokio::test]
async fn kinfctl_tails_what_came_before_and_what_comes() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK)]);
    engine.lose(vec![remove(1)]);
    let mut kinfctl = tokio::process::Command::new(env!("CARGO_BIN_EXE_kinfctl"))
        .args(["events", "tail", &engine.events_at, "--replay", &engine.replay_at])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(kinfctl.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap().unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        (line["seq"].as_u64().unwrap(), line["type"].as_str().unwrap().to_string())
    };
    assert_eq!(next().await, (0, "BlockStored".into()));
    assert_eq!(next().await, (1, "BlockRemoved".into()));
    // Whichever is the first after the subscription is active.
    let publishing = async {
        loop {
            engine.publish(vec![store(2, BLOCK)]).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (seq, kind) = tokio::select! {
        line = next() => line,
        () = publishing => unreachable!(),
    };
    assert!(seq >= 2 && kind == "BlockStored");
}
