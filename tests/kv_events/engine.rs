//! An engine's rank of PUB and ROUTER sockets on 127.0.0.1.

use std::sync::Arc;

use bytes::Bytes;
use kinference::{
    fleet::{KvSockets, KvSource},
    types::Rank,
};
use parking_lot::Mutex;
use rmpv::Value;
use tokio::task::JoinSet;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

/// The tokens of a block.
pub fn tokens(hash: u64, block_size: u32) -> impl Iterator<Item = u32> {
    (0..block_size).map(move |i| u32::try_from(hash).unwrap() * 100 + i)
}

/// A block at the start of a prompt.
pub fn store(hash: u64, block_size: u32) -> Value {
    store_after(None, hash, block_size)
}

/// A block after another one.
pub fn store_after(parent: Option<u64>, hash: u64, block_size: u32) -> Value {
    let tokens = tokens(hash, block_size).map(Value::from).collect();
    Value::Map(vec![
        ("type".into(), "BlockStored".into()),
        ("block_hashes".into(), Value::Array(vec![hash.into()])),
        ("parent_block_hash".into(), parent.map_or(Value::Nil, Value::from)),
        ("token_ids".into(), Value::Array(tokens)),
        ("block_size".into(), block_size.into()),
        ("medium".into(), "GPU".into()),
    ])
}

pub fn remove(hash: u64) -> Value {
    Value::Array(vec!["BlockRemoved".into(), Value::Array(vec![hash.into()]), "GPU".into()])
}

/// How the replay socket behaves.
#[derive(Clone, Copy, PartialEq)]
pub enum Replays {
    /// With a topic frame, as from vLLM 0.26 on.
    WithTopic,
    /// Without, as before.
    Bare,
    /// Takes the question and never answers.
    Never,
}

/// What several tasks of an engine keep a list of.
type Listed<T> = Arc<Mutex<Vec<T>>>;

pub struct Engine {
    events: PubSocket,
    pub log: Listed<Bytes>,
    published: u8,
    pub events_at: String,
    pub replay_at: String,
    /// What replays were asked to begin with.
    pub asked: Listed<u64>,
    replays: JoinSet<()>,
}

impl Engine {
    pub async fn start(replays: Replays) -> Self {
        Self::start_at("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", replays).await
    }

    pub async fn start_at(events_at: &str, replay_at: &str, behaviour: Replays) -> Self {
        let mut events = PubSocket::new();
        let events_at = events.bind(events_at).await.unwrap().to_string();
        let mut router = RouterSocket::new();
        let replay_at = router.bind(replay_at).await.unwrap().to_string();
        let log = Arc::new(Mutex::new(vec![]));
        let asked = Arc::new(Mutex::new(vec![]));
        let mut replays = JoinSet::new();
        replays.spawn(serve_replays(router, (log.clone(), asked.clone()), behaviour));
        Self { events, log, published: 0, events_at, replay_at, asked, replays }
    }

    /// Publishes a batch that no subscriber gets.
    pub fn lose(&mut self, events: Vec<Value>) -> (u64, Bytes) {
        self.published = self.published.wrapping_add(1);
        let batch = [Value::F64(self.published.into()), Value::Array(events), Value::from(0)];
        let mut payload = vec![];
        rmpv::encode::write_value(&mut payload, &Value::Array(batch.into())).unwrap();
        let payload = Bytes::from(payload);
        let mut log = self.log.lock();
        log.push(payload.clone());
        (log.len() as u64 - 1, payload)
    }

    pub async fn publish(&mut self, events: Vec<Value>) {
        let (seq, payload) = self.lose(events);
        self.send(vec![Bytes::from_static(b"kv-events"), seq.to_be_bytes().to_vec().into(), payload]).await;
    }

    pub async fn send(&mut self, frames: Vec<Bytes>) {
        self.events.send(ZmqMessage::try_from(frames).unwrap()).await.unwrap();
    }

    /// Numbers anew on the same sockets, all blocks gone.
    pub fn forget(&mut self) {
        self.log.lock().clear();
    }

    pub async fn stop(mut self) -> (String, String) {
        self.replays.shutdown().await;
        self.events.close().await;
        (self.events_at, self.replay_at)
    }
}

/// Where each of some ranks publishes.
pub fn sockets(engines: &[&Engine]) -> KvSource {
    let one = |(rank, engine): (u32, &&Engine)| KvSockets {
        rank: Rank(rank),
        events: engine.events_at.clone(),
        replay: Some(engine.replay_at.clone()),
    };
    KvSource::Sockets((0..).zip(engines).map(one).collect())
}

async fn serve_replays(
    mut router: RouterSocket,
    (log, asked): (Listed<Bytes>, Listed<u64>),
    behaviour: Replays,
) {
    while let Ok(request) = router.recv().await {
        let frames = request.into_vec();
        let [peer, empty, from] = &frames[..] else { panic!("{frames:?}") };
        assert!(empty.is_empty());
        let from = u64::from_be_bytes(from[..].try_into().unwrap());
        asked.lock().push(from);
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
