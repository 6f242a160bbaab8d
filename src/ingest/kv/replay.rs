//! One replay: a DEALER socket of its own, read by a task as fast as the engine sends.
//!
//! Owner: a subscription. The engine's ROUTER drops what does not fit its queue (1,000 messages), so reading
//! does not wait for the index. Dropping a [`Replay`] ends it.

use bytes::Bytes;
use tokio::{sync::mpsc, task::JoinSet};
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, ZmqError, ZmqMessage};

use super::{
    connection::{lost, options},
    wire::{FramingError, Numbered, numbered, replay_request},
};

/// Batches read ahead of the index.
const READ_AHEAD: usize = 4096;

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Nobody answers at the replay socket.
    #[error("cannot reach the replay socket: {0}")]
    Socket(#[from] ZmqError),
    /// The connection ended before the end marker.
    #[error("the replay socket closed before the end of the replay")]
    Lost,
    /// An answer that is no replay.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// It took longer than it may.
    #[error("the replay took longer than replay_timeout_ms")]
    TimedOut,
}

/// What a replay says next.
#[derive(Debug)]
pub enum Replayed {
    /// A batch.
    Batch(Numbered),
    /// Nothing more.
    End,
    /// Not to be had.
    Failed(ReplayError),
}

/// A running replay.
pub struct Replay {
    batches: mpsc::Receiver<Replayed>,
    /// Aborts the reader when dropped.
    _reader: JoinSet<()>,
}

impl Replay {
    /// Asks `endpoint` for everything from `from` on.
    pub fn start(endpoint: String, from: u64) -> Self {
        let (out, batches) = mpsc::channel(READ_AHEAD);
        let mut reader = JoinSet::new();
        reader.spawn(async move {
            let last = match read(&endpoint, from, &out).await {
                Ok(()) => Replayed::End,
                Err(error) => Replayed::Failed(error),
            };
            // A closed channel: nobody wants it any more.
            let _ = out.send(last).await;
        });
        Self { batches, _reader: reader }
    }

    /// What comes next; `End` or `Failed` is the last. Cancel-safe.
    pub async fn next(&mut self) -> Replayed {
        self.batches.recv().await.unwrap_or(Replayed::Failed(ReplayError::Lost))
    }
}

async fn read(endpoint: &str, from: u64, out: &mpsc::Sender<Replayed>) -> Result<(), ReplayError> {
    let mut socket = DealerSocket::with_options(options());
    let mut monitor = socket.monitor();
    socket.connect(endpoint).await?;
    let request: Vec<Bytes> = replay_request(from);
    socket.send(ZmqMessage::try_from(request).map_err(|_| ReplayError::Lost)?).await?;
    loop {
        let message = tokio::select! {
            biased;
            message = socket.recv() => message?,
            () = lost(&mut monitor) => return Err(ReplayError::Lost),
        };
        let batch = numbered(&message.into_vec())?;
        if batch.ends_replay() {
            return Ok(());
        }
        if out.send(Replayed::Batch(batch)).await.is_err() {
            return Ok(());
        }
    }
}
