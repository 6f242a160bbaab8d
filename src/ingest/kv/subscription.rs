//! The subscription to one data-parallel rank of one worker: sockets in, sequence machine, index out.
//!
//! Owner: the worker's `Ranks`. Invariant: the only writer of the rank's blocks. Decisions are the machine's; here
//! is only I/O.

use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    board::Board,
    connection::Connection,
    decode::decode,
    metrics::{KvMetrics, ReplayOutcome},
    replay::{Replay, ReplayError, Replayed},
    sequence::{Action, Input, Mode, Sequence},
    silence::Silence,
    wire::numbered,
};
use crate::{
    cache::{Applied, CacheWriter},
    fleet::{Heard, KvSockets, KvState, Member},
};

/// From one attempt to connect to the next: at first, doubling up to the most. The library itself tries a
/// refused connection again within an attempt, with like pauses.
const BACKOFF: Duration = Duration::from_millis(50);
const MOST_BACKOFF: Duration = Duration::from_secs(1);

/// What one rank is followed by.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Where it publishes.
    pub sockets: KvSockets,
    /// For one whole replay, however often it has to be taken up again.
    pub replay_timeout: Duration,
    /// Notified when the engine has computed something: then events should come, too.
    pub expected: Arc<Notify>,
}

/// The worker publishes what can't be used: in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted(pub String);

/// A subscription at work.
pub struct Subscriber {
    member: Arc<Member>,
    writer: CacheWriter,
    metrics: KvMetrics,
    board: Arc<Board>,
    subscription: Subscription,
    sequence: Sequence,
    silence: Silence,
    replay: Option<Replay>,
    /// When the replay has to be complete.
    deadline: Instant,
    /// Why the next change of state, for the log.
    cause: Option<String>,
}

/// How a connection ends.
enum End {
    Lost,
    Redial,
}

impl Subscriber {
    /// Not connected yet.
    pub fn new(
        subscription: Subscription,
        member: Arc<Member>,
        (writer, metrics, board): (CacheWriter, KvMetrics, Arc<Board>),
    ) -> Self {
        let now = Instant::now();
        Self {
            sequence: Sequence::new(subscription.sockets.replay.is_some()),
            member,
            writer,
            metrics,
            board,
            subscription,
            silence: Silence::new(now),
            replay: None,
            deadline: now,
            cause: None,
        }
    }

    /// Follows the engine until it has to be evicted.
    pub async fn run(mut self) -> Evicted {
        match self.follow().await {
            ControlFlow::Break(evicted) => evicted,
            ControlFlow::Continue(never) => match never {},
        }
    }

    async fn follow(&mut self) -> ControlFlow<Evicted, std::convert::Infallible> {
        let mut backoff = BACKOFF;
        loop {
            let dialled = Instant::now();
            let end = match Connection::dial(&self.subscription.sockets.events).await {
                Ok(connection) => {
                    self.step(Input::Connected)?;
                    self.listen(connection).await?
                }
                Err(error) => {
                    self.cause = Some(error.to_string());
                    End::Lost
                }
            };
            if matches!(end, End::Lost) {
                self.step(Input::Disconnected)?;
                if dialled.elapsed() > MOST_BACKOFF {
                    backoff = BACKOFF;
                }
                sleep_until(dialled + backoff).await;
                backoff = (backoff * 2).min(MOST_BACKOFF);
            }
        }
    }

    async fn listen(&mut self, mut connection: Connection) -> ControlFlow<Evicted, End> {
        let expected = self.subscription.expected.clone();
        loop {
            self.writer.ready().await;
            tokio::select! {
                frames = connection.next() => match frames {
                    Some(frames) => self.live(&frames)?,
                    None => return ControlFlow::Continue(End::Lost),
                },
                said = next_of(&mut self.replay) => self.replayed(said)?,
                () = sleep_until(self.deadline), if self.replay.is_some() => {
                    self.replayed(Replayed::Failed(ReplayError::TimedOut))?;
                }
                () = expected.notified() => {
                    if self.silence.scrape_moved(Instant::now()) && self.step(Input::Suspect)? {
                        return ControlFlow::Continue(End::Redial);
                    }
                }
            }
        }
    }

    fn live(&mut self, frames: &[Bytes]) -> ControlFlow<Evicted> {
        self.silence.broken(Instant::now());
        match numbered(frames) {
            Ok(message) => {
                self.step(Input::Live { seq: message.seq, payload: message.payload })?;
            }
            Err(error) => {
                tracing::debug!(worker = %self.member.worker.name, rank = self.named(), %error, "a KV-event message is skipped");
                self.metrics.undecodable.inc();
            }
        }
        ControlFlow::Continue(())
    }

    fn replayed(&mut self, said: Replayed) -> ControlFlow<Evicted> {
        let input = match said {
            Replayed::Batch(batch) => Input::ReplayBatch { seq: batch.seq, payload: batch.payload },
            Replayed::End => {
                self.replay = None;
                self.metrics.replay(ReplayOutcome::Completed);
                Input::ReplayEnd
            }
            Replayed::Failed(error) => {
                self.replay = None;
                self.metrics.replay(match error {
                    ReplayError::TimedOut => ReplayOutcome::TimedOut,
                    _ => ReplayOutcome::Failed,
                });
                self.cause = Some(error.to_string());
                Input::ReplayFailed
            }
        };
        self.step(input).map_continue(|_| ())
    }

    /// Feeds the machine and does what it says; whether to dial anew.
    fn step(&mut self, input: Input) -> ControlFlow<Evicted, bool> {
        let (sequence, actions) = std::mem::replace(&mut self.sequence, Sequence::new(false)).step(input);
        self.sequence = sequence;
        let mut redial = false;
        for action in actions {
            match action {
                Action::Clear => self.writer.clear(),
                Action::Apply(payload) => self.apply(&payload)?,
                Action::StartReplay { from } => self.start_replay(from),
                Action::Enter(mode) => self.enter(mode),
                Action::Gap => self.metrics.gaps.inc(),
                Action::Restarted => {
                    self.cause = Some("the engine restarted".into());
                    self.metrics.restarts.inc();
                }
                Action::Redial => {
                    let worker = &self.member.worker.name;
                    tracing::info!(%worker, rank = self.named(), "the engine works and sends no KV events: dialling anew");
                    redial = true;
                }
            }
        }
        ControlFlow::Continue(redial)
    }

    fn start_replay(&mut self, from: u64) {
        self.replay = self.subscription.sockets.replay.clone().map(|endpoint| Replay::start(endpoint, from));
    }

    fn apply(&mut self, payload: &[u8]) -> ControlFlow<Evicted> {
        let batch = match decode(payload) {
            Ok(batch) => batch,
            Err(error) => {
                tracing::debug!(worker = %self.member.worker.name, rank = self.named(), %error, "a KV-event batch is skipped");
                self.metrics.undecodable.inc();
                return ControlFlow::Continue(());
            }
        };
        self.metrics.batches.inc();
        if self.replay.is_none() {
            self.heard(batch.ts);
        }
        for skipped in &batch.skipped {
            self.metrics.skipped(skipped.reason);
        }
        for event in &batch.events {
            if let Applied::BlockSize { published } = self.writer.apply(event) {
                let configured = self.member.worker.set.kv_block_size;
                let rank =
                    self.named().map_or(String::new(), |rank| format!("on data-parallel rank {rank} "));
                return ControlFlow::Break(Evicted(format!(
                    "{rank}it publishes KV blocks of {published} tokens, but kv_block_size of its worker set is {configured}"
                )));
            }
        }
        ControlFlow::Continue(())
    }

    /// A live batch came that the engine made at `made`, in seconds since the epoch.
    fn heard(&self, made: f64) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let heard = Heard { at_ms, lag_ms: (now.as_secs_f64() - made) * 1e3 };
        self.member.status.kv_heard.store(Some(Arc::new(heard)));
    }

    fn enter(&mut self, mode: Mode) {
        if mode == Mode::Replaying {
            self.deadline = Instant::now() + self.subscription.replay_timeout;
        } else {
            self.replay = None;
        }
        let state = match mode {
            Mode::Disconnected => KvState::Disconnected,
            Mode::Replaying => KvState::Replaying,
            Mode::Synced => KvState::Synced,
            Mode::LiveOnly => KvState::LiveOnly,
        };
        let cause = self.cause.take();
        if self.board.say(self.subscription.sockets.rank, state) {
            self.tell(mode, cause.as_deref());
        }
    }

    /// The rank, where the worker has several.
    fn named(&self) -> Option<u32> {
        self.board.named(self.subscription.sockets.rank)
    }

    /// Says what is new. What costs cache credit until someone does something about it is a warning.
    fn tell(&self, mode: Mode, cause: Option<&str>) {
        let (worker, endpoint) = (&self.member.worker.name, &self.subscription.sockets.events);
        let rank = self.named();
        match (mode, &self.subscription.sockets.replay) {
            (Mode::Disconnected, _) => {
                tracing::warn!(%worker, rank, %endpoint, cause, "KV events: not connected, nothing is known of its cache");
            }
            (Mode::Replaying, _) => {
                tracing::info!(%worker, rank, cause, "KV events: connected, being replayed")
            }
            (Mode::Synced, _) => tracing::info!(%worker, rank, cause, "KV events: in sync"),
            (Mode::LiveOnly, None) => {
                tracing::info!(%worker, rank, cause, "KV events: live only, it has no replay_endpoint");
            }
            (Mode::LiveOnly, Some(replay)) => {
                tracing::warn!(%worker, rank, endpoint = %replay, cause, "KV events: live only, the replay failed");
            }
        }
    }
}

/// What the running replay says next; never, when none runs.
async fn next_of(replay: &mut Option<Replay>) -> Replayed {
    match replay {
        Some(replay) => replay.next().await,
        None => std::future::pending().await,
    }
}
