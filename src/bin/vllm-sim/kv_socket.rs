//! The KV-event publisher: a PUB socket that numbers batches, and a ROUTER socket that replays the last ones.
//!
//! Framing is that of vLLM 0.26 and later: `[topic, seq, payload]`, and for a replay `[empty, topic, seq, payload]` per
//! batch with the end marker `[empty, empty, ff*8, empty]`. Sequence numbers start at 0.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use bytes::Bytes;
use parking_lot::Mutex;
use tracing::warn;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

/// Batches kept for replay.
pub const KEPT_BATCHES: usize = 10_000;
const END: [u8; 8] = [0xff; 8];
/// A replaying peer that takes nothing for this long is given up.
const REPLAY_PATIENCE: Duration = Duration::from_secs(5);

/// Batches sent so far, of which the last ones are kept.
#[derive(Debug, Default)]
pub struct Log {
    next: u64,
    kept: VecDeque<(u64, Bytes)>,
}

impl Log {
    /// Appends a payload and gives its sequence number.
    fn push(&mut self, payload: Bytes) -> u64 {
        let seq = self.next;
        self.next += 1;
        if self.kept.len() == KEPT_BATCHES {
            self.kept.pop_front();
        }
        self.kept.push_back((seq, payload));
        seq
    }

    fn since(&self, start: u64) -> Vec<(u64, Bytes)> {
        let first = self.kept.partition_point(|(seq, _)| *seq < start);
        self.kept.range(first..).cloned().collect()
    }
}

/// The sending end.
pub struct Publisher {
    socket: PubSocket,
    topic: Bytes,
    log: Arc<Mutex<Log>>,
}

impl Publisher {
    /// Binds `endpoint`; gives the publisher and the endpoint as bound.
    ///
    /// # Errors
    /// If the endpoint can't be bound.
    pub async fn bind(endpoint: &str, topic: &str) -> Result<(Self, String)> {
        let mut socket = PubSocket::new();
        let bound = socket.bind(&any_host(endpoint)).await.with_context(|| format!("bind {endpoint}"))?;
        let topic = Bytes::copy_from_slice(topic.as_bytes());
        Ok((Self { socket, topic, log: Arc::default() }, bound.to_string()))
    }

    /// Sends one batch, and keeps it for replay.
    pub async fn publish(&mut self, payload: Vec<u8>) {
        let payload = Bytes::from(payload);
        let seq = self.log.lock().push(payload.clone());
        let message = frames([self.topic.clone(), number(seq), payload]);
        if let Err(error) = self.socket.send(message).await {
            warn!(%error, seq, "a KV-event batch was not sent");
        }
    }

    /// Binds the replay socket for this publisher's batches.
    ///
    /// # Errors
    /// If the endpoint can't be bound.
    pub async fn bind_replay(&self, endpoint: &str) -> Result<(Replay, String)> {
        let mut socket = RouterSocket::new();
        let bound = socket.bind(&any_host(endpoint)).await.with_context(|| format!("bind {endpoint}"))?;
        let replay = Replay { socket, topic: self.topic.clone(), log: self.log.clone() };
        Ok((replay, bound.to_string()))
    }
}

/// The replaying end.
pub struct Replay {
    socket: RouterSocket,
    topic: Bytes,
    log: Arc<Mutex<Log>>,
}

impl Replay {
    /// Answers replay requests, one after another, as long as the socket lives.
    pub async fn run(mut self) {
        while let Ok(message) = self.socket.recv().await {
            let frames = message.into_vec();
            // [identity, empty, start]
            let [identity, .., start] = frames.as_slice() else { continue };
            let Ok(start) = <[u8; 8]>::try_from(start.as_ref()) else { continue };
            let answer = self.answer(identity, u64::from_be_bytes(start));
            match tokio::time::timeout(REPLAY_PATIENCE, answer).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => warn!(%error, "a replay broke off"),
                Err(_) => warn!("a replay's peer takes nothing: given up"),
            }
        }
    }

    async fn answer(&mut self, identity: &Bytes, start: u64) -> zeromq::ZmqResult<()> {
        let batches = self.log.lock().since(start);
        for (seq, payload) in batches {
            let message = frames([identity.clone(), Bytes::new(), self.topic.clone(), number(seq), payload]);
            self.socket.send(message).await?;
        }
        let end = [identity.clone(), Bytes::new(), Bytes::new(), Bytes::from_static(&END), Bytes::new()];
        self.socket.send(frames(end)).await
    }
}

/// vLLM's `*` for every address.
fn any_host(endpoint: &str) -> String {
    endpoint.replace("://*:", "://0.0.0.0:")
}

fn number(seq: u64) -> Bytes {
    Bytes::copy_from_slice(&seq.to_be_bytes())
}

fn frames<const N: usize>(frames: [Bytes; N]) -> ZmqMessage {
    let mut frames = frames.into_iter();
    let mut message = ZmqMessage::from(frames.next().unwrap_or_default());
    frames.for_each(|frame| message.push_back(frame));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_the_last_batches_and_their_numbers() {
        let mut log = Log::default();
        for seq in 0..KEPT_BATCHES as u64 + 5 {
            assert_eq!(log.push(Bytes::new()), seq);
        }
        assert_eq!(log.since(0).len(), KEPT_BATCHES);
        assert_eq!(log.since(0)[0].0, 5);
        assert_eq!(log.since(10_003).iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [10_003, 10_004]);
        assert!(log.since(10_005).is_empty());
    }
}
